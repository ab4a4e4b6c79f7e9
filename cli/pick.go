package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/eventproof/eventproof/invariants"
	"github.com/eventproof/eventproof/reports"
	"github.com/eventproof/eventproof/runner"
	"github.com/eventproof/eventproof/scenarios"
	"github.com/eventproof/eventproof/targets"
)

// pickTargets resolves patterns; a pattern that matches nothing is a usage error with a suggestion.
func (a *app) pickTargets(patterns []string, store string, correctOnly bool) ([]targets.Target, error) {
	if store != "" {
		if known := a.storeNames(); !slices.Contains(known, store) {
			return nil, usage("--store: %w", unknownName("store", store, known, "stores: "+strings.Join(known, ", ")))
		}
	}
	var out []targets.Target
	for _, p := range patterns {
		hit := false
		for _, t := range a.program.Targets.All() {
			ok, err := path.Match(p, t.Name())
			if err != nil {
				return nil, usage("--target %q is not a pattern: write a name such as postgres/xid-horizon, or 'postgres/*'", p)
			}
			if !ok {
				continue
			}
			hit = true
			if store != "" && t.Store != store || correctOnly && !t.Correct() ||
				slices.ContainsFunc(out, func(o targets.Target) bool { return o.Name() == t.Name() }) {
				continue
			}
			out = append(out, t)
		}
		if !hit {
			return nil, a.unknownTarget(p)
		}
	}
	return out, nil
}

func (a *app) unknownTarget(p string) error {
	if strings.ContainsAny(p, "*?[") {
		return usage("no target matches the pattern %q (stores: %s; see eventproof targets ls)", p, strings.Join(a.storeNames(), ", "))
	}
	names := a.targetNames()
	if slices.Contains(a.storeNames(), p) {
		return usage("there is no target %q; that is a store, and all its targets are '%s/*' (see eventproof targets ls)", p, p)
	}
	return usage("%w", unknownName("target", p, names, "see eventproof targets ls"))
}

func (a *app) targetNames() []string {
	var names []string
	for _, t := range a.program.Targets.All() {
		names = append(names, t.Name())
	}
	return names
}

func (a *app) storeNames() []string {
	var names []string
	for _, t := range a.program.Targets.All() {
		if !slices.Contains(names, t.Store) {
			names = append(names, t.Store)
		}
	}
	return names
}

// pickScenarios resolves names of the library and paths of files, and checks them against the tables of the program.
func (a *app) pickScenarios(names []string) ([]scenarios.Scenario, error) {
	library, err := scenarios.Library()
	if err != nil {
		return nil, internal(err)
	}
	var out []scenarios.Scenario
	for _, n := range names {
		var s scenarios.Scenario
		if isFile(n) {
			if s, err = a.readScenario(n); err != nil {
				return nil, err
			}
		} else {
			i := slices.IndexFunc(library, func(s scenarios.Scenario) bool { return s.Name == n })
			if i < 0 {
				return nil, unknownScenario(n, library)
			}
			s = library[i]
		}
		if slices.ContainsFunc(out, func(o scenarios.Scenario) bool { return o.Name == s.Name }) {
			return nil, usage("the scenario %q is given twice", s.Name)
		}
		out = append(out, s)
	}
	return out, nil
}

// isFile tells a path from a name of the library.
func isFile(name string) bool {
	return strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml") || strings.ContainsRune(name, os.PathSeparator) || name == "."
}

func unknownScenario(name string, library []scenarios.Scenario) error {
	known := make([]string, len(library))
	for i, s := range library {
		known[i] = s.Name
	}
	if st, err := os.Stat(name); err == nil && st.Mode().IsRegular() {
		return usage("there is no scenario %q in the library; for the file write ./%s", name, name)
	}
	return usage("%w", unknownName("scenario", name, known, "see eventproof scenarios ls, or give a file: name.yaml"))
}

// readScenario reads a scenario file and finds all its mistakes.
func (a *app) readScenario(file string) (scenarios.Scenario, error) {
	s, err := scenarios.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s, usage("%s: there is no such file", file)
	case err != nil:
		if st, statErr := os.Stat(file); statErr == nil && st.IsDir() {
			return s, usage("%s is a folder; a scenario is a file", file)
		}
		return s, usage("%w", err)
	}
	return s, a.checkScenario(s)
}

