// Package inprocess does to a store inside the process what the wire faults do to one behind a socket: replies
// lost after the effect, requests lost before it, requests that arrive late. It serves stand-ins only; a store with
// a wire is put behind a proxy.
package inprocess

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/faults/plan"
	"github.com/eventproof/eventproof/history"
)

// Kinds are the faults that make sense without a wire.
func Kinds() []plan.Kind {
	return []plan.Kind{plan.DropReply, plan.CutRequest, plan.ParkRequest, plan.Latency, plan.Down}
}

// lateBound is how long a parked request may take once it has been sent on.
const lateBound = 5 * time.Second

// Faults holds the faults that are switched on. It is safe for concurrent use.
type Faults struct {
	log   func(...history.Record) error
	clock clock.Clock

	mu       sync.Mutex
	active   []*active
	sessions uint64
	problems []error
}

// active is one fault that is on.
type active struct {
	plan.Fault
	seen   int
	count  int
	lifted chan struct{}
	bitten chan struct{}  // closed at the first bite
	late   sync.WaitGroup // parked requests on their way; raised under the lock that also ends the fault
}

// New returns a set without faults; log receives what is observed.
func New(log func(...history.Record) error, c clock.Clock) *Faults {
	return &Faults{log: log, clock: c}
}

// Start switches a fault on.
func (f *Faults) Start(p plan.Fault) error {
	switch p.Kind {
	case plan.DropReply, plan.CutRequest, plan.ParkRequest, plan.Latency, plan.Down:
	case plan.Reset, plan.BlackHole, plan.HoldReply, plan.KillStore, plan.PauseStore, plan.KillRole, plan.PauseRole,
		plan.Throttle, plan.Conflict:
		return fmt.Errorf("fault %s: %s needs a wire or a process of its own; a store in the runner's process has neither", p.ID, p.Kind)
	}
	f.mu.Lock()
	f.active = append(f.active, &active{Fault: p, lifted: make(chan struct{}), bitten: make(chan struct{})})
	f.mu.Unlock()
	return f.log(&history.Fault{ID: p.ID, FaultKind: string(p.Kind), On: p.On, T: f.clock.Now(), Text: "in process"})
}

// Lift switches a fault off and waits until what it had parked has arrived.
func (f *Faults) Lift(id string) error {
	f.mu.Lock()
	var a *active
	for i, x := range f.active {
		if x.ID == id {
			a = x
			f.active = append(f.active[:i:i], f.active[i+1:]...)
			break
		}
	}
	f.mu.Unlock()
	if a == nil {
		return nil
	}
	close(a.lifted)
	arrived := make(chan struct{})
	go func() {
		a.late.Wait()
		close(arrived)
	}()
	effect := ""
	t := time.NewTimer(2 * lateBound)
	defer t.Stop()
	select {
	case <-arrived:
	case <-t.C:
		effect = "; the store never answered what was parked"
	}
	f.mu.Lock()
	count, problems := a.count, errors.Join(f.problems...)
	f.problems = nil
	f.mu.Unlock()
	end := &history.FaultEnd{ID: id, T: f.clock.Now(), Bit: count > 0, Count: uint64(count), Effect: fmt.Sprintf("%d requests touched", count) + effect}
	return errors.Join(problems, f.log(end))
}

// Bitten returns a channel that is closed once the fault has bitten; nil if it is not on.
func (f *Faults) Bitten(id string) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.active {
		if a.ID == id {
			return a.bitten
		}
	}
	return nil
}

// Wrap returns a store as the named role reaches it.
func (f *Faults) Wrap(role string, inner eventstore.Store) eventstore.Store {
	return &store{faults: f, role: role, inner: inner}
}

// WrapProjection returns a projection as the named role reaches it.
func (f *Faults) WrapProjection(role string, inner eventstore.Projection) eventstore.Projection {
	return &projection{Projection: inner, faults: f, role: role}
}

// session names the virtual connection of one attempt.
func (f *Faults) session(role string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sessions++
	return fmt.Sprintf("%s/i%d", role, f.sessions)
}

