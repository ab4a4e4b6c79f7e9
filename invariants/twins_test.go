package invariants

import (
	"testing"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/invariants/oracle"
)

const (
	acc = "account-1"
	auc = "auction-a1"
)

// twin is one hand-made history and what has to be said about it.
type twin struct {
	name string
	// workload: bank if empty.
	workload string
	build    func(h *hist)
	// must fire, may fire; every other rule must not.
	must, may []string
}

func runTwins(t *testing.T, twins []twin) {
	for _, tw := range twins {
		t.Run(tw.name, func(t *testing.T) {
			if tw.workload == "" {
				tw.workload = oracle.Bank
			}
			h := newHist(t, tw.workload)
			tw.build(h)
			expect(t, h.run(), tw.must, tw.may)
		})
	}
}

func bank(h *hist)     { h.open(acc, 100) }
func auctions(h *hist) { h.open(auc, 100) }

// race is the schedule that everything is about: two withdrawals of 60 from 100 that loaded the same version.
func race(h *hist) (winner, loser *callOf, won, lost *writeOf) {
	bank(h)
	winner, loser = h.withdraw(1, 20, acc, 60), h.withdraw(2, 20, acc, 60)
	winner.load(21, 23)
	loser.load(21, 24)
	won = winner.write().land().ok(30, 40)
	winner.answer(41, won)
	lost = loser.write()
	return winner, loser, won, lost
}

func TestCorrectHistoriesThatLookWrongStayGreen(t *testing.T) { runTwins(t, goodTwins()) }

