package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/targets"
)

// noop is a store that answers at once: no I/O, no transactions, nothing but the events in memory. It is as right as
// memory/reference in what it promises, and costs next to nothing, so that what is measured is the harness.
type noop struct {
	position atomic.Uint64
	frozen   atomic.Bool // appends are answered and forgotten

	mu      sync.RWMutex // guards the map
	streams map[string]*noopStream
}

type noopStream struct {
	mu     sync.Mutex
	events []eventstore.Event
}

func newNoop() *noop { return &noop{streams: map[string]*noopStream{}} }

// target returns the target whose every trial uses this store.
func (s *noop) target() targets.Target {
	return targets.Target{
		Store: "no-op", Variant: "no-op", Workloads: []string{"bank"}, Emulated: true,
		Promises: []eventstore.Promise{
			eventstore.OptimisticConcurrency, eventstore.AtomicBatch, eventstore.StrongRead, eventstore.GlobalOrder,
			eventstore.RealTimeOrder, eventstore.FreshRefusals, eventstore.Durable,
		},
		Open: func(context.Context, targets.Site) (targets.Instance, error) { return noopInstance{s}, nil },
	}
}

func (s *noop) stream(name string) *noopStream {
	s.mu.RLock()
	st := s.streams[name]
	s.mu.RUnlock()
	if st != nil {
		return st
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if st = s.streams[name]; st == nil {
		st = &noopStream{}
		s.streams[name] = st
	}
	return st
}

// Read implements eventstore.Store.
func (s *noop) Read(ctx context.Context, r eventstore.ReadRequest) (eventstore.Slice, error) {
	eventstore.TraceFrom(ctx).Session("no-op/1")
	st := s.stream(r.Stream)
	st.mu.Lock()
	events := st.events
	st.mu.Unlock()
	from, to := min(r.From-1, uint64(len(events))), uint64(len(events))
	if r.To != 0 {
		to = max(from, min(to, r.To))
	}
	return eventstore.Slice{Events: events[from:to:to], Pages: 1}, nil
}

// Append implements eventstore.Store.
func (s *noop) Append(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	tr := eventstore.TraceFrom(ctx)
	tr.Session("no-op/1")
	tr.RoundTrips(1)
	st := s.stream(a.Stream)
	st.mu.Lock()
	defer st.mu.Unlock()
	head := uint64(len(st.events))
	if !a.Expected.IsAny() && a.Expected.Version() != head {
		return eventstore.Appended{}, &eventstore.Error{
			Op: "append", Outcome: eventstore.Fail, Reason: eventstore.VersionConflict, Head: head, HeadKnown: true,
		}
	}
	done := eventstore.Appended{
		First: head + 1, Last: head + uint64(len(a.Events)),
		Events: make([]eventstore.EventID, len(a.Events)), Positions: make([]eventstore.Position, len(a.Events)),
	}
	for i, e := range a.Events {
		done.Events[i], done.Positions[i] = e.ID, eventstore.Position{Minor: s.position.Add(1)}
		if !s.frozen.Load() {
			st.events = append(st.events, eventstore.Event{NewEvent: e, Stream: a.Stream, Version: done.First + uint64(i), Position: done.Positions[i]})
		}
	}
	return done, nil
}

type noopInstance struct{ s *noop }

// Connect implements targets.Instance.
func (i noopInstance) Connect(context.Context, string, targets.Env) (targets.Session, error) {
	return noopSession(i), nil
}

var errNoopOneProcess = errors.New("no-op: the store lives in one process")

// Config implements targets.Instance.
func (noopInstance) Config(string) (json.RawMessage, error) { return nil, errNoopOneProcess }

// Auditor implements targets.Instance.
func (i noopInstance) Auditor() targets.Auditor { return noopAuditor{s: i.s} }

// About implements targets.Instance.
func (noopInstance) About(context.Context) (string, map[string]string, error) {
	return "no-op", nil, nil
}

// Close implements targets.Instance.
func (noopInstance) Close(context.Context) error { return nil }

type noopSession struct{ s *noop }

// Store implements targets.Session.
func (n noopSession) Store() eventstore.Store { return n.s }

// Snapshots implements targets.Session.
func (noopSession) Snapshots() eventstore.Snapshots { return nil }

// Feed implements targets.Session.
func (noopSession) Feed() eventstore.Feed { return nil }

// Projection implements targets.Session.
func (noopSession) Projection(eventstore.View) (eventstore.Projection, error) {
	return nil, errors.New("no-op: the store has no projections")
}

// Close implements targets.Session.
func (noopSession) Close() error { return nil }

// noopAuditor has a log to show and nothing else.
type noopAuditor struct {
	targets.Auditor
	s *noop
}

// Fence implements targets.Auditor.
func (noopAuditor) Fence(context.Context) (targets.Proof, error) {
	return targets.Proof{Fenced: true, Text: "appends end before they are answered"}, nil
}

// Log implements targets.Auditor.
func (a noopAuditor) Log(_ context.Context, yield func(history.LoggedEvent) error) error {
	for name, st := range a.s.streams {
		for _, e := range st.events {
			if err := yield(history.LoggedEvent{
				Stream: name, Version: e.Version, ID: e.ID, Type: e.Type, Data: e.Data, Meta: e.Meta, Position: e.Position,
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// Ledgers implements targets.Auditor.
func (noopAuditor) Ledgers(context.Context, func(history.LedgerRow) error) error { return nil }

// Checkpoints implements targets.Auditor.
func (noopAuditor) Checkpoints(context.Context, func(history.CheckpointRow) error) error { return nil }

// Views implements targets.Auditor.
func (noopAuditor) Views(context.Context, func(history.ViewRow) error) error { return nil }