// take returns the fault of the kind that strikes the role's request now, if any.
func (f *Faults) take(role string, kind plan.Kind) *active {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.active {
		if a.Kind != kind || !plan.Matches(a.On, role) || (a.Max > 0 && a.count >= a.Max) {
			continue
		}
		a.seen++
		if a.Every > 1 && a.seen%a.Every != 0 {
			continue
		}
		a.count++
		if kind == plan.ParkRequest {
			a.late.Add(1)
		}
		if a.count == 1 {
			close(a.bitten)
		}
		return a
	}
	return nil
}

func (f *Faults) bite(a *active, session string, form history.BiteForm, landed history.Landed) {
	if err := f.log(&history.Bite{Fault: a.ID, T: f.clock.Now(), Session: session, Form: form, Landed: landed}); err != nil {
		f.mu.Lock()
		f.problems = append(f.problems, err)
		f.mu.Unlock()
	}
}

// call runs one request under the faults that are on. do must not use the caller's context: a request that has
// left is not called back by its sender.
func call[T any](ctx context.Context, f *Faults, role, op string, do func(context.Context) (T, error)) (T, error) {
	var none T
	session := f.session(role)
	outer := *eventstore.TraceFrom(ctx)
	outer.Session(session)
	// The store behind has names of its own; the fault and the attempt have to carry the same one.
	outer.Session = nil
	ctx = eventstore.WithTrace(ctx, &outer)
	if a := f.take(role, plan.Down); a != nil {
		f.bite(a, session, history.BiteRefused, history.LandedNo)
		return none, &eventstore.Error{Op: op, Outcome: eventstore.Fail, Reason: eventstore.NotSent}
	}
	if a := f.take(role, plan.Latency); a != nil {
		f.bite(a, session, history.BiteDelayed, history.LandedUnknown)
		t := time.NewTimer(a.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return none, &eventstore.Error{Op: op, Outcome: eventstore.Fail, Reason: eventstore.NotSent, Err: ctx.Err()}
		}
	}
	if a := f.take(role, plan.CutRequest); a != nil {
		f.bite(a, session, history.BiteRequestCut, history.LandedNo)
		return none, &eventstore.Error{Op: op, Outcome: eventstore.Unknown, Reason: eventstore.LostReply}
	}
	if a := f.take(role, plan.ParkRequest); a != nil {
		f.bite(a, session, history.BiteRequestParked, history.LandedUnknown)
		go func() {
			defer a.late.Done()
			<-a.lifted
			// The attempt is over for its caller: nobody listens to what happens inside it any more.
			late, cancel := context.WithTimeout(eventstore.WithTrace(context.WithoutCancel(ctx), nil), lateBound)
			defer cancel()
			_, err := do(late)
			landed := history.LandedNo
			if err == nil {
				landed = history.LandedYes
			}
			f.bite(a, session, history.BiteRequestReleased, landed)
		}()
		<-ctx.Done()
		return none, &eventstore.Error{Op: op, Outcome: eventstore.Unknown, Reason: eventstore.TimedOut, Err: ctx.Err()}
	}
	out, err := do(ctx)
	if err == nil {
		if a := f.take(role, plan.DropReply); a != nil {
			f.bite(a, session, history.BiteReplyDropped, history.LandedYes)
			return none, &eventstore.Error{Op: op, Outcome: eventstore.Unknown, Reason: eventstore.LostReply}
		}
	}
	return out, err
}

type store struct {
	faults *Faults
	role   string
	inner  eventstore.Store
}

// Append implements eventstore.Store.
func (s *store) Append(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	return call(ctx, s.faults, s.role, "append", func(ctx context.Context) (eventstore.Appended, error) {
		return s.inner.Append(ctx, a)
	})
}

// Read implements eventstore.Store; reads have no effect and are left alone.
func (s *store) Read(ctx context.Context, r eventstore.ReadRequest) (eventstore.Slice, error) {
	return s.inner.Read(ctx, r)
}

type projection struct {
	eventstore.Projection
	faults *Faults
	role   string
}

// Apply implements eventstore.Projection.
func (p *projection) Apply(ctx context.Context, b eventstore.Batch) (eventstore.Checkpoint, error) {
	return call(ctx, p.faults, p.role, "apply", func(ctx context.Context) (eventstore.Checkpoint, error) {
		return p.Projection.Apply(ctx, b)
	})
}
