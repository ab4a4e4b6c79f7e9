package invariants

import (
	"flag"
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

// seeds is how many random histories of each workload are judged.
var seeds = flag.Uint64("seeds", 60, "random histories a workload")

// simulator plays a correct application on a correct store, one small step of one session at a time: loads, whole or
// behind a snapshot, decisions, conflicts, lost requests, lost replies, requests that arrive late, kills, continued
// commands, blind appends, batches, bids sent again with the same and with another body, reads of bystanders. Several
// steps may share one instant.
type simulator struct {
	h        *hist
	rng      *rand.Rand
	now      int64
	streams  []string
	sessions []*actor
	parked   []*lateRequest // requests that may still arrive
	orphans  []*callOf      // commands of killed processes, and those that ended unknown
	writes   []*writeOf
	bids     []*callOf
	played   []*callOf
	kept     map[string]uint64 // the version of each stream's snapshot
	process  uint32
	calls    int
}

// lateRequest is a try whose request is on its way for long.
type lateRequest struct {
	w       *writeOf
	session string
}

// actor is one session: what it does next.
type actor struct {
	process uint32
	c       *callOf
	step    func()
}

func simulate(t testing.TB, seed uint64, workload string, calls int) *simulator {
	s := &simulator{
		h: newHist(t, workload), rng: rand.New(rand.NewPCG(seed, 7)), now: 20, process: 1, calls: calls, kept: map[string]uint64{},
	}
	s.h.info.MaxDecisions = 3 + 2*int(seed%2)
	s.h.fault("net", "drop-reply", "writer")
	s.h.fault("late", "park-request", "writer")
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
		s.tick()
		a := s.sessions[s.rng.IntN(len(s.sessions))]
		switch {
		case s.rng.IntN(12) == 0 && len(s.parked) > 0:
			s.arrive()
		case s.rng.IntN(25) == 0:
			s.watch()
		case a.c != nil && s.rng.IntN(150) == 0:
			s.kill(a)
		case a.c != nil:
			a.step()
		case s.calls > 0:
			s.begin(a)
		}
	}
	for len(s.parked) > 0 { // the quiesce: everything that is still under way arrives, or never will
		s.tick()
		s.arrive()
	}
	return s
}

func (s *simulator) tick() { s.now += int64(min(1, s.rng.IntN(3))) }

func (s *simulator) newActor() *actor {
	s.process++
	s.h.process(s.process)
	return &actor{process: s.process}
}

