package reports

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/eventproof/eventproof/verdict"
)

//go:embed assets/page.html.tmpl
var pageSource string

//go:embed assets/page.css
var pageStyle string

//go:embed assets/page.js
var pageScript string

// HTML writes report.html: one file that asks for nothing else, readable without scripts and without styles.
func HTML(w io.Writer, r *Result) error {
	t, err := template.New("page").Parse(pageSource)
	if err != nil {
		return fmt.Errorf("reports: page: %w", err)
	}
	if err := t.Execute(w, newPage(newView(r))); err != nil {
		return fmt.Errorf("reports: page: %w", err)
	}
	return nil
}

// page is what the template shows. The template only places strings; everything is worked out here.
type page struct {
	Title      string
	Style      template.CSS
	Script     template.JS
	Run        Run
	Took       string
	Good       bool
	ExitCode   int
	Symbol     string
	Headline   string
	Line       string
	Evidence   string
	Tally      string
	Reasons    []string
	Roots      []rootLine
	Columns    []pageColumn
	Rows       []pageRow
	Undecided  []undecidedLine
	Stories    []pageStory
	Contention table
	Ladder     *ladderTable
	Hot        []hotLine
	Latency    table
	Phases     table
	Lag        table
	Invalid    []labelled
	Trials     []pageTrial
	Faults     []faultLine
	Gates      []gateLine
	Details    []detailRow
	Machine    []pair
	Stores     []storeCard
	Limits     []string
	Histories  []link
}

type (
	pair     struct{ Name, Value string }
	labelled struct{ Label, Text string }
	link     struct{ Text, Href string }
	rootLine struct{ Invariant, Target, Anchor, Summary, Recheck, Repeat string }
	pageCell struct{ Class, Text, Href, Note string }
	pageRow  struct {
		Slug, ID string
		Plain    bool // nothing but holds
		Cells    []pageCell
	}
	pageColumn struct {
		Target, Scenario string
		Marks            []string
	}
	undecidedLine struct{ Class, Word, Invariant, Where, Reason string }
	table         struct {
		Head []string
		Rows []tableRow
	}
	tableRow struct {
		Label string
		Marks []string
		Cells []string
	}
	ladderTable struct {
		Head []string
		Rows []ladderRow
	}
	ladderRow struct {
		Label string
		Cells []ladderCell
	}
	ladderCell struct {
		Text string
		Bar  template.HTML
	}
	hotLine   struct{ Label, Stream, Attempts, Conflicts, Ratio string }
	faultLine struct{ Class, Word, Label, ID, Kind, On, When, Planned, Effect string }
	gateLine  struct{ Class, Word, Label, Metric, Value, Limit string }
	detailRow struct {
		Label, Invariant, Class, Word, Required, Counts, Reason string
	}
	storeCard struct {
		Label string
		Pairs []pair
	}
	pageTrial struct {
		Anchor, Label string
		Marks         []string
		Description   string
		Charts        []pageChart
	}
	pageChart struct {
		Caption string
		Picture template.HTML
		Data    readout
	}
	pageStory struct {
		Anchor, Invariant, ID, Target string
		Count                         string
		Parts                         []pagePart
	}
	pagePart struct {
		Where, Count, Reason string
		Witnesses            []pageWitness
		More                 string
	}
	pageWitness struct {
		Summary, Stream, Window, Recheck, Repeat string
		Picture                                  template.HTML
		Records                                  []recordLine
		Dropped                                  string
	}
	recordLine struct {
		N                                   int
		Lane, Begin, End, What, Outcome, Is string
	}
)

func class(v verdict.Verdict) string {
	switch v {
	case verdict.Holds:
		return "ok"
	case verdict.Violated, verdict.Error:
		return "bad"
	case verdict.Inconclusive, verdict.NotExercised:
		return "unsure"
	case verdict.NotPromised:
		return "none"
	}
	return "none"
}

