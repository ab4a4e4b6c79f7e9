package invariants

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/eventproof/eventproof/domain/account"
	"github.com/eventproof/eventproof/domain/auction"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/invariants/oracle"
	"github.com/eventproof/eventproof/verdict"
)

// hist builds hand-made histories of the write side. Times are microseconds. Everything is recorded as a correct
// application and store would; a test spoils what it is about. What is appended to the log lands at the end of
// the stream, or where the test says.
type hist struct {
	t       testing.TB
	info    history.TrialInfo
	records []history.Record
	ids     uint64
	logs    map[string][]*history.LoggedEvent
	fills   []func() // what can be filled in only when the log is known
	cut     bool     // no audit
	edit    []func([]history.Record) []history.Record
	heads   map[string]uint64 // what the store keeps of where streams end
}

func us(t int64) int64 { return t * 1000 }

func newHist(t testing.TB, workload string) *hist {
	h := &hist{t: t, logs: map[string][]*history.LoggedEvent{}, info: history.TrialInfo{
		Format: history.Format, Trial: "t1", Workload: workload, MaxDecisions: 5,
		Promises: []eventstore.Promise{
			eventstore.OptimisticConcurrency, eventstore.AtomicBatch, eventstore.IdempotentAppend, eventstore.StrongRead,
			eventstore.FreshRefusals, eventstore.Durable,
		},
	}}
	h.process(1)
	return h
}

func (h *hist) add(r history.Record) { h.records = append(h.records, r) }

func (h *hist) process(id uint32) {
	h.add(&history.Process{ID: id, Role: "writer", Name: fmt.Sprintf("writer-%d", id), Incarnation: 1})
}

func (h *hist) kill(process uint32, t int64) {
	h.add(&history.ProcessEnd{ID: process, T: us(t), How: history.Killed})
}

func (h *hist) fault(id, kind, on string) {
	h.add(&history.Fault{ID: id, FaultKind: kind, On: on, T: us(1)})
}

func (h *hist) bite(fault, session string, form history.BiteForm, landed history.Landed, t int64) *history.Bite {
	b := &history.Bite{Fault: fault, Session: session, Form: form, Landed: landed, T: us(t)}
	h.add(b)
	return b
}

func (h *hist) next() uint64 { h.ids++; return h.ids }

func (h *hist) eventID() eventstore.EventID {
	var id eventstore.EventID
	binary.BigEndian.PutUint64(id[:], h.next()<<20)
	return id
}

// state folds the first k versions of a stream.
func (h *hist) state(stream string, k uint64) oracle.State {
	h.t.Helper()
	s, err := oracle.New(h.info.Workload)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, l := range h.logs[stream] {
		if l.Version <= k {
			_ = s.Apply(*l)
		}
	}
	return s
}

func (h *hist) head(stream string) uint64 {
	var v uint64
	for _, l := range h.logs[stream] {
		v = max(v, l.Version)
	}
	return v
}

// callOf is one run of the command loop.
type callOf struct {
	h     *hist
	start *history.CallStart
	end   *history.CallEnd
	look  *history.Read
	basis uint64
	kept  uint64 // version of the snapshot
}

// call begins a command of its own.
func (h *hist) call(session uint32, t int64, name, stream string, body []byte) *callOf {
	return h.callAs(fmt.Sprintf("c%d", h.next()), 1, session, t, name, stream, body)
}

func (h *hist) callAs(command string, process, session uint32, t int64, name, stream string, body []byte) *callOf {
	c := &callOf{h: h, start: &history.CallStart{
		Call: history.MakeID(process, h.next()), Process: process, Session: session, CommandID: command, Stream: stream,
		Name: name, Body: body, Intended: us(t), Started: us(t),
	}}
	h.add(c.start)
	return c
}

func bankBody(stream string, amount int64) []byte {
	a, _ := account.FromStream(stream)
	return account.Command{Account: a, Amount: amount}.Body()
}

func (h *hist) withdraw(session uint32, t int64, stream string, amount int64) *callOf {
	return h.call(session, t, account.CommandWithdraw, stream, bankBody(stream, amount))
}

func (h *hist) deposit(session uint32, t int64, stream string, amount int64) *callOf {
	return h.call(session, t, account.CommandDeposit, stream, bankBody(stream, amount))
}

func bidBody(stream, id, bidder string, amount int64) []byte {
	a, _ := auction.FromStream(stream)
	return auction.Command{Auction: a, BidID: id, Bidder: bidder, Amount: amount}.Body()
}

