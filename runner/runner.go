// Package runner conducts trials: it gets a server, builds roles, drives load and faults or plays a script, fences,
// audits, and has the recorded history judged.
package runner

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"time"

	"github.com/eventproof/eventproof/app"
	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/faults/plan"
	"github.com/eventproof/eventproof/provision"
	"github.com/eventproof/eventproof/reports"
	"github.com/eventproof/eventproof/roles"
	"github.com/eventproof/eventproof/scenarios"
	"github.com/eventproof/eventproof/targets"
)

// Program is what a binary consists of: its targets and the parts that assemblies name.
type Program struct {
	Version string
	Targets *targets.Registry
	Parts   *app.Parts
	// Exe is the binary that child roles run ("<exe> role <config>"); empty: roles run in this process.
	Exe string
}

// Server is a running store. Package provision provides it.
type Server interface {
	AdminURL() string
	Addr() string
	Kind() string
	Fidelity() string
	// DataDir is the server's own folder; empty where the provider can't tell.
	DataDir() string
	Kill(ctx context.Context) error
	Pause() error
	Resume() error
	Restart(ctx context.Context) error
}

// Options of a run.
type Options struct {
	// Dir is the run's folder; histories go to Dir/history.
	Dir string
	// For stretches or shrinks the load of random scenarios to this length; 0 = as written.
	For time.Duration
	// Keep leaves segments, logs and what was created in the store.
	Keep bool
	// Progress is told what goes on, at most once a second a trial; nil = nobody listens.
	Progress func(Progress)
	// DrainBound replaces the time a projection has for catching up after the load; 0 = the default.
	DrainBound time.Duration
}

// Progress is what the live display shows of a trial.
type Progress struct {
	Trial    string
	Scenario string
	Target   string
	Seed     uint64
	Phase    string        // "set-up", a phase of the load, "script", "drain", "audit", "judge"
	At       time.Duration // since the load began
	Length   time.Duration // of the whole load; 0 for a script
	Status   roles.Status
}

// Spec is one trial to run.
type Spec struct {
	Scenario scenarios.Scenario
	Target   targets.Target
	Seed     uint64
}

// Runner runs trials one after the other. Close ends what they share.
type Runner struct {
	program Program
	opts    Options
	spawner *spawner
	ids     *rand.Rand
}

// New returns a runner.
func New(p Program, o Options) *Runner {
	now := uint64(clock.System{}.Wall().UnixNano())
	return &Runner{program: p, opts: o, spawner: newSpawner(), ids: rand.New(rand.NewPCG(now, uint64(clock.Monotonic())))}
}

// Close ends the thread that started the children.
func (r *Runner) Close() { r.spawner.close() }

// trialID is unique on a server, not repeatable: a killed run's schema may still be there. It begins with a letter.
func (r *Runner) trialID(Spec) string {
	const digits = "0123456789abcdefghijklmnopqrstuvwxyz"
	b := []byte("t")
	for range 10 {
		b = append(b, digits[r.ids.IntN(len(digits))])
	}
	return string(b)
}

// Run conducts one trial and judges it. It always returns a trial; what went wrong stands in Problem.
func (r *Runner) Run(ctx context.Context, spec Spec, server Server) reports.Trial {
	out := reports.Trial{
		Scenario: spec.Scenario.Name, Target: spec.Target.Name(), Store: spec.Target.Store, Variant: spec.Target.Variant,
		Seed: spec.Seed, Kind: "correct", Fidelity: "real",
	}
	if spec.Target.Emulated {
		out.Fidelity = "emulated"
	}
	if !spec.Target.Correct() {
		out.Kind, out.Control = "control", spec.Target.Control.ID
	}
	t, err := newTrial(r, spec, server)
	if err != nil {
		return problem(out, err)
	}
	out.ID = t.id
	file, err := t.run(ctx)
	var stopped *Interrupted
	if file == "" && errors.As(context.Cause(ctx), &stopped) {
		return problem(out, fmt.Errorf("%w before anything was recorded", stopped))
	}
	if file != "" {
		t.enter("judge")
		judged, jerr := Judge(file, nil, SpareMemory())
		if jerr != nil {
			return problem(out, errors.Join(err, jerr))
		}
		judged.History.File = filepath.Join("history", filepath.Base(file))
		out = judged
	}
	if roles := spec.Scenario.Roles; (roles.WriterProcess || roles.ProjectorProcess) && (spec.Target.Needs == "" || spec.Target.Attach == nil) {
		out.Warnings = append(out.Warnings, "the scenario wants roles in processes of their own; this store lives in the runner's process, and so did they")
	}
	out.Description = spec.Scenario.Description
	out.ScenarioFile = spec.Scenario.File
	out.ExpectLines = map[string]int{}
	for _, e := range spec.Scenario.Expect {
		out.ExpectLines[e.Invariant] = e.Line
	}
	if err != nil {
		return problem(out, err)
	}
	return out
}

