// Package extending_test puts stores written from outside under test: a right one, which has to stay green, and wrong
// ones, each of which has to be caught by the rule that its author's users would name.
package extending_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eventproof/eventproof/app"
	"github.com/eventproof/eventproof/reports"
	"github.com/eventproof/eventproof/runner"
	"github.com/eventproof/eventproof/scenarios"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/verdict"
)

// library is read once: there are many trials.
var library = sync.OnceValues(scenarios.Library)

// scenario returns a scenario of the library, or of testdata.
func scenario(t *testing.T, name string) scenarios.Scenario {
	t.Helper()
	if strings.HasSuffix(name, ".yaml") {
		s, err := scenarios.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	all, err := library()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(s scenarios.Scenario) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("no scenario %q", name)
	}
	return all[i]
}

// run runs one trial of a target that no registry knows.
func run(t *testing.T, target targets.Target, name string, seed uint64, length time.Duration) reports.Trial {
	t.Helper()
	var registry targets.Registry
	if err := registry.Add(target); err != nil {
		t.Fatal(err)
	}
	r := runner.New(runner.Program{Version: "test", Targets: &registry, Parts: app.DefaultParts()}, runner.Options{
		Dir: t.TempDir(), For: length, DrainBound: 3 * time.Second,
	})
	defer r.Close()
	return r.Run(t.Context(), runner.Spec{Scenario: scenario(t, name), Target: target, Seed: seed}, nil)
}

// with returns the slugs of the verdicts that are v.
func with(trial reports.Trial, vs ...verdict.Verdict) []string {
	var out []string
	for _, r := range trial.Verdicts {
		if slices.Contains(vs, r.Verdict) {
			out = append(out, r.Invariant)
		}
	}
	return out
}

// tell renders a verdict with its first witness.
func tell(trial reports.Trial, slug string) string {
	for _, r := range trial.Verdicts {
		if r.Invariant != slug {
			continue
		}
		s := fmt.Sprintf("%s: %s %s (%d)", slug, r.Verdict, r.Reason, r.Count)
		for i, v := range r.Violations {
			if i == 1 {
				break
			}
			s += "\n    " + v.Summary
			for _, e := range v.Records {
				s += fmt.Sprintf("\n      %-22s %9.3f … %9.3f ms  %s %s", e.Lane, float64(e.StartNS)/1e6, float64(e.EndNS)/1e6, e.What, e.Outcome)
			}
		}
		return s
	}
	return slug + ": not judged"
}
