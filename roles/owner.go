package roles

import (
	"context"
	"errors"
	"fmt"

	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/targets"
)

// Owner is the kind of role through which a store's appends go.
const Owner = "owner"

// Serve is Target.Serve with its configuration and surroundings filled in.
type Serve func(ctx context.Context, ready func()) error

// ServeOf binds an owner's Serve.
func ServeOf(target targets.Target, cfg Config, env targets.Env) (Serve, error) {
	if target.Serve == nil {
		return nil, fmt.Errorf("role %s: the target %s has no owners", cfg.Name, target.Name())
	}
	return func(ctx context.Context, ready func()) error { return target.Serve(ctx, cfg.Attach, env, ready) }, nil
}

// RunOwner runs an owner until stop is closed or ctx ends. The first report says that it accepts requests. What an
// owner does is recorded by the writers that ask it; its own record only says that it was there.
func RunOwner(ctx context.Context, cfg Config, env Env, serve Serve, stop <-chan struct{}, report func(Status)) error {
	if err := begin(cfg, env); err != nil {
		return err
	}
	serving, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-stop:
			cancel()
		case <-serving.Done():
		}
	}()
	err := serve(serving, func() { report(Status{}) })
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil && serving.Err() == nil:
		return fmt.Errorf("role %s: %w", cfg.Name, errStoppedServing)
	case err != nil:
		return fmt.Errorf("role %s: %w", cfg.Name, err)
	}
	return env.Rec.Write(&history.ProcessEnd{ID: cfg.Process, T: env.Clock.Now(), How: history.Exited})
}

var errStoppedServing = errors.New("the owner stopped serving, and nobody had ended it")
