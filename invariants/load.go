package invariants

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
)

// ErrNoTrial says that what was read does not begin to describe a trial.
var ErrNoTrial = errors.New("invariants: the history has no trial record")

// Source yields the records of one history; *history.Reader is one. Next returns io.EOF at the end.
type Source interface {
	Next() (history.Record, error)
	Warnings() []string
}

// Load reads a history to its end and indexes it. Records may come in any order; what does not fit together
// becomes a problem of the run, never a panic. The error is that of the source, or ErrNoTrial.
func Load(src Source) (*Run, error) {
	b := newBuilder()
	warnings, err := readAll(src, b.add)
	if err != nil {
		return nil, err
	}
	b.run.Warnings = warnings
	return b.finish()
}

// readAll hands over every record of a source and returns its warnings.
func readAll(src Source, take func(history.Record)) ([]string, error) {
	if r, ok := src.(*history.Reader); ok {
		r.ReuseRecords()
	}
	for {
		rec, err := src.Next()
		if errors.Is(err, io.EOF) {
			return slices.Clone(src.Warnings()), nil
		}
		if err != nil {
			return nil, err
		}
		take(rec)
	}
}

// NewRun indexes records that are in memory. The error is ErrNoTrial.
func NewRun(records []history.Record) (*Run, error) {
	b := newBuilder()
	for _, rec := range records {
		b.add(rec)
	}
	return b.finish()
}

// maxProblems bounds what a hostile file can make us keep.
const maxProblems = 100

// builder collects records in whatever order they come and links them at the end.
type builder struct {
	run      *Run
	trial    bool
	calls    byID[*Call]
	allCalls []*Call
	commands map[string]*Command
	byEvent  map[eventstore.EventID]*Write
	sessions map[string]uint32
	ends     map[uint64]*history.CallEnd // ends whose call is not known yet
	writes   byID[*Write]
	reads    byID[*Read]
	attempts []attemptDraft
	attempt  byID[int32] // index into attempts, plus one
	evidence []*Evidence
	owners   []origin          // of run.Writes, as long as these stand as they came
	alias    map[uint64]uint64 // ids of writes that were recorded again by another call, and the ids of the first
	shared   []sharedWrite
	endReads map[*CallEnd]uint64 // the reads that refusals name
	allReads []*Read
	readers  []uint64 // call ids of allReads, as long as these stand as they came; 0 = none
	faults   map[string]*Fault
	obs      map[uint32]*Observation
	views    []*history.ViewRow
	counts   struct{ events, ledger, checkpoints, views uint64 }
	apart    bool // it holds only a part of the history: what was counted for the whole is not compared
	dropped  int
	strings  map[string]string
	bodies   map[string][]byte

	callSlab  slab[Call]
	endSlab   slab[CallEnd]
	writeSlab slab[Write]
	readSlab  slab[Read]
	logSlab   slab[Logged]
	ansSlab   slab[Answer]
	eventSlab []WriteEvent
}

// origin holds the ids that a write's record names.
type origin struct{ write, call, read uint64 }

// sharedWrite is a write that a call sent again as an earlier call had recorded it.
type sharedWrite struct {
	call  *Call
	write *Write
}

// attemptDraft is an attempt before its write is known.
type attemptDraft struct {
	Attempt
	id, write        uint64
	invoked, answers bool
}

func newBuilder() *builder {
	b := &builder{
		run: &Run{
			Processes: map[uint32]*Process{}, Streams: map[string]*Stream{}, Log: map[eventstore.EventID]*Logged{},
			Disputed: map[eventstore.EventID][]*Write{}, Projections: map[Sigma]*Projection{},
		},
		ends: map[uint64]*history.CallEnd{}, endReads: map[*CallEnd]uint64{},
		commands: map[string]*Command{}, byEvent: map[eventstore.EventID]*Write{}, sessions: map[string]uint32{},
		faults: map[string]*Fault{}, obs: map[uint32]*Observation{}, strings: map[string]string{}, bodies: map[string][]byte{},
	}
	b.session("") // 0: not told
	return b
}

// slab hands out pointers into chunks: far fewer objects for the garbage collector to follow.
type slab[T any] struct{ free []T }

func (s *slab[T]) new() *T {
	if len(s.free) == 0 {
		s.free = make([]T, 1024)
	}
	p := &s.free[0]
	s.free = s.free[1:]
	return p
}

// problem notes what does not fit together. The first in the order of the alphabet are kept, so that it does not
// depend on the order of records which ones these are.
func (b *builder) problem(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	i, said := slices.BinarySearch(b.run.Problems, text)
	if said {
		return
	}
	if len(b.run.Problems) == maxProblems {
		b.dropped++
		if i == maxProblems {
			return
		}
		b.run.Problems = b.run.Problems[:maxProblems-1]
	}
	b.run.Problems = slices.Insert(b.run.Problems, i, text)
}

