package invariants

import (
	"fmt"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/verdict"
)

// failed-means-absent (INV-FAILCLEAN): L holds no event, and no view or sink an effect, of
//
//	(a) a write all of whose attempts are fail;
//	(b) a write with a write-level fail;
//	(c) any write of a command, made by a call that was answered with a terminal refusal, exhausted or a
//	    terminal failure, or by an earlier call of the command that had ended (answered unknown, or killed)
//	    before that call began.
//
// A later call may succeed; a retriable answer (THROTTLED, INTERNAL) claims nothing about the command; CLOSED
// for a missing auction is excepted. The schedule of (c):
//
//	call 1     append w1 expecting v5 … reply cut (landed: v6 = w1)
//	           reload, sees its own withdrawal, too little money → answers INSUFFICIENT_FUNDS
//
// A condition that failed counts as (b) only if no other try of the write, sent before that answer returned,
// could have succeeded, and only if the slot was taken; a stream that is still too short may grow.
func checkFailClean(run *Run, res *verdict.Result) {
	t := run.tallied()
	res.Evidence[oppLanded.Name] = t.landed
	res.Evidence[oppNotLanded.Name] = t.notLanded
	res.Evidence[oppRetries.Name] = t.retries
	res.Evidence[oppContinued.Name] = t.continued
	res.Evidence[oppKills.Name] = t.kills
	res.Evidence[oppFailed.Name] = t.failed
	effects := run.strayEffects()
	present := func(w *Write, why func() string, c *Call) {
		if !w.Applied && len(effects) == 0 {
			return
		}
		for _, e := range w.Events {
			l, row := run.Log[e.ID], effects[e.ID]
			if l == nil && row == nil {
				continue
			}
			violate(res, func() *witness {
				where := "the log"
				if l == nil {
					where = "projection " + row.Projection
				}
				v := newWitness(run, w.Stream, "%s, yet %s holds its event %s.", why(), where, shortID(e.ID)).write(w).cause()
				if l != nil {
					v.logged(l).cause()
				} else {
					v.add("store", run.Info.Start, Infinity, row.How.String(), "ledger row of %s: %s on row %s", row.Projection, shortID(row.Event), row.Row).cause()
				}
				if c != nil {
					v.read(c.End.basis().Read).answer(c).cause()
				}
				return v
			})
			return
		}
	}
	for _, w := range run.Writes {
		switch {
		case w.Failed:
			present(w, func() string { return fmt.Sprintf("Every attempt of %s failed", writeText(w)) }, nil)
		case w.Refuted:
			present(w, func() string { return writeText(w) + " failed for good" }, nil)
		}
	}
	for _, c := range run.Calls {
		if !c.deniesCommand() {
			continue
		}
		for _, earlier := range c.Command.Calls {
			if earlier != c && !earlier.leftOpenBefore(run, c.Started) {
				continue
			}
			for _, w := range earlier.Writes {
				if w.Failed || w.Refuted {
					continue // said above
				}
				present(w, func() string { return fmt.Sprintf("Command %s was answered %s", c.Command.ID, answerText(c.End)) }, c)
			}
		}
	}
}

// deniesCommand: the answer claims that nothing of the command has happened.
func (c *Call) deniesCommand() bool {
	if c.End == nil || c.End.Retriable {
		return false
	}
	switch c.End.Result {
	case history.ResultRefused:
		missing := c.End.Code == codeClosed && c.End.basis().Version == 0
		return !retriableCode(c.End.Code) && !missing
	case history.ResultExhausted, history.ResultFailed:
		return true
	case history.ResultOK, history.ResultUnknown:
	}
	return false
}

// leftOpenBefore: the call had ended before t without telling how its command stands.
func (c *Call) leftOpenBefore(run *Run, t int64) bool {
	if c.End != nil {
		return c.End.Result == history.ResultUnknown && c.End.T < t
	}
	died, ok := run.Processes[c.Process].Died()
	return ok && died < t
}

// strayEffects returns the ledger rows of events that L does not hold.
func (r *Run) strayEffects() map[eventstore.EventID]*history.LedgerRow {
	out := map[eventstore.EventID]*history.LedgerRow{}
	for _, p := range r.sigmas() {
		for _, row := range p.Ledger {
			if r.Log[row.Event] == nil {
				out[row.Event] = row
			}
		}
	}
	return out
}

