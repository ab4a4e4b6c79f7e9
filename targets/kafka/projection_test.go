package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/eventstore/storetest"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets/kafka/internal/kafkatest"
)

// projector is a role that keeps the suite's view.
type projector struct {
	eventstore.Feed
	eventstore.Projection
}

func (s *stage) projector(name string, gate points.Gate, wire *kafkatest.Wire) projector {
	s.t.Helper()
	env := kafkatest.Env(name)
	if gate != nil {
		env.Gate = gate
	}
	if wire != nil {
		env.Dial = wire.Dial
	}
	session := kafkatest.Connect(s.t, s.inst, "projector", env)
	p, err := session.Projection(storetest.Tally{})
	if err != nil {
		s.t.Fatal(err)
	}
	return projector{session.Feed(), p}
}

// batch polls until so many events have come after a checkpoint.
func (p projector) batch(t *testing.T, from eventstore.Checkpoint, n int) eventstore.Batch {
	t.Helper()
	b := eventstore.Batch{Prev: from, Next: from.Cursor}
	for end := time.Now().Add(20 * time.Second); len(b.Events) < n; {
		page, err := p.Poll(t.Context(), b.Next, n-len(b.Events))
		if err != nil {
			t.Fatal(err)
		}
		b.Events, b.Next = append(b.Events, page.Events...), page.Next
		if time.Now().After(end) {
			t.Fatalf("%d of %d events came", len(b.Events), n)
		}
	}
	return b
}

func (p projector) claim(t *testing.T) eventstore.Checkpoint {
	t.Helper()
	c, err := p.Claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// fill appends n events to the stream.
func (s *stage) fill(n int) {
	s.t.Helper()
	w := s.writer("filler", nil)
	for range n {
		kafkatest.MustAppend(s.t, w, kafkatest.Write(stream, eventstore.Any(), kafkatest.NewEvent(1)))
	}
}

func (s *stage) wantProjected(seq, version uint64, effects int) {
	s.t.Helper()
	seen, rows, err := s.inst.Auditor().Observe(s.t.Context(), storetest.Tally{}.Name())
	if err != nil {
		s.t.Fatal(err)
	}
	if seen.Seq != seq || len(rows) != min(int(version), 1) {
		s.t.Fatalf("observed %+v with rows %v", seen, rows)
	}
	if version > 0 && (rows[0].Version != version || string(rows[0].State) != fmt.Sprintf(`{"n":%d,"sum":%d}`, effects, effects)) {
		s.t.Errorf("the row stands at %d with %s", rows[0].Version, rows[0].State)
	}
}

func TestAnUnansweredEndOfABatchIsFoundOut(t *testing.T) {
	for _, c := range []struct {
		name  string
		arm   func(*kafkatest.Wire)
		lands bool
		// open: the transaction stands open until the next initialisation.
		open bool
	}{
		{"the reply to the end was lost", func(w *kafkatest.Wire) { w.CutReply(kafkatest.EndTxn) }, true, false},
		{"the end never arrived", func(w *kafkatest.Wire) { w.CutRequest(kafkatest.EndTxn) }, false, false},
		{"the reply to the rows was lost", func(w *kafkatest.Wire) { w.CutReply(kafkatest.Produce) }, false, true},
		{"the rows never arrived", func(w *kafkatest.Wire) { w.CutRequest(kafkatest.Produce) }, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t)
			s.owner(1, nil, nil)
			s.fill(3)
			wire := kafkatest.NewWire()
			p := s.projector("projector-1", nil, wire)
			from := p.claim(t)
			b := p.batch(t, from, 3)
			c.arm(wire)
			next, err := p.Apply(t.Context(), b)
			if wire.Bites() != 1 {
				t.Fatalf("%d requests were cut", wire.Bites())
			}
			switch {
			case c.lands && (err != nil || next.Seq != from.Seq+1):
				t.Errorf("answered %+v, %v", next, err)
			case !c.lands && !c.open:
				wantReason(t, err, eventstore.Fail, eventstore.Superseded)
			case c.open:
				wantReason(t, err, eventstore.Unknown, eventstore.LostReply)
			}
			// Loaded and applied once more, everything is there once.
			now, err := p.Load(t.Context())
			if err != nil || c.lands != (now.Seq == from.Seq+1) {
				t.Fatalf("loaded %+v, %v", now, err)
			}
			if !c.lands {
				b.Prev = now
				if now, err = p.Apply(t.Context(), b); err != nil {
					t.Fatal(err)
				}
			}
			s.wantProjected(now.Seq, 3, 3)
		})
	}
}

