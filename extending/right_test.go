package extending_test

import (
	"context"
	"errors"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/extending/shelf"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/targets"
)

// without returns the target with fewer promises.
func without(t targets.Target, ps ...eventstore.Promise) targets.Target {
	t.Promises = slices.DeleteFunc(slices.Clone(t.Promises), func(p eventstore.Promise) bool { return slices.Contains(ps, p) })
	return t
}

// lanes is a store whose positions are drawn before the commit: appends to different streams overlap, and a position
// may appear after a higher one. Appends to one stream take turns.
type lanes struct {
	mu     sync.Mutex
	turns  map[string]shelf.Turn
	drawn  uint64
	burned atomic.Uint64
	flight map[eventstore.Position]bool
}

func newLanes() *lanes {
	return &lanes{turns: map[string]shelf.Turn{}, flight: map[eventstore.Position]bool{}}
}

func (l *lanes) turn(stream string) shelf.Turn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.turns[stream] == nil {
		l.turns[stream] = make(shelf.Turn, 1)
	}
	return l.turns[stream]
}

func (l *lanes) draw(n int, shard uint32) []eventstore.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]eventstore.Position, n)
	for i := range out {
		l.drawn++
		out[i] = eventstore.Position{Shard: shard, Minor: l.drawn}
		l.flight[out[i]] = true
	}
	return out
}

func (l *lanes) landed(ps []eventstore.Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range ps {
		delete(l.flight, p)
	}
}

// open returns the positions that are drawn and may still appear, ascending, and the highest one drawn.
func (l *lanes) open() ([]eventstore.Position, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedFunc(maps.Keys(l.flight), eventstore.Position.Compare), l.drawn
}

// append draws positions, is slow, and commits; now and then it gives up in between and burns them.
func (l *lanes) append(shard func(stream string) uint32) func(context.Context, *shelf.Conn, eventstore.Append) (eventstore.Appended, error) {
	return func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
		turn := l.turn(a.Stream)
		if err := turn.Take(ctx); err != nil {
			return eventstore.Appended{}, shelf.Refused("append", eventstore.NotSent, err)
		}
		defer turn.Leave()
		if first, ok := known(c, a); ok {
			return first, nil
		}
		if err := c.Legal(a); err != nil {
			return eventstore.Appended{}, err
		}
		head := c.Shelf.Head(a.Stream)
		if err := shelf.Compare(a.Expected, head); err != nil {
			return eventstore.Appended{}, err
		}
		f := shelf.NewFrame(a, head)
		ps := l.draw(len(a.Events), shard(a.Stream))
		defer l.landed(ps)
		for i := range f.Cards {
			f.Cards[i].Position = ps[i]
		}
		doze(time.Duration(1+a.Events[0].ID[14]%5) * time.Millisecond)
		if l.burned.Add(1)%16 == 0 {
			return eventstore.Appended{}, shelf.Refused("append", eventstore.TransactionConflict, errors.New("deadlock"))
		}
		return put(c, f)
	}
}

func oneShard(string) uint32 { return 0 }

func threeShards(stream string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(stream))
	return h.Sum32() % 3
}

// gaps is a reader that passes positions in flight and says so. What was drawn after it looked what is in flight, it
// leaves for the next page: it can't know whether it passes something there.
func (l *lanes) gaps(ctx context.Context, c *shelf.Conn, after eventstore.Cursor, limit int) (eventstore.Page, error) {
	open, drawn := l.open()
	return l.passing(ctx, c, after, limit, open, drawn)
}

func (l *lanes) passing(ctx context.Context, c *shelf.Conn, after eventstore.Cursor, limit int, open []eventstore.Position, bound uint64) (eventstore.Page, error) {
	if err := c.Begin(ctx, "poll"); err != nil {
		return eventstore.Page{}, err
	}
	events := c.Shelf.After(after, 1<<30)
	if i := slices.IndexFunc(events, func(e eventstore.Event) bool { return e.Position.Minor > bound }); i >= 0 {
		events = events[:i]
	}
	if len(events) == 0 {
		return eventstore.Page{Next: after}, nil
	}
	page := events[:min(limit, len(events))]
	top := page[len(page)-1].Position
	if len(after.At) > 0 && after.At[0].Compare(top) > 0 {
		top = after.At[0]
	}
	next := eventstore.Through(top)
	in := func(p eventstore.Position) func(eventstore.Event) bool {
		return func(e eventstore.Event) bool { return e.Position == p }
	}
	for _, p := range open {
		if p.Compare(top) < 0 && !slices.ContainsFunc(page, in(p)) {
			next.Open = append(next.Open, p)
		}
	}
	// What the page had no room for stays open too.
	for _, e := range events[len(page):] {
		if e.Position.Compare(top) <= 0 && !slices.Contains(next.Open, e.Position) {
			next.Open = append(next.Open, e.Position)
		}
	}
	slices.SortFunc(next.Open, eventstore.Position.Compare)
	return eventstore.Page{Events: page, Next: next}, nil
}

func gapAware() targets.Target {
	t := variant("gap-aware", func() parts {
		l := newLanes()
		return parts{append: l.append(oneShard), poll: l.gaps}
	})
	return without(t, eventstore.RealTimeOrder)
}