// arrive lets a late request take its effect, if its condition still holds.
func (s *simulator) arrive() {
	i := s.rng.IntN(len(s.parked))
	late := s.parked[i]
	s.parked = slices.Delete(s.parked, i, i+1)
	if s.rng.IntN(4) == 0 {
		return
	}
	landed := history.LandedNo
	if late.w.events[0].Version == 0 && s.apply(late.w) {
		landed = history.LandedYes
	}
	s.h.bite("late", late.session, history.BiteRequestReleased, landed, s.now)
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

// watch is a read outside of any command: strong, or of some earlier state.
func (s *simulator) watch() {
	stream := s.streams[s.rng.IntN(len(s.streams))]
	k := s.h.head(stream)
	q := (&callOf{h: s.h, start: &history.CallStart{Process: 1, Stream: stream}}).read(1, 0, k, s.now-int64(s.rng.IntN(3)), s.now)
	switch s.rng.IntN(3) {
	case 0:
		q.From, q.To = 2, 2+uint64(s.rng.IntN(5))
		s.h.limit(q, min(k, q.To))
	case 1:
		q.Strong = false
		s.h.limit(q, s.rng.Uint64N(k+1))
	}
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
	var name string
	var body []byte
	if s.h.info.Workload == oracle.Bank {
		name, body = account.CommandWithdraw, bankBody(stream, int64(1+s.rng.IntN(60)))
		switch s.rng.IntN(12) {
		case 0, 1, 2:
			name = account.CommandDeposit
		case 3, 4:
			name = account.CommandBlindDeposit
		case 5:
			name, stream = account.CommandOpen, fmt.Sprintf("account-x%d", s.rng.IntN(3))
			body = openBody(stream, int64(1+s.rng.IntN(60)))
		}
	} else {
		name, id, stream, body = s.auctionCommand(id, stream)
	}
	a.c = s.h.callAs(id, a.process, 1, s.now, name, stream, body)
	s.played = append(s.played, a.c)
	if name == auction.CommandBid {
		s.bids = append(s.bids, a.c)
	}
	s.load(a)
}

func (s *simulator) auctionCommand(fresh, on string) (name, id, stream string, body []byte) {
	high := s.h.state(on, s.h.head(on)).High()
	bidder := fmt.Sprintf("p%d", s.rng.IntN(4))
	amount := high - 3 + s.rng.Int64N(40)
	switch n := s.rng.IntN(60); {
	case n < 12 && len(s.bids) > 0: // the same bid again, perhaps while it is under way
		o := s.bids[s.rng.IntN(len(s.bids))].start
		return o.Name, o.CommandID, o.Stream, o.Body
	case n < 18 && len(s.bids) > 0: // its id with another body: a command of its own
		o := s.bids[s.rng.IntN(len(s.bids))].start
		f, _ := oracle.ParseCommand(o.Body)
		return auction.CommandBid, fmt.Sprintf("%s-%s-%d", f.BidID, bidder, amount), o.Stream, bidBody(o.Stream, f.BidID, bidder, amount)
	case n == 59:
		return auction.CommandClose, fresh, on, bidBody(on, "", "", 0)
	}
	return auction.CommandBid, fmt.Sprintf("%s-%s-%d", fresh, bidder, amount), on, bidBody(on, fresh, bidder, amount)
}

// load reads the stream: the answer is what it is at one moment between invoke and return. A call that continues a
// command looks at all of it.
func (s *simulator) load(a *actor) {
	from, c := s.now, a.c
	snapshot := s.kept[c.start.Stream]
	if c.start.Continued || s.rng.IntN(2) == 0 {
		snapshot = 0
	}
	blind := c.start.Name == account.CommandBlindDeposit
	if blind && !c.start.Continued {
		a.step = func() { s.decide(a) }
		return
	}
	a.step = func() {
		k := s.h.head(c.start.Stream)
		a.step = func() {
			if snapshot > 0 {
				c.look, c.kept, c.basis = c.read(snapshot+1, 0, k, from, s.now), snapshot, k
				c.look.Snapshot = snapshot
			} else {
				c.loadUpTo(k, from, s.now)
				c.kept = 0
			}
			if w := s.found(c, snapshot+1, k); w != nil {
				a.step = func() { s.answer(a, w, true) }
				return
			}
			a.step = func() { s.decide(a) }
		}
	}
}

// found looks for the command in what was read.
func (s *simulator) found(c *callOf, from, k uint64) *writeOf {
	for _, w := range s.writes {
		if v := w.events[0].Version; w.rec.Request == c.start.CommandID && v != 0 && from <= v && v <= k {
			return w
		}
	}
	return nil
}

func (s *simulator) answer(a *actor, w *writeOf, replayed bool) {
	e := a.c.answer(s.now, w)
	e.Replayed = replayed
	if w.rec.Any {
		e.StateHash = eventstore.Hash{}
	} else if stream := w.rec.Stream; e.Version%4 == 0 && !replayed {
		s.h.add(&history.SnapshotWrite{Process: a.process, T: us(s.now), Stream: stream, Version: e.Version, State: s.h.state(stream, e.Version).Snapshot()})
		if s.rng.IntN(3) > 0 { // one item a stream, and the last put stays, be it older
			s.kept[stream] = e.Version
		}
	}
	a.c = nil
}

func (s *simulator) decide(a *actor) {
	if a.c.start.Name == account.CommandBlindDeposit {
		a.c.basis = s.h.head(a.c.start.Stream)
		w := a.c.write()
		w.rec.Any, w.rec.Expected, w.rec.Decision = true, 0, eventstore.Decision{Now: 1_000}
		s.writes = append(s.writes, w)
		s.send(a, w, false)
		return
	}
	v := a.c.decide()
	switch {
	case v.Code != "":
		a.c.refuse(s.now)
		a.c = nil
	case v.Replay != nil: // the ledger in the snapshot knows it
		c, from := a.c, s.now
		a.step = func() {
			c.read(v.Replay.Version, v.Replay.Version, v.Replay.Version, from, s.now)
			s.answer(a, s.found(c, v.Replay.Version, v.Replay.Version), true)
		}
	default:
		w := a.c.write()
		s.writes = append(s.writes, w)
		s.send(a, w, false)
	}
}

// end gives up with an outcome that leaves the command to whoever wants to go on with it.
func (s *simulator) end(a *actor, e *history.CallEnd) {
	if s.rng.IntN(2) == 0 {
		s.orphans = append(s.orphans, a.c)
	}
	if e.Result == history.ResultRefused {
		e.Code, e.Retriable = "THROTTLED", true
	}
	a.c = nil
}

// send tries a write once; open tells whether an earlier try of it may have landed.
func (s *simulator) send(a *actor, w *writeOf, open bool) {
	r := w.try(s.now, 0, eventstore.Unknown, eventstore.LostReply)
	finish := func(outcome eventstore.Outcome, reason eventstore.Reason, then func()) func() {
		return func() {
			r.T, r.Outcome, r.Reason = us(s.now), outcome, reason
			s.h.add(r)
			s.tick()
			then()
		}
	}
	unknown := finish(eventstore.Unknown, eventstore.LostReply, func() { s.look(a, w) })
	switch s.rng.IntN(12) {
	case 0: // the request is on its way for long
		s.parked = append(s.parked, &lateRequest{w, r.Session})
		s.h.bite("late", r.Session, history.BiteRequestParked, history.LandedUnknown, s.now)
		a.step = unknown
	case 1: // it never arrives
		s.h.bite("net", r.Session, history.BiteRequestCut, history.LandedNo, s.now)
		a.step = unknown
	case 2: // refused before it did anything
		reason := eventstore.Throttled
		if w.rec.Any {
			reason = eventstore.LostRace
		}
		a.step = finish(eventstore.Fail, reason, func() {
			switch n := s.rng.IntN(8); {
			case n == 0 && !open:
				s.end(a, a.c.finish(s.now, history.ResultRefused))
			case n == 1 && !open && !a.c.start.Continued:
				a.c.finish(s.now, history.ResultFailed)
				a.c = nil
			default:
				s.send(a, w, open)
			}
		})
	default:
		lost := s.rng.IntN(8) == 0
		a.step = func() {
			first := s.found(a.c, 1, s.h.head(w.rec.Stream))
			if first != nil && first != w && !lost {
				r.Events, r.First, r.Last, r.Replayed = idsOf(first), first.events[0].Version, first.events[len(first.events)-1].Version, true
				a.step = finish(eventstore.OK, eventstore.ReasonNone, func() { s.answer(a, first, true) })
				return
			}
			mine := landed(w) && !w.rec.Any && s.rng.IntN(2) == 0 // the slot is taken, by this very write
			switch now := s.apply(w) && !mine; {
			case lost:
				fate := history.LandedNo
				if now {
					fate = history.LandedYes
				}
				s.h.bite("net", r.Session, history.BiteReplyDropped, fate, s.now)
				a.step = unknown
			case now:
				r.Events, r.First, r.Last = idsOf(w), w.events[0].Version, w.events[len(w.events)-1].Version
				r.Replayed = first == w
				a.step = finish(eventstore.OK, eventstore.ReasonNone, func() { s.answer(a, w, false) })
			default:
				r.Head, r.HeadKnown = s.h.head(w.rec.Stream), s.rng.IntN(3) > 0
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
	giveUp := func() { s.end(a, a.c.finish(s.now, history.ResultUnknown)) }
	if w.rec.Any { // it claims no slot: only the store knows
		a.step = func() { s.send(a, w, true) }
		if s.rng.IntN(4) == 0 {
			giveUp()
		}
		return
	}
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
				giveUp()
			default:
				a.step = func() { s.send(a, w, true) }
			}
		}
	}
}

func TestRandomCorrectHistoriesStayGreen(t *testing.T) {
	counted := map[string]int64{}
	for seed := range *seeds {
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
