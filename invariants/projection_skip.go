package invariants

import (
	"fmt"
	"math"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/verdict"
)

// checkNoSkip is INV-NOSKIP · no-skipped-checkpoint. Violated unless, for every durable checkpoint value c of a
// projection's generation, every l ∈ L that passes its filter and is covered by c was handled no later than c
// became durable. Compared with L, so that late-landing unknowns count.
//
// A ledger row that carries the counter of the checkpoint its own transaction moved to is placed by it. A row
// without one was written by another transaction, and a checkpoint may have no counter; then the row is later than
// c only by evidence:
//   - the view row's own counter puts it after an effect that was committed with c or a later checkpoint, or
//   - an atomic observation showed a checkpoint that claims the event and the view row without the effect, or
//   - the journals say that the event was first delivered after c was durable.
//
// Without such evidence no verdict comes from the order: the event was handled, and that is all that is known.
// A reader without positions is judged after the drain: everything in L was handled.
func checkNoSkip(run *Run, res *verdict.Result) {
	j := judgeFeeds(run, res)
	countSkipOpportunities(run, res)
	for _, s := range j.feeds.sigmas {
		if !j.hasLedger(s) || !j.hasFold(s) {
			continue
		}
		j.judged++
		first := s.firstCover()
		checkSkips(j, s, first)
		if !s.ordered() && s.latest {
			checkAllHandled(j, s, first)
		}
	}
	j.conclude()
}

// checkSkips judges every event by the first value of the checkpoint that claims it.
func checkSkips(j *feedJudge, s *sigma, first []int32) {
	late := &lateness{s: s}
	for _, i := range s.log.order {
		if first[i] < 0 || !s.passes[i] {
			continue
		}
		c := s.values[first[i]]
		by, unordered := s.handledBy(i)
		why := ""
		switch {
		case by == nil && s.bypassed(i):
			j.bypassed(s)
		case by == nil:
			why = s.notHandled(i)
		case unordered || c.seq == 0:
			why = late.after(i, first[i])
		case by.Seq > c.seq:
			why = fmt.Sprintf("it was handled later, with checkpoint %d", by.Seq)
		}
		if why != "" {
			violate(j.res, func() *witness { return skipWitness(j.run, s, i, c, why) })
		}
	}
}

// notHandled says why an event that no ledger row handles was not.
func (s *sigma) notHandled(event int32) string {
	i := s.ledgerOf[event]
	if i < 0 {
		return "no ledger row names it: it was never handled"
	}
	switch r := s.Ledger[i]; r.How {
	case history.Filtered:
		return "the ledger notes it as filtered, although the view takes it"
	case history.Applied:
		return fmt.Sprintf("the ledger has it applied to view row %s only, where it does not belong", r.Row)
	case history.Superseded:
		return "the ledger notes it as superseded, and nothing that this strategy declares supersedes it"
	case history.Parked:
		return "the ledger notes it as parked, and the projection declares no parking policy"
	}
	return "no ledger row handles it"
}

// handledBy returns the row that handles the event with the lowest counter; nil = none. Unordered tells that one
// of its rows has no counter, so that the event may have been handled earlier than the row says.
func (s *sigma) handledBy(event int32) (by *history.LedgerRow, unordered bool) {
	l := s.log.events[event]
	s.rows(event, func(_ int32, r *history.LedgerRow) bool {
		if s.handles(r, l) {
			unordered = unordered || r.Seq == 0
			if by == nil || r.Seq < by.Seq {
				by = r
			}
		}
		return true
	})
	return by, unordered
}

// lateness collects, once, what can prove that an effect without a counter came after a checkpoint.
type lateness struct {
	s *sigma
	// notBefore: per applied row without a counter, the highest counter that the view row had been given before.
	notBefore map[int32]uint64
	durable   []int64             // per value: the earliest time at which it, or a later one, is known to be durable
	delivered []int64             // per event: the invoke of the first poll that can have delivered it, Infinity = none
	observed  []map[string]uint64 // per observation: the version of every view row
}

// after returns why the event was certainly handled after the value v became durable; empty = not known.
func (t *lateness) after(event, v int32) string {
	t.prepare()
	row := t.s.rowOf(event)
	l, c := t.s.log.events[event], t.s.values[v]
	inTime, applied := false, true
	earliest := uint64(math.MaxUint64) // the checkpoint that each of its rows certainly follows
	t.s.rows(event, func(i int32, r *history.LedgerRow) bool {
		if t.s.handles(r, l) {
			n := t.notBefore[i]
			if r.Seq > 0 {
				n = r.Seq - 1
			}
			earliest = min(earliest, n)
			inTime = inTime || r.Seq > 0 && r.Seq <= c.seq
			applied = applied && r.How == history.Applied
		}
		return true
	})
	if inTime {
		return ""
	}
	if c.seq > 0 && earliest >= c.seq {
		return fmt.Sprintf("the counter of view row %s puts its effect after checkpoint %d", row, earliest)
	}
	for k, o := range t.s.Observations {
		if !applied || !o.Cursor.Covers(l.Position) {
			continue
		}
		// A row without a version may hold the effect; whether it does is atomic-checkpoint's to say.
		if at, found := t.observed[k][row]; !found || 0 < at && at < l.Version {
			return fmt.Sprintf("an atomic observation of checkpoint %d showed view row %s at version %d", o.Seq, row, at)
		}
	}
	if t.delivered[event] != Infinity && t.durable[v] < t.delivered[event] {
		return "it was first delivered after that checkpoint was durable"
	}
	return ""
}

