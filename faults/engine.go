// Package faults carries fault plans out: it keeps one proxy for each role in front of the store, breaks
// connections, processes and the store as the plan says, and writes down what each fault was seen to do.
// A fault that touched nothing says so.
//
// The proxies are toxiproxy's links and chains behind listeners of our own, with one toxic that stands in both
// chains from the first byte on (package wire). It does everything: a chain is never changed while bytes flow,
// so that nothing can be left over in it, a dial that hangs keeps nobody else waiting, live connections can
// be reset and not only closed, and every effect can be measured where it happens. Delays draw from a seeded
// source; toxiproxy's own do not.
package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/faults/plan"
	"github.com/eventproof/eventproof/faults/wire"
	"github.com/eventproof/eventproof/history"
)

// Process is the store's server. Restart brings it back on the same data and address.
type Process interface {
	Kill(ctx context.Context) error
	Pause() error
	Resume() error
	Restart(ctx context.Context) error
}

// Roles are the role processes, by name. Kill returns when the process is gone.
type Roles interface {
	Kill(name string) error
	Restart(ctx context.Context, name string) error
	Pause(name string) error
	Resume(name string) error
}

// Injector is a server that can be told to refuse requests by itself. Inject begins: of the requests that the kind
// of fault ("throttle", "conflict") can concern, the server refuses every n-th, each for 0 and 1, and at most max,
// without limit for 0. stop ends it and returns how many were refused; stopping twice is not needed.
type Injector interface {
	Inject(ctx context.Context, kind string, every, max int) (stop func(context.Context) (hits uint64, err error), err error)
}

// Options of an Engine. Log is required; Store and Roles only for the faults that need them.
type Options struct {
	// Log writes records to the history. Calls never overlap.
	Log   func(...history.Record) error
	Clock clock.Clock // nil = the host's
	Seed  uint64      // of jitter
	// Protocol is what the store speaks; nil = bytes, without the faults that look for commits.
	Protocol wire.Protocol
	// Probe tells over an open connection whether the store serves; nil = an open connection is enough.
	Probe wire.Probe
	// Injector is the server, if it can inject faults itself.
	Injector Injector
	// Store is the server to kill or pause, StoreAddr its address (host:port).
	Store     Process
	StoreAddr string
	Roles     Roles
	// MaxBites bounds the Bite records of one fault; all are counted. 0 = 10,000.
	MaxBites int
	// Settle bounds the wait for what was held or parked when a fault is lifted; then it is cut. 0 = 10 s.
	Settle time.Duration
	// Heal bounds the wait for a probe to pass after a fault was lifted. 0 = 30 s.
	Heal time.Duration
}

// Engine carries faults out. Its methods are safe for concurrent use.
type Engine struct {
	opts Options

	logMu  sync.Mutex
	logErr error

	mu      sync.Mutex
	closed  bool
	proxies []*proxy
	dialers map[string][]*Dialer
	active  map[string]*active
	order   []string // ids of active, as started
}

// proxy is the way of one role to one server.
type proxy struct {
	*wire.Proxy
	role   string
	speaks wire.Protocol
	probe  wire.Probe // nil = an open connection is enough
}

// Errors of an Engine.
var (
	// ErrNotActive: no fault with that id is in force.
	ErrNotActive = errors.New("faults: the fault is not active")
	// ErrClosed: the engine was closed.
	ErrClosed = errors.New("faults: the engine is closed")
)

// NoTargetError says that a fault names something that does not exist here.
type NoTargetError struct{ Fault, On, Why string }

func (e *NoTargetError) Error() string {
	return fmt.Sprintf("fault %s: on: %s: %s", e.Fault, e.On, e.Why)
}

// HealError says that a way did not work again after a fault was lifted.
type HealError struct {
	Fault string
	Way   string // role name, or "store"
	Err   error
}

func (e *HealError) Error() string {
	return fmt.Sprintf("fault %s was lifted, but %s can't reach the store: %v", e.Fault, e.Way, e.Err)
}

// Unwrap returns the last probe's error.
func (e *HealError) Unwrap() error { return e.Err }

// New returns an engine without proxies.
func New(o Options) *Engine {
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.MaxBites == 0 {
		o.MaxBites = 10_000
	}
	if o.Settle == 0 {
		o.Settle = 10 * time.Second
	}
	if o.Heal == 0 {
		o.Heal = 30 * time.Second
	}
	return &Engine{opts: o, dialers: map[string][]*Dialer{}, active: map[string]*active{}}
}

// Proxy is ProxyFor with the protocol and the probe of the store.
func (e *Engine) Proxy(role, upstream string) (addr string, err error) {
	return e.ProxyFor(role, upstream, e.opts.Protocol, e.opts.Probe)
}

