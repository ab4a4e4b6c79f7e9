package extending_test

import (
	"strings"
	"testing"
	"time"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/extending/shelf"
	"github.com/eventproof/eventproof/reports"
	"github.com/eventproof/eventproof/verdict"
)

// green asserts that a trial gives no reason to doubt the target.
func green(t *testing.T, _ int, trial reports.Trial) {
	t.Helper()
	if trial.Problem != "" {
		t.Fatal(trial.Problem)
	}
	for _, slug := range with(trial, verdict.Violated, verdict.Error) {
		t.Error(tell(trial, slug))
	}
	for _, slug := range with(trial, verdict.Inconclusive) {
		// On a busy machine a role of a trial of one second may begin too late to be stopped, or to be restarted.
		if slug != "progress" && slug != "complete-history" {
			t.Error(tell(trial, slug))
			continue
		}
		t.Log(tell(trial, slug))
	}
}

func TestTheShelfStaysGreenOverManySeeds(t *testing.T) {
	var jobs []job
	for seed := range uint64(20) {
		for _, name := range []string{"soak-bank", "soak-auction"} {
			jobs = append(jobs, job{shelf.Target(), name, seed, time.Second})
		}
	}
	for _, name := range []string{"hot-account", "hot-auction"} {
		jobs = append(jobs, job{shelf.Target(), name, 1, 2 * time.Second})
	}
	together(t, jobs, func(t *testing.T, i int, trial reports.Trial) {
		green(t, i, trial)
		if held := with(trial, verdict.Holds); len(held) < 10 {
			t.Errorf("only %v hold: little was tried", held)
		}
	})
}

func TestTheShelfStaysGreenInEveryScriptOfTheLibrary(t *testing.T) {
	all, err := library()
	if err != nil {
		t.Fatal(err)
	}
	var jobs []job
	for _, s := range all {
		// A script that stops or cuts what the shelf has not got (a server, a wire) can't be played on it.
		if s.Scripted() && playable(s) {
			jobs = append(jobs, job{shelf.Target(), s.Name, 1, 0})
		}
	}
	if len(jobs) < 8 {
		t.Fatalf("only %d scripts", len(jobs))
	}
	together(t, jobs, green)
}

func TestOtherRightStoresStayGreen(t *testing.T) {
	var jobs []job
	for _, target := range otherRightStores() {
		for _, name := range []string{"crowd-bank.yaml", "crowd-auction.yaml"} {
			jobs = append(jobs, job{target, name, 1, time.Second})
		}
	}
	together(t, jobs, green)
}

func TestWhatIsNotPromisedIsNotHeldAgainstAStore(t *testing.T) {
	fewer := without(shelf.Target(), eventstore.GlobalOrder, eventstore.CompleteFeed)
	together(t, []job{{fewer, "crowd-bank.yaml", 1, time.Second}}, func(t *testing.T, i int, trial reports.Trial) {
		green(t, i, trial)
		silent := strings.Join(with(trial, verdict.NotPromised), " ")
		for _, slug := range []string{"position-order", "no-skipped-checkpoint"} {
			if !strings.Contains(silent, slug) {
				t.Errorf("%s: not-promised was expected", tell(trial, slug))
			}
		}
	})
}
