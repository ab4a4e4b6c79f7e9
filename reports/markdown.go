package reports

import (
	"fmt"
	"io"
	"strings"

	"github.com/eventproof/eventproof/verdict"
)

// summaryLimit is the most that summary.md may hold: a CI system drops a larger one whole.
const summaryLimit = 64 << 10

// Markdown writes the summary for a CI job page, at most 64 KiB. Verdicts and numbers come before stories where
// room is short; what had to be left out is said at the end.
func Markdown(w io.Writer, r *Result) error {
	v := newView(r)
	const foot = "\nThe whole report is `report.html`, every number is in `result.json`.\n"
	sections := []string{v.summaryHead(), v.summaryMatrix(), v.summaryUndecided(), "", v.summaryCosts(), v.summaryGates(), v.summaryFaults()}
	const stories = 3 // their place among the sections
	room := summaryLimit - len(foot) - 200
	dropped := 0
	keep := func(section string) string {
		if len(section) > room {
			dropped++
			return ""
		}
		room -= len(section)
		return section
	}
	for i := range sections {
		sections[i] = keep(sections[i])
	}
	for _, s := range v.stories {
		sections[stories] += keep(v.summaryStory(s))
	}
	out := strings.Join(sections, "") + foot
	if dropped > 0 {
		out += fmt.Sprintf("\n_Truncated at 64 KiB: %s left out. See `report.html`._\n", plural(dropped, "section was", "sections were"))
	}
	_, err := io.WriteString(w, out)
	return err
}

// md escapes what others wrote, so that it stays one line of text in a cell or a paragraph.
func md(s string) string {
	return mdEscapes.Replace(plain(s))
}

var mdEscapes = strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "<", "&lt;",
	">", "&gt;", "&", "&amp;", "|", `\|`, "#", `\#`, "~", `\~`, "@", "@\u200b", "!", `\!`, "$", `\$`)

// fence puts text in a code block that it can't end.
func fence(s string) string {
	marks := "```"
	for strings.Contains(s, marks) {
		marks += "`"
	}
	return marks + "text\n" + strings.TrimRight(s, "\n") + "\n" + marks + "\n"
}

func (v *view) icon() string {
	switch v.Exit.Code {
	case ExitOK:
		return "✅"
	case ExitUndecided, ExitGate:
		return "⚠️"
	default:
		return "❌"
	}
}

func (v *view) summaryHead() string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s eventproof %s: %s\n\n", v.icon(), v.headline(), md(v.verdictLine()))
	fmt.Fprintf(&b, "%s · seed %d · %s · %s · %s\n\n", md(v.Run.Name), v.Run.Seed, clockTime(v.Run.DurationS), md(v.Run.Started), md(v.evidenceLine()))
	fmt.Fprintf(&b, "%s (exit %d)\n", md(v.tallyText()), v.Exit.Code)
	return b.String()
}

