package controls

import (
	"context"
	"time"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets/postgres"
)

// effectThenCheckpoint is CV-PR-02: two transactions, the effect first.
type effectThenCheckpoint struct{}

// Apply implements postgres.Projector.
func (effectThenCheckpoint) Apply(ctx context.Context, p *postgres.Progress, b eventstore.Batch) (eventstore.Checkpoint, error) {
	if err := effects(ctx, p, b); err != nil {
		return eventstore.Checkpoint{}, err
	}
	if err := p.At(ctx, points.ProjectorAfterEffect); err != nil {
		return eventstore.Checkpoint{}, err
	}
	if err := checkpoint(ctx, p, b); err != nil {
		return eventstore.Checkpoint{}, err
	}
	return moved(b), p.At(ctx, points.ProjectorAfterCommit)
}

// checkpointThenEffect is CV-PR-01: two transactions, the checkpoint first.
type checkpointThenEffect struct{}

// Apply implements postgres.Projector.
func (checkpointThenEffect) Apply(ctx context.Context, p *postgres.Progress, b eventstore.Batch) (eventstore.Checkpoint, error) {
	if err := checkpoint(ctx, p, b); err != nil {
		return eventstore.Checkpoint{}, err
	}
	if err := p.At(ctx, points.ProjectorAfterCheckpoint); err != nil {
		return eventstore.Checkpoint{}, err
	}
	if err := effects(ctx, p, b); err != nil {
		return eventstore.Checkpoint{}, err
	}
	return moved(b), p.At(ctx, points.ProjectorAfterCommit)
}

// moved is the checkpoint after a batch.
func moved(b eventstore.Batch) eventstore.Checkpoint {
	return eventstore.Checkpoint{
		Cursor: b.Next, Seq: b.Prev.Seq + 1, Epoch: b.Prev.Epoch, Generation: b.Prev.Generation,
	}
}

// effects applies a batch in a transaction that moves no checkpoint.
func effects(ctx context.Context, p *postgres.Progress, b eventstore.Batch) error {
	at := b.Prev
	at.Seq = 0
	return transaction(ctx, p, func(tx *postgres.Tx) error { return p.Effects(ctx, tx, b.Events, at) })
}

// checkpoint moves the checkpoint in a transaction without effects.
func checkpoint(ctx context.Context, p *postgres.Progress, b eventstore.Batch) error {
	return transaction(ctx, p, func(tx *postgres.Tx) error { return p.Move(ctx, tx, b.Prev, b.Next) })
}

func transaction(ctx context.Context, p *postgres.Progress, f func(*postgres.Tx) error) error {
	tx, err := p.Begin(ctx)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return tx.Fail(ctx, err)
	}
	return tx.Commit(ctx)
}

// noCompareAndSet is CV-PR-32: one transaction, but the checkpoint is moved from wherever it stands, and a batch
// whose commit was not answered is simply done again.
type noCompareAndSet struct{}

// oneTry bounds each try, so that a commit which does not come back is followed by another.
const oneTry = 500 * time.Millisecond

const overwriteCheckpoint = `with moved as (
		update checkpoints set cursor = $2, seq = seq + 1 where projection = $1
		returning projection, generation, seq, epoch, cursor)
	insert into checkpoint_history (projection, generation, seq, epoch, cursor)
	select projection, generation, seq, epoch, cursor from moved`

// Apply implements postgres.Projector.
func (noCompareAndSet) Apply(ctx context.Context, p *postgres.Progress, b eventstore.Batch) (eventstore.Checkpoint, error) {
	for {
		next, err := unguarded(ctx, p, b)
		outcome, reason := eventstore.Classify(err)
		again := outcome == eventstore.Unknown && reason != eventstore.Killed
		if !again || ctx.Err() != nil {
			return next, err
		}
	}
}

func unguarded(parent context.Context, p *postgres.Progress, b eventstore.Batch) (eventstore.Checkpoint, error) {
	tx, err := p.Begin(parent)
	if err != nil {
		return eventstore.Checkpoint{}, err
	}
	ctx, cancel := context.WithTimeout(parent, oneTry)
	defer cancel()
	next, err := overwrite(ctx, parent, tx, p, b)
	if err != nil {
		return eventstore.Checkpoint{}, tx.Fail(ctx, err)
	}
	if err := tx.Commit(ctx); err != nil {
		return eventstore.Checkpoint{}, err
	}
	return next, p.At(parent, points.ProjectorAfterCommit)
}

// overwrite applies a batch and moves the checkpoint from wherever it stands. Holding the role at a point is no lost
// answer: the gate gets the caller's patience.
func overwrite(ctx, patient context.Context, tx *postgres.Tx, p *postgres.Progress, b eventstore.Batch) (eventstore.Checkpoint, error) {
	found, err := p.Lock(ctx, tx)
	if err != nil {
		return eventstore.Checkpoint{}, err
	}
	next := moved(eventstore.Batch{Prev: found, Next: b.Next})
	if err := p.Effects(ctx, tx, b.Events, next); err != nil {
		return eventstore.Checkpoint{}, err
	}
	if err := tx.At(patient, points.ProjectorAfterEffect); err != nil {
		return eventstore.Checkpoint{}, err
	}
	if _, err := tx.Exec(ctx, overwriteCheckpoint, p.View(), b.Next.String()); err != nil {
		return eventstore.Checkpoint{}, err
	}
	return next, tx.At(patient, points.ProjectorBeforeCommit)
}
