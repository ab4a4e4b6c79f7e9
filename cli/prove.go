package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

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
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
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
			}
			return a.proveAll(cmd, &c, ts, seeds)
		},
	}
	c.register(cmd)
	cmd.Flags().StringArrayVarP(&patterns, "target", "t", nil, "only these targets (repeatable)")
	cmd.Flags().BoolVar(&quick, "quick", false, "one seed of every row")
	cmd.Flags().IntVar(&seeds, "seeds", 20, "seeds of every row")
	return cmd
}

func (a *app) proveAll(cmd *cobra.Command, c *common, ts []targets.Target, seeds int) error {
	ctx := cmd.Context()
	library, err := scenarios.Library()
	if err != nil {
		return &exitError{code: exitInternal, err: err}
	}
	pairings, err := runner.Pairings(ts, library)
	if err != nil {
		return &exitError{code: exitInternal, err: err}
	}
	if len(pairings) == 0 {
		return usage("none of these targets is a control with a script")
	}
	s, err := a.open(c, "prove", a.args)
	if err != nil {
		return err
	}
	display := a.display(c)
	r := runner.New(a.program, runner.Options{Dir: s.dir, Keep: c.keep, Progress: display.update})
	defer r.Close()
	var proofs []runner.Proof
	code := exitOK
	for _, p := range pairings {
		server, err := s.server(ctx, p.Target)
		if err != nil {
			return &exitError{code: exitEnvironment, err: errors.Join(err, s.close())}
		}
		proof := r.Prove(ctx, p, server, seeds, display.trial)
		proofs = append(proofs, proof)
		if !proof.OK() {
			code = 1
		}
	}
	display.close()
	if err := s.close(); err != nil {
		a.logf("note: stopping the stores: %v", err)
	}
	if err := writeProofs(s.dir, proofs); err != nil {
		return &exitError{code: exitEnvironment, err: err}
	}
	if c.output == "json" {
		enc := json.NewEncoder(a.out)
		enc.SetIndent("", " ")
		err = enc.Encode(proofs)
	} else {
		err = proofTable(a.out, proofs)
		a.printf("\nwritten to %s\n", filepath.Join(s.dir, "prove.json"))
	}
	if err != nil {
		return &exitError{code: exitInternal, err: err}
	}
	var stopped *runner.Interrupted
	if errors.As(contextCause(ctx), &stopped) && code == exitOK {
		code = 128 + int(stopped.Signal)
	}
	if code != exitOK {
		return &exitError{code: code}
	}
	return nil
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
	wrong := 0
	row := func(mark, target, script, result string) {
		fmt.Fprintf(&b, "%s %-32s %-16s %s\n", mark, target, script, result)
	}
	b.WriteString("CONTROLS: each must be caught by its whole must list in every seed\n")
	for _, p := range proofs {
		if p.Control == "" {
			continue
		}
		mark := "✓"
		if !p.OK() {
			mark = "✗"
			wrong++
		}
		var fired []string
		for _, name := range slices.Sorted(maps.Keys(p.Fired)) {
			must := ""
			if slices.Contains(p.Must, name) {
				must = "*"
			}
			fired = append(fired, fmt.Sprintf("%s%s %d", name, must, p.Fired[name]))
		}
		row(mark, p.Target, p.Script, fmt.Sprintf("caught in %d of %d seeds: %s", p.Caught, p.Seeds, strings.Join(fired, ", ")))
		for _, s := range p.Wrong {
			fmt.Fprintf(&b, "    %s\n", s)
		}
	}
	b.WriteString("\nCORRECT ASSEMBLIES: the same scripts must leave them alone\n")
	for _, p := range proofs {
		if p.Control != "" {
			continue
		}
		mark := "✓"
		if !p.OK() {
			mark = "✗"
			wrong++
		}
		row(mark, p.Target, p.Script, fmt.Sprintf("left alone in %d of %d seeds", p.Caught, p.Seeds))
		for _, s := range p.Wrong {
			fmt.Fprintf(&b, "    %s\n", s)
		}
	}
	fmt.Fprintf(&b, "\n* in the must list. %d rows, %d wrong.\n", len(proofs), wrong)
	_, err := io.WriteString(w, b.String())
	return err
}
