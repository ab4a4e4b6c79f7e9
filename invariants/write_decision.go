package invariants

import (
	"fmt"
	"slices"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/verdict"
)

// no-overdraft (INV-OVERDRAFT): every prefix of L(s) folds to balance ≥ 0. The race it is about, balance 100:
//
//	writer 1   load v5 (100)  decide: withdraw 60  append expecting v5 → ok v6
//	writer 2   load v5 (100)  decide: withdraw 60  append expecting v5 → must conflict, reload 40, refuse
func checkOverdraft(run *Run, res *verdict.Result) {
	run.each(func(s *Stream, x *streamIndex) {
		res.Evidence[oppRacedDecisions.Name] += x.contention().decisions
		f := x.fold()
		res.Evidence[oppNearLimit.Name] += f.nearLimit
		for _, c := range s.Calls {
			if c.refusedByDecision() && c.End.Code == codeInsufficientFunds {
				res.Evidence[oppFundsRefusals.Name]++
			}
		}
		for _, o := range f.overdrawn {
			violate(res, func() *witness {
				v := newWitness(run, s.Name, "v%d of %s takes the balance from %d to %d.", o.l.Version, s.Name, o.before, o.after)
				if i := x.upTo(o.l.Version - 1); i > 0 {
					withWrites(v.logged(s.Log[i-1]), s.Log[i-1])
				}
				return withWrites(v.logged(o.l).cause(), o.l)
			})
		}
		stopped(res, f)
	})
}

// stopped marks a result that a log which can't be folded left without a judgement.
func stopped(res *verdict.Result, f *foldResult) {
	if f.stopped != nil && res.Reason == "" {
		res.Verdict, res.Reason = verdict.Inconclusive, f.stopped.Error()
	}
}

// unjudged marks a result for decisions that could not be made again.
func unjudged(res *verdict.Result, f *foldResult) {
	if f.unjudged > 0 && res.Reason == "" {
		res.Verdict, res.Reason = verdict.Inconclusive, f.why
	}
}

// valid-decision (INV-DECISION): for applied writes with a recorded basis, as whole batches (blind appends have
// none; one that was decided on a state and sent without its version is none): first version = basis + 1; basis hash = hash(fold(L[1..basis])); deciding again on that state
// gives exactly these payloads, event ids left out.
func checkDecision(run *Run, res *verdict.Result) {
	run.each(func(s *Stream, x *streamIndex) {
		res.Evidence[oppRacedDecisions.Name] += x.contention().decisions
		f := x.fold()
		res.Evidence[oppNearLimit.Name] += f.nearLimit
		for _, d := range f.findings {
			if d.write == nil {
				continue
			}
			violate(res, func() *witness {
				return newWitness(run, s.Name, "%s does not follow from its basis: %s.", writeText(d.write), d.text).
					read(d.write.Basis.Read).write(d.write).cause().logged(run.firstEvent(d.write)).cause()
			})
		}
		for _, w := range s.Writes {
			if !w.Applied || w.Basis.Hash.IsZero() {
				continue
			}
			if l := run.eventOf(w, 0); l != nil && l.Version != w.Basis.Version+1 {
				violate(res, func() *witness {
					return newWitness(run, s.Name, "%s was decided on v%d, but stands at v%d.", writeText(w), w.Basis.Version, l.Version).
						read(w.Basis.Read).write(w).cause().logged(l).cause()
				})
			}
		}
		unjudged(res, f)
	})
}

// The codes of refusals that the rules must know.
const (
	codeInsufficientFunds = "INSUFFICIENT_FUNDS"
	codeNotOpen           = "NOT_OPEN"
	codeAlreadyOpen       = "ALREADY_OPEN"
	codeInvalidAmount     = "INVALID_AMOUNT"
	codeBalanceNotZero    = "BALANCE_NOT_ZERO"
	codeStale             = "STALE_BID"
	codeClosed            = "AUCTION_CLOSED"
	codeInvalidPayload    = "INVALID_PAYLOAD"
	codeAlreadyExists     = "ALREADY_EXISTS"
)

