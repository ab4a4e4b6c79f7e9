package runner_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appcontrols "github.com/eventproof/eventproof/app/controls"
	"github.com/eventproof/eventproof/reports"
	"github.com/eventproof/eventproof/runner"
	"github.com/eventproof/eventproof/scenarios"
	"github.com/eventproof/eventproof/targets/all"
	"github.com/eventproof/eventproof/verdict"
)

func newProgram() (runner.Program, error) {
	registry, err := all.Registry()
	return runner.Program{Version: "test", Targets: registry, Parts: appcontrols.Parts()}, err
}

func program(t *testing.T) runner.Program {
	t.Helper()
	p, err := newProgram()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func scenario(t *testing.T, name string) scenarios.Scenario {
	t.Helper()
	library, err := scenarios.Library()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range library {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no scenario %q", name)
	return scenarios.Scenario{}
}

// run runs one trial on a target without a server.
func run(t *testing.T, target, name string, length time.Duration) reports.Trial {
	t.Helper()
	p := program(t)
	tg, ok := p.Targets.Find(target)
	if !ok {
		t.Fatalf("no target %q", target)
	}
	r := runner.New(p, runner.Options{Dir: t.TempDir(), For: length})
	defer r.Close()
	return r.Run(context.Background(), runner.Spec{Scenario: scenario(t, name), Target: tg, Seed: 7}, nil)
}

func TestARandomRunOfTheReferenceHolds(t *testing.T) {
	for _, name := range []string{"hot-account", "hot-auction"} {
		t.Run(name, func(t *testing.T) {
			trial := run(t, "memory/reference", name, 2*time.Second)
			if trial.Problem != "" {
				t.Fatal(trial.Problem)
			}
			if trial.Metrics.Commands.OK == 0 {
				t.Error("nothing was done")
			}
			for _, v := range trial.Verdicts {
				if v.Verdict == verdict.Violated || v.Verdict == verdict.Error || v.Verdict == verdict.Inconclusive {
					t.Errorf("%s: %s %s %+v", v.Invariant, v.Verdict, v.Reason, v.Violations)
				}
			}
		})
	}
}

func TestCheckGivesTheVerdictsOfTheRun(t *testing.T) {
	p := program(t)
	tg, _ := p.Targets.Find("memory/reference")
	dir := t.TempDir()
	r := runner.New(p, runner.Options{Dir: dir, For: time.Second})
	defer r.Close()
	live := r.Run(context.Background(), runner.Spec{Scenario: scenario(t, "hot-account"), Target: tg, Seed: 3}, nil)
	again, err := runner.Judge(filepath.Join(dir, live.History.File), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(again.Verdicts) != len(live.Verdicts) || len(live.Verdicts) == 0 {
		t.Fatalf("%d verdicts, then %d", len(live.Verdicts), len(again.Verdicts))
	}
	for i := range live.Verdicts {
		if live.Verdicts[i].Verdict != again.Verdicts[i].Verdict || live.Verdicts[i].Reason != again.Verdicts[i].Reason {
			t.Errorf("%s: %s, then %s", live.Verdicts[i].Invariant, live.Verdicts[i].Verdict, again.Verdicts[i].Verdict)
		}
	}
}

func TestAHistoryThatDoesNotFitIsJudgedInParts(t *testing.T) {
	p := program(t)
	tg, _ := p.Targets.Find("memory/reference")
	dir := t.TempDir()
	r := runner.New(p, runner.Options{Dir: dir, For: time.Second})
	defer r.Close()
	live := r.Run(context.Background(), runner.Spec{Scenario: scenario(t, "soak-bank"), Target: tg, Seed: 3}, nil)
	file := filepath.Join(dir, live.History.File)
	apart, err := runner.Judge(file, nil, 500*live.History.Records/3)
	if err != nil {
		t.Fatal(err)
	}
	if len(apart.Warnings) == 0 || !strings.Contains(apart.Warnings[len(apart.Warnings)-1], "judged in 4 parts") {
		t.Errorf("warnings: %q", apart.Warnings)
	}
	if apart.Metrics.Commands.OK != 0 {
		t.Error("numbers of a part are given as those of the whole")
	}
	judged := 0
	for i, v := range apart.Verdicts {
		want := live.Verdicts[i]
		switch {
		case v.Verdict == want.Verdict && v.Invariant == want.Invariant:
			judged++
		case v.Verdict != verdict.Inconclusive || !strings.Contains(v.Reason, "--memory"):
			t.Errorf("%s: %s, in parts %s (%s)", want.Invariant, want.Verdict, v.Verdict, v.Reason)
		}
	}
	if judged < 10 {
		t.Errorf("only %d verdicts are the same", judged)
	}
}
