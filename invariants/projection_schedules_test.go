package invariants

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/verdict"
)

const (
	position = "position-order"
	noSkip   = "no-skipped-checkpoint"
	noDup    = "no-duplicate-projection"
	inOrder  = "in-order-projection"
	monotone = "monotonic-checkpoint"
	atomic   = "atomic-checkpoint"
	foldEq   = "projection-equals-fold"
	progress = "progress"
)

// opened puts two open accounts at positions 1 and 2, projected in one round.
func opened(s *stage, p *projectorDouble) {
	a := s.append("account-a", 1, 0, at(1), 1, 2)
	b := s.append("account-b", 1, 0, at(2), 3, 4)
	p.round(5, through(2), a, b)
}

func TestASkippedEventIsCaughtAndNothingElse(t *testing.T) { // CV-PG-01
	s := newStage(t)
	s.info.Promises = []eventstore.Promise{eventstore.GlobalOrder, eventstore.CompleteFeed}
	p := s.projector()
	opened(s, p)
	held := s.append("account-a", 2, 60, at(3), 10, 50) // position drawn, commit held
	b := s.append("account-b", 2, 40, at(4), 20, 25)
	p.round(30, through(4), b) // naive: position 3 is passed
	p.poll(60, through(4), 0)
	run := s.finish(100)
	results := wantBetween(t, run, []string{noSkip, foldEq}, []string{inOrder, atomic})
	v := results[noSkip].Violations[0]
	if v.Stream != "account-a" || results[noSkip].Count != 1 {
		t.Errorf("the witness names %q (%d violations), want the held event: %s", v.Stream, results[noSkip].Count, v.Summary)
	}
	for name, least := range map[string]int64{"overlapping_appends_polled": 1, "held_transactions": 1} {
		if results[noSkip].Evidence[name] < least {
			t.Errorf("%s = %d, want at least %d", name, results[noSkip].Evidence[name], least)
		}
	}
	_ = held
}

func TestASkipIsCaughtByAnObservationToo(t *testing.T) {
	s := newStage(t)
	p := s.projector()
	opened(s, p)
	s.append("account-a", 2, 60, at(3), 10, 50)
	b := s.append("account-b", 2, 40, at(4), 20, 25)
	p.round(30, through(4), b)
	p.observe(60, "after the skip")
	later := s.append("account-a", 3, 5, at(5), 61, 62)
	p.round(63, through(5), later)
	wantViolated(t, s.finish(100), noSkip, foldEq, inOrder, atomic)
}

func TestAReaderThatWaitsForTheHeldPositionIsGreen(t *testing.T) { // NC-14
	s := newStage(t)
	p := s.projector()
	opened(s, p)
	a := s.append("account-a", 2, 60, at(3), 10, 50)
	b := s.append("account-b", 2, 40, at(4), 20, 25)
	s.add(&history.Poll{Process: p.process, Projection: "balances", Generation: 1, Invoke: ms(30), T: ms(31), After: p.cursor, Next: p.cursor, Held: "transaction 7 of writer-1", Outcome: eventstore.OK})
	p.round(60, through(4), a, b)
	p.observe(65, "drained")
	results := wantViolated(t, s.finish(100))
	for _, slug := range []string{position, noSkip, inOrder, monotone, foldEq, progress} {
		if results[slug].Verdict == verdict.Inconclusive {
			t.Errorf("%s is inconclusive: %s", slug, results[slug].Reason)
		}
	}
	if results[noSkip].Verdict != verdict.Holds {
		t.Errorf("no-skip is %s: %s", results[noSkip].Verdict, results[noSkip].Reason)
	}
}

func TestAnInvertedStreamIsCaughtAndNothingElse(t *testing.T) { // CV-PG-28
	s := newStage(t)
	s.info.Promises = []eventstore.Promise{eventstore.GlobalOrder, eventstore.CompleteFeed}
	p := s.projector()
	opened(s, p)
	v2 := s.append("account-a", 2, 60, eventstore.Position{Major: 9, Minor: 4}, 10, 20)
	v3 := s.append("account-a", 3, 40, eventstore.Position{Major: 8, Minor: 3}, 10, 30)
	p.poll(40, eventstore.Through(v2.Position), 2)
	p.effect(2, v3)
	p.effect(2, v2)
	p.checkpoint(eventstore.Through(v2.Position))
	results := wantBetween(t, s.finish(100), []string{position, inOrder}, []string{foldEq, progress})
	if results[noSkip].Verdict == verdict.Violated {
		t.Error("no event was skipped")
	}
}

func TestACheckpointBeforeItsEffectIsCaughtAfterTheKill(t *testing.T) { // CV-PR-01
	s := newStage(t)
	p := s.projector()
	opened := s.append("account-a", 1, 0, at(1), 1, 2)
	round := func(from int64, e *appended) {
		prev := p.cursor
		p.poll(from, eventstore.Through(e.Position), 1)
		p.checkpoint(eventstore.Through(e.Position)) // its own transaction
		p.tx++
		p.effect(0, e)
		p.applied(from+1, prev, p.cursor, 1)
	}
	round(5, opened)
	round(15, s.append("account-a", 2, 60, at(2), 10, 11))
	lost := s.append("account-a", 3, 7, at(3), 20, 21)
	p.poll(25, eventstore.Through(lost.Position), 1)
	p.checkpoint(eventstore.Through(lost.Position))
	p.kill(30) // between checkpoint and effect
	p.observe(31, "killed")
	p.start(40)
	p.poll(41, p.cursor, 0)
	wantViolated(t, s.finish(100), noSkip, atomic, foldEq)
}

