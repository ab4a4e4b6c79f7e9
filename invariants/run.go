// Package invariants judges a recorded history: one file a rule family, pure functions over what Load has
// read. INVARIANTS in docs/invariants says what each rule means; the comments here say the same.
package invariants

import (
	"math"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
)

// Run is an indexed history of one trial, the only input of every rule. Rules must not change it.
type Run struct {
	Info        history.TrialInfo
	Complete    bool // the file ends with its End record
	Processes   map[uint32]*Process
	Calls       []*Call  // grouped by stream, by start time
	Writes      []*Write // grouped by stream, by first invoke
	Streams     map[string]*Stream
	StreamNames []string                       // keys of Streams, ascending: the order in which rules visit them
	Log         map[eventstore.EventID]*Logged // the event of L with that id (lowest version, if several)
	// Flaws are what answers to reads show to be wrong by themselves.
	Flaws       map[*Read]string
	Disputed    map[eventstore.EventID][]*Write // event ids recorded by several writes, all of them in the order of Writes
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

	copies   map[eventstore.EventID][]*Logged // see eventOf
	strays   map[eventstore.EventID]*Write    // see Owner
	sessions []string                         // see SessionOf
	attempts int64                            // of Writes
	shared   shared                           // what several rules need, computed once
}

// Owner returns the recorded write that owns an event which is in the log, was acknowledged, or has an effect;
// nil if no write does. If several claim it (see Disputed), the one that fits its place.
func (r *Run) Owner(id eventstore.EventID) *Write {
	if l := r.Log[id]; l != nil {
		return l.Write
	}
	return r.strays[id]
}

// eventOf returns the i-th event of a write where it stands in the log, nil if it is not there. The same id may stand
// there for another write, or more than once.
func (r *Run) eventOf(w *Write, i int) *Logged {
	id := w.Events[i].ID
	l := r.Log[id]
	if l == nil || l.Write == w {
		return l
	}
	for _, l := range r.copies[id] {
		if l.Write == w {
			return l
		}
	}
	return nil
}

// eventAt returns the event of the log with that id, the one at the given place if the id stands there more than once.
func (r *Run) eventAt(id eventstore.EventID, stream string, version uint64) *Logged {
	for _, l := range r.copies[id] {
		if l.Stream == stream && l.Version == version {
			return l
		}
	}
	return r.Log[id]
}

// SessionOf names the connection that carried an attempt; empty if it was not told.
func (r *Run) SessionOf(a *Attempt) string { return r.sessions[a.session] }

// Promised reports whether the target of the trial declares p.
func (r *Run) Promised(p eventstore.Promise) bool {
	for _, q := range r.Info.Promises {
		if p == q || p == eventstore.StreamOrder && q == eventstore.GlobalOrder {
			return true
		}
	}
	return false
}

// native reports whether the trial was about auctions in their native form.
func (r *Run) native() bool { return r.Info.Auction == history.NativeAuction }

// Process is one role process with its end.
type Process struct {
	history.Process
	End *history.ProcessEnd // nil: still running when the history ended
	// Seen counts the records of the process in the history.
	Seen struct{ Calls, Writes, Attempts, Reads uint64 }
}

// Died returns when the process was killed or crashed.
func (p *Process) Died() (t int64, ok bool) {
	if p == nil || p.End == nil || p.End.How == history.Exited {
		return 0, false
	}
	return p.End.T, true
}

// Command is a caller's intent with all its calls, by start time.
type Command struct {
	ID    string
	Calls []*Call
}

// Call is one run of the command loop by one process.
type Call struct {
	Process   uint32
	Session   uint32
	Continued bool
	Command   *Command // never nil
	Stream    string
	Name      string
	Body      []byte
	Started   int64
	End       *CallEnd // nil: never answered
	Writes    []*Write
}

// CommandID returns the id of the call's command.
func (c *Call) CommandID() string { return c.Command.ID }

// ended is when the call was answered; Infinity if it never was.
func (c *Call) ended() int64 {
	if c.End == nil {
		return Infinity
	}
	return c.End.T
}

// CallEnd is the answer that the caller got; see history.CallEnd.
type CallEnd struct {
	T         int64
	Result    history.Result
	Retriable bool
	Replayed  bool
	Conflicts uint32
	Code      string
	Version   uint64
	StateHash eventstore.Hash
	Events    []eventstore.EventID
	Basis     *Basis // of a refusal; nil: none recorded
	Have      int64
	Want      int64
	At        int64
}

// version is the one that the answer gives the i-th event it names; 0 if it gives none.
func (e *CallEnd) version(i int) uint64 {
	behind := uint64(len(e.Events) - 1 - i)
	if e.Version <= behind {
		return 0
	}
	return e.Version - behind
}

// basis returns what a refusal was decided on; the zero Basis if nothing is recorded.
func (e *CallEnd) basis() Basis {
	if e.Basis == nil {
		return Basis{}
	}
	return *e.Basis
}

