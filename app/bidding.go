package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/eventproof/eventproof/domain/auction"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/record"
)

// Bidder is the command loop of auctions in their native form. It loads and decides nothing: the store's own condition
// does, in the one statement that also has the effect. It is safe for concurrent use.
type Bidder struct {
	h       *Handler
	bidding eventstore.Bidding
}

// NewBidder returns a bidder on the recorder's bidding. Of the configuration it needs recorder, gate, clock, source and
// bounds.
func NewBidder(cfg Config, bidding eventstore.Bidding) *Bidder {
	return &Bidder{h: NewHandler(cfg), bidding: bidding}
}

// Do runs a command to its answer. The same operation is sent again after an unknown try, and after one that the store
// was too busy for, until the deadline: bid ids and requests are the caller's, so that it can't happen twice. A refusal
// is answered when it is final, which excludes every earlier try; that of a missing auction only where no earlier try is
// open. The deadline ends in unknown if one is, else in a retriable refusal.
func (b *Bidder) Do(ctx context.Context, c Call) Result {
	return b.h.conduct(ctx, c, func(ctx context.Context, rec *record.Call) (history.CallEnd, error, error) {
		r := &bidRun{b: b, rec: rec, call: c, open: c.Continued}
		end, err := r.run(ctx)
		switch {
		case crashed(err):
			return history.CallEnd{}, nil, points.ErrCrashed
		case err != nil:
			return history.CallEnd{Result: history.ResultUnknown, Code: CodeUnknown, Retriable: true, Text: err.Error()}, err, nil
		}
		return end, r.cause, nil
	})
}

// bidRun is one call in progress.
type bidRun struct {
	b       *Bidder
	rec     *record.Call
	call    Call
	command auction.Command
	event   eventstore.NewEvent
	tries   int
	unknown bool  // a try of this call ended unknown
	open    bool  // so, or one of the call that this one continues may have
	cause   error // why it is no ok, for people
}

// run sends the command's operation until it is answered for good. An error leaves the outcome open.
func (r *bidRun) run(ctx context.Context) (history.CallEnd, error) {
	if err := r.at(ctx, points.WriterBeforeLoad); err != nil {
		return history.CallEnd{}, err
	}
	send, err := r.operation(r.b.h.cfg.Clock.Wall())
	var no *auction.Refusal
	switch {
	case errors.As(err, &no):
		return r.denied(no), nil
	case err != nil:
		return r.failed(err)
	}
	if err := r.at(ctx, points.WriterAfterDecide); err != nil {
		return history.CallEnd{}, err
	}
	for {
		taken, err := r.attempt(ctx, send)
		if err == nil {
			return r.accepted(taken), nil
		}
		if crashed(err) {
			return history.CallEnd{}, err
		}
		end, settled, err := r.refused(ctx, err)
		if err != nil || settled {
			return end, err
		}
	}
}

// operation makes what is sent, once: a repeat is the same.
func (r *bidRun) operation(now time.Time) (func(context.Context) (eventstore.Taken, error), error) {
	c, err := auction.ParseCommand(r.call.Name, r.call.Body)
	if err != nil {
		return nil, err
	}
	if auction.Stream(c.Auction) != r.call.Stream {
		return nil, fmt.Errorf("app: command %s for stream %s names auction %q", r.call.ID, r.call.Stream, c.Auction)
	}
	typ, data, err := auction.Claim(c, now)
	r.command = c
	if err != nil {
		return nil, err
	}
	r.event = eventstore.NewEvent{
		ID: r.b.h.newEventID(), Type: typ, Data: data,
		Meta: eventstore.Metadata{CommandID: r.call.ID, SchemaVersion: auction.SchemaVersion},
	}
	stream, at, bidding := r.call.Stream, now.UnixMilli(), r.b.bidding
	switch c.Name {
	case auction.CommandCreate:
		o := eventstore.Opening{Auction: stream, Request: r.call.ID, Price: c.Amount, At: at, Event: r.event}
		return func(ctx context.Context) (eventstore.Taken, error) { return bidding.OpenAuction(ctx, o) }, nil
	case auction.CommandClose:
		o := eventstore.Closing{Auction: stream, Request: r.call.ID, At: at, Event: r.event}
		return func(ctx context.Context) (eventstore.Taken, error) { return bidding.CloseAuction(ctx, o) }, nil
	}
	o := eventstore.Bid{Auction: stream, ID: c.BidID, Bidder: c.Bidder, Amount: c.Amount, At: at, Event: r.event}
	return func(ctx context.Context) (eventstore.Taken, error) { return bidding.PlaceBid(ctx, o) }, nil
}