func newPage(v *view) *page {
	p := &page{
		Title:  "eventproof " + plain(v.Run.Name) + ": " + v.headline(),
		Style:  template.CSS(pageStyle),
		Script: template.JS(pageScript),
		Run:    v.Run, Took: clockTime(v.Run.DurationS),
		Good: v.Exit.Code == ExitOK, ExitCode: v.Exit.Code, Symbol: "✗", Headline: v.headline(),
		Line: v.verdictLine(), Evidence: v.evidenceLine(), Tally: v.tallyText(), Reasons: v.Exit.Reasons,
	}
	switch v.Exit.Code {
	case ExitOK:
		p.Symbol = "✓"
	case ExitUndecided:
		p.Symbol = "?"
	}
	p.addMatrix(v)
	p.addStories(v)
	p.addNumbers(v)
	p.addTrials(v)
	p.addDetails(v)
	p.addEnvironment(v)
	p.Limits = v.limits()
	return p
}

func (p *page) addMatrix(v *view) {
	for _, c := range v.columns {
		p.Columns = append(p.Columns, pageColumn{plain(c.Target), plain(c.Scenario), c.marks()})
	}
	for _, slug := range v.rows {
		row := pageRow{Slug: slug, ID: v.ids[slug], Plain: true}
		for _, c := range v.columns {
			cl := c.cell(slug)
			cell := pageCell{Class: class(cl.verdict), Text: strings.ReplaceAll(cl.text(), " ", "\u00a0")}
			switch {
			case !cl.present:
				cell.Class = "none"
			case cl.verdict == verdict.NotExercised && !cl.required:
				cell.Class, cell.Href = "none", "#evidence--"+slugify(slug)
			case cl.verdict == verdict.Violated:
				cell.Href = "#" + Anchor(slug, c.Target)
			default:
				cell.Href = "#evidence--" + slugify(slug)
			}
			if cl.present && cl.required && cl.verdict != verdict.Holds && cl.verdict != verdict.Violated {
				cell.Note = "required"
			}
			row.Plain = row.Plain && cl.present && cl.verdict == verdict.Holds
			row.Cells = append(row.Cells, cell)
		}
		p.Rows = append(p.Rows, row)
	}
	for _, c := range v.columns {
		for _, t := range c.Trials {
			if t.Problem != "" {
				p.Undecided = append(p.Undecided, undecidedLine{"bad", "! not run or judged", "", plain(c.name()), plain(t.Problem)})
			}
			for _, w := range t.Warnings {
				p.Undecided = append(p.Undecided, undecidedLine{"unsure", "warning", "", plain(c.name()), plain(w)})
			}
		}
		for _, slug := range v.rows {
			cl := c.cell(slug)
			if cl.present && (cl.verdict == verdict.Error || cl.verdict == verdict.Inconclusive || cl.verdict == verdict.NotExercised && cl.required) {
				w := symbol(cl.verdict) + " " + word(cl.verdict)
				if cl.required {
					w += " (required)"
				}
				p.Undecided = append(p.Undecided, undecidedLine{class(cl.verdict), w, slug, plain(c.name()), plain(orReason(cl.reason))})
			}
		}
	}
}

// How many witnesses of a trial the page shows, and records in a table.
const pageWitnesses = 3

func (p *page) addStories(v *view) {
	for _, s := range v.stories {
		ps := pageStory{Anchor: s.Anchor, Invariant: s.Invariant, ID: s.ID, Target: plain(s.Target), Count: plural(s.Count, "violation", "violations")}
		for k, part := range s.Parts {
			pp := pagePart{Where: fmt.Sprintf("%s · seed %d", plain(part.Trial.Scenario), part.Trial.Seed),
				Count: plural(max(1, part.Count), "violation", "violations"), Reason: plain(part.Reason)}
			for i := range part.Violations {
				if i == pageWitnesses {
					break
				}
				pp.Witnesses = append(pp.Witnesses, newWitness(fmt.Sprintf("%s-%d-%d", s.Anchor, k, i), &part.Violations[i]))
			}
			if n := max(part.Count, len(part.Violations)) - len(pp.Witnesses); n > 0 && len(pp.Witnesses) > 0 {
				pp.More = plural(n, "further violation", "further violations") + " of the same kind; the first few are in result.json"
			}
			ps.Parts = append(ps.Parts, pp)
		}
		p.Stories = append(p.Stories, ps)
		root := rootLine{Invariant: s.Invariant, Target: plain(s.Target), Anchor: s.Anchor}
		if vs := s.Parts[0].Violations; len(vs) > 0 {
			root.Summary, root.Recheck, root.Repeat = plain(vs[0].Summary), plain(vs[0].Recheck), plain(vs[0].Repeat)
		} else {
			root.Summary = plain(orReason(s.Parts[0].Reason))
		}
		p.Roots = append(p.Roots, root)
	}
}

