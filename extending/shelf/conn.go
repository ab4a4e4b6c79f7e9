package shelf

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets"
)

// Conn is one role's connection to a shelf: store, snapshots and feed in one.
type Conn struct {
	Shelf *Shelf
	Name  string // unique in a trial

	gate points.Gate
	dead atomic.Bool // closed, or the role crashed
}

var (
	_ targets.Session      = (*Conn)(nil)
	_ eventstore.Store     = (*Conn)(nil)
	_ eventstore.Snapshots = (*Conn)(nil)
	_ eventstore.Feed      = (*Conn)(nil)
)

// Store implements targets.Session.
func (c *Conn) Store() eventstore.Store { return c }

// Snapshots implements targets.Session.
func (c *Conn) Snapshots() eventstore.Snapshots { return c }

// Feed implements targets.Session.
func (c *Conn) Feed() eventstore.Feed { return c }

// Projection implements targets.Session. The view must be one that the trial was opened with.
func (c *Conn) Projection(v eventstore.View) (eventstore.Projection, error) {
	if c.Shelf.Book(v.Name()) == nil {
		return nil, fmt.Errorf("shelf: no book for %q", v.Name())
	}
	return &projection{c, v}, nil
}

// Close implements targets.Session.
func (c *Conn) Close() error {
	c.dead.Store(true)
	return nil
}

var errClosed = errors.New("shelf: the connection is closed")

// Begin refuses an operation that can't even be sent, and tells who carries it.
func (c *Conn) Begin(ctx context.Context, op string) error {
	err := ctx.Err()
	if c.dead.Load() {
		err = errClosed
	}
	if err != nil {
		return Refused(op, eventstore.NotSent, err)
	}
	eventstore.TraceFrom(ctx).Session(c.Name)
	return nil
}

// At asks the gate of the role. A connection whose role crashed is dead: nothing that the unwinding code still does
// may have an effect.
func (c *Conn) At(ctx context.Context, p points.Point) error {
	err := c.gate.At(ctx, p, 0)
	if errors.Is(err, points.ErrCrashed) {
		c.dead.Store(true)
	}
	if err == nil && c.dead.Load() {
		err = errClosed
	}
	return err
}

// Refused is the error of an operation that definitely had no effect.
func Refused(op string, reason eventstore.Reason, err error) error {
	return &eventstore.Error{Op: op, Outcome: eventstore.Fail, Reason: reason, Err: err}
}

// Lost is the error of an operation that has been carried out, to a caller who is not told.
func Lost(op string, err error) error {
	return &eventstore.Error{Op: op, Outcome: eventstore.Unknown, Reason: eventstore.LostReply, Err: err}
}

// Append implements eventstore.Store.
func (c *Conn) Append(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	if err := c.Begin(ctx, "append"); err != nil {
		return eventstore.Appended{}, err
	}
	answer, err := c.place(ctx, a)
	if err != nil || answer.Replayed {
		return answer, err
	}
	if err := c.At(ctx, points.AppendAfterCommit); err != nil {
		return eventstore.Appended{}, Lost("append", err)
	}
	return answer, nil
}

// place does everything up to the commit under the turn; each of its errors is a definite failure.
func (c *Conn) place(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	var none eventstore.Appended
	if err := c.Shelf.Writing.Take(ctx); err != nil {
		return none, Refused("append", eventstore.NotSent, err)
	}
	defer c.Shelf.Writing.Leave()
	if err := c.At(ctx, points.AppendBegin); err != nil {
		return none, Refused("append", eventstore.NotSent, err)
	}
	if first, ok := c.Shelf.Noted(a.Request); ok {
		first.Replayed = true
		return first, nil
	}
	if err := c.Legal(a); err != nil {
		return none, err
	}
	if err := c.At(ctx, points.AppendBeforeHead); err != nil {
		return none, Refused("append", eventstore.NotSent, err)
	}
	head := c.Shelf.Head(a.Stream)
	if err := Compare(a.Expected, head); err != nil {
		return none, err
	}
	if err := c.At(ctx, points.AppendAfterHead); err != nil {
		return none, Refused("append", eventstore.NotSent, err)
	}
	f := NewFrame(a, head)
	if err := c.At(ctx, points.AppendAfterInsert); err != nil {
		return none, Refused("append", eventstore.NotSent, err)
	}
	if _, err := c.Shelf.Write(f); err != nil {
		return none, Refused("append", eventstore.Rejected, err)
	}
	return f.Note.Answer, nil
}

