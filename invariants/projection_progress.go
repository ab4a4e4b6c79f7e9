package invariants

import (
	"cmp"
	"slices"
	"time"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/verdict"
)

// Bounds of progress, counted from heal.
const (
	stuckPolls = 10
	stuckCalls = 10
	stuckFor   = 10 * time.Second
	// silentPart of the load's time without an answer is too much to speak of progress.
	silentPart = 4
)

// checkProgress is INV-PROGRESS · progress. A projection is stuck, and the rule violated, if work is outstanding
// at the end and neither its checkpoint nor its ledger moved for max(10 polls, 10 s) after heal (or for as long
// as the reader declares that a permanent hole may hold it, if that is longer). Still moving at the bound, or
// stopped sooner, is inconclusive with the drain rate. A horizon held by a foreign transaction is named and
// inconclusive.
//
// A stream is stuck, and the rule violated, if after heal ≥ 10 calls on it ended and none ok or refused for 10 s.
//
// A projector that asks for nothing at all for 10 s is as stuck as one that asks in vain: one that waits for a
// notification that was lost, or for the end of an application.
//
// A store that has stopped serving is no store that makes progress, however short the load was to call it stuck: the
// verdict is inconclusive if calls ended after heal and none of them ok or refused, or if after the last such answer
// ≥ 10 calls ended or arrivals were dropped over a quarter of the load's time.
//
// It stands still only while it is known to have something to do: since an event that is outstanding at the end was
// acknowledged. One that never was may have landed a moment before the fence.
func checkProgress(run *Run, res *verdict.Result) {
	j := judgeFeeds(run, res)
	healed := run.healed()
	for _, s := range j.feeds.sigmas {
		if s.latest {
			j.judged++
			checkProjectionMoves(j, s, healed)
		}
	}
	for _, name := range run.StreamNames {
		j.judged++
		checkStreamServes(run, res, run.Streams[name], healed)
	}
	checkStillServed(j, healed)
	j.conclude()
}

// healed is when the last fault was lifted and the last dead role was back; Infinity if a fault never was.
func (r *Run) healed() int64 {
	t := r.Info.Start
	for _, f := range r.Faults {
		switch {
		case f.End != nil:
			t = max(t, f.End.T)
		case f.Until > 0:
			t = max(t, f.Until)
		default:
			return Infinity
		}
		for _, b := range f.Bites {
			if b.Form == history.BiteRestarted || b.Form == history.BiteRequestReleased {
				t = max(t, b.T)
			}
		}
	}
	for _, p := range r.Processes {
		if p.Incarnation > 1 {
			t = max(t, p.T)
		}
	}
	for _, p := range r.Phases {
		if p.Name == "heal" {
			t = max(t, p.T)
		}
	}
	return t
}

// outstanding counts what the projection has still to do, and returns the first such event and since when there has
// certainly been some: the earliest acknowledgement of such an event, Infinity if there is none.
func (s *sigma) outstanding() (n int, first *Logged, since int64) {
	c, since := s.last().cursor, Infinity
	for i, l := range s.log.events {
		if s.ordered() {
			// Filtered events count: a reader that never claims them reads them again for ever. An event
			// without a position belongs to position-order.
			if l.Position.IsZero() || c.Covers(l.Position) {
				continue
			}
		} else {
			if !s.passes[i] || s.handled(int32(i)) {
				continue
			}
		}
		n++
		if l.Write != nil && l.Write.Acked {
			since = min(since, l.Write.Return)
		}
		if first == nil || l.Position.Compare(first.Position) < 0 {
			first = l
		}
	}
	return n, first, since
}

