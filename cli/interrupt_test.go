package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/eventproof/eventproof/verdict"
)

// interrupted sends a signal when a run has come to some place, and checks everything that must be so afterwards.
func interrupt(t *testing.T, target, load string, sig syscall.Signal, at func(*program)) {
	t.Helper()
	dir, servers := t.TempDir(), serverFolder(t)
	p := startProgram(t, dir, servers, "run", "-s", writeScenario(t, dir, load), "-t", target, "--progress", "plain")
	at(p)
	family := descendants(t, p.cmd.Process.Pid)
	p.signal(sig)
	code := p.wait(time.Minute)

	if want := 128 + int(sig); code != want {
		t.Errorf("exit code %d, want %d\n%s", code, want, p.stderr())
	}
	awaitGone(t, family, 10*time.Second)
	nothingLeft(t, p)
	r := p.result()
	if r.Exit.Code != code || r.Run.Interrupted == "" {
		t.Errorf("result.json says exit %d, interrupted %q", r.Exit.Code, r.Run.Interrupted)
	}
	for _, file := range []string{"report.html", "junit.xml", "summary.md"} {
		if _, err := os.Stat(filepath.Join(p.results(), file)); err != nil {
			t.Error(err)
		}
	}
	for _, tr := range r.Trials {
		if tr.Problem != "" && !strings.Contains(tr.Problem, "before anything was recorded") {
			t.Errorf("problem: %s", tr.Problem)
		}
		for _, v := range tr.Verdicts {
			if v.Verdict == verdict.Violated || v.Verdict == verdict.Error {
				t.Errorf("%s: %s %s %+v", v.Invariant, v.Verdict, v.Reason, v.Violations)
			}
		}
	}
	if segments, err := filepath.Glob(filepath.Join(p.results(), "history", "*", "*")); err != nil || len(segments) > 0 {
		t.Errorf("segments are left: %q %v", segments, err)
	}
	if code, again, stderr := checkAgain(t, p.results()); again != nil {
		again.Exit.Code = r.Exit.Code // check was not interrupted
		if err := sameResult(r, again); err != nil {
			t.Errorf("check says something else than the run: %v", err)
		}
	} else if len(r.Trials) > 0 && len(r.Trials[0].Verdicts) > 0 {
		t.Errorf("check: exit code %d: %s", code, stderr)
	}
}

func TestAnInterruptedRunOnMemoryIsJudgedAndWritten(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		phase, load string
		sig         syscall.Signal
	}{
		{"set-up", "30s", syscall.SIGINT},
		{"calm", "30s", syscall.SIGTERM},
		{"calm 5/", "30s", syscall.SIGINT},
		{"drain", "300ms", syscall.SIGINT},
	} {
		t.Run(c.phase+" "+c.sig.String(), func(t *testing.T) {
			interrupt(t, "memory/reference", c.load, c.sig, func(p *program) { p.awaitPhase(c.phase) })
		})
	}
}

func TestAnInterruptedRunOnPostgresLeavesNoServerAndNoRole(t *testing.T) {
	t.Parallel()
	needPostgres(t)
	for _, c := range []struct {
		name, load string
		sig        syscall.Signal
		at         func(*program)
	}{
		{"server start", "30s", syscall.SIGINT, (*program).awaitServerFolder},
		{"set-up", "30s", syscall.SIGTERM, func(p *program) { p.awaitPhase("set-up") }},
		{"load", "30s", syscall.SIGINT, func(p *program) { p.awaitPhase("calm") }},
		{"drain", "500ms", syscall.SIGTERM, func(p *program) { p.awaitPhase("drain") }},
		{"audit", "500ms", syscall.SIGINT, func(p *program) { p.awaitPhase("audit") }},
	} {
		t.Run(c.name, func(t *testing.T) { interrupt(t, "postgres/xid-horizon", c.load, c.sig, c.at) })
	}
}

// At the end a signal may come too late; whatever the run then says, its files are whole.
func TestAnInterruptDuringTheReportLosesNothing(t *testing.T) {
	dir, servers := t.TempDir(), serverFolder(t)
	p := startProgram(t, dir, servers, "run", "-s", writeScenario(t, dir, "300ms"), "-t", "memory/reference", "--progress", "plain")
	p.awaitPhase("judge")
	p.signal(syscall.SIGINT)
	code := p.wait(time.Minute)
	nothingLeft(t, p)
	if r := p.result(); r.Exit.Code != code || len(r.Trials) != 1 || len(r.Trials[0].Verdicts) == 0 {
		t.Errorf("exit code %d, result.json says %d with %d trials", code, r.Exit.Code, len(r.Trials))
	}
}

func TestAViolationSeenBeforeAnInterruptStays1(t *testing.T) {
	dir, servers := t.TempDir(), serverFolder(t)
	p := startProgram(t, dir, servers, "run", "-s", "det-cv-mem-01", "-s", writeScenario(t, dir, "30s"), "-t", "memory/reference~cv-mem-01", "--progress", "plain")
	p.awaitPhase("calm")
	p.signal(syscall.SIGINT)
	if code := p.wait(time.Minute); code != 1 {
		t.Errorf("exit code %d\n%s", code, p.stderr())
	}
	if r := p.result(); r.Run.Interrupted != "SIGINT" || r.Exit.Code != 1 || len(r.Trials) != 2 {
		t.Errorf("interrupted %q, exit %d, %d trials", r.Run.Interrupted, r.Exit.Code, len(r.Trials))
	}
}

func TestAnInterruptedProveIsNoEscape(t *testing.T) {
	dir, servers := t.TempDir(), serverFolder(t)
	p := startProgram(t, dir, servers, "prove", "-t", "memory/reference~cv-mem-01", "--seeds", "100000", "--progress", "plain")
	p.await("a seed", func(s string) bool { return strings.Contains(s, "seed 2 ") })
	p.signal(syscall.SIGINT)
	if code := p.wait(time.Minute); code != 130 {
		t.Errorf("exit code %d\n%s", code, p.stdout.String())
	}
	if !strings.Contains(p.stdout.String(), "caught in") {
		t.Errorf("what was proved is not printed:\n%s", p.stdout.String())
	}
}

func TestASecondSignalEndsTheRunAtOnce(t *testing.T) {
	t.Parallel()
	needPostgres(t)
	dir, servers := t.TempDir(), serverFolder(t)
	p := startProgram(t, dir, servers, "run", "-s", writeScenario(t, dir, "30s"), "-t", "postgres/xid-horizon", "--progress", "plain")
	p.awaitPhase("calm")
	family := descendants(t, p.cmd.Process.Pid)
	if len(family) < 5 {
		t.Errorf("only %d processes below the runner: where are server and roles?", len(family))
	}
	p.signal(syscall.SIGINT)
	p.await("the first signal", func(s string) bool { return strings.Contains(s, "again: stop at once") })
	p.signal(syscall.SIGINT)
	if code := p.wait(5 * time.Second); code != 130 || p.cmd.ProcessState.Exited() {
		t.Errorf("exit code %d, exited %t: the signal itself should have ended it", code, p.cmd.ProcessState.Exited())
	}
	awaitGone(t, family, 10*time.Second)
	sweep(t, dir, servers)
	nothingLeft(t, p)
}

// sweep starts eventproof once more; what a run before has left goes with that.
func sweep(t *testing.T, dir, servers string) {
	t.Helper()
	p := startProgram(t, dir, servers, "doctor")
	if code := p.wait(time.Minute); code != 0 {
		t.Errorf("doctor: exit code %d\n%s", code, p.stderr())
	}
}
