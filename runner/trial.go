package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/eventproof/eventproof/app"
	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/faults"
	"github.com/eventproof/eventproof/faults/inprocess"
	"github.com/eventproof/eventproof/faults/plan"
	"github.com/eventproof/eventproof/faults/wire"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/invariants"
	"github.com/eventproof/eventproof/roles"
	"github.com/eventproof/eventproof/scenarios"
	"github.com/eventproof/eventproof/targets"
)

// Interrupted is the cancellation cause when a signal ended a run.
type Interrupted struct{ Signal syscall.Signal }

// Error implements error.
func (i *Interrupted) Error() string { return "interrupted by " + i.Signal.String() }

// EnvironmentError says that a store could not be had, started or reached: nothing was learned about it.
type EnvironmentError struct{ Err error }

// Error implements error.
func (e *EnvironmentError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *EnvironmentError) Unwrap() error { return e.Err }

// Process ids of a trial that are always the same.
const (
	runnerProcess  = 1
	setupProcess   = 2
	auditorProcess = 3
	firstRole      = 10
)

// Bounds of the phases after the load. They are generous: a bound that is hit becomes a verdict, not an error.
const (
	drainBound = 15 * time.Second
	fenceBound = 30 * time.Second
	auditBound = 2 * time.Minute
)

// trial conducts one scenario on one target with one seed. One goroutine owns it, except where a field says so.
type trial struct {
	r      *Runner
	spec   Spec
	id     string
	dir    string // segments, role configurations, logs
	clk    clock.Clock
	server Server // nil for a target that needs none
	rec    *history.Writer
	inst   targets.Instance
	views  []eventstore.View
	engine *faults.Engine       // nil for a target without a wire
	local  *inprocess.Faults    // nil for a target with a wire
	lent   map[string]*lentGate // of the owners, where a script may hold them

	phaseName string // for the display

	mu          sync.Mutex // guards what follows: fault goroutines kill and restart roles
	roles       map[string]*role
	segments    []string
	nextProcess uint32
	observation uint32
	start       int64
	start0      int64        // stamp at which the load began
	past        roles.Status // what dead incarnations had done
	stills      map[string]still
}

// role is one role of the trial over all its incarnations.
type role struct {
	cfg     roles.Config // of the running incarnation
	process bool
	child   *child     // process
	local   *localRole // in the runner's process
	ended   bool
}

// localRole is a role that runs as a goroutine of the runner.
type localRole struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
	rec    *history.Writer
	ready  chan struct{} // closed with the first report
	begin  chan int64
	stop   chan struct{}
	once   sync.Once

	mu       sync.Mutex
	standsBy bool
	status   roles.Status
	err      error
}

func (l *localRole) endGracefully() { l.once.Do(func() { close(l.stop) }) }

func (l *localRole) report(s roles.Status) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status = s
	if !l.standsBy {
		l.standsBy = true
		close(l.ready)
	}
}

// newTrial checks what can be checked before anything is touched, and prepares the folder and the runner's own segment.
func newTrial(r *Runner, spec Spec, server Server) (*trial, error) {
	if spec.Target.Needs != "" && server == nil {
		return nil, &EnvironmentError{fmt.Errorf("%s needs a server of the kind %q and none was given", spec.Target.Name(), spec.Target.Needs)}
	}
	if _, err := r.program.Parts.Resolve(choice(spec.Target.Assembly)); err != nil {
		return nil, fmt.Errorf("%s: %w", spec.Target.Name(), err)
	}
	if spec.Target.Assembly.NativeAuction() {
		spec.Scenario = withoutFeed(spec.Scenario)
	}
	id := r.trialID(spec)
	t := &trial{
		r: r, spec: spec, id: id, dir: filepath.Join(r.opts.Dir, "history", id), clk: clock.System{}, server: server,
		roles: map[string]*role{}, nextProcess: firstRole,
	}
	if err := os.MkdirAll(t.dir, 0o755); err != nil {
		return nil, fmt.Errorf("trial folder: %w", err)
	}
	if !spec.Target.Assembly.NativeAuction() {
		t.views = app.Views(spec.Scenario.Workload.Kind)
	}
	return t, nil
}

