package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/faults/plan"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/invariants"
	"github.com/eventproof/eventproof/reports"
	"github.com/eventproof/eventproof/scenarios"
	"github.com/eventproof/eventproof/targets"
)

// group is a command that only holds others.
func group(use, short string, sub ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: none, RunE: help}
	cmd.AddCommand(sub...)
	return cmd
}

func (a *app) table(rows func(w *tabwriter.Writer)) error {
	w := tabwriter.NewWriter(a.out, 2, 8, 2, ' ', 0)
	rows(w)
	return w.Flush()
}

func (a *app) targets() *cobra.Command {
	ls := &cobra.Command{Use: "ls", Short: "List the targets", Args: none, RunE: func(*cobra.Command, []string) error {
		return a.table(func(w *tabwriter.Writer) {
			_, _ = fmt.Fprintln(w, "TARGET\tKIND\tWORKLOADS\tWHAT IT IS")
			for _, t := range a.program.Targets.All() {
				kind := "correct"
				if !t.Correct() {
					kind = "control " + t.Control.ID
				}
				if t.Emulated {
					kind += " (emulated)"
				}
				_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", t.Name(), kind, strings.Join(t.Workloads, ", "), t.Summary)
			}
		})
	}}
	show := &cobra.Command{Use: "show TARGET", Short: "Show one target: parts, promises, what must catch it", Args: one,
		ValidArgsFunction: completeArg(a.targetNames),
		RunE: func(_ *cobra.Command, args []string) error {
			ts, err := a.pickTargets(args, "", false)
			if err != nil {
				return err
			}
			for _, t := range ts {
				a.showTarget(t)
			}
			return nil
		}}
	return group("targets", "What can be put under test", ls, show)
}

func (a *app) showTarget(t targets.Target) {
	a.printf("%s\n  %s\n\nparts\n", t.Name(), t.Summary)
	m := t.Assembly.Map()
	for _, part := range slices.Sorted(maps.Keys(m)) {
		a.printf("  %-12s %s\n", part, m[part])
	}
	a.printf("\npromises\n")
	for _, p := range t.Promises {
		a.printf("  %s\n", p)
	}
	a.printf("\nworkloads: %s · projections: %s\n", strings.Join(t.Workloads, ", "), t.ProjectionMode)
	a.showOutcomes(t.Outcomes)
	if t.Correct() {
		return
	}
	c := t.Control
	a.printf("\ncontrol %s: `%s` of %s is swapped\n  %s\nmust be caught by\n", c.ID, c.Part, t.Base, c.Bug)
	for _, m := range c.Must {
		a.printf("  %s\n", m)
	}
	if len(c.May) > 0 {
		a.printf("may also break\n")
	}
	for _, m := range slices.Sorted(maps.Keys(c.May)) {
		a.printf("  %-26s %s\n", m, c.May[m])
	}
	a.printf("scripts: %s\n", strings.Join(c.Scripts, ", "))
}

// showOutcomes prints a store's outcome table.
func (a *app) showOutcomes(rows []targets.Ruling) {
	if len(rows) == 0 {
		return
	}
	a.printf("\nwhat it makes of the answers to a write (what fits no row is unknown)\n")
	w := tabwriter.NewWriter(a.out, 2, 8, 2, ' ', 0)
	step := ""
	for _, r := range rows {
		shown := r.Step
		if shown == step {
			shown = ""
		}
		step = r.Step
		_, _ = fmt.Fprintf(w, "  %s\t%s\t%s\n", shown, r.Answer, outcomeText(r))
	}
	_ = w.Flush()
}

func outcomeText(r targets.Ruling) string {
	if r.Outcome == eventstore.OK {
		return r.Outcome.String()
	}
	return fmt.Sprintf("%s (%s)", r.Outcome, r.Reason)
}

func (a *app) scenarios() *cobra.Command {
	ls := &cobra.Command{Use: "ls", Short: "List the scenarios that come with the program", Args: none, RunE: func(*cobra.Command, []string) error {
		all, err := scenarios.Library()
		if err != nil {
			return internal(err)
		}
		return a.table(func(w *tabwriter.Writer) {
			_, _ = fmt.Fprintln(w, "SCENARIO\tMODE\tWORKLOAD\tWHAT IT DOES")
			for _, s := range all {
				mode := "random"
				if s.Scripted() {
					mode = "scripted"
				}
				first, _, _ := strings.Cut(s.Description, ". ")
				_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", s.Name, mode, s.Workload.Kind, strings.TrimSuffix(first, ".")+".")
			}
		})
	}}
	show := &cobra.Command{Use: "show SCENARIO", Short: "Print a scenario of the library, to start your own from", Args: one,
		ValidArgsFunction: completeArg(scenarioNames),
		RunE: func(_ *cobra.Command, args []string) error {
			library, err := scenarios.Library()
			if err != nil {
				return internal(err)
			}
			if isFile(args[0]) || !slices.Contains(scenarioNames(), args[0]) {
				return unknownScenario(args[0], library)
			}
			src, err := scenarios.Source(args[0])
			if err != nil {
				return internal(err)
			}
			a.printf("%s", src)
			return nil
		}}
	verify := &cobra.Command{Use: "verify FILE…", Short: "Check scenario files without running them", Args: some, RunE: func(_ *cobra.Command, args []string) error {
		var found []error
		for _, file := range args {
			if _, err := a.readScenario(file); err != nil {
				found = append(found, err)
				continue
			}
			a.printf("%s: ok\n", file)
		}
		if len(found) > 0 {
			return usage("%w", errors.Join(found...))
		}
		return nil
	}}
	return group("scenarios", "What can be run", ls, show, verify)
}

