package invariants

import (
	"cmp"
	"maps"
	"slices"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/verdict"
)

// checkNoDuplicate is INV-NODUP · no-duplicate-projection. Violated unless there is at most one applied row for
// each (projection and generation, event, view row). An event may be delivered any number of times.
func checkNoDuplicate(run *Run, res *verdict.Result) {
	j := judgeFeeds(run, res)
	for _, s := range j.feeds.sigmas {
		if !j.hasLedger(s) {
			continue
		}
		j.judged++
		countRedeliveries(res, s)
		for i := range s.log.events {
			if s.log.first(int32(i)) {
				checkAppliedOnce(j, s, int32(i))
			}
		}
		checkForeignOnce(j, s)
	}
	j.conclude()
}

func checkAppliedOnce(j *feedJudge, s *sigma, event int32) {
	if first := s.ledgerOf[event]; first < 0 || s.nextRow[first] < 0 {
		return // nearly always
	}
	var applied []*history.LedgerRow
	s.rows(event, func(_ int32, r *history.LedgerRow) bool {
		if r.How == history.Applied {
			applied = append(applied, r)
		}
		return true
	})
	slices.SortStableFunc(applied, func(a, b *history.LedgerRow) int { return cmp.Compare(a.Row, b.Row) })
	for i := 0; i < len(applied); {
		k := i
		for k < len(applied) && applied[k].Row == applied[i].Row {
			k++
		}
		if same := applied[i:k]; len(same) > 1 {
			violate(j.res, func() *witness { return duplicateWitness(j.run, s, s.log.events[event], same) })
		}
		i = k
	}
}

// checkForeignOnce looks at the effects of events that are not in the log: no-phantom-event speaks of them, but
// twice is twice.
func checkForeignOnce(j *feedJudge, s *sigma) {
	type effect struct {
		event eventstore.EventID
		row   string
	}
	seen := map[effect]*history.LedgerRow{}
	for i, r := range s.Ledger {
		if s.eventOf[i] >= 0 || r.How != history.Applied {
			continue
		}
		key := effect{r.Event, r.Row}
		first := seen[key]
		if first == nil {
			seen[key] = r
			continue
		}
		violate(j.res, func() *witness {
			return newWitness(j.run, r.Stream, "event %s of %s, which is not in the log, was applied to view row %s of %s more than once",
				shortID(r.Event), r.Stream, r.Row, s).
				effect(s, first).cause().effect(s, r).cause()
		})
	}
}

func duplicateWitness(run *Run, s *sigma, l *Logged, rows []*history.LedgerRow) *witness {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b *history.LedgerRow) int { return cmp.Compare(a.RowOrder, b.RowOrder) })
	w := newWitness(run, l.Stream, "%s was applied %d times to view row %s of %s", eventName(l), len(rows), rows[0].Row, s)
	w.placed(l)
	for i, p := range s.deliveries(l.Position) {
		if i == 3 {
			break
		}
		w.poll(p)
	}
	for _, r := range rows[:min(len(rows), 4)] {
		w.effect(s, r).cause()
	}
	return w
}

// deliveries returns the polls whose page can have held position p.
func (s *sigma) deliveries(p eventstore.Position) []*history.Poll {
	var out []*history.Poll
	for _, poll := range s.polls {
		if poll.Outcome == eventstore.OK && poll.Events > 0 && !poll.After.Covers(p) && poll.Next.Covers(p) {
			out = append(out, poll)
		}
	}
	return out
}

// checkInOrder is INV-ORDER · in-order-projection. Over the applied rows of one view row, in the row's own
// order, first row of each event (repeats belong to no-duplicate): violated unless versions increase; a version
// below the highest applied one is missing only if filtered, parked or superseded; the row's version never
// decreases. Superseded rows have no order. Ledger rows without a counter of their view row have none either, and
// rows with the same counter none among each other. A parked event may be replayed after later ones: whether the
// policy lets its stream pass is not recorded.
func checkInOrder(run *Run, res *verdict.Result) {
	j := judgeFeeds(run, res)
	for _, s := range j.feeds.sigmas {
		if !j.hasLedger(s) {
			continue
		}
		j.judged++
		if slices.ContainsFunc(s.Ledger, func(r *history.LedgerRow) bool { return r.How == history.Applied && r.RowOrder == 0 }) {
			j.unpromised("the ledger of %s has effects without a counter of their view row: of those only what is missing", s)
		}
		seen := make([]int32, len(s.log.events))
		for _, group := range s.rowGroups(func(r *history.LedgerRow) bool { return r.How == history.Applied }) {
			countOrderOpportunities(res, s, group)
			checkRowOrder(j, s, group, seen)
		}
	}
	j.conclude()
}

