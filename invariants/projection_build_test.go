package invariants

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/eventproof/eventproof/domain/account"
	"github.com/eventproof/eventproof/domain/auction"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/verdict"
)

// stage builds hand-made histories of feeds and projections. Times are milliseconds.
type stage struct {
	t          *testing.T
	info       history.TrialInfo
	records    []history.Record
	projectors []*projectorDouble
	n          uint64
	drained    bool
	fenceAt    int64
	events     map[eventstore.EventID]*appended
}

// appended is an event of the log.
type appended struct {
	history.LoggedEvent
}

const (
	writerID    = 1
	projectorID = 10
)

func newStage(t *testing.T) *stage {
	return &stage{
		t: t, drained: true, events: map[eventstore.EventID]*appended{},
		info: history.TrialInfo{
			Format: "eventproof.history/v1", Trial: "t1", Workload: "bank", Start: 0,
			Promises: []eventstore.Promise{
				eventstore.GlobalOrder, eventstore.RealTimeOrder, eventstore.CompleteFeed, eventstore.AtomicProjection,
			},
			Projections: []history.ProjectionInfo{{
				Name: "balances", View: "balances", Mode: "transactional", Ledger: true, Feed: "advisory-lock",
			}},
		},
		records: []history.Record{&history.Process{ID: writerID, Role: "writer", Name: "writer-1", Incarnation: 1}},
	}
}

func ms(t int64) int64 { return t * 1_000_000 }

func (s *stage) add(r ...history.Record) { s.records = append(s.records, r...) }

// at is a plain position.
func at(n uint64) eventstore.Position { return eventstore.Position{Minor: n} }

// through claims everything up to position n.
func through(n uint64) eventstore.Cursor { return eventstore.Through(at(n)) }

// append records a write of one event and its place in the log. The first event of a stream opens it; later
// ones deposit the amount, or withdraw it when negative; on an auction they are bids.
func (s *stage) append(stream string, version uint64, amount int64, pos eventstore.Position, from, to int64) *appended {
	return s.write(stream, version, amount, pos, from, to, eventstore.OK)
}

// appendUnknown is a write that was never acknowledged and is in the log.
func (s *stage) appendUnknown(stream string, version uint64, amount int64, pos eventstore.Position, from, to int64) *appended {
	return s.write(stream, version, amount, pos, from, to, eventstore.Unknown)
}

func (s *stage) write(stream string, version uint64, amount int64, pos eventstore.Position, from, to int64, outcome eventstore.Outcome) *appended {
	s.n++
	var id eventstore.EventID
	binary.BigEndian.PutUint64(id[:8], s.n<<32)
	typ, data := payload(stream, version, amount, s.n)
	e := &appended{history.LoggedEvent{
		Stream: stream, Version: version, ID: id, Type: typ, Data: data, Position: pos, Transaction: s.n,
		Meta: eventstore.Metadata{CommandID: fmt.Sprintf("c-%d", s.n), BasisVersion: version - 1},
	}}
	s.events[id] = e
	key := history.MakeID(writerID, s.n)
	ret := &history.Return{Attempt: key, T: ms(to), Outcome: outcome}
	if outcome == eventstore.OK {
		ret.First, ret.Last, ret.Events = version, version, []eventstore.EventID{id}
	} else {
		ret.Reason = eventstore.LostReply
	}
	s.add(
		&history.CallStart{Call: key, Process: writerID, Session: 1, CommandID: e.Meta.CommandID, Stream: stream, Name: "deposit", Intended: ms(from), Started: ms(from)},
		&history.Write{Write: key, Call: key, Stream: stream, Expected: version - 1, Events: []history.WriteEvent{{ID: id, Type: typ, Payload: eventstore.PayloadHash(typ, data)}}},
		&history.Invoke{Attempt: key, Write: key, T: ms(from)},
		ret,
		&e.LoggedEvent,
	)
	return e
}

