package auction

import (
	"fmt"
	"time"
)

// Claim returns type and data of the event that says what a command asks for where the store decides, by a condition of
// its own, instead of Decide: the native form of the auction. A closing names no high bid, which the caller does not
// know. What no store has to be asked about is a *Refusal; a name that is no command is a plain error.
func Claim(c Command, now time.Time) (typ string, data []byte, err error) {
	e := Event{Auction: c.Auction, At: timestamp(now)}
	switch c.Name {
	case CommandCreate:
		if c.Amount < 0 {
			return "", nil, Deny(State{}, c, InvalidAmount)
		}
		e.Type, e.OpeningPrice = Created, c.Amount
	case CommandBid:
		e.Type, e.BidID, e.Bidder, e.Amount = BidAccepted, c.BidID, c.Bidder, c.Amount
	case CommandClose:
		return ClosedEvent, marshal(struct {
			At      string `json:"at"`
			Auction ID     `json:"auction"`
		}{e.At, e.Auction}), nil
	default:
		return "", nil, fmt.Errorf("auction: unknown command %q", c.Name)
	}
	return e.Type, e.Data(), nil
}
