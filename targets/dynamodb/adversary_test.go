package dynamodb_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	emulator "github.com/eventproof/eventproof/emulators/dynamodb"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/eventstore/storetest"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/dynamodb"
	"github.com/eventproof/eventproof/targets/dynamodb/internal/dytest"
)

func target(t *testing.T, variant string) targets.Target {
	t.Helper()
	tg, parts, ok := dynamodb.Variant(variant)
	if !ok {
		t.Fatalf("no variant %s", variant)
	}
	return dynamodb.New(tg, parts)
}

// arm switches a fault of the emulator on; the returned function says how often it hit.
func arm(t *testing.T, s *emulator.Server, f emulator.Fault) (hits func() uint64) {
	t.Helper()
	id, err := s.Arm(f)
	if err != nil {
		t.Fatal(err)
	}
	return func() uint64 {
		for _, x := range s.Faults() {
			if x.ID == id {
				return x.Hits
			}
		}
		return 0
	}
}

func TestALostAnswerIsUnknownAndItsRepetitionIsTheFirstResult(t *testing.T) {
	for _, variant := range []string{"conditional-put", "transact-head"} {
		t.Run(variant, func(t *testing.T) {
			server, em := dytest.Handler(t, emulator.Options{})
			i := dytest.Open(t, server, target(t, variant))
			store := dytest.Connect(t, i, "writer", dytest.Env("writer")).Store()
			a := dytest.Write("s", eventstore.NoStream(), dytest.NewEvent(1))
			hits := arm(t, em, emulator.Fault{Kind: emulator.DropAnswer, Count: 1, Ops: []string{"PutItem", "TransactWriteItems"}})
			_, err := store.Append(t.Context(), a)
			if outcome, reason := eventstore.Classify(err); outcome != eventstore.Unknown || reason != eventstore.LostReply {
				t.Fatalf("got %v", err)
			}
			if hits() != 1 {
				t.Fatal("the fault did not bite")
			}
			done := dytest.MustAppend(t, store, a)
			if done.First != 1 || done.Events[0] != a.Events[0].ID {
				t.Errorf("the repetition answered %+v", done)
			}
			if got, err := store.Read(t.Context(), eventstore.ReadRequest{Stream: "s", From: 1}); err != nil || len(got.Events) != 1 {
				t.Errorf("%d events, %v", len(got.Events), err)
			}
		})
	}
}

func TestARefusalForLoadIsAFailureAndLeavesNothing(t *testing.T) {
	for _, f := range []struct {
		fault  emulator.Fault
		reason eventstore.Reason
	}{
		{emulator.Fault{Kind: emulator.Throttle, Count: 1}, eventstore.Throttled},
		{emulator.Fault{Kind: emulator.Throttle, Count: 1, Reason: true}, eventstore.Throttled},
		{emulator.Fault{Kind: emulator.Conflict, Count: 1}, eventstore.TransactionConflict},
	} {
		for _, variant := range []string{"conditional-put", "transact-head"} {
			t.Run(fmt.Sprintf("%s/%s/%v", f.fault.Kind, variant, f.fault.Reason), func(t *testing.T) {
				server, em := dytest.Handler(t, emulator.Options{})
				i := dytest.Open(t, server, target(t, variant))
				store := dytest.Connect(t, i, "writer", dytest.Env("writer")).Store()
				a := dytest.Write("s", eventstore.NoStream(), dytest.NewEvent(1))
				f.fault.Ops = []string{"PutItem", "TransactWriteItems"}
				hits := arm(t, em, f.fault)
				_, err := store.Append(t.Context(), a)
				if outcome, reason := eventstore.Classify(err); outcome != eventstore.Fail || reason != f.reason || hits() != 1 {
					t.Fatalf("got %v, %d hits", err, hits())
				}
				if done := dytest.MustAppend(t, store, a); done.Replayed {
					t.Error("the refused append had an effect")
				}
			})
		}
	}
}

