package oracle_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/eventproof/eventproof/domain/account"
	"github.com/eventproof/eventproof/domain/auction"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/invariants/oracle"
)

func fold(t testing.TB, workload string) oracle.State {
	t.Helper()
	s, err := oracle.New(workload)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func logged(stream, typ string, version uint64, data string) history.LoggedEvent {
	return history.LoggedEvent{Stream: stream, Type: typ, Version: version, Data: []byte(data)}
}

const at = "2026-03-04T04:06:07.089Z"

var lot = func() auction.ID {
	id, err := auction.NewID("lot-1")
	if err != nil {
		panic(err)
	}
	return id
}()

// The rules of the reference, told without the domain: a change that both folds were led into shows here.

func TestAnAccountIsFoldedAndDecidedAsTheReferenceSays(t *testing.T) {
	s := fold(t, oracle.Bank)
	for _, ev := range []history.LoggedEvent{
		logged("account-7", "AccountOpened", 1, `{"account":"7","at":"`+at+`","owner":"ada"}`),
		logged("account-7", "FundsDeposited", 2, `{"account":"7","amount":10000,"at":"`+at+`"}`),
		logged("account-7", "FundsWithdrawn", 3, `{"account":"7","amount":6000,"at":"`+at+`"}`),
	} {
		if err := s.Apply(ev); err != nil {
			t.Fatal(err)
		}
	}
	if s.Balance() != 4000 || s.Version() != 3 || s.Status() != oracle.Open {
		t.Fatalf("balance %d, version %d, %s", s.Balance(), s.Version(), s.Status())
	}
	if want := "A\x01\x01\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x0f\xa0ada"; string(s.Encode()) != want {
		t.Errorf("encoding %q, want %q", s.Encode(), want)
	}
	for _, c := range []struct {
		name, body string
		typ, data  string
		code       string
		have, want int64
	}{
		{name: "withdraw", body: `{"account":"7","amount":4000}`, typ: "FundsWithdrawn", data: `{"account":"7","amount":4000,"at":"` + at + `"}`},
		{name: "withdraw", body: `{"account":"7","amount":6000}`, code: "INSUFFICIENT_FUNDS", have: 4000, want: 6000},
		{name: "withdraw", body: `{"account":"7"}`, code: "INVALID_AMOUNT", have: 4000},
		{name: "deposit", body: `{"account":"7","amount":1}`, typ: "FundsDeposited", data: `{"account":"7","amount":1,"at":"` + at + `"}`},
		{name: "blind-deposit", body: `{"account":"7","amount":1}`, typ: "FundsDeposited", data: `{"account":"7","amount":1,"at":"` + at + `"}`},
		{name: "blind-deposit", body: `{"account":"7","amount":-1}`, code: "INVALID_AMOUNT", want: -1},
		{name: "close", body: `{"account":"7"}`, code: "BALANCE_NOT_ZERO", have: 4000},
		{name: "open", body: `{"account":"7","owner":"bob"}`, code: "ALREADY_OPEN", have: 4000},
	} {
		t.Run(c.name+c.body, func(t *testing.T) {
			check(t, s, c.name, c.body, c.typ, c.data, c.code, c.have, c.want)
		})
	}
}

func TestAnAuctionIsFoldedAndDecidedAsTheReferenceSays(t *testing.T) {
	s := fold(t, oracle.Auction)
	for _, ev := range []history.LoggedEvent{
		logged("auction-lot-1", "AuctionCreated", 1, `{"at":"`+at+`","auction":"lot-1","openingPrice":100}`),
		logged("auction-lot-1", "BidAccepted", 2, `{"amount":500,"at":"`+at+`","auction":"lot-1","bidId":"b1","bidder":"ada"}`),
		logged("auction-lot-1", "BidAccepted", 3, `{"amount":750,"at":"`+at+`","auction":"lot-1","bidId":"b2","bidder":"bob"}`),
	} {
		if err := s.Apply(ev); err != nil {
			t.Fatal(err)
		}
	}
	if s.High() != 750 || s.HighBidder() != "bob" || s.Accepted() != 2 {
		t.Fatalf("high %d by %s, %d accepted", s.High(), s.HighBidder(), s.Accepted())
	}
	check(t, s, "bid", `{"amount":751,"auction":"lot-1","bidId":"b3","bidder":"ada"}`, "BidAccepted",
		`{"amount":751,"at":"`+at+`","auction":"lot-1","bidId":"b3","bidder":"ada"}`, "", 0, 0)
	check(t, s, "bid", `{"amount":750,"auction":"lot-1","bidId":"b3","bidder":"ada"}`, "", "", "STALE_BID", 750, 750)
	check(t, s, "bid", `{"amount":900,"auction":"lot-1","bidId":"b2","bidder":"bob"}`, "", "", "INVALID_PAYLOAD", 750, 900)
	check(t, s, "close", `{"auction":"lot-1"}`, "AuctionClosed", `{"at":"`+at+`","auction":"lot-1","highBid":750,"highBidder":"bob"}`, "", 0, 0)
	if err := s.Apply(logged("auction-lot-1", "AuctionClosed", 4, `{"at":"`+at+`","auction":"lot-1","highBid":750,"highBidder":"bob"}`)); err != nil {
		t.Fatal(err)
	}
	check(t, s, "bid", `{"amount":1,"auction":"lot-1","bidId":"b3","bidder":"ada"}`, "", "", "AUCTION_CLOSED", 750, 1)
	check(t, s, "close", `{"auction":"lot-1"}`, "", "", "AUCTION_CLOSED", 750, 0)
	v, err := s.Decide("bid", []byte(`{"amount":500,"auction":"lot-1","bidId":"b1","bidder":"ada"}`), 0)
	if want := (oracle.Bid{Bidder: "ada", Amount: 500, AcceptedAt: at, Millis: 1772597167089, Version: 2}); err != nil || v.Replay == nil || *v.Replay != want {
		t.Errorf("the replay of an outbid bid gives %+v, %v", v, err)
	}
}

func check(t *testing.T, s oracle.State, name, body, typ, data, code string, have, want int64) {
	t.Helper()
	v, err := s.Decide(name, []byte(body), 1772597167089)
	if err != nil {
		t.Fatal(err)
	}
	if v.Code != code || v.Have != have || v.Want != want || v.Replay != nil {
		t.Errorf("%s %s gives %+v, want %s have %d want %d", name, body, v, code, have, want)
	}
	if typ == "" {
		if len(v.Events) != 0 {
			t.Errorf("%s %s gives %s", name, body, v.Events[0].Data)
		}
		return
	}
	if len(v.Events) != 1 || v.Events[0].Type != typ || string(v.Events[0].Data) != data || v.Events[0].Payload != eventstore.PayloadHash(typ, []byte(data)) {
		t.Errorf("%s %s gives %+v, want %s %s", name, body, v.Events, typ, data)
	}
}

func TestAWrongLogShowsAndDoesNotStopTheFold(t *testing.T) {
	s := fold(t, oracle.Bank)
	events := []struct {
		ev   history.LoggedEvent
		fail bool
	}{
		{logged("account-7", "FundsDeposited", 1, `{"account":"7","amount":1,"at":"x"}`), true}, // never opened
		{logged("account-7", "AccountOpened", 1, `{"account":"7","at":"x","owner":""}`), false},
		{logged("account-7", "AccountOpened", 2, `{"account":"7","at":"x","owner":"eve"}`), true},
		{logged("account-7", "FundsWithdrawn", 5, `{"account":"7","amount":60,"at":"x"}`), false}, // overdraft, and a gap
		{logged("account-7", "FundsWithdrawn", 6, `{"account":"7","amount":9223372036854775807,"at":"x"}`), true},
		{logged("account-7", "FundsDeposited", 6, `{"account":"7","at":"x"}`), true},
		{logged("account-7", "FundsDeposited", 6, `nonsense`), true},
		{logged("account-7", "AccountFrozen", 6, `{"account":"7","at":"x"}`), true},
		{logged("account-7", "BidAccepted", 6, `{"amount":1,"at":"x","auction":"a","bidId":"b","bidder":"c"}`), true},
	}
	for _, e := range events {
		before := s.Encode()
		err := s.Apply(e.ev)
		if e.fail != errors.Is(err, oracle.ErrLog) || e.fail != (err != nil) {
			t.Errorf("%s at %d gives %v", e.ev.Type, e.ev.Version, err)
		}
		if e.fail && !bytes.Equal(s.Encode(), before) {
			t.Errorf("%s at %d was refused but changed the state", e.ev.Type, e.ev.Version)
		}
	}
	if s.Balance() != -60 || s.Version() != 5 {
		t.Errorf("balance %d at version %d", s.Balance(), s.Version())
	}
}

func TestACloneLivesItsOwnLife(t *testing.T) {
	s := fold(t, oracle.Auction)
	created := logged("auction-lot-1", "AuctionCreated", 1, `{"at":"x","auction":"lot-1","openingPrice":100}`)
	if err := s.Apply(created); err != nil {
		t.Fatal(err)
	}
	clone := s.Clone()
	before := clone.Hash()
	if err := s.Apply(logged("auction-lot-1", "BidAccepted", 2, `{"amount":500,"at":"x","auction":"lot-1","bidId":"b1","bidder":"ada"}`)); err != nil {
		t.Fatal(err)
	}
	if _, seen := clone.Bid("b1"); seen || clone.Hash() != before || s.Hash() == before {
		t.Error("the clone changed with its origin")
	}
}

func TestWhatIsUnknownIsAnError(t *testing.T) {
	if _, err := oracle.New("transfer"); err == nil {
		t.Error("there is a fold for transfers")
	}
	if _, err := oracle.NewRow("audit-trail"); err == nil {
		t.Error("there is a fold for an audit trail")
	}
	for _, c := range []struct{ workload, name, body string }{
		{oracle.Bank, "transfer", `{"account":"7"}`}, {oracle.Bank, "deposit", `{}`}, {oracle.Bank, "deposit", `{"account":"7","bidId":"b"}`},
		{oracle.Bank, "deposit", `{"account":"7","note":"b"}`}, {oracle.Auction, "bid", `{"auction":"a","bidId":"b"}`},
		{oracle.Auction, "pause", `{"auction":"a"}`}, {oracle.Auction, "close", `{"account":"7"}`}, {oracle.Auction, "close", `{"auction":"a"} x`},
	} {
		if v, err := fold(t, c.workload).Decide(c.name, []byte(c.body), 0); err == nil {
			t.Errorf("%s %s gives %+v", c.name, c.body, v)
		}
	}
}

// The folds against each other, over logs that no correct run writes.

var instant = rapid.Custom(func(t *rapid.T) time.Time {
	return time.UnixMilli(rapid.Int64Range(0, 4_000_000_000_000).Draw(t, "ms"))
})

var someAmount = rapid.OneOf(rapid.Int64Range(-3, 100), rapid.Int64(), rapid.SampledFrom([]int64{math.MaxInt64, math.MinInt64}))

var text = rapid.OneOf(rapid.SampledFrom([]string{"ada", "bob", "<&>", "é\u2028", "a\"b\\", "\x7f\x00"}), rapid.StringN(1, 8, -1))

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func TestBothFoldsOfAnAccountAgreeOnAnyLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var theirs account.State
		ours, err := oracle.New(oracle.Bank)
		if err != nil {
			t.Fatal(err)
		}
		row, err := oracle.NewRow(oracle.Balances)
		if err != nil {
			t.Fatal(err)
		}
		refused := false // the row also takes what the state refuses; they agree up to there
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			e := account.Event{
				Type:    rapid.SampledFrom([]string{account.Opened, account.Deposited, account.Deposited, account.Withdrawn, account.Withdrawn, account.ClosedEvent}).Draw(t, "type"),
				Account: text.Draw(t, "account"),
				Version: theirs.Version + rapid.Uint64Range(0, 2).Draw(t, "step"),
				At:      stamp(instant.Draw(t, "at")),
			}
			switch e.Type {
			case account.Opened:
				e.Owner = text.Draw(t, "owner")
			case account.Deposited, account.Withdrawn:
				e.Amount = someAmount.Draw(t, "amount")
			}
			ev := logged("account-7", e.Type, e.Version, string(e.Data()))
			next, theirErr := account.Apply(theirs, e)
			ourErr := ours.Apply(ev)
			if (theirErr == nil) != (ourErr == nil) {
				t.Fatalf("%+v on %+v: application %v, oracle %v", e, theirs, theirErr, ourErr)
			}
			theirs = next
			refused = refused || ourErr != nil
			if err := row.Apply(ev); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(ours.Encode(), theirs.Encode()) || ours.Hash() != eventstore.HashBytes(theirs.Encode()) || !bytes.Equal(ours.Snapshot(), theirs.Encode()) {
				t.Fatalf("encodings %q and %q", ours.Encode(), theirs.Encode())
			}
			if theirs.Status != account.Missing && !refused && !bytes.Equal(row.Encode(), theirs.Row().Encode()) {
				t.Fatalf("rows %s and %s", row.Encode(), theirs.Row().Encode())
			}
			compareAccountDecision(t, ours, theirs)
		}
	})
}