func goodTwins() []twin {
	return []twin{
		{name: "the loser of a race reloads and is refused", build: func(h *hist) {
			_, loser, _, lost := race(h)
			lost.conflict(31, 42)
			loser.load(43, 44).refuse(45)
		}},
		{name: "the loser of a race decides again and wins (NC-03)", build: func(h *hist) {
			bank(h)
			a, b := h.withdraw(1, 20, acc, 30), h.withdraw(2, 20, acc, 30)
			a.load(21, 23)
			b.load(21, 24)
			w := a.write().land().ok(30, 40)
			a.answer(41, w)
			b.write().conflict(31, 42)
			b.load(43, 44)
			w = b.write().land().ok(45, 50)
			b.answer(51, w)
		}},
		{name: "the store's head record says where the log ends", build: func(h *hist) {
			bank(h)
			h.deposit(1, 20, acc, 30).done(21)
			h.heads = map[string]uint64{acc: h.head(acc), "account-2": 0}
		}},
		{name: "two withdrawals with equal payloads (NC-21)", build: func(h *hist) {
			bank(h)
			h.withdraw(1, 20, acc, 30).done(21)
			h.deposit(1, 30, acc, 30).done(31)
			h.withdraw(1, 40, acc, 30).done(41)
		}},
		{name: "an unknown write that lands in the quiesce (NC-02)", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write().lost(23, 30)
			c.finish(31, history.ResultUnknown)
			h.withdraw(2, 40, acc, 10).load(41, 42).finish(43, history.ResultUnknown)
			w.land()
		}},
		{name: "an unknown write that never lands", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			c.write().lost(23, 30)
			c.finish(31, history.ResultUnknown)
			h.withdraw(2, 40, acc, 60).done(41)
		}},
		{name: "a conflict with the own event, settled by evidence (NC-04)", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write().land().lost(23, 30).conflict(31, 35)
			w.evidence(history.E1OwnEvent, eventstore.OK, 36, 38)
			c.answer(39, w)
		}},
		{name: "a self-conflict whose process is killed before it knows", build: func(h *hist) {
			bank(h)
			h.process(2)
			c := h.callAs("k", 2, 1, 20, "withdraw", acc, bankBody(acc, 60)).load(21, 22)
			c.write().land().lost(23, 30).conflict(31, 35)
			h.kill(2, 36)
		}},
		{name: "an empty slot is answered by the same write again", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write().lost(23, 30)
			c.read(3, 0, 2, 31, 32)
			w.land().ok(33, 40)
			c.answer(41, w)
		}},
		{name: "the slot of an unknown write is another command's: decided again", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write().lost(23, 30)
			h.withdraw(2, 24, acc, 60).done(25)
			w.evidence(history.E2SlotHeld, eventstore.Fail, 36, 38)
			c.load(36, 38).refuse(40)
		}},
		{name: "a stale eventual read before a conditional append costs a conflict only (NC-05)", build: func(h *hist) {
			bank(h)
			h.deposit(1, 12, acc, 10).done(13)
			c := h.withdraw(2, 30, acc, 60).loadUpTo(2, 31, 32)
			c.look.Strong = false
			c.write().conflict(33, 36)
			c.load(37, 38)
			w := c.write().land().ok(39, 42)
			c.answer(43, w)
		}},
		{name: "throttled tries of a write that then succeeds (NC-13)", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write().fail(23, 24, eventstore.Throttled).fail(25, 26, eventstore.TransactionConflict).land().ok(27, 30)
			c.answer(31, w)
		}},
		{name: "acknowledged, then the store is killed, then still there (NC-18)", build: func(h *hist) {
			bank(h)
			h.withdraw(1, 20, acc, 60).done(21)
			h.fault("kill", "kill-store", "store")
			h.bite("kill", "", history.BiteKilled, history.LandedUnknown, 40)
			h.withdraw(1, 50, acc, 10).done(51)
		}},
		{name: "holes in the positions for ever (NC-01)", build: func(h *hist) {
			w := h.open(acc, 100)
			w.events[0].Position.Minor, w.events[1].Position.Minor = 3, 9
			w.tries[0].Positions = []eventstore.Position{{Minor: 3}, {Minor: 9}}
		}},
		{name: "a repeated request is answered with the first result, made by another process", build: func(h *hist) {
			bank(h)
			h.process(2)
			first := h.callAs("k", 2, 1, 20, "withdraw", acc, bankBody(acc, 60)).load(21, 22)
			w := first.write().land().lost(23, 30)
			h.kill(2, 31)
			c := h.callAs("k", 1, 1, 40, "withdraw", acc, bankBody(acc, 60))
			c.start.Continued = true
			c.loadUpTo(2, 20, 20) // before the first write was there
			again := c.write()
			r := again.try(41, 45, eventstore.OK, eventstore.ReasonNone)
			r.Events, r.First, r.Last, r.Replayed = []eventstore.EventID{w.events[0].ID}, 3, 3, true
			c.answer(46, w).Replayed = true
		}},
		{name: "a command continued by another process is found in the stream", build: func(h *hist) {
			bank(h)
			h.process(2)
			first := h.callAs("k", 2, 1, 20, "withdraw", acc, bankBody(acc, 60)).load(21, 22)
			w := first.write().land()
			w.try(23, 0, eventstore.Unknown, eventstore.ReasonNone)
			h.kill(2, 31)
			c := h.callAs("k", 1, 1, 40, "withdraw", acc, bankBody(acc, 60))
			c.start.Continued = true
			c.load(41, 42)
			c.answer(43, w)
		}},
		{name: "an earlier call failed, a later one succeeds", build: func(h *hist) {
			bank(h)
			c := h.callAs("k", 1, 1, 20, "withdraw", acc, bankBody(acc, 60)).load(21, 22)
			c.write().fail(23, 24, eventstore.Rejected)
			c.finish(25, history.ResultFailed)
			h.callAs("k", 1, 1, 30, "withdraw", acc, bankBody(acc, 60)).done(31)
		}},
		{name: "a retriable answer, then the command succeeds", build: func(h *hist) {
			bank(h)
			c := h.callAs("k", 1, 1, 20, "withdraw", acc, bankBody(acc, 60)).load(21, 22)
			w := c.write().lost(23, 24)
			e := c.finish(25, history.ResultRefused)
			e.Code, e.Retriable = "THROTTLED", true
			w.land()
		}},
		{name: "exhausted after five true conflicts", build: func(h *hist) { exhausted(h, 5) }},
		{name: "a blind deposit among the others, repeated after a lost reply", build: func(h *hist) {
			bank(h)
			blindDeposit(h, 20, 5).lost(21, 25).ok(26, 30)
			h.withdraw(1, 40, acc, 60).done(41)
		}},
		{name: "a blind deposit of nothing is refused without a state", build: func(h *hist) {
			bank(h)
			c := h.call(1, 20, "blind-deposit", acc, bankBody(acc, 0))
			e := c.finish(21, history.ResultRefused)
			e.Code, e.Decision.Now = "INVALID_AMOUNT", 1
		}},
		{name: "a snapshot and a tail", build: func(h *hist) {
			bank(h)
			h.withdraw(1, 20, acc, 10).done(21)
			snapshot(h, 3, 30)
			c := h.withdraw(1, 40, acc, 10).loadTail(3, 41, 42)
			w := c.write().land().ok(43, 45)
			c.answer(46, w)
		}},
		{name: "a read that began before an acknowledgement may miss the event", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60)
			w := c.load(21, 22).write().land().ok(23, 30)
			c.answer(31, w)
			h.withdraw(2, 20, acc, 1).loadUpTo(2, 30, 40).finish(41, history.ResultUnknown) // touches at 30: not before
		}},
		{name: "a reply that tells of no commit was cut, the fail is honest", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write().fail(23, 30, eventstore.Rejected)
			h.fault("cut", "black-hole", "writer")
			h.bite("cut", w.tries[0].Session, history.BiteReplyDropped, history.LandedNo, 25)
			c.finish(31, history.ResultFailed)
		}},

		{name: "a bid, its replay, a losing bid and its replay (NC-11)", workload: oracle.Auction, build: func(h *hist) {
			auctions(h)
			w := h.bid(1, 20, auc, "b1", "ann", 500).done(21)
			h.bid(2, 30, auc, "b2", "bob", 300).load(31, 32).refuse(33)
			replay(h.bid(1, 40, auc, "b1", "ann", 500), w, 41)
			h.bid(2, 50, auc, "b2", "bob", 300).load(51, 52).refuse(53)
			h.bid(2, 60, auc, "b1", "ann", 700).load(61, 62).refuse(63) // the same id, another body
		}},
		{name: "overlapping bids, equal bids and a close", workload: oracle.Auction, build: func(h *hist) {
			auctions(h)
			a, b := h.bid(1, 20, auc, "b1", "ann", 500), h.bid(2, 20, auc, "b2", "bob", 500)
			a.load(21, 22)
			b.load(21, 22)
			w := a.write().land().ok(23, 30)
			b.write().conflict(23, 31)
			a.answer(31, w)
			b.load(32, 33).refuse(34)
			h.closing(3, 40, auc).done(41)
			h.bid(2, 60, auc, "b3", "bob", 900).load(61, 62).refuse(63)
			replay(h.bid(1, 70, auc, "b1", "ann", 500), w, 71)
		}},
		{name: "a bid on an auction that nobody has been told of is answered closed, and accepted later", workload: oracle.Auction, build: func(h *hist) {
			h.bid(1, 1, auc, "b1", "ann", 500).load(1, 2).refuse(3)
			auctions(h)
			h.bid(1, 20, auc, "b1", "ann", 500).done(21)
		}},
		{name: "another body overlapping the acceptance is a bid of its own", workload: oracle.Auction, build: func(h *hist) {
			auctions(h)
			other := h.bid(2, 20, auc, "b1", "ann", 90).loadUpTo(1, 21, 22)
			h.bid(1, 20, auc, "b1", "ann", 500).done(21)
			other.refuse(40)
		}},
		{name: "a bid in flight while the auction closes", workload: oracle.Auction, build: func(h *hist) {
			auctions(h)
			bid := h.bid(1, 20, auc, "b1", "ann", 500).load(21, 22)
			c := h.closing(2, 20, auc).load(21, 22)
			w := bid.write().land().lost(23, 60)
			c.write().conflict(24, 30)
			c.load(31, 32)
			k := c.write().land().ok(33, 36)
			c.answer(37, k)
			w.evidence(history.E1OwnEvent, eventstore.OK, 61, 62)
			bid.answer(63, w)
		}},
	}
}

// replay answers a bid from the ledger: the first acceptance.
func replay(c *callOf, w *writeOf, t int64) *history.CallEnd {
	c.load(t, t+1)
	e := c.answer(t+2, w)
	e.Replayed = true
	return e
}

func blindDeposit(h *hist, t, amount int64) *writeOf {
	c := h.call(7, t, "blind-deposit", acc, bankBody(acc, amount))
	c.basis = h.head(acc)
	w := c.write()
	w.rec.Any, w.rec.Expected = true, 0
	w.rec.Decision = eventstore.Decision{Now: 1_000}
	return w.land()
}

