package invariants

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/invariants/oracle"
	"github.com/eventproof/eventproof/verdict"
)

// final is the counter of the final state: everything happened at or before it.
const final = uint64(math.MaxUint64)

// modeAtLeastOnce is the mode of a projection whose effects may be ahead of its checkpoint.
const modeAtLeastOnce = "at-least-once"

// checkFoldEquals is INV-FOLDEQ · projection-equals-fold. Violated unless, after quiesce, V = fold of L under the
// filter, minus parked events. A projection that was not drained is judged at its last checkpoint like
// atomic-checkpoint; what is outstanding belongs to progress alone. Ledger = L but the view differs: violated
// here (a lost update).
//
// A checkpoint that covers all of L is what drained means for a reader with an order; an event that landed
// between the drain and the fence is outstanding. A reader without an order is judged only if the runner saw it
// drained, over the events that it handled or that were acknowledged.
//
// An older generation that still has rows is judged at its own last checkpoint, row by row: it may be the one that
// serves while another is built, or be on its way out, so rows that are gone prove nothing.
func checkFoldEquals(run *Run, res *verdict.Result) {
	j := judgeFeeds(run, res)
	for _, s := range j.feeds.sigmas {
		if !s.latest && (len(s.Final) == 0 || !s.ordered()) || !j.hasFold(s) {
			continue
		}
		want := &claims{s: s, seq: final}
		switch {
		case s.ordered():
			want.cursor, want.unplaced = s.last().cursor, j.drained()
		case j.drained():
			want.handledOrAcked = true
		default:
			j.open("%s has no checkpoint that can be compared with positions and was not drained", s)
			continue
		}
		j.judged++
		unfolded := func(row string, why error) {
			j.open("view row %s of %s can't be judged, its events can't be folded: %v", row, s, why)
		}
		counted := func(d folded) {
			countEvidence(res, rowsCompared, 1)
			countEvidence(res, effectsFolded, int64(d.events))
		}
		s.compare(s.Final, want, comparison{present: !s.latest, compared: counted, unfolded: unfolded, differs: func(d difference) {
			violate(res, func() *witness {
				return newWitness(run, d.stream, "view row %s of %s is not the fold of the log: %s%s", d.row, s, d, s.ledgerSays(d.stream, want)).
					viewRow(s, run.lastStamp(), d).cause().
					differing(s, d)
			})
		}})
	}
	j.conclude()
}

// claims says which events a view must show.
type claims struct {
	s              *sigma
	cursor         eventstore.Cursor
	seq            uint64         // the moment, for parked events
	unplaced       bool           // events without a position too
	handledOrAcked bool           // instead of the cursor: what was handled or acknowledged
	replayed       map[int32]bool // parked events that are taken to have been replayed by then
}

// parked reports whether the event is set aside at that moment.
func (c *claims) parked(event int32) bool {
	parked, perhaps, _ := c.s.parkedAt(event, c.seq)
	return parked && (!perhaps || !c.replayed[event])
}

// perhapsReplayed lists the parked events of a stream of which it is not known whether they were replayed by then,
// in the order in which they were replayed.
func (c *claims) perhapsReplayed(stream string) []int32 {
	type replay struct {
		event int32
		order uint64
	}
	var found []replay
	at := c.s.log.spans[stream]
	for event := at.from; event < at.to; event++ {
		if _, perhaps, order := c.s.parkedAt(event, c.seq); perhaps {
			found = append(found, replay{event, order})
		}
	}
	slices.SortStableFunc(found, func(a, b replay) int { return cmp.Compare(a.order, b.order) })
	out := make([]int32, len(found))
	for i, r := range found {
		out[i] = r.event
	}
	return out
}

func (c *claims) holds(event int32) bool {
	l := c.s.log.events[event]
	switch {
	case c.handledOrAcked:
		if !c.s.handled(event) && (l.Write == nil || !l.Write.Acked) {
			return false
		}
	case l.Position.IsZero():
		if !c.unplaced {
			return false
		}
	case !c.cursor.Covers(l.Position):
		return false
	}
	return !c.parked(event)
}

