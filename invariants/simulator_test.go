package invariants

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/eventproof/eventproof/domain/account"
	"github.com/eventproof/eventproof/domain/auction"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/invariants/oracle"
)

// simulator plays a correct application on a correct store, one small step of one session at a time: loads,
// decisions, conflicts, lost requests, lost replies, requests that arrive late, kills and continued commands.
type simulator struct {
	h        *hist
	rng      *rand.Rand
	now      int64
	streams  []string
	sessions []*actor
	parked   []*writeOf // requests that may still arrive
	orphans  []*callOf  // commands of killed processes
	writes   []*writeOf
	bids     []*callOf
	process  uint32
	calls    int
}

// actor is one session: what it does next.
type actor struct {
	process uint32
	c       *callOf
	step    func()
}

func simulate(t testing.TB, seed uint64, workload string, calls int) *simulator {
	s := &simulator{h: newHist(t, workload), rng: rand.New(rand.NewPCG(seed, 7)), now: 20, process: 1, calls: calls}
	for i := range 1 + s.rng.IntN(3) {
		name := fmt.Sprintf("account-%d", i+1)
		if workload == oracle.Auction {
			name = fmt.Sprintf("auction-a%d", i+1)
		}
		s.streams = append(s.streams, name)
		s.h.open(name, 100)
	}
	for range 2 + s.rng.IntN(5) {
		s.sessions = append(s.sessions, s.newActor())
	}
	for s.calls > 0 || slices.ContainsFunc(s.sessions, func(a *actor) bool { return a.c != nil }) {
		s.now++
		a := s.sessions[s.rng.IntN(len(s.sessions))]
		switch {
		case s.rng.IntN(12) == 0 && len(s.parked) > 0:
			s.arrive()
		case a.c != nil && s.rng.IntN(150) == 0:
			s.kill(a)
		case a.c != nil:
			a.step()
		case s.calls > 0:
			s.begin(a)
		}
	}
	for len(s.parked) > 0 { // the quiesce: everything that is still under way arrives, or never will
		s.now++
		s.arrive()
	}
	return s
}

func (s *simulator) newActor() *actor {
	s.process++
	s.h.process(s.process)
	return &actor{process: s.process}
}

// arrive lets a late request take its effect, if its condition still holds.
func (s *simulator) arrive() {
	i := s.rng.IntN(len(s.parked))
	w := s.parked[i]
	s.parked = slices.Delete(s.parked, i, i+1)
	if s.rng.IntN(4) > 0 {
		s.apply(w)
	}
}

// apply is the store's compare-and-swap; it reports whether the write is in the log now.
func (s *simulator) apply(w *writeOf) bool {
	if w.events[0].Version != 0 {
		return true
	}
	if !w.rec.Any && s.h.head(w.rec.Stream) != w.rec.Expected || s.executed(w.rec.Request) {
		return false
	}
	w.land()
	return true
}

// executed is the store's record of requests.
func (s *simulator) executed(request string) bool {
	return slices.ContainsFunc(s.writes, func(w *writeOf) bool { return w.rec.Request == request && w.events[0].Version != 0 })
}

func (s *simulator) kill(a *actor) {
	s.h.kill(a.process, s.now)
	s.orphans = append(s.orphans, a.c)
	for i, o := range s.sessions {
		if o == a {
			s.sessions[i] = s.newActor()
		}
	}
}

func (s *simulator) begin(a *actor) {
	if len(s.orphans) > 0 && s.rng.IntN(2) == 0 {
		o := s.orphans[0]
		s.orphans = s.orphans[1:]
		a.c = s.h.callAs(o.start.CommandID, a.process, 1, s.now, o.start.Name, o.start.Stream, o.start.Body)
		a.c.start.Continued = true
		s.load(a)
		return
	}
	s.calls--
	stream := s.streams[s.rng.IntN(len(s.streams))]
	id := fmt.Sprintf("k%d", s.h.next())
	name, body := account.CommandWithdraw, bankBody(stream, int64(1+s.rng.IntN(60)))
	switch {
	case s.h.info.Workload == oracle.Bank && s.rng.IntN(3) == 0:
		name = account.CommandDeposit
	case s.h.info.Workload == oracle.Auction && len(s.bids) > 0 && s.rng.IntN(5) == 0:
		o := s.bids[s.rng.IntN(len(s.bids))]
		id, stream, name, body = o.start.CommandID, o.start.Stream, o.start.Name, o.start.Body
	case s.h.info.Workload == oracle.Auction && s.rng.IntN(60) == 0:
		name, body = auction.CommandClose, bidBody(stream, "", "", 0)
	case s.h.info.Workload == oracle.Auction:
		bidder := fmt.Sprintf("p%d", s.rng.IntN(4))
		high := s.h.state(stream, s.h.head(stream)).High()
		name, body = auction.CommandBid, bidBody(stream, id, bidder, high-3+s.rng.Int64N(40))
	}
	a.c = s.h.callAs(id, a.process, 1, s.now, name, stream, body)
	if name == auction.CommandBid {
		s.bids = append(s.bids, a.c)
	}
	s.load(a)
}

