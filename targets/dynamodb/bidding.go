package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
)

// Keys of an auction in its native form, and the values of its status.
const (
	prefixAuction = "AUCTION#"
	prefixBid     = "BID#"
	sortMeta      = "META"
	statusOpen    = "OPEN"
	statusClosed  = "CLOSED"
)

// TransactBid accepts a bid by one transaction, which raises the high bid of the auction's item if it may and puts the
// bid's item if there is none. Whatever the outcome, nothing is read after it: what is answered otherwise is told by the
// reasons of the cancellation, which come with both items as they were at that moment.
type TransactBid struct{}

// Place implements Bidder.
func (TransactBid) Place(ctx context.Context, c *Conn, b eventstore.Bid) (eventstore.Taken, error) {
	// Nothing is read before the condition; the points are asked like those of an append, so that one script holds every form.
	for _, p := range []points.Point{points.AppendBegin, points.AppendBeforeHead, points.AppendAfterHead} {
		if err := c.At(ctx, p); err != nil {
			return eventstore.Taken{}, err
		}
	}
	no, err := c.AcceptBid(ctx, b, OpenAndLower)
	switch {
	case err != nil:
		return eventstore.Taken{}, err
	case no != nil:
		return no.Answer(b)
	}
	return BidTaken(b), nil
}

// OpenAndLower is the condition on the auction's item under which a bid is accepted.
const OpenAndLower = "#status = :open AND #high < :amount"

// BidTaken is the answer of a bid that was accepted now. The count of changes stays in the auction's item.
func BidTaken(b eventstore.Bid) eventstore.Taken {
	return eventstore.Taken{Event: b.Event.ID, Amount: b.Amount, At: b.At}
}

// AcceptBid sends the transaction of a bid, with a condition on the auction's item, which has to exist; no is nil if it
// was carried out, else why it was cancelled.
func (c *Conn) AcceptBid(ctx context.Context, b eventstore.Bid, condition string) (no *BidCancelled, err error) {
	raise, put := c.RaiseHigh(b, condition), c.PutBid(b)
	reasons, err := c.Transact(ctx, types.TransactWriteItem{Update: &raise}, types.TransactWriteItem{Put: &put})
	if reasons != nil {
		return &BidCancelled{Auction: reasons[0], Bid: reasons[1], cause: err}, nil
	}
	return nil, err
}

// Transact carries out operations together. Where the store cancelled them it returns a reason for each, with the store's
// answer as the error; else the error is an *eventstore.Error.
func (c *Conn) Transact(ctx context.Context, ops ...types.TransactWriteItem) ([]types.CancellationReason, error) {
	// The library makes a token for every call, so that no transaction is taken for the repetition of another one: what has
	// been accepted is told by the bid's item alone, as it was first.
	_, err := c.db.TransactWriteItems(ctx, &sdk.TransactWriteItemsInput{TransactItems: ops})
	if cancel, ok := said[*types.TransactionCanceledException](err); ok && len(cancel.CancellationReasons) == len(ops) {
		return cancel.CancellationReasons, err
	}
	return nil, c.write("bid", err)
}

