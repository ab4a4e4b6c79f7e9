package invariants

import (
	"slices"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/verdict"
)

// checkMonotonicCheckpoint is INV-CKPTMONO · monotonic-checkpoint. Violated unless, over the durable values of
// one checkpoint row in its counter's order, the set of events covered never shrinks within a generation. A
// lower number over a stretch without events is no shrinking. Values under one counter have no order.
func checkMonotonicCheckpoint(run *Run, res *verdict.Result) {
	j := judgeFeeds(run, res)
	for _, s := range j.feeds.sigmas {
		if !s.log.positioned() {
			if len(s.values) > 0 {
				j.unpromised("the events have no positions that the checkpoint of %s could be compared with", s)
			}
			continue
		}
		j.judged++
		before := -1 // the last value with a lower counter
		for k := 1; k < len(s.values); k++ {
			if s.values[k-1].seq < s.values[k].seq {
				before = k - 1
			}
			if before < 0 {
				continue
			}
			a, b := s.values[before], s.values[k]
			if s.log.lost(a.cursor, eventstore.Cursor{}) == nil {
				continue // it claims no event, so nothing can be lost
			}
			countEvidence(res, checkpointMoves, 1)
			if a.epoch != b.epoch && a.observation == 0 && b.observation == 0 {
				countEvidence(res, checkpointOwners, 1)
			}
			lost := s.log.lost(a.cursor, b.cursor)
			if lost == nil {
				continue
			}
			violate(res, func() *witness {
				return newWitness(run, lost.Stream, "checkpoint %d of %s (%s) no longer claims %s at position %s, which checkpoint %d (%s) had claimed",
					b.seq, s, b.cursor, eventName(lost), lost.Position, a.seq, a.cursor).
					placed(lost).checkpoint(s, a).cause().checkpoint(s, b).cause()
			})
		}
	}
	j.conclude()
}

// lost returns an event that a covers and b does not; nil = none.
func (f *feedLog) lost(a, b eventstore.Cursor) *Logged {
	for _, at := range a.At {
		sh, ok := f.shards[at.Shard]
		if !ok {
			continue
		}
		from := sh.from
		for _, p := range b.At {
			if p.Shard == at.Shard {
				from = f.upTo(p)
			}
		}
		for k := from; k < f.upTo(at); k++ {
			if l := f.events[f.order[k]]; a.Covers(l.Position) {
				return l
			}
		}
	}
	for _, p := range b.Open {
		if !a.Covers(p) {
			continue
		}
		if k := f.upTo(p) - 1; k >= 0 && f.events[f.order[k]].Position == p {
			return f.events[f.order[k]]
		}
	}
	return nil
}

// checkAtomicCheckpoint is INV-CKPTATOM · atomic-checkpoint. E(c) = the events that c covers under the filter,
// minus those parked and not replayed at that moment. Violated unless at every atomic observation, in
// transactional mode, V = fold(E(c)); in at-least-once mode every view row = the fold of a prefix of its stream
// (same filter, minus parked) that holds its part of E(c).
//
// In transactional mode effect and checkpoint are one atomic unit, and where ledger and checkpoint history both name
// their transactions, each effect has to carry the one of a checkpoint; see checkOneUnit.
//
// The final state is an observation too, but projection-equals-fold asks the same of it. Here it counts only
// for a row whose ledger is out of step with the checkpoint: an event claimed and not handled, or applied and
// not claimed. A row that differs although ledger and checkpoint agree was updated wrongly; that is not the
// checkpoint's doing.
func checkAtomicCheckpoint(run *Run, res *verdict.Result) {
	j := judgeFeeds(run, res)
	for _, s := range j.feeds.sigmas {
		if len(s.Observations) == 0 && !s.Info.Ledger {
			continue
		}
		checkOneUnit(j, s)
		if !j.hasFold(s) {
			continue
		}
		if !s.log.positioned() {
			j.unpromised("the events have no positions that the checkpoint of %s could be compared with", s)
			continue
		}
		j.judged++
		countEvidence(res, killsBatchOpen, s.died().kills)
		unfolded := func(row string, why error) {
			j.open("view row %s of %s can't be judged, its events can't be folded: %v", row, s, why)
		}
		for _, o := range s.Observations {
			if s.begunBy(o) {
				countEvidence(res, observationsJudged, 1)
			}
			at := value{seq: o.Seq, cursor: o.Cursor, observation: o.ID}
			s.compare(o.View, &claims{s: s, cursor: o.Cursor, seq: o.Seq}, comparison{unfolded: unfolded, differs: func(d difference) {
				violate(res, func() *witness {
					return newWitness(run, d.stream, "observation %d of %s (%s): checkpoint %d (%s) and view row %s disagree: %s",
						o.ID, s, o.Why, o.Seq, o.Cursor, d.row, d).
						checkpoint(s, at).cause().
						viewRow(s, o.T, d).cause().
						observed(s, d)
				})
			}})
		}
		if !s.latest || !s.Info.Ledger || !s.ordered() {
			continue
		}
		c := s.last()
		outOfStep := func(stream string) bool { return s.outOfStep(stream, c.cursor) }
		s.compare(s.Final, &claims{s: s, cursor: c.cursor, seq: final}, comparison{only: outOfStep, unfolded: unfolded, differs: func(d difference) {
			violate(res, func() *witness {
				return newWitness(run, d.stream, "in the final state checkpoint %d of %s (%s) and view row %s disagree: %s",
					c.seq, s, c.cursor, d.row, d).
					checkpoint(s, c).cause().
					viewRow(s, run.lastStamp(), d).cause().
					differing(s, d)
			})
		}})
	}
	j.conclude()
}

