package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/faults/inprocess"
	"github.com/eventproof/eventproof/faults/plan"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/roles"
	"github.com/eventproof/eventproof/runner/script"
	"github.com/eventproof/eventproof/scenarios"
	"github.com/eventproof/eventproof/targets"
)

// script plays a scripted scenario.
func (t *trial) script(ctx context.Context) error {
	t.enter("script")
	err := script.Play(ctx, t.spec.Scenario.Script, &stage{t: t}, t.spec.Target.Correct())
	var step *script.Error
	if errors.As(err, &step) {
		// The run is judged all the same; the rule `exercised` reads this and does not let it pass.
		return &NotPlayedError{Scenario: t.spec.Scenario.Name, Err: step}
	}
	return err
}

// NotPlayedError says that a script did not go as written, so that it proves nothing.
type NotPlayedError struct {
	Scenario string
	Err      error
}

// Error implements error.
func (e *NotPlayedError) Error() string {
	return fmt.Sprintf("the script %s could not be played: %v", e.Scenario, e.Err)
}

// Unwrap returns the step that failed.
func (e *NotPlayedError) Unwrap() error { return e.Err }

// stage lets a script play on a trial.
type stage struct{ t *trial }

var _ script.Stage = (*stage)(nil)

// Writer implements script.Stage.
func (s *stage) Writer(ctx context.Context, name string, gate points.Gate) (script.Writer, error) {
	t := s.t
	cfg := s.next("writer", name)
	cfg.Segment = t.segment(cfg)
	session, env, err := t.connect(ctx, cfg, gate)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	t.segments = append(t.segments, cfg.Segment)
	t.mu.Unlock()
	w, err := roles.NewWriter(cfg, t.r.program.Parts, env, session)
	if err != nil {
		return nil, errors.Join(err, session.Close(), env.Rec.Close())
	}
	t.mu.Lock()
	t.roles[name] = &role{cfg: cfg, local: &localRole{rec: env.Rec, cancel: func(error) {}, done: closedChan(), stop: make(chan struct{})}}
	t.mu.Unlock()
	return &scriptWriter{t: t, w: w, ctx: ctx, session: session, rec: env.Rec}, nil
}

// next returns the configuration of the next incarnation of a session.
func (s *stage) next(kind, name string) roles.Config {
	cfg := s.t.config(kind, name)
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	if old, ok := s.t.roles[name]; ok {
		cfg.Incarnation = old.cfg.Incarnation + 1
	}
	return cfg
}

func closedChan() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// scriptWriter is a writer under the hands of a script.
type scriptWriter struct {
	t       *trial
	w       *roles.Writer
	ctx     context.Context //nolint:containedctx // the role's life, handed in by the script
	session targets.Session
	rec     *history.Writer
}

// Do implements script.Writer.
func (w *scriptWriter) Do(_ context.Context, c scenarios.Command, continued bool) string {
	cmd, err := command(c)
	if err != nil {
		return "error: " + err.Error()
	}
	answer := w.w.Do(w.ctx, cmd, 0, w.t.clk.Now(), continued)
	if answer.Result == history.ResultRefused {
		return "refused " + answer.Code
	}
	return answer.Result.String()
}

// Read implements script.Writer.
func (w *scriptWriter) Read(ctx context.Context, stream string) error {
	_, err := w.w.Read(ctx, eventstore.ReadRequest{Stream: stream, From: 1})
	return err
}

// Close implements script.Writer.
func (w *scriptWriter) Close() error {
	return errors.Join(w.w.Close(), w.session.Close(), w.rec.Close())
}

// Projector implements script.Stage.
func (s *stage) Projector(ctx context.Context, name, view string, gate points.Gate) (script.Projector, error) {
	cfg := s.next("projector", name)
	cfg.Projector = &roles.ProjectorConfig{View: view, Poll: 5 * time.Millisecond, Batch: 100}
	cfg.Segment = s.t.segment(cfg)
	s.t.mu.Lock()
	s.t.segments = append(s.t.segments, cfg.Segment)
	s.t.mu.Unlock()
	r := &role{cfg: cfg}
	if err := s.t.startLocal(ctx, r, gate); err != nil {
		return nil, err
	}
	s.t.mu.Lock()
	s.t.roles[name] = r
	s.t.mu.Unlock()
	r.local.begin <- s.t.clk.Now()
	return &scriptProjector{t: s.t, r: r}, nil
}

