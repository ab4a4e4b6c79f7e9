package dynamodb

import (
	"context"

	"github.com/eventproof/eventproof/eventstore"
)

// Parts fills the places of an assembly that live in the adapter. A control takes the parts of a correct variant and
// swaps one.
type Parts struct {
	Append Appender
	Reader Reader
	// Bidding is set where auctions are in their native form; nothing is then appended, fed or projected.
	Bidding Bidder
}

// Bidder is what a bid does with its connection, in the native form of the auction: see eventstore.Bidding.PlaceBid.
// Errors are *eventstore.Error.
type Bidder interface {
	Place(ctx context.Context, c *Conn, b eventstore.Bid) (eventstore.Taken, error)
}

// Appender is what an append does with its connection. It asks the gate at the points of the append itself. Errors are
// *eventstore.Error.
type Appender interface {
	Append(ctx context.Context, c *Conn, a eventstore.Append) (eventstore.Appended, error)
}

// Reader is one pass over a range of a stream: the events ascending by version, and the number of pages it took. Errors
// are *eventstore.Error. The session repeats a pass that met a transaction half way.
type Reader interface {
	Read(ctx context.Context, c *Conn, r eventstore.ReadRequest) (events []Stored, pages int, err error)
}
