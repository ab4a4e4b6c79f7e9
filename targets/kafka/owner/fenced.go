package owner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets/kafka/internal/broker"
	"github.com/eventproof/eventproof/targets/kafka/internal/form"
)

// Appender is how a partition is owned and written. Its methods are called by the goroutine that serves the partition,
// except for Early. Errors are ErrNotOwned, ErrAborted, an *eventstore.Error, or anything else that left no effect.
type Appender interface {
	// Own makes the partition this owner's and brings its state up to date. Unless forced it leaves a partition alone whose
	// lease is another owner's.
	Own(ctx context.Context, p *Partition, force bool) error
	// Commit writes a group and notes it by Written. It returns when the group's transaction has ended, or when that can't
	// be found out.
	Commit(ctx context.Context, p *Partition, g *Group) error
	// Prove returns nil if, at some moment while it ran, nobody else had written to the partition.
	Prove(ctx context.Context, p *Partition) error
	// Early answers a request before the group that is being written has ended; a correct part never does. It may be called
	// at any time.
	Early(p *Partition, r *Request) (Answer, bool)
}

const (
	// takeBound bounds a take-over, settleBound the search for the end of an unanswered commit.
	takeBound   = 3 * time.Second
	settleBound = 5 * time.Second
	settlePause = 20 * time.Millisecond
	// transactionTimeout is when the broker ends a transaction that its owner has left open.
	transactionTimeout = 10 * time.Second
)

// Fenced is the correct Appender: a transactional id for the partition, which whoever takes the partition initialises.
// From then on nothing that the former owner sends has an effect, so what has been committed up to the high watermark
// taken after that is all there will ever be of it. Only then a lease is written, and requests are served.
type Fenced struct {
	// ID names the transactional id of a partition.
	ID func(p *Partition) string
}

// ByPartition names the transactional id after the partition, so that all its owners have the same.
func ByPartition(p *Partition) string { return form.Transactional(p.Trial(), p.Number()) }

// Early implements Appender.
func (Fenced) Early(*Partition, *Request) (Answer, bool) { return Answer{}, false }

// Own implements Appender.
func (f Fenced) Own(ctx context.Context, p *Partition, force bool) error {
	if err := p.CatchUp(ctx, broker.Committed); err != nil {
		return err
	}
	if lease := p.index.lease; !force && lease.Owner != p.Owner() && (lease.Epoch > 0 || !p.preferred()) {
		return fmt.Errorf("%w: %s, since epoch %d", ErrNotOwned, lease.Owner, lease.Epoch)
	}
	return f.take(ctx, p)
}

func (f Fenced) take(ctx context.Context, p *Partition) error {
	producer := p.Producer(f.ID(p))
	if err := producer.Init(ctx); err != nil {
		return err
	}
	// The high watermark is asked for now, after the fence: taken before it, it might lie below what the former owner has
	// committed meanwhile.
	if err := p.CatchUp(ctx, broker.Uncommitted); err != nil {
		return err
	}
	lease := form.Lease{Owner: p.Owner(), Epoch: p.index.lease.Epoch + 1}
	record, err := form.EncodeLease(lease)
	if err != nil {
		return err
	}
	base, err := producer.Produce(ctx, p.Topic(), p.number, []broker.Record{record})
	if err == nil {
		err = producer.Commit(ctx)
	}
	if err != nil {
		if broker.Fenced(err) {
			return fmt.Errorf("%w: %w", ErrNotOwned, err)
		}
		return err
	}
	p.leased(lease, base)
	return nil
}

// Commit implements Appender.
func (f Fenced) Commit(ctx context.Context, p *Partition, g *Group) error {
	base, err := p.producer.Produce(ctx, p.Topic(), p.number, g.Records())
	if err == nil {
		if err := p.At(ctx, points.AppendAfterInsert); err != nil {
			return err
		}
		if err = p.producer.Commit(ctx); err == nil {
			p.Written(g, base)
			return nil
		}
	} else if broker.Gone(err) {
		// The commit was not sent, and nobody can send it any more.
		p.Lose()
		return fmt.Errorf("%w: %w", ErrNotOwned, err)
	}
	return f.settle(ctx, p, g, err)
}

// settle finds out what became of a group whose transaction was not seen to end: it takes the partition again, which
// ends the transaction one way or the other, and looks for the group's events among what is committed then. If
// somebody else has taken the partition meanwhile, that has ended it already; then it is left to them.
func (f Fenced) settle(ctx context.Context, p *Partition, g *Group, cause error) error {
	p.Lose()
	ctx, cancel := context.WithTimeout(ctx, settleBound)
	defer cancel()
	for {
		err := p.CatchUp(ctx, broker.Committed)
		others := p.index.lease.Owner != p.Owner() || broker.Fenced(cause)
		switch {
		case err == nil && broker.Fenced(cause):
			err = p.CatchUp(ctx, broker.Uncommitted)
		case err == nil && !others:
			err = f.take(ctx, p)
		}
		switch {
		case err == nil && g.landed():
			return nil
		case err == nil && others:
			return fmt.Errorf("%w: %w", ErrNotOwned, cause)
		case err == nil:
			return fmt.Errorf("%w: %w", ErrAborted, cause)
		}
		if clock.Sleep(ctx, settlePause) != nil {
			return unsettled(errors.Join(cause, err))
		}
	}
}

// Prove implements Appender. Whoever takes the partition writes a lease before serving, so if the log ends where this
// owner's own writing ended, nobody had, and what this owner knows was all that had been acknowledged.
func (Fenced) Prove(ctx context.Context, p *Partition) error {
	end, err := p.o.client.End(ctx, p.Topic(), p.number, broker.Uncommitted)
	if err != nil {
		return err
	}
	if end > p.end {
		p.Lose()
		return fmt.Errorf("%w: the log goes on to %d, behind %d", ErrNotOwned, end, p.end)
	}
	return nil
}
