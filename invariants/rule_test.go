package invariants

import (
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/invariants/oracle"
	"github.com/eventproof/eventproof/verdict"
)

func TestRulesAreNamedOnceAndDescribed(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Rules() {
		if seen[r.ID] || seen[r.Slug] || !strings.HasPrefix(r.ID, "INV-") || r.Title == "" || r.Check == nil || len(r.Opportunities) == 0 {
			t.Errorf("rule %+v", r)
		}
		seen[r.ID], seen[r.Slug] = true, true
		names := map[string]bool{}
		for _, o := range r.Opportunities {
			if names[o.Name] || o.Meaning == "" {
				t.Errorf("%s: opportunity %+v", r.Slug, o)
			}
			names[o.Name] = true
		}
	}
}

// Feeds and projections have their own twins; exercised never fires.
func TestEveryRuleOfTheWriteSideCanFailAndCountsItsOpportunities(t *testing.T) {
	violated, counted := map[string]bool{}, map[string]map[string]bool{}
	collect := func(run *Run) {
		for _, r := range Check(run, Options{}) {
			violated[r.Invariant] = violated[r.Invariant] || r.Verdict == verdict.Violated
			if counted[r.Invariant] == nil {
				counted[r.Invariant] = map[string]bool{}
			}
			for name, n := range r.Evidence {
				counted[r.Invariant][name] = counted[r.Invariant][name] || n > 0
			}
		}
	}
	for _, tw := range slices.Concat(goodTwins(), badTwins(), oddTwins(), crookedTwins()) {
		if tw.workload == "" {
			tw.workload = oracle.Bank
		}
		h := newHist(t, tw.workload)
		tw.build(h)
		collect(h.run())
	}
	for seed := range uint64(20) {
		collect(simulate(t, seed, oracle.Bank, 30).h.run())
		collect(simulate(t, seed, oracle.Auction, 30).h.run())
	}
	collect(brokenBook(t).run())
	collect(faultyRun(t).run())
	for _, rules := range [][]Rule{writeRules(), auctionRules(), runRules()} {
		for _, r := range rules {
			if !violated[r.Slug] && r.Slug != slugExercised {
				t.Errorf("nothing violates %s", r.Slug)
			}
			for _, o := range r.Opportunities {
				if !counted[r.Slug][o.Name] {
					t.Errorf("%s never counts %s", r.Slug, o.Name)
				}
			}
			for name := range counted[r.Slug] {
				found := false
				for _, o := range r.Opportunities {
					found = found || o.Name == name
				}
				if !found {
					t.Errorf("%s counts %s, which its table does not name", r.Slug, name)
				}
			}
		}
	}
}

// brokenBook is a history that lost a record.
func brokenBook(t testing.TB) *hist {
	h := newHist(t, oracle.Bank)
	bank(h)
	h.add(&history.ProcessEnd{ID: 1, T: us(50), Calls: 2, Writes: 1, Attempts: 1, Reads: 1})
	return h
}

// faultyRun has told fates of unknown tries, pages, batches and requirements.
func faultyRun(t testing.TB) *hist {
	h := newHist(t, oracle.Bank)
	h.info.Faults = []string{"cut"}
	h.info.Required = []history.Requirement{{Invariant: "no-lost-ack", Min: map[string]int64{"unknown_tries_landed": 1, "unknown_tries_not_landed": 1}}}
	w := h.open(acc, 100)
	w.tries[0].Outcome, w.tries[0].Reason, w.tries[0].Events = eventstore.Unknown, eventstore.LostReply, nil
	w.c.end.Result, w.c.end.Events = history.ResultUnknown, nil
	h.fault("cut", "drop-reply", "writer")
	a := h.withdraw(1, 20, acc, 10).load(21, 22)
	landed := a.write().land().lost(23, 30)
	h.bite("cut", landed.tries[0].Session, history.BiteReplyDropped, history.LandedYes, 25)
	landed.evidence(history.E1OwnEvent, eventstore.OK, 31, 32)
	a.answer(33, landed)
	b := h.withdraw(1, 40, acc, 10).load(41, 42)
	b.look.Pages = 3
	not := b.write().lost(43, 50)
	h.bite("cut", not.tries[0].Session, history.BiteRequestParked, history.LandedUnknown, 45)
	h.bite("cut", not.tries[0].Session, history.BiteRequestReleased, history.LandedNo, 70)
	b.finish(51, history.ResultUnknown)
	h.withdraw(2, 4, acc, 1).read(1, 0, 2, 5, 6) // beside the opening batch
	return h
}

