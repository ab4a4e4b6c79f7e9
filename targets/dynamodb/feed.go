package dynamodb

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/eventproof/eventproof/eventstore"
)

const (
	defaultPage = 500
	// maxHeld bounds the events that a cursor may list as not given out.
	maxHeld = 4096
	// maxRounds bounds the calls of a poll that finds nothing to give out although new records keep coming.
	maxRounds = 16
)

// feed gives out the events of the streams. A stream of the service keeps the order of one item's changes only, and
// every event is an item of its own: version 7 may come before version 6, and in another shard. An event is therefore
// held back until all lower versions of its stream were given out. The cursor lists what it holds back among what it
// claims (Cursor.Open).
//
// Which versions of a stream were given out follows from the cursor and the records it covers. They are read once, from
// the oldest record, when a feed begins, and again when it is asked for a cursor behind the one it was asked for before.
type feed struct {
	s    *session
	busy chan struct{} // held during a poll

	tail    tail
	claimed eventstore.Cursor // what given is about
	given   map[string]uint64 // by stream: the last version that claimed covers
	pending []change          // records that claimed does not cover, in the order of sequence numbers
}

func newFeed(s *session) *feed {
	f := &feed{s: s, busy: make(chan struct{}, 1)}
	f.reset()
	return f
}

func (f *feed) reset() {
	f.tail = tail{arn: f.s.cfg.Stream}
	f.claimed, f.given, f.pending = eventstore.Cursor{}, map[string]uint64{}, nil
}

// Poll implements eventstore.Feed.
func (f *feed) Poll(ctx context.Context, after eventstore.Cursor, limit int) (eventstore.Page, error) {
	if limit <= 0 {
		limit = defaultPage
	}
	select {
	case f.busy <- struct{}{}:
		defer func() { <-f.busy }()
	case <-ctx.Done():
		return eventstore.Page{}, classifyRead("poll", false, context.Cause(ctx))
	}
	if !dominates(after, f.claimed) {
		f.reset()
	}
	f.claim(after)
	for round := 1; ; round++ {
		var left more
		err := f.s.with(ctx, "poll", func(c *Conn) error {
			var err error
			left, err = f.tail.pump(ctx, c, f.take)
			return err
		})
		if err != nil {
			return eventstore.Page{}, err
		}
		page := f.page(after, limit)
		enough := left == something && (len(page.Events) > 0 || round >= maxRounds)
		if left == nothing || len(page.Events) == limit || enough {
			return page, nil
		}
	}
}

// take files a record.
func (f *feed) take(c change) {
	if f.claimed.Covers(c.at) {
		f.given[c.event.Stream] = max(f.given[c.event.Stream], c.event.Version)
		return
	}
	i, known := slices.BinarySearchFunc(f.pending, c, compareChanges)
	if !known {
		f.pending = slices.Insert(f.pending, i, c)
	}
}

// compareChanges orders by sequence number. Those of different shards don't compare; putting them side by side only
// makes it likely that an event comes after the versions below it.
func compareChanges(a, b change) int {
	return cmp.Or(cmp.Compare(a.at.Major, b.at.Major), cmp.Compare(a.at.Minor, b.at.Minor), cmp.Compare(a.at.Shard, b.at.Shard))
}

// claim moves what is known to a cursor that covers everything claimed before.
func (f *feed) claim(after eventstore.Cursor) {
	f.claimed = after
	pending := f.pending
	f.pending = pending[:0:0]
	for _, c := range pending {
		f.take(c)
	}
}

// page makes the page after the claimed cursor: in every shard ascending, in every stream version by version.
func (f *feed) page(after eventstore.Cursor, limit int) eventstore.Page {
	given := map[string]uint64{}                 // by stream: the last version given out in this page
	reached := map[uint32]eventstore.Position{}  // by shard: the last position given out in this page
	passed := map[eventstore.Position]struct{}{} // what the cursor may claim without holding it back
	var page eventstore.Page
	for found := true; found && len(page.Events) < limit; {
		found = false
		held := 0
		for _, c := range f.pending {
			if _, done := passed[c.at]; done {
				continue
			}
			last := max(given[c.event.Stream], f.given[c.event.Stream])
			switch {
			case c.event.Version <= last && !c.rewritten:
				// The same change delivered a second time.
				passed[c.at] = struct{}{}
			case c.event.Version > last+1, c.at.Compare(reached[c.at.Shard]) <= 0 && reached[c.at.Shard] != (eventstore.Position{}):
				held++
			default:
				page.Events = append(page.Events, c.event)
				given[c.event.Stream] = max(last, c.event.Version)
				reached[c.at.Shard] = c.at
				passed[c.at] = struct{}{}
				found = true
			}
			if held > maxHeld || len(page.Events) == limit {
				break
			}
		}
	}
	page.Next = f.next(after, reached, passed)
	if len(page.Events) == 0 {
		page.Held = f.holder(passed)
	}
	return page
}

// next is the cursor that claims what after claims and what was given out, and holds back the rest below it.
func (f *feed) next(after eventstore.Cursor, reached map[uint32]eventstore.Position, passed map[eventstore.Position]struct{}) eventstore.Cursor {
	if len(reached) == 0 {
		return after
	}
	var next eventstore.Cursor
	for _, at := range after.At {
		if p, ok := reached[at.Shard]; ok && p.Compare(at) > 0 {
			at = p
		}
		next.At = append(next.At, at)
		delete(reached, at.Shard)
	}
	for _, p := range reached {
		next.At = append(next.At, p)
	}
	slices.SortFunc(next.At, eventstore.Position.Compare)
	for _, c := range f.pending {
		if _, done := passed[c.at]; !done && next.Covers(c.at) {
			next.Open = append(next.Open, c.at)
		}
	}
	// What after holds back and has not been read again yet stays held back.
	for _, p := range after.Open {
		_, done := passed[p]
		if !done && !slices.Contains(next.Open, p) {
			next.Open = append(next.Open, p)
		}
	}
	slices.SortFunc(next.Open, eventstore.Position.Compare)
	return next
}

// holder names the version that the first event held back waits for.
func (f *feed) holder(passed map[eventstore.Position]struct{}) string {
	for _, c := range f.pending {
		if _, done := passed[c.at]; !done {
			return fmt.Sprintf("version %d of %s is here, version %d is not", c.event.Version, c.event.Stream, f.given[c.event.Stream]+1)
		}
	}
	return ""
}

// dominates reports whether a claims everything that b claims.
func dominates(a, b eventstore.Cursor) bool {
	for _, at := range b.At {
		i := slices.IndexFunc(a.At, func(p eventstore.Position) bool { return p.Shard == at.Shard })
		if i < 0 || a.At[i].Compare(at) < 0 {
			return false
		}
	}
	for _, p := range a.Open {
		if b.Covers(p) {
			return false
		}
	}
	return true
}
