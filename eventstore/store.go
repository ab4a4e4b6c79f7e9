package eventstore

import (
	"context"
	"strconv"
)

// Expected is the optimistic-concurrency condition of an append.
type Expected struct {
	any     bool
	version uint64
}

// Exact demands that the stream's head is v; Exact(0) demands that the stream does not exist.
func Exact(v uint64) Expected { return Expected{version: v} }

// NoStream demands that the stream does not exist.
func NoStream() Expected { return Exact(0) }

// Any appends at whatever head the stream has: a blind append.
func Any() Expected { return Expected{any: true} }

// IsAny reports whether the append is blind.
func (e Expected) IsAny() bool { return e.any }

// Version returns the exact version demanded; it is 0 for Any.
func (e Expected) Version() uint64 { return e.version }

// String renders the condition.
func (e Expected) String() string {
	if e.any {
		return "any"
	}
	return strconv.FormatUint(e.version, 10)
}

// Decision records what a write was decided on. Adapters ignore it (what they store is in the events'
// metadata); the recorder writes it down and the checkers decide again.
type Decision struct {
	Basis    uint64 // version of the state decided on
	Hash     Hash   // hash of the canonical encoding of that state; zero for a blind append
	Read     uint64 // Slice.ID of the read that fixed Basis; 0 for a blind append
	Snapshot uint64 // version of the snapshot the state was built from; 0 = none
	Now      int64  // the time given to decide, unix milliseconds
}

// Append asks for events to be added to one stream, all or nothing, at consecutive versions.
type Append struct {
	Stream   string
	Expected Expected
	Events   []NewEvent
	// Request is the idempotency token. Where IdempotentAppend is promised, an append whose token was
	// executed before is answered with the first result, whatever its events are. The application uses
	// the command id, so that a command continued by another process can't run twice.
	Request  string
	Decision Decision
}

// Appended is the answer to an append.
type Appended struct {
	// First and Last are the versions of the events named by Events.
	First, Last uint64
	// Events are the ids of the events that the answer is about: the caller's own, or those of the first
	// execution when Replayed.
	Events []EventID
	// Positions are given where the store tells them, in the order of Events; else nil.
	Positions []Position
	// Replayed: the request had been executed before.
	Replayed bool
}

// Consistency of a read.
type Consistency uint8

// The consistencies.
const (
	Strong Consistency = iota
	Eventual
)

// ReadRequest asks for the events of one stream with From ≤ version ≤ To.
type ReadRequest struct {
	Stream      string
	From        uint64 // 1 or more
	To          uint64 // 0 = open end
	Consistency Consistency
	// PageSize bounds the events of one round trip; 0 = the adapter's default. The answer is always
	// complete, whatever the number of pages.
	PageSize int
}

// Slice is the complete answer to a read, ascending by version.
type Slice struct {
	Events []Event
	Pages  int    // round trips it took
	ID     uint64 // set by the recorder: the id of the read in the history
}

// Store appends to and reads from streams. Errors are *Error.
//
// Append with an exact version v succeeds only if the head is v, and then the events have the versions
// v+1…v+len(Events). Cancelling ctx never turns an append whose bytes may have left into a Fail.
// Read returns every event of the range that was acknowledged before the read began, and no gap.
type Store interface {
	Append(ctx context.Context, a Append) (Appended, error)
	Read(ctx context.Context, r ReadRequest) (Slice, error)
}

// Snapshot is a disposable cache of a folded state.
type Snapshot struct {
	Stream  string
	Version uint64
	State   []byte // canonical encoding
}

// Snapshots is the optional snapshot part of a store: one overwritten item a stream, best effort.
type Snapshots interface {
	LoadSnapshot(ctx context.Context, stream string) (s Snapshot, found bool, err error)
	SaveSnapshot(ctx context.Context, s Snapshot) error
}