func compareAccountDecision(t *rapid.T, ours oracle.State, theirs account.State) {
	c := account.Command{
		Name:    rapid.SampledFrom([]string{"open", "deposit", "blind-deposit", "withdraw", "close"}).Draw(t, "command"),
		Account: text.Draw(t, "account"), Owner: text.Draw(t, "owner"), Amount: someAmount.Draw(t, "amount"),
	}
	now := instant.Draw(t, "now")
	var events []account.Event
	var err error
	if c.Name == account.CommandBlindDeposit {
		var e account.Event
		if e, err = account.DecideBlind(c, now); err == nil {
			events = []account.Event{e}
		}
	} else {
		events, err = account.Decide(theirs, c, now)
	}
	v, ourErr := ours.Decide(c.Name, c.Body(), now.UnixMilli())
	if ourErr != nil {
		t.Fatal(ourErr)
	}
	var refusal *account.Refusal
	if errors.As(err, &refusal) != (v.Code != "") || refusal != nil && (refusal.Code != v.Code || refusal.Have != v.Have || refusal.Want != v.Want) || len(events) != len(v.Events) {
		t.Fatalf("%+v on %+v: application %+v, %v, oracle %+v", c, theirs, events, err, v)
	}
	for i, e := range events {
		if v.Events[i].Type != e.Type || !bytes.Equal(v.Events[i].Data, e.Data()) || v.Events[i].Payload != eventstore.PayloadHash(e.Type, e.Data()) {
			t.Fatalf("%+v: application %s %s, oracle %s %s", c, e.Type, e.Data(), v.Events[i].Type, v.Events[i].Data)
		}
	}
}

