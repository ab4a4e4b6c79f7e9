package owner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets/kafka/internal/broker"
	"github.com/eventproof/eventproof/targets/kafka/internal/form"
)

const (
	// queueLength is how many requests of a partition may wait; more wait at the door.
	queueLength = 256
	// groupLength is how many requests one transaction answers at most.
	groupLength = 128
)

// Partition is an owner's side of one partition, owned or not. One goroutine serves it: it takes what waits as one
// group, checks it against the committed state, writes it as one transaction and answers when that has ended.
type Partition struct {
	o      *server
	number int32
	queue  chan *Request
	left   *Request // drawn from the queue, but too much for the group

	// Of the goroutine that serves.
	producer *broker.Producer
	epoch    uint64 // of the lease, while owned
	end      int64  // where the log ends at most, if nobody else has written
	groups   uint64

	owned  atomic.Bool
	taking atomic.Bool
	since  atomic.Int64 // when the group that is being served was begun; 0: none is

	mu    sync.Mutex // guards what is below against Early
	index *index
	open  *Group
}

func newPartition(o *server, number int32) *Partition {
	return &Partition{o: o, number: number, queue: make(chan *Request, queueLength), index: newIndex()}
}

// ErrNotOwned is returned by parts for a partition that is somebody else's; nothing was done.
var ErrNotOwned = errors.New("kafka: the partition has another owner")

// ErrAborted is returned by parts for a group whose transaction has ended without an effect.
var ErrAborted = errors.New("kafka: the group's transaction was aborted")

// run serves the partition until ctx ends or the role is crashed.
func (p *Partition) run(ctx context.Context) error {
	for {
		batch := p.next(ctx)
		if batch == nil {
			return nil
		}
		if err := p.serve(ctx, batch); err != nil {
			return err
		}
	}
}

// next waits for a request and returns it with what waits behind it; nil when ctx has ended. Requests that nobody waits
// for any more are dropped: they were not begun.
func (p *Partition) next(ctx context.Context) []*Request {
	var batch []*Request
	size := 0
	add := func(r *Request) bool {
		if r.ctx.Err() != nil {
			return true
		}
		if len(batch) > 0 && size+r.size > broker.MaxBatch {
			p.left = r
			return false
		}
		batch, size = append(batch, r), size+r.size
		return true
	}
	if r := p.left; r != nil {
		p.left = nil
		add(r)
	}
	for len(batch) == 0 {
		select {
		case r := <-p.queue:
			add(r)
		case <-ctx.Done():
			return nil
		}
	}
	for len(batch) < groupLength {
		select {
		case r := <-p.queue:
			if !add(r) {
				return batch
			}
		default:
			return batch
		}
	}
	return batch
}

// stuckAfter is how long an owner may be at one group before it counts as stuck: then the other owner is free to take the
// partition over, should somebody ask it to.
const stuckAfter = 1500 * time.Millisecond

// owns reports whether this owner owns the partition, or is about to, and gets on with it.
func (p *Partition) owns() bool {
	if p.taking.Load() {
		return true
	}
	since := p.since.Load()
	return p.owned.Load() && (since == 0 || clock.Monotonic()-since < int64(stuckAfter))
}

// serve carries a group out and answers it. Its error ends the owner.
func (p *Partition) serve(ctx context.Context, batch []*Request) error {
	p.since.Store(clock.Monotonic())
	defer p.since.Store(0)
	writes, force := false, false
	for _, r := range batch {
		writes, force = writes || r.Append != nil, force || r.TakeOver
	}
	if writes {
		if err := p.At(ctx, points.AppendBegin); err != nil {
			return err
		}
	}
	if !p.owned.Load() {
		if err := p.own(ctx, force); err != nil {
			// An owner that can't take the partition is as good as none: the other one is to be asked.
			return p.fail(ctx, batch, fmt.Errorf("%w: %w", ErrNotOwned, err))
		}
	}
	if writes {
		if err := p.At(ctx, points.AppendBeforeHead); err != nil {
			return err
		}
	}
	p.groups++
	g := newGroup(p.index, p.epoch, uint64(p.number+1)<<56|p.epoch<<32|p.groups)
	if err := p.check(g, batch); err != nil {
		return p.fail(ctx, batch, err)
	}
	if writes {
		if err := p.At(ctx, points.AppendAfterHead); err != nil {
			return err
		}
	}
	var err error
	if len(g.records) > 0 {
		p.expose(g)
		err = p.o.parts.Append.Commit(ctx, p, g)
		p.expose(nil)
	} else {
		err = p.o.parts.Append.Prove(ctx, p)
	}
	if err == nil && len(g.records) > 0 {
		err = p.At(ctx, points.AppendAfterCommit)
	}
	if err != nil {
		return p.fail(ctx, batch, err)
	}
	for _, it := range g.items {
		it.req.done <- g.answer(it)
	}
	return nil
}