func TestFatesOfUnknownTriesAreToldByTheFaultRecord(t *testing.T) {
	got := expect(t, faultyRun(t).run(), nil, nil)
	r := got["no-lost-ack"]
	if r.Evidence["unknown_tries_landed"] != 1 || r.Evidence["unknown_tries_not_landed"] != 1 || r.Verdict != verdict.Holds || !r.Required {
		t.Errorf("%+v", r)
	}
	if e := got[slugExercised]; e.Verdict != verdict.Holds || e.Evidence["faults_that_bit"] != 1 {
		t.Errorf("%+v", e)
	}
}

func TestMinimumsAndFaultsDecideWhatWasExercised(t *testing.T) {
	for _, c := range []struct {
		name          string
		change        func(h *hist)
		rule, verdict string
		reason        string
	}{
		{"a minimum is missed", func(h *hist) { h.info.Required[0].Min["unknown_tries_landed"] = 2 }, slugExercised, "not-exercised", "1 of at least 2"},
		{"… which the rule says too", func(h *hist) { h.info.Required[0].Min["unknown_tries_landed"] = 2 }, "no-lost-ack", "not-exercised", "1 of at least 2"},
		{"a minimum names no opportunity of the rule", func(h *hist) { h.info.Required[0].Min["sunny_days"] = 1 }, slugExercised, "not-exercised", "not counted"},
		{"a fault never began", func(h *hist) { h.info.Faults = append(h.info.Faults, "other") }, slugExercised, "not-exercised", "never began"},
		{"a fault never began, and yet is said to have bitten", func(h *hist) {
			h.info.Faults = append(h.info.Faults, "other")
			h.bite("other", "s/1", history.BiteDelayed, history.LandedUnknown, 20)
		}, slugExercised, "not-exercised", "never began"},
		{"a fault did not bite", func(h *hist) {
			h.info.Faults = append(h.info.Faults, "other")
			h.fault("other", "latency", "writer")
			h.add(&history.FaultEnd{ID: "other", T: us(80)})
		}, slugExercised, "not-exercised", "did not bite"},
		{"a rule that does not exist is required", func(h *hist) {
			h.info.Required = append(h.info.Required, history.Requirement{Invariant: "no-such-rule"})
		}, slugExercised, "error", "no-such-rule"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := faultyRun(t)
			c.change(h)
			r := verdicts(h.run())[c.rule]
			if r.Verdict.String() != c.verdict || !strings.Contains(r.Reason, c.reason) {
				t.Errorf("%s: %q", r.Verdict, r.Reason)
			}
		})
	}
	t.Run("a violation is never hidden by a missed minimum", func(t *testing.T) {
		h := newHist(t, oracle.Bank)
		h.info.Required = []history.Requirement{{Invariant: "no-phantom-event", Min: map[string]int64{"unknown_tries": 99}}}
		bank(h)
		w := h.withdraw(1, 20, acc, 60).load(21, 22).write().land()
		w.events[0].ID = h.eventID()
		expect(t, h.run(), []string{"no-phantom-event"}, nil)
	})
	t.Run("only the rules asked for are returned", func(t *testing.T) {
		got := Check(faultyRun(t).run(), Options{Only: []string{slugExercised, "INV-OCC"}})
		if len(got) != 2 || got[0].Invariant != "optimistic-concurrency" || got[1].Verdict != verdict.Holds {
			t.Errorf("%+v", got)
		}
	})
}

