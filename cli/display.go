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
	"github.com/eventproof/eventproof/roles"
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

	mu     sync.Mutex
	done   int             // trials
	told   int64           // when the last plain line was written
	before runner.Progress // as reported before
	base   runner.Progress // what rates are counted from
	baseAt int64
	pace   string // the rates as last shown
}

// paceEvery is the shortest time in seconds over which rates are shown.
const paceEvery = 0.5

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
	now := clock.Monotonic()
	before := d.before
	d.before = p
	if p.Trial != before.Trial {
		d.base, d.baseAt, d.pace = p, now, ""
	}
	if seconds := float64(now-d.baseAt) / 1e9; seconds >= paceEvery {
		d.pace = pace(p.Status, d.base.Status, seconds)
		d.base, d.baseAt = p, now
	}
	name := fmt.Sprintf("%s × %s  seed %d", p.Target, p.Scenario, p.Seed)
	switch d.mode {
	case "tty":
		place := ""
		if d.total > 1 {
			place = fmt.Sprintf("  %d of %d", d.done+1, d.total)
		}
		w := columns(d.console.w) - 4 // room for the ^C that a terminal echoes
		d.console.draw(clip(name+place+"  "+where(p), w), clip("  "+d.pace, w))
	case "plain":
		// A new phase is said at once, so that a log shows where a run was when it was cut off.
		// Trials of a script last for moments; only their end is told.
		if p.Length == 0 || p.Trial == before.Trial && now-d.told < plainEvery && (p.Phase == before.Phase || d.total > manyTrials) {
			return
		}
		d.told = now
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

// pace shows rates since an earlier report, and the sum of what should be rare.
func pace(now, then roles.Status, seconds float64) string {
	if now.Started == 0 {
		return ""
	}
	rate := func(n, of int64) float64 { return max(0, float64(n-of)/seconds) }
	return fmt.Sprintf("%.0f ok/s  %.0f refused/s  %.0f conflicts/s  %.0f projected/s  %d unknown", rate(now.OK, then.OK),
		rate(now.Refused, then.Refused), rate(now.Conflicts, then.Conflicts), rate(now.Applied, then.Applied), now.Unknown)
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