func TestBothFoldsOfAnAuctionAgreeOnAnyLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var theirs auction.State
		ours, err := oracle.New(oracle.Auction)
		if err != nil {
			t.Fatal(err)
		}
		row, err := oracle.NewRow(oracle.HighBids)
		if err != nil {
			t.Fatal(err)
		}
		refused := false // the row also takes what the state refuses; they agree up to there
		bidID := rapid.Custom(func(t *rapid.T) string { return "b" + strconv.Itoa(rapid.IntRange(0, 9).Draw(t, "n")) })
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			e := auction.Event{
				Type:    rapid.SampledFrom([]string{auction.Created, auction.BidAccepted, auction.BidAccepted, auction.BidAccepted, auction.ClosedEvent}).Draw(t, "type"),
				Auction: lot,
				Version: theirs.Version + rapid.Uint64Range(0, 2).Draw(t, "step"),
				At:      stamp(instant.Draw(t, "at")),
			}
			switch e.Type {
			case auction.Created:
				e.OpeningPrice = someAmount.Draw(t, "opening")
			case auction.BidAccepted:
				e.BidID, e.Bidder, e.Amount = bidID.Draw(t, "id"), text.Draw(t, "bidder"), someAmount.Draw(t, "amount")
			case auction.ClosedEvent:
				e.HighBid, e.HighBidder = someAmount.Draw(t, "high"), text.Draw(t, "bidder")
			}
			ev := logged("auction-lot-1", e.Type, e.Version, string(e.Data()))
			next, theirErr := auction.Apply(theirs, e)
			ourErr := ours.Apply(ev)
			if (theirErr == nil) != (ourErr == nil) {
				t.Fatalf("%+v on %+v: application %v, oracle %v", e, theirs, theirErr, ourErr)
			}
			refused = refused || ourErr != nil
			if err := row.Apply(ev); err != nil {
				t.Fatal(err)
			}
			theirs = next
			if !bytes.Equal(ours.Encode(), theirs.Encode()) || ours.Hash() != eventstore.HashBytes(theirs.Encode()) || !bytes.Equal(ours.Snapshot(), theirs.Snapshot()) {
				t.Fatalf("encodings %q and %q", ours.Encode(), theirs.Encode())
			}
			if theirs.Status != auction.Missing && !refused && !bytes.Equal(row.Encode(), theirs.Row().Encode()) {
				t.Fatalf("rows %s and %s", row.Encode(), theirs.Row().Encode())
			}
			compareAuctionDecision(t, ours, theirs, bidID)
		}
	})
}

