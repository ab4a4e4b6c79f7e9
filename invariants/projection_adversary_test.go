package invariants

import (
	"slices"
	"testing"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/verdict"
)

// atLeastOnce makes the first projection one whose effects may be ahead of its checkpoint.
func (s *stage) atLeastOnce() {
	s.info.Projections[0].Mode = modeAtLeastOnce
	s.info.Projections[0].Superseding = true
}

// parking gives the first projection a parking policy.
func (s *stage) parking() { s.info.Projections[0].Parking = true }

// unversioned removes the versions of the rows that observations have seen so far.
func (s *stage) unversioned() {
	for _, r := range s.records {
		if v, ok := r.(*history.ViewRow); ok {
			v.Version = 0
		}
	}
}

func TestOddButCorrectProjectionsAreNotAccused(t *testing.T) {
	for name, play := range map[string]func(s *stage, p *projectorDouble){
		"a parked event replayed after later ones of its stream": func(s *stage, p *projectorDouble) {
			s.parking()
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			b := s.append("account-a", 3, 5, at(4), 12, 13)
			p.note(p.seq+1, a, history.Parked)
			p.checkpoint(through(3))
			p.round(20, through(4), b)
			p.effect(p.seq+1, a).RowVersion = 3
			p.rows["account-a"].version = 3
			p.checkpoint(through(4))
		},
		"a parked event replayed in a transaction of its own, after an observation": func(s *stage, p *projectorDouble) {
			s.parking()
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			p.note(p.seq+1, a, history.Parked)
			p.checkpoint(through(3))
			p.observe(20, "parked")
			p.effect(0, a)
			p.observe(30, "replayed")
		},
		"two parked events replayed one by one, observed in between": func(s *stage, p *projectorDouble) {
			s.parking()
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			b := s.append("account-a", 3, 7, at(4), 12, 13)
			c := s.append("account-a", 4, 9, at(5), 14, 15)
			p.note(p.seq+1, a, history.Parked)
			p.note(p.seq+1, b, history.Parked)
			p.effect(p.seq+1, c)
			p.checkpoint(through(5))
			p.effect(0, b).RowVersion = 4
			p.rows["account-a"].version = 4
			p.observe(30, "one replayed")
			p.effect(0, a).RowVersion = 4
			p.rows["account-a"].version = 4
		},
		"a view without versions, observed after its effect": func(s *stage, p *projectorDouble) {
			s.atLeastOnce()
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			p.effect(0, a)
			p.checkpoint(through(3))
			p.observe(20, "")
			s.unversioned()
		},
		"a gap that filled late, delivered again to a competitor": func(s *stage, p *projectorDouble) {
			s.atLeastOnce()
			gap := eventstore.Cursor{At: []eventstore.Position{at(4)}, Open: []eventstore.Position{at(3)}}
			b := s.append("account-b", 2, 40, at(4), 10, 11)
			p.poll(20, gap, 1)
			p.effect(0, b)
			p.checkpoint(gap)
			p.applied(21, through(2), gap, 1)
			a := s.append("account-a", 2, 60, at(3), 9, 30)
			p.poll(40, through(4), 1)
			p.effect(0, a)
			p.checkpoint(through(4))
			p.applied(41, gap, through(4), 1)
			p.cursor = through(2) // what a competitor had loaded long ago
			p.poll(60, through(4), 2)
		},
		"a superseded row that read the counter of an effect without a checkpoint": func(s *stage, p *projectorDouble) {
			s.atLeastOnce()
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			b := s.append("account-a", 3, 5, at(4), 12, 13)
			p.effect(0, a)
			p.effect(0, b)
			p.checkpoint(through(4))
			late := p.note(p.seq+1, a, history.Superseded) // a competitor, with a stale page
			late.RowOrder = 3
			p.checkpoint(through(4))
			n := len(p.ledger)
			p.ledger[n-1], p.ledger[n-2] = p.ledger[n-2], p.ledger[n-1] // ties come in any order
		},
		"observations without a counter, and no history of the checkpoint": func(s *stage, p *projectorDouble) {
			s.atLeastOnce()
			p.values, p.seq = nil, 0
			p.observe(10, "")
			a := s.append("account-a", 2, 60, at(3), 11, 12)
			p.poll(30, through(3), 1)
			p.effect(0, a)
			p.cursor = through(3)
			p.observe(50, "")
			for _, r := range p.ledger {
				r.Seq = 0
			}
		},
		"no history of the checkpoint, which moved on after the last observation": func(s *stage, p *projectorDouble) {
			p.observe(10, "")
			a := s.append("account-a", 2, 60, at(3), 11, 12)
			p.round(20, through(3), a)
			p.values = nil
		},
		"values of a checkpoint without a counter have no order": func(s *stage, p *projectorDouble) {
			p.checkpoint(through(1))
			p.checkpoint(through(2))
			p.values[0].Seq, p.values[1].Seq, p.values[2].Seq = 0, 0, 0
			for _, r := range p.ledger {
				r.Seq = 0
			}
		},
		"two effects with the same counter of the row": func(s *stage, p *projectorDouble) {
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			b := s.append("account-a", 3, 5, at(4), 12, 13)
			p.round(20, through(4), a, b)
			n := len(p.ledger)
			p.ledger[n-1].RowOrder = p.ledger[n-2].RowOrder
			p.ledger[n-1], p.ledger[n-2] = p.ledger[n-2], p.ledger[n-1]
		},
		"an older generation whose rows are being removed": func(s *stage, p *projectorDouble) {
			p.final = p.view()[:1]
			q := s.projectorOf("balances", 2)
			for _, e := range s.inOrder() {
				q.round(30, eventstore.Through(e.Position), e)
			}
		},
		"a rebuild that has not come far beside the live view": func(s *stage, p *projectorDouble) {
			q := s.projectorOf("balances", 2)
			e := s.inOrder()[0]
			q.round(30, eventstore.Through(e.Position), e)
		},
		"an event whose ledger row of another view row stands beside the right one": func(s *stage, p *projectorDouble) {
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			p.round(20, through(3), a)
			p.note(p.seq, a, history.Filtered)
		},
		"competing owners: the loser's page was superseded": func(s *stage, p *projectorDouble) {
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			p.poll(20, through(3), 1)
			prev := p.cursor
			s.add(&history.Apply{Process: p.process, Projection: "balances", Generation: 1, Invoke: ms(21), T: ms(22), Prev: prev, Next: through(3), Events: 1, Outcome: eventstore.Fail, Reason: eventstore.Superseded})
			p.start(23)
			p.round(24, through(3), a)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			p := s.projector()
			opened(s, p)
			play(s, p)
			wantViolated(t, s.finish(100))
		})
	}
}

