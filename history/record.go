// Package history is the recorded truth of one trial: what was asked, sent, answered, injected and, after
// the fence, what the store holds. Live segments are plain append-only files, one a process; they are merged
// into one compressed file when the trial ends. Checkers see nothing else.
package history

import "github.com/eventproof/eventproof/eventstore"

// Record is one entry of a history. The set is closed: record kinds are listed in kinds.go.
type Record interface {
	Kind() Kind
	// walk visits every field in the order of the wire format; one definition serves encoding, decoding,
	// the JSON form and the published schema.
	walk(v visitor)
}

// Ids of calls, writes, attempts and reads are unique in a trial: the process id in the high 24 bits, a
// counter in the low 40. 0 means none.

// MakeID builds an id from a process id and that process's counter.
func MakeID(process uint32, n uint64) uint64 { return uint64(process)<<40 | n&(1<<40-1) }

// ProcessOf returns the process id of an id made by MakeID.
func ProcessOf(id uint64) uint32 { return uint32(id >> 40) }

// Trial opens every history file: what was run, and everything a checker must know of it.
type Trial struct {
	Info TrialInfo
}

// Process marks the start of a role process (or of a role inside the runner's process).
type Process struct {
	ID          uint32
	Role        string // "writer", "projector", "runner", "auditor"
	Name        string // the name within the trial: "writer-1"
	Incarnation uint32 // counts restarts of the same name, from 1
	PID         uint32
	Child       bool // a process of its own
	T           int64
}

// ProcessEnd marks the end of a role. A killed process turns its open attempts into unknown at T.
type ProcessEnd struct {
	ID  uint32
	T   int64
	How ProcessExit
	// Counts of the records that the process says it has written; zero when it could not say (killed).
	Calls, Writes, Attempts, Reads uint64
}

// CallStart opens one run of the command loop for one command by one process.
type CallStart struct {
	Call      uint64
	Process   uint32
	Session   uint32 // worker within the process; calls of one session never overlap
	CommandID string
	Stream    string
	Name      string // "withdraw", "bid", …
	Body      []byte // canonical JSON of the command's body
	Continued bool   // the process continues a command that another call had begun
	Intended  int64  // when the schedule wanted it to start; equals Started in a closed loop
	Started   int64  // when a worker took it
}

// CallEnd is the answer that the caller got.
type CallEnd struct {
	Call      uint64
	T         int64
	Result    Result
	Code      string               // "INSUFFICIENT_FUNDS", "STALE_BID", …; empty when ok
	Retriable bool                 // the flag that the answer carried
	Text      string               // the message, wire form
	Version   uint64               // of the last event named by an ok answer
	StateHash eventstore.Hash      // hash of the state the ok answer returned; zero = the answer returned none
	Events    []eventstore.EventID // named by an ok answer
	Replayed  bool                 // answered from an earlier execution (store dedupe, or the bid ledger in the state)
	// Decision behind a refusal (Basis, Hash, Read…); zero for other results.
	Decision  eventstore.Decision
	Have      int64  // amount shown by a refusal: the balance, or the high bid; by a native closing: the high bid
	Want      int64  // amount asked for; for an accepted bid the amount of the bid in the ledger
	At        int64  // accepted bids: acceptedAt in unix milliseconds
	Conflicts uint32 // version conflicts this call counted against its decision budget
}

// Write is one decision under a command: the same events over all blind retries.
type Write struct {
	Write    uint64
	Call     uint64
	Stream   string
	Any      bool
	Expected uint64 // exact expected version; 0 with Any
	Request  string // the idempotency token
	Events   []WriteEvent
	Decision eventstore.Decision
}

// WriteEvent is one event of a write.
type WriteEvent struct {
	ID      eventstore.EventID
	Type    string
	Payload eventstore.Hash // eventstore.PayloadHash
}

// Invoke is written before the first byte of an attempt of a write leaves.
type Invoke struct {
	Attempt uint64
	Write   uint64
	T       int64
}

// Return is the answer to an attempt of a write, stamped after it was read.
type Return struct {
	Attempt       uint64
	T             int64
	Outcome       eventstore.Outcome
	Reason        eventstore.Reason
	Session       string // connection that carried the attempt, if told
	First, Last   uint64
	Events        []eventstore.EventID // named by an ok answer
	Positions     []eventstore.Position
	Replayed      bool
	Head          uint64 // shown by a conflict, if HeadKnown
	HeadKnown     bool
	DriverRetries uint32
	RoundTrips    uint32
	Text          string // the error's text, shortened
}

// Evidence upgrades the unknown attempts of a write during the run (INVARIANTS 2.3).
type Evidence struct {
	Write   uint64
	Call    uint64 // the call that looked
	Read    uint64 // the read it rests on; 0 if none
	T       int64  // when the evidence returned
	Form    EvidenceForm
	Outcome eventstore.Outcome // OK or Fail, about Write
}

// Read is one read of a stream; it has no effect on the store, so it is recorded whole when it returns.
type Read struct {
	Read        uint64
	Call        uint64 // 0 for reads outside a command
	Process     uint32
	Session     uint32
	Stream      string
	From, To    uint64 // To 0 = open end
	Invoke      int64
	T           int64
	Outcome     eventstore.Outcome // OK or Fail: a read that gives no answer claims nothing
	Reason      eventstore.Reason
	Strong      bool
	First, Last uint64 // versions of the first and last event returned; 0, 0 = empty
	Count       uint64
	Range       RangeHash // over what was returned
	Snapshot    uint64    // version of the snapshot that the load started from; 0 = none
	Pages       uint32
	Flaw        string // what the answer itself shows to be wrong: order, stream, range; empty = nothing
}