// checkScenario finds the mistakes of a scenario that only the tables of rules, metrics and targets can show.
func (a *app) checkScenario(sc scenarios.Scenario) error {
	var found []error
	at := func(line int, err error) { found = append(found, fmt.Errorf("%s:%d: %w", sc.File, line, err)) }
	for _, e := range sc.Expect {
		i := slices.IndexFunc(invariants.Rules(), func(r invariants.Rule) bool { return r.Slug == e.Invariant })
		if i < 0 {
			at(e.Line, unknownName("invariant", e.Invariant, ruleNames(), "see eventproof invariants ls"))
			continue
		}
		counted := opportunityNames(invariants.Rules()[i])
		for _, name := range slices.Sorted(maps.Keys(e.Min)) {
			if !slices.Contains(counted, name) {
				at(e.Line, unknownName("opportunity", name, counted, "see eventproof invariants explain "+e.Invariant))
			}
		}
	}
	for _, g := range sc.Gates {
		err := reports.CheckGate(gateSpec(sc, g))
		var metric *reports.UnknownMetricError
		switch {
		case errors.As(err, &metric):
			at(g.Line, unknownName("metric", g.Metric, metric.Valid, "see eventproof schema result, below metrics"))
		case err != nil:
			at(g.Line, err)
		}
	}
	for _, p := range sc.Targets {
		if !slices.ContainsFunc(a.targetNames(), func(name string) bool { ok, err := path.Match(p, name); return ok && err == nil }) {
			found = append(found, fmt.Errorf("%s: targets: no target matches %q (eventproof targets ls)", sc.File, p))
		}
	}
	if len(found) > 0 {
		return usage("%w", errors.Join(found...))
	}
	return nil
}

func ruleNames() []string {
	var names []string
	for _, r := range invariants.Rules() {
		names = append(names, r.Slug)
	}
	return names
}

func opportunityNames(r invariants.Rule) []string {
	var names []string
	for _, o := range r.Opportunities {
		names = append(names, o.Name)
	}
	return names
}

func gateSpec(sc scenarios.Scenario, g scenarios.Gate) reports.GateSpec {
	return reports.GateSpec{Metric: g.Metric, Op: g.Op, Limit: g.Limit, File: sc.File, Line: g.Line}
}

// pair combines scenarios and targets; a pair that does not fit is left out with a note, and none at all is a mistake.
func (a *app) pair(scs []scenarios.Scenario, ts []targets.Target) ([]runner.Spec, error) {
	var out []runner.Spec
	var why []string
	for _, sc := range scs {
		for _, t := range ts {
			if reason := unfit(sc, t); reason != "" {
				why = append(why, fmt.Sprintf("%s can't run %s: %s", t.Name(), sc.Name, reason))
				continue
			}
			out = append(out, runner.Spec{Scenario: sc, Target: t})
		}
	}
	if len(out) == 0 {
		return nil, usage("nothing to run: %s", strings.Join(why, "; "))
	}
	for _, w := range why {
		a.logf("note: %s", w)
	}
	return out, nil
}

func unfit(sc scenarios.Scenario, t targets.Target) string {
	if !slices.Contains(t.Workloads, sc.Workload.Kind) {
		return fmt.Sprintf("its workload is %s, the target's %s", sc.Workload.Kind, strings.Join(t.Workloads, ", "))
	}
	if len(sc.Targets) == 0 || slices.ContainsFunc(sc.Targets, func(p string) bool {
		ok, err := path.Match(p, t.Name())
		return err == nil && ok
	}) {
		return ""
	}
	return "it is made for " + strings.Join(sc.Targets, ", ")
}

// real refuses stand-ins where the user wants the product itself.
func (c *common) real(ts []targets.Target) error {
	for _, t := range ts {
		if t.Emulated && c.requireReal.every {
			return usage("%s is a stand-in: leave it out or drop --require-real", t.Name())
		}
	}
	return nil
}

// completeWords completes the values of a flag.
func completeWords(cmd *cobra.Command, flag string, words ...string) {
	complete(cmd, flag, func() []string { return words })
}

func complete(cmd *cobra.Command, flag string, words func() []string) {
	// The only error is a flag that does not exist, which completion itself then shows.
	_ = cmd.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return words(), cobra.ShellCompDirectiveNoFileComp
	})
}

func completeArg(words func() []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return words(), cobra.ShellCompDirectiveNoFileComp
	}
}

func scenarioNames() []string {
	library, err := scenarios.Library()
	if err != nil {
		return nil
	}
	var names []string
	for _, s := range library {
		names = append(names, s.Name)
	}
	return names
}