func compareAuctionDecision(t *rapid.T, ours oracle.State, theirs auction.State, bidID *rapid.Generator[string]) {
	c := auction.Command{
		Name: rapid.SampledFrom([]string{"create", "bid", "bid", "bid", "close"}).Draw(t, "command"), Auction: lot,
		BidID: bidID.Draw(t, "id"), Bidder: text.Draw(t, "bidder"), Amount: someAmount.Draw(t, "amount"),
	}
	if first, known := theirs.Bid(c.BidID); known && rapid.Bool().Draw(t, "replay") {
		c.Bidder, c.Amount = first.Bidder, first.Amount
	}
	now := instant.Draw(t, "now")
	d, err := auction.Decide(theirs, c, now)
	v, ourErr := ours.Decide(c.Name, c.Body(), now.UnixMilli())
	if ourErr != nil {
		t.Fatal(ourErr)
	}
	var refusal *auction.Refusal
	if errors.As(err, &refusal) != (v.Code != "") || refusal != nil && (refusal.Code != v.Code || refusal.Have != v.Have || refusal.Want != v.Want) ||
		len(d.Events) != len(v.Events) || (d.Replay == nil) != (v.Replay == nil) {
		t.Fatalf("%+v on %+v: application %+v, %v, oracle %+v", c, theirs, d, err, v)
	}
	if r := d.Replay; r != nil && *v.Replay != (oracle.Bid{Bidder: r.Bidder, Amount: r.Amount, AcceptedAt: r.AcceptedAt, Millis: r.AcceptedMillis(), Version: r.Version}) {
		t.Fatalf("replays %+v and %+v", *r, *v.Replay)
	}
	for i, e := range d.Events {
		if v.Events[i].Type != e.Type || !bytes.Equal(v.Events[i].Data, e.Data()) || v.Events[i].Payload != eventstore.PayloadHash(e.Type, e.Data()) {
			t.Fatalf("%+v: application %s %s, oracle %s %s", c, e.Type, e.Data(), v.Events[i].Type, v.Events[i].Data)
		}
	}
}

