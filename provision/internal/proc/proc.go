// Package proc is about processes by /proc: who they are, whether they run, and ending them for sure.
package proc

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

// Process is a line of /proc/PID/stat: pid and start time together name a process for as long as the host is up.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks after boot
	ppid  int
	state byte
}

// Of reads /proc/PID/stat; ok is false when there is no such process.
func Of(pid int) (p Process, ok bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Process{}, false
	}
	// The name may hold anything, also blanks and parentheses; the fields follow the last one.
	end := bytes.LastIndexByte(b, ')')
	if end < 0 {
		return Process{}, false
	}
	f := strings.Fields(string(b[end+1:]))
	const stateField, ppidField, startField = 0, 1, 19
	if len(f) <= startField {
		return Process{}, false
	}
	p = Process{PID: pid, state: f[stateField][0]}
	p.ppid, err = strconv.Atoi(f[ppidField])
	if err != nil {
		return Process{}, false
	}
	p.Start, err = strconv.ParseUint(f[startField], 10, 64)
	return p, err == nil
}

// Runs reports whether the process is still there and not a zombie. An orphan stays a zombie until init reaps it,
// and holds nothing any more.
func (p Process) Runs() bool {
	now, ok := Of(p.PID)
	return ok && now.Start == p.Start && now.state != 'Z' && now.state != 'X'
}

// Signal sends a signal if the process is still the same one. A process that is gone is no error.
func (p Process) Signal(sig unix.Signal) error {
	if !p.Runs() {
		return nil
	}
	if err := unix.Kill(p.PID, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("proc: signal %s to process %d: %w", unix.SignalName(sig), p.PID, err)
	}
	return nil
}

// all lists every process that match accepts.
func all(match func(Process) bool) []Process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, ok := Of(pid); ok && match(p) {
			out = append(out, p)
		}
	}
	return out
}

// Children lists the processes whose parent is pid.
func Children(pid int) []Process {
	return all(func(p Process) bool { return p.ppid == pid })
}

// WorkingIn lists the processes whose working folder lies in dir: every process of a server works in its data folder.
func WorkingIn(dir string) []Process {
	return all(func(p Process) bool {
		cwd, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(p.PID), "cwd"))
		return err == nil && (cwd == dir || strings.HasPrefix(cwd, dir+"/"))
	})
}

// Await polls cond until it holds; err says what was waited for.
func Await(ctx context.Context, what string, cond func() bool) error {
	const pause = 2 * time.Millisecond
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("proc: waiting until %s: %w", what, ctx.Err())
		}
	}
	return nil
}

// KillAll kills processes and waits until they hold nothing any more.
func KillAll(ctx context.Context, ps []Process) error {
	var errs []error
	for _, p := range ps {
		errs = append(errs, p.Signal(unix.SIGKILL))
	}
	errs = append(errs, Await(ctx, "the server's processes are gone", func() bool {
		for _, p := range ps {
			if p.Runs() {
				return false
			}
		}
		return true
	}))
	return errors.Join(errs...)
}

// BootID names the time since the host came up; "" if that is not known.
func BootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// Freeze stops a process and returns when it has stopped or is gone.
func (p Process) Freeze(ctx context.Context) error {
	if err := p.Signal(unix.SIGSTOP); err != nil {
		return err
	}
	return Await(ctx, "the process has stopped", func() bool {
		now, ok := Of(p.PID)
		return !ok || now.Start != p.Start || now.state == 'T' || now.state == 'Z' || now.state == 'X'
	})
}
