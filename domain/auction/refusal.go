package auction

import "fmt"

// The codes of answers no. THROTTLED and INTERNAL are never decided here: the application answers them when
// the store refused for load or could not tell.
const (
	StaleBid       = "STALE_BID"
	AuctionClosed  = "AUCTION_CLOSED"
	InvalidPayload = "INVALID_PAYLOAD"
	AlreadyExists  = "ALREADY_EXISTS"
	InvalidAmount  = "INVALID_AMOUNT"
	Throttled      = "THROTTLED"
	Internal       = "INTERNAL"
)

// Retriable reports whether an answer with this code invites the same command again.
func Retriable(code string) bool { return code == Throttled || code == Internal }

// Refusal is the business answer no.
type Refusal struct {
	Code      string
	Have      int64 // the high bid that was decided on (the opening price while there is no bid, 0 when missing)
	Want      int64 // the amount asked for
	Retriable bool
	Text      string
}

// Error returns the wire form.
func (r *Refusal) Error() string { return Wire(r.Code, r.Text) }

// Wire is the form in which a rejection travels: CODE - message.
func Wire(code, text string) string { return code + " - " + text }

// Deny returns the refusal of a command with this code on an auction of that status and high bid; nothing else of the
// state counts. It does not ask whether the refusal is right.
func Deny(s State, c Command, code string) *Refusal {
	var text string
	switch code {
	case StaleBid:
		text = fmt.Sprintf("high bid is %d, bid of %d loses", s.High, c.Amount)
	case AuctionClosed:
		text = "auction " + c.Auction.String() + " is " + s.Status.String()
	case InvalidPayload:
		text = "bid " + c.BidID + " was accepted with another body"
	case AlreadyExists:
		text = "auction " + c.Auction.String() + " exists"
		if s.Status != Missing { // else it was not told
			text += " and is " + s.Status.String()
		}
	case InvalidAmount:
		text = fmt.Sprintf("opening price of %d is not possible", c.Amount)
	case Throttled:
		text = "the store is too busy"
	case Internal:
		text = "the store can't be asked now"
	}
	return &Refusal{Code: code, Have: s.High, Want: c.Amount, Retriable: Retriable(code), Text: text}
}