func TestParsedFactsAndCommandsCarryEveryField(t *testing.T) {
	f, err := oracle.ParseEvent(logged("auction-lot-1", "BidAccepted", 2, `{"amount":500,"at":"`+at+`","auction":"lot-1","bidId":"b1","bidder":"ada"}`))
	if want := (oracle.Fact{Auction: "lot-1", BidID: "b1", Bidder: "ada", Amount: 500, At: at, Millis: 1772597167089}); err != nil || f != want {
		t.Errorf("got %+v, %v", f, err)
	}
	c, err := oracle.ParseCommand([]byte(`{"amount":-5,"auction":"lot-1","bidId":"b1","bidder":"\u00e9"}`))
	if want := (oracle.Command{Auction: "lot-1", BidID: "b1", Bidder: "é", Amount: -5}); err != nil || c != want {
		t.Errorf("got %+v, %v", c, err)
	}
}

func TestRowsAreKeyedByTheirKindOfStream(t *testing.T) {
	for _, c := range []struct {
		view, stream string
		ok           bool
	}{{"balances", "account-7", true}, {"balances", "auction-7", false}, {"high-bids", "auction-7", true}, {"high-bids", "account-7", false}, {"other", "account-7", false}} {
		if key, ok := oracle.RowKey(c.view, history.LoggedEvent{Stream: c.stream}); ok != c.ok || ok && key != c.stream {
			t.Errorf("%s of %s: %q, %v", c.view, c.stream, key, ok)
		}
	}
	row, err := oracle.NewRow(oracle.HighBids)
	if err != nil || row.Encode() != nil || row.Version() != 0 {
		t.Fatalf("a row before its first event is %s, %v", row.Encode(), err)
	}
	created, bid := logged("auction-a", "AuctionCreated", 1, `{"at":"x","auction":"a","openingPrice":1}`), logged("auction-a", "BidAccepted", 2, `{"amount":5,"at":"x","auction":"a","bidId":"b","bidder":"c"}`)
	for _, ev := range []history.LoggedEvent{created, bid, bid} {
		if err := row.Apply(ev); err != nil {
			t.Fatal(err)
		}
	}
	if want := `{"accepted":2,"bidder":"c","high":5,"status":"open"}`; string(row.Encode()) != want || row.Version() != 2 {
		t.Errorf("an event applied twice must show: %s, want %s", row.Encode(), want)
	}
}

