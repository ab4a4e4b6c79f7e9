package storetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/eventproof/eventproof/eventstore"
)

// OpenBidding prepares a fresh, empty place for auctions in their native form. Every call of connect opens one more
// connection to it.
type OpenBidding func(t testing.TB) (connect func(t testing.TB) eventstore.Bidding)

// RunBidding runs the conformance suite of eventstore.Bidding.
func RunBidding(t *testing.T, open OpenBidding) {
	for _, c := range biddingChecks {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			connect := open(t)
			if err := c.check(t.Context(), func() eventstore.Bidding { return connect(t) }); err != nil {
				t.Error(err)
			}
		})
	}
}

// biddingCheck is one property; its error says how it was broken.
type biddingCheck struct {
	name  string
	check func(ctx context.Context, connect func() eventstore.Bidding) error
}

var biddingChecks = []biddingCheck{
	{"operations are answered in the order replay, altered, closed, stale", bidOrder},
	{"a replay is answered with the first acceptance, also on another connection", bidReplay},
	{"of many equal bids at once exactly one is accepted", bidEqual},
	{"a bid repeated by many at once is accepted once", bidRepeated},
	{"bids at once are accepted only upwards, and the closing shows the highest", bidRace},
	{"no bid is accepted after the closing was answered", bidClose},
	{"a cancelled bid never fails and lands", bidCancelled},
	{"a malformed operation is invalid", bidMalformed},
}

// lot is the auction of the suite.
const lot = "auction-lot-1"

func bidEvent(name string) eventstore.NewEvent {
	var id eventstore.EventID
	copy(id[:], name)
	binary.BigEndian.PutUint32(id[12:], uint32(len(name)))
	return eventstore.NewEvent{ID: id}
}

func opening(request string) eventstore.Opening {
	return eventstore.Opening{Auction: lot, Request: request, Price: 100, At: 1000, Event: bidEvent("open-" + request)}
}

func closing(request string) eventstore.Closing {
	return eventstore.Closing{Auction: lot, Request: request, At: 9000, Event: bidEvent("close-" + request)}
}

// bidOf makes a bid; event names its event, which a blind retry repeats.
func bidOf(event, id, bidder string, amount int64) eventstore.Bid {
	return eventstore.Bid{Auction: lot, ID: id, Bidder: bidder, Amount: amount, At: 2000 + amount, Event: bidEvent(event)}
}

// bidAnswer is an answer in words, the count of changes left out.
func bidAnswer(taken eventstore.Taken, err error) string {
	if err == nil {
		s := fmt.Sprintf("taken by %s, amount %d, at %d", strings.TrimRight(string(taken.Event[:12]), "\x00"), taken.Amount, taken.At)
		if taken.High != 0 || taken.Bidder != "" {
			s = fmt.Sprintf("closed by %s at %d by %q", strings.TrimRight(string(taken.Event[:12]), "\x00"), taken.High, taken.Bidder)
		}
		if taken.Replayed {
			s += ", replayed"
		}
		return s
	}
	var no *eventstore.BidRefusal
	if outcome, reason := eventstore.Classify(err); errors.As(err, &no) && outcome == eventstore.Fail && reason == eventstore.Refused {
		return strings.TrimPrefix(no.Error(), "eventstore: ")
	}
	return fmt.Sprintf("no answer: %v", err)
}

// retriable: it had no effect, and the same operation is welcome again.
func retriable(err error) bool {
	outcome, reason := eventstore.Classify(err)
	return err != nil && outcome == eventstore.Fail &&
		(reason == eventstore.TransactionConflict || reason == eventstore.Throttled || reason == eventstore.LostRace)
}

// insist repeats an operation while the store is too busy for it.
func insist(ctx context.Context, do func() (eventstore.Taken, error)) (taken eventstore.Taken, err error) {
	for range 1000 {
		if taken, err = do(); !retriable(err) || ctx.Err() != nil {
			return taken, err
		}
	}
	return taken, err
}

func openLot(ctx context.Context, b eventstore.Bidding) error {
	if got := bidAnswer(b.OpenAuction(ctx, opening("o"))); got != "taken by open-o, amount 0, at 0" {
		return fmt.Errorf("the opening was answered: %s", got)
	}
	return nil
}

