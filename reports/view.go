package reports

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/eventproof/eventproof/verdict"
)

// A view is a result arranged the way every rendering shows it: invariants as rows, targets × scenarios as
// columns, violations in reading order.
type view struct {
	*Result
	columns []*column
	rows    []string // invariant slugs, root first
	ids     map[string]string
	stories []*story
}

// column is one target × scenario with its trials, one a seed.
type column struct {
	Target, Scenario string
	Trials           []*Trial
}

// cell is what the trials of a column say together of one invariant.
type cell struct {
	present       bool
	verdict       verdict.Verdict
	required      bool
	opportunities int64
	violations    int
	reason        string
}

// story is one violated invariant of one target, with every trial that shows it.
type story struct {
	Invariant, ID, Target, Anchor string
	Count                         int
	Parts                         []storyPart
}

// storyPart is what one trial shows.
type storyPart struct {
	Trial *Trial
	*verdict.Result
}

func newView(r *Result) *view {
	v := &view{Result: r, ids: map[string]string{}}
	for i := range r.Trials {
		t := &r.Trials[i]
		k := slices.IndexFunc(v.columns, func(c *column) bool { return c.Target == t.Target && c.Scenario == t.Scenario })
		if k < 0 {
			k = len(v.columns)
			v.columns = append(v.columns, &column{Target: t.Target, Scenario: t.Scenario})
		}
		v.columns[k].Trials = append(v.columns[k].Trials, t)
		v.addRows(t.Verdicts)
	}
	// Correct targets stand left of controls; within that, the order of the run.
	slices.SortStableFunc(v.columns, func(a, b *column) int { return cmp.Compare(a.rank(), b.rank()) })
	v.addStories()
	return v
}

func (c *column) rank() int {
	if c.control() {
		return 1
	}
	return 0
}

// addRows merges the invariants of one trial into the rows: the checkers give them root first, and a rule
// that is new goes after the one it followed.
func (v *view) addRows(results []verdict.Result) {
	at := 0
	for i := range results {
		slug := results[i].Invariant
		v.ids[slug] = results[i].ID
		if k := slices.Index(v.rows, slug); k >= 0 {
			at = k + 1
			continue
		}
		v.rows = slices.Insert(v.rows, at, slug)
		at++
	}
}

func (v *view) addStories() {
	for _, slug := range v.rows {
		for _, c := range v.columns {
			for _, t := range c.Trials {
				for i := range t.Verdicts {
					res := &t.Verdicts[i]
					if res.Invariant == slug && res.Verdict == verdict.Violated {
						s := v.story(res, t.Target)
						s.Count += max(1, res.Count)
						s.Parts = append(s.Parts, storyPart{t, res})
					}
				}
			}
		}
	}
}

func (v *view) story(res *verdict.Result, target string) *story {
	for _, s := range v.stories {
		if s.Invariant == res.Invariant && s.Target == target {
			return s
		}
	}
	s := &story{Invariant: res.Invariant, ID: res.ID, Target: target, Anchor: Anchor(res.Invariant, target)}
	v.stories = append(v.stories, s)
	return s
}

// Anchor names the place of an invariant's violation on a target, in the page and among the files:
// "no-skipped-checkpoint--postgres-naive-poll".
func Anchor(invariant, target string) string { return slugify(invariant) + "--" + slugify(target) }

// slugify keeps lower-case letters, digits and dashes: the result is safe as a file name and a fragment.
func slugify(s string) string {
	var b strings.Builder
	for _, c := range strings.ToLower(s) {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			b.WriteRune(c)
		} else if n := b.Len(); n > 0 && b.String()[n-1] != '-' {
			b.WriteByte('-')
		}
	}
	out := strings.Trim(b.String(), "-")
	return out[:min(len(out), 120)]
}

func (c *column) control() bool   { return c.Trials[0].Kind == "control" }
func (c *column) emulated() bool  { return c.Trials[0].Fidelity == "emulated" }
func (c *column) coLocated() bool { return coLocated(c.Trials[0]) }
func (c *column) name() string    { return c.Target + " × " + c.Scenario }
func (c *column) anyProblem() bool {
	return slices.ContainsFunc(c.Trials, func(t *Trial) bool { return t.Problem != "" })
}

