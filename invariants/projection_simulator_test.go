package invariants

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/verdict"
)

// feedSimulator plays two competing projectors over a log that grows meanwhile: positions are drawn before commits and
// commit in any order, some for ever not; pages are delivered again after kills, lost answers and lost races; effects
// are ahead of the checkpoint in at-least-once mode; events are parked and replayed; the view is rebuilt.
type feedSimulator struct {
	s   *stage
	rng *rand.Rand
	now int64

	coming []*draft // drawn, not committed
	landed []*appended
	heads  map[string]uint64 // versions of streams, drawn ones included
	drawn  uint64

	gapAware, oneUnit bool // the reader; effects and checkpoint in one transaction
	guarded           bool // at least once, with a guard by version
	parking           bool

	blind     bool // the bug: the reader does not look at what is in flight
	unchecked bool // the bug: the checkpoint moves from wherever it stands

	view    *projectorDouble // of the newest generation
	epoch   uint64
	workers []*simulatedWorker
}

// draft is an append between drawing its position and its commit.
type draft struct {
	stream  string
	version uint64
	pos     uint64
	from    int64
}

type simulatedWorker struct {
	process     uint32
	incarnation uint32
	name        string
	known       bool
	epoch, seq  uint64
	generation  uint64
	cursor      eventstore.Cursor
	page        []*appended // in hand
	next        eventstore.Cursor
	effected    bool // the effects of the page are durable, the checkpoint is not
}

func (m *feedSimulator) step() {
	m.now += 1 + m.rng.Int64N(20)
	switch n := m.rng.IntN(20); {
	case n < 4:
		m.draw()
	case n < 8:
		m.commit()
	case n == 8 && m.parking:
		m.replay()
	case n == 9 && m.rng.IntN(25) == 0:
		m.rebuild()
	case n == 10 && m.rng.IntN(4) == 0:
		m.view.observe(m.now, "at random")
	default:
		m.work(m.workers[m.rng.IntN(len(m.workers))])
	}
}

func (m *feedSimulator) draw() {
	stream := fmt.Sprintf("account-%d", m.rng.IntN(4))
	if m.rng.IntN(8) == 0 {
		stream = "auction-x"
	}
	m.drawn += 1 + m.rng.Uint64N(2)
	if slices.ContainsFunc(m.coming, func(d *draft) bool { return d.stream == stream }) {
		return // it lost the race: the position is burned
	}
	m.heads[stream]++
	m.coming = append(m.coming, &draft{stream, m.heads[stream], m.drawn, m.now})
}

func (m *feedSimulator) commit() {
	if len(m.coming) == 0 {
		return
	}
	i := m.rng.IntN(len(m.coming))
	d := m.coming[i]
	m.coming = slices.Delete(m.coming, i, i+1)
	amount := 1 + m.rng.Int64N(3) // small, so that mistakes could cancel out
	if m.rng.IntN(2) == 0 {
		amount = -amount
	}
	if d.stream == "auction-x" {
		amount = 100 + int64(d.version)
	}
	answered := m.now + m.rng.Int64N(30)
	if m.rng.IntN(6) == 0 {
		m.landed = append(m.landed, m.s.appendUnknown(d.stream, d.version, amount, at(d.pos), d.from, answered))
	} else {
		m.landed = append(m.landed, m.s.append(d.stream, d.version, amount, at(d.pos), d.from, answered))
	}
}

// read is the feed: a page after the cursor, and where to go on.
func (m *feedSimulator) read(after eventstore.Cursor) (page []*appended, next eventstore.Cursor) {
	slices.SortFunc(m.landed, func(a, b *appended) int { return a.Position.Compare(b.Position) })
	limit := 1 + m.rng.IntN(4)
	end := after
	for _, e := range m.landed {
		if after.Covers(e.Position) {
			continue
		}
		if !m.gapAware && !m.blind && slices.ContainsFunc(m.coming, func(d *draft) bool { return d.pos < e.Position.Minor }) {
			break
		}
		page = append(page, e)
		if end.IsZero() || end.At[0].Compare(e.Position) < 0 {
			end = eventstore.Through(e.Position)
		}
		if len(page) == limit {
			break
		}
	}
	if end.IsZero() {
		return nil, end
	}
	next = eventstore.Cursor{At: end.At}
	if m.blind {
		return page, next
	}
	for _, d := range m.coming {
		if at(d.pos).Compare(end.At[0]) < 0 {
			next.Open = append(next.Open, at(d.pos))
		}
	}
	for _, e := range m.landed { // passed, and neither claimed before nor in this page
		if e.Position.Compare(end.At[0]) <= 0 && !after.Covers(e.Position) && !slices.Contains(page, e) {
			next.Open = append(next.Open, e.Position)
		}
	}
	slices.SortFunc(next.Open, eventstore.Position.Compare)
	return page, next
}