func problem(t reports.Trial, err error) reports.Trial {
	t.Problem, t.ProblemKind = err.Error(), reports.ProblemInternal
	var env *EnvironmentError
	if errors.As(err, &env) || diskTrouble(err) || errors.Is(err, provision.ErrUnsupported) {
		t.ProblemKind = reports.ProblemEnvironment
	}
	return t
}

// diskTrouble tells that a file could not be written for a reason that is the machine's.
func diskTrouble(err error) bool {
	for _, e := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// length of the load under Options.For.
func (r *Runner) length(l scenarios.Load) time.Duration {
	if r.opts.For > 0 {
		return r.opts.For
	}
	return l.Duration()
}

// scale stretches a time of the scenario to the length that was asked for.
func (r *Runner) scale(l scenarios.Load, d time.Duration) time.Duration {
	if r.opts.For <= 0 {
		return d
	}
	return time.Duration(float64(d) * float64(r.opts.For) / float64(l.Duration()))
}

func (r *Runner) scaleFaults(s scenarios.Scenario) []plan.Fault {
	out := make([]plan.Fault, len(s.Faults))
	for i, f := range s.Faults {
		f.At, f.For = r.scale(s.Load, f.At), r.scale(s.Load, f.For)
		out[i] = f
	}
	return out
}

func (r *Runner) bound(d time.Duration) time.Duration {
	if r.opts.DrainBound > 0 {
		return r.opts.DrainBound
	}
	return d
}

// report tells the display where the trial is.
func (t *trial) report() {
	if t.r.opts.Progress == nil {
		return
	}
	p := Progress{Trial: t.id, Scenario: t.spec.Scenario.Name, Target: t.spec.Target.Name(), Seed: t.spec.Seed,
		Phase: t.phaseName, Status: t.statuses()}
	if !t.spec.Scenario.Scripted() {
		p.Length = t.r.length(t.spec.Scenario.Load)
	}
	if t.start0 > 0 {
		p.At = time.Duration(t.clk.Now() - t.start0)
	}
	t.r.opts.Progress(p)
}

// enter reports that the trial comes to a part that is no phase of the record.
func (t *trial) enter(part string) {
	t.phaseName = part
	t.report()
}

// loadConfig is writer i's share of the load.
func (t *trial) loadConfig(i int, length time.Duration) *roles.LoadConfig {
	sc := t.spec.Scenario
	w := sc.Workload
	return &roles.LoadConfig{
		Shard: i, Shards: sc.Roles.Writers, Length: length,
		Model: sc.Load.Model, Arrival: sc.Load.Arrival, Rate: sc.Load.Rate, Workers: sc.Load.Workers, Queue: sc.Load.Queue,
		Streams: w.Streams, KeyDist: w.Keys.Dist, Exponent: w.Keys.Exponent, HotShare: w.Keys.HotShare, HotCount: w.Keys.HotCount,
		MaxAmount: w.MaxAmount, Withdraw: w.Withdraw, Deposit: w.Deposit, BlindDeposit: w.BlindDeposit,
		OpeningPrice: w.OpeningPrice, Bid: w.Bid, Replay: w.Replay, AlterBid: w.AlterBid, EqualBid: w.EqualBid,
		CloseAfter: t.r.scale(sc.Load, w.CloseAfter),
	}
}
