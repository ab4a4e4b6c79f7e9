package invariants

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/verdict"
)

// Rule is one invariant.
type Rule struct {
	ID    string // "INV-OCC", stable
	Slug  string // "optimistic-concurrency", what people see
	Title string // one sentence: what holds
	// Promises that the target must declare, else the verdict is not-promised.
	Promises []eventstore.Promise
	// NeedsLog: without an audit the verdict is inconclusive.
	NeedsLog bool
	// Workload that the rule speaks of; empty = every workload.
	Workload string
	// Native: the rule speaks of auctions in their native form too, which have no stream to load, decide on or project.
	Native bool
	// Whole: the rule compares streams with each other, or what belongs to none; see CheckInParts.
	Whole bool
	// Opportunities are the counts that the rule gives as evidence.
	Opportunities []Opportunity
	// Check counts opportunities into the result's evidence and adds violations. It leaves the verdict at
	// its zero value, except where it can't judge: then it sets Inconclusive or Error, with the reason.
	Check func(*Run, *verdict.Result)
}

// Opportunity is one kind of place in a run where a rule could have been broken.
type Opportunity struct {
	Name    string // key of the evidence, snake case, stable
	Meaning string
}

// Options of Check.
type Options struct {
	Only []string // slugs or ids; empty = every rule
}

// Rules returns every rule in the order of reports, root first: the log before decisions and answers, the
// write side before the read side, position and skip before fold, the run itself at the end.
func Rules() []Rule {
	return slices.Concat(writeRules(), auctionRules(), ownerRules(), projectionRules(), runRules())
}

// Check judges a run by the rules, in the order of Rules. The same run always gets the same results.
func Check(run *Run, opts Options) []verdict.Result {
	rules := Rules()
	return opts.collect(run, rules, func(i int) verdict.Result { return judge(run, rules[i]) })
}

// collect asks for the result of each rule that is wanted, or needed by one that is.
func (o Options) collect(run *Run, rules []Rule, judged func(i int) verdict.Result) []verdict.Result {
	var all, out []verdict.Result
	for i, r := range rules {
		if r.Slug == slugExercised || !o.needs(run, rules, r) {
			continue
		}
		res := judged(i)
		all = append(all, res)
		if o.wants(r) {
			out = append(out, res)
		}
	}
	if i := exercisedRule(rules); o.wants(rules[i]) {
		out = append(out, checkExercised(run, rules[i], rules, all))
	}
	return out
}

func exercisedRule(rules []Rule) int {
	return slices.IndexFunc(rules, func(r Rule) bool { return r.Slug == slugExercised })
}

func (o Options) wants(r Rule) bool {
	return len(o.Only) == 0 || slices.Contains(o.Only, r.Slug) || slices.Contains(o.Only, r.ID)
}

// needs reports whether a rule has to be judged: it is wanted, or required and looked at by the rule that says whether
// the scenario was exercised.
func (o Options) needs(run *Run, rules []Rule, r Rule) bool {
	if len(o.Only) == 0 {
		// What speaks of another kind of stream promised and withheld nothing.
		return r.Workload == "" || r.Workload == run.Info.Workload || run.required(r.Slug)
	}
	return o.wants(r) || run.required(r.Slug) && o.wants(rules[exercisedRule(rules)])
}

func (r *Run) required(slug string) bool {
	for _, q := range r.Info.Required {
		if q.Invariant == slug {
			return true
		}
	}
	return false
}

// judge runs one rule and turns what it found into a verdict.
func judge(run *Run, r Rule) verdict.Result {
	res := examine(run, r)
	conclude(run, &res)
	return res
}

// examine runs one rule. Its verdict is still to be concluded, except where it can't judge.
func examine(run *Run, r Rule) (res verdict.Result) {
	res = verdict.Result{Invariant: r.Slug, ID: r.ID, Required: run.required(r.Slug), Evidence: map[string]int64{}}
	defer func() {
		if p := recover(); p != nil {
			res.Verdict = verdict.Error
			res.Reason = fmt.Sprintf("the checker failed: %v", p)
			res.Count, res.Violations = 0, nil
		}
	}()
	for _, p := range r.Promises {
		if !run.Promised(p) {
			res.Verdict = verdict.NotPromised
			res.Reason = fmt.Sprintf("the target does not promise %s", p)
			return res
		}
	}
	if r.Workload != "" && r.Workload != run.Info.Workload {
		res.Verdict = verdict.NotPromised
		res.Reason = fmt.Sprintf("speaks of the %s workload only", r.Workload)
		return res
	}
	if run.native() && !r.Native {
		res.Verdict = verdict.NotPromised
		res.Reason = "the target keeps auctions as rows, and no stream that the rule could speak of"
		return res
	}
	if r.NeedsLog && run.Audit == nil {
		res.Verdict = verdict.Inconclusive
		res.Reason = "the final log was not read (no audit)"
		return res
	}
	for _, o := range r.Opportunities {
		res.Evidence[o.Name] = 0
	}
	r.Check(run, &res)
	return res
}

// conclude sets the verdict: a violation counts for more than everything else; then what the rule itself could
// not judge; then missing opportunities.
func conclude(run *Run, res *verdict.Result) {
	if res.Count > 0 {
		res.Verdict = verdict.Violated
		return
	}
	if res.Verdict != verdict.NotExercised || res.Reason != "" {
		return
	}
	if short := shortfall(run, res); short != "" {
		res.Reason = short
		return
	}
	res.Verdict = verdict.Holds
}

// shortfall says which opportunities the run lacked, empty if none: at least one of any kind, and the minimums
// of the scenario.
func shortfall(run *Run, res *verdict.Result) string {
	var total int64
	for _, n := range res.Evidence {
		total += n
	}
	if total == 0 {
		return "the run had no opportunity to break it"
	}
	var short []string
	for _, q := range run.Info.Required {
		if q.Invariant != res.Invariant {
			continue
		}
		for name, least := range q.Min {
			n, known := res.Evidence[name]
			switch {
			case !known:
				short = append(short, fmt.Sprintf("%s is not counted by this rule", name))
			case n < least:
				short = append(short, fmt.Sprintf("%s: %d of at least %d", name, n, least))
			}
		}
	}
	sort.Strings(short)
	if len(short) == 0 {
		return ""
	}
	return "too few opportunities: " + strings.Join(short, ", ")
}
