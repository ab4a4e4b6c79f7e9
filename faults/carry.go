package faults

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/faults/plan"
	"github.com/eventproof/eventproof/faults/wire"
	"github.com/eventproof/eventproof/history"
)

// hungAfter is how long a probe of a paused store must stay unanswered to count as hung.
const hungAfter = 250 * time.Millisecond

// Start puts a fault in force now; At and For are for Run. It writes the Fault record first.
func (e *Engine) Start(ctx context.Context, f plan.Fault) error {
	if err := f.Validate(); err != nil {
		return err
	}
	a, err := e.admit(f)
	if err != nil {
		return err
	}
	defer close(a.started)
	t := e.opts.Clock.Now()
	r := &history.Fault{ID: f.ID, FaultKind: string(f.Kind), On: f.On, T: t, Text: parameters(f)}
	if f.For > 0 {
		r.Until = t + int64(f.For)
	}
	if err := e.log(r); err != nil {
		e.drop(a)
		return fmt.Errorf("faults: writing the history: %w", err)
	}
	if err := e.begin(ctx, a); err != nil {
		a.note("could not be started: %v", shortened(err))
		if a.beginLift() {
			undone := e.undo(ctx, a)
			e.finish(a, e.opts.Clock.Now(), nil)
			err = errors.Join(err, undone)
		}
		return fmt.Errorf("fault %s: %w", f.ID, err)
	}
	return nil
}

// undo takes back what a fault that could not begin had done already.
func (e *Engine) undo(ctx context.Context, a *active) error {
	switch {
	case a.fault.On == "store", a.rule == nil && !processFault(a.fault.Kind):
		return nil
	}
	return e.end(ctx, a)
}

// admit registers a fault after checking that what it works on exists.
func (e *Engine) admit(f plan.Fault) (*active, error) {
	a := newActive(e, f)
	a.names = e.roles(f.On)
	var missing string
	switch f.Kind {
	case plan.KillStore, plan.PauseStore:
		if e.opts.Store == nil {
			missing = "this store can't be killed or paused"
		}
	case plan.Throttle, plan.Conflict:
		if e.opts.Injector == nil {
			missing = "this store can't be told to refuse requests"
		}
	case plan.KillRole, plan.PauseRole:
		if e.opts.Roles == nil {
			missing = "roles can't be killed or paused here"
			break
		}
		fallthrough
	case plan.Latency, plan.Reset, plan.BlackHole, plan.Down, plan.DropReply, plan.CutRequest, plan.HoldReply, plan.ParkRequest:
		if len(a.names) == 0 {
			missing = "no role of that name has a proxy"
		}
	}
	if missing != "" {
		return nil, &NoTargetError{Fault: f.ID, On: f.On, Why: missing}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, ErrClosed
	}
	if _, taken := e.active[f.ID]; taken {
		return nil, fmt.Errorf("fault %s is already active", f.ID)
	}
	e.active[f.ID] = a
	e.order = append(e.order, f.ID)
	return a, nil
}

// drop forgets a fault.
func (e *Engine) drop(a *active) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.active, a.fault.ID)
	e.order = slices.DeleteFunc(e.order, func(id string) bool { return id == a.fault.ID })
}

func (e *Engine) begin(ctx context.Context, a *active) error {
	switch a.fault.Kind {
	case plan.Latency, plan.Reset, plan.BlackHole, plan.Down, plan.DropReply, plan.CutRequest, plan.HoldReply, plan.ParkRequest:
		return e.beginRule(a)
	case plan.KillStore:
		return e.killStore(ctx, a)
	case plan.PauseStore:
		return e.pauseStore(ctx, a)
	case plan.KillRole:
		return e.killRoles(ctx, a)
	case plan.PauseRole:
		return e.pauseRoles(ctx, a)
	case plan.Throttle, plan.Conflict:
		var err error
		a.stop, err = e.opts.Injector.Inject(ctx, string(a.fault.Kind), a.fault.Every, a.fault.Max)
		return err
	}
	return fmt.Errorf("kind %q is not known", a.fault.Kind)
}

