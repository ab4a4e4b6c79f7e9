package invariants

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/verdict"
)

// randomRun plays a correct same-transaction projector over a random log: positions with holes, overlapping
// appends, unknown outcomes that landed, kills with a page in hand, competing owners, observations.
func randomRun(t *testing.T, rng *rand.Rand) (*stage, *projectorDouble) {
	s := newStage(t)
	p := s.projector()
	versions := map[string]uint64{}
	balances := map[string]int64{}
	var log []*appended
	pos := uint64(0)
	for i := range int64(20 + rng.IntN(40)) {
		stream := fmt.Sprintf("account-%d", rng.IntN(5))
		if rng.IntN(8) == 0 {
			stream = "auction-x"
		}
		versions[stream]++
		pos += 1 + uint64(rng.IntN(3))/2
		amount := 1 + rng.Int64N(50)
		if balances[stream] > amount && rng.IntN(2) == 0 {
			amount = -amount
		}
		if stream == "auction-x" {
			amount = 100 + int64(versions[stream])
		}
		balances[stream] += amount
		// It takes effect at 100·i: any interval around that is fine.
		from, to := 100*i-rng.Int64N(250), 100*i+rng.Int64N(250)
		if rng.IntN(6) == 0 {
			log = append(log, s.appendUnknown(stream, versions[stream], amount, at(pos), max(1, from), to))
		} else {
			log = append(log, s.append(stream, versions[stream], amount, at(pos), max(1, from), max(2, to)))
		}
	}
	now := int64(10_000)
	for i := 0; i < len(log); {
		now += 10
		n := min(1+rng.IntN(6), len(log)-i)
		next := eventstore.Through(log[i+n-1].Position)
		switch rng.IntN(6) {
		case 0: // dies with the page in hand
			p.poll(now, next, n)
			p.kill(now + 1)
			if rng.IntN(2) == 0 {
				p.observe(now+2, "killed")
			}
			p.start(now + 5)
			continue
		case 1: // another owner
			p.epoch++
		}
		p.poll(now, next, n)
		p.tx++
		prev := p.cursor
		for _, e := range log[i : i+n] {
			if e.Stream != "auction-x" {
				p.effect(p.seq+1, e)
			} else if rng.IntN(2) == 0 {
				p.note(p.seq+1, e, history.Filtered)
			}
		}
		p.checkpoint(next)
		p.applied(now+1, prev, next, n)
		i += n
	}
	p.observe(now+20, "at the end")
	return s, p
}

func TestRandomCorrectProjectionsAreGreen(t *testing.T) {
	for seed := range uint64(150) {
		s, _ := randomRun(t, rand.New(rand.NewPCG(seed, 1)))
		run := s.finish(30_000)
		results := judged(run)
		for slug, r := range results {
			idle := slug == noDup && r.Verdict == verdict.NotExercised // no kill in this run
			if r.Verdict != verdict.Holds && !idle {
				t.Errorf("seed %d: %s is %s: %s %v", seed, slug, r.Verdict, r.Reason, r.Violations)
			}
		}
		if problems := projectionBookkeeping(run); len(problems) > 0 {
			t.Errorf("seed %d: bookkeeping: %v", seed, problems)
		}
	}
}