func TestAProjectorThatDiesLeavesAllOfABatchOrNothing(t *testing.T) {
	for _, c := range []struct {
		at    points.Point
		lands bool
	}{
		{points.ProjectorAfterEffect, false}, {points.ProjectorBeforeCommit, false}, {points.ProjectorAfterCommit, true},
	} {
		t.Run(string(c.at), func(t *testing.T) {
			s := newStage(t)
			s.owner(1, nil, nil)
			s.fill(2)
			gate := kafkatest.Hold(c.at)
			gate.Release(points.ErrCrashed)
			p := s.projector("projector-1", gate, nil)
			from := p.claim(t)
			b := p.batch(t, from, 2)
			_, err := p.Apply(t.Context(), b)
			wantReason(t, err, eventstore.Unknown, eventstore.Killed)
			if c.lands {
				s.wantProjected(1, 2, 2)
			} else {
				s.wantProjected(0, 0, 0)
			}
			next := s.projector("projector-2", nil, nil)
			now := next.claim(t)
			if now.Epoch != from.Epoch+1 || c.lands != (now.Seq == 1) {
				t.Fatalf("the next projector begins at %+v", now)
			}
			if !c.lands {
				b.Prev = now
				if _, err := next.Apply(t.Context(), b); err != nil {
					t.Fatal(err)
				}
			}
			s.wantProjected(1, 2, 2)
		})
	}
}

func TestAZombieProjectorIsSupersededWhereverItWasHeld(t *testing.T) {
	for _, at := range []points.Point{points.ProjectorAfterEffect, points.ProjectorBeforeCommit} {
		t.Run(string(at), func(t *testing.T) {
			s := newStage(t)
			s.owner(1, nil, nil)
			s.fill(2)
			gate := kafkatest.Hold(at)
			zombie := s.projector("projector-1", gate, nil)
			b := zombie.batch(t, zombie.claim(t), 2)
			held := make(chan error, 1)
			go func() {
				_, err := zombie.Apply(context.Background(), b)
				held <- err
			}()
			gate.Await(t)
			next := s.projector("projector-2", nil, nil)
			b.Prev = next.claim(t)
			if _, err := next.Apply(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			gate.Release(nil)
			wantReason(t, <-held, eventstore.Fail, eventstore.Superseded)
			s.wantProjected(1, 2, 2)
			// It loads, and goes on from there.
			now, err := zombie.Load(t.Context())
			if err != nil || now.Seq != 1 {
				t.Fatalf("loaded %+v, %v", now, err)
			}
		})
	}
}

func TestTheFeedStopsAtAnOpenTransactionAndSaysSo(t *testing.T) {
	s := newStage(t)
	gate := kafkatest.Hold(points.AppendAfterInsert)
	s.owner(1, gate, nil)
	s.owner(2, nil, nil)
	held := begin(s.writer("writer-1", nil), kafkatest.Write(stream, eventstore.NoStream(), kafkatest.NewEvent(1)))
	gate.Await(t)
	// Another partition is not held up by it.
	const other = "other"
	kafkatest.MustAppend(t, s.writer("writer-2", nil), kafkatest.Write(other, eventstore.NoStream(), kafkatest.NewEvent(1)))
	p := s.projector("projector-1", nil, nil)
	b := p.batch(t, eventstore.Checkpoint{}, 1)
	if b.Events[0].Stream != other {
		t.Fatalf("the feed gave %s", b.Events[0].Stream)
	}
	page, err := p.Poll(t.Context(), b.Next, 10)
	if err != nil || len(page.Events) != 0 || page.Held == "" || page.Next.String() != b.Next.String() {
		t.Errorf("while a transaction is open the feed gives %+v, %v", page, err)
	}
	gate.Release(nil)
	if got := <-held; got.err != nil {
		t.Fatal(got.err)
	}
	if last := p.batch(t, eventstore.Checkpoint{Cursor: b.Next}, 1); last.Events[0].Stream != stream {
		t.Errorf("the feed goes on with %s", last.Events[0].Stream)
	}
}

func TestAFeedWhoseOffsetIsGoneSaysSo(t *testing.T) {
	s := newStage(t)
	s.owner(1, nil, nil)
	s.fill(1)
	p := s.projector("projector-1", nil, nil)
	shard := uint32(s.log()[0].Position.Shard)
	_, err := p.Poll(t.Context(), eventstore.Through(eventstore.Position{Shard: shard, Minor: 1000}), 10)
	wantReason(t, err, eventstore.Fail, eventstore.Rejected)
	if err == nil || !errors.Is(err, errDataLoss()) {
		t.Errorf("got %v", err)
	}
}

func TestARecordThatIsNobodysEndsAPollAndATakeOver(t *testing.T) {
	s := newStage(t)
	s.owner(1, nil, nil)
	s.fill(1)
	at := s.log()[0].Position
	c, err := kgo.NewClient(kgo.SeedBrokers(s.addr()), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	foreign := &kgo.Record{Topic: s.trial() + "-events", Partition: int32(at.Shard), Value: []byte("?")}
	if err := c.ProduceSync(t.Context(), foreign).FirstErr(); err != nil {
		t.Fatal(err)
	}
	p := s.projector("projector-1", nil, nil)
	if _, err := p.Poll(t.Context(), eventstore.Through(at), 10); err == nil {
		t.Error("the feed passes over a record that it can't read")
	}
	// The owner finds that somebody else has written, and can't make sense of it.
	if _, err := s.writer("writer-1", nil).Read(t.Context(), eventstore.ReadRequest{Stream: stream, From: 1}); err == nil {
		t.Error("the owner reads on as if nothing had happened")
	}
}