// load reads the stream: the answer is what it is at one moment between invoke and return.
func (s *simulator) load(a *actor) {
	from, c := s.now, a.c
	a.step = func() {
		k := s.h.head(c.start.Stream)
		a.step = func() {
			c.loadUpTo(k, from, s.now)
			if w := s.found(c, k); w != nil {
				a.step = func() { s.answer(a, w, true) }
				return
			}
			a.step = func() { s.decide(a) }
		}
	}
}

// found looks for the command in what was read.
func (s *simulator) found(c *callOf, k uint64) *writeOf {
	for _, w := range s.writes {
		if w.rec.Request == c.start.CommandID && w.events[0].Version != 0 && w.events[0].Version <= k {
			return w
		}
	}
	return nil
}

func (s *simulator) answer(a *actor, w *writeOf, replayed bool) {
	a.c.answer(s.now, w).Replayed = replayed
	a.c = nil
}

func (s *simulator) decide(a *actor) {
	v := a.c.decide()
	switch {
	case v.Code != "":
		a.c.refuse(s.now)
		a.c = nil
	case v.Replay != nil:
		s.h.t.Fatal("a replay is found by its command")
	default:
		w := a.c.write()
		s.writes = append(s.writes, w)
		s.send(a, w, false)
	}
}

// send tries a write once; open tells whether an earlier try of it may have landed.
func (s *simulator) send(a *actor, w *writeOf, open bool) {
	r := w.try(s.now, 0, eventstore.Unknown, eventstore.LostReply)
	finish := func(outcome eventstore.Outcome, reason eventstore.Reason, then func()) func() {
		return func() {
			r.T, r.Outcome, r.Reason = us(s.now), outcome, reason
			s.h.add(r)
			s.now++
			then()
		}
	}
	unknown := finish(eventstore.Unknown, eventstore.LostReply, func() { s.look(a, w) })
	switch s.rng.IntN(12) {
	case 0: // the request is on its way for long
		s.parked = append(s.parked, w)
		a.step = unknown
	case 1: // it never arrives
		a.step = unknown
	case 2: // refused before it did anything
		a.step = finish(eventstore.Fail, eventstore.Throttled, func() { s.send(a, w, open) })
	default:
		lost := s.rng.IntN(8) == 0
		a.step = func() {
			if first := s.found(a.c, s.h.head(w.rec.Stream)); first != nil && first != w && !lost {
				r.Events, r.First, r.Last, r.Replayed = idsOf(first), first.events[0].Version, first.events[0].Version, true
				a.step = finish(eventstore.OK, eventstore.ReasonNone, func() { s.answer(a, first, true) })
				return
			}
			mine := landed(w) && s.rng.IntN(2) == 0 // the slot is taken, by this very write
			switch now := s.apply(w) && !mine; {
			case lost:
				a.step = unknown
			case now:
				v := w.events[0].Version
				r.Events, r.First, r.Last = idsOf(w), v, v
				a.step = finish(eventstore.OK, eventstore.ReasonNone, func() { s.answer(a, w, false) })
			default:
				r.Head, r.HeadKnown = s.h.head(w.rec.Stream), true
				a.step = finish(eventstore.Fail, eventstore.VersionConflict, func() { s.conflicted(a, w, open) })
			}
		}
	}
}

func idsOf(w *writeOf) []eventstore.EventID {
	var out []eventstore.EventID
	for _, l := range w.events {
		out = append(out, l.ID)
	}
	return out
}

func (s *simulator) conflicted(a *actor, w *writeOf, open bool) {
	if open {
		s.look(a, w)
		return
	}
	lost := 0
	for _, o := range s.writes {
		if o.c == a.c && slices.ContainsFunc(o.tries, func(r *history.Return) bool { return r.Reason == eventstore.VersionConflict }) {
			lost++
		}
	}
	if lost < s.h.info.MaxDecisions {
		s.load(a)
		return
	}
	e := a.c.finish(s.now, history.ResultExhausted)
	e.Code, e.Conflicts = "CONFLICT_EXHAUSTED", uint32(lost)
	a.c = nil
}