func TestACheckpointBeforeItsEffectIsCaughtWithoutAnObservation(t *testing.T) {
	s := newStage(t)
	p := s.projector()
	opened(s, p)
	lost := s.append("account-a", 2, 7, at(3), 20, 21)
	p.poll(25, eventstore.Through(lost.Position), 1)
	p.checkpoint(eventstore.Through(lost.Position))
	p.kill(30)
	p.start(40)
	wantViolated(t, s.finish(100), noSkip, atomic, foldEq)
}

func TestAnEffectBeforeItsCheckpointIsCaughtAfterTheKill(t *testing.T) { // CV-PR-02
	s := newStage(t)
	p := s.projector()
	round := func(from int64, e *appended) {
		prev := p.cursor
		p.poll(from, eventstore.Through(e.Position), 1)
		p.tx++
		p.effect(0, e)
		p.tx++
		p.checkpoint(eventstore.Through(e.Position))
		p.applied(from+1, prev, p.cursor, 1)
	}
	round(5, s.append("account-a", 1, 0, at(1), 1, 2))
	twice := s.append("account-a", 2, 60, at(2), 10, 11)
	p.poll(15, eventstore.Through(twice.Position), 1)
	p.tx++
	p.effect(0, twice)
	p.kill(20) // between effect and checkpoint
	p.observe(21, "killed")
	p.start(30)
	round(31, twice)
	results := wantViolated(t, s.finish(100), noDup, foldEq, atomic)
	if results[noDup].Evidence["events_read_again"] != 1 || results[atomic].Evidence["kills_with_batch_open"] != 1 {
		t.Errorf("evidence %v, want one event read again and one kill with a page in hand", results[noDup].Evidence)
	}
}

func TestABatchRetriedWithoutCompareAndSetIsCaught(t *testing.T) { // CV-PR-32
	s := newStage(t)
	p := s.projector()
	opened(s, p)
	a := s.append("account-a", 2, 60, at(3), 10, 11)
	b := s.append("account-a", 3, 5, at(4), 12, 13)
	p.poll(20, through(4), 2)
	prev := p.cursor
	// The commit is parked in the proxy: unknown. The retry commits, then the parked one is released.
	s.add(&history.Apply{Process: p.process, Projection: "balances", Generation: 1, Invoke: ms(21), T: ms(25), Prev: prev, Next: through(4), Events: 2, Outcome: eventstore.Unknown, Reason: eventstore.TimedOut})
	for range 2 {
		p.tx++
		p.effect(p.seq+1, a)
		p.effect(p.seq+1, b)
		p.checkpoint(through(4))
	}
	p.applied(30, prev, through(4), 2)
	c := s.append("account-a", 4, 1, at(5), 40, 41)
	p.round(45, through(5), c)
	results := wantViolated(t, s.finish(100), noDup, foldEq)
	if results[noDup].Evidence["unknown_applies"] != 1 {
		t.Errorf("evidence %v, want one unknown application", results[noDup].Evidence)
	}
}

