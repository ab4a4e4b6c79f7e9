package reports

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
)

// WarmupPhase is the name of a phase that is left out of the measured numbers, DrainPhase that of the time
// after the load, in which writers are stopped and projections catch up: what still begins in it is no load.
const (
	WarmupPhase = "warmup"
	DrainPhase  = "drain"
)

// phase is one phase of the load with what was counted in it.
type phase struct {
	name     string
	from, to int64
	load     bool // load is offered
	measured bool // load, and not warm-up
	tally
}

// tally holds what one phase, or all measured phases together, added up to.
type tally struct {
	response, service, lag *histogram
	attempts, conflicts    int64
	answered               int64 // calls answered ok or refused
	unknown                int64 // calls that ended unknown or never
	offered                int64
}

func newTally() tally {
	return tally{response: newHistogram(), service: newHistogram(), lag: newHistogram()}
}

// arrival is one scheduled start with every call that served it: its own, and those of processes that
// continued the command.
type arrival struct {
	intended, started int64
	end               int64 // of the last answer; 0 = none
}

// command is one intent: order[from:to] are its calls, by start.
type command struct {
	from, to         uint32
	writes, attempts uint32
}

// joined is a collector's facts put together.
type joined struct {
	*collector
	origin   int64 // the trial's start, or the first stamp where no start is recorded
	phases   []*phase
	commands []command // by command number; one without calls is known from the log only
	order    []uint32  // call indexes by command, then start
	inLog    map[eventstore.EventID]uint32
	arrivals []arrival
	lags     []lagSample
	never    int64
}

type lagSample struct{ ack, lag int64 }

func (c *collector) join() *joined {
	j := &joined{collector: c, commands: make([]command, len(c.commands)), inLog: make(map[eventstore.EventID]uint32, len(c.log))}
	for i, l := range c.log {
		j.inLog[l.id] = uint32(i)
	}
	for i := range c.calls.list {
		if c.calls.list[i].begun { // an end without a start: the history is cut, nothing can be timed
			j.order = append(j.order, uint32(i))
		}
	}
	slices.SortFunc(j.order, func(x, y uint32) int {
		a, b := &c.calls.list[x], &c.calls.list[y]
		return cmp.Or(cmp.Compare(a.command, b.command), cmp.Compare(a.started, b.started), cmp.Compare(a.id, b.id))
	})
	for i, k := range j.order {
		cmd := &j.commands[c.calls.list[k].command]
		if cmd.to == 0 {
			cmd.from = uint32(i)
		}
		cmd.to = uint32(i) + 1
	}
	j.joinAttempts()
	j.layPhases()
	j.layArrivals()
	j.layLags()
	return j
}

// joinAttempts gives each write its attempts, by time, and each command the number of both.
func (j *joined) joinAttempts() {
	j.attempts.index = nil // ids have served; sorting moves what they point at
	list := slices.DeleteFunc(j.attempts.list, func(a attemptFact) bool { return !a.invoked })
	slices.SortFunc(list, func(a, b attemptFact) int {
		return cmp.Or(cmp.Compare(a.write, b.write), cmp.Compare(a.invoke, b.invoke), cmp.Compare(a.id, b.id))
	})
	j.attempts.list = list
	for i := range list {
		a := &list[i]
		if !a.returned {
			a.outcome, a.reason = eventstore.Unknown, eventstore.Killed
		}
		if w := j.writes.find(a.write); w != nil {
			if w.to == 0 {
				w.from = uint32(i)
			}
			w.to = uint32(i) + 1
			w.ok = w.ok || a.outcome == eventstore.OK && !a.replayed
		}
	}
	for _, e := range j.evidence {
		if w := j.writes.find(e.Write); w != nil && e.Outcome == eventstore.OK {
			w.ok = true
		}
	}
	for i := range j.writes.list {
		w := &j.writes.list[i]
		if call := j.callOf(w); call != nil {
			j.commands[call.command].writes++
			j.commands[call.command].attempts += w.to - w.from
		}
	}
}

// callOf returns the call that made a write; nil where its start is not recorded.
func (j *joined) callOf(w *writeFact) *callFact {
	if call := j.calls.find(w.call); call != nil && call.begun {
		return call
	}
	return nil
}