// SnapshotWrite is the journal of snapshots, written before the put.
type SnapshotWrite struct {
	Process uint32
	T       int64
	Stream  string
	Version uint64
	State   []byte // canonical encoding
}

// SnapshotResult tells how a put ended.
type SnapshotResult struct {
	Process uint32
	T       int64
	Stream  string
	Version uint64
	Outcome eventstore.Outcome
}

// Poll is one answer of a feed to a projector.
type Poll struct {
	Process     uint32
	Projection  string
	Generation  uint64
	Invoke, T   int64
	After, Next eventstore.Cursor
	Events      uint32
	Held        string // who holds the reader back, if told
	Outcome     eventstore.Outcome
}

// Apply is one application of a page to a projection, written when it ended.
type Apply struct {
	Process    uint32
	Projection string
	Generation uint64
	Invoke, T  int64
	Prev, Next eventstore.Cursor
	Events     uint32
	Seq        uint64 // of the checkpoint after it, if ok
	Outcome    eventstore.Outcome
	Reason     eventstore.Reason
	Session    string
}

// Fault is a planned fault when it begins.
type Fault struct {
	ID        string
	FaultKind string
	On        string // role, store or process name
	T         int64
	Until     int64  // planned end; 0 = until lifted
	Text      string // parameters for people
}

// FaultEnd marks the lifting of a fault and says whether it was observed to bite.
type FaultEnd struct {
	ID     string
	T      int64
	Bit    bool
	Effect string // what was observed: "12 replies cut after the commit was forwarded"
	Count  uint64
}

// Bite is one observed effect of a fault on one request.
type Bite struct {
	Fault   string
	T       int64
	Session string // the connection, same name as in Return
	Form    BiteForm
	Landed  Landed // whether the request is known to have taken effect
	Since   int64  // holds: when the reply began to be held
	Text    string
}

// Drop is an arrival that the generator could not start: its queue was full, or the load was over before a worker was
// free.
type Drop struct {
	Process  uint32
	Intended int64
	T        int64
}

// Phase marks a phase of the load ("warmup", "calm", "faults", "drain", "heal").
type Phase struct {
	Name string
	T    int64
}

// Fence is the proof that nothing of the run can take effect any more.
type Fence struct {
	T       int64
	Fenced  bool // false: unfenced, the reason is in the proof
	Proof   string
	Drained bool // projections had reached the end of the log before the fence
}

// LoggedEvent is one event of L, the final log, read by the audit.
type LoggedEvent struct {
	Stream   string
	Version  uint64
	ID       eventstore.EventID
	Type     string
	Data     []byte
	Meta     eventstore.Metadata
	Position eventstore.Position
	// Transaction is the store's own id of the unit that wrote it, 0 if it has none.
	Transaction uint64
}

// LedgerRow is one effect: one event applied to one view row (or passed over for a stated reason), read from
// the store's ledger by the audit.
type LedgerRow struct {
	Projection  string
	Generation  uint64
	Event       eventstore.EventID
	Stream      string
	Version     uint64
	Row         string
	How         How
	RowVersion  uint64 // version of the view row after this effect
	RowOrder    uint64 // the row's own counter after this effect: the order of effects on one row
	Seq         uint64 // checkpoint counter that the same transaction moved to; 0 if it moved none
	Transaction uint64
	Epoch       uint64
}

// CheckpointRow is one durable value of a checkpoint, read from its history by the audit.
type CheckpointRow struct {
	Projection  string
	Generation  uint64
	Seq         uint64 // the row's own counter: the order of its values
	Epoch       uint64
	Cursor      eventstore.Cursor
	Transaction uint64
}

// ViewRow is one row of a view as the audit, or an atomic observation, found it.
type ViewRow struct {
	Observation uint32 // 0 = the final state
	Projection  string
	Generation  uint64
	Row         string
	Version     uint64
	State       []byte
}

// Observation is an atomic read of a projection (checkpoint and all rows in one snapshot) during the run:
// after a kill and before the restart. Its rows are ViewRows with the same number.
type Observation struct {
	ID         uint32
	T          int64
	Projection string
	Generation uint64
	Seq        uint64
	Cursor     eventstore.Cursor
	Rows       uint32
	Why        string
}

// AuctionRow is the row of an auction in its native form, as the audit found it. Its accepted bids are LoggedEvents.
type AuctionRow struct {
	Stream   string
	Closed   bool
	Opening  int64
	High     int64 // the opening price while there is no bid
	Bidder   string
	Accepted uint64 // kept by the statement that accepts a bid
	Changes  uint64 // kept by every statement that changes the row; 0 = the store keeps none
}

// HeadRow is what a store keeps of where a stream ends, beside the events, as the audit found it.
type HeadRow struct {
	Stream  string
	Version uint64
}

// Audit closes the audit: everything was read. Without it rules that need L are inconclusive.
type Audit struct {
	T                                  int64
	Events, Ledger, Checkpoints, Views uint64 // Views counts the rows of auctions and the heads too
	Problem                            string // not empty: the audit found itself contradicted
}

// End closes a merged history.
type End struct {
	T         int64
	Interrupt string // why the trial ended early; empty = it ran to its end
}