// finalCode reports whether a refusal with this code stands: the same command will never be accepted after it, or
// only by a decision of its own.
func finalCode(code string) bool {
	switch code {
	case codeInsufficientFunds, codeNotOpen, codeAlreadyOpen, codeInvalidAmount, codeBalanceNotZero,
		codeStale, codeClosed, codeInvalidPayload, codeAlreadyExists:
		return true
	}
	return false
}

// truthful-rejections (INV-OUTCOME).
//
// Refusal by decision, on the recorded basis k and hash:
//
//	(a) hash = fold(L[1..k]);
//	(b) deciding again gives that refusal with the same code and amounts;
//	(c) let R be the read that fixed k (the tail query: a snapshot can't lower k; without one, from the call's
//	    start to its answer): k ≥ every version of L whose write returned before R's invoke, and nothing ≤ k was
//	    invoked after R returned; the same for eventual loads unless the target does not promise fresh refusals.
//
// Exhausted: that call has the configured number of version conflicts, each valid by optimistic-concurrency,
// and no write left unknown. Conflicts answered to repeats may or may not be among them: a repeat is no decision.
// STALE(h) to bid x: x ≤ h, and h satisfies monotonic-bids (d).
// CLOSED: an applied close was invoked ≤ the answer's return, or no creation of that auction had returned
// before the decision's read began.
// The retriable flag matches the code. See also checkStoreRefusals, and checkNativeRefusals for the native form.
func checkOutcome(run *Run, res *verdict.Result) {
	if run.native() {
		checkNativeRefusals(run, res)
		return
	}
	run.each(func(s *Stream, x *streamIndex) {
		res.Evidence[oppRacedDecisions.Name] += x.contention().decisions
		f := x.fold()
		for _, d := range f.findings {
			if d.call == nil {
				continue
			}
			violate(res, func() *witness {
				v := newWitness(run, s.Name, "%s %s was refused with %s, but %s.", d.call.Name, d.call.Command.ID, d.call.End.Code, d.text).
					read(d.call.End.basis().Read).answer(d.call).cause()
				for _, l := range x.slot(d.call.End.basis().Version) {
					v.logged(l)
				}
				return v
			})
		}
		for _, c := range s.Calls {
			if c.End == nil {
				continue
			}
			switch c.End.Result {
			case history.ResultRefused:
				res.Evidence[oppRefusals.Name]++
				checkRefusal(run, res, x, c)
			case history.ResultExhausted:
				res.Evidence[oppExhausted.Name]++
				checkExhausted(run, res, x, c)
			case history.ResultOK, history.ResultFailed, history.ResultUnknown:
			}
		}
		unjudged(res, f)
	})
	checkStoreRefusals(run, res)
}

// observed is the interval in which a refusal saw its stream: the read that fixed its basis, or the whole call. It is strong
// if the read was one and the target promises such. In the native form it is the attempt that was answered.
func (r *Run) observed(c *Call) (from, to int64, strong bool) {
	if r.native() {
		if a := c.answering(); a != nil {
			return a.Invoke, a.T, true
		}
		return c.Started, c.End.T, false
	}
	if q := c.End.basis().Read; q != nil {
		return q.Invoke, q.T, q.Strong && r.Promised(eventstore.StrongRead)
	}
	return c.Started, c.End.T, true
}

