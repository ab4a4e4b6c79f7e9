package controls

import (
	"context"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/memory"
)

// checkpointBeforeEffect commits the checkpoint first and the effects in a second transaction.
//
//	projector: checkpoint 4 → 5 commit |killed|      restart: poll after 5
//
// Event 5 is covered and never applied.
func checkpointBeforeEffect() targets.Target {
	return swap(targets.Control{
		ID: "cv-pr-01", Part: "projection",
		Bug:  "commits the checkpoint before the effect, in a transaction of its own",
		Must: []string{"no-skipped-checkpoint", "projection-equals-fold", "atomic-checkpoint"},
		May: map[string]string{
			"in-order-projection": "a later event of the skipped event's stream is applied",
		},
		Scripts: []string{"det-cv-pr-01"},
	}, checkpointFirst, func() memory.Parts {
		p := memory.Reference()
		p.Apply = func(ctx context.Context, c *memory.Conn, v eventstore.View, b eventstore.Batch) (eventstore.Checkpoint, error) {
			next, err := moveOnly(ctx, c, v, b)
			if err != nil {
				return eventstore.Checkpoint{}, err
			}
			if err := c.At(ctx, points.ProjectorAfterCheckpoint); err != nil {
				return eventstore.Checkpoint{}, memory.Broken("apply", eventstore.Unknown, err)
			}
			return next, effectsOnly(ctx, c, v, b)
		}
		return p
	})
}

// effectThenCheckpoint commits the effects, which are deltas, and then the checkpoint in a second transaction.
//
//	projector: apply 5 commit |killed|      restart: poll after 4: 5, apply 5 again
//
// At the kill the view is ahead of the checkpoint; after the restart event 5 counts twice. A second owner of the
// projection comes to the same without a kill.
func effectThenCheckpoint() targets.Target {
	return swap(targets.Control{
		ID: "cv-pr-02", Part: "projection",
		Bug:  "commits the effect, a delta, and then the checkpoint in a transaction of its own",
		Must: []string{"no-duplicate-projection", "projection-equals-fold", "atomic-checkpoint"},
		May: map[string]string{
			"in-order-projection": "the row's version goes back when the repeated batch had several events of one stream",
		},
		Scripts: []string{"det-cv-pr-02"},
	}, effectFirst, func() memory.Parts {
		p := memory.Reference()
		p.Apply = func(ctx context.Context, c *memory.Conn, v eventstore.View, b eventstore.Batch) (eventstore.Checkpoint, error) {
			if err := effectsOnly(ctx, c, v, b); err != nil {
				return eventstore.Checkpoint{}, err
			}
			if err := c.At(ctx, points.ProjectorAfterEffect); err != nil {
				return eventstore.Checkpoint{}, memory.Broken("apply", eventstore.Unknown, err)
			}
			return moveOnly(ctx, c, v, b)
		}
		return p
	})
}

// batchWithoutCompare applies a batch and moves the checkpoint in one transaction, but does not ask whether the
// checkpoint is still where the batch was polled from. The effect is a delta.
//
//	projector: apply 5 |commit parked|  time-out, load: 4, poll: 5, apply 5 commit    the parked one commits
//
// Event 5 is applied twice. When more was applied in between, the late commit also moves the checkpoint back,
// and what lies behind it is applied once more.
func batchWithoutCompare() targets.Target {
	return swap(targets.Control{
		ID: "cv-pr-32", Part: "projection",
		Bug:  "repeats a batch after an unknown commit without comparing the checkpoint",
		Must: []string{"no-duplicate-projection", "projection-equals-fold"},
		May: map[string]string{
			"monotonic-checkpoint": "the late commit moves the checkpoint back when more was applied in between",
			"atomic-checkpoint":    "an observation after the second application shows the event twice",
			"in-order-projection":  "the row's version goes back when more was applied in between",
		},
		Scripts: []string{"det-cv-pr-32"},
	}, withoutCompare, func() memory.Parts {
		p := memory.Reference()
		p.Apply = func(ctx context.Context, c *memory.Conn, v eventstore.View, b eventstore.Batch) (eventstore.Checkpoint, error) {
			u, err := memory.BeginUnit(ctx, c, v)
			if err != nil {
				return eventstore.Checkpoint{}, err
			}
			defer u.End()
			if err := u.Effects(b, u.Current.Seq+1); err != nil {
				return eventstore.Checkpoint{}, err
			}
			if err := u.At(ctx, points.ProjectorAfterEffect); err != nil {
				return eventstore.Checkpoint{}, err
			}
			next := u.Move(b)
			if err := u.At(ctx, points.ProjectorBeforeCommit); err != nil {
				return eventstore.Checkpoint{}, err
			}
			return next, u.Commit(ctx)
		}
		return p
	})
}

// moveOnly commits the checkpoint's move, by compare-and-set.
func moveOnly(ctx context.Context, c *memory.Conn, v eventstore.View, b eventstore.Batch) (eventstore.Checkpoint, error) {
	u, err := memory.BeginUnit(ctx, c, v)
	if err != nil {
		return eventstore.Checkpoint{}, err
	}
	defer u.End()
	next, err := u.CompareAndMove(b)
	if err != nil {
		return eventstore.Checkpoint{}, err
	}
	return next, u.CommitQuietly()
}

// effectsOnly commits the batch's effects with ledger rows that name no move of the checkpoint.
func effectsOnly(ctx context.Context, c *memory.Conn, v eventstore.View, b eventstore.Batch) error {
	u, err := memory.BeginUnit(ctx, c, v)
	if err != nil {
		return err
	}
	defer u.End()
	if err := u.Effects(b, 0); err != nil {
		return err
	}
	return u.CommitQuietly()
}
