package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/eventproof/eventproof/invariants"
	"github.com/eventproof/eventproof/reports"
	"github.com/eventproof/eventproof/runner"
)

func (a *app) check() *cobra.Command {
	var only []string
	var output, memory string
	var strict, noColor bool
	cmd := &cobra.Command{
		Use:   "check DIR|FILE",
		Short: "Judge a recorded history again; always the same verdicts as the run's",
		Long: `Judges recorded histories: a run's folder, one history file, or the folder of segments that a killed run left.
Nothing is written. What needs the final log is inconclusive where the run was killed before its audit (exit 2).
Verdicts, numbers and exit code are those of the run; its gates are looked up in result.json beside the history.`,
		Example: `  eventproof check results/latest
  eventproof check results/latest --invariant no-overdraft
  eventproof check results/latest/history/t1a2b3c4d5e.hist.zst -o json | jq .exit`,
		Args: one,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := choose("output", output, "text", "json"); err != nil {
				return err
			}
			if err := knownRules(only); err != nil {
				return err
			}
			limit, err := memoryLimit(memory)
			if err != nil {
				return err
			}
			result, err := a.judge(args[0], only, limit)
			if err != nil {
				return err
			}
			result.Exit = reports.ExitCode(result, strict)
			if output == "json" {
				err = reports.JSON(a.out, result)
			} else {
				err = reports.Text(a.out, result, a.style(noColor, ""))
			}
			if err != nil {
				return internal(err)
			}
			return ended(result.Exit.Code)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&only, "invariant", nil, "judge this `INVARIANT` only (repeatable)")
	f.StringVar(&memory, "memory", "", "`SIZE` to be held at once, such as 1GiB; a larger history is judged in parts. Default: half of what is free")
	f.StringVarP(&output, "output", "o", "text", "`FORMAT`: text or json")
	f.BoolVar(&strict, "strict", inCI(), "an inconclusive verdict fails (exit 2) also where it is not required; default with CI")
	f.BoolVar(&noColor, "no-color", os.Getenv("NO_COLOR") != "", "no colours; default with NO_COLOR")
	completeWords(cmd, "output", "text", "json")
	complete(cmd, "invariant", ruleNames)
	return cmd
}

// leastMemory is less than what any history is judged in.
const leastMemory = 16 << 20

// memoryLimit reads the size given by --memory.
func memoryLimit(size string) (uint64, error) {
	if size == "" {
		return runner.SpareMemory(), nil
	}
	n, err := humanize.ParseBytes(size)
	if err != nil {
		return 0, usage("--memory %q is not a size; write for example 512MiB or 2GiB", size)
	}
	if n < leastMemory {
		return 0, usage("--memory %s is less than the least, %s", size, humanize.IBytes(leastMemory))
	}
	return n, nil
}

// judge judges everything below a path. Mistakes about the path are usage errors.
func (a *app) judge(path string, only []string, memory uint64) (*reports.Result, error) {
	if filepath.Base(path) == resultFile {
		path = filepath.Dir(path)
	}
	histories, err := runner.Histories(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, usage("%s: there is no such file or folder", path)
		}
		return nil, usage("%w", err)
	}
	if len(histories) == 0 {
		hint := ""
		if latest := filepath.Join(path, "latest"); exists(latest) {
			hint = "; did you mean " + latest + "?"
		}
		return nil, usage("%s holds no history (*.hist.zst, or the segments of a run that was killed)%s", path, hint)
	}
	result := &reports.Result{Schema: reports.Schema, Run: reports.Run{ID: filepath.Base(path), Name: "check", ToolVersion: a.program.Version, Args: maskArgs(a.args)}}
	for _, p := range histories {
		t, err := runner.Judge(p, only, memory)
		if err != nil {
			if !strings.Contains(err.Error(), p) {
				err = fmt.Errorf("%s: %w", p, err)
			}
			return nil, usage("%w", err)
		}
		for _, w := range t.Warnings {
			a.logf("warning: %s: %s", p, w)
		}
		result.Trials = append(result.Trials, t)
	}
	slices.SortStableFunc(result.Trials, func(x, y reports.Trial) int { return cmp.Compare(x.StartNS, y.StartNS) })
	result.Run.Seed = result.Trials[0].Seed
	if err := a.gatesOfRun(path, result); err != nil {
		return nil, err
	}
	return result, nil
}

// gatesOfRun evaluates the gates that the run had, as its result.json tells them, with the numbers of the history.
func (a *app) gatesOfRun(dir string, result *reports.Result) error {
	if !isDir(dir) {
		return nil
	}
	run, err := reports.Read(filepath.Join(dir, resultFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		a.logf("warning: gates are not judged: %v", err)
		return nil
	}
	for i := range result.Trials {
		t := &result.Trials[i]
		var specs []reports.GateSpec
		for _, g := range run.Gates {
			spec := reports.GateSpec{Metric: g.Metric, Op: g.Op, Limit: g.Limit, File: g.File, Line: g.Line}
			if g.Scenario == t.Scenario && g.Target == t.Target && !slices.Contains(specs, spec) {
				specs = append(specs, spec)
			}
		}
		gates, err := reports.EvaluateGates(t.Scenario, t.Target, specs, t.Metrics)
		if err != nil {
			return usage("%s: %w", filepath.Join(dir, resultFile), err)
		}
		result.Gates = append(result.Gates, gates...)
	}
	for _, t := range run.Trials {
		if t.Problem != "" {
			a.logf("note: the run also had a problem that no history shows: %s × %s: %s", t.Target, t.Scenario, oneLine(t.Problem))
		}
	}
	return nil
}

const resultFile = "result.json"

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

func knownRules(only []string) error {
	var known []string
	for _, r := range invariants.Rules() {
		known = append(known, r.Slug, r.ID)
	}
	for _, o := range only {
		if !slices.Contains(known, o) {
			return usage("%w", unknownName("invariant", o, known, "see eventproof invariants ls"))
		}
	}
	return nil
}