// intern keeps one copy of a string that many records repeat.
func (b *builder) intern(s string) string {
	if s == "" {
		return ""
	}
	if t, ok := b.strings[s]; ok {
		return t
	}
	b.strings[s] = s
	return s
}

// body does the same for the bodies of commands, which nobody may change.
func (b *builder) body(data []byte) []byte {
	if known, ok := b.bodies[string(data)]; ok {
		return known
	}
	b.bodies[string(data)] = data
	return data
}

func (b *builder) process(id uint32) *Process {
	p := b.run.Processes[id]
	if p == nil {
		p = &Process{}
		p.ID = id
		b.run.Processes[id] = p
	}
	return p
}

func (b *builder) stream(name string) *Stream {
	s := b.run.Streams[name]
	if s == nil {
		s = &Stream{Name: b.intern(name)}
		b.run.Streams[s.Name] = s
	}
	return s
}

func (b *builder) command(id string) *Command {
	c := b.commands[id]
	if c == nil {
		c = &Command{ID: id}
		b.commands[id] = c
	}
	return c
}

func (b *builder) fault(id string) *Fault {
	f := b.faults[id]
	if f == nil {
		f = &Fault{}
		f.ID = id
		b.faults[id] = f
		b.run.Faults = append(b.run.Faults, f)
	}
	return f
}

func (b *builder) projection(name string, generation uint64) *Projection {
	key := Sigma{name, generation}
	p := b.run.Projections[key]
	if p == nil {
		p = &Projection{Sigma: key}
		b.run.Projections[key] = p
	}
	return p
}

// keep copies a record that the source may use again.
func keep[T any](rec *T) *T {
	c := *rec
	return &c
}

// add takes one record; it keeps nothing of it but strings and slices.
func (b *builder) add(rec history.Record) {
	r := b.run
	switch rec := rec.(type) {
	case *history.Trial:
		if b.trial {
			b.problem("two trial records in one history")
			return
		}
		b.trial, r.Info = true, rec.Info
	case *history.Process:
		p := b.process(rec.ID)
		if p.Name != "" || p.T != 0 {
			b.problem("process %d is recorded twice (%s, %s)", rec.ID, p.Name, rec.Name)
			return
		}
		p.Process = *rec
	case *history.ProcessEnd:
		p := b.process(rec.ID)
		if p.End != nil {
			// The role's own end and the runner's notice of it may both be there: the violent one counts.
			if violent := rec.How != history.Exited; violent && (p.End.How == history.Exited || rec.T < p.End.T) {
				p.End = keep(rec)
			}
			return
		}
		p.End = keep(rec)
	case *history.CallStart:
		b.addCall(rec)
	case *history.CallEnd:
		b.addCallEnd(rec)
	case *history.Write:
		b.addWrite(rec)
	case *history.Invoke:
		a := b.draft(rec.Attempt)
		if a.invoked {
			b.problem("attempt %s is invoked twice", idText(rec.Attempt))
			return
		}
		a.invoked, a.write, a.Invoke = true, rec.Write, rec.T
		b.process(history.ProcessOf(rec.Attempt)).Seen.Attempts++
	case *history.Return:
		b.addReturn(rec)
	case *history.Evidence:
		b.evidence = append(b.evidence, &Evidence{Evidence: *rec})
	case *history.Read:
		b.addRead(rec)
	case *history.SnapshotWrite:
		s := b.stream(rec.Stream)
		s.Snapshots = append(s.Snapshots, keep(rec))
	case *history.SnapshotResult:
		// A put that failed is no event of the run: snapshots are best effort.
	case *history.Poll:
		r.Polls = append(r.Polls, keep(rec))
	case *history.Apply:
		r.Applies = append(r.Applies, keep(rec))
	case *history.Fault:
		f := b.fault(rec.ID)
		if f.T != 0 || f.FaultKind != "" {
			b.problem("fault %s begins twice", rec.ID)
			return
		}
		f.Fault = *rec
	case *history.FaultEnd:
		f := b.fault(rec.ID)
		if f.End != nil {
			b.problem("fault %s ends twice", rec.ID)
			return
		}
		f.End = keep(rec)
	case *history.Bite:
		f := b.fault(rec.Fault)
		f.Bites = append(f.Bites, keep(rec))
	case *history.Drop:
		r.Drops = append(r.Drops, *rec)
	case *history.Phase:
		r.Phases = append(r.Phases, *rec)
	case *history.Fence:
		if r.Fence != nil {
			b.problem("two fences in one history")
			return
		}
		r.Fence = keep(rec)
	case *history.LoggedEvent:
		b.addLogged(rec)
	case *history.LedgerRow:
		b.counts.ledger++
		p := b.projection(rec.Projection, rec.Generation)
		p.Ledger = append(p.Ledger, keep(rec))
	case *history.CheckpointRow:
		b.counts.checkpoints++
		p := b.projection(rec.Projection, rec.Generation)
		p.Checkpoints = append(p.Checkpoints, keep(rec))
	case *history.ViewRow:
		if rec.Observation == 0 {
			b.counts.views++
		}
		b.views = append(b.views, keep(rec))
	case *history.AuctionRow:
		b.counts.views++
		s := b.stream(rec.Stream)
		if s.Auction != nil {
			b.problem("the row of %s was read twice", rec.Stream)
			return
		}
		s.Auction = keep(rec)
	case *history.HeadRow:
		b.counts.views++
		s := b.stream(rec.Stream)
		if s.Head != nil {
			b.problem("the head of %s was read twice", rec.Stream)
			return
		}
		s.Head = keep(rec)
	case *history.Observation:
		if rec.ID == 0 || b.obs[rec.ID] != nil {
			b.problem("observation number %d is used twice, or is 0", rec.ID)
			return
		}
		o := &Observation{Observation: *rec}
		b.obs[rec.ID] = o
		p := b.projection(rec.Projection, rec.Generation)
		p.Observations = append(p.Observations, o)
	case *history.Audit:
		if r.Audit != nil {
			b.problem("two audits in one history")
			return
		}
		r.Audit = keep(rec)
	case *history.End:
		if r.End != nil {
			b.problem("two end records in one history")
			return
		}
		r.End = keep(rec)
		r.Complete = true
	default:
		b.problem("record of unknown kind %T", rec)
	}
}

