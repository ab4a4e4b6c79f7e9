package invariants

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/verdict"
)

// optimistic-concurrency (INV-OCC):
//
//	(a) two writes with ok and equal (stream, exact expected) are the same write;
//	(b) a version conflict is reported only for an exact v and is behind: some event of L(s) at v+1, of another
//	    write, was invoked ≤ the answer's return; or ahead: the answer names head h < v, and no write of L with
//	    a version ≥ v had returned before the conflict's invoke. A head that the answer names is not v, and one past v
//	    is in L and was invoked ≤ the answer's return. A try that lost to an earlier try of the same
//	    write is a conflict too (that write holds the slot). If the witness is of the same command (a
//	    self-conflict) the call ends ok by evidence, or unknown if killed or out of time; never refused,
//	    exhausted or failed;
//	(c) expected > head is refused: an applied write with exact v has an event of L at v before it;
//	(d) every applied write with exact expected v sits at v+1…v+k.
//
// The schedule of a self-conflict, which is no violation:
//
//	try 1      append w expecting v5 … reply cut (landed: v6 = w)
//	try 2      append w expecting v5 → version conflict
//	read       v6 = w → ok by evidence
func checkOCC(run *Run, res *verdict.Result) {
	run.each(func(s *Stream, x *streamIndex) {
		res.Evidence[oppEqualExpected.Name] += x.contention().equal
		acked := make([]*Write, 0, len(s.Log))
		for _, w := range s.Writes {
			for i := range w.Attempts {
				a := &w.Attempts[i]
				if a.Outcome == eventstore.Fail && (a.Reason == eventstore.VersionConflict || a.Reason == eventstore.ExpectedAhead) {
					checkConflict(run, res, x, a)
				}
			}
			if w.Any {
				continue
			}
			if w.Acked {
				acked = append(acked, w)
			}
			if w.Applied {
				checkSlot(run, res, x, w)
			}
		}
		slices.SortStableFunc(acked, func(a, b *Write) int { return cmp.Compare(a.Expected, b.Expected) })
		for i := 1; i < len(acked); i++ {
			a, b := acked[i-1], acked[i]
			if a.Expected != b.Expected {
				continue
			}
			violate(res, func() *witness {
				v := newWitness(run, s.Name, "Two writes that both expected v%d of %s were acknowledged.", a.Expected, s.Name).
					write(a).cause().write(b).cause()
				for _, l := range x.slot(a.Expected + 1) {
					v.logged(l)
				}
				return v
			})
		}
	})
}

// checkSlot judges (c) and (d) for one applied write.
func checkSlot(run *Run, res *verdict.Result, x *streamIndex, w *Write) {
	if v := w.Expected; v > 0 {
		before := slices.ContainsFunc(x.slot(v), func(l *Logged) bool {
			return l.Write == nil || l.Write.Invoke <= w.Return
		})
		if !before {
			violate(res, func() *witness {
				return newWitness(run, w.Stream, "%s was accepted although the stream had no v%d yet.", writeText(w), v).write(w).cause().
					logged(run.firstEvent(w)).cause()
			})
		}
	}
	for i, e := range w.Events {
		l := run.eventOf(w, i)
		if l == nil || l.Version == w.Expected+1+uint64(i) {
			continue
		}
		violate(res, func() *witness {
			return newWitness(run, w.Stream, "%s demanded v%d for its event %s, the log holds it at v%d.", writeText(w),
				w.Expected+1+uint64(i), shortID(e.ID), l.Version).write(w).cause().logged(l).cause()
		})
		return
	}
}

// firstEvent returns the first event of an applied write that is in L.
func (r *Run) firstEvent(w *Write) *Logged {
	for i := range w.Events {
		if l := r.eventOf(w, i); l != nil {
			return l
		}
	}
	return nil
}

// checkConflict judges (b) for one reported conflict.
func checkConflict(run *Run, res *verdict.Result, x *streamIndex, a *Attempt) {
	res.Evidence[oppConflicts.Name]++
	w := a.Write
	c := conflictOf(x, a)
	if c.wrong != "" {
		violate(res, func() *witness {
			v := newWitness(run, w.Stream, "%s was answered with a version conflict, but %s.", writeText(w), c.wrong).attempt(a).cause()
			if c.against != nil {
				v.logged(c.against).cause()
			}
			return v.read(w.Basis.Read)
		})
		return
	}
	if !c.self {
		return
	}
	res.Evidence[oppSelfConflicts.Name]++
	end := w.Owner.End
	if end == nil || end.Result == history.ResultOK || end.Result == history.ResultUnknown {
		return
	}
	violate(res, func() *witness {
		return newWitness(run, w.Stream, "%s lost to an event of its own command (v%d), yet the command was answered %s.", writeText(w),
			w.Expected+1, answerText(end)).write(w).cause().logged(c.against).cause().answer(w.Owner).cause()
	})
}