func TestCorrectRunsThatLookWrongStayGreen(t *testing.T) {
	green := map[string]func(s *stage){
		"NC-01 a hole in the positions for ever": func(s *stage) {
			p := s.projector()
			opened(s, p)
			a := s.append("account-a", 2, 60, at(5), 10, 11) // 3 and 4 were rolled back
			p.round(20, through(5), a)
		},
		"NC-02 a hole that fills late, while the reader waits for it": func(s *stage) {
			p := s.projector()
			opened(s, p)
			b := s.append("account-b", 2, 40, at(4), 10, 11)
			// gap-aware: position 3 stays open
			p.round(20, eventstore.Cursor{At: []eventstore.Position{at(4)}, Open: []eventstore.Position{at(3)}}, b)
			a := s.appendUnknown("account-a", 2, 60, at(3), 9, 30)
			p.tx++
			p.effect(p.seq+1, a)
			p.checkpoint(through(4))
		},
		"NC-06 several deliveries, one effect": func(s *stage) {
			p := s.projector()
			opened(s, p)
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			p.poll(20, through(3), 1)
			p.kill(21)
			p.start(30)
			p.round(31, through(3), a)
		},
		"NC-07 the checkpoint behind the view after a kill, at least once with a guard": func(s *stage) {
			s.info.Projections[0].Mode = "at-least-once"
			s.info.Projections[0].Superseding = true
			p := s.projector()
			opened(s, p)
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			p.poll(20, through(3), 1)
			p.effect(0, a)
			p.kill(25)
			p.observe(26, "killed")
			p.start(30)
			p.poll(31, through(3), 1)
			p.note(0, a, history.Superseded)
			p.checkpoint(through(3))
		},
		"NC-08 a checkpoint lower than before, in a new generation": func(s *stage) {
			first := s.projector()
			opened(s, first)
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			first.round(20, through(3), a)
			first.final = []*history.ViewRow{}
			second := s.projectorOf("balances", 2)
			for _, e := range s.inOrder() {
				second.round(30, eventstore.Through(e.Position), e)
			}
		},
		"a write that lands after the drain is outstanding, not skipped": func(s *stage) {
			p := s.projector()
			opened(s, p)
			s.appendUnknown("account-a", 2, 60, at(3), 10, 90)
			p.poll(80, p.cursor, 0)
		},
		"events of the other kind are filtered": func(s *stage) {
			p := s.projector()
			opened(s, p)
			s.append("auction-x", 1, 0, at(3), 10, 11)
			a := s.append("account-a", 2, 60, at(4), 12, 13)
			p.round(20, through(4), a)
		},
		"a store that reformats JSON has not changed the row": func(s *stage) {
			p := s.projector()
			opened(s, p)
			p.final = p.view()
			p.final[0].State = []byte(`{"owner": "ada", "status": "open", "balance": 0}`)
		},
		"a parked event is not in the view": func(s *stage) {
			s.parking()
			p := s.projector()
			opened(s, p)
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			p.note(p.seq+1, a, history.Parked)
			p.checkpoint(through(3))
		},
		"a parked event that was replayed is in the view": func(s *stage) {
			s.parking()
			p := s.projector()
			opened(s, p)
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			p.note(p.seq+1, a, history.Parked)
			p.checkpoint(through(3))
			p.observe(20, "parked")
			p.effect(p.seq+1, a)
			p.checkpoint(through(3))
		},
		"the replay of a parked event moves no checkpoint": func(s *stage) {
			s.parking()
			p := s.projector()
			opened(s, p)
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			p.note(p.seq+1, a, history.Parked)
			p.checkpoint(through(3))
			p.tx++
			p.effect(0, a)
		},
		"effects in another transaction than the checkpoint, at least once": func(s *stage) {
			s.info.Projections[0].Mode = modeAtLeastOnce
			p := s.projector()
			opened(s, p)
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			p.effect(p.seq+1, a)
			p.tx++
			p.checkpoint(through(3))
		},
		"effects whose checkpoint is missing in a history with holes": func(s *stage) {
			p := s.projector()
			opened(s, p)
			p.round(20, through(3), s.append("account-a", 2, 60, at(3), 10, 11))
			p.round(30, through(4), s.append("account-a", 3, 5, at(4), 22, 23))
			p.values = slices.Delete(p.values, 1, 2)
		},
		"effects and checkpoints that do not name their transactions": func(s *stage) {
			p := s.projector()
			opened(s, p)
			p.round(20, through(3), s.append("account-a", 2, 60, at(3), 10, 11))
			for _, v := range p.values {
				v.Transaction = 0
			}
		},
		"an effect in another transaction proves no order": func(s *stage) {
			p := s.projector()
			opened(s, p)
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			p.poll(20, through(3), 1)
			p.checkpoint(through(3))
			p.effect(0, a)
		},
		"a lower checkpoint over burned positions claims no less": func(s *stage) {
			p := s.projector()
			opened(s, p)
			p.checkpoint(through(9))
			p.checkpoint(through(7))
		},
		"not drained: judged at the checkpoint": func(s *stage) {
			s.drained = false
			p := s.projector()
			opened(s, p)
			s.append("account-a", 2, 60, at(3), 10, 11)
		},
		"two shards, each with its own order": func(s *stage) {
			s.info.Promises = []eventstore.Promise{eventstore.CompleteFeed}
			p := s.projector()
			one, two := eventstore.Position{Shard: 1, Minor: 5}, eventstore.Position{Shard: 2, Minor: 1}
			b := s.append("account-b", 1, 0, two, 3, 4)
			a := s.append("account-a", 1, 0, one, 1, 2)
			p.round(10, eventstore.Cursor{At: []eventstore.Position{one}}, a)
			p.round(20, eventstore.Cursor{At: []eventstore.Position{one, two}}, b)
		},
	}
	for name, play := range green {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			play(s)
			run := s.finish(100)
			wantViolated(t, run)
			if problems := projectionBookkeeping(run); len(problems) > 0 {
				t.Errorf("bookkeeping: %v", problems)
			}
			if len(run.Problems) > 0 {
				t.Errorf("the history itself is wrong: %v", run.Problems)
			}
		})
	}
}