func newWitness(id string, v *verdict.Violation) pageWitness {
	w := pageWitness{Summary: plain(v.Summary), Stream: plain(v.Stream), Recheck: plain(v.Recheck), Repeat: plain(v.Repeat), Picture: drawWitness(id, v)}
	records, dropped := chosen(v.Records, pageRecords)
	if len(records) == 0 {
		return w
	}
	from, to := window(v, records)
	w.Window = instant(from, to) + " – " + instant(to, to)
	for i, r := range records {
		line := recordLine{N: i + 1, Lane: plain(r.Lane), Begin: instant(r.StartNS, to), End: instant(r.EndNS, to), What: plain(r.What), Outcome: plain(r.Outcome)}
		if r.EndNS < 0 {
			line.End = "never returned"
		}
		if r.Cause {
			line.Is = "★ makes it wrong"
		}
		w.Records = append(w.Records, line)
	}
	if dropped > 0 {
		w.Dropped = plural(dropped, "more record is", "more records are") + " in result.json"
	}
	return w
}

func (p *page) addNumbers(v *view) {
	p.Contention.Head = []string{"attempts / command", "conflict ratio", "model 1−e^(−rw)", "self-conflicts", "exhausted", "refused", "unknown", "of them landed"}
	p.Latency.Head = []string{"commands/s", "offered/s", "events/s", "response p50", "p99", "max", "service p50", "p99", "gen. lag p99", "dropped"}
	p.Lag.Head = []string{"p50", "p95", "p99", "max", "events", "never visible", "recovery"}
	p.Phases.Head = []string{"commands/s", "response p50", "p99", "service p99", "conflict ratio", "unknown", "lag p50", "p99"}
	longest := 0
	for _, c := range v.columns {
		for _, t := range c.Trials {
			if !t.hasMetrics() {
				continue
			}
			m, label, marks := &t.Metrics, plain(v.label(t)), c.marks()
			row := func(cells []string) tableRow { return tableRow{label, marks, unbroken(cells)} }
			p.Contention.Rows = append(p.Contention.Rows, row(contentionCells(m)))
			p.Latency.Rows = append(p.Latency.Rows, row(latencyCells(m)))
			p.Lag.Rows = append(p.Lag.Rows, row(lagCells(m)))
			for i := range m.Phases {
				ph := &m.Phases[i]
				lag := Quantiles{}
				if ph.LagS != nil {
					lag = *ph.LagS
				}
				p.Phases.Rows = append(p.Phases.Rows, tableRow{Label: label + " · " + plain(ph.Name), Cells: unbroken([]string{rate(ph.CommandsPerS), quantile(ph.Response, p50), quantile(ph.Response, p99),
					quantile(ph.Service, p99), percent(ph.ConflictRatio), count(ph.Unknown), quantile(lag, p50), quantile(lag, p99)})})
			}
			for i, h := range m.Contention.Hot {
				if i < 5 {
					p.Hot = append(p.Hot, hotLine{label, plain(h.Stream), count(h.Attempts), count(h.Conflicts), percent(ratio(h.Conflicts, h.Attempts))})
				}
			}
			for _, why := range m.Invalid {
				p.Invalid = append(p.Invalid, labelled{label, plain(why)})
			}
			longest = max(longest, len(m.Contention.ByTries))
		}
	}
	p.addLadder(v, min(longest, 6))
	for _, g := range v.Gates {
		line := gateLine{"ok", "✓ met", plain(g.Target + " × " + g.Scenario), plain(g.Metric), "not measured", fmt.Sprintf("%s %g", plain(g.Op), g.Limit)}
		if !g.OK {
			line.Class, line.Word = "bad", "✗ missed"
		}
		if g.Value != nil {
			line.Value = fmt.Sprintf("%.4g", *g.Value)
		}
		p.Gates = append(p.Gates, line)
	}
}

// unbroken keeps a number and its unit on one line.
func unbroken(cells []string) []string {
	for i := range cells {
		cells[i] = strings.ReplaceAll(cells[i], " ", "\u00a0")
	}
	return cells
}

