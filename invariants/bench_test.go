package invariants

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/eventproof/eventproof/domain/account"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/invariants/oracle"
	"github.com/eventproof/eventproof/verdict"
	"golang.org/x/sys/unix"
)

// hotStream yields the history of one contended account: in every round a few writers have loaded the same
// version, one of them wins, the others conflict and load again. Nothing of it is kept.
type hotStream struct {
	process  uint32
	stream   string
	attempts int // still to make
	rng      *rand.Rand
	queue    []history.Record
	state    account.State
	log      []*history.LoggedEvent
	sum      history.RangeHash
	pending  []*contender
	now      int64
	ids      uint64
	calls    int
	over     bool
}

type contender struct {
	call      uint64
	session   uint32
	command   account.Command
	id        string
	conflicts uint32
}

func newHotStream(attempts int) *hotStream { return newStreamOf(1, "account-1", attempts) }

func newStreamOf(process uint32, stream string, attempts int) *hotStream {
	h := &hotStream{process: process, stream: stream, attempts: attempts, rng: rand.New(rand.NewPCG(uint64(process), 2)), now: 1000}
	h.queue = append(h.queue, &history.Trial{Info: history.TrialInfo{
		Format: history.Format, Workload: oracle.Bank, MaxDecisions: 5, Trial: "hot",
		Promises: []eventstore.Promise{eventstore.OptimisticConcurrency, eventstore.StrongRead, eventstore.AtomicBatch, eventstore.FreshRefusals},
	}}, &history.Process{ID: process, Role: "writer", Name: fmt.Sprintf("writer-%d", process), Incarnation: 1})
	for i := range 3 {
		h.pending = append(h.pending, &contender{session: uint32(i + 1)})
	}
	return h
}

func (h *hotStream) Warnings() []string { return nil }

func (h *hotStream) Next() (history.Record, error) {
	for len(h.queue) == 0 {
		if h.over {
			return nil, io.EOF
		}
		h.round()
	}
	r := h.queue[0]
	h.queue = h.queue[1:]
	return r, nil
}

func (h *hotStream) id() uint64 { h.ids++; return history.MakeID(h.process, h.ids) }

func (h *hotStream) emit(r history.Record) { h.queue = append(h.queue, r) }

func (h *hotStream) round() {
	if h.attempts <= 0 {
		n := uint64(len(h.log))
		for _, l := range h.log {
			h.emit(l)
		}
		h.emit(&history.Fence{T: h.now + 1, Fenced: true})
		h.emit(&history.Audit{T: h.now + 2, Events: n})
		h.emit(&history.End{T: h.now + 3})
		h.over, h.log = true, nil
		return
	}
	h.now += 1000
	basis := h.state
	winner := h.rng.IntN(len(h.pending))
	seen := len(h.log)
	h.turn(h.pending[winner], basis, true)
	for i, c := range h.pending {
		if i != winner && len(h.log) > seen { // a winner that was refused leaves nothing to lose against
			h.turn(c, basis, false)
		}
	}
	for _, l := range h.log[seen:] {
		h.sum = h.sum.Add(history.HashEvent(l.Version, l.ID, eventstore.PayloadHash(l.Type, l.Data)))
	}
}

// turn is one decision of one contender in this round.
func (h *hotStream) turn(c *contender, basis account.State, wins bool) {
	if c.call == 0 {
		h.calls++
		c.call, c.id, c.conflicts = h.id(), fmt.Sprintf("c-%d-%d", h.process, h.calls), 0
		c.command = account.Command{Name: account.CommandWithdraw, Account: strings.TrimPrefix(h.stream, "account-"), Amount: 1 + h.rng.Int64N(90)}
		switch {
		case basis.Version == 0:
			c.command.Name, c.command.Owner = account.CommandOpen, "ada"
		case h.rng.IntN(2) == 0 || basis.Balance < 100:
			c.command.Name = account.CommandDeposit
		}
		h.emit(&history.CallStart{Call: c.call, Process: h.process, Session: c.session, CommandID: c.id, Stream: h.stream, Name: c.command.Name,
			Body: c.command.Body(), Intended: h.now, Started: h.now})
	}
	read := h.id()
	q := &history.Read{Read: read, Call: c.call, Process: h.process, Session: c.session, Stream: h.stream, From: 1, Invoke: h.now - 700,
		T: h.now + 100, Outcome: eventstore.OK, Strong: true, Pages: 1, Last: basis.Version, Count: basis.Version, Range: h.sum}
	if basis.Version > 0 {
		q.First = 1
	}
	h.emit(q)
	now := time.UnixMilli(h.now)
	d := eventstore.Decision{Basis: basis.Version, Hash: eventstore.HashBytes(basis.Encode()), Read: read, Now: h.now}
	events, err := account.Decide(basis, c.command, now)
	if err != nil {
		no := err.(*account.Refusal) //nolint:errorlint // Decide documents the type
		h.emit(&history.CallEnd{Call: c.call, T: h.now + 150, Result: history.ResultRefused, Code: no.Code, Have: no.Have, Want: no.Want, Decision: d})
		c.call = 0
		return
	}
	w := &history.Write{Write: h.id(), Call: c.call, Stream: h.stream, Expected: basis.Version, Request: c.id, Decision: d}
	var ids []eventstore.EventID
	for _, e := range events {
		var id eventstore.EventID
		binary.BigEndian.PutUint64(id[:], h.rng.Uint64())
		binary.BigEndian.PutUint64(id[8:], h.id())
		data := e.Data()
		w.Events = append(w.Events, history.WriteEvent{ID: id, Type: e.Type, Payload: eventstore.PayloadHash(e.Type, data)})
		ids = append(ids, id)
		if wins {
			h.log = append(h.log, &history.LoggedEvent{Stream: h.stream, Version: e.Version, ID: id, Type: e.Type, Data: data, Meta: eventstore.Metadata{
				CommandID: c.id, BasisVersion: d.Basis, BasisHash: d.Hash, SchemaVersion: 1,
			}, Position: eventstore.Position{Minor: e.Version}})
		}
	}
	h.emit(w)
	attempt := h.id()
	h.attempts--
	h.emit(&history.Invoke{Attempt: attempt, Write: w.Write, T: h.now + 200 + int64(c.session)})
	r := &history.Return{Attempt: attempt, T: h.now + 500 + int64(c.session), Session: "writer-1/1"}
	if wins {
		r.Outcome, r.First, r.Last, r.Events = eventstore.OK, events[0].Version, events[len(events)-1].Version, ids
		r.Positions = []eventstore.Position{{Minor: r.First}}
		h.emit(r)
		h.state, _ = account.Rehydrate(basis, events)
		h.emit(&history.CallEnd{Call: c.call, T: h.now + 600, Result: history.ResultOK, Version: r.Last, Events: ids,
			StateHash: eventstore.HashBytes(h.state.Encode())})
		c.call = 0
		return
	}
	r.Outcome, r.Reason, r.Head, r.HeadKnown = eventstore.Fail, eventstore.VersionConflict, basis.Version+1, true
	h.emit(r)
	if c.conflicts++; c.conflicts == 5 {
		h.emit(&history.CallEnd{Call: c.call, T: h.now + 600, Result: history.ResultExhausted, Code: "CONFLICT_EXHAUSTED", Conflicts: 5})
		c.call = 0
	}
}

