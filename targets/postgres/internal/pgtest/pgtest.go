// Package pgtest gives the tests of the Postgres target a server and fresh trials on it.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/provision"
	"github.com/eventproof/eventproof/provision/all"
	"github.com/eventproof/eventproof/targets"
)

// envURL names the variable with the admin URL of a server for tests; without it one is started.
const envURL = "EVENTPROOF_POSTGRES_URL"

const startBound = 2 * time.Minute

// server is the test binary's own server, started when the first test asks for it.
var server struct {
	sync.Once
	*provision.Server
	err error
}

// Main runs the tests of a package and stops the server that they started. It returns the exit code.
func Main(m *testing.M) int {
	code := m.Run()
	if server.Server == nil {
		return code
	}
	if err := server.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "stopping the test server:", err)
		return max(code, 1)
	}
	return code
}

// URL returns the admin URL of the test server. Where no server can be had the test is skipped.
func URL(t testing.TB) string {
	t.Helper()
	if url := os.Getenv(envURL); url != "" {
		return url
	}
	server.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startBound)
		defer cancel()
		server.Server, server.err = all.Select(ctx, "postgres", provision.Options{Kind: provision.Native})
	})
	if errors.Is(server.err, provision.ErrNoServer) {
		t.Skipf("NOT TESTED: %v", server.err)
	}
	if server.err != nil {
		t.Fatal(server.err)
	}
	return server.AdminURL()
}

// Server returns the test binary's own server, for tests that kill it; without one the test is skipped.
func Server(t testing.TB) *provision.Server {
	t.Helper()
	if URL(t); server.Server == nil {
		t.Skipf("NOT TESTED: the server of %s is not ours to kill", envURL)
	}
	return server.Server
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

// EventSourced leaves out the targets whose auctions are rows: they have no stream to append to.
func EventSourced(all []targets.Target) []targets.Target {
	return slices.DeleteFunc(all, func(t targets.Target) bool { return t.Assembly.NativeAuction() })
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
