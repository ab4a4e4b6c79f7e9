package cli_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/eventproof/eventproof/invariants"
	"github.com/eventproof/eventproof/provision"
	"github.com/eventproof/eventproof/reports"
	"github.com/eventproof/eventproof/verdict"
)

// kills returns how often runs are killed: a few times, or EVENTPROOF_KILLS times.
func kills(t *testing.T) int {
	t.Helper()
	s := os.Getenv("EVENTPROOF_KILLS")
	if s == "" {
		return 2
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("EVENTPROOF_KILLS: %v", err)
	}
	return n
}

// TestAfterKillOfTheRunnerNothingRunsAndWhatIsThereIsJudged kills the runner with SIGKILL at random moments: in turn
// anywhere between its start and its end, and anywhere in the trial.
func TestAfterKillOfTheRunnerNothingRunsAndWhatIsThereIsJudged(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("EVENTPROOF_KILL_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("EVENTPROOF_KILL_SEED: %v", err)
		}
	}
	for _, target := range []string{"memory/reference", "postgres/xid-horizon"} {
		t.Run(target, func(t *testing.T) {
			if strings.HasPrefix(target, "postgres/") {
				needPostgres(t)
			}
			rnd := rand.New(rand.NewPCG(seed, 1))
			t.Logf("EVENTPROOF_KILL_SEED=%d", seed)
			begin, whole := wholeRun(t, target)
			found := map[string]int{}
			for i := range kills(t) {
				trial, length := i%2 == 0, whole
				if trial {
					length = whole - begin
				}
				found[killOnce(t, target, trial, time.Duration(rnd.Float64()*float64(length)))]++
			}
			t.Logf("a whole run took %s, its trial began after %s; killed: %v", whole.Round(time.Millisecond), begin.Round(time.Millisecond), found)
		})
	}
}

const killedLoad = "1500ms"

// wholeRun measures the time in which to kill, and after how much of it the trial begins.
func wholeRun(t *testing.T, target string) (begin, whole time.Duration) {
	t.Helper()
	dir, servers := t.TempDir(), serverFolder(t)
	start := time.Now()
	p := startProgram(t, dir, servers, "run", "-s", writeScenario(t, dir, killedLoad), "-t", target, "--progress", "plain")
	p.awaitPhase("set-up")
	begin = time.Since(start)
	if code := p.wait(2 * time.Minute); code != 0 && code != reports.ExitUndecided {
		t.Fatalf("exit code %d\n%s", code, p.stderr())
	}
	nothingLeft(t, p)
	return begin, time.Since(start)
}

// killOnce runs, kills after a while from the start of the program or of the trial, and checks; it says what was found.
func killOnce(t *testing.T, target string, trial bool, after time.Duration) string {
	t.Helper()
	dir, servers := t.TempDir(), serverFolder(t)
	p := startProgram(t, dir, servers, "run", "-s", writeScenario(t, dir, killedLoad), "-t", target, "--progress", "plain")
	from := "the start"
	if trial {
		from = "the trial's start"
		p.awaitPhase("set-up")
	}
	select {
	case <-time.After(after):
	case <-p.ended:
	}
	// Processes may come between this look and the kill; stopped, the runner starts no more.
	p.signal(syscall.SIGSTOP)
	family := descendants(t, p.cmd.Process.Pid)
	p.signal(syscall.SIGKILL)
	p.wait(10 * time.Second)
	killed := time.Now()
	awaitGone(t, family, 10*time.Second)
	gone := time.Since(killed)

	what := judgeKilled(t, p)
	t.Logf("killed %s after %s with %d processes below it, gone after %s: %s",
		after.Round(time.Millisecond), from, len(family), gone.Round(time.Millisecond), what)

	sweep(t, dir, servers)
	if left, err := os.ReadDir(servers); err != nil || len(left) > 0 {
		t.Errorf("left in TMPDIR after the next start: %v %v", left, err)
	}
	if rec := records(t, servers); len(rec) > 0 {
		t.Errorf("records of servers are left: %q", rec)
	}
	return what
}

// judgeKilled checks what `check` says of a run that was killed.
func judgeKilled(t *testing.T, p *program) string {
	t.Helper()
	if p.results() == "" {
		return "before the results folder"
	}
	code, r, stderr := checkAgain(t, p.results(), "--strict=false")
	if r == nil {
		if !strings.Contains(stderr, "holds no history") {
			t.Errorf("check: exit code %d: %s", code, stderr)
		}
		return "before anything was recorded"
	}
	if len(r.Trials) != 1 {
		t.Fatalf("%d trials", len(r.Trials))
	}
	audited := true
	for _, v := range r.Trials[0].Verdicts {
		switch {
		case v.Verdict == verdict.Violated || v.Verdict == verdict.Error:
			t.Errorf("%s: %s: %s %+v", v.Invariant, v.Verdict, v.Reason, v.Violations)
		case needsLog(v.Invariant) && v.Verdict == verdict.Inconclusive && strings.Contains(v.Reason, "no audit"):
			audited = false
		}
	}
	strict, _, _ := checkAgain(t, p.results(), "--strict")
	if audited {
		return "after the audit"
	}
	for _, v := range r.Trials[0].Verdicts {
		if v.Verdict == verdict.NotPromised {
			continue // the target's own words, with and without an audit
		}
		if needsLog(v.Invariant) && (v.Verdict != verdict.Inconclusive || !strings.Contains(v.Reason, "no audit")) {
			t.Errorf("without an audit %s %s: %s", v.Invariant, v.Verdict, v.Reason)
		}
	}
	if code != reports.ExitUndecided || strict != reports.ExitUndecided {
		t.Errorf("check: exit code %d, with --strict %d; want 2: required invariants are inconclusive", code, strict)
	}
	return "before the audit"
}

func needsLog(slug string) bool {
	for _, r := range invariants.Rules() {
		if r.Slug == slug {
			return r.NeedsLog
		}
	}
	return false
}

// records lists the record files of servers whose data is in a folder.
func records(t *testing.T, servers string) []string {
	t.Helper()
	cache, err := provision.DefaultCache()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(cache, "servers", "*"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil && strings.Contains(string(b), servers) {
			out = append(out, f)
		}
	}
	return out
}