// withoutFeed is what a scenario is on a target without a feed: nothing is projected, and what would befall projectors
// befalls nobody.
func withoutFeed(sc scenarios.Scenario) scenarios.Scenario {
	sc.Roles.Projectors = 0
	sc.Faults = slices.DeleteFunc(slices.Clone(sc.Faults), func(f plan.Fault) bool {
		return f.On == "projector" || strings.HasPrefix(f.On, "projector-")
	})
	return sc
}

// run carries the trial out and leaves its merged history; the path is returned even when something failed on
// the way, if there is anything to judge.
func (t *trial) run(ctx context.Context) (file string, err error) {
	t.start = t.clk.Now()
	path := filepath.Join(t.dir, "0000-runner"+history.SegmentExt)
	defer func() {
		if file == "" {
			// Nothing was recorded.
			err = errors.Join(err, os.RemoveAll(t.dir))
		}
	}()
	if err := t.open(ctx); err != nil {
		return "", err
	}
	defer func() {
		closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fenceBound)
		defer cancel()
		if !t.r.opts.Keep {
			err = errors.Join(err, t.inst.Close(closeCtx))
		}
	}()
	info, err := t.info(ctx)
	if err != nil {
		return "", err
	}
	if t.rec, err = history.Create(path, &history.Trial{Info: info}, &history.Process{
		ID: runnerProcess, Role: "runner", Name: "runner", Incarnation: 1, PID: uint32(os.Getpid()), T: t.start,
	}); err != nil {
		return "", err
	}
	t.segments = append(t.segments, path)
	interrupt := ""
	conducted := t.conduct(ctx)
	var stopped *Interrupted
	if errors.As(context.Cause(ctx), &stopped) {
		interrupt, conducted = stopped.Error(), nil
	}
	if conducted != nil {
		interrupt = conducted.Error()
	}
	// Whatever happened: what was recorded is worth judging, and nothing of the run may go on.
	after := context.WithoutCancel(ctx)
	settled := t.settle(after)
	end := &history.End{T: t.clk.Now(), Interrupt: interrupt}
	err = errors.Join(conducted, settled, t.rec.Write(&history.ProcessEnd{ID: runnerProcess, T: t.clk.Now()}, end), t.rec.Close())
	file = filepath.Join(t.r.opts.Dir, "history", t.id+history.Ext)
	if _, mergeErr := history.Merge(file, t.segments); mergeErr != nil {
		// The segments can be judged as they are, and stay.
		return t.dir, errors.Join(err, fmt.Errorf("%w; the history stays in the segments of %s", mergeErr, t.dir))
	}
	if err == nil && !t.r.opts.Keep {
		err = os.RemoveAll(t.dir)
	}
	return file, err
}

// open gets a fresh place in the store and the proxies.
func (t *trial) open(ctx context.Context) error {
	site := targets.Site{Trial: t.id, Views: t.views, Assembly: t.spec.Target.Assembly}
	if t.server != nil {
		site.AdminURL, site.DataDir = t.server.AdminURL(), t.server.DataDir()
	}
	inst, err := t.spec.Target.Open(ctx, site)
	if err != nil {
		return &EnvironmentError{fmt.Errorf("%s: %w", t.spec.Target.Name(), err)}
	}
	t.inst = inst
	return nil
}

// dial returns the way of a role to the store: through its own proxy, or none where there is no wire.
func (t *trial) dial(cfg roles.Config) (roles.DialFunc, error) {
	if t.engine == nil {
		return roles.Direct, nil
	}
	if err := t.ways(cfg); err != nil {
		return nil, err
	}
	return t.engine.Dialer(cfg.Name), nil
}

// observe reads a projection atomically and records what it found.
func (t *trial) observe(ctx context.Context, projection, why string) error {
	obs, rows, err := t.inst.Auditor().Observe(ctx, projection)
	if err != nil {
		return fmt.Errorf("observe %s: %w", projection, err)
	}
	t.mu.Lock()
	t.observation++
	obs.ID = t.observation
	t.mu.Unlock()
	obs.T, obs.Why, obs.Rows = t.clk.Now(), why, uint32(len(rows))
	recs := []history.Record{&obs}
	for i := range rows {
		rows[i].Observation = obs.ID
		recs = append(recs, &rows[i])
	}
	return t.rec.Write(recs...)
}