func TestWrongProjectionsThatLookRightAreCaught(t *testing.T) {
	for name, c := range map[string]struct {
		play      func(s *stage, p *projectorDouble)
		must, may []string
	}{
		"events noted as filtered that the view takes, and that cancel out": {func(s *stage, p *projectorDouble) {
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			b := s.append("account-a", 3, -60, at(4), 12, 13)
			c := s.append("account-a", 4, 1, at(5), 14, 15)
			p.note(p.seq+1, a, history.Filtered)
			p.note(p.seq+1, b, history.Filtered)
			p.effect(p.seq+1, c)
			p.checkpoint(through(5))
		}, []string{noSkip, inOrder}, []string{atomic}},
		"events applied to another view row, where they cancel out": {func(s *stage, p *projectorDouble) {
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			b := s.append("account-a", 3, -60, at(4), 12, 13)
			c := s.append("account-a", 4, 1, at(5), 14, 15)
			for i, e := range []*appended{a, b} {
				r := p.note(p.seq+1, e, history.Applied)
				r.Row, r.RowVersion, r.RowOrder = "account-b", 1, uint64(2+i)
			}
			p.effect(p.seq+1, c)
			p.checkpoint(through(5))
		}, []string{noSkip, inOrder}, []string{atomic}},
		"one event skipped, another of the same amount applied twice": {func(s *stage, p *projectorDouble) {
			s.append("account-a", 2, 60, at(3), 10, 11)
			b := s.append("account-a", 3, 60, at(4), 12, 13)
			p.round(20, through(4), b)
			p.effect(p.seq+1, b)
			p.checkpoint(through(4))
		}, []string{noSkip, noDup, inOrder}, []string{foldEq, atomic}},
		"a ledger without counters of its view rows still tells what is missing": {func(s *stage, p *projectorDouble) {
			s.append("account-a", 2, 60, at(3), 10, 11)
			b := s.append("account-a", 3, 60, at(4), 12, 13)
			p.round(20, through(4), b)
			for _, r := range p.ledger {
				r.RowOrder = 0
			}
		}, []string{noSkip, inOrder, foldEq}, []string{atomic}},
		"a row without a version among rows with one": {func(s *stage, p *projectorDouble) {
			p.final = p.view()
			p.final[0].Version = 0
		}, []string{foldEq}, nil},
		"superseded by an effect that came later": {func(s *stage, p *projectorDouble) {
			s.atLeastOnce()
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			p.note(p.seq+1, a, history.Superseded).RowVersion = 3
			p.checkpoint(through(3))
			b := s.append("account-a", 3, 5, at(4), 30, 31)
			p.round(40, through(4), b)
		}, []string{noSkip, foldEq}, []string{atomic, inOrder}},
		"an update lost in the live view beside a rebuild": {func(s *stage, p *projectorDouble) {
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			p.round(20, through(3), a)
			p.rows["account-a"].balance = 0
			q := s.projectorOf("balances", 2)
			e := s.inOrder()[0]
			q.round(30, eventstore.Through(e.Position), e)
		}, []string{foldEq}, nil},
		"state that is not one JSON value": {func(s *stage, p *projectorDouble) {
			p.final = p.view()
			p.final[0].State = append(p.final[0].State, '}')
		}, []string{foldEq}, nil},
		"a parked event half applied by its replay": {func(s *stage, p *projectorDouble) {
			s.parking()
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			p.note(p.seq+1, a, history.Parked)
			p.checkpoint(through(3))
			p.effect(0, a)
			p.rows["account-a"].balance = 59
			p.observe(30, "replayed")
			p.rows["account-a"].balance = 60
		}, []string{atomic}, nil},
		"an event parked only after it was applied out of order": {func(s *stage, p *projectorDouble) {
			s.parking()
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			b := s.append("account-a", 3, 5, at(4), 12, 13)
			p.effect(p.seq+1, b)
			p.effect(p.seq+1, a)
			p.rows["account-a"].version = 3
			p.checkpoint(through(4))
			p.note(p.seq+1, a, history.Parked)
			p.checkpoint(through(4))
		}, []string{inOrder}, []string{foldEq, atomic}},
		"no history of the checkpoint, drained, one event missing": {func(s *stage, p *projectorDouble) {
			p.observe(10, "")
			s.append("account-a", 2, 60, at(3), 11, 12)
			p.values = nil
		}, []string{noSkip, foldEq}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			p := s.projector()
			opened(s, p)
			c.play(s, p)
			wantBetween(t, s.finish(100), c.must, c.may)
		})
	}
}

