package roles

import (
	"context"
	"fmt"
	"time"

	"github.com/eventproof/eventproof/app"
	"github.com/eventproof/eventproof/targets"
)

// statusEvery is how often a role reports.
const statusEvery = 250 * time.Millisecond

// Run runs a role to its end: it waits for the stamp at which the load begins, and ends in good order when stop is
// closed or its work is done. The first report says that it stands by. ctx ending is not good order: the role is torn down where it stands.
func Run(ctx context.Context, cfg Config, parts *app.Parts, env Env, session targets.Session, begin <-chan int64, stop <-chan struct{}, report func(Status)) error {
	var t0 int64
	var wait func(context.Context) error
	var status func() Status
	told := make(chan struct{}) // closed when the role is told to end
	switch cfg.Kind {
	case "writer":
		w, err := NewWriter(cfg, parts, env, session)
		if err != nil {
			return err
		}
		status = w.status
		wait = func(graceful context.Context) error {
			if err := w.RunLoad(graceful, ctx, t0); err != nil {
				return err
			}
			// The load is over, the role lives on until it is told: a role that ends by itself is a failure.
			select {
			case <-told:
				return w.Close()
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	case "projector":
		p, err := newProjector(cfg, env, session)
		if err != nil {
			return err
		}
		status = p.status
		wait = func(graceful context.Context) error { return p.run(graceful, ctx) }
	default:
		return fmt.Errorf("roles: there is no role %q", cfg.Kind)
	}
	report(status()) // it stands by, and its Process record is written
	graceful, cancel := context.WithCancel(ctx)
	defer cancel()
	select {
	case t0 = <-begin:
	case <-stop:
		stop = nil
		close(told)
		cancel()
	case <-ctx.Done():
		return ctx.Err()
	}
	ticker := time.NewTicker(statusEvery)
	defer ticker.Stop()
	done := make(chan error, 1)
	go func() { done <- wait(graceful) }()
	for {
		select {
		case err := <-done:
			report(status())
			return err
		case <-stop:
			stop = nil
			close(told)
			// After its time a load's backlog is still worked off, for as long as one command may take: arrivals
			// that the store made wait are its doing, and dropping them would hide it. Before, the run was
			// interrupted, and nothing more is started.
			if l := cfg.Load; l != nil && env.Clock.Now() >= t0+int64(l.Length) {
				defer time.AfterFunc(cfg.Deadline, cancel).Stop()
				continue
			}
			cancel()
		case <-ticker.C:
			report(status())
			if env.Rec.Lost() != nil {
				// What can't be recorded is not to be done.
				if stop != nil {
					stop = nil
					close(told)
				}
				cancel()
			}
		}
	}
}