// checkOneUnit looks for effects that a transactional projection wrote in another transaction than that of any of its
// checkpoint values. It is known only where the checkpoint's history has no hole, and every value of it names its
// transaction. The replay of a parked event moves no checkpoint.
func checkOneUnit(j *feedJudge, s *sigma) {
	if s.Info.Mode == modeAtLeastOnce || !s.Info.Ledger || len(s.Checkpoints) == 0 {
		return
	}
	carried, counted, highest := map[uint64]bool{}, map[uint64]bool{}, uint64(0)
	for _, c := range s.Checkpoints {
		if c.Seq == 0 || c.Transaction == 0 {
			return
		}
		carried[c.Transaction], counted[c.Seq] = true, true
		highest = max(highest, c.Seq)
	}
	if uint64(len(counted)) != highest {
		return // a value is missing, and the effects may be its
	}
	for i, r := range s.Ledger {
		if r.How != history.Applied || r.Transaction == 0 || carried[r.Transaction] {
			continue
		}
		event := s.eventOf[i]
		if event >= 0 && s.replay(event, r) {
			continue
		}
		carried[r.Transaction] = true // once a transaction
		violate(j.res, func() *witness {
			w := newWitness(j.run, r.Stream, "effect and checkpoint of %s were not one atomic unit: transaction %d applied %s v%d to view row %s, and no checkpoint value was written by it",
				s, r.Transaction, r.Stream, r.Version, r.Row)
			w.effect(s, r).cause()
			if event < 0 {
				return w
			}
			w.placed(s.log.events[event])
			if v := s.firstCover()[event]; v >= 0 {
				w.checkpoint(s, s.values[v]).cause()
			}
			return w
		})
	}
}

// begunBy reports whether the projection had anything to get wrong when it was observed.
func (s *sigma) begunBy(o *Observation) bool {
	return !o.Cursor.IsZero() || len(o.View) > 0 || slices.ContainsFunc(s.polls, func(p *history.Poll) bool {
		return p.Outcome == eventstore.OK && p.Events > 0 && p.T <= o.T
	})
}

// outOfStep reports whether the ledger of a stream holds something else than what the cursor claims.
func (s *sigma) outOfStep(stream string, c eventstore.Cursor) bool {
	at := s.log.spans[stream]
	for event := at.from; event < at.to; event++ {
		if !s.passes[event] {
			continue
		}
		covered := c.Covers(s.log.events[event].Position) && !s.log.events[event].Position.IsZero()
		if covered && !s.handled(event) && !s.bypassed(event) {
			return true
		}
		if covered {
			continue
		}
		applied := false
		s.rows(event, func(_ int32, r *history.LedgerRow) bool {
			applied = applied || r.How == history.Applied
			return !applied
		})
		if applied {
			return true
		}
	}
	return false
}