// eachCall visits every call whose start is recorded.
func (j *joined) eachCall(f func(*callFact)) {
	for _, i := range j.order {
		f(&j.calls.list[i])
	}
}

// eachCommand visits every command that has calls, with them by start.
func (j *joined) eachCommand(f func(cmd *command, calls []uint32)) {
	for i := range j.commands {
		if cmd := &j.commands[i]; cmd.to > 0 {
			f(cmd, j.order[cmd.from:cmd.to])
		}
	}
}

// layPhases cuts the trial into phases. Without Phase records (a script) the whole trial is one.
func (j *joined) layPhases() {
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	j.eachCall(func(call *callFact) {
		first = min(first, call.intended, call.started)
		last = max(last, call.started, call.end)
	})
	for _, t := range j.drops {
		first, last = min(first, t), max(last, t)
	}
	j.origin = j.info.Start
	if j.origin == 0 && first != math.MaxInt64 {
		j.origin = first
	}
	records := slices.Clone(j.collector.phases)
	slices.SortStableFunc(records, func(a, b history.Phase) int { return cmp.Compare(a.T, b.T) })
	if len(records) == 0 {
		if first == math.MaxInt64 {
			return
		}
		records = []history.Phase{{Name: "", T: first}}
	}
	for i, r := range records {
		p := &phase{name: r.Name, from: r.T, to: last, tally: newTally()}
		if i+1 < len(records) {
			p.to = records[i+1].T
		} else if r.Name == DrainPhase {
			p.to = j.last
		}
		p.to = max(p.to, p.from)
		j.phases = append(j.phases, p)
	}
	for _, p := range j.phases {
		p.load = p.name != DrainPhase
		p.measured = p.load && p.name != WarmupPhase
	}
}

// phaseAt returns the phase that t lies in; nil before the first (set-up).
func (j *joined) phaseAt(t int64) *phase {
	i := sort.Search(len(j.phases), func(i int) bool { return j.phases[i].from > t })
	if i == 0 {
		return nil
	}
	return j.phases[i-1]
}

// counted reports whether what was meant to start at t belongs to the measured numbers.
func (j *joined) counted(t int64) bool {
	p := j.phaseAt(t)
	return p != nil && p.measured
}

func (j *joined) layArrivals() {
	j.arrivals = make([]arrival, 0, len(j.order))
	j.eachCommand(func(_ *command, calls []uint32) {
		open := -1
		for _, i := range calls {
			call := &j.calls.list[i]
			if open < 0 || !call.continued {
				open = len(j.arrivals)
				j.arrivals = append(j.arrivals, arrival{intended: call.intended, started: call.started})
			}
			if call.ended {
				j.arrivals[open].end = max(j.arrivals[open].end, call.end)
			}
		}
	})
}

func (j *joined) reportPhases() []Phase {
	var out []Phase
	for _, p := range j.phases {
		if p.name != "" {
			out = append(out, Phase{Name: p.name, AtS: seconds(p.from - j.origin), LengthS: seconds(p.to - p.from)})
		}
	}
	return out
}