func (m *feedSimulator) work(w *simulatedWorker) {
	p := m.view
	p.process = w.process
	switch {
	case m.rng.IntN(12) == 0:
		m.kill(w)
	case !w.known:
		if w.epoch == 0 || m.rng.IntN(6) == 0 { // claims
			m.epoch++
			w.epoch = m.epoch
		}
		w.known, w.seq, w.cursor, w.generation = true, p.seq, p.cursor, p.generation
	case w.page == nil:
		if w.generation != p.generation {
			w.known = false
			return
		}
		w.page, w.next = m.read(w.cursor)
		own := p.cursor
		p.cursor = w.cursor
		p.poll(m.now, w.next, len(w.page))
		p.cursor = own
		if len(w.page) == 0 {
			w.page, w.known = nil, false
		}
	default:
		m.apply(w)
	}
}

func (m *feedSimulator) apply(w *simulatedWorker) {
	p := m.view
	outcome, reason := eventstore.OK, eventstore.ReasonNone
	prev, next := w.cursor, w.next
	current := w.generation == p.generation && (m.unchecked || w.seq == p.seq && w.epoch == m.epoch)
	p.epoch = w.epoch
	if m.oneUnit || w.effected {
		if !current {
			outcome, reason = eventstore.Fail, eventstore.Superseded
		}
	}
	switch {
	case w.generation != p.generation:
		outcome, reason = eventstore.Fail, eventstore.Superseded
	case m.oneUnit && outcome == eventstore.OK:
		m.effects(w, p.seq+1)
		p.checkpoint(next)
	case !m.oneUnit && !w.effected:
		m.effects(w, 0)
		w.effected = true
		return // the checkpoint comes in a step of its own
	case !m.oneUnit && outcome == eventstore.OK:
		p.tx++
		p.checkpoint(next)
	}
	if outcome == eventstore.OK && m.rng.IntN(8) == 0 {
		outcome, reason = eventstore.Unknown, eventstore.LostReply
	}
	rec := &history.Apply{Process: w.process, Projection: p.name, Generation: w.generation, Invoke: ms(m.now), T: ms(m.now) + 500_000,
		Prev: prev, Next: next, Events: uint32(len(w.page)), Outcome: outcome, Reason: reason}
	if outcome == eventstore.OK {
		rec.Seq = p.seq
	}
	m.s.add(rec)
	w.seq, w.cursor = p.seq, next
	w.page, w.effected, w.known = nil, false, outcome == eventstore.OK && m.rng.IntN(3) > 0
}

// effects is one transaction over the page in hand; seq as in projectorDouble.effect.
func (m *feedSimulator) effects(w *simulatedWorker, seq uint64) {
	p := m.view
	p.tx++
	for _, e := range w.page {
		row := p.rows[e.Stream]
		switch {
		case e.Stream == "auction-x":
			p.note(seq, e, history.Filtered).Row = ""
		case m.guarded && row != nil && row.version >= e.Version:
			p.note(seq, e, history.Superseded).RowOrder = row.order
		case m.parking && m.rng.IntN(10) == 0:
			p.note(seq, e, history.Parked).Row = ""
		default:
			p.effect(seq, e)
		}
	}
}

// replay applies a parked event in a transaction that moves no checkpoint.
func (m *feedSimulator) replay() {
	p := m.view
	for _, r := range p.ledger {
		e := m.s.events[r.Event]
		if r.How != history.Parked || slices.ContainsFunc(p.ledger, func(x *history.LedgerRow) bool { return x.Event == r.Event && x.How == history.Applied }) {
			continue
		}
		p.tx++
		version := uint64(0)
		if row := p.rows[e.Stream]; row != nil {
			version = row.version
		}
		l := p.effect(0, e)
		l.RowVersion = max(version, e.Version)
		p.rows[e.Stream].version = l.RowVersion
		return
	}
}

func (m *feedSimulator) kill(w *simulatedWorker) {
	m.s.add(&history.ProcessEnd{ID: w.process, T: ms(m.now), How: history.Killed})
	if m.rng.IntN(2) == 0 {
		m.view.observe(m.now, "killed "+w.name)
	}
	m.start(w)
}

func (m *feedSimulator) start(w *simulatedWorker) {
	process := uint32(20)
	for _, o := range m.workers {
		process = max(process, o.process+1)
	}
	*w = simulatedWorker{process: process, incarnation: w.incarnation + 1, name: w.name}
	m.s.add(&history.Process{ID: w.process, Role: "projector", Name: w.name, Incarnation: w.incarnation, T: ms(m.now)})
}

func (m *feedSimulator) rebuild() {
	generation := m.view.generation + 1
	if m.rng.IntN(2) == 0 {
		m.view.final = []*history.ViewRow{} // the old view is dropped
	}
	m.view = &projectorDouble{s: m.s, name: "balances", generation: generation, rows: map[string]*doubleRow{}, tx: 1000 * generation, epoch: m.epoch, process: m.workers[0].process}
	m.view.poll(m.now, m.view.cursor, 0) // else nothing tells of the new generation
	m.s.projectors = append(m.s.projectors, m.view)
}

