package memory_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/eventstore/storetest"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/memory"
)

// gate holds the first visit of a point.
type gate struct {
	point   points.Point
	arrived chan struct{}
	release chan error
	once    sync.Once
}

func newGate(p points.Point) *gate {
	return &gate{point: p, arrived: make(chan struct{}), release: make(chan error, 1)}
}

// At implements points.Gate.
func (g *gate) At(ctx context.Context, p points.Point, _ uint64) error {
	hold := false
	if p == g.point {
		g.once.Do(func() { hold = true; close(g.arrived) })
	}
	if !hold {
		return nil
	}
	select {
	case err := <-g.release:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func open(t *testing.T) targets.Instance {
	t.Helper()
	i, err := memory.Base().Open(t.Context(), targets.Site{Trial: "t", Views: storetest.Views()})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func connect(t *testing.T, i targets.Instance, g points.Gate) targets.Session {
	t.Helper()
	s, err := i.Connect(t.Context(), "writer", targets.Env{Gate: g, Name: "w"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func write(stream string, version uint64, n byte) eventstore.Append {
	return eventstore.Append{
		Stream: stream, Expected: eventstore.Exact(version), Request: "r" + string(rune('a'+n)),
		Events: []eventstore.NewEvent{{ID: eventstore.EventID{15: n}, Type: "Added", Data: []byte(`{"amount":1}`)}},
	}
}

type outcome struct {
	got eventstore.Appended
	err error
}

func start(ctx context.Context, s targets.Session, a eventstore.Append) chan outcome {
	done := make(chan outcome, 1)
	go func() {
		got, err := s.Store().Append(ctx, a)
		done <- outcome{got, err}
	}()
	return done
}

func stored(t *testing.T, i targets.Instance) int {
	t.Helper()
	n := 0
	if err := i.Auditor().Log(t.Context(), func(history.LoggedEvent) error { n++; return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestACrashRollsBackBeforeTheCommitAndIsUnknownAfterIt(t *testing.T) {
	for _, c := range []struct {
		point   points.Point
		outcome eventstore.Outcome
		landed  int
	}{
		{points.AppendBegin, eventstore.Fail, 0},
		{points.AppendBeforeHead, eventstore.Fail, 0},
		{points.AppendAfterHead, eventstore.Fail, 0},
		{points.AppendAfterInsert, eventstore.Fail, 0},
		{points.AppendAfterCommit, eventstore.Unknown, 1},
	} {
		t.Run(string(c.point), func(t *testing.T) {
			i := open(t)
			g := newGate(c.point)
			s := connect(t, i, g)
			done := start(t.Context(), s, write("s", 0, 1))
			<-g.arrived
			g.release <- points.ErrCrashed
			o := <-done
			if got, _ := eventstore.Classify(o.err); got != c.outcome || !errors.Is(o.err, points.ErrCrashed) {
				t.Fatalf("the crashed append ended %v", o.err)
			}
			if n := stored(t, i); n != c.landed {
				t.Fatalf("%d events are in the log, want %d", n, c.landed)
			}
			_, err := s.Store().Append(t.Context(), write("s", uint64(c.landed), 2))
			if got, reason := eventstore.Classify(err); got != eventstore.Fail || reason != eventstore.NotSent {
				t.Fatalf("a crashed session went on: %v", err)
			}
			// What the crashed transaction held is free again.
			if _, err := connect(t, i, points.Open{}).Store().Append(t.Context(), write("s", uint64(c.landed), 3)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestAnAppendHeldAtItsCommitLetsOthersPassAndMakesItsSlotWait(t *testing.T) {
	i := open(t)
	g := newGate(points.AppendAfterInsert)
	held := start(t.Context(), connect(t, i, g), write("s", 0, 1))
	<-g.arrived
	free := connect(t, i, points.Open{})
	other, err := free.Store().Append(t.Context(), write("t", 0, 2))
	if err != nil {
		t.Fatalf("another stream waited: %v", err)
	}
	page, err := free.Feed().Poll(t.Context(), eventstore.Cursor{}, 10)
	if err != nil || len(page.Events) != 0 || !strings.Contains(page.Held, "w/1") {
		t.Fatalf("the feed passed an event in flight: %+v, %v", page, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	_, err = free.Store().Append(ctx, write("s", 0, 3))
	if got, reason := eventstore.Classify(err); got != eventstore.Fail || reason != eventstore.TimedOut {
		t.Fatalf("an append on the held slot ended %v, want to wait", err)
	}
	waiting := start(t.Context(), free, write("s", 0, 4))
	g.release <- nil
	if o := <-held; o.err != nil || o.got.Positions[0].Compare(other.Positions[0]) >= 0 {
		t.Fatalf("the held append ended %+v, %v", o.got, o.err)
	}
	if o := <-waiting; o.err == nil {
		t.Fatal("two appends took one slot")
	} else if _, reason := eventstore.Classify(o.err); reason != eventstore.VersionConflict {
		t.Fatalf("the waiting append ended %v", o.err)
	}
	page, err = free.Feed().Poll(t.Context(), eventstore.Cursor{}, 10)
	if err != nil || len(page.Events) != 2 || page.Held != "" {
		t.Fatalf("after the commit the feed gave %+v, %v", page, err)
	}
}

func TestARollbackLeavesAHoleThatHoldsNobody(t *testing.T) {
	i := open(t)
	g := newGate(points.AppendAfterInsert)
	s := connect(t, i, g)
	done := start(t.Context(), s, write("s", 0, 1))
	<-g.arrived
	g.release <- points.ErrCrashed
	<-done
	free := connect(t, i, points.Open{})
	got, err := free.Store().Append(t.Context(), write("s", 0, 2))
	if err != nil || got.Positions[0].Minor != 2 {
		t.Fatalf("after a burned position: %+v, %v", got, err)
	}
	page, err := free.Feed().Poll(t.Context(), eventstore.Cursor{}, 10)
	if err != nil || len(page.Events) != 1 {
		t.Fatalf("the hole holds the feed: %+v, %v", page, err)
	}
}

func TestNothingTakesEffectAfterTheFence(t *testing.T) {
	i := open(t)
	g := newGate(points.AppendAfterInsert)
	late := start(t.Context(), connect(t, i, g), write("s", 0, 1))
	<-g.arrived
	proof, err := i.Auditor().Fence(t.Context())
	if err != nil || !proof.Fenced {
		t.Fatalf("fence: %+v, %v", proof, err)
	}
	g.release <- nil
	if o := <-late; o.err == nil {
		t.Fatal("an append committed after the fence")
	} else if got, _ := eventstore.Classify(o.err); got != eventstore.Fail {
		t.Fatalf("the late append ended %v", o.err)
	}
	if n := stored(t, i); n != 0 {
		t.Fatalf("%d events are in the log", n)
	}
}

func TestTheStoreCantBeReachedFromAnotherProcess(t *testing.T) {
	if _, err := open(t).Config("writer"); !errors.Is(err, memory.ErrOneProcess) || memory.Base().Attach != nil {
		t.Fatalf("config gave %v", err)
	}
}

func TestAnEventualReadLacksTheNewestEventAndAStrongOneDoesNot(t *testing.T) {
	instance, err := memory.Base().Open(t.Context(), targets.Site{Trial: "t"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := instance.Connect(t.Context(), "writer", targets.Env{Name: "w"})
	if err != nil {
		t.Fatal(err)
	}
	for v := range uint64(3) {
		_, err := s.Store().Append(t.Context(), eventstore.Append{
			Stream: "a", Expected: eventstore.Exact(v), Events: []eventstore.NewEvent{{ID: eventstore.EventID{byte(v + 1)}, Type: "x"}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		read eventstore.ReadRequest
		want int
	}{
		{eventstore.ReadRequest{Stream: "a", From: 1}, 3},
		{eventstore.ReadRequest{Stream: "a", From: 1, Consistency: eventstore.Eventual}, 2},
		{eventstore.ReadRequest{Stream: "a", From: 1, To: 2, Consistency: eventstore.Eventual}, 2},
		{eventstore.ReadRequest{Stream: "a", From: 3, Consistency: eventstore.Eventual}, 0},
		{eventstore.ReadRequest{Stream: "b", From: 1, Consistency: eventstore.Eventual}, 0},
	} {
		slice, err := s.Store().Read(t.Context(), c.read)
		if err != nil || len(slice.Events) != c.want {
			t.Errorf("%+v: %d events, want %d, %v", c.read, len(slice.Events), c.want, err)
		}
	}
}
