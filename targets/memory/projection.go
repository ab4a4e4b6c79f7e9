package memory

import (
	"context"
	"errors"
	"fmt"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets/memory/engine"
)

type feed struct{ *session }

var _ eventstore.Feed = feed{}

// Poll implements eventstore.Feed.
func (f feed) Poll(ctx context.Context, after eventstore.Cursor, limit int) (eventstore.Page, error) {
	if err := f.conn.ready(ctx, "poll"); err != nil {
		return eventstore.Page{}, err
	}
	return f.parts.Poll(ctx, f.conn, after, limit)
}

// settled is the reader of the reference: it stops below the lowest position of any open transaction.
func settled(db *engine.DB, after uint64, limit int) ([]eventstore.Event, string) {
	return db.Settled(after, limit)
}

// PollWith returns a feed part that reads pages with read and claims everything up to the last event returned.
func PollWith(read func(db *engine.DB, after uint64, limit int) (events []eventstore.Event, held string)) func(context.Context, *Conn, eventstore.Cursor, int) (eventstore.Page, error) {
	return func(_ context.Context, c *Conn, after eventstore.Cursor, limit int) (eventstore.Page, error) {
		if limit <= 0 {
			return eventstore.Page{}, &eventstore.Error{
				Op: "poll", Outcome: eventstore.Fail, Reason: eventstore.Invalid, Err: errors.New("limit must be above 0"),
			}
		}
		var from uint64
		if len(after.At) > 0 {
			from = after.At[0].Minor
		}
		events, held := read(c.DB, from, limit)
		next := after
		if len(events) > 0 {
			next = eventstore.Through(events[len(events)-1].Position)
		}
		return eventstore.Page{Events: events, Next: next, Held: held}, nil
	}
}

type projection struct {
	*session
	view eventstore.View
}

var _ eventstore.Projection = projection{}

// Claim implements eventstore.Projection.
func (p projection) Claim(ctx context.Context) (eventstore.Checkpoint, error) {
	if err := p.conn.ready(ctx, "claim"); err != nil {
		return eventstore.Checkpoint{}, err
	}
	tx := p.conn.DB.Begin(p.conn.Name)
	defer tx.Rollback()
	current, err := tx.Lock(ctx, p.view.Name())
	if err != nil {
		return eventstore.Checkpoint{}, Broken("claim", eventstore.Fail, err)
	}
	next := tx.Move(current, current.Cursor, current.Epoch+1)
	return next, commit("claim", tx)
}

// Load implements eventstore.Projection.
func (p projection) Load(ctx context.Context) (eventstore.Checkpoint, error) {
	if err := p.conn.ready(ctx, "load checkpoint"); err != nil {
		return eventstore.Checkpoint{}, err
	}
	return p.conn.DB.Checkpoint(p.view.Name())
}

// Apply implements eventstore.Projection.
func (p projection) Apply(ctx context.Context, b eventstore.Batch) (eventstore.Checkpoint, error) {
	if err := p.conn.ready(ctx, "apply"); err != nil {
		return eventstore.Checkpoint{}, err
	}
	return p.parts.Apply(ctx, p.conn, p.view, b)
}

// Row implements eventstore.Projection.
func (p projection) Row(ctx context.Context, key string) ([]byte, uint64, bool, error) {
	if err := p.conn.ready(ctx, "row"); err != nil {
		return nil, 0, false, err
	}
	r, found, err := p.conn.DB.ViewRow(p.view.Name(), key)
	return r.State, r.Version, found, err
}

// applyAtomically is the projection of the reference: rows, ledger and checkpoint in one transaction, the
// checkpoint by compare-and-set.
func applyAtomically(ctx context.Context, c *Conn, v eventstore.View, b eventstore.Batch) (eventstore.Checkpoint, error) {
	u, err := BeginUnit(ctx, c, v)
	if err != nil {
		return eventstore.Checkpoint{}, err
	}
	defer u.End()
	if err := u.Effects(b, u.Current.Seq+1); err != nil {
		return eventstore.Checkpoint{}, err
	}
	if err := u.At(ctx, points.ProjectorAfterEffect); err != nil {
		return eventstore.Checkpoint{}, err
	}
	next, err := u.CompareAndMove(b)
	if err != nil {
		return eventstore.Checkpoint{}, err
	}
	if err := u.At(ctx, points.ProjectorBeforeCommit); err != nil {
		return eventstore.Checkpoint{}, err
	}
	if err := u.Commit(ctx); err != nil {
		return eventstore.Checkpoint{}, err
	}
	return next, nil
}