func TestWrongRunsAreViolatedByTheRuleThatNamesThem(t *testing.T) {
	type bad struct {
		play func(s *stage)
		want []string
	}
	for name, c := range map[string]bad{
		"a hole that fills late, after the reader gave it up": {func(s *stage) {
			p := s.projector()
			opened(s, p)
			b := s.append("account-b", 2, 40, at(4), 10, 11)
			p.round(20, eventstore.Cursor{At: []eventstore.Position{at(4)}, Open: []eventstore.Position{at(3)}}, b)
			s.appendUnknown("account-a", 2, 60, at(3), 9, 50)
			p.checkpoint(through(4)) // the gap is closed, nothing was there yet
		}, []string{noSkip, foldEq, atomic}},
		"an event handled with a later checkpoint than the one that claims it": {func(s *stage) {
			p := s.projector()
			opened(s, p)
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			p.checkpoint(through(3))
			p.effect(p.seq+1, a)
			p.checkpoint(through(3))
		}, []string{noSkip}},
		"an effect without a counter, after the row's own later effect": {func(s *stage) {
			p := s.projector()
			opened(s, p)
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			p.checkpoint(through(3))
			b := s.append("account-a", 3, 5, at(4), 12, 13)
			p.round(20, through(4), b)
			p.effect(0, a)
			p.rows["account-a"].version = 3
		}, []string{noSkip, inOrder}},
		"an effect without a counter that an observation missed": {func(s *stage) {
			p := s.projector()
			opened(s, p)
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			p.checkpoint(through(3))
			p.observe(20, "between checkpoint and effect")
			p.effect(0, a)
		}, []string{noSkip, atomic}},
		"an effect without a counter, delivered first after the checkpoint was durable": {func(s *stage) {
			p := s.projector()
			opened(s, p)
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			b := s.append("account-b", 2, 5, at(4), 12, 13)
			p.round(20, through(4), b) // its poll reaches position 3, so it may have delivered it …
			s.records = s.withoutPoll(ms(20))
			p.cursor = through(2)
			p.poll(40, through(3), 1) // … but without that record it first came here
			p.effect(0, a)
			p.checkpoint(through(4))
		}, []string{noSkip}},
		"a superseded event although nothing supersedes it": {func(s *stage) {
			p := s.projector()
			opened(s, p)
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			p.note(p.seq+1, a, history.Superseded)
			p.checkpoint(through(3))
		}, []string{noSkip, foldEq, atomic}},
		"a parked event although there is no parking policy": {func(s *stage) {
			p := s.projector()
			opened(s, p)
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			p.note(p.seq+1, a, history.Parked)
			p.checkpoint(through(3))
		}, []string{noSkip, foldEq, atomic}},
		"a parked event although there is no parking policy, and a later one of its stream": {func(s *stage) {
			p := s.projector()
			opened(s, p)
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			b := s.append("account-a", 3, 5, at(4), 12, 13)
			p.note(p.seq+1, a, history.Parked)
			p.effect(p.seq+1, b)
			p.checkpoint(through(4))
		}, []string{noSkip, inOrder, foldEq, atomic}},
		"effects after the checkpoint, in a transaction of their own": {func(s *stage) {
			p := s.projector()
			opened(s, p)
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			p.checkpoint(through(3))
			p.tx++
			p.effect(0, a)
		}, []string{atomic}},
		"effects before the checkpoint, in a transaction of their own that names it": {func(s *stage) {
			p := s.projector()
			opened(s, p)
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			p.tx++
			p.effect(p.seq+1, a)
			p.tx++
			p.checkpoint(through(3))
		}, []string{atomic}},
		"an event applied twice": {func(s *stage) {
			p := s.projector()
			opened(s, p)
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			p.round(20, through(3), a)
			p.effect(p.seq+1, a)
			p.checkpoint(through(3))
		}, []string{noDup, foldEq}},
		"versions applied in the wrong order": {func(s *stage) {
			p := s.projector()
			opened(s, p)
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			b := s.append("account-a", 3, 5, at(4), 12, 13)
			p.effect(p.seq+1, b)
			p.effect(p.seq+1, a)
			p.rows["account-a"].version = 3
			p.checkpoint(through(4))
		}, []string{inOrder}},
		"a row that goes back": {func(s *stage) {
			p := s.projector()
			opened(s, p)
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			p.round(20, through(3), a)
			p.ledger[len(p.ledger)-1].RowVersion = 0
		}, []string{inOrder}},
		"a checkpoint that goes back": {func(s *stage) {
			p := s.projector()
			opened(s, p)
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			p.round(20, through(3), a)
			p.checkpoint(through(2))
			p.checkpoint(through(3))
		}, []string{monotone}},
		"a gap that opens again": {func(s *stage) {
			p := s.projector()
			opened(s, p)
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			p.round(20, through(3), a)
			p.checkpoint(eventstore.Cursor{At: []eventstore.Position{at(3)}, Open: []eventstore.Position{at(2)}})
			p.checkpoint(through(3))
		}, []string{monotone}},
		"a shard that is forgotten": {func(s *stage) {
			s.info.Promises = []eventstore.Promise{eventstore.CompleteFeed}
			p := s.projector()
			one, two := eventstore.Position{Shard: 1, Minor: 5}, eventstore.Position{Shard: 2, Minor: 1}
			a := s.append("account-a", 1, 0, one, 1, 2)
			b := s.append("account-b", 1, 0, two, 3, 4)
			p.round(10, eventstore.Cursor{At: []eventstore.Position{one, two}}, a, b)
			p.checkpoint(eventstore.Through(two))
			p.checkpoint(eventstore.Cursor{At: []eventstore.Position{one, two}})
		}, []string{monotone}},
		"an update of a row that was lost": {func(s *stage) {
			p := s.projector()
			opened(s, p)
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			p.round(20, through(3), a)
			p.rows["account-a"].balance = 0
		}, []string{foldEq}},
		"a row that nobody's events made": {func(s *stage) {
			p := s.projector()
			opened(s, p)
			p.final = append(p.view(), &history.ViewRow{Projection: "balances", Generation: 1, Row: "account-z", Version: 1, State: []byte(`{}`)})
		}, []string{foldEq}},
		"a row that is gone": {func(s *stage) {
			p := s.projector()
			opened(s, p)
			p.final = p.view()[:1]
		}, []string{foldEq}},
		"not drained, and the view is behind its checkpoint": {func(s *stage) {
			s.drained = false
			p := s.projector()
			opened(s, p)
			s.append("account-a", 2, 60, at(3), 10, 11)
			p.checkpoint(through(3))
			s.append("account-a", 3, 60, at(4), 12, 13)
		}, []string{noSkip, foldEq, atomic}},
		"at least once: the view is no prefix": {func(s *stage) {
			s.info.Projections[0].Mode = "at-least-once"
			p := s.projector()
			opened(s, p)
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			p.round(20, through(3), a)
			p.rows["account-a"].balance = 61
		}, []string{foldEq}},
		"at least once: the view lacks what the checkpoint claims": {func(s *stage) {
			s.info.Projections[0].Mode = "at-least-once"
			p := s.projector()
			opened(s, p)
			s.append("account-a", 2, 60, at(3), 10, 11)
			p.checkpoint(through(3))
			p.observe(20, "")
		}, []string{noSkip, foldEq, atomic}},
		"one position for two events": {func(s *stage) {
			p := s.projector()
			a := s.append("account-a", 1, 0, at(1), 1, 5)
			b := s.append("account-b", 1, 0, at(1), 1, 5)
			p.round(10, through(1), a, b)
		}, []string{position}},
		"an event without a position": {func(s *stage) {
			s.drained = false
			p := s.projector()
			opened(s, p)
			s.append("account-c", 1, 0, eventstore.Position{}, 10, 11)
		}, []string{position}},
		"positions against real time": {func(s *stage) {
			p := s.projector()
			a := s.append("account-a", 1, 0, at(11), 1, 2)
			b := s.append("account-b", 1, 0, at(2), 3, 4)
			p.round(10, through(11), b, a)
		}, []string{position}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			c.play(s)
			wantViolated(t, s.finish(100), c.want...)
		})
	}
}

