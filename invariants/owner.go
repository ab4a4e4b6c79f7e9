package invariants

import (
	"maps"
	"slices"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/verdict"
)

var (
	takeovers = Opportunity{"takeovers",
		"times a shard of the log went over to a later owner that wrote to it"}
	appendsAtTakeover = Opportunity{"appends_at_takeover",
		"appends to a shard that were in flight while the first one of its later owner was"}
	acknowledgedOffsets = Opportunity{"acknowledged_offsets",
		"acknowledged events whose answer named their partition and offset"}
	offsetPairs = Opportunity{"offset_pairs",
		"neighbouring versions of a stream whose offsets were compared"}
)

// ownerRules are the rules of logs that owners write.
func ownerRules() []Rule {
	return []Rule{
		{
			ID: "INV-FENCE", Slug: "fenced-owner", Whole: true, NeedsLog: true,
			Title:         "After a later owner's first event no earlier owner writes to that part of the log",
			Promises:      []eventstore.Promise{eventstore.FencedOwnership},
			Opportunities: []Opportunity{takeovers, appendsAtTakeover},
			Check:         checkFencedOwner,
		},
		{
			ID: "INV-KLOG", Slug: "kafka-log", Whole: true, NeedsLog: true,
			Title:         "An acknowledged event is at its partition and offset once, and offsets follow versions",
			Promises:      []eventstore.Promise{eventstore.PartitionedLog},
			Opportunities: []Opportunity{acknowledgedOffsets, offsetPairs},
			Check:         checkPartitionedLog,
		},
	}
}

// fenced-owner (INV-FENCE): in the order of a shard's positions, after the first event of owner epoch e′ there is none
// of e < e′. The epoch is the lease's, written in the event's metadata.
//
//	owner 1 (epoch 4)   append v5 …paused…                    resumed: append v6, epoch 4
//	owner 2 (epoch 5)                        append v6, epoch 5
func checkFencedOwner(run *Run, res *verdict.Result) {
	f := feedsOf(run).log
	unnamed := 0
	for _, number := range slices.Sorted(maps.Keys(f.shards)) {
		shard := f.shards[number]
		var newest *Logged
		for i := shard.from; i < shard.to; i++ {
			l := f.events[f.order[i]]
			if l.Meta.Epoch == 0 {
				unnamed++
				continue
			}
			switch {
			case newest == nil:
				newest = l
			case l.Meta.Epoch > newest.Meta.Epoch:
				newest = l
				res.Evidence[takeovers.Name]++
				res.Evidence[appendsAtTakeover.Name] += inFlightWith(f, shard, l)
			case l.Meta.Epoch < newest.Meta.Epoch:
				later := newest
				violate(res, func() *witness {
					return newWitness(run, l.Stream,
						"%s was written by owner epoch %d at position %s, after %s of owner epoch %d at %s: the earlier owner was not fenced",
						eventName(l), l.Meta.Epoch, l.Position, eventName(later), later.Meta.Epoch, later.Position).
						placed(later).cause().placed(l).cause()
				})
			}
		}
	}
	if unnamed > 0 && res.Count == 0 {
		res.Verdict = verdict.Inconclusive
		res.Reason = "some events name no owner epoch: which owner wrote them can't be told"
	}
}

// inFlightWith counts the other writes with an event in the shard that were in flight while the write of l was.
func inFlightWith(f *feedLog, shard span, l *Logged) (n int64) {
	if l.Write == nil {
		return 0
	}
	var last *Write
	for i := shard.from; i < shard.to; i++ {
		w := f.events[f.order[i]].Write
		if w == nil || w == l.Write || w == last {
			continue
		}
		last = w
		if w.Invoke <= l.Write.Last && l.Write.Invoke <= w.Last {
			n++
		}
	}
	return n
}

// kafka-log (INV-KLOG): every event of an ok answer that names positions is in the log at that partition and offset,
// and at no other; in a stream offsets follow versions.
//
// An event that is not in the log at all is for no-lost-ack to report.
func checkPartitionedLog(run *Run, res *verdict.Result) {
	f := feedsOf(run).log
	places := map[eventstore.EventID][]*Logged{}
	for _, l := range f.events {
		places[l.ID] = append(places[l.ID], l)
	}
	for _, l := range f.events {
		if same := places[l.ID]; len(same) > 1 && same[0] == l {
			violate(res, func() *witness {
				w := newWitness(run, l.Stream, "The event %s is in the log %d times.", shortID(l.ID), len(same))
				for _, copied := range same {
					w.placed(copied).cause()
				}
				return w
			})
		}
	}
	for _, w := range run.Writes {
		for i := range w.Attempts {
			a := &w.Attempts[i]
			if a.Answer == nil || len(a.Answer.Positions) == 0 {
				continue
			}
			checkOffsets(run, res, a, places)
		}
	}
	for _, stream := range f.streams {
		at := f.spans[stream]
		for i := at.from + 1; i < at.to; i++ {
			p, l := f.events[i-1], f.events[i]
			if p.Position.IsZero() || l.Position.IsZero() || p.Version >= l.Version || p.ID == l.ID {
				continue
			}
			res.Evidence[offsetPairs.Name]++
			if p.Position.Shard != l.Position.Shard || p.Position.Compare(l.Position) > 0 {
				violate(res, func() *witness {
					return newWitness(run, stream, "%s lies at %s and %s at %s: the partition does not hold the stream in its order",
						eventName(p), p.Position, eventName(l), l.Position).placed(p).cause().placed(l).cause()
				})
			}
		}
	}
}

// checkOffsets compares the positions that an ok answer named with the log.
func checkOffsets(run *Run, res *verdict.Result, a *Attempt, places map[eventstore.EventID][]*Logged) {
	ids := a.Answer.Events
	if ids == nil {
		for _, e := range a.Write.Events {
			ids = append(ids, e.ID)
		}
	}
	for i, p := range a.Answer.Positions {
		if i >= len(ids) {
			return
		}
		found := places[ids[i]]
		if len(found) == 0 || p.IsZero() {
			continue
		}
		res.Evidence[acknowledgedOffsets.Name]++
		at := false
		for _, l := range found {
			at = at || l.Position == p
		}
		if !at {
			l := found[0]
			violate(res, func() *witness {
				return newWitness(run, l.Stream, "%s was acknowledged at %s, the log holds it at %s.", eventName(l), p, l.Position).
					attempt(a).cause().placed(l).cause()
			})
		}
	}
}