type scriptProjector struct {
	t *trial
	r *role
}

// Done implements script.Projector.
func (p *scriptProjector) Done() <-chan struct{} { return p.r.local.done }

// Close implements script.Projector.
func (p *scriptProjector) Close() error {
	p.r.local.endGracefully()
	<-p.r.local.done
	p.t.end(p.r)
	return p.r.failure()
}

// Crash implements script.Stage: record and sockets first; the script then lets the code unwind.
func (s *stage) Crash(name string) error {
	r, err := s.t.role(name)
	if err != nil {
		return err
	}
	r.local.rec.Kill()
	if s.t.engine != nil {
		s.t.engine.Crash(name)
	}
	r.local.cancel(points.ErrCrashed)
	s.t.end(r)
	return s.t.rec.Write(&history.ProcessEnd{ID: r.cfg.Process, T: s.t.clk.Now(), How: history.Crashed})
}

// Fault implements script.Stage.
func (s *stage) Fault(ctx context.Context, f plan.Fault) error {
	if s.t.engine == nil {
		return s.t.local.Start(f)
	}
	return s.t.engine.Start(ctx, f)
}

// Lift implements script.Stage.
func (s *stage) Lift(ctx context.Context, id string) error {
	if s.t.engine == nil {
		return s.t.local.Lift(id)
	}
	return s.t.engine.Lift(ctx, id)
}

// Bitten implements script.Stage.
func (s *stage) Bitten(ctx context.Context, id string) error {
	if s.t.engine != nil {
		return s.t.engine.Await(ctx, id, 1)
	}
	select {
	case <-s.t.local.Bitten(id):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the fault %s has not bitten: %w", id, ctx.Err())
	}
}

// Observe implements script.Stage.
func (s *stage) Observe(ctx context.Context, projection, why string) error {
	return s.t.observe(ctx, projection, why)
}

// Drained implements script.Stage.
func (s *stage) Drained(ctx context.Context, view string) (bool, error) {
	return s.t.drained(ctx, view)
}

// lossySession puts the in-process faults between a role and a store without a wire.
type lossySession struct {
	targets.Session
	faults *inprocess.Faults
	role   string
}

// Store implements targets.Session.
func (l lossySession) Store() eventstore.Store { return l.faults.Wrap(l.role, l.Session.Store()) }

// Projection implements targets.Session.
func (l lossySession) Projection(v eventstore.View) (eventstore.Projection, error) {
	p, err := l.Session.Projection(v)
	if err != nil {
		return nil, err
	}
	return l.faults.WrapProjection(l.role, p), nil
}

// runLocalFaults carries out a plan on a store without a wire. Faults of a kind that needs one never bite here, which
// the rule `exercised` sees. When ctx ends, what has not begun never will; what has is lifted, by settle or here.
func (t *trial) runLocalFaults(ctx context.Context, t0 int64) error {
	type change struct {
		at   time.Duration
		lift bool
		f    plan.Fault
	}
	var changes []change
	for _, f := range t.r.scaleFaults(t.spec.Scenario) {
		if f.Kind == plan.KillRole || slices.Contains(inprocess.Kinds(), f.Kind) {
			changes = append(changes, change{at: f.At, f: f}, change{at: f.At + f.For, f: f, lift: true})
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	begun := map[string]bool{}
	for _, c := range changes {
		over := t.sleepUntil(ctx, t0+int64(c.at)) != nil
		if over && (!c.lift || !begun[c.f.ID]) {
			continue
		}
		begun[c.f.ID] = true
		var err error
		switch {
		case c.f.Kind == plan.KillRole && c.lift:
			err = errors.Join(t.Restart(context.WithoutCancel(ctx), c.f.On),
				t.rec.Write(&history.FaultEnd{ID: c.f.ID, T: t.clk.Now(), Bit: true, Count: 1, Effect: "1 role killed and started again"}))
		case c.f.Kind == plan.KillRole:
			err = errors.Join(
				t.rec.Write(&history.Fault{ID: c.f.ID, FaultKind: string(c.f.Kind), On: c.f.On, T: t.clk.Now(), Text: "in process"}),
				t.Kill(c.f.On),
				t.rec.Write(&history.Bite{Fault: c.f.ID, T: t.clk.Now(), Form: history.BiteKilled}))
		case c.lift:
			err = t.local.Lift(c.f.ID)
		default:
			err = t.local.Start(c.f)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
