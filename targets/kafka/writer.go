package kafka

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/targets/kafka/internal/form"
)

const (
	defaultPage = 500
	// probeBound is how long an owner that left a request unanswered may take to say that it is there.
	probeBound = 500 * time.Millisecond
	// maxHops is how many owners one attempt asks at most: each one after the first only because the one before has
	// definitely done nothing.
	maxHops = 3
)

// route is what a session knows of the owner of a partition.
type route struct {
	owner   int
	suspect bool // left a request unanswered
}

// Router says which owner a session asks first for a partition. preferred is the one that takes it while it is nobody's.
type Router func(session string, preferred, owners int) int

// Preferred is the correct Router.
func Preferred(_ string, preferred, _ int) int { return preferred }

// writer is the store as writers see it: the owners.
type writer struct {
	cfg   config
	pools []*pool

	mu     sync.Mutex
	routes []route // by partition
}

var _ eventstore.Store = (*writer)(nil)

func newWriter(cfg config, route0 Router, pools []*pool, session string) *writer {
	w := &writer{cfg: cfg, pools: pools, routes: make([]route, cfg.Partitions)}
	for p := range w.routes {
		w.routes[p].owner = route0(session, cfg.preferred(int32(p)), len(pools))
	}
	return w
}

func (w *writer) route(partition int32) route {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.routes[partition]
}

func (w *writer) learn(partition int32, r route) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.routes[partition] = r
}

var errMoved = errors.New("kafka: neither owner owns the partition at the moment")

// ask sends a request to the partition's owner and returns what it says. message makes the request. The other owner is
// asked, and told to take the partition over, if the one that is believed to own it can't be reached, left a request
// unanswered and does not answer now either, or says that it is not its owner. An owner that is there and owns the
// partition answers, whatever it is told to take.
//
// sent tells of an error whether a byte of a request that may have been carried out has left.
func (w *writer) ask(ctx context.Context, partition int32, path string, message func(takeOver bool) any) (a form.Answer, sent bool, err error) {
	r := w.route(partition)
	other := func() { r = route{owner: (r.owner + 1) % len(w.pools)} }
	takeOver := false
	if r.suspect && !w.there(ctx, r.owner, partition) {
		other()
		takeOver = true
	}
	trips := 0
	defer func() { eventstore.TraceFrom(ctx).RoundTrips(trips) }()
	for range maxHops {
		a = form.Answer{}
		trips++
		sent, err = w.pools[r.owner].call(ctx, http.MethodPost, path, message(takeOver), &a)
		switch {
		case err != nil && sent:
			r.suspect = true
			w.learn(partition, r)
			return a, true, err
		case err != nil && ctx.Err() != nil:
			return a, false, err
		case err == nil && !a.Moved:
			r.suspect = false
			w.learn(partition, r)
			return a, false, nil
		}
		other()
		takeOver = true
		w.learn(partition, r)
	}
	if err == nil {
		// Each of them has done nothing; the next attempt may meet one that has taken the partition.
		err = fail("ask", eventstore.GroupAborted, fmt.Errorf("%w: %s", errMoved, a.Text))
	}
	return a, false, err
}

// there asks an owner whether it owns the partition, or is about to.
func (w *writer) there(ctx context.Context, owner int, partition int32) bool {
	ctx, cancel := context.WithTimeout(eventstore.WithTrace(ctx, nil), probeBound)
	defer cancel()
	var s form.State
	_, err := w.pools[owner].call(ctx, http.MethodGet, form.PathState+"?partition="+strconv.Itoa(int(partition)), nil, &s)
	return err == nil && s.Owns
}

var errEmpty = errors.New("kafka: an append needs a stream and at least one event, each with an id and a type")

// Append implements eventstore.Store.
func (w *writer) Append(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	invalid := a.Stream == "" || len(a.Events) == 0
	for _, e := range a.Events {
		invalid = invalid || e.ID.IsZero() || e.Type == ""
	}
	if invalid {
		return eventstore.Appended{}, fail("append", eventstore.Invalid, errEmpty)
	}
	m := form.Append{Partition: w.cfg.partitionOf(a.Stream), Stream: a.Stream, Request: a.Request}
	if v := a.Expected.Version(); !a.Expected.IsAny() {
		m.Expected = &v
	}
	var err error
	if m.Events, err = form.ToEvents(a.Events); err != nil {
		return eventstore.Appended{}, fail("append", eventstore.Invalid, err)
	}
	answer, sent, err := w.ask(ctx, m.Partition, form.PathAppend, func(takeOver bool) any {
		m.TakeOver = takeOver
		return m
	})
	if err != nil {
		return eventstore.Appended{}, classifyWrite("append", sent, err)
	}
	if err := said("append", answer); err != nil {
		return eventstore.Appended{}, classifyWrite("append", true, err)
	}
	done := eventstore.Appended{First: answer.First, Last: answer.Last, Positions: answer.Positions, Replayed: answer.Replayed}
	for _, text := range answer.IDs {
		id, err := eventstore.ParseEventID(text)
		if err != nil {
			return eventstore.Appended{}, classifyWrite("append", true, err)
		}
		done.Events = append(done.Events, id)
	}
	return done, nil
}

// Read implements eventstore.Store. Every page is a strong read of its own, and the stream only grows, so the pages
// together are what the last one's moment showed.
func (w *writer) Read(ctx context.Context, r eventstore.ReadRequest) (eventstore.Slice, error) {
	m := form.Read{Partition: w.cfg.partitionOf(r.Stream), Stream: r.Stream, From: max(r.From, 1), To: r.To, Limit: r.PageSize}
	if m.Limit <= 0 {
		m.Limit = defaultPage
	}
	var slice eventstore.Slice
	for m.To == 0 || m.From <= m.To {
		answer, sent, err := w.ask(ctx, m.Partition, form.PathRead, func(takeOver bool) any {
			m.TakeOver = takeOver
			return m
		})
		if err == nil {
			sent, err = true, said("read", answer)
		}
		if err != nil {
			return eventstore.Slice{}, classifyRead("read", sent, err)
		}
		slice.Pages++
		for _, one := range answer.Events {
			e, err := one.Stored(r.Stream)
			if err != nil {
				return eventstore.Slice{}, classifyRead("read", true, err)
			}
			slice.Events = append(slice.Events, e)
		}
		if len(answer.Events) < m.Limit {
			break
		}
		m.From = slice.Events[len(slice.Events)-1].Version + 1
	}
	return slice, nil
}

func (w *writer) close() {
	for _, p := range w.pools {
		p.close()
	}
}