func (b *builder) addCall(rec *history.CallStart) {
	c := b.calls.get(rec.Call)
	if c != nil {
		b.problem("call %s begins twice", idText(rec.Call))
		return
	}
	c = b.callSlab.new()
	*c = Call{
		Process: rec.Process, Session: rec.Session, Continued: rec.Continued,
		Command: b.command(rec.CommandID), Stream: b.stream(rec.Stream).Name, Name: b.intern(rec.Name),
		Body: b.body(rec.Body), Started: rec.Started,
	}
	b.calls.set(rec.Call, c)
	b.allCalls = append(b.allCalls, c)
	b.process(rec.Process).Seen.Calls++
}

func (b *builder) addCallEnd(rec *history.CallEnd) {
	if b.ends[rec.Call] != nil {
		b.problem("call %s is answered twice", idText(rec.Call))
		return
	}
	if c := b.calls.get(rec.Call); c != nil {
		b.endCall(c, rec)
		return
	}
	b.ends[rec.Call] = keep(rec)
}

func (b *builder) endCall(c *Call, rec *history.CallEnd) {
	if c.End != nil {
		b.problem("call %s is answered twice", idText(rec.Call))
		return
	}
	e := b.endSlab.new()
	*e = CallEnd{
		T: rec.T, Result: rec.Result, Retriable: rec.Retriable, Replayed: rec.Replayed,
		Code: b.intern(rec.Code), Version: rec.Version, StateHash: rec.StateHash, Events: rec.Events,
		Have: rec.Have, Want: rec.Want, At: rec.At, Conflicts: rec.Conflicts,
	}
	if rec.Decision != (eventstore.Decision{}) {
		basis := basisOf(rec.Decision)
		e.Basis = &basis
		b.endReads[e] = rec.Decision.Read
	}
	c.End = e
}

func basisOf(d eventstore.Decision) Basis {
	return Basis{Version: d.Basis, Hash: d.Hash, Snapshot: d.Snapshot, Now: d.Now}
}

func (b *builder) addWrite(rec *history.Write) {
	if b.writes.get(rec.Write) != nil {
		b.problem("write %s is recorded twice", idText(rec.Write))
		return
	}
	w := b.writeSlab.new()
	*w = Write{
		Stream: b.stream(rec.Stream).Name, Expected: rec.Expected, Any: rec.Any, Basis: basisOf(rec.Decision),
		Events: b.writeEvents(rec.Events), Invoke: Infinity, Return: Infinity,
	}
	b.writes.set(rec.Write, w)
	b.owners = append(b.owners, origin{rec.Write, rec.Call, rec.Decision.Read})
	b.run.Writes = append(b.run.Writes, w)
	b.process(history.ProcessOf(rec.Write)).Seen.Writes++
	for _, e := range w.Events {
		if b.byEvent[e.ID] == nil {
			b.byEvent[e.ID] = w
		} else {
			b.run.Disputed[e.ID] = nil // settled when all are known
		}
	}
}

