package invariants

import (
	"testing"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
)

func TestOpportunitiesAreCountedFromTheLoad(t *testing.T) {
	for name, c := range map[string]struct {
		play func(s *stage, p *projectorDouble)
		want map[string]int64
	}{
		"appends one after another": {func(s *stage, p *projectorDouble) {
			s.append("account-a", 1, 0, at(1), 10, 20)
			s.append("account-b", 1, 0, at(2), 30, 40)
			p.poll(25, p.cursor, 0)
		}, map[string]int64{"overlapping_appends": 0, "overlapping_appends_one_stream": 0, "overlapping_appends_polled": 0, "held_transactions": 0}},
		"an overlap and no poll": {func(s *stage, _ *projectorDouble) {
			s.append("account-a", 1, 0, at(1), 10, 50)
			s.append("account-b", 1, 0, at(2), 20, 25)
		}, map[string]int64{"overlapping_appends": 1, "overlapping_appends_polled": 0, "held_transactions": 0}},
		"an overlap with a poll between the answers": {func(s *stage, p *projectorDouble) {
			s.append("account-a", 1, 0, at(1), 10, 50)
			s.append("account-b", 1, 0, at(2), 20, 25)
			p.poll(30, p.cursor, 0)
		}, map[string]int64{"overlapping_appends": 1, "overlapping_appends_polled": 1, "held_transactions": 1}},
		"an overlap with a poll before both answers": {func(s *stage, p *projectorDouble) {
			s.append("account-a", 1, 0, at(1), 10, 50)
			s.append("account-b", 1, 0, at(2), 15, 25)
			p.poll(20, p.cursor, 0)
		}, map[string]int64{"overlapping_appends": 1, "overlapping_appends_polled": 0, "held_transactions": 2}},
		"an overlap on one stream": {func(s *stage, p *projectorDouble) {
			s.append("account-a", 1, 0, at(1), 10, 50)
			s.append("account-a", 2, 5, at(2), 20, 25)
			p.poll(30, p.cursor, 0)
		}, map[string]int64{"overlapping_appends": 0, "overlapping_appends_one_stream": 1, "overlapping_appends_polled": 0, "held_transactions": 1}},
		"holes in the positions": {func(s *stage, p *projectorDouble) {
			s.append("account-a", 1, 0, at(3), 10, 20)
			s.append("account-b", 1, 0, at(7), 30, 40)
			s.append("account-c", 1, 0, at(9), 50, 60) // nothing has passed the hole below it
			p.checkpoint(through(7))
		}, map[string]int64{"burned_positions": 3}},
		"positions that no sequence gives": {func(s *stage, _ *projectorDouble) {
			s.append("account-a", 1, 0, eventstore.Position{Major: 9, Minor: 1}, 10, 20)
			s.append("account-b", 1, 0, eventstore.Position{Major: 14, Minor: 1}, 30, 40)
		}, map[string]int64{"burned_positions": 0}},
		"an unknown write that landed": {func(s *stage, p *projectorDouble) {
			s.appendUnknown("account-a", 1, 0, at(1), 10, 20)
			s.appendUnknown("account-b", 1, 0, at(2), 10, 20)
			p.checkpoint(through(1))
		}, map[string]int64{"unknown_landed": 1}},
		"a page delivered twice after a kill": {func(s *stage, p *projectorDouble) {
			a := s.append("account-a", 1, 0, at(1), 10, 20)
			b := s.append("account-b", 1, 0, at(2), 30, 40)
			p.poll(50, through(2), 2)
			p.kill(51)
			p.start(60)
			p.round(61, through(2), a, b)
		}, map[string]int64{"events_read_again": 2, "kills_with_batch_open": 1, "restarts_with_unhandled_batch": 1, "streams_in_one_batch": 0}},
		"a kill after the page was applied": {func(s *stage, p *projectorDouble) {
			a := s.append("account-a", 1, 0, at(1), 10, 20)
			p.round(50, through(1), a)
			p.kill(60)
			p.start(70)
		}, map[string]int64{"events_read_again": 0, "kills_with_batch_open": 0, "restarts_with_unhandled_batch": 0}},
		"a kill inside an application": {func(s *stage, p *projectorDouble) {
			s.append("account-a", 1, 0, at(1), 10, 20)
			p.poll(50, through(1), 1)
			s.add(&history.Apply{Process: p.process, Projection: "balances", Generation: 1, Invoke: ms(51), T: ms(55), Next: through(1), Events: 1, Outcome: eventstore.Unknown})
			p.kill(55)
		}, map[string]int64{"kills_with_batch_open": 1, "restarts_with_unhandled_batch": 0, "unknown_applies": 1}},
		"two events of a stream in one batch, then another owner": {func(s *stage, p *projectorDouble) {
			a := s.append("account-a", 1, 0, at(1), 10, 20)
			b := s.append("account-a", 2, 5, at(2), 30, 40)
			c := s.append("account-a", 3, 5, at(3), 50, 60)
			p.round(70, through(2), a, b)
			p.epoch++
			p.round(80, through(3), c)
		}, map[string]int64{"streams_in_one_batch": 1, "streams_across_owners": 1, "checkpoint_moves": 1, "checkpoint_owner_changes": 1, "events_projected": 3, "view_rows_compared": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			c.play(s, s.projector())
			counted := map[string]int64{}
			for _, r := range judged(s.finish(100)) {
				for key, n := range r.Evidence {
					if old, twice := counted[key]; twice && old != n {
						t.Errorf("%s is %d to one rule and %d to another", key, old, n)
					}
					counted[key] = n
				}
			}
			for key, n := range c.want {
				if got, known := counted[key]; !known || got != n {
					t.Errorf("%s = %d, want %d", key, got, n)
				}
			}
		})
	}
}

func TestSupersededRowsOfAFoldedBatchHandleTheirEvents(t *testing.T) {
	s := newStage(t)
	s.info.Projections[0].Superseding = true
	p := s.projector()
	opened(s, p)
	a := s.append("account-a", 2, 60, at(3), 10, 11)
	b := s.append("account-a", 3, 5, at(4), 12, 13)
	// One update for the whole batch: the last event is applied, the one before it superseded beside it.
	p.rows["account-a"].balance += 60
	p.effect(p.seq+1, b)
	p.note(p.seq+1, a, history.Superseded)
	p.checkpoint(through(4))
	wantViolated(t, s.finish(100))
}