// command-once (INV-ONCE): the events of L with one command id are those of at most one write, each exactly
// once. An event without a recorded write counts for the command that its metadata names.
//
//	call 1     append w1 expecting v5 … reply cut (landed: v6 = w1)
//	           runs the command again with new ids: append w2 expecting v6 → ok (v7 = w2)
func checkOnce(run *Run, res *verdict.Result) {
	t := run.tallied()
	res.Evidence[oppLanded.Name] = t.landed
	res.Evidence[oppNotLanded.Name] = t.notLanded
	res.Evidence[oppRetries.Name] = t.retries
	res.Evidence[oppContinued.Name] = t.continued
	res.Evidence[oppKills.Name] = t.kills
	strangers := map[string]*Logged{}
	for _, name := range run.StreamNames {
		for _, l := range run.Streams[name].Log {
			if first := run.Log[l.ID]; first != l {
				violate(res, func() *witness {
					return withWrites(newWitness(run, l.Stream, "Event %s is in the log twice, at v%d of %s and v%d of %s.",
						shortID(l.ID), first.Version, first.Stream, l.Version, l.Stream).logged(first).cause().logged(l).cause(), l)
				})
				continue
			}
			if l.Write != nil || l.Meta.CommandID == "" {
				continue
			}
			if other := strangers[l.Meta.CommandID]; other != nil {
				violate(res, func() *witness {
					return newWitness(run, l.Stream, "The log holds two events of command %s that no recorded write made.", l.Meta.CommandID).
						logged(other).cause().logged(l).cause()
				})
				continue
			}
			strangers[l.Meta.CommandID] = l
		}
	}
	seen := map[*Command]bool{}
	for _, c := range run.Calls {
		if seen[c.Command] || len(c.Command.Calls) == 1 && len(c.Writes) < 2 && len(strangers) == 0 {
			continue
		}
		seen[c.Command] = true
		var first *Write
		for _, call := range c.Command.Calls {
			for _, w := range call.Writes {
				if !w.Applied {
					continue
				}
				if l := strangers[c.Command.ID]; l != nil {
					violate(res, func() *witness {
						return newWitness(run, l.Stream, "Command %s was carried out twice, once by a write that is not recorded.", c.Command.ID).
							write(w).cause().logged(l).cause()
					})
				}
				if first == nil {
					first = w
					continue
				}
				violate(res, func() *witness {
					v := newWitness(run, w.Stream, "Command %s was carried out twice: v%d and v%d are both its events.", c.Command.ID, first.At, w.At).
						write(first).cause().write(w).cause()
					for _, one := range []*Write{first, w} {
						for _, e := range one.Events {
							if l := run.Log[e.ID]; l != nil {
								v.logged(l)
							}
						}
					}
					return v.read(w.Basis.Read)
				})
			}
		}
	}
}

// honest-outcomes (INV-CLASSIFY): no write-level fail is in L, and no write whose every try failed; upgrades
// happen only by evidence that can bear them (INVARIANTS 2.3), and an ok to the caller only by an ok answer or
// ok evidence (or by a strong read of that call that showed the event); an attempt whose reply a fault is recorded
// to have cut after the request was forwarded is unknown unless upgraded; while a fault holds the reply to an
// attempt, the attempt does not return ok.
func checkHonest(run *Run, res *verdict.Result) {
	t := run.tallied()
	res.Evidence[oppUnknown.Name] = t.unknown
	res.Evidence[oppFailed.Name] = t.failed
	bites := run.bitesBySession()
	for _, w := range run.Writes {
		if w.Applied && (w.Failed || w.Refuted) {
			violate(res, func() *witness {
				v := newWitness(run, w.Stream, "%s was reported as failed, yet its event stands at v%d.", writeText(w), w.At).write(w).cause()
				if l := run.Log[w.Events[0].ID]; l != nil {
					v.logged(l).cause()
				}
				return v
			})
		}
		for i := range w.Attempts {
			if len(bites) > 0 {
				checkBitten(run, res, &w.Attempts[i], bites[run.SessionOf(&w.Attempts[i])])
			}
		}
		for e := w.Evidence; e != nil; e = e.Next {
			res.Evidence[oppUpgrades.Name]++
			if wrong := run.misusedEvidence(w, e); wrong != "" {
				violate(res, func() *witness {
					return newWitness(run, w.Stream, "Evidence %s can't settle %s: %s.", e.Form, writeText(w), wrong).write(w).cause()
				})
			}
		}
	}
	for _, c := range run.Calls {
		if c.End == nil || c.End.Result != history.ResultOK || c.End.Replayed {
			continue
		}
		for _, id := range c.End.Events {
			w := run.Owner(id)
			if w == nil || w.answeredBy(c.End.T) || run.sawEvent(c, id) {
				continue
			}
			violate(res, func() *witness {
				return newWitness(run, c.Stream, "Command %s was answered ok, but no answer or evidence about %s said so.", c.Command.ID, writeText(w)).
					write(w).cause().answer(c).cause()
			})
			break
		}
	}
}