func checkRefusal(run *Run, res *verdict.Result, x *streamIndex, c *Call) {
	e := c.End
	wrong := func(cause *Logged, format string, args ...any) {
		violate(res, func() *witness {
			v := newWitness(run, c.Stream, "%s %s was refused with %s, but %s.", c.Name, c.Command.ID, e.Code, fmt.Sprintf(format, args...)).
				read(e.basis().Read).answer(c).cause()
			if cause != nil {
				v = withWrites(v.logged(cause).cause(), cause)
			}
			return v
		})
	}
	checkFlag(c, wrong)
	if retriableCode(e.Code) {
		return
	}
	if !c.refusedByDecision() {
		if res.Reason == "" {
			res.Verdict = verdict.Inconclusive
			res.Reason = fmt.Sprintf("the refusal of %s carries no record of its decision", c.Command.ID)
		}
		return
	}
	if c.Name == commandBlindDeposit {
		return
	}
	from, to, strong := run.observed(c)
	if strong || run.Promised(eventstore.FreshRefusals) {
		k := e.basis().Version
		if head, l := x.returnedBefore(from); head > k {
			wrong(l, "it was decided on v%d, while v%d had been acknowledged before its read began", k, l.Version)
		}
		if l := x.invokedAfter(0, x.upTo(k), to); l != nil {
			wrong(l, "it was decided on v%d, while v%d was sent only after its read had returned", k, l.Version)
		}
	}
	switch e.Code {
	case codeStale:
		if e.Want > e.Have {
			wrong(nil, "the bid of %d beats the high bid of %d", e.Want, e.Have)
		}
		if strong {
			if text, l := x.auction().observe(e.Have, from, to); text != "" {
				wrong(l, "%s", text)
			}
		}
	case codeClosed:
		if text, l := x.auction().closedWrongly(from, to); text != "" {
			wrong(l, "%s", text)
		}
	}
}

func checkExhausted(run *Run, res *verdict.Result, x *streamIndex, c *Call) {
	lost, repeated := 0, 0
	wrong := func(w *Write, format string, args ...any) {
		violate(res, func() *witness {
			v := newWitness(run, c.Stream, "%s %s was answered exhausted, but %s.", c.Name, c.Command.ID, fmt.Sprintf(format, args...)).answer(c).cause()
			if w != nil {
				return v.write(w).cause()
			}
			for _, w := range c.Writes {
				v.write(w)
			}
			return v
		})
	}
	for _, w := range c.Writes {
		conflicted := false
		for i := range w.Attempts {
			a := &w.Attempts[i]
			if a.Outcome != eventstore.Fail || a.Reason != eventstore.VersionConflict {
				continue
			}
			conflicted = true
			if k := conflictOf(x, a); k.wrong != "" {
				wrong(w, "one of its conflicts is not true: %s", k.wrong)
			} else if k.self {
				wrong(w, "it lost to an event of its own command")
			}
		}
		if conflicted {
			lost++
			if !w.Failed {
				repeated++ // the answer to a repeat of a try that had ended unknown
			}
		}
		if !w.Failed && !w.Refuted {
			wrong(w, "one of its writes may still have taken effect")
		}
	}
	limit := run.Info.MaxDecisions
	switch counted := int(c.End.Conflicts); {
	case limit == 0:
	case lost < limit || lost-repeated > limit:
		wrong(nil, "it lost %d of the %d decisions it had", lost, limit)
	case counted != 0 && (counted < limit || counted > lost):
		wrong(nil, "it counted %d conflicts; it lost %d of the %d decisions it had", counted, lost, limit)
	}
}

// truthful-answers (INV-ANSWER): the state returned by every ok answer (its hash) = fold(L[1..v]) at the
// answered version, where the acknowledged event is in L there; where it is not, no-lost-ack says so alone.
func checkAnswers(run *Run, res *verdict.Result) {
	run.each(func(s *Stream, x *streamIndex) {
		f := x.fold()
		for _, c := range s.Calls {
			if c.End == nil || c.End.Result != history.ResultOK || c.End.StateHash.IsZero() {
				continue
			}
			res.Evidence[oppAnswers.Name]++
			if c.End.Replayed {
				res.Evidence[oppReplayed.Name]++
			}
			l := x.answered(c.End)
			if l == nil {
				continue
			}
			i := x.upTo(l.Version)
			if i >= len(f.hashes) {
				stopped(res, f)
				continue
			}
			if have := f.hashes[i]; have != c.End.StateHash {
				violate(res, func() *witness {
					v := newWitness(run, s.Name, "%s %s was answered with a state %.8s at v%d, the log up to there folds to %.8s.",
						c.Name, c.Command.ID, c.End.StateHash, l.Version, have)
					return withWrites(v.answer(c).cause().logged(l).cause(), l)
				})
			}
		}
	})
}

