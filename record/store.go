package record

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
)

// Store returns a store that records every attempt and every read. An append that can't be recorded fails with
// reason NotSent and never reaches inner. Slice.ID of a read is its id in the history.
func Store(inner eventstore.Store, r *Recorder) eventstore.Store { return &store{inner, r} }

type store struct {
	inner eventstore.Store
	r     *Recorder
}

// Append implements eventstore.Store. Within a call, the same append again is a blind retry, that is, another
// attempt of the same write; anything that differs (a bumped version, another payload) is a write of its own.
func (s *store) Append(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	w, known := s.write(callFrom(ctx), a)
	inv := history.Invoke{Attempt: s.r.id(), Write: w.Write, T: s.r.clk.Now()}
	if err := s.invoke(callFrom(ctx), w, known, &inv); err != nil {
		return eventstore.Appended{}, notSent("append", err)
	}

	tr := trace(ctx)
	ans, err := s.inner.Append(eventstore.WithTrace(ctx, &tr.hooks), a)

	ret := history.Return{Attempt: inv.Attempt, T: s.r.clk.Now(), Text: shorten(err)}
	ret.Outcome, ret.Reason = eventstore.Classify(err)
	var e *eventstore.Error
	if err == nil {
		ret.First, ret.Last, ret.Events, ret.Positions, ret.Replayed = ans.First, ans.Last, ans.Events, ans.Positions, ans.Replayed
	} else if errors.As(err, &e) {
		ret.Head, ret.HeadKnown = e.Head, e.HeadKnown
	}
	ret.Session, ret.DriverRetries, ret.RoundTrips = tr.told()
	if rerr := s.r.w.Write(&ret); rerr != nil {
		return eventstore.Appended{}, unrecorded("append", eventstore.Unknown, err, rerr)
	}
	return ans, err
}

// write returns the record of the write that a belongs to, and whether the call has recorded it already.
func (s *store) write(c *Call, a eventstore.Append) (w *history.Write, known bool) {
	w = &history.Write{
		Stream: a.Stream, Any: a.Expected.IsAny(), Expected: a.Expected.Version(), Request: a.Request,
		Decision: a.Decision, Events: make([]history.WriteEvent, len(a.Events)),
	}
	for i, e := range a.Events {
		w.Events[i] = history.WriteEvent{ID: e.ID, Type: e.Type, Payload: eventstore.PayloadHash(e.Type, e.Data)}
	}
	if c != nil {
		w.Call = c.id
		if old := c.find(func(old *history.Write) bool { return repeats(w, old) }); old != nil {
			return old, true
		}
	}
	w.Write = s.r.id()
	return w, false
}

// repeats reports whether both writes ask the store for the same.
func repeats(a, b *history.Write) bool {
	if a.Stream != b.Stream || a.Any != b.Any || a.Expected != b.Expected || a.Request != b.Request || len(a.Events) != len(b.Events) {
		return false
	}
	for i := range a.Events {
		if a.Events[i] != b.Events[i] {
			return false
		}
	}
	return true
}

// invoke records the attempt, and the write where it is new, in one piece.
func (s *store) invoke(c *Call, w *history.Write, known bool, inv *history.Invoke) error {
	write := s.r.write
	if c != nil {
		write = c.write
	}
	if known {
		if err := write(inv); err != nil {
			return err
		}
	} else {
		if err := write(w, inv); err != nil {
			return err
		}
		s.r.writes.Add(1)
		if c != nil {
			c.remember(w)
		}
	}
	s.r.attempts.Add(1)
	return nil
}

// Read implements eventstore.Store.
func (s *store) Read(ctx context.Context, req eventstore.ReadRequest) (eventstore.Slice, error) {
	rec := history.Read{
		Read: s.r.id(), Process: s.r.process, Stream: req.Stream, From: req.From, To: req.To,
		Strong: req.Consistency == eventstore.Strong, Snapshot: snapshotFrom(ctx), Invoke: s.r.clk.Now(),
	}
	c := callFrom(ctx)
	if c != nil {
		rec.Call, rec.Session = c.id, c.session
	}
	slice, err := s.inner.Read(ctx, req)
	rec.T = s.r.clk.Now()
	if rec.Outcome, rec.Reason = eventstore.Classify(err); err != nil {
		rec.Outcome = eventstore.Fail // a read without an answer claims nothing
	} else {
		slice.ID = rec.Read
		rec.Pages, rec.Count = uint32(slice.Pages), uint64(len(slice.Events))
		for i, e := range slice.Events {
			if i == 0 {
				rec.First = e.Version
			}
			if rec.Flaw == "" {
				rec.Flaw = flaw(req, e, i, rec.Last)
			}
			rec.Last = e.Version
			rec.Range = rec.Range.Add(history.HashEvent(e.Version, e.ID, eventstore.PayloadHash(e.Type, e.Data)))
		}
	}
	var rerr error
	if c != nil {
		rerr = c.read(&rec)
	} else if rerr = s.r.write(&rec); rerr == nil {
		s.r.reads.Add(1)
	}
	if rerr != nil {
		return eventstore.Slice{}, unrecorded("read", eventstore.Fail, err, rerr)
	}
	return slice, err
}

// flaw says what an answer to a read shows to be wrong by itself, at its i-th event; last is the version before it.
func flaw(req eventstore.ReadRequest, e eventstore.Event, i int, last uint64) string {
	switch {
	case e.Stream != req.Stream:
		return fmt.Sprintf("event %s is said to be of stream %q", e.ID, e.Stream)
	case e.Version < req.From || req.To != 0 && e.Version > req.To:
		return fmt.Sprintf("v%d lies outside of what was asked for", e.Version)
	case i > 0 && e.Version <= last:
		return fmt.Sprintf("v%d follows v%d", e.Version, last)
	}
	return ""
}

// attemptTrace listens to one attempt. Drivers may call it from goroutines of their own, also after the attempt
// has ended.
type attemptTrace struct {
	hooks eventstore.Trace
	outer *eventstore.Trace

	mu                  sync.Mutex
	session             string
	retries, roundTrips uint32
}

// trace returns hooks that listen and pass on to those that ctx carries.
func trace(ctx context.Context) *attemptTrace {
	t := &attemptTrace{outer: eventstore.TraceFrom(ctx)}
	t.hooks = eventstore.Trace{
		Session: t.onSession, DriverRetry: t.onRetry, RoundTrips: t.onRoundTrips, Transaction: t.outer.Transaction,
	}
	return t
}

func (t *attemptTrace) onSession(name string) {
	t.mu.Lock()
	t.session = name
	t.mu.Unlock()
	t.outer.Session(name)
}

func (t *attemptTrace) onRetry() {
	t.mu.Lock()
	t.retries++
	t.mu.Unlock()
	t.outer.DriverRetry()
}

func (t *attemptTrace) onRoundTrips(n int) {
	t.mu.Lock()
	t.roundTrips += uint32(n)
	t.mu.Unlock()
	t.outer.RoundTrips(n)
}

func (t *attemptTrace) told() (session string, retries, roundTrips uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.session, t.retries, t.roundTrips
}
