package extending_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/eventproof/eventproof/extending/shelf"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/verdict"
)

// green asserts that a trial gives no reason to doubt the target.
func green(t *testing.T, target targets.Target, name string, seed uint64, length time.Duration) {
	t.Helper()
	trial := run(t, target, name, seed, length)
	if trial.Problem != "" {
		t.Fatal(trial.Problem)
	}
	for _, slug := range with(trial, verdict.Violated, verdict.Error, verdict.Inconclusive) {
		t.Error(tell(trial, slug))
	}
	if len(with(trial, verdict.Holds)) < 10 {
		t.Errorf("only %v hold: nothing was tried", with(trial, verdict.Holds))
	}
}

func TestTheShelfStaysGreenOverManySeeds(t *testing.T) {
	for seed := range uint64(20) {
		for _, name := range []string{"soak-bank", "soak-auction"} {
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				t.Parallel()
				green(t, shelf.Target(), name, seed, time.Second)
			})
		}
	}
}
func TestTheShelfStaysGreenUnderTheStandardLoad(t *testing.T) {
	for _, name := range []string{"hot-account", "hot-auction"} {
		for seed := range uint64(2) {
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				t.Parallel()
				green(t, shelf.Target(), name, seed, 2*time.Second)
			})
		}
	}
}