// addLadder shows how many decisions commands took; the last column takes all longer ones.
func (p *page) addLadder(v *view, columns int) {
	if columns == 0 {
		return
	}
	l := &ladderTable{}
	for i := range columns {
		switch {
		case i == 0:
			l.Head = append(l.Head, "1 decision")
		case i == columns-1 && columns == 6:
			l.Head = append(l.Head, "6 or more")
		default:
			l.Head = append(l.Head, fmt.Sprintf("%d decisions", i+1))
		}
	}
	for _, c := range v.columns {
		for _, t := range c.Trials {
			tries := t.Metrics.Contention.ByTries
			if len(tries) == 0 {
				continue
			}
			var sum int64
			cells := make([]int64, columns)
			for i, n := range tries {
				sum += n
				cells[min(i, columns-1)] += n
			}
			row := ladderRow{Label: plain(v.label(t))}
			for _, n := range cells {
				share := ratio(n, sum)
				bar := template.HTML(fmt.Sprintf(`<svg class="bar" width="64" height="8" viewBox="0 0 64 8" aria-hidden="true"><rect class="ink-grid-f" width="64" height="8" fill="%s"/><rect class="ink-a-f" width="%s" height="8" fill="%s"/></svg>`,
					inkGrid.light, px(64*share), lineInks[0].light))
				row.Cells = append(row.Cells, ladderCell{fmt.Sprintf("%s (%s)", percent(share), count(n)), bar})
			}
			l.Rows = append(l.Rows, row)
		}
	}
	if len(l.Rows) > 0 {
		p.Ladder = l
	}
}

func (p *page) addTrials(v *view) {
	for _, c := range v.columns {
		for i, t := range c.Trials {
			anchor := "trial--" + slugify(t.Target) + "--" + slugify(t.Scenario)
			if i > 0 {
				anchor += fmt.Sprintf("--%d", i+1)
			}
			pt := pageTrial{Anchor: anchor, Label: plain(v.label(t)), Marks: c.marks(), Description: plain(t.Description)}
			for _, ch := range charts(t, anchor) {
				pt.Charts = append(pt.Charts, pageChart{ch.title, ch.draw(), ch.readout()})
			}
			if len(pt.Charts) > 0 {
				p.Trials = append(p.Trials, pt)
			}
			for _, f := range t.Faults {
				line := faultLine{"unsure", "○ did not bite", plain(v.label(t)), plain(f.ID), plain(f.Kind), plain(f.On),
					fmt.Sprintf("%s, for %s", duration(f.AtS), duration(f.LengthS)), orWord(plain(f.Planned), "–"), orWord(plain(f.Effect), "–")}
				if f.Observed {
					line.Class, line.Word = "ok", "✓ bit"
				}
				p.Faults = append(p.Faults, line)
			}
			if t.History.File != "" {
				p.Histories = append(p.Histories, link{fmt.Sprintf("%s: %s records, %s", plain(v.label(t)), count(int64(t.History.Records)), bytesize(float64(t.History.Bytes))), t.History.File})
			}
		}
	}
}

func (p *page) addDetails(v *view) {
	for _, slug := range v.rows {
		for _, c := range v.columns {
			for _, t := range c.Trials {
				for i := range t.Verdicts {
					res := &t.Verdicts[i]
					if res.Invariant != slug {
						continue
					}
					row := detailRow{Label: plain(v.label(t)), Invariant: slug, Class: class(res.Verdict), Word: symbol(res.Verdict) + " " + word(res.Verdict),
						Counts: evidenceText(res.Evidence), Reason: plain(res.Reason), Required: "no"}
					if res.Required {
						row.Required = "yes"
					}
					p.Details = append(p.Details, row)
				}
			}
		}
	}
}

func evidenceText(evidence map[string]int64) string {
	keys := make([]string, 0, len(evidence))
	for k := range evidence {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	var parts []string
	for _, k := range keys {
		parts = append(parts, plain(k)+" "+count(evidence[k]))
	}
	if len(parts) == 0 {
		return "–"
	}
	return strings.Join(parts, " · ")
}

func mapText(m map[string]string) string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	var parts []string
	for _, k := range keys {
		parts = append(parts, plain(k)+" = "+plain(m[k]))
	}
	if len(parts) == 0 {
		return "–"
	}
	return strings.Join(parts, " · ")
}