// RaiseHigh is the update of the auction's item that accepts a bid. The condition may use #status, :open, #high and
// :amount.
func (c *Conn) RaiseHigh(b eventstore.Bid, condition string) types.Update {
	u := types.Update{
		TableName: aws.String(c.s.cfg.Table), Key: keyOf(prefixAuction+b.Auction, sortMeta),
		ConditionExpression: aws.String("attribute_exists(#pk) AND " + condition),
		UpdateExpression:    aws.String("SET #high = :amount, #bidder = :bidder, #accepted = #accepted + :one, #changes = #changes + :one, #changed = :event"),
		ExpressionAttributeNames: map[string]string{
			"#pk": "pk", "#high": "high", "#bidder": "bidder", "#accepted": "accepted", "#changes": "changes", "#changed": "changed",
		},
		ExpressionAttributeValues: item{
			":amount": amount(b.Amount), ":bidder": text(b.Bidder), ":one": number(1), ":event": text(b.Event.ID.String()),
		},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	// A name or value that no expression uses is refused.
	if strings.Contains(condition, "#status") {
		u.ExpressionAttributeNames["#status"], u.ExpressionAttributeValues[":open"] = "status", text(statusOpen)
	}
	return u
}

// PutBid is the put of a bid's item, if there is none of its id.
func (c *Conn) PutBid(b eventstore.Bid) types.Put {
	it := keyOf(prefixAuction+b.Auction, prefixBid+b.ID)
	it["auction"], it["bid"], it["bidder"] = text(b.Auction), text(b.ID), text(b.Bidder)
	it["amount"], it["at"], it["event"] = amount(b.Amount), amount(b.At), text(b.Event.ID.String())
	return types.Put{
		TableName: aws.String(c.s.cfg.Table), Item: it,
		ConditionExpression:                 aws.String("attribute_not_exists(#pk)"),
		ExpressionAttributeNames:            map[string]string{"#pk": "pk"},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
}

// BidCancelled says why the transaction of a bid had no effect: a reason for each of its two operations.
type BidCancelled struct {
	Auction, Bid types.CancellationReason
	cause        error
}

// Answer is what the bid is answered. The ledger comes first: the repeated bid of the winner also looks stale, and a
// conflict on the bid's item leaves it open whether this is one.
func (r *BidCancelled) Answer(b eventstore.Bid) (eventstore.Taken, error) {
	if taken, told, err := r.Ledger(b); told {
		return taken, err
	}
	return eventstore.Taken{}, r.Condition()
}

// Ledger answers a bid by the reason of the bid's item; told is false if the id is known to be free.
func (r *BidCancelled) Ledger(b eventstore.Bid) (taken eventstore.Taken, told bool, err error) {
	switch codeOf(r.Bid) {
	case reasonNone:
		return eventstore.Taken{}, false, nil
	case reasonCondition:
	default:
		return eventstore.Taken{}, true, byReasons("bid", []types.CancellationReason{r.Bid}, r.cause)
	}
	first, bidder, err := decodeBid(r.Bid.Item)
	if err != nil {
		// The id is taken, but whether by this bid is not known.
		return eventstore.Taken{}, true, fail("bid", eventstore.TransactionConflict, errors.Join(err, r.cause))
	}
	if bidder == b.Bidder && first.Amount == b.Amount {
		return first, true, nil
	}
	no := eventstore.BidRefusal{Code: eventstore.BidAltered}
	if meta, found, err := decodeAuction(r.Auction.Item); found && err == nil {
		no.High, no.HighKnown = meta.high, true
	}
	return eventstore.Taken{}, true, eventstore.RefuseBid("bid", no)
}

// Condition is the refusal by the auction's item.
func (r *BidCancelled) Condition() error {
	if codeOf(r.Auction) != reasonCondition {
		return byReasons("bid", []types.CancellationReason{r.Auction}, r.cause)
	}
	meta, found, err := decodeAuction(r.Auction.Item)
	no := eventstore.BidRefusal{Code: eventstore.BidStale, High: meta.high, HighKnown: found}
	switch {
	case err != nil:
		return fail("bid", eventstore.TransactionConflict, errors.Join(err, r.cause))
	case !found || meta.closed:
		no.Code, no.Missing = eventstore.BidClosed, !found
	}
	return eventstore.RefuseBid("bid", no)
}

// AuctionState is what a look at an auction's item shows.
type AuctionState struct {
	Missing, Closed bool
	High            int64
}

// LookUpAuction reads the item of an auction strongly.
func (c *Conn) LookUpAuction(ctx context.Context, auction string) (AuctionState, error) {
	out, err := c.db.GetItem(ctx, &sdk.GetItemInput{
		TableName: aws.String(c.s.cfg.Table), Key: keyOf(prefixAuction+auction, sortMeta), ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return AuctionState{}, unsent(c.read("bid", err))
	}
	it, found, err := decodeAuction(out.Item)
	if err != nil {
		return AuctionState{}, fail("bid", eventstore.Rejected, err)
	}
	return AuctionState{Missing: !found, Closed: it.closed, High: it.high}, nil
}

// auctionItem is the item of an auction as far as operations look at it.
type auctionItem struct {
	closed                       bool
	high                         int64
	bidder                       string
	openedEvent, closedEvent     eventstore.EventID
	openedRequest, closedRequest string
	changes                      uint64 // all that will ever be, once closed
}

// decodeAuction reads the item of an auction; found is false if there is none.
func decodeAuction(it item) (a auctionItem, found bool, err error) {
	if len(it) == 0 {
		return auctionItem{}, false, nil
	}
	f := fields{it: it}
	a = auctionItem{
		high: f.amount("high"), bidder: f.text("bidder"), changes: f.number("changes"),
		openedEvent: f.event("openedEvent"), openedRequest: f.text("openedRequest"),
	}
	switch status := f.text("status"); status {
	case statusOpen:
	case statusClosed:
		a.closed, a.closedEvent, a.closedRequest = true, f.event("closedEvent"), f.text("closedRequest")
	default:
		f.miss("status")
	}
	return a, true, f.err
}

// decodeBid reads the item of an accepted bid as the answer to its repetition.
func decodeBid(it item) (first eventstore.Taken, bidder string, err error) {
	f := fields{it: it}
	first = eventstore.Taken{Event: f.event("event"), Amount: f.amount("amount"), At: f.amount("at"), Replayed: true}
	bidder = f.text("bidder")
	return first, bidder, f.err
}

var errBid = errors.New("dynamodb: an operation on an auction needs the auction's name, a bid id or a request, and an event with an id")

// operate runs one operation on an auction.
func (s *session) operate(ctx context.Context, op string, valid bool, e eventstore.NewEvent, do func(*Conn) (eventstore.Taken, error)) (eventstore.Taken, error) {
	if !valid || e.ID.IsZero() {
		return eventstore.Taken{}, fail(op, eventstore.Invalid, errBid)
	}
	var taken eventstore.Taken
	err := s.with(ctx, op, func(c *Conn) error {
		var err error
		taken, err = do(c)
		return err
	})
	switch {
	case err != nil:
		return eventstore.Taken{}, err
	case taken.Replayed:
		return taken, nil
	}
	if err := held(op, s.env.Gate.At(ctx, points.AppendAfterCommit, 0), true); err != nil {
		return eventstore.Taken{}, err
	}
	return taken, nil
}

// PlaceBid implements eventstore.Bidding.
func (s *session) PlaceBid(ctx context.Context, b eventstore.Bid) (eventstore.Taken, error) {
	return s.operate(ctx, "bid", b.Auction != "" && b.ID != "", b.Event, func(c *Conn) (eventstore.Taken, error) {
		return s.parts.Bidding.Place(ctx, c, b)
	})
}

// OpenAuction implements eventstore.Bidding: one conditional put.
func (s *session) OpenAuction(ctx context.Context, o eventstore.Opening) (eventstore.Taken, error) {
	return s.operate(ctx, "open", o.Auction != "" && o.Request != "", o.Event, func(c *Conn) (eventstore.Taken, error) {
		it := keyOf(prefixAuction+o.Auction, sortMeta)
		it["auction"], it["status"], it["bidder"] = text(o.Auction), text(statusOpen), text("")
		it["opening"], it["high"], it["accepted"] = amount(o.Price), amount(o.Price), number(0)
		it["changes"], it["changed"] = number(1), text(o.Event.ID.String())
		it["openedEvent"], it["openedRequest"], it["openedAt"] = text(o.Event.ID.String()), text(o.Request), amount(o.At)
		_, err := c.db.PutItem(ctx, &sdk.PutItemInput{
			TableName: aws.String(s.cfg.Table), Item: it,
			ConditionExpression:                 aws.String("attribute_not_exists(#pk)"),
			ExpressionAttributeNames:            map[string]string{"#pk": "pk"},
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		})
		failed, ok := said[*types.ConditionalCheckFailedException](err)
		if !ok {
			return eventstore.Taken{Event: o.Event.ID, Version: 1}, c.write("open", err)
		}
		old, found, err := decodeAuction(failed.Item)
		switch {
		case err != nil || !found:
			// Refused, but by whom is not known: it may be this very opening.
			return eventstore.Taken{}, fail("open", eventstore.TransactionConflict, errors.Join(err, failed))
		case old.openedRequest == o.Request:
			return eventstore.Taken{Event: old.openedEvent, Version: 1, Replayed: true}, nil
		}
		return eventstore.Taken{}, eventstore.RefuseBid("open", eventstore.BidRefusal{Code: eventstore.AuctionExists, High: old.high, HighKnown: true})
	})
}

// CloseAuction implements eventstore.Bidding: one conditional update.
func (s *session) CloseAuction(ctx context.Context, o eventstore.Closing) (eventstore.Taken, error) {
	return s.operate(ctx, "close", o.Auction != "" && o.Request != "", o.Event, func(c *Conn) (eventstore.Taken, error) {
		out, err := c.db.UpdateItem(ctx, &sdk.UpdateItemInput{
			TableName: aws.String(s.cfg.Table), Key: keyOf(prefixAuction+o.Auction, sortMeta),
			ConditionExpression: aws.String("attribute_exists(#pk) AND #status = :open"),
			UpdateExpression: aws.String("SET #status = :closed, #changes = #changes + :one, #changed = :event, " +
				"#closedEvent = :event, #closedRequest = :request, #closedAt = :at"),
			ExpressionAttributeNames: map[string]string{
				"#pk": "pk", "#status": "status", "#changes": "changes", "#changed": "changed",
				"#closedEvent": "closedEvent", "#closedRequest": "closedRequest", "#closedAt": "closedAt",
			},
			ExpressionAttributeValues: item{
				":open": text(statusOpen), ":closed": text(statusClosed), ":one": number(1), ":event": text(o.Event.ID.String()),
				":request": text(o.Request), ":at": amount(o.At),
			},
			ReturnValues:                        types.ReturnValueAllNew,
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		})
		failed, refused := said[*types.ConditionalCheckFailedException](err)
		if err != nil && !refused {
			return eventstore.Taken{}, c.write("close", err)
		}
		var it item
		if refused {
			it = failed.Item
		} else {
			it = out.Attributes
		}
		now, found, err := decodeAuction(it)
		if err != nil || !refused && !found {
			return eventstore.Taken{}, unreadable(refused, fmt.Errorf("%w: the closed auction", firstOf(err, errItem)))
		}
		taken := eventstore.Taken{Event: now.closedEvent, Version: now.changes, High: now.high, Bidder: now.bidder, Replayed: refused}
		switch {
		case !refused:
			return taken, nil
		case found && !now.closed:
			// The condition can't have failed on an open auction.
			return eventstore.Taken{}, fail("close", eventstore.TransactionConflict, failed)
		case found && now.closedRequest == o.Request:
			return taken, nil
		}
		return eventstore.Taken{}, eventstore.RefuseBid("close", eventstore.BidRefusal{
			Code: eventstore.BidClosed, Missing: !found, High: now.high, HighKnown: found,
		})
	})
}

// unreadable is a closing whose answer can't be read: carried out without telling what it found, or refused without
// telling by whom.
func unreadable(refused bool, err error) error {
	if refused {
		return fail("close", eventstore.TransactionConflict, err)
	}
	return &eventstore.Error{Op: "close", Outcome: eventstore.Unknown, Reason: eventstore.ServerUncertain, Err: err}
}
