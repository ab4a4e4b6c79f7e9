package app_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/eventproof/eventproof/app"
	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/domain/auction"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/record"
)

// house answers each operation with the next of its answers; the last one stays.
type house struct {
	answers []houseAnswer
	asked   []eventstore.EventID
	bids    []eventstore.Bid
}

type houseAnswer struct {
	taken eventstore.Taken
	err   error
}

func (h *house) next(e eventstore.NewEvent) (eventstore.Taken, error) {
	a := h.answers[min(len(h.asked), len(h.answers)-1)]
	h.asked = append(h.asked, e.ID)
	if a.err == nil && a.taken.Event.IsZero() {
		a.taken.Event = e.ID
	}
	return a.taken, a.err
}

func (h *house) OpenAuction(_ context.Context, o eventstore.Opening) (eventstore.Taken, error) {
	return h.next(o.Event)
}

func (h *house) PlaceBid(_ context.Context, b eventstore.Bid) (eventstore.Taken, error) {
	h.bids = append(h.bids, b)
	return h.next(b.Event)
}

func (h *house) CloseAuction(_ context.Context, c eventstore.Closing) (eventstore.Taken, error) {
	return h.next(c.Event)
}

// gateAt lets a role crash at one point.
type gateAt points.Point

func (g gateAt) At(_ context.Context, p points.Point, _ uint64) error {
	if p == points.Point(g) {
		return points.ErrCrashed
	}
	return nil
}

// newBidder returns a bidder on a house, and what reads its history.
func newBidder(t *testing.T, h *house, gate points.Gate) (*app.Bidder, *writer) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bidder"+history.SegmentExt)
	segment, err := history.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = segment.Close() })
	rec := record.New(segment, clock.System{}, 1)
	b := app.NewBidder(app.Config{
		Recorder: rec, Gate: gate, Clock: clock.System{}, Rand: rand.New(rand.NewPCG(1, 1)), Deadline: 60 * time.Millisecond, Try: 20 * time.Millisecond,
	}, record.Bidding(h, rec))
	return b, &writer{t: t, path: path, segment: segment}
}

func no(code eventstore.BidCode, high int64) houseAnswer {
	return houseAnswer{err: eventstore.RefuseBid("bid", eventstore.BidRefusal{Code: code, High: high, HighKnown: true})}
}

func tryFails(outcome eventstore.Outcome, reason eventstore.Reason) houseAnswer {
	return houseAnswer{err: &eventstore.Error{Op: "bid", Outcome: outcome, Reason: reason}}
}

func TestANativeBidIsAnsweredByWhatTheStoreSays(t *testing.T) {
	missing := houseAnswer{err: eventstore.RefuseBid("bid", eventstore.BidRefusal{Code: eventstore.BidClosed, Missing: true})}
	lost := tryFails(eventstore.Unknown, eventstore.LostReply)
	busy := tryFails(eventstore.Fail, eventstore.TransactionConflict)
	yes := houseAnswer{taken: eventstore.Taken{Version: 4, Amount: 500, At: 77}}
	replay := houseAnswer{taken: eventstore.Taken{Event: eventstore.EventID{9}, Version: 2, Replayed: true, Amount: 500, At: 7}}
	for _, c := range []struct {
		name      string
		answers   []houseAnswer
		continued bool
		result    history.Result
		wire      string // of a refusal
		retriable bool
		version   uint64
		at        int64
		tries     int // 0: several
		evidence  int
	}{
		{name: "accepted", answers: []houseAnswer{yes}, result: history.ResultOK, version: 4, at: 77, tries: 1},
		{name: "a replay", answers: []houseAnswer{replay}, result: history.ResultOK, version: 2, at: 7, tries: 1},
		{name: "stale", answers: []houseAnswer{no(eventstore.BidStale, 750)}, result: history.ResultRefused, wire: "STALE_BID - high bid is 750, bid of 500 loses", tries: 1},
		{name: "closed", answers: []houseAnswer{no(eventstore.BidClosed, 750)}, result: history.ResultRefused, wire: "AUCTION_CLOSED - auction x is closed", tries: 1},
		{name: "missing", answers: []houseAnswer{missing}, result: history.ResultRefused, wire: "AUCTION_CLOSED - auction x is missing", tries: 1},
		{name: "altered", answers: []houseAnswer{no(eventstore.BidAltered, 0)}, result: history.ResultRefused, wire: "INVALID_PAYLOAD - bid b1 was accepted with another body", tries: 1},
		{name: "unknown, then accepted", answers: []houseAnswer{lost, yes}, result: history.ResultOK, version: 4, at: 77, tries: 2},
		{name: "unknown, then stale: excluded by evidence", answers: []houseAnswer{lost, no(eventstore.BidStale, 750)}, result: history.ResultRefused,
			wire: "STALE_BID - high bid is 750, bid of 500 loses", tries: 2, evidence: 1},
		{name: "unknown, then missing: not final", answers: []houseAnswer{lost, missing}, result: history.ResultUnknown},
		{name: "continued, and missing: not final", continued: true, answers: []houseAnswer{missing}, result: history.ResultUnknown},
		{name: "continued, and stale", continued: true, answers: []houseAnswer{no(eventstore.BidStale, 750)}, result: history.ResultRefused,
			wire: "STALE_BID - high bid is 750, bid of 500 loses", tries: 1},
		{name: "unknown for ever", answers: []houseAnswer{lost}, result: history.ResultUnknown},
		{name: "too busy, then accepted", answers: []houseAnswer{busy, busy, yes}, result: history.ResultOK, version: 4, at: 77, tries: 3},
		{name: "too busy for ever", answers: []houseAnswer{busy}, result: history.ResultRefused, wire: "THROTTLED - the store is too busy", retriable: true},
		{name: "out of reach for ever", answers: []houseAnswer{tryFails(eventstore.Fail, eventstore.NotSent)}, result: history.ResultRefused,
			wire: "INTERNAL - the store can't be asked now", retriable: true},
		{name: "unknown, then too busy for ever", answers: []houseAnswer{lost, busy}, result: history.ResultUnknown},
		{name: "refused for good", answers: []houseAnswer{tryFails(eventstore.Fail, eventstore.Rejected)}, result: history.ResultFailed, tries: 1},
		{name: "unknown, then refused for good: not settled", answers: []houseAnswer{lost, tryFails(eventstore.Fail, eventstore.Rejected)}, result: history.ResultUnknown},
		{name: "an error of no kind is unknown", answers: []houseAnswer{{err: errors.New("boom")}, yes}, result: history.ResultOK, version: 4, at: 77, tries: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := &house{answers: c.answers}
			b, w := newBidder(t, h, points.Open{})
			r := b.Do(t.Context(), app.Call{Command: bid(t, "c1", "b1", 500), Continued: c.continued})
			if !r.Answered || r.Result != c.result || r.Version != c.version || r.At != c.at {
				t.Fatalf("answered %+v, %v", r.CallEnd, r.Err)
			}
			if c.result == history.ResultRefused && (r.Text != c.wire || r.Retriable != c.retriable || r.Want != 500) {
				t.Errorf("refused with %+v, want %q", r.CallEnd, c.wire)
			}
			if c.result == history.ResultOK && (r.Want != 500 || len(r.Events) != 1) {
				t.Errorf("accepted with %+v", r.CallEnd)
			}
			if len(h.asked) != c.tries && c.tries != 0 || c.tries == 0 && len(h.asked) < 2 {
				t.Errorf("the store was asked %d times, want %d", len(h.asked), c.tries)
			}
			for _, o := range h.bids {
				if o.ID != h.bids[0].ID || o.Event.ID != h.bids[0].Event.ID || o.At != h.bids[0].At {
					t.Errorf("a repeat asks for %+v, the first try for %+v", o, h.bids[0])
				}
			}
			if got := w.evidence(); len(got) != c.evidence || c.evidence > 0 && (got[0].Form != history.E5FinalRefusal || got[0].Outcome != eventstore.Fail) {
				t.Errorf("evidence %+v", got)
			}
		})
	}
}

