package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eventproof/eventproof/domain/auction"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/eventstore/storetest"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/postgres"
	"github.com/eventproof/eventproof/targets/postgres/internal/pgtest"
)

// lot is a native auction under test.
const lot = "auction-lot-1"

func bidding(t testing.TB, i targets.Instance, e targets.Env) eventstore.Bidding {
	t.Helper()
	s, ok := pgtest.Connect(t, i, "writer", e).(targets.BiddingSession)
	if !ok {
		t.Fatal("the session can't bid")
	}
	return s.Bidding()
}

func openNative(t testing.TB) targets.Instance {
	t.Helper()
	target, parts, ok := postgres.Variant("bid-conditional")
	if !ok {
		t.Fatal("no variant")
	}
	return pgtest.Open(t, postgres.New(target, parts))
}

func event(name string) eventstore.NewEvent { return eventstore.NewEvent{ID: pgtest.EventID(name)} }

func opening(name string) eventstore.Opening {
	return eventstore.Opening{Auction: lot, Request: name, Price: 100, At: 1000, Event: event(name)}
}

func closing(name string) eventstore.Closing {
	return eventstore.Closing{Auction: lot, Request: name, At: 9000, Event: event(name)}
}

// bid makes a bid; attempt names its event.
func bid(attempt, id, bidder string, amount int64) eventstore.Bid {
	return eventstore.Bid{Auction: lot, ID: id, Bidder: bidder, Amount: amount, At: 2000 + amount, Event: event(attempt)}
}

func refusal(err error) string {
	var no *eventstore.BidRefusal
	outcome, reason := eventstore.Classify(err)
	if !errors.As(err, &no) || outcome != eventstore.Fail || reason != eventstore.Refused {
		return fmt.Sprintf("no refusal: %v", err)
	}
	return no.Error()
}

func TestNativeBidsAreAnsweredInTheOrderReplayAlteredClosedStale(t *testing.T) {
	i := openNative(t)
	b := bidding(t, i, pgtest.Env("writer"))
	type answer = func() (eventstore.Taken, error)
	place := func(o eventstore.Bid) answer {
		return func() (eventstore.Taken, error) { return b.PlaceBid(t.Context(), o) }
	}
	open := func(o eventstore.Opening) answer {
		return func() (eventstore.Taken, error) { return b.OpenAuction(t.Context(), o) }
	}
	shut := func(o eventstore.Closing) answer {
		return func() (eventstore.Taken, error) { return b.CloseAuction(t.Context(), o) }
	}
	first := eventstore.Taken{Event: pgtest.EventID("e1"), Version: 2, Amount: 500, At: 2500}
	again := first
	again.Replayed = true
	done := eventstore.Taken{Event: pgtest.EventID("c1"), Version: 4, High: 750, Bidder: "bob"}
	doneAgain := done
	doneAgain.Replayed = true
	for _, c := range []struct {
		name  string
		do    answer
		want  eventstore.Taken
		wants string // the refusal
	}{
		{"a bid on a missing auction", place(bid("e0", "b0", "ada", 500)), eventstore.Taken{}, "eventstore: refused: closed, the auction is missing"},
		{"closing a missing auction", shut(closing("c0")), eventstore.Taken{}, "eventstore: refused: closed, the auction is missing"},
		{"opening", open(opening("o1")), eventstore.Taken{Event: pgtest.EventID("o1"), Version: 1}, ""},
		{"opening by the same request", open(eventstore.Opening{Auction: lot, Request: "o1", Price: 100, Event: event("o1b")}),
			eventstore.Taken{Event: pgtest.EventID("o1"), Version: 1, Replayed: true}, ""},
		{"opening by another", open(opening("o2")), eventstore.Taken{}, "eventstore: refused: exists, high bid 100"},
		{"a bid equal to the opening price", place(bid("e9", "b9", "ada", 100)), eventstore.Taken{}, "eventstore: refused: stale, high bid 100"},
		{"the first bid", place(bid("e1", "b1", "ada", 500)), first, ""},
		{"its blind retry", place(bid("e1", "b1", "ada", 500)), again, ""},
		{"its replay, which also looks stale", place(bid("e2", "b1", "ada", 500)), again, ""},
		{"an equal bid", place(bid("e3", "b3", "bob", 500)), eventstore.Taken{}, "eventstore: refused: stale, high bid 500"},
		{"the same id with a lower amount", place(bid("e4", "b1", "ada", 400)), eventstore.Taken{}, "eventstore: refused: altered, high bid 500"},
		{"the same id with a higher amount", place(bid("e4", "b1", "ada", 600)), eventstore.Taken{}, "eventstore: refused: altered, high bid 500"},
		{"the same id of another bidder", place(bid("e4", "b1", "bob", 500)), eventstore.Taken{}, "eventstore: refused: altered, high bid 500"},
		{"a higher bid", place(bid("e5", "b5", "bob", 750)),
			eventstore.Taken{Event: pgtest.EventID("e5"), Version: 3, Amount: 750, At: 2750}, ""},
		{"closing", shut(closing("c1")), done, ""},
		{"closing by the same request", shut(closing("c1")), doneAgain, ""},
		{"closing by another", shut(closing("c2")), eventstore.Taken{}, "eventstore: refused: closed, high bid 750"},
		{"a higher bid on the closed auction", place(bid("e6", "b6", "ada", 900)), eventstore.Taken{}, "eventstore: refused: closed, high bid 750"},
		{"a replay on the closed auction", place(bid("e7", "b1", "ada", 500)), again, ""},
		{"another body on the closed auction", place(bid("e7", "b1", "ada", 900)), eventstore.Taken{}, "eventstore: refused: altered, high bid 750"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.do()
			if c.wants != "" {
				if refusal(err) != c.wants || got != (eventstore.Taken{}) {
					t.Errorf("got %+v, %s; want %s", got, refusal(err), c.wants)
				}
				return
			}
			if err != nil || got != c.want {
				t.Errorf("got %+v, %v; want %+v", got, err, c.want)
			}
		})
	}

	var rows []history.AuctionRow
	audit := i.Auditor().(targets.AuctionAuditor)
	if err := audit.Auctions(t.Context(), func(r history.AuctionRow) error { rows = append(rows, r); return nil }); err != nil {
		t.Fatal(err)
	}
	if want := (history.AuctionRow{Stream: lot, Closed: true, Opening: 100, High: 750, Bidder: "bob", Accepted: 2, Changes: 4}); len(rows) != 1 || rows[0] != want {
		t.Errorf("rows %+v, want %+v", rows, want)
	}
	var said []string
	for _, l := range log(t, i) {
		said = append(said, fmt.Sprintf("%s v%d %s %s %s", l.Stream, l.Version, l.ID, l.Type, l.Data))
	}
	want := []string{
		fmt.Sprintf(`%s v1 %s AuctionCreated {"at":"1970-01-01T00:00:01.000Z","auction":"lot-1","openingPrice":100}`, lot, pgtest.EventID("o1")),
		fmt.Sprintf(`%s v2 %s BidAccepted {"amount":500,"at":"1970-01-01T00:00:02.500Z","auction":"lot-1","bidId":"b1","bidder":"ada"}`, lot, pgtest.EventID("e1")),
		fmt.Sprintf(`%s v3 %s BidAccepted {"amount":750,"at":"1970-01-01T00:00:02.750Z","auction":"lot-1","bidId":"b5","bidder":"bob"}`, lot, pgtest.EventID("e5")),
		fmt.Sprintf(`%s v4 %s AuctionClosed {"at":"1970-01-01T00:00:09.000Z","auction":"lot-1"}`, lot, pgtest.EventID("c1")),
	}
	if strings.Join(said, "\n") != strings.Join(want, "\n") {
		t.Errorf("the audit says\n%s\nwant\n%s", strings.Join(said, "\n"), strings.Join(want, "\n"))
	}
}