func bidOrder(ctx context.Context, connect func() eventstore.Bidding) error {
	b := connect()
	place := func(o eventstore.Bid) func() (eventstore.Taken, error) {
		return func() (eventstore.Taken, error) { return b.PlaceBid(ctx, o) }
	}
	open := func(o eventstore.Opening) func() (eventstore.Taken, error) {
		return func() (eventstore.Taken, error) { return b.OpenAuction(ctx, o) }
	}
	shut := func(o eventstore.Closing) func() (eventstore.Taken, error) {
		return func() (eventstore.Taken, error) { return b.CloseAuction(ctx, o) }
	}
	for _, c := range []struct {
		name    string
		do      func() (eventstore.Taken, error)
		want    string
		version uint64 // of a store that tells it
	}{
		{"a bid on a missing auction", place(bidOf("e0", "b0", "ada", 500)), "refused: closed, the auction is missing", 0},
		{"closing a missing auction", shut(closing("c0")), "refused: closed, the auction is missing", 0},
		{"opening", open(opening("o1")), "taken by open-o1, amount 0, at 0", 1},
		{"opening again", open(opening("o1")), "taken by open-o1, amount 0, at 0, replayed", 1},
		{"opening by another request", open(opening("o2")), "refused: exists, high bid 100", 0},
		{"a bid equal to the opening price", place(bidOf("e9", "b9", "ada", 100)), "refused: stale, high bid 100", 0},
		{"the first bid", place(bidOf("e1", "b1", "ada", 500)), "taken by e1, amount 500, at 2500", 2},
		{"its blind retry", place(bidOf("e1", "b1", "ada", 500)), "taken by e1, amount 500, at 2500, replayed", 2},
		{"its replay, which also looks stale", place(bidOf("e2", "b1", "ada", 500)), "taken by e1, amount 500, at 2500, replayed", 2},
		{"an equal bid", place(bidOf("e3", "b3", "bob", 500)), "refused: stale, high bid 500", 0},
		{"the same id with a lower amount", place(bidOf("e4", "b1", "ada", 400)), "refused: altered, high bid 500", 0},
		{"the same id of another bidder", place(bidOf("e4", "b1", "bob", 500)), "refused: altered, high bid 500", 0},
		{"a higher bid", place(bidOf("e5", "b5", "bob", 750)), "taken by e5, amount 750, at 2750", 3},
		{"the replay of one that was outbid", place(bidOf("e6", "b1", "ada", 500)), "taken by e1, amount 500, at 2500, replayed", 2},
		{"closing", shut(closing("c1")), `closed by close-c1 at 750 by "bob"`, 4},
		{"closing by the same request", shut(closing("c1")), `closed by close-c1 at 750 by "bob", replayed`, 4},
		{"closing by another", shut(closing("c2")), "refused: closed, high bid 750", 0},
		{"a higher bid on the closed auction", place(bidOf("e7", "b7", "ada", 900)), "refused: closed, high bid 750", 0},
		{"a replay on the closed auction", place(bidOf("e8", "b1", "ada", 500)), "taken by e1, amount 500, at 2500, replayed", 2},
		{"another body on the closed auction", place(bidOf("e8", "b1", "ada", 900)), "refused: altered, high bid 750", 0},
	} {
		taken, err := insist(ctx, c.do)
		got := bidAnswer(taken, err)
		var no *eventstore.BidRefusal
		if errors.As(err, &no) && no.Code == eventstore.BidAltered && !no.HighKnown {
			got += ", high bid " + c.want[strings.LastIndex(c.want, " ")+1:] // what it is need not be shown here
		}
		if got != c.want {
			return fmt.Errorf("%s: %s; want: %s", c.name, got, c.want)
		}
		if taken.Version != 0 && taken.Version != c.version {
			return fmt.Errorf("%s: change %d, want %d", c.name, taken.Version, c.version)
		}
	}
	return nil
}