func (j *joined) metrics() Metrics {
	var m Metrics
	all := newTally()
	each := func(t int64, f func(*tally)) {
		p := j.phaseAt(t)
		if p == nil {
			return
		}
		f(&p.tally)
		if p.measured {
			f(&all)
		}
	}

	for _, a := range j.arrivals {
		if a.end == 0 {
			if j.counted(a.intended) {
				m.LatencyS.Unanswered++
			}
			continue
		}
		each(a.intended, func(t *tally) {
			t.response.record(a.end - a.intended)
			t.service.record(a.end - a.started)
		})
	}
	j.eachCall(func(call *callFact) {
		each(call.intended, func(t *tally) {
			if !call.continued {
				t.offered++
			}
			switch {
			case !call.ended:
				t.unknown++
			default:
				switch call.result {
				case history.ResultOK, history.ResultRefused:
					t.answered++
				case history.ResultUnknown:
					t.unknown++
				case history.ResultExhausted, history.ResultFailed:
				}
			}
		})
	})
	for _, l := range j.lags {
		each(l.ack, func(t *tally) { t.lag.record(l.lag) })
	}
	for _, t := range j.drops {
		each(t, func(t *tally) { t.offered++ })
		if j.counted(t) {
			m.Commands.Dropped++
		}
	}

	j.countCommands(&m.Commands)
	j.countAttempts(&m, each)

	var measured int64
	for _, p := range j.phases {
		if p.measured {
			measured += p.to - p.from
		}
	}
	m.LatencyS.Response, m.LatencyS.Service = all.response.quantiles(), all.service.quantiles()
	if all.lag.count() > 0 {
		q := all.lag.quantiles()
		m.LagS = &q
	}
	m.NeverVisible = j.never
	m.Throughput.MeasuredS = seconds(measured)
	if measured > 0 {
		m.Throughput.CommandsPerS = float64(all.answered) / seconds(measured)
		m.Throughput.OfferedPerS = float64(all.offered) / seconds(measured)
		m.Throughput.EventsPerS = float64(j.acknowledged()) / seconds(measured)
	}
	m.Generator.LagS = j.generatorLag()
	m.RecoveryS = j.recovery()
	for _, p := range j.phases {
		if !p.load || p.name == "" {
			continue
		}
		pm := PhaseMetrics{Name: p.name, Response: p.response.quantiles(), Service: p.service.quantiles(), Unknown: p.unknown}
		if length := seconds(p.to - p.from); length > 0 {
			pm.CommandsPerS = float64(p.answered) / length
		}
		pm.ConflictRatio = ratio(p.conflicts, p.attempts)
		if p.lag.count() > 0 {
			q := p.lag.quantiles()
			pm.LagS = &q
		}
		m.Phases = append(m.Phases, pm)
	}
	j.validate(&m)
	return m
}

func ratio(n, of int64) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

func (j *joined) countCommands(m *Commands) {
	codes := j.codes.names()
	unknown := map[uint32]bool{} // commands that ended unknown
	j.eachCommand(func(_ *command, calls []uint32) {
		first, last := &j.calls.list[calls[0]], &j.calls.list[calls[len(calls)-1]]
		if !j.counted(first.intended) {
			return
		}
		m.Offered++
		m.Calls += int64(len(calls))
		if slices.ContainsFunc(calls, func(i uint32) bool { return j.calls.list[i].continued }) {
			m.Continued++
		}
		result := history.ResultUnknown // never answered
		if last.ended {
			result = last.result
		}
		switch result {
		case history.ResultOK:
			m.OK++
		case history.ResultRefused:
			m.Refused++
			if m.ByCode == nil {
				m.ByCode = map[string]int64{}
			}
			m.ByCode[codes[last.code]]++
		case history.ResultExhausted:
			m.Exhausted++
		case history.ResultFailed:
			m.Failed++
		case history.ResultUnknown:
			m.Unknown++
			unknown[last.command] = true
		}
	})
	m.Offered += m.Dropped
	for i := range j.writes.list {
		w := &j.writes.list[i]
		if call := j.callOf(w); call != nil && unknown[call.command] && j.landed(w) {
			m.UnknownLanded++
			delete(unknown, call.command)
		}
	}
}

// landed reports whether the write's first event is in the log.
func (j *joined) landed(w *writeFact) bool {
	_, ok := j.inLog[w.event]
	return ok && !w.event.IsZero()
}

// attemptsOf returns the attempts of a write, by time.
func (j *joined) attemptsOf(w *writeFact) []attemptFact { return j.attempts.list[w.from:w.to] }

func conflict(a *attemptFact) bool {
	return a.outcome == eventstore.Fail && a.reason == eventstore.VersionConflict
}