func TestTheAuditRendersOperationsAsTheApplicationClaimsThem(t *testing.T) {
	i := openNative(t)
	b := bidding(t, i, pgtest.Env("writer"))
	id, err := auction.NewID("lot-1")
	if err != nil {
		t.Fatal(err)
	}
	now := time.UnixMilli(1_772_600_767_089)
	if _, err := b.OpenAuction(t.Context(), opening("o")); err != nil {
		t.Fatal(err)
	}
	odd := bid("e", "b<&>\u2028é\"", "é<\"\\\n", 1<<62)
	odd.At = now.UnixMilli()
	if _, err := b.PlaceBid(t.Context(), odd); err != nil {
		t.Fatal(err)
	}
	_, want, err := auction.Claim(auction.Command{Name: auction.CommandBid, Auction: id, BidID: odd.ID, Bidder: odd.Bidder, Amount: odd.Amount}, now)
	if err != nil {
		t.Fatal(err)
	}
	if events := log(t, i); len(events) != 2 || string(events[1].Data) != string(want) {
		t.Errorf("the audit says %+v, want %s", events, want)
	}
}

func TestARepeatThatOvertookItsFirstTryIsAReplay(t *testing.T) { // the correct twin of CV-PG-33
	i := openNative(t)
	fast := bidding(t, i, pgtest.Env("fast"))
	if _, err := fast.OpenAuction(t.Context(), opening("o")); err != nil {
		t.Fatal(err)
	}
	e, gate := pgtest.Env("slow"), pgtest.Hold(points.AppendAfterInsert)
	e.Gate = gate
	slow := bidding(t, i, e)
	var first eventstore.Taken
	var firstErr error
	var wait sync.WaitGroup
	wait.Go(func() { first, firstErr = slow.PlaceBid(t.Context(), bid("e1", "b1", "ada", 500)) })
	pgtest.Await(t, gate.Arrived())
	// The first try stands before its commit: the repeat has to wait for it.
	var again eventstore.Taken
	var err error
	wait.Go(func() { again, err = fast.PlaceBid(t.Context(), bid("e2", "b1", "ada", 500)) })
	admin := pgtest.Admin(t)
	for waiting := 0; waiting == 0; {
		if err := admin.QueryRow(t.Context(), `select count(*) from pg_stat_activity where wait_event_type = 'Lock' and application_name like 'fast/%'`).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	gate.Release(nil)
	wait.Wait()
	if firstErr != nil || err != nil || !again.Replayed || again.Event != first.Event || again.At != first.At || again.Version != 2 {
		t.Errorf("first %+v, %v; again %+v, %v", first, firstErr, again, err)
	}
}

func TestALostCommitReplyOfABidIsUnknownAndTheRepeatIsAReplay(t *testing.T) {
	i := openNative(t)
	proxy := pgtest.NewProxy()
	e := pgtest.Env("writer")
	e.Dial = proxy.Dial(t)
	b := bidding(t, i, e)
	if _, err := b.OpenAuction(t.Context(), opening("o")); err != nil {
		t.Fatal(err)
	}
	proxy.Cut()
	_, err := b.PlaceBid(t.Context(), bid("e1", "b1", "ada", 500))
	if outcome, reason := eventstore.Classify(err); outcome != eventstore.Unknown || reason != eventstore.LostReply || !proxy.Bit() {
		t.Fatalf("got %v, bit: %v", err, proxy.Bit())
	}
	again, err := b.PlaceBid(t.Context(), bid("e1", "b1", "ada", 500))
	if err != nil || !again.Replayed || again.Event != pgtest.EventID("e1") {
		t.Errorf("the repeat was answered with %+v, %v", again, err)
	}
}

func TestABidWhoseCommitIsParkedIsUnknownAndWinsOnce(t *testing.T) {
	i := openNative(t)
	proxy := pgtest.NewProxy()
	e := pgtest.Env("writer")
	e.Dial = proxy.Dial(t)
	b := bidding(t, i, e)
	if _, err := b.OpenAuction(t.Context(), opening("o")); err != nil {
		t.Fatal(err)
	}
	proxy.Park()
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := b.PlaceBid(short, bid("e1", "b1", "ada", 500))
	if outcome, _ := eventstore.Classify(err); outcome != eventstore.Unknown || !proxy.Bit() {
		t.Fatalf("got %v, bit: %v", err, proxy.Bit())
	}
	proxy.Lift(t)
	again, err := b.PlaceBid(t.Context(), bid("e1", "b1", "ada", 500))
	if err != nil || !again.Replayed || len(log(t, i)) != 2 {
		t.Errorf("the repeat was answered with %+v, %v", again, err)
	}
}

func TestConcurrentBidsAreAcceptedInTheOrderOfTheirChanges(t *testing.T) {
	i := openNative(t)
	b := bidding(t, i, pgtest.Env("writer"))
	if _, err := b.OpenAuction(t.Context(), opening("o")); err != nil {
		t.Fatal(err)
	}
	amountOf := func(w, n int) int64 { return int64(101 + (n*37+w*5)%97) }
	var wait sync.WaitGroup
	for w := range 8 {
		wait.Go(func() {
			for n := range 12 {
				amount := amountOf(w, n)
				name := fmt.Sprintf("b%d-%d", w, n)
				if _, err := b.PlaceBid(t.Context(), bid(name, name, "ada", amount)); err != nil && strings.HasPrefix(refusal(err), "no refusal") {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	last, highest := int64(100), int64(0)
	for w := range 8 {
		for n := range 12 {
			highest = max(highest, amountOf(w, n))
		}
	}
	for n, l := range log(t, i)[1:] {
		e, err := auction.ParseEvent(l.Type, l.Version, l.Data)
		if err != nil || e.Amount <= last || l.Version != uint64(n+2) {
			t.Fatalf("change %d is v%d, %d after %d, %v", n, l.Version, e.Amount, last, err)
		}
		last = e.Amount
	}
	if last != highest {
		t.Errorf("the high bid is %d, want %d", last, highest)
	}
}

func TestBiddingConformance(t *testing.T) {
	storetest.RunBidding(t, func(t testing.TB) func(testing.TB) eventstore.Bidding {
		i, n := openNative(t), 0
		return func(t testing.TB) eventstore.Bidding {
			n++
			return bidding(t, i, pgtest.Env(fmt.Sprintf("writer-%d", n)))
		}
	})
}

func TestAVariantOfRowsTakesNoAppends(t *testing.T) {
	store := pgtest.Connect(t, openNative(t), "writer", pgtest.Env("writer")).Store()
	_, err := store.Append(t.Context(), pgtest.Write("a", eventstore.Exact(0), "1", "x"))
	if outcome, reason := eventstore.Classify(err); outcome != eventstore.Fail || reason != eventstore.Invalid {
		t.Errorf("got %v", err)
	}
}