// bid begins a bid; its command is named by id and body, as the load does it.
func (h *hist) bid(session uint32, t int64, stream, id, bidder string, amount int64) *callOf {
	return h.callAs(fmt.Sprintf("%s-%s-%d", id, bidder, amount), 1, session, t, auction.CommandBid, stream, bidBody(stream, id, bidder, amount))
}

func (h *hist) closing(session uint32, t int64, stream string) *callOf {
	return h.call(session, t, auction.CommandClose, stream, bidBody(stream, "", "", 0))
}

// load reads the whole log as it is now.
func (c *callOf) load(from, to int64) *callOf { return c.loadUpTo(c.h.head(c.start.Stream), from, to) }

// loadUpTo reads versions 1 to k.
func (c *callOf) loadUpTo(k uint64, from, to int64) *callOf {
	c.look = c.read(1, 0, k, from, to)
	c.basis = k
	return c
}

// loadTail reads what follows a snapshot.
func (c *callOf) loadTail(snapshot uint64, from, to int64) *callOf {
	k := c.h.head(c.start.Stream)
	c.look = c.read(snapshot+1, 0, k, from, to)
	c.look.Snapshot, c.kept = snapshot, snapshot
	c.basis = k
	return c
}

// read records a read of [first, last] that showed versions first to k of the final log.
func (c *callOf) read(first, last, k uint64, from, to int64) *history.Read {
	h := c.h
	q := &history.Read{
		Read: history.MakeID(c.start.Process, h.next()), Call: c.start.Call, Process: c.start.Process, Session: c.start.Session,
		Stream: c.start.Stream, From: first, To: last, Invoke: us(from), T: us(to), Outcome: eventstore.OK, Strong: true, Pages: 1,
	}
	h.add(q)
	h.fills = append(h.fills, func() { h.show(q, k) })
	return q
}

// show fills in what a read returned: the versions of its range up to k.
func (h *hist) show(q *history.Read, k uint64) {
	q.First, q.Last, q.Count, q.Range = 0, 0, 0, history.RangeHash{}
	for _, l := range h.logs[q.Stream] {
		if l.Version < q.From || l.Version > k {
			continue
		}
		if q.Count == 0 {
			q.First = l.Version
		}
		q.Last = l.Version
		q.Count++
		q.Range = q.Range.Add(history.HashEvent(l.Version, l.ID, eventstore.PayloadHash(l.Type, l.Data)))
	}
}

// limit makes a read show less than it was built with.
func (h *hist) limit(q *history.Read, k uint64) {
	h.fills = append(h.fills, func() { h.show(q, k) })
}

func (c *callOf) decision() eventstore.Decision {
	d := eventstore.Decision{Basis: c.basis, Hash: c.h.state(c.start.Stream, c.basis).Hash(), Now: 1_000, Snapshot: c.kept}
	if c.look != nil {
		d.Read = c.look.Read
	}
	return d
}

func (c *callOf) decide() oracle.Verdict {
	c.h.t.Helper()
	v, err := c.h.state(c.start.Stream, c.basis).Decide(c.start.Name, c.start.Body, 1_000)
	if err != nil {
		c.h.t.Fatal(err)
	}
	return v
}

// writeOf is one decision.
type writeOf struct {
	c      *callOf
	rec    *history.Write
	events []*history.LoggedEvent
	tries  []*history.Return
}

// write decides on what was loaded.
func (c *callOf) write() *writeOf {
	c.h.t.Helper()
	v := c.decide()
	if len(v.Events) == 0 {
		c.h.t.Fatalf("%s decides no event: %+v", c.start.Name, v)
	}
	return c.writeEvents(v.Events)
}

func (c *callOf) writeEvents(events []oracle.Event) *writeOf {
	h := c.h
	d := c.decision()
	w := &writeOf{c: c, rec: &history.Write{
		Write: history.MakeID(c.start.Process, h.next()), Call: c.start.Call, Stream: c.start.Stream, Expected: c.basis,
		Request: c.start.CommandID, Decision: d,
	}}
	for _, e := range events {
		l := &history.LoggedEvent{Stream: c.start.Stream, ID: h.eventID(), Type: e.Type, Data: e.Data, Meta: eventstore.Metadata{
			CommandID: c.start.CommandID, BasisVersion: d.Basis, BasisHash: d.Hash, SchemaVersion: 1,
		}}
		w.events = append(w.events, l)
		w.rec.Events = append(w.rec.Events, history.WriteEvent{ID: l.ID, Type: e.Type, Payload: eventstore.PayloadHash(e.Type, e.Data)})
	}
	h.add(w.rec)
	return w
}