// Legal refuses an append that is malformed or uses an event id again.
func (c *Conn) Legal(a eventstore.Append) error {
	if a.Stream == "" || len(a.Events) == 0 {
		return Refused("append", eventstore.Invalid, errors.New("no stream or no event"))
	}
	seen := map[eventstore.EventID]bool{}
	for _, e := range a.Events {
		if seen[e.ID] {
			return Refused("append", eventstore.Invalid, fmt.Errorf("event id %s twice", e.ID))
		}
		if c.Shelf.Has(e.ID) {
			return Refused("append", eventstore.Rejected, fmt.Errorf("event id %s is taken", e.ID))
		}
		seen[e.ID] = true
	}
	return nil
}

// Compare refuses an exact expected version that is not the head.
func Compare(want eventstore.Expected, head uint64) error {
	if want.IsAny() || want.Version() == head {
		return nil
	}
	reason := eventstore.VersionConflict
	if want.Version() > head {
		reason = eventstore.ExpectedAhead
	}
	return &eventstore.Error{Op: "append", Outcome: eventstore.Fail, Reason: reason, Head: head, HeadKnown: true}
}

// NewFrame is the unit of an append at a head. The note of its request is part of it.
func NewFrame(a eventstore.Append, head uint64) Frame {
	f := Frame{Note: &Note{Request: a.Request}}
	f.Note.Answer = eventstore.Appended{First: head + 1, Last: head + uint64(len(a.Events))}
	for i, e := range a.Events {
		f.Cards = append(f.Cards, Card{
			Stream: a.Stream, Version: head + 1 + uint64(i), ID: e.ID.String(), Type: e.Type, Data: slices.Clone(e.Data), Meta: e.Meta,
		})
		f.Note.Answer.Events = append(f.Note.Answer.Events, e.ID)
	}
	return f
}

// Read implements eventstore.Store.
func (c *Conn) Read(ctx context.Context, r eventstore.ReadRequest) (eventstore.Slice, error) {
	if err := c.Begin(ctx, "read"); err != nil {
		return eventstore.Slice{}, err
	}
	return eventstore.Slice{Events: c.Shelf.Stream(r.Stream, r.From, r.To), Pages: 1}, nil
}

// Poll implements eventstore.Feed. A frame is on the tape with all of its events or not at all, and frames are
// numbered in the order in which they appear: nothing can appear behind the last event returned.
func (c *Conn) Poll(ctx context.Context, after eventstore.Cursor, limit int) (eventstore.Page, error) {
	if err := c.Begin(ctx, "poll"); err != nil {
		return eventstore.Page{}, err
	}
	events := c.Shelf.After(after, limit)
	if len(events) == 0 {
		return eventstore.Page{Next: after}, nil
	}
	return eventstore.Page{Events: events, Next: eventstore.Through(events[len(events)-1].Position)}, nil
}

// LoadSnapshot implements eventstore.Snapshots.
func (c *Conn) LoadSnapshot(ctx context.Context, stream string) (eventstore.Snapshot, bool, error) {
	if err := c.Begin(ctx, "load snapshot"); err != nil {
		return eventstore.Snapshot{}, false, err
	}
	snap, found := c.Shelf.Snapshot(stream)
	return snap, found, nil
}

// SaveSnapshot implements eventstore.Snapshots.
func (c *Conn) SaveSnapshot(ctx context.Context, snap eventstore.Snapshot) error {
	if err := c.Begin(ctx, "save snapshot"); err != nil {
		return err
	}
	c.Shelf.Keep(snap)
	return nil
}
