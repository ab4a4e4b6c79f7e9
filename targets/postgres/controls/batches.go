package controls

import (
	"context"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/postgres"
)

// batchSwaps are what appends of more than one event do wrong.
func batchSwaps() []swap {
	return []swap{
		{
			// An account is opened with 5.00: two events, both v1, acknowledged as v1. The write asked for v1 and v2
			// and the caller is shown the state at v2.
			base: "advisory-lock", id: "cv-pg-14b", part: "append",
			bug:  "gives all events of a batch the version after the head",
			must: []string{gapless, atomicBatch, optimistic, noPhantom, noLostAck, immutable, truthfulAnswers},
			may: map[string]string{
				positionOrder:     "two positions for one version",
				readIsPrefix:      "a read shows one version twice",
				validDecision:     "a state is rebuilt with one of the two events at its version",
				truthfulRejection: "a refusal is decided on a state with one of the two events at its version",
				snapshotEquals:    "a snapshot of the answered state names a version that the log reaches later",
				progress:          "a snapshot of the answered state is ahead of the log",
				inOrder:           "one version is applied twice to a row",
				equalsFold:        "the view folds the two events in another order than the log is read in",
				atomicCheckpoint:  "the view folds the two events in another order than the log is read in",
			},
			replace: func(a *targets.Assembly, p *postgres.Parts) {
				a.Append, p.Append = "one-version-a-batch", oneVersion{}
			},
		},
		{
			// An account is opened with 5.00: the opening is committed, the writer dies, the deposit never comes.
			base: "advisory-lock", id: "cv-pg-23", part: "append",
			bug:  "commits each event of a batch by itself",
			must: []string{atomicBatch},
			may: map[string]string{
				noLostAck:         "the rest of an acknowledged batch meets a version that another took meanwhile",
				failedMeansAbsent: "the batch is refused when its first event is in the log",
				honestOutcomes:    "the batch is refused when its first event is in the log",
				commandOnce:       "what was interrupted is not found to be whole and is done again",
				readIsPrefix:      "a read shows a part of a batch",
			},
			replace: func(a *targets.Assembly, p *postgres.Parts) {
				a.Append, p.Append = "commit-each-event", commitEach{}
			},
		},
	}
}

// oneVersion is CV-PG-14b.
type oneVersion struct{}

// Without implements postgres.Appender.
func (oneVersion) Without() []string { return []string{postgres.UniqueVersion} }

// Append implements postgres.Appender.
func (oneVersion) Append(ctx context.Context, tx *postgres.Tx, a eventstore.Append) (eventstore.Appended, error) {
	head, first, err := atHead(ctx, tx, a)
	if err != nil || first.Replayed {
		return first, err
	}
	done := eventstore.Appended{First: head + 1, Last: head + 1}
	for _, e := range a.Events {
		one := a
		one.Events = []eventstore.NewEvent{e}
		inserted, err := tx.Insert(ctx, one, head+1, false)
		if err != nil {
			return eventstore.Appended{}, err
		}
		done.Events = append(done.Events, e.ID)
		done.Positions = append(done.Positions, inserted.Positions...)
	}
	if err := tx.Request(ctx, a); err != nil {
		return eventstore.Appended{}, err
	}
	return done, tx.At(ctx, points.AppendAfterInsert)
}

// commitEach is CV-PG-23.
type commitEach struct{}

// Without implements postgres.Appender.
func (commitEach) Without() []string { return nil }

// Append implements postgres.Appender.
func (commitEach) Append(ctx context.Context, tx *postgres.Tx, a eventstore.Append) (eventstore.Appended, error) {
	head, first, err := atHead(ctx, tx, a)
	if err != nil || first.Replayed {
		return first, err
	}
	done := eventstore.Appended{First: head + 1, Last: head}
	for i, e := range a.Events {
		one := a
		one.Events = []eventstore.NewEvent{e}
		inserted, err := tx.Insert(ctx, one, done.Last+1, false)
		if err != nil {
			return eventstore.Appended{}, err
		}
		done.Last++
		done.Events = append(done.Events, e.ID)
		done.Positions = append(done.Positions, inserted.Positions...)
		if i == len(a.Events)-1 {
			err = tx.Request(ctx, a)
		} else {
			err = tx.Again(ctx)
		}
		if err != nil {
			return eventstore.Appended{}, err
		}
		if err := tx.At(ctx, points.AppendAfterInsert); err != nil {
			return eventstore.Appended{}, err
		}
	}
	return done, nil
}

// atHead takes the allocator lock and compares the expected version with the head. The first result of the request is
// marked as replayed.
func atHead(ctx context.Context, tx *postgres.Tx, a eventstore.Append) (head uint64, first eventstore.Appended, err error) {
	if err := tx.At(ctx, points.AppendBegin); err != nil {
		return 0, first, err
	}
	if err := tx.At(ctx, points.AppendBeforeHead); err != nil {
		return 0, first, err
	}
	head, found, err := tx.Head(ctx, a, postgres.AppendLock)
	if err != nil {
		return 0, first, err
	}
	if found != nil {
		return head, *found, nil
	}
	if err := postgres.Compare(a.Expected, head); err != nil {
		return 0, first, err
	}
	return head, first, tx.At(ctx, points.AppendAfterHead)
}
