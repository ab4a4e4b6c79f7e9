package eventstore

import "context"

// Page is one answer of a feed.
type Page struct {
	// Events lie after the cursor that was asked for, in position order.
	Events []Event
	// Next is the cursor to continue from: it claims everything returned here and before. With no new
	// event it equals the cursor asked for.
	Next Cursor
	// Held names who holds the reader back (an old transaction, say) when there is something visible
	// that may not be passed yet; else empty.
	Held string
}

// Feed delivers events to a projection in position order from a cursor. A correct feed never returns a
// cursor that claims an event which can still appear.
type Feed interface {
	Poll(ctx context.Context, after Cursor, limit int) (Page, error)
}

// View is a projection as a pure function: which row an event belongs to and how it changes that row.
// Apply is not idempotent; applying an event twice shows.
type View interface {
	// Name of the view, also the name of its projection.
	Name() string
	// Key returns the row an event belongs to; ok is false when the projection filters the event.
	Key(e Event) (key string, ok bool)
	// Apply returns the row's next state; row is nil when there is none yet.
	Apply(row []byte, e Event) ([]byte, error)
}

// Checkpoint is the durable progress of one projection.
type Checkpoint struct {
	Cursor     Cursor
	Seq        uint64 // counts the moves of the checkpoint row within one generation; the row lock makes it commit order
	Epoch      uint64 // the owner's epoch
	Generation uint64 // a rebuild opens a new generation with an empty view; the first is 1
}

// Batch is a page to be applied to a projection.
type Batch struct {
	Prev   Checkpoint // the checkpoint that the page was polled from
	Events []Event
	Next   Cursor
}

// Projection keeps one view with its checkpoint in a store. Errors are *Error; reason Superseded means that
// the checkpoint had moved meanwhile: nothing was applied, load again.
//
// Every applied event leaves one ledger row in the same atomic unit as its effect; the role that writes the
// ledger never reads it.
type Projection interface {
	// Claim takes ownership: it raises the epoch and returns the current checkpoint.
	Claim(ctx context.Context) (Checkpoint, error)
	// Load returns the current checkpoint without taking ownership.
	Load(ctx context.Context) (Checkpoint, error)
	// Apply applies a batch and moves the checkpoint.
	Apply(ctx context.Context, b Batch) (Checkpoint, error)
	// Row reads one row of the view with the version it stands at.
	Row(ctx context.Context, key string) (state []byte, version uint64, found bool, err error)
}