func bidReplay(ctx context.Context, connect func() eventstore.Bidding) error {
	first, second := connect(), connect()
	if err := openLot(ctx, first); err != nil {
		return err
	}
	if got := bidAnswer(first.PlaceBid(ctx, bidOf("e1", "b1", "ada", 500))); got != "taken by e1, amount 500, at 2500" {
		return fmt.Errorf("the first bid: %s", got)
	}
	later := bidOf("e2", "b1", "ada", 500)
	later.At = 7777
	if got := bidAnswer(second.PlaceBid(ctx, later)); got != "taken by e1, amount 500, at 2500, replayed" {
		return fmt.Errorf("its replay by another process: %s", got)
	}
	return nil
}

// atOnce runs n operations side by side on connections of their own.
func atOnce(n int, connect func() eventstore.Bidding, do func(i int, b eventstore.Bidding)) {
	var all sync.WaitGroup
	for i := range n {
		b := connect()
		all.Go(func() { do(i, b) })
	}
	all.Wait()
}

const bidders = 12

func bidEqual(ctx context.Context, connect func() eventstore.Bidding) error {
	if err := openLot(ctx, connect()); err != nil {
		return err
	}
	answers := make([]string, bidders)
	atOnce(bidders, connect, func(i int, b eventstore.Bidding) {
		name := fmt.Sprintf("b%d", i)
		answers[i] = bidAnswer(insist(ctx, func() (eventstore.Taken, error) { return b.PlaceBid(ctx, bidOf(name, name, name, 500)) }))
	})
	accepted := 0
	for i, got := range answers {
		switch got {
		case fmt.Sprintf("taken by b%d, amount 500, at 2500", i):
			accepted++
		case "refused: stale, high bid 500":
		default:
			return fmt.Errorf("bid %d: %s", i, got)
		}
	}
	if accepted != 1 {
		return fmt.Errorf("%d of %d equal bids were accepted", accepted, bidders)
	}
	return nil
}

func bidRepeated(ctx context.Context, connect func() eventstore.Bidding) error {
	if err := openLot(ctx, connect()); err != nil {
		return err
	}
	answers := make([]eventstore.Taken, bidders)
	errs := make([]error, bidders)
	atOnce(bidders, connect, func(i int, b eventstore.Bidding) {
		answers[i], errs[i] = insist(ctx, func() (eventstore.Taken, error) {
			return b.PlaceBid(ctx, bidOf(fmt.Sprintf("e%d", i), "b1", "ada", 500))
		})
	})
	first := 0
	for i, got := range answers {
		if errs[i] != nil {
			return fmt.Errorf("try %d: %w", i, errs[i])
		}
		if !got.Replayed {
			first++
		}
		if got.Event != answers[0].Event || got.At != answers[0].At {
			return fmt.Errorf("two tries of one bid were answered %+v and %+v", answers[0], got)
		}
	}
	if first != 1 {
		return fmt.Errorf("%d tries of one bid say that they were the first", first)
	}
	return nil
}

func bidRace(ctx context.Context, connect func() eventstore.Bidding) error {
	if err := openLot(ctx, connect()); err != nil {
		return err
	}
	const each = 10
	var mu sync.Mutex
	highest, accepted := int64(0), map[int64]int{}
	var wrong error
	atOnce(bidders, connect, func(i int, b eventstore.Bidding) {
		for n := range each {
			name, amount := fmt.Sprintf("b%d-%d", i, n), int64(101+(n*37+i*5)%97)
			mu.Lock()
			before := highest
			mu.Unlock()
			taken, err := insist(ctx, func() (eventstore.Taken, error) { return b.PlaceBid(ctx, bidOf(name, name, "ada", amount)) })
			mu.Lock()
			var no *eventstore.BidRefusal
			switch {
			case err == nil && (amount <= before || taken.Amount != amount):
				wrong = fmt.Errorf("a bid of %d was accepted as %d after one of %d", amount, taken.Amount, before)
			case err == nil:
				highest = max(highest, amount)
				accepted[amount]++
			case !errors.As(err, &no) || no.Code != eventstore.BidStale || no.High < max(amount, before):
				wrong = fmt.Errorf("a bid of %d after one of %d was answered: %w", amount, before, err)
			}
			mu.Unlock()
		}
	})
	if wrong != nil {
		return wrong
	}
	for amount, n := range accepted {
		if n > 1 {
			return fmt.Errorf("%d bids of %d were accepted", n, amount)
		}
	}
	got, err := insist(ctx, func() (eventstore.Taken, error) { return connect().CloseAuction(ctx, closing("c")) })
	if err != nil || got.High != highest || highest != 197 {
		return fmt.Errorf("the closing shows %d, the highest accepted bid is %d, the highest bid 197 (%w)", got.High, highest, errors.Join(err))
	}
	return nil
}

