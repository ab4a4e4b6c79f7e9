// Package dytest gives tests an emulator, targets on it and roles with connections that can be cut.
package dytest

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	emulator "github.com/eventproof/eventproof/emulators/dynamodb"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets"
)

// Server is an emulator that listens on loopback until the test ends.
type Server struct {
	URL  string
	Dir  string // "" in memory
	stop context.CancelFunc
	done chan error
	once sync.Once
}

// Serve starts an emulator.
func Serve(t testing.TB, opt emulator.Options) *Server { return ServeAt(t, "127.0.0.1:0", opt) }

// ServeAt starts an emulator at an address.
func ServeAt(t testing.TB, addr string, opt emulator.Options) *Server {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{Dir: opt.Dir, stop: cancel, done: make(chan error, 1)}
	ready := make(chan string, 1)
	go func() { s.done <- emulator.Serve(ctx, addr, opt, func(a string) { ready <- a }) }()
	select {
	case a := <-ready:
		s.URL = "http://" + a
	case err := <-s.done:
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// Stop ends the emulator and waits for it.
func (s *Server) Stop() {
	s.stop()
	s.once.Do(func() { <-s.done })
}

// Handler starts an emulator inside the test, for arming its faults.
func Handler(t testing.TB, opt emulator.Options) (*Server, *emulator.Server) {
	t.Helper()
	em, err := emulator.Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(em)
	t.Cleanup(func() {
		h.Close()
		if err := em.Close(); err != nil {
			t.Error(err)
		}
	})
	return &Server{URL: h.URL, Dir: opt.Dir}, em
}

// Split splits the shards of an instance's stream.
func Split(t testing.TB, s *Server, i targets.Instance) {
	t.Helper()
	raw, err := i.Config("writer")
	if err != nil {
		t.Fatal(err)
	}
	var c struct{ Table string }
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+emulator.SplitPath+"?table="+c.Table, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, err)
	}
}

var trials atomic.Int64

// Open opens a target for a trial of its own.
func Open(t testing.TB, s *Server, target targets.Target, views ...eventstore.View) targets.Instance {
	t.Helper()
	i, err := target.Open(t.Context(), targets.Site{
		AdminURL: s.URL, Trial: fmt.Sprintf("t%d", trials.Add(1)), DataDir: s.Dir, Views: views, Assembly: target.Assembly,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Log(err)
		}
	})
	return i
}

// Env is what a role gets from its surroundings when nothing is wrong.
func Env(name string) targets.Env {
	var d net.Dialer
	return targets.Env{Gate: points.Open{}, Dial: d.DialContext, Name: name}
}

// Connect connects a role.
func Connect(t testing.TB, i targets.Instance, role string, env targets.Env) targets.Session {
	t.Helper()
	s, err := i.Connect(t.Context(), role, env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Gate holds a role at a point, once.
type Gate struct {
	at      points.Point
	arrived chan struct{}
	release chan error
	once    sync.Once
}

// Hold returns a gate that stops the first visit of a point.
func Hold(p points.Point) *Gate {
	return &Gate{at: p, arrived: make(chan struct{}), release: make(chan error, 1)}
}

// At implements points.Gate.
func (g *Gate) At(ctx context.Context, p points.Point, _ uint64) error {
	if p != g.at {
		return nil
	}
	var err error
	g.once.Do(func() {
		close(g.arrived)
		select {
		case err = <-g.release:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	})
	return err
}

// Await waits until the role stands at the point.
func (g *Gate) Await(t testing.TB) {
	t.Helper()
	select {
	case <-g.arrived:
	case <-time.After(20 * time.Second):
		t.Fatalf("nobody came to %s", g.at)
	}
}

// Release lets the role go on, or ends it with an error.
func (g *Gate) Release(err error) { g.release <- err }

var events atomic.Uint64

// NewEvent makes an event of type "Added" with an amount.
func NewEvent(amount int) eventstore.NewEvent {
	n := events.Add(1)
	e := eventstore.NewEvent{Type: "Added", Data: fmt.Appendf(nil, `{"amount":%d}`, amount)}
	for i := range 8 {
		e.ID[15-i] = byte(n >> (8 * i))
	}
	e.Meta = eventstore.Metadata{CommandID: fmt.Sprintf("c-%d", n), SchemaVersion: 1}
	return e
}

// Write makes an append with a request of its own.
func Write(stream string, want eventstore.Expected, events ...eventstore.NewEvent) eventstore.Append {
	return eventstore.Append{Stream: stream, Expected: want, Events: events, Request: "r-" + events[0].ID.String()}
}

// MustAppend appends and fails the test otherwise.
func MustAppend(t testing.TB, s eventstore.Store, a eventstore.Append) eventstore.Appended {
	t.Helper()
	done, err := s.Append(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	return done
}
