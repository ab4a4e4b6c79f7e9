package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/eventstore/storetest"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/kafka"
	"github.com/eventproof/eventproof/targets/kafka/internal/kafkatest"
)

// stream lies in a partition that owner-1 takes first.
const stream = "s"

// stage is a trial with its owners, whose gates and wires a test holds.
type stage struct {
	t      *testing.T
	target targets.Target
	inst   targets.Instance
	owned  targets.Owned
}

func newStage(t *testing.T) *stage {
	t.Helper()
	target := kafka.Targets()[0]
	i := kafkatest.Open(t, kafkatest.Serve(t), target, storetest.Views()...)
	owned, ok := i.(targets.Owned)
	if !ok {
		t.Fatal("the target has no owners")
	}
	return &stage{t: t, target: target, inst: i, owned: owned}
}

func (s *stage) owner(n int, gate points.Gate, wire *kafkatest.Wire) *kafkatest.Owner {
	s.t.Helper()
	env := kafkatest.Env(fmt.Sprintf("owner-%d", n))
	if gate != nil {
		env.Gate = gate
	}
	if wire != nil {
		env.Dial = wire.Dial
	}
	return kafkatest.Start(s.t, s.target, s.inst, env.Name, env)
}

func (s *stage) writer(name string, wire *kafkatest.Wire) eventstore.Store {
	s.t.Helper()
	env := kafkatest.Env(name)
	if wire != nil {
		env.Dial = wire.Dial
	}
	return kafkatest.Connect(s.t, s.inst, "writer", env).Store()
}

// away returns a way that does not lead to an owner.
func (s *stage) away(name string) *kafkatest.Wire {
	w := kafkatest.NewWire()
	w.Shut(s.owned.OwnerAddr(name))
	return w
}