// conduct sets up, runs load or script, and returns what went wrong with the harness.
func (t *trial) conduct(ctx context.Context) error {
	if t.spec.Target.Needs == "" {
		t.local = inprocess.New(t.rec.Write, t.clk)
	} else {
		protocol, probe := wire.For(t.spec.Target.Needs)
		t.engine = faults.New(faults.Options{
			Log: t.rec.Write, Clock: t.clk, Seed: t.spec.Seed, Protocol: protocol, Probe: probe,
			Store: t.server, StoreAddr: t.server.Addr(), Roles: t, Injector: injector(t.spec.Target, t.server),
		})
	}
	t.enter("set-up")
	if err := t.startOwners(ctx); err != nil {
		return err
	}
	if err := t.setup(ctx); err != nil {
		return &EnvironmentError{fmt.Errorf("set-up: %w", err)}
	}
	if t.spec.Scenario.Scripted() {
		return t.script(ctx)
	}
	return t.load(ctx)
}

// setup opens the streams through the same command loop, without proxies: set-up events are recorded writes too.
func (t *trial) setup(ctx context.Context) error {
	cfg := t.config("writer", "setup")
	cfg.Process = setupProcess
	cfg.Loop, cfg.SnapshotEvery = app.Choice{}, 0 // the set-up is never what is under test
	seg := t.segment(cfg)
	rec, err := history.Create(seg)
	if err != nil {
		return err
	}
	t.segments = append(t.segments, seg)
	cfg.Segment = seg
	session, err := t.inst.Connect(ctx, "writer", targets.Env{Gate: openGate{}, Dial: roles.Direct, Name: "setup", Views: t.views})
	if err != nil {
		return errors.Join(err, rec.Close())
	}
	w, err := roles.NewWriter(cfg, t.r.program.Parts, roles.Env{Gate: openGate{}, Dial: roles.Direct, Clock: t.clk, Rand: roles.Seeded(cfg), Rec: rec}, session)
	if err != nil {
		return errors.Join(err, session.Close(), rec.Close())
	}
	commands, failed := t.setupCommands()
	for _, c := range commands {
		if answer := w.Do(ctx, c, 0, t.clk.Now(), false); answer.Result != history.ResultOK {
			failed = fmt.Errorf("%s %s ended %s %s", c.Name, c.Stream, answer.Result, answer.Text)
			break
		}
	}
	return errors.Join(failed, w.Close(), session.Close(), rec.Close())
}

// settle brings the run to rest, fences, and audits; every part is tried even when an earlier one failed.
func (t *trial) settle(ctx context.Context) error {
	var errs []error
	note := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	note(t.phase("drain"))
	if t.engine != nil {
		note(t.engine.LiftAll(ctx))
	}
	if t.local != nil {
		note(t.liftLocal())
	}
	note(t.stopRoles(ctx, "writer"))
	drained := t.drain(ctx)
	note(t.stopRoles(ctx, "projector"))
	note(t.stopRoles(ctx, roles.Owner))
	if t.engine != nil {
		note(t.engine.Close())
	}
	t.enter("audit")
	fenceCtx, cancel := context.WithTimeout(ctx, fenceBound)
	proof, err := t.inst.Auditor().Fence(fenceCtx)
	cancel()
	if err != nil {
		note(fmt.Errorf("fence: %w", err))
		proof = targets.Proof{Text: "the fence failed: " + err.Error()}
	}
	note(t.rec.Write(&history.Fence{T: t.clk.Now(), Fenced: proof.Fenced, Proof: proof.Text, Drained: drained}))
	if err == nil {
		note(t.audit(ctx))
	}
	return errors.Join(errs...)
}