func (p *Partition) check(g *Group, batch []*Request) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range batch {
		if err := g.take(r); err != nil {
			return err
		}
	}
	return nil
}

// expose shows the group that is being written to Early.
func (p *Partition) expose(g *Group) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = g
}

// own makes the partition this owner's, with a bound.
func (p *Partition) own(ctx context.Context, force bool) error {
	p.taking.Store(true)
	defer p.taking.Store(false)
	ctx, cancel := context.WithTimeout(ctx, takeBound)
	defer cancel()
	return p.o.parts.Append.Own(ctx, p, force)
}

// crashed is the end of the role, told by its gate: nobody is answered.
type crashed struct{ err error }

func (c *crashed) Error() string { return c.err.Error() }
func (c *crashed) Unwrap() error { return c.err }

// fail answers every request of a group alike: conflicts, refusals and reads too, since what they were decided on was
// not proven, or did not come to be.
func (p *Partition) fail(ctx context.Context, batch []*Request, err error) error {
	var end *crashed
	if errors.As(err, &end) {
		return err
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the owner is ending: its connections are cut, and nobody hears why
	}
	answer := Answer{Err: err}
	var spoken *eventstore.Error
	switch {
	case errors.As(err, &spoken):
	case errors.Is(err, ErrNotOwned):
		answer = refuse(eventstore.Fenced, err)
		answer.Moved = true
	default:
		// Nothing was written, or what was written is aborted.
		answer = refuse(eventstore.GroupAborted, err)
	}
	for _, r := range batch {
		r.done <- answer
	}
	return nil
}

// At asks the role's gate. Its error ends the owner.
func (p *Partition) At(ctx context.Context, at points.Point) error {
	if err := p.o.env.Gate.At(ctx, at, 0); err != nil {
		return &crashed{err}
	}
	return nil
}

// Number returns the partition's number, Topic its topic, Trial the trial's id and Owner the name of this owner.
func (p *Partition) Number() int32 { return p.number }

// Topic returns the topic of events.
func (p *Partition) Topic() string { return form.Events(p.o.cfg.Trial) }

// Trial returns the id of the trial.
func (p *Partition) Trial() string { return p.o.cfg.Trial }

// Owner returns the name of this owner.
func (p *Partition) Owner() string { return p.o.cfg.Owner }

// Producer returns the partition's producer, with the transactional id that the first call names; "" for none.
func (p *Partition) Producer(transactional string) *broker.Producer {
	if p.producer == nil {
		p.producer = p.o.client.Producer(transactional, transactionTimeout)
	}
	return p.producer
}

// Tip answers a request as of the group that is being written, whether it will be committed or not: a read, or an append
// that would write nothing. ok is false for every other append, and when no group is being written.
func (p *Partition) Tip(r *Request) (answer Answer, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.open == nil:
		return Answer{}, false
	case r.Append != nil:
		return p.open.judge(r.Append)
	}
	return Answer{Events: p.open.slice(r.Read)}, true
}

// CatchUp reads the committed records that are not known yet, up to the end of the log in the given isolation. Up to the
// high watermark it waits for open transactions to end, until ctx ends.
func (p *Partition) CatchUp(ctx context.Context, iso broker.Isolation) error {
	end, err := p.o.client.End(ctx, p.Topic(), p.number, iso)
	if err != nil {
		return err
	}
	next, err := p.o.client.Through(ctx, p.Topic(), p.number, p.index.next, end, func(r *kgo.Record) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.index.read(r)
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.index.next = max(p.index.next, next)
	return err
}

// Written takes note of what this owner wrote: records from an offset on, with the end of their transaction behind them
// (or soon to be).
func (p *Partition) Written(g *Group, base int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g.apply(p.number, base)
	p.index.next = base + int64(len(g.records))
	p.end = p.index.next + 1
}

// leased takes note of the lease that this owner has written.
func (p *Partition) leased(l form.Lease, at int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.index.lease, p.index.next = l, at+1
	p.epoch, p.end = l.Epoch, at+2
	p.owned.Store(true)
}

// preferred reports whether the partition is this owner's as long as it is nobody's.
func (p *Partition) preferred() bool { return slices.Contains(p.o.cfg.Preferred, p.number) }

// Lose takes note that somebody else owns the partition.
func (p *Partition) Lose() { p.owned.Store(false) }

// errUnsettled: whether the commit took effect could not be found out.
var errUnsettled = errors.New("kafka: the end of the transaction was not answered, and could not be found out")

func unsettled(cause error) error {
	return &eventstore.Error{
		Op: "append", Outcome: eventstore.Unknown, Reason: eventstore.ServerUncertain, Err: fmt.Errorf("%w: %w", errUnsettled, cause),
	}
}