// folded is what a view row must be.
type folded struct {
	state   []byte // nil: no row
	version uint64
	events  int
	bad     error // an event could not be folded; it was left out
}

func (f *folded) matches(v *history.ViewRow) bool {
	if v == nil {
		return f.state == nil
	}
	return f.state != nil && (v.Version == 0 || v.Version == f.version) && sameState(f.state, v.State)
}

// sameState compares two states of a view row. They are canonical JSON; a store that reformats JSON has not
// changed the row.
func sameState(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, ok := canonical(a)
	if !ok {
		return false
	}
	y, ok := canonical(b)
	return ok && bytes.Equal(x, y)
}

func canonical(state []byte) ([]byte, bool) {
	d := json.NewDecoder(bytes.NewReader(state))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil, false
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, false
	}
	out, err := json.Marshal(v) // keys ascending
	return out, err == nil
}

// fold returns the row that the wanted events of a stream fold to.
func (s *sigma) fold(stream string, wanted func(event int32) bool) folded {
	row := s.view.newRow()
	var f folded
	at := s.log.spans[stream]
	for event := at.from; event < at.to; event++ {
		if !s.passes[event] || !wanted(event) {
			continue
		}
		f.events++
		if err := row.Apply(s.log.events[event].LoggedEvent); err != nil && f.bad == nil {
			f.bad = err
		}
	}
	f.state, f.version = row.Encode(), row.Version()
	return f
}

// prefix reports whether a view row is the fold of a prefix of its stream that holds everything wanted.
func (s *sigma) prefix(stream string, v *history.ViewRow, want *claims) bool {
	at := s.log.spans[stream]
	needed := at.from // the end of the shortest prefix that will do
	for event := at.from; event < at.to; event++ {
		if s.passes[event] && want.holds(event) {
			needed = event + 1
		}
	}
	row := s.view.newRow()
	if needed == at.from && v == nil {
		return true
	}
	for event := at.from; event < at.to; event++ {
		if s.passes[event] && !want.parked(event) {
			// What can't be folded leaves the row as it was, in the oracle and in a projector alike.
			if row.Apply(s.log.events[event].LoggedEvent) != nil {
				continue
			}
		}
		if event+1 < needed {
			continue
		}
		f := folded{state: row.Encode(), version: row.Version()}
		if f.matches(v) {
			return true
		}
	}
	return false
}

// difference is a view row that is not what it must be.
type difference struct {
	row, stream string
	is          *history.ViewRow // nil: there is no such row
	want        folded
}

// String says both sides.
func (d difference) String() string {
	is := "there is no row"
	if d.is != nil {
		is = "it is " + rowText(d.is.State, d.is.Version)
	}
	want := "there should be none"
	if d.want.state != nil {
		want = fmt.Sprintf("the fold of what it must show (events: %d) is %s", d.want.events, rowText(d.want.state, d.want.version))
	}
	return is + ", " + want
}

func rowText(state []byte, version uint64) string {
	const most = 200
	if len(state) > most {
		state = append(slices.Clone(state[:most]), "…"...)
	}
	return fmt.Sprintf("%s at version %d", bytes.ToValidUTF8(state, []byte("�")), version)
}

// comparison is what is done with the rows of a view; differs is not nil.
type comparison struct {
	only     func(stream string) bool // nil = every row
	present  bool                     // rows that are not there are no difference
	compared func(folded)
	unfolded func(row string, why error) // a row that can't be judged; not nil
	differs  func(difference)
}

