package auction_test

import (
	"bytes"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/eventproof/eventproof/domain/auction"
)

var now = time.Date(2026, 3, 4, 5, 6, 7, 89_000_000, time.FixedZone("elsewhere", 3600))

const at = "2026-03-04T04:06:07.089Z"

func mustID(t testing.TB, s string) auction.ID {
	t.Helper()
	id, err := auction.NewID(s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// fold gives the state after commands, all of which must be accepted.
func fold(t testing.TB, commands ...auction.Command) auction.State {
	t.Helper()
	var s auction.State
	for _, c := range commands {
		d, err := auction.Decide(s, c, now)
		if err != nil {
			t.Fatal(err)
		}
		if s, err = auction.Rehydrate(s, d.Events); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func bid(id auction.ID, bidID, bidder string, amount int64) auction.Command {
	return auction.Command{Name: "bid", Auction: id, BidID: bidID, Bidder: bidder, Amount: amount}
}

func TestDecideAnswersInTheOrderReplayClosedStale(t *testing.T) {
	id := mustID(t, "lot-1")
	create := auction.Command{Name: "create", Auction: id, Amount: 100}
	open := fold(t, create, bid(id, "b1", "ada", 500), bid(id, "b2", "bob", 750))
	closed := fold(t, create, bid(id, "b1", "ada", 500), bid(id, "b2", "bob", 750), auction.Command{Name: "close", Auction: id})
	fresh := fold(t, create)
	for _, c := range []struct {
		name    string
		state   auction.State
		command auction.Command
		event   auction.Event // zero: none
		replay  auction.Bid   // zero: none
		refusal auction.Refusal
		wire    string
	}{
		{name: "create", command: create, event: auction.Event{Type: "AuctionCreated", Auction: id, Version: 1, At: at, OpeningPrice: 100}},
		{name: "first bid above the opening price", state: fresh, command: bid(id, "b1", "ada", 101),
			event: auction.Event{Type: "BidAccepted", Auction: id, Version: 2, At: at, BidID: "b1", Bidder: "ada", Amount: 101}},
		{name: "higher bid", state: open, command: bid(id, "b3", "ada", 751),
			event: auction.Event{Type: "BidAccepted", Auction: id, Version: 4, At: at, BidID: "b3", Bidder: "ada", Amount: 751}},
		{name: "close", state: open, command: auction.Command{Name: "close", Auction: id},
			event: auction.Event{Type: "AuctionClosed", Auction: id, Version: 4, At: at, HighBid: 750, HighBidder: "bob"}},
		{name: "close without a bid", state: fresh, command: auction.Command{Name: "close", Auction: id},
			event: auction.Event{Type: "AuctionClosed", Auction: id, Version: 2, At: at, HighBid: 100}},

		{name: "replay of the high bid, which also looks stale", state: open, command: bid(id, "b2", "bob", 750),
			replay: auction.Bid{Bidder: "bob", Amount: 750, AcceptedAt: at, Version: 3}},
		{name: "replay of an outbid bid on a closed auction", state: closed, command: bid(id, "b1", "ada", 500),
			replay: auction.Bid{Bidder: "ada", Amount: 500, AcceptedAt: at, Version: 2}},
		{name: "same id, other amount", state: open, command: bid(id, "b2", "bob", 900),
			refusal: auction.Refusal{Code: "INVALID_PAYLOAD", Have: 750, Want: 900}, wire: "INVALID_PAYLOAD - bid b2 was accepted with another body"},
		{name: "same id, other bidder, closed", state: closed, command: bid(id, "b2", "ada", 750),
			refusal: auction.Refusal{Code: "INVALID_PAYLOAD", Have: 750, Want: 750}, wire: "INVALID_PAYLOAD - bid b2 was accepted with another body"},

		{name: "stale bid on a closed auction", state: closed, command: bid(id, "b3", "ada", 500),
			refusal: auction.Refusal{Code: "AUCTION_CLOSED", Have: 750, Want: 500}, wire: "AUCTION_CLOSED - auction lot-1 is closed"},
		{name: "bid on a missing auction", command: bid(id, "b3", "ada", 500),
			refusal: auction.Refusal{Code: "AUCTION_CLOSED", Want: 500}, wire: "AUCTION_CLOSED - auction lot-1 is missing"},
		{name: "lower bid", state: open, command: bid(id, "b3", "ada", 500),
			refusal: auction.Refusal{Code: "STALE_BID", Have: 750, Want: 500}, wire: "STALE_BID - high bid is 750, bid of 500 loses"},
		{name: "equal bid of another bidder", state: open, command: bid(id, "b3", "ada", 750),
			refusal: auction.Refusal{Code: "STALE_BID", Have: 750, Want: 750}, wire: "STALE_BID - high bid is 750, bid of 750 loses"},
		{name: "bid equal to the opening price", state: fresh, command: bid(id, "b3", "ada", 100),
			refusal: auction.Refusal{Code: "STALE_BID", Have: 100, Want: 100}, wire: "STALE_BID - high bid is 100, bid of 100 loses"},
		{name: "close twice", state: closed, command: auction.Command{Name: "close", Auction: id},
			refusal: auction.Refusal{Code: "AUCTION_CLOSED", Have: 750}, wire: "AUCTION_CLOSED - auction lot-1 is closed"},
		{name: "create twice", state: open, command: create,
			refusal: auction.Refusal{Code: "ALREADY_EXISTS", Have: 750, Want: 100}, wire: "ALREADY_EXISTS - auction lot-1 exists and is open"},
		{name: "create below nothing", command: auction.Command{Name: "create", Auction: id, Amount: -1},
			refusal: auction.Refusal{Code: "INVALID_AMOUNT", Want: -1}, wire: "INVALID_AMOUNT - opening price of -1 is not possible"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := auction.Decide(c.state, c.command, now)
			if c.wire != "" {
				var got *auction.Refusal
				if !errors.As(err, &got) || d.Events != nil || d.Replay != nil {
					t.Fatalf("got %+v, %v, want a refusal", d, err)
				}
				if err.Error() != c.wire || auction.Wire(got.Code, got.Text) != c.wire {
					t.Errorf("wire form %q and %q, want %q", err, auction.Wire(got.Code, got.Text), c.wire)
				}
				if got.Code != c.refusal.Code || got.Have != c.refusal.Have || got.Want != c.refusal.Want || got.Retriable {
					t.Errorf("got %+v, want %+v", *got, c.refusal)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if c.replay != (auction.Bid{}) {
				if d.Events != nil || d.Replay == nil || *d.Replay != c.replay {
					t.Errorf("got %+v, want a replay of %+v", d, c.replay)
				}
				return
			}
			if d.Replay != nil || !reflect.DeepEqual(d.Events, []auction.Event{c.event}) {
				t.Errorf("got %+v, want %+v", d, c.event)
			}
		})
	}
}

func TestOnlyThrottledAndInternalAreRetriable(t *testing.T) {
	for code, want := range map[string]bool{
		auction.StaleBid: false, auction.AuctionClosed: false, auction.InvalidPayload: false, auction.AlreadyExists: false,
		auction.InvalidAmount: false, auction.Throttled: true, auction.Internal: true,
	} {
		if auction.Retriable(code) != want {
			t.Errorf("Retriable(%s) is %v", code, !want)
		}
	}
}

func TestIDsAreValidChannelSegments(t *testing.T) {
	for _, s := range []string{"1", "a", "lot-1", "a--b", "Z9", strings.Repeat("x", 50)} {
		if id, err := auction.NewID(s); err != nil || id.String() != s {
			t.Errorf("NewID(%q) gives %q, %v", s, id, err)
		}
	}
	for _, s := range []string{"", "-", "-a", "a-", "a b", "a_b", "a.b", "é", "a\x00", strings.Repeat("x", 51)} {
		if id, err := auction.NewID(s); err == nil || !id.IsZero() {
			t.Errorf("NewID(%q) gives %q, %v", s, id, err)
		}
	}
	id := mustID(t, "lot-1")
	if back, ok := auction.FromStream(auction.Stream(id)); !ok || back != id {
		t.Errorf("stream of %q names %q, %v", id, back, ok)
	}
	for _, s := range []string{"account-1", "auction-", "auction--1", "1"} {
		if id, ok := auction.FromStream(s); ok {
			t.Errorf("%q names auction %q", s, id)
		}
	}
}

func TestCanonicalFormsArePinned(t *testing.T) {
	id := mustID(t, "lot-1")
	for _, c := range []struct {
		what string
		got  []byte
		want string
	}{
		{"created", auction.Event{Type: "AuctionCreated", Auction: id, At: at, OpeningPrice: 100}.Data(), `{"at":"2026-03-04T04:06:07.089Z","auction":"lot-1","openingPrice":100}`},
		{"accepted", auction.Event{Type: "BidAccepted", Auction: id, At: at, BidID: "b1", Bidder: "ada", Amount: 5}.Data(), `{"amount":5,"at":"2026-03-04T04:06:07.089Z","auction":"lot-1","bidId":"b1","bidder":"ada"}`},
		{"closed", auction.Event{Type: "AuctionClosed", Auction: id, At: at, HighBid: 5, HighBidder: "ada"}.Data(), `{"at":"2026-03-04T04:06:07.089Z","auction":"lot-1","highBid":5,"highBidder":"ada"}`},
		{"bid command", bid(id, "b1", "ada", 5).Body(), `{"amount":5,"auction":"lot-1","bidId":"b1","bidder":"ada"}`},
		{"close command", auction.Command{Name: "close", Auction: id}.Body(), `{"auction":"lot-1"}`},
		{"row", fold(t, auction.Command{Name: "create", Auction: id, Amount: 1}, bid(id, "b1", "ada", 5)).Row().Encode(), `{"accepted":1,"bidder":"ada","high":5,"status":"open"}`},
		{"row without a bid", fold(t, auction.Command{Name: "create", Auction: id, Amount: 1}).Row().Encode(), `{"accepted":0,"bidder":"","high":1,"status":"open"}`},
	} {
		if string(c.got) != c.want {
			t.Errorf("%s is %s, want %s", c.what, c.got, c.want)
		}
	}
	if got := (auction.Bid{AcceptedAt: at}).AcceptedMillis(); got != now.UnixMilli() {
		t.Errorf("acceptedAt %s is %d ms, want %d", at, got, now.UnixMilli())
	}
	if got := (auction.Bid{AcceptedAt: "noon"}).AcceptedMillis(); got != 0 {
		t.Errorf("acceptedAt noon is %d ms", got)
	}
}

func TestAClaimIsTheEventThatTheCommandAsksFor(t *testing.T) {
	id := mustID(t, "lot-1")
	for _, c := range []struct {
		command auction.Command
		typ     string
		data    string
	}{
		{auction.Command{Name: "create", Auction: id, Amount: 100}, "AuctionCreated", `{"at":"2026-03-04T04:06:07.089Z","auction":"lot-1","openingPrice":100}`},
		{bid(id, "b1", "ada", 5), "BidAccepted", `{"amount":5,"at":"2026-03-04T04:06:07.089Z","auction":"lot-1","bidId":"b1","bidder":"ada"}`},
		{auction.Command{Name: "close", Auction: id}, "AuctionClosed", `{"at":"2026-03-04T04:06:07.089Z","auction":"lot-1"}`},
	} {
		typ, data, err := auction.Claim(c.command, now)
		if err != nil || typ != c.typ || string(data) != c.data {
			t.Errorf("%s claims %s %s, %v", c.command.Name, typ, data, err)
		}
	}
	var no *auction.Refusal
	if _, _, err := auction.Claim(auction.Command{Name: "create", Auction: id, Amount: -1}, now); !errors.As(err, &no) || no.Code != auction.InvalidAmount {
		t.Errorf("an impossible price gives %v", err)
	}
	if _, _, err := auction.Claim(auction.Command{Name: "pause", Auction: id}, now); err == nil || errors.As(err, &no) {
		t.Errorf("an unknown command gives %v", err)
	}
}

func TestDenialsReadAlikeWhoeverGivesThem(t *testing.T) {
	id := mustID(t, "lot-1")
	stale := auction.Deny(auction.State{High: 750}, bid(id, "b", "ada", 500), auction.StaleBid)
	if stale.Error() != "STALE_BID - high bid is 750, bid of 500 loses" || stale.Have != 750 || stale.Want != 500 || stale.Retriable {
		t.Errorf("%+v", stale)
	}
	for _, code := range []string{auction.Throttled, auction.Internal} {
		if no := auction.Deny(auction.State{}, bid(id, "b", "ada", 5), code); !no.Retriable || no.Text == "" {
			t.Errorf("%+v", no)
		}
	}
	if no := auction.Deny(auction.State{}, auction.Command{Name: "create", Auction: id}, auction.AlreadyExists); no.Text != "auction lot-1 exists" {
		t.Errorf("%+v", no)
	}
}

func TestFoldErrorsAreErrorsOfTheLogAndLeaveTheState(t *testing.T) {
	id := mustID(t, "lot-1")
	open := fold(t, auction.Command{Name: "create", Auction: id, Amount: 1})
	for _, c := range []struct {
		name  string
		state auction.State
		event auction.Event
	}{
		{"bid on a missing auction", auction.State{}, auction.Event{Type: "BidAccepted", Auction: id, Version: 1}},
		{"created twice", open, auction.Event{Type: "AuctionCreated", Auction: id, Version: 2}},
		{"unknown type", open, auction.Event{Type: "AuctionPaused", Auction: id, Version: 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, err := auction.Apply(c.state, c.event); !errors.Is(err, auction.ErrLog) || !reflect.DeepEqual(got, c.state) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestApplyFoldsWrongDecisions(t *testing.T) {
	id := mustID(t, "lot-1")
	s := fold(t, auction.Command{Name: "create", Auction: id, Amount: 1}, bid(id, "b1", "ada", 700), auction.Command{Name: "close", Auction: id})
	s, err := auction.Rehydrate(s, []auction.Event{
		{Type: "BidAccepted", Auction: id, Version: 9, BidID: "b2", Bidder: "bob", Amount: 650, At: at}, // late and low
		{Type: "BidAccepted", Auction: id, Version: 10, BidID: "b1", Bidder: "eve", Amount: 660, At: at},
		{Type: "AuctionClosed", Auction: id, Version: 11, At: at},
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.High != 700 || s.HighBidder != "ada" || s.Accepted != 3 || s.Version != 11 || s.Status != auction.Closed {
		t.Errorf("got %+v", s)
	}
	if b, _ := s.Bid("b1"); b.Bidder != "ada" || b.Version != 2 {
		t.Errorf("the ledger forgot the first acceptance: %+v", b)
	}
}

func TestApplyLeavesTheLedgerItWasGiven(t *testing.T) {
	id := mustID(t, "lot-1")
	before := fold(t, auction.Command{Name: "create", Auction: id, Amount: 1}, bid(id, "b1", "ada", 5))
	encoded := before.Snapshot()
	for _, n := range []int64{6, 7} { // twice from one state: neither may see the other
		after, err := auction.Apply(before, auction.Event{Type: "BidAccepted", Auction: id, Version: 3, At: at, BidID: "b" + strconv.FormatInt(n, 10), Bidder: "bob", Amount: n})
		if err != nil || after.High != n {
			t.Fatalf("got %+v, %v", after, err)
		}
		count := 0
		for range after.Bids() {
			count++
		}
		if count != 2 || !bytes.Equal(before.Snapshot(), encoded) {
			t.Errorf("%d bids after, state before is now %+v", count, before)
		}
	}
}

func TestMalformedBytesAreErrors(t *testing.T) {
	for _, body := range []string{``, `{}`, `{"auction":"-"}`, `{"auction":"lot-1"}`, `{"auction":"lot-1","bidId":"b"}`, `{"auction":"lot-1","bidder":"b"}`,
		`{"auction":"lot-1","bidId":"b","bidder":"c","x":1}`, `{"auction":"lot-1","bidId":"b","bidder":"c"}]`} {
		if c, err := auction.ParseCommand("bid", []byte(body)); err == nil {
			t.Errorf("command %q was read as %+v", body, c)
		}
	}
	if _, err := auction.ParseCommand("pause", []byte(`{"auction":"lot-1"}`)); err == nil {
		t.Error("an unknown command was read")
	}
	for _, e := range []struct{ typ, data string }{
		{"BidAccepted", ``}, {"BidAccepted", `{"at":"x","auction":"lot-1","bidId":"b","bidder":"c"}`}, {"BidAccepted", `{"amount":1,"at":"x","auction":"a b","bidId":"b","bidder":"c"}`},
		{"AuctionCreated", `{"at":"x","auction":"lot-1"}`}, {"AuctionClosed", `{"at":"x","auction":"lot-1","highBid":1}`}, {"AuctionPaused", `{"at":"x","auction":"lot-1"}`},
	} {
		if got, err := auction.ParseEvent(e.typ, 1, []byte(e.data)); !errors.Is(err, auction.ErrLog) {
			t.Errorf("%s %q was read as %+v, %v", e.typ, e.data, got, err)
		}
	}
	if _, err := auction.DecodeRow([]byte("{")); err == nil {
		t.Error("half a row was read")
	}
}

func TestEveryDamageToASnapshotIsAnErrorAndNoPanic(t *testing.T) {
	id := mustID(t, "lot-1")
	good := fold(t, auction.Command{Name: "create", Auction: id, Amount: 1}, bid(id, "b1", "ada", 5), bid(id, "b2", "bob", 6)).Snapshot()
	for n := range good {
		if s, err := auction.DecodeSnapshot(good[:n]); err == nil {
			t.Fatalf("the first %d bytes were read as %+v", n, s)
		}
	}
	if _, err := auction.DecodeSnapshot(append(bytes.Clone(good), 0)); err == nil {
		t.Error("a byte too many was read")
	}
	rapid.Check(t, func(t *rapid.T) {
		b := bytes.Clone(good)
		for range rapid.IntRange(1, 4).Draw(t, "damages") {
			b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		}
		if s, err := auction.DecodeSnapshot(b); err == nil && !bytes.Equal(s.Snapshot(), b) {
			t.Fatalf("%q was read as %q", b, s.Snapshot())
		}
	})
}

func drawBid(t *rapid.T, id auction.ID) auction.Command {
	return bid(id, "b"+strconv.Itoa(rapid.IntRange(0, 15).Draw(t, "bid id")),
		rapid.SampledFrom([]string{"ada", "bob", "é<\""}).Draw(t, "bidder"), rapid.OneOf(rapid.Int64Range(-1, 60), rapid.Int64()).Draw(t, "amount"))
}

func TestAnyRunOfCommandsKeepsTheLedgerRight(t *testing.T) {
	id, err := auction.NewID("lot-1")
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		var (
			s        auction.State
			log      []auction.Event
			high     int64
			accepted = map[string]auction.Command{}
		)
		for range rapid.IntRange(1, 60).Draw(t, "commands") {
			c := drawBid(t, id)
			switch rapid.IntRange(0, 19).Draw(t, "kind") {
			case 0:
				c = auction.Command{Name: "close", Auction: id}
			case 1, 2, 3:
				c = auction.Command{Name: "create", Auction: id, Amount: 10}
			}
			d, err := auction.Decide(s, c, now)
			first, known := accepted[c.BidID]
			if c.Name == "bid" && known {
				var refusal *auction.Refusal
				if same := first == c; same != (d.Replay != nil) || !same && (!errors.As(err, &refusal) || refusal.Code != auction.InvalidPayload) {
					t.Fatalf("%+v after %+v gives %+v, %v", c, first, d, err)
				}
			}
			if err != nil {
				continue
			}
			for _, e := range d.Events {
				if back, err := auction.ParseEvent(e.Type, e.Version, e.Data()); err != nil || back != e {
					t.Fatalf("%+v came back as %+v, %v", e, back, err)
				}
				switch e.Type {
				case auction.Created:
					high = e.OpeningPrice
				case auction.BidAccepted:
					if e.Amount <= high {
						t.Fatalf("bid of %d accepted on %d", e.Amount, high)
					}
					high = e.Amount
					accepted[c.BidID] = c
				case auction.ClosedEvent:
					if e.HighBid != high {
						t.Fatalf("closed at %d, high bid is %d", e.HighBid, high)
					}
				}
			}
			if s, err = auction.Rehydrate(s, d.Events); err != nil {
				t.Fatalf("what was decided can't be folded: %v", err)
			}
			log = append(log, d.Events...)
			if s.High != high || s.Accepted != uint64(len(accepted)) || s.Version != uint64(len(log)) {
				t.Fatalf("high %d, accepted %d of %d events, got %+v", high, len(accepted), len(log), s)
			}
		}
		cut := rapid.IntRange(0, len(log)).Draw(t, "snapshot after")
		prefix, err := auction.Rehydrate(auction.State{}, log[:cut])
		if err != nil {
			t.Fatal(err)
		}
		restored, err := auction.DecodeSnapshot(prefix.Snapshot())
		if err != nil || !bytes.Equal(restored.Snapshot(), prefix.Snapshot()) {
			t.Fatalf("snapshot came back as %+v, %v, want %+v", restored, err, prefix)
		}
		again, err := auction.Rehydrate(restored, log[cut:])
		if err != nil || !bytes.Equal(again.Encode(), s.Encode()) || !bytes.Equal(again.Snapshot(), s.Snapshot()) {
			t.Fatalf("from a snapshot: %+v, %v, want %+v", again, err, s)
		}
	})
}

func TestTheEncodingTellsLedgersApart(t *testing.T) {
	id := mustID(t, "lot-1")
	create := auction.Command{Name: "create", Auction: id, Amount: 1}
	a := fold(t, create, bid(id, "b1", "ada", 5), bid(id, "b2", "bob", 9))
	b := fold(t, create, bid(id, "b1", "ada", 6), bid(id, "b2", "bob", 9))
	if bytes.Equal(a.Encode(), b.Encode()) {
		t.Error("two states that differ in an outbid bid have one encoding")
	}
}

func TestEveryCommandComesBackFromItsBytes(t *testing.T) {
	id, err := auction.NewID("lot-1")
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		c := drawBid(t, id)
		if back, err := auction.ParseCommand(c.Name, c.Body()); err != nil || back != c {
			t.Fatalf("%+v came back as %+v, %v", c, back, err)
		}
	})
}