func TestWithoutAnAuditNothingThatNeedsTheLogHolds(t *testing.T) {
	h := newHist(t, oracle.Bank)
	h.cut = true
	race(h)
	for slug, r := range verdicts(h.run()) {
		if r.Verdict == verdict.Holds || r.Verdict == verdict.Violated || r.Verdict == verdict.Error {
			t.Errorf("%s is %s (%s)", slug, r.Verdict, r.Reason)
		}
		if r.Verdict == verdict.Inconclusive && slug != "complete-history" && !strings.Contains(r.Reason, "no audit") {
			t.Errorf("%s: %s", slug, r.Reason)
		}
	}
}

func TestPromisesAndWorkloadsEnableRules(t *testing.T) {
	h := newHist(t, oracle.Bank)
	h.info.Promises = nil
	_, loser, _, lost := race(h)
	lost.landAt(3).ok(31, 42)
	loser.answer(43, lost)
	got := verdicts(h.run())
	for _, slug := range []string{"optimistic-concurrency", "atomic-batch"} {
		if got[slug].Verdict != verdict.NotPromised || got[slug].Reason == "" {
			t.Errorf("%s is %s", slug, got[slug].Verdict)
		}
	}
	if _, judged := got["monotonic-bids"]; judged {
		t.Error("a rule of auctions was judged in a run of accounts")
	}
	h.info.Required = []history.Requirement{{Invariant: "monotonic-bids"}}
	if got := verdicts(h.run())["monotonic-bids"]; got.Verdict != verdict.NotPromised || got.Reason == "" {
		t.Errorf("a required rule of another workload is %s", got.Verdict)
	}
}

func TestAWorkloadWithoutAnIndependentFoldIsNotCalledGood(t *testing.T) {
	h := newHist(t, oracle.Bank)
	race(h)
	h.info.Workload = "chess"
	got := verdicts(h.run())
	for _, slug := range []string{"valid-decision", "truthful-answers"} {
		if got[slug].Verdict != verdict.Inconclusive || !strings.Contains(got[slug].Reason, "no fold") {
			t.Errorf("%s is %s (%s)", slug, got[slug].Verdict, got[slug].Reason)
		}
	}
}

func TestStrongReadsAreJudgedAsEventualWhereNotPromised(t *testing.T) {
	h := newHist(t, oracle.Bank)
	h.info.Promises = []eventstore.Promise{eventstore.OptimisticConcurrency}
	bank(h)
	h.withdraw(1, 20, acc, 60).done(21)
	h.withdraw(2, 30, acc, 1).loadUpTo(2, 30, 40).finish(41, history.ResultUnknown)
	expect(t, h.run(), nil, nil)
}

func TestStaleRefusalsFromEventualLoadsAreFineWhereFreshOnesAreNotPromised(t *testing.T) {
	h := newHist(t, oracle.Bank)
	h.info.Promises = []eventstore.Promise{eventstore.OptimisticConcurrency, eventstore.StrongRead}
	bank(h)
	h.deposit(1, 20, acc, 500).done(21)
	c := h.withdraw(2, 30, acc, 200).loadUpTo(2, 31, 32)
	c.look.Strong = false
	c.refuse(33)
	expect(t, h.run(), nil, nil)
}

func TestACheckerThatPanicsIsAnError(t *testing.T) {
	h := newHist(t, oracle.Bank)
	bank(h)
	res := judge(h.run(), Rule{ID: "INV-X", Slug: "x", Check: func(_ *Run, res *verdict.Result) {
		violate(res, func() *witness { panic("nil map") })
	}})
	if res.Verdict != verdict.Error || res.Count != 0 || !strings.Contains(res.Reason, "nil map") {
		t.Errorf("%+v", res)
	}
}

