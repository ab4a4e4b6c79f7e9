package reports

import (
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/eventproof/eventproof/verdict"
)

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Skipped  int          `xml:"skipped,attr"`
	Time     string       `xml:"time,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name       string          `xml:"name,attr"`
	Tests      int             `xml:"tests,attr"`
	Failures   int             `xml:"failures,attr"`
	Errors     int             `xml:"errors,attr"`
	Skipped    int             `xml:"skipped,attr"`
	Time       string          `xml:"time,attr"`
	Properties []junitProperty `xml:"properties>property"`
	Cases      []junitCase     `xml:"testcase"`
}

type junitProperty struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	File    string        `xml:"file,attr,omitempty"`
	Line    int           `xml:"line,attr,omitempty"`
	Time    string        `xml:"time,attr"`
	Failure *junitProblem `xml:"failure"`
	Error   *junitProblem `xml:"error"`
	Skipped *junitSkipped `xml:"skipped"`
	Out     string        `xml:"system-out,omitempty"`
}

type junitProblem struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
	Body    string `xml:",chardata"`
}

type junitSkipped struct {
	Message string `xml:"message,attr"`
}

// JUnit writes the result for CI systems: a suite a target × scenario, a case an invariant and a gate.
// Violated is a failure, error an error; not-promised is skipped with its reason, inconclusive and
// not-exercised too, but with strict they are failures where the scenario requires them (inconclusive always).
func JUnit(w io.Writer, r *Result, strict bool) error {
	v := newView(r)
	all := junitSuites{Name: "eventproof " + plain(r.Run.Name), Time: junitTime(r.Run.DurationS)}
	for _, c := range v.columns {
		s := v.junitSuite(c, strict)
		all.Tests += s.Tests
		all.Failures += s.Failures
		all.Errors += s.Errors
		all.Skipped += s.Skipped
		all.Suites = append(all.Suites, s)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func junitTime(s float64) string { return strconv.FormatFloat(s, 'f', 3, 64) }

func (v *view) junitSuite(c *column, strict bool) junitSuite {
	class := plain(c.Target) + "." + plain(c.Scenario)
	s := junitSuite{Name: plain(c.name())}
	var took float64
	for _, t := range c.Trials {
		took += t.DurationS
		s.Properties = append(s.Properties,
			junitProperty{"seed", strconv.FormatUint(t.Seed, 10)},
			junitProperty{"provider", plain(t.Provider)},
			junitProperty{"fidelity", plain(t.Fidelity)},
			junitProperty{"store_version", plain(t.StoreVersion)},
			junitProperty{"kind", plain(t.Kind)})
		if t.Problem != "" {
			s.Cases = append(s.Cases, junitCase{Class: class, Name: "trial " + plain(t.ID), Time: "0.000", File: plain(t.ScenarioFile),
				Error: &junitProblem{Message: plain(t.Problem), Type: orWord(string(t.ProblemKind), string(ProblemInternal))}})
		}
	}
	s.Time = junitTime(took)
	for _, slug := range v.rows {
		cl := c.cell(slug)
		if !cl.present {
			continue
		}
		tc := junitCase{Class: class, Name: slug, Time: "0.000", File: plain(c.Trials[0].ScenarioFile), Line: c.Trials[0].ExpectLines[slug]}
		skip := &junitSkipped{Message: word(cl.verdict) + ": " + plain(orReason(cl.reason))}
		fail := &junitProblem{Message: skip.Message, Type: slug}
		switch cl.verdict {
		case verdict.Violated:
			tc.Failure = &junitProblem{Type: slug, Message: plural(cl.violations, "violation", "violations"), Body: v.storyText(slug, c)}
		case verdict.Error:
			tc.Error = &junitProblem{Type: slug, Message: plain(orReason(cl.reason))}
		case verdict.Inconclusive:
			if strict {
				tc.Failure = fail
			} else {
				tc.Skipped = skip
			}
		case verdict.NotExercised:
			if strict && cl.required {
				tc.Failure = fail
			} else {
				tc.Skipped = skip
			}
		case verdict.NotPromised:
			tc.Skipped = skip
		case verdict.Holds:
			tc.Out = fmt.Sprintf("no violation in %s opportunities under these faults", count(cl.opportunities))
		}
		s.Cases = append(s.Cases, tc)
	}
	for _, g := range v.Gates {
		if g.Target != c.Target || g.Scenario != c.Scenario {
			continue
		}
		tc := junitCase{Class: class, Name: "gate " + plain(g.Metric) + " " + plain(g.Op), Time: "0.000", File: plain(g.File), Line: g.Line}
		if !g.OK {
			tc.Failure = &junitProblem{Type: "gate", Message: plain(gateText(g))}
		}
		s.Cases = append(s.Cases, tc)
	}
	s.Tests = len(s.Cases)
	for _, tc := range s.Cases {
		switch {
		case tc.Failure != nil:
			s.Failures++
		case tc.Error != nil:
			s.Errors++
		case tc.Skipped != nil:
			s.Skipped++
		}
	}
	return s
}

func orWord(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// storyText is the counterexample of one cell with both ways to see it again.
func (v *view) storyText(slug string, c *column) string {
	var b strings.Builder
	for _, t := range c.Trials {
		for i := range t.Verdicts {
			if res := &t.Verdicts[i]; res.Invariant == slug && res.Verdict == verdict.Violated {
				for k := range res.Violations {
					b.WriteString("\n")
					writeStory(&b, &res.Violations[k])
				}
			}
		}
	}
	return b.String()
}

func writeStory(b *strings.Builder, viol *verdict.Violation) {
	b.WriteString(plain(viol.Summary) + "\n")
	for _, l := range timeline(viol, 110) {
		b.WriteString("  " + l + "\n")
	}
	if viol.Recheck != "" {
		fmt.Fprintf(b, "recheck: %s\n  (%s)\n", plain(viol.Recheck), recheckNote)
	}
	if viol.Repeat != "" {
		fmt.Fprintf(b, "repeat: %s\n  (%s)\n", plain(viol.Repeat), repeatNote)
	}
}
