package cli

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/spf13/cobra"

	"github.com/eventproof/eventproof/invariants"
	"github.com/eventproof/eventproof/reports"
	"github.com/eventproof/eventproof/runner"
	"github.com/eventproof/eventproof/scenarios"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/verdict"
)

func (a *app) run() *cobra.Command {
	var c common
	var names, patterns []string
	var store string
	var correct, until, quiet bool
	var repeat int
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run scenarios against targets and judge them",
		Example: `  eventproof run --scenario hot-account --target postgres/xid-horizon
  eventproof run -s hot-account -t postgres/naive-poll     # a control: exits 1 with the witness
  eventproof run -s ./mine.yaml -t 'postgres/*' --correct --repeat 10`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.validate(); err != nil {
				return err
			}
			if len(names) == 0 {
				return usage("which scenario? --scenario NAME (eventproof scenarios ls)")
			}
			if len(patterns) == 0 {
				return usage("which target? --target PATTERN (eventproof targets ls)")
			}
			if repeat < 1 {
				return usage("--repeat %d: at least 1", repeat)
			}
			scs, err := a.pickScenarios(names)
			if err != nil {
				return err
			}
			ts, err := a.pickTargets(patterns, store, correct)
			if err != nil {
				return err
			}
			specs, err := a.pair(scs, ts)
			if err != nil {
				return err
			}
			if len(specs) == 0 {
				return usage("none of the chosen targets can run one of the chosen scenarios")
			}
			return a.trials(cmd.Context(), &c, scs[0].Name, a.args, specs, series{repeat: repeat, until: until, quiet: quiet})
		},
	}
	c.register(cmd)
	f := cmd.Flags()
	f.StringArrayVarP(&names, "scenario", "s", nil, "scenario of the library, or a file (repeatable)")
	f.StringArrayVarP(&patterns, "target", "t", nil, "target or pattern such as 'postgres/*' (repeatable)")
	f.StringVar(&store, "store", "", "only targets of this store")
	f.BoolVar(&correct, "correct", false, "leave controls out")
	f.IntVar(&repeat, "repeat", 1, "run each trial so often, with seeds counted up from --seed")
	f.BoolVar(&until, "until-violation", false, "stop at the first violation")
	f.BoolVarP(&quiet, "quiet", "q", false, "no text on stdout; the files are written")
	return cmd
}

func (a *app) bench() *cobra.Command {
	var c common
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "The standard suite: calm and faulty phases on every store that can be had here",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.validate(); err != nil {
				return err
			}
			scs, err := a.pickScenarios([]string{"hot-account", "hot-auction"})
			if err != nil {
				return err
			}
			var ts []targets.Target
			for _, t := range a.program.Targets.All() {
				if t.Correct() && !t.Emulated {
					ts = append(ts, t)
				}
			}
			specs, err := a.pair(scs, ts)
			if err != nil {
				return err
			}
			return a.trials(cmd.Context(), &c, "bench", a.args, specs, series{repeat: 1})
		},
	}
	c.register(cmd)
	return cmd
}

// pair combines scenarios and targets; a scenario that the target can't run is left out.
func (a *app) pair(scs []scenarios.Scenario, ts []targets.Target) ([]runner.Spec, error) {
	var out []runner.Spec
	for _, sc := range scs {
		if err := checkScenario(sc); err != nil {
			return nil, err
		}
		for _, t := range ts {
			if !slices.Contains(t.Workloads, sc.Workload.Kind) || !scenarioFits(sc, t) {
				a.logf("note: %s can't run %s", t.Name(), sc.Name)
				continue
			}
			out = append(out, runner.Spec{Scenario: sc, Target: t})
		}
	}
	return out, nil
}

func scenarioFits(sc scenarios.Scenario, t targets.Target) bool {
	if len(sc.Targets) == 0 {
		return true
	}
	return slices.ContainsFunc(sc.Targets, func(p string) bool {
		ok, err := path.Match(p, t.Name())
		return err == nil && ok
	})
}

// checkScenario finds mistakes that need the tables of rules and metrics.
func checkScenario(sc scenarios.Scenario) error {
	var slugs []string
	for _, r := range invariants.Rules() {
		slugs = append(slugs, r.Slug)
	}
	for _, e := range sc.Expect {
		if slices.Contains(slugs, e.Invariant) {
			continue
		}
		if best, ok := scenarios.Closest(e.Invariant, slugs); ok {
			return usage("%s:%d: there is no invariant %q; did you mean %q?", sc.File, e.Line, e.Invariant, best)
		}
		return usage("%s:%d: there is no invariant %q; see eventproof invariants ls", sc.File, e.Line, e.Invariant)
	}
	for _, g := range sc.Gates {
		if err := reports.CheckGate(gateSpec(sc, g)); err != nil {
			return usage("%s:%d: %w", sc.File, g.Line, err)
		}
	}
	return nil
}

func gateSpec(sc scenarios.Scenario, g scenarios.Gate) reports.GateSpec {
	return reports.GateSpec{Metric: g.Metric, Op: g.Op, Limit: g.Limit, File: sc.File, Line: g.Line}
}

// series says how often trials are run and when to stop.
type series struct {
	repeat int
	until  bool
	quiet  bool
}

// trials runs specs one after the other and writes one report.
func (a *app) trials(ctx context.Context, c *common, name string, args []string, specs []runner.Spec, p series) error {
	s, err := a.open(c, name, args)
	if err != nil {
		return err
	}
	s.quiet = p.quiet
	display := a.display(c)
	r := runner.New(a.program, runner.Options{Dir: s.dir, For: c.length, Keep: c.keep, Progress: display.update})
	defer r.Close()
loop:
	for i := range p.repeat {
		for _, spec := range specs {
			if ctx.Err() != nil {
				break loop
			}
			spec.Seed = c.seed + uint64(i)
			trial := s.trial(ctx, r, spec)
			s.result.Trials = append(s.result.Trials, trial)
			display.trial(trial)
			if p.until && slices.ContainsFunc(trial.Verdicts, func(v verdict.Result) bool { return v.Verdict == verdict.Violated }) {
				break loop
			}
		}
	}
	display.close()
	return s.finish(ctx)
}

// trial runs one trial and evaluates its gates.
func (s *session) trial(ctx context.Context, r *runner.Runner, spec runner.Spec) reports.Trial {
	server, err := s.server(ctx, spec.Target)
	if err != nil {
		t := reports.Trial{Scenario: spec.Scenario.Name, Target: spec.Target.Name(), Store: spec.Target.Store, Variant: spec.Target.Variant,
			Seed: spec.Seed, Problem: err.Error(), ProblemKind: reports.ProblemInternal}
		var env *runner.EnvironmentError
		if errors.As(err, &env) {
			t.ProblemKind = reports.ProblemEnvironment
		}
		return t
	}
	t := r.Run(ctx, spec, server)
	var specs []reports.GateSpec
	for _, g := range spec.Scenario.Gates {
		specs = append(specs, gateSpec(spec.Scenario, g))
	}
	gates, err := reports.EvaluateGates(t.Scenario, t.Target, specs, t.Metrics)
	if err != nil {
		t.Problem, t.ProblemKind = fmt.Sprintf("gates: %v", err), reports.ProblemInternal
		return t
	}
	s.result.Gates = append(s.result.Gates, gates...)
	return t
}
