package invariants

import (
	"cmp"
	"slices"
	"sort"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/verdict"
)

// Opportunities of feeds and projections: INVARIANTS 5. They are counted from the load, never from a failure.

func countPositionOpportunities(run *Run, res *verdict.Result) {
	c := feedsOf(run).count()
	countEvidence(res, overlappingAppends, c.overlapping)
	countEvidence(res, overlappingOnStream, c.overlappingOnStream)
	countEvidence(res, overlappingAppendsPolled, c.overlappingPolled)
}

func countSkipOpportunities(run *Run, res *verdict.Result) {
	c := feedsOf(run).count()
	countEvidence(res, overlappingAppendsPolled, c.overlappingPolled)
	countEvidence(res, burnedPositions, c.burned)
	countEvidence(res, heldTransactions, c.held)
	countEvidence(res, unknownLanded, c.landed)
	countEvidence(res, restartsUnhandled, c.restarts)
}

func countRedeliveries(res *verdict.Result, s *sigma) {
	countEvidence(res, eventsReadAgain, s.readAgain())
	countEvidence(res, restartsUnhandled, s.died().restarts)
	for _, a := range s.applies {
		if a.Outcome == eventstore.Unknown {
			countEvidence(res, unknownApplies, 1)
		}
	}
}

// counts are the opportunities of positions and skips. Polls and checkpoints are those of projections whose skips
// are judged: what tempts another one proves nothing here.
type counts struct {
	overlapping, overlappingOnStream, overlappingPolled, held int64
	burned, landed, restarts                                  int64
}

// skipsJudged reports whether no-skipped-checkpoint judges the projection.
func (s *sigma) skipsJudged() bool { return s.Info.Ledger && s.view != nil }

func (f *feeds) count() *counts {
	if f.counts != nil {
		return f.counts
	}
	c := &counts{}
	f.counts = c
	var polls []*history.Poll
	claimed := make([]bool, len(f.log.events)) // by some checkpoint
	for _, s := range f.sigmas {
		if !s.skipsJudged() {
			continue
		}
		polls = append(polls, s.polls...)
		c.restarts += s.died().restarts
		for event, v := range s.firstCover() {
			claimed[event] = claimed[event] || v >= 0
		}
	}
	landed := map[*Write]bool{}
	for event, l := range f.log.events {
		if claimed[event] && l.Write != nil && !l.Write.Acked && !landed[l.Write] {
			landed[l.Write] = true
			c.landed++
		}
	}
	c.burned = f.log.burned(claimed)
	f.countAppends(c, polls)
	return c
}

// flight is the time during which an append of the log was open: from its first request to its
// acknowledgement, else to the return of its last try.
type flight struct {
	from, to int64
	stream   string
}

func (f *feeds) countAppends(c *counts, asked []*history.Poll) {
	run := f.log.run
	var flights []flight
	for _, w := range run.Writes {
		to := w.Return
		if to == Infinity {
			to = w.Last
		}
		if w.Applied && w.Invoke != Infinity && to != Infinity {
			flights = append(flights, flight{w.Invoke, to, w.Stream})
		}
	}
	// polls by invoke, with the earliest return of it and all later ones
	var polls []*history.Poll
	for _, p := range asked {
		if p.Outcome == eventstore.OK {
			polls = append(polls, p)
		}
	}
	slices.SortFunc(polls, func(a, b *history.Poll) int { return cmp.Compare(a.Invoke, b.Invoke) })
	returned := make([]int64, len(polls)+1)
	returned[len(polls)] = Infinity
	for i := len(polls) - 1; i >= 0; i-- {
		returned[i] = min(returned[i+1], polls[i].T)
	}

	ends := newTimes(flights)
	for _, x := range flights {
		// Pairs are counted once, by the one that ended later: the other ended in between.
		c.overlapping += ends.others(x.stream, x.from, x.to-1)
		c.overlappingOnStream += ends.on(x.stream, x.from, x.to-1)
		first := sort.Search(len(polls), func(i int) bool { return polls[i].Invoke >= x.from })
		if returned[first] <= x.to {
			c.held++
		}
		// The last poll that began before x was answered: whatever had been answered by then and after x began
		// was in sight, and x perhaps not.
		last := sort.Search(len(polls), func(i int) bool { return polls[i].Invoke >= x.to }) - 1
		if last >= 0 {
			c.overlappingPolled += ends.others(x.stream, x.from, min(polls[last].Invoke, x.to-1))
		}
	}
}

// times counts ends of flights in an interval, those of one stream left out.
type times struct {
	all    []int64
	stream map[string][]int64
}