// drain waits until every projection has come to the end of the log, at most drainBound, and not for one whose
// projectors have all failed.
func (t *trial) drain(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, t.r.bound(drainBound))
	defer cancel()
	for {
		all := true
		for _, v := range t.projected() {
			ok, err := t.drained(ctx, v)
			all = all && ok && err == nil
		}
		if all {
			return true
		}
		if t.stuck() {
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stuck reports that no projector of a random scenario will go on: the load never began, or they ended by themselves.
func (t *trial) stuck() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.spec.Scenario.Scripted() {
		return false
	}
	for _, r := range t.roles {
		if r.cfg.Kind != "projector" || t.start0 == 0 {
			continue
		}
		select {
		case <-r.doneChan():
		default:
			return false
		}
	}
	return true
}

// drained reports whether a view's projection has come to the end of the log. Where the store has no positions to
// compare, it has when nothing about it has changed for a while.
func (t *trial) drained(ctx context.Context, view string) (bool, error) {
	heads, err := heads(ctx, t.inst.Auditor())
	if err != nil {
		return false, err
	}
	obs, rows, err := t.inst.Auditor().Observe(ctx, view)
	if err != nil {
		return false, err
	}
	if len(heads) > 0 {
		return !slices.ContainsFunc(heads, func(p eventstore.Position) bool { return !obs.Cursor.Covers(p) }), nil
	}
	now := still{what: fmt.Sprint(obs.Cursor, obs.Seq, rows), since: t.clk.Now()}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stills == nil {
		t.stills = map[string]still{}
	}
	was, seen := t.stills[view]
	if !seen || was.what != now.what {
		t.stills[view] = now
		return false, nil
	}
	return now.since-was.since >= int64(standstill), nil
}

// heads returns where the log ends, in each of its orders; none for a store without positions.
func heads(ctx context.Context, a targets.Auditor) ([]eventstore.Position, error) {
	if sharded, ok := a.(targets.Sharded); ok {
		return sharded.Heads(ctx)
	}
	head, err := a.Head(ctx)
	if err != nil || head.IsZero() {
		return nil, err
	}
	return []eventstore.Position{head}, nil
}

// still is a projection that was seen not to move since a stamp.
type still struct {
	what  string
	since int64
}

// standstill is how long a projection without positions must not move to count as drained.
const standstill = time.Second

// projected lists the views that have a projector in this trial.
func (t *trial) projected() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []string
	for _, r := range t.roles {
		if r.cfg.Kind == "projector" && !slices.Contains(out, r.cfg.Projector.View) {
			out = append(out, r.cfg.Projector.View)
		}
	}
	return out
}

// audit copies log, ledgers, checkpoints and views into the history, from a process of its own in the record.
func (t *trial) audit(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, auditBound)
	defer cancel()
	seg := filepath.Join(t.dir, "zzzz-audit"+history.SegmentExt)
	w, err := history.Create(seg, &history.Process{ID: auditorProcess, Role: "auditor", Name: "auditor", Incarnation: 1, PID: uint32(os.Getpid()), T: t.clk.Now()})
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	t.segments = append(t.segments, seg)
	defer func() { err = errors.Join(err, w.Close()) }()
	a := t.inst.Auditor()
	done := &history.Audit{}
	if err := a.Log(ctx, func(e history.LoggedEvent) error { done.Events++; return w.Write(&e) }); err != nil {
		return fmt.Errorf("audit: log: %w", err)
	}
	// Where checkpoint and view live apart the checkpoint is read first: it then claims no more than the view holds.
	if err := a.Checkpoints(ctx, func(r history.CheckpointRow) error { done.Checkpoints++; return w.Write(&r) }); err != nil {
		return fmt.Errorf("audit: checkpoints: %w", err)
	}
	if err := a.Ledgers(ctx, func(r history.LedgerRow) error { done.Ledger++; return w.Write(&r) }); err != nil {
		return fmt.Errorf("audit: ledgers: %w", err)
	}
	if err := a.Views(ctx, func(r history.ViewRow) error { done.Views++; return w.Write(&r) }); err != nil {
		return fmt.Errorf("audit: views: %w", err)
	}
	if rows, ok := a.(targets.AuctionAuditor); ok {
		if err := rows.Auctions(ctx, func(r history.AuctionRow) error { done.Views++; return w.Write(&r) }); err != nil {
			return fmt.Errorf("audit: auctions: %w", err)
		}
	}
	if rows, ok := a.(targets.HeadAuditor); ok {
		if err := rows.StreamHeads(ctx, func(r history.HeadRow) error { done.Views++; return w.Write(&r) }); err != nil {
			return fmt.Errorf("audit: heads: %w", err)
		}
	}
	done.T = t.clk.Now()
	return w.Write(done, &history.ProcessEnd{ID: auditorProcess, T: done.T})
}