func (a *app) invariants() *cobra.Command {
	ls := &cobra.Command{Use: "ls", Short: "List the invariants", Args: none, RunE: func(*cobra.Command, []string) error {
		return a.table(func(w *tabwriter.Writer) {
			_, _ = fmt.Fprintln(w, "INVARIANT\tID\tWHAT HOLDS")
			for _, r := range invariants.Rules() {
				_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", r.Slug, r.ID, r.Title)
			}
		})
	}}
	explain := &cobra.Command{Use: "explain INVARIANT", Aliases: []string{"show"}, ValidArgsFunction: completeArg(ruleNames), Short: "Explain one invariant and what it counts", Args: one, RunE: func(_ *cobra.Command, args []string) error {
		for _, r := range invariants.Rules() {
			if r.Slug != args[0] && r.ID != args[0] {
				continue
			}
			a.printf("%s (%s)\n\n  %s\n", r.Slug, r.ID, r.Title)
			if len(r.Promises) > 0 {
				a.printf("\nneeds the promises\n")
				for _, p := range r.Promises {
					a.printf("  %s\n", p)
				}
			}
			a.printf("\nopportunities that are counted\n")
			for _, o := range r.Opportunities {
				a.printf("  %-28s %s\n", o.Name, o.Meaning)
			}
			a.printf("\nfull text: docs/invariants/%s.md\n", r.Slug)
			return nil
		}
		return usage("%w", unknownName("invariant", args[0], ruleNames(), "see eventproof invariants ls"))
	}}
	return group("invariants", "What is judged", ls, explain)
}

func (a *app) faults() *cobra.Command {
	ls := &cobra.Command{Use: "ls", Short: "List the kinds of faults", Args: none, RunE: func(*cobra.Command, []string) error {
		return a.table(func(w *tabwriter.Writer) {
			_, _ = fmt.Fprintln(w, "FAULT\tPARAMETERS\tWHAT IT DOES")
			for _, k := range plan.Kinds() {
				_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", k.Kind, k.Params, k.Does)
			}
		})
	}}
	return group("faults", "What can be broken", ls)
}

func (a *app) schema() *cobra.Command {
	print1 := func(use, short string, body func() ([]byte, error)) *cobra.Command {
		return &cobra.Command{Use: use, Short: short, Args: none, RunE: func(*cobra.Command, []string) error {
			b, err := body()
			if err != nil {
				return internal(err)
			}
			a.printf("%s\n", strings.TrimRight(string(b), "\n"))
			return nil
		}}
	}
	return group("schema", "Print the schemas of the files",
		print1("scenario", "JSON Schema of scenario files", func() ([]byte, error) { return scenarios.Schema(), nil }),
		print1("history", "The records of a history file and their fields", func() ([]byte, error) { return history.Schema(), nil }),
		print1("result", "The fields of result.json", reports.ResultSchema),
	)
}

func (a *app) version() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version", Args: none, RunE: func(*cobra.Command, []string) error {
		a.printf("eventproof %s\n", a.program.Version)
		return nil
	}}
}

func (a *app) report() *cobra.Command {
	var strict bool
	cmd := &cobra.Command{
		Use: "report DIR", Short: "Render the reports of a run again from its result.json", Args: one,
		Long: `Writes every rendering of result.json in a run's folder again, for example with a newer version of eventproof. Nothing
is judged; for that see check.`,
		RunE: func(_ *cobra.Command, args []string) error {
			dir := args[0]
			if filepath.Base(dir) == resultFile {
				dir = filepath.Dir(dir)
			}
			r, err := reports.Read(filepath.Join(dir, resultFile))
			if errors.Is(err, fs.ErrNotExist) {
				return usage("%s holds no %s: name the folder of a run that was finished (one that was killed: eventproof check %s)", dir, resultFile, dir)
			}
			if err != nil {
				return usage("%w", err)
			}
			if err := reports.WriteAll(dir, r, reports.Options{Strict: strict}); err != nil {
				return environment(err)
			}
			a.printf("%s written again; the run ended with exit code %d\n", filepath.Join(dir, "report.html"), r.Exit.Code)
			return nil
		}}
	cmd.Flags().BoolVar(&strict, "strict", inCI(), "show what was not decided as failures in junit.xml; default with CI")
	return cmd
}
