package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/eventproof/eventproof/reports"
)

// one decodes a file that must hold one JSON value and nothing else.
func one(text string, v any) error {
	d := json.NewDecoder(strings.NewReader(text))
	if err := d.Decode(v); err != nil {
		return err
	}
	if token, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("something follows the JSON value: %v, %w", token, err)
	}
	return nil
}

// jsonOnly checks that a file, or stdout, holds one JSON value and nothing else.
func jsonOnly(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: json FILE")
	}
	var v any
	ts.Check(one(ts.ReadFile(args[0]), &v))
}

// sameVerdicts checks that two results of the same trials agree in every verdict, witness, number and gate, and in
// the exit code.
func sameVerdicts(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: sameverdicts RESULT RESULT")
	}
	var a, b reports.Result
	ts.Check(one(ts.ReadFile(args[0]), &a))
	ts.Check(one(ts.ReadFile(args[1]), &b))
	ts.Check(sameResult(&a, &b))
}

func sameResult(a, b *reports.Result) error {
	if len(a.Trials) != len(b.Trials) || len(a.Trials) == 0 {
		return fmt.Errorf("%d trials and %d", len(a.Trials), len(b.Trials))
	}
	for _, x := range a.Trials {
		i := slices.IndexFunc(b.Trials, func(y reports.Trial) bool { return y.ID == x.ID })
		if i < 0 {
			return fmt.Errorf("trial %s is in one result only", x.ID)
		}
		y := b.Trials[i]
		if len(x.Verdicts) == 0 {
			return fmt.Errorf("trial %s has no verdicts", x.ID)
		}
		for _, part := range []struct {
			name string
			a, b any
		}{{"verdicts", withoutPaths(x), withoutPaths(y)}, {"metrics", x.Metrics, y.Metrics}, {"faults", x.Faults, y.Faults}, {"series", x.Series, y.Series}} {
			if err := same(part.name, part.a, part.b); err != nil {
				return err
			}
		}
	}
	if len(a.Gates) != len(b.Gates) {
		return fmt.Errorf("%d gates and %d", len(a.Gates), len(b.Gates))
	}
	if a.Exit.Code != b.Exit.Code {
		return fmt.Errorf("exit code %d and %d", a.Exit.Code, b.Exit.Code)
	}
	return nil
}

// withoutPaths drops the commands of a violation, which name the file as it was found.
func withoutPaths(t reports.Trial) any {
	vs := slices.Clone(t.Verdicts)
	for i := range vs {
		vs[i].Violations = slices.Clone(vs[i].Violations)
		for j := range vs[i].Violations {
			vs[i].Violations[j].Recheck = ""
		}
	}
	return vs
}

func same(what string, a, b any) error {
	x, err := json.MarshalIndent(a, "", " ")
	if err != nil {
		return err
	}
	y, err := json.MarshalIndent(b, "", " ")
	if err != nil {
		return err
	}
	if bytes.Equal(x, y) || reflect.DeepEqual(a, b) {
		return nil
	}
	return fmt.Errorf("%s differ:\n%s\n---\n%s", what, x, y)
}
