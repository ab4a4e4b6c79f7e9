package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/postgres"
	"github.com/eventproof/eventproof/targets/postgres/internal/pgtest"
)

// each runs a test on every correct variant.
func each(t *testing.T, test func(t *testing.T, target targets.Target)) {
	for _, target := range pgtest.EventSourced(postgres.Targets()) {
		t.Run(target.Variant, func(t *testing.T) { test(t, target) })
	}
}

func env(name string, gate points.Gate) targets.Env {
	e := pgtest.Env(name)
	if gate != nil {
		e.Gate = gate
	}
	return e
}

func TestAHeldTransactionIsNotPassedByTheFeed(t *testing.T) {
	each(t, func(t *testing.T, target targets.Target) {
		i := pgtest.Open(t, target)
		gate := pgtest.Hold(points.AppendAfterInsert)
		early := pgtest.Connect(t, i, "writer", env("early", gate))
		late := pgtest.Connect(t, i, "writer", env("late", nil))
		feed := pgtest.Connect(t, i, "projector", env("projector", nil)).Feed()

		first := pgtest.Start(t, early.Store(), pgtest.Write("a", eventstore.Exact(0), "1", "x"))
		pgtest.Await(t, gate.Arrived())
		second := pgtest.Start(t, late.Store(), pgtest.Write("b", eventstore.Exact(0), "2", "y"))
		if target.Variant == "xid-horizon" {
			second.Wait(t)
		} else {
			awaitWaiter(t)
		}
		page := pgtest.MustPoll(t, feed, eventstore.Cursor{})
		if len(page.Events) != 0 || !page.Next.IsZero() {
			t.Fatalf("the feed passed a held transaction: %+v", page)
		}
		if target.Variant == "xid-horizon" {
			pgtest.PollUntil(t, feed, func(p eventstore.Page) bool { return strings.Contains(p.Held, "early/1") })
		} else if page.Held != "" {
			t.Errorf("held by %q", page.Held)
		}
		gate.Release(nil)
		first.Wait(t)
		second.Wait(t)
		page = pgtest.PollUntil(t, feed, func(p eventstore.Page) bool { return len(p.Events) == 2 && p.Held == "" })
		if page.Events[0].Stream != "a" {
			t.Fatalf("after the release the feed shows %+v", page)
		}
		if !page.Next.Covers(first.Done.Positions[0]) || !page.Next.Covers(second.Done.Positions[0]) {
			t.Error("the cursor does not claim what was returned")
		}
	})
}

