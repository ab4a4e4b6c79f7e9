package faults

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/eventproof/eventproof/faults/plan"
	"github.com/eventproof/eventproof/faults/wire"
	"github.com/eventproof/eventproof/history"
)

// active is a fault in force, and what is known of its effect.
type active struct {
	engine *Engine
	fault  plan.Fault

	rule    *wire.Rule // connection faults
	proxies []*proxy   // they are applied to; guarded by the engine's lock
	names   []string   // role faults: the roles concerned
	paused  []pausedRole
	stop    func(context.Context) (hits uint64, err error) // of a fault in the server itself

	started chan struct{} // closed when Start is through
	ended   chan struct{} // closed when the lift is through
	err     error         // of the lift, once ended

	mu      sync.Mutex
	lifting bool
	tally   tally
	changed chan struct{} // closed and replaced whenever the count grows
}

// tally sums the effect of a fault up.
type tally struct {
	count  uint64 // things touched
	logged int    // Bite records written
	forms  map[history.BiteForm]uint64
	landed [3]uint64
	total  time.Duration // of holds and delays that ended
	least  time.Duration
	most   time.Duration
	timed  uint64
	notes  []string // what else was measured
}

func newActive(e *Engine, f plan.Fault) *active {
	return &active{
		engine: e, fault: f, started: make(chan struct{}), ended: make(chan struct{}),
		changed: make(chan struct{}), tally: tally{forms: map[history.BiteForm]uint64{}},
	}
}

var _ wire.Observer = (*active)(nil)

// Touched implements wire.Observer.
func (a *active) Touched() { a.hits(1) }

// hits counts n things touched at once.
func (a *active) hits(n uint64) {
	if n == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tally.count += n
	close(a.changed)
	a.changed = make(chan struct{})
}

// Bite implements wire.Observer.
func (a *active) Bite(b history.Bite) {
	b.Fault = a.fault.ID
	a.mu.Lock()
	t := &a.tally
	t.forms[b.Form]++
	t.landed[b.Landed]++
	if b.Since > 0 && b.T > b.Since {
		d := time.Duration(b.T - b.Since)
		if t.timed == 0 || d < t.least {
			t.least = d
		}
		t.most = max(t.most, d)
		t.total += d
		t.timed++
	}
	write := t.logged < a.engine.opts.MaxBites
	if write {
		t.logged++
	}
	a.mu.Unlock()
	if write {
		_ = a.engine.log(&b) // kept, and reported by Lift
	}
}

func (a *active) note(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tally.notes = append(a.tally.notes, fmt.Sprintf(format, args...))
}

// await waits until n things were touched.
func (a *active) await(ctx context.Context, n uint64) error {
	for {
		a.mu.Lock()
		count, changed := a.tally.count, a.changed
		a.mu.Unlock()
		if count >= n {
			return nil
		}
		select {
		case <-changed:
		case <-a.ended:
			return fmt.Errorf("fault %s was lifted after %d of %d effects: %w", a.fault.ID, count, n, ErrNotActive)
		case <-ctx.Done():
			return fmt.Errorf("fault %s: %d of %d effects seen: %w", a.fault.ID, count, n, context.Cause(ctx))
		}
	}
}

// beginLift reports whether the caller is the one that lifts.
func (a *active) beginLift() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.lifting
	a.lifting = true
	return !was
}

// effect says for people what was observed.
func (a *active) effect() (text string, count uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := &a.tally
	var parts []string
	add := func(form history.BiteForm, thing, done string) {
		switch n := t.forms[form]; n {
		case 0:
		case 1:
			parts = append(parts, "1 "+thing+" "+done)
		default:
			parts = append(parts, fmt.Sprintf("%d %s %s", n, plural(thing), done))
		}
	}
	switch a.fault.Kind {
	case plan.Latency:
		add(history.BiteDelayed, "run of bytes", "delayed")
	case plan.Reset:
		add(history.BiteConnectionCut, "live connection", "reset")
		add(history.BiteRefused, "new connection", "reset")
	case plan.Down:
		add(history.BiteConnectionCut, "live connection", "closed")
		add(history.BiteRefused, "new connection", "refused")
	case plan.BlackHole:
		add(history.BiteRequestCut, "run of request bytes", "swallowed")
		add(history.BiteReplyDropped, "run of reply bytes", "swallowed")
	case plan.DropReply:
		add(history.BiteReplyDropped, "reply", "cut after the commit was forwarded")
	case plan.CutRequest:
		add(history.BiteRequestCut, "commit", "cut before it was forwarded")
	case plan.HoldReply:
		add(history.BiteReplyHeld, "reply", "held")
	case plan.ParkRequest:
		add(history.BiteRequestParked, "commit", "parked")
		add(history.BiteRequestReleased, "commit", "sent on later")
		add(history.BiteRequestCut, "commit", "cut without being sent on")
	case plan.KillStore, plan.KillRole:
		add(history.BiteKilled, "process", "killed")
		add(history.BiteRestarted, "process", "back")
	case plan.PauseStore, plan.PauseRole:
		add(history.BitePaused, "process", "paused")
		add(history.BiteRestarted, "process", "running again")
	case plan.Throttle, plan.Conflict: // counted by the server, noted at the end
	}
	if yes, no := t.landed[history.LandedYes], t.landed[history.LandedNo]; yes+no > 0 {
		parts = append(parts, fmt.Sprintf("%d landed, %d did not", yes, no))
	}
	if t.timed > 0 && t.most > 0 {
		parts = append(parts, fmt.Sprintf("%v to %v, mean %v", rounded(t.least), rounded(t.most),
			rounded(t.total/time.Duration(t.timed))))
	}
	parts = append(parts, t.notes...)
	if len(parts) == 0 {
		parts = []string{"nothing was touched"}
	}
	return strings.Join(parts, "; "), t.count
}

// plural of the things above.
func plural(thing string) string {
	first, rest, of := strings.Cut(thing, " of ")
	switch {
	case of:
		return first + "s of " + rest
	case strings.HasSuffix(thing, "ss"):
		return thing + "es"
	case strings.HasSuffix(thing, "y"):
		return strings.TrimSuffix(thing, "y") + "ies"
	}
	return thing + "s"
}

func rounded(d time.Duration) time.Duration {
	if d > time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}