func TestRealTimeOrderIsAskedOnlyWherePromisedAndOfWritesThatDoNotOverlap(t *testing.T) {
	play := func(s *stage, firstReturns int64) {
		p := s.projector()
		a := s.append("account-a", 1, 0, at(11), 1, firstReturns)
		b := s.append("account-b", 1, 0, at(2), 3, 4)
		p.round(10, through(11), b, a)
	}
	s := newStage(t)
	s.info.Promises = []eventstore.Promise{eventstore.GlobalOrder, eventstore.CompleteFeed}
	play(s, 2)
	wantViolated(t, s.finish(100))

	s = newStage(t)
	play(s, 3) // closed intervals: equal stamps overlap
	wantViolated(t, s.finish(100))
}

func TestLedgerRowsMissingFromAViewThatShowsTheEffectAreTheHarnessesFault(t *testing.T) {
	s := newStage(t)
	p := s.projector()
	opened(s, p)
	a := s.append("account-a", 2, 60, at(3), 10, 11)
	p.round(20, through(3), a)
	p.ledger = p.ledger[:len(p.ledger)-1]
	run := s.finish(100)
	results := judged(run)
	if results[noSkip].Verdict != verdict.Error {
		t.Errorf("no-skip is %s, want error: %s", results[noSkip].Verdict, results[noSkip].Reason)
	}
	for slug, r := range results {
		if r.Verdict == verdict.Violated {
			t.Errorf("%s is violated: %s", slug, r.Violations[0].Summary)
		}
	}
	if len(projectionBookkeeping(run)) != 1 {
		t.Errorf("bookkeeping says %q, want one problem", projectionBookkeeping(run))
	}
}

func TestMissingEffectsThatCancelEachOtherAreStillASkip(t *testing.T) {
	s := newStage(t)
	p := s.projector()
	opened(s, p)
	s.append("account-a", 2, 60, at(3), 10, 11)
	s.append("account-a", 3, -60, at(4), 12, 13)
	p.checkpoint(through(4))
	p.final = p.view()
	p.final[0].Version = 0 // a view that keeps no version
	run := s.finish(100)
	results := judged(run)
	if results[noSkip].Verdict != verdict.Violated || results[noSkip].Count != 2 {
		t.Errorf("no-skip is %s with %d, want two skips", results[noSkip].Verdict, results[noSkip].Count)
	}
}

func TestAViewRowWithoutAnyLedgerRowIsTheHarnessesFault(t *testing.T) {
	s := newStage(t)
	p := s.projector()
	opened(s, p)
	p.ledger = p.ledger[:1]
	if problems := projectionBookkeeping(s.finish(100)); len(problems) != 1 {
		t.Errorf("bookkeeping says %q, want one problem", problems)
	}
}

func TestAnObservationThatContradictsTheCheckpointsHistoryIsTheHarnessesFault(t *testing.T) {
	s := newStage(t)
	p := s.projector()
	opened(s, p)
	p.observe(20, "").Cursor = through(1)
	if problems := projectionBookkeeping(s.finish(100)); len(problems) != 1 {
		t.Errorf("bookkeeping says %q, want one problem", problems)
	}
}

