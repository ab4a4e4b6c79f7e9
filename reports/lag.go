package reports

import (
	"cmp"
	"slices"
	"sort"

	"github.com/eventproof/eventproof/eventstore"
)

// layLags finds for every event of the log and every projection when the event became visible, and keeps the
// difference to its acknowledgement.
//
// Where the projection left ledger rows, they say which events were handled and in which move of the
// checkpoint; the first application that returned with that move, or a later one, tells the time. A cursor
// alone would call an event visible that the reader skipped. Without ledger rows an event is visible once the
// cursor of an acknowledged application covers it.
func (j *joined) layLags() {
	names := make([]string, 0, len(j.projections))
	for name := range j.projections {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		p := j.projections[name]
		slices.SortStableFunc(p.applies, func(a, b applyFact) int { return cmp.Compare(a.t, b.t) })
		if len(p.ledger) > 0 {
			j.lagsByLedger(p)
		} else {
			j.lagsByCursor(p)
		}
	}
}

// keep records one visible event. An event without an ok answer has no acknowledgement to count from.
func (j *joined) keep(id eventstore.EventID, visible int64) {
	if ack, ok := j.ack[id]; ok {
		j.lags = append(j.lags, lagSample{ack, visible - ack})
	}
}

func (j *joined) lagsByLedger(p *projectionFacts) {
	type move struct {
		seq uint64
		t   int64
	}
	moves := map[uint64][]move{} // by generation
	for _, a := range p.applies {
		if a.seq > 0 {
			moves[a.generation] = append(moves[a.generation], move{a.seq, a.t})
		}
	}
	for g, ms := range moves {
		slices.SortFunc(ms, func(a, b move) int { return cmp.Or(cmp.Compare(a.seq, b.seq), cmp.Compare(a.t, b.t)) })
		// The earliest return of this move or a later one: an application whose answer was lost is seen by
		// the next one at the latest.
		for i := len(ms) - 2; i >= 0; i-- {
			ms[i].t = min(ms[i].t, ms[i+1].t)
		}
		moves[g] = ms
	}
	const handledAtUnknownTime = int64(-1)
	visible := make(map[eventstore.EventID]int64, len(p.ledger))
	types := map[uint32]bool{} // event types that the projection does not filter
	for _, row := range p.ledger {
		if i, ok := j.inLog[row.event]; ok {
			types[j.log[i].kind] = true
		}
		at := handledAtUnknownTime
		ms := moves[row.generation]
		if i := sort.Search(len(ms), func(i int) bool { return ms[i].seq >= row.seq }); i < len(ms) && row.seq > 0 {
			at = ms[i].t
		}
		if old, ok := visible[row.event]; !ok || old == handledAtUnknownTime || at != handledAtUnknownTime && at < old {
			visible[row.event] = at
		}
	}
	for _, l := range j.log {
		at, ok := visible[l.id]
		switch {
		case !ok:
			if types[l.kind] {
				j.never++
			}
		case at != handledAtUnknownTime:
			j.keep(l.id, at)
		}
	}
}

func (j *joined) lagsByCursor(p *projectionFacts) {
	order := make([]uint32, 0, len(j.log))
	for i, l := range j.log {
		if !l.position.IsZero() {
			order = append(order, uint32(i))
		}
	}
	slices.SortFunc(order, func(a, b uint32) int { return j.log[a].position.Compare(j.log[b].position) })
	at := func(i int) eventstore.Position { return j.log[order[i]].position }
	visible := make([]int64, len(order))
	// next[i] is the first event at or after i that is not visible yet, so that ranges claimed again and
	// again cost nothing.
	next := make([]uint32, len(order)+1)
	for i := range next {
		next[i] = uint32(i)
	}
	find := func(i int) int {
		for next[i] != uint32(i) {
			next[i] = next[next[i]]
			i = int(next[i])
		}
		return i
	}
	for _, a := range p.applies {
		// What the cursor claims became visible with this move or an earlier one whose answer was lost.
		for _, head := range a.next.At {
			from := sort.Search(len(order), func(i int) bool { return at(i).Shard >= head.Shard })
			for i := find(from); i < len(order) && at(i).Compare(head) <= 0; i = find(i + 1) {
				if a.next.Covers(at(i)) {
					visible[i] = a.t
					next[i] = uint32(i) + 1
				}
			}
		}
	}
	for i, k := range order {
		if visible[i] == 0 {
			j.never++
			continue
		}
		j.keep(j.log[k].id, visible[i])
	}
}