func TestTheBooksMustBalance(t *testing.T) {
	add := func(r history.Record) func(h *hist) { return func(h *hist) { h.add(r) } }
	for _, c := range []struct {
		name   string
		change func(h *hist)
		want   verdict.Verdict
		says   string
	}{
		{"a process counts other records than arrived", func(h *hist) {
			h.add(&history.ProcessEnd{ID: 1, T: us(90), Calls: 9})
		}, verdict.Violated, "wrote 9 calls"},
		{"a process ends by itself and leaves a try open", func(h *hist) {
			h.withdraw(1, 20, acc, 1).load(21, 22).write().try(23, 0, eventstore.Unknown, eventstore.ReasonNone)
			h.add(&history.ProcessEnd{ID: 1, T: us(90), Calls: 2, Writes: 2, Attempts: 2, Reads: 2})
		}, verdict.Violated, "no answer although"},
		{"an answer to nothing", add(&history.Return{Attempt: 77, T: 5}), verdict.Violated, "never invoked"},
		{"an attempt of nothing", add(&history.Invoke{Attempt: 77, Write: 78, T: 5}), verdict.Violated, "no recorded write"},
		{"a write of nothing", add(&history.Write{Write: 77, Call: 78, Stream: acc}), verdict.Violated, "not recorded"},
		{"an answer to no call", add(&history.CallEnd{Call: 77, T: 5}), verdict.Violated, "never began"},
		{"evidence about nothing", add(&history.Evidence{Write: 77, T: 5, Outcome: eventstore.OK}), verdict.Violated, "not recorded"},
		{"a write recorded twice", func(h *hist) {
			w := *h.withdraw(1, 20, acc, 1).load(21, 22).write().rec
			h.add(&w)
		}, verdict.Violated, "recorded twice"},
		{"an attempt answered twice", func(h *hist) {
			r := *h.withdraw(1, 20, acc, 1).done(21).tries[0]
			h.add(&r)
		}, verdict.Violated, "answered twice"},
		{"the audit read more than arrived", func(h *hist) {
			h.edit = append(h.edit, func(rs []history.Record) []history.Record {
				for _, r := range rs {
					if a, ok := r.(*history.Audit); ok {
						a.Events++
					}
				}
				return rs
			})
		}, verdict.Violated, "the audit read"},
		{"the audit contradicts itself", func(h *hist) {
			h.edit = append(h.edit, func(rs []history.Record) []history.Record {
				for _, r := range rs {
					if a, ok := r.(*history.Audit); ok {
						a.Problem = "two reads differ"
					}
				}
				return rs
			})
		}, verdict.Error, "two reads differ"},
		{"the file ends early", func(h *hist) {
			h.edit = append(h.edit, without(func(r history.Record) bool { return r.Kind() == history.KindEnd }))
		}, verdict.Inconclusive, "end record"},
		{"the log was read without a fence", func(h *hist) {
			h.edit = append(h.edit, without(func(r history.Record) bool { return r.Kind() == history.KindFence }))
		}, verdict.Inconclusive, "without a fence"},
		{"a process never ended", func(h *hist) { h.edit = append(h.edit, withoutEnd(1)) }, verdict.Inconclusive, "never ended"},
		{"a process never began", add(&history.ProcessEnd{ID: 9, T: us(90)}), verdict.Inconclusive, "process 9 never began"},
		{"a call was never answered in a process that ended by itself", func(h *hist) {
			h.withdraw(1, 20, acc, 1)
			h.add(&history.ProcessEnd{ID: 1, T: us(90), Calls: 2, Writes: 1, Attempts: 1, Reads: 1})
		}, verdict.Violated, "never answered"},
		{"a bite of a fault that never began", func(h *hist) {
			h.bite("ghost", "s/1", history.BiteDelayed, history.LandedUnknown, 20)
		}, verdict.Violated, "no begin"},
		{"everything is there", func(*hist) {}, verdict.Holds, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHist(t, oracle.Bank)
			bank(h)
			c.change(h)
			r := verdicts(h.run())["complete-history"]
			text := r.Reason
			for _, v := range r.Violations {
				text += v.Summary
			}
			if r.Verdict != c.want || !strings.Contains(text, c.says) {
				t.Errorf("%s: %q", r.Verdict, text)
			}
		})
	}
}

func TestALogThatCannotBeFoldedIsNotCalledGood(t *testing.T) {
	h := newHist(t, oracle.Bank)
	bank(h)
	w := h.withdraw(1, 20, acc, 30).done(21)
	w.events[0].Data = []byte("{")
	got := expect(t, h.run(), []string{"no-lost-ack", "no-phantom-event"}, nil)
	for _, slug := range []string{"no-overdraft", "truthful-answers"} {
		if got[slug].Verdict != verdict.Inconclusive || !strings.Contains(got[slug].Reason, "can't be folded") {
			t.Errorf("%s is %s (%s)", slug, got[slug].Verdict, got[slug].Reason)
		}
	}
}