func checkProjectionMoves(j *feedJudge, s *sigma, healed int64) {
	var after []*history.Poll // polls since heal
	for _, p := range s.polls {
		if p.Invoke > healed {
			after = append(after, p)
		}
	}
	countEvidence(j.res, pollsAfterHeal, int64(len(after)))
	n, first, work := s.outstanding()
	if n == 0 {
		return
	}
	end, alive := s.watched()
	if !alive {
		j.open("%s: no projector was running at the end (outstanding events: %d)", s, n)
		return
	}
	if healed == Infinity {
		j.open("%s: the faults were never lifted (outstanding events: %d)", s, n)
		return
	}
	if work == Infinity {
		j.open("%s: not at the end of the log, but nothing outstanding was ever acknowledged (events: %d); it may have landed just before the fence", s, n)
		return
	}
	since := max(s.lastMove(), healed, work)
	idle := slices.DeleteFunc(after, func(p *history.Poll) bool { return p.Invoke <= since })
	if len(idle) > 0 && idle[len(idle)-1].Held != "" {
		j.open("%s: the reader was held back by %s (outstanding events: %d)", s, idle[len(idle)-1].Held, n)
		return
	}
	for i, p := range slices.Backward(idle) { // being held is not standing still
		if p.Held != "" {
			since, idle = p.T, idle[i+1:]
			break
		}
	}
	bound := max(stuckFor, time.Duration(s.Info.MaxHoleMS)*time.Millisecond)
	still, silent := time.Duration(end-since), time.Duration(end-since)
	if len(idle) > 0 {
		silent = time.Duration(end - idle[len(idle)-1].T)
	}
	if still < bound || len(idle) < stuckPolls && silent < bound {
		j.open("%s: not at the end of the log yet (outstanding events: %d); it had stood still for %.1f s and %d polls, and drained %.1f events/s after the faults",
			s, n, max(0, still.Seconds()), len(idle), s.drainRate(healed))
		return
	}
	violate(j.res, func() *witness {
		w := newWitness(j.run, first.Stream, "%s is stuck: nothing moved for %.1f s and %d polls after the faults were over; outstanding events: %d, the first is %s at position %s",
			s, still.Seconds(), len(idle), n, eventName(first), first.Position)
		w.placed(first).cause()
		if len(s.values) > 0 {
			w.checkpoint(s, s.last()).cause()
		}
		if len(idle) > 0 {
			w.poll(idle[0]).cause()
			w.poll(idle[len(idle)-1]).cause()
		}
		return w
	})
}

// watched returns until when the projection's progress was watched, and whether a projector was alive then.
func (s *sigma) watched() (until int64, alive bool) {
	run := s.log.run
	seen := s.projectors()
	last := int64(0)
	for _, p := range s.polls {
		last = max(last, p.T)
	}
	for _, a := range s.applies {
		last = max(last, a.T)
	}
	for id := range seen {
		p := run.Processes[id]
		if p == nil {
			continue
		}
		if _, died := p.Died(); died {
			continue
		}
		alive = true
		if p.End != nil {
			last = max(last, p.End.T)
		} else {
			last = max(last, run.lastStamp())
		}
	}
	return last, alive
}

// projectors returns the processes that work for the projection: those that polled or applied for it, and every other
// incarnation of the same name, which may have come back and never asked.
func (s *sigma) projectors() map[uint32]bool {
	seen, names := map[uint32]bool{}, map[string]bool{}
	note := func(id uint32) {
		seen[id] = true
		if p := s.log.run.Processes[id]; p != nil && p.Name != "" {
			names[p.Name] = true
		}
	}
	for _, p := range s.polls {
		note(p.Process)
	}
	for _, a := range s.applies {
		note(a.Process)
	}
	for id, p := range s.log.run.Processes {
		if names[p.Name] {
			seen[id] = true
		}
	}
	return seen
}

// lastMove is when the checkpoint or the ledger last moved, as far as journals tell: an application that raised
// the checkpoint's counter, or without a counter the first one of its page, one that ended unknown and is found
// durable, a poll from another cursor than the one before, or the death of a projector, which may have moved what
// nobody wrote down.
func (s *sigma) lastMove() int64 {
	t := s.log.run.Info.Start
	died := func(process uint32) {
		if at, ok := s.log.run.Processes[process].Died(); ok {
			t = max(t, at)
		}
	}
	durable := map[string]bool{}
	for _, v := range s.values {
		durable[v.cursor.String()] = true
	}
	counter, done := uint64(0), map[string]bool{}
	for _, a := range s.applies {
		died(a.Process)
		switch a.Outcome {
		case eventstore.OK:
			if page := a.Next.String(); a.Seq > counter || a.Seq == 0 && a.Events > 0 && !done[page] {
				t, done[page] = max(t, a.T), true
			}
			counter = max(counter, a.Seq)
		case eventstore.Unknown:
			if durable[a.Next.String()] {
				t = max(t, a.T)
			}
		case eventstore.Fail:
		}
	}
	last := map[uint32]*history.Poll{}
	for _, p := range s.polls {
		died(p.Process)
		if before := last[p.Process]; before != nil && !sameCursor(before.After, p.After) {
			t = max(t, p.Invoke)
		}
		last[p.Process] = p
	}
	return t
}

