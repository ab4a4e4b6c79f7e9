package invariants

import (
	"cmp"
	"slices"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/verdict"
)

// checkPositionOrder is INV-POSITION · position-order. Violated unless positions are injective; inside a stream
// position order = version order; the all-reader can reach every event; and, if real-time order is promised, a
// before b ⇒ pos(a) < pos(b).
//
// Positions may have holes for ever. An event without a position is one that no reader of the feed can reach.
func checkPositionOrder(run *Run, res *verdict.Result) {
	f := feedsOf(run)
	countPositionOpportunities(run, res)
	checkPositionsDistinct(run, res, f.log)
	checkPositionsInStreams(run, res, f.log)
	if run.Promised(eventstore.RealTimeOrder) {
		checkPositionsRealTime(run, res, f.log)
	}
}

func checkPositionsDistinct(run *Run, res *verdict.Result, f *feedLog) {
	for i := 1; i < len(f.order); i++ {
		a, b := f.events[f.order[i-1]], f.events[f.order[i]]
		if a.Position != b.Position {
			continue
		}
		violate(res, func() *witness {
			return newWitness(run, b.Stream, "%s and %s share position %s: a reader that stops between them can't say where it stands",
				eventName(a), eventName(b), a.Position).
				placed(a).cause().placed(b).cause()
		})
	}
}

func checkPositionsInStreams(run *Run, res *verdict.Result, f *feedLog) {
	for _, stream := range f.streams {
		var last *Logged // the last event with a position
		for i := f.spans[stream].from; i < f.spans[stream].to; i++ {
			l := f.events[i]
			if l.Position.IsZero() {
				violate(res, func() *witness {
					return newWitness(run, stream, "%s has no position: no reader of the feed can reach it", eventName(l)).
						placed(l).cause()
				})
				continue
			}
			// Two events at one version belong to gapless-versions; equal positions were reported above.
			if last != nil && last.Version < l.Version && last.Position != l.Position &&
				(last.Position.Shard != l.Position.Shard || last.Position.Compare(l.Position) > 0) {
				before := last
				violate(res, func() *witness {
					return newWitness(run, stream, "in %s version %d lies at position %s and version %d at position %s: the feed delivers them in the wrong order",
						stream, before.Version, before.Position, l.Version, l.Position).
						placed(before).cause().placed(l).cause()
				})
			}
			last = l
		}
	}
}

// extent is a write with its lowest and highest event by position.
type extent struct {
	invoke, returned int64
	write            *Write
	lowest, highest  *Logged
}

// extents returns the applied writes whose events have positions. A write whose events do not stand together in
// their stream gives several.
func extents(f *feedLog) []extent {
	out := make([]extent, 0, len(f.order))
	for _, l := range f.events {
		if l.Write == nil || l.Write.Invoke == Infinity || l.Position.IsZero() {
			continue
		}
		if n := len(out) - 1; n >= 0 && out[n].write == l.Write {
			e := &out[n]
			if l.Position.Compare(e.lowest.Position) < 0 {
				e.lowest = l
			}
			if l.Position.Compare(e.highest.Position) > 0 {
				e.highest = l
			}
			continue
		}
		out = append(out, extent{invoke: l.Write.Invoke, returned: l.Write.Return, write: l.Write, lowest: l, highest: l})
	}
	return out
}

// checkPositionsRealTime walks the writes by invoke and keeps, of those that had returned by then, the highest
// position: it must lie below every position of the write at hand.
func checkPositionsRealTime(run *Run, res *verdict.Result, f *feedLog) {
	byInvoke := extents(f)
	slices.SortFunc(byInvoke, func(a, b extent) int { return cmp.Compare(a.invoke, b.invoke) })
	byReturn := slices.Clone(byInvoke)
	slices.SortFunc(byReturn, func(a, b extent) int { return cmp.Compare(a.returned, b.returned) })
	highest := map[uint32]*Logged{} // by shard: positions of different shards don't compare
	next := 0
	for _, b := range byInvoke {
		for next < len(byReturn) && byReturn[next].returned < b.invoke {
			a := byReturn[next].highest
			if h := highest[a.Position.Shard]; h == nil || h.Position.Compare(a.Position) < 0 {
				highest[a.Position.Shard] = a
			}
			next++
		}
		a := highest[b.lowest.Position.Shard]
		if a == nil || a.Position.Compare(b.lowest.Position) <= 0 {
			continue
		}
		violate(res, func() *witness {
			return newWitness(run, b.lowest.Stream, "%s was acknowledged before the append of %s was sent, yet lies at the later position (%s after %s)",
				eventName(a), eventName(b.lowest), a.Position, b.lowest.Position).
				placed(a).cause().placed(b.lowest).cause()
		})
	}
}
