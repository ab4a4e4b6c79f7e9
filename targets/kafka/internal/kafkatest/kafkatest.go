// Package kafkatest gives tests a stand-in for Kafka in the process, or a real broker, with targets and owners on it.
package kafkatest

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets"
)

// EnvURL names a broker that tests use instead of the stand-in, kafka://host:port.
const EnvURL = "EVENTPROOF_TEST_KAFKA"

// Server is a broker that tests may use; Fake is nil if it is a real one.
type Server struct {
	URL  string
	Fake *kfake.Cluster
}

// Serve starts a stand-in, or names the real broker that the environment tells.
func Serve(t testing.TB, opts ...kfake.Opt) *Server {
	t.Helper()
	if url := os.Getenv(EnvURL); url != "" {
		return &Server{URL: url}
	}
	return Fake(t, opts...)
}

// Fake starts a stand-in.
func Fake(t testing.TB, opts ...kfake.Opt) *Server {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.DefaultNumPartitions(1)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &Server{URL: "kafka://" + c.ListenAddrs()[0], Fake: c}
}

var trials atomic.Int64

// Open opens a target for a trial of its own. No owner runs yet.
func Open(t testing.TB, s *Server, target targets.Target, views ...eventstore.View) targets.Instance {
	t.Helper()
	i, err := target.Open(t.Context(), targets.Site{
		AdminURL: s.URL, Trial: fmt.Sprintf("t%dx%d", os.Getpid(), trials.Add(1)), Views: views, Assembly: target.Assembly,
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

// Owner is an owner that runs in the process of the test.
type Owner struct {
	end  context.CancelCauseFunc
	done chan error
	once sync.Once
	err  error
}

// Start starts an owner and waits until it is ready.
func Start(t testing.TB, target targets.Target, i targets.Instance, name string, env targets.Env) *Owner {
	t.Helper()
	raw, err := i.Config(name)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancelCause(context.WithoutCancel(t.Context()))
	o := &Owner{end: end, done: make(chan error, 1)}
	ready := make(chan struct{})
	go func() { o.done <- target.Serve(ctx, raw, env, func() { close(ready) }) }()
	t.Cleanup(func() { _ = o.Stop() })
	select {
	case <-ready:
	case err := <-o.done:
		o.done <- err
		t.Fatalf("owner %s: %v", name, err)
	case <-time.After(30 * time.Second):
		t.Fatalf("owner %s did not become ready", name)
	}
	return o
}

// Stop ends the owner and returns what its Serve returned.
func (o *Owner) Stop() error {
	o.end(nil)
	return o.Wait()
}

// Wait waits for the owner to end.
func (o *Owner) Wait() error {
	o.once.Do(func() { o.err = <-o.done })
	return o.err
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
	armed   atomic.Bool
}

// Hold returns a gate that stops the first visit of a point.
func Hold(p points.Point) *Gate {
	g := &Gate{at: p, arrived: make(chan struct{}), release: make(chan error, 1)}
	g.armed.Store(true)
	return g
}

// Disarm lets the role pass, Arm stops its next visit.
func (g *Gate) Disarm() { g.armed.Store(false) }

// Arm stops the next visit of the point.
func (g *Gate) Arm() { g.armed.Store(true) }

// Arrived is closed when the role stands at the point.
func (g *Gate) Arrived() <-chan struct{} { return g.arrived }

// At implements points.Gate.
func (g *Gate) At(ctx context.Context, p points.Point, _ uint64) error {
	if p != g.at || !g.armed.CompareAndSwap(true, false) {
		return nil
	}
	close(g.arrived)
	select {
	case err := <-g.release:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
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