func TestWhatCanNotBeJudgedSaysSo(t *testing.T) {
	for name, c := range map[string]struct {
		play func(s *stage)
		slug string
		want verdict.Verdict
	}{
		"a projection without a ledger": {func(s *stage) {
			s.info.Projections[0].Ledger = false
			p := s.projector()
			opened(s, p)
			p.ledger = nil
		}, noSkip, verdict.NotPromised},
		"a projection without a ledger has a fold": {func(s *stage) {
			s.info.Projections[0].Ledger = false
			p := s.projector()
			opened(s, p)
			p.ledger = nil
		}, foldEq, verdict.Holds},
		"a view that nobody can fold": {func(s *stage) {
			s.info.Projections[0].View = "mine"
			opened(s, s.projector())
		}, foldEq, verdict.Inconclusive},
		"no projection": {func(s *stage) {
			s.info.Projections = nil
			s.append("account-a", 1, 0, at(1), 1, 2)
		}, noSkip, verdict.NotExercised},
		"no complete feed promised": {func(s *stage) {
			s.info.Promises = nil
			opened(s, s.projector())
		}, noSkip, verdict.NotPromised},
		"a projection that left no trace": {func(s *stage) {
			s.append("account-a", 1, 0, at(1), 1, 2)
		}, progress, verdict.Inconclusive},
		"a reader without an order, not drained": {func(s *stage) {
			s.info.Promises = []eventstore.Promise{eventstore.CompleteFeed}
			s.drained = false
			p := s.projector()
			p.effect(0, s.append("account-a", 1, 0, eventstore.Position{}, 1, 2))
			s.append("account-b", 1, 0, eventstore.Position{}, 3, 4)
		}, noSkip, verdict.Inconclusive},
		"a reader without an order, drained, everything handled": {func(s *stage) {
			s.info.Promises = []eventstore.Promise{eventstore.CompleteFeed}
			p := s.projector()
			p.effect(0, s.append("account-a", 1, 0, eventstore.Position{}, 1, 2))
			p.effect(0, s.append("account-b", 1, 0, eventstore.Position{}, 3, 4))
		}, foldEq, verdict.Holds},
		"a reader without an order, drained, one event missing": {func(s *stage) {
			s.info.Promises = []eventstore.Promise{eventstore.CompleteFeed}
			p := s.projector()
			p.effect(0, s.append("account-a", 1, 0, eventstore.Position{}, 1, 2))
			s.append("account-b", 1, 0, eventstore.Position{}, 3, 4)
		}, noSkip, verdict.Violated},
		"a reader without an order, drained, an event that may have landed later": {func(s *stage) {
			s.info.Promises = []eventstore.Promise{eventstore.CompleteFeed}
			p := s.projector()
			p.effect(0, s.append("account-a", 1, 0, eventstore.Position{}, 1, 2))
			s.appendUnknown("account-b", 1, 0, eventstore.Position{}, 3, 4)
		}, noSkip, verdict.Inconclusive},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			c.play(s)
			r := judged(s.finish(100))[c.slug]
			if r.Verdict != c.want {
				t.Errorf("%s is %s (%s), want %s", c.slug, r.Verdict, r.Reason, c.want)
			}
			if r.Verdict != verdict.Holds && r.Verdict != verdict.Violated && r.Reason == "" {
				t.Error("no reason is given")
			}
		})
	}
}

