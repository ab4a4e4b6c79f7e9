package roles

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/eventproof/eventproof/app"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/record"
	"github.com/eventproof/eventproof/targets"
)

// projectorRole keeps one projection and records what it does.
type projectorRole struct {
	cfg       Config
	env       Env
	rec       *record.Recorder
	projector *app.Projector
	progress  atomic.Pointer[app.Progress]
}

func newProjector(cfg Config, env Env, session targets.Session) (*projectorRole, error) {
	all := views(cfg)
	i := slices.IndexFunc(all, func(v eventstore.View) bool { return v.Name() == cfg.Projector.View })
	if i < 0 {
		return nil, fmt.Errorf("roles: the workload %s has no view %q", cfg.Workload, cfg.Projector.View)
	}
	inner, err := session.Projection(all[i])
	if err != nil {
		return nil, err
	}
	if err := begin(cfg, env); err != nil {
		return nil, err
	}
	p := &projectorRole{cfg: cfg, env: env, rec: record.New(env.Rec, env.Clock, cfg.Process)}
	var generation atomic.Uint64
	p.projector = app.NewProjector(app.ProjectorConfig{
		Feed:       record.Feed(session.Feed(), p.rec, cfg.Projector.View, &generation),
		Projection: record.Projection(inner, p.rec, cfg.Projector.View, &generation),
		Gate:       env.Gate, Batch: cfg.Projector.Batch, Pause: cfg.Projector.Poll, Try: cfg.Try,
		Report: func(now app.Progress) { p.progress.Store(&now) },
	})
	return p, nil
}

// run works until graceful ends; life ending tears it down. A batch that is being applied when graceful ends is cut
// off like any other operation whose caller gives up: its outcome is for the checkpoint to tell.
func (p *projectorRole) run(graceful, life context.Context) error {
	err := p.projector.Run(graceful)
	if life.Err() != nil {
		return context.Cause(life)
	}
	if !errors.Is(err, context.Canceled) {
		return err
	}
	if err := p.env.Rec.Lost(); err != nil {
		return err
	}
	n := p.rec.Counts()
	return p.env.Rec.Write(&history.ProcessEnd{
		ID: p.cfg.Process, T: p.env.Clock.Now(), How: history.Exited, Calls: n.Calls, Writes: n.Writes, Attempts: n.Attempts, Reads: n.Reads,
	})
}

func (p *projectorRole) status() Status {
	now := p.progress.Load()
	if now == nil {
		return Status{}
	}
	return Status{Applied: int64(now.Applied), Cursor: now.Checkpoint.Cursor.String(), Idle: now.Idle}
}