func TestNothingToBreakIsNoGreen(t *testing.T) {
	for name, c := range map[string]struct {
		play func(s *stage)
		slug string
		want verdict.Verdict
	}{
		"holes in the positions that no checkpoint has passed": {func(s *stage) {
			s.projector()
			s.append("account-a", 1, 0, at(3), 10, 20)
			s.append("account-b", 1, 0, at(7), 30, 40)
		}, noSkip, verdict.NotExercised},
		"an unknown write that landed beyond every checkpoint": {func(s *stage) {
			s.projector()
			s.appendUnknown("account-a", 1, 0, at(1), 10, 20)
		}, noSkip, verdict.NotExercised},
		"overlaps polled by a projection that is not judged": {func(s *stage) {
			s.info.Projections[0].Ledger = false
			s.info.Projections = append(s.info.Projections, history.ProjectionInfo{Name: "copy", View: "balances", Mode: "transactional", Ledger: true})
			p := s.projector()
			s.append("account-a", 1, 0, at(1), 10, 50)
			s.append("account-b", 1, 0, at(2), 20, 25)
			p.poll(30, p.cursor, 0)
		}, noSkip, verdict.NotExercised},
		"holes in the positions do not tempt their order": {func(s *stage) {
			p := s.projector()
			a := s.append("account-a", 1, 0, at(3), 10, 20)
			b := s.append("account-b", 1, 0, at(7), 30, 40)
			p.round(50, through(7), a, b)
		}, position, verdict.NotExercised},
		"writes of one stream in flight together tempt their order": {func(s *stage) {
			p := s.projector()
			a := s.append("account-a", 1, 0, at(3), 10, 20)
			b := s.append("account-a", 2, 5, at(7), 15, 40)
			p.round(50, through(7), a, b)
		}, position, verdict.Holds},
		"a projector that died with a page and never came back": {func(s *stage) {
			p := s.projector()
			opened(s, p)
			s.append("account-a", 2, 60, at(3), 10, 11)
			p.poll(20, through(3), 1)
			p.kill(25)
		}, noDup, verdict.NotExercised},
		"filtered events read again": {func(s *stage) {
			p := s.projector()
			opened(s, p)
			s.append("auction-x", 1, 0, at(3), 10, 11)
			p.poll(20, through(3), 1)
			p.poll(30, through(3), 1)
		}, noDup, verdict.NotExercised},
		"events read again by a projection without a ledger": {func(s *stage) {
			s.info.Projections = append(s.info.Projections, history.ProjectionInfo{Name: "copy", View: "balances", Mode: "transactional"})
			p, q := s.projector(), s.projectorOf("copy", 1)
			opened(s, p)
			for _, e := range s.inOrder() {
				q.poll(20, eventstore.Through(e.Position), 1)
				q.round(30, eventstore.Through(e.Position), e)
			}
			q.ledger = nil
		}, noDup, verdict.NotExercised},
		"an observation before anything was delivered": {func(s *stage) {
			p := s.projector()
			s.append("account-a", 1, 0, at(1), 1, 2)
			p.observe(5, "")
		}, atomic, verdict.NotExercised},
		"an observation after a page was delivered": {func(s *stage) {
			p := s.projector()
			s.append("account-a", 1, 0, at(1), 1, 2)
			p.poll(3, through(1), 1)
			p.observe(5, "")
		}, atomic, verdict.Holds},
		"moves of a checkpoint that claims nothing": {func(s *stage) {
			p := s.projector()
			s.append("account-a", 1, 0, at(1), 1, 2)
			p.checkpoint(eventstore.Cursor{})
			p.checkpoint(eventstore.Cursor{})
		}, monotone, verdict.NotExercised},
		"values of a checkpoint without a counter": {func(s *stage) {
			p := s.projector()
			opened(s, p)
			p.checkpoint(through(2))
			p.values[0].Seq, p.values[1].Seq = 0, 0
		}, monotone, verdict.NotExercised},
		"a ledger without counters of its view rows": {func(s *stage) {
			p := s.projector()
			opened(s, p)
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			b := s.append("account-a", 3, 60, at(4), 12, 13)
			p.round(20, through(4), a, b)
			for _, r := range p.ledger {
				r.RowOrder = 0
			}
		}, inOrder, verdict.NotExercised},
		"effects of unknown transactions are no batch": {func(s *stage) {
			p := s.projector()
			opened(s, p)
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			b := s.append("account-a", 3, 60, at(4), 12, 13)
			p.round(20, through(3), a)
			p.round(30, through(4), b)
			for _, r := range p.ledger {
				r.Seq, r.Transaction = 0, 0
			}
		}, inOrder, verdict.NotExercised},
		"a row whose events can't be folded": {func(s *stage) {
			p := s.projector()
			opened(s, p)
			s.inOrder()[0].Data = []byte("{")
		}, foldEq, verdict.Inconclusive},
		"an empty log": {func(s *stage) {
			p := s.projector()
			p.poll(5, p.cursor, 0)
			p.observe(6, "")
		}, atomic, verdict.NotExercised},
		"an empty log and a row of nobody": {func(s *stage) {
			s.projector().final = []*history.ViewRow{{Projection: "balances", Generation: 1, Row: "account-a", Version: 1, State: []byte(`{}`)}}
		}, foldEq, verdict.Violated},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			c.play(s)
			if r := judged(s.finish(100))[c.slug]; r.Verdict != c.want {
				t.Errorf("%s is %s (%s) with %v, want %s", c.slug, r.Verdict, r.Reason, r.Evidence, c.want)
			}
		})
	}
}

