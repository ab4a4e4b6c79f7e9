package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/reports"
	"github.com/eventproof/eventproof/runner"
	"github.com/eventproof/eventproof/verdict"
)

// console is stderr: messages, and on a terminal below them a few lines that are drawn again in place.
type console struct {
	w io.Writer

	mu    sync.Mutex
	lines []string // drawn below the messages
}

// message prints one message above the live lines.
func (c *console) message(s string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = io.WriteString(c.w, c.erased()+printable(s)+"\n"+strings.Join(c.lines, "\n"))
}

// draw replaces the live lines; without any it removes them.
func (c *console) draw(lines ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	erase := c.erased()
	c.lines = lines
	if erase+strings.Join(lines, "\n") != "" {
		_, _ = io.WriteString(c.w, erase+strings.Join(lines, "\n"))
	}
}

// erased returns what takes the live lines off the screen.
func (c *console) erased() string {
	if len(c.lines) == 0 {
		return ""
	}
	return "\r\x1b[K" + strings.Repeat("\x1b[A\x1b[K", len(c.lines)-1)
}

// display tells on stderr what goes on: on a terminal in lines that are drawn again, else in a line every few seconds.
type display struct {
	console *console
	mode    string // "tty", "plain", "none"
	total   int    // trials

	mu    sync.Mutex
	done  int // trials
	last  int64
	trial runner.Progress // as reported before
	at    int64           // when that was
}

// plainEvery is the pause between two plain lines of a trial.
const plainEvery = int64(5 * time.Second)

// display returns the display of a run with so many trials.
func (a *app) display(c *common, trials int) *display {
	mode := c.progress
	if mode == "auto" {
		mode = "plain"
		if isTerminal(a.console.w) && os.Getenv("TERM") != "dumb" {
			mode = "tty"
		}
	}
	return &display{console: a.console, mode: mode, total: trials}
}

// update implements runner.Options.Progress.
func (d *display) update(p runner.Progress) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before, at := d.trial, d.at
	d.trial, d.at = p, clock.Monotonic()
	if before.Trial != p.Trial {
		before, at = runner.Progress{}, d.at
	}
	name := fmt.Sprintf("%s × %s  seed %d", p.Target, p.Scenario, p.Seed)
	switch d.mode {
	case "tty":
		place := ""
		if d.total > 1 {
			place = fmt.Sprintf("  %d of %d", d.done+1, d.total)
		}
		w := columns(d.console.w) - 1
		d.console.draw(clip(name+place+"  "+where(p), w), clip("  "+pace(p, before, float64(d.at-at)/1e9), w))
	case "plain":
		// A new phase is said at once, so that a log shows where a run was when it was cut off.
		// Trials of a script last for moments; only their end is told.
		if p.Length == 0 || p.Trial == before.Trial && d.at-d.last < plainEvery && (p.Phase == before.Phase || d.total > manyTrials) {
			return
		}
		d.last = d.at
		d.console.message(name + "  " + where(p) + counts(p))
	}
}

// manyTrials is the number above which not each phase of a trial is worth a line.
const manyTrials = 20

func where(p runner.Progress) string {
	s := p.Phase
	if p.Length > 0 && p.At > 0 {
		s += fmt.Sprintf(" %.0f/%.0f s", min(p.At, p.Length).Seconds(), p.Length.Seconds())
	}
	return s
}

func counts(p runner.Progress) string {
	s := p.Status
	if s.Started == 0 {
		return ""
	}
	return fmt.Sprintf("  %d ok, %d refused, %d unknown, %d conflicts, %d projected", s.OK, s.Refused, s.Unknown, s.Conflicts, s.Applied)
}

// pace shows rates since the report before, and sums of what should be rare. A role that was killed counts from
// zero again, so that a rate may have no sense for a moment.
func pace(p, before runner.Progress, seconds float64) string {
	s, b := p.Status, before.Status
	if s.Started == 0 {
		return ""
	}
	rate := func(now, then int64) string {
		if seconds < 0.2 || now < then {
			return "–"
		}
		return fmt.Sprintf("%.0f", float64(now-then)/seconds)
	}
	return fmt.Sprintf("%s ok/s  %s refused/s  %s conflicts/s  %s projected/s  %d unknown", rate(s.OK, b.OK), rate(s.Refused, b.Refused),
		rate(s.Conflicts, b.Conflicts), rate(s.Applied, b.Applied), s.Unknown)
}

// ended says how a trial ended.
func (d *display) ended(t reports.Trial) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.done++
	if d.mode == "none" {
		return
	}
	d.console.draw()
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
		word = "PROBLEM " + oneLine(t.Problem)
	}
	d.console.message(fmt.Sprintf("%s × %s  seed %d  %.1f s  %s", t.Target, t.Scenario, t.Seed, t.DurationS, word))
}

func (d *display) close() { d.console.draw() }

func clip(s string, n int) string {
	if r := []rune(s); n > 0 && len(r) > n {
		return string(r[:n])
	}
	return s
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// columns is the width of a terminal, 0 where there is none.
func columns(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(ws.Col)
}

// style is how text goes to stdout: as wide as the terminal, in colours only where they are wanted.
func (a *app) style(noColor bool, folder string) reports.Style {
	const wide = 120
	w := columns(a.out)
	if w == 0 {
		w = wide
	}
	colour := isTerminal(a.out) && os.Getenv("TERM") != "dumb"
	if force := os.Getenv("CLICOLOR_FORCE"); force != "" && force != "0" {
		colour = true
	}
	return reports.Style{Color: colour && !noColor, Width: w, Folder: folder}
}
