package cli_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/eventproof/eventproof/reports"
)

// process is one that /proc shows; pid and start time name it as long as the machine is up.
type process struct {
	pid   int
	start string
}

// stat reads a line of /proc/PID/stat; the name may hold anything, the fields follow its closing parenthesis.
func stat(pid int) (p process, ppid int, state string, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, 0, "", false
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	ppid, err = strconv.Atoi(f[1])
	return process{pid, f[19]}, ppid, f[0], err == nil
}

func (p process) runs() bool {
	now, _, state, ok := stat(p.pid)
	return ok && now == p && state != "Z" && state != "X"
}

// descendants lists the processes below one, by parent relation.
func descendants(t *testing.T, root int) []process {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	children := map[int][]process{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, ppid, _, ok := stat(pid); ok {
			children[ppid] = append(children[ppid], p)
		}
	}
	var out []process
	for next := children[root]; len(next) > 0; {
		p := next[0]
		next = append(next[1:], children[p.pid]...)
		out = append(out, p)
	}
	return out
}

// awaitGone waits until none of the processes runs.
func awaitGone(t *testing.T, ps []process, within time.Duration) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		ps = slices.DeleteFunc(ps, func(p process) bool { return !p.runs() })
		if len(ps) == 0 {
			return
		}
		if time.Now().After(deadline) {
			for _, p := range ps {
				b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
				t.Errorf("still there after %s: process %d: %q (%v)", within, p.pid, b, err)
			}
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// program is eventproof as a process of its own.
type program struct {
	t       *testing.T
	cmd     *exec.Cmd
	dir     string // working folder; results go to dir/results
	servers string // TMPDIR: data folders of servers
	stdout  bytes.Buffer
	ended   chan struct{}

	mu    sync.Mutex
	lines []string // of stderr
	more  chan struct{}
}

// startProgram starts eventproof. The process is killed and waited for at the end of the test.
func startProgram(t *testing.T, dir, servers string, args ...string) *program {
	t.Helper()
	p := &program{t: t, dir: dir, servers: servers, ended: make(chan struct{}), more: make(chan struct{}, 1)}
	p.cmd = exec.Command("eventproof", args...)
	p.cmd.Dir = dir
	p.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "CI=") || strings.HasPrefix(v, "GITHUB_") || strings.HasPrefix(v, "TMPDIR=")
	})
	p.cmd.Env = append(p.cmd.Env, "TMPDIR="+servers)
	p.cmd.Stdout = &p.stdout
	pipe, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		for s := bufio.NewScanner(pipe); s.Scan(); {
			p.mu.Lock()
			p.lines = append(p.lines, s.Text())
			p.mu.Unlock()
			select {
			case p.more <- struct{}{}:
			default:
			}
		}
		_ = p.cmd.Wait() // how it ended stands in ProcessState
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // most have ended long ago
		<-p.ended
	})
	return p
}

func (p *program) stderr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}

// await waits until cond holds for stderr, or the program has ended.
func (p *program) await(what string, cond func(stderr string) bool) {
	p.t.Helper()
	limit := time.NewTimer(90 * time.Second)
	defer limit.Stop()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for !cond(p.stderr()) {
		select {
		case <-p.more:
		case <-poll.C:
		case <-p.ended:
			if !cond(p.stderr()) {
				p.t.Fatalf("it ended before %s:\n%s", what, p.stderr())
			}
			return
		case <-limit.C:
			p.t.Fatalf("waited for %s:\n%s", what, p.stderr())
		}
	}
}

// awaitPhase waits until the display has shown a phase.
func (p *program) awaitPhase(name string) {
	p.t.Helper()
	p.await("phase "+name, func(s string) bool { return strings.Contains(s, "  "+name) })
}

// awaitServerFolder waits until a server is being made.
func (p *program) awaitServerFolder() {
	p.t.Helper()
	p.await("a server's folder", func(string) bool {
		found, err := filepath.Glob(filepath.Join(p.servers, "*"))
		return err == nil && len(found) > 0
	})
}

func (p *program) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatal(err)
	}
}

// wait returns the exit code, or 128+n when signal n ended the process.
func (p *program) wait(within time.Duration) int {
	p.t.Helper()
	limit := time.NewTimer(within)
	defer limit.Stop()
	select {
	case <-p.ended:
	case <-limit.C:
		p.t.Fatalf("it did not end within %s:\n%s", within, p.stderr())
	}
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return p.cmd.ProcessState.ExitCode()
}

// results returns the folder of the run, "" if there is none.
func (p *program) results() string {
	p.t.Helper()
	found, err := filepath.Glob(filepath.Join(p.dir, "results", "2*"))
	if err != nil {
		p.t.Fatal(err)
	}
	if len(found) > 1 {
		p.t.Fatalf("several results: %q", found)
	}
	if len(found) == 0 {
		return ""
	}
	return found[0]
}

// result reads result.json.
func (p *program) result() *reports.Result {
	p.t.Helper()
	r, err := reports.Read(filepath.Join(p.results(), "result.json"))
	if err != nil {
		p.t.Fatalf("%v\n%s", err, p.stderr())
	}
	return r
}

// nothingLeft checks that no data folder of a server and no file half written is there.
func nothingLeft(t *testing.T, p *program) {
	t.Helper()
	if found, err := os.ReadDir(p.servers); err != nil || len(found) > 0 {
		t.Errorf("left in TMPDIR: %v %v", found, err)
	}
	if p.results() == "" {
		return
	}
	err := filepath.WalkDir(p.results(), func(path string, _ os.DirEntry, err error) error {
		if strings.Contains(filepath.Base(path), ".tmp-") || strings.HasPrefix(filepath.Base(path), ".") {
			t.Errorf("left half written: %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// checkAgain runs `eventproof check` on a run's folder.
func checkAgain(t *testing.T, dir string, flags ...string) (code int, r *reports.Result, stderr string) {
	t.Helper()
	cmd := exec.Command("eventproof", append([]string{"check", dir, "-o", "json"}, flags...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	code = cmd.ProcessState.ExitCode()
	if strings.Contains(errs.String(), "goroutine ") {
		t.Errorf("check panicked:\n%s", errs.String())
	}
	if code != reports.ExitUsage {
		r = new(reports.Result)
		if err := json.Unmarshal(out.Bytes(), r); err != nil {
			t.Fatalf("check, exit code %d: %v\n%s\n%s", code, err, out.String(), errs.String())
		}
	}
	return code, r, errs.String()
}

// writeScenario writes a scenario with a long load and returns its file. Roles are processes where the target has them.
func writeScenario(t *testing.T, dir, load string) string {
	t.Helper()
	path := filepath.Join(dir, "long.yaml")
	if err := os.WriteFile(path, []byte(`version: 1
name: long
workload: {kind: bank, streams: 6, initialBalance: 10000, mix: {withdraw: 0.6, deposit: 0.4}}
load: {model: open, rate: 150, workers: 8, deadline: 1s, try: 400ms, phases: [{name: calm, for: `+load+`}]}
roles: {writers: 2, writerProcess: true, projectors: 1, projectorProcess: true}
expect: [no-lost-ack, complete-history, projection-equals-fold]
`), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
