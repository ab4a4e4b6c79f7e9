package record_test

import (
	"context"
	"errors"
	"testing"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/record"
)

// auctioneer is a bidding whose answer a test sets.
type auctioneer struct {
	taken  eventstore.Taken
	err    error
	during func()
	calls  int
}

func (a *auctioneer) answer(ctx context.Context) (eventstore.Taken, error) {
	a.calls++
	if a.during != nil {
		a.during()
	}
	eventstore.TraceFrom(ctx).Session("writer-1/4")
	return a.taken, a.err
}

func (a *auctioneer) OpenAuction(ctx context.Context, _ eventstore.Opening) (eventstore.Taken, error) {
	return a.answer(ctx)
}

func (a *auctioneer) PlaceBid(ctx context.Context, _ eventstore.Bid) (eventstore.Taken, error) {
	return a.answer(ctx)
}

func (a *auctioneer) CloseAuction(ctx context.Context, _ eventstore.Closing) (eventstore.Taken, error) {
	return a.answer(ctx)
}

func bidEvent(id byte) eventstore.NewEvent {
	return eventstore.NewEvent{ID: eventstore.EventID{id}, Type: "BidAccepted", Data: []byte(`{"amount":5}`)}
}

func TestABidIsAWriteOfItsEventAndARepeatAnAttemptOfIt(t *testing.T) {
	b := newBed(t)
	ctx, _ := b.begin(t)
	inner := &auctioneer{err: &eventstore.Error{Op: "bid", Outcome: eventstore.Unknown, Reason: eventstore.LostReply}}
	inner.during = func() {
		if got := b.kinds(t); got != "call-start write invoke " {
			t.Errorf("when the store is asked the file holds %s", got)
		}
	}
	bids := record.Bidding(inner, b.r)
	bid := eventstore.Bid{Auction: "auction-a", ID: "b1", Bidder: "ada", Amount: 5, At: 9, Event: bidEvent(1)}
	if _, err := bids.PlaceBid(ctx, bid); err == nil {
		t.Fatal("the error was swallowed")
	}
	inner.during, inner.err = nil, nil
	inner.taken = eventstore.Taken{Event: eventstore.EventID{1}, Version: 3, Replayed: true, Amount: 5, At: 9}
	if got, err := bids.PlaceBid(ctx, bid); err != nil || got != inner.taken {
		t.Fatalf("got %+v, %v", got, err)
	}
	recs := b.records(t)
	writes, invokes, returns := find[*history.Write](t, recs), find[*history.Invoke](t, recs), find[*history.Return](t, recs)
	if len(writes) != 1 || len(invokes) != 2 || len(returns) != 2 || inner.calls != 2 {
		t.Fatalf("%d writes, %d invokes, %d returns, %d calls", len(writes), len(invokes), len(returns), inner.calls)
	}
	w := writes[0]
	if !w.Any || w.Stream != "auction-a" || w.Request != "b1" || len(w.Events) != 1 || w.Events[0].ID != bid.Event.ID ||
		w.Events[0].Payload != eventstore.PayloadHash("BidAccepted", []byte(`{"amount":5}`)) || w.Decision != (eventstore.Decision{}) {
		t.Errorf("the write says %+v", w)
	}
	first, second := returns[0], returns[1]
	if first.Outcome != eventstore.Unknown || first.Reason != eventstore.LostReply || first.Session != "writer-1/4" {
		t.Errorf("the lost try says %+v", first)
	}
	if second.Outcome != eventstore.OK || second.First != 3 || second.Last != 3 || !second.Replayed ||
		len(second.Events) != 1 || second.Events[0] != bid.Event.ID || second.T <= invokes[1].T {
		t.Errorf("the repeat says %+v", second)
	}
}

func TestARefusedOperationSaysSoInTheHistory(t *testing.T) {
	b := newBed(t)
	ctx, _ := b.begin(t)
	bids := record.Bidding(&auctioneer{err: eventstore.RefuseBid("close", eventstore.BidRefusal{Code: eventstore.BidClosed, High: 7, HighKnown: true})}, b.r)
	for _, do := range []func() (eventstore.Taken, error){
		func() (eventstore.Taken, error) {
			return bids.OpenAuction(ctx, eventstore.Opening{Auction: "auction-a", Request: "c-1", Event: bidEvent(1)})
		},
		func() (eventstore.Taken, error) {
			return bids.CloseAuction(ctx, eventstore.Closing{Auction: "auction-a", Request: "c-1", Event: bidEvent(2)})
		},
	} {
		var no *eventstore.BidRefusal
		if _, err := do(); !errors.As(err, &no) || no.High != 7 {
			t.Errorf("the refusal came out as %v", err)
		}
	}
	returns := find[*history.Return](t, b.records(t))
	if len(returns) != 2 || returns[1].Outcome != eventstore.Fail || returns[1].Reason != eventstore.Refused || returns[1].Text == "" {
		t.Errorf("%+v", returns)
	}
}

func TestAKilledProcessBidsNothing(t *testing.T) {
	b := newBed(t)
	ctx, _ := b.begin(t)
	b.w.Kill()
	inner := &auctioneer{}
	_, err := record.Bidding(inner, b.r).PlaceBid(ctx, eventstore.Bid{Auction: "auction-a", ID: "b1", Event: bidEvent(1)})
	if outcome, reason := eventstore.Classify(err); outcome != eventstore.Fail || reason != eventstore.NotSent || inner.calls != 0 {
		t.Errorf("got %v after %d calls", err, inner.calls)
	}
}
