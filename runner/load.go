package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/eventproof/eventproof/app"
	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/roles"
	"github.com/eventproof/eventproof/targets"
)

const maxDecisions = 5

// openGate holds nothing.
type openGate = points.Open

// config returns what every role of the trial has in common.
func (t *trial) config(kind, name string) roles.Config {
	sc := t.spec.Scenario
	deadline, try := sc.Load.Deadline, sc.Load.Try
	if sc.Scripted() {
		deadline, try = 3*sc.Script.Try, sc.Script.Try
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	process := t.nextProcess
	t.nextProcess++
	return roles.Config{
		Kind: kind, Name: name, Process: process, Incarnation: 1, Target: t.spec.Target.Name(),
		NativeAuction: t.spec.Target.Assembly.NativeAuction(),
		Loop:          choice(t.spec.Target.Assembly),
		Promises:      t.spec.Target.Promises, Workload: sc.Workload.Kind, Seed: t.spec.Seed,
		MaxDecisions: maxDecisions, SnapshotEvery: sc.Workload.SnapshotEvery, Deadline: deadline, Try: try,
	}
}

// choice returns the parts of the command loop that an assembly names.
func choice(a targets.Assembly) app.Choice {
	return app.Choice{Retry: a.Retry, Continue: a.Continue, Conflict: a.Conflict, Snapshot: a.Snapshot}
}

func (t *trial) segment(cfg roles.Config) string {
	return filepath.Join(t.dir, fmt.Sprintf("%04d-%s-%d%s", cfg.Process, cfg.Name, cfg.Incarnation, history.SegmentExt))
}

// load runs the random mode: projectors and writers, phases and faults.
func (t *trial) load(ctx context.Context) error {
	sc := t.spec.Scenario
	for _, v := range t.views {
		for i := range sc.Roles.Projectors {
			cfg := t.config("projector", fmt.Sprintf("projector-%s-%d", v.Name(), i+1))
			cfg.Projector = &roles.ProjectorConfig{View: v.Name(), Poll: sc.Roles.Poll, Batch: sc.Roles.Batch}
			if err := t.startRole(ctx, cfg, sc.Roles.ProjectorProcess); err != nil {
				return err
			}
		}
	}
	length := t.r.length(sc.Load)
	for i := range sc.Roles.Writers {
		cfg := t.config("writer", fmt.Sprintf("writer-%d", i+1))
		cfg.Load = t.loadConfig(i, length)
		if err := t.startRole(ctx, cfg, sc.Roles.WriterProcess); err != nil {
			return err
		}
	}
	t0 := t.clk.Now() + int64(20*time.Millisecond)
	if err := t.begin(t0); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, length+time.Duration(t0-t.clk.Now())+time.Millisecond)
	defer cancel()
	faultsDone := make(chan error, 1)
	go func() {
		if t.engine == nil {
			faultsDone <- t.runLocalFaults(ctx, t0)
			return
		}
		faultsDone <- t.engine.Run(ctx, t.r.scaleFaults(sc), t0)
	}()
	err := t.walkPhases(ctx, t0)
	cancel()
	if ferr := <-faultsDone; ferr != nil && !errors.Is(ferr, context.DeadlineExceeded) && !errors.Is(ferr, context.Canceled) {
		err = errors.Join(err, fmt.Errorf("faults: %w", ferr))
	}
	return err
}

// walkPhases marks the phases as they come, reports progress, and notices roles that fail; it returns when the load's
// time is over.
func (t *trial) walkPhases(ctx context.Context, t0 int64) error {
	phases, next := t.spec.Scenario.Load.Phases, t0
	for {
		for len(phases) > 0 && t.clk.Now() >= next {
			name := phases[0].Name
			if phases[0].Warmup {
				name = "warmup"
			}
			if err := t.phase(name); err != nil {
				return err
			}
			next += int64(t.r.scale(t.spec.Scenario.Load, phases[0].For))
			phases = phases[1:]
		}
		wait := time.Second
		if len(phases) > 0 {
			wait = min(wait, time.Duration(next-t.clk.Now()))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
			t.report()
			if err := t.failedRole(); err != nil {
				return err
			}
		}
	}
}

func (t *trial) sleepUntil(ctx context.Context, stamp int64) error {
	wait := time.Duration(stamp - t.clk.Now())
	if wait <= 0 {
		return ctx.Err()
	}
	return clock.Sleep(ctx, wait)
}

