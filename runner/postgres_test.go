package runner_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/eventproof/eventproof/provision"
	"github.com/eventproof/eventproof/provision/all"
	"github.com/eventproof/eventproof/reports"
	"github.com/eventproof/eventproof/roles"
	"github.com/eventproof/eventproof/runner"
	"github.com/eventproof/eventproof/verdict"
)

// TestMain lets the test binary serve as the program that child roles run.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "role" {
		p, err := newProgram()
		if err == nil {
			err = roles.Main(context.Background(), os.Args[2], p.Targets, p.Parts)
		}
		if err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// postgres starts a server for one test, or skips it loudly.
func postgres(t *testing.T) *provision.Server {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED in short mode: needs a Postgres server")
	}
	s, err := all.Select(context.Background(), "postgres", provision.Options{Fetch: true, Log: func(m string) { t.Log(m) }})
	if errors.Is(err, provision.ErrNoServer) {
		t.Skipf("SKIPPED: no Postgres to be had: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func runOn(t *testing.T, server runner.Server, target, name string, length time.Duration) reports.Trial {
	t.Helper()
	p := program(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p.Exe = exe
	tg, ok := p.Targets.Find(target)
	if !ok {
		t.Fatalf("no target %q", target)
	}
	r := runner.New(p, runner.Options{Dir: t.TempDir(), For: length})
	defer r.Close()
	trial := r.Run(context.Background(), runner.Spec{Scenario: scenario(t, name), Target: tg, Seed: 11}, server)
	if trial.Problem != "" {
		t.Fatal(trial.Problem)
	}
	return trial
}

func nothingViolated(t *testing.T, trial reports.Trial) {
	t.Helper()
	if len(trial.Verdicts) == 0 {
		t.Fatal("nothing was judged")
	}
	for _, v := range trial.Verdicts {
		switch v.Verdict {
		case verdict.Violated, verdict.Error, verdict.Inconclusive:
			t.Errorf("%s: %s %s %+v", v.Invariant, v.Verdict, v.Reason, v.Violations)
		case verdict.Holds, verdict.NotExercised, verdict.NotPromised:
		}
	}
}

func fault(t *testing.T, trial reports.Trial, id string) reports.Fault {
	t.Helper()
	for _, f := range trial.Faults {
		if f.ID == id {
			return f
		}
	}
	t.Fatalf("no fault %q", id)
	return reports.Fault{}
}

func TestCommandsOfAKilledWriterProcessAreContinuedByItsSuccessor(t *testing.T) {
	server := postgres(t)
	for _, target := range []string{"postgres/advisory-lock", "postgres/xid-horizon"} {
		t.Run(target, func(t *testing.T) {
			trial := runOn(t, server, target, "hot-auction", 9*time.Second)
			nothingViolated(t, trial)
			for _, id := range []string{"kill-writer", "kill-projector"} {
				if f := fault(t, trial, id); !f.Observed {
					t.Errorf("%s did not bite: %s", id, f.Effect)
				}
			}
			if trial.Metrics.Commands.OK == 0 || trial.Metrics.Commands.Refused == 0 {
				t.Errorf("too little happened: %+v", trial.Metrics.Commands)
			}
		})
	}
}

func TestAcknowledgedEventsSurviveAKilledServer(t *testing.T) {
	server := postgres(t)
	trial := runOn(t, server, "postgres/xid-horizon", "store-crash", 9*time.Second)
	nothingViolated(t, trial)
	for _, id := range []string{"kill-store", "pause-store"} {
		if f := fault(t, trial, id); !f.Observed {
			t.Errorf("%s did not bite: %s", id, f.Effect)
		}
	}
}