func TestABatchOfTheLargestSizeIsWholeAndOneMoreIsRefused(t *testing.T) {
	i := dytest.Open(t, dytest.Serve(t, emulator.Options{}), target(t, "transact-head"))
	store := dytest.Connect(t, i, "writer", dytest.Env("writer")).Store()
	var events []eventstore.NewEvent
	for range dynamodb.MaxBatch {
		events = append(events, dytest.NewEvent(1))
	}
	if done := dytest.MustAppend(t, store, dytest.Write("s", eventstore.NoStream(), events...)); done.Last != dynamodb.MaxBatch {
		t.Errorf("answered %+v", done)
	}
	_, err := store.Append(t.Context(), dytest.Write("t", eventstore.NoStream(), append(events, dytest.NewEvent(1))...))
	if outcome, reason := eventstore.Classify(err); outcome != eventstore.Fail || reason != eventstore.TooLarge {
		t.Errorf("got %v", err)
	}
	if got, err := store.Read(t.Context(), eventstore.ReadRequest{Stream: "s", From: 1}); err != nil || len(got.Events) != dynamodb.MaxBatch {
		t.Errorf("%d events, %v", len(got.Events), err)
	}
}

func TestABatchWithMoreRowsThanATransactionHoldsIsAppliedInParts(t *testing.T) {
	const streams = 200
	i := dytest.Open(t, dytest.Serve(t, emulator.Options{Dir: t.TempDir()}), target(t, "conditional-put"), storetest.Views()...)
	store := dytest.Connect(t, i, "writer", dytest.Env("writer")).Store()
	for n := range streams {
		dytest.MustAppend(t, store, dytest.Write(fmt.Sprintf("s-%d", n), eventstore.NoStream(), dytest.NewEvent(1)))
	}
	projector := dytest.Connect(t, i, "projector", dytest.Env("projector"))
	p, err := projector.Projection(storetest.Views()[0])
	if err != nil {
		t.Fatal(err)
	}
	at, err := p.Claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	page, err := projector.Feed().Poll(t.Context(), at.Cursor, streams)
	if err != nil || len(page.Events) != streams {
		t.Fatalf("%d events, %v", len(page.Events), err)
	}
	done, err := p.Apply(t.Context(), eventstore.Batch{Prev: at, Events: page.Events, Next: page.Next})
	if err != nil || done.Seq != 3 || done.Cursor.String() != page.Next.String() {
		t.Fatalf("%+v, %v", done, err)
	}
	// Every value that the checkpoint had claims what the ledger had by then, and nothing else.
	covered := map[uint64]int{}
	err = i.Auditor().Checkpoints(t.Context(), func(c history.CheckpointRow) error {
		for _, e := range page.Events {
			if c.Cursor.Covers(e.Position) {
				covered[c.Seq]++
			}
		}
		return nil
	})
	ledger := map[uint64]int{}
	err2 := i.Auditor().Ledgers(t.Context(), func(r history.LedgerRow) error { ledger[r.Seq]++; return nil })
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	if covered[1] != ledger[1] || covered[2] != ledger[1]+ledger[2] || covered[3] != streams || ledger[1]+ledger[2]+ledger[3] != streams {
		t.Errorf("covered %v, ledger %v", covered, ledger)
	}
	seen, rows, err := i.Auditor().Observe(t.Context(), "tally")
	if err != nil || len(rows) != streams || seen.Seq != 3 {
		t.Errorf("observed %d rows at %d, %v", len(rows), seen.Seq, err)
	}
}

