package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

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
		Use:   "run -s SCENARIO -t TARGET",
		Short: "Run scenarios against targets and judge them",
		Long: `Runs every chosen scenario against every chosen target, judges each trial, and writes one report. Targets that need a
server share one, which is started for the run and removed with its data afterwards. The first Ctrl-C ends the
load; what ran until then is still audited, judged and written. A second one ends at once.`,
		Example: `  eventproof run --scenario hot-account --target postgres/xid-horizon
  eventproof run -s hot-account -t postgres/naive-poll     # a control: exits 1 with the witness
  eventproof run -s ./mine.yaml -t 'postgres/*' --correct --repeat 10
  eventproof run -s hot-account -t memory/reference -o json --progress none | jq .exit`,
		Args: a.noRunArgs,
		RunE: func(*cobra.Command, []string) error {
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
			if len(ts) == 0 {
				return usage("--store and --correct leave none of these targets")
			}
			if err := c.real(ts); err != nil {
				return err
			}
			specs, err := a.pair(scs, ts)
			if err != nil {
				return err
			}
			return a.trials(&c, scs[0].Name, specs, series{repeat: repeat, until: until, quiet: quiet})
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&names, "scenario", "s", nil, "`SCENARIO` of the library, or a file (repeatable)")
	f.StringArrayVarP(&patterns, "target", "t", nil, "`TARGET` or pattern such as 'postgres/*' (repeatable)")
	f.StringVar(&store, "store", "", "only targets of this `STORE`")
	f.BoolVar(&correct, "correct", false, "leave controls out")
	f.IntVar(&repeat, "repeat", 1, "run each trial `N` times, with seeds counted up from --seed")
	f.BoolVar(&until, "until-violation", false, "stop at the first violation")
	f.BoolVarP(&quiet, "quiet", "q", false, quietHelp)
	c.register(cmd)
	complete(cmd, "scenario", scenarioNames)
	complete(cmd, "target", a.targetNames)
	complete(cmd, "store", a.storeNames)
	return cmd
}

// noRunArgs tells who names a scenario or a target without its flag how to write it.
func (a *app) noRunArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if isFile(args[0]) && !slices.Contains(a.targetNames(), args[0]) || slices.Contains(scenarioNames(), args[0]) {
		return usage("a scenario is named with a flag: --scenario %s", maskArg(args[0]))
	}
	if slices.Contains(a.targetNames(), args[0]) {
		return usage("a target is named with a flag: --target %s", args[0])
	}
	return none(cmd, args)
}

const quietHelp = "no text on stdout; the files are written"

func (a *app) bench() *cobra.Command {
	var c common
	var quiet bool
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "The standard suite: calm and faulty phases on every store that can be had here",
		Long: `Runs hot-account and hot-auction on every correct variant of every real store, first calm, then through faults. It
takes about two minutes and needs nothing but Postgres: the installed one, else one that is fetched.`,
		Args: none,
		RunE: func(*cobra.Command, []string) error {
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
			return a.trials(&c, "bench", specs, series{repeat: 1, quiet: quiet})
		},
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, quietHelp)
	c.register(cmd)
	return cmd
}

// series says how often trials are run and when to stop.
type series struct {
	repeat int
	until  bool
	quiet  bool
}

// trials runs specs one after the other and writes one report.
func (a *app) trials(c *common, name string, specs []runner.Spec, p series) error {
	return a.interruptible(func(ctx context.Context) error {
		s, err := a.open(c, name)
		if err != nil {
			return err
		}
		s.quiet = p.quiet
		a.warnUnrequired(specs)
		display := a.display(c, len(specs)*p.repeat)
		r := runner.New(a.program, runner.Options{Dir: s.dir, For: c.length, Keep: c.keep, Progress: display.update})
		defer r.Close()
		s.series(ctx, r, specs, p, display)
		display.close()
		return s.finish(ctx)
	})
}

// warnUnrequired says where a green result would mean little.
func (a *app) warnUnrequired(specs []runner.Spec) {
	var last *scenarios.Scenario
	for _, spec := range specs {
		if sc := &spec.Scenario; len(sc.Expect) == 0 && (last == nil || last.Name != sc.Name) {
			a.logf("note: %s requires no invariant (expect: is empty): only a violation can make it fail", sc.Name)
			last = sc
		}
	}
}

func (s *session) series(ctx context.Context, r *runner.Runner, specs []runner.Spec, p series, display *display) {
	for i := range p.repeat {
		for _, spec := range specs {
			spec.Seed = s.common.seed + uint64(i)
			server, err := s.server(ctx, spec.Target)
			if ctx.Err() != nil {
				return
			}
			trial := s.trial(ctx, r, spec, server, err)
			s.result.Trials = append(s.result.Trials, trial)
			display.ended(trial)
			if p.until && slices.ContainsFunc(trial.Verdicts, func(v verdict.Result) bool { return v.Verdict == verdict.Violated }) {
				return
			}
		}
	}
}

// trial runs one trial and evaluates its gates. noServer says why there is no server for it.
func (s *session) trial(ctx context.Context, r *runner.Runner, spec runner.Spec, server runner.Server, noServer error) reports.Trial {
	if noServer != nil {
		t := reports.Trial{Scenario: spec.Scenario.Name, Target: spec.Target.Name(), Store: spec.Target.Store, Variant: spec.Target.Variant,
			Seed: spec.Seed, Problem: noServer.Error(), ProblemKind: reports.ProblemInternal}
		var env *runner.EnvironmentError
		if errors.As(noServer, &env) {
			t.ProblemKind = reports.ProblemEnvironment
		}
		return t
	}
	t := r.Run(ctx, spec, server)
	if len(t.Verdicts) == 0 {
		return t // nothing was measured that a gate could be about
	}
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
