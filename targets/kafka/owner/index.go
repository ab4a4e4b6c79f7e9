package owner

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/targets/kafka/internal/form"
)

// index is what an owner knows of its partition: the committed records up to an offset.
type index struct {
	next     int64      // where to read on
	lease    form.Lease // the last one
	streams  map[string][]eventstore.Event
	heads    map[string]uint64
	requests map[string]eventstore.Appended
	ids      map[eventstore.EventID]struct{}
}

func newIndex() *index {
	return &index{
		streams: map[string][]eventstore.Event{}, heads: map[string]uint64{}, requests: map[string]eventstore.Appended{},
		ids: map[eventstore.EventID]struct{}{},
	}
}

// read adds a committed record. One that is known already is passed over.
func (x *index) read(r *kgo.Record) error {
	if r.Offset < x.next {
		return nil
	}
	entry, err := form.Decode(r)
	if err != nil {
		return err
	}
	x.next = r.Offset + 1
	if entry.Lease != nil {
		if entry.Lease.Epoch >= x.lease.Epoch {
			x.lease = *entry.Lease
		}
		return nil
	}
	x.add(entry.Event, entry.Request)
	return nil
}

func (x *index) add(e eventstore.Event, request string) {
	x.streams[e.Stream] = append(x.streams[e.Stream], e)
	x.heads[e.Stream] = max(x.heads[e.Stream], e.Version)
	x.ids[e.ID] = struct{}{}
	first, seen := x.requests[request]
	switch {
	case !seen:
		first = eventstore.Appended{First: e.Version, Last: e.Version}
	case first.Last+1 == e.Version && first.Positions[0].Shard == e.Position.Shard && !slices.Contains(first.Events, e.ID):
		first.Last = e.Version
	default:
		return
	}
	first.Events = append(first.Events, e.ID)
	first.Positions = append(first.Positions, e.Position)
	x.requests[request] = first
}

// slice returns at most limit events of a stream with from ≤ version ≤ to.
func (x *index) slice(stream string, from, to uint64, limit int) []eventstore.Event {
	var out []eventstore.Event
	events := x.streams[stream]
	// Versions follow each other from 1 on, so the event with version v is about the v-th.
	for i := min(max(int(from), 1)-1, len(events)); i < len(events) && len(out) < limit; i++ {
		if e := events[i]; e.Version >= from && (to == 0 || e.Version <= to) {
			out = append(out, e)
		}
	}
	return out
}