func TestTheOrderOfRecordsDoesNotMatter(t *testing.T) {
	judged := func(records []history.Record) []verdict.Result {
		run, err := NewRun(records)
		if err != nil {
			t.Fatal(err)
		}
		return Check(run, Options{})
	}
	same := func(name string, records []history.Record) {
		t.Helper()
		want := judged(records)
		rng := rand.New(rand.NewPCG(uint64(len(records)), 1))
		for range 2 {
			rng.Shuffle(len(records), func(i, j int) { records[i], records[j] = records[j], records[i] })
			for i, got := range judged(records) {
				if !reflect.DeepEqual(got, want[i]) {
					t.Errorf("%s: %s differs after a shuffle:\n%+v\n%+v", name, got.Invariant, got, want[i])
				}
			}
		}
	}
	for _, m := range mutations() {
		for seed := range max(2, *seeds/20) {
			s := simulate(t, seed, []string{oracle.Bank, oracle.Auction}[seed%2], 25)
			if m.apply(s) {
				same(m.name, s.h.all())
			}
		}
	}
	for _, tw := range slices.Concat(goodTwins(), badTwins(), oddTwins(), crookedTwins()) {
		if tw.workload == "" {
			tw.workload = oracle.Bank
		}
		h := newHist(t, tw.workload)
		tw.build(h)
		same(tw.name, h.all())
	}
}

func TestHostileHistoriesNeverBreakAChecker(t *testing.T) {
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 2))
		records := simulate(t, seed, []string{oracle.Bank, oracle.Auction}[seed%2], 12).h.all()
		for range 1 + rng.IntN(20) {
			i := 1 + rng.IntN(len(records)-1)
			switch rng.IntN(5) {
			case 0:
				records = append(records[:i], records[i+1:]...)
			case 1:
				records = append(records, records[i])
			default:
				scramble(rng, reflect.ValueOf(records[i]).Elem())
			}
		}
		run, err := NewRun(records)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range Check(run, Options{}) {
			if strings.Contains(r.Reason, "checker failed") {
				t.Errorf("seed %d: %s: %s", seed, r.Invariant, r.Reason)
			}
		}
	}
}

// scramble changes one field of a record.
func scramble(rng *rand.Rand, v reflect.Value) {
	f := v.Field(rng.IntN(v.NumField()))
	switch {
	case f.CanUint():
		f.SetUint([]uint64{0, 1, 2, 5, 1<<64 - 1, rng.Uint64()}[rng.IntN(6)] & (1<<f.Type().Bits() - 1))
	case f.CanInt():
		f.SetInt([]int64{0, -1, 1<<63 - 1, -1 << 63, rng.Int64()}[rng.IntN(5)])
	case f.Kind() == reflect.Bool:
		f.SetBool(!f.Bool())
	case f.Kind() == reflect.String:
		f.SetString([]string{"", acc, auc, "x"}[rng.IntN(4)])
	default:
		f.SetZero()
	}
}

// listSource yields records and then an error.
type listSource struct {
	records []history.Record
	err     error
}

func (s *listSource) Next() (history.Record, error) {
	if len(s.records) == 0 {
		return nil, s.err
	}
	r := s.records[0]
	s.records = s.records[1:]
	return r, nil
}

func (s *listSource) Warnings() []string { return []string{"cut off"} }

func TestLoadReadsASourceToItsEnd(t *testing.T) {
	h := newHist(t, oracle.Bank)
	bank(h)
	records := h.all()
	run, err := Load(&listSource{records, io.EOF})
	if err != nil || len(run.Writes) != 1 || len(run.Warnings) != 1 || !run.Complete {
		t.Errorf("%v, %+v", err, run)
	}
	boom := errors.New("boom")
	if _, err := Load(&listSource{records[:3], boom}); !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
	if _, err := Load(&listSource{records[1:3], io.EOF}); !errors.Is(err, ErrNoTrial) {
		t.Errorf("got %v", err)
	}
}
