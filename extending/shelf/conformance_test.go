package shelf_test

import (
	"context"
	"sync"
	"testing"

	"github.com/eventproof/eventproof/eventstore/storetest"
	"github.com/eventproof/eventproof/extending/shelf"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets"
)

// stop is a gate that holds the first visit of one point.
type stop struct {
	at              points.Point
	arrived, passed chan struct{}
	once            sync.Once
}

func (s *stop) At(ctx context.Context, p points.Point, _ uint64) error {
	if p != s.at {
		return nil
	}
	s.once.Do(func() {
		close(s.arrived)
		select {
		case <-s.passed:
		case <-ctx.Done():
		}
	})
	return ctx.Err()
}

func TestTheShelfKeepsTheContract(t *testing.T) {
	target := shelf.Target()
	storetest.Run(t, func(t *testing.T) storetest.Fixture {
		instance, err := target.Open(t.Context(), targets.Site{Trial: "t1", Views: storetest.Views()})
		if err != nil {
			t.Fatal(err)
		}
		connect := func(t *testing.T, gate points.Gate) storetest.Conn {
			session, err := instance.Connect(t.Context(), "writer", targets.Env{Name: "writer-1", Gate: gate})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = session.Close() })
			return storetest.Conn{
				Store: session.Store(), Snapshots: session.Snapshots(), Feed: session.Feed(), Projection: session.Projection,
			}
		}
		return storetest.Fixture{
			Promises: target.Promises,
			Connect:  func(t *testing.T) storetest.Conn { return connect(t, points.Open{}) },
			Hold: func(t *testing.T) (storetest.Conn, <-chan struct{}, func()) {
				gate := &stop{at: points.AppendAfterInsert, arrived: make(chan struct{}), passed: make(chan struct{})}
				return connect(t, gate), gate.arrived, func() { close(gate.passed) }
			},
		}
	})
}