// coLocated: the store ran on the machine that made the load, and shared its cores.
func coLocated(t *Trial) bool {
	return t.Provider == "native" || t.Provider == "embedded" || t.Provider == "docker"
}

// marks are the words that stand beside every number of a column.
func (c *column) marks() []string {
	var out []string
	if c.control() {
		out = append(out, "control")
	}
	if c.emulated() {
		out = append(out, "emulated")
	} else if c.coLocated() {
		out = append(out, "co-located")
	}
	return out
}

// Worst first: what several seeds say together is what the worst of them says.
var worst = []verdict.Verdict{verdict.Violated, verdict.Error, verdict.Inconclusive, verdict.NotExercised, verdict.Holds, verdict.NotPromised}

func (c *column) cell(slug string) cell {
	var out cell
	for _, t := range c.Trials {
		for i := range t.Verdicts {
			res := &t.Verdicts[i]
			if res.Invariant != slug {
				continue
			}
			if !out.present || slices.Index(worst, res.Verdict) < slices.Index(worst, out.verdict) {
				out.verdict, out.reason = res.Verdict, res.Reason
			}
			out.present = true
			out.required = out.required || res.Required
			out.opportunities += opportunities(res.Evidence)
			if res.Verdict == verdict.Violated {
				out.violations += max(1, res.Count)
			}
		}
	}
	return out
}

// opportunities is the number shown beside a verdict: the counter of that name, else all counters together.
func opportunities(evidence map[string]int64) int64 {
	if n, ok := evidence["opportunities"]; ok {
		return n
	}
	var sum int64
	for _, n := range evidence {
		sum += n
	}
	return sum
}

// symbol marks a verdict beside its word and its colour.
func symbol(v verdict.Verdict) string {
	switch v {
	case verdict.Holds:
		return "✓"
	case verdict.Violated:
		return "✗"
	case verdict.NotExercised:
		return "○"
	case verdict.Inconclusive:
		return "?"
	case verdict.NotPromised:
		return "–"
	case verdict.Error:
		return "!"
	}
	return " "
}

func word(v verdict.Verdict) string { return strings.ReplaceAll(v.String(), "-", " ") }

// text is a cell in one line: symbol, word, number.
func (c cell) text() string {
	if !c.present {
		return "not judged"
	}
	s := symbol(c.verdict) + " " + word(c.verdict)
	switch c.verdict {
	case verdict.Holds:
		return s + " " + count(c.opportunities)
	case verdict.Violated:
		return s + " " + count(int64(c.violations))
	case verdict.NotExercised, verdict.Inconclusive, verdict.NotPromised, verdict.Error:
		return s
	}
	return s
}

// totals counts the cells of the matrix by verdict.
func (v *view) totals() map[verdict.Verdict]int {
	n := map[verdict.Verdict]int{}
	for _, c := range v.columns {
		for _, slug := range v.rows {
			if cl := c.cell(slug); cl.present {
				n[cl.verdict]++
			}
		}
	}
	return n
}

// headline is the outcome in one word, for the closing line and titles.
func (v *view) headline() string {
	switch v.Exit.Code {
	case ExitOK:
		return "PASS"
	case ExitViolated:
		return "FAIL"
	case ExitUndecided:
		return "UNDECIDED"
	case ExitGate:
		return "GATE MISSED"
	case ExitEnvironment:
		return "NO ENVIRONMENT"
	case ExitInterrupted, ExitTerminated:
		return "INTERRUPTED"
	default:
		return "ERROR"
	}
}

// tallyText is "1 violated, 1 not exercised, 42 hold".
func (v *view) tallyText() string {
	n := v.totals()
	var parts []string
	for _, w := range worst {
		if n[w] == 0 || w == verdict.Holds || w == verdict.NotPromised {
			continue
		}
		parts = append(parts, fmt.Sprintf("%d %s", n[w], word(w)))
	}
	verb := "hold"
	if n[verdict.Holds] == 1 {
		verb = "holds"
	}
	parts = append(parts, fmt.Sprintf("%d %s", n[verdict.Holds], verb))
	missed := 0
	for _, g := range v.Gates {
		if !g.OK {
			missed++
		}
	}
	if missed > 0 {
		parts = append(parts, plural(missed, "gate missed", "gates missed"))
	}
	problems := 0
	for _, c := range v.columns {
		if c.anyProblem() {
			problems++
		}
	}
	if problems > 0 {
		parts = append(parts, plural(problems, "trial not run or judged", "trials not run or judged"))
	}
	return strings.Join(parts, ", ")
}

