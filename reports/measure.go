package reports

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
)

// Source yields the records of one history; Next returns io.EOF after the last. A record need only be valid
// until the next call. history.Reader is a Source, with or without ReuseRecords.
type Source interface {
	Next() (history.Record, error)
}

// Measured is everything a report says of a trial that follows from its history alone.
type Measured struct {
	Info      history.TrialInfo
	Metrics   Metrics
	Series    *Series // nil: nothing was measured
	Phases    []Phase
	Faults    []Fault
	Fence     string // the proof, or why there is none
	DurationS float64
	Records   uint64
	Interrupt string // why the trial ended early
	Complete  bool   // the history ends with its End record
}

// Fill copies what was measured into a trial of the result.
func (m Measured) Fill(t *Trial) {
	t.Metrics, t.Series, t.Phases, t.Faults = m.Metrics, m.Series, m.Phases, m.Faults
	t.Fence, t.DurationS, t.StartNS = m.Fence, m.DurationS, m.Info.Start
	t.History.Records = m.Records
}

// Measure computes the metrics of one trial in one pass over its history. It keeps a small fixed part of each
// record, never payloads, and does not depend on the order of the records: live segments of several
// processes may be merged or concatenated. Errors are those of the source.
func Measure(src Source) (Measured, error) {
	c := newCollector()
	for {
		rec, err := src.Next()
		if errors.Is(err, io.EOF) {
			return c.measured(), nil
		}
		if err != nil {
			return Measured{}, fmt.Errorf("reports: measure: %w", err)
		}
		c.add(rec)
	}
}

// numbers maps strings to small numbers, so that a fact of a million records costs four bytes.
type numbers map[string]uint32

func (n numbers) of(s string) uint32 {
	i, ok := n[s]
	if !ok {
		i = uint32(len(n))
		n[s] = i
	}
	return i
}

// names returns the strings by their numbers.
func (n numbers) names() []string {
	out := make([]string, len(n))
	for s, i := range n {
		out[i] = s
	}
	return out
}

type callFact struct {
	id                uint64
	command           uint32
	process, session  uint32
	code              uint32
	intended, started int64
	end               int64
	result            history.Result
	begun             bool // its start is recorded
	continued         bool
	ended             bool
	byDecision        bool // a refusal that carries the decision it rests on
}

// writeFact is one decision; attempts[from:to] are its tries once they are sorted.
type writeFact struct {
	call     uint64
	expected uint64
	read     uint64
	event    eventstore.EventID // the first of its events: a write lands whole or not at all
	stream   uint32
	from, to uint32
	any      bool
	ok       bool // an ok answer or ok evidence names it
}

type attemptFact struct {
	id       uint64
	write    uint64
	invoke   int64
	t        int64
	outcome  eventstore.Outcome
	reason   eventstore.Reason
	invoked  bool
	returned bool
	replayed bool
}

type loggedFact struct {
	id       eventstore.EventID
	stream   uint32
	command  uint32
	kind     uint32
	version  uint64
	position eventstore.Position
}

type slot struct {
	stream  uint32
	version uint64
}

type applyFact struct {
	generation uint64
	seq        uint64
	t          int64
	next       eventstore.Cursor
}

type ledgerFact struct {
	generation uint64
	seq        uint64
	event      eventstore.EventID
}

type projectionFacts struct {
	applies []applyFact
	ledger  []ledgerFact
}

type faultFact struct {
	history.Fault
	end   *history.FaultEnd
	bites int
}

// facts are records of one kind by id, kept in one piece: a run has millions.
type facts[T any] struct {
	list  []T
	index map[uint64]uint32
}

func newFacts[T any]() facts[T] { return facts[T]{index: map[uint64]uint32{}} }

// of returns the fact with an id, made if it is new; valid until the next call.
func (f *facts[T]) of(id uint64) *T {
	i, ok := f.index[id]
	if !ok {
		i = uint32(len(f.list))
		f.index[id] = i
		var zero T
		f.list = append(f.list, zero)
	}
	return &f.list[i]
}

// find returns nil where there is none.
func (f *facts[T]) find(id uint64) *T {
	if i, ok := f.index[id]; ok {
		return &f.list[i]
	}
	return nil
}

// collector gathers facts in any order; measured joins them.
type collector struct {
	records     uint64
	info        history.TrialInfo
	commands    numbers
	streams     numbers
	codes       numbers
	kinds       numbers // event types
	calls       facts[callFact]
	writes      facts[writeFact]
	attempts    facts[attemptFact]
	reads       map[uint64]int64             // the middle of each read
	ack         map[eventstore.EventID]int64 // first ok answer that names the event
	evidence    []history.Evidence
	drops       []int64
	phases      []history.Phase
	faults      map[string]*faultFact
	log         []loggedFact
	audited     bool
	projections map[string]*projectionFacts
	fence       *history.Fence
	end         *history.End
	last        int64 // latest stamp seen
}

func newCollector() *collector {
	return &collector{
		commands: numbers{}, streams: numbers{}, codes: numbers{}, kinds: numbers{},
		calls: newFacts[callFact](), writes: newFacts[writeFact](), attempts: newFacts[attemptFact](),
		reads: map[uint64]int64{}, ack: map[eventstore.EventID]int64{}, faults: map[string]*faultFact{}, projections: map[string]*projectionFacts{},
	}
}

