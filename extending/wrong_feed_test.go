package extending_test

import (
	"bytes"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/extending/shelf"
)

// feeds is a variant that changes what a right page says.
func feeds(change func(c *shelf.Conn, after eventstore.Cursor, p *eventstore.Page)) func() parts {
	return func() parts {
		return parts{poll: func(ctx context.Context, c *shelf.Conn, after eventstore.Cursor, limit int) (eventstore.Page, error) {
			p, err := c.Poll(ctx, after, limit)
			if err == nil {
				change(c, after, &p)
			}
			return p, err
		}}
	}
}

// The cursor is taken after the page was read: what came in between is claimed and was never delivered.
var cursorReadLate = feeds(func(c *shelf.Conn, _ eventstore.Cursor, p *eventstore.Page) {
	if len(p.Events) == 0 {
		return
	}
	time.Sleep(2 * time.Millisecond)
	for end := c.Shelf.After(p.Next, 1000); len(end) > 0; end = c.Shelf.After(p.Next, 1000) {
		p.Next = eventstore.Through(end[len(end)-1].Position)
	}
})

// A page that is full is cut by one, and the cursor was computed before.
var pageCutByOne = feeds(func(_ *shelf.Conn, _ eventstore.Cursor, p *eventstore.Page) {
	if len(p.Events) > 3 {
		p.Events = p.Events[:len(p.Events)-1]
	}
})

// `position >= cursor`: the last event of the page before comes again.
func inclusive() parts {
	return parts{poll: func(ctx context.Context, c *shelf.Conn, after eventstore.Cursor, limit int) (eventstore.Page, error) {
		p, err := c.Poll(ctx, after, limit)
		if err != nil || len(p.Events) == 0 || after.IsZero() {
			return p, err
		}
		for _, e := range c.Shelf.After(eventstore.Cursor{}, 1<<30) {
			if e.Position == after.At[0] {
				p.Events = append([]eventstore.Event{e}, p.Events...)
			}
		}
		return p, nil
	}}
}

// Newest first.
var newestFirst = feeds(func(_ *shelf.Conn, _ eventstore.Cursor, p *eventstore.Page) { slices.Reverse(p.Events) })

// Deposits are delivered with the amount of the deposit before: a buffer is used again.
var reusedBuffer = feeds(func(_ *shelf.Conn, _ eventstore.Cursor, p *eventstore.Page) {
	for i := 1; i < len(p.Events); i++ {
		if p.Events[i].Type == p.Events[i-1].Type && p.Events[i].Stream == p.Events[i-1].Stream {
			p.Events[i].Data = p.Events[i-1].Data
		}
	}
})

// An event type that the reader does not know is left out, and its position is claimed.
var unknownType = feeds(func(_ *shelf.Conn, _ eventstore.Cursor, p *eventstore.Page) {
	p.Events = slices.DeleteFunc(p.Events, func(e eventstore.Event) bool {
		return e.Type == "FundsWithdrawn" && bytes.HasSuffix(e.Data, []byte(`7Z"}`))
	})
})

// After a time-out the reader begins again at a bookmark that it made earlier.
func rewinds() parts {
	var mu sync.Mutex
	var n int
	var bookmark eventstore.Cursor
	return parts{poll: func(ctx context.Context, c *shelf.Conn, after eventstore.Cursor, limit int) (eventstore.Page, error) {
		mu.Lock()
		defer mu.Unlock()
		if n++; n%10 == 0 {
			after = bookmark
		} else if n%10 == 5 {
			bookmark = after
		}
		return c.Poll(ctx, after, limit)
	}}
}

// A reader that passes what is in flight looks first what that is and then reads as far as it can: what was drawn in
// between is neither in the page nor open.
func looksTooEarly() parts {
	l := newLanes()
	return parts{append: l.append(oneShard), poll: func(ctx context.Context, c *shelf.Conn, after eventstore.Cursor, limit int) (eventstore.Page, error) {
		open, _ := l.open()
		doze(2 * time.Millisecond)
		return l.passing(ctx, c, after, limit, open, math.MaxUint64)
	}}
}

// A reader that knows of no gaps: `position > cursor` over positions that are drawn before the commit.
func knowsNoGaps() parts {
	l := newLanes()
	return parts{append: l.append(oneShard)}
}