func TestStandingStillIsToldFromHavingNothingToDo(t *testing.T) {
	idle := func(p *projectorDouble) {
		for i := range int64(13) {
			p.poll(100+i*1000, p.cursor, 0)
		}
	}
	for name, c := range map[string]struct {
		play func(s *stage, p *projectorDouble)
		want verdict.Verdict
	}{
		"an event appended just before the end, after a long silence": {func(s *stage, p *projectorDouble) {
			idle(p)
			s.append("account-a", 2, 60, at(3), 12_600, 12_650)
		}, verdict.Inconclusive},
		"an event that nobody acknowledged may have landed just before the end": {func(s *stage, p *projectorDouble) {
			idle(p)
			s.appendUnknown("account-a", 2, 60, at(3), 10, 11)
		}, verdict.Inconclusive},
		"an old event beside one that was appended just before the end": {func(s *stage, p *projectorDouble) {
			idle(p)
			s.append("account-a", 2, 60, at(3), 10, 11)
			s.append("account-a", 3, 60, at(4), 12_600, 12_650)
		}, verdict.Violated},
		"held by a foreign transaction until just before the end": {func(s *stage, p *projectorDouble) {
			s.append("account-a", 2, 60, at(3), 10, 11)
			idle(p)
			for _, r := range s.records {
				if poll, ok := r.(*history.Poll); ok && poll.Invoke >= ms(100) {
					poll.Held = "a foreign transaction"
				}
			}
			p.poll(12_800, through(3), 1)
		}, verdict.Inconclusive},
		"held once, and then for nobody": {func(s *stage, p *projectorDouble) {
			s.append("account-a", 2, 60, at(3), 10, 11)
			s.add(&history.Poll{Process: p.process, Projection: "balances", Generation: 1, Invoke: ms(50), T: ms(51),
				After: p.cursor, Next: p.cursor, Held: "a foreign transaction", Outcome: eventstore.OK})
			idle(p)
		}, verdict.Violated},
		"a page in hand for ever": {func(s *stage, p *projectorDouble) {
			s.append("account-a", 2, 60, at(3), 10, 11)
			p.poll(100, through(3), 1)
		}, verdict.Violated},
		"a projector that is back and never asks": {func(s *stage, p *projectorDouble) {
			s.append("account-a", 2, 60, at(3), 10, 11)
			p.poll(100, through(3), 1)
			p.kill(200)
			p.start(300)
		}, verdict.Violated},
		"a page applied again and again, and the checkpoint never moves": {func(s *stage, p *projectorDouble) {
			s.atLeastOnce()
			s.append("account-a", 2, 60, at(3), 10, 11)
			for i := range int64(13) {
				p.poll(100+1000*i, through(3), 1)
				s.add(&history.Apply{Process: p.process, Projection: "balances", Generation: 1, Invoke: ms(200 + 1000*i), T: ms(300 + 1000*i),
					Prev: p.cursor, Next: through(3), Events: 1, Outcome: eventstore.OK})
			}
		}, verdict.Violated},
		"two of them, one dead and one at work": {func(s *stage, p *projectorDouble) {
			a := s.append("account-a", 2, 60, at(3), 10, 11)
			s.append("account-a", 3, 60, at(4), 12, 13)
			p.poll(100, through(3), 1)
			p.kill(200)
			p.start(300)
			p.round(12_000, through(3), a)
		}, verdict.Inconclusive},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			p := s.projector()
			opened(s, p)
			c.play(s, p)
			r := judged(s.finish(13_300))[progress]
			if r.Verdict != c.want {
				t.Errorf("progress is %s (%s), want %s", r.Verdict, r.Reason, c.want)
			}
			if (r.Verdict == verdict.Inconclusive) != (r.Reason != "") {
				t.Errorf("reason %q", r.Reason)
			}
		})
	}
}

