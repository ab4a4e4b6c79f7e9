// Package script carries out scripted scenarios: it walks the steps and holds, releases and crashes sessions at
// named points, so that one interleaving is forced and not hoped for.
package script

import (
	"context"
	"slices"
	"sync"

	"github.com/eventproof/eventproof/points"
)

// Gate holds one session at the points that the script asks for.
type Gate struct {
	mu      sync.Mutex
	hold    []points.Point
	at      points.Point  // where the session stands; "" = nowhere
	release chan struct{} // closed to let it go on
	arrived chan struct{} // closed when it has come to a held point
	crashed chan struct{} // closed by Crash
	dead    bool
}

// NewGate returns a gate that holds nothing.
func NewGate() *Gate {
	return &Gate{arrived: make(chan struct{}), crashed: make(chan struct{})}
}

// At implements points.Gate.
func (g *Gate) At(ctx context.Context, p points.Point, _ uint64) error {
	g.mu.Lock()
	if g.dead {
		g.mu.Unlock()
		return points.ErrCrashed
	}
	if !slices.Contains(g.hold, p) {
		g.mu.Unlock()
		return nil
	}
	g.at, g.release = p, make(chan struct{})
	release := g.release
	close(g.arrived)
	g.mu.Unlock()
	var err error
	select {
	case <-release:
		return nil // Release has tidied up
	case <-g.crashed:
		err = points.ErrCrashed
	case <-ctx.Done():
		err = ctx.Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.release == release {
		g.leave()
	}
	return err
}

// leave forgets where the session stood; the caller holds mu.
func (g *Gate) leave() {
	g.at, g.release = "", nil
	g.arrived = make(chan struct{})
}

// Hold replaces the points at which the session stops.
func (g *Gate) Hold(ps []points.Point) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hold = ps
}

// Release lets the session go on; it reports false when the session stands nowhere.
func (g *Gate) Release() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.release == nil {
		return false
	}
	close(g.release)
	g.leave()
	return true
}

// Arrived returns a channel that is closed when the session stands at a held point.
func (g *Gate) Arrived() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.arrived
}

// Standing returns the point where the session stands, or "".
func (g *Gate) Standing() points.Point {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.at
}

// Crash makes the session end at the point where it stands, and at every point it still comes to. The caller has
// reset the session's sockets before.
func (g *Gate) Crash() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.dead {
		g.dead = true
		close(g.crashed)
	}
}