func snapshot(h *hist, v uint64, t int64) *history.SnapshotWrite {
	s := &history.SnapshotWrite{Process: 1, T: us(t), Stream: acc, Version: v, State: h.state(acc, v).Snapshot()}
	h.add(s)
	return s
}

// exhausted is a withdrawal that loses n races and gives up.
func exhausted(h *hist, n int) (*callOf, *history.CallEnd) {
	bank(h)
	c := h.withdraw(1, 20, acc, 10)
	for i := range n {
		t := 100 * int64(i+1)
		c.load(t, t+1)
		h.deposit(2, t+2, acc, 1).done(t + 3)
		c.write().conflict(t+3, t+20)
	}
	e := c.finish(1000, history.ResultExhausted)
	e.Code, e.Conflicts = "CONFLICT_EXHAUSTED", uint32(n)
	return c, e
}

func TestWrongHistoriesAreViolatedByTheRuleThatNamesThem(t *testing.T) { runTwins(t, badTwins()) }

func badTwins() []twin {
	return []twin{
		// no-lost-ack
		{name: "an acknowledged event is missing", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write().landAt(3).ok(23, 30)
			c.answer(31, w)
			h.logs[acc] = h.logs[acc][:2]
		}, must: []string{"no-lost-ack"}},
		{name: "an event known by evidence is missing", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write().landAt(3).lost(23, 30)
			e := w.evidence(history.E1OwnEvent, eventstore.OK, 31, 32)
			e.Read = 0
			c.finish(33, history.ResultUnknown)
			h.logs[acc] = h.logs[acc][:2]
			h.edit = append(h.edit, withoutRead(3))
		}, must: []string{"no-lost-ack"}},
		{name: "an acknowledged event has another payload", build: func(h *hist) {
			bank(h)
			w := h.withdraw(1, 20, acc, 60).done(21)
			change(w, `{"account":"1","amount":61,"at":"1970-01-01T00:00:01.000Z"}`)
		}, must: []string{"no-lost-ack", "no-phantom-event"}, may: []string{"truthful-answers"}},
		{name: "an event stands at another version than acknowledged", build: func(h *hist) {
			bank(h)
			w := h.withdraw(1, 20, acc, 60).done(21)
			w.tries[0].First, w.tries[0].Last = 4, 4
		}, must: []string{"no-lost-ack"}},
		{name: "an event stands at another position than acknowledged", build: func(h *hist) {
			bank(h)
			w := h.withdraw(1, 20, acc, 60).done(21)
			w.events[0].Position.Minor = 7
			w.tries[0].Positions = []eventstore.Position{{Minor: 8}}
		}, must: []string{"no-lost-ack"}},
		{name: "two ok answers of one write disagree", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write().land().ok(23, 30).ok(31, 35)
			c.answer(36, w)
			w.tries[1].First, w.tries[1].Last = 4, 4
		}, must: []string{"no-lost-ack"}},
		{name: "an event stands in another stream than acknowledged", build: func(h *hist) {
			bank(h)
			h.open("account-2", 5)
			w := h.withdraw(1, 20, acc, 60).done(21)
			h.logs[acc] = h.logs[acc][:2]
			w.events[0].Stream = "account-2"
			h.logs["account-2"] = append(h.logs["account-2"], w.events[0])
		}, must: []string{"no-lost-ack", "no-phantom-event"}, may: []string{"no-overdraft", "valid-decision"}},
		{name: "an ok answer names an event of another command", build: func(h *hist) {
			bank(h)
			other := h.withdraw(2, 12, acc, 10).done(13)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			r := c.write().try(23, 30, eventstore.OK, eventstore.ReasonNone)
			r.Events, r.First, r.Last = []eventstore.EventID{other.events[0].ID}, 3, 3
			c.answer(31, other)
		}, must: []string{"no-lost-ack"}},
		{name: "a caller is answered ok with an event that nobody wrote", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			e := c.finish(31, history.ResultOK)
			e.Events, e.Version = []eventstore.EventID{h.eventID()}, 3
		}, must: []string{"no-lost-ack"}},

		// no-phantom-event
		{name: "an event that nobody wrote", build: func(h *hist) {
			bank(h)
			w := h.withdraw(1, 20, acc, 60).load(21, 22).write().land()
			w.events[0].ID = h.eventID()
		}, must: []string{"no-phantom-event"}},
		{name: "an event that stands at another version than its write asked for", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			h.deposit(2, 23, acc, 1).done(24)
			c.write().land().lost(33, 40)
			c.finish(41, history.ResultUnknown)
		}, must: []string{"no-phantom-event", "optimistic-concurrency", "valid-decision"}},
		{name: "an event of two recorded writes", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write().land().lost(23, 24)
			twice := c.write()
			twice.rec.Events[0].ID = w.events[0].ID
			twice.lost(25, 26)
			c.finish(27, history.ResultUnknown)
		}, must: []string{"no-phantom-event"}},

		// gapless-versions
		{name: "the store's head record is behind its log", build: func(h *hist) { // CV-PG-26
			bank(h)
			h.deposit(1, 20, acc, 30).done(21)
			h.heads = map[string]uint64{acc: h.head(acc) - 1}
		}, must: []string{"gapless-versions"}},
		{name: "the store's head record is ahead of its log", build: func(h *hist) {
			bank(h)
			h.heads = map[string]uint64{acc: h.head(acc) + 1}
		}, must: []string{"gapless-versions"}},
		{name: "the store has a head record of a stream without events", build: func(h *hist) {
			bank(h)
			h.heads = map[string]uint64{acc: h.head(acc), "account-2": 1}
		}, must: []string{"gapless-versions"}},
		{name: "a hole in the versions", build: func(h *hist) {
			bank(h)
			h.withdraw(1, 20, acc, 10).done(21)
			h.withdraw(1, 40, acc, 10).done(41)
			h.logs[acc] = append(h.logs[acc][:2], h.logs[acc][3])
		}, must: []string{"gapless-versions", "no-lost-ack"}, may: []string{"valid-decision", "truthful-answers", "read-is-prefix", "optimistic-concurrency"}},

		// optimistic-concurrency (a), gapless, immutable, no-overdraft: CV-PG-14
		{name: "two writes win the same version", build: func(h *hist) {
			_, loser, _, lost := race(h)
			lost.landAt(3).ok(31, 42)
			loser.answer(43, lost)
			loser.end.StateHash = h.firstAnswer().StateHash // both saw 40
		}, must: []string{"optimistic-concurrency", "gapless-versions", "immutable-events", "no-overdraft", "truthful-answers"},
			may: []string{"read-is-prefix"}},
		// (b)
		{name: "a conflict although the slot stayed empty", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			c.write().conflict(23, 24)
			c.load(25, 26)
			c.finish(27, history.ResultUnknown)
		}, must: []string{"optimistic-concurrency"}},
		{name: "a conflict with an event that was sent only later", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			c.write().conflict(23, 24)
			c.finish(25, history.ResultUnknown)
			h.withdraw(1, 30, acc, 60).done(31)
		}, must: []string{"optimistic-concurrency"}},
		{name: "a conflict of a blind append", build: func(h *hist) {
			bank(h)
			blindDeposit(h, 20, 5).conflict(21, 22).ok(23, 24)
		}, must: []string{"optimistic-concurrency"}},
		{name: "a conflict whose only witness is its own single try", build: func(h *hist) { // CV-DY-02
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			c.write().land().conflict(23, 30)
			c.finish(31, history.ResultUnknown)
		}, must: []string{"optimistic-concurrency", "honest-outcomes", "failed-means-absent"}},
		{name: "a conflict that names a head below, though more had been acknowledged", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write()
			r := w.try(23, 24, eventstore.Fail, eventstore.VersionConflict)
			r.Head, r.HeadKnown = 1, true
			c.finish(25, history.ResultUnknown)
		}, must: []string{"optimistic-concurrency"}},
		{name: "a self-conflict answered refused", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			c.write().land().lost(23, 30).conflict(31, 35)
			c.load(36, 37).refuse(38)
		}, must: []string{"optimistic-concurrency", "failed-means-absent"}},
		// (c), (d)
		{name: "an append ahead of the head is accepted", build: func(h *hist) { // CV-PG-20
			bank(h)
			c := h.deposit(1, 20, acc, 60).load(21, 22)
			w := c.write()
			w.rec.Expected = 5
			w.landAt(6).ok(23, 30)
			c.finish(31, history.ResultUnknown)
		}, must: []string{"optimistic-concurrency", "gapless-versions", "valid-decision"}},

		// linearizable-stream
		{name: "a later write stands before an acknowledged one", build: func(h *hist) {
			bank(h)
			a := blindDeposit(h, 20, 1)
			b := blindDeposit(h, 30, 2)
			a.events[0].Version, b.events[0].Version = 4, 3
			a.ok(21, 25)
			b.ok(31, 35)
		}, must: []string{"linearizable-stream"}},

		// read-is-prefix
		{name: "a strong read misses an acknowledged event", build: func(h *hist) {
			bank(h)
			h.withdraw(1, 20, acc, 60).done(21)
			h.withdraw(2, 30, acc, 1).loadUpTo(2, 30, 40).finish(41, history.ResultUnknown)
		}, must: []string{"read-is-prefix"}},
		{name: "a bounded strong read misses an acknowledged event of its range", build: func(h *hist) {
			bank(h)
			h.withdraw(1, 20, acc, 60).done(21)
			h.withdraw(1, 30, acc, 1).done(31)
			h.withdraw(2, 50, acc, 1).read(3, 3, 2, 51, 52)
		}, must: []string{"read-is-prefix"}},
		{name: "a read shows an event before it was sent", build: func(h *hist) {
			bank(h)
			q := h.withdraw(2, 12, acc, 1).read(1, 0, 3, 13, 14)
			q.Strong = false
			h.withdraw(1, 20, acc, 60).done(21)
		}, must: []string{"read-is-prefix"}},
		{name: "a read shows another event", build: func(h *hist) {
			bank(h)
			q := h.withdraw(2, 12, acc, 1).read(1, 0, 2, 13, 14)
			h.fills = append(h.fills, func() { q.Range.Lo++ })
		}, must: []string{"read-is-prefix", "immutable-events"}},
		{name: "a read leaves an event out", build: func(h *hist) {
			bank(h)
			h.withdraw(1, 20, acc, 10).done(21)
			q := h.withdraw(2, 32, acc, 1).read(1, 0, 3, 33, 34)
			h.fills = append(h.fills, func() { q.Count-- })
		}, must: []string{"read-is-prefix"}},
		{name: "a read goes beyond its range", build: func(h *hist) {
			bank(h)
			h.withdraw(1, 20, acc, 10).done(21)
			q := h.withdraw(2, 32, acc, 1).read(1, 0, 3, 33, 34)
			q.To = 2
		}, must: []string{"read-is-prefix"}},
		{name: "a session sees less than it had seen", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			c.write().land().lost(23, 90) // never acknowledged
			c.finish(91, history.ResultUnknown)
			s := h.withdraw(2, 30, acc, 1)
			s.read(1, 0, 3, 31, 32)
			s.read(1, 0, 2, 33, 34)
		}, must: []string{"read-is-prefix"}},

		// immutable-events: CV-PG-18, CV-DY-01
		{name: "an acknowledged slot is taken again", build: func(h *hist) {
			_, loser, won, lost := race(h)
			h.logs[acc] = h.logs[acc][:2]
			lost.landAt(3).ok(31, 42)
			loser.answer(43, lost)
			_ = won
		}, must: []string{"no-lost-ack", "immutable-events", "optimistic-concurrency"}, may: []string{"truthful-answers"}},
		{name: "one version was acknowledged as two events, and none of them is there", build: func(h *hist) {
			_, loser, _, lost := race(h)
			lost.landAt(3).ok(31, 42)
			loser.answer(43, lost)
			h.logs[acc] = h.logs[acc][:2]
		}, must: []string{"no-lost-ack", "immutable-events", "optimistic-concurrency"}},

		// atomic-batch
		{name: "half a batch is in the log", build: func(h *hist) {
			w := h.open(acc, 100)
			w.tries[0].Outcome, w.tries[0].Reason, w.tries[0].Events = eventstore.Unknown, eventstore.LostReply, nil
			w.c.end.Result, w.c.end.Events = history.ResultUnknown, nil
			h.logs[acc] = h.logs[acc][:1]
		}, must: []string{"atomic-batch"}},
		{name: "a batch stands apart", build: func(h *hist) {
			w := h.open(acc, 100)
			w.tries[0].Outcome, w.tries[0].Reason, w.tries[0].Events = eventstore.Unknown, eventstore.LostReply, nil
			w.c.end.Result, w.c.end.Events = history.ResultUnknown, nil
			w.events[1].Version = 3
			x := h.deposit(1, 20, acc, 5)
			x.basis = 1
			d := x.write().landAt(2).lost(21, 22)
			x.finish(23, history.ResultUnknown)
			_ = d
		}, must: []string{"atomic-batch", "no-phantom-event", "optimistic-concurrency"}},
		{name: "a strong read shows half a batch", build: func(h *hist) {
			bank(h)
			h.withdraw(2, 3, acc, 1).read(1, 0, 1, 5, 6) // while the opening is in flight
		}, must: []string{"atomic-batch"}},

		// failed-means-absent
		{name: "a write all of whose tries failed is in the log", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			c.write().land().fail(23, 24, eventstore.Rejected)
			c.finish(25, history.ResultUnknown)
		}, must: []string{"failed-means-absent", "honest-outcomes"}},
		{name: "a write that was never sent is in the log", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			c.write().land()
			c.finish(25, history.ResultUnknown)
		}, must: []string{"failed-means-absent", "honest-outcomes"}},
		{name: "a write that failed for good is in the log", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write().conflict(23, 24)
			h.withdraw(2, 25, acc, 10).done(26)
			w.land().lost(40, 50) // sent again with its old number, and accepted
			c.finish(51, history.ResultUnknown)
		}, must: []string{"failed-means-absent", "honest-outcomes", "optimistic-concurrency", "no-phantom-event", "valid-decision"}, may: []string{"no-overdraft"}},
		{name: "a write excluded by evidence is in the log", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write().lost(23, 30)
			other := h.withdraw(2, 24, acc, 10).done(25)
			_ = other
			w.evidence(history.E2SlotHeld, eventstore.Fail, 36, 38)
			w.land()
			c.finish(41, history.ResultUnknown)
		}, must: []string{"failed-means-absent", "honest-outcomes", "optimistic-concurrency", "no-phantom-event", "valid-decision"}},
		{name: "answered refused although executed", build: func(h *hist) { // CV-PG-31
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			c.write().land().lost(23, 30)
			c.load(31, 32).refuse(33)
		}, must: []string{"failed-means-absent"}},
		{name: "answered refused although an earlier, unanswered call was executed", build: func(h *hist) {
			bank(h)
			h.process(2)
			c := h.callAs("k", 2, 1, 20, "withdraw", acc, bankBody(acc, 60)).load(21, 22)
			c.write().land().try(23, 0, eventstore.Unknown, eventstore.ReasonNone)
			h.kill(2, 30)
			h.callAs("k", 1, 1, 40, "withdraw", acc, bankBody(acc, 60)).load(41, 42).refuse(43)
		}, must: []string{"failed-means-absent"}},
		{name: "answered failed for good although executed", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			c.write().land().lost(23, 30)
			c.finish(33, history.ResultFailed)
		}, must: []string{"failed-means-absent"}},

		// command-once
		{name: "a command runs again with new ids after a lost reply", build: func(h *hist) { // CV-PG-17
			bank(h)
			c := h.withdraw(1, 20, acc, 30).load(21, 22)
			c.write().land().lost(23, 30)
			c.load(31, 32)
			w := c.write().land().ok(33, 35)
			c.answer(36, w)
		}, must: []string{"command-once"}},
		{name: "an event is in the log twice", build: func(h *hist) {
			bank(h)
			w := h.withdraw(1, 20, acc, 30).done(21)
			twice := *w.events[0]
			twice.Version = 4
			h.logs[acc] = append(h.logs[acc], &twice)
		}, must: []string{"command-once", "no-phantom-event"}},
		{name: "a blind append is done again elsewhere and answered with the second place", build: func(h *hist) { // CV-PG-25
			bank(h)
			w := blindDeposit(h, 20, 5).ok(21, 30)
			twice := *w.events[0]
			twice.Version++
			h.logs[acc] = append(h.logs[acc], &twice)
			w.tries[0].First, w.tries[0].Last = twice.Version, twice.Version
		}, must: []string{"command-once"}},
		{name: "a blind append is answered with a place where nothing of it stands", build: func(h *hist) {
			bank(h)
			w := blindDeposit(h, 20, 5).ok(21, 30)
			twice := *w.events[0]
			twice.Version++
			h.logs[acc] = append(h.logs[acc], &twice)
			w.tries[0].First, w.tries[0].Last = 9, 9
		}, must: []string{"command-once", "no-lost-ack"}},
		{name: "a continued command is executed again", build: func(h *hist) { // CV-PG-32
			bank(h)
			h.process(2)
			c := h.callAs("k", 2, 1, 20, "withdraw", acc, bankBody(acc, 30)).load(21, 22)
			c.write().land().lost(23, 30)
			h.kill(2, 31)
			snapshot(h, 3, 32)
			c = h.callAs("k", 1, 1, 40, "withdraw", acc, bankBody(acc, 30)).loadTail(3, 41, 42)
			w := c.write().land().ok(43, 45)
			c.answer(46, w)
		}, must: []string{"command-once"}},

		// valid-decision
		{name: "an old decision is appended with a bumped number", build: func(h *hist) { // CV-PG-16
			_, loser, _, lost := race(h)
			lost.conflict(31, 42)
			again := loser.writeEvents(loser.decide().Events)
			again.rec.Expected = 3
			again.land().ok(43, 50)
			loser.answer(51, again)
			loser.end.StateHash = h.firstAnswer().StateHash
		}, must: []string{"valid-decision", "truthful-answers"}, may: []string{"no-overdraft"}},
		{name: "a write was decided on a state that the log does not have", build: func(h *hist) {
			bank(h)
			w := h.withdraw(1, 20, acc, 30).done(21)
			w.rec.Decision.Hash[0]++
		}, must: []string{"valid-decision"}},
		{name: "a write appends something else than what was decided", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 30).load(21, 22)
			v := c.decide()
			v.Events[0].Data = []byte(`{"account":"1","amount":3,"at":"1970-01-01T00:00:01.000Z"}`)
			w := c.writeEvents(v.Events).land().ok(23, 25)
			c.answer(26, w)
		}, must: []string{"valid-decision"}},

		// no-overdraft alone: two blind decisions that no version guards
		{name: "a balance below zero by a write without a basis", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write()
			w.rec.Decision.Hash = eventstore.Hash{}
			w.land().ok(23, 30)
			v := c.writeEvents(c.decide().Events)
			v.rec.Call = h.withdraw(2, 30, acc, 60).start.Call
			v.rec.Any, v.rec.Decision = true, eventstore.Decision{}
			v.events[0].Meta.CommandID = "" // the store keeps none
			v.land().ok(31, 35)
		}, must: []string{"no-overdraft"}},

		// truthful-rejections
		{name: "(a) refused on a state that the log does not have", build: func(h *hist) {
			bank(h)
			h.withdraw(1, 20, acc, 200).load(21, 22).refuse(23).Decision.Hash[0]++
		}, must: []string{"truthful-rejections"}},
		{name: "(b) refused although the money was there", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			e := c.finish(23, history.ResultRefused)
			e.Code, e.Have, e.Want, e.Decision = codeInsufficientFunds, 100, 60, c.decision()
		}, must: []string{"truthful-rejections"}},
		{name: "(b) refused with another code", build: func(h *hist) {
			bank(h)
			h.withdraw(1, 20, acc, 200).load(21, 22).refuse(23).Code = "NOT_OPEN"
		}, must: []string{"truthful-rejections"}},
		{name: "(b) refused with another balance", build: func(h *hist) {
			bank(h)
			h.withdraw(1, 20, acc, 200).load(21, 22).refuse(23).Have = 99
		}, must: []string{"truthful-rejections"}},
		{name: "(c) refused on a state that was no longer current", build: func(h *hist) {
			bank(h)
			h.deposit(1, 20, acc, 500).done(21)
			c := h.withdraw(2, 30, acc, 200).loadUpTo(2, 31, 32)
			c.look.Strong = false // an eventual load, and fresh refusals are promised
			c.refuse(33)
		}, must: []string{"truthful-rejections"}},
		{name: "(c) refused on a state from after its read", build: func(h *hist) {
			bank(h)
			c := h.withdraw(2, 12, acc, 60).loadUpTo(2, 13, 14)
			h.withdraw(1, 20, acc, 60).done(21)
			c.basis = 3
			c.refuse(33)
		}, must: []string{"truthful-rejections"}},
		{name: "a final refusal that invites a retry", build: func(h *hist) {
			bank(h)
			h.withdraw(1, 20, acc, 200).load(21, 22).refuse(23).Retriable = true
		}, must: []string{"truthful-rejections"}},
		{name: "throttled without an invitation to retry", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 20)
			c.finish(23, history.ResultRefused).Code = "THROTTLED"
		}, must: []string{"truthful-rejections"}},
		{name: "exhausted after four conflicts", build: func(h *hist) { exhausted(h, 4) }, must: []string{"truthful-rejections"}},
		{name: "exhausted with a write left unknown", build: func(h *hist) {
			c, _ := exhausted(h, 5)
			c.write().lost(900, 910)
		}, must: []string{"truthful-rejections"}},
		{name: "exhausted with a conflict that was none", build: func(h *hist) {
			c, _ := exhausted(h, 4)
			c.load(900, 901)
			c.write().conflict(902, 903)
		}, must: []string{"truthful-rejections", "optimistic-concurrency"}},
		{name: "exhausted by the own event", build: func(h *hist) {
			c, _ := exhausted(h, 4)
			c.load(900, 901)
			c.write().land().lost(902, 903).conflict(904, 905)
		}, must: []string{"truthful-rejections", "optimistic-concurrency", "failed-means-absent"}},

		// truthful-answers
		{name: "an answer shows a state that the log does not fold to", build: func(h *hist) {
			bank(h)
			w := h.withdraw(1, 20, acc, 30).done(21)
			w.c.end.StateHash[0]++
		}, must: []string{"truthful-answers"}},

		// snapshot-equals-fold
		{name: "a snapshot with another balance", build: func(h *hist) {
			bank(h)
			s := snapshot(h, 2, 20)
			s.State[18]++
		}, must: []string{"snapshot-equals-fold"}},
		{name: "a snapshot ahead of the log", build: func(h *hist) {
			bank(h)
			snapshot(h, 2, 20).Version = 3
		}, must: []string{"snapshot-equals-fold"}},
		{name: "a load from a snapshot that is no full replay", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 40, acc, 10).loadTail(2, 41, 42)
			w := c.write()
			w.rec.Decision.Hash[0]++
			w.lost(43, 44)
			c.finish(45, history.ResultUnknown)
		}, must: []string{"snapshot-equals-fold"}},

		// honest-outcomes
		{name: "a commit whose reply was cut is reported as failed", build: func(h *hist) { // CV-PG-19
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write().land().fail(23, 30, eventstore.Rejected)
			h.fault("cut", "drop-reply", "writer")
			h.bite("cut", w.tries[0].Session, history.BiteReplyDropped, history.LandedYes, 25)
			c.finish(31, history.ResultFailed)
		}, must: []string{"honest-outcomes", "failed-means-absent"}},
		{name: "a commit whose reply was cut is reported as ok", build: func(h *hist) {
			bank(h)
			w := h.withdraw(1, 20, acc, 60).done(21)
			h.fault("cut", "drop-reply", "writer")
			h.bite("cut", w.tries[0].Session, history.BiteReplyDropped, history.LandedYes, 24)
		}, must: []string{"honest-outcomes"}},
		{name: "an ok while the reply was held", build: func(h *hist) {
			bank(h)
			w := h.withdraw(1, 20, acc, 60).done(21)
			h.fault("hold", "hold-reply", "writer")
			h.bite("hold", w.tries[0].Session, history.BiteReplyHeld, history.LandedYes, 60).Since = us(24)
			h.add(&history.FaultEnd{ID: "hold", T: us(59), Bit: true, Count: 1})
		}, must: []string{"honest-outcomes"}},
		{name: "a caller is answered ok, though nothing said so", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write().land().lost(23, 30)
			c.answer(31, w)
		}, must: []string{"honest-outcomes"}},
		{name: "an own event is no reason for fail", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write().lost(23, 30)
			h.withdraw(2, 24, acc, 10).done(25)
			w.evidence(history.E1OwnEvent, eventstore.Fail, 36, 38)
			c.finish(41, history.ResultUnknown)
		}, must: []string{"honest-outcomes"}},
		{name: "an empty slot proves nothing", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			c.write().lost(23, 30).evidence(history.E2SlotHeld, eventstore.Fail, 36, 38)
			c.finish(41, history.ResultUnknown)
		}, must: []string{"honest-outcomes"}},
		{name: "an eventual read proves nothing", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write().land().lost(23, 30)
			w.evidence(history.E1OwnEvent, eventstore.OK, 36, 38)
			c.finish(41, history.ResultUnknown)
			h.edit = append(h.edit, func(rs []history.Record) []history.Record {
				for _, r := range rs {
					if q, ok := r.(*history.Read); ok && q.From == 3 {
						q.Strong = false
					}
				}
				return rs
			})
		}, must: []string{"honest-outcomes"}},
		{name: "a blind append claims no slot", build: func(h *hist) {
			bank(h)
			w := blindDeposit(h, 20, 5).lost(21, 22)
			w.evidence(history.E2SlotHeld, eventstore.OK, 23, 24)
		}, must: []string{"honest-outcomes"}},

		// monotonic-bids
		{name: "(a) two bids of one amount", workload: oracle.Auction, build: func(h *hist) {
			_, b := rivals(h, 500, 500)
			b.ok(23, 31)
		}, must: []string{"monotonic-bids"}, may: []string{"valid-decision"}},
		{name: "(a) a bid below the opening price", workload: oracle.Auction, build: func(h *hist) {
			auctions(h)
			forced(h, 1, 20, "b1", "ann", 90).land().ok(23, 30)
		}, must: []string{"monotonic-bids"}, may: []string{"valid-decision"}},
		{name: "(c) and (e) a lower bid after a higher one", workload: oracle.Auction, build: func(h *hist) { // CV-DY-09
			auctions(h)
			h.bid(1, 20, auc, "b1", "ann", 700).done(21)
			forced(h, 2, 40, "b2", "bob", 500).land().ok(41, 45)
		}, must: []string{"monotonic-bids"}, may: []string{"valid-decision"}},
		{name: "(e) overlapping bids accepted in falling order", workload: oracle.Auction, build: func(h *hist) {
			_, b := rivals(h, 700, 500)
			b.ok(23, 31)
		}, must: []string{"monotonic-bids"}, may: []string{"valid-decision"}},
		{name: "(d) a high bid that was never accepted", workload: oracle.Auction, build: func(h *hist) {
			auctions(h)
			c := h.bid(1, 20, auc, "b1", "ann", 200).load(21, 22)
			stale(c, 23, 300)
		}, must: []string{"monotonic-bids", "truthful-rejections"}},
		{name: "(d) a high bid that was sent only later", workload: oracle.Auction, build: func(h *hist) {
			auctions(h)
			c := h.bid(1, 12, auc, "b1", "ann", 200).load(13, 14)
			stale(c, 15, 300)
			h.bid(2, 20, auc, "b2", "bob", 300).done(21)
		}, must: []string{"monotonic-bids", "truthful-rejections"}},
		{name: "(d) a high bid that had been beaten", workload: oracle.Auction, build: func(h *hist) {
			auctions(h)
			h.bid(2, 20, auc, "b2", "bob", 300).done(21)
			h.bid(2, 40, auc, "b3", "bob", 400).done(41)
			c := h.bid(1, 60, auc, "b1", "ann", 200).loadUpTo(2, 61, 62)
			c.refuse(63)
		}, must: []string{"monotonic-bids", "truthful-rejections", "read-is-prefix"}},
		{name: "(d) the high bid falls", workload: oracle.Auction, build: func(h *hist) {
			auctions(h)
			w := h.bid(2, 20, auc, "b2", "bob", 300).load(21, 22).write().land()
			w.lost(23, 90) // never acknowledged: only the two refusals show it
			h.bid(1, 30, auc, "b1", "ann", 200).loadUpTo(2, 31, 32).refuse(33)
			h.bid(3, 40, auc, "b3", "cec", 50).loadUpTo(1, 41, 42).refuse(43)
		}, must: []string{"monotonic-bids"}},
		{name: "a bid that beats the high bid is answered stale", workload: oracle.Auction, build: func(h *hist) {
			auctions(h)
			c := h.bid(1, 20, auc, "b1", "ann", 200).load(21, 22)
			stale(c, 23, 100)
		}, must: []string{"truthful-rejections"}},
		{name: "closed although nobody closed it", workload: oracle.Auction, build: func(h *hist) {
			auctions(h)
			c := h.bid(1, 20, auc, "b1", "ann", 200).load(21, 22)
			e := c.finish(23, history.ResultRefused)
			e.Code, e.Have, e.Want, e.Decision = codeClosed, 100, 200, c.decision()
		}, must: []string{"truthful-rejections"}},
		{name: "closed before the closing was sent", workload: oracle.Auction, build: func(h *hist) {
			auctions(h)
			c := h.bid(1, 12, auc, "b1", "ann", 200).load(13, 14)
			e := c.finish(15, history.ResultRefused)
			e.Code, e.Have, e.Want, e.Decision = codeClosed, 100, 200, c.decision()
			h.closing(2, 20, auc).done(21)
		}, must: []string{"truthful-rejections"}, may: []string{"close-is-final"}},

		// idempotent-bids
		{name: "a bid id is accepted twice", workload: oracle.Auction, build: func(h *hist) {
			auctions(h)
			h.bid(1, 20, auc, "b1", "ann", 500).done(21)
			forced(h, 2, 40, "b1", "bob", 700).land().ok(41, 45)
		}, must: []string{"idempotent-bids"}, may: []string{"valid-decision", "monotonic-bids"}},
		{name: "a replay of the winner is answered stale", workload: oracle.Auction, build: func(h *hist) { // CV-DY-07
			auctions(h)
			h.bid(1, 20, auc, "b1", "ann", 500).done(21)
			stale(h.bid(1, 40, auc, "b1", "ann", 500).load(41, 42), 43, 500)
		}, must: []string{"idempotent-bids", "truthful-rejections"}},
		{name: "a bid answered stale is accepted later", workload: oracle.Auction, build: func(h *hist) {
			auctions(h)
			stale(h.bid(1, 12, auc, "b1", "ann", 500).load(13, 14), 15, 100)
			h.bid(1, 20, auc, "b1", "ann", 500).done(21)
		}, must: []string{"idempotent-bids", "truthful-rejections"}},
		{name: "a replay shows another amount", workload: oracle.Auction, build: func(h *hist) {
			auctions(h)
			w := h.bid(1, 20, auc, "b1", "ann", 500).done(21)
			replay(h.bid(1, 40, auc, "b1", "ann", 500), w, 41).Want = 501
		}, must: []string{"idempotent-bids"}},
		{name: "a replay shows another time", workload: oracle.Auction, build: func(h *hist) {
			auctions(h)
			w := h.bid(1, 20, auc, "b1", "ann", 500).done(21)
			replay(h.bid(1, 40, auc, "b1", "ann", 500), w, 41).At++
		}, must: []string{"idempotent-bids"}},
		{name: "another body is accepted under a known bid id", workload: oracle.Auction, build: func(h *hist) {
			auctions(h)
			w := h.bid(1, 20, auc, "b1", "ann", 500).done(21)
			replay(h.bid(1, 40, auc, "b1", "ann", 700), w, 41)
		}, must: []string{"idempotent-bids"}, may: []string{"no-lost-ack"}},
		{name: "another body under a known bid id is answered stale", workload: oracle.Auction, build: func(h *hist) {
			auctions(h)
			h.bid(1, 20, auc, "b1", "ann", 500).done(21)
			stale(h.bid(1, 40, auc, "b1", "ann", 300).load(41, 42), 43, 500)
		}, must: []string{"idempotent-bids", "truthful-rejections"}},
		{name: "invalid payload for a bid id that nobody used", workload: oracle.Auction, build: func(h *hist) {
			auctions(h)
			c := h.bid(1, 20, auc, "b1", "ann", 500).load(21, 22)
			e := c.finish(23, history.ResultRefused)
			e.Code, e.Have, e.Want, e.Decision = codeInvalidPayload, 100, 500, c.decision()
		}, must: []string{"idempotent-bids", "truthful-rejections"}},
		{name: "invalid payload before the other body was sent", workload: oracle.Auction, build: func(h *hist) {
			auctions(h)
			c := h.bid(1, 12, auc, "b1", "ann", 700).load(13, 14)
			e := c.finish(15, history.ResultRefused)
			e.Code, e.Have, e.Want, e.Decision = codeInvalidPayload, 100, 700, c.decision()
			h.bid(1, 20, auc, "b1", "ann", 500).done(21)
		}, must: []string{"idempotent-bids", "truthful-rejections"}},

		// close-is-final
		{name: "a bid after the closing", workload: oracle.Auction, build: func(h *hist) {
			auctions(h)
			h.closing(2, 20, auc).done(21)
			forced(h, 1, 40, "b1", "ann", 500).land().ok(41, 45)
		}, must: []string{"close-is-final"}, may: []string{"valid-decision"}},
		{name: "a closing that shows another high bid", workload: oracle.Auction, build: func(h *hist) {
			auctions(h)
			h.bid(1, 20, auc, "b1", "ann", 500).done(21)
			c := h.closing(2, 40, auc).loadUpTo(1, 41, 42)
			v := c.decide()
			c.load(41, 42)
			c.writeEvents(v.Events).land().lost(43, 45)
		}, must: []string{"close-is-final", "valid-decision"}, may: []string{"read-is-prefix", "monotonic-bids"}},
		{name: "a bid sent after closed was answered", workload: oracle.Auction, build: func(h *hist) {
			auctions(h)
			k := h.closing(2, 20, auc).load(21, 22).write()
			k.try(23, 90, eventstore.Unknown, eventstore.LostReply)
			k.events[0].Version = 3
			h.bid(3, 30, auc, "b2", "bob", 900).load(31, 32)
			b := forced(h, 1, 60, "b1", "ann", 500).landAt(2).ok(61, 65)
			h.logs[auc] = append(h.logs[auc], k.events[0])
			c := h.bid(3, 40, auc, "b9", "bob", 50)
			c.basis = 1
			e := c.finish(45, history.ResultRefused)
			e.Code, e.Have, e.Want, e.Decision = codeClosed, 100, 50, c.decision()
			_ = b
		}, must: []string{"close-is-final"}, may: []string{"truthful-rejections", "read-is-prefix", "no-phantom-event", "optimistic-concurrency", "valid-decision", "linearizable-stream"}},
	}
}