// manyStreams yields one history of many contended accounts, a few records of each at a time.
type manyStreams struct {
	streams []*hotStream
	next    int
	events  uint64
	tail    []history.Record
	began   bool
}

func newManyStreams(attempts, streams int) *manyStreams {
	m := &manyStreams{}
	for i := range streams {
		m.streams = append(m.streams, newStreamOf(uint32(i+1), fmt.Sprintf("account-%d", i+1), attempts/streams))
	}
	return m
}

func (m *manyStreams) Warnings() []string { return nil }

func (m *manyStreams) Close() error { return nil }

func (m *manyStreams) Next() (history.Record, error) {
	for len(m.streams) > 0 {
		m.next %= len(m.streams)
		rec, err := m.streams[m.next].Next()
		if err != nil {
			m.streams = slices.Delete(m.streams, m.next, m.next+1)
			if len(m.streams) == 0 {
				const end = 1 << 50
				m.tail = []history.Record{&history.Fence{T: end, Fenced: true}, &history.Audit{T: end + 1, Events: m.events}, &history.End{T: end + 2}}
			}
			continue
		}
		m.next++
		switch rec.(type) {
		case *history.Trial:
			if m.began {
				continue
			}
			m.began = true
		case *history.Fence, *history.Audit, *history.End:
			continue
		case *history.LoggedEvent:
			m.events++
		}
		return rec, nil
	}
	if len(m.tail) == 0 {
		return nil, io.EOF
	}
	rec := m.tail[0]
	m.tail = m.tail[1:]
	return rec, nil
}

func TestTheGeneratedHotStreamIsCorrect(t *testing.T) {
	run, err := Load(newHotStream(3000))
	if err != nil {
		t.Fatal(err)
	}
	got := expect(t, run, nil, nil)
	for _, slug := range []string{"optimistic-concurrency", "valid-decision", "truthful-answers", "read-is-prefix"} {
		if got[slug].Verdict != verdict.Holds {
			t.Errorf("%s is %s", slug, got[slug].Verdict)
		}
	}
}

// cpuSeconds is the processor time of this process: on a machine that others use too, it tells more than the wall.
func cpuSeconds(b *testing.B) float64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// BenchmarkHotStream judges 1,000,000 attempts on one stream. Budget: 3 s and 700 MB after decoding.
func BenchmarkHotStream(b *testing.B) {
	const attempts = 1_000_000
	for range b.N {
		b.StopTimer()
		run, err := Load(newHotStream(attempts))
		if err != nil {
			b.Fatal(err)
		}
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		used := cpuSeconds(b)
		b.StartTimer()
		results := Check(run, Options{})
		b.StopTimer()
		b.ReportMetric(cpuSeconds(b)-used, "cpu-s")
		runtime.GC()
		runtime.ReadMemStats(&after)
		for _, r := range results {
			if r.Verdict == verdict.Violated || r.Verdict == verdict.Error {
				b.Fatalf("%s: %s %v", r.Invariant, r.Reason, r.Violations)
			}
		}
		b.ReportMetric(float64(before.HeapAlloc)/1e6, "MB-loaded")
		b.ReportMetric(float64(after.HeapAlloc)/1e6, "MB-checked")
		b.ReportMetric(attempts*float64(b.N)/b.Elapsed().Seconds(), "attempts/s")
		runtime.KeepAlive(run)
	}
}