func TestOpeningAndClosingANativeAuction(t *testing.T) {
	h := &house{answers: []houseAnswer{
		{taken: eventstore.Taken{Version: 1}}, no(eventstore.AuctionExists, 100), {taken: eventstore.Taken{Version: 2, High: 100}}, no(eventstore.BidClosed, 100),
	}}
	b, _ := newBidder(t, h, points.Open{})
	do := func(id, name string, amount int64) app.Result {
		return b.Do(t.Context(), app.Call{Command: auctionCommand(t, id, auction.Command{Name: name, Amount: amount})})
	}
	if r := do("c1", auction.CommandCreate, 100); r.Result != history.ResultOK || r.Version != 1 {
		t.Errorf("opened with %+v", r.CallEnd)
	}
	if r := do("c2", auction.CommandCreate, 100); r.Text != "ALREADY_EXISTS - auction x exists" {
		t.Errorf("opened again with %+v", r.CallEnd)
	}
	if r := do("c3", auction.CommandClose, 0); r.Result != history.ResultOK || r.Have != 100 || r.Want != 0 {
		t.Errorf("closed with %+v", r.CallEnd)
	}
	if r := do("c4", auction.CommandClose, 0); r.Code != auction.AuctionClosed {
		t.Errorf("closed again with %+v", r.CallEnd)
	}
	if r := do("c5", auction.CommandCreate, -1); r.Code != auction.InvalidAmount || len(h.asked) != 4 {
		t.Errorf("an impossible price gives %+v after %d questions", r.CallEnd, len(h.asked))
	}
	if r := b.Do(t.Context(), app.Call{Command: app.Command{ID: "c6", Stream: "auction-y", Name: "bid", Body: bid(t, "", "b1", 5).Body}}); r.Result != history.ResultFailed {
		t.Errorf("a bid for another auction gives %+v", r.CallEnd)
	}
}

func TestACrashedBidderAnswersNothing(t *testing.T) {
	for _, p := range []points.Point{points.WriterBeforeLoad, points.WriterAfterDecide, points.WriterAfterUnknown, points.WriterBeforeAnswer} {
		h := &house{answers: []houseAnswer{tryFails(eventstore.Unknown, eventstore.LostReply), {taken: eventstore.Taken{Version: 2}}}}
		b, w := newBidder(t, h, gateAt(p))
		if r := b.Do(t.Context(), app.Call{Command: bid(t, "c1", "b1", 500)}); r.Answered || !errors.Is(r.Err, points.ErrCrashed) {
			t.Errorf("%s: %+v, %v", p, r.CallEnd, r.Err)
		}
		for _, rec := range w.records() {
			if rec.Kind() == history.KindCallEnd {
				t.Errorf("%s: an answer is recorded", p)
			}
		}
	}
}
