package postgres_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/postgres/internal/pgtest"
)

func TestKillingTheServerLosesNothingAcknowledgedAndLandsNothingFailed(t *testing.T) {
	server := pgtest.Server(t)
	each(t, func(t *testing.T, target targets.Target) {
		const writers, wanted = 6, 20
		i := pgtest.Open(t, target)
		store := pgtest.Connect(t, i, "writer", env("writer", nil)).Store()
		var (
			mu       sync.Mutex
			outcomes = map[eventstore.EventID]eventstore.Outcome{}
			acked    int
			running  = make(chan struct{})
			killed   = make(chan struct{})
			back     = make(chan struct{})
			wg       sync.WaitGroup
		)
		for w := range writers {
			wg.Go(func() {
				stream := fmt.Sprint(w)
				for n := 0; ; n++ {
					a := pgtest.Write(stream, eventstore.Any(), fmt.Sprint(w, "/", n), "x")
					_, err := store.Append(t.Context(), a)
					outcome, reason := eventstore.Classify(err)
					mu.Lock()
					outcomes[a.Events[0].ID] = outcome
					if acked += map[bool]int{true: 1}[err == nil]; err == nil && acked == wanted {
						close(running)
					}
					mu.Unlock()
					if outcome == eventstore.Fail && !reason.Retriable() {
						t.Errorf("a killed server made an append fail for good: %v", err)
					}
					select {
					case <-killed:
						<-back
						return
					default:
					}
				}
			})
		}
		pgtest.Await(t, running)
		if err := server.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		close(killed)
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		close(back)
		wg.Wait()
		// The session finds the new server by itself.
		pgtest.MustAppendRetrying(t, store, pgtest.Write("after", eventstore.Any(), "after", "x"))

		if proof, err := i.Auditor().Fence(t.Context()); err != nil || !proof.Fenced {
			t.Fatalf("%+v, %v", proof, err)
		}
		inLog := map[eventstore.EventID]bool{}
		for _, e := range log(t, i) {
			inLog[e.ID] = true
		}
		unknown := 0
		for id, outcome := range outcomes {
			switch {
			case outcome == eventstore.OK && !inLog[id]:
				t.Errorf("%s was acknowledged and is lost", id)
			case outcome == eventstore.Fail && inLog[id]:
				t.Errorf("%s failed and is in the log", id)
			case outcome == eventstore.Unknown:
				unknown++
			}
		}
		t.Logf("%d appends, %d of unknown outcome", len(outcomes), unknown)
	})
}