// startRole starts one incarnation and waits until it stands by.
func (t *trial) startRole(ctx context.Context, cfg roles.Config, process bool) error {
	cfg.Segment = t.segment(cfg)
	r := &role{cfg: cfg, process: process && t.engine != nil && t.spec.Target.Attach != nil}
	var err error
	if r.process {
		err = t.startProcess(ctx, r)
	} else {
		gate := points.Gate(openGate{})
		if lent, ok := t.lent[cfg.Name]; ok {
			gate = lent
		}
		err = t.startLocal(ctx, r, gate)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	// A role that did not come up may not have come as far as its segment.
	if _, missing := os.Stat(cfg.Segment); err == nil || missing == nil {
		t.segments = append(t.segments, cfg.Segment)
	}
	if err != nil {
		return err
	}
	if old, ok := t.roles[cfg.Name]; ok {
		t.past = t.past.Add(old.status())
	}
	t.roles[cfg.Name] = r
	return nil
}

func (t *trial) startProcess(ctx context.Context, r *role) error {
	attach, err := t.attachment(r.cfg)
	if err != nil {
		return err
	}
	r.cfg.Attach, r.cfg.Child = attach, true
	if err := t.ways(r.cfg); err != nil {
		return err
	}
	r.cfg.Dial = t.engine.Map(r.cfg.Name)
	if r.child, err = t.r.spawner.startChild(t.r.program.Exe, t.dir, r.cfg); err != nil {
		return err
	}
	if err := r.child.waitReady(ctx); err != nil {
		return errors.Join(err, r.child.kill())
	}
	return nil
}

// startLocal runs a role as a goroutine; its sockets, its record and its context can be taken away like those
// of a process.
func (t *trial) startLocal(ctx context.Context, r *role, gate points.Gate) error {
	open := t.openSession
	if r.cfg.Kind == roles.Owner {
		open = t.openOwner
	}
	run, env, err := open(ctx, r, gate)
	if err != nil {
		return err
	}
	roleCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	l := &localRole{cancel: cancel, done: make(chan struct{}), rec: env.Rec, ready: make(chan struct{}), begin: make(chan int64, 1), stop: make(chan struct{})}
	r.local = l
	go func() {
		defer close(l.done)
		err := run(roleCtx, l)
		closed := env.Rec.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		if !errors.Is(context.Cause(roleCtx), points.ErrCrashed) {
			l.err = errors.Join(err, closed)
		}
	}()
	select {
	case <-l.ready:
		return nil
	case <-l.done:
		return fmt.Errorf("role %s ended before it stood by: %w", r.cfg.Name, r.failure())
	}
}

// openSession opens what a writer or projector in the runner's process works with, and returns its run.
func (t *trial) openSession(ctx context.Context, r *role, gate points.Gate) (func(context.Context, *localRole) error, roles.Env, error) {
	session, env, err := t.connect(ctx, r.cfg, gate)
	if err != nil {
		return nil, env, err
	}
	return func(ctx context.Context, l *localRole) error {
		err := roles.Run(ctx, r.cfg, t.r.program.Parts, env, session, l.begin, l.stop, l.report)
		return errors.Join(err, session.Close())
	}, env, nil
}

// connect opens what a role in the runner's process works with: its segment, its way to the store, and its session,
// behind the in-process faults where the store has no wire. The caller closes session and segment.
func (t *trial) connect(ctx context.Context, cfg roles.Config, gate points.Gate) (targets.Session, roles.Env, error) {
	rec, err := history.Create(cfg.Segment)
	if err != nil {
		return nil, roles.Env{}, err
	}
	dial, err := t.dial(cfg)
	if err != nil {
		return nil, roles.Env{}, errors.Join(err, rec.Close())
	}
	session, err := t.inst.Connect(ctx, cfg.Kind, targets.Env{Gate: gate, Dial: dial, Name: roles.SessionName(cfg), Views: t.views})
	if err != nil {
		return nil, roles.Env{}, errors.Join(&EnvironmentError{fmt.Errorf("role %s: %w", cfg.Name, err)}, rec.Close())
	}
	if t.local != nil {
		session = lossySession{Session: session, faults: t.local, role: cfg.Name}
	}
	return session, roles.Env{Gate: gate, Dial: dial, Clock: t.clk, Rand: roles.Seeded(cfg), Rec: rec}, nil
}

// begin starts the load in every role.
func (t *trial) begin(t0 int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.start0 = t0
	for _, r := range t.roles {
		if err := r.begin(t0); err != nil {
			return err
		}
	}
	return nil
}

func (r *role) begin(t0 int64) error {
	if r.process {
		return r.child.conn.Send(roles.Message{Kind: roles.MsgStart, T0: t0})
	}
	r.local.begin <- t0
	return nil
}

// stopRoles ends the roles of one kind in good order: writers finish what is open within the command deadline.
func (t *trial) stopRoles(ctx context.Context, kind string) error {
	t.mu.Lock()
	var rs []*role
	for _, r := range t.roles {
		if r.cfg.Kind == kind && !r.ended {
			rs = append(rs, r)
		}
	}
	t.mu.Unlock()
	var errs []error
	for _, r := range rs {
		if r.process {
			// A child that is gone already shows below.
			_ = r.child.conn.Send(roles.Message{Kind: roles.MsgStop})
		} else {
			r.local.endGracefully()
		}
	}
	bound := time.NewTimer(3*t.spec.Scenario.Load.Deadline + stopGrace)
	defer bound.Stop()
	for _, r := range rs {
		done := r.doneChan()
		select {
		case <-done:
			if err := r.failure(); err != nil {
				errs = append(errs, fmt.Errorf("role %s: %w", r.cfg.Name, err))
			}
			t.end(r)
		case <-bound.C:
			bound.Reset(0)
			errs = append(errs, t.takeAway(r, history.Killed), fmt.Errorf("role %s did not end and was killed", r.cfg.Name))
		case <-ctx.Done():
			errs = append(errs, t.takeAway(r, history.Killed))
		}
	}
	return errors.Join(errs...)
}

const stopGrace = 5 * time.Second

func (r *role) doneChan() <-chan struct{} {
	if r.process {
		return r.child.exited
	}
	return r.local.done
}

func (r *role) failure() error {
	if r.process {
		return r.child.result()
	}
	r.local.mu.Lock()
	defer r.local.mu.Unlock()
	return r.local.err
}

// failedRole reports a role that ended although nobody ended it.
func (t *trial) failedRole() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.roles {
		if r.ended {
			continue
		}
		select {
		case <-r.doneChan():
			return fmt.Errorf("role %s ended by itself: %w", r.cfg.Name, errors.Join(r.failure(), errEarly))
		default:
		}
	}
	return nil
}