// land puts the write's events at the end of the log.
func (w *writeOf) land() *writeOf { return w.landAt(w.c.h.head(w.rec.Stream) + 1) }

func (w *writeOf) landAt(v uint64) *writeOf {
	for i, l := range w.events {
		l.Version = v + uint64(i)
		w.c.h.logs[w.rec.Stream] = append(w.c.h.logs[w.rec.Stream], l)
	}
	return w
}

// try records an attempt; to 0 = it never returned.
func (w *writeOf) try(from, to int64, outcome eventstore.Outcome, reason eventstore.Reason) *history.Return {
	h := w.c.h
	id := history.MakeID(w.c.start.Process, h.next())
	h.add(&history.Invoke{Attempt: id, Write: w.rec.Write, T: us(from)})
	r := &history.Return{Attempt: id, T: us(to), Outcome: outcome, Reason: reason, Session: fmt.Sprintf("s/%d", h.next())}
	if to != 0 {
		h.add(r)
	}
	w.tries = append(w.tries, r)
	return r
}

// ok is a try that was acknowledged at the place where the write stands.
func (w *writeOf) ok(from, to int64) *writeOf {
	r := w.try(from, to, eventstore.OK, eventstore.ReasonNone)
	r.First = w.events[0].Version
	r.Last = w.events[len(w.events)-1].Version
	for _, l := range w.events {
		r.Events = append(r.Events, l.ID)
	}
	return w
}

// lost is a try whose reply was lost.
func (w *writeOf) lost(from, to int64) *writeOf {
	w.try(from, to, eventstore.Unknown, eventstore.LostReply)
	return w
}

func (w *writeOf) fail(from, to int64, reason eventstore.Reason) *writeOf {
	w.try(from, to, eventstore.Fail, reason)
	return w
}

func (w *writeOf) conflict(from, to int64) *writeOf {
	return w.fail(from, to, eventstore.VersionConflict)
}

// evidence about the write, from a read of its slot.
func (w *writeOf) evidence(form history.EvidenceForm, outcome eventstore.Outcome, from, to int64) *history.Evidence {
	q := w.c.read(w.rec.Expected+1, 0, w.c.h.head(w.rec.Stream), from, to)
	e := &history.Evidence{Write: w.rec.Write, Call: w.c.start.Call, Read: q.Read, T: us(to), Form: form, Outcome: outcome}
	w.c.h.add(e)
	return e
}

func (c *callOf) finish(t int64, result history.Result) *history.CallEnd {
	c.end = &history.CallEnd{Call: c.start.Call, T: us(t), Result: result}
	c.h.add(c.end)
	return c.end
}

// answer is an ok with the write's events and the state at their version.
func (c *callOf) answer(t int64, w *writeOf) *history.CallEnd {
	e := c.finish(t, history.ResultOK)
	last := w.events[len(w.events)-1]
	e.Version = last.Version
	s := c.h.state(c.start.Stream, last.Version)
	e.StateHash = s.Hash()
	for _, l := range w.events {
		e.Events = append(e.Events, l.ID)
	}
	if c.start.Name == auction.CommandBid {
		f, _ := oracle.ParseCommand(c.start.Body)
		if b, ok := s.Bid(string(f.BidID)); ok {
			e.Want, e.At = b.Amount, b.Millis
		}
	}
	return e
}

// refuse answers what deciding on the basis gives.
func (c *callOf) refuse(t int64) *history.CallEnd {
	c.h.t.Helper()
	v := c.decide()
	if v.Code == "" {
		c.h.t.Fatalf("%s is not refused: %+v", c.start.Name, v)
	}
	e := c.finish(t, history.ResultRefused)
	e.Code, e.Have, e.Want, e.Decision = v.Code, v.Have, v.Want, c.decision()
	return e
}

// done is a whole call that succeeds: load, decide, append, answer.
func (c *callOf) done(t int64) *writeOf {
	c.h.t.Helper()
	w := c.load(t, t+1).write().land().ok(t+2, t+5)
	c.answer(t+6, w)
	return w
}

// open opens an account or an auction in the first ten microseconds.
func (h *hist) open(stream string, amount int64) *writeOf {
	h.t.Helper()
	if h.info.Workload == oracle.Auction {
		return h.call(99, 1, auction.CommandCreate, stream, bidBody(stream, "", "", amount)).done(2)
	}
	a, _ := account.FromStream(stream)
	body := account.Command{Account: a, Owner: "ada", Amount: amount}.Body()
	return h.call(99, 1, account.CommandOpen, stream, body).done(2)
}