func (v *view) summaryMatrix() string {
	if len(v.rows) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n| invariant |")
	for _, c := range v.columns {
		fmt.Fprintf(&b, " %s<br>%s", md(c.Target), md(c.Scenario))
		if m := c.marks(); len(m) > 0 {
			fmt.Fprintf(&b, "<br>_%s_", strings.Join(m, ", "))
		}
		b.WriteString(" |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(v.columns)) + "\n")
	for _, slug := range v.rows {
		fmt.Fprintf(&b, "| %s |", md(slug))
		for _, c := range v.columns {
			cl := c.cell(slug)
			text := md(cl.text())
			if cl.verdict == verdict.Violated {
				text = "**" + text + "**"
			}
			fmt.Fprintf(&b, " %s |", text)
		}
		b.WriteString("\n")
	}
	b.WriteString("\n✓ holds N: no violation in N opportunities under these faults.\n")
	return b.String()
}

func (v *view) summaryUndecided() string {
	var b strings.Builder
	for _, c := range v.columns {
		for _, t := range c.Trials {
			if t.Problem != "" {
				fmt.Fprintf(&b, "- **not run or judged**: %s: %s\n", md(c.name()), md(t.Problem))
			}
		}
		for _, slug := range v.rows {
			cl := c.cell(slug)
			if cl.present && cl.required && (cl.verdict == verdict.Inconclusive || cl.verdict == verdict.NotExercised || cl.verdict == verdict.Error) {
				fmt.Fprintf(&b, "- **%s**: required %s: %s: %s\n", word(cl.verdict), slug, md(c.name()), md(orReason(cl.reason)))
			}
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "\n" + b.String()
}

func (v *view) summaryStory(s *story) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n<details><summary>✗ %s · %s · %s</summary>\n\n", md(s.Invariant), md(s.Target), plural(s.Count, "violation", "violations"))
	b.WriteString(storyMarkdown(s, 1))
	b.WriteString("</details>\n")
	return b.String()
}

// storyMarkdown writes at most n witnesses of every trial of a story.
func storyMarkdown(s *story, n int) string {
	var b strings.Builder
	for _, p := range s.Parts {
		fmt.Fprintf(&b, "%s · seed %d · %s\n\n", md(p.Trial.Scenario), p.Trial.Seed, plural(max(1, p.Count), "violation", "violations"))
		if len(p.Violations) == 0 {
			fmt.Fprintf(&b, "%s\n\n", md(orReason(p.Reason)))
		}
		for i := range p.Violations {
			if i == n {
				break
			}
			viol := &p.Violations[i]
			fmt.Fprintf(&b, "%s\n\n", md(viol.Summary))
			if tl := timeline(viol, 110); len(tl) > 0 {
				b.WriteString(fence(strings.Join(tl, "\n")) + "\n")
			}
			var repro []string
			if viol.Recheck != "" {
				repro = append(repro, "# "+recheckNote, plain(viol.Recheck))
			}
			if viol.Repeat != "" {
				repro = append(repro, "# "+repeatNote, plain(viol.Repeat))
			}
			if len(repro) > 0 {
				b.WriteString(fence(strings.Join(repro, "\n")) + "\n")
			}
		}
	}
	return b.String()
}

func (v *view) summaryCosts() string {
	var b strings.Builder
	b.WriteString("\n| target × scenario | commands/s | response p50 | p99 | service p99 | attempts/command | conflict ratio | self-conflicts | lag p50 | lag p99 | recovery |\n")
	b.WriteString("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	n := 0
	for _, c := range v.columns {
		for _, t := range c.Trials {
			if !t.hasMetrics() {
				continue
			}
			n++
			m := &t.Metrics
			l, ct, lag := latencyCells(m), contentionCells(m), lagCells(m)
			name := md(v.label(t))
			if marks := c.marks(); len(marks) > 0 {
				name += "<br>_" + strings.Join(marks, ", ") + "_"
			}
			if !m.Valid {
				name += "<br>_not valid as performance evidence_"
			}
			fmt.Fprintf(&b, "| %s | %s |\n", name, strings.Join([]string{l[0], l[3], l[4], l[7], ct[0], ct[1], ct[3], lag[0], lag[2], lag[6]}, " | "))
		}
	}
	if n == 0 {
		return ""
	}
	return b.String()
}

func (v *view) summaryFaults() string {
	var b strings.Builder
	for _, c := range v.columns {
		for _, t := range c.Trials {
			for _, f := range t.Faults {
				mark := "○ did not bite"
				if f.Observed {
					mark = "✓ bit"
				}
				fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", md(v.label(t)), md(f.ID+" "+f.Kind), md(f.On), mark, orWord(md(f.Planned), "–"), orWord(md(f.Effect), "–"))
			}
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "\n<details><summary>Faults, planned and observed</summary>\n\n| trial | fault | on | | planned | observed |\n|---|---|---|---|---|---|\n" + b.String() + "\n</details>\n"
}

func (v *view) summaryGates() string {
	var b strings.Builder
	for _, g := range v.Gates {
		mark := "✓ met"
		if !g.OK {
			mark = "✗ **missed**"
		}
		fmt.Fprintf(&b, "- gate %s: %s × %s: %s\n", mark, md(g.Target), md(g.Scenario), md(gateText(g)))
	}
	if b.Len() == 0 {
		return ""
	}
	return "\n" + b.String()
}