func TestASingleMutationOfACorrectProjectionIsCaught(t *testing.T) {
	type mutation struct {
		name string
		do   func(rng *rand.Rand, p *projectorDouble) bool // false: nothing to mutate here
		rule string                                        // that must be violated; empty = any, or error
	}
	for _, m := range []mutation{
		{"a ledger row dropped", func(rng *rand.Rand, p *projectorDouble) bool {
			i := rng.IntN(len(p.ledger))
			if p.ledger[i].How != history.Applied {
				return false
			}
			p.ledger = append(p.ledger[:i], p.ledger[i+1:]...)
			return true
		}, ""},
		{"an effect left out", func(rng *rand.Rand, p *projectorDouble) bool {
			i := rng.IntN(len(p.ledger))
			r := p.ledger[i]
			if r.How != history.Applied || r.Version == 1 {
				return false
			}
			p.ledger = append(p.ledger[:i], p.ledger[i+1:]...)
			p.rows[r.Row].balance += 1000
			return true
		}, noSkip},
		{"a ledger row doubled", func(rng *rand.Rand, p *projectorDouble) bool {
			r := *p.ledger[rng.IntN(len(p.ledger))]
			r.RowOrder += 1000
			p.ledger = append(p.ledger, &r)
			return r.How == history.Applied
		}, noDup},
		{"a checkpoint moved ahead", func(rng *rand.Rand, p *projectorDouble) bool {
			i := rng.IntN(len(p.values))
			if i == len(p.values)-1 {
				return false
			}
			moved := false
			for _, r := range p.ledger {
				moved = moved || r.Seq == p.values[i+1].Seq && r.How == history.Applied
			}
			p.values[i].Cursor = p.values[i+1].Cursor
			return moved
		}, noSkip},
		{"two effects of a row swapped", func(rng *rand.Rand, p *projectorDouble) bool {
			a := p.ledger[rng.IntN(len(p.ledger))]
			for _, b := range p.ledger {
				if b.Row == a.Row && b != a && a.How == history.Applied && b.How == history.Applied {
					a.RowOrder, b.RowOrder = b.RowOrder, a.RowOrder
					return true
				}
			}
			return false
		}, inOrder},
		{"a view row altered", func(rng *rand.Rand, p *projectorDouble) bool {
			p.final = p.view()
			v := p.final[rng.IntN(len(p.final))]
			v.State = append([]byte(`{"balance":1`), v.State[len(`{"balance":`):]...)
			return true
		}, foldEq},
		{"a view row at another version", func(rng *rand.Rand, p *projectorDouble) bool {
			p.final = p.view()
			p.final[rng.IntN(len(p.final))].Version++
			return true
		}, foldEq},
		{"a view row lost", func(rng *rand.Rand, p *projectorDouble) bool {
			p.final = p.view()
			i := rng.IntN(len(p.final))
			p.final = append(p.final[:i], p.final[i+1:]...)
			return true
		}, foldEq},
		{"two values of the checkpoint swapped", func(rng *rand.Rand, p *projectorDouble) bool {
			i := rng.IntN(len(p.values) - 1)
			p.values[i].Cursor, p.values[i+1].Cursor = p.values[i+1].Cursor, p.values[i].Cursor
			return true
		}, monotone},
		{"an observed row altered", func(rng *rand.Rand, p *projectorDouble) bool {
			for _, r := range p.s.records {
				if v, ok := r.(*history.ViewRow); ok && rng.IntN(3) == 0 {
					v.State = append([]byte(`{"balance":1`), v.State[len(`{"balance":`):]...)
					return true
				}
			}
			return false
		}, atomic},
		{"an observed row lost", func(_ *rand.Rand, p *projectorDouble) bool {
			for i, r := range p.s.records {
				if _, ok := r.(*history.ViewRow); ok {
					p.s.records = append(p.s.records[:i], p.s.records[i+1:]...)
					return true
				}
			}
			return false
		}, atomic},
		{"two positions of a stream swapped", func(rng *rand.Rand, p *projectorDouble) bool {
			log := p.s.inOrder()
			a := log[rng.IntN(len(log))]
			for _, b := range log {
				if b.Stream == a.Stream && b != a {
					a.Position, b.Position = b.Position, a.Position
					return true
				}
			}
			return false
		}, position},
		{"a position used twice", func(rng *rand.Rand, p *projectorDouble) bool {
			log := p.s.inOrder()
			i := rng.IntN(len(log) - 1)
			log[i].Position = log[i+1].Position
			return true
		}, position},
	} {
		t.Run(m.name, func(t *testing.T) {
			mutated := 0
			for seed := range uint64(60) {
				rng := rand.New(rand.NewPCG(seed, 2))
				s, p := randomRun(t, rng)
				if !m.do(rng, p) {
					continue
				}
				mutated++
				results := judged(s.finish(30_000))
				caught := results[m.rule].Verdict == verdict.Violated
				if m.rule == "" {
					for _, r := range results {
						caught = caught || r.Verdict == verdict.Violated || r.Verdict == verdict.Error
					}
				}
				if !caught {
					t.Errorf("seed %d: %s is %s (%s)", seed, m.rule, results[m.rule].Verdict, results[m.rule].Reason)
				}
			}
			if mutated < 10 {
				t.Errorf("only %d runs could be mutated", mutated)
			}
		})
	}
}