// run indexes what was built.
func (h *hist) run() *Run {
	h.t.Helper()
	run, err := NewRun(h.all())
	if err != nil {
		h.t.Fatal(err)
	}
	return run
}

// fill fills in what depends on the log.
func (h *hist) fill() {
	for _, fill := range h.fills {
		fill()
	}
	h.fills = nil
}

func (h *hist) all() []history.Record {
	h.fill()
	out := append([]history.Record{&history.Trial{Info: h.info}}, h.records...)
	if !h.cut {
		n := uint64(0)
		for _, log := range h.logs {
			for _, l := range log {
				out = append(out, l)
				n++
			}
		}
		for stream, version := range h.heads {
			out = append(out, &history.HeadRow{Stream: stream, Version: version})
		}
		out = append(out, &history.Fence{T: us(100_000), Fenced: true},
			&history.Audit{T: us(100_001), Events: n, Views: uint64(len(h.heads))}, &history.End{T: us(100_002)})
	}
	out = append(out[:len(out):len(out)], h.ends(out)...)
	for _, e := range h.edit {
		out = e(out)
	}
	return out
}

// ends closes the processes that the test has not ended: one that has answered everything ends by itself, with its
// counts; every other one is killed after everything else.
func (h *hist) ends(records []history.Record) []history.Record {
	var out []history.Record
	ends := map[uint32]*history.ProcessEnd{}
	open := map[uint32]int{}
	end := func(id uint32) *history.ProcessEnd {
		if ends[id] == nil {
			ends[id] = &history.ProcessEnd{ID: id, T: us(99_999)}
		}
		return ends[id]
	}
	for _, r := range records {
		switch r := r.(type) {
		case *history.Process:
			out = append(out, end(r.ID))
		case *history.CallStart:
			end(r.Process).Calls++
			open[r.Process]++
		case *history.CallEnd:
			open[history.ProcessOf(r.Call)]--
		case *history.Write:
			end(history.ProcessOf(r.Write)).Writes++
		case *history.Invoke:
			end(history.ProcessOf(r.Attempt)).Attempts++
			open[history.ProcessOf(r.Attempt)]++
		case *history.Return:
			open[history.ProcessOf(r.Attempt)]--
		case *history.Read:
			end(r.Process).Reads++
		}
	}
	for _, r := range records {
		if e, ok := r.(*history.ProcessEnd); ok {
			out = slices.DeleteFunc(out, func(r history.Record) bool { return r.(*history.ProcessEnd).ID == e.ID })
		}
	}
	for _, r := range out {
		if e := r.(*history.ProcessEnd); open[e.ID] != 0 {
			*e = history.ProcessEnd{ID: e.ID, T: e.T, How: history.Killed}
		}
	}
	return out
}

// verdicts runs every rule.
func verdicts(run *Run) map[string]verdict.Result {
	out := map[string]verdict.Result{}
	for _, r := range Check(run, Options{}) {
		out[r.Invariant] = r
	}
	return out
}

// expect asserts that the rules of must are violated, those of may are at most, and no other one; and that no
// rule failed.
func expect(t testing.TB, run *Run, must, may []string) map[string]verdict.Result {
	t.Helper()
	got := verdicts(run)
	for _, slug := range slices.Sorted(mapKeys(got)) {
		r := got[slug]
		switch r.Verdict {
		case verdict.Violated:
			if !slices.Contains(must, slug) && !slices.Contains(may, slug) {
				t.Errorf("%s fires: %s", slug, r.Violations[0].Summary)
			}
			for _, v := range r.Violations {
				if len(v.Records) > maxEvidence || v.Summary == "" || strings.Contains(v.Summary, "%!") {
					t.Errorf("%s: bad witness %+v", slug, v)
				}
				for _, e := range v.Records {
					if e.What == "" || strings.Contains(e.What, "%!") {
						t.Errorf("%s: bad record %+v", slug, e)
					}
				}
			}
		case verdict.Error:
			t.Errorf("%s failed: %s", slug, r.Reason)
		case verdict.NotExercised, verdict.Holds, verdict.Inconclusive, verdict.NotPromised:
		}
	}
	for _, slug := range must {
		if got[slug].Verdict != verdict.Violated {
			t.Errorf("%s is %s (%s), want violated", slug, got[slug].Verdict, got[slug].Reason)
		}
	}
	return got
}

func mapKeys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}
