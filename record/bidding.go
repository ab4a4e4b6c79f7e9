package record

import (
	"context"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
)

// Bidding returns a bidding that records every attempt: an operation is a write of its one event, at any version. What
// can't be recorded fails with reason NotSent and never reaches inner.
func Bidding(inner eventstore.Bidding, r *Recorder) eventstore.Bidding {
	return &bidding{inner, store{r: r}}
}

type bidding struct {
	inner eventstore.Bidding
	store store
}

// OpenAuction implements eventstore.Bidding.
func (b *bidding) OpenAuction(ctx context.Context, o eventstore.Opening) (eventstore.Taken, error) {
	return b.attempt(ctx, "open", o.Auction, o.Request, o.Event, func(ctx context.Context) (eventstore.Taken, error) {
		return b.inner.OpenAuction(ctx, o)
	})
}

// PlaceBid implements eventstore.Bidding.
func (b *bidding) PlaceBid(ctx context.Context, o eventstore.Bid) (eventstore.Taken, error) {
	return b.attempt(ctx, "bid", o.Auction, o.ID, o.Event, func(ctx context.Context) (eventstore.Taken, error) {
		return b.inner.PlaceBid(ctx, o)
	})
}

// CloseAuction implements eventstore.Bidding.
func (b *bidding) CloseAuction(ctx context.Context, o eventstore.Closing) (eventstore.Taken, error) {
	return b.attempt(ctx, "close", o.Auction, o.Request, o.Event, func(ctx context.Context) (eventstore.Taken, error) {
		return b.inner.CloseAuction(ctx, o)
	})
}

func (b *bidding) attempt(ctx context.Context, op, stream, request string, event eventstore.NewEvent,
	send func(context.Context) (eventstore.Taken, error),
) (eventstore.Taken, error) {
	r := b.store.r
	w, known := b.store.write(callFrom(ctx), eventstore.Append{
		Stream: stream, Expected: eventstore.Any(), Request: request, Events: []eventstore.NewEvent{event},
	})
	inv := history.Invoke{Attempt: r.id(), Write: w.Write, T: r.clk.Now()}
	if err := b.store.invoke(callFrom(ctx), w, known, &inv); err != nil {
		return eventstore.Taken{}, notSent(op, err)
	}

	tr := trace(ctx)
	taken, err := send(eventstore.WithTrace(ctx, &tr.hooks))

	ret := history.Return{Attempt: inv.Attempt, T: r.clk.Now(), Text: shorten(err)}
	ret.Outcome, ret.Reason = eventstore.Classify(err)
	if err == nil {
		ret.First, ret.Last, ret.Replayed = taken.Version, taken.Version, taken.Replayed
		ret.Events = []eventstore.EventID{taken.Event}
	}
	ret.Session, ret.DriverRetries, ret.RoundTrips = tr.told()
	if rerr := r.write(&ret); rerr != nil {
		return eventstore.Taken{}, unrecorded(op, eventstore.Unknown, err, rerr)
	}
	return taken, err
}
