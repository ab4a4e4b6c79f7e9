package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/eventproof/eventproof/reports"
	"github.com/eventproof/eventproof/runner"
	"github.com/eventproof/eventproof/scenarios"
	"github.com/eventproof/eventproof/targets"
)

func (a *app) prove() *cobra.Command {
	var c common
	var patterns []string
	var quick bool
	var seeds int
	cmd := &cobra.Command{
		Use:   "prove",
		Short: "Prove the checkers: every control must be caught, every correct assembly left alone",
		Long: `Plays the scripted scenarios that were written for the controls. Each control must be caught by every invariant of
its must list, in every seed, and by nothing outside its must and may lists; each correct assembly must be left
alone by the same scripts. Exit 1 if a control escapes or a correct assembly is flagged.`,
		Example: `  eventproof prove --quick
  eventproof prove -t 'memory/*' --seeds 5`,
		Args: none,
		RunE: func(*cobra.Command, []string) error {
			if err := c.validate(); err != nil {
				return err
			}
			if quick {
				seeds = 1
			}
			if seeds < 1 {
				return usage("--seeds %d: at least 1", seeds)
			}
			ts := a.program.Targets.All()
			if len(patterns) > 0 {
				var err error
				if ts, err = a.pickTargets(patterns, "", false); err != nil {
					return err
				}
				if err := c.real(ts); err != nil {
					return err
				}
			} else if c.requireReal.every {
				ts = slices.DeleteFunc(ts, func(t targets.Target) bool { return t.Emulated })
			}
			library, err := scenarios.Library()
			if err != nil {
				return internal(err)
			}
			pairings, err := runner.Pairings(ts, library)
			if err != nil {
				return internal(err)
			}
			if len(pairings) == 0 {
				return usage("none of these targets is a control with a script (eventproof targets ls)")
			}
			return a.interruptible(func(ctx context.Context) error { return a.proveAll(ctx, &c, pairings, seeds) })
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&patterns, "target", "t", nil, "only this `TARGET` or pattern (repeatable)")
	f.BoolVar(&quick, "quick", false, "one seed of every row")
	f.IntVar(&seeds, "seeds", 20, "seeds 1 to `N` of every row")
	c.register(cmd)
	complete(cmd, "target", a.targetNames)
	// The seeds are --seeds, and a script takes the time it takes.
	_, _ = f.MarkHidden("seed"), f.MarkHidden("for")
	return cmd
}

func (a *app) proveAll(ctx context.Context, c *common, pairings []runner.Pairing, seeds int) error {
	s, err := a.open(c, "prove")
	if err != nil {
		return err
	}
	display := a.display(c, len(pairings)*seeds)
	r := runner.New(a.program, runner.Options{Dir: s.dir, Keep: c.keep, Progress: display.update})
	defer r.Close()
	var proofs []runner.Proof
	told := false
	for _, p := range pairings {
		server, noServer := s.server(ctx, p.Target)
		if ctx.Err() != nil {
			break
		}
		if noServer != nil {
			if !told {
				told = true
				a.logf("eventproof: %s", oneLine(noServer.Error()))
			}
			proofs = append(proofs, runner.Unproved(p))
			continue
		}
		proofs = append(proofs, r.Prove(ctx, p, server, seeds, display.ended))
	}
	display.close()
	s.close()
	code := proofCode(proofs, interrupted(ctx))
	var failed error
	if err := writeProofs(s.dir, proofs); err != nil {
		code, failed = worse(code, reports.ExitEnvironment), err
	}
	if c.output == "json" {
		enc := json.NewEncoder(a.out)
		enc.SetIndent("", " ")
		err = enc.Encode(proofs)
	} else {
		err = proofTable(a.out, proofs)
	}
	if err != nil && !errors.Is(err, syscall.EPIPE) {
		code, failed = worse(code, reports.ExitInternal), errors.Join(failed, err)
	}
	if failed != nil {
		return &exitError{code: code, err: failed}
	}
	a.logf("written to %s", filepath.Join(s.dir, "prove.json"))
	return ended(code)
}

// proofCode is 1 only for a control that escaped or a correct assembly that was flagged.
func proofCode(proofs []runner.Proof, sig syscall.Signal) int {
	code := reports.ExitOK
	for _, p := range proofs {
		switch {
		case len(p.Wrong) > 0:
			code = worse(code, reports.ExitViolated)
		case p.ProblemKind == reports.ProblemEnvironment:
			code = worse(code, reports.ExitEnvironment)
		case len(p.Problems) > 0:
			code = worse(code, reports.ExitInternal)
		}
	}
	if sig != 0 {
		code = worse(code, 128+int(sig))
	}
	return code
}

func writeProofs(dir string, proofs []runner.Proof) error {
	if err := reports.WriteFile(filepath.Join(dir, "prove.json"), func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetIndent("", " ")
		return enc.Encode(proofs)
	}); err != nil {
		return err
	}
	return reports.WriteFile(filepath.Join(dir, "prove.txt"), func(w io.Writer) error { return proofTable(w, proofs) })
}

// proofTable prints the detection matrix.
func proofTable(w io.Writer, proofs []runner.Proof) error {
	var b strings.Builder
	wrong, undecided := 0, 0
	row := func(p runner.Proof, result string) {
		mark := "✓"
		switch {
		case len(p.Wrong) > 0:
			mark = "✗"
			wrong++
		case !p.OK():
			mark = "○"
			undecided++
		}
		fmt.Fprintf(&b, "%s %-32s %-16s %s\n", mark, p.Target, p.Script, result)
		for _, s := range slices.Concat(p.Wrong, p.Problems) {
			fmt.Fprintf(&b, "    %s\n", printable(oneLine(s)))
		}
	}
	b.WriteString("CONTROLS: each must be caught by its whole must list in every seed\n")
	for _, p := range proofs {
		if p.Control == "" {
			continue
		}
		var fired []string
		for _, name := range slices.Sorted(maps.Keys(p.Fired)) {
			must := ""
			if slices.Contains(p.Must, name) {
				must = "*"
			}
			fired = append(fired, fmt.Sprintf("%s%s %d", name, must, p.Fired[name]))
		}
		row(p, fmt.Sprintf("caught in %d of %d seeds: %s", p.Caught, p.Seeds, strings.Join(fired, ", ")))
	}
	b.WriteString("\nCORRECT ASSEMBLIES: the same scripts must leave them alone\n")
	for _, p := range proofs {
		if p.Control == "" {
			row(p, fmt.Sprintf("left alone in %d of %d seeds", p.Caught, p.Seeds))
		}
	}
	fmt.Fprintf(&b, "\n* in the must list. %d rows, %d wrong, %d not decided.\n", len(proofs), wrong, undecided)
	_, err := io.WriteString(w, b.String())
	return err
}
