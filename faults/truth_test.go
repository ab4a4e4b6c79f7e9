package faults_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/faults/plan"
	"github.com/eventproof/eventproof/history"
)

// What bites say about commits is compared with what the server holds in the end. Every try has a connection of
// its own, so that a session name stands for one commit.
func TestBitesTellTheTruthAboutCommits(t *testing.T) {
	b := newBench(t)
	const ms = time.Millisecond
	faultPlan := []plan.Fault{
		{ID: "drop", Kind: plan.DropReply, On: "writer", For: 1400 * ms, Every: 5},
		{ID: "cut", Kind: plan.CutRequest, On: "writer", For: 1400 * ms, Every: 7},
		{ID: "park-a", Kind: plan.ParkRequest, On: "writer", For: 300 * ms, Every: 9},
		{ID: "park-b", Kind: plan.ParkRequest, On: "writer-1", At: 350 * ms, For: 400 * ms, Every: 8, Max: 5},
		{ID: "hold", Kind: plan.HoldReply, On: "writer", At: 200 * ms, For: 400 * ms, Every: 4, Max: 5},
		{ID: "slow", Kind: plan.Latency, On: "writer-2", At: 300 * ms, For: 300 * ms, Delay: 2 * ms, Jitter: 2 * ms},
		{ID: "hole-up", Kind: plan.BlackHole, On: "writer-1", At: 800 * ms, For: 100 * ms, Direction: "up"},
		{ID: "hole-down", Kind: plan.BlackHole, On: "writer-2", At: 800 * ms, For: 100 * ms, Direction: "down"},
		{ID: "reset", Kind: plan.Reset, On: "writer-1", At: 1000 * ms, For: 20 * ms},
		{ID: "down", Kind: plan.Down, On: "writer-2", At: 1100 * ms, For: 20 * ms},
		{ID: "freeze", Kind: plan.HoldReply, On: "writer-1", At: 1200 * ms, For: 50 * ms},
	}
	var (
		mu    sync.Mutex
		tries = map[string]error{} // session → what the client was told
		wg    sync.WaitGroup
		last  = make(chan struct{})
	)
	for worker := range 6 {
		role := fmt.Sprintf("writer-%d", worker%2+1)
		dial := b.e.Dialer(role)
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-last:
					return
				default:
				}
				session := fmt.Sprintf("%s/%d.%d", role, worker, n)
				err := func() error {
					ctx, cancel := context.WithTimeout(t.Context(), 150*ms)
					defer cancel()
					cfg, err := pgx.ParseConfig(b.s.url())
					if err != nil {
						return err
					}
					cfg.DialFunc = dial
					cfg.RuntimeParams["application_name"] = session
					cfg.RuntimeParams["idle_in_transaction_session_timeout"] = "1s"
					conn, err := pgx.ConnectConfig(ctx, cfg)
					if err != nil {
						return err
					}
					defer func() { _ = conn.Close(ctx) }()
					return b.insert(conn, session, 150*ms)
				}()
				mu.Lock()
				tries[session] = err
				mu.Unlock()
			}
		})
	}
	if err := b.e.Run(t.Context(), faultPlan, clock.Monotonic()); err != nil {
		t.Error(err)
	}
	close(last)
	wg.Wait()
	if err := b.e.LiftAll(t.Context()); err != nil {
		t.Error(err)
	}
	if err := b.e.Close(); err != nil {
		t.Error(err)
	}
	for gone := false; !gone; { // the fence
		if err := b.direct.QueryRow(t.Context(), "select not exists(select from pg_stat_activity where application_name like 'writer-%')").Scan(&gone); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := b.direct.Query(t.Context(), "select id from "+b.table)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	landed := map[string]bool{}
	for _, id := range stored {
		landed[id] = true
	}
	counts := map[string]int{}
	for _, f := range faultPlan {
		if end := b.n.ended(t, f.ID); !end.Bit && f.For > time.Second { // a busy machine may miss a short one
			t.Errorf("%s did not bite", f.ID)
		}
		for _, bite := range b.n.bites(f.ID) {
			switch {
			case bite.Landed == history.LandedYes && !landed[bite.Session]:
				t.Errorf("%+v, but the row is absent", bite)
			case bite.Landed == history.LandedNo && landed[bite.Session]:
				t.Errorf("%+v, but the row is there", bite)
			case bite.Form == history.BiteReplyDropped && bite.Landed == history.LandedYes && tries[bite.Session] == nil:
				t.Errorf("%+v, but the client was answered", bite)
			}
			counts[fmt.Sprintf("%v/%v", bite.Form, bite.Landed)]++
		}
	}
	for session, err := range tries {
		if err == nil && !landed[session] {
			t.Errorf("%s was acknowledged and is absent", session)
		}
	}
	t.Logf("%d tries, %d rows, bites %v", len(tries), len(stored), counts)
}
