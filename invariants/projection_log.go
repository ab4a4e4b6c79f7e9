package invariants

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
)

// feedLog is L as feeds see it: every event has a number, and there is one order by position beside the
// streams. An event's number is its place when streams are laid side by side, each by version.
type feedLog struct {
	run     *Run
	events  []*Logged
	streams []string        // by name
	spans   map[string]span // a stream's events
	order   []int32         // the events that have a position, by position
	shards  map[uint32]span // a shard's part of order
	doubled bool            // some event id is in the log more than once
}

// span is the half-open range [from, to).
type span struct{ from, to int32 }

func newFeedLog(run *Run) *feedLog {
	f := &feedLog{run: run, spans: map[string]span{}, shards: map[uint32]span{}}
	n := 0
	for name, s := range run.Streams {
		if len(s.Log) > 0 {
			f.streams = append(f.streams, name)
			n += len(s.Log)
		}
	}
	slices.Sort(f.streams)
	f.events = make([]*Logged, 0, n)
	type place struct { // what is sorted by stands in the slice: a log is long and its events lie anywhere
		position eventstore.Position
		event    int32
	}
	placed := make([]place, 0, n)
	f.doubled = n != len(run.Log)
	for _, name := range f.streams {
		from := int32(len(f.events))
		for _, l := range run.Streams[name].Log {
			i := int32(len(f.events))
			f.events = append(f.events, l)
			if !l.Position.IsZero() {
				placed = append(placed, place{l.Position, i})
			}
		}
		f.spans[name] = span{from, int32(len(f.events))}
	}
	slices.SortFunc(placed, func(a, b place) int {
		return cmp.Or(a.position.Compare(b.position), cmp.Compare(a.event, b.event))
	})
	f.order = make([]int32, len(placed))
	for k, p := range placed {
		f.order[k] = p.event
	}
	for at := 0; at < len(f.order); {
		shard := f.events[f.order[at]].Position.Shard
		end := at
		for end < len(f.order) && f.events[f.order[end]].Position.Shard == shard {
			end++
		}
		f.shards[shard] = span{int32(at), int32(end)}
		at = end
	}
	return f
}

// find returns the number of the event with that id; where it is in the log more than once, of the first. The
// place is a guess that is nearly always right.
func (f *feedLog) find(id eventstore.EventID, stream string, version uint64) (int32, bool) {
	if at, ok := f.spans[stream]; ok && !f.doubled && version >= 1 && version <= uint64(at.to-at.from) {
		if i := at.from + int32(version-1); f.events[i].ID == id {
			return i, true
		}
	}
	l := f.run.Log[id]
	if l == nil {
		return 0, false
	}
	at := f.spans[l.Stream]
	i := at.from + int32(sort.Search(int(at.to-at.from), func(k int) bool {
		return f.events[int(at.from)+k].Version >= l.Version
	}))
	for ; i < at.to; i++ {
		if f.events[i] == l {
			return i, true
		}
	}
	return 0, false
}

// first reports whether the event is the first with its id.
func (f *feedLog) first(event int32) bool {
	return !f.doubled || f.run.Log[f.events[event].ID] == f.events[event]
}

// positioned reports whether the target's events have positions; those of an empty log lack none.
func (f *feedLog) positioned() bool { return len(f.order) > 0 || len(f.events) == 0 }

// upTo returns the place in order after the last event of p's shard with a position ≤ p.
func (f *feedLog) upTo(p eventstore.Position) int32 {
	s, ok := f.shards[p.Shard]
	if !ok {
		return 0
	}
	n := sort.Search(int(s.to-s.from), func(i int) bool {
		return f.events[f.order[int(s.from)+i]].Position.Compare(p) > 0
	})
	return s.from + int32(n)
}

// newly calls yield with the ranges of order that next claims and after does not: what lies between them, less
// the gaps that next leaves open, and the gaps of after that next has closed.
func (f *feedLog) newly(after, next eventstore.Cursor, yield func(span)) {
	for _, p := range next.At {
		s, ok := f.shards[p.Shard]
		if !ok {
			continue
		}
		from, to := s.from, f.upTo(p)
		for _, q := range after.At {
			if q.Shard == p.Shard {
				from = f.upTo(q)
			}
		}
		for _, gap := range next.Open { // ascending
			if k, ok := f.at(gap); ok && from <= k && k < to {
				if from < k {
					yield(span{from, k})
				}
				from = k + 1
			}
		}
		if from < to {
			yield(span{from, to})
		}
	}
	for _, gap := range after.Open {
		if k, ok := f.at(gap); ok && next.Covers(gap) && f.below(gap, after) {
			yield(span{k, k + 1})
		}
	}
}

