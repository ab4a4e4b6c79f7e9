package runner

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/eventproof/eventproof/reports"
	"github.com/eventproof/eventproof/scenarios"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/verdict"
)

// Proof is what `prove` found for one pairing of target and script.
type Proof struct {
	Target  string `json:"target"`
	Control string `json:"control,omitempty"` // empty: a correct assembly, which must be left alone
	Script  string `json:"script"`
	Seeds   int    `json:"seeds"`
	Caught  int    `json:"caught"` // seeds in which the whole must list fired; for a correct assembly: seeds left alone
	// Fired counts seeds by the invariant that was violated.
	Fired map[string]int `json:"fired"`
	Must  []string       `json:"must,omitempty"`
	May   []string       `json:"may,omitempty"`
	// Wrong says what was not as it must be, with the seed.
	Wrong []string `json:"wrong,omitempty"`
	// Problems say why seeds could not be played or judged: they prove nothing, either way.
	Problems    []string            `json:"problems,omitempty"`
	ProblemKind reports.ProblemKind `json:"problem_kind,omitempty"` // of the first problem
}

// OK reports whether every seed came out as it must.
func (p Proof) OK() bool {
	return len(p.Wrong) == 0 && len(p.Problems) == 0 && p.Caught == p.Seeds && p.Seeds > 0
}

func (p *Proof) problem(kind reports.ProblemKind, format string, args ...any) {
	if len(p.Problems) == 0 {
		p.ProblemKind = kind
	}
	p.Problems = append(p.Problems, fmt.Sprintf(format, args...))
}

// Unproved is the proof of a pairing for which there is no server.
func Unproved(p Pairing) Proof {
	out := newProof(p, 0)
	out.problem(reports.ProblemEnvironment, "there is no server to play it on")
	return out
}

func newProof(p Pairing, seeds int) Proof {
	out := Proof{Target: p.Target.Name(), Script: p.Script.Name, Seeds: seeds, Fired: map[string]int{}}
	if c := p.Target.Control; c != nil {
		out.Control, out.Must, out.May = c.ID, c.Must, slices.Sorted(maps.Keys(c.May))
	}
	return out
}

// Pairing is a script with a target to play it on.
type Pairing struct {
	Target targets.Target
	Script scenarios.Scenario
}

// Pairings lists what has to be proved: every control with its scripts, and every correct target with the scripts of
// the controls that were made from it.
func Pairings(all []targets.Target, library []scenarios.Scenario) ([]Pairing, error) {
	find := func(name string) (scenarios.Scenario, bool) {
		i := slices.IndexFunc(library, func(s scenarios.Scenario) bool { return s.Name == name })
		if i < 0 {
			return scenarios.Scenario{}, false
		}
		return library[i], true
	}
	var out []Pairing
	add := func(t targets.Target, s scenarios.Scenario) {
		if !slices.ContainsFunc(out, func(p Pairing) bool { return p.Target.Name() == t.Name() && p.Script.Name == s.Name }) {
			out = append(out, Pairing{Target: t, Script: s})
		}
	}
	for _, t := range all {
		if t.Correct() {
			continue
		}
		for _, name := range t.Control.Scripts {
			s, ok := find(name)
			if !ok {
				return nil, fmt.Errorf("control %s names the script %q, which is not in the library", t.Name(), name)
			}
			add(t, s)
			for _, base := range all {
				if base.Correct() && base.Store == t.Store && slices.Contains(base.Workloads, s.Workload.Kind) {
					add(base, s)
				}
			}
		}
	}
	return out, nil
}

// Prove plays one pairing over seeds 1…n. A seed in which ctx ended does not count.
func (r *Runner) Prove(ctx context.Context, p Pairing, server Server, seeds int, each func(reports.Trial)) Proof {
	out := newProof(p, seeds)
	for seed := 1; seed <= seeds; seed++ {
		t := r.Run(ctx, Spec{Scenario: p.Script, Target: p.Target, Seed: uint64(seed)}, server)
		if each != nil {
			each(t)
		}
		if ctx.Err() != nil {
			out.Seeds = seed - 1
			return out
		}
		if t.Problem != "" {
			out.problem(t.ProblemKind, "seed %d: the trial failed: %s", seed, t.Problem)
			continue
		}
		wrong := judgeProof(p.Target, t, out.Fired)
		if len(wrong) == 0 {
			out.Caught++
		}
		for _, w := range wrong {
			out.Wrong = append(out.Wrong, fmt.Sprintf("seed %d: %s", seed, w))
		}
	}
	return out
}

// judgeProof says what is not as it must be in one trial.
func judgeProof(target targets.Target, t reports.Trial, fired map[string]int) []string {
	var wrong []string
	violated := map[string]bool{}
	for _, v := range t.Verdicts {
		switch v.Verdict {
		case verdict.Violated:
			violated[v.Invariant] = true
			fired[v.Invariant]++
		case verdict.Error:
			wrong = append(wrong, fmt.Sprintf("%s: error: %s", v.Invariant, v.Reason))
		case verdict.Inconclusive:
			if target.Correct() {
				wrong = append(wrong, fmt.Sprintf("%s: inconclusive: %s", v.Invariant, v.Reason))
			}
		case verdict.NotExercised:
			if target.Correct() && v.Required {
				wrong = append(wrong, fmt.Sprintf("%s: not exercised: %s", v.Invariant, v.Reason))
			}
		case verdict.Holds, verdict.NotPromised:
		}
	}
	if target.Correct() {
		for _, v := range slices.Sorted(maps.Keys(violated)) {
			wrong = append(wrong, "false alarm: "+v)
		}
		return wrong
	}
	for _, m := range target.Control.Must {
		if !violated[m] {
			wrong = append(wrong, "escaped "+m)
		}
	}
	for _, v := range slices.Sorted(maps.Keys(violated)) {
		if _, may := target.Control.May[v]; !may && !slices.Contains(target.Control.Must, v) {
			wrong = append(wrong, "fired outside its lists: "+v)
		}
	}
	return wrong
}