func newTimes(flights []flight) *times {
	t := &times{stream: map[string][]int64{}}
	for _, x := range flights {
		t.all = append(t.all, x.to)
		t.stream[x.stream] = append(t.stream[x.stream], x.to)
	}
	slices.Sort(t.all)
	for _, list := range t.stream {
		slices.Sort(list)
	}
	return t
}

// others counts the ends in [from, to] that belong to other streams.
func (t *times) others(stream string, from, to int64) int64 {
	if to < from {
		return 0
	}
	return within(t.all, from, to) - within(t.stream[stream], from, to)
}

// on counts the ends in [from, to] that belong to the stream.
func (t *times) on(stream string, from, to int64) int64 {
	if to < from {
		return 0
	}
	return within(t.stream[stream], from, to)
}

// within counts the members of an ascending list in [from, to].
func within(list []int64, from, to int64) int64 {
	a, _ := slices.BinarySearch(list, from)
	b, _ := slices.BinarySearch(list, to+1)
	return int64(b - a)
}

// burned counts the holes in the sequence that positions are drawn from, below the last event that is claimed.
// Where the low part of a position is not drawn from one sequence (it repeats), nothing is counted.
func (f *feedLog) burned(claimed []bool) int64 {
	total := int64(0)
	for _, s := range f.shards {
		for s.from < s.to && !claimed[f.order[s.to-1]] {
			s.to--
		}
		drawn := make([]uint64, 0, s.to-s.from)
		for k := s.from; k < s.to; k++ {
			drawn = append(drawn, f.events[f.order[k]].Position.Minor)
		}
		slices.Sort(drawn)
		holes := int64(0)
		for i := 1; i < len(drawn); i++ {
			if drawn[i] == drawn[i-1] {
				holes = 0
				break
			}
			holes += int64(drawn[i] - drawn[i-1] - 1)
		}
		total += holes
	}
	return total
}

// deaths counts projectors that died with a page in hand, and those of them that were started again.
type deaths struct{ kills, restarts int64 }

func (s *sigma) died() *deaths {
	if s.deaths != nil {
		return s.deaths
	}
	c := &deaths{}
	s.deaths = c
	run := s.log.run
	page := map[uint32]*history.Poll{} // the last page that a process was given
	done := map[uint32]int64{}         // when it last had a definite answer to its application
	for _, p := range s.polls {
		if p.Outcome == eventstore.OK && p.Events > 0 {
			page[p.Process] = p
		}
	}
	for _, a := range s.applies {
		if a.Outcome != eventstore.Unknown {
			done[a.Process] = max(done[a.Process], a.T)
		}
	}
	for id, p := range page {
		process := run.Processes[id]
		if _, died := process.Died(); !died || done[id] >= p.T {
			continue
		}
		c.kills++
		for _, other := range run.Processes {
			if other.Name == process.Name && other.Incarnation > process.Incarnation {
				c.restarts++
				break
			}
		}
	}
	return c
}

// readAgain counts deliveries of events that had been delivered before, by positions. Events that the view is known
// to filter tempt nobody.
func (s *sigma) readAgain() int64 {
	taken := func(k int32) bool { return s.view == nil || s.passes[s.log.order[k]] }
	before := make([]int64, len(s.log.order)+1) // how many events of the view lie before a place
	for k := range s.log.order {
		before[k+1] = before[k]
		if taken(int32(k)) {
			before[k+1]++
		}
	}
	again, fresh := int64(0), int64(0)
	unseen := newRanges(len(s.log.order))
	for _, p := range s.polls {
		if p.Outcome != eventstore.OK || p.Events == 0 {
			continue
		}
		s.log.newly(p.After, p.Next, func(r span) {
			again += before[r.to] - before[r.from]
			unseen.take(r, func(k int32) {
				if taken(k) {
					fresh++
				}
			})
		})
	}
	return again - fresh
}

// countOrderOpportunities counts view rows whose order was put to the test. The group is in the row's order, in
// which the rows of one transaction stand together. Rows without a counter have no order that could be broken, and
// what does not name its transaction is no batch.
func countOrderOpportunities(res *verdict.Result, s *sigma, group []int32) {
	batch, owners := 1, 1
	for k := 1; k < len(group); k++ {
		a, b := s.Ledger[group[k-1]], s.Ledger[group[k]]
		if a.RowOrder == 0 || a.Event == b.Event {
			continue
		}
		if a.Epoch != b.Epoch {
			owners++
		}
		if a.Seq != b.Seq || a.Transaction != b.Transaction || a.Seq == 0 && a.Transaction == 0 {
			batch = 1
			continue
		}
		if batch++; batch == 2 {
			countEvidence(res, streamsInBatch, 1)
		}
	}
	if owners > 1 {
		countEvidence(res, streamsAcrossOwners, 1)
	}
}