// call records a call that ended without an append.
func (s *stage) call(stream string, from, to int64, result history.Result) {
	s.n++
	key := history.MakeID(writerID, s.n)
	s.add(
		&history.CallStart{Call: key, Process: writerID, Session: 1, CommandID: fmt.Sprintf("c-%d", s.n), Stream: stream, Name: "withdraw", Intended: ms(from), Started: ms(from)},
		&history.CallEnd{Call: key, T: ms(to), Result: result},
	)
}

func payload(stream string, version uint64, amount int64, n uint64) (string, []byte) {
	const when = "2026-01-01T00:00:00.000Z"
	if id, ok := account.FromStream(stream); ok {
		e := account.Event{Type: account.Deposited, Account: id, Version: version, At: when, Amount: amount}
		switch {
		case version == 1:
			e.Type, e.Owner, e.Amount = account.Opened, "ada", 0
		case amount < 0:
			e.Type, e.Amount = account.Withdrawn, -amount
		}
		return e.Type, e.Data()
	}
	id, _ := auction.FromStream(stream)
	if version == 1 {
		e := auction.Event{Type: auction.Created, Auction: id, Version: version, At: when, OpeningPrice: 100}
		return e.Type, e.Data()
	}
	e := auction.Event{Type: auction.BidAccepted, Auction: id, Version: version, At: when, BidID: fmt.Sprintf("b-%d", n), Bidder: "bob", Amount: amount}
	return e.Type, e.Data()
}

// doubleRow is the projector's own row; it is folded here without the oracle.
type doubleRow struct {
	balance        int64
	owner          string
	version, order uint64
}

func (r doubleRow) state() []byte {
	return fmt.Appendf(nil, `{"balance":%d,"owner":%q,"status":"open"}`, r.balance, r.owner)
}

// projectorDouble plays a projector of balances.
type projectorDouble struct {
	s          *stage
	name       string
	generation uint64
	process    uint32
	started    uint32
	epoch      uint64
	seq        uint64
	cursor     eventstore.Cursor
	rows       map[string]*doubleRow
	tx         uint64
	ledger     []*history.LedgerRow
	values     []*history.CheckpointRow
	final      []*history.ViewRow // set by finish, unless set before
}

func (s *stage) projector() *projectorDouble { return s.projectorOf("balances", 1) }

func (s *stage) projectorOf(name string, generation uint64) *projectorDouble {
	p := &projectorDouble{s: s, name: name, generation: generation, rows: map[string]*doubleRow{}, tx: 1000}
	p.process = projectorID + uint32(len(s.projectors))*100
	s.projectors = append(s.projectors, p)
	p.start(0)
	return p
}

func (p *projectorDouble) start(t int64) {
	p.started++
	p.process++
	p.epoch++
	p.s.add(&history.Process{ID: p.process, Role: "projector", Name: "projector-" + p.name, Incarnation: p.started, T: ms(t)})
}

// kill ends the process; the next start is another incarnation.
func (p *projectorDouble) kill(t int64) {
	p.s.add(&history.ProcessEnd{ID: p.process, T: ms(t), How: history.Killed})
}

// poll records an answer of the feed after the projector's cursor.
func (p *projectorDouble) poll(t int64, next eventstore.Cursor, events int) {
	p.s.add(&history.Poll{Process: p.process, Projection: p.name, Generation: p.generation, Invoke: ms(t), T: ms(t) + 500_000,
		After: p.cursor, Next: next, Events: uint32(events), Outcome: eventstore.OK})
}