// rivals are two bids that overlap and are both in the log; the second one's answer is left to the test.
func rivals(h *hist, first, second int64) (a, b *writeOf) {
	auctions(h)
	one := h.bid(1, 20, auc, "b1", "ann", first).load(21, 22)
	a = one.write().land().ok(23, 30)
	one.answer(31, a)
	return a, forced(h, 2, 20, "b2", "bob", second).land()
}

// forced is a bid that is written whatever the state says, on no recorded basis.
func forced(h *hist, session uint32, t int64, id, bidder string, amount int64) *writeOf {
	c := h.bid(session, t, auc, id, bidder, amount)
	empty, _ := oracle.New(oracle.Auction)
	create := h.logs[auc][0]
	_ = empty.Apply(history.LoggedEvent{Type: create.Type, Version: 1, Data: []byte(`{"at":"1970-01-01T00:00:00.000Z","auction":"a1","openingPrice":0}`)})
	v, err := empty.Decide("bid", c.start.Body, 2_000)
	if err != nil || len(v.Events) == 0 {
		h.t.Fatalf("forced bid: %+v, %v", v, err)
	}
	c.basis = h.head(auc)
	w := c.writeEvents(v.Events)
	w.rec.Any, w.rec.Expected, w.rec.Decision = true, 0, eventstore.Decision{}
	return w
}

