package extending_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/extending/shelf"
	"github.com/eventproof/eventproof/points"
)

// pages is a variant that changes the page before it is written. The page's checkpoint has been compared.
func pages(change func(s *shelf.Shelf, v eventstore.View, b eventstore.Batch, p *shelf.Page)) func() parts {
	return func() parts {
		return parts{apply: func(ctx context.Context, c *shelf.Conn, v eventstore.View, b eventstore.Batch) (eventstore.Checkpoint, error) {
			turn := c.Shelf.Book(v.Name()).Turn
			if err := turn.Take(ctx); err != nil {
				return eventstore.Checkpoint{}, shelf.Refused("apply", eventstore.NotSent, err)
			}
			defer turn.Leave()
			if now := c.Shelf.Checkpoint(v.Name()); now.Seq != b.Prev.Seq || now.Epoch != b.Prev.Epoch {
				return eventstore.Checkpoint{}, shelf.Refused("apply", eventstore.Superseded, nil)
			}
			p, err := shelf.NewPage(c.Shelf, v, b)
			if err != nil {
				return eventstore.Checkpoint{}, err
			}
			change(c.Shelf, v, b, p)
			return written(c, v, p)
		}}
	}
}

func written(c *shelf.Conn, v eventstore.View, p *shelf.Page) (eventstore.Checkpoint, error) {
	if _, err := c.Shelf.Write(shelf.Frame{Page: p}); err != nil {
		return eventstore.Checkpoint{}, shelf.Refused("apply", eventstore.Rejected, err)
	}
	return c.Shelf.Checkpoint(v.Name()), nil
}

// The checkpoint is not compared: whoever comes second applies the same batch again.
func noCompareAndSet() parts {
	return parts{apply: func(ctx context.Context, c *shelf.Conn, v eventstore.View, b eventstore.Batch) (eventstore.Checkpoint, error) {
		time.Sleep(2 * time.Millisecond)
		turn := c.Shelf.Book(v.Name()).Turn
		if err := turn.Take(ctx); err != nil {
			return eventstore.Checkpoint{}, shelf.Refused("apply", eventstore.NotSent, err)
		}
		defer turn.Leave()
		now := c.Shelf.Checkpoint(v.Name())
		p, err := shelf.NewPage(c.Shelf, v, b)
		if err != nil {
			return eventstore.Checkpoint{}, err
		}
		p.Seq, p.Epoch = now.Seq+1, now.Epoch
		if edit, ok := ctx.Value(editKey{}).(func(*shelf.Page)); ok {
			edit(p)
		}
		return written(c, v, p)
	}}
}

// Rows are read before the turn is taken; each of two projectors guards its own epoch only, and each overwrites what the
// other has added in between.
func lostUpdate() parts {
	return parts{apply: func(ctx context.Context, c *shelf.Conn, v eventstore.View, b eventstore.Batch) (eventstore.Checkpoint, error) {
		p, err := shelf.NewPage(c.Shelf, v, b)
		if err != nil {
			return eventstore.Checkpoint{}, err
		}
		time.Sleep(2 * time.Millisecond)
		turn := c.Shelf.Book(v.Name()).Turn
		if err := turn.Take(ctx); err != nil {
			return eventstore.Checkpoint{}, shelf.Refused("apply", eventstore.NotSent, err)
		}
		defer turn.Leave()
		p.Seq = c.Shelf.Checkpoint(v.Name()).Seq + 1
		return written(c, v, p)
	}}
}

// Two units: first the effects, then the checkpoint.
func checkpointBehind() parts {
	return parts{apply: func(ctx context.Context, c *shelf.Conn, v eventstore.View, b eventstore.Batch) (eventstore.Checkpoint, error) {
		p, err := shelf.NewPage(c.Shelf, v, b)
		if err != nil {
			return eventstore.Checkpoint{}, err
		}
		effects := *p
		effects.Seq, effects.Epoch, effects.Cursor = b.Prev.Seq, b.Prev.Epoch, b.Prev.Cursor.String()
		if _, err := written(c, v, &effects); err != nil {
			return eventstore.Checkpoint{}, err
		}
		if err := c.At(ctx, points.ProjectorAfterEffect); err != nil {
			return eventstore.Checkpoint{}, shelf.Lost("apply", err)
		}
		time.Sleep(time.Millisecond)
		if ctx.Err() != nil {
			return eventstore.Checkpoint{}, shelf.Lost("apply", ctx.Err())
		}
		return written(c, v, &shelf.Page{Projection: p.Projection, Generation: p.Generation, Seq: p.Seq, Epoch: p.Epoch, Cursor: p.Cursor})
	}}
}