// simulateFeeds plays one seed, after alter.
func simulateFeeds(t *testing.T, seed uint64, alter func(*feedSimulator)) (*feedSimulator, *Run) {
	rng := rand.New(rand.NewPCG(seed, 3))
	s := newStage(t)
	s.info.Promises = []eventstore.Promise{eventstore.GlobalOrder, eventstore.CompleteFeed}
	m := &feedSimulator{s: s, rng: rng, now: 10, heads: map[string]uint64{}, gapAware: rng.IntN(2) == 0, oneUnit: rng.IntN(2) == 0}
	m.guarded = !m.oneUnit || rng.IntN(3) == 0
	m.parking = m.oneUnit && !m.guarded && rng.IntN(2) == 0
	alter(m)
	if m.guarded {
		s.atLeastOnce()
	}
	m.view = &projectorDouble{s: s, name: "balances", generation: 1, rows: map[string]*doubleRow{}, tx: 1000}
	s.projectors = append(s.projectors, m.view)
	for i := range 2 {
		w := &simulatedWorker{name: fmt.Sprintf("projector-balances-%d", i+1)}
		m.workers = append(m.workers, w)
		m.start(w)
	}
	for range 100 + rng.IntN(300) {
		m.step()
	}
	s.drained = rng.IntN(4) > 0
	if s.drained {
		for len(m.coming) > 0 {
			m.commit()
		}
		for k := 0; k < 5000 && !m.atEnd(); k++ {
			m.now += 10
			m.work(m.workers[rng.IntN(2)])
		}
		if !m.atEnd() {
			t.Fatalf("seed %d: the simulated projectors do not get to the end", seed)
		}
	}
	s.info.Projections[0].Parking = m.parking
	slices.SortStableFunc(m.view.ledger, func(a, b *history.LedgerRow) int { return int(a.RowOrder) - int(b.RowOrder) })
	return m, s.finish(m.now + 100)
}

func (m *feedSimulator) atEnd() bool {
	return !slices.ContainsFunc(m.landed, func(e *appended) bool { return !m.view.cursor.Covers(e.Position) })
}

func TestSimulatedCompetitionRedeliveryAndRebuildsAreGreen(t *testing.T) {
	found := map[verdict.Verdict]int{}
	for seed := range uint64(simulatedSeeds) {
		m, run := simulateFeeds(t, seed, func(*feedSimulator) {})
		for slug, r := range judged(run) {
			found[r.Verdict]++
			switch r.Verdict {
			case verdict.Violated:
				t.Errorf("seed %d (gap-aware %v, one unit %v, guarded %v, parking %v): %s is violated: %s", seed, m.gapAware, m.oneUnit, m.guarded, m.parking, slug, r.Violations[0].Summary)
			case verdict.Error, verdict.NotPromised:
				t.Errorf("seed %d: %s is %s: %s", seed, slug, r.Verdict, r.Reason)
			case verdict.Inconclusive:
				// A generation that has effects and no checkpoint yet may keep it elsewhere.
				if slug != progress && m.s.drained {
					t.Errorf("seed %d: %s is inconclusive: %s", seed, slug, r.Reason)
				}
			case verdict.Holds, verdict.NotExercised:
			}
		}
		if problems := projectionBookkeeping(run); len(problems) > 0 {
			t.Errorf("seed %d: bookkeeping: %v", seed, problems)
		}
		if t.Failed() {
			return
		}
	}
	if found[verdict.Holds] < 5*simulatedSeeds {
		t.Errorf("verdicts: %v; too little was exercised", found)
	}
}

const simulatedSeeds = 200

func TestEverySimulatedSkipAndDuplicateIsCaught(t *testing.T) {
	for name, alter := range map[string]func(*feedSimulator){
		"a reader that does not look at what is in flight": func(m *feedSimulator) { m.blind = true },
		"a checkpoint without compare-and-set":             func(m *feedSimulator) { m.unchecked = true },
	} {
		t.Run(name, func(t *testing.T) {
			wrong := 0
			for seed := range uint64(simulatedSeeds) {
				m, run := simulateFeeds(t, seed, func(m *feedSimulator) {
					m.oneUnit, m.guarded, m.parking = true, false, false
					alter(m)
				})
				applied := map[eventstore.EventID]int{}
				for _, r := range m.view.ledger {
					if r.How == history.Applied {
						applied[r.Event]++
					}
				}
				skipped, doubled := false, false
				for _, e := range m.landed {
					if e.Stream != "auction-x" && m.view.cursor.Covers(e.Position) {
						skipped = skipped || applied[e.ID] == 0
						doubled = doubled || applied[e.ID] > 1
					}
				}
				results := judged(run)
				if skipped || doubled {
					wrong++
				}
				if skipped && results[noSkip].Verdict != verdict.Violated {
					t.Errorf("seed %d: an event was skipped; no-skipped-checkpoint is %s: %s", seed, results[noSkip].Verdict, results[noSkip].Reason)
				}
				if doubled && results[noDup].Verdict != verdict.Violated {
					t.Errorf("seed %d: an event was applied twice; no-duplicate-projection is %s: %s", seed, results[noDup].Verdict, results[noDup].Reason)
				}
			}
			if wrong < simulatedSeeds/4 {
				t.Errorf("only %d runs went wrong", wrong)
			}
		})
	}
}