func bidClose(ctx context.Context, connect func() eventstore.Bidding) error {
	if err := openLot(ctx, connect()); err != nil {
		return err
	}
	var mu sync.Mutex
	var closed bool
	var shown, highest int64
	var wrong error
	atOnce(bidders, connect, func(i int, b eventstore.Bidding) {
		for n := range 10 {
			if i == 0 && n == 5 {
				got, err := insist(ctx, func() (eventstore.Taken, error) { return b.CloseAuction(ctx, closing("c")) })
				mu.Lock()
				closed, shown = true, got.High
				if err != nil {
					wrong = err
				}
				mu.Unlock()
			}
			mu.Lock()
			late := closed
			mu.Unlock()
			name, amount := fmt.Sprintf("b%d-%d", i, n), int64(101+n*bidders+i)
			_, err := insist(ctx, func() (eventstore.Taken, error) { return b.PlaceBid(ctx, bidOf(name, name, "ada", amount)) })
			mu.Lock()
			if err == nil {
				highest = max(highest, amount)
				if late {
					wrong = fmt.Errorf("a bid of %d was accepted after the closing was answered", amount)
				}
			}
			mu.Unlock()
		}
	})
	if wrong == nil && shown != max(highest, 100) {
		wrong = fmt.Errorf("the closing shows %d, the highest accepted bid is %d", shown, highest)
	}
	return wrong
}

func bidCancelled(ctx context.Context, connect func() eventstore.Bidding) error {
	b := connect()
	if err := openLot(ctx, b); err != nil {
		return err
	}
	for n := range 40 {
		short, cancel := context.WithCancel(ctx)
		name, amount := fmt.Sprintf("b%d", n), int64(101+n)
		stop := make(chan struct{})
		go func() {
			for range n * 50 {
				select {
				case <-stop:
					return
				default:
				}
			}
			cancel()
		}()
		_, err := b.PlaceBid(short, bidOf(name, name, "ada", amount))
		close(stop)
		cancel()
		outcome, _ := eventstore.Classify(err)
		again, rerr := insist(ctx, func() (eventstore.Taken, error) { return b.PlaceBid(ctx, bidOf(name, name, "ada", amount)) })
		switch {
		case rerr != nil:
			return fmt.Errorf("bid %d, cancelled and sent again: %w", n, rerr)
		case err != nil && outcome == eventstore.Fail && again.Replayed:
			return fmt.Errorf("bid %d was answered %w, and had been accepted", n, err)
		case err == nil && !again.Replayed:
			return fmt.Errorf("bid %d was accepted twice", n)
		}
	}
	return nil
}

func bidMalformed(ctx context.Context, connect func() eventstore.Bidding) error {
	b := connect()
	nobody := bidOf("e", "b", "ada", 5)
	nobody.Event.ID = eventstore.EventID{}
	for _, c := range []struct {
		name string
		do   func() (eventstore.Taken, error)
	}{
		{"a bid without an id", func() (eventstore.Taken, error) { return b.PlaceBid(ctx, bidOf("e", "", "ada", 5)) }},
		{"a bid without an event", func() (eventstore.Taken, error) { return b.PlaceBid(ctx, nobody) }},
		{"an opening of nothing", func() (eventstore.Taken, error) { return b.OpenAuction(ctx, eventstore.Opening{}) }},
		{"a closing without a request", func() (eventstore.Taken, error) { return b.CloseAuction(ctx, closing("")) }},
	} {
		if _, err := c.do(); err == nil {
			return fmt.Errorf("%s was carried out", c.name)
		} else if outcome, reason := eventstore.Classify(err); outcome != eventstore.Fail || reason != eventstore.Invalid {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}