var errEarly = errors.New("nobody had ended it")

// takeAway kills a role: SIGKILL for a process; for a goroutine sockets, record and context, in this order.
func (t *trial) takeAway(r *role, how history.ProcessExit) error {
	var err error
	t.end(r) // first: from here on its end is no surprise
	if r.process {
		err = r.child.kill()
	} else {
		r.local.rec.Kill()
		if t.engine != nil {
			t.engine.Crash(r.cfg.Name)
		}
		r.local.cancel(points.ErrCrashed)
		<-r.local.done
		how = history.Crashed
	}
	return errors.Join(err, t.rec.Write(&history.ProcessEnd{ID: r.cfg.Process, T: t.clk.Now(), How: how}))
}

// end notes that a role is meant to be gone.
func (t *trial) end(r *role) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.ended = true
}

// Kill implements faults.Roles.
func (t *trial) Kill(name string) error {
	r, err := t.role(name)
	if err != nil {
		return err
	}
	if err := t.takeAway(r, history.Killed); err != nil {
		return err
	}
	if r.cfg.Kind != "projector" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), observeBound)
	defer cancel()
	return t.observe(ctx, r.cfg.Projector.View, "after "+name+" was killed")
}

const observeBound = 10 * time.Second

// Restart implements faults.Roles: a new process, which first continues what the killed one had begun.
func (t *trial) Restart(ctx context.Context, name string) error {
	old, err := t.role(name)
	if err != nil {
		return err
	}
	cfg := t.config(old.cfg.Kind, name)
	next := old.cfg
	next.Process, next.Incarnation, next.Attach = cfg.Process, old.cfg.Incarnation+1, nil
	if next.Kind == "writer" {
		if next.Open, err = roles.OpenCommands(old.cfg.Segment); err != nil {
			return fmt.Errorf("role %s: what the killed one had begun: %w", name, err)
		}
	}
	if err := t.startRole(ctx, next, old.process); err != nil {
		return err
	}
	r, err := t.role(name)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return r.begin(t.start0)
}

// Pause implements faults.Roles.
func (t *trial) Pause(name string) error { return t.signal(name, syscall.SIGSTOP) }

// Resume implements faults.Roles.
func (t *trial) Resume(name string) error { return t.signal(name, syscall.SIGCONT) }

func (t *trial) signal(name string, sig syscall.Signal) error {
	r, err := t.role(name)
	if err != nil {
		return err
	}
	if !r.process {
		return fmt.Errorf("role %s runs in the runner's process and can't be stopped alone (roles: {%sProcess: true})", name, r.cfg.Kind)
	}
	return r.child.signal(sig)
}

func (t *trial) role(name string) (*role, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r, ok := t.roles[name]; ok {
		return r, nil
	}
	var names []string
	for n := range t.roles {
		names = append(names, n)
	}
	slices.Sort(names)
	return nil, fmt.Errorf("there is no role %q; this trial has %s", name, strings.Join(names, ", "))
}

// statuses adds up what the roles report, with what dead incarnations had done.
func (t *trial) statuses() roles.Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := t.past
	for _, r := range t.roles {
		sum = sum.Add(r.status())
	}
	return sum
}

func (r *role) status() roles.Status {
	if r.process {
		r.child.mu.Lock()
		defer r.child.mu.Unlock()
		return r.child.status
	}
	r.local.mu.Lock()
	defer r.local.mu.Unlock()
	return r.local.status
}
