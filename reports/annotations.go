package reports

import (
	"fmt"
	"io"
	"strings"

	"github.com/eventproof/eventproof/verdict"
)

// maxAnnotations is what a job page shows of each level.
const maxAnnotations = 10

// Annotations writes workflow commands for a GitHub job: one error a violated invariant and target, worst
// first, at the line of the scenario that expects it; a warning for a required one that was not decided and
// for a missed gate. Text that others wrote is escaped and can't start a command of its own.
func Annotations(w io.Writer, r *Result) error {
	v := newView(r)
	var errs, warns []string
	for _, s := range v.stories {
		p := s.Parts[0]
		text := orReason(p.Reason)
		if len(p.Violations) > 0 {
			text = p.Violations[0].Summary
			if re := p.Violations[0].Recheck; re != "" {
				text += "\nrecheck: " + re
			}
		}
		errs = append(errs, annotation("error", p.Trial.ScenarioFile, p.Trial.ExpectLines[s.Invariant],
			fmt.Sprintf("%s violated by %s", s.Invariant, s.Target), text))
	}
	for i := range r.Trials {
		t := &r.Trials[i]
		if t.Problem != "" {
			errs = append(errs, annotation("error", t.ScenarioFile, 0, "trial not run or judged: "+t.Target, t.Problem))
		}
	}
	for _, c := range v.columns {
		t := c.Trials[0]
		for _, slug := range v.rows {
			cl := c.cell(slug)
			if cl.present && cl.required && (cl.verdict == verdict.Inconclusive || cl.verdict == verdict.NotExercised || cl.verdict == verdict.Error) {
				warns = append(warns, annotation("warning", t.ScenarioFile, t.ExpectLines[slug],
					fmt.Sprintf("%s %s on %s", slug, word(cl.verdict), c.Target), orReason(cl.reason)))
			}
		}
	}
	for _, g := range r.Gates {
		if !g.OK {
			warns = append(warns, annotation("warning", g.File, g.Line, "gate missed on "+g.Target, gateText(g)))
		}
	}
	for _, list := range [][]string{errs, warns} {
		for _, l := range list[:min(len(list), maxAnnotations)] {
			if _, err := io.WriteString(w, l+"\n"); err != nil {
				return err
			}
		}
	}
	return nil
}

func annotation(level, file string, line int, title, message string) string {
	var props []string
	if file != "" {
		props = append(props, "file="+property(file))
		if line > 0 {
			props = append(props, fmt.Sprintf("line=%d", line))
		}
	}
	props = append(props, "title="+property("eventproof: "+title))
	lines := strings.Split(message, "\n")
	for i := range lines {
		lines[i] = plain(lines[i])
	}
	return "::" + level + " " + strings.Join(props, ",") + "::" + escapeData(strings.Join(lines, "\n"))
}

// escapeData and property follow the workflow command format: a raw % or line break would end the value.
func escapeData(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(s)
}

func property(s string) string {
	return strings.NewReplacer(":", "%3A", ",", "%2C").Replace(escapeData(plain(s)))
}
