// Package extending_test puts stores written from outside under test: a right one, which has to stay green, and wrong
// ones, each of which has to be caught by the rule that its author's users would name.
package extending_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eventproof/eventproof/app"
	"github.com/eventproof/eventproof/faults/inprocess"
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

// job is one trial of a target that no registry knows.
type job struct {
	target   targets.Target
	scenario string
	seed     uint64
	length   time.Duration // of the load; 0 = as written
}

func (j job) name() string { return fmt.Sprintf("%s/%s/%d", j.target.Variant, j.scenario, j.seed) }

// run runs a job in a folder of its own.
func (j job) run(ctx context.Context, s scenarios.Scenario, dir string) reports.Trial {
	r := runner.New(runner.Program{Version: "test", Targets: &targets.Registry{}, Parts: app.DefaultParts()}, runner.Options{
		Dir: dir, For: j.length, DrainBound: 3 * time.Second,
	})
	defer r.Close()
	return r.Run(ctx, runner.Spec{Scenario: s, Target: j.target, Seed: j.seed}, nil)
}

// atOnce is how many trials run beside each other: they wait more than they work.
const atOnce = 12

// together runs jobs beside each other and gives each trial, the i-th job's, to a test of its own.
func together(t *testing.T, jobs []job, judge func(t *testing.T, i int, trial reports.Trial)) {
	t.Helper()
	trials := make([]reports.Trial, len(jobs))
	free := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i, j := range jobs {
		s, dir := scenario(t, j.scenario), t.TempDir()
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			trials[i] = j.run(t.Context(), s, dir)
		})
	}
	wg.Wait()
	for i, j := range jobs {
		t.Run(j.name(), func(t *testing.T) { judge(t, i, trials[i]) })
	}
}

// playable reports whether a script needs nothing that a store inside the process has not got: other faults, or owners.
func playable(s scenarios.Scenario) bool {
	owned := slices.ContainsFunc(s.Script.Sessions, func(x scenarios.Session) bool { return x.Role == "owner" })
	return !owned && !slices.ContainsFunc(s.Script.Steps, func(st scenarios.Step) bool {
		return st.Fault != nil && !slices.Contains(inprocess.Kinds(), st.Fault.Kind)
	})
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
