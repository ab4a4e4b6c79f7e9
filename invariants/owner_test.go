package invariants

import (
	"testing"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/verdict"
)

// partition is a position in one partition.
func partition(n uint32, offset uint64) eventstore.Position {
	return eventstore.Position{Shard: n, Minor: offset + 1}
}

// owned is a stage of a log that owners write.
func owned(t *testing.T) *stage {
	s := newStage(t)
	s.info.Promises = []eventstore.Promise{
		eventstore.StreamOrder, eventstore.CompleteFeed, eventstore.FencedOwnership, eventstore.PartitionedLog,
	}
	return s
}

// by notes the owner epoch of an event that was appended.
func (a *appended) by(s *stage, epoch uint64) *appended {
	a.Meta.Epoch = epoch
	for _, r := range s.records {
		if l, ok := r.(*history.LoggedEvent); ok && l.ID == a.ID {
			l.Meta.Epoch = epoch
		}
	}
	return a
}

// acknowledgedAt makes the ok answer to an event name a position.
func (a *appended) acknowledgedAt(s *stage, p eventstore.Position) *appended {
	for _, r := range s.records {
		if ret, ok := r.(*history.Return); ok && len(ret.Events) == 1 && ret.Events[0] == a.ID {
			ret.Positions = []eventstore.Position{p}
		}
	}
	return a
}

func TestAnOwnerThatWritesAfterItsSuccessorIsCaughtAndNothingElse(t *testing.T) { // CV-KA-06
	s := owned(t)
	s.append("account-a", 1, 0, partition(0, 0), 1, 2).by(s, 4)
	s.append("account-b", 1, 0, partition(0, 1), 3, 4).by(s, 4)
	s.append("account-a", 2, 10, partition(0, 2), 10, 14).by(s, 5)
	s.append("account-b", 2, 10, partition(0, 3), 9, 20).by(s, 4) // the one that was paused
	results := wantViolated(t, s.finish(100), "fenced-owner")
	if got := results["fenced-owner"]; got.Evidence["takeovers"] != 1 || got.Evidence["appends_at_takeover"] != 1 || got.Count != 1 {
		t.Errorf("evidence %v, %d violations", got.Evidence, got.Count)
	}
}

func TestOwnersThatFollowEachOtherAreGreen(t *testing.T) { // NC-16
	s := owned(t)
	s.append("account-a", 1, 0, partition(0, 0), 1, 2).by(s, 4)
	s.append("account-b", 1, 0, partition(1, 0), 3, 4).by(s, 9)
	s.append("account-a", 2, 10, partition(0, 2), 10, 14).by(s, 5)
	s.append("account-b", 2, 10, partition(1, 3), 15, 20).by(s, 9) // another partition has epochs of its own
	if got := wantViolated(t, s.finish(100))["fenced-owner"]; got.Verdict != verdict.Holds {
		t.Errorf("%s: %s", got.Verdict, got.Reason)
	}
}

func TestWithoutATakeOverFencingIsNotExercised(t *testing.T) {
	s := owned(t)
	s.append("account-a", 1, 0, partition(0, 0), 1, 2).by(s, 4)
	s.append("account-a", 2, 10, partition(0, 1), 3, 4).by(s, 4)
	if got := wantViolated(t, s.finish(100))["fenced-owner"]; got.Verdict != verdict.NotExercised {
		t.Errorf("%s: %s", got.Verdict, got.Reason)
	}
}

func TestEventsThatNameNoOwnerLeaveFencingOpen(t *testing.T) {
	s := owned(t)
	s.append("account-a", 1, 0, partition(0, 0), 1, 2).by(s, 4)
	s.append("account-a", 2, 10, partition(0, 1), 3, 4)
	if got := wantViolated(t, s.finish(100))["fenced-owner"]; got.Verdict != verdict.Inconclusive {
		t.Errorf("%s: %s", got.Verdict, got.Reason)
	}
}

func TestAnEventAtItsAcknowledgedOffsetIsGreen(t *testing.T) {
	s := owned(t)
	s.append("account-a", 1, 0, partition(0, 0), 1, 2).by(s, 1).acknowledgedAt(s, partition(0, 0))
	s.append("account-a", 2, 10, partition(0, 7), 3, 4).by(s, 1).acknowledgedAt(s, partition(0, 7)) // NC-10
	got := wantViolated(t, s.finish(100))["kafka-log"]
	if got.Verdict != verdict.Holds || got.Evidence["acknowledged_offsets"] != 2 || got.Evidence["offset_pairs"] != 1 {
		t.Errorf("%s: %s %v", got.Verdict, got.Reason, got.Evidence)
	}
}

func TestAnEventAtAnotherOffsetThanAcknowledgedIsCaught(t *testing.T) {
	for name, told := range map[string]eventstore.Position{"offset": partition(0, 5), "partition": partition(3, 1)} {
		t.Run(name, func(t *testing.T) {
			s := owned(t)
			s.append("account-a", 1, 0, partition(0, 0), 1, 2).by(s, 1)
			s.append("account-a", 2, 10, partition(0, 1), 3, 4).by(s, 1).acknowledgedAt(s, told)
			wantBetween(t, s.finish(100), []string{"kafka-log"}, []string{"no-lost-ack"})
		})
	}
}

func TestAnEventThatIsInThePartitionTwiceIsCaught(t *testing.T) { // CV-KA-02
	s := owned(t)
	s.append("account-a", 1, 0, partition(0, 0), 1, 2).by(s, 1)
	a := s.append("account-a", 2, 10, partition(0, 1), 3, 4).by(s, 1)
	again := a.LoggedEvent
	again.Position = partition(0, 2)
	s.add(&again)
	wantBetween(t, s.finish(100), []string{"kafka-log"}, nil)
}

func TestAStreamWhoseOffsetsRunAgainstItsVersionsIsCaught(t *testing.T) { // CV-KA-09
	s := owned(t)
	s.append("account-a", 1, 0, partition(0, 0), 1, 2).by(s, 1)
	s.append("account-a", 2, 10, partition(0, 9), 3, 4).by(s, 1)
	s.append("account-a", 3, 10, partition(0, 5), 5, 6).by(s, 1)
	wantBetween(t, s.finish(100), []string{"kafka-log", "position-order"}, nil)
}
