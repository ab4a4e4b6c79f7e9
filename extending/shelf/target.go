package shelf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/extending/shelf/audit"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets"
)

// Target returns the shelf as something that can be put under test.
func Target() targets.Target {
	return targets.Target{
		Store:   "shelf",
		Variant: "tape",
		Summary: "the worked example of docs/extending.md: one tape in memory, one turn for all writers",
		Assembly: targets.Assembly{
			Append: "one-turn", Reader: "tape-order", Projection: "same-frame", Snapshot: "best-effort",
		},
		Promises: []eventstore.Promise{
			eventstore.OptimisticConcurrency, eventstore.AtomicBatch, eventstore.IdempotentAppend,
			eventstore.StrongRead, eventstore.GlobalOrder, eventstore.RealTimeOrder, eventstore.CompleteFeed,
			eventstore.FreshRefusals, eventstore.AtomicProjection,
		},
		Workloads:      []string{"bank", "auction"},
		ProjectionMode: "transactional",
		Emulated:       true, // figures of a store inside the load generator's process say nothing
		Open:           Open,
	}
}

// Open implements targets.Target.Open: a fresh shelf for one trial.
func Open(_ context.Context, site targets.Site) (targets.Instance, error) {
	var names []string
	for _, v := range site.Views {
		names = append(names, v.Name())
	}
	return &Instance{Shelf: New(names...)}, nil
}

// Instance is the shelf of one trial.
type Instance struct {
	Shelf *Shelf

	mu    sync.Mutex
	conns int
}

// Connect implements targets.Instance.
func (i *Instance) Connect(_ context.Context, _ string, env targets.Env) (targets.Session, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.conns++
	gate := env.Gate
	if gate == nil {
		gate = points.Open{}
	}
	return &Conn{Shelf: i.Shelf, Name: fmt.Sprintf("%s/%d", env.Name, i.conns), gate: gate}, nil
}

// Auditor implements targets.Instance.
func (i *Instance) Auditor() targets.Auditor { return audit.New(i.Shelf) }

// Config implements targets.Instance. The shelf lives in one process: Target.Attach is nil, and nobody asks.
func (i *Instance) Config(string) (json.RawMessage, error) {
	return nil, errors.New("shelf: can't be reached from another process")
}

// About implements targets.Instance.
func (i *Instance) About(context.Context) (string, map[string]string, error) {
	return "1", map[string]string{"storage": "memory"}, nil
}

// Close implements targets.Instance.
func (i *Instance) Close(context.Context) error { return nil }