// Basis is the state that something was decided on.
type Basis struct {
	Version  uint64
	Hash     eventstore.Hash // zero: none recorded, as for a blind append
	Snapshot uint64          // version of the snapshot that the state was built from; 0 = none
	Now      int64           // the time given to decide, unix milliseconds
	Read     *Read           // the read that fixed Version; nil: none recorded
}

// Write is one decision with its attempts and evidence.
type Write struct {
	Owner    *Call // never nil
	Stream   string
	Expected uint64 // exact expected version; 0 with Any
	Any      bool
	// Applied: an event of it is in L (false without an audit).
	Applied bool
	// Acked: an ok answer or ok evidence names it.
	Acked bool
	// Failed: all its attempts ended as fail, so it was definitely never carried out.
	Failed bool
	// Refuted: a write-level fail is known (INVARIANTS 2.5).
	Refuted  bool
	Events   []WriteEvent
	Basis    Basis
	Attempts []Attempt // by invoke time
	Evidence *Evidence // the first in order of time
	// Invoke and Return are the write's interval: earliest invoke, earliest ok (answer or evidence) naming
	// it, Infinity if none.
	Invoke, Return int64
	// Last is when its last attempt returned, Infinity if one never did: until then it is in flight.
	Last int64
	// At is the version in L of its first event that is there; 0 = not applied.
	At uint64
}

// fits reports whether an event of the write with that id may stand at a version of a stream.
func (w *Write) fits(id eventstore.EventID, stream string, version uint64) bool {
	if w.Stream != stream {
		return false
	}
	for i, e := range w.Events {
		if e.ID == id && (w.Any || version == w.Expected+1+uint64(i)) {
			return true
		}
	}
	return false
}

// Command returns the command that the write was made for.
func (w *Write) Command() *Command { return w.Owner.Command }

// Evidence is what was learned about a write outside its attempts.
type Evidence struct {
	history.Evidence
	Look *Read     // the read it rests on; nil: none recorded
	Next *Evidence // about the same write
}

// WriteEvent is one event of a write.
type WriteEvent struct {
	ID      eventstore.EventID
	Payload eventstore.Hash
}

// Attempt is one wire try of a write.
type Attempt struct {
	Write  *Write
	Invoke int64
	// T is when it returned, or when its process died; Infinity if neither is recorded.
	T       int64
	Head    uint64  // shown by a conflict, if HeadKnown
	Answer  *Answer // ok answers only
	session uint32
	Outcome eventstore.Outcome
	Reason  eventstore.Reason
	// Open: it has no recorded answer.
	Open      bool
	HeadKnown bool
}

// Answer is what an ok answer says.
type Answer struct {
	First uint64 // version of the first event that it names; 0 = not told
	Span  uint32 // how many versions it tells, from First on; 0 = not told
	// Replayed: the request had been executed before.
	Replayed bool
	// Events are the ids it names; nil = exactly those of the asking write.
	Events    []eventstore.EventID
	Positions []eventstore.Position
	// Names is the write that owns the named events; nil if no recorded write does.
	Names *Write
}

// count is how many events the answer to an attempt of w names.
func (a *Answer) count(w *Write) int {
	if a.Events == nil {
		return len(w.Events)
	}
	return len(a.Events)
}

// event is the i-th of them.
func (a *Answer) event(w *Write, i int) eventstore.EventID {
	if a.Events == nil {
		return w.Events[i].ID
	}
	return a.Events[i]
}

// Read is one read of a stream.
type Read struct {
	Call        *Call // nil for reads outside a command
	Process     uint32
	Session     uint32
	Stream      string
	From, To    uint64 // To 0 = open end
	Invoke, T   int64
	First, Last uint64 // 0, 0 = empty
	Count       uint64
	Range       history.RangeHash
	Pages       uint32
	OK          bool // it gave an answer
	Strong      bool
	Tail        bool // it began behind a snapshot of version From-1
}

// Infinity is the return of what never returned.
const Infinity = int64(math.MaxInt64)

// Stream is one stream of L with everything recorded about it.
type Stream struct {
	Name   string
	Log    []*Logged // by version, ties by position
	Writes []*Write  // by first invoke
	Reads  []*Read   // by invoke time
	Calls  []*Call   // by start time
	// Auction is the row of an auction in its native form; nil: the audit read none.
	Auction *history.AuctionRow
	// Head is the store's own record of where the stream ends; nil: it keeps none.
	Head *history.HeadRow
	// Snapshots is the journal of the stream's snapshots, by version.
	Snapshots []*history.SnapshotWrite
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

// Began reports whether the fault is recorded to have begun.
func (f *Fault) Began() bool { return f.T != 0 || f.FaultKind != "" }

// Bit reports whether the fault was observed to bite.
func (f *Fault) Bit() bool { return len(f.Bites) > 0 || f.End != nil && f.End.Bit }