func (r *bidRun) attempt(ctx context.Context, send func(context.Context) (eventstore.Taken, error)) (eventstore.Taken, error) {
	ctx, cancel := context.WithTimeout(ctx, r.b.h.cfg.Try)
	defer cancel()
	r.tries++
	return send(ctx)
}

// refused makes of a try that was not accepted either the call's end, or nothing after a pause. The error leaves the
// outcome open.
func (r *bidRun) refused(ctx context.Context, err error) (end history.CallEnd, settled bool, _ error) {
	outcome, reason := eventstore.Classify(err)
	var no *eventstore.BidRefusal
	switch {
	case outcome == eventstore.Unknown:
		r.unknown, r.open = true, true
		if err := r.at(ctx, points.WriterAfterUnknown); err != nil {
			return history.CallEnd{}, false, err
		}
	case errors.As(err, &no) && (no.Final() || !r.open):
		if r.unknown {
			if err := r.rec.Evidence(history.E5FinalRefusal, r.event.ID, eventstore.Fail, 0); err != nil {
				return history.CallEnd{}, false, err
			}
		}
		return r.denied(r.denial(no)), true, nil
	case final(reason) && !r.open:
		end, err := r.failed(err)
		return end, true, err
	}
	if pauseErr := r.b.h.pause(ctx, r.tries-1); pauseErr == nil {
		return history.CallEnd{}, false, nil
	}
	if r.open {
		return history.CallEnd{}, false, fmt.Errorf("app: %d tries until the deadline: %w", r.tries, err)
	}
	r.cause = err
	code := auction.Internal
	if reason.Retriable() && reason != eventstore.NotSent {
		code = auction.Throttled
	}
	return r.denied(auction.Deny(auction.State{}, r.command, code)), true, nil
}

// denial is the business answer that belongs to a refusal of the store.
func (r *bidRun) denial(no *eventstore.BidRefusal) *auction.Refusal {
	s := auction.State{High: no.High}
	code := auction.Internal
	switch no.Code {
	case eventstore.BidStale:
		code, s.Status = auction.StaleBid, auction.Open
	case eventstore.BidClosed:
		code = auction.AuctionClosed
		if !no.Missing {
			s.Status = auction.Closed
		}
	case eventstore.BidAltered:
		code = auction.InvalidPayload
	case eventstore.AuctionExists:
		code = auction.AlreadyExists
	}
	return auction.Deny(s, r.command, code)
}

func (r *bidRun) denied(no *auction.Refusal) history.CallEnd {
	return history.CallEnd{
		Result: history.ResultRefused, Code: no.Code, Retriable: no.Retriable, Text: no.Error(), Have: no.Have, Want: no.Want,
	}
}

// failed ends the call as failed. One that continues another can't speak for what that one had sent.
func (r *bidRun) failed(err error) (history.CallEnd, error) {
	if r.call.Continued {
		return history.CallEnd{}, err
	}
	r.cause = err
	return history.CallEnd{Result: history.ResultFailed, Code: CodeFailed, Text: CodeFailed + " - " + err.Error()}, nil
}

func (r *bidRun) accepted(t eventstore.Taken) history.CallEnd {
	end := history.CallEnd{
		Result: history.ResultOK, Version: t.Version, Events: []eventstore.EventID{t.Event}, Replayed: t.Replayed,
	}
	switch r.command.Name {
	case auction.CommandBid:
		end.Want, end.At = t.Amount, t.At
	case auction.CommandClose:
		end.Have = t.High
	}
	return end
}

func (r *bidRun) at(ctx context.Context, p points.Point) error { return r.b.h.cfg.Gate.At(ctx, p, 0) }