// rowGroups returns the ledger rows that are wanted, by view row, each group in the view row's own order, rows with
// the same counter by version.
func (s *sigma) rowGroups(wanted func(*history.LedgerRow) bool) [][]int32 {
	number := map[string]int{}
	var groups [][]int32
	for i, r := range s.Ledger {
		if !wanted(r) {
			continue
		}
		g, ok := number[r.Row]
		if !ok {
			g = len(groups)
			number[r.Row] = g
			groups = append(groups, nil)
		}
		groups[g] = append(groups[g], int32(i))
	}
	for _, g := range groups {
		slices.SortStableFunc(g, func(a, b int32) int {
			x, y := s.Ledger[a], s.Ledger[b]
			return cmp.Or(cmp.Compare(x.RowOrder, y.RowOrder), cmp.Compare(x.Version, y.Version))
		})
	}
	return groups
}

// applied is the highest version of a stream that a view row has applied, and the ledger row of it.
type applied struct {
	version uint64
	row     *history.LedgerRow
}

// checkRowOrder judges the applied rows of one view row. Versions are those of the log; a row may hold several
// streams, then its own version says nothing. Seen marks, for each event, the last view row that it was met in.
func checkRowOrder(j *feedJudge, s *sigma, group []int32, seen []int32) {
	highest := map[string]*applied{} // by stream, over the rows that have an order
	reached := map[string]*applied{} // by stream, over all rows
	foreign := map[eventstore.EventID]bool{}
	var before *history.LedgerRow
	var h *applied // of the stream last met
	last := ""
	for _, i := range group {
		r := s.Ledger[i]
		stream, version := r.Stream, r.Version
		if event := s.eventOf[i]; event >= 0 {
			stream, version = s.log.events[event].Stream, s.log.events[event].Version
			if most := reached[stream]; most == nil {
				reached[stream] = &applied{version, r}
			} else if most.version < version {
				most.version, most.row = version, r
			}
			if r.RowOrder == 0 || seen[event] == group[0]+1 {
				continue
			}
			seen[event] = group[0] + 1
			if h := highest[stream]; h != nil && version < h.version && s.replay(event, r) {
				continue
			}
		} else {
			if r.RowOrder == 0 || foreign[r.Event] {
				continue
			}
			foreign[r.Event] = true
		}
		if h == nil || stream != last {
			h, last = highest[stream], stream
		}
		switch {
		case h == nil:
			h = &applied{}
			highest[stream] = h
		case version <= h.version:
			higher := *h
			violate(j.res, func() *witness {
				return newWitness(j.run, stream, "view row %s of %s applied version %d of %s after version %d", r.Row, s, version, stream, higher.version).
					effect(s, higher.row).cause().effect(s, r).cause().
					placedID(higher.row.Event).placedID(r.Event)
			})
		case len(highest) == 1 && r.RowVersion < before.RowVersion:
			former := before
			violate(j.res, func() *witness {
				return newWitness(j.run, stream, "view row %s of %s went from version %d back to version %d", r.Row, s, former.RowVersion, r.RowVersion).
					effect(s, former).cause().effect(s, r).cause()
			})
		}
		if version > h.version || h.row == nil {
			h.version, h.row = version, r
		}
		before = r
	}
	if s.view != nil { // else it is not known which events belong to the row
		checkNoneMissing(j, s, s.Ledger[group[0]].Row, reached)
	}
}

// checkNoneMissing looks for events below the highest applied version that no ledger row handles.
func checkNoneMissing(j *feedJudge, s *sigma, row string, reached map[string]*applied) {
	for _, stream := range slices.Sorted(maps.Keys(reached)) {
		h, at := reached[stream], s.log.spans[stream]
		for event := at.from; event < at.to && s.log.events[event].Version < h.version; event++ {
			if !s.passes[event] || s.rowOf(event) != row || s.handled(event) {
				continue
			}
			if s.bypassed(event) {
				j.bypassed(s)
				continue
			}
			l := s.log.events[event]
			violate(j.res, func() *witness {
				w := newWitness(j.run, stream, "view row %s of %s applied version %d of %s but never version %d: %s", row, s, h.version, stream, l.Version, s.notHandled(event)).
					placed(l).cause().effect(s, h.row).cause()
				if i := s.ledgerOf[event]; i >= 0 {
					return w.effect(s, s.Ledger[i]).cause()
				}
				return w.noLedgerRow(s, l, row).cause()
			})
		}
	}
}
