package audit_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/postgres"
	"github.com/eventproof/eventproof/targets/postgres/internal/pgtest"
)

func collect[T any](t *testing.T, read func(func(T) error) error) []T {
	t.Helper()
	var all []T
	if err := read(func(x T) error { all = append(all, x); return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestTheAuditReadsWhatTheAdapterWrote(t *testing.T) {
	for _, target := range pgtest.EventSourced(postgres.Targets()) {
		t.Run(target.Variant, func(t *testing.T) {
			i := pgtest.Open(t, target, pgtest.Sum{})
			writer := pgtest.Connect(t, i, "writer", pgtest.Env("writer"))
			projector := pgtest.Connect(t, i, "projector", pgtest.Env("projector"))
			audit := i.Auditor()
			if head, err := audit.Head(t.Context()); err != nil || !head.IsZero() {
				t.Fatalf("the head of an empty log is %s, %v", head, err)
			}

			a := pgtest.Write("a", eventstore.Exact(0), "1", `{"z":1, "a":2}`)
			a.Events[0].Meta = eventstore.Metadata{
				CommandID: "c", CorrelationID: "k", CausationID: "z", BasisVersion: 4,
				BasisHash: eventstore.HashBytes([]byte("x")), Epoch: 2, SchemaVersion: 3,
			}
			a.Events = append(a.Events, pgtest.Write("", eventstore.Any(), "2", "2").Events...)
			done := pgtest.MustAppend(t, writer.Store(), a)
			ignored := pgtest.Write("b", eventstore.Exact(0), "3", "3")
			ignored.Events[0].Type = "Ignored"
			last := pgtest.MustAppend(t, writer.Store(), ignored)

			p, err := projector.Projection(pgtest.Sum{})
			if err != nil {
				t.Fatal(err)
			}
			at, err := p.Claim(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			page := pgtest.PollUntil(t, projector.Feed(), func(p eventstore.Page) bool { return len(p.Events) == 3 })
			moved, err := p.Apply(t.Context(), eventstore.Batch{Prev: at, Events: page.Events, Next: page.Next})
			if err != nil {
				t.Fatal(err)
			}

			head, err := audit.Head(t.Context())
			if err != nil || head != last.Positions[0] {
				t.Errorf("head %s, %v; the last append was at %s", head, err, last.Positions[0])
			}
			logged := collect(t, func(y func(history.LoggedEvent) error) error { return audit.Log(t.Context(), y) })
			if len(logged) != 3 {
				t.Fatalf("%d events in the log", len(logged))
			}
			first := logged[0]
			if first.ID != a.Events[0].ID || first.Stream != "a" || first.Version != 1 || first.Type != "Added" ||
				string(first.Data) != `{"z":1, "a":2}` || first.Meta != a.Events[0].Meta || first.Position != done.Positions[0] {
				t.Errorf("the log says %+v", first)
			}
			if first.Transaction == 0 || first.Transaction != logged[1].Transaction || first.Transaction == logged[2].Transaction {
				t.Error("the transactions of the events are mixed up")
			}

			rows := collect(t, func(y func(history.LedgerRow) error) error { return audit.Ledgers(t.Context(), y) })
			hows := map[history.How]int{}
			for _, r := range rows {
				hows[r.How]++
				if r.Seq != moved.Seq || r.Epoch != 1 || r.Generation != 1 || r.Projection != "sum" || r.Transaction == 0 {
					t.Errorf("ledger row %+v", r)
				}
			}
			if hows[history.Applied] != 2 || hows[history.Filtered] != 1 {
				t.Errorf("the ledger holds %v", hows)
			}
			cps := collect(t, func(y func(history.CheckpointRow) error) error { return audit.Checkpoints(t.Context(), y) })
			if len(cps) != 1 || cps[0].Seq != 1 || cps[0].Cursor.String() != page.Next.String() || cps[0].Transaction != rows[0].Transaction {
				t.Errorf("checkpoints %+v", cps)
			}
			views := collect(t, func(y func(history.ViewRow) error) error { return audit.Views(t.Context(), y) })
			if len(views) != 1 || views[0].Row != "a" || views[0].Version != 2 || string(views[0].State) != `{"z":1, "a":2}2` {
				t.Errorf("views %+v", views)
			}
			seen, seenRows, err := audit.Observe(t.Context(), "sum")
			if err != nil || seen.Seq != 1 || seen.Generation != 1 || seen.Rows != 1 || seen.Cursor.String() != page.Next.String() || len(seenRows) != 1 {
				t.Errorf("observed %+v %+v %v", seen, seenRows, err)
			}
			if _, _, err := audit.Observe(t.Context(), "other"); err == nil {
				t.Error("an unknown projection was observed")
			}
		})
	}
}

// login connects as a role, past the adapter.
func login(t *testing.T, i targets.Instance, role string) (*pgx.Conn, error) {
	t.Helper()
	raw, err := i.Config(role)
	if err != nil {
		t.Fatal(err)
	}
	var c struct{ URL string }
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	return pgx.Connect(t.Context(), c.URL)
}

func TestTheFenceOfAQuietTrialFindsNothing(t *testing.T) {
	i := pgtest.Open(t, postgres.Targets()[0])
	for range 2 {
		proof, err := i.Auditor().Fence(t.Context())
		if err != nil || !proof.Fenced || !strings.Contains(proof.Text, "0 of their backends") || !strings.Contains(proof.Text, "0 prepared") {
			t.Errorf("%+v, %v", proof, err)
		}
	}
	for _, role := range []string{"writer", "projector"} {
		if c, err := login(t, i, role); err == nil {
			_ = c.Close(t.Context())
			t.Errorf("%s logged in behind the fence", role)
		}
	}
}

func TestTheFenceEndsIdleBackendsAndSaysSo(t *testing.T) {
	i := pgtest.Open(t, postgres.Targets()[0])
	c, err := login(t, i, "writer")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(t.Context()) }()
	proof, err := i.Auditor().Fence(t.Context())
	if err != nil || !proof.Fenced || !strings.Contains(proof.Text, "1 were terminated") {
		t.Errorf("%+v, %v", proof, err)
	}
	if _, err := c.Exec(t.Context(), "select 1"); err == nil {
		t.Error("a backend outlived the fence")
	}
}

func TestTheFenceWaitsForABackendThatIsStillAtWork(t *testing.T) {
	i := pgtest.Open(t, postgres.Targets()[0])
	gate := pgtest.Hold(points.AppendAfterInsert)
	e := pgtest.Env("writer")
	e.Gate = gate
	s := pgtest.Connect(t, i, "writer", e)
	started := pgtest.Start(t, s.Store(), pgtest.Write("a", eventstore.Exact(0), "1", "x"))
	pgtest.Await(t, gate.Arrived())

	type result struct {
		proof targets.Proof
		err   error
	}
	fenced := make(chan result, 1)
	go func() {
		proof, err := i.Auditor().Fence(t.Context())
		fenced <- result{proof, err}
	}()
	// The log-in is closed before the fence looks for backends, and the open transaction may still end well.
	admin := pgtest.Admin(t)
	raw, err := i.Config("writer")
	if err != nil {
		t.Fatal(err)
	}
	var c struct{ Schema string }
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	for closed := false; !closed; {
		err := admin.QueryRow(t.Context(), `select not rolcanlogin from pg_roles where rolname = $1`, c.Schema+"_writer").Scan(&closed)
		if err != nil {
			t.Fatal(err)
		}
	}
	gate.Release(nil)
	started.Wait(t)
	if started.Err != nil {
		t.Errorf("the commit in flight ended with %v", started.Err)
	}
	r := <-fenced
	if r.err != nil || !r.proof.Fenced {
		t.Fatalf("%+v, %v", r.proof, r.err)
	}
	logged := collect(t, func(y func(history.LoggedEvent) error) error { return i.Auditor().Log(t.Context(), y) })
	if len(logged) != 1 {
		t.Errorf("%d events behind the fence", len(logged))
	}
}

func TestTheFenceTerminatesATransactionThatDoesNotEnd(t *testing.T) {
	i := pgtest.Open(t, postgres.Targets()[0])
	gate := pgtest.Hold(points.AppendAfterInsert)
	e := pgtest.Env("writer")
	e.Gate = gate
	s := pgtest.Connect(t, i, "writer", e)
	started := pgtest.Start(t, s.Store(), pgtest.Write("a", eventstore.Exact(0), "1", "x"))
	pgtest.Await(t, gate.Arrived())
	proof, err := i.Auditor().Fence(t.Context())
	if err != nil || !proof.Fenced || !strings.Contains(proof.Text, "1 were terminated") {
		t.Errorf("%+v, %v", proof, err)
	}
	gate.Release(nil)
	started.Wait(t)
	if outcome, _ := eventstore.Classify(started.Err); outcome == eventstore.OK {
		t.Error("an append was acknowledged behind the fence")
	}
	logged := collect(t, func(y func(history.LoggedEvent) error) error { return i.Auditor().Log(t.Context(), y) })
	if len(logged) != 0 {
		t.Errorf("%d events landed behind the fence", len(logged))
	}
}

func TestALongLogIsStreamed(t *testing.T) {
	i := pgtest.Open(t, postgres.Targets()[1])
	s := pgtest.Connect(t, i, "writer", pgtest.Env("writer")).Store()
	const batches, each = 20, 50
	for b := range batches {
		a := eventstore.Append{Stream: "a", Expected: eventstore.Exact(uint64(b * each)), Request: fmt.Sprint(b)}
		for n := range each {
			a.Events = append(a.Events, pgtest.Write("", eventstore.Any(), fmt.Sprint(b, n), "x").Events...)
		}
		pgtest.MustAppend(t, s, a)
	}
	next := uint64(1)
	err := i.Auditor().Log(t.Context(), func(e history.LoggedEvent) error {
		if e.Version != next {
			t.Fatalf("version %d, want %d", e.Version, next)
		}
		next++
		return nil
	})
	if err != nil || next != batches*each+1 {
		t.Errorf("read %d events, %v", next-1, err)
	}
	stop := fmt.Errorf("enough")
	if err := i.Auditor().Log(t.Context(), func(history.LoggedEvent) error { return stop }); err == nil {
		t.Error("the yield's error was swallowed")
	}
}
