package shelf

import (
	"context"
	"fmt"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
)

// projection keeps one view: rows, ledger and checkpoint move in one frame.
type projection struct {
	conn *Conn
	view eventstore.View
}

// Claim implements eventstore.Projection.
func (p *projection) Claim(ctx context.Context) (eventstore.Checkpoint, error) {
	if err := p.conn.Begin(ctx, "claim"); err != nil {
		return eventstore.Checkpoint{}, err
	}
	s, name := p.conn.Shelf, p.view.Name()
	turn := s.Book(name).Turn
	if err := turn.Take(ctx); err != nil {
		return eventstore.Checkpoint{}, Refused("claim", eventstore.NotSent, err)
	}
	defer turn.Leave()
	now := s.Checkpoint(name)
	page := &Page{
		Projection: name, Generation: now.Generation, Seq: now.Seq + 1, Epoch: now.Epoch + 1, Cursor: now.Cursor.String(),
	}
	if _, err := s.Write(Frame{Page: page}); err != nil {
		return eventstore.Checkpoint{}, Refused("claim", eventstore.Rejected, err)
	}
	return s.Checkpoint(name), nil
}

// Load implements eventstore.Projection.
func (p *projection) Load(ctx context.Context) (eventstore.Checkpoint, error) {
	if err := p.conn.Begin(ctx, "load"); err != nil {
		return eventstore.Checkpoint{}, err
	}
	return p.conn.Shelf.Checkpoint(p.view.Name()), nil
}

// Row implements eventstore.Projection.
func (p *projection) Row(ctx context.Context, key string) ([]byte, uint64, bool, error) {
	if err := p.conn.Begin(ctx, "row"); err != nil {
		return nil, 0, false, err
	}
	row, found := p.conn.Shelf.Row(p.view.Name(), key)
	return row.State, row.Version, found, nil
}

// Apply implements eventstore.Projection.
func (p *projection) Apply(ctx context.Context, b eventstore.Batch) (eventstore.Checkpoint, error) {
	if err := p.conn.Begin(ctx, "apply"); err != nil {
		return eventstore.Checkpoint{}, err
	}
	next, err := p.turn(ctx, b)
	if err != nil {
		return eventstore.Checkpoint{}, err
	}
	if err := p.conn.At(ctx, points.ProjectorAfterCommit); err != nil {
		return eventstore.Checkpoint{}, Lost("apply", err)
	}
	return next, nil
}

// turn does everything up to the commit; each of its errors is a definite failure.
func (p *projection) turn(ctx context.Context, b eventstore.Batch) (eventstore.Checkpoint, error) {
	var none eventstore.Checkpoint
	s, name := p.conn.Shelf, p.view.Name()
	turn := s.Book(name).Turn
	if err := turn.Take(ctx); err != nil {
		return none, Refused("apply", eventstore.NotSent, err)
	}
	defer turn.Leave()
	if now := s.Checkpoint(name); now.Seq != b.Prev.Seq || now.Epoch != b.Prev.Epoch {
		return none, Refused("apply", eventstore.Superseded, nil)
	}
	page, err := NewPage(s, p.view, b)
	if err != nil {
		return none, err
	}
	for _, point := range []points.Point{points.ProjectorAfterEffect, points.ProjectorBeforeCommit} {
		if err := p.conn.At(ctx, point); err != nil {
			return none, Refused("apply", eventstore.NotSent, err)
		}
	}
	if _, err := s.Write(Frame{Page: page}); err != nil {
		return none, Refused("apply", eventstore.Rejected, err)
	}
	return s.Checkpoint(name), nil
}

// NewPage folds a batch into the rows as they are now: one effect an event, whether or not the view wants it.
func NewPage(s *Shelf, v eventstore.View, b eventstore.Batch) (*Page, error) {
	page := &Page{
		Projection: v.Name(), Generation: b.Prev.Generation, Seq: b.Prev.Seq + 1, Epoch: b.Prev.Epoch,
		Cursor: b.Next.String(), Rows: map[string]Row{},
	}
	for _, e := range b.Events {
		effect := Effect{Event: e.ID.String(), Stream: e.Stream, Version: e.Version, How: "applied"}
		key, ok := v.Key(e)
		if !ok {
			effect.How = "filtered"
			page.Effects = append(page.Effects, effect)
			continue
		}
		row, held := page.Rows[key]
		if !held {
			row, _ = s.Row(v.Name(), key)
		}
		state, err := v.Apply(row.State, e)
		if err != nil {
			return nil, Refused("apply", eventstore.Rejected, fmt.Errorf("%s version %d: %w", e.Stream, e.Version, err))
		}
		row = Row{State: state, Version: e.Version, Order: row.Order + 1}
		page.Rows[key], effect.Row, effect.Stands, effect.Order = row, key, row.Version, row.Order
		page.Effects = append(page.Effects, effect)
	}
	return page, nil
}
