package controls

import (
	"context"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets/postgres"
)

// checkThenInsert is CV-PG-14: the version is the head read before plus one, and the table does not object.
type checkThenInsert struct{ postgres.XIDHorizon }

// Without implements postgres.Appender.
func (checkThenInsert) Without() []string { return []string{postgres.UniqueVersion} }

// requestFirst is CV-PG-28: the request row is written first, so the transaction has its id before it knows
// the head.
type requestFirst struct{}

// Without implements postgres.Appender.
func (requestFirst) Without() []string { return nil }

// Append implements postgres.Appender.
func (requestFirst) Append(ctx context.Context, tx *postgres.Tx, a eventstore.Append) (eventstore.Appended, error) {
	if err := tx.At(ctx, points.AppendBegin); err != nil {
		return eventstore.Appended{}, err
	}
	if err := tx.Request(ctx, a); err != nil {
		return eventstore.Appended{}, err
	}
	if err := tx.At(ctx, points.AppendBeforeHead); err != nil {
		return eventstore.Appended{}, err
	}
	head, _, err := tx.Head(ctx, a)
	if err != nil {
		return eventstore.Appended{}, err
	}
	if err := postgres.Compare(a.Expected, head); err != nil {
		return eventstore.Appended{}, err
	}
	if err := tx.At(ctx, points.AppendAfterHead); err != nil {
		return eventstore.Appended{}, err
	}
	done, err := tx.Insert(ctx, a, head+1, false)
	if err != nil {
		return eventstore.Appended{}, err
	}
	return done, tx.At(ctx, points.AppendAfterInsert)
}

// ledgerFirst is CV-PG-33: whether a bid was accepted before is looked up before the conditional update, and not again
// when that changed no row.
type ledgerFirst struct{}

// Place implements postgres.Bidder.
func (ledgerFirst) Place(ctx context.Context, tx *postgres.Tx, b eventstore.Bid) (eventstore.Taken, error) {
	if err := tx.At(ctx, points.AppendBegin); err != nil {
		return eventstore.Taken{}, err
	}
	found, err := tx.LookUpBid(ctx, b)
	if err != nil {
		return eventstore.Taken{}, err
	}
	if found.First != nil {
		return found.Answer(b)
	}
	if err := tx.At(ctx, points.AppendBeforeHead); err != nil {
		return eventstore.Taken{}, err
	}
	taken, accepted, err := tx.AcceptBid(ctx, b)
	if err != nil {
		return eventstore.Taken{}, err
	}
	if accepted {
		return taken, tx.At(ctx, points.AppendAfterInsert)
	}
	now, err := tx.LookUpBid(ctx, b)
	if err != nil {
		return eventstore.Taken{}, err
	}
	now.First = nil // the ledger was asked before
	return now.Answer(b)
}