// drainRate is the number of events applied a second after heal.
func (s *sigma) drainRate(healed int64) float64 {
	events, until := 0.0, healed
	for _, a := range s.applies {
		if a.Invoke >= healed && a.Outcome == eventstore.OK {
			events += float64(a.Events)
			until = max(until, a.T)
		}
	}
	if until == healed {
		return 0
	}
	return events / time.Duration(until-healed).Seconds()
}

// checkStreamServes looks for ≥ 10 calls that ended over ≥ 10 s with none ok or refused among them. The stretch
// begins with the start of its first call, so that a stream nobody asked anything is not stuck.
func checkStreamServes(run *Run, res *verdict.Result, s *Stream, healed int64) {
	var ended []*Call
	for _, c := range s.Calls {
		if c.End != nil && c.End.T > healed {
			ended = append(ended, c)
		}
	}
	countEvidence(res, callsAfterHeal, int64(len(ended)))
	if len(ended) < stuckCalls {
		return
	}
	slices.SortStableFunc(ended, func(a, b *Call) int { return cmp.Compare(a.End.T, b.End.T) })
	var stretch []*Call
	from := Infinity
	success := healed
	for _, c := range ended {
		switch c.End.Result {
		case history.ResultOK, history.ResultRefused:
			stretch, from, success = nil, Infinity, c.End.T
			continue
		case history.ResultUnknown, history.ResultExhausted, history.ResultFailed:
		}
		stretch = append(stretch, c)
		from = max(success, min(from, c.Started))
		if len(stretch) < stuckCalls || time.Duration(c.End.T-from) < stuckFor {
			continue
		}
		calls, begin := stretch, from
		violate(res, func() *witness {
			w := newWitness(run, s.Name, "%s is stuck: %d calls ended over %.1f s after the faults were over, and none was ok or refused",
				s.Name, len(calls), time.Duration(c.End.T-begin).Seconds())
			for _, x := range calls[:min(len(calls), stuckCalls)] {
				w.answer(x).cause()
			}
			return w
		})
		return // once a stream
	}
}

// served reports whether a call had an answer that the store's callers can use.
func (c *Call) served() bool {
	return c.End != nil && (c.End.Result == history.ResultOK || c.End.Result == history.ResultRefused)
}

// checkStillServed leaves progress open where the store had stopped answering its callers.
func checkStillServed(j *feedJudge, healed int64) {
	begin, end := j.run.loaded()
	ended, served, last := 0, 0, begin
	for _, c := range j.run.Calls {
		if c.served() {
			last = max(last, c.End.T)
		}
		if c.End != nil && c.End.T > max(healed, begin) {
			ended++
			if c.served() {
				served++
			}
		}
	}
	if ended > 0 && served == 0 {
		j.open("calls that ended after the faults were over: %d, none of them ok or refused", ended)
		return
	}
	calls, drops, from, to := 0, 0, Infinity, last
	for _, c := range j.run.Calls {
		if c.End != nil && c.End.T > last {
			calls++
			from, to = min(from, c.Started), max(to, c.End.T)
		}
	}
	for _, d := range j.run.Drops {
		if d.T > last {
			drops++
			from, to = min(from, d.Intended), max(to, d.T)
		}
	}
	from = max(from, last)
	if calls+drops < stuckCalls || (to-from)*silentPart < end-begin {
		return
	}
	j.open("no call was answered ok or refused from %.1f s after the load began, for %.1f s until the last one ended (calls ended meanwhile: %d, arrivals dropped: %d)",
		time.Duration(last-begin).Seconds(), time.Duration(to-from).Seconds(), calls, drops)
}

// loaded returns when the load began and ended: its first phase, and the drain; where there are no phases, the trial's
// begin and the end of the last call.
func (r *Run) loaded() (begin, end int64) {
	begin = r.Info.Start
	if len(r.Phases) > 0 {
		begin = r.Phases[0].T
	}
	end = begin
	for _, p := range r.Phases {
		begin = min(begin, p.T)
		if p.Name == "drain" {
			return begin, max(end, p.T)
		}
	}
	for _, c := range r.Calls {
		if c.End != nil {
			end = max(end, c.End.T)
		}
	}
	return begin, end
}