func TestAnApplyWithALostAnswerIsUnknownAndSupersededWhenRepeated(t *testing.T) {
	server, em := dytest.Handler(t, emulator.Options{})
	i := dytest.Open(t, server, target(t, "conditional-put"), storetest.Views()...)
	dytest.MustAppend(t, dytest.Connect(t, i, "writer", dytest.Env("writer")).Store(), dytest.Write("s", eventstore.NoStream(), dytest.NewEvent(5)))
	projector := dytest.Connect(t, i, "projector", dytest.Env("projector"))
	p, err := projector.Projection(storetest.Views()[0])
	if err != nil {
		t.Fatal(err)
	}
	at, err := p.Claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	page, err := projector.Feed().Poll(t.Context(), at.Cursor, 10)
	if err != nil {
		t.Fatal(err)
	}
	hits := arm(t, em, emulator.Fault{Kind: emulator.DropAnswer, Count: 1, Ops: []string{"TransactWriteItems"}})
	b := eventstore.Batch{Prev: at, Events: page.Events, Next: page.Next}
	_, err = p.Apply(t.Context(), b)
	if outcome, _ := eventstore.Classify(err); outcome != eventstore.Unknown || hits() != 1 {
		t.Fatalf("got %v, %d hits", err, hits())
	}
	_, err = p.Apply(t.Context(), b)
	if outcome, reason := eventstore.Classify(err); outcome != eventstore.Fail || reason != eventstore.Superseded {
		t.Errorf("got %v", err)
	}
	if state, _, _, err := p.Row(t.Context(), "s"); err != nil || string(state) != `{"n":1,"sum":5}` {
		t.Errorf("row %s, %v", state, err)
	}
}

func TestTheFeedSurvivesARestartOfTheServerAndASplitOfItsShards(t *testing.T) {
	dir := t.TempDir()
	server := dytest.Serve(t, emulator.Options{Dir: dir, Shards: 2})
	i := dytest.Open(t, server, target(t, "transact-head"))
	store := dytest.Connect(t, i, "writer", dytest.Env("writer")).Store()
	feed := dytest.Connect(t, i, "projector", dytest.Env("projector")).Feed()
	var cursor eventstore.Cursor
	next := uint64(1)
	fill := func(n int) {
		for range n {
			dytest.MustAppend(t, store, dytest.Write("s", eventstore.Any(), dytest.NewEvent(1)))
		}
	}
	drain := func(until uint64) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for next <= until {
			page, err := feed.Poll(ctx, cursor, 3)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range page.Events {
				if e.Version != next {
					t.Fatalf("version %d after %d", e.Version, next-1)
				}
				next++
			}
			cursor = page.Next
		}
	}
	fill(7)
	drain(4)
	dytest.Split(t, server, i)
	fill(5)
	drain(9)
	addr := strings.TrimPrefix(server.URL, "http://")
	server.Stop()
	dytest.ServeAt(t, addr, emulator.Options{Dir: dir, Shards: 2})
	// The first requests meet connections that the old server has closed.
	for range 3 {
		_, _ = feed.Poll(t.Context(), cursor, 1)
		_, _ = store.Read(t.Context(), eventstore.ReadRequest{Stream: "s", From: 1})
	}
	fill(3)
	drain(15)
	feed = dytest.Connect(t, i, "projector", dytest.Env("projector-again")).Feed()
	fill(1)
	drain(16)
	heads, err := i.Auditor().(targets.Sharded).Heads(t.Context())
	if err != nil || len(heads) < 3 {
		t.Fatalf("heads %v, %v", heads, err)
	}
	for _, h := range heads {
		if !cursor.Covers(h) {
			t.Errorf("%q does not claim the head %s", cursor, h)
		}
	}
}

func TestACrashBeforeThePutLeavesNothing(t *testing.T) {
	i := dytest.Open(t, dytest.Serve(t, emulator.Options{}), target(t, "conditional-put"))
	env, gate := dytest.Env("writer"), dytest.Hold(points.AppendAfterHead)
	env.Gate = gate
	gate.Release(points.ErrCrashed)
	_, err := dytest.Connect(t, i, "writer", env).Store().Append(t.Context(), dytest.Write("s", eventstore.NoStream(), dytest.NewEvent(1)))
	if outcome, reason := eventstore.Classify(err); outcome != eventstore.Unknown || reason != eventstore.Killed {
		t.Errorf("got %v", err)
	}
	store := dytest.Connect(t, i, "writer", dytest.Env("again")).Store()
	if got, err := store.Read(t.Context(), eventstore.ReadRequest{Stream: "s", From: 1}); err != nil || len(got.Events) != 0 {
		t.Errorf("%d events, %v", len(got.Events), err)
	}
}