// effect applies an event in the transaction at hand; seq is the counter that the transaction moves to, or 0.
func (p *projectorDouble) effect(seq uint64, e *appended) *history.LedgerRow {
	r := p.rows[e.Stream]
	if r == nil {
		r = &doubleRow{}
		p.rows[e.Stream] = r
	}
	switch e.Type {
	case account.Opened:
		r.owner = "ada"
	default:
		var amount int64
		if _, err := fmt.Sscanf(string(e.Data), `{"account":`+fmt.Sprintf("%q", e.Stream[len("account-"):])+`,"amount":%d`, &amount); err != nil {
			p.s.t.Fatalf("amount of %s: %v", e.Data, err)
		}
		if e.Type == account.Withdrawn {
			amount = -amount
		}
		r.balance += amount
	}
	r.version = e.Version
	r.order++
	row := &history.LedgerRow{Projection: p.name, Generation: p.generation, Event: e.ID, Stream: e.Stream, Version: e.Version,
		Row: e.Stream, How: history.Applied, RowVersion: r.version, RowOrder: r.order, Seq: seq, Transaction: p.tx, Epoch: p.epoch}
	p.ledger = append(p.ledger, row)
	return row
}

// note writes a ledger row without an effect.
func (p *projectorDouble) note(seq uint64, e *appended, how history.How) *history.LedgerRow {
	row := &history.LedgerRow{Projection: p.name, Generation: p.generation, Event: e.ID, Stream: e.Stream, Version: e.Version,
		Row: e.Stream, How: how, Seq: seq, Transaction: p.tx, Epoch: p.epoch}
	if r := p.rows[e.Stream]; r != nil {
		row.RowVersion = r.version
	}
	p.ledger = append(p.ledger, row)
	return row
}

// checkpoint makes the next value of the checkpoint durable.
func (p *projectorDouble) checkpoint(c eventstore.Cursor) {
	p.seq++
	p.cursor = c
	p.values = append(p.values, &history.CheckpointRow{Projection: p.name, Generation: p.generation, Seq: p.seq, Epoch: p.epoch, Cursor: c, Transaction: p.tx})
}

// applied records the journal of an application that ended ok at t.
func (p *projectorDouble) applied(t int64, prev, next eventstore.Cursor, events int) {
	p.s.add(&history.Apply{Process: p.process, Projection: p.name, Generation: p.generation, Invoke: ms(t), T: ms(t) + 800_000,
		Prev: prev, Next: next, Events: uint32(events), Seq: p.seq, Outcome: eventstore.OK})
}

// round is one round of a correct same-transaction projector: poll, effects and checkpoint in one transaction.
func (p *projectorDouble) round(t int64, next eventstore.Cursor, events ...*appended) {
	p.poll(t, next, len(events))
	if len(events) == 0 {
		return
	}
	p.tx++
	prev := p.cursor
	for _, e := range events {
		p.effect(p.seq+1, e)
	}
	p.checkpoint(next)
	p.applied(t+1, prev, next, len(events))
}

// observe reads checkpoint and view in one atomic read.
func (p *projectorDouble) observe(t int64, why string) *history.Observation {
	p.s.n++
	o := &history.Observation{ID: uint32(p.s.n), T: ms(t), Projection: p.name, Generation: p.generation, Seq: p.seq, Cursor: p.cursor, Rows: uint32(len(p.rows)), Why: why}
	p.s.add(o)
	for _, v := range p.view() {
		v.Observation = o.ID
		p.s.add(v)
	}
	return o
}

func (p *projectorDouble) view() []*history.ViewRow {
	var out []*history.ViewRow
	for _, key := range slices.Sorted(maps.Keys(p.rows)) {
		r := p.rows[key]
		out = append(out, &history.ViewRow{Projection: p.name, Generation: p.generation, Row: key, Version: r.version, State: r.state()})
	}
	return out
}