// compare holds a view against what its rows must be. Built-in views have one row a stream, named like it.
// Rows that can't be folded and differ say nothing. A row without a version is one of a view that keeps none.
func (s *sigma) compare(rows []*history.ViewRow, want *claims, do comparison) {
	byRow := make(map[string]*history.ViewRow, len(rows))
	versioned := slices.ContainsFunc(rows, func(v *history.ViewRow) bool { return v.Version > 0 })
	for _, v := range rows {
		if byRow[v.Row] != nil {
			do.differs(difference{row: v.Row, stream: v.Row, is: v})
			continue
		}
		byRow[v.Row] = v
	}
	known := map[string]bool{}
	for _, stream := range s.log.streams {
		from := s.log.spans[stream].from
		if !s.passes[from] {
			continue
		}
		row := s.rowOf(from)
		known[row] = true
		if do.only != nil && !do.only(stream) {
			continue
		}
		f, v := s.fold(stream, want.holds), byRow[row]
		if do.present && v == nil {
			continue
		}
		if f.bad != nil {
			do.unfolded(row, f.bad)
			continue
		}
		if do.compared != nil && (f.state != nil || v != nil) {
			do.compared(f)
		}
		if (v == nil || v.Version > 0 || !versioned) && s.shows(stream, v, want, f) {
			continue
		}
		do.differs(difference{row: row, stream: stream, is: v, want: f})
	}
	for _, v := range rows {
		if !known[v.Row] && (do.only == nil || do.only(v.Row)) {
			known[v.Row] = true
			do.differs(difference{row: v.Row, stream: v.Row, is: v})
		}
	}
}

// shows reports whether a view row is what is wanted, f, or what that would be had more parked events been replayed by
// then.
func (s *sigma) shows(stream string, v *history.ViewRow, want *claims, f folded) bool {
	ok := func(f folded, want *claims) bool {
		return f.matches(v) || s.Info.Mode == modeAtLeastOnce && s.prefix(stream, v, want)
	}
	if ok(f, want) {
		return true
	}
	more := *want
	more.replayed = map[int32]bool{}
	for _, event := range want.perhapsReplayed(stream) {
		more.replayed[event] = true
		if ok(s.fold(stream, more.holds), &more) {
			return true
		}
	}
	return false
}

// ledgerSays tells what the ledger has to say about a row that differs: it points at the cause.
func (s *sigma) ledgerSays(stream string, want *claims) string {
	if !s.Info.Ledger {
		return ""
	}
	at := s.log.spans[stream]
	missing, excused, twice, events := 0, 0, 0, 0
	for event := at.from; event < at.to; event++ {
		if !s.passes[event] || !want.holds(event) {
			continue
		}
		events++
		applied := 0
		s.rows(event, func(_ int32, r *history.LedgerRow) bool {
			if r.How == history.Applied {
				applied++
			}
			return true
		})
		switch {
		case applied > 1:
			twice++
		case applied == 0 && !s.handled(event) && s.ledgerOf[event] >= 0:
			excused++
		case applied == 0 && !s.handled(event):
			missing++
		}
	}
	switch {
	case events == 0:
		return ""
	case excused > 0:
		return fmt.Sprintf("; events that the ledger excuses (filtered, superseded, parked) although the view takes them: %d, missing in the ledger: %d, applied more than once: %d",
			excused, missing, twice)
	case missing > 0 && twice > 0:
		return fmt.Sprintf("; events missing in the ledger: %d, applied more than once: %d", missing, twice)
	case missing > 0:
		return fmt.Sprintf("; events missing in the ledger: %d", missing)
	case twice > 0:
		return fmt.Sprintf("; events that the ledger has applied more than once: %d", twice)
	}
	return "; the ledger has each of them handled once, so an update of the row was lost or wrong"
}

// bypassed reports whether the final view proves that an event without a ledger row was applied: the row equals
// the fold with the event, and neither the fold of what the ledger names nor what its effects add up to, each as
// often as it was applied. Then the instrumentation was bypassed, and the missing ledger row proves nothing about
// the projector.
func (s *sigma) bypassed(event int32) bool {
	if s.unseen == nil {
		s.unseen = map[int32]bool{}
		if s.latest && s.view != nil {
			for _, v := range s.Final {
				s.findBypassed(v)
			}
		}
	}
	return s.unseen[event]
}