// Two units: first the checkpoint, then the effects.
func checkpointAhead() parts {
	return parts{apply: func(ctx context.Context, c *shelf.Conn, v eventstore.View, b eventstore.Batch) (eventstore.Checkpoint, error) {
		p, err := shelf.NewPage(c.Shelf, v, b)
		if err != nil {
			return eventstore.Checkpoint{}, err
		}
		if _, err := written(c, v, &shelf.Page{Projection: p.Projection, Generation: p.Generation, Seq: p.Seq, Epoch: p.Epoch, Cursor: p.Cursor}); err != nil {
			return eventstore.Checkpoint{}, err
		}
		if err := c.At(ctx, points.ProjectorAfterCheckpoint); err != nil {
			return eventstore.Checkpoint{}, shelf.Lost("apply", err)
		}
		time.Sleep(time.Millisecond)
		if ctx.Err() != nil {
			return eventstore.Checkpoint{}, shelf.Lost("apply", ctx.Err())
		}
		return written(c, v, p)
	}}
}

// Each projector keeps the rows that it has written in a cache, which does not hear of what another one writes.
func staleRowCache() parts {
	var mu sync.Mutex
	caches := map[string]map[string]shelf.Row{}
	return parts{apply: func(ctx context.Context, c *shelf.Conn, v eventstore.View, b eventstore.Batch) (eventstore.Checkpoint, error) {
		turn := c.Shelf.Book(v.Name()).Turn
		if err := turn.Take(ctx); err != nil {
			return eventstore.Checkpoint{}, shelf.Refused("apply", eventstore.NotSent, err)
		}
		defer turn.Leave()
		if now := c.Shelf.Checkpoint(v.Name()); now.Seq != b.Prev.Seq {
			return eventstore.Checkpoint{}, shelf.Refused("apply", eventstore.Superseded, nil)
		}
		mu.Lock()
		defer mu.Unlock()
		cache := caches[c.Name]
		if cache == nil {
			cache = map[string]shelf.Row{}
			caches[c.Name] = cache
		}
		p, err := shelf.NewPage(c.Shelf, v, b)
		if err != nil {
			return eventstore.Checkpoint{}, err
		}
		for key, right := range p.Rows {
			row, ok := cache[key]
			if !ok {
				cache[key] = right
				continue
			}
			for _, e := range b.Events {
				if k, _ := v.Key(e); k == key {
					if row.State, err = v.Apply(row.State, e); err != nil {
						return eventstore.Checkpoint{}, err
					}
				}
			}
			row.Version, row.Order = right.Version, right.Order
			cache[key], p.Rows[key] = row, row
		}
		return written(c, v, p)
	}}
}

// A filter that is too narrow: blind deposits (commands that were decided without a basis) are passed over, with an
// honest ledger row.
var filtersTooMuch = pages(func(s *shelf.Shelf, v eventstore.View, b eventstore.Batch, p *shelf.Page) {
	kept := b
	kept.Events = nil
	for _, e := range b.Events {
		if e.Type == "FundsDeposited" && e.Version > 2 && e.Meta.BasisVersion == 0 {
			continue
		}
		kept.Events = append(kept.Events, e)
	}
	again, err := shelf.NewPage(s, v, kept)
	if err != nil {
		return
	}
	p.Rows = again.Rows
	for i := range p.Effects {
		if !slices.ContainsFunc(again.Effects, func(e shelf.Effect) bool { return e.Event == p.Effects[i].Event }) {
			p.Effects[i] = shelf.Effect{Event: p.Effects[i].Event, Stream: p.Effects[i].Stream, Version: p.Effects[i].Version, How: "filtered"}
			continue
		}
		for _, e := range again.Effects {
			if e.Event == p.Effects[i].Event {
				p.Effects[i].Order = e.Order
			}
		}
	}
})