func TestWhatAPollDelivers(t *testing.T) {
	s := newStage(t)
	for i := range uint64(6) {
		s.append("account-"+string(rune('a'+i)), 1, 0, at(i+1), int64(i), int64(i+1))
	}
	log := newFeedLog(s.finish(100))
	open := func(at1 uint64, gaps ...uint64) eventstore.Cursor {
		c := through(at1)
		for _, g := range gaps {
			c.Open = append(c.Open, at(g))
		}
		return c
	}
	for name, c := range map[string]struct {
		after, next eventstore.Cursor
		want        []int32
	}{
		"from the beginning":             {eventstore.Cursor{}, through(2), []int32{0, 1}},
		"a stretch":                      {through(2), through(4), []int32{2, 3}},
		"a stretch with gaps":            {through(1), open(5, 2, 4), []int32{2, 4}},
		"a gap that was closed":          {open(4, 2), through(4), []int32{1}},
		"a gap closed beside a stretch":  {open(4, 2, 3), open(6, 3), []int32{1, 4, 5}},
		"a gap where there is no event":  {through(2), open(4, 9), []int32{2, 3}},
		"nothing":                        {through(4), through(4), nil},
		"backwards":                      {through(4), through(2), nil},
		"a gap that ends the stretch":    {through(2), open(4, 4), []int32{2}},
		"a gap that begins the stretch":  {through(2), open(4, 3), []int32{3}},
		"a gap kept open from before it": {open(4, 2), open(5, 2), []int32{4}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []int32
			log.newly(c.after, c.next, func(r span) {
				for k := r.from; k < r.to; k++ {
					got = append(got, k)
				}
			})
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