func (c *collector) projection(name string) *projectionFacts {
	p := c.projections[name]
	if p == nil {
		p = &projectionFacts{}
		c.projections[name] = p
	}
	return p
}

func (c *collector) fault(id string) *faultFact {
	f := c.faults[id]
	if f == nil {
		f = &faultFact{Fault: history.Fault{ID: id}}
		c.faults[id] = f
	}
	return f
}

func (c *collector) stamp(t int64) { c.last = max(c.last, t) }

func (c *collector) add(rec history.Record) {
	c.records++
	switch r := rec.(type) {
	case *history.Trial:
		c.info = r.Info
	case *history.CallStart:
		f := c.calls.of(r.Call)
		f.id, f.begun = r.Call, true
		f.command, f.process, f.session = c.commands.of(r.CommandID), r.Process, r.Session
		f.continued, f.intended, f.started = r.Continued, r.Intended, r.Started
		c.stamp(r.Started)
	case *history.CallEnd:
		f := c.calls.of(r.Call)
		f.ended, f.end, f.result, f.code = true, r.T, r.Result, c.codes.of(r.Code)
		f.byDecision = r.Result == history.ResultRefused && r.Decision != (eventstore.Decision{})
		c.stamp(r.T)
	case *history.Write:
		f := c.writes.of(r.Write)
		f.call, f.stream, f.any, f.expected, f.read = r.Call, c.streams.of(r.Stream), r.Any, r.Expected, r.Decision.Read
		if len(r.Events) > 0 {
			f.event = r.Events[0].ID
		}
	case *history.Invoke:
		f := c.attempts.of(r.Attempt)
		f.id, f.write, f.invoked, f.invoke = r.Attempt, r.Write, true, r.T
		c.stamp(r.T)
	case *history.Return:
		f := c.attempts.of(r.Attempt)
		f.returned, f.t, f.outcome, f.reason, f.replayed = true, r.T, r.Outcome, r.Reason, r.Replayed
		if r.Outcome == eventstore.OK {
			for _, e := range r.Events {
				if t, seen := c.ack[e]; !seen || r.T < t {
					c.ack[e] = r.T
				}
			}
		}
		c.stamp(r.T)
	case *history.Evidence:
		c.evidence = append(c.evidence, *r)
	case *history.Read:
		if r.Call != 0 {
			c.reads[r.Read] = r.Invoke + (r.T-r.Invoke)/2
		}
	case *history.Apply:
		if r.Outcome == eventstore.OK {
			p := c.projection(r.Projection)
			p.applies = append(p.applies, applyFact{r.Generation, r.Seq, r.T, r.Next})
		}
	case *history.LedgerRow:
		p := c.projection(r.Projection)
		p.ledger = append(p.ledger, ledgerFact{r.Generation, r.Seq, r.Event})
	case *history.LoggedEvent:
		c.log = append(c.log, loggedFact{
			id: r.ID, stream: c.streams.of(r.Stream), command: c.commands.of(r.Meta.CommandID),
			kind: c.kinds.of(r.Type), version: r.Version, position: r.Position,
		})
	case *history.Audit:
		c.audited = true
	case *history.Fault:
		c.fault(r.ID).Fault = *r
	case *history.FaultEnd:
		end := *r
		c.fault(r.ID).end = &end
	case *history.Bite:
		c.fault(r.Fault).bites++
	case *history.Drop:
		c.drops = append(c.drops, r.Intended)
	case *history.Phase:
		c.phases = append(c.phases, *r)
	case *history.Fence:
		fence := *r
		c.fence = &fence
	case *history.End:
		end := *r
		c.end = &end
		c.stamp(r.T)
	}
}

func (c *collector) measured() Measured {
	j := c.join()
	m := Measured{
		Info: c.info, Records: c.records, Phases: j.reportPhases(), Faults: c.reportFaults(),
		Complete: c.end != nil, Fence: "not fenced: the trial ended before the fence",
	}
	if c.fence != nil {
		m.Fence = c.fence.Proof
		if !c.fence.Fenced {
			m.Fence = "unfenced: " + c.fence.Proof
		}
	}
	if c.end != nil {
		m.Interrupt = c.end.Interrupt
	}
	if c.last > j.origin {
		m.DurationS = seconds(c.last - j.origin)
	}
	m.Metrics = j.metrics()
	m.Series = j.series()
	return m
}

func (c *collector) reportFaults() []Fault {
	for _, id := range c.info.Faults {
		c.fault(id) // one that never began is shown as not observed
	}
	var out []Fault
	for _, f := range c.faults {
		r := Fault{ID: f.ID, Kind: f.FaultKind, On: f.On, Planned: f.Text, AtS: seconds(f.T - c.info.Start)}
		switch {
		case f.T == 0:
			r.AtS, r.Effect = 0, "never began"
		case f.end == nil:
			r.Observed = f.bites > 0
			r.LengthS = seconds(max(0, c.last-f.T))
			r.Effect = "never lifted"
		default:
			r.Observed, r.Effect, r.LengthS = f.end.Bit, f.end.Effect, seconds(f.end.T-f.T)
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b Fault) int { return cmp.Or(cmp.Compare(a.AtS, b.AtS), cmp.Compare(a.ID, b.ID)) })
	return out
}
