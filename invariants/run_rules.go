package invariants

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/eventproof/eventproof/verdict"
)

const (
	slugComplete  = "complete-history"
	slugExercised = "exercised"
)

func runRules() []Rule {
	return []Rule{
		{
			ID: "INV-ACCOUNT", Slug: slugComplete, Native: true,
			Title:         "The history accounts for every attempt, and nothing of it was lost",
			Opportunities: []Opportunity{oppAttempts, oppProcesses},
			Check:         checkComplete,
		},
		{
			ID: "INV-EXERCISED", Slug: slugExercised, Native: true,
			Title:         "The scenario's minimum opportunities were met and every fault bit",
			Opportunities: []Opportunity{oppRequirements, oppFaults},
			// Check of rules calls checkExercised, which sees the results of all others.
			Check: func(*Run, *verdict.Result) {},
		},
	}
}

// complete-history (INV-ACCOUNT): attempts = ok + fail + unknown, ids unique, nothing lost by the recorder. A view
// that shows an effect without a ledger row, or lacks ledger rows while equal to fold(L), is an error: the
// instrumentation was bypassed. So is an audit that found itself contradicted. A process that never began or never ended
// leaves it open what was lost.
func checkComplete(run *Run, res *verdict.Result) {
	res.Evidence[oppAttempts.Name] = run.attempts
	res.Evidence[oppProcesses.Name] = int64(len(run.Processes))
	for _, p := range run.Problems {
		violate(res, func() *witness {
			return newWitness(run, "", "The history does not add up: %s.", p)
		})
	}
	if bypassed := projectionBookkeeping(run); len(bypassed) > 0 {
		res.Verdict = verdict.Error
		res.Reason = "instrumentation was bypassed: " + strings.Join(bypassed, "; ")
		return
	}
	if run.Audit != nil && run.Audit.Problem != "" {
		res.Verdict, res.Reason = verdict.Error, "the audit found itself contradicted: "+run.Audit.Problem
		return
	}
	if run.Audit != nil && run.Fence == nil {
		res.Verdict, res.Reason = verdict.Inconclusive, "the log was read without a fence: something may have landed after that"
		return
	}
	if !run.Complete {
		res.Verdict, res.Reason = verdict.Inconclusive, "the history ends without its end record"
		return
	}
	if half := run.halfKnown(); len(half) > 0 {
		res.Verdict, res.Reason = verdict.Inconclusive, "what they recorded can't be counted: "+strings.Join(half, ", ")
	}
}

// halfKnown names the processes whose begin or end is not recorded.
func (r *Run) halfKnown() []string {
	var out []string
	for _, id := range slices.Sorted(maps.Keys(r.Processes)) {
		switch p := r.Processes[id]; {
		case p.Name == "" && p.T == 0:
			out = append(out, fmt.Sprintf("process %d never began", id))
		case p.End == nil:
			out = append(out, fmt.Sprintf("process %d (%s) never ended", id, p.Name))
		}
	}
	return out
}

// exercised (INV-EXERCISED): the scenario's minimum opportunities were met and every fault bit; else
// not-exercised. A scenario that requires a rule which does not exist is an error.
func checkExercised(run *Run, r Rule, rules []Rule, judged []verdict.Result) verdict.Result {
	res := verdict.Result{
		Invariant: r.Slug, ID: r.ID, Required: run.required(r.Slug), Verdict: verdict.Holds,
		Evidence: map[string]int64{oppRequirements.Name: int64(len(run.Info.Required)), oppFaults.Name: 0},
	}
	known := map[string]bool{}
	for _, r := range rules {
		known[r.Slug] = true
	}
	results := map[string]*verdict.Result{}
	for i := range judged {
		results[judged[i].Invariant] = &judged[i]
	}
	var lacking []string
	for _, q := range run.Info.Required {
		if !known[q.Invariant] {
			res.Verdict = verdict.Error
			res.Reason = fmt.Sprintf("the scenario requires %q, which is no rule of this tool", q.Invariant)
			return res
		}
		if got := results[q.Invariant]; got != nil && got.Evidence != nil {
			if got.Verdict == verdict.NotPromised || got.Verdict == verdict.Error {
				continue
			}
			if short := shortfall(run, got); short != "" {
				lacking = append(lacking, q.Invariant+": "+short)
			}
		}
	}
	faults := map[string]*Fault{}
	for _, f := range run.Faults {
		faults[f.ID] = f
	}
	for _, id := range run.Info.Faults {
		switch f := faults[id]; {
		case f == nil || !f.Began():
			lacking = append(lacking, fmt.Sprintf("fault %s never began", id))
		case !f.Bit():
			lacking = append(lacking, fmt.Sprintf("fault %s did not bite", id))
		default:
			res.Evidence[oppFaults.Name]++
		}
	}
	if len(lacking) > 0 {
		res.Verdict, res.Reason = verdict.NotExercised, strings.Join(lacking, "; ")
	} else if len(run.Info.Required) == 0 && len(run.Info.Faults) == 0 {
		res.Verdict, res.Reason = verdict.NotExercised, "the scenario requires nothing"
	}
	return res
}