// answeredBy: an ok answer or ok evidence naming the write had returned by t.
func (w *Write) answeredBy(t int64) bool {
	for _, call := range w.Owner.Command.Calls {
		for _, o := range call.Writes {
			for i := range o.Attempts {
				a := &o.Attempts[i]
				if a.Answer != nil && a.Answer.Names == w && a.T <= t {
					return true
				}
			}
		}
	}
	for e := w.Evidence; e != nil; e = e.Next {
		if e.Outcome == eventstore.OK && e.T <= t {
			return true
		}
	}
	return false
}

// sawEvent: a strong read of the call showed the version at which L holds the event (evidence e1, by a call that
// did not make the write and so can't name it).
func (r *Run) sawEvent(c *Call, id eventstore.EventID) bool {
	version := c.End.Version
	if l := r.Log[id]; l != nil {
		version = l.Version
	}
	for _, q := range r.readsOf(c) {
		if q.OK && q.Strong && q.Count > 0 && q.T <= c.End.T && q.First <= version && version <= q.Last {
			return true
		}
	}
	return false
}

// readsOf returns the reads of a call.
func (r *Run) readsOf(c *Call) []*Read {
	r.shared.mu.Lock()
	defer r.shared.mu.Unlock()
	if r.shared.reads == nil {
		r.shared.reads = map[*Call][]*Read{}
		for _, s := range r.Streams {
			for _, q := range s.Reads {
				if q.Call != nil {
					r.shared.reads[q.Call] = append(r.shared.reads[q.Call], q)
				}
			}
		}
	}
	return r.shared.reads[c]
}

// checkBitten compares an attempt with what faults did to its connection while it was open.
func checkBitten(run *Run, res *verdict.Result, a *Attempt, bites []bitten) {
	for _, b := range bites {
		switch b.Form {
		case history.BiteReplyDropped:
			// A cut reply that does not tell of a commit (to a statement before it, or to a rollback)
			// leaves an honest fail possible.
			if b.T < a.Invoke || b.T > a.T || b.Landed != history.LandedYes {
				continue
			}
			res.Evidence[oppRepliesCut.Name]++
			if a.Outcome == eventstore.Unknown {
				continue
			}
			violate(res, func() *witness {
				return newWitness(run, a.Write.Stream, "The reply to %s was cut after the request had been forwarded, yet the attempt ended as %s.",
					writeText(a.Write), a.Outcome).attempt(a).cause().bite(b.fault, b.Bite).cause()
			})
		case history.BiteReplyHeld:
			// The bite is stamped when the reply has gone out, the fault's end before anything is let go.
			if b.Since == 0 || b.Since < a.Invoke || b.Since > a.T {
				continue
			}
			res.Evidence[oppRepliesHeld.Name]++
			if a.Outcome != eventstore.OK || b.fault.End == nil || a.T >= b.fault.End.T {
				continue
			}
			violate(res, func() *witness {
				return newWitness(run, a.Write.Stream, "%s was answered ok while its reply was still held back.", writeText(a.Write)).
					attempt(a).cause().add("fault", b.Since, b.T, b.Form.String(), "%s %s on %s", b.fault.FaultKind, b.fault.ID, b.Session).cause()
			})
		case history.BiteRequestParked, history.BiteRequestReleased, history.BiteRequestCut, history.BiteConnectionCut,
			history.BiteDelayed, history.BiteRefused, history.BiteKilled, history.BitePaused, history.BiteRestarted:
		}
	}
}

// misusedEvidence says why evidence does not settle a write, empty if it does.
func (r *Run) misusedEvidence(w *Write, e *Evidence) string {
	read := e.Look
	switch e.Form {
	case history.E1OwnEvent:
		switch {
		case e.Outcome != eventstore.OK:
			return "finding an own event can only mean ok"
		case read != nil && (!read.OK || !read.Strong):
			return "it rests on a read that was not strong"
		case read != nil && read.Count == 0:
			return "it rests on a read that showed nothing"
		case read != nil && r.Audit != nil && w.At != 0 && (w.At < read.First || w.At > read.Last):
			return fmt.Sprintf("the read showed v%s, the event stands at v%d", versionsText(read.First, read.Last), w.At)
		}
	case history.E2SlotHeld:
		switch {
		case w.Any:
			return "an append at any version claims no slot"
		case read != nil && (!read.OK || !read.Strong):
			return "it rests on a read that was not strong"
		case read != nil && (read.Count == 0 || w.Expected+1 < read.First || w.Expected+1 > read.Last):
			return fmt.Sprintf("the read did not show the slot v%d", w.Expected+1)
		}
	case history.E3Refenced:
		if !r.Promised(eventstore.FencedOwnership) {
			return "only the owner of a fenced stream can use it"
		}
	case history.E4StoreStatus:
	case history.E5FinalRefusal:
		if e.Outcome != eventstore.Fail {
			return "a final refusal can only mean fail"
		}
	default:
		return "there is no such evidence"
	}
	return ""
}