// log returns what is committed of the stream, by the audit.
func (s *stage) log() []history.LoggedEvent {
	s.t.Helper()
	var out []history.LoggedEvent
	err := s.inst.Auditor().Log(s.t.Context(), func(e history.LoggedEvent) error {
		if e.Stream == stream {
			out = append(out, e)
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

func (s *stage) wantLog(want ...eventstore.EventID) {
	s.t.Helper()
	var got []eventstore.EventID
	for i, e := range s.log() {
		got = append(got, e.ID)
		if e.Version != uint64(i+1) {
			s.t.Errorf("event %d of the log has version %d", i+1, e.Version)
		}
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("the log holds %v, want %v", got, want)
	}
}

type result struct {
	done eventstore.Appended
	err  error
}

func begin(s eventstore.Store, a eventstore.Append) <-chan result {
	c := make(chan result, 1)
	go func() {
		done, err := s.Append(context.Background(), a)
		c <- result{done, err}
	}()
	return c
}

func wantReason(t *testing.T, err error, outcome eventstore.Outcome, reason eventstore.Reason) {
	t.Helper()
	if o, r := eventstore.Classify(err); o != outcome || r != reason {
		t.Errorf("got %v, want %s (%s)", err, outcome, reason)
	}
}

func TestATakeOverAbortsTheCommandsInFlightAndTheyGoOnWithTheNewOwner(t *testing.T) {
	for _, at := range []points.Point{points.AppendAfterHead, points.AppendAfterInsert} {
		t.Run(string(at), func(t *testing.T) {
			s := newStage(t)
			gate := kafkatest.Hold(at)
			s.owner(1, gate, nil)
			s.owner(2, nil, nil)
			first, second := kafkatest.NewEvent(1), kafkatest.NewEvent(2)
			old := s.writer("writer-1", nil)
			held := begin(old, kafkatest.Write(stream, eventstore.NoStream(), first))
			gate.Await(t)
			kafkatest.MustAppend(t, s.writer("writer-2", s.away("owner-1")), kafkatest.Write(stream, eventstore.NoStream(), second))
			gate.Release(nil)
			// The former owner's group had no effect; the same attempt then asks the new owner, whose answer counts.
			got := <-held
			wantReason(t, got.err, eventstore.Fail, eventstore.VersionConflict)
			s.wantLog(second.ID)
			read, err := old.Read(t.Context(), eventstore.ReadRequest{Stream: stream, From: 1})
			if err != nil || len(read.Events) != 1 || read.Events[0].ID != second.ID {
				t.Errorf("after the take-over the former owner's writer reads %v, %v", read.Events, err)
			}
		})
	}
}

func TestAnOwnerThatWasFencedNeverAnswersAReadFromItsOldState(t *testing.T) {
	s := newStage(t)
	s.owner(1, nil, nil)
	s.owner(2, nil, nil)
	old := s.writer("writer-1", nil)
	first, second := kafkatest.NewEvent(1), kafkatest.NewEvent(2)
	kafkatest.MustAppend(t, old, kafkatest.Write(stream, eventstore.NoStream(), first))
	kafkatest.MustAppend(t, s.writer("writer-2", s.away("owner-1")), kafkatest.Write(stream, eventstore.Exact(1), second))
	// writer-1 still believes in owner-1, which does not know that it was fenced.
	read, err := old.Read(t.Context(), eventstore.ReadRequest{Stream: stream, From: 1})
	if err != nil || len(read.Events) != 2 {
		t.Fatalf("read %v, %v", read.Events, err)
	}
	epochs := []uint64{s.log()[0].Meta.Epoch, s.log()[1].Meta.Epoch}
	if !slices.Equal(epochs, []uint64{1, 2}) {
		t.Errorf("the events were written under the leases %v", epochs)
	}
}

func TestAnOwnerThatIsThereAndOwnsAnswersWhateverItIsToldToTake(t *testing.T) {
	s := newStage(t)
	s.owner(1, nil, nil)
	s.owner(2, nil, nil)
	both := []eventstore.Store{s.writer("writer-1", s.away("owner-2")), s.writer("writer-2", nil), s.writer("writer-3", nil)}
	for v := range uint64(30) {
		kafkatest.MustAppend(t, both[v%3], kafkatest.Write(stream, eventstore.Exact(v), kafkatest.NewEvent(1)))
	}
	for _, e := range s.log() {
		if e.Meta.Epoch != 1 {
			t.Fatalf("version %d was written under lease %d: nobody had a reason to take over", e.Version, e.Meta.Epoch)
		}
	}
}

func TestAnUnansweredEndOfTransactionIsFoundOut(t *testing.T) {
	for _, c := range []struct {
		name  string
		arm   func(*kafkatest.Wire)
		lands bool
	}{
		{"the reply to the end was lost", func(w *kafkatest.Wire) { w.CutReply(kafkatest.EndTxn) }, true},
		{"the end never arrived", func(w *kafkatest.Wire) { w.CutRequest(kafkatest.EndTxn) }, false},
		{"the reply to the records was lost", func(w *kafkatest.Wire) { w.CutReply(kafkatest.Produce) }, false},
		{"the records never arrived", func(w *kafkatest.Wire) { w.CutRequest(kafkatest.Produce) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t)
			wire := kafkatest.NewWire()
			s.owner(1, nil, wire)
			w := s.writer("writer-1", nil)
			e, next := kafkatest.NewEvent(1), kafkatest.NewEvent(2)
			c.arm(wire)
			done, err := w.Append(t.Context(), kafkatest.Write(stream, eventstore.NoStream(), e))
			if wire.Bites() != 1 {
				t.Fatalf("%d requests were cut", wire.Bites())
			}
			if !c.lands {
				wantReason(t, err, eventstore.Fail, eventstore.GroupAborted)
				s.wantLog()
				kafkatest.MustAppend(t, w, kafkatest.Write(stream, eventstore.NoStream(), next))
				s.wantLog(next.ID)
				return
			}
			if err != nil || done.First != 1 || len(done.Positions) != 1 || done.Positions[0] != s.log()[0].Position {
				t.Errorf("answered %+v, %v", done, err)
			}
			kafkatest.MustAppend(t, w, kafkatest.Write(stream, eventstore.Exact(1), next))
			s.wantLog(e.ID, next.ID)
		})
	}
}

func TestAnOwnerThatDiesWithAGroupLeavesItToTheNextOneToEnd(t *testing.T) {
	for _, c := range []struct {
		at    points.Point
		lands bool
	}{
		{points.AppendAfterHead, false}, {points.AppendAfterInsert, false}, {points.AppendAfterCommit, true},
	} {
		t.Run(string(c.at), func(t *testing.T) {
			s := newStage(t)
			gate := kafkatest.Hold(c.at)
			dying := s.owner(1, gate, nil)
			w := s.writer("writer-1", nil)
			a := kafkatest.Write(stream, eventstore.NoStream(), kafkatest.NewEvent(1))
			held := begin(w, a)
			gate.Await(t)
			gate.Release(points.ErrCrashed)
			if err := dying.Wait(); !errors.Is(err, points.ErrCrashed) {
				t.Errorf("the owner ended with %v", err)
			}
			wantReason(t, (<-held).err, eventstore.Unknown, eventstore.LostReply)
			s.owner(1, nil, nil)
			again := kafkatest.MustAppend(t, w, a)
			if again.Replayed != c.lands {
				t.Errorf("the repeat was answered %+v, the first try had landed: %v", again, c.lands)
			}
			s.wantLog(a.Events[0].ID)
			if epoch := s.log()[0].Meta.Epoch; !c.lands && epoch != 2 {
				t.Errorf("written under lease %d", epoch)
			}
		})
	}
}

func TestADeadOwnersPartitionsAreTakenByTheOther(t *testing.T) {
	s := newStage(t)
	one := s.owner(1, nil, nil)
	s.owner(2, nil, nil)
	w := s.writer("writer-1", nil)
	first, second, third := kafkatest.NewEvent(1), kafkatest.NewEvent(2), kafkatest.NewEvent(3)
	kafkatest.MustAppend(t, w, kafkatest.Write(stream, eventstore.NoStream(), first))
	if err := one.Stop(); err != nil {
		t.Fatalf("an owner that was told to end: %v", err)
	}
	a := kafkatest.Write(stream, eventstore.Exact(1), second)
	_, err := w.Append(t.Context(), a)
	if o, _ := eventstore.Classify(err); o == eventstore.Fail {
		t.Errorf("an append to a dead owner: %v", err) // its connection had stood: nobody can tell
	}
	kafkatest.MustAppend(t, w, a)
	// Back again, the former owner leaves the partition where it is, and says so.
	s.owner(1, nil, nil)
	kafkatest.MustAppend(t, s.writer("writer-2", nil), kafkatest.Write(stream, eventstore.Exact(2), third))
	s.wantLog(first.ID, second.ID, third.ID)
	if epoch := s.log()[2].Meta.Epoch; epoch != 2 {
		t.Errorf("the partition went on to lease %d", epoch)
	}
}

func TestAnAppendThatReachesNoOwnerWasNotSent(t *testing.T) {
	s := newStage(t)
	_, err := s.writer("writer-1", nil).Append(t.Context(), kafkatest.Write(stream, eventstore.NoStream(), kafkatest.NewEvent(1)))
	wantReason(t, err, eventstore.Fail, eventstore.NotSent)
	s.wantLog()
}

func TestAnOwnerThatIsStuckLosesItsPartitionOnceItIsMissed(t *testing.T) {
	s := newStage(t)
	gate := kafkatest.Hold(points.AppendAfterHead)
	s.owner(1, gate, nil)
	s.owner(2, nil, nil)
	first, second := kafkatest.NewEvent(1), kafkatest.NewEvent(2)
	held := begin(s.writer("writer-1", nil), kafkatest.Write(stream, eventstore.NoStream(), first))
	gate.Await(t)
	w := s.writer("writer-2", nil)
	a := kafkatest.Write(stream, eventstore.NoStream(), second)
	deadline, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for tries := 0; ; tries++ {
		ctx, stop := context.WithTimeout(t.Context(), 600*time.Millisecond)
		_, err := w.Append(ctx, a)
		stop()
		if err == nil {
			if tries == 0 {
				t.Error("the other owner took over at once, from one that had not been missed")
			}
			break
		}
		wantReason(t, err, eventstore.Unknown, eventstore.TimedOut)
		if deadline.Err() != nil {
			t.Fatal("nobody took the partition over")
		}
	}
	gate.Release(nil)
	wantReason(t, (<-held).err, eventstore.Fail, eventstore.VersionConflict)
	s.wantLog(second.ID)
}

func TestGroupsOfManyWritersKeepEveryStreamWhole(t *testing.T) {
	s := newStage(t)
	s.owner(1, nil, nil)
	s.owner(2, nil, nil)
	const writers, each = 24, 10
	var all sync.WaitGroup
	for n := range writers {
		w := s.writer(fmt.Sprintf("writer-%d", n), nil)
		all.Go(func() {
			for range each {
				if _, err := w.Append(t.Context(), kafkatest.Write(stream, eventstore.Any(), kafkatest.NewEvent(1), kafkatest.NewEvent(2))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	log := s.log()
	if len(log) != 2*writers*each {
		t.Fatalf("%d events are in the log", len(log))
	}
	groups := map[uint64]bool{}
	for i, e := range log {
		if e.Version != uint64(i+1) {
			t.Fatalf("event %d has version %d", i+1, e.Version)
		}
		groups[e.Transaction] = true
	}
	if len(groups) >= writers*each {
		t.Errorf("%d appends were committed in %d transactions: nothing was grouped", writers*each, len(groups))
	}
}

func TestAnAppendThatNoTransactionCanHoldIsTooLarge(t *testing.T) {
	s := newStage(t)
	s.owner(1, nil, nil)
	w := s.writer("writer-1", nil)
	e := kafkatest.NewEvent(1)
	e.Data = []byte(`"` + string(slices.Repeat([]byte("x"), 1<<20)) + `"`)
	_, err := w.Append(t.Context(), kafkatest.Write(stream, eventstore.NoStream(), e))
	wantReason(t, err, eventstore.Fail, eventstore.TooLarge)
	kafkatest.MustAppend(t, w, kafkatest.Write(stream, eventstore.NoStream(), kafkatest.NewEvent(1)))
}
