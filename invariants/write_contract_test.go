package invariants

import (
	"testing"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/verdict"
)

// replayed makes the last try of a write answer "executed before".
func replayed(w *writeOf, from, to int64) *writeOf {
	w.ok(from, to)
	w.tries[len(w.tries)-1].Replayed = true
	return w
}

func TestWhatStoresSayOfThemselvesMustBeTrue(t *testing.T) {
	deposit := func(h *hist) (*callOf, *writeOf) {
		bank(h)
		c := h.deposit(1, 20, acc, 10).load(21, 22)
		return c, c.write().land()
	}
	headed := func(head func(v uint64) uint64) func(*hist) {
		return func(h *hist) {
			_, loser, _, lost := race(h)
			r := lost.try(31, 42, eventstore.Fail, eventstore.VersionConflict)
			r.HeadKnown, r.Head = true, head(lost.rec.Expected)
			loser.load(43, 44).refuse(45)
		}
	}
	refused := func(reason eventstore.Reason) func(*hist) {
		return func(h *hist) {
			bank(h)
			c := h.deposit(1, 20, acc, 10).load(21, 22)
			c.write().fail(23, 24, reason)
			c.finish(25, history.ResultFailed)
		}
	}
	runTwins(t, []twin{
		{name: "throttled and stored all the same, as the repetition tells", build: func(h *hist) {
			c, w := deposit(h)
			c.answer(31, replayed(w.fail(23, 24, eventstore.Throttled), 25, 30))
		}, must: []string{"honest-outcomes"}},
		{name: "a lost reply, then the repetition is answered with the first result", build: func(h *hist) {
			c, w := deposit(h)
			c.answer(31, replayed(w.lost(23, 24), 25, 30))
		}},
		{name: "throttled, then lost, then answered with the first result", build: func(h *hist) {
			c, w := deposit(h)
			c.answer(41, replayed(w.fail(23, 24, eventstore.Throttled).lost(25, 30), 31, 40))
		}},
		{name: "a first try that its driver sent twice", build: func(h *hist) {
			c, w := deposit(h)
			c.answer(31, replayed(w, 23, 30))
		}},
		{name: "a conflict names the head that won", build: headed(func(v uint64) uint64 { return v + 1 })},
		{name: "a conflict names the expected version as the head", build: headed(func(v uint64) uint64 { return v }), must: []string{"optimistic-concurrency"}},
		{name: "a conflict names a head that never was", build: headed(func(v uint64) uint64 { return v + 7 }), must: []string{"optimistic-concurrency"}},
		{name: "a legal append is called malformed", build: refused(eventstore.Invalid), must: []string{"truthful-rejections"}},
		{name: "one event is called too large", build: refused(eventstore.TooLarge), must: []string{"truthful-rejections"}},
		{name: "an owner is fenced where nobody owns", build: refused(eventstore.Fenced), must: []string{"truthful-rejections"}},
		{name: "a batch is called too large, although batches are promised", build: func(h *hist) {
			h.call(1, 1, "open", acc, openBody(acc, 100)).load(2, 3).write().fail(4, 5, eventstore.TooLarge).c.finish(6, history.ResultFailed)
		}, must: []string{"truthful-rejections"}},
		{name: "a batch is too large where no batches are promised", build: func(h *hist) {
			h.info.Promises = []eventstore.Promise{eventstore.OptimisticConcurrency, eventstore.StrongRead, eventstore.FreshRefusals}
			h.call(1, 1, "open", acc, openBody(acc, 100)).load(2, 3).write().fail(4, 5, eventstore.TooLarge).c.finish(6, history.ResultFailed)
		}},
		{name: "an event id that stands in the log already is refused", build: func(h *hist) {
			bank(h)
			c := h.deposit(1, 20, acc, 10).load(21, 22)
			w := c.write().land().lost(23, 30)
			c.load(31, 32)
			again := *w.rec
			again.Write, again.Expected = history.MakeID(1, h.next()), 3
			h.add(&again)
			(&writeOf{c: c, rec: &again, events: w.events}).fail(33, 34, eventstore.Invalid)
			w.evidence(history.E1OwnEvent, eventstore.OK, 35, 36)
			c.answer(37, w)
		}},
		{name: "a deadlock is a reason to fail", build: refused(eventstore.TransactionConflict)},
		{name: "a read in no order", build: func(h *hist) {
			bank(h)
			c := h.deposit(1, 20, acc, 10).load(21, 22)
			c.look.Flaw = "v1 follows v2"
			c.write().land().ok(23, 24)
			c.finish(25, history.ResultUnknown)
		}, must: []string{"read-is-prefix"}},
	})
}

func TestARefusalThatNobodyWasToldOfLeavesNothingOpen(t *testing.T) {
	h := newHist(t, "bank")
	bank(h)
	c := h.deposit(1, 20, acc, 10).load(21, 22)
	w := c.write().fail(23, 24, eventstore.Rejected).land().ok(25, 30)
	c.answer(31, w)
	h.withdraw(2, 40, acc, 500).load(41, 42).refuse(43)
	if got := expect(t, h.run(), nil, nil)["truthful-rejections"]; got.Verdict != verdict.Holds {
		t.Errorf("it is %s: %s", got.Verdict, got.Reason)
	}
}

func TestRefusalsThatNoRuleCanSeeLeaveTheVerdictOpen(t *testing.T) {
	h := newHist(t, "bank")
	bank(h)
	c := h.deposit(1, 20, acc, 10).load(21, 22)
	c.write().fail(23, 24, eventstore.Rejected)
	c.finish(25, history.ResultFailed)
	if got := verdicts(h.run())["truthful-rejections"]; got.Verdict != verdict.Inconclusive || got.Reason == "" {
		t.Errorf("it is %s: %s", got.Verdict, got.Reason)
	}
}