func TestProgress(t *testing.T) {
	// idle polls once a period from a time on, n times, and finds nothing.
	idle := func(p *projectorDouble, from, period int64, n int) {
		for i := range int64(n) {
			p.poll(from+i*period, p.cursor, 0)
		}
	}
	for name, c := range map[string]struct {
		play func(s *stage, p *projectorDouble)
		want verdict.Verdict
	}{
		"drained": {func(_ *stage, p *projectorDouble) { idle(p, 100, 10, 3) }, verdict.Holds},
		"stuck: polls in vain for long": {func(s *stage, p *projectorDouble) {
			s.append("account-a", 2, 60, at(3), 10, 11)
			idle(p, 100, 1000, 12)
		}, verdict.Violated},
		"stuck: asks for nothing at all": {func(s *stage, p *projectorDouble) { // CV-PR-09
			s.append("account-a", 2, 60, at(3), 10, 11)
			s.add(&history.ProcessEnd{ID: p.process, T: ms(12_000), How: history.Exited})
		}, verdict.Violated},
		"stuck at events that the view filters": {func(s *stage, p *projectorDouble) { // CV-PR-19
			s.append("auction-x", 1, 0, at(3), 10, 11)
			idle(p, 100, 1000, 12)
		}, verdict.Violated},
		"too few polls to tell": {func(s *stage, p *projectorDouble) {
			s.append("account-a", 2, 60, at(3), 10, 11)
			idle(p, 100, 3000, 5)
		}, verdict.Inconclusive},
		"too short to tell": {func(s *stage, p *projectorDouble) {
			s.append("account-a", 2, 60, at(3), 10, 11)
			idle(p, 100, 10, 50)
			s.add(&history.ProcessEnd{ID: p.process, T: ms(9000), How: history.Exited})
		}, verdict.Inconclusive},
		"a fault that was lifted just before the end": {func(s *stage, p *projectorDouble) {
			s.append("account-a", 2, 60, at(3), 10, 11)
			idle(p, 100, 1000, 12)
			s.add(&history.Fault{ID: "f", FaultKind: "down", On: "projector", T: ms(50)}, &history.FaultEnd{ID: "f", T: ms(11_000), Bit: true})
		}, verdict.Inconclusive},
		"a fault that was never lifted": {func(s *stage, p *projectorDouble) {
			s.append("account-a", 2, 60, at(3), 10, 11)
			idle(p, 100, 1000, 12)
			s.add(&history.Fault{ID: "f", FaultKind: "down", On: "projector", T: ms(50)})
		}, verdict.Inconclusive},
		"still moving at the bound": {func(s *stage, p *projectorDouble) {
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			s.append("account-a", 3, 60, at(4), 12, 13)
			idle(p, 100, 1000, 12)
			p.round(12_500, through(3), a)
		}, verdict.Inconclusive},
		"held by a foreign transaction": {func(s *stage, p *projectorDouble) {
			s.append("account-a", 2, 60, at(3), 10, 11)
			idle(p, 100, 1000, 12)
			s.add(&history.Poll{Process: p.process, Projection: "balances", Generation: 1, Invoke: ms(12_500), T: ms(12_600),
				After: p.cursor, Next: p.cursor, Held: "prepared transaction 'x' of database other", Outcome: eventstore.OK})
		}, verdict.Inconclusive},
		"a reader that declares a longer wait at a hole": {func(s *stage, p *projectorDouble) {
			s.info.Projections[0].MaxHoleMS = 60_000
			s.append("account-a", 2, 60, at(4), 10, 11)
			idle(p, 100, 1000, 12)
		}, verdict.Inconclusive},
		"no projector alive at the end": {func(s *stage, p *projectorDouble) {
			s.append("account-a", 2, 60, at(3), 10, 11)
			p.poll(100, p.cursor, 0)
			p.kill(200)
		}, verdict.Inconclusive},
		"a page applied again and again without effect": {func(s *stage, p *projectorDouble) {
			s.append("account-a", 2, 60, at(3), 10, 11)
			for i := range int64(12) {
				p.poll(100+1000*i, through(3), 1)
				s.add(&history.Apply{Process: p.process, Projection: "balances", Generation: 1, Invoke: ms(200 + 1000*i), T: ms(300 + 1000*i),
					Prev: p.cursor, Next: through(3), Events: 1, Outcome: eventstore.Unknown, Reason: eventstore.ServerUncertain})
			}
		}, verdict.Violated},
		"a stream that serves nobody": {func(s *stage, _ *projectorDouble) {
			for i := range int64(11) {
				s.call("account-a", 100+1000*i, 1100+1000*i, history.ResultUnknown)
			}
		}, verdict.Violated},
		"a stream that serves somebody": {func(s *stage, _ *projectorDouble) {
			for i := range int64(18) {
				result := history.ResultExhausted
				if i == 9 {
					result = history.ResultRefused
				}
				s.call("account-a", 100+1000*i, 1100+1000*i, result)
			}
		}, verdict.Holds},
		"a stream that few asked": {func(s *stage, _ *projectorDouble) {
			s.call("account-b", 18_000, 18_100, history.ResultOK)
			for i := range int64(9) {
				s.call("account-a", 100+2000*i, 1100+2000*i, history.ResultUnknown)
			}
		}, verdict.Holds},
		"many failures in a short time after a long silence": {func(s *stage, _ *projectorDouble) {
			s.call("account-a", 100, 110, history.ResultOK)
			for i := range int64(20) {
				s.call("account-a", 12_000+i, 12_100+i, history.ResultExhausted)
			}
		}, verdict.Holds},
		"calls after the faults, and nobody is served": {func(s *stage, _ *projectorDouble) {
			s.call("account-a", 100, 110, history.ResultOK)
			s.add(&history.Fault{ID: "f", FaultKind: "down", On: "store", T: ms(50)}, &history.FaultEnd{ID: "f", T: ms(12_000), Bit: true})
			s.call("account-a", 12_100, 12_200, history.ResultExhausted)
		}, verdict.Inconclusive},
		"calls after the faults, and one is refused": {func(s *stage, _ *projectorDouble) {
			s.call("account-a", 100, 110, history.ResultOK)
			s.add(&history.Fault{ID: "f", FaultKind: "down", On: "store", T: ms(50)}, &history.FaultEnd{ID: "f", T: ms(12_000), Bit: true})
			s.call("account-a", 12_100, 12_200, history.ResultExhausted)
			s.call("account-a", 12_100, 12_300, history.ResultRefused)
		}, verdict.Holds},
		"nobody is served in the last third of the load": {func(s *stage, _ *projectorDouble) {
			s.call("account-a", 100, 8000, history.ResultOK)
			for i := range int64(5) {
				s.call("account-a", 8000+i, 12_000+i, history.ResultFailed)
				s.add(&history.Drop{Process: writerID, Intended: ms(9000 + i), T: ms(12_100)})
			}
		}, verdict.Inconclusive},
		"a few are not served in the last third of the load": {func(s *stage, _ *projectorDouble) {
			s.call("account-a", 100, 8000, history.ResultOK)
			for i := range int64(9) {
				s.call("account-a", 8000+i, 12_000+i, history.ResultFailed)
			}
		}, verdict.Holds},
		"arrivals that are dropped while others are served": {func(s *stage, _ *projectorDouble) {
			for i := range int64(20) {
				s.add(&history.Drop{Process: writerID, Intended: ms(9000 + i), T: ms(12_100)})
			}
			s.call("account-a", 100, 12_050, history.ResultOK)
		}, verdict.Holds},
		"failures while the fault lasts": {func(s *stage, _ *projectorDouble) {
			for i := range int64(11) {
				s.call("account-a", 100+1000*i, 1100+1000*i, history.ResultUnknown)
			}
			s.add(&history.Fault{ID: "f", FaultKind: "down", On: "store", T: ms(50)}, &history.FaultEnd{ID: "f", T: ms(12_000), Bit: true})
			s.call("account-a", 12_100, 12_200, history.ResultOK)
		}, verdict.Holds},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			p := s.projector()
			opened(s, p)
			c.play(s, p)
			r := judged(s.finish(13_000))[progress]
			if r.Verdict != c.want {
				t.Errorf("progress is %s (%s), want %s", r.Verdict, r.Reason, c.want)
			}
			if r.Verdict == verdict.Violated && r.Count != 1 {
				t.Errorf("%d violations, want one", r.Count)
			}
		})
	}
}

