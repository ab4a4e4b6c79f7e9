package controls

import (
	"context"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/postgres"
)

// expectedSwaps are what appends do wrong with the version that they expect.
func expectedSwaps() []swap {
	return []swap{
		{
			// The stream ends at v2 and a caller expects v5: v6 is written, and there will be no v3 to v5.
			base: "advisory-lock", id: "cv-pg-20", part: "append",
			bug:  "has nothing but the unique index between a wrong expected version and the log: one ahead of the head leaves a hole",
			must: []string{gapless, optimistic},
			replace: func(a *targets.Assembly, p *postgres.Parts) {
				a.Append, p.Append = "unique-index-only", uniqueIndexOnly{}
			},
		},
		{
			// The first try lands as v3 and its reply is lost; the adapter reconnects, reads head 3 and appends the
			// same event as v4.
			base: "advisory-lock", id: "cv-pg-25", part: "append",
			bug:  "keeps neither event ids nor requests unique, and appends again at the newer head after a lost reply",
			must: []string{commandOnce},
			may: map[string]string{
				noPhantom:         "the second copy stands at a version that its write did not ask for",
				optimistic:        "the second copy stands at a version that its write did not ask for",
				honestOutcomes:    "an attempt whose reply was cut is answered ok",
				truthfulAnswers:   "the state of the answer holds the event once, the log twice",
				validDecision:     "the second copy is decided on the version before the first",
				noOverdraft:       "there is money for one of the two only",
				linearizable:      "the first copy was answered to nobody",
				snapshotEquals:    "a snapshot of the answered state holds the event once",
				noDuplicate:       "a projection applies both copies of one event",
				inOrder:           "a projection applies both copies of one event",
				atomicCheckpoint:  "a projection applies both copies of one event",
				equalsFold:        "a projection applies both copies of one event",
				failedMeansAbsent: "a repeat is refused for want of money that its first copy took",
				truthfulRejection: "an answered state that lacks a copy is put as a snapshot and refusals rest on it",
				progress:          "an answered state that lacks a copy is put as a snapshot",
				monotonicBids:     "one bid is accepted twice",
				idempotentBids:    "one bid is accepted twice",
			},
			replace: func(a *targets.Assembly, p *postgres.Parts) {
				a.Append, p.Append = "again-at-head", againAtHead{}
			},
		},
		{
			// The row says 2. A blind append reads it and waits; another writes v3 and sets the row to 3; the first
			// writes v4 and sets the row to 2+1. From then on whoever loads v4 and expects it is told that the stream
			// ends at v3.
			base: "advisory-lock", id: "cv-pg-26", part: "append",
			bug:  "keeps the head in a row of its own, reads it without a lock and writes it back unconditionally",
			must: []string{gapless, optimistic, progress},
			replace: func(a *targets.Assembly, p *postgres.Parts) {
				a.Append, p.Append = "head-row", headRow{}
			},
		},
	}
}

// uniqueIndexOnly is CV-PG-20.
type uniqueIndexOnly struct{}

// Without implements postgres.Appender.
func (uniqueIndexOnly) Without() []string { return nil }

// Append implements postgres.Appender.
func (uniqueIndexOnly) Append(ctx context.Context, tx *postgres.Tx, a eventstore.Append) (eventstore.Appended, error) {
	if a.Expected.IsAny() {
		return postgres.AdvisoryLock{}.Append(ctx, tx, a)
	}
	behind := a
	behind.Expected = eventstore.Any()
	head, first, err := atHead(ctx, tx, behind)
	if err != nil || first.Replayed {
		return first, err
	}
	if a.Expected.Version() < head {
		return eventstore.Appended{}, postgres.Compare(a.Expected, head)
	}
	done, err := tx.Insert(ctx, a, a.Expected.Version()+1, true)
	if err != nil {
		return eventstore.Appended{}, err
	}
	return done, tx.At(ctx, points.AppendAfterInsert)
}

// againAtHead is CV-PG-25.
type againAtHead struct{}

// Without implements postgres.Appender.
func (againAtHead) Without() []string { return []string{postgres.UniqueEvent} }

// Append implements postgres.Appender. The transaction that it hands back for the commit is the one of the second try, or
// an empty one.
func (againAtHead) Append(ctx context.Context, tx *postgres.Tx, a eventstore.Append) (eventstore.Appended, error) {
	head, _, err := atHead(ctx, tx, a)
	if err != nil {
		return eventstore.Appended{}, err
	}
	done, err := tx.Insert(ctx, a, head+1, false)
	if err != nil {
		return eventstore.Appended{}, err
	}
	if err := tx.At(ctx, points.AppendAfterInsert); err != nil {
		return eventstore.Appended{}, err
	}
	if err := tx.Again(ctx); err == nil || postgres.Answered(err) || ctx.Err() != nil {
		return done, err
	}
	if err := tx.Reopen(ctx); err != nil {
		return eventstore.Appended{}, err
	}
	if head, _, err = tx.Head(ctx, a, postgres.AppendLock); err != nil {
		return eventstore.Appended{}, err
	}
	return tx.Insert(ctx, a, head+1, false)
}

// headRow is CV-PG-26.
type headRow struct{}

const (
	selectHeadRow = `select coalesce((select version from heads where stream = $1), 0)`
	upsertHeadRow = `insert into heads (stream, version) values ($1, $2)
		on conflict (stream) do update set version = excluded.version`
)

// Without implements postgres.Appender.
func (headRow) Without() []string { return nil }

// Tables makes the rows.
func (headRow) Tables(writer string) string {
	return "create table heads (stream text primary key, version bigint not null); grant select, insert, update on heads to " + writer + ";"
}

// Append implements postgres.Appender.
func (headRow) Append(ctx context.Context, tx *postgres.Tx, a eventstore.Append) (eventstore.Appended, error) {
	for _, p := range []points.Point{points.AppendBegin, points.AppendBeforeHead} {
		if err := tx.At(ctx, p); err != nil {
			return eventstore.Appended{}, err
		}
	}
	_, first, err := tx.Head(ctx, a)
	if err != nil {
		return eventstore.Appended{}, err
	}
	if first != nil {
		return *first, nil
	}
	var row uint64
	if err := tx.QueryRow(ctx, selectHeadRow, a.Stream).Scan(&row); err != nil {
		return eventstore.Appended{}, err
	}
	if err := postgres.Compare(a.Expected, row); err != nil {
		return eventstore.Appended{}, err
	}
	if err := tx.At(ctx, points.AppendAfterHead); err != nil {
		return eventstore.Appended{}, err
	}
	// The unique index guards an exact version; a blind append takes the next one that is free.
	free, _, err := tx.Head(ctx, a, postgres.AppendLock)
	if err != nil {
		return eventstore.Appended{}, err
	}
	if !a.Expected.IsAny() {
		free = row
	}
	done, err := tx.Insert(ctx, a, free+1, true)
	if err != nil {
		return eventstore.Appended{}, err
	}
	if _, err := tx.Exec(ctx, upsertHeadRow, a.Stream, row+uint64(len(a.Events))); err != nil {
		return eventstore.Appended{}, err
	}
	return done, tx.At(ctx, points.AppendAfterInsert)
}