func (e *Engine) beginRule(a *active) error {
	spec, err := e.spec(a)
	if err != nil {
		return err
	}
	rule, err := wire.NewRule(spec)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	var concerned []*proxy
	followed := false // on at least one of them
	for _, p := range e.proxies {
		if plan.Matches(a.fault.On, p.role) {
			concerned = append(concerned, p)
			followed = followed || p.speaks != nil
		}
	}
	if looksForCommits(spec) && !followed {
		return fmt.Errorf("%s needs a protocol that commits can be found in", a.fault.Kind)
	}
	a.rule, a.proxies = rule, concerned
	for _, p := range concerned {
		err = errors.Join(err, p.Apply(rule))
	}
	return err
}

func looksForCommits(s wire.RuleSpec) bool {
	switch s.Action {
	case wire.DropReply, wire.CutRequest, wire.ParkRequest:
		return true
	case wire.HoldReply:
		return !s.All
	case wire.Delay, wire.Swallow, wire.Refuse, wire.Reset:
	}
	return false
}

// spec translates a fault of the plan.
func (e *Engine) spec(a *active) (wire.RuleSpec, error) {
	f := a.fault
	s := wire.RuleSpec{Every: f.Every, Max: f.Max, Delay: f.Delay, Jitter: f.Jitter, Observer: a}
	switch f.Direction {
	case "up":
		s.Directions = wire.Up
	case "down":
		s.Directions = wire.Down
	default:
		s.Directions = wire.Both
	}
	switch f.Kind {
	case plan.Latency:
		s.Action = wire.Delay
		if f.Jitter > 0 {
			h := fnv.New64a()
			_, _ = h.Write([]byte(f.ID)) // a hash never fails
			s.Rand = rand.New(rand.NewPCG(e.opts.Seed, h.Sum64()))
		}
	case plan.Reset:
		s.Action = wire.Reset
	case plan.BlackHole:
		s.Action = wire.Swallow
	case plan.Down:
		s.Action = wire.Refuse
	case plan.DropReply:
		s.Action = wire.DropReply
	case plan.CutRequest:
		s.Action = wire.CutRequest
	case plan.HoldReply:
		s.Action, s.All = wire.HoldReply, f.Every == 0 && f.Max == 0
	case plan.ParkRequest:
		s.Action = wire.ParkRequest
	case plan.KillStore, plan.PauseStore, plan.KillRole, plan.PauseRole, plan.Throttle, plan.Conflict:
		return s, fmt.Errorf("%s is not a fault of connections", f.Kind)
	}
	return s, nil
}

func (e *Engine) killStore(ctx context.Context, a *active) error {
	if err := e.opts.Store.Kill(ctx); err != nil {
		return err
	}
	err := e.probeStore(ctx, time.Second)
	if err == nil {
		a.note("the store still answered after it was killed")
		return nil
	}
	a.Touched()
	a.Bite(history.Bite{T: e.opts.Clock.Now(), Form: history.BiteKilled, Text: "store: " + shortened(err)})
	return ctx.Err()
}

func (e *Engine) pauseStore(ctx context.Context, a *active) error {
	if err := e.opts.Store.Pause(); err != nil {
		return err
	}
	err := e.probeStore(ctx, hungAfter)
	var timeout net.Error
	switch {
	case err == nil:
		a.note("the store still answered while it was paused")
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		a.Touched()
		a.Bite(history.Bite{T: e.opts.Clock.Now(), Form: history.BitePaused, Text: fmt.Sprintf("store: no answer within %v", hungAfter)})
	default:
		a.note("the paused store did not hang: %v", err)
	}
	return ctx.Err()
}

func (e *Engine) killRoles(ctx context.Context, a *active) error {
	for i, name := range a.names {
		open := e.Traffic(name).Open
		if err := e.opts.Roles.Kill(name); err != nil {
			a.names = a.names[:i] // only these have to come back
			return fmt.Errorf("%s: %w", name, err)
		}
		left, err := e.awaitClosed(ctx, name, open)
		if err != nil {
			return err
		}
		if left > 0 {
			a.note("%s still had %d of %d connections open after it was killed", name, left, open)
			continue
		}
		a.Touched()
		a.Bite(history.Bite{T: e.opts.Clock.Now(), Form: history.BiteKilled, Text: fmt.Sprintf("%s: its %d connections have ended", name, open)})
	}
	return nil
}

