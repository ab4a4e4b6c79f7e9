package targets

import "github.com/eventproof/eventproof/eventstore"

// Ruling is one row of an adapter's outcome table: what it makes of an answer, or of its absence, at a step of its
// protocol (INVARIANTS 2). Adapters make the rows by asking their classifier, so that they can't say anything else than it
// does. What fits no row is unknown.
type Ruling struct {
	Step    string // "commit"
	Answer  string // "SQLSTATE 40…", "no answer: the connection was lost"
	Outcome eventstore.Outcome
	Reason  eventstore.Reason
}

// Rule makes a row of what a classifier said.
func Rule(step, answer string, err error) Ruling {
	outcome, reason := eventstore.Classify(err)
	return Ruling{Step: step, Answer: answer, Outcome: outcome, Reason: reason}
}
