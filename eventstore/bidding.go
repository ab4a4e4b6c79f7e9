package eventstore

import (
	"context"
	"fmt"
)

// Bidding is the native conditional form of the auction: instead of events in a stream a store keeps one row for each
// auction (status, opening price, high bid, bidder, count of accepted bids) and one for each accepted bid, which is
// record and idempotency ledger in one. Every operation is one atomic conditional statement at the store, without a
// read before it.
//
// Each operation carries the event that says what it asks for. A store keeps the event's id with the row that the
// operation changed, so that an answer and an audit can name the write that did it; the rest of the event follows from
// the other fields. Repeating an operation with the same event is a blind retry; with another event, but the same bid or
// request, it is the same command again. Both are answered alike.
//
// Errors are *Error. A refusal by the condition itself is Fail with reason Refused, and wraps a *BidRefusal. A store that
// can't tell whether a bid is in its ledger (a conflict on the bid's item, say) answers neither replay nor refusal but
// Fail with a retriable reason: TransactionConflict, or Throttled. Cancelling ctx never turns an operation whose bytes
// may have left into a Fail.
type Bidding interface {
	// OpenAuction makes an auction that does not exist. Opening one that this request opened is a replay; every other one
	// is refused with AuctionExists.
	OpenAuction(ctx context.Context, o Opening) (Taken, error)
	// PlaceBid accepts a bid if the auction is open and its high bid is lower, counts it, and keeps it in the ledger, all
	// or nothing. What is answered otherwise is decided in this order:
	//
	//  1. The bid id is in the ledger with this bidder and amount: a replay, with what was stored first, whatever has
	//     happened since. With another body: BidAltered.
	//  2. Whether the id is in the ledger can't be told: a retriable failure.
	//  3. The auction is missing or closed: BidClosed.
	//  4. The high bid is as high: BidStale.
	//  5. A conflict on the auction's row: a retriable failure.
	//
	// The order matters: the repeated bid of the winner also looks stale.
	PlaceBid(ctx context.Context, b Bid) (Taken, error)
	// CloseAuction closes an open auction and answers with its high bid. Closing one that this request closed is a replay;
	// one that is missing or was closed otherwise is refused with BidClosed.
	CloseAuction(ctx context.Context, c Closing) (Taken, error)
}

// Opening asks for an auction.
type Opening struct {
	Auction string // the name that the auction's stream would have
	Request string // the idempotency token; the application uses the command id
	Price   int64
	At      int64 // unix milliseconds, taken by the caller
	Event   NewEvent
}

// Bid asks for a bid to be accepted. Its ID is made by the client and stays the same over every retry, also by another
// process; that is what makes repeating it safe.
type Bid struct {
	Auction string
	ID      string
	Bidder  string
	Amount  int64
	At      int64 // becomes acceptedAt; unix milliseconds, taken by the caller
	Event   NewEvent
}

// Closing asks for an auction to be closed.
type Closing struct {
	Auction string
	Request string
	At      int64
	Event   NewEvent
}

// Taken is the answer yes.
type Taken struct {
	// Event is the id of the event that did it: the caller's own, or that of the first execution when Replayed.
	Event EventID
	// Version counts the changes of the auction's row, this one included; 0 where the store can't tell.
	Version uint64
	// Replayed: it had been done before.
	Replayed bool
	// Amount and At are those of the accepted bid, as they are stored.
	Amount int64
	At     int64
	// High and Bidder are what a closing found.
	High   int64
	Bidder string
}

// BidCode says which condition refused an operation. The set is closed.
type BidCode uint8

// The codes.
const (
	// BidStale: the high bid of the open auction is not lower.
	BidStale BidCode = iota + 1
	// BidClosed: the auction is not open.
	BidClosed
	// BidAltered: the bid id was accepted with another bidder or amount.
	BidAltered
	// AuctionExists: the auction was opened before.
	AuctionExists
)

// String returns the name used in messages.
func (c BidCode) String() string {
	switch c {
	case BidStale:
		return "stale"
	case BidClosed:
		return "closed"
	case BidAltered:
		return "altered"
	case AuctionExists:
		return "exists"
	}
	return fmt.Sprintf("bidCode(%d)", uint8(c))
}

// BidRefusal is the answer no, from the same atomic evaluation that found the bid id absent (BidAltered: present).
type BidRefusal struct {
	Code BidCode
	// Missing goes with BidClosed: there is no such auction. It may be opened yet, so this refusal, unlike every other
	// one, can become false.
	Missing bool
	// High is the high bid, the opening price while there is none, of an auction that is not missing; HighKnown says that
	// the answer showed it. BidStale always does.
	High      int64
	HighKnown bool
}

// Error implements error.
func (r *BidRefusal) Error() string {
	s := "eventstore: refused: " + r.Code.String()
	if r.Missing {
		s += ", the auction is missing"
	}
	if r.HighKnown {
		s += fmt.Sprintf(", high bid %d", r.High)
	}
	return s
}

// Final reports whether the refusal can't become false again: amounts only rise, nothing re-opens, and what the ledger
// holds stays. It then excludes every earlier try of the same operation (INVARIANTS 2.3, e5).
func (r *BidRefusal) Final() bool { return !r.Missing }

// RefuseBid returns the error of an operation that the condition refused.
func RefuseBid(op string, r BidRefusal) error {
	return &Error{Op: op, Outcome: Fail, Reason: Refused, Err: &r}
}
