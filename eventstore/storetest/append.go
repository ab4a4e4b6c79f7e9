package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/eventproof/eventproof/eventstore"
)

func exactAppend(t *testing.T, f Fixture) {
	var src ids
	s := f.Connect(t).Store
	one, two := src.event(1), src.event(2)
	got := mustAppend(t, s, src.write("s", eventstore.NoStream(), one))
	if got.First != 1 || got.Last != 1 || got.Replayed || !slices.Equal(got.Events, []eventstore.EventID{one.ID}) {
		t.Fatalf("first append answered %+v", got)
	}
	got = mustAppend(t, s, src.write("s", eventstore.Exact(1), two))
	if got.First != 2 || got.Last != 2 || got.Replayed || !slices.Equal(got.Events, []eventstore.EventID{two.ID}) {
		t.Fatalf("second append answered %+v", got)
	}
	wantStream(t, s, "s", []eventstore.EventID{one.ID, two.ID})
}

func noStream(t *testing.T, f Fixture) {
	f.require(t, eventstore.OptimisticConcurrency)
	var src ids
	s := f.Connect(t).Store
	first := src.event(1)
	mustAppend(t, s, src.write("s", eventstore.NoStream(), first))
	_, err := s.Append(t.Context(), src.write("s", eventstore.NoStream(), src.event(2)))
	wantFail(t, err, eventstore.VersionConflict)
	wantStream(t, s, "s", []eventstore.EventID{first.ID})
}

func conflict(t *testing.T, f Fixture) {
	f.require(t, eventstore.OptimisticConcurrency)
	var src ids
	s := f.Connect(t).Store
	var want []eventstore.EventID
	for v := range uint64(3) {
		e := src.event(1)
		want = append(want, e.ID)
		mustAppend(t, s, src.write("s", eventstore.Exact(v), e))
	}
	_, err := s.Append(t.Context(), src.write("s", eventstore.Exact(1), src.event(9)))
	if e := wantFail(t, err, eventstore.VersionConflict); e.HeadKnown && e.Head != 3 {
		t.Fatalf("the conflict shows head %d, the head is 3", e.Head)
	}
	wantStream(t, s, "s", want)
	next := src.event(4)
	if got := mustAppend(t, s, src.write("s", eventstore.Exact(3), next)); got.First != 4 {
		t.Fatalf("the append after the conflict took version %d, want 4", got.First)
	}
}

func expectedAhead(t *testing.T, f Fixture) {
	f.require(t, eventstore.OptimisticConcurrency)
	var src ids
	s := f.Connect(t).Store
	for _, stream := range []string{"missing", "existing"} {
		var want []eventstore.EventID
		head := uint64(0)
		if stream == "existing" {
			e := src.event(1)
			want, head = append(want, e.ID), 1
			mustAppend(t, s, src.write(stream, eventstore.NoStream(), e))
		}
		_, err := s.Append(t.Context(), src.write(stream, eventstore.Exact(head+3), src.event(2)))
		e := wantFail(t, err, eventstore.ExpectedAhead, eventstore.VersionConflict)
		if e.Reason == eventstore.VersionConflict && !e.HeadKnown {
			t.Fatalf("%v: a conflict ahead of the head must name the head", err)
		}
		if e.HeadKnown && e.Head != head {
			t.Fatalf("%v: the head is %d", err, head)
		}
		wantStream(t, s, stream, want)
	}
}

func batch(t *testing.T, f Fixture) {
	f.require(t, eventstore.AtomicBatch, eventstore.OptimisticConcurrency)
	var src ids
	s := f.Connect(t).Store
	three := src.events(3)
	got := mustAppend(t, s, src.write("s", eventstore.NoStream(), three...))
	if got.First != 1 || got.Last != 3 || !slices.Equal(got.Events, eventIDs(three)) {
		t.Fatalf("the batch answered %+v", got)
	}
	// The batch of two starts below the head; that its second version is free must not let a part of it in.
	_, err := s.Append(t.Context(), src.write("s", eventstore.Exact(2), src.events(2)...))
	wantFail(t, err, eventstore.VersionConflict)
	wantStream(t, s, "s", eventIDs(three))
}

