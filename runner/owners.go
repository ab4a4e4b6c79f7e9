package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/eventproof/eventproof/faults/wire"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/roles"
	"github.com/eventproof/eventproof/runner/script"
	"github.com/eventproof/eventproof/targets"
)

// startOwners starts the roles through which a target's appends go, before anything is appended. They are processes
// where the writers are.
func (t *trial) startOwners(ctx context.Context) error {
	t.lent = map[string]*lentGate{}
	for _, name := range t.owners() {
		if t.spec.Scenario.Scripted() {
			t.lent[name] = &lentGate{}
		}
		if err := t.startRole(ctx, t.config(roles.Owner, name), t.spec.Scenario.Roles.WriterProcess); err != nil {
			return &EnvironmentError{err}
		}
	}
	return nil
}

// lentGate is the gate of an owner, which a script may take into its hands while the owner runs.
type lentGate struct {
	mu   sync.Mutex
	gate points.Gate
}

// lend puts a gate in place; nil opens it.
func (l *lentGate) lend(g points.Gate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gate = g
}

// At implements points.Gate.
func (l *lentGate) At(ctx context.Context, p points.Point, n uint64) error {
	l.mu.Lock()
	g := l.gate
	l.mu.Unlock()
	if g == nil {
		return nil
	}
	return g.At(ctx, p, n)
}

// Owner implements script.Stage.
func (s *stage) Owner(ctx context.Context, name string, gate points.Gate) (script.Owner, error) {
	t := s.t
	lent, ok := t.lent[name]
	if !ok {
		return nil, fmt.Errorf("the target %s has no owner %q", t.spec.Target.Name(), name)
	}
	lent.lend(gate)
	r, err := t.role(name)
	if err != nil {
		return nil, err
	}
	select {
	case <-r.local.done:
		if err := t.startRole(ctx, s.next(roles.Owner, name), false); err != nil {
			return nil, err
		}
		if r, err = t.role(name); err != nil {
			return nil, err
		}
	default:
	}
	return &scriptOwner{r: r, gate: lent}, nil
}

// scriptOwner is an owner under the hands of a script.
type scriptOwner struct {
	r    *role
	gate *lentGate
}

// Done implements script.Owner.
func (o *scriptOwner) Done() <-chan struct{} { return o.r.local.done }

// Close implements script.Owner.
func (o *scriptOwner) Close() error {
	o.gate.lend(nil)
	return nil
}

func (t *trial) owners() []string {
	var names []string
	for i := range t.spec.Target.Owners {
		names = append(names, fmt.Sprintf("owner-%d", i+1))
	}
	return names
}

// openOwner prepares an owner in the runner's process, and returns its run.
func (t *trial) openOwner(_ context.Context, r *role, gate points.Gate) (func(context.Context, *localRole) error, roles.Env, error) {
	attach, err := t.attachment(r.cfg)
	if err != nil {
		return nil, roles.Env{}, err
	}
	rec, err := history.Create(r.cfg.Segment)
	if err != nil {
		return nil, roles.Env{}, err
	}
	dial, err := t.dial(r.cfg)
	if err != nil {
		return nil, roles.Env{}, errors.Join(err, rec.Close())
	}
	cfg := r.cfg
	cfg.Attach = attach
	serve, err := roles.ServeOf(t.spec.Target, cfg, targets.Env{Gate: gate, Dial: dial, Name: roles.SessionName(cfg), Views: t.views})
	if err != nil {
		return nil, roles.Env{}, errors.Join(err, rec.Close())
	}
	env := roles.Env{Gate: gate, Dial: dial, Clock: t.clk, Rand: roles.Seeded(cfg), Rec: rec}
	return func(ctx context.Context, l *localRole) error {
		return roles.RunOwner(ctx, cfg, env, serve, l.stop, l.report)
	}, env, nil
}

// attachment is what a role in a process of its own, or an owner, needs to reach the store.
func (t *trial) attachment(cfg roles.Config) (json.RawMessage, error) {
	what := cfg.Kind
	if what == roles.Owner {
		what = cfg.Name
	}
	raw, err := t.inst.Config(what)
	if err != nil {
		return nil, fmt.Errorf("role %s: %w", cfg.Name, err)
	}
	return raw, nil
}

// ways makes the role's own proxies: to the owners for the writers of a target that has them, else to the store.
func (t *trial) ways(cfg roles.Config) error {
	upstreams, speaks := []string{t.server.Addr()}, t.spec.Target.Needs
	if owned, ok := t.inst.(targets.Owned); ok && cfg.Kind == "writer" {
		upstreams, speaks = nil, "owner"
		for _, name := range t.owners() {
			upstreams = append(upstreams, owned.OwnerAddr(name))
		}
	}
	protocol, probe := wire.For(speaks)
	for _, addr := range upstreams {
		if _, err := t.engine.ProxyFor(cfg.Name, addr, protocol, probe); err != nil {
			return fmt.Errorf("role %s: proxy: %w", cfg.Name, err)
		}
	}
	return nil
}