func TestARowShowsWhatWasAppliedRightOrWrong(t *testing.T) {
	opened, deposited := logged("account-7", "AccountOpened", 1, `{"account":"7","at":"x","owner":"ada"}`), logged("account-7", "FundsDeposited", 2, `{"account":"7","amount":5,"at":"x"}`)
	withdrawn, closed := logged("account-7", "FundsWithdrawn", 3, `{"account":"7","amount":9,"at":"x"}`), logged("account-7", "AccountClosed", 4, `{"account":"7","at":"x"}`)
	for _, c := range []struct {
		name   string
		events []history.LoggedEvent
		want   string
	}{
		{"all in order", []history.LoggedEvent{opened, deposited, withdrawn, closed}, `{"balance":-4,"owner":"ada","status":"closed"}`},
		{"no opening", []history.LoggedEvent{deposited}, `{"balance":5,"owner":"","status":"open"}`},
		{"out of order", []history.LoggedEvent{closed, deposited, opened}, `{"balance":5,"owner":"ada","status":"closed"}`},
		{"twice", []history.LoggedEvent{opened, opened, deposited, deposited}, `{"balance":10,"owner":"ada","status":"open"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			row, err := oracle.NewRow(oracle.Balances)
			if err != nil {
				t.Fatal(err)
			}
			for _, ev := range c.events {
				if err := row.Apply(ev); err != nil {
					t.Fatal(err)
				}
			}
			if string(row.Encode()) != c.want || row.Version() != c.events[len(c.events)-1].Version {
				t.Errorf("got %s at version %d, want %s", row.Encode(), row.Version(), c.want)
			}
			before := row.Encode()
			for _, bad := range []history.LoggedEvent{logged("account-7", "FundsDeposited", 9, `{}`), logged("account-7", "AuctionClosed", 9, `{"at":"x","auction":"a","highBid":1,"highBidder":""}`)} {
				if err := row.Apply(bad); !errors.Is(err, oracle.ErrLog) || !bytes.Equal(row.Encode(), before) {
					t.Errorf("%s gives %v, %s", bad.Type, err, row.Encode())
				}
			}
		})
	}
}

// FuzzAnyBytesAreReadAsTheDomainReadsThem also guards against panics.
func FuzzAnyBytesAreReadAsTheDomainReadsThem(f *testing.F) {
	for _, s := range []string{`{"account":"7","amount":1,"at":"x"}`, `{"account":"7","amount":1.5,"at":"x"}`, `{"account":"7","amount":01,"at":"x"}`, `{"account":"7","amount":-0,"at":"x"}`,
		`{"account":"7","amount":-,"at":"x"}`, `{"account":"7","amount":9223372036854775807,"at":"x"}`, `{"account":"7","amount":9223372036854775808,"at":"x"}`, `{}`, `{"account":"7",}`, `{"account":"7" ,"amount":01}`,
		`{"account":"\u0037","amount":-9223372036854775808,"at":"x"}`, `{"amount":"1"}`, `{"account":"7","amount":1,"at":"x","more":[1,{}]}`, `null`, `{"ACCOUNT":"7","amount":null}`,
		`{"account":"7","amount":1,"amount":2,"at":"x"}`, `{"account":"` + "\xff" + `","amount":1,"at":"x"}`, `{"account":"7","amount":1,"at":"x","bidder":7}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		theirs, theirErr := account.ParseEvent("FundsDeposited", 1, data)
		ours, ourErr := oracle.ParseEvent(history.LoggedEvent{Type: "FundsDeposited", Version: 1, Data: data})
		if ourErr != nil && theirErr == nil {
			// The oracle reads the fields of both workloads: one of the other workload with a value of another
			// kind is an error to it alone.
			var foreign map[string]json.RawMessage
			if json.Unmarshal(data, &foreign) == nil && len(foreign) > 3 {
				return
			}
		}
		if (theirErr == nil) != (ourErr == nil) || theirErr == nil && (theirs.Account != ours.Account || theirs.Amount != ours.Amount || theirs.At != ours.At) {
			t.Errorf("%q: application %+v, %v, oracle %+v, %v", data, theirs, theirErr, ours, ourErr)
		}
	})
}

