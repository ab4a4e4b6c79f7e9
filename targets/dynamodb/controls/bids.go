package controls

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets/dynamodb"
)

// begin asks the gate before a bid does anything.
func begin(ctx context.Context, c *dynamodb.Conn) error {
	if err := c.At(ctx, points.AppendBegin); err != nil {
		return err
	}
	return c.At(ctx, points.AppendBeforeHead)
}

// accept sends the transaction of a bid under a condition and answers by its reasons.
func accept(ctx context.Context, c *dynamodb.Conn, b eventstore.Bid, condition string, answer func(*dynamodb.BidCancelled) (eventstore.Taken, error)) (eventstore.Taken, error) {
	no, err := c.AcceptBid(ctx, b, condition)
	switch {
	case err != nil:
		return eventstore.Taken{}, err
	case no != nil:
		return answer(no)
	}
	return dynamodb.BidTaken(b), nil
}

// staleFirst is CV-DY-07: a bid is called stale before it is asked whether it is in the ledger.
type staleFirst struct{}

// Place implements dynamodb.Bidder.
func (staleFirst) Place(ctx context.Context, c *dynamodb.Conn, b eventstore.Bid) (eventstore.Taken, error) {
	if err := begin(ctx, c); err != nil {
		return eventstore.Taken{}, err
	}
	return accept(ctx, c, b, dynamodb.OpenAndLower, func(no *dynamodb.BidCancelled) (eventstore.Taken, error) {
		var refusal *eventstore.BidRefusal
		if err := no.Condition(); errors.As(err, &refusal) && refusal.Code == eventstore.BidStale {
			return eventstore.Taken{}, err
		}
		return no.Answer(b)
	})
}

// compareInCode is CV-DY-09: the high bid is read and compared, and then written whatever it is by then.
type compareInCode struct{}

// Place implements dynamodb.Bidder.
func (compareInCode) Place(ctx context.Context, c *dynamodb.Conn, b eventstore.Bid) (eventstore.Taken, error) {
	return lookFirst(ctx, c, b, "#status = :open")
}

// openOutside is CV-DY-10: whether the auction is open is asked before the transaction, not in it.
type openOutside struct{}

// Place implements dynamodb.Bidder.
func (openOutside) Place(ctx context.Context, c *dynamodb.Conn, b eventstore.Bid) (eventstore.Taken, error) {
	return lookFirst(ctx, c, b, "#high < :amount")
}

// lookFirst reads the auction and sends only what it may accept, under a condition that leaves out a part of what was
// read.
func lookFirst(ctx context.Context, c *dynamodb.Conn, b eventstore.Bid, condition string) (eventstore.Taken, error) {
	if err := begin(ctx, c); err != nil {
		return eventstore.Taken{}, err
	}
	now, err := c.LookUpAuction(ctx, b.Auction)
	if err != nil {
		return eventstore.Taken{}, err
	}
	if err := c.At(ctx, points.AppendAfterHead); err != nil {
		return eventstore.Taken{}, err
	}
	if now.Missing || now.Closed || now.High >= b.Amount {
		condition = dynamodb.OpenAndLower // sent all the same: the ledger may hold the bid
	}
	return accept(ctx, c, b, condition, func(no *dynamodb.BidCancelled) (eventstore.Taken, error) { return no.Answer(b) })
}

// ledgerLater is CV-DY-11: the auction's item is updated first, and the bid's item put after it.
type ledgerLater struct{}

// Place implements dynamodb.Bidder.
func (ledgerLater) Place(ctx context.Context, c *dynamodb.Conn, b eventstore.Bid) (eventstore.Taken, error) {
	if err := begin(ctx, c); err != nil {
		return eventstore.Taken{}, err
	}
	raise, put := c.RaiseHigh(b, dynamodb.OpenAndLower), c.PutBid(b)
	switch reasons, err := c.Transact(ctx, types.TransactWriteItem{Update: &raise}); {
	case reasons != nil:
		return accept(ctx, c, b, dynamodb.OpenAndLower, func(no *dynamodb.BidCancelled) (eventstore.Taken, error) { return no.Answer(b) })
	case err != nil:
		return eventstore.Taken{}, err
	}
	if err := c.At(ctx, points.AppendAfterInsert); err != nil {
		return eventstore.Taken{}, err
	}
	if _, err := c.Transact(ctx, types.TransactWriteItem{Put: &put}); err != nil {
		return eventstore.Taken{}, err
	}
	return dynamodb.BidTaken(b), nil
}

// orEqual is CV-DY-14: a bid as high as the high bid is accepted.
type orEqual struct{}

// Place implements dynamodb.Bidder.
func (orEqual) Place(ctx context.Context, c *dynamodb.Conn, b eventstore.Bid) (eventstore.Taken, error) {
	if err := begin(ctx, c); err != nil {
		return eventstore.Taken{}, err
	}
	return accept(ctx, c, b, "#status = :open AND #high <= :amount", func(no *dynamodb.BidCancelled) (eventstore.Taken, error) { return no.Answer(b) })
}

// freshTime is CV-DY-15: a replay is answered with the time of the repetition.
type freshTime struct{}

// Place implements dynamodb.Bidder.
func (freshTime) Place(ctx context.Context, c *dynamodb.Conn, b eventstore.Bid) (eventstore.Taken, error) {
	if err := begin(ctx, c); err != nil {
		return eventstore.Taken{}, err
	}
	return accept(ctx, c, b, dynamodb.OpenAndLower, func(no *dynamodb.BidCancelled) (eventstore.Taken, error) {
		taken, err := no.Answer(b)
		if taken.Replayed {
			taken.At = b.At
		}
		return taken, err
	})
}