// Unit is one transaction on a projection. Projection parts are put together from its steps.
type Unit struct {
	// Current is the checkpoint as this transaction sees it.
	Current eventstore.Checkpoint

	conn *Conn
	view eventstore.View
	tx   *engine.Tx
}

// BeginUnit opens a transaction and takes the projection's row locks.
func BeginUnit(ctx context.Context, c *Conn, v eventstore.View) (*Unit, error) {
	tx := c.DB.Begin(c.Name)
	current, err := tx.Lock(ctx, v.Name())
	if err != nil {
		tx.Rollback()
		return nil, Broken("apply", eventstore.Fail, err)
	}
	eventstore.TraceFrom(ctx).Transaction(tx.ID())
	return &Unit{Current: current, conn: c, view: v, tx: tx}, nil
}

// End rolls back what was not committed.
func (u *Unit) End() { u.tx.Rollback() }

// At asks the gate before the commit: an error is a definite failure.
func (u *Unit) At(ctx context.Context, p points.Point) error {
	if err := u.conn.At(ctx, p); err != nil {
		return Broken("apply", eventstore.Fail, err)
	}
	return nil
}

// Effects applies the batch to the view rows, with one ledger row an event that names the checkpoint counter
// seq (0 = the transaction moves none).
func (u *Unit) Effects(b eventstore.Batch, seq uint64) error {
	for _, e := range b.Events {
		row := engine.Effect{Event: e.ID, Stream: e.Stream, Version: e.Version, Seq: seq, Epoch: b.Prev.Epoch}
		key, ok := u.view.Key(e)
		if !ok {
			row.Filtered = true
			u.tx.Record(row)
			continue
		}
		old, _ := u.tx.Row(key)
		state, err := u.view.Apply(old.State, e)
		if err != nil {
			return &eventstore.Error{
				Op: "apply", Outcome: eventstore.Fail, Reason: eventstore.Rejected,
				Err: fmt.Errorf("view %s, %s version %d: %w", u.view.Name(), e.Stream, e.Version, err),
			}
		}
		now := engine.ViewRow{State: state, Version: e.Version, Order: old.Order + 1}
		u.tx.PutRow(key, now)
		row.Row, row.RowVersion, row.RowOrder = key, now.Version, now.Order
		u.tx.Record(row)
	}
	return nil
}

// CompareAndMove moves the checkpoint if it is still the batch's Prev, else it fails as Superseded.
func (u *Unit) CompareAndMove(b eventstore.Batch) (eventstore.Checkpoint, error) {
	p, c := b.Prev, u.Current
	if p.Seq != c.Seq || p.Epoch != c.Epoch || p.Generation != c.Generation || p.Cursor.String() != c.Cursor.String() {
		return eventstore.Checkpoint{}, &eventstore.Error{Op: "apply", Outcome: eventstore.Fail, Reason: eventstore.Superseded}
	}
	return u.Move(b), nil
}

// Move moves the checkpoint to the batch's end, whatever it is now.
func (u *Unit) Move(b eventstore.Batch) eventstore.Checkpoint {
	return u.tx.Move(u.Current, b.Next, b.Prev.Epoch)
}

// Commit commits and then asks the gate after it: an error from there is unknown.
func (u *Unit) Commit(ctx context.Context) error {
	if err := u.CommitQuietly(); err != nil {
		return err
	}
	if err := u.conn.At(ctx, points.ProjectorAfterCommit); err != nil {
		return Broken("apply", eventstore.Unknown, err)
	}
	return nil
}

// CommitQuietly commits without asking the gate after it.
func (u *Unit) CommitQuietly() error {
	if u.conn.dead.Load() {
		return Broken("apply", eventstore.Fail, errClosed)
	}
	return commit("apply", u.tx)
}

func commit(op string, tx *engine.Tx) error {
	if err := tx.Commit(); err != nil {
		return &eventstore.Error{Op: op, Outcome: eventstore.Fail, Reason: eventstore.Rejected, Err: err}
	}
	return nil
}