func (s *sigma) findBypassed(v *history.ViewRow) {
	at, ok := s.log.spans[v.Row]
	if !ok {
		return
	}
	shown := func(event int32) bool {
		parked, _, _ := s.parkedAt(event, final)
		return (v.Version == 0 || s.log.events[event].Version <= v.Version) && !parked
	}
	var missing []int32
	for event := at.from; event < at.to; event++ {
		if s.passes[event] && shown(event) && s.ledgerOf[event] < 0 {
			missing = append(missing, event)
		}
	}
	if len(missing) == 0 {
		return
	}
	all := s.fold(v.Row, shown)
	named := s.fold(v.Row, func(event int32) bool { return shown(event) && s.ledgerOf[event] >= 0 })
	added := s.replayed(v.Row)
	if all.matches(v) && !named.matches(v) && !added.matches(v) {
		for _, event := range missing {
			s.unseen[event] = true
		}
	}
}

// replayed is what the effects in the ledger add up to on a view row, one after another.
func (s *sigma) replayed(row string) folded {
	var f folded
	r := s.view.newRow()
	for _, g := range s.rowGroups(func(l *history.LedgerRow) bool { return l.How == history.Applied && l.Row == row }) {
		for _, i := range g {
			if event := s.eventOf[i]; event >= 0 {
				f.events++
				if err := r.Apply(s.log.events[event].LoggedEvent); err != nil && f.bad == nil {
					f.bad = err
				}
			}
		}
	}
	f.state, f.version = r.Encode(), r.Version()
	return f
}

// projectionBookkeeping is complete-history for projections: a view that shows an effect without a ledger row,
// or lacks ledger rows while it equals the fold of the log, means that the instrumentation was bypassed. So does
// a checkpoint that was seen with another value than its own history has under that counter.
func projectionBookkeeping(run *Run) []string {
	var problems []string
	for _, s := range feedsOf(run).sigmas {
		if !s.Info.Ledger {
			continue
		}
		if s.latest {
			problems = append(problems, s.unrecordedEffects()...)
		}
		for _, o := range s.Observations {
			for _, c := range s.Checkpoints {
				if c.Seq == o.Seq && !sameCursor(c.Cursor, o.Cursor) {
					problems = append(problems, fmt.Sprintf("observation %d shows checkpoint %d of %s at %s, its history has %s",
						o.ID, o.Seq, s, o.Cursor, c.Cursor))
				}
			}
		}
	}
	return problems
}

func (s *sigma) unrecordedEffects() []string {
	var problems []string
	named := map[string]bool{}
	for _, r := range s.Ledger {
		named[r.Row] = true
	}
	for _, v := range s.Final {
		var versions []uint64
		if at, ok := s.log.spans[v.Row]; ok {
			for event := at.from; event < at.to; event++ {
				if s.bypassed(event) {
					versions = append(versions, s.log.events[event].Version)
				}
			}
		}
		switch {
		case len(versions) > 0:
			problems = append(problems, fmt.Sprintf("view row %s of %s shows version %d, which no ledger row records (%d such)",
				v.Row, s, versions[0], len(versions)))
		case !named[v.Row]:
			problems = append(problems, fmt.Sprintf("view row %s of %s exists, but no ledger row names it", v.Row, s))
		}
	}
	return problems
}

// view is the oracle's fold of a view.
type view struct{ name string }

// viewOf returns nil for a view that the oracle can't fold.
func viewOf(name string) *view {
	if _, err := oracle.NewRow(name); err != nil {
		return nil
	}
	return &view{name}
}

func (v *view) key(l *Logged) (string, bool) { return oracle.RowKey(v.name, l.LoggedEvent) }

func (v *view) newRow() *oracle.Row {
	row, err := oracle.NewRow(v.name)
	if err != nil {
		panic(err) // viewOf asked before
	}
	return row
}