func TestAnEventThatIsTwiceInTheLogIsOneEventToTheLedger(t *testing.T) {
	s := newStage(t)
	p := s.projector()
	opened(s, p)
	a := s.append("account-a", 2, 60, at(3), 10, 11)
	again := *a
	again.Version, again.Position = 3, at(4)
	s.add(&again.LoggedEvent)
	p.round(20, through(3), a)
	p.round(30, through(4), &again)
	wantViolated(t, s.finish(100), noDup)
}

func TestAnEffectOfAnEventThatIsNotInTheLogIsCountedOnce(t *testing.T) {
	s := newStage(t)
	p := s.projector()
	opened(s, p)
	phantom := &appended{history.LoggedEvent{ID: eventstore.EventID{15: 9}, Stream: "account-a", Version: 2, Type: "FundsDeposited", Data: []byte(`{"account":"a","amount":5}`)}}
	p.effect(p.seq+1, phantom)
	p.effect(p.seq+1, phantom)
	p.checkpoint(through(2))
	wantViolated(t, s.finish(100), noDup, foldEq)
}

func TestABatchIsOneIntervalToRealTimeOrder(t *testing.T) {
	play := func(later int64) *Run {
		s := newStage(t)
		p := s.projector()
		// The second event of the batch takes the high position.
		a := s.append("account-a", 1, 0, at(1), 1, 10)
		b := s.append("account-a", 2, 5, at(9), 1, 10)
		s.join(a, b)
		c := s.append("account-b", 1, 0, at(5), later, later+5)
		p.round(50, through(9), a, c, b)
		return s.finish(100)
	}
	wantViolated(t, play(9))
	wantViolated(t, play(11), position)
}

func TestAProjectionWithoutALedgerIsNamedBesideOneThatHolds(t *testing.T) {
	s := newStage(t)
	s.info.Projections = append(s.info.Projections, history.ProjectionInfo{Name: "copy", View: "balances", Mode: "transactional", Feed: "advisory-lock"})
	p, q := s.projector(), s.projectorOf("copy", 1)
	opened(s, p)
	held := s.append("account-a", 2, 60, at(3), 10, 50)
	b := s.append("account-b", 2, 5, at(4), 20, 25)
	p.poll(30, p.cursor, 0)
	p.round(60, through(4), held, b)
	for _, e := range s.inOrder() {
		q.round(70, eventstore.Through(e.Position), e)
	}
	q.ledger = nil
	r := judged(s.finish(100))[noSkip]
	if r.Verdict != verdict.Holds || r.Reason != "not judged: copy keeps no ledger" {
		t.Errorf("no-skip is %s (%s)", r.Verdict, r.Reason)
	}
}

func TestTheStoryOfAnObservationIsOfTheEventsItIsAbout(t *testing.T) {
	s := newStage(t)
	p := s.projector()
	opened(s, p)
	a := s.append("account-a", 2, 60, at(3), 10, 11)
	b := s.append("account-a", 3, 5, at(4), 30, 31)
	p.tx++
	p.effect(p.seq+1, a)
	p.observe(20, "after a kill") // the effect is there, the checkpoint not yet
	p.checkpoint(through(3))
	p.round(40, through(4), b)
	r := judged(s.finish(100))[atomic]
	if r.Verdict != verdict.Violated {
		t.Fatalf("atomic-checkpoint is %s (%s)", r.Verdict, r.Reason)
	}
	story := fmt.Sprint(r.Violations[0].Records)
	if !strings.Contains(story, "append of account-a v2") || !strings.Contains(story, "account-a v2 ("+shortID(a.ID)+")") || strings.Contains(story, "account-a v3") {
		t.Errorf("the story is %s", story)
	}
}

func TestARowThatExcusesAnEventIsNoUpdateThatWasLost(t *testing.T) {
	s := newStage(t)
	p := s.projector()
	opened(s, p)
	a := s.append("account-a", 2, 60, at(3), 10, 11)
	p.note(p.seq+1, a, history.Filtered)
	p.checkpoint(through(3))
	r := judged(s.finish(100))[foldEq]
	if r.Verdict != verdict.Violated {
		t.Fatalf("projection-equals-fold is %s (%s)", r.Verdict, r.Reason)
	}
	if text := r.Violations[0].Summary; !strings.Contains(text, "excuses") || strings.Contains(text, "lost or wrong") {
		t.Errorf("it says %q", text)
	}
}
