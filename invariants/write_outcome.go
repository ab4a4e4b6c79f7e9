package invariants

import (
	"fmt"
	"maps"
	"slices"

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
	res.Evidence[oppKills.Name] = int64(len(t.died))
	res.Evidence[oppFailed.Name] = t.failed
	effects := run.strayEffects()
	present := func(w *Write, why func() string, c *Call) {
		if !w.Applied && len(effects) == 0 {
			return
		}
		for i, e := range w.Events {
			l, row := run.eventOf(w, i), effects[e.ID]
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
		if !run.deniesCommand(c) {
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

// deniesCommand: the answer claims that nothing of the command has happened. A refusal is final by its code, whatever
// flag it carries; only a code that no rule knows is taken at its word.
func (r *Run) deniesCommand(c *Call) bool {
	if c.End == nil {
		return false
	}
	switch c.End.Result {
	case history.ResultRefused:
		missing := c.End.Code == codeClosed && c.End.basis().Version == 0
		if r.native() {
			missing = c.End.Code == codeClosed && !r.toldClosed(r.index(r.Streams[c.Stream]).auction(), c)
		}
		return !missing && !retriableCode(c.End.Code) && (finalCode(c.End.Code) || !c.End.Retriable)
	case history.ResultExhausted:
		return true
	case history.ResultFailed:
		return !c.End.Retriable
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
// once. An event has the command that its metadata names, and that of the write that made it; without a recorded
// write it counts as one of its own, unless it continues the one before it.
//
//	call 1     append w1 expecting v5 … reply cut (landed: v6 = w1)
//	           runs the command again with new ids: append w2 expecting v6 → ok (v7 = w2)
func checkOnce(run *Run, res *verdict.Result) {
	t := run.tallied()
	res.Evidence[oppLanded.Name] = t.landed
	res.Evidence[oppNotLanded.Name] = t.notLanded
	res.Evidence[oppRetries.Name] = t.retries
	res.Evidence[oppContinued.Name] = t.continued
	res.Evidence[oppKills.Name] = int64(len(t.died))
	foreign := map[string][]*Logged{} // events that their metadata give to a command which no recorded write made for it
	for _, name := range run.StreamNames {
		for _, l := range run.Streams[name].Log {
			if one := run.Log[l.ID]; one != l {
				violate(res, func() *witness {
					return withWrites(newWitness(run, l.Stream, "Event %s is in the log twice, at %s and %s.", shortID(l.ID), placeText(one), placeText(l)).
						logged(one).cause().logged(l).cause(), l)
				})
				continue
			}
			if id := l.Meta.CommandID; id != "" && (l.Write == nil || l.Write.Owner.Command.ID != id) {
				foreign[id] = append(foreign[id], l)
			}
		}
	}
	twice := func(command string, a, b *Logged) {
		violate(res, func() *witness {
			v := withWrites(newWitness(run, b.Stream, "Command %s was carried out twice: %s and %s are both its events.", command, placeText(a), placeText(b)), a, b)
			return v.logged(a).cause().logged(b).cause()
		})
	}
	seen := map[*Command]bool{}
	for _, c := range run.Calls {
		if seen[c.Command] || len(c.Command.Calls) == 1 && len(c.Writes) < 2 && len(foreign) == 0 {
			continue
		}
		seen[c.Command] = true
		var first *Write
		for _, call := range c.Command.Calls {
			for _, w := range call.Writes {
				switch {
				case !w.Applied || w == first:
				case first == nil:
					first = w
				default:
					twice(c.Command.ID, run.firstEvent(first), run.firstEvent(w))
				}
			}
		}
		if first == nil {
			continue
		}
		for _, l := range foreign[c.Command.ID] {
			if l.Write != first {
				twice(c.Command.ID, run.firstEvent(first), l)
			}
		}
		delete(foreign, c.Command.ID)
	}
	for _, command := range slices.Sorted(maps.Keys(foreign)) {
		for i, l := range foreign[command][1:] {
			if before := foreign[command][i]; !l.continues(before) {
				twice(command, before, l)
			}
		}
	}
}

// continues reports whether two events of one command may be those of one write.
func (l *Logged) continues(before *Logged) bool {
	if l.Write != nil || before.Write != nil {
		return l.Write == before.Write
	}
	return l.Stream == before.Stream && l.Version == before.Version+1 && l.Meta.BasisVersion == before.Meta.BasisVersion
}

// placeText says where an event stands.
func placeText(l *Logged) string { return fmt.Sprintf("v%d of %s", l.Version, l.Stream) }

// honest-outcomes (INV-CLASSIFY): no write-level fail is in L, and no write whose every try failed; upgrades
// happen only by evidence that can bear them (INVARIANTS 2.3), and an ok to the caller only by an ok answer or
// ok evidence (or by a strong read of that call that showed the event, or a snapshot that holds it); an attempt whose
// reply a fault is recorded to have cut after the request was forwarded is unknown unless upgraded; while a fault
// holds the reply to an attempt, the attempt does not return ok. See also checkReplays.
func checkHonest(run *Run, res *verdict.Result) {
	t := run.tallied()
	res.Evidence[oppUnknown.Name] = t.unknown
	res.Evidence[oppFailed.Name] = t.failed
	for _, w := range run.Writes {
		if w.Applied && (w.Failed || w.Refuted) {
			violate(res, func() *witness {
				return newWitness(run, w.Stream, "%s was reported as failed, yet its event stands at v%d.", writeText(w), w.At).
					write(w).cause().logged(run.firstEvent(w)).cause()
			})
		}
		for e := w.Evidence; e != nil; e = e.Next {
			res.Evidence[oppUpgrades.Name]++
			if wrong := run.misusedEvidence(w, e); wrong != "" {
				violate(res, func() *witness {
					return newWitness(run, w.Stream, "Evidence %s can't settle %s: %s.", e.Form, writeText(w), wrong).write(w).cause().read(e.Look)
				})
			}
		}
	}
	checkBites(run, res)
	checkReplays(run, res)
	for _, c := range run.Calls {
		if c.End == nil || c.End.Result != history.ResultOK {
			continue
		}
		if len(c.End.Events) == 0 {
			if w := run.untold(c); w != nil {
				violate(res, func() *witness {
					return newWitness(run, c.Stream, "Command %s was answered ok, but no answer or evidence about any write of it said so.", c.Command.ID).
						write(w).cause().answer(c).cause()
				})
			}
			continue
		}
		for i, id := range c.End.Events {
			l := run.eventAt(id, c.Stream, c.End.version(i))
			w := run.Owner(id)
			if l != nil {
				w = l.Write
			}
			if w == nil || w.answeredBy(c.End.T) || run.native() && c.toldOf(w) || run.sawEvent(c, l, c.End.version(i)) {
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

// toldOf: an ok answer to an attempt of the call itself named the write. The repeat of a bid may be a command of its own.
func (c *Call) toldOf(w *Write) bool {
	for _, o := range c.Writes {
		for i := range o.Attempts {
			if a := &o.Attempts[i]; a.Answer != nil && a.Answer.Names == w && a.T <= c.End.T {
				return true
			}
		}
	}
	return false
}

// untold returns an applied write of the call's command, if the call could not know of any.
func (r *Run) untold(c *Call) (untold *Write) {
	for _, call := range c.Command.Calls {
		for _, w := range call.Writes {
			if !w.Applied {
				continue
			}
			if l := r.firstEvent(w); w.answeredBy(c.End.T) || r.sawEvent(c, l, l.Version) {
				return nil
			}
			untold = w
		}
	}
	return untold
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
// did not make the write and so can't name it), or came after a snapshot that holds it.
func (r *Run) sawEvent(c *Call, l *Logged, version uint64) bool {
	if l != nil {
		version = l.Version
	}
	for _, q := range r.readsOf(c) {
		if !q.OK || !q.Strong || q.T > c.End.T {
			continue
		}
		if q.Tail && version < q.From || q.Count > 0 && q.First <= version && version <= q.Last {
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

// checkBites compares attempts with what faults did to their connections.
func checkBites(run *Run, res *verdict.Result) {
	bites := run.bitesBySession()
	if len(bites) == 0 {
		return
	}
	attempts := map[string][]*Attempt{}
	for _, w := range run.Writes {
		for i := range w.Attempts {
			a := &w.Attempts[i]
			if session := run.SessionOf(a); bites[session] != nil {
				attempts[session] = append(attempts[session], a)
			}
		}
	}
	for _, session := range slices.Sorted(maps.Keys(attempts)) {
		for _, b := range bites[session] {
			switch b.Form {
			case history.BiteReplyDropped:
				checkCut(run, res, attempts[session], b)
			case history.BiteReplyHeld:
				checkHeld(run, res, attempts[session], b)
			case history.BiteRequestParked, history.BiteRequestReleased, history.BiteRequestCut, history.BiteConnectionCut,
				history.BiteDelayed, history.BiteRefused, history.BiteKilled, history.BitePaused, history.BiteRestarted:
			}
		}
	}
}

// kindBlackHole is the fault that swallows whatever comes: what it drops need not be the reply to a commit.
const kindBlackHole = "black-hole"

// checkCut judges the attempts of a connection one of whose replies was cut. A reply that tells of a rollback, or is
// that to a statement before the commit, leaves an honest fail possible. The answer to an attempt may be stamped a little
// after the next one has got its connection: where several were open at the time, one that is unknown explains the bite.
func checkCut(run *Run, res *verdict.Result, attempts []*Attempt, b bitten) {
	if b.Landed == history.LandedNo || b.Landed == history.LandedUnknown && b.fault.FaultKind == kindBlackHole {
		return
	}
	var wrong *Attempt
	for _, a := range attempts {
		if b.T < a.Invoke || b.T > a.T {
			continue
		}
		if a.Outcome == eventstore.Unknown || a.Write.settled(a.Outcome, b.T, a.T) {
			wrong = nil
			res.Evidence[oppRepliesCut.Name]++
			return
		}
		if wrong == nil {
			wrong = a
		}
	}
	if wrong == nil {
		return
	}
	res.Evidence[oppRepliesCut.Name]++
	violate(res, func() *witness {
		return newWitness(run, wrong.Write.Stream, "The reply to %s was cut after the request had been forwarded, yet the attempt ended as %s.",
			writeText(wrong.Write), wrong.Outcome).attempt(wrong).cause().bite(b.fault, b.Bite).cause()
	})
}

// settled: evidence of that outcome, of a kind that a store looks for inside an attempt, came between two times.
func (w *Write) settled(outcome eventstore.Outcome, from, to int64) bool {
	for e := w.Evidence; e != nil; e = e.Next {
		own := e.Form == history.E3Refenced || e.Form == history.E4StoreStatus
		if own && e.Outcome == outcome && from <= e.T && e.T <= to {
			return true
		}
	}
	return false
}

// checkHeld judges the attempts of a connection one of whose replies was held back. The bite is stamped when the reply
// has gone out, the fault's end before anything is let go.
func checkHeld(run *Run, res *verdict.Result, attempts []*Attempt, b bitten) {
	if b.Since == 0 {
		return
	}
	var wrong *Attempt
	held := false
	for _, a := range attempts {
		if b.Since < a.Invoke || b.Since > a.T {
			continue
		}
		held = true
		if a.Outcome != eventstore.OK || b.fault.End == nil || a.T >= b.fault.End.T {
			wrong = nil
			break
		}
		wrong = a
	}
	if held {
		res.Evidence[oppRepliesHeld.Name]++
	}
	if wrong == nil {
		return
	}
	violate(res, func() *witness {
		return newWitness(run, wrong.Write.Stream, "%s was answered ok while its reply was still held back.", writeText(wrong.Write)).
			attempt(wrong).cause().add("fault", b.Since, b.T, b.Form.String(), "%s %s on %s", b.fault.FaultKind, b.fault.ID, b.Session).cause()
	})
}

// misusedEvidence says why evidence does not settle a write, empty if it does.
func (r *Run) misusedEvidence(w *Write, e *Evidence) string {
	if q := e.Look; q != nil && e.Form != history.E4StoreStatus {
		switch {
		case q.Stream != w.Stream:
			return "it rests on a read of " + q.Stream
		case !q.OK || !q.Strong:
			return "it rests on a read that was not strong"
		case q.T > e.T:
			return "it rests on a read that had not returned"
		}
	}
	switch e.Form {
	case history.E1OwnEvent:
		return r.misusedOwn(w, e)
	case history.E2SlotHeld:
		return r.misusedSlot(w, e)
	case history.E3Refenced:
		if !r.Promised(eventstore.FencedOwnership) {
			return "only the owner of a fenced stream can use it"
		}
	case history.E4StoreStatus:
	case history.E5FinalRefusal:
		switch {
		case e.Outcome != eventstore.Fail:
			return "a final refusal can only mean fail"
		case w.Owner.Name != "bid" && !r.native():
			return "only a bid can be refused for good"
		case r.native() && !w.refusedBy(e.T):
			return "the store's condition had not refused it"
		}
	default:
		return "there is no such evidence"
	}
	return ""
}

// refusedBy: the store's condition had refused an attempt of the write by t.
func (w *Write) refusedBy(t int64) bool {
	return slices.ContainsFunc(w.Attempts, func(a Attempt) bool {
		return a.Outcome == eventstore.Fail && a.Reason == eventstore.Refused && a.T <= t
	})
}

// misusedOwn judges e1: the own event was read.
func (r *Run) misusedOwn(w *Write, e *Evidence) string {
	q := e.Look
	switch {
	case e.Outcome != eventstore.OK:
		return "finding an own event can only mean ok"
	case w.Invoke > e.T:
		return "the write was sent only later"
	case q != nil && q.Count == 0:
		return "it rests on a read that showed nothing"
	case q != nil && w.At != 0 && (w.At < q.First || w.At > q.Last):
		return fmt.Sprintf("the read showed v%s, the event stands at v%d", versionsText(q.First, q.Last), w.At)
	}
	return ""
}

// misusedSlot judges e2: the slot is held. A strong read that shows it is enough (read-is-prefix judges the read);
// without one, what held it once holds it in L.
func (r *Run) misusedSlot(w *Write, e *Evidence) string {
	slot := w.Expected + 1
	q := e.Look
	switch {
	case w.Any:
		return "an append at any version claims no slot"
	case q != nil && (q.Count == 0 || slot < q.First || slot > q.Last):
		return fmt.Sprintf("the read did not show the slot v%d", slot)
	case q != nil:
		return ""
	}
	held := r.index(r.Streams[w.Stream]).slot(slot)
	if len(held) == 0 {
		return fmt.Sprintf("the log has no v%d", slot)
	}
	for _, l := range held {
		if invokedBy(l, e.T) {
			return ""
		}
	}
	return fmt.Sprintf("v%d was sent only later", slot)
}
