// Package pgtest gives the tests of the Postgres target a server and fresh trials on it.
package pgtest

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets"
)

// EnvURL names the variable with the admin URL of a server for tests.
const EnvURL = "EVENTPROOF_POSTGRES_URL"

// URL returns the admin URL of the test server, or skips the test.
func URL(t testing.TB) string {
	t.Helper()
	url := os.Getenv(EnvURL)
	if url == "" {
		t.Skipf("NO POSTGRES: set %s to the admin URL of a server", EnvURL)
	}
	return url
}

var trials atomic.Uint64

// Trial returns an id that no other test uses.
func Trial() string {
	return fmt.Sprintf("t%x%x%x", os.Getpid(), clock.Monotonic(), trials.Add(1))
}

// Open opens a target for the length of the test.
func Open(t testing.TB, target targets.Target, views ...eventstore.View) targets.Instance {
	t.Helper()
	i, err := target.Open(t.Context(), targets.Site{AdminURL: URL(t), Trial: Trial(), Views: views, Assembly: target.Assembly})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := i.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return i
}

// Env returns the surroundings of a role that dials directly and is never held.
func Env(name string) targets.Env {
	var d net.Dialer
	return targets.Env{Gate: points.Open{}, Dial: d.DialContext, Name: name}
}

// Connect connects a role for the length of the test.
func Connect(t testing.TB, i targets.Instance, role string, env targets.Env) targets.Session {
	t.Helper()
	s, err := i.Connect(t.Context(), role, env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Admin returns a connection with admin rights.
func Admin(t testing.TB) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), URL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}
