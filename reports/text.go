package reports

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/eventproof/eventproof/verdict"
)

// Style of a text rendering.
type Style struct {
	Color bool
	// Width of the terminal in columns; 0 = 100, and never taken below 60.
	Width int
	// Folder of the run as people should type it ("results/latest"); names the report in the closing line.
	Folder string
}

type textWriter struct {
	w *bufio.Writer
	v *view
	Style
}

// Text writes the result for a terminal: the verdicts first, then violations, then what it cost.
// The only errors are those of w.
func Text(w io.Writer, r *Result, s Style) error {
	if s.Width <= 0 {
		s.Width = 100
	}
	s.Width = max(s.Width, 60)
	t := &textWriter{w: bufio.NewWriter(w), v: newView(r), Style: s}
	t.head()
	t.matrix()
	t.undecided()
	t.violations()
	t.costs()
	t.faults()
	t.gates()
	t.closing()
	return t.w.Flush()
}

func (t *textWriter) line(format string, args ...any) { _, _ = fmt.Fprintf(t.w, format+"\n", args...) }

func (t *textWriter) paint(code, s string) string {
	if !t.Color {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (t *textWriter) title(s string) { t.line("\n%s", t.paint("1", s)) }

func colourOf(v verdict.Verdict) string {
	switch v {
	case verdict.Holds:
		return "32"
	case verdict.Violated, verdict.Error:
		return "31"
	case verdict.Inconclusive, verdict.NotExercised:
		return "33"
	case verdict.NotPromised:
		return "2"
	}
	return "0"
}

func (t *textWriter) head() {
	r := t.v.Run
	t.line("%s  %s · seed %d · %s · %s · %s", t.paint("1", "eventproof"), plain(r.Name), r.Seed,
		clockTime(r.DurationS), plain(r.Started), plain(r.ToolVersion))
}

// maxFirst is the widest first column of a table.
const maxFirst = 34

type gridCell struct{ text, colour string }

// grid prints a table whose first column is left-aligned, in as many blocks as the width asks for.
func (t *textWriter) grid(head [][]string, rows []string, cells func(row, col int) gridCell) {
	first := 0
	for _, r := range rows {
		first = max(first, width(r))
	}
	first = min(first, maxFirst)
	cols := len(head)
	widths := make([]int, cols)
	for c := range cols {
		for _, h := range head[c] {
			widths[c] = max(widths[c], width(h))
		}
		for r := range rows {
			widths[c] = max(widths[c], width(cells(r, c).text))
		}
	}
	for from := 0; from < cols; {
		to, used := from, first+1
		for to < cols && (to == from || used+2+widths[to] <= t.Width) {
			used += 2 + widths[to]
			to++
		}
		for h := range head[from] {
			line := strings.Repeat(" ", first+1)
			for c := from; c < to; c++ {
				line += "  " + pad(head[c][h], widths[c])
			}
			if strings.TrimSpace(line) != "" {
				t.line("%s", t.paint("2", strings.TrimRight(line, " ")))
			}
		}
		for r, name := range rows {
			line := " " + pad(clip(name, first), first)
			for c := from; c < to; c++ {
				cl := cells(r, c)
				text := pad(cl.text, widths[c])
				if c == to-1 {
					text = cl.text
				}
				if cl.colour != "" {
					text = t.paint(cl.colour, text)
				}
				line += "  " + text
			}
			t.line("%s", strings.TrimRight(line, " "))
		}
		from = to
		if from < cols {
			t.line("")
		}
	}
}

// width counts runes; every symbol used is one column wide.
func width(s string) int { return len([]rune(s)) }

func pad(s string, n int) string { return s + strings.Repeat(" ", max(0, n-width(s))) }

func (t *textWriter) heads() [][]string {
	var out [][]string
	for _, c := range t.v.columns {
		out = append(out, []string{plain(c.Target), plain(c.Scenario), strings.Join(c.marks(), ", ")})
	}
	return out
}

func (t *textWriter) matrix() {
	if len(t.v.rows) == 0 {
		return
	}
	t.title("INVARIANTS   ✓ holds N = no violation in N opportunities under these faults · ✗ violated N times")
	t.grid(t.heads(), t.v.rows, func(r, c int) gridCell {
		cl := t.v.columns[c].cell(t.v.rows[r])
		colour := colourOf(cl.verdict)
		if cl.verdict == verdict.NotExercised && !cl.required {
			colour = colourOf(verdict.NotPromised)
		}
		return gridCell{cl.text(), colour}
	})
}

// undecided lists what is neither a pass nor a violation, with the reason: required rules always, others
// where they could not be decided.
func (t *textWriter) undecided() {
	var lines []string
	for _, c := range t.v.columns {
		for _, tr := range c.Trials {
			if tr.Problem != "" {
				lines = append(lines, fmt.Sprintf(" %s %s: %s", t.paint("31", "! not run or judged"), plain(c.name()), plain(tr.Problem)))
			}
			for _, w := range tr.Warnings {
				lines = append(lines, fmt.Sprintf(" warning: %s: %s", plain(c.name()), plain(w)))
			}
		}
		for _, slug := range t.v.rows {
			cl := c.cell(slug)
			show := cl.present && (cl.verdict == verdict.Error || cl.verdict == verdict.Inconclusive || cl.verdict == verdict.NotExercised && cl.required)
			if !show {
				continue
			}
			required := ""
			if cl.required {
				required = " (required)"
			}
			lines = append(lines, fmt.Sprintf(" %s %s%s %s: %s", t.paint(colourOf(cl.verdict), symbol(cl.verdict)+" "+word(cl.verdict)),
				slug, required, plain(c.name()), plain(orReason(cl.reason))))
		}
	}
	if len(lines) == 0 {
		return
	}
	t.title("NOT DECIDED")
	for _, l := range lines {
		t.line("%s", l)
	}
}

func orReason(s string) string { return orWord(s, "no reason given") }

const textStories = 12

func (t *textWriter) violations() {
	if len(t.v.stories) == 0 {
		return
	}
	t.title("VIOLATIONS   the root stands first; what follows from it comes later")
	for i, s := range t.v.stories {
		if i == textStories {
			t.line(" … and %s; see the report", plural(len(t.v.stories)-i, "more violated invariant", "more violated invariants"))
			break
		}
		for _, p := range s.Parts {
			t.line(" %s · %s · %s · %s", t.paint("31;1", "✗ "+s.Invariant), plain(s.Target), plain(p.Trial.Scenario),
				plural(max(1, p.Count), "violation", "violations"))
			if len(p.Violations) == 0 {
				t.line("   %s", plain(orReason(p.Reason)))
				continue
			}
			first := &p.Violations[0]
			for _, l := range wrap(plain(first.Summary), t.Width-3) {
				t.line("   %s", l)
			}
			for _, l := range timeline(first, t.Width-5) {
				t.line("   │ %s", l)
			}
			t.repro("   ", first)
		}
	}
}

const (
	recheckNote = "judges the recorded history again: always the same verdict"
	repeatNote  = "repeats load and faults; a real store may interleave differently"
)

func (t *textWriter) repro(indent string, v *verdict.Violation) {
	if v.Recheck != "" {
		t.line("%srecheck: %s   %s", indent, plain(v.Recheck), t.paint("2", "("+recheckNote+")"))
	}
	if v.Repeat != "" {
		t.line("%srepeat:  %s   %s", indent, plain(v.Repeat), t.paint("2", "("+repeatNote+")"))
	}
}

// wrap breaks a line at spaces.
func wrap(s string, n int) []string {
	var out []string
	line := ""
	for w := range strings.FieldsSeq(s) {
		if line != "" && width(line)+1+width(w) > n {
			out = append(out, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += w
	}
	return append(out, line)
}

// measured lists the trials with numbers and how the tables name them: by their names where these are short,
// else by letters explained once.
func (t *textWriter) measured() (trials []*Trial, names, legend []string) {
	short := true
	for _, c := range t.v.columns {
		for _, tr := range c.Trials {
			if !tr.hasMetrics() {
				continue
			}
			name := plain(t.v.label(tr))
			if m := c.marks(); len(m) > 0 {
				name += " [" + strings.Join(m, ", ") + "]"
			}
			trials, names = append(trials, tr), append(names, name)
			short = short && width(name) <= maxFirst
		}
	}
	if short {
		return trials, names, nil
	}
	for i, name := range names {
		key := fmt.Sprintf("%c", 'A'+i%26)
		if i >= 26 {
			key += fmt.Sprint(i / 26)
		}
		legend = append(legend, key+"  "+name)
		names[i] = key
	}
	return trials, names, legend
}

func (t *textWriter) costs() {
	trials, names, legend := t.measured()
	if len(trials) == 0 {
		return
	}
	if len(legend) > 0 {
		t.title("TRIALS")
		for _, l := range legend {
			t.line(" %s", l)
		}
	}
	table := func(title string, cols []string, cell func(tr *Trial, col int) string) {
		t.title(title)
		heads := make([][]string, len(cols))
		for i, c := range cols {
			heads[i] = []string{c}
		}
		t.grid(heads, names, func(r, c int) gridCell { return gridCell{text: cell(trials[r], c)} })
	}
	table("CONTENTION", []string{"attempts/command", "conflict ratio", "model", "self-conflicts", "exhausted", "refused", "unknown", "of them landed"},
		func(tr *Trial, col int) string { return contentionCells(&tr.Metrics)[col] })
	table("THROUGHPUT AND LATENCY   response from the intended start, service from the actual one",
		[]string{"commands/s", "offered/s", "events/s", "resp p50", "p99", "max", "serv p50", "p99", "gen. lag p99", "dropped"},
		func(tr *Trial, col int) string { return latencyCells(&tr.Metrics)[col] })
	table("PROJECTION LAG   acknowledged to visible; negative = visible before the acknowledgement",
		[]string{"p50", "p95", "p99", "max", "events", "never visible", "recovery"},
		func(tr *Trial, col int) string { return lagCells(&tr.Metrics)[col] })
	for _, c := range t.v.columns {
		for _, tr := range c.Trials {
			if tr.hasMetrics() && !tr.Metrics.Valid {
				for _, why := range tr.Metrics.Invalid {
					t.line(" not usable as performance evidence: %s: %s", plain(t.v.label(tr)), plain(why))
				}
			}
		}
	}
}

func contentionCells(m *Metrics) []string {
	ct := &m.Contention
	attempts := m.Attempts.OK + m.Attempts.Fail + m.Attempts.Unknown
	apc, confl, model, self := "–", "–", "–", "–"
	if attempts > 0 {
		apc, confl, self = significant(ct.AttemptsPerCommand), percent(ct.ConflictRatio), count(ct.SelfConflicts)
	}
	if ct.WindowS > 0 {
		model = percent(ct.ModelRatio)
	}
	return []string{apc, confl, model, self, count(m.Commands.Exhausted), count(m.Commands.Refused),
		count(m.Commands.Unknown), count(m.Commands.UnknownLanded)}
}

func latencyCells(m *Metrics) []string {
	tp := []string{"–", "–", "–"}
	if m.Throughput.MeasuredS > 0 {
		tp = []string{rate(m.Throughput.CommandsPerS), rate(m.Throughput.OfferedPerS), rate(m.Throughput.EventsPerS)}
	}
	r, s := m.LatencyS.Response, m.LatencyS.Service
	return append(tp, quantile(r, p50), quantile(r, p99), quantile(r, top), quantile(s, p50), quantile(s, p99),
		quantile(m.Generator.LagS, p99), count(m.Commands.Dropped))
}

func lagCells(m *Metrics) []string {
	l := lagOf(m)
	never, events := "–", "–"
	if l.N > 0 || m.NeverVisible > 0 {
		never, events = count(m.NeverVisible), count(l.N)
	}
	return []string{quantile(l, p50), quantile(l, p95), quantile(l, p99), quantile(l, top), events, never, optional(m.RecoveryS)}
}

// fullFaults is how many planned faults of a run are told one by one. Of more, those that did not bite are: they are what
// makes a verdict worth less.
const fullFaults = 14

func (t *textWriter) faults() {
	planned := 0
	for _, c := range t.v.columns {
		for _, tr := range c.Trials {
			planned += len(tr.Faults)
		}
	}
	if planned == 0 {
		return
	}
	t.title("FAULTS   planned and observed")
	for _, c := range t.v.columns {
		for _, tr := range c.Trials {
			if len(tr.Faults) == 0 {
				continue
			}
			bit := 0
			for _, f := range tr.Faults {
				if f.Observed {
					bit++
				}
			}
			if planned <= fullFaults {
				t.line(" %s", plain(t.v.label(tr)))
			} else {
				mark := t.paint("32", "✓")
				if bit < len(tr.Faults) {
					mark = t.paint("33", "○")
				}
				t.line(" %s %d of %d bit   %s", mark, bit, len(tr.Faults), plain(t.v.label(tr)))
			}
			for _, f := range tr.Faults {
				if f.Observed && planned > fullFaults {
					continue
				}
				t.fault(f)
			}
		}
	}
	if planned > fullFaults {
		t.line(" what each of them did is in the report and in result.json")
	}
}

func (t *textWriter) fault(f Fault) {
	mark := t.paint("33", "○ did not bite")
	if f.Observed {
		mark = t.paint("32", "✓ bit         ")
	}
	t.line("   %s %s: %s on %s at %s for %s: %s → %s", mark, plain(f.ID), plain(f.Kind), plain(f.On),
		duration(f.AtS), duration(f.LengthS), orWord(plain(f.Planned), "–"), orWord(plain(f.Effect), "–"))
}

func (t *textWriter) gates() {
	if len(t.v.Gates) == 0 {
		return
	}
	t.title("GATES")
	for _, g := range t.v.Gates {
		mark := t.paint("32", "✓ met   ")
		if !g.OK {
			mark = t.paint("31", "✗ missed")
		}
		t.line(" %s  %s × %s: %s", mark, plain(g.Target), plain(g.Scenario), plain(gateText(g)))
	}
}

func (t *textWriter) closing() {
	colour := "31;1"
	switch t.v.Exit.Code {
	case ExitOK:
		colour = "32;1"
	case ExitUndecided, ExitGate:
		colour = "33;1"
	}
	report := ""
	if t.Folder != "" {
		report = "   report: " + strings.TrimRight(t.Folder, "/") + "/report.html"
	}
	if t.v.Exit.Code != ExitOK {
		report += fmt.Sprintf("   (exit %d)", t.v.Exit.Code)
	}
	t.line("\n%s  %s in %s%s", t.paint(colour, t.v.headline()), t.v.tallyText(), clockTime(t.v.Run.DurationS), report)
}