// finish adds fence and audit and loads the history.
func (s *stage) finish(t int64) *Run {
	s.t.Helper()
	s.fenceAt = ms(t)
	records := append([]history.Record{&history.Trial{Info: s.info}}, s.records...)
	audit := &history.Audit{T: ms(t + 2)}
	for _, r := range s.records {
		if _, ok := r.(*history.LoggedEvent); ok {
			audit.Events++
		}
	}
	records = append(records, &history.Fence{T: ms(t), Fenced: true, Proof: "test", Drained: s.drained})
	for _, p := range s.projectors {
		if p.final == nil {
			p.final = p.view()
		}
		for _, r := range p.ledger {
			records = append(records, r)
		}
		for _, c := range p.values {
			records = append(records, c)
		}
		for _, v := range p.final {
			records = append(records, v)
		}
		audit.Ledger += uint64(len(p.ledger))
		audit.Checkpoints += uint64(len(p.values))
		audit.Views += uint64(len(p.final))
	}
	records = append(records, audit, &history.End{T: ms(t + 3)})
	run, err := NewRun(records)
	if err != nil {
		s.t.Fatalf("load: %v", err)
	}
	return run
}

// judged judges a run by the rules of this family.
func judged(run *Run) map[string]verdict.Result {
	out := map[string]verdict.Result{}
	rules := projectionRules()
	if run.Promised(eventstore.FencedOwnership) {
		rules = append(rules, ownerRules()...)
	}
	for _, r := range rules {
		out[r.Slug] = judge(run, r)
	}
	return out
}

// wantViolated asserts that exactly these rules are violated and none failed.
func wantViolated(t *testing.T, run *Run, slugs ...string) map[string]verdict.Result {
	t.Helper()
	return wantBetween(t, run, slugs, nil)
}

// wantBetween asserts that the must rules are violated, the may rules perhaps, and no other.
func wantBetween(t *testing.T, run *Run, must, may []string) map[string]verdict.Result {
	t.Helper()
	results := judged(run)
	for _, slug := range must {
		if results[slug].Verdict != verdict.Violated {
			t.Errorf("%s is %s (%s), want violated", slug, results[slug].Verdict, results[slug].Reason)
		}
	}
	for slug, r := range results {
		switch r.Verdict {
		case verdict.Violated:
			if !slices.Contains(must, slug) && !slices.Contains(may, slug) {
				t.Errorf("%s is violated: %s", slug, r.Violations[0].Summary)
			}
			for _, v := range r.Violations {
				if v.Summary == "" || len(v.Records) == 0 {
					t.Errorf("%s has a violation without a story: %+v", slug, v)
				}
			}
		case verdict.Error:
			t.Errorf("%s is error: %s", slug, r.Reason)
		case verdict.NotExercised, verdict.Holds, verdict.Inconclusive, verdict.NotPromised:
		}
	}
	return results
}

// inOrder returns the events of the log by position.
func (s *stage) inOrder() []*appended {
	out := slices.Collect(maps.Values(s.events))
	slices.SortFunc(out, func(a, b *appended) int { return a.Position.Compare(b.Position) })
	return out
}

// withoutPoll returns the records without the poll that was invoked then.
func (s *stage) withoutPoll(invoke int64) []history.Record {
	return slices.DeleteFunc(s.records, func(r history.Record) bool {
		p, ok := r.(*history.Poll)
		return ok && p.Invoke == invoke
	})
}

// join makes one write of the writes of two events.
func (s *stage) join(a, b *appended) {
	var first *history.Write
	kept := s.records[:0]
	var dropped uint64
	for _, r := range s.records {
		switch r := r.(type) {
		case *history.Write:
			if r.Events[0].ID == a.ID {
				first = r
			}
			if r.Events[0].ID == b.ID {
				first.Events = append(first.Events, r.Events...)
				dropped = r.Write
				continue
			}
		case *history.Invoke:
			if r.Write == dropped && dropped != 0 {
				continue
			}
		case *history.Return:
			if r.Attempt == dropped && dropped != 0 {
				continue
			}
			if first != nil && r.Attempt == first.Write {
				r.Events = []eventstore.EventID{a.ID, b.ID}
			}
		}
		kept = append(kept, r)
	}
	s.records = kept
}
