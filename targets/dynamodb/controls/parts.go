package controls

import (
	"context"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/targets/dynamodb"
)

// unconditionalPut is CV-DY-01: whatever holds the slot is overwritten.
type unconditionalPut struct{}

// Append implements dynamodb.Appender.
func (unconditionalPut) Append(ctx context.Context, c *dynamodb.Conn, a eventstore.Append) (eventstore.Appended, error) {
	version, own, err := c.Slot(ctx, a)
	if err != nil || own != nil {
		return result(own), err
	}
	if _, err := c.Put(ctx, a, version, false); err != nil {
		return eventstore.Appended{}, err
	}
	return put(a, version), nil
}

// hiddenRetries is CV-DY-02: a put without an answer is sent again inside the attempt, and nobody asks whose event it
// is that holds the slot.
type hiddenRetries struct{}

// maxTries is the default of the client library.
const maxTries = 3

// Append implements dynamodb.Appender.
func (hiddenRetries) Append(ctx context.Context, c *dynamodb.Conn, a eventstore.Append) (eventstore.Appended, error) {
	version, own, err := c.Slot(ctx, a)
	if err != nil || own != nil {
		return result(own), err
	}
	for try := 1; ; try++ {
		taken, err := c.Put(ctx, a, version, true)
		outcome, _ := eventstore.Classify(err)
		switch {
		case outcome == eventstore.Unknown && try < maxTries && ctx.Err() == nil:
			eventstore.TraceFrom(ctx).DriverRetry()
		case err != nil:
			return eventstore.Appended{}, err
		case taken == nil:
			return put(a, version), nil
		case a.Expected.IsAny():
			return eventstore.Appended{}, refuse(eventstore.LostRace)
		default:
			return eventstore.Appended{}, refuse(eventstore.VersionConflict)
		}
	}
}

// firstPage is CV-DY-03: the key that a page ends with is dropped.
type firstPage struct{}

// pageSize is small, so that few events make a second page.
const pageSize = 2

// Read implements dynamodb.Reader.
func (firstPage) Read(ctx context.Context, c *dynamodb.Conn, r eventstore.ReadRequest) ([]dynamodb.Stored, int, error) {
	r.PageSize = pageSize
	events, _, err := c.Page(ctx, r, nil)
	return events, 1, err
}

func refuse(r eventstore.Reason) error {
	return &eventstore.Error{Op: "append", Outcome: eventstore.Fail, Reason: r}
}

func result(own *eventstore.Appended) eventstore.Appended {
	if own == nil {
		return eventstore.Appended{}
	}
	return *own
}

func put(a eventstore.Append, version uint64) eventstore.Appended {
	return eventstore.Appended{First: version, Last: version, Events: []eventstore.EventID{a.Events[0].ID}}
}
