package reports

import (
	"fmt"
	"slices"

	"github.com/eventproof/eventproof/verdict"
)

// The exit codes.
const (
	ExitOK          = 0   // every required invariant holds
	ExitViolated    = 1   // an invariant is violated
	ExitUndecided   = 2   // a required invariant could not be decided or was not exercised
	ExitGate        = 3   // an absolute limit was missed
	ExitEnvironment = 4   // a store could not start or be reached
	ExitUsage       = 64  // wrong flags or configuration, before any trial
	ExitInternal    = 70  // the harness failed
	ExitInterrupted = 130 // SIGINT
	ExitTerminated  = 143 // SIGTERM
)

// exitRank orders the codes: a lower rank wins. A violation seen before an interrupt stays a violation.
var exitRank = []int{ExitViolated, ExitTerminated, ExitInterrupted, ExitInternal, ExitEnvironment, ExitUndecided, ExitGate, ExitOK}

// ExitCode computes the exit code of a run with every reason, the deciding ones first.
//
// A violated invariant counts whether it is required or not, and whatever the kind of the target: only `prove`
// inverts. A required invariant that is inconclusive or not exercised is never a success. With strict, one
// that is inconclusive without being required counts too; not-exercised does not, since a scenario can't
// exercise what it is not about.
func ExitCode(r *Result, strict bool) Exit {
	var found []exitReason
	add := func(code int, format string, args ...any) {
		found = append(found, exitReason{code, fmt.Sprintf(format, args...)})
	}
	if r.Run.Interrupted != "" {
		code := ExitInterrupted
		if r.Run.Interrupted == "SIGTERM" || r.Run.Interrupted == "terminated" {
			code = ExitTerminated
		}
		add(code, "interrupted by %s; what was recorded until then was judged", r.Run.Interrupted)
	}
	if len(r.Trials) == 0 {
		add(ExitUndecided, "no trial was run")
	}
	for i := range r.Trials {
		t := &r.Trials[i]
		where := fmt.Sprintf("%s × %s", t.Target, t.Scenario)
		switch {
		case t.Problem != "" && t.ProblemKind == ProblemEnvironment:
			add(ExitEnvironment, "environment: %s: %s", where, t.Problem)
		case t.Problem != "":
			add(ExitInternal, "internal error: %s: %s", where, t.Problem)
		case len(t.Verdicts) == 0:
			add(ExitUndecided, "nothing was judged: %s", where)
		}
		for k := range t.Verdicts {
			v := &t.Verdicts[k]
			switch v.Verdict {
			case verdict.Violated:
				add(ExitViolated, "violated: %s: %s (%d)", v.Invariant, where, max(1, v.Count))
			case verdict.Error:
				add(ExitInternal, "error: %s: %s: %s", v.Invariant, where, v.Reason)
			case verdict.Inconclusive:
				if v.Required || strict {
					add(ExitUndecided, "inconclusive: %s: %s: %s", v.Invariant, where, v.Reason)
				}
			case verdict.NotExercised:
				if v.Required {
					add(ExitUndecided, "not exercised: %s: %s: %s", v.Invariant, where, v.Reason)
				}
			case verdict.NotPromised:
				if v.Required {
					add(ExitUndecided, "required but not promised: %s: %s", v.Invariant, where)
				}
			case verdict.Holds:
			}
		}
	}
	for _, g := range r.Gates {
		if !g.OK {
			add(ExitGate, "gate missed: %s: %s × %s", gateText(g), g.Target, g.Scenario)
		}
	}
	slices.SortStableFunc(found, func(a, b exitReason) int {
		return slices.Index(exitRank, a.code) - slices.Index(exitRank, b.code)
	})
	e := Exit{Reasons: []string{}}
	for i, f := range found {
		if i == 0 {
			e.Code = f.code
		}
		e.Reasons = append(e.Reasons, f.text)
	}
	return e
}

type exitReason struct {
	code int
	text string
}