func (t *lateness) prepare() {
	if t.notBefore != nil {
		return
	}
	s := t.s
	t.notBefore = map[int32]uint64{}
	// Superseded rows have no order, and effects with the same counter of the row have none among each other.
	for _, g := range s.rowGroups(func(r *history.LedgerRow) bool { return r.How == history.Applied && r.RowOrder > 0 }) {
		seen, tied := uint64(0), uint64(0)
		for k, i := range g {
			r := s.Ledger[i]
			if k > 0 && s.Ledger[g[k-1]].RowOrder < r.RowOrder {
				seen = max(seen, tied)
			}
			if r.Seq == 0 {
				t.notBefore[i] = seen
			}
			tied = max(tied, r.Seq)
		}
	}
	t.durable = make([]int64, len(s.values))
	for k := range t.durable {
		t.durable[k] = Infinity
	}
	note := func(seq uint64, at int64) { // the last value with a counter ≤ seq was durable by then
		for k := len(s.values) - 1; k >= 0; k-- {
			if s.values[k].seq > 0 && s.values[k].seq <= seq {
				t.durable[k] = min(t.durable[k], at)
				return
			}
		}
	}
	for _, a := range s.applies {
		if a.Outcome == eventstore.OK && a.Seq > 0 {
			note(a.Seq, a.T)
		}
	}
	for _, o := range s.Observations {
		if o.Seq > 0 {
			note(o.Seq, o.T)
		}
	}
	for k := len(t.durable) - 2; k >= 0; k-- {
		if s.values[k].seq > 0 { // values without a counter have no order
			t.durable[k] = min(t.durable[k], t.durable[k+1])
		}
	}
	for _, o := range s.Observations {
		rows := make(map[string]uint64, len(o.View))
		for _, v := range o.View {
			rows[v.Row] = v.Version
		}
		t.observed = append(t.observed, rows)
	}
	t.delivered = make([]int64, len(s.log.events))
	for i := range t.delivered {
		t.delivered[i] = Infinity
	}
	unseen := newRanges(len(s.log.order))
	for _, p := range s.polls { // by invoke: the first poll that reaches an event is the one
		if p.Outcome != eventstore.OK || p.Events == 0 {
			continue
		}
		s.log.newly(p.After, p.Next, func(r span) {
			unseen.take(r, func(k int32) { t.delivered[s.log.order[k]] = p.Invoke })
		})
	}
}

// checkAllHandled judges a reader without an order, over what no known checkpoint claims. An event that was never
// acknowledged may have landed after the drain, so that its absence from the ledger says nothing.
func checkAllHandled(j *feedJudge, s *sigma, first []int32) {
	outstanding := 0
	for i := range s.log.events {
		event := int32(i)
		if !s.passes[event] || first[i] >= 0 || s.handled(event) {
			continue
		}
		l := s.log.events[event]
		switch {
		case !j.drained() || l.Write == nil || !l.Write.Acked:
			outstanding++
		case s.bypassed(event):
			j.bypassed(s)
		default:
			violate(j.res, func() *witness {
				return newWitness(j.run, l.Stream, "%s had reached the end of the log, but %s was not handled: %s", s, eventName(l), s.notHandled(event)).
					placed(l).cause().noLedgerRow(s, l, s.rowOf(event)).cause()
			})
		}
	}
	if outstanding > 0 {
		j.open("%s has no checkpoint that can be compared with positions (events not handled by the end: %d)", s, outstanding)
	}
}

func skipWitness(run *Run, s *sigma, event int32, c value, why string) *witness {
	l := s.log.events[event]
	passed := s.firstPast(l.Position)
	if passed != nil && l.Write != nil && l.Write.Return > passed.Invoke {
		why += "; its append was in flight when the feed passed it"
	}
	w := newWitness(run, l.Stream, "checkpoint %d of %s (%s) claims %s at position %s, but %s", c.seq, s, c.cursor, eventName(l), l.Position, why)
	w.placed(l).cause()
	if passed != nil {
		w.poll(passed).cause()
	}
	for _, at := range c.cursor.At { // what the feed delivered instead
		if k := s.log.upTo(at) - 1; at.Shard == l.Position.Shard && k >= 0 {
			if other := s.log.events[s.log.order[k]]; other != l && other.Position == at {
				w.placed(other)
			}
		}
	}
	w.checkpoint(s, c).cause()
	rows := 0
	s.rows(event, func(_ int32, r *history.LedgerRow) bool {
		w.effect(s, r).cause()
		rows++
		return rows < 3
	})
	if rows == 0 {
		w.noLedgerRow(s, l, s.rowOf(event)).cause()
	}
	return w
}

// firstPast returns the first poll whose answer claimed position p.
func (s *sigma) firstPast(p eventstore.Position) *history.Poll {
	for _, poll := range s.polls {
		if poll.Outcome == eventstore.OK && !poll.After.Covers(p) && poll.Next.Covers(p) {
			return poll
		}
	}
	return nil
}

// ranges remembers which places of order were taken already: every place is visited once, whatever the overlap
// of the ranges asked for.
type ranges struct{ next []int32 }

func newRanges(n int) *ranges {
	r := &ranges{next: make([]int32, n+1)}
	for i := range r.next {
		r.next[i] = int32(i)
	}
	return r
}

func (r *ranges) find(i int32) int32 {
	for r.next[i] != i {
		r.next[i] = r.next[r.next[i]]
		i = r.next[i]
	}
	return i
}

func (r *ranges) take(s span, yield func(int32)) {
	for i := r.find(s.from); i < s.to; i = r.find(i) {
		yield(i)
		r.next[i] = i + 1
	}
}