func (p *page) addEnvironment(v *view) {
	e := v.Environment
	p.Machine = []pair{
		{"operating system", plain(e.OS + " " + e.Kernel)},
		{"processor", fmt.Sprintf("%s, %s", plain(e.CPU), plural(e.Cores, "core", "cores"))},
		{"memory", bytesize(float64(e.MemoryBytes))},
		{"calibration loop", duration(e.CalibrationS) + " (compare it before you compare absolute figures)"},
		{"load average", fmt.Sprintf("%.2f before, %.2f after", e.LoadBefore, e.LoadAfter)},
		{"Go", plain(e.GoVersion)},
		{"eventproof", plain(v.Run.ToolVersion)},
		{"run", plain(v.Run.ID)},
		{"command", plain(strings.Join(v.Run.Args, " "))},
	}
	for _, n := range e.Notes {
		p.Machine = append(p.Machine, pair{"note", plain(n)})
	}
	for _, c := range v.columns {
		for _, t := range c.Trials {
			p.Stores = append(p.Stores, storeCard{plain(v.label(t)), []pair{
				{"store", plain(t.Store + " " + t.StoreVersion)},
				{"provider", plain(t.Provider + ", " + t.Fidelity + ", " + t.Path)},
				{"durability", mapText(t.Durability)},
				{"assembly", mapText(t.Assembly)},
				{"promises", plain(strings.Join(t.Promises, ", "))},
				{"mode and seed", fmt.Sprintf("%s, %d", plain(t.Mode), t.Seed)},
				{"fence", plain(orReason(t.Fence))},
			}})
		}
	}
}

// limits says what the run does not tell.
func (v *view) limits() []string {
	out := []string{"“Holds” means: no violation in the counted opportunities, under the faults listed, on this machine. It is evidence, not a proof; a rare interleaving may not have come up."}
	group := func(match func(*column) bool) string {
		var names []string
		for _, c := range v.columns {
			if match(c) && !slices.Contains(names, plain(c.Target)) {
				names = append(names, plain(c.Target))
			}
		}
		return strings.Join(names, ", ")
	}
	if s := group((*column).emulated); s != "" {
		out = append(out, "Emulated: "+s+". A stand-in proves code paths, never the product, and its speed means nothing.")
	}
	if s := group(func(c *column) bool { return c.coLocated() && !c.emulated() }); s != "" {
		out = append(out, fmt.Sprintf("Co-located: %s. Store and load generator shared the %s of one machine, so throughput and latency are those of this machine under both.", s, plural(v.Environment.Cores, "core", "cores")))
	}
	out = append(out, "The order of columns is no ranking. Targets differ in what they promise; read each number beside the verdicts of the same column.")
	if s := group((*column).control); s != "" {
		out = append(out, "Controls: "+s+". They are broken on purpose; their violations say that the checkers see, not that a store is wrong.")
	}
	scripted, random, unfenced, idle := 0, 0, 0, 0
	for i := range v.Trials {
		t := &v.Trials[i]
		if t.Mode == "scripted" {
			scripted++
		} else {
			random++
		}
		if strings.HasPrefix(t.Fence, "unfenced") || strings.HasPrefix(t.Fence, "not fenced") {
			unfenced++
		}
		if len(t.Faults) == 0 && t.Mode != "scripted" {
			idle++
		}
	}
	if random > 0 {
		out = append(out, "A seed repeats load and fault plan; a real store may interleave differently. The recorded history is what repeats exactly: `eventproof check` always gives the same verdicts.")
	}
	if scripted > 0 {
		out = append(out, fmt.Sprintf("%s forced one interleaving each; nothing follows from them about speed or about other interleavings.", plural(scripted, "scripted trial", "scripted trials")))
	}
	if idle > 0 {
		out = append(out, plural(idle, "trial", "trials")+" ran without any fault: nothing is said there about behaviour under failure.")
	}
	if unfenced > 0 {
		out = append(out, plural(unfenced, "trial", "trials")+" ended without a fence: a late request could still have taken effect after the audit.")
	}
	out = append(out, "One node, one data centre, one clock: replication, fail-over and power loss of a disk were not tried. Kill -9 of a server leaves the operating system's cache intact.")
	return out
}
