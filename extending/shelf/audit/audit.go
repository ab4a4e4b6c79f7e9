// Package audit reads a shelf's tape after a trial. It shares no code with the store: it knows the bytes of a frame
// and nothing else, so that a mistake of the store can't hide behind the same mistake here.
package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/targets"
)

// Source is what the audit reads.
type Source interface {
	// Tape returns the raw frames so far, in the order in which they were written.
	Tape() [][]byte
	// Stop refuses every later frame.
	Stop()
}

type auditor struct{ source Source }

// New returns an auditor over a source.
func New(s Source) targets.Auditor { return auditor{s} }

type frame struct {
	N     uint64
	Cards []struct {
		Stream   string
		Version  uint64
		ID, Type string
		Data     []byte
		Meta     eventstore.Metadata
		Position eventstore.Position
	}
	Page *struct {
		Projection, Cursor     string
		Generation, Seq, Epoch uint64
		Effects                []struct {
			Event, Stream, How, Row string
			Version, Stands, Order  uint64
		}
		Rows map[string]struct {
			State   []byte
			Version uint64
		}
	}
}

// frames decodes the tape.
func (a auditor) frames(ctx context.Context, yield func(frame) error) error {
	for i, raw := range a.source.Tape() {
		if err := ctx.Err(); err != nil {
			return err
		}
		var f frame
		if err := json.Unmarshal(raw, &f); err != nil {
			return fmt.Errorf("shelf audit: frame %d: %w", i+1, err)
		}
		if err := yield(f); err != nil {
			return err
		}
	}
	return nil
}

// Fence implements targets.Auditor.
func (a auditor) Fence(context.Context) (targets.Proof, error) {
	a.source.Stop()
	return targets.Proof{Fenced: true, Text: "the shelf takes no frame any more"}, nil
}

// Log implements targets.Auditor.
func (a auditor) Log(ctx context.Context, yield func(history.LoggedEvent) error) error {
	return a.frames(ctx, func(f frame) error {
		for _, c := range f.Cards {
			id, err := eventstore.ParseEventID(c.ID)
			if err != nil {
				return err
			}
			err = yield(history.LoggedEvent{
				Stream: c.Stream, Version: c.Version, ID: id, Type: c.Type, Data: c.Data, Meta: c.Meta,
				Position: c.Position, Transaction: f.N,
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

var hows = map[string]history.How{
	"applied": history.Applied, "filtered": history.Filtered, "superseded": history.Superseded, "parked": history.Parked,
}

// Ledgers implements targets.Auditor: one row an effect. Seq names the checkpoint move that the effect was one unit
// with, RowOrder the order of the effects on one row.
func (a auditor) Ledgers(ctx context.Context, yield func(history.LedgerRow) error) error {
	return a.frames(ctx, func(f frame) error {
		if f.Page == nil {
			return nil
		}
		for _, e := range f.Page.Effects {
			id, err := eventstore.ParseEventID(e.Event)
			if err != nil {
				return err
			}
			how, ok := hows[e.How]
			if !ok {
				return fmt.Errorf("shelf audit: frame %d: an effect that was %q", f.N, e.How)
			}
			err = yield(history.LedgerRow{
				Projection: f.Page.Projection, Generation: f.Page.Generation, Event: id, Stream: e.Stream,
				Version: e.Version, Row: e.Row, How: how, RowVersion: e.Stands, RowOrder: e.Order, Seq: f.Page.Seq,
				Transaction: f.N, Epoch: f.Page.Epoch,
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Checkpoints implements targets.Auditor: every value that a checkpoint ever had.
func (a auditor) Checkpoints(ctx context.Context, yield func(history.CheckpointRow) error) error {
	return a.frames(ctx, func(f frame) error {
		if f.Page == nil || f.Page.Seq == 0 {
			return nil
		}
		row, err := checkpoint(f)
		if err != nil {
			return err
		}
		return yield(row)
	})
}

func checkpoint(f frame) (history.CheckpointRow, error) {
	cursor, err := eventstore.ParseCursor(f.Page.Cursor)
	if err != nil {
		return history.CheckpointRow{}, fmt.Errorf("shelf audit: frame %d: %w", f.N, err)
	}
	return history.CheckpointRow{
		Projection: f.Page.Projection, Generation: f.Page.Generation, Seq: f.Page.Seq, Epoch: f.Page.Epoch,
		Cursor: cursor, Transaction: f.N,
	}, nil
}

// Views implements targets.Auditor.
func (a auditor) Views(ctx context.Context, yield func(history.ViewRow) error) error {
	names := map[string]bool{}
	err := a.frames(ctx, func(f frame) error {
		if f.Page != nil {
			names[f.Page.Projection] = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		_, rows, err := a.Observe(ctx, name)
		if err != nil {
			return err
		}
		for _, r := range rows {
			if err := yield(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// Observe implements targets.Auditor: the tape up to any frame is one atomic state.
func (a auditor) Observe(ctx context.Context, projection string) (history.Observation, []history.ViewRow, error) {
	seen := history.Observation{Projection: projection, Generation: 1}
	rows := map[string]history.ViewRow{}
	err := a.frames(ctx, func(f frame) error {
		if f.Page == nil || f.Page.Projection != projection {
			return nil
		}
		c, err := checkpoint(f)
		if err != nil {
			return err
		}
		if c.Seq > 0 {
			seen.Generation, seen.Seq, seen.Cursor = c.Generation, c.Seq, c.Cursor
		}
		for key, r := range f.Page.Rows {
			rows[key] = history.ViewRow{
				Projection: projection, Generation: f.Page.Generation, Row: key, Version: r.Version, State: r.State,
			}
		}
		return nil
	})
	var out []history.ViewRow
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		out = append(out, rows[key])
	}
	seen.Rows = uint32(len(out))
	return seen, out, err
}

// Head implements targets.Auditor.
func (a auditor) Head(ctx context.Context) (eventstore.Position, error) {
	var head eventstore.Position
	err := a.frames(ctx, func(f frame) error {
		for _, c := range f.Cards {
			if c.Position.Compare(head) > 0 {
				head = c.Position
			}
		}
		return nil
	})
	return head, err
}
