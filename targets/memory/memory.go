// Package memory is the in-process reference target: an event store that promises everything a single node
// can promise, for thousands of trials a minute while checkers and scenarios are built. It is a stand-in:
// it proves code paths, never a product.
package memory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/memory/audit"
	"github.com/eventproof/eventproof/targets/memory/engine"
)

// Parts are the replaceable places of the store. Reference returns the correct ones.
type Parts struct {
	Append func(ctx context.Context, c *Conn, a eventstore.Append) (eventstore.Appended, error)
	Read   func(ctx context.Context, c *Conn, r eventstore.ReadRequest) ([]eventstore.Event, error)
	Poll   func(ctx context.Context, c *Conn, after eventstore.Cursor, limit int) (eventstore.Page, error)
	Apply  func(ctx context.Context, c *Conn, v eventstore.View, b eventstore.Batch) (eventstore.Checkpoint, error)
}

// Reference returns the parts of memory/reference.
func Reference() Parts {
	return Parts{Append: appendUnique, Read: readTables, Poll: PollWith(settled), Apply: applyAtomically}
}

// Base returns memory/reference, the target that controls are swapped from.
func Base() targets.Target {
	return targets.Target{
		Store:   "memory",
		Variant: "reference",
		Summary: "in-process event store that promises everything; the workbench of checkers and scenarios",
		Assembly: targets.Assembly{
			Append: "unique-slot", Reader: "in-flight-horizon", Projection: "same-transaction",
			Retry: "repeat-write", Continue: "whole-stream", Conflict: "reload-and-decide", Snapshot: "best-effort",
		},
		Promises: []eventstore.Promise{
			eventstore.OptimisticConcurrency, eventstore.AtomicBatch, eventstore.IdempotentAppend,
			eventstore.StrongRead, eventstore.GlobalOrder, eventstore.RealTimeOrder, eventstore.CompleteFeed,
			eventstore.FreshRefusals, eventstore.AtomicProjection, eventstore.Durable,
		},
		Workloads:      []string{"bank", "auction"},
		ProjectionMode: "transactional",
		Emulated:       true,
		Open:           Open(Reference),
	}
}

// Targets returns the correct targets of this package.
func Targets() []targets.Target { return []targets.Target{Base()} }

// Open returns a Target.Open for a store of the given parts; parts is called once an instance, so that a part
// may keep state of its own.
func Open(parts func() Parts) func(context.Context, targets.Site) (targets.Instance, error) {
	return func(_ context.Context, site targets.Site) (targets.Instance, error) {
		names := make([]string, len(site.Views))
		for i, v := range site.Views {
			names[i] = v.Name()
		}
		return &instance{db: engine.New(names...), parts: parts(), conns: map[string]int{}}, nil
	}
}

type instance struct {
	db    *engine.DB
	parts Parts

	mu    sync.Mutex
	conns map[string]int // sessions opened under each name
}

// ErrOneProcess says that the store lives in the memory of the runner's process.
var ErrOneProcess = errors.New("memory: the store lives in one process; roles can't attach from another")

// Connect implements targets.Instance.
func (i *instance) Connect(_ context.Context, role string, env targets.Env) (targets.Session, error) {
	name := env.Name
	if name == "" {
		name = role
	}
	i.mu.Lock()
	i.conns[name]++
	n := i.conns[name]
	i.mu.Unlock()
	gate := env.Gate
	if gate == nil {
		gate = points.Open{}
	}
	return &session{parts: i.parts, conn: &Conn{DB: i.db, Name: fmt.Sprintf("%s/%d", name, n), gate: gate}}, nil
}

// Config implements targets.Instance; it always fails with ErrOneProcess.
func (i *instance) Config(string) (json.RawMessage, error) { return nil, ErrOneProcess }

// Auditor implements targets.Instance.
func (i *instance) Auditor() targets.Auditor { return audit.New(i.db) }

// About implements targets.Instance.
func (i *instance) About(context.Context) (string, map[string]string, error) {
	return "in-process", map[string]string{"storage": "memory of the runner's process"}, nil
}

// Close implements targets.Instance.
func (i *instance) Close(context.Context) error { return nil }

// Conn is one connection to the engine; parts work with it.
type Conn struct {
	DB   *engine.DB
	Name string // unique in a trial

	gate points.Gate
	dead atomic.Bool // closed, or the role crashed
}

// At asks the role's gate. After a crash the connection answers nothing any more.
func (c *Conn) At(ctx context.Context, p points.Point) error {
	err := c.gate.At(ctx, p, 0)
	if errors.Is(err, points.ErrCrashed) {
		c.dead.Store(true)
	}
	if err == nil && c.dead.Load() {
		return errClosed
	}
	return err
}

var errClosed = errors.New("memory: the connection is closed")

// ready refuses an operation before it begins: nothing was sent.
func (c *Conn) ready(ctx context.Context, op string) error {
	err := ctx.Err()
	if c.dead.Load() {
		err = errClosed
	}
	if err != nil {
		return &eventstore.Error{Op: op, Outcome: eventstore.Fail, Reason: eventstore.NotSent, Err: err}
	}
	eventstore.TraceFrom(ctx).Session(c.Name)
	return nil
}

// Broken describes the end of a connection or of the caller's patience: a definite failure before the commit
// was sent, unknown after.
func Broken(op string, outcome eventstore.Outcome, err error) error {
	reason := eventstore.LostReply
	switch {
	case errors.Is(err, points.ErrCrashed):
		reason = eventstore.Killed
	case errors.Is(err, context.DeadlineExceeded):
		reason = eventstore.TimedOut
	case errors.Is(err, context.Canceled):
		reason = eventstore.Cancelled
	}
	return &eventstore.Error{Op: op, Outcome: outcome, Reason: reason, Err: err}
}

type session struct {
	parts Parts
	conn  *Conn
}

// Store implements targets.Session.
func (s *session) Store() eventstore.Store { return store{s} }

// Snapshots implements targets.Session.
func (s *session) Snapshots() eventstore.Snapshots { return snapshots{s.conn} }

// Feed implements targets.Session.
func (s *session) Feed() eventstore.Feed { return feed{s} }

// Projection implements targets.Session. The view must be one of Site.Views.
func (s *session) Projection(v eventstore.View) (eventstore.Projection, error) {
	if _, err := s.conn.DB.Checkpoint(v.Name()); err != nil {
		return nil, err
	}
	return projection{s, v}, nil
}

// Close implements targets.Session. A transaction that is still open is rolled back when it next turns to
// the engine, as a server does with a closed socket.
func (s *session) Close() error {
	s.conn.dead.Store(true)
	return nil
}