func anyAppend(t *testing.T, f Fixture) {
	const writers, each = 4, 5
	var src ids
	s := f.Connect(t).Store
	first := src.event(1)
	if got := mustAppend(t, s, src.write("s", eventstore.Any(), first)); got.First != 1 {
		t.Fatalf("a blind append to a new stream took version %d", got.First)
	}
	if got := mustAppend(t, s, src.write("s", eventstore.Any(), src.event(1))); got.First != 2 {
		t.Fatalf("the second blind append took version %d", got.First)
	}
	ctx := within(t, 30*time.Second)
	var wg sync.WaitGroup
	for range writers {
		own := f.Connect(t).Store
		wg.Go(func() {
			for range each {
				a := src.write("s", eventstore.Any(), src.event(1))
				for {
					_, err := own.Append(ctx, a)
					if err == nil {
						break
					}
					if _, reason := eventstore.Classify(err); !reason.Retriable() {
						t.Errorf("a blind append failed: %v", err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	events := mustRead(t, s, all("s"))
	if len(events) != 2+writers*each {
		t.Fatalf("the stream has %d events, want %d", len(events), 2+writers*each)
	}
	for i, e := range events {
		if e.Version != uint64(i+1) {
			t.Fatalf("event %d has version %d", i+1, e.Version)
		}
	}
}

func malformed(t *testing.T, f Fixture) {
	s := f.Connect(t).Store
	_, err := s.Append(t.Context(), eventstore.Append{Stream: "s", Expected: eventstore.Any(), Request: "r"})
	wantFail(t, err, eventstore.Invalid)
	wantStream(t, s, "s", nil)
}

func repeated(t *testing.T, f Fixture) {
	f.require(t, eventstore.IdempotentAppend)
	var src ids
	s := f.Connect(t).Store
	opened := src.event(1)
	mustAppend(t, s, src.write("s", eventstore.NoStream(), opened))
	exact := src.write("s", eventstore.Exact(1), src.event(2))
	first := mustAppend(t, s, exact)
	blind := src.write("s", eventstore.Any(), src.event(3))
	second := mustAppend(t, s, blind)
	mustAppend(t, s, src.write("s", eventstore.Exact(3), src.event(4)))

	for _, c := range []struct {
		name  string
		conn  eventstore.Store
		again eventstore.Append
		want  eventstore.Appended
	}{
		{"exact, same connection", s, exact, first},
		{"exact, other connection", f.Connect(t).Store, exact, first},
		{"blind", s, blind, second},
	} {
		got := mustAppend(t, c.conn, c.again)
		if !got.Replayed || got.First != c.want.First || got.Last != c.want.Last || !slices.Equal(got.Events, c.want.Events) {
			t.Errorf("%s: repeated append answered %+v, the first answer was %+v", c.name, got, c.want)
		}
	}
	if n := len(mustRead(t, s, all("s"))); n != 4 {
		t.Fatalf("the stream has %d events, want 4", n)
	}
}

func repeatedOtherIDs(t *testing.T, f Fixture) {
	f.require(t, eventstore.IdempotentAppend)
	var src ids
	s := f.Connect(t).Store
	a := src.write("s", eventstore.NoStream(), src.event(1))
	mustAppend(t, s, a)
	mustAppend(t, s, src.write("s", eventstore.Exact(1), src.event(2)))
	// The command is continued by a process that decided again, on a newer state.
	again := eventstore.Append{
		Stream: "s", Expected: eventstore.Exact(2), Request: a.Request, Events: []eventstore.NewEvent{src.event(3)},
	}
	got := mustAppend(t, f.Connect(t).Store, again)
	if !got.Replayed || got.First != 1 || got.Last != 1 || !slices.Equal(got.Events, eventIDs(a.Events)) {
		t.Fatalf("answered %+v, want the first execution at version 1", got)
	}
	if n := len(mustRead(t, s, all("s"))); n != 2 {
		t.Fatalf("the stream has %d events, want 2", n)
	}
}

func repeatedAtOnce(t *testing.T, f Fixture) {
	f.require(t, eventstore.IdempotentAppend)
	const callers = 8
	var src ids
	ctx := within(t, 30*time.Second)
	stores := make([]eventstore.Store, callers)
	for i := range stores {
		stores[i] = f.Connect(t).Store
	}
	for round := range 5 {
		stream := fmt.Sprintf("s-%d", round)
		a := src.write(stream, eventstore.NoStream(), src.event(1))
		var wg sync.WaitGroup
		for _, s := range stores {
			wg.Go(func() {
				got, err := retried(ctx, s, a)
				if err != nil {
					t.Errorf("a repeated append failed: %v", err)
				} else if got.First != 1 || !slices.Equal(got.Events, eventIDs(a.Events)) {
					t.Errorf("a repeated append answered %+v", got)
				}
			})
		}
		wg.Wait()
		wantStream(t, stores[0], stream, eventIDs(a.Events))
	}
}

// retried appends until the answer is no attempt-level failure.
func retried(ctx context.Context, s eventstore.Store, a eventstore.Append) (eventstore.Appended, error) {
	for {
		got, err := s.Append(ctx, a)
		if _, reason := eventstore.Classify(err); err == nil || !reason.Retriable() {
			return got, err
		}
	}
}

func eventIDReused(t *testing.T, f Fixture) {
	f.require(t, eventstore.IdempotentAppend)
	var src ids
	s := f.Connect(t).Store
	a := src.write("s", eventstore.NoStream(), src.event(1))
	mustAppend(t, s, a)
	streams := []string{"s", "other"}
	if f.promises(eventstore.PartitionedLog) {
		streams = streams[:1] // the other one may lie in another partition, where the id is not known
	}
	for _, stream := range streams {
		head := uint64(len(mustRead(t, s, all(stream))))
		_, err := s.Append(t.Context(), eventstore.Append{
			Stream: stream, Expected: eventstore.Exact(head), Request: "another-" + stream, Events: a.Events,
		})
		if e := wantFail(t, err); e.Reason.Retriable() {
			t.Fatalf("%s: %v: the refusal must not invite a retry", stream, err)
		}
	}
	wantStream(t, s, "s", eventIDs(a.Events))
	wantStream(t, s, "other", nil)
}

func pagedReads(t *testing.T, f Fixture) {
	var src ids
	s := f.Connect(t).Store
	var want []eventstore.EventID
	for v := range uint64(11) {
		e := src.event(1)
		want = append(want, e.ID)
		mustAppend(t, s, src.write("s", eventstore.Exact(v), e))
	}
	for _, size := range []int{0, 1, 2, 5, 10, 11, 12, 1000} {
		r := all("s")
		r.PageSize = size
		got := mustRead(t, s, r)
		if !slices.Equal(storedIDs(got), want) {
			t.Errorf("page size %d: %d events, want %d", size, len(got), len(want))
		}
	}
	if got := mustRead(t, s, all("missing")); len(got) != 0 {
		t.Fatalf("a stream that does not exist has %d events", len(got))
	}
}

func ranges(t *testing.T, f Fixture) {
	var src ids
	s := f.Connect(t).Store
	for v := range uint64(9) {
		mustAppend(t, s, src.write("s", eventstore.Exact(v), src.event(1)))
		mustAppend(t, s, src.write("t", eventstore.Exact(v), src.event(1)))
	}
	for _, c := range []struct{ from, to, first, n uint64 }{
		{1, 0, 1, 9}, {1, 4, 1, 4}, {4, 4, 4, 1}, {4, 0, 4, 6}, {9, 0, 9, 1}, {10, 0, 0, 0}, {8, 20, 8, 2}, {12, 14, 0, 0},
	} {
		for _, size := range []int{0, 1, 3} {
			got := mustRead(t, s, eventstore.ReadRequest{Stream: "s", From: c.from, To: c.to, PageSize: size})
			if uint64(len(got)) != c.n {
				t.Errorf("from %d to %d, page size %d: %d events, want %d", c.from, c.to, size, len(got), c.n)
				continue
			}
			for i, e := range got {
				if e.Version != c.first+uint64(i) || e.Stream != "s" {
					t.Errorf("from %d to %d, page size %d: event %d is %s version %d", c.from, c.to, size, i, e.Stream, e.Version)
				}
			}
		}
	}
}

func unchanged(t *testing.T, f Fixture) {
	var src ids
	s := f.Connect(t).Store
	meta := eventstore.Metadata{
		CommandID: "c-1", CorrelationID: "p-1", CausationID: "e-1", BasisVersion: 7,
		BasisHash: eventstore.HashBytes([]byte("state")), Epoch: 3, SchemaVersion: 2,
	}
	bodies := []string{
		`{"b":1,"a":2}`, `{ "amount" : 1 ,  "amount":2 }`, `{"n":1e2,"m":100.0,"big":9007199254740993}`,
		`{"text":"Zürich é \u0041 🎈"}`, `[]`, `"x"`,
	}
	for i, body := range bodies {
		e := eventstore.NewEvent{ID: src.next(), Type: fmt.Sprintf("Type%d", i), Data: []byte(body), Meta: meta}
		mustAppend(t, s, src.write("s", eventstore.Exact(uint64(i)), e))
	}
	for i, e := range mustRead(t, f.Connect(t).Store, all("s")) {
		if !bytes.Equal(e.Data, []byte(bodies[i])) {
			t.Errorf("data came back as %s, was %s", e.Data, bodies[i])
		}
		if f.promises(eventstore.FencedOwnership) && e.Meta.Epoch != 0 {
			e.Meta.Epoch = meta.Epoch // the owner stamps its own
		}
		if e.Type != fmt.Sprintf("Type%d", i) || e.Meta != meta {
			t.Errorf("type or metadata came back as %s %+v", e.Type, e.Meta)
		}
	}
}

func strongRead(t *testing.T, f Fixture) {
	f.require(t, eventstore.StrongRead)
	var src ids
	writer, reader := f.Connect(t).Store, f.Connect(t).Store
	var want []eventstore.EventID
	for v := range uint64(20) {
		e := src.event(1)
		want = append(want, e.ID)
		mustAppend(t, writer, src.write("s", eventstore.Exact(v), e))
		if got := storedIDs(mustRead(t, reader, all("s"))); !slices.Equal(got, want) {
			t.Fatalf("after version %d was acknowledged a strong read shows %d events", v+1, len(got))
		}
	}
}

func oneWinner(t *testing.T, f Fixture) {
	f.require(t, eventstore.OptimisticConcurrency)
	const writers, conns = 64, 8
	var src ids
	ctx := within(t, 60*time.Second)
	stores := make([]eventstore.Store, conns)
	for i := range stores {
		stores[i] = f.Connect(t).Store
	}
	s := stores[0]
	mustAppend(t, s, src.write("s", eventstore.NoStream(), src.event(1)))
	var (
		start = make(chan struct{})
		mu    sync.Mutex
		won   []eventstore.EventID
		wg    sync.WaitGroup
	)
	for i := range writers {
		e := src.event(1)
		wg.Go(func() {
			<-start
			got, err := retried(ctx, stores[i%conns], src.write("s", eventstore.Exact(1), e))
			if err == nil {
				if got.First != 2 || got.Last != 2 {
					t.Errorf("a winner took versions %d to %d", got.First, got.Last)
				}
				mu.Lock()
				won = append(won, e.ID)
				mu.Unlock()
				return
			}
			if outcome, reason := eventstore.Classify(err); outcome != eventstore.Fail || reason != eventstore.VersionConflict {
				t.Errorf("a loser got %v, want a version conflict", err)
			}
		})
	}
	close(start)
	wg.Wait()
	events := mustRead(t, s, all("s"))
	if len(won) != 1 || len(events) != 2 || events[1].ID != won[0] {
		t.Fatalf("%d writers won, the stream has %d events", len(won), len(events))
	}
}

func cancelled(t *testing.T, f Fixture) {
	const tries = 60
	var src ids
	conn := f.Connect(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := conn.Store.Append(gone, src.write("before", eventstore.NoStream(), src.event(1)))
	wantFail(t, err)
	wantStream(t, conn.Store, "before", nil)

	rnd := rand.New(rand.NewPCG(1, 2))
	outcomes := make([]error, tries)
	writes := make([]eventstore.Append, tries)
	for i := range tries {
		writes[i] = src.write(fmt.Sprintf("s-%d", i), eventstore.NoStream(), src.event(1))
		ctx, stop := context.WithTimeout(t.Context(), time.Duration(rnd.IntN(2000))*time.Microsecond)
		_, outcomes[i] = conn.Store.Append(ctx, writes[i])
		stop()
	}
	for i, err := range outcomes {
		var e *eventstore.Error
		if err != nil && (!errors.As(err, &e) || e.Outcome == eventstore.OK) {
			t.Fatalf("got %T (%v), want an *eventstore.Error that is no ok", err, err)
		}
		stored := mustRead(t, conn.Store, all(writes[i].Stream))
		switch outcome, _ := eventstore.Classify(err); {
		case outcome == eventstore.OK && len(stored) != 1:
			t.Errorf("an acknowledged append is not in the store")
		case outcome == eventstore.Fail && len(stored) != 0:
			t.Errorf("an append that was told to have failed is in the store: %v", err)
		}
	}
}