// An UPDATE that finds no row: the ledger has the effect, the view has not.
var updateWithoutInsert = pages(func(s *shelf.Shelf, v eventstore.View, _ eventstore.Batch, p *shelf.Page) {
	for key := range p.Rows {
		if _, found := s.Row(v.Name(), key); !found && strings.HasSuffix(key, "3") {
			delete(p.Rows, key)
		}
	}
})

// Rows are right, and the version that stands beside them is one behind.
var rowVersionBehind = pages(func(_ *shelf.Shelf, _ eventstore.View, _ eventstore.Batch, p *shelf.Page) {
	for key, row := range p.Rows {
		row.Version--
		p.Rows[key] = row
	}
})

// The key of the row is cut to eight characters.
var cutKeys = pages(func(_ *shelf.Shelf, _ eventstore.View, _ eventstore.Batch, p *shelf.Page) {
	for key, row := range maps.Clone(p.Rows) {
		delete(p.Rows, key)
		p.Rows[key[:min(len(key), 8)]] = row
	}
})

// The cursor that is stored is now and then that of the page before.
var storesOldCursor = pages(func(_ *shelf.Shelf, _ eventstore.View, b eventstore.Batch, p *shelf.Page) {
	if len(b.Events)%5 == 4 {
		p.Cursor = b.Prev.Cursor.String()
	}
})

// A claim begins again at the start of the log, with the rows as they are.
func claimStartsOver() parts {
	return parts{claim: func(ctx context.Context, c *shelf.Conn, v eventstore.View) (eventstore.Checkpoint, error) {
		turn := c.Shelf.Book(v.Name()).Turn
		if err := turn.Take(ctx); err != nil {
			return eventstore.Checkpoint{}, err
		}
		defer turn.Leave()
		now := c.Shelf.Checkpoint(v.Name())
		p := &shelf.Page{Projection: v.Name(), Generation: 1, Seq: now.Seq + 1, Epoch: now.Epoch + 1}
		return written(c, v, p)
	}}
}

// An event that fails to apply is skipped: here every event of the eleventh version.
var skipsPoison = pages(func(s *shelf.Shelf, v eventstore.View, b eventstore.Batch, p *shelf.Page) {
	kept := b
	kept.Events = slices.DeleteFunc(slices.Clone(b.Events), func(e eventstore.Event) bool { return e.Version == 11 })
	if again, err := shelf.NewPage(s, v, kept); err == nil {
		*p = *again
	}
})

// One effect is written to the view and forgotten in the ledger.
var forgetsLedger = pages(func(_ *shelf.Shelf, _ eventstore.View, _ eventstore.Batch, p *shelf.Page) {
	if len(p.Effects) > 3 {
		p.Effects = p.Effects[1:]
	}
})

// A closed auction is taken out of the view.
var dropsClosed = pages(func(_ *shelf.Shelf, _ eventstore.View, b eventstore.Batch, p *shelf.Page) {
	for _, e := range b.Events {
		if e.Type == "AuctionClosed" {
			p.Rows[e.Stream] = shelf.Row{State: []byte(`{}`), Version: e.Version, Order: p.Rows[e.Stream].Order}
		}
	}
})

// passes is a variant that leaves every ninth version out of the view and writes a ledger row that excuses it.
func passes(how string) func() parts {
	return pages(func(s *shelf.Shelf, v eventstore.View, b eventstore.Batch, p *shelf.Page) {
		out := func(version uint64) bool { return version%9 == 8 }
		kept := b
		kept.Events = slices.DeleteFunc(slices.Clone(b.Events), func(e eventstore.Event) bool { return out(e.Version) })
		again, err := shelf.NewPage(s, v, kept)
		if err != nil {
			return
		}
		for _, e := range p.Effects {
			if out(e.Version) {
				e.How, e.Order = how, 0
				again.Effects = append(again.Effects, e)
			}
		}
		*p = *again
	})
}

// The ledger has a unique key, so that a batch that is applied twice leaves one row an event.
func uniqueLedger() parts {
	inner := noCompareAndSet().apply
	seen := map[string]bool{}
	p := parts{}
	p.apply = func(ctx context.Context, c *shelf.Conn, v eventstore.View, b eventstore.Batch) (eventstore.Checkpoint, error) {
		return inner(withEdit(ctx, func(page *shelf.Page) {
			page.Effects = slices.DeleteFunc(page.Effects, func(e shelf.Effect) bool {
				twice := seen[e.Event]
				seen[e.Event] = true
				return twice
			})
		}), c, v, b)
	}
	return p
}

