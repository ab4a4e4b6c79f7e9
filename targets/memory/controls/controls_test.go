package controls_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/eventproof/eventproof/app"
	appcontrols "github.com/eventproof/eventproof/app/controls"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/memory"
	"github.com/eventproof/eventproof/targets/memory/controls"
)

func TestEachControlDiffersFromTheReferenceInExactlyOnePart(t *testing.T) {
	base := memory.Base().Assembly.Map()
	for _, c := range controls.Targets() {
		differs := 0
		for part, name := range c.Assembly.Map() {
			if base[part] != name {
				differs++
			}
		}
		if differs != 1 || c.Base != "reference" || c.Correct() {
			t.Errorf("%s differs in %d parts", c.Name(), differs)
		}
		if len(c.Control.Must) == 0 || len(c.Control.Scripts) == 0 || c.Control.Bug == "" {
			t.Errorf("%s does not say what must notice", c.Name())
		}
		for _, must := range c.Control.Must {
			if _, both := c.Control.May[must]; both {
				t.Errorf("%s: %s is in both lists", c.Name(), must)
			}
		}
		if _, err := appcontrols.Parts().Resolve(app.Choice{
			Retry: c.Assembly.Retry, Continue: c.Assembly.Continue, Conflict: c.Assembly.Conflict, Snapshot: c.Assembly.Snapshot,
		}); err != nil {
			t.Errorf("%s: %v", c.Name(), err)
		}
	}
}

func find(id string) targets.Target {
	all := controls.Targets()
	return all[slices.IndexFunc(all, func(c targets.Target) bool { return c.Control.ID == id })]
}

func connect(t *testing.T, target targets.Target, g points.Gate) targets.Session {
	t.Helper()
	instance, err := target.Open(t.Context(), targets.Site{Trial: "t"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := instance.Connect(t.Context(), "writer", targets.Env{Gate: g, Name: "w"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func write(version uint64, n byte) eventstore.Append {
	return eventstore.Append{
		Stream: "s", Expected: eventstore.Exact(version), Request: string(rune('a' + n)),
		Events: []eventstore.NewEvent{{ID: eventstore.EventID{15: n}, Type: "Added", Data: []byte("{}")}},
	}
}

func versions(t *testing.T, s targets.Session) []uint64 {
	t.Helper()
	slice, err := s.Store().Read(t.Context(), eventstore.ReadRequest{Stream: "s", From: 1})
	if err != nil {
		t.Fatal(err)
	}
	var out []uint64
	for _, e := range slice.Events {
		out = append(out, e.Version)
	}
	return out
}

func mustAppend(t *testing.T, s targets.Session, a eventstore.Append) {
	t.Helper()
	if _, err := s.Store().Append(t.Context(), a); err != nil {
		t.Fatal(err)
	}
}

func TestTheLossyAppendAcknowledgesAnEventThatIsNotThere(t *testing.T) {
	s := connect(t, find("cv-mem-01"), points.Open{})
	for v := range byte(3) {
		mustAppend(t, s, write(uint64(v), v+1))
	}
	if got := versions(t, s); !slices.Equal(got, []uint64{1, 2}) {
		t.Fatalf("the stream has versions %v after three acknowledgements", got)
	}
	mustAppend(t, s, write(2, 4))
	if got := versions(t, s); !slices.Equal(got, []uint64{1, 2, 3}) {
		t.Fatalf("the stream has versions %v after the slot was taken again", got)
	}
}

// meeting holds every visitor of a point until two are there.
type meeting struct {
	point points.Point
	both  sync.WaitGroup
}

// At implements points.Gate.
func (m *meeting) At(_ context.Context, p points.Point, _ uint64) error {
	if p == m.point {
		m.both.Done()
		m.both.Wait()
	}
	return nil
}

func TestTwoAppendsThatSawOneHeadBothInsertWithoutTheUniqueSlot(t *testing.T) {
	for _, c := range []struct {
		target targets.Target
		want   []uint64
	}{{memory.Base(), []uint64{1}}, {find("cv-mem-02"), []uint64{1, 1}}} {
		m := &meeting{point: points.AppendAfterHead}
		m.both.Add(2)
		s := connect(t, c.target, m)
		var wg sync.WaitGroup
		for n := range byte(2) {
			wg.Go(func() { _, _ = s.Store().Append(t.Context(), write(0, n)) })
		}
		wg.Wait()
		if got := versions(t, s); !slices.Equal(got, c.want) {
			t.Errorf("%s: the stream has versions %v, want %v", c.target.Name(), got, c.want)
		}
	}
}

func TestTheLaggingCopyShowsAnAcknowledgedEventOnlyTheSecondTime(t *testing.T) {
	s := connect(t, find("cv-mem-03"), points.Open{})
	mustAppend(t, s, write(0, 1))
	if got := versions(t, s); !slices.Equal(got, []uint64{1}) {
		t.Fatalf("the read that makes the copy shows %v", got)
	}
	mustAppend(t, s, write(1, 2))
	if got := versions(t, s); !slices.Equal(got, []uint64{1}) {
		t.Fatalf("the first read after the append shows %v", got)
	}
	if got := versions(t, s); !slices.Equal(got, []uint64{1, 2}) {
		t.Fatalf("the second read shows %v", got)
	}
}
