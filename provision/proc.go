package provision

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process is a line of /proc/PID/stat: pid and start time together name a process for as long as the host is up.
type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks after boot
	ppid  int
	state byte
}

// statOf reads /proc/PID/stat; ok is false when there is no such process.
func statOf(pid int) (p process, ok bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	// The name may hold anything, also blanks and parentheses; the fields follow the last one.
	end := bytes.LastIndexByte(b, ')')
	if end < 0 {
		return process{}, false
	}
	f := strings.Fields(string(b[end+1:]))
	const stateField, ppidField, startField = 0, 1, 19
	if len(f) <= startField {
		return process{}, false
	}
	p = process{PID: pid, state: f[stateField][0]}
	p.ppid, err = strconv.Atoi(f[ppidField])
	if err != nil {
		return process{}, false
	}
	p.Start, err = strconv.ParseUint(f[startField], 10, 64)
	return p, err == nil
}

// runs reports whether the process is still there and not a zombie. An orphan stays a zombie until init reaps it,
// and holds nothing any more.
func (p process) runs() bool {
	now, ok := statOf(p.PID)
	return ok && now.Start == p.Start && now.state != 'Z' && now.state != 'X'
}

// signal sends a signal if the process is still the same one. A process that is gone is no error.
func (p process) signal(sig unix.Signal) error {
	if !p.runs() {
		return nil
	}
	if err := unix.Kill(p.PID, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("provision: signal %s to process %d: %w", unix.SignalName(sig), p.PID, err)
	}
	return nil
}

// allProcesses lists every process that match accepts.
func allProcesses(match func(process) bool) []process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, ok := statOf(pid); ok && match(p) {
			out = append(out, p)
		}
	}
	return out
}

func childrenOf(pid int) []process {
	return allProcesses(func(p process) bool { return p.ppid == pid })
}

// workingIn lists the processes whose working folder lies in dir: every process of a server works in its data folder.
func workingIn(dir string) []process {
	return allProcesses(func(p process) bool {
		cwd, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(p.PID), "cwd"))
		return err == nil && (cwd == dir || strings.HasPrefix(cwd, dir+"/"))
	})
}

// await polls cond until it holds; err says what was waited for.
func await(ctx context.Context, what string, cond func() bool) error {
	const pause = 2 * time.Millisecond
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("provision: waiting until %s: %w", what, ctx.Err())
		}
	}
	return nil
}

// killAll kills processes and waits until they hold nothing any more.
func killAll(ctx context.Context, ps []process) error {
	var errs []error
	for _, p := range ps {
		errs = append(errs, p.signal(unix.SIGKILL))
	}
	errs = append(errs, await(ctx, "the server's processes are gone", func() bool {
		for _, p := range ps {
			if p.runs() {
				return false
			}
		}
		return true
	}))
	return errors.Join(errs...)
}

func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
