// Package verdict holds the closed set of verdicts and the shape of what a checker says.
package verdict

import (
	"encoding/json"
	"fmt"
)

// Verdict is what a checker says of one invariant in one trial. The set is closed.
type Verdict uint8

// The verdicts. NotExercised is the zero value: a result that nobody filled in proves nothing.
const (
	// NotExercised: the run had too few opportunities, or a fault did not bite.
	NotExercised Verdict = iota
	// Holds: no violation in the counted opportunities under these faults. Never "proved".
	Holds
	// Violated: a witness exists.
	Violated
	// Inconclusive: the budget ran out, there was no audit, or work was still moving at the bound.
	Inconclusive
	// NotPromised: the target does not declare the promise.
	NotPromised
	// Error: the harness failed; says nothing about the store.
	Error
)

// String returns the verdict's name in files and reports.
func (v Verdict) String() string {
	switch v {
	case NotExercised:
		return "not-exercised"
	case Holds:
		return "holds"
	case Violated:
		return "violated"
	case Inconclusive:
		return "inconclusive"
	case NotPromised:
		return "not-promised"
	case Error:
		return "error"
	}
	panic(fmt.Sprintf("verdict: %d is not a verdict", uint8(v)))
}

// MarshalJSON writes the name.
func (v Verdict) MarshalJSON() ([]byte, error) { return json.Marshal(v.String()) }

// UnmarshalJSON reads the name.
func (v *Verdict) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	for c := NotExercised; c <= Error; c++ {
		if c.String() == s {
			*v = c
			return nil
		}
	}
	return fmt.Errorf("verdict: unknown verdict %q", s)
}

// Result is what one invariant says of one trial.
type Result struct {
	Invariant string  `json:"invariant"` // slug
	ID        string  `json:"id"`        // INV- id
	Verdict   Verdict `json:"verdict"`
	Required  bool    `json:"required"`
	// Evidence counts the opportunities: places in this run where the rule could have been broken.
	Evidence map[string]int64 `json:"evidence"`
	// Reason says why the verdict is not holds or violated, or qualifies it.
	Reason string `json:"reason,omitempty"`
	// Count is the number of violations found; Violations holds the first few.
	Count      int         `json:"count,omitempty"`
	Violations []Violation `json:"violations,omitempty"`
}

// Violation is one witness that a person can follow.
type Violation struct {
	Summary  string   `json:"summary"` // one sentence: what happened and why that is wrong
	Stream   string   `json:"stream,omitempty"`
	WindowNS [2]int64 `json:"window_ns"` // relative to the trial's start
	// Records are the events, attempts and ledger rows that show it, in order of time.
	Records []Evidence `json:"records"`
	Recheck string     `json:"recheck,omitempty"` // command that judges the recorded history again
	Repeat  string     `json:"repeat,omitempty"`  // command that repeats workload and faults
}

// Evidence is one record of a witness, as one bar or mark of the timeline.
type Evidence struct {
	Lane    string `json:"lane"` // who: "writer-1/3", "store", "projector-1", "fault"
	StartNS int64  `json:"start_ns"`
	EndNS   int64  `json:"end_ns"` // equals StartNS for a point in time; -1 = never returned
	What    string `json:"what"`   // "append v6 expected 5"
	Outcome string `json:"outcome,omitempty"`
	Cause   bool   `json:"cause,omitempty"` // one of the records that make it wrong
}