type editKey struct{}

// withEdit hands an edit of the page to a part that is used inside another one; it runs under the part's turn.
func withEdit(ctx context.Context, edit func(*shelf.Page)) context.Context {
	return context.WithValue(ctx, editKey{}, edit)
}

// Rows are written by another goroutine, a little later.
func rowsLater() parts {
	return pages(func(s *shelf.Shelf, _ eventstore.View, _ eventstore.Batch, p *shelf.Page) {
		later := &shelf.Page{Projection: p.Projection, Generation: p.Generation, Cursor: p.Cursor, Rows: p.Rows}
		p.Rows = nil
		go func() {
			time.Sleep(2 * time.Millisecond)
			_, _ = s.Write(shelf.Frame{Page: later})
		}()
	})()
}

// The counter of the checkpoint starts over at every claim.
func claimStartsCounting() parts {
	return parts{claim: func(ctx context.Context, c *shelf.Conn, v eventstore.View) (eventstore.Checkpoint, error) {
		turn := c.Shelf.Book(v.Name()).Turn
		if err := turn.Take(ctx); err != nil {
			return eventstore.Checkpoint{}, err
		}
		defer turn.Leave()
		now := c.Shelf.Checkpoint(v.Name())
		return written(c, v, &shelf.Page{
			Projection: v.Name(), Generation: 1, Seq: 1, Epoch: now.Epoch + 1, Cursor: now.Cursor.String(),
		})
	}}
}

// A claim opens a new generation at the start of the log and keeps the rows.
func claimRebuildsOnOldRows() parts {
	return parts{claim: func(ctx context.Context, c *shelf.Conn, v eventstore.View) (eventstore.Checkpoint, error) {
		turn := c.Shelf.Book(v.Name()).Turn
		if err := turn.Take(ctx); err != nil {
			return eventstore.Checkpoint{}, err
		}
		defer turn.Leave()
		now := c.Shelf.Checkpoint(v.Name())
		return written(c, v, &shelf.Page{Projection: v.Name(), Generation: now.Generation + 1, Seq: 1, Epoch: now.Epoch + 1})
	}}
}

// ledger is a variant whose views are right and whose ledger rows are not.
func ledger(edit func(*shelf.Effect)) func() parts {
	return pages(func(_ *shelf.Shelf, _ eventstore.View, _ eventstore.Batch, p *shelf.Page) {
		for i := range p.Effects {
			edit(&p.Effects[i])
		}
	})
}

// Effects and rows are written after the checkpoint, in a unit of their own, and the ledger says so: sequence 0 and a
// later transaction. The target promises that they move together.
func effectsAfter() parts {
	return parts{apply: func(ctx context.Context, c *shelf.Conn, v eventstore.View, b eventstore.Batch) (eventstore.Checkpoint, error) {
		turn := c.Shelf.Book(v.Name()).Turn
		if err := turn.Take(ctx); err != nil {
			return eventstore.Checkpoint{}, shelf.Refused("apply", eventstore.NotSent, err)
		}
		defer turn.Leave()
		if now := c.Shelf.Checkpoint(v.Name()); now.Seq != b.Prev.Seq {
			return eventstore.Checkpoint{}, shelf.Refused("apply", eventstore.Superseded, nil)
		}
		p, err := shelf.NewPage(c.Shelf, v, b)
		if err != nil {
			return eventstore.Checkpoint{}, err
		}
		next, err := written(c, v, &shelf.Page{
			Projection: p.Projection, Generation: p.Generation, Seq: p.Seq, Epoch: p.Epoch, Cursor: p.Cursor,
		})
		if err != nil {
			return eventstore.Checkpoint{}, err
		}
		if err := c.At(ctx, points.ProjectorAfterCheckpoint); err != nil {
			return eventstore.Checkpoint{}, shelf.Lost("apply", err)
		}
		p.Seq = 0
		_, err = written(c, v, p)
		return next, err
	}}
}
