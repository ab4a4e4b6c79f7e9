package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/eventproof/eventproof/invariants"
	"github.com/eventproof/eventproof/reports"
	"github.com/eventproof/eventproof/runner"
	"github.com/eventproof/eventproof/scenarios"
)

func resultPath(dir string) string {
	if st, err := os.Stat(dir); err == nil && st.IsDir() {
		return filepath.Join(dir, "result.json")
	}
	return dir
}

func (a *app) check() *cobra.Command {
	var only []string
	var output string
	var strict, noColor bool
	cmd := &cobra.Command{
		Use:   "check DIR|FILE",
		Short: "Judge a recorded history again; always the same verdicts as the run's",
		Long: `Judge recorded histories: a run's folder, one history file, or the folder of segments that a killed run left.
Nothing is written. What needs the final log is inconclusive where the run was killed before its audit.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if output != "text" && output != "json" {
				return usage("--output %q: choose text or json", output)
			}
			if err := knownRules(only); err != nil {
				return err
			}
			paths, err := runner.Histories(args[0])
			if err != nil {
				if errors.Is(err, fs.ErrNotExist) {
					return usage("%s: there is no such file or folder", args[0])
				}
				return usage("%w", err)
			}
			if len(paths) == 0 {
				return usage("%s holds no history (*.hist.zst, or the segments of a run that was killed)", args[0])
			}
			result := reports.Result{Schema: reports.Schema, Run: reports.Run{ID: filepath.Base(args[0]), Name: "check", ToolVersion: a.program.Version}}
			for _, p := range paths {
				t, err := runner.Judge(p, only)
				if err != nil {
					return usage("%w", err)
				}
				for _, w := range t.Warnings {
					a.logf("warning: %s: %s", p, w)
				}
				if result.Run.Seed == 0 {
					result.Run.Seed = t.Seed
				}
				result.Trials = append(result.Trials, t)
			}
			result.Exit = reports.ExitCode(&result, strict)
			if output == "json" {
				err = reports.JSON(a.out, &result)
			} else {
				err = reports.Text(a.out, &result, reports.Style{Color: a.colour(noColor), Width: width()})
			}
			if err != nil {
				return &exitError{code: exitInternal, err: err}
			}
			if result.Exit.Code != exitOK {
				return &exitError{code: result.Exit.Code}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&only, "invariant", nil, "judge this invariant only (repeatable)")
	f.StringVarP(&output, "output", "o", "text", "text, json")
	f.BoolVar(&strict, "strict", os.Getenv("CI") != "", "inconclusive and not exercised fail (exit 2)")
	f.BoolVar(&noColor, "no-color", os.Getenv("NO_COLOR") != "", "no colours")
	return cmd
}

func knownRules(only []string) error {
	var known []string
	for _, r := range invariants.Rules() {
		known = append(known, r.Slug, r.ID)
	}
	for _, o := range only {
		if slices.Contains(known, o) {
			continue
		}
		if best, ok := scenarios.Closest(o, known); ok {
			return usage("there is no invariant %q; did you mean %q?", o, best)
		}
		return usage("there is no invariant %q; see eventproof invariants ls", o)
	}
	return nil
}
