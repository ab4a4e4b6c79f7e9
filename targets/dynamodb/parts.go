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