func BenchmarkApplyAndHash(b *testing.B) {
	b.Run("account", func(b *testing.B) {
		s := fold(b, oracle.Bank)
		benchmark(b, s, logged("account-7", "AccountOpened", 1, `{"account":"7","at":"x","owner":"ada"}`), func(i int) string {
			return `{"account":"7","amount":1,"at":"` + at + `"}`
		}, "FundsDeposited")
	})
	b.Run("auction", func(b *testing.B) {
		s := fold(b, oracle.Auction)
		benchmark(b, s, logged("auction-lot-1", "AuctionCreated", 1, `{"at":"x","auction":"lot-1","openingPrice":1}`), func(i int) string {
			return `{"amount":` + strconv.Itoa(i+2) + `,"at":"` + at + `","auction":"lot-1","bidId":"c-1-` + strconv.Itoa(i) + `","bidder":"ada"}`
		}, "BidAccepted")
	})
}

func benchmark(b *testing.B, s oracle.State, first history.LoggedEvent, data func(i int) string, typ string) {
	if err := s.Apply(first); err != nil {
		b.Fatal(err)
	}
	events := make([]history.LoggedEvent, b.N)
	for i := range events {
		events[i] = logged("s", typ, uint64(i)+2, data(i))
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range events {
		if err := s.Apply(events[i]); err != nil {
			b.Fatal(err)
		}
		s.Hash()
	}
}

func BenchmarkDecide(b *testing.B) {
	s := fold(b, oracle.Bank)
	for _, ev := range []history.LoggedEvent{logged("account-7", "AccountOpened", 1, `{"account":"7","at":"x","owner":"ada"}`), logged("account-7", "FundsDeposited", 2, `{"account":"7","amount":100,"at":"x"}`)} {
		if err := s.Apply(ev); err != nil {
			b.Fatal(err)
		}
	}
	body := []byte(`{"account":"7","amount":1}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Decide("withdraw", body, 1772597167089); err != nil {
			b.Fatal(err)
		}
	}
}
