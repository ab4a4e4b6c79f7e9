// Package scenarios holds scenarios as data: workload, load, faults, expectations, and scripts that force one
// interleaving. It parses and validates; it runs nothing.
package scenarios

import (
	"time"

	"github.com/eventproof/eventproof/faults/plan"
	"github.com/eventproof/eventproof/points"
)

// Scenario is what is run against a target.
type Scenario struct {
	Name        string
	Description string
	File        string // where it was read from, for messages and annotations
	Workload    Workload
	Load        Load         // random mode
	Roles       Roles        // random mode
	Faults      []plan.Fault // random mode
	Script      *Script      // scripted mode; then Load, Roles and Faults are empty
	Expect      []Expect
	Gates       []Gate
	// Controls that the script is meant to catch, and the correct variants it is to leave alone ("*" = all).
	Targets []string
}

// Scripted reports whether the scenario forces its interleaving.
func (s Scenario) Scripted() bool { return s.Script != nil }

// Workload says what commands are made.
type Workload struct {
	Kind    string // "bank" or "auction"
	Streams int    // accounts or auctions
	Keys    Keys
	// Bank.
	InitialBalance int64   // minor units
	MaxAmount      int64   // amounts are uniform in 1…MaxAmount
	Withdraw       float64 // shares of the mix; they are normalised
	Deposit        float64
	BlindDeposit   float64 // appended without an expected version
	// Auction.
	OpeningPrice int64
	Bid          float64
	Replay       float64       // the same bid again
	AlterBid     float64       // the same bid id with another body
	EqualBid     float64       // a bid equal to a recent one of another bidder
	CloseAfter   time.Duration // each auction is closed about so long after the load began; 0 = never
	// SnapshotEvery versions a snapshot is kept; 0 = none.
	SnapshotEvery int
}

// Keys is how streams are chosen.
type Keys struct {
	Dist     string  // "uniform", "zipf", "hot"
	Exponent float64 // zipf: any value ≥ 0
	HotShare float64 // hot: share of the commands that go to the hot set
	HotCount int     // hot: size of the hot set
}

// Load is the arrival process.
type Load struct {
	Model    string  // "open" or "closed"
	Arrival  string  // open: "poisson" or "fixed"
	Rate     float64 // open: commands per second, over all writers
	Workers  int     // per writer
	Queue    int     // open: bound of a writer's queue
	Phases   []Phase
	Deadline time.Duration // of one command
	Try      time.Duration // of one attempt, below the deadline
}

// Phase of the load; phases follow each other.
type Phase struct {
	Name   string
	For    time.Duration
	Warmup bool // left out of the measured numbers
}

// Duration is the sum of the phases.
func (l Load) Duration() time.Duration {
	var d time.Duration
	for _, p := range l.Phases {
		d += p.For
	}
	return d
}

// Roles says how many roles of each kind run and whether they are processes.
type Roles struct {
	Writers          int
	WriterProcess    bool
	Projectors       int // projectors of each view (competing owners above 1)
	ProjectorProcess bool
	Poll             time.Duration // pause of an idle projector
	Batch            int           // events a page
}

// Expect is an invariant that must hold, with the opportunities it must have had.
type Expect struct {
	Invariant string
	Min       map[string]int64
	// IfPromised: it is required of those targets only that promise it, for scenarios that compare stores.
	IfPromised bool
	Line       int // in File
}

// Gate is an absolute limit on a measured number; a miss exits 3.
type Gate struct {
	Metric string  // dotted path below metrics: "latency_s.response.p99"
	Op     string  // "<=", ">="
	Limit  float64 // in the metric's unit
	Line   int
}

// Script is a deterministic schedule: sessions and steps.
type Script struct {
	// Streams to set up before the first step: stream name → amount (opening balance or opening price).
	Streams  map[string]int64
	Sessions []Session
	Steps    []Step
	// Try bounds one attempt and one round of a projector. It is long, so that a session that is held does not
	// run out of time on a busy machine; a script that waits for it to pass sets it short.
	Try time.Duration
}

// Session is one role of a script.
type Session struct {
	Name string
	Role string // "writer", "projector", or "owner": one of the target's owners, by its name
	View string // projector: which view
}

// Step is one step of a script: a hold and an action, both optional, then an await. A step has at most one
// action; the fields below Await are the actions.
type Step struct {
	Line    int
	Session string
	// Hold sets, before the action, the points at which the session stops when it next comes to one of them;
	// it replaces the points set before. An empty list holds nothing. SetHold tells it from "not mentioned".
	Hold    []points.Point
	SetHold bool
	// Await waits, after the action, until the session stands at one of its points.
	Await bool

	// Do runs a command to its end; Start begins it and goes on at once.
	Do    *Command
	Start *Command
	// Continue begins, in this session, the command that another session had begun and not finished.
	Continue string
	// Wait waits for the session's command to end.
	Wait bool
	// Settle waits for the end of the session's command, at most so long: an assembly that makes it wait
	// (an allocator lock, say) is as right as one that lets it pass.
	Settle time.Duration
	// Release lets the session go on from where it stands.
	Release bool
	// Crash ends the session where it stands, sockets reset first; Restart starts it again.
	Crash   bool
	Restart bool
	// Pause lets time pass: for a client's own time-out only, never in place of an event that can be awaited.
	Pause time.Duration
	// Fault switches a fault on, Bitten waits until it has bitten, Lift switches it off.
	Fault  *plan.Fault
	Bitten string
	Lift   string
	// Observe reads a projection in one atomic read.
	Observe string
	// Drain lets a projector run until it has applied everything.
	Drain bool
	// Read makes the session read a stream strongly, outside any command.
	Read string
	// Answer demands how the session's last command ended: "ok", "refused INSUFFICIENT_FUNDS", "unknown"; for
	// the correct assemblies only.
	Answer string
}

// Command of a script.
type Command struct {
	Name   string // "withdraw", "deposit", "blind-deposit", "bid", "close"
	Stream string
	ID     string // command id; "" = made from session and step
	Amount int64
	Bid    string // bid id
	Bidder string
	// Expected is the version that a blind command demands of its stream; nil = any.
	Expected *uint64
}