// awaitWaiter waits until somebody waits for an advisory lock.
func awaitWaiter(t *testing.T) {
	t.Helper()
	admin := pgtest.Admin(t)
	for waiting := 0; waiting == 0; {
		err := admin.QueryRow(t.Context(), `select count(*) from pg_locks where locktype = 'advisory' and not granted`).Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestAForeignTransactionHoldsTheHorizonAndIsNamed(t *testing.T) {
	target, parts, _ := postgres.Variant("xid-horizon")
	i := pgtest.Open(t, postgres.New(target, parts))
	writer := pgtest.Connect(t, i, "writer", env("writer", nil))
	feed := pgtest.Connect(t, i, "projector", env("projector", nil)).Feed()

	t.Run("in another database", func(t *testing.T) {
		cfg, err := pgx.ParseConfig(pgtest.URL(t))
		if err != nil {
			t.Fatal(err)
		}
		cfg.Database = "template1"
		cfg.RuntimeParams["application_name"] = "stranger"
		stranger, err := pgx.ConnectConfig(t.Context(), cfg)
		if err != nil {
			t.Skipf("no other database to connect to: %v", err)
		}
		defer func() { _ = stranger.Close(t.Context()) }()
		mustExec(t, stranger, "begin")
		mustExec(t, stranger, "select pg_current_xact_id()")
		pgtest.MustAppend(t, writer.Store(), pgtest.Write("a", eventstore.Exact(0), "1", "x"))
		page := pgtest.PollUntil(t, feed, func(p eventstore.Page) bool { return strings.Contains(p.Held, "stranger") })
		if len(page.Events) != 0 || !strings.Contains(page.Held, "template1") {
			t.Fatalf("got %d events, held by %q", len(page.Events), page.Held)
		}
		mustExec(t, stranger, "rollback")
		pgtest.PollUntil(t, feed, func(p eventstore.Page) bool { return len(p.Events) == 1 && p.Held == "" })
	})
	t.Run("prepared", func(t *testing.T) {
		admin := pgtest.Admin(t)
		gid := "gid-" + pgtest.Trial()
		mustExec(t, admin, "begin")
		mustExec(t, admin, "select pg_current_xact_id()")
		if _, err := admin.Exec(t.Context(), "prepare transaction '"+gid+"'"); err != nil {
			t.Skipf("the server allows no prepared transactions: %v", err)
		}
		pgtest.MustAppend(t, writer.Store(), pgtest.Write("b", eventstore.Exact(0), "2", "x"))
		t.Cleanup(func() { _, _ = admin.Exec(context.Background(), "rollback prepared '"+gid+"'") })
		pgtest.PollUntil(t, feed, func(p eventstore.Page) bool { return strings.Contains(p.Held, gid) })
		proof, err := i.Auditor().Fence(t.Context())
		if err != nil || proof.Fenced || !strings.Contains(proof.Text, gid) {
			t.Errorf("a prepared transaction does not spoil the fence: %+v, %v", proof, err)
		}
	})
}

func mustExec(t *testing.T, c *pgx.Conn, sql string) {
	t.Helper()
	if _, err := c.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

// schemaOf returns the schema and the two users of an instance.
func schemaOf(t *testing.T, i targets.Instance) string {
	t.Helper()
	raw, err := i.Config("writer")
	if err != nil {
		t.Fatal(err)
	}
	var c struct{ Schema string }
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	return c.Schema
}

func TestASequenceWithACacheIsRefused(t *testing.T) {
	each(t, func(t *testing.T, target targets.Target) {
		i := pgtest.Open(t, target)
		mustExec(t, pgtest.Admin(t), "alter sequence "+schemaOf(t, i)+".positions cache 32")
		s, err := i.Connect(t.Context(), "writer", env("writer", nil))
		if err == nil {
			_ = s.Close()
			t.Fatal("the adapter started")
		}
		if !strings.Contains(err.Error(), "CACHE 1") {
			t.Errorf("refused with %v", err)
		}
	})
}

func TestALostCommitReplyIsUnknownAndTheRepeatFindsTheFirstResult(t *testing.T) {
	each(t, func(t *testing.T, target targets.Target) {
		i := pgtest.Open(t, target)
		proxy := pgtest.NewProxy()
		e := env("writer", nil)
		e.Dial = proxy.Dial(t)
		store := pgtest.Connect(t, i, "writer", e).Store()
		var session string
		var xid uint64
		var trips int
		ctx := eventstore.WithTrace(t.Context(), &eventstore.Trace{
			Session:     func(name string) { session = name },
			Transaction: func(id uint64) { xid = id },
			RoundTrips:  func(n int) { trips = n },
		})
		a := pgtest.Write("a", eventstore.Exact(0), "1", "x")
		proxy.Cut()
		_, err := store.Append(ctx, a)
		if outcome, reason := eventstore.Classify(err); outcome != eventstore.Unknown || reason != eventstore.LostReply {
			t.Fatalf("got %v", err)
		}
		if !proxy.Bit() {
			t.Fatal("the fault did not bite")
		}
		if session != "writer/1" || trips < 3 {
			t.Errorf("session %q, %d round trips", session, trips)
		}
		events := log(t, i)
		if len(events) != 1 || events[0].Transaction != xid {
			t.Fatalf("the log holds %+v, the transaction was %d", events, xid)
		}
		again, err := store.Append(ctx, a)
		if err != nil || !again.Replayed || again.First != 1 || again.Events[0] != a.Events[0].ID {
			t.Fatalf("the repeat was answered with %+v, %v", again, err)
		}
		if session != "writer/2" {
			t.Errorf("the broken connection was used again: %q", session)
		}
	})
}

func log(t *testing.T, i targets.Instance) []history.LoggedEvent {
	t.Helper()
	var events []history.LoggedEvent
	err := i.Auditor().Log(t.Context(), func(e history.LoggedEvent) error {
		events = append(events, e)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return events
}

func TestACrashLeavesNothingAndSaysNothing(t *testing.T) {
	each(t, func(t *testing.T, target targets.Target) {
		i := pgtest.Open(t, target)
		for _, p := range []points.Point{points.AppendBegin, points.AppendBeforeHead, points.AppendAfterHead, points.AppendAfterInsert} {
			t.Run(string(p), func(t *testing.T) {
				gate := pgtest.Hold(p)
				var mu sync.Mutex
				var sockets []net.Conn
				e := env("writer", gate)
				dial := e.Dial
				e.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
					c, err := dial(ctx, network, addr)
					mu.Lock()
					defer mu.Unlock()
					sockets = append(sockets, c)
					return c, err
				}
				started := pgtest.Start(t, pgtest.Connect(t, i, "writer", e).Store(), pgtest.Write(string(p), eventstore.Exact(0), "crashed"+string(p), "x"))
				pgtest.Await(t, gate.Arrived())
				mu.Lock()
				for _, c := range sockets {
					_ = c.Close()
				}
				mu.Unlock()
				gate.Release(points.ErrCrashed)
				started.Wait(t)
				if !errors.Is(started.Err, points.ErrCrashed) {
					t.Fatalf("got %v", started.Err)
				}
				if outcome, reason := eventstore.Classify(started.Err); outcome != eventstore.Unknown || reason != eventstore.Killed {
					t.Errorf("got %s (%s)", outcome, reason)
				}
				// The backend finds the socket closed and gives up what it held.
				other := pgtest.Connect(t, i, "writer", env("other", nil))
				pgtest.MustAppend(t, other.Store(), pgtest.Write(string(p), eventstore.Exact(0), "other"+string(p), "y"))
			})
		}
	})
}

func TestAnAcknowledgedAppendThatCrashesBeforeItsAnswerIsUnknownAndInTheLog(t *testing.T) {
	each(t, func(t *testing.T, target targets.Target) {
		i := pgtest.Open(t, target)
		gate := pgtest.Hold(points.AppendAfterCommit)
		started := pgtest.Start(t, pgtest.Connect(t, i, "writer", env("writer", gate)).Store(), pgtest.Write("a", eventstore.Exact(0), "1", "x"))
		pgtest.Await(t, gate.Arrived())
		gate.Release(points.ErrCrashed)
		started.Wait(t)
		if outcome, _ := eventstore.Classify(started.Err); outcome != eventstore.Unknown || len(log(t, i)) != 1 {
			t.Errorf("got %v and %d events", started.Err, len(log(t, i)))
		}
	})
}

func TestCancellingAnAppendThatHasInsertedIsUnknown(t *testing.T) {
	each(t, func(t *testing.T, target targets.Target) {
		i := pgtest.Open(t, target)
		gate := pgtest.Hold(points.AppendAfterInsert)
		store := pgtest.Connect(t, i, "writer", env("writer", gate)).Store()
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-gate.Arrived()
			cancel()
		}()
		_, err := store.Append(ctx, pgtest.Write("a", eventstore.Exact(0), "1", "x"))
		if outcome, reason := eventstore.Classify(err); outcome != eventstore.Unknown || reason != eventstore.Cancelled {
			t.Errorf("got %v", err)
		}
	})
}

func TestOf64WritersOnOneVersionOneWinsAndTheOthersSeeItsHead(t *testing.T) {
	each(t, func(t *testing.T, target targets.Target) {
		i := pgtest.Open(t, target)
		store := pgtest.Connect(t, i, "writer", env("writer", nil)).Store()
		var all []*pgtest.Started
		for n := range 64 {
			all = append(all, pgtest.Start(t, store, pgtest.Write("a", eventstore.Exact(0), fmt.Sprint(n), "x")))
		}
		won := 0
		for _, s := range all {
			s.Wait(t)
			var e *eventstore.Error
			switch {
			case s.Err == nil:
				won++
			case !errors.As(s.Err, &e) || e.Reason != eventstore.VersionConflict || !e.HeadKnown || e.Head != 1:
				t.Errorf("a loser got %v", s.Err)
			}
		}
		if won != 1 {
			t.Errorf("%d won", won)
		}
	})
}

func TestALostRaceOfABlindAppendIsNoVersionConflict(t *testing.T) {
	target, parts, _ := postgres.Variant("xid-horizon")
	i := pgtest.Open(t, postgres.New(target, parts))
	gate := pgtest.Hold(points.AppendAfterHead)
	slow := pgtest.Start(t, pgtest.Connect(t, i, "writer", env("slow", gate)).Store(), pgtest.Write("a", eventstore.Any(), "1", "x"))
	pgtest.Await(t, gate.Arrived())
	pgtest.MustAppend(t, pgtest.Connect(t, i, "writer", env("fast", nil)).Store(), pgtest.Write("a", eventstore.Any(), "2", "y"))
	gate.Release(nil)
	slow.Wait(t)
	if outcome, reason := eventstore.Classify(slow.Err); outcome != eventstore.Fail || reason != eventstore.LostRace {
		t.Errorf("got %v", slow.Err)
	}
}

func TestARepeatThatWaitsForTheOpenFirstTryGetsItsResult(t *testing.T) {
	each(t, func(t *testing.T, target targets.Target) {
		i := pgtest.Open(t, target)
		gate := pgtest.Hold(points.AppendAfterInsert)
		a := pgtest.Write("a", eventstore.Exact(0), "1", "x")
		first := pgtest.Start(t, pgtest.Connect(t, i, "writer", env("first", gate)).Store(), a)
		pgtest.Await(t, gate.Arrived())
		second := pgtest.Start(t, pgtest.Connect(t, i, "writer", env("second", nil)).Store(), a)
		admin := pgtest.Admin(t)
		for waiting := 0; waiting == 0; {
			if err := admin.QueryRow(t.Context(), `select count(*) from pg_locks where not granted`).Scan(&waiting); err != nil {
				t.Fatal(err)
			}
		}
		gate.Release(nil)
		first.Wait(t)
		second.Wait(t)
		if first.Err != nil || second.Err != nil || first.Done.Replayed || !second.Done.Replayed || second.Done.First != 1 {
			t.Errorf("first %+v %v, second %+v %v", first.Done, first.Err, second.Done, second.Err)
		}
	})
}

func TestRolesMayOnlyAddToTheLogAndToTheLedgers(t *testing.T) {
	target, parts, _ := postgres.Variant("xid-horizon")
	i := pgtest.Open(t, postgres.New(target, parts), pgtest.Sum{})
	for _, c := range []struct{ role, sql string }{
		{"writer", "update events set version = 1"},
		{"writer", "delete from events"},
		{"writer", "truncate events"},
		{"writer", "update requests set stream = ''"},
		{"writer", "insert into checkpoint_history values ('x', 1, 1, 1, '')"},
		{"projector", "insert into events (id, stream, version, type, data, metadata) values (gen_random_uuid(), 's', 1, 't', '', '{}')"},
		{"projector", "select * from projection_ledger"},
		{"projector", "delete from projection_ledger"},
		{"projector", "update checkpoint_history set seq = 1"},
		{"projector", "delete from checkpoints"},
		{"projector", "delete from views"},
	} {
		raw, err := i.Config(c.role)
		if err != nil {
			t.Fatal(err)
		}
		var cfg struct{ URL, Schema string }
		if err := json.Unmarshal(raw, &cfg); err != nil {
			t.Fatal(err)
		}
		conn, err := pgx.Connect(t.Context(), cfg.URL+"&search_path="+cfg.Schema)
		if err != nil {
			t.Fatal(err)
		}
		_, err = conn.Exec(t.Context(), c.sql)
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || refused.Code != "42501" {
			t.Errorf("%s may %q: %v", c.role, c.sql, err)
		}
		_ = conn.Close(t.Context())
	}
}

func TestARolesConfigurationHoldsNoAdminPassword(t *testing.T) {
	target := postgres.Targets()[0]
	i := pgtest.Open(t, target)
	for _, role := range []string{"writer", "projector"} {
		raw, err := i.Config(role)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(raw), "//postgres@") || strings.Contains(string(raw), "//postgres:") {
			t.Errorf("%s connects as admin: %s", role, raw)
		}
		s, err := target.Attach(t.Context(), raw, env(role, nil))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := i.Config("owner"); err == nil {
		t.Error("an unknown role got a configuration")
	}
}

func TestTheEnvironmentDoesNotDecideWhereToConnect(t *testing.T) {
	pgtest.URL(t)
	for _, name := range []string{"PGHOST", "PGUSER", "PGPASSWORD", "PGDATABASE", "PGAPPNAME", "PGOPTIONS"} {
		t.Setenv(name, "elsewhere")
	}
	t.Setenv("PGPORT", "1")
	t.Setenv("PGSSLMODE", "require")
	if os.Getenv("PGHOST") != "elsewhere" {
		t.Fatal("the environment was not set")
	}
	i := pgtest.Open(t, postgres.Targets()[0])
	pgtest.MustAppend(t, pgtest.Connect(t, i, "writer", env("writer", nil)).Store(), pgtest.Write("a", eventstore.Exact(0), "1", "x"))
}

func TestClosingATrialLeavesNothingOnTheServer(t *testing.T) {
	url := pgtest.URL(t)
	trial := pgtest.Trial()
	i, err := postgres.Targets()[0].Open(t.Context(), targets.Site{AdminURL: url, Trial: trial})
	if err != nil {
		t.Fatal(err)
	}
	gate := pgtest.Hold(points.AppendAfterInsert)
	s, err := i.Connect(t.Context(), "writer", env("writer", gate))
	if err != nil {
		t.Fatal(err)
	}
	started := pgtest.Start(t, s.Store(), pgtest.Write("a", eventstore.Exact(0), "1", "x"))
	pgtest.Await(t, gate.Arrived())
	if err := i.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	gate.Release(nil)
	started.Wait(t)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := postgres.Remove(t.Context(), url, trial); err != nil {
		t.Errorf("removing what is gone: %v", err)
	}
	var left int
	err = pgtest.Admin(t).QueryRow(t.Context(), `select (select count(*) from pg_namespace where nspname = $1)
		+ (select count(*) from pg_roles where rolname like $1 || '\_%')`, "ep_"+trial).Scan(&left)
	if err != nil || left != 0 {
		t.Errorf("%d things left, %v", left, err)
	}
}

func TestATrialNameThatIsNoIdentifierIsRefused(t *testing.T) {
	for _, name := range []string{"", "A", "a;b", "a_b", strings.Repeat("a", 41)} {
		if _, err := postgres.Targets()[0].Open(t.Context(), targets.Site{AdminURL: "postgres://u@127.0.0.1:1/d", Trial: name}); err == nil {
			t.Errorf("%q was taken", name)
		}
	}
}

func TestEveryTargetIsCompleteAndNamedOnce(t *testing.T) {
	var r targets.Registry
	if err := r.Add(postgres.Targets()...); err != nil {
		t.Fatal(err)
	}
	for _, target := range r.All() {
		bank := slices.Contains(target.Workloads, "bank") != target.Assembly.NativeAuction()
		if target.Attach == nil || target.Needs != "postgres" || !bank || !slices.Contains(target.Workloads, "auction") || target.Summary == "" {
			t.Errorf("%s is incomplete", target.Name())
		}
	}
}
