package invariants

import (
	"slices"
	"testing"

	"github.com/eventproof/eventproof/domain/account"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/invariants/oracle"
)

// Schedules that were once judged wrongly, or that are easily judged wrongly.

func TestOddButLegalSchedulesStayGreen(t *testing.T) { runTwins(t, oddTwins()) }

func oddTwins() []twin {
	return []twin{
		{name: "one ok answer tells the version, the other does not", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write().land().ok(23, 30).ok(31, 35)
			w.tries[1].First, w.tries[1].Last = 0, 0
			c.answer(36, w)
		}},
		{name: "one ok answer tells both positions, the other one of them", build: func(h *hist) {
			w := h.open(acc, 100)
			w.events[0].Position.Minor, w.events[1].Position.Minor = 3, 9
			w.ok(7, 8)
			w.tries[0].Positions = []eventstore.Position{{Minor: 3}, {Minor: 9}}
			w.tries[1].Positions = []eventstore.Position{{}, {Minor: 9}}
		}},
		{name: "the first try and the second try both answer", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write().land().ok(23, 40).ok(30, 35)
			c.answer(41, w)
		}},
		{name: "the first try is acknowledged after the second one lost to it", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write().land().ok(23, 40).conflict(30, 35)
			c.answer(41, w)
		}},
		{name: "a try answered conflict in the instant in which the next one was sent", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write().land().lost(23, 30).conflict(30, 35)
			w.evidence(history.E1OwnEvent, eventstore.OK, 36, 38)
			c.answer(39, w)
		}},
		{name: "where no strong reads are promised a read may show half a batch", build: func(h *hist) {
			h.info.Promises = []eventstore.Promise{eventstore.OptimisticConcurrency, eventstore.AtomicBatch}
			bank(h)
			h.withdraw(2, 3, acc, 1).read(1, 0, 1, 5, 6)
		}},
		{name: "where no strong reads are promised a refusal may rest on an old state", build: func(h *hist) {
			h.info.Promises = []eventstore.Promise{eventstore.OptimisticConcurrency}
			bank(h)
			h.deposit(1, 20, acc, 500).done(21)
			h.withdraw(2, 30, acc, 200).loadUpTo(2, 31, 32).refuse(33)
		}},
		{name: "… and so may a bid that is told that it lost", workload: oracle.Auction, build: func(h *hist) {
			h.info.Promises = []eventstore.Promise{eventstore.OptimisticConcurrency}
			auctions(h)
			h.bid(2, 20, auc, "b2", "bob", 300).done(21)
			h.bid(2, 40, auc, "b3", "bob", 400).done(41)
			h.bid(1, 60, auc, "b1", "ann", 200).loadUpTo(2, 61, 62).refuse(63)
		}},
		{name: "a second call sends the very same write again", build: func(h *hist) {
			bank(h)
			h.process(2)
			c := h.callAs("k", 2, 1, 20, "withdraw", acc, bankBody(acc, 60)).load(21, 22)
			w := c.write().land().lost(23, 30)
			h.kill(2, 31)
			c = h.callAs("k", 1, 1, 40, "withdraw", acc, bankBody(acc, 60))
			c.start.Continued = true
			c.load(41, 42)
			again := *w.rec
			again.Write, again.Call = history.MakeID(1, h.next()), c.start.Call
			h.add(&again)
			(&writeOf{c: c, rec: &again, events: w.events}).ok(43, 45)
			c.answer(46, w)
		}},
		{name: "a write of a batch lands late, sent first by a killed process and again by the next one", build: func(h *hist) {
			h.process(2)
			first := h.callAs("k", 2, 1, 1, "open", acc, openBody(acc, 100)).load(2, 3)
			w := first.write()
			w.try(4, 0, eventstore.Unknown, eventstore.ReasonNone)
			h.kill(2, 5)
			c := h.callAs("k", 1, 1, 6, "open", acc, openBody(acc, 100)).load(7, 8)
			again := c.write()
			w.land()
			r := again.try(9, 12, eventstore.OK, eventstore.ReasonNone)
			r.Events, r.First, r.Last, r.Replayed = idsOf(w), 1, 2, true
			c.answer(13, w).Replayed = true
		}},
		{name: "a write outside of any call", build: func(h *hist) {
			bank(h)
			w := blindDeposit(h, 20, 5)
			w.rec.Call = 0
			w.ok(21, 22)
			h.edit = append(h.edit, withoutCall(w.c))
		}},
		{name: "an attempt that settled its lost reply by the store's own status", build: func(h *hist) {
			bank(h)
			w := h.withdraw(1, 20, acc, 60).done(21)
			h.fault("cut", "drop-reply", "writer")
			h.bite("cut", w.tries[0].Session, history.BiteReplyDropped, history.LandedYes, 24)
			h.add(&history.Evidence{Write: w.rec.Write, Call: w.c.start.Call, T: us(25), Form: history.E4StoreStatus, Outcome: eventstore.OK})
		}},
		{name: "the next try on the connection lost its reply before the answer of this one was stamped", build: func(h *hist) {
			bank(h)
			a := h.withdraw(1, 20, acc, 10).load(21, 22)
			first := a.write().land().ok(23, 30)
			a.answer(31, first)
			b := h.withdraw(2, 24, acc, 10).load(25, 26)
			second := b.write().land().lost(27, 60)
			second.tries[0].Session = first.tries[0].Session
			h.fault("cut", "drop-reply", "writer")
			h.bite("cut", second.tries[0].Session, history.BiteReplyDropped, history.LandedYes, 29)
			second.evidence(history.E1OwnEvent, eventstore.OK, 61, 62)
			b.answer(63, second)
		}},
		{name: "a reply that a black hole swallowed tells nothing of a commit", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write().fail(23, 30, eventstore.TransactionConflict)
			h.fault("hole", "black-hole", "writer")
			h.bite("hole", w.tries[0].Session, history.BiteReplyDropped, history.LandedUnknown, 25)
			c.finish(31, history.ResultUnknown)
		}},
		{name: "blind deposits between an exact append and the version it asked for", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write()
			d := blindDeposit(h, 22, 5).ok(23, 26)
			d.c.answer(27, d)
			r := w.conflict(24, 30).tries[0]
			r.Head, r.HeadKnown = 3, true
			c.load(31, 32)
			w = c.write().land().ok(33, 35)
			c.answer(36, w)
		}},
		{name: "a blind deposit that lost races, and a blind deposit that lands in the quiesce", build: func(h *hist) {
			bank(h)
			d := blindDeposit(h, 20, 5).fail(21, 22, eventstore.LostRace).fail(23, 24, eventstore.LostRace).ok(25, 26)
			d.c.answer(27, d)
			late := blindDeposit(h, 30, 5).lost(31, 40)
			late.c.finish(41, history.ResultUnknown)
		}},
		{name: "a conflict that names the head behind which the event of an unknown write stands", build: func(h *hist) {
			bank(h)
			late := h.withdraw(2, 12, acc, 10).load(13, 14)
			late.write().land().lost(15, 90)
			late.finish(91, history.ResultUnknown)
			c := h.withdraw(1, 12, acc, 60).loadUpTo(2, 13, 14)
			r := c.write().conflict(16, 20).tries[0]
			r.Head, r.HeadKnown = 3, true
			c.load(21, 22).finish(23, history.ResultUnknown)
		}},
		{name: "an expected version ahead of what the answering node knows, all of it unacknowledged", build: func(h *hist) {
			bank(h)
			other := h.withdraw(2, 12, acc, 10).load(13, 14)
			other.write().land().lost(15, 90)
			other.finish(91, history.ResultUnknown)
			c := h.withdraw(1, 20, acc, 20).load(21, 22)
			r := c.write().fail(23, 24, eventstore.ExpectedAhead).tries[0]
			r.Head, r.HeadKnown = 2, true
			c.finish(25, history.ResultFailed)
		}},
		{name: "an old result for a request that another process had carried out, in a retry that never landed", build: func(h *hist) {
			bank(h)
			h.process(2)
			one := h.callAs("k", 2, 1, 20, "withdraw", acc, bankBody(acc, 60)).load(21, 22)
			two := h.callAs("k", 1, 1, 20, "withdraw", acc, bankBody(acc, 60)).load(21, 22)
			w := one.write().land().lost(23, 30)
			h.kill(2, 31)
			again := two.write().lost(24, 28)
			r := again.try(32, 35, eventstore.OK, eventstore.ReasonNone)
			r.Events, r.First, r.Last, r.Replayed = idsOf(w), 3, 3, true
			two.answer(36, w).Replayed = true
		}},
		{name: "a refusal decided from a snapshot and an empty tail", build: func(h *hist) {
			bank(h)
			h.withdraw(1, 20, acc, 60).done(21)
			snapshot(h, 3, 30)
			h.withdraw(2, 40, acc, 60).loadTail(3, 41, 42).refuse(43)
		}},
		{name: "a refusal whose read and an acknowledgement meet in one instant", build: func(h *hist) {
			bank(h)
			c := h.deposit(1, 20, acc, 100).load(21, 22)
			w := c.write().land().ok(23, 30)
			c.answer(31, w)
			h.withdraw(2, 30, acc, 150).loadUpTo(2, 30, 31).refuse(32)
		}},
		{name: "a slot was seen held by an event that the store lost afterwards: only the loss is blamed", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write().lost(23, 30)
			other := h.withdraw(2, 20, acc, 10).load(21, 22)
			o := other.write().land().lost(23, 90)
			other.finish(91, history.ResultUnknown)
			w.evidence(history.E2SlotHeld, eventstore.Fail, 36, 38)
			c.finish(41, history.ResultUnknown)
			h.edit = append(h.edit, func(rs []history.Record) []history.Record {
				return slices.DeleteFunc(rs, func(r history.Record) bool {
					if a, ok := r.(*history.Audit); ok {
						a.Events--
					}
					return r == o.events[0]
				})
			})
		}, may: []string{"read-is-prefix"}},
		{name: "evidence from two reads that overlap and show different lengths", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write().lost(23, 24)
			c.read(3, 0, 2, 25, 40) // empty: nothing is concluded
			w.land()
			w.evidence(history.E1OwnEvent, eventstore.OK, 26, 38)
			c.answer(41, w)
		}},
		{name: "a read that a black hole kept open shows an event whose acknowledgement came later", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write().land().ok(23, 90)
			h.withdraw(2, 24, acc, 1).load(25, 26).finish(27, history.ResultUnknown)
			c.answer(91, w)
		}},
		{name: "two streams with the same versions at the same times", build: func(h *hist) {
			bank(h)
			h.open("account-2", 100)
			h.withdraw(1, 20, acc, 60).done(21)
			h.withdraw(2, 20, "account-2", 60).done(21)
			h.withdraw(1, 40, acc, 60).load(41, 42).refuse(43)
		}},
		{name: "calls that were never answered in a process that never ended", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			c.write().land().try(23, 0, eventstore.Unknown, eventstore.ReasonNone)
			h.edit = append(h.edit, withoutEnd(1))
		}},
		{name: "a killed process whose write lands, and a rival that overlaps it", build: func(h *hist) {
			bank(h)
			h.process(2)
			a := h.callAs("a", 2, 1, 20, "withdraw", acc, bankBody(acc, 60)).load(21, 22)
			b := h.withdraw(1, 20, acc, 60).load(21, 22)
			a.write().land().try(23, 0, eventstore.Unknown, eventstore.ReasonNone)
			h.kill(2, 25)
			b.write().conflict(24, 30)
			b.load(31, 32).refuse(33)
		}},

		{name: "a bid sent again under a command id of its own", workload: oracle.Auction, build: func(h *hist) {
			auctions(h)
			w := h.bid(1, 20, auc, "b1", "ann", 500).done(21)
			replay(h.callAs("other", 1, 2, 40, "bid", auc, bidBody(auc, "b1", "ann", 500)), w, 41)
		}},
		{name: "a bid replayed while its first try is unknown, both find the same acceptance", workload: oracle.Auction, build: func(h *hist) {
			auctions(h)
			a := h.bid(1, 20, auc, "b1", "ann", 500).load(21, 22)
			w := a.write().lost(23, 30)
			b := h.bid(2, 24, auc, "b1", "ann", 500).load(25, 26)
			again := b.write()
			w.land()
			again.conflict(27, 31)
			b.load(32, 33)
			b.answer(34, w).Replayed = true
			w.evidence(history.E1OwnEvent, eventstore.OK, 35, 36)
			a.answer(37, w)
		}},
		{name: "an altered bid before the first one was sent is a bid of its own and loses", workload: oracle.Auction, build: func(h *hist) {
			auctions(h)
			h.bid(2, 12, auc, "b1", "ann", 90).load(13, 14).refuse(15)
			h.bid(1, 20, auc, "b1", "ann", 500).done(21)
			h.bid(2, 40, auc, "b1", "ann", 90).load(41, 42).refuse(43)
		}},
		{name: "a close that ended unknown and landed, and bids that are told so", workload: oracle.Auction, build: func(h *hist) {
			auctions(h)
			h.bid(1, 12, auc, "b1", "ann", 500).done(13)
			k := h.closing(2, 20, auc).load(21, 22)
			late := h.bid(1, 20, auc, "b2", "bob", 600).load(21, 22)
			k.write().land().lost(23, 30)
			k.finish(31, history.ResultUnknown)
			late.write().conflict(24, 32)
			late.load(33, 34).refuse(35)
			again := h.closing(3, 40, auc).load(41, 42)
			again.refuse(43)
		}},
		{name: "a close that ended unknown and never landed does not end the bidding", workload: oracle.Auction, build: func(h *hist) {
			auctions(h)
			k := h.closing(2, 20, auc).load(21, 22)
			k.write().lost(23, 30)
			k.finish(31, history.ResultUnknown)
			h.bid(1, 40, auc, "b2", "bob", 600).done(41)
		}},
		{name: "two close commands, the second is refused while the first is unanswered", workload: oracle.Auction, build: func(h *hist) {
			auctions(h)
			a, b := h.closing(1, 20, auc).load(21, 22), h.closing(2, 20, auc).load(21, 22)
			w := a.write().land().ok(23, 60)
			b.write().conflict(24, 30)
			b.load(31, 32).refuse(33)
			a.answer(61, w)
		}},
	}
}

