package app

import (
	"github.com/eventproof/eventproof/domain/account"
	"github.com/eventproof/eventproof/domain/auction"
	"github.com/eventproof/eventproof/eventstore"
)

// Balances returns the view of account balances: one row a stream (account.Row). Money moves are deltas, so
// that an event applied twice, or not at all, shows.
func Balances() eventstore.View { return balances{} }

// HighBids returns the view of high bids: one row a stream (auction.Row). Accepted bids are counted, so that
// an event applied twice shows although the high bid would not change.
func HighBids() eventstore.View { return highBids{} }

type balances struct{}

func (balances) Name() string { return account.View }

func (balances) Key(e eventstore.Event) (string, bool) {
	_, ok := account.FromStream(e.Stream)
	return e.Stream, ok
}

// Apply shows what the feed gave, right or wrong: a money move without an opening starts a row of its own.
func (balances) Apply(state []byte, e eventstore.Event) ([]byte, error) {
	event, err := account.ParseEvent(e.Type, e.Version, e.Data)
	if err != nil {
		return nil, err
	}
	row := account.Row{Status: account.Open.String()}
	if state != nil {
		if row, err = account.DecodeRow(state); err != nil {
			return nil, err
		}
	}
	switch event.Type {
	case account.Opened:
		row.Owner = event.Owner
	case account.Deposited:
		row.Balance += event.Amount
	case account.Withdrawn:
		row.Balance -= event.Amount
	case account.ClosedEvent:
		row.Status = account.Closed.String()
	}
	return row.Encode(), nil
}

type highBids struct{}

func (highBids) Name() string { return auction.View }

func (highBids) Key(e eventstore.Event) (string, bool) {
	_, ok := auction.FromStream(e.Stream)
	return e.Stream, ok
}

// Apply shows what the feed gave, right or wrong: a bid without a creation starts a row of its own.
func (highBids) Apply(state []byte, e eventstore.Event) ([]byte, error) {
	event, err := auction.ParseEvent(e.Type, e.Version, e.Data)
	if err != nil {
		return nil, err
	}
	row := auction.Row{Status: auction.Open.String()}
	if state != nil {
		if row, err = auction.DecodeRow(state); err != nil {
			return nil, err
		}
	}
	switch event.Type {
	case auction.Created:
		row.High = event.OpeningPrice
	case auction.BidAccepted:
		row.Accepted++
		if event.Amount > row.High {
			row.High, row.Bidder = event.Amount, event.Bidder
		}
	case auction.ClosedEvent:
		row.Status = auction.Closed.String()
	}
	return row.Encode(), nil
}