// look is the loop after unknown: it reads the slot.
func (s *simulator) look(a *actor, w *writeOf) {
	from := s.now
	a.step = func() {
		k := s.h.head(w.rec.Stream)
		a.step = func() {
			q := a.c.read(w.rec.Expected+1, 0, k, from, s.now)
			note := func(form history.EvidenceForm, outcome eventstore.Outcome) {
				s.h.add(&history.Evidence{Write: w.rec.Write, Call: a.c.start.Call, Read: q.Read, T: us(s.now), Form: form, Outcome: outcome})
			}
			switch {
			case w.events[0].Version != 0 && w.events[0].Version <= k:
				note(history.E1OwnEvent, eventstore.OK)
				a.step = func() { s.answer(a, w, false) }
			case k > w.rec.Expected:
				note(history.E2SlotHeld, eventstore.Fail)
				a.step = func() { s.load(a) }
			case s.rng.IntN(4) == 0: // the deadline
				a.c.finish(s.now, history.ResultUnknown)
				a.c = nil
			default:
				a.step = func() { s.send(a, w, true) }
			}
		}
	}
}

func TestRandomCorrectHistoriesStayGreen(t *testing.T) {
	counted := map[string]int64{}
	for seed := range uint64(60) {
		for _, workload := range []string{oracle.Bank, oracle.Auction} {
			s := simulate(t, seed, workload, 40)
			for slug, r := range expect(t, s.h.run(), nil, nil) {
				for name, n := range r.Evidence {
					counted[slug+"/"+name] += n
				}
			}
			if t.Failed() {
				t.Fatalf("seed %d, %s", seed, workload)
			}
		}
	}
	for _, name := range []string{
		"optimistic-concurrency/equal_expected_overlaps", "optimistic-concurrency/self_conflicts", "no-lost-ack/blind_retries",
		"no-lost-ack/continued_commands", "no-lost-ack/kills_with_tries_open", "no-overdraft/raced_decisions",
		"no-overdraft/refusals_for_funds", "truthful-rejections/exhausted", "read-is-prefix/reads_beside_writes",
		"monotonic-bids/overlapping_bids", "monotonic-bids/equal_amounts", "idempotent-bids/replays",
		"close-is-final/closes_with_bids_in_flight", "close-is-final/bids_after_close", "honest-outcomes/upgrades",
		"failed-means-absent/failed_writes", "truthful-answers/replayed_answers",
	} {
		if counted[name] < 10 {
			t.Errorf("the simulator gave %d opportunities of %s", counted[name], name)
		}
	}
}

// mutation spoils one thing of a correct history; it returns false if there is nothing to spoil.
type mutation struct {
	name  string
	apply func(s *simulator) bool
	// any of these must fire.
	caught []string
}

func pick[T any](s *simulator, all []T, ok func(T) bool) (T, bool) {
	var fit []T
	for _, x := range all {
		if ok(x) {
			fit = append(fit, x)
		}
	}
	if len(fit) == 0 {
		var none T
		return none, false
	}
	return fit[s.rng.IntN(len(fit))], true
}

func landed(w *writeOf) bool { return w.events[0].Version != 0 }

func acked(w *writeOf) bool {
	return landed(w) && slices.ContainsFunc(w.tries, func(r *history.Return) bool { return r.Outcome == eventstore.OK })
}

