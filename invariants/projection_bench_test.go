package invariants

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/verdict"
)

// longRun is a projected log of n events on the given number of streams, one append and one poll in flight at
// any time; with counters in the ledger, or with effects in transactions of their own.
func longRun(n, streams int, counters bool) *Run {
	info := newStage(nil).info
	run := &Run{
		Info: info, Processes: map[uint32]*Process{}, Streams: map[string]*Stream{},
		Log:   map[eventstore.EventID]*Logged{},
		Fence: &history.Fence{T: int64(n)*100 + 1000, Drained: true}, Audit: &history.Audit{},
		Projections: map[Sigma]*Projection{},
	}
	p := &Projection{Sigma: Sigma{"balances", 1}, Info: info.Projections[0]}
	run.Projections[p.Sigma] = p
	owner := &Call{Command: &Command{ID: "c"}}
	const page = 100
	var prev eventstore.Cursor
	for i := range n {
		name := fmt.Sprintf("account-%d", i%streams)
		s := run.Streams[name]
		if s == nil {
			s = &Stream{Name: name}
			run.Streams[name] = s
			run.StreamNames = append(run.StreamNames, name)
		}
		var id eventstore.EventID
		binary.BigEndian.PutUint64(id[:8], uint64(i+1)*0x9e3779b97f4a7c15)
		typ, data := payload(name, uint64(len(s.Log)+1), 5, 1)
		from := int64(i) * 100
		w := &Write{Owner: owner, Stream: name, Invoke: from, Return: from + 150, Last: from + 150, Acked: true, Applied: true}
		l := &Logged{LoggedEvent: history.LoggedEvent{Stream: name, Version: uint64(len(s.Log) + 1), ID: id, Type: typ, Data: data, Position: at(uint64(i + 1))}, Write: w}
		s.Log = append(s.Log, l)
		run.Writes = append(run.Writes, w)
		run.Log[id] = l
		seq := uint64(i/page + 1)
		if !counters {
			seq = 0
		}
		p.Ledger = append(p.Ledger, &history.LedgerRow{Projection: "balances", Generation: 1, Event: id, Stream: name, Version: l.Version,
			Row: name, How: history.Applied, RowVersion: l.Version, RowOrder: l.Version, Seq: seq, Transaction: uint64(i / page), Epoch: 1})
		if i%page == page-1 || i == n-1 {
			next := through(uint64(i + 1))
			p.Checkpoints = append(p.Checkpoints, &history.CheckpointRow{Projection: "balances", Generation: 1, Seq: uint64(i/page + 1), Epoch: 1, Cursor: next})
			run.Polls = append(run.Polls, &history.Poll{Process: 2, Projection: "balances", Generation: 1, Invoke: from + 120, T: from + 130, After: prev, Next: next, Events: page, Outcome: eventstore.OK})
			prev = next
		}
	}
	for name, s := range run.Streams {
		k := len(s.Log)
		row := fmt.Appendf(nil, `{"balance":%d,"owner":"ada","status":"open"}`, 5*(k-1))
		p.Final = append(p.Final, &history.ViewRow{Projection: "balances", Generation: 1, Row: name, Version: uint64(k), State: row})
	}
	return run
}

func BenchmarkProjectionRules(b *testing.B) {
	for _, c := range []struct {
		name     string
		streams  int
		counters bool
	}{{"same-transaction/1000-streams", 1000, true}, {"same-transaction/1-stream", 1, true}, {"own-transactions/1000-streams", 1000, false}} {
		b.Run(c.name, func(b *testing.B) {
			run := longRun(1_000_000, c.streams, c.counters)
			b.ResetTimer()
			for range b.N {
				run.shared.feeds = nil
				for slug, r := range judged(run) {
					if r.Verdict == verdict.Violated || r.Verdict == verdict.Error {
						b.Fatalf("%s is %s: %s %v", slug, r.Verdict, r.Reason, r.Violations)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1e6, "ns/event")
		})
	}
}

func TestALongRunIsJudgedLikeAShortOne(t *testing.T) {
	for slug, r := range judged(longRun(5000, 7, false)) {
		if r.Verdict == verdict.Violated || r.Verdict == verdict.Error {
			t.Errorf("%s is %s: %s %v", slug, r.Verdict, r.Reason, r.Violations)
		}
	}
}