// answered returns the event of the stream at the version that an ok answer names, nil if the log has another one there.
func (x *streamIndex) answered(e *CallEnd) *Logged {
	slot := x.slot(e.Version)
	if n := len(e.Events); n > 0 {
		slot = slices.DeleteFunc(slices.Clone(slot), func(l *Logged) bool { return l.ID != e.Events[n-1] })
	}
	if len(slot) == 0 {
		return nil
	}
	return slot[0]
}

// snapshot-equals-fold (INV-SNAPEQ): every snapshot journal row (s, v, state): v ≤ the last version of L(s) and
// state = fold(L[1..v]); every decision made on a state loaded from a snapshot = the full replay.
func checkSnapshots(run *Run, res *verdict.Result) {
	run.each(func(s *Stream, x *streamIndex) {
		f := x.fold()
		res.Evidence[oppSnapshots.Name] += int64(len(s.Snapshots))
		if len(s.Snapshots) > 0 {
			stopped(res, f)
		}
		for _, row := range s.Snapshots {
			if row.Version > x.head() {
				violate(res, func() *witness {
					return snapshotWitness(run, row, fmt.Sprintf("A snapshot of %s stands at v%d, the log ends at v%d.", s.Name, row.Version, x.head()))
				})
			}
		}
		for _, row := range f.snapshots {
			if row.Version > x.head() {
				continue // said above
			}
			violate(res, func() *witness {
				v := snapshotWitness(run, row, fmt.Sprintf("The snapshot of %s at v%d is not what the log folds to.", s.Name, row.Version))
				for _, l := range x.slot(row.Version) {
					v.logged(l)
				}
				return v
			})
		}
		// A version beyond the log is no replay of it.
		loaded := func(d Basis) (eventstore.Hash, bool) {
			if d.Snapshot == 0 || d.Hash.IsZero() {
				return eventstore.Hash{}, false
			}
			res.Evidence[oppLoads.Name]++
			i := x.upTo(d.Version)
			if i >= len(f.hashes) {
				return eventstore.Hash{}, false
			}
			return f.hashes[i], d.Version > x.head() || f.hashes[i] != d.Hash
		}
		for _, w := range s.Writes {
			if have, bad := loaded(w.Basis); bad {
				violate(res, func() *witness {
					return newWitness(run, s.Name, "%s was decided on a snapshot at v%d: the state had hash %.8s, the full replay gives %.8s.",
						writeText(w), w.Basis.Snapshot, w.Basis.Hash, have).read(w.Basis.Read).write(w).cause()
				})
			}
		}
		for _, c := range s.Calls {
			if c.End == nil {
				continue
			}
			if have, bad := loaded(c.End.basis()); bad {
				violate(res, func() *witness {
					return newWitness(run, s.Name, "%s %s was decided on a snapshot at v%d: the state had hash %.8s, the full replay gives %.8s.",
						c.Name, c.Command.ID, c.End.basis().Snapshot, c.End.basis().Hash, have).read(c.End.basis().Read).answer(c).cause()
				})
			}
		}
	})
}

func snapshotWitness(run *Run, row *history.SnapshotWrite, summary string) *witness {
	v := newWitness(run, row.Stream, "%s", summary)
	return v.add(v.lane(row.Process, 0), row.T, row.T, "", "snapshot of %s at v%d, %d bytes", row.Stream, row.Version, len(row.State)).cause()
}
