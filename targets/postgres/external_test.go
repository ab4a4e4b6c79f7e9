package postgres_test

import (
	"context"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/postgres"
	"github.com/eventproof/eventproof/targets/postgres/internal/pgtest"
)

func TestAnAdminWhoIsNoSuperuserCanRunATrial(t *testing.T) {
	admin := pgtest.Admin(t)
	boss := "boss_" + pgtest.Trial()
	var database string
	if err := admin.QueryRow(t.Context(), "select current_database()").Scan(&database); err != nil {
		t.Fatal(err)
	}
	mustExec(t, admin, "create role "+boss+" login createrole password 'secret'")
	mustExec(t, admin, "grant create on database "+database+" to "+boss)
	t.Cleanup(func() {
		for _, sql := range []string{"revoke create on database " + database + " from " + boss, "drop role " + boss} {
			if _, err := admin.Exec(context.Background(), sql); err != nil {
				t.Error(err)
			}
		}
	})
	u, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(boss, "secret")
	target := postgres.Targets()[1]
	i, err := target.Open(t.Context(), targets.Site{AdminURL: u.String(), Trial: pgtest.Trial(), Views: []eventstore.View{pgtest.Sum{}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := i.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	s := pgtest.Connect(t, i, "writer", env("writer", nil))
	pgtest.MustAppend(t, s.Store(), pgtest.Write("a", eventstore.Exact(0), "1", "x"))
	proof, err := i.Auditor().Fence(t.Context())
	if err != nil || !proof.Fenced || !strings.Contains(proof.Text, "1 were terminated") {
		t.Errorf("%+v, %v", proof, err)
	}
	if n := len(log(t, i)); n != 1 {
		t.Errorf("%d events", n)
	}
}

func TestAServerThatComesBackIsWaitedFor(t *testing.T) {
	i := pgtest.Open(t, postgres.Targets()[0])
	e := env("writer", nil)
	dial, refused := e.Dial, 0
	e.Dial = pgtest.Refuse(dial, &refused, 3)
	s := pgtest.Connect(t, i, "writer", e)
	if refused != 3 {
		t.Errorf("%d connects were refused", refused)
	}
	pgtest.MustAppend(t, s.Store(), pgtest.Write("a", eventstore.Exact(0), "1", "x"))

	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	e.Dial = pgtest.Refuse(dial, &refused, 1<<30)
	if _, err := i.Connect(ctx, "writer", e); err == nil {
		t.Error("connected to nobody")
	}
}

func TestNoGoroutineOutlivesASession(t *testing.T) {
	i := pgtest.Open(t, postgres.Targets()[0])
	before := runtime.NumGoroutine()
	for range 5 {
		gate := pgtest.Hold(points.AppendAfterInsert)
		s, err := i.Connect(t.Context(), "writer", env("writer", gate))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = s.Store().Append(ctx, pgtest.Write("a", eventstore.Any(), "1", "x"))
		}()
		pgtest.Await(t, gate.Arrived())
		cancel()
		<-done
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	// The driver cleans up behind a cancelled statement on its own.
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines before, %d after", before, n)
	}
}