// stale answers STALE with a high bid, whatever the state says.
func stale(c *callOf, t, high int64) {
	f, _ := oracle.ParseCommand(c.start.Body)
	e := c.finish(t, history.ResultRefused)
	e.Code, e.Have, e.Want, e.Decision = codeStale, high, f.Amount, c.decision()
}

// change puts other data into the log than what was written.
func change(w *writeOf, data string) { w.events[0].Data = []byte(data) }

// firstAnswer is the answer to the first call on the account after its opening.
func (h *hist) firstAnswer() *history.CallEnd {
	n := 0
	for _, r := range h.records {
		if e, ok := r.(*history.CallEnd); ok {
			if n++; n == 2 {
				return e
			}
		}
	}
	h.t.Fatal("no answer yet")
	return nil
}

// withoutRead drops the reads that begin at a version.
func withoutRead(from uint64) func([]history.Record) []history.Record {
	return func(rs []history.Record) []history.Record {
		var out []history.Record
		dropped := uint64(0)
		for _, r := range rs {
			if q, ok := r.(*history.Read); ok && q.From == from {
				dropped++
				continue
			}
			if e, ok := r.(*history.ProcessEnd); ok && e.Reads > dropped {
				e.Reads -= dropped
			}
			out = append(out, r)
		}
		return out
	}
}
