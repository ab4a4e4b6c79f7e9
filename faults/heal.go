package faults

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/eventproof/eventproof/faults/plan"
	"github.com/eventproof/eventproof/faults/wire"
)

// heal probes the ways that a lifted fault had broken, unless another fault still breaks them.
func (e *Engine) heal(ctx context.Context, id string, ways []*proxy) error {
	var errs []error
	for _, p := range ways {
		if e.broken(p) {
			continue
		}
		err := e.retry(ctx, func(ctx context.Context) error {
			err := probe(ctx, p.Dial, p.probe)
			if err != nil && e.gone(ctx, p) {
				return nil
			}
			return err
		})
		if err != nil && !e.broken(p) { // else another fault began meanwhile
			errs = append(errs, &HealError{Fault: id, Way: p.role, Err: err})
		}
	}
	return errors.Join(errs...)
}

// gone reports whether the server behind a way is an owner that does not serve at the moment, asked past the
// proxy: it was killed or paused, or has ended. The way to it then says nothing about the fault that was lifted, and
// whoever killed the owner waits for its return by other means. The store never counts as gone: every way to it has to
// work again.
func (e *Engine) gone(ctx context.Context, p *proxy) bool {
	if p.Upstream() == e.opts.StoreAddr || e.opts.StoreAddr == "" {
		return false
	}
	// The probe through the proxy may have used its time up.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ownerAnswers)
	defer cancel()
	return probe(ctx, dialTo(p.Upstream()), p.probe) != nil
}

// ownerAnswers is how long an owner may take to answer a direct probe.
const ownerAnswers = time.Second

// ways returns the proxies that a fault concerns.
func (e *Engine) ways(a *active) []*proxy {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch a.fault.Kind {
	case plan.KillStore, plan.PauseStore:
		return slices.Clone(e.proxies)
	case plan.Latency, plan.Reset, plan.BlackHole, plan.Down, plan.DropReply, plan.CutRequest, plan.HoldReply, plan.ParkRequest:
		return slices.Clone(a.proxies)
	case plan.KillRole, plan.PauseRole, plan.Throttle, plan.Conflict:
	}
	return nil
}

// broken reports whether a fault in force concerns the way.
func (e *Engine) broken(p *proxy) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, a := range e.active {
		if a.fault.Kind == plan.KillStore || a.fault.Kind == plan.PauseStore || a.rule != nil && plan.Matches(a.fault.On, p.role) {
			return true
		}
	}
	return false
}

// retry repeats a probe until it passes or the time for healing is over.
func (e *Engine) retry(ctx context.Context, probe func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, e.opts.Heal)
	defer cancel()
	var last error
	for {
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := probe(try)
		cancel()
		if err == nil {
			return nil
		}
		// That time is up says less than what went wrong before. The error has to be asked, not ctx: a dialer keeps the
		// deadline by a timer of its own, which can strike before ctx knows.
		if last == nil || !timedOut(err) {
			last = err
		}
		if !pause(ctx, 20*time.Millisecond) {
			return last
		}
	}
}

func timedOut(err error) bool {
	var n net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &n) && n.Timeout()
}

// probe dials and asks.
func probe(ctx context.Context, dial func(context.Context) (net.Conn, error), ask wire.Probe) error {
	c, err := dial(ctx)
	if err != nil {
		return err
	}
	if ask != nil {
		err = ask(ctx, c)
	}
	_ = c.Close() // it may be closed already; what counts was read
	if err != nil && ctx.Err() != nil {
		return errors.Join(ctx.Err(), err) // whatever the socket said, time was up
	}
	return err
}

func dialTo(addr string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", addr)
	}
}

func (e *Engine) probeStore(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return probe(ctx, dialTo(e.opts.StoreAddr), e.opts.Probe)
}
