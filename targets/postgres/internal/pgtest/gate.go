package pgtest

import (
	"context"
	"sync"

	"github.com/eventproof/eventproof/points"
)

// Gate holds the first visit of one point until it is released.
type Gate struct {
	point    points.Point
	once     sync.Once
	arrived  chan struct{}
	released chan error
}

// Hold returns a gate for a point.
func Hold(p points.Point) *Gate {
	return &Gate{point: p, arrived: make(chan struct{}), released: make(chan error, 1)}
}

// At implements points.Gate.
func (g *Gate) At(ctx context.Context, p points.Point, _ uint64) error {
	var err error
	if p == g.point {
		g.once.Do(func() {
			close(g.arrived)
			select {
			case err = <-g.released:
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		})
	}
	return err
}

// Arrived is closed when somebody stands at the point.
func (g *Gate) Arrived() <-chan struct{} { return g.arrived }

// Release lets whoever is held go on, with an error if it is to die.
func (g *Gate) Release(err error) { g.released <- err }