func TestCrookedSchedulesAreViolatedByTheRuleThatNamesThem(t *testing.T) { runTwins(t, crookedTwins()) }

func crookedTwins() []twin {
	return []twin{
		{name: "an old decision is appended with a bumped number and the same event ids", build: func(h *hist) { // CV-PG-16
			_, loser, _, lost := race(h)
			lost.conflict(31, 42)
			again := *lost.rec
			again.Write, again.Expected = history.MakeID(1, h.next()), 3
			h.add(&again)
			w := (&writeOf{c: loser, rec: &again, events: lost.events}).land().ok(43, 50)
			loser.answer(51, w)
			loser.end.StateHash = h.firstAnswer().StateHash
		}, must: []string{"valid-decision", "truthful-answers"}, may: []string{"no-overdraft"}},
		{name: "an unknown append is sent again with a refreshed number and both land", build: func(h *hist) { // CV-PG-25
			bank(h)
			c := h.deposit(1, 20, acc, 60).load(21, 22)
			first := c.write().land().lost(23, 30)
			c.load(31, 32)
			again := *first.rec
			again.Write, again.Expected = history.MakeID(1, h.next()), 3
			h.add(&again)
			twice := *first.events[0]
			w := (&writeOf{c: c, rec: &again, events: []*history.LoggedEvent{&twice}}).land().ok(33, 40)
			c.answer(41, w)
			h.edit = append(h.edit, func(rs []history.Record) []history.Record { again.Decision = c.decision(); return rs })
		}, must: []string{"command-once"}, may: []string{"honest-outcomes"}},
		{name: "the caller is told another version than the event has", build: func(h *hist) {
			bank(h)
			h.withdraw(1, 20, acc, 10).done(21).c.end.Version = 4
		}, must: []string{"no-lost-ack"}},
		{name: "the caller is told an older version than the event has", build: func(h *hist) {
			bank(h)
			h.withdraw(1, 20, acc, 10).done(21).c.end.Version = 2
		}, must: []string{"no-lost-ack"}},
		{name: "the caller is answered ok without any event, and nothing was written", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			c.write().lost(23, 30)
			c.finish(31, history.ResultOK).Version = 3
		}, must: []string{"no-lost-ack"}, may: []string{"honest-outcomes"}},
		{name: "the caller is answered ok without any event, with a state that is not the log's", build: func(h *hist) {
			bank(h)
			e := h.withdraw(1, 20, acc, 60).done(21).c.end
			e.Events = nil
			e.StateHash[0]++
		}, must: []string{"truthful-answers"}},
		{name: "the caller is answered ok without any event, nothing said so, and it lands", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			c.write().land().lost(23, 30)
			c.finish(31, history.ResultOK)
		}, must: []string{"honest-outcomes"}},
		{name: "a read does not begin where it says", build: func(h *hist) {
			bank(h)
			q := h.withdraw(2, 12, acc, 1).read(1, 0, 2, 13, 14)
			h.fills = append(h.fills, func() { q.First = 2 })
		}, must: []string{"read-is-prefix"}, may: []string{"atomic-batch"}},
		{name: "exhausted with a count of conflicts that is not the budget", build: func(h *hist) {
			_, e := exhausted(h, 5)
			e.Conflicts = 4
		}, must: []string{"truthful-rejections"}},
		{name: "refused on a version beyond the log", build: func(h *hist) {
			bank(h)
			h.withdraw(1, 20, acc, 200).load(21, 22).refuse(23).Decision.Basis = 9
		}, must: []string{"truthful-rejections"}},
		{name: "the caller is answered ok with the event of another stream", build: func(h *hist) {
			bank(h)
			h.open("account-2", 5)
			w := h.deposit(1, 20, "account-2", 60).done(21)
			c := h.callAs(w.c.start.CommandID, 1, 2, 40, "deposit", acc, bankBody(acc, 60))
			c.answer(41, w)
		}, must: []string{"no-lost-ack"}, may: []string{"truthful-answers", "honest-outcomes"}},
		{name: "an ok answer names an event that nobody wrote beside its own", build: func(h *hist) {
			bank(h)
			w := h.withdraw(1, 20, acc, 60).done(21)
			w.tries[0].Events = append(w.tries[0].Events, h.eventID())
			w.tries[0].Last = 4
		}, must: []string{"no-lost-ack"}},
		{name: "an ok answer names half of the batch", build: func(h *hist) {
			w := h.open(acc, 100)
			w.tries[0].Events, w.tries[0].Last = w.tries[0].Events[:1], 1
		}, must: []string{"no-lost-ack"}},
		{name: "an ok answer gives a last version that does not fit its events", build: func(h *hist) {
			bank(h)
			h.withdraw(1, 20, acc, 60).done(21).tries[0].Last = 7
		}, must: []string{"no-lost-ack"}},
		{name: "decided on a state, then appended at any version", build: func(h *hist) {
			_, loser, _, lost := race(h)
			lost.rec.Any, lost.rec.Expected = true, 0
			lost.land().ok(31, 42)
			loser.answer(43, lost)
		}, must: []string{"valid-decision", "no-overdraft"}},
		{name: "answered refused although executed, marked as retriable", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			c.write().land().lost(23, 30)
			c.load(31, 32).refuse(33).Retriable = true
		}, must: []string{"failed-means-absent", "truthful-rejections"}},
		{name: "answered exhausted although executed, marked as retriable", build: func(h *hist) {
			c, e := exhausted(h, 4)
			c.load(900, 901)
			c.write().land().lost(902, 903)
			e.Retriable = true
		}, must: []string{"failed-means-absent", "truthful-rejections"}},
		{name: "a reply was cut, the record does not say of what, and the attempt is reported as failed", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write().fail(23, 30, eventstore.Rejected)
			h.fault("cut", "drop-reply", "writer")
			h.bite("cut", w.tries[0].Session, history.BiteReplyDropped, history.LandedUnknown, 25)
			c.finish(31, history.ResultFailed)
		}, must: []string{"honest-outcomes"}},
		{name: "a caller is told of an earlier execution that nothing has shown", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write().land().lost(23, 30)
			c.answer(31, w).Replayed = true
		}, must: []string{"honest-outcomes"}},
		{name: "evidence from a read of another stream", build: func(h *hist) {
			bank(h)
			h.open("account-2", 5)
			h.withdraw(1, 12, "account-2", 1).done(13)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write().land().lost(23, 30)
			e := w.evidence(history.E1OwnEvent, eventstore.OK, 31, 32)
			e.Read = h.withdraw(2, 31, "account-2", 1).read(3, 0, 3, 31, 32).Read
			c.answer(33, w)
		}, must: []string{"honest-outcomes"}},
		{name: "evidence from a read that had not returned", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write().land().lost(23, 30)
			w.evidence(history.E1OwnEvent, eventstore.OK, 31, 35).T = us(34)
			c.answer(36, w)
		}, must: []string{"honest-outcomes"}},
		{name: "a slot is said to be held that the log has empty", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write().lost(23, 30)
			h.add(&history.Evidence{Write: w.rec.Write, Call: c.start.Call, T: us(35), Form: history.E2SlotHeld, Outcome: eventstore.Fail})
			c.finish(36, history.ResultUnknown)
		}, must: []string{"honest-outcomes"}},
		{name: "a slot is said to be held by an event that was sent only later", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write().lost(23, 30)
			h.add(&history.Evidence{Write: w.rec.Write, Call: c.start.Call, T: us(35), Form: history.E2SlotHeld, Outcome: eventstore.Fail})
			c.finish(36, history.ResultUnknown)
			h.withdraw(1, 40, acc, 10).done(41)
		}, must: []string{"honest-outcomes"}},
		{name: "a final refusal settles a withdrawal", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 20, acc, 60).load(21, 22)
			w := c.write().lost(23, 30)
			h.add(&history.Evidence{Write: w.rec.Write, Call: c.start.Call, T: us(35), Form: history.E5FinalRefusal, Outcome: eventstore.Fail})
			c.finish(36, history.ResultUnknown)
		}, must: []string{"honest-outcomes"}},
		{name: "a conflict names a head that the stream never had", build: func(h *hist) {
			_, loser, _, lost := race(h)
			r := lost.conflict(31, 42).tries[0]
			r.Head, r.HeadKnown = 7, true
			loser.load(43, 44).refuse(45)
		}, must: []string{"optimistic-concurrency"}},
		{name: "a conflict names a head that was sent only later", build: func(h *hist) {
			_, loser, _, lost := race(h)
			r := lost.conflict(31, 42).tries[0]
			r.Head, r.HeadKnown = 4, true
			loser.load(43, 44).refuse(45)
			h.deposit(1, 50, acc, 5).done(51)
		}, must: []string{"optimistic-concurrency"}},
		{name: "the metadata of two events name one command", build: func(h *hist) {
			bank(h)
			a := h.withdraw(1, 20, acc, 10).done(21)
			b := h.withdraw(1, 40, acc, 10).done(41)
			b.events[0].Meta.CommandID = a.c.start.CommandID
		}, must: []string{"command-once"}},
		{name: "a load from a snapshot that goes beyond the log", build: func(h *hist) {
			bank(h)
			c := h.withdraw(1, 40, acc, 10).loadTail(2, 41, 42)
			w := c.write()
			w.rec.Decision.Basis, w.rec.Decision.Snapshot, w.rec.Expected = 9, 9, 9
			w.lost(43, 44)
			c.finish(45, history.ResultUnknown)
		}, must: []string{"snapshot-equals-fold"}},
		{name: "an auction is closed twice", workload: oracle.Auction, build: func(h *hist) {
			auctions(h)
			h.closing(1, 20, auc).done(21)
			c := h.closing(2, 40, auc).loadUpTo(1, 41, 42)
			c.look.Strong = false
			v := c.decide()
			c.basis = 2
			w := c.writeEvents(v.Events)
			w.rec.Decision = eventstore.Decision{}
			w.land().ok(43, 45)
		}, must: []string{"close-is-final"}},
		{name: "a bid is answered ok with the acceptance of another body", workload: oracle.Auction, build: func(h *hist) {
			auctions(h)
			other := h.bid(2, 20, auc, "b1", "ann", 700)
			w := h.bid(1, 20, auc, "b1", "ann", 500).done(21)
			replay(other, w, 30)
		}, must: []string{"no-lost-ack"}, may: []string{"idempotent-bids"}},
	}
}

func openBody(stream string, amount int64) []byte {
	a, _ := account.FromStream(stream)
	return account.Command{Account: a, Owner: "ada", Amount: amount}.Body()
}

// without drops the records that match.
func without(match func(history.Record) bool) func([]history.Record) []history.Record {
	return func(rs []history.Record) []history.Record { return slices.DeleteFunc(rs, match) }
}

// withoutCall drops a call, as if its writes had been made outside of any.
func withoutCall(c *callOf) func([]history.Record) []history.Record {
	return without(func(r history.Record) bool { return r == c.start || c.end != nil && r == c.end })
}

// withoutEnd drops the end of a process.
func withoutEnd(process uint32) func([]history.Record) []history.Record {
	return without(func(r history.Record) bool {
		e, ok := r.(*history.ProcessEnd)
		return ok && e.ID == process
	})
}