// verdictLine is the answer in one sentence.
func (v *view) verdictLine() string {
	targets := map[string]bool{}
	bad := map[string]bool{}
	rules := map[string]bool{}
	for _, c := range v.columns {
		targets[c.Target] = true
	}
	for _, s := range v.stories {
		bad[s.Target], rules[s.Invariant] = true, true
	}
	if len(bad) > 0 {
		return fmt.Sprintf("%s violated on %d of %s", plural(len(rules), "invariant", "invariants"), len(bad), plural(len(targets), "target", "targets"))
	}
	if v.Exit.Code != ExitOK && len(v.Exit.Reasons) > 0 {
		return plain(v.Exit.Reasons[0])
	}
	opp, holds := v.held()
	return fmt.Sprintf("no violation in %s opportunities under these faults (%s)", count(opp), plural(holds, "verdict holds", "verdicts hold"))
}

func (v *view) held() (opportunities int64, cells int) {
	for _, c := range v.columns {
		for _, slug := range v.rows {
			if cl := c.cell(slug); cl.present && cl.verdict == verdict.Holds {
				opportunities += cl.opportunities
				cells++
			}
		}
	}
	return opportunities, cells
}

// evidenceLine says how much was tried.
func (v *view) evidenceLine() string {
	var commands, conflicts, unknown int64
	bit, planned := 0, 0
	for i := range v.Trials {
		t := &v.Trials[i]
		m := &t.Metrics
		commands += m.Commands.Offered - m.Commands.Dropped
		conflicts += m.Contention.Conflicts
		unknown += m.Attempts.Unknown
		for _, f := range t.Faults {
			planned++
			if f.Observed {
				bit++
			}
		}
	}
	return fmt.Sprintf("%s commands · %s conflicts · %s tries that ended unknown · %d of %s bit",
		count(commands), count(conflicts), count(unknown), bit, plural(planned, "fault", "faults"))
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return count(int64(n)) + " " + many
}

// plain makes one line of a string that others wrote (an error of a driver, a name from a history): control
// and direction marks are dropped, and nothing in it can be read as a workflow command of a CI system.
func plain(s string) string {
	var b strings.Builder
	for _, c := range s {
		switch {
		case c == '\n' || c == '\r' || c == '\t' || c == '\u2028' || c == '\u2029':
			b.WriteByte(' ')
		case unicode.IsControl(c) || unicode.Is(unicode.Cf, c):
		default:
			b.WriteRune(c)
		}
	}
	out := strings.TrimSpace(strings.ReplaceAll(b.String(), "##[", "## ["))
	if strings.HasPrefix(out, "::") {
		out = ": :" + out[2:]
	}
	return out
}

// clip shortens s to n runes.
func clip(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	if n < 1 {
		return ""
	}
	return string(r[:n-1]) + "…"
}

// hasMetrics reports whether there is anything to show in the tables of numbers.
func (t *Trial) hasMetrics() bool {
	return t.Metrics.Commands.Offered > 0 || t.Metrics.LatencyS.Response.N > 0
}

// label names a trial where several stand in one table.
func (v *view) label(t *Trial) string {
	s := t.Target + " × " + t.Scenario
	for _, c := range v.columns {
		if c.Target == t.Target && c.Scenario == t.Scenario && len(c.Trials) > 1 {
			return fmt.Sprintf("%s (seed %d)", s, t.Seed)
		}
	}
	return s
}

// quantile writes one quantile, or a dash where nothing was measured.
func quantile(q Quantiles, pick func(Quantiles) float64) string {
	if q.N == 0 {
		return "–"
	}
	return duration(pick(q))
}

func p50(q Quantiles) float64 { return q.P50 }
func p95(q Quantiles) float64 { return q.P95 }
func p99(q Quantiles) float64 { return q.P99 }
func top(q Quantiles) float64 { return q.Max }

func lagOf(m *Metrics) Quantiles {
	if m.LagS == nil {
		return Quantiles{}
	}
	return *m.LagS
}

func optional(s *float64) string {
	if s == nil {
		return "–"
	}
	return duration(*s)
}