// at returns the place in order of the event at that position.
func (f *feedLog) at(p eventstore.Position) (int32, bool) {
	k := f.upTo(p) - 1
	return k, k >= 0 && f.events[f.order[k]].Position == p
}

// below reports whether the position lies within what the cursor has passed, claimed or left open.
func (f *feedLog) below(p eventstore.Position, c eventstore.Cursor) bool {
	return slices.ContainsFunc(c.At, func(q eventstore.Position) bool { return q.Shard == p.Shard && p.Compare(q) <= 0 })
}

// sigma is one generation of one projection, its ledger joined with the log.
type sigma struct {
	*Projection
	log    *feedLog
	view   *view // nil: the oracle has no fold of this view
	latest bool  // no later generation exists

	passes   []bool  // per event: the view takes it; nothing passes a view that is not known
	ledgerOf []int32 // per event: its first ledger row, −1 = none
	nextRow  []int32 // per ledger row: the next one of the same event, −1 = none
	eventOf  []int32 // per ledger row: its event, −1 = not in the log

	values  []value // the durable values of the checkpoint, in the order of its counter
	polls   []*history.Poll
	applies []*history.Apply

	superseding map[rowVersion]uint64 // versions that an applied row brought a view row to, with its counter
	unseen      map[int32]bool        // see bypassed; nil = not computed
	deaths      *deaths               // nil = not computed
}

type rowVersion struct {
	row     string
	version uint64
}

// value is one durable value of a checkpoint.
type value struct {
	seq, epoch  uint64
	cursor      eventstore.Cursor
	observation uint32 // the observation that showed it, 0 = the checkpoint's own history
}

// feeds is everything the rules of this family share.
type feeds struct {
	log    *feedLog
	sigmas []*sigma // by name, then generation
	counts *counts  // see count; nil = not counted
}

