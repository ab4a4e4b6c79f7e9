package app

import (
	"context"
	"errors"
	"time"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
)

// ProjectorConfig is what a Projector is made of.
type ProjectorConfig struct {
	// Feed and Projection are those of the recorder.
	Feed       eventstore.Feed
	Projection eventstore.Projection
	Gate       points.Gate
	// Batch is the number of events a page.
	Batch int
	// Pause of an idle projector between two polls, and after an error.
	Pause time.Duration
	// Try bounds one poll or one apply.
	Try time.Duration
	// Report, if not nil, is told after every round, from the projector's goroutine.
	Report func(Progress)
}

// Progress is where a projector stands after a round.
type Progress struct {
	Checkpoint eventstore.Checkpoint
	Applied    uint64 // events applied so far by this projector
	Idle       bool   // the last poll gave nothing new
	Held       string // who holds the reader back, if told
	Err        error  // of the last round
}

// Projector keeps one projection: it polls the feed after its checkpoint and applies what comes. The checkpoint
// is the store's, never the projector's memory: after anything but a plain success it is loaded again.
type Projector struct {
	cfg ProjectorConfig
	now Progress
	n   map[points.Point]uint64
}

// NewProjector returns a projector; Run makes it work.
func NewProjector(cfg ProjectorConfig) *Projector {
	return &Projector{cfg: cfg, n: map[points.Point]uint64{}}
}

// Run claims the projection and works until ctx ends or the role is crashed, and returns that error. Store
// errors never end it.
func (p *Projector) Run(ctx context.Context) error {
	known := false
	for claimed := false; ; {
		var err error
		if !known {
			if p.now.Checkpoint, err = p.checkpoint(ctx, claimed); err == nil {
				known, claimed = true, true
			}
		}
		if known {
			known, err = p.round(ctx)
		}
		switch {
		case crashed(err):
			return points.ErrCrashed
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		p.now.Err = err
		if p.cfg.Report != nil {
			p.cfg.Report(p.now)
		}
		if err != nil && !superseded(err) || p.now.Idle {
			if clock.Sleep(ctx, p.cfg.Pause) != nil {
				return context.Cause(ctx)
			}
		}
	}
}

// checkpoint claims the projection the first time and loads its checkpoint from then on.
func (p *Projector) checkpoint(ctx context.Context, claimed bool) (eventstore.Checkpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Try)
	defer cancel()
	if claimed {
		return p.cfg.Projection.Load(ctx)
	}
	return p.cfg.Projection.Claim(ctx)
}

// round polls one page and applies it. It reports whether the checkpoint in hand is still the store's.
func (p *Projector) round(ctx context.Context) (known bool, err error) {
	p.now.Idle, p.now.Held = false, ""
	if err := p.at(ctx, points.ProjectorBeforePoll); err != nil {
		return true, err
	}
	page, err := p.poll(ctx)
	if err != nil {
		return true, err
	}
	p.now.Held = page.Held
	if err := p.at(ctx, points.ProjectorAfterPoll); err != nil {
		return true, err
	}
	if len(page.Events) == 0 && page.Next.String() == p.now.Checkpoint.Cursor.String() {
		// What an idle projector holds may be old: another owner can have moved the checkpoint meanwhile.
		p.now.Idle = true
		return false, nil
	}
	next, err := p.apply(ctx, eventstore.Batch{Prev: p.now.Checkpoint, Events: page.Events, Next: page.Next})
	if err != nil {
		// Failed or unknown alike: only the store can say where the checkpoint stands now.
		return false, err
	}
	p.now.Checkpoint = next
	p.now.Applied += uint64(len(page.Events))
	return true, nil
}

func (p *Projector) poll(ctx context.Context) (eventstore.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Try)
	defer cancel()
	return p.cfg.Feed.Poll(ctx, p.now.Checkpoint.Cursor, p.cfg.Batch)
}

func (p *Projector) apply(ctx context.Context, b eventstore.Batch) (eventstore.Checkpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Try)
	defer cancel()
	return p.cfg.Projection.Apply(ctx, b)
}

func (p *Projector) at(ctx context.Context, point points.Point) error {
	p.n[point]++
	return p.cfg.Gate.At(ctx, point, p.n[point])
}

func superseded(err error) bool {
	var e *eventstore.Error
	return errors.As(err, &e) && e.Reason == eventstore.Superseded
}
