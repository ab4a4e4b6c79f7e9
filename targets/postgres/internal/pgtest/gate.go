package pgtest

import (
	"context"
	"sync"

	"github.com/eventproof/eventproof/eventstore"
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

// Sum is a view with one row a stream: the number of the stream's events, as decimal digits.
type Sum struct{}

// Name implements eventstore.View.
func (Sum) Name() string { return "sum" }

// Key implements eventstore.View.
func (Sum) Key(e eventstore.Event) (string, bool) { return e.Stream, e.Type != "Ignored" }

// Apply implements eventstore.View: it appends a digit, so that order and repeats show.
func (Sum) Apply(row []byte, e eventstore.Event) ([]byte, error) {
	return append(append([]byte{}, row...), e.Data...), nil
}
