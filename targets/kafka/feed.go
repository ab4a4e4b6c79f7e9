package kafka

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/targets/kafka/internal/broker"
	"github.com/eventproof/eventproof/targets/kafka/internal/form"
)

const (
	// feedWait is how long a poll waits for something new.
	feedWait  = 50 * time.Millisecond
	feedBytes = 256 << 10
)

// feed reads the committed events of every partition, in the order of their offsets. It keeps what it has read ahead; a
// cursor that goes on from somewhere else makes it read again from there.
type feed struct {
	s *session

	mu    sync.Mutex
	ahead map[int32]*lane
	turn  int32 // the partition that comes first on the next page
}

// lane is what is read ahead of one partition.
type lane struct {
	after  int64 // the offset that the caller's cursor has to name for this to be of use
	next   int64 // where to read on
	events []eventstore.Event
	held   string
}

var _ eventstore.Feed = (*feed)(nil)

// Poll implements eventstore.Feed.
func (f *feed) Poll(ctx context.Context, after eventstore.Cursor, limit int) (eventstore.Page, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if limit <= 0 {
		limit = defaultPage
	}
	at := map[int32]int64{}
	for _, p := range after.At {
		at[int32(p.Shard)] = int64(p.Minor)
	}
	n := f.s.cfg.Partitions
	var hungry []int32
	waiting := 0
	for p := range n {
		l := f.ahead[p]
		if l == nil || l.after != at[p] {
			l = &lane{after: at[p], next: at[p]}
			f.ahead[p] = l
		}
		if len(l.events) == 0 {
			hungry = append(hungry, p)
		}
		waiting += len(l.events)
	}
	if waiting < limit && len(hungry) > 0 {
		wait := feedWait
		if waiting > 0 {
			wait = 0
		}
		if err := f.fill(ctx, hungry, wait); err != nil {
			return eventstore.Page{}, readFrom("poll", err)
		}
	}
	page := eventstore.Page{}
	// One event of each partition in turn, so that a busy one does not keep the others waiting.
	for taken := true; taken && len(page.Events) < limit; {
		taken = false
		for i := range n {
			p := (f.turn + i) % n
			if l := f.ahead[p]; len(l.events) > 0 && len(page.Events) < limit {
				page.Events = append(page.Events, l.events[0])
				at[p] = int64(l.events[0].Position.Minor)
				l.events, l.after, taken = l.events[1:], at[p], true
			}
		}
	}
	f.turn = (f.turn + 1) % n
	if len(page.Events) == 0 {
		page.Next, page.Held = after, f.held()
		return page, nil
	}
	for p, offset := range at {
		if offset > 0 {
			page.Next.At = append(page.Next.At, eventstore.Position{Shard: uint32(p), Minor: uint64(offset)})
		}
	}
	slices.SortFunc(page.Next.At, eventstore.Position.Compare)
	return page, nil
}

// fill reads on in partitions of which nothing is left.
func (f *feed) fill(ctx context.Context, partitions []int32, wait time.Duration) error {
	c, err := f.s.broker()
	if err != nil {
		return err
	}
	from := map[int32]int64{}
	for _, p := range partitions {
		from[p] = f.ahead[p].next
	}
	found, err := c.Fetch(ctx, form.Events(f.s.cfg.Trial), from, broker.Committed, wait, feedBytes)
	if err != nil {
		return err
	}
	for p, got := range found {
		l := f.ahead[p]
		var events []eventstore.Event
		for _, r := range got.Records {
			entry, err := form.Decode(r)
			if err != nil {
				return err
			}
			if entry.Lease == nil {
				events = append(events, entry.Event)
			}
		}
		l.events, l.next, l.held = events, got.Next, ""
		if got.Stable < got.High {
			l.held = fmt.Sprintf("partition %d: an open transaction at offset %d, the log goes on to %d", p, got.Stable, got.High)
		}
	}
	return nil
}

func (f *feed) held() string {
	var all []string
	for p := range f.s.cfg.Partitions {
		if l := f.ahead[p]; l.held != "" {
			all = append(all, l.held)
		}
	}
	return strings.Join(all, "; ")
}
