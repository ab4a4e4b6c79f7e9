package storetest

import (
	"context"
	"sync"
	"testing"

	"github.com/eventproof/eventproof/eventstore"
)

// rows is a correct Bidding in memory; each flag spoils one thing.
type rows struct {
	mu       sync.Mutex
	auctions map[string]*auctionRow
	wrong    string
}

type auctionRow struct {
	opened, closed   eventstore.Taken
	openedBy, byWhom string
	shut             bool
	high, price      int64
	bidder           string
	changes          uint64
	bids             map[string]eventstore.Bid
}

func invalid(op string) error {
	return &eventstore.Error{Op: op, Outcome: eventstore.Fail, Reason: eventstore.Invalid}
}

func (r *rows) OpenAuction(_ context.Context, o eventstore.Opening) (eventstore.Taken, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o.Auction == "" || o.Request == "" || o.Event.ID.IsZero() {
		return eventstore.Taken{}, invalid("open")
	}
	a := r.auctions[o.Auction]
	switch {
	case a == nil:
		a = &auctionRow{opened: eventstore.Taken{Event: o.Event.ID, Version: 1}, openedBy: o.Request, high: o.Price, price: o.Price, changes: 1, bids: map[string]eventstore.Bid{}}
		r.auctions[o.Auction] = a
		return a.opened, nil
	case a.openedBy == o.Request:
		again := a.opened
		again.Replayed = true
		return again, nil
	}
	return eventstore.Taken{}, eventstore.RefuseBid("open", eventstore.BidRefusal{Code: eventstore.AuctionExists, High: a.high, HighKnown: true})
}

func (r *rows) PlaceBid(_ context.Context, b eventstore.Bid) (eventstore.Taken, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b.Auction == "" || b.ID == "" || b.Event.ID.IsZero() {
		return eventstore.Taken{}, invalid("bid")
	}
	a := r.auctions[b.Auction]
	if a == nil {
		return eventstore.Taken{}, eventstore.RefuseBid("bid", eventstore.BidRefusal{Code: eventstore.BidClosed, Missing: true})
	}
	no := func(c eventstore.BidCode) (eventstore.Taken, error) {
		return eventstore.Taken{}, eventstore.RefuseBid("bid", eventstore.BidRefusal{Code: c, High: a.high, HighKnown: true})
	}
	first, known := a.bids[b.ID]
	stale := a.high >= b.Amount
	if r.wrong == "equal bids win" {
		stale = a.high > b.Amount
	}
	closed := a.shut && r.wrong != "bids after the close"
	switch {
	case r.wrong == "stale before replay" && stale && !closed:
		return no(eventstore.BidStale)
	case r.wrong == "closed before replay" && closed:
		return no(eventstore.BidClosed)
	case known && r.wrong == "no look at the body", known && first.Bidder == b.Bidder && first.Amount == b.Amount:
		at, event := first.At, first.Event.ID
		if r.wrong == "a fresh time for replays" {
			at = b.At
		}
		if r.wrong == "a replay names its own event" {
			event = b.Event.ID
		}
		return eventstore.Taken{Event: event, Amount: first.Amount, At: at, Replayed: r.wrong != "replays are not marked"}, nil
	case known:
		return no(eventstore.BidAltered)
	case closed && r.wrong == "a closed auction is called stale":
		return no(eventstore.BidStale)
	case closed:
		return no(eventstore.BidClosed)
	case stale:
		return no(eventstore.BidStale)
	}
	a.changes++
	a.bids[b.ID] = b
	a.bidder = b.Bidder
	if r.wrong != "the high bid stays" {
		a.high = b.Amount
	}
	return eventstore.Taken{Event: b.Event.ID, Version: a.changes, Amount: b.Amount, At: b.At}, nil
}

func (r *rows) CloseAuction(_ context.Context, c eventstore.Closing) (eventstore.Taken, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.Auction == "" || c.Request == "" || c.Event.ID.IsZero() {
		return eventstore.Taken{}, invalid("close")
	}
	a := r.auctions[c.Auction]
	switch {
	case a == nil:
		return eventstore.Taken{}, eventstore.RefuseBid("close", eventstore.BidRefusal{Code: eventstore.BidClosed, Missing: true})
	case a.shut && a.byWhom == c.Request:
		again := a.closed
		again.Replayed = true
		return again, nil
	case a.shut:
		return eventstore.Taken{}, eventstore.RefuseBid("close", eventstore.BidRefusal{Code: eventstore.BidClosed, High: a.high, HighKnown: true})
	}
	a.changes++
	a.shut, a.byWhom = true, c.Request
	a.closed = eventstore.Taken{Event: c.Event.ID, Version: a.changes, High: a.high, Bidder: a.bidder}
	if r.wrong == "the closing shows the opening price" {
		a.closed.High = a.price
	}
	return a.closed, nil
}

func TestTheBiddingSuiteLetsACorrectStorePass(t *testing.T) {
	RunBidding(t, func(testing.TB) func(testing.TB) eventstore.Bidding {
		r := &rows{auctions: map[string]*auctionRow{}}
		return func(testing.TB) eventstore.Bidding { return r }
	})
}

func TestTheBiddingSuiteCatchesWrongStores(t *testing.T) {
	for _, wrong := range []string{
		"equal bids win", "bids after the close", "stale before replay", "closed before replay", "no look at the body",
		"a fresh time for replays", "a replay names its own event", "replays are not marked", "a closed auction is called stale",
		"the high bid stays", "the closing shows the opening price",
	} {
		t.Run(wrong, func(t *testing.T) {
			for _, c := range biddingChecks {
				r := &rows{auctions: map[string]*auctionRow{}, wrong: wrong}
				if err := c.check(t.Context(), func() eventstore.Bidding { return r }); err != nil {
					t.Logf("%s: %v", c.name, err)
					return
				}
			}
			t.Error("nobody noticed")
		})
	}
}