// awaitClosed waits until the connections that a killed role had are gone on its side, and returns how many are
// not. Parked commits keep theirs open towards the server and are not waited for.
func (e *Engine) awaitClosed(ctx context.Context, role string, open int) (left int, err error) {
	if open == 0 {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for {
		left = e.Traffic(role).Open
		if left == 0 {
			return 0, nil
		}
		if !pause(ctx, 2*time.Millisecond) {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return left, nil
			}
			return left, ctx.Err()
		}
	}
}

func (e *Engine) pauseRoles(ctx context.Context, a *active) error {
	for _, name := range a.names {
		if err := e.opts.Roles.Pause(name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		a.paused = append(a.paused, pausedRole{name: name, since: e.opts.Clock.Now()})
	}
	pause(ctx, settleAfterPause)
	for i := range a.paused {
		a.paused[i].before = e.Traffic(a.paused[i].name)
	}
	return ctx.Err()
}

// pausedRole is what was measured of a role when it was paused.
type pausedRole struct {
	name   string
	since  int64
	before wire.Traffic
}

// settleAfterPause is how long bytes that a role sent before it was paused may still be on their way.
const settleAfterPause = 20 * time.Millisecond

// Await waits until the fault has acted on n things (messages, runs of bytes, connections, processes).
func (e *Engine) Await(ctx context.Context, id string, n uint64) error {
	a := e.find(id)
	if a == nil {
		return fmt.Errorf("fault %s: %w", id, ErrNotActive)
	}
	return a.await(ctx, n)
}

func (e *Engine) find(id string) *active {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.active[id]
}

// Lift ends a fault: what it held goes on, what it killed or paused comes back, and the ways it had broken are
// probed until they work. It writes the FaultEnd record whatever happens. A *HealError says that a way does not
// work again. ErrNotActive: the fault is not in force. Two lifts of one fault end together.
func (e *Engine) Lift(ctx context.Context, id string) error {
	a := e.find(id)
	if a == nil {
		return fmt.Errorf("fault %s: %w", id, ErrNotActive)
	}
	select {
	case <-a.started:
	case <-ctx.Done():
		return ctx.Err()
	}
	if !a.beginLift() {
		select {
		case <-a.ended:
			return a.err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	t := e.opts.Clock.Now()
	err := e.end(ctx, a)
	e.finish(a, t, func() error { return errors.Join(err, e.heal(ctx, id, e.ways(a))) })
	return errors.Join(a.err, e.failedLog())
}

// finish writes the FaultEnd record and forgets the fault; then it runs heal, whose error is that of the lift.
func (e *Engine) finish(a *active, t int64, heal func() error) {
	text, count := a.effect()
	_ = e.log(&history.FaultEnd{ID: a.fault.ID, T: t, Bit: count > 0, Effect: text, Count: count}) // kept for Lift
	e.drop(a)
	if heal != nil {
		a.err = heal()
	}
	close(a.ended)
}

// end undoes what begin did.
func (e *Engine) end(ctx context.Context, a *active) error {
	switch a.fault.Kind {
	case plan.Latency, plan.Reset, plan.BlackHole, plan.Down, plan.DropReply, plan.CutRequest, plan.HoldReply, plan.ParkRequest:
		return e.endRule(ctx, a)
	case plan.KillStore:
		return e.bringBack(ctx, a, "store", e.opts.Store.Restart)
	case plan.PauseStore:
		return e.bringBack(ctx, a, "store", func(context.Context) error { return e.opts.Store.Resume() })
	case plan.KillRole:
		var errs []error
		for _, name := range a.names {
			errs = append(errs, e.bringBack(ctx, a, name, func(ctx context.Context) error { return e.opts.Roles.Restart(ctx, name) }))
		}
		return errors.Join(errs...)
	case plan.PauseRole:
		return e.resumeRoles(ctx, a)
	case plan.Throttle, plan.Conflict:
		return a.endInjection(ctx)
	}
	return nil
}

// endInjection tells the server to stop and asks how often it has refused.
func (a *active) endInjection(ctx context.Context) error {
	n, err := a.stop(ctx)
	if err != nil {
		a.note("the server could not be asked how often it refused: %v", shortened(err))
		return fmt.Errorf("fault %s: %w", a.fault.ID, err)
	}
	a.hits(n)
	if n > 0 {
		a.note("the server refused %d by itself (%s)", n, a.fault.Kind)
	}
	return nil
}

func (e *Engine) endRule(ctx context.Context, a *active) error {
	e.mu.Lock()
	a.rule.Lift() // before the proxies are looked at: a new one must not get it any more
	ps := a.proxies
	e.mu.Unlock()
	var errs []error
	var unread uint64
	for _, p := range ps {
		errs = append(errs, p.Withdraw(a.rule))
		unread += p.Traffic().Unreadable
	}
	if unread > 0 {
		a.note("%d connections so far could not be followed (TLS, or another protocol)", unread)
	}
	ctx, cancel := context.WithTimeout(ctx, e.opts.Settle)
	defer cancel()
	if err := a.rule.Settle(ctx); err != nil {
		a.note("what could not be delivered within %v was cut", e.opts.Settle)
	}
	return errors.Join(errs...)
}

// bringBack undoes a kill or a pause. The store is back when it answers a probe.
func (e *Engine) bringBack(ctx context.Context, a *active, name string, how func(context.Context) error) error {
	if err := how(ctx); err != nil {
		return fmt.Errorf("fault %s: %s does not come back: %w", a.fault.ID, name, err)
	}
	if name == "store" {
		if err := e.retry(ctx, func(ctx context.Context) error { return e.probeStore(ctx, time.Second) }); err != nil {
			return &HealError{Fault: a.fault.ID, Way: name, Err: err}
		}
	}
	a.Bite(history.Bite{T: e.opts.Clock.Now(), Form: history.BiteRestarted, Text: name + " is back"})
	return nil
}

func (e *Engine) resumeRoles(ctx context.Context, a *active) error {
	var errs []error
	for _, p := range a.paused {
		now := e.Traffic(p.name)
		lasted := time.Duration(e.opts.Clock.Now() - p.since)
		switch sent := now.UpBytes - p.before.UpBytes; {
		case p.before.Open == 0:
			a.note("%s had no connection when it was paused", p.name)
		case sent > 0:
			a.note("%s sent %d bytes while it was paused", p.name, sent)
		default:
			a.Touched()
			a.Bite(history.Bite{T: p.since, Form: history.BitePaused, Text: fmt.Sprintf("%s sent nothing for %v", p.name, rounded(lasted))})
		}
		errs = append(errs, e.bringBack(ctx, a, p.name, func(context.Context) error { return e.opts.Roles.Resume(p.name) }))
	}
	return errors.Join(errs...)
}

// LiftAll ends every fault in force, the last first, and waits for those that are being lifted. Afterwards
// every way is probed, whether a fault was on it or not.
func (e *Engine) LiftAll(ctx context.Context) error {
	e.mu.Lock()
	ids := slices.Clone(e.order)
	e.mu.Unlock()
	slices.Reverse(ids)
	var errs []error
	for _, id := range ids {
		if err := e.Lift(ctx, id); err != nil && !errors.Is(err, ErrNotActive) {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		e.mu.Lock()
		all := slices.Clone(e.proxies)
		e.mu.Unlock()
		errs = append(errs, e.heal(ctx, "all", all))
	}
	return errors.Join(append(errs, e.failedLog())...)
}

// pause sleeps; false means that ctx ended.
func pause(ctx context.Context, d time.Duration) bool { return clock.Sleep(ctx, d) == nil }

// shortened is an error's text, cut to what a report can show.
func shortened(err error) string {
	if s := err.Error(); len(s) > 120 {
		return s[:120]
	}
	return err.Error()
}

// parameters describes a fault's parameters for people.
func parameters(f plan.Fault) string {
	var parts []string
	if f.Delay > 0 {
		s := "delay " + f.Delay.String()
		if f.Jitter > 0 {
			s += " ± " + f.Jitter.String()
		}
		parts = append(parts, s)
	}
	if f.Direction != "" {
		parts = append(parts, "direction "+f.Direction)
	}
	if f.Every > 0 {
		parts = append(parts, fmt.Sprintf("every %d", f.Every))
	}
	if f.Max > 0 {
		parts = append(parts, fmt.Sprintf("at most %d", f.Max))
	}
	return strings.Join(parts, ", ")
}
