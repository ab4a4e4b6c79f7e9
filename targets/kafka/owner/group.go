package owner

import (
	"context"
	"errors"
	"fmt"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/targets/kafka/internal/broker"
	"github.com/eventproof/eventproof/targets/kafka/internal/form"
)

// Request is an append or a read that waits for its answer.
type Request struct {
	TakeOver bool
	Append   *eventstore.Append
	Read     *form.Read

	ctx  context.Context // ends when nobody waits any more
	done chan Answer     // takes one answer without blocking
	size int
}

// Answer is the answer to a request: what was appended or read, or why not.
type Answer struct {
	Appended eventstore.Appended
	Events   []eventstore.Event
	// Err is an *eventstore.Error, or nil.
	Err error
	// Moved: nothing was done, since this owner does not own the partition.
	Moved bool
}

func refuse(reason eventstore.Reason, err error) Answer {
	return Answer{Err: &eventstore.Error{Op: "append", Outcome: eventstore.Fail, Reason: reason, Err: err}}
}

func refuseAt(reason eventstore.Reason, head uint64) Answer {
	return Answer{Err: &eventstore.Error{Op: "append", Outcome: eventstore.Fail, Reason: reason, Head: head, HeadKnown: true}}
}

// ErrEventTaken says that an event's id is in the log under another request.
var ErrEventTaken = errors.New("kafka: the event id is in the log already, under another request")

// item is a request of a group with the answer that it gets if the group's transaction commits.
type item struct {
	req    *Request
	answer Answer
	first  int // of its records in the group
	count  int // 0: it writes nothing
	repeat *item
}

// Group is a set of requests that are answered together: what they write is one transaction. It sees the committed state
// and, over it, what it is about to write.
type Group struct {
	x     *index
	epoch uint64 // of the lease, stamped on every event
	tag   uint64

	items   []*item
	events  []eventstore.Event
	records []broker.Record

	heads    map[string]uint64
	requests map[string]*item
	ids      map[eventstore.EventID]struct{}
}

func newGroup(x *index, epoch, tag uint64) *Group {
	return &Group{
		x: x, epoch: epoch, tag: tag, heads: map[string]uint64{}, requests: map[string]*item{},
		ids: map[eventstore.EventID]struct{}{},
	}
}

// Records returns what the group writes.
func (g *Group) Records() []broker.Record { return g.records }

// head returns the head of a stream as the group will leave it.
func (g *Group) head(stream string) uint64 {
	if h, ok := g.heads[stream]; ok {
		return h
	}
	return g.x.heads[stream]
}

// token identifies an append: its request, or its first event where the caller gave none.
func token(a *eventstore.Append) string {
	if a.Request != "" {
		return a.Request
	}
	return a.Events[0].ID.String()
}

// take adds a request to the group and works out its answer.
func (g *Group) take(r *Request) error {
	it := &item{req: r}
	g.items = append(g.items, it)
	if r.Append == nil {
		return nil // reads are answered from the state that the group leaves
	}
	a := r.Append
	if answer, settled := g.judge(a); settled {
		it.answer = answer
		return nil
	}
	if first, ok := g.requests[token(a)]; ok {
		it.repeat = first
		return nil
	}
	it.first, it.count = len(g.records), len(a.Events)
	version := g.head(a.Stream)
	for _, n := range a.Events {
		version++
		n.Meta.Epoch = g.epoch
		e := eventstore.Event{NewEvent: n, Stream: a.Stream, Version: version}
		record, err := form.EncodeEvent(e, token(a), g.tag)
		if err != nil {
			return err
		}
		g.records, g.events = append(g.records, record), append(g.events, e)
		g.ids[n.ID] = struct{}{}
	}
	g.heads[a.Stream], g.requests[token(a)] = version, it
	return nil
}

// judge answers an append that writes nothing: a repeated one, or one whose condition does not hold. settled is false
// for one that writes, or repeats one of this group.
func (g *Group) judge(a *eventstore.Append) (answer Answer, settled bool) {
	if first, ok := g.x.requests[token(a)]; ok {
		first.Replayed = true
		return Answer{Appended: first}, true
	}
	if _, ok := g.requests[token(a)]; ok {
		return Answer{}, false
	}
	for _, e := range a.Events {
		_, stored := g.x.ids[e.ID]
		_, here := g.ids[e.ID]
		if stored || here {
			return refuse(eventstore.Invalid, fmt.Errorf("%w: %s", ErrEventTaken, e.ID)), true
		}
	}
	switch head := g.head(a.Stream); {
	case a.Expected.IsAny() || a.Expected.Version() == head:
		return Answer{}, false
	case a.Expected.Version() > head:
		return refuseAt(eventstore.ExpectedAhead, head), true
	default:
		return refuseAt(eventstore.VersionConflict, head), true
	}
}

// slice reads a stream as the group will leave it.
func (g *Group) slice(r *form.Read) []eventstore.Event {
	out := g.x.slice(r.Stream, r.From, r.To, r.Limit)
	for _, e := range g.events {
		if e.Stream == r.Stream && e.Version >= r.From && (r.To == 0 || e.Version <= r.To) && len(out) < r.Limit {
			out = append(out, e)
		}
	}
	return out
}

// landed reports whether the committed log holds what the group wrote: all of it, or nothing.
func (g *Group) landed() bool {
	if len(g.events) == 0 {
		return false
	}
	_, ok := g.x.ids[g.events[0].ID]
	return ok
}

// apply adds what the group wrote to the state, from the offset of its first record on.
func (g *Group) apply(partition int32, base int64) {
	for i := range g.events {
		g.events[i].Position = form.Position(partition, base+int64(i))
	}
	for _, it := range g.items {
		for i := range it.count {
			g.x.add(g.events[it.first+i], token(it.req.Append))
		}
	}
}

// answer returns what a request of the committed group is told.
func (g *Group) answer(it *item) Answer {
	switch {
	case it.req.Read != nil:
		r := it.req.Read
		return Answer{Events: g.x.slice(r.Stream, r.From, r.To, r.Limit)}
	case it.repeat != nil:
		done := g.x.requests[token(it.req.Append)]
		done.Replayed = true
		return Answer{Appended: done}
	case it.count > 0:
		return Answer{Appended: g.x.requests[token(it.req.Append)]}
	}
	return it.answer
}