// sharded has an order for each of three shards and none over all of them.
func sharded() targets.Target {
	t := variant("sharded", func() parts {
		l := newLanes()
		return parts{append: l.append(threeShards), poll: func(ctx context.Context, c *shelf.Conn, after eventstore.Cursor, limit int) (eventstore.Page, error) {
			if err := c.Begin(ctx, "poll"); err != nil {
				return eventstore.Page{}, err
			}
			floor := map[uint32]eventstore.Position{}
			open, drawn := l.open()
			for _, p := range open {
				if q, ok := floor[p.Shard]; !ok || p.Compare(q) < 0 {
					floor[p.Shard] = p
				}
			}
			at := map[uint32]eventstore.Position{}
			for _, p := range after.At {
				at[p.Shard] = p
			}
			var page eventstore.Page
			for _, e := range c.Shelf.After(after, 1<<30) {
				low, held := floor[e.Position.Shard]
				if held && e.Position.Compare(low) >= 0 || e.Position.Minor > drawn {
					continue
				}
				if len(page.Events) == limit {
					break
				}
				page.Events = append(page.Events, e)
				at[e.Position.Shard] = e.Position
			}
			for _, s := range slices.Sorted(maps.Keys(at)) {
				page.Next.At = append(page.Next.At, at[s])
			}
			return page, nil
		}}
	})
	return without(t, eventstore.RealTimeOrder, eventstore.GlobalOrder)
}

// atLeastOnce writes effects first and the checkpoint in a unit of its own; a guard on the row's version drops what
// comes again, and says so in the ledger.
func atLeastOnce() targets.Target {
	t := variant("at-least-once", func() parts {
		return parts{apply: func(ctx context.Context, c *shelf.Conn, v eventstore.View, b eventstore.Batch) (eventstore.Checkpoint, error) {
			turn := c.Shelf.Book(v.Name()).Turn
			if err := turn.Take(ctx); err != nil {
				return eventstore.Checkpoint{}, shelf.Refused("apply", eventstore.NotSent, err)
			}
			defer turn.Leave()
			fresh := b
			fresh.Events = nil
			p := &shelf.Page{Projection: v.Name(), Generation: 1}
			for _, e := range b.Events {
				key, ok := v.Key(e)
				if row, _ := c.Shelf.Row(v.Name(), key); ok && row.Version >= e.Version {
					p.Effects = append(p.Effects, shelf.Effect{
						Event: e.ID.String(), Stream: e.Stream, Version: e.Version, How: "superseded", Row: key, Stands: row.Version, Order: row.Order,
					})
					continue
				}
				fresh.Events = append(fresh.Events, e)
			}
			again, err := shelf.NewPage(c.Shelf, v, fresh)
			if err != nil {
				return eventstore.Checkpoint{}, err
			}
			p.Effects, p.Rows = append(p.Effects, again.Effects...), again.Rows
			if _, err := written(c, v, p); err != nil {
				return eventstore.Checkpoint{}, err
			}
			doze(time.Millisecond)
			if err := ctx.Err(); err != nil {
				return eventstore.Checkpoint{}, shelf.Lost("apply", err)
			}
			if now := c.Shelf.Checkpoint(v.Name()); now.Seq != b.Prev.Seq {
				return eventstore.Checkpoint{}, shelf.Refused("apply", eventstore.Superseded, nil)
			}
			return written(c, v, &shelf.Page{
				Projection: v.Name(), Generation: 1, Seq: b.Prev.Seq + 1, Epoch: b.Prev.Epoch, Cursor: b.Next.String(),
			})
		}}
	})
	t.ProjectionMode = "at-least-once"
	return without(t, eventstore.AtomicProjection)
}

// moody is right and a pain: it refuses for load, loses races, loses replies and tells no head.
func moody() targets.Target {
	return variant("moody", func() parts {
		var n atomic.Int64
		return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
			switch i := n.Add(1); {
			case i < 20:
			case i%7 == 0:
				return eventstore.Appended{}, shelf.Refused("append", eventstore.Throttled, nil)
			case i%11 == 0:
				return eventstore.Appended{}, shelf.Refused("append", eventstore.TransactionConflict, nil)
			case i%13 == 0 && a.Expected.IsAny():
				return eventstore.Appended{}, shelf.Refused("append", eventstore.LostRace, nil)
			case i%17 == 0:
				_, err := c.Append(ctx, a)
				return eventstore.Appended{}, &eventstore.Error{Op: "append", Outcome: eventstore.Unknown, Reason: eventstore.ServerUncertain, Err: err}
			}
			answer, err := c.Append(ctx, a)
			answer.Positions = nil
			var e *eventstore.Error
			if errors.As(err, &e) {
				e.Head, e.HeadKnown = 0, false
			}
			return answer, err
		}}
	})
}

// forgetful remembers no request and does not promise to.
func forgetful() targets.Target {
	t := variant("forgetful", forgetsRequests)
	return without(t, eventstore.IdempotentAppend)
}

// lastOnly audits a store that keeps no history of its checkpoints: the last value is all there is.
type lastOnly struct{ targets.Auditor }

func (l lastOnly) Checkpoints(ctx context.Context, yield func(history.CheckpointRow) error) error {
	last := map[string]history.CheckpointRow{}
	err := l.Auditor.Checkpoints(ctx, func(r history.CheckpointRow) error { last[r.Projection] = r; return nil })
	for _, name := range slices.Sorted(maps.Keys(last)) {
		err = errors.Join(err, yield(last[name]))
	}
	return err
}

func lastCheckpointOnly() targets.Target {
	return variant("last-checkpoint", func() parts {
		return parts{audit: func(a targets.Auditor) targets.Auditor { return lastOnly{a} }}
	})
}

// headless audits a store that can't tell its head.
type headless struct{ targets.Auditor }

func (headless) Head(context.Context) (eventstore.Position, error) { return eventstore.Position{}, nil }

func withoutHead() targets.Target {
	return variant("headless", func() parts {
		return parts{audit: func(a targets.Auditor) targets.Auditor { return headless{a} }}
	})
}

func otherRightStores() []targets.Target {
	return []targets.Target{gapAware(), sharded(), atLeastOnce(), moody(), forgetful(), lastCheckpointOnly(), withoutHead()}
}