// holders returns which command holds each version that an append lost. Without an audit a holder is known
// where an answer or evidence says that a write won.
func (j *joined) holders() map[slot]uint32 {
	held := map[slot]uint32{}
	lost := map[slot]bool{}
	for i := range j.writes.list {
		w := &j.writes.list[i]
		for k := range j.attemptsOf(w) {
			if conflict(&j.attemptsOf(w)[k]) {
				lost[slot{w.stream, w.expected + 1}] = true
			}
		}
	}
	for _, l := range j.log {
		if s := (slot{l.stream, l.version}); lost[s] {
			held[s] = l.command
		}
	}
	if j.audited {
		return held
	}
	for i := range j.writes.list {
		w := &j.writes.list[i]
		s := slot{w.stream, w.expected + 1}
		if call := j.callOf(w); call != nil && w.ok && !w.any && lost[s] {
			held[s] = call.command
		}
	}
	return held
}

func (j *joined) countAttempts(m *Metrics, each func(int64, func(*tally))) {
	holders := j.holders()
	streams := j.streams.names()
	hot := map[uint32]*HotStream{}
	landed := map[uint32]int64{} // appends that moved a stream's head
	var window, windows int64
	for i := range j.writes.list {
		w := &j.writes.list[i]
		call := j.callOf(w)
		if call == nil {
			continue
		}
		attempts := j.attemptsOf(w)
		each(call.intended, func(t *tally) { t.addAttempts(attempts) })
		if !j.counted(call.intended) {
			continue
		}
		h := hot[w.stream]
		if h == nil {
			h = &HotStream{Stream: streams[w.stream]}
			hot[w.stream] = h
		}
		acked, open := false, false
		for k := range attempts {
			a := &attempts[k]
			h.Attempts++
			switch a.outcome {
			case eventstore.OK:
				m.Attempts.OK++
				acked = acked || !a.replayed
			case eventstore.Unknown:
				m.Attempts.Unknown++
				open = true
			case eventstore.Fail:
				m.Attempts.Fail++
			}
			if conflict(a) {
				h.Conflicts++
				m.Contention.Conflicts++
				if holder, ok := holders[slot{w.stream, w.expected + 1}]; ok && holder == call.command {
					m.Contention.SelfConflicts++
				}
			}
		}
		// Of several unknown attempts of one write at most one landed, and none if a fresh ok was answered.
		if open && !acked && j.landed(w) {
			m.Attempts.UnknownLanded++
		}
		if acked || j.landed(w) {
			landed[w.stream]++
		}
		if read, ok := j.reads[w.read]; ok && len(attempts) > 0 && attempts[0].returned {
			if d := attempts[0].invoke + (attempts[0].t-attempts[0].invoke)/2 - read; d > 0 {
				window += d
				windows++
			}
		}
	}
	total := m.Attempts.OK + m.Attempts.Fail + m.Attempts.Unknown
	ct := &m.Contention
	ct.ConflictRatio = ratio(ct.Conflicts, total)
	if windows > 0 {
		ct.WindowS = seconds(window) / float64(windows)
	}
	ct.ModelRatio = j.modelRatio(hot, landed, ct.WindowS)
	j.ladder(ct)
	ct.Hot = hottest(hot)
}

func (t *tally) addAttempts(as []attemptFact) {
	for i := range as {
		t.attempts++
		if conflict(&as[i]) {
			t.conflicts++
		}
	}
}

// modelRatio is 1 − exp(−r·w), with r the rate at which a stream's head moves, averaged over the attempts.
func (j *joined) modelRatio(hot map[uint32]*HotStream, landed map[uint32]int64, w float64) float64 {
	var measured int64
	for _, p := range j.phases {
		if p.measured {
			measured += p.to - p.from
		}
	}
	if measured == 0 {
		return 0
	}
	var sum float64
	var n int64
	for _, s := range slices.Sorted(maps.Keys(hot)) {
		r := float64(landed[s]) / seconds(measured)
		sum += float64(hot[s].Attempts) * (1 - math.Exp(-r*w))
		n += hot[s].Attempts
	}
	if n == 0 {
		return 0
	}
	return sum / float64(n)
}