func (b *builder) writeEvents(in []history.WriteEvent) []WriteEvent {
	if len(b.eventSlab) < len(in) {
		b.eventSlab = make([]WriteEvent, max(1024, len(in)))
	}
	out := b.eventSlab[:len(in):len(in)]
	b.eventSlab = b.eventSlab[len(in):]
	for i, e := range in {
		out[i] = WriteEvent{ID: e.ID, Payload: e.Payload}
	}
	return out
}

// compareIDs orders writes by their first event id: an order that does not depend on that of the records.
func (w *Write) compareIDs(o *Write) int {
	if len(w.Events) == 0 || len(o.Events) == 0 {
		return cmp.Compare(len(w.Events), len(o.Events))
	}
	return bytes.Compare(w.Events[0].ID[:], o.Events[0].ID[:])
}

// session numbers the names of connections.
func (b *builder) session(name string) uint32 {
	n, ok := b.sessions[name]
	if !ok {
		n = uint32(len(b.run.sessions))
		b.sessions[name] = n
		b.run.sessions = append(b.run.sessions, name)
	}
	return n
}

// draft returns the attempt with this id. The pointer is good until the next call.
func (b *builder) draft(id uint64) *attemptDraft {
	n := b.attempt.get(id)
	if n == 0 {
		b.attempts = append(b.attempts, attemptDraft{id: id, Attempt: Attempt{T: Infinity, Open: true}})
		n = int32(len(b.attempts))
		b.attempt.set(id, n)
	}
	return &b.attempts[n-1]
}

func (b *builder) addReturn(rec *history.Return) {
	a := b.draft(rec.Attempt)
	if a.answers {
		b.problem("attempt %s is answered twice", idText(rec.Attempt))
		return
	}
	a.answers, a.Open = true, false
	a.T, a.Outcome, a.Reason = rec.T, rec.Outcome, rec.Reason
	a.Head, a.HeadKnown, a.session = rec.Head, rec.HeadKnown, b.session(rec.Session)
	if rec.Outcome == eventstore.OK {
		ans := b.ansSlab.new()
		*ans = Answer{First: rec.First, Span: span32(rec.First, rec.Last), Replayed: rec.Replayed, Events: rec.Events, Positions: rec.Positions}
		a.Answer = ans
	}
}

// span32 counts the versions from first to last; 0 if one of them was not told, the maximum if that can't be.
func span32(first, last uint64) uint32 {
	switch {
	case first == 0 || last == 0:
		return 0
	case last < first || last-first >= math.MaxUint32:
		return math.MaxUint32
	}
	return uint32(last - first + 1)
}

func (b *builder) addRead(rec *history.Read) {
	if rec.Read != 0 && b.reads.get(rec.Read) != nil {
		b.problem("read %s is recorded twice", idText(rec.Read))
		return
	}
	q := b.readSlab.new()
	*q = Read{
		Process: rec.Process, Session: rec.Session, Stream: b.stream(rec.Stream).Name,
		From: rec.From, To: rec.To, Invoke: rec.Invoke, T: rec.T, First: rec.First, Last: rec.Last, Count: rec.Count,
		Range: rec.Range, Tail: rec.Snapshot != 0 && rec.Snapshot < rec.From, Pages: rec.Pages, OK: rec.Outcome == eventstore.OK, Strong: rec.Strong,
	}
	if rec.Read != 0 {
		b.reads.set(rec.Read, q)
	}
	if rec.Flaw != "" {
		if b.run.Flaws == nil {
			b.run.Flaws = map[*Read]string{}
		}
		b.run.Flaws[q] = rec.Flaw
	}
	b.allReads, b.readers = append(b.allReads, q), append(b.readers, rec.Call)
	b.process(rec.Process).Seen.Reads++
}

func (b *builder) addLogged(rec *history.LoggedEvent) {
	b.counts.events++
	l := b.logSlab.new()
	l.LoggedEvent = *rec
	l.Type = b.intern(rec.Type)
	if c := b.commands[rec.Meta.CommandID]; c != nil {
		l.Meta.CommandID = c.ID
	}
	l.Payload = eventstore.PayloadHash(rec.Type, rec.Data)
	s := b.stream(rec.Stream)
	l.Stream = s.Name
	s.Log = append(s.Log, l)
}

func idText(id uint64) string {
	return fmt.Sprintf("%d/%d", history.ProcessOf(id), id&(1<<40-1))
}
