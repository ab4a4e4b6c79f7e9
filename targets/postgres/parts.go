package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/eventproof/eventproof/eventstore"
)

// Parts fills the places of an assembly that live in the adapter. A control takes the parts of a correct
// variant and swaps one.
type Parts struct {
	Append     Appender
	Commit     Committer
	Reader     Reader
	Projection Projector
	// Bidding is set where auctions are in their native form; nothing is then appended, fed or projected.
	Bidding Bidder
}

// Bidder is how a bid gets into the store, between BEGIN and COMMIT. It asks the gate at the points of an append. Errors
// may be the driver's or *eventstore.Error; a result with Replayed ends the bid without a commit.
type Bidder interface {
	Place(ctx context.Context, tx *Tx, b eventstore.Bid) (eventstore.Taken, error)
}

// Appender is what happens between BEGIN and COMMIT of an append. It asks the gate at the points of the append
// itself. Errors may be the driver's or *eventstore.Error; a result with Replayed ends the append without a
// commit.
type Appender interface {
	Append(ctx context.Context, tx *Tx, a eventstore.Append) (eventstore.Appended, error)
	// Without names the unique constraints that the table of events is made without: UniqueVersion, UniqueEvent. Nil for
	// every correct part.
	Without() []string
}

// Committer is how the transaction of an append or of a bid is ended, and what its end is reported as. Errors are
// *eventstore.Error.
type Committer interface {
	Commit(ctx context.Context, tx *Tx) error
}

// Reader is how a feed finds the events behind a cursor.
type Reader interface {
	// Order says what a position means to this reader.
	Order() Order
	Poll(ctx context.Context, q Querier, after eventstore.Cursor, limit int) (eventstore.Page, error)
}

// Projector is how the effect of a batch and its checkpoint get into the store. Errors are *eventstore.Error.
type Projector interface {
	Apply(ctx context.Context, p *Progress, b eventstore.Batch) (eventstore.Checkpoint, error)
}

// Querier runs queries; connections and transactions are queriers.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Order is the order key of an event.
type Order uint8

// The orders.
const (
	// BySequence: the number drawn from the sequence.
	BySequence Order = iota
	// ByTransaction: the transaction id first, then the number drawn.
	ByTransaction
)

// Position puts what the table holds of an event into the order.
func (o Order) Position(xid, sequence uint64) eventstore.Position {
	switch o {
	case BySequence:
		return eventstore.Position{Minor: sequence}
	case ByTransaction:
		return eventstore.Position{Major: xid, Minor: sequence}
	}
	return eventstore.Position{}
}

// last returns the position that a cursor of one shard claims up to; the zero position claims nothing.
func last(c eventstore.Cursor) eventstore.Position {
	if len(c.At) == 0 {
		return eventstore.Position{}
	}
	return c.At[0]
}
