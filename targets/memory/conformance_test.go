package memory_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/eventproof/eventproof/eventstore/storetest"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/memory"
)

// yielding lets others run at every point: without it an append is too short to be overtaken.
type yielding struct{}

// At implements points.Gate.
func (yielding) At(ctx context.Context, _ points.Point, _ uint64) error {
	for range 3 {
		runtime.Gosched()
	}
	return ctx.Err()
}

// fixture opens the base target's place for the conformance suite.
func fixture(target targets.Target) func(t *testing.T) storetest.Fixture {
	return func(t *testing.T) storetest.Fixture {
		instance, err := target.Open(t.Context(), targets.Site{Trial: "t", Views: storetest.Views(), Assembly: target.Assembly})
		if err != nil {
			t.Fatal(err)
		}
		connect := func(t *testing.T, g points.Gate) storetest.Conn {
			s, err := instance.Connect(t.Context(), "writer", targets.Env{Gate: g, Name: "w", Views: storetest.Views()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return storetest.Conn{Store: s.Store(), Snapshots: s.Snapshots(), Feed: s.Feed(), Projection: s.Projection}
		}
		return storetest.Fixture{
			Promises: target.Promises,
			Connect:  func(t *testing.T) storetest.Conn { return connect(t, yielding{}) },
			Hold: func(t *testing.T) (storetest.Conn, <-chan struct{}, func()) {
				g := newGate(points.AppendAfterInsert)
				return connect(t, g), g.arrived, func() { g.release <- nil }
			},
		}
	}
}

func TestConformance(t *testing.T) {
	storetest.Run(t, fixture(memory.Base()))
}
