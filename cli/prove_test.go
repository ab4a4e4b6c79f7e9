package cli

import (
	"strings"
	"syscall"
	"testing"

	"github.com/eventproof/eventproof/reports"
	"github.com/eventproof/eventproof/runner"
)

func TestOnlyAnEscapeOrAFalseAlarmMakesProveExit1(t *testing.T) {
	good := runner.Proof{Target: "s/a~cv", Control: "cv", Script: "x", Seeds: 2, Caught: 2}
	wrong := runner.Proof{Target: "s/a~cv", Control: "cv", Script: "x", Seeds: 2, Caught: 1, Wrong: []string{"seed 2: escaped no-overdraft"}}
	failed := runner.Proof{Target: "s/a", Script: "x", Seeds: 2, Caught: 1, Problems: []string{"seed 2: the trial failed"}, ProblemKind: reports.ProblemInternal}
	noServer := runner.Proof{Target: "s/a", Script: "x", Problems: []string{"there is no server"}, ProblemKind: reports.ProblemEnvironment}
	for _, c := range []struct {
		name   string
		proofs []runner.Proof
		sig    syscall.Signal
		want   int
	}{
		{"all caught", []runner.Proof{good}, 0, 0},
		{"one escaped", []runner.Proof{good, wrong, failed}, syscall.SIGINT, 1},
		{"a trial failed", []runner.Proof{good, failed, noServer}, 0, 70},
		{"no server", []runner.Proof{good, noServer}, 0, 4},
		{"interrupted", []runner.Proof{good}, syscall.SIGINT, 130},
		{"terminated without a server", []runner.Proof{noServer}, syscall.SIGTERM, 143},
	} {
		if got := proofCode(c.proofs, c.sig); got != c.want {
			t.Errorf("%s: exit code %d, want %d", c.name, got, c.want)
		}
	}
	var b strings.Builder
	if err := proofTable(&b, []runner.Proof{good, wrong, failed, noServer}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"✓ s/a~cv", "✗ s/a~cv", "○ s/a ", "seed 2: escaped no-overdraft", "4 rows, 1 wrong, 2 not decided"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, b.String())
		}
	}
}