// ProxyFor returns the address of the role's own proxy before upstream (host:port), making it at the first call,
// for a server that speaks a protocol (nil = bytes) and answers a probe (nil = an open connection is enough).
// Faults that are in force for the role hold for a new proxy too.
func (e *Engine) ProxyFor(role, upstream string, speaks wire.Protocol, probe wire.Probe) (addr string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return "", ErrClosed
	}
	for _, p := range e.proxies {
		if p.role == role && p.Upstream() == upstream {
			return p.Addr(), nil
		}
	}
	w, err := wire.NewProxy(context.Background(), wire.Options{
		Name: role, Upstream: upstream, Protocol: speaks, Clock: e.opts.Clock,
	})
	if err != nil {
		return "", err
	}
	p := &proxy{w, role, speaks, probe}
	e.proxies = append(e.proxies, p)
	for _, id := range e.order {
		if a := e.active[id]; a.rule != nil && plan.Matches(a.fault.On, role) {
			a.proxies = append(a.proxies, p)
			err = errors.Join(err, w.Apply(a.rule))
		}
	}
	return w.Addr(), err
}

// Map returns the addresses that the role has proxies for, to be handed to a role in another process.
func (e *Engine) Map(role string) map[string]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := map[string]string{}
	for _, p := range e.proxies {
		if p.role == role {
			m[p.Upstream()] = p.Addr()
		}
	}
	return m
}

// Dialer returns the dial function of one incarnation of a role in this process. Its sockets are reset by Crash.
func (e *Engine) Dialer(role string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	d := MapDialer(e.Map(role))
	d.refused = func() { e.refused(role) }
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dialers[role] = append(e.dialers[role], d)
	return d.Dial
}

// Crash resets every socket that the role's dialers have open, and makes them dial no more: the role is cut
// off before its code unwinds. The role's next incarnation asks for a new Dialer. It returns how many sockets
// were reset.
func (e *Engine) Crash(role string) int {
	e.mu.Lock()
	dialers := e.dialers[role]
	delete(e.dialers, role)
	e.mu.Unlock()
	n := 0
	for _, d := range dialers {
		n += d.Reset()
	}
	return n
}

// Traffic sums what the role's proxies have carried.
func (e *Engine) Traffic(role string) wire.Traffic {
	e.mu.Lock()
	ps := slices.Clone(e.proxies)
	e.mu.Unlock()
	var sum wire.Traffic
	for _, p := range ps {
		if p.role != role {
			continue
		}
		t := p.Traffic()
		sum.Connections += t.Connections
		sum.Failed += t.Failed
		sum.Unreadable += t.Unreadable
		sum.UpBytes += t.UpBytes
		sum.UpChunks += t.UpChunks
		sum.DownBytes += t.DownBytes
		sum.DownChunks += t.DownChunks
		sum.Open += t.Open
		sum.Orphans += t.Orphans
	}
	return sum
}

// Close closes every proxy; faults still in force end with them, recorded like lifted ones but without a probe.
// Processes are left as they are: LiftAll comes first.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	ps := e.proxies
	e.proxies = nil
	var left []*active
	for _, id := range e.order {
		left = append(left, e.active[id])
	}
	e.mu.Unlock()
	var errs []error
	for _, p := range ps {
		errs = append(errs, p.Close())
	}
	for _, a := range left {
		if a.beginLift() {
			e.finish(a, e.opts.Clock.Now(), nil)
		}
	}
	return errors.Join(append(errs, e.failedLog())...)
}

// log writes records; the first failure is kept and reported by every later Lift.
func (e *Engine) log(rs ...history.Record) error {
	e.logMu.Lock()
	defer e.logMu.Unlock()
	if e.opts.Log == nil {
		return nil
	}
	err := e.opts.Log(rs...)
	if err != nil && e.logErr == nil {
		e.logErr = fmt.Errorf("faults: writing the history: %w", err)
	}
	return err
}

func (e *Engine) failedLog() error {
	e.logMu.Lock()
	defer e.logMu.Unlock()
	return e.logErr
}

// roles returns the names that a fault's On matches among the roles that have proxies.
func (e *Engine) roles(on string) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var names []string
	for _, p := range e.proxies {
		if plan.Matches(on, p.role) && !slices.Contains(names, p.role) {
			names = append(names, p.role)
		}
	}
	return names
}

// refused counts a dial of an in-process role that a Down fault made fail.
func (e *Engine) refused(role string) {
	e.mu.Lock()
	var hit []*active
	for _, id := range e.order {
		if a := e.active[id]; a.fault.Kind == plan.Down && plan.Matches(a.fault.On, role) {
			hit = append(hit, a)
		}
	}
	e.mu.Unlock()
	for _, a := range hit {
		a.Touched()
		a.Bite(history.Bite{T: e.opts.Clock.Now(), Form: history.BiteRefused, Text: "new connection of " + role + " refused"})
	}
}
