// Package invariants judges a recorded history: one file a rule family, pure functions over what Load has
// read. INVARIANTS in docs/invariants says what each rule means; the comments here say the same.
package invariants

import (
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
)

// Run is an indexed history of one trial, the only input of every rule.
type Run struct {
	Info        history.TrialInfo
	Complete    bool // the file ends with its End record
	Processes   map[uint32]*Process
	Calls       []*Call // by start time
	Commands    map[string]*Command
	Writes      []*Write
	Reads       []*history.Read // by invoke time
	Streams     map[string]*Stream
	ByEvent     map[eventstore.EventID]*Write // the recorded write that owns an event id (first, if several)
	Projections map[Sigma]*Projection
	Polls       []*history.Poll
	Applies     []*history.Apply
	Faults      []*Fault
	Drops       []history.Drop
	Phases      []history.Phase
	Fence       *history.Fence // nil: none recorded
	Audit       *history.Audit // nil: the log was not read
	End         *history.End
	// Problems found while indexing: ids used twice, returns without invoke, …
	Problems []string
	// Warnings that do not spoil the judgement ("cut off in the middle of a record").
	Warnings []string
}

// Process is one role process with its end.
type Process struct {
	history.Process
	End *history.ProcessEnd // nil: still running when the history ended
}

// Command is a caller's intent with all its calls, by start time.
type Command struct {
	ID    string
	Calls []*Call
}

// Call is one run of the command loop.
type Call struct {
	history.CallStart
	End     *history.CallEnd // nil: never answered
	Writes  []*Write
	Reads   []*history.Read
	Command *Command
}

// Write is one decision with its attempts and evidence.
type Write struct {
	history.Write
	Owner    *Call
	Attempts []*Attempt
	Evidence []*history.Evidence
	// Applied: its events are in L (resolved after the audit; false without an audit).
	Applied bool
	// Invoke and Return are the write's interval: earliest invoke, earliest ok (answer or evidence) naming
	// it, Infinity if none.
	Invoke, Return int64
	// Acked: an ok answer or ok evidence names it.
	Acked bool
}

// Attempt is one wire try.
type Attempt struct {
	history.Invoke
	Return *history.Return // nil: open when the process died or the history ended
	Write  *Write
}

// Infinity is the return of what never returned.
const Infinity = int64(1<<63 - 1)

// Stream is one stream of L with everything recorded about it.
type Stream struct {
	Name   string
	Log    []*Logged // by version, ties by position
	Writes []*Write
	Reads  []*history.Read
	Calls  []*Call
}

// Logged is one event of L with the write that made it.
type Logged struct {
	history.LoggedEvent
	Payload eventstore.Hash
	Write   *Write // nil: a phantom
}

// Sigma is a projection's generation.
type Sigma struct {
	Projection string
	Generation uint64
}

// Projection is what the audit found of one σ.
type Projection struct {
	Sigma
	Info         history.ProjectionInfo
	Ledger       []*history.LedgerRow
	Checkpoints  []*history.CheckpointRow // by Seq
	Final        []*history.ViewRow
	Observations []*Observation
}

// Observation is an atomic read of a projection with its rows.
type Observation struct {
	history.Observation
	View []*history.ViewRow
}

// Fault is a fault with what was observed of it.
type Fault struct {
	history.Fault
	End   *history.FaultEnd
	Bites []*history.Bite
}
