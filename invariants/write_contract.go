package invariants

import (
	"fmt"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/verdict"
)

// checkReplays is the part of honest-outcomes about tries that were reported as failed and had their effect all the
// same. A later try that is answered "executed before" proves it, if every earlier try of the write was reported as
// failed:
//
//	try 1     append w … stored     → fail (throttled)
//	try 2     append w              → ok, executed before
//
// A single try may be answered so (its driver may have sent it twice), and so may one beside a try whose outcome is
// not known.
func checkReplays(run *Run, res *verdict.Result) {
	for _, w := range run.Writes {
		for i := range w.Attempts {
			a := &w.Attempts[i]
			if a.Answer == nil || !a.Answer.Replayed || a.Answer.Names != w || i == 0 {
				continue
			}
			failed := true
			for j := range w.Attempts {
				b := &w.Attempts[j]
				failed = failed && (j == i || b.Invoke > a.T || b.Outcome == eventstore.Fail && !b.Open)
			}
			if !failed {
				continue
			}
			violate(res, func() *witness {
				return newWitness(run, w.Stream, "%s was answered as executed before, yet every earlier try of it was reported as failed.", writeText(w)).
					attempt(&w.Attempts[i-1]).cause().attempt(a).cause()
			})
			break
		}
	}
}

// leastBatch is the number of events that a store which promises atomic batches must take at once: a transaction on
// DynamoDB holds 100 items, and each event may bring a feed item along.
const leastBatch = 49

// checkStoreRefusals is the part of truthful-rejections about refusals by the store: it may not call malformed, too
// large or superseded what is none of it, and not fence an owner where ownership is not promised. What it makes of a
// batch is its own affair where it promises no atomic ones, and an event id that another write claims too is a reason to
// refuse. A definite error of another kind can have reasons that no rule sees (a full disk, say); if a caller was told
// that the command had failed, it leaves the verdict open.
func checkStoreRefusals(run *Run, res *verdict.Result) {
	rejected := 0
	batches := run.Promised(eventstore.AtomicBatch)
	for _, w := range run.Writes {
		for i := range w.Attempts {
			a := &w.Attempts[i]
			if a.Outcome != eventstore.Fail {
				continue
			}
			wrong := ""
			switch a.Reason {
			case eventstore.Invalid:
				if (len(w.Events) == 1 || batches) && !run.disputes(w) {
					wrong = "is malformed, which it is not"
				}
			case eventstore.TooLarge:
				if len(w.Events) == 1 || batches && len(w.Events) <= leastBatch {
					wrong = fmt.Sprintf("is too large, with events: %d", len(w.Events))
				}
			case eventstore.Fenced:
				if !run.Promised(eventstore.FencedOwnership) {
					wrong = "comes from a former owner, where ownership is not promised"
				}
			case eventstore.Refused:
				if !run.native() {
					wrong = "failed by a condition of its own, where there is none"
				}
			case eventstore.Superseded, eventstore.ReasonNone:
				wrong = fmt.Sprintf("failed (%s), which is no reason to refuse an append", a.Reason)
			case eventstore.Rejected:
				if e := w.Owner.End; e != nil && e.Result == history.ResultFailed {
					rejected++
				}
			case eventstore.VersionConflict, eventstore.ExpectedAhead, eventstore.LostRace, eventstore.TransactionConflict,
				eventstore.Throttled, eventstore.GroupAborted, eventstore.NotSent, eventstore.LostReply, eventstore.TimedOut,
				eventstore.Cancelled, eventstore.ServerUncertain, eventstore.Killed:
			}
			if wrong != "" {
				violate(res, func() *witness {
					return newWitness(run, w.Stream, "The store says that %s %s.", writeText(w), wrong).attempt(a).cause()
				})
			}
		}
	}
	if rejected > 0 && res.Reason == "" {
		res.Verdict = verdict.Inconclusive
		res.Reason = fmt.Sprintf("the store refused %d legal appends with an error of its own, whose truth no rule can see", rejected)
	}
}

// disputes reports whether another write claims an event of this one.
func (r *Run) disputes(w *Write) bool {
	for _, e := range w.Events {
		if len(r.Disputed[e.ID]) > 1 {
			return true
		}
	}
	return false
}