func (j *joined) ladder(ct *Contention) {
	var attempts, commands int64
	j.eachCommand(func(cmd *command, calls []uint32) {
		if !j.counted(j.calls.list[calls[0]].intended) {
			return
		}
		if cmd.attempts > 0 {
			attempts += int64(cmd.attempts)
			commands++
		}
		decisions := int(cmd.writes)
		if j.calls.list[calls[len(calls)-1]].byDecision {
			decisions++
		}
		if decisions == 0 {
			return // it never came to a decision
		}
		i := min(decisions, MaxTries) - 1
		for len(ct.ByTries) <= i {
			ct.ByTries = append(ct.ByTries, 0)
		}
		ct.ByTries[i]++
	})
	ct.AttemptsPerCommand = ratio(attempts, commands)
}

const hotStreams = 10

func hottest(hot map[uint32]*HotStream) []HotStream {
	var out []HotStream
	for _, h := range hot {
		if h.Conflicts > 0 {
			out = append(out, *h)
		}
	}
	slices.SortFunc(out, func(a, b HotStream) int {
		return cmp.Or(cmp.Compare(b.Conflicts, a.Conflicts), cmp.Compare(b.Attempts, a.Attempts), cmp.Compare(a.Stream, b.Stream))
	})
	return out[:min(len(out), hotStreams)]
}

// acknowledged counts the events whose first ok answer lies in a measured phase.
func (j *joined) acknowledged() int64 {
	var n int64
	for _, t := range j.ack {
		if j.counted(t) {
			n++
		}
	}
	return n
}

// generatorLag is how late a call was taken although its worker had been idle since before it was due: the
// generator's own delay, not the store's. Continuations have no schedule.
func (j *joined) generatorLag() Quantiles {
	calls := slices.Clone(j.order)
	slices.SortFunc(calls, func(x, y uint32) int {
		a, b := &j.calls.list[x], &j.calls.list[y]
		return cmp.Or(cmp.Compare(a.process, b.process), cmp.Compare(a.session, b.session), cmp.Compare(a.started, b.started))
	})
	h := newHistogram()
	var before *callFact
	for _, i := range calls {
		call := &j.calls.list[i]
		free := before == nil || before.process != call.process || before.session != call.session || before.ended && before.end <= call.intended
		if free && !call.continued && j.counted(call.intended) {
			h.record(call.started - call.intended)
		}
		before = call
	}
	return h.quantiles()
}

// recovery is the time from the lifting of the last fault to the first ok answer after it.
func (j *joined) recovery() *float64 {
	lifted := int64(math.MinInt64)
	for _, f := range j.faults {
		if f.end != nil {
			lifted = max(lifted, f.end.T)
		}
	}
	if lifted == math.MinInt64 {
		return nil
	}
	first := int64(math.MaxInt64)
	j.eachCall(func(call *callFact) {
		if call.ended && call.result == history.ResultOK && call.end > lifted {
			first = min(first, call.end)
		}
	})
	if first == math.MaxInt64 {
		return nil
	}
	s := seconds(first - lifted)
	return &s
}

// Bounds of the generator's own lag beyond which a run says nothing about latency.
const (
	maxGeneratorLagS     = 0.003
	maxGeneratorLagShare = 0.05
)

func (j *joined) validate(m *Metrics) {
	if m.LatencyS.Response.N == 0 {
		m.Invalid = append(m.Invalid, "no command was answered in a measured phase")
	}
	if m.Commands.Dropped > 0 {
		m.Invalid = append(m.Invalid, fmt.Sprintf("%d of %d arrivals were dropped: they waited until the queue was full or the load was over", m.Commands.Dropped, m.Commands.Offered))
	}
	if lag, limit := m.Generator.LagS.P99, max(maxGeneratorLagS, maxGeneratorLagShare*m.LatencyS.Response.P99); lag > limit {
		m.Invalid = append(m.Invalid, fmt.Sprintf("the generator was late by %s at p99, above the limit of %s", duration(lag), duration(limit)))
	}
	if j.info.Fidelity == "emulated" {
		m.Invalid = append(m.Invalid, "emulated: a stand-in proves code paths, never the product's speed")
	}
	if j.info.Mode == "scripted" {
		m.Invalid = append(m.Invalid, "scripted: the schedule is forced")
	}
	if j.end != nil && j.end.Interrupt != "" {
		m.Invalid = append(m.Invalid, "interrupted: "+j.end.Interrupt)
	}
	m.Valid = len(m.Invalid) == 0
}
