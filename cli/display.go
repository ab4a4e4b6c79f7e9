package cli

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/reports"
	"github.com/eventproof/eventproof/runner"
	"github.com/eventproof/eventproof/verdict"
)

// display tells on stderr what goes on: on a terminal one line that is drawn again, else a line every few seconds.
type display struct {
	a    *app
	mode string // "tty", "plain", "none"

	mu   sync.Mutex
	last int64
	open bool // an unfinished line stands on the terminal
}

const plainEvery = int64(5e9)

func (a *app) display(c *common) *display {
	mode := c.progress
	if mode == "auto" {
		mode = "plain"
		if isTerminal(os.Stderr) {
			mode = "tty"
		}
	}
	return &display{a: a, mode: mode}
}

// update implements runner.Options.Progress.
func (d *display) update(p runner.Progress) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mode == "none" {
		return
	}
	s := p.Status
	line := fmt.Sprintf("%-28s %-12s %6d ok  %5d refused  %4d unknown  %5d conflicts  %6d projected",
		p.Target, p.Scenario, s.OK, s.Refused, s.Unknown, s.Conflicts, s.Applied)
	if d.mode == "tty" {
		_, _ = fmt.Fprintf(d.a.err, "\r\x1b[K%s", clip(line, width()-1))
		d.open = true
		return
	}
	now := clock.Monotonic()
	if s.Started > 0 && now-d.last < plainEvery {
		return
	}
	d.last = now
	if s.Started == 0 {
		line = fmt.Sprintf("%-28s %-12s started", p.Target, p.Scenario)
	}
	d.a.logf("%s", line)
}

// trial says how a trial ended.
func (d *display) trial(t reports.Trial) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mode == "none" {
		return
	}
	d.clear()
	violated, undecided, holds := []string{}, 0, 0
	for _, v := range t.Verdicts {
		switch v.Verdict {
		case verdict.Violated:
			violated = append(violated, v.Invariant)
		case verdict.Holds:
			holds++
		case verdict.Inconclusive, verdict.Error:
			undecided++
		case verdict.NotExercised:
			if v.Required {
				undecided++
			}
		case verdict.NotPromised:
		}
	}
	word := fmt.Sprintf("%d hold", holds)
	if undecided > 0 {
		word += fmt.Sprintf(", %d undecided", undecided)
	}
	if len(violated) > 0 {
		word = "VIOLATED " + strings.Join(violated, ", ")
	}
	if t.Problem != "" {
		word = "PROBLEM " + t.Problem
	}
	d.a.logf("%-28s %-12s seed %-4d %5.1f s  %s", t.Target, t.Scenario, t.Seed, t.DurationS, word)
}

func (d *display) clear() {
	if d.open {
		_, _ = fmt.Fprint(d.a.err, "\r\x1b[K")
		d.open = false
	}
}

func (d *display) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clear()
}

func clip(s string, n int) string {
	if n > 0 && len(s) > n {
		return s[:n]
	}
	return s
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// width of the terminal, or 120 where there is none.
func width() int {
	ws, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ)
	if err != nil || ws.Col < 60 {
		return 120
	}
	return int(ws.Col)
}

func (a *app) colour(off bool) bool {
	f, ok := a.out.(*os.File)
	return !off && ok && isTerminal(f) && os.Getenv("TERM") != "dumb"
}