func (t *trial) phase(name string) error {
	t.enter(name)
	return t.rec.Write(&history.Phase{Name: name, T: t.clk.Now()})
}

func (t *trial) info(ctx context.Context) (history.TrialInfo, error) {
	version, durability, err := t.inst.About(ctx)
	if err != nil {
		return history.TrialInfo{}, &EnvironmentError{err}
	}
	target, sc := t.spec.Target, t.spec.Scenario
	info := history.TrialInfo{
		Format: "eventproof.history/v1", Tool: t.r.program.Version, Trial: t.id, Scenario: sc.Name, Target: target.Name(),
		Store: target.Store, Variant: target.Variant, Assembly: target.Assembly.Map(), Mode: "random", Seed: t.spec.Seed,
		Provider: "embedded", Fidelity: "real", StoreVersion: version, Durability: durability, Path: "direct",
		StartedWall: t.clk.Wall().UTC().Format(time.RFC3339), Start: t.start, Workload: sc.Workload.Kind,
		Promises: target.Promises, MaxDecisions: maxDecisions,
	}
	if target.Control != nil {
		info.Control = target.Control.ID
	}
	if sc.Scripted() {
		info.Mode = "scripted"
	}
	if target.Assembly.NativeAuction() {
		info.Auction = history.NativeAuction
	}
	if target.Emulated {
		info.Fidelity = "emulated"
	}
	if t.server != nil {
		info.Provider, info.Fidelity, info.Path = t.server.Kind(), t.server.Fidelity(), "proxied"
	}
	for _, v := range t.views {
		info.Projections = append(info.Projections, history.ProjectionInfo{
			Name: v.Name(), View: v.Name(), Mode: target.ProjectionMode, Ledger: !target.NoLedger, Feed: target.Assembly.Reader,
			Superseding: target.Superseding, Parking: target.Parking, MaxHoleMS: target.MaxHole.Milliseconds(),
		})
	}
	if !sc.Scripted() && sc.Roles.Projectors == 0 || sc.Scripted() && !slices.ContainsFunc(sc.Script.Sessions, func(s scenarios.Session) bool { return s.Role == "projector" }) {
		info.Projections = nil
	}
	for _, e := range sc.Expect {
		if (e.IfPromised || target.Assembly.NativeAuction()) && !promises(target, e.Invariant) {
			continue
		}
		info.Required = append(info.Required, history.Requirement{Invariant: e.Invariant, Min: e.Min})
	}
	for _, f := range sc.Faults {
		info.Faults = append(info.Faults, f.ID)
	}
	if sc.Scripted() {
		for _, st := range sc.Script.Steps {
			if st.Fault != nil {
				info.Faults = append(info.Faults, st.Fault.ID)
			}
		}
	}
	return info, nil
}

// promises reports whether the target declares all that a rule is about.
func promises(target targets.Target, rule string) bool {
	rules := invariants.Rules()
	i := slices.IndexFunc(rules, func(r invariants.Rule) bool { return r.Slug == rule })
	if i >= 0 && target.Assembly.NativeAuction() && !rules[i].Native {
		return false
	}
	return i < 0 || !slices.ContainsFunc(rules[i].Promises, func(p eventstore.Promise) bool {
		return !target.Promised(p) && (p != eventstore.StreamOrder || !target.Promised(eventstore.GlobalOrder))
	})
}

func (t *trial) liftLocal() error {
	var errs []error
	for _, f := range t.plans() {
		errs = append(errs, t.local.Lift(f.ID))
	}
	return errors.Join(errs...)
}

// plans lists every fault of the scenario, scripted or not.
func (t *trial) plans() []plan.Fault {
	out := slices.Clone(t.spec.Scenario.Faults)
	if s := t.spec.Scenario.Script; s != nil {
		for _, st := range s.Steps {
			if st.Fault != nil {
				out = append(out, *st.Fault)
			}
		}
	}
	return out
}