// conflict is what the log says about one reported version conflict.
type conflict struct {
	wrong   string  // why it can't be true; empty: it can
	self    bool    // the slot is held by the same command
	against *Logged // the event that holds the slot, or that contradicts
}

func conflictOf(x *streamIndex, a *Attempt) conflict {
	w, v := a.Write, a.Write.Expected
	if w.Any {
		return conflict{wrong: "it did not ask for a version"}
	}
	if a.HeadKnown && a.Head == v {
		return conflict{wrong: fmt.Sprintf("the head it names, v%d, is the version that was expected", v)}
	}
	ahead := a.Reason == eventstore.ExpectedAhead || a.HeadKnown && a.Head < v
	if ahead {
		if a.HeadKnown && a.Head >= v {
			return conflict{wrong: fmt.Sprintf("the head it names, v%d, is not below v%d", a.Head, v)}
		}
		if head, l := x.returnedBefore(a.Invoke); head >= v && v > 0 {
			return conflict{wrong: fmt.Sprintf("v%d had been acknowledged before it was sent", head), against: l}
		}
		return conflict{}
	}
	if a.HeadKnown {
		// The head that it names is one that the stream had by then.
		if len(x.slot(a.Head)) == 0 {
			return conflict{wrong: fmt.Sprintf("the head it names, v%d, never was one", a.Head)}
		}
		if l := x.lateHead(a); l != nil && a.Head > v+1 {
			return conflict{wrong: fmt.Sprintf("v%d, the head it names, was sent only after that answer", a.Head), against: l}
		}
	}
	var own, late *Logged
	for _, l := range x.slot(v + 1) {
		switch {
		case l.Write == nil:
			return conflict{against: l} // a phantom is judged elsewhere; nothing tells when it was written
		case l.Write == w:
			if w.triedBefore(a) {
				own = l
			} else if late == nil {
				late = l
			}
		case l.Write.Invoke > a.T:
			late = l
		case l.Write.Owner.Command == w.Owner.Command:
			own = l
		default:
			return conflict{against: l}
		}
	}
	switch {
	case own != nil:
		return conflict{self: true, against: own}
	case late != nil && late.Write == w:
		return conflict{wrong: fmt.Sprintf("v%d is its own event, and no other try of it was under way", v+1), against: late}
	case late != nil:
		return conflict{wrong: fmt.Sprintf("v%d was sent only after that answer", v+1), against: late}
	}
	return conflict{wrong: fmt.Sprintf("the log has no v%d", v+1)}
}

// lateHead returns the event at the head that a conflict names, if it was sent only after that answer.
func (x *streamIndex) lateHead(a *Attempt) *Logged {
	var late *Logged
	for _, l := range x.slot(a.Head) {
		if invokedBy(l, a.T) {
			return nil
		}
		late = l
	}
	return late
}

// triedBefore: another try of the write that did not definitely fail was sent before a's answer.
func (w *Write) triedBefore(a *Attempt) bool {
	for i := range w.Attempts {
		o := &w.Attempts[i]
		if o != a && o.Invoke <= a.T && o.Outcome != eventstore.Fail {
			return true
		}
	}
	return false
}

// linearizable-stream (INV-LINEAR), the cheap necessary test: a before b ⇒ version(a) < version(b), where
// before means that a had returned strictly before b was invoked.
//
//	writer 1   append a → ok v7
//	writer 2                        append b → ok v6      (b came later, but stands before a)
func checkLinear(run *Run, res *verdict.Result) {
	run.each(func(s *Stream, x *streamIndex) {
		res.Evidence[oppRacedAcks.Name] += x.contention().acked
		// latest is the event of a lower version whose write was invoked last; pending holds the events of
		// the version being visited.
		var latest *Logged
		for i := 0; i < len(s.Log); {
			j := i
			for j < len(s.Log) && s.Log[j].Version == s.Log[i].Version {
				j++
			}
			for _, a := range s.Log[i:j] {
				if a.Write == nil || latest == nil || a.Write == latest.Write || a.Write.Return >= latest.Write.Invoke {
					continue
				}
				b := latest
				violate(res, func() *witness {
					return newWitness(run, s.Name, "v%d of %s had been acknowledged before v%d was even sent.", a.Version, s.Name, b.Version).
						write(a.Write).cause().write(b.Write).cause().logged(a).logged(b)
				})
			}
			for _, l := range s.Log[i:j] {
				if l.Write != nil && l.Write.Invoke != Infinity && (latest == nil || l.Write.Invoke > latest.Write.Invoke) {
					latest = l
				}
			}
			i = j
		}
	})
}