func TestASingleMutationOfACorrectHistoryIsCaught(t *testing.T) {
	mutations := []mutation{
		{"drop an acknowledged event", func(s *simulator) bool {
			w, ok := pick(s, s.writes, acked)
			if ok {
				s.h.logs[w.rec.Stream] = slices.DeleteFunc(s.h.logs[w.rec.Stream], func(l *history.LoggedEvent) bool { return l == w.events[0] })
			}
			return ok
		}, []string{"no-lost-ack"}},
		{"execute a command again", func(s *simulator) bool {
			w, ok := pick(s, s.writes, landed)
			if !ok {
				return false
			}
			again := w.c.writeEvents([]oracle.Event{{Type: w.events[0].Type, Data: w.events[0].Data}})
			again.rec.Expected = s.h.head(w.rec.Stream)
			again.land().lost(s.now+1, s.now+2)
			return true
		}, []string{"command-once"}},
		{"put an event into the log twice", func(s *simulator) bool {
			w, ok := pick(s, s.writes, landed)
			if ok {
				twice := *w.events[0]
				twice.Version = s.h.head(w.rec.Stream) + 1
				s.h.logs[w.rec.Stream] = append(s.h.logs[w.rec.Stream], &twice)
			}
			return ok
		}, []string{"command-once"}},
		{"change what an event says", func(s *simulator) bool {
			w, ok := pick(s, s.writes, landed)
			if ok {
				w.events[0].Data = append(slices.Clone(w.events[0].Data), ' ')
			}
			return ok
		}, []string{"no-phantom-event"}},
		{"swap two versions", func(s *simulator) bool {
			for _, log := range s.h.logs {
				if n := len(log); n >= 4 {
					i := 2 + s.rng.IntN(n-3)
					log[i].Version, log[i+1].Version = log[i+1].Version, log[i].Version
					return true
				}
			}
			return false
		}, []string{"no-phantom-event"}},
		{"leave a hole in the versions", func(s *simulator) bool {
			for _, log := range s.h.logs {
				if n := len(log); n >= 3 {
					log[n-1].Version++
					return true
				}
			}
			return false
		}, []string{"gapless-versions"}},
		{"call an unknown or acknowledged try failed", func(s *simulator) bool {
			w, ok := pick(s, s.writes, landed)
			if !ok {
				return false
			}
			for _, r := range w.tries {
				r.Outcome, r.Reason, r.Events = eventstore.Fail, eventstore.Rejected, nil
				if r.T == 0 {
					r.T = us(s.now)
					s.h.add(r)
				}
			}
			return true
		}, []string{"failed-means-absent"}},
		{"call a conflict acknowledged", func(s *simulator) bool {
			w, ok := pick(s, s.writes, func(w *writeOf) bool {
				return !landed(w) && slices.ContainsFunc(w.tries, func(r *history.Return) bool { return r.Reason == eventstore.VersionConflict })
			})
			if !ok {
				return false
			}
			r := w.tries[len(w.tries)-1]
			r.Outcome, r.Reason, r.HeadKnown = eventstore.OK, eventstore.ReasonNone, false
			r.Events, r.First, r.Last = idsOf(w), w.rec.Expected+1, w.rec.Expected+1
			if r.T == 0 {
				r.T = us(s.now)
				s.h.add(r)
			}
			return true
		}, []string{"no-lost-ack"}},
		{"answer an accepted command as refused", func(s *simulator) bool {
			w, ok := pick(s, s.writes, func(w *writeOf) bool { return acked(w) && w.c.end != nil && w.c.end.Result == history.ResultOK })
			if ok {
				w.c.end.Result, w.c.end.Code = history.ResultRefused, "INSUFFICIENT_FUNDS"
				w.c.end.Decision = w.c.decision()
			}
			return ok
		}, []string{"failed-means-absent"}},
		{"change the amount of a refusal", func(s *simulator) bool {
			e, ok := pick(s, s.h.records, func(r history.Record) bool {
				e, is := r.(*history.CallEnd)
				return is && e.Result == history.ResultRefused && !e.Decision.Hash.IsZero()
			})
			if ok {
				e.(*history.CallEnd).Have++
			}
			return ok
		}, []string{"truthful-rejections"}},
		{"change the state of an answer", func(s *simulator) bool {
			w, ok := pick(s, s.writes, func(w *writeOf) bool { return acked(w) && w.c.end != nil && w.c.end.Result == history.ResultOK })
			if ok {
				w.c.end.StateHash[3]++
			}
			return ok
		}, []string{"truthful-answers"}},
		{"change the basis of a decision", func(s *simulator) bool {
			w, ok := pick(s, s.writes, landed)
			if ok {
				w.rec.Decision.Hash[3]++
			}
			return ok
		}, []string{"valid-decision"}},
		{"change what a read showed", func(s *simulator) bool {
			q, ok := pick(s, s.h.records, func(r history.Record) bool {
				q, is := r.(*history.Read)
				return is && q.From == 1 && q.T > us(20)
			})
			if ok {
				s.h.fills = append(s.h.fills, func() { q.(*history.Read).Range.Hi++ })
			}
			return ok
		}, []string{"read-is-prefix"}},
		{"report a conflict of a write that won", func(s *simulator) bool {
			w, ok := pick(s, s.writes, func(w *writeOf) bool { return acked(w) && len(w.tries) == 1 })
			if ok {
				r := w.tries[0]
				r.Outcome, r.Reason, r.Events = eventstore.Fail, eventstore.VersionConflict, nil
			}
			return ok
		}, []string{"optimistic-concurrency"}},
	}
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) {
			tried := 0
			for seed := range uint64(30) {
				workload := []string{oracle.Bank, oracle.Auction}[seed%2]
				s := simulate(t, seed, workload, 25)
				if !m.apply(s) {
					continue
				}
				tried++
				got := verdicts(s.h.run())
				for _, slug := range m.caught {
					if got[slug].Count == 0 {
						t.Errorf("seed %d, %s: %s is %s (%s)", seed, workload, slug, got[slug].Verdict, got[slug].Reason)
					}
				}
			}
			if tried < 10 {
				t.Errorf("applied only %d times", tried)
			}
		})
	}
}
