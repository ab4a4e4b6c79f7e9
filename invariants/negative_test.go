package invariants

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/invariants/oracle"
	"github.com/eventproof/eventproof/verdict"
)

// The negative controls: recorded runs of correct assemblies in which something looks wrong that is right. No rule may be
// violated, and the oddity has to be there, or the recording shows nothing. testdata/negative/record.sh records them
// again. Hand-made twins of them, and those that no run shows (a stale read before a conditional append, NC-05, since no
// assembly loads by one), are in twins_test.go and projection_schedules_test.go.
func TestNegativeControlsStayGreen(t *testing.T) {
	for _, c := range []struct {
		name, file string
		odd        func(*Run) int // how often the oddity is there
	}{
		{"NC-01 a hole in the positions for ever", "postgres-soak", holes},
		{"NC-03 a conflict, then ok for the same command", "postgres-hot", wonLater},
		{"NC-04 the place is taken by the own event, which is turned into ok", "dynamodb-soak", ownSlot},
		{"NC-06 several deliveries of an event, one effect", "postgres-soak", deliveredAgain},
		{"NC-09 an old snapshot is loaded although a newer one was kept", "postgres-soak", oldSnapshots},
		{"NC-10 offsets with gaps", "kafka-aborted", holes},
		{"NC-11 a losing bid, sent again, is stale again", "postgres-auction", staleTwice},
		{"NC-13 throttled tries of a write that then succeeds", "dynamodb-throttled", throttledFirst},
		{"NC-18 acknowledged, then the store is killed, then still there", "postgres-crash", outlivedTheStore},
		{"NC-20 the order of different streams is not that of their beginnings", "postgres-hot", crossedOver},
		{"NC-21 equal balances after different withdrawals", "postgres-hot", equalBalances},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := history.Open(filepath.Join("testdata", "negative", c.file+history.Ext))
			if err != nil {
				t.Fatal(err)
			}
			run, err := Load(r)
			if err := errors.Join(err, r.Close()); err != nil {
				t.Fatal(err)
			}
			holding := 0
			for _, v := range Check(run, Options{}) {
				switch v.Verdict {
				case verdict.Holds:
					holding++
				case verdict.Violated, verdict.Error, verdict.Inconclusive:
					t.Errorf("%s is %s: %s %+v", v.Invariant, v.Verdict, v.Reason, v.Violations)
				case verdict.NotExercised, verdict.NotPromised:
				}
			}
			n := c.odd(run)
			t.Logf("%d times, %d rules hold", n, holding)
			if n == 0 {
				t.Error("the recording does not show it")
			}
		})
	}
}

// holes counts places that no event has, below one that an event has.
func holes(run *Run) (n int) {
	shards := map[uint32][]uint64{}
	for _, l := range run.Log {
		shards[l.Position.Shard] = append(shards[l.Position.Shard], l.Position.Minor)
	}
	for _, places := range shards {
		slices.Sort(places)
		for i := 1; i < len(places); i++ {
			n += int(places[i] - places[i-1] - 1)
		}
	}
	return n
}

func wonLater(run *Run) (n int) {
	for _, c := range run.Calls {
		lost := slices.ContainsFunc(c.Writes, func(w *Write) bool { return w.Failed && w.conditionFailed() })
		if lost && c.End != nil && c.End.Result == history.ResultOK {
			n++
		}
	}
	return n
}

// ownSlot counts writes that found the place taken by themselves: by a later try, or by a read.
func ownSlot(run *Run) (n int) {
	for _, w := range run.Writes {
		unknown := slices.ContainsFunc(w.Attempts, func(a Attempt) bool { return a.Outcome == eventstore.Unknown })
		again := len(w.Attempts) > 1 && w.Attempts[len(w.Attempts)-1].Outcome == eventstore.OK
		if w.Applied && unknown && (again || w.Evidence != nil && w.Evidence.Outcome == eventstore.OK) {
			n++
		}
	}
	return n
}

func deliveredAgain(run *Run) int {
	for _, v := range Check(run, Options{Only: []string{"no-duplicate-projection"}}) {
		return int(v.Evidence[eventsReadAgain.Name])
	}
	return 0
}

func oldSnapshots(run *Run) (n int) {
	for _, s := range run.Streams {
		for _, q := range s.Reads {
			if q.Tail && slices.ContainsFunc(s.Snapshots, func(k *history.SnapshotWrite) bool { return k.Version >= q.From && k.T < q.Invoke }) {
				n++
			}
		}
	}
	return n
}

func staleTwice(run *Run) (n int) {
	for _, s := range run.Streams {
		stale := map[string]int{}
		for _, c := range s.Calls {
			if c.Name == "bid" && c.End != nil && c.End.Code == codeStale {
				if stale[c.Command.ID]++; stale[c.Command.ID] == 2 {
					n++
				}
			}
		}
	}
	return n
}

func throttledFirst(run *Run) (n int) {
	for _, w := range run.Writes {
		for i := range w.Attempts {
			if w.Acked && w.Attempts[i].Outcome == eventstore.Fail && w.Attempts[i].Reason == eventstore.Throttled {
				n++
			}
		}
	}
	return n
}

func outlivedTheStore(run *Run) (n int) {
	for _, f := range run.Faults {
		for _, b := range f.Bites {
			if b.Form != history.BiteKilled || f.On != "store" {
				continue
			}
			for _, w := range run.Writes {
				if w.Acked && w.Applied && w.Return < b.T {
					n++
				}
			}
		}
	}
	return n
}

func crossedOver(run *Run) (n int) {
	var log []*Logged
	for _, l := range run.Log {
		if l.Write != nil {
			log = append(log, l)
		}
	}
	slices.SortFunc(log, func(a, b *Logged) int { return a.Position.Compare(b.Position) })
	for i := 1; i < len(log); i++ {
		if a, b := log[i-1], log[i]; a.Stream != b.Stream && a.Write.Invoke > b.Write.Invoke {
			n++
		}
	}
	return n
}

func equalBalances(run *Run) (n int) {
	for _, s := range run.Streams {
		state, err := oracle.New(run.Info.Workload)
		if err != nil {
			return 0
		}
		seen := map[int64]bool{}
		for _, l := range s.Log {
			if err := state.Apply(l.LoggedEvent); err != nil {
				return 0
			}
			if l.Type == "FundsWithdrawn" && seen[state.Balance()] {
				n++
			}
			seen[state.Balance()] = true
		}
	}
	return n
}