func newFeeds(run *Run) *feeds {
	f := &feeds{log: newFeedLog(run)}
	all := maps.Clone(run.Projections)
	if all == nil {
		all = map[Sigma]*Projection{}
	}
	found := map[string]bool{}
	for key := range all {
		found[key.Projection] = true
	}
	// A generation that is new to the journals has an empty view, and the one before it is no longer the latest.
	started := func(name string, generation uint64) {
		key := Sigma{Projection: name, Generation: generation}
		before := run.Projections[Sigma{name, generation - 1}]
		if generation > 1 && all[key] == nil && before != nil {
			all[key] = &Projection{Sigma: key, Info: before.Info}
		}
	}
	for _, p := range run.Polls {
		started(p.Projection, p.Generation)
	}
	for _, a := range run.Applies {
		started(a.Projection, a.Generation)
	}
	// A projection that left no trace in the store is judged like one with an empty view.
	for _, info := range run.Info.Projections {
		if !found[info.Name] {
			key := Sigma{Projection: info.Name, Generation: 1}
			all[key] = &Projection{Sigma: key, Info: info}
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(all), compareSigma) {
		f.sigmas = append(f.sigmas, newSigma(f.log, all[key]))
	}
	for i, s := range f.sigmas {
		s.latest = i == len(f.sigmas)-1 || f.sigmas[i+1].Sigma.Projection != s.Sigma.Projection
	}
	byKey := map[Sigma]*sigma{}
	for _, s := range f.sigmas {
		byKey[s.Sigma] = s
	}
	for _, p := range run.Polls {
		if s := byKey[Sigma{p.Projection, p.Generation}]; s != nil {
			s.polls = append(s.polls, p)
		}
	}
	for _, a := range run.Applies {
		if s := byKey[Sigma{a.Projection, a.Generation}]; s != nil {
			s.applies = append(s.applies, a)
		}
	}
	for _, s := range f.sigmas {
		slices.SortStableFunc(s.polls, func(a, b *history.Poll) int { return cmp.Compare(a.Invoke, b.Invoke) })
		slices.SortStableFunc(s.applies, func(a, b *history.Apply) int { return cmp.Compare(a.Invoke, b.Invoke) })
	}
	return f
}

func compareSigma(a, b Sigma) int {
	return cmp.Or(cmp.Compare(a.Projection, b.Projection), cmp.Compare(a.Generation, b.Generation))
}

func newSigma(log *feedLog, p *Projection) *sigma {
	s := &sigma{Projection: p, log: log, view: viewOf(p.Info.View)}
	s.passes = make([]bool, len(log.events))
	s.ledgerOf = make([]int32, len(log.events))
	for i, l := range log.events {
		s.ledgerOf[i] = -1
		if s.view != nil {
			_, s.passes[i] = s.view.key(l)
		}
	}
	s.nextRow, s.eventOf = make([]int32, len(p.Ledger)), make([]int32, len(p.Ledger))
	for i := len(p.Ledger) - 1; i >= 0; i-- { // backwards, so that each list keeps the ledger's order
		r := p.Ledger[i]
		event, ok := log.find(r.Event, r.Stream, r.Version)
		if !ok {
			s.eventOf[i] = -1
			continue
		}
		s.eventOf[i] = event
		s.nextRow[i] = s.ledgerOf[event]
		s.ledgerOf[event] = int32(i)
	}
	// The same event id at two places of the log is one event to the ledger.
	for i, l := range log.events {
		if !log.first(int32(i)) {
			if first, ok := log.find(l.ID, l.Stream, l.Version); ok {
				s.ledgerOf[i] = s.ledgerOf[first]
			}
		}
	}
	for _, c := range p.Checkpoints {
		s.values = append(s.values, value{seq: c.Seq, epoch: c.Epoch, cursor: c.Cursor})
	}
	known := len(s.values)
	for _, o := range p.Observations {
		v := value{seq: o.Seq, cursor: o.Cursor, observation: o.ID}
		if !slices.ContainsFunc(s.values[:known], func(k value) bool { return k.seq == v.seq && sameCursor(k.cursor, v.cursor) }) {
			s.values = append(s.values, v)
		}
	}
	// Values under one counter have no order of their own: the one that claims less is taken to come first.
	slices.SortStableFunc(s.values, func(a, b value) int {
		if a.seq != b.seq || sameCursor(a.cursor, b.cursor) {
			return cmp.Compare(a.seq, b.seq)
		}
		more, less := log.lost(a.cursor, b.cursor) != nil, log.lost(b.cursor, a.cursor) != nil
		switch {
		case more && !less:
			return 1
		case less && !more:
			return -1
		}
		return 0
	})
	return s
}

func sameCursor(a, b eventstore.Cursor) bool {
	return slices.Equal(a.At, b.At) && slices.Equal(a.Open, b.Open)
}

// String names the projection, and its generation unless it is the first.
func (s *sigma) String() string {
	if s.Generation <= 1 {
		return s.Sigma.Projection
	}
	return fmt.Sprintf("%s (generation %d)", s.Sigma.Projection, s.Generation)
}

// ordered reports whether the reader's progress can be told from its checkpoint. Without positions, with effects
// and no checkpoint, or with a checkpoint that only observations have seen, it is judged after the drain only:
// where the checkpoint stood in the end is not known.
func (s *sigma) ordered() bool {
	return s.log.positioned() && !s.glimpsed() && (len(s.values) > 0 || len(s.Ledger) == 0 && len(s.Final) == 0)
}

// glimpsed reports whether observations saw a checkpoint that moved and whose own history the audit lacks.
func (s *sigma) glimpsed() bool {
	return len(s.Checkpoints) == 0 && slices.ContainsFunc(s.values, func(v value) bool { return !v.cursor.IsZero() })
}

// last returns the last durable value of the checkpoint; the zero value claims nothing.
func (s *sigma) last() value {
	if len(s.values) == 0 {
		return value{}
	}
	return s.values[len(s.values)-1]
}

// rows calls yield with each ledger row of an event until it returns false.
func (s *sigma) rows(event int32, yield func(i int32, r *history.LedgerRow) bool) {
	for i := s.ledgerOf[event]; i >= 0; i = s.nextRow[i] {
		if !yield(i, s.Ledger[i]) {
			return
		}
	}
}

// handles reports whether a ledger row handles the event: INVARIANTS 1. An applied row counts on the view row
// that the event belongs to; a filtered one only if the view does not take the event; a superseded one only where
// the strategy declares it, the version read was at or past the event's, and an applied row had brought it there; a
// parked one only where the projection has a parking policy, else nobody will ever replay it.
func (s *sigma) handles(r *history.LedgerRow, l *Logged) bool {
	home, takes := r.Row, false
	if s.view != nil {
		home, takes = s.view.key(l)
	}
	switch r.How {
	case history.Applied:
		return r.Row == home
	case history.Filtered:
		return !takes
	case history.Parked:
		return s.Info.Parking
	case history.Superseded:
		return s.Info.Superseding && r.Row == home && r.RowVersion >= l.Version && s.broughtThere(r)
	}
	return false
}

// broughtThere reports whether an applied row, not one of a later checkpoint, brought the view row to the version
// that a superseded row has read.
func (s *sigma) broughtThere(r *history.LedgerRow) bool {
	if s.superseding == nil {
		s.superseding = map[rowVersion]uint64{}
		for _, a := range s.Ledger {
			if a.How != history.Applied {
				continue
			}
			key := rowVersion{a.Row, a.RowVersion}
			if seq, known := s.superseding[key]; !known || a.Seq < seq {
				s.superseding[key] = a.Seq
			}
		}
	}
	seq, known := s.superseding[rowVersion{r.Row, r.RowVersion}]
	return known && (r.Seq == 0 || seq <= r.Seq)
}

// handled reports whether any ledger row handles the event.
func (s *sigma) handled(event int32) bool {
	ok := false
	s.rows(event, func(_ int32, r *history.LedgerRow) bool {
		ok = s.handles(r, s.log.events[event])
		return !ok
	})
	return ok
}

// parkedAt reports whether the event is parked and not replayed as of the checkpoint's counter seq. Perhaps tells
// that it was replayed by a transaction that moved no checkpoint, before that moment or after it; replay is the
// row's own counter then.
func (s *sigma) parkedAt(event int32, seq uint64) (parked, perhaps bool, replay uint64) {
	applied := false
	s.rows(event, func(_ int32, r *history.LedgerRow) bool {
		switch {
		case r.Seq > seq:
		case r.How == history.Parked:
			parked = s.Info.Parking
		case r.How == history.Applied && (r.Seq > 0 || seq == final):
			applied = true
		case r.How == history.Applied:
			perhaps, replay = true, r.RowOrder
		}
		return true
	})
	parked = parked && !applied
	return parked, parked && perhaps, replay
}

// replay reports whether an applied row is the replay of a parked event: no row of the event says that it was
// parked only later.
func (s *sigma) replay(event int32, applied *history.LedgerRow) bool {
	if !s.Info.Parking {
		return false
	}
	found := false
	s.rows(event, func(_ int32, r *history.LedgerRow) bool {
		found = r.How == history.Parked && (r.Seq == 0 || applied.Seq == 0 || r.Seq <= applied.Seq)
		return !found
	})
	return found
}

// rowOf returns the view row that an event belongs to. Only for known views.
func (s *sigma) rowOf(event int32) string {
	row, _ := s.view.key(s.log.events[event])
	return row
}

// firstCover returns for each event the index in values of the first one that covers it, −1 if none does.
//
// Checkpoints move forward, so each value is asked only about the events it newly reaches, and about those that
// an earlier one reached but left open: O(events + values + open gaps), times a logarithm.
func (s *sigma) firstCover() []int32 {
	first := make([]int32, len(s.log.events))
	for i := range first {
		first[i] = -1
	}
	reached := map[uint32]int32{} // per shard: the place in order that the furthest value has come to
	var open []int32
	for v, value := range s.values {
		rest := open[:0]
		for _, e := range open {
			if value.cursor.Covers(s.log.events[e].Position) {
				first[e] = int32(v)
			} else {
				rest = append(rest, e)
			}
		}
		open = rest
		for _, at := range value.cursor.At {
			sh, ok := s.log.shards[at.Shard]
			if !ok {
				continue
			}
			from, seen := reached[at.Shard]
			if !seen {
				from = sh.from
			}
			to := s.log.upTo(at)
			for k := from; k < to; k++ {
				e := s.log.order[k]
				if value.cursor.Covers(s.log.events[e].Position) {
					first[e] = int32(v)
				} else {
					open = append(open, e)
				}
			}
			reached[at.Shard] = max(from, to)
		}
	}
	return first
}

// feedsOf returns what the rules of this family share, computed once a run.
func feedsOf(run *Run) *feeds {
	run.shared.mu.Lock()
	defer run.shared.mu.Unlock()
	if run.shared.feeds == nil {
		run.shared.feeds = newFeeds(run)
	}
	return run.shared.feeds
}
