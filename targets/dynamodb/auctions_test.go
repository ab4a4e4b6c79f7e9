package dynamodb_test

import (
	"fmt"
	"strings"
	"testing"

	emulator "github.com/eventproof/eventproof/emulators/dynamodb"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/dynamodb"
	"github.com/eventproof/eventproof/targets/dynamodb/internal/dytest"
)

func TestTheAuditNumbersOperationsByTheChangesOfTheAuction(t *testing.T) {
	server := dytest.Serve(t, emulator.Options{Dir: t.TempDir(), Shards: 3, Faults: []emulator.Fault{
		{Kind: emulator.StreamReorder, Probability: 0.5}, {Kind: emulator.StreamDuplicate, Probability: 0.3},
	}})
	target, parts, ok := dynamodb.Variant("bid-transact")
	if !ok {
		t.Fatal("no variant")
	}
	i := dytest.Open(t, server, dynamodb.New(target, parts))
	b := dytest.Connect(t, i, "writer", dytest.Env("writer")).(targets.BiddingSession).Bidding()
	const lot = "auction-lot-1"
	event := func(n byte) eventstore.NewEvent { return eventstore.NewEvent{ID: eventstore.EventID{n}} }
	must := func(_ eventstore.Taken, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(b.OpenAuction(t.Context(), eventstore.Opening{Auction: lot, Request: "o", Price: 100, At: 1000, Event: event(9)}))
	must(b.PlaceBid(t.Context(), eventstore.Bid{Auction: lot, ID: "b1", Bidder: "ada", Amount: 500, At: 2500, Event: event(8)}))
	must(b.PlaceBid(t.Context(), eventstore.Bid{Auction: lot, ID: "b<&>", Bidder: "é\"", Amount: 1 << 62, At: 2750, Event: event(7)}))
	must(b.CloseAuction(t.Context(), eventstore.Closing{Auction: lot, Request: "c", At: 9000, Event: event(6)}))

	var rows []history.AuctionRow
	if err := i.Auditor().(targets.AuctionAuditor).Auctions(t.Context(), func(r history.AuctionRow) error { rows = append(rows, r); return nil }); err != nil {
		t.Fatal(err)
	}
	if want := (history.AuctionRow{Stream: lot, Closed: true, Opening: 100, High: 1 << 62, Bidder: "é\"", Accepted: 2, Changes: 4}); len(rows) != 1 || rows[0] != want {
		t.Errorf("rows %+v, want %+v", rows, want)
	}
	var said []string
	if err := i.Auditor().Log(t.Context(), func(l history.LoggedEvent) error {
		said = append(said, fmt.Sprintf("%s v%d %d %s %s", l.Stream, l.Version, l.ID[0], l.Type, l.Data))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		lot + ` v1 9 AuctionCreated {"at":"1970-01-01T00:00:01.000Z","auction":"lot-1","openingPrice":100}`,
		lot + ` v2 8 BidAccepted {"amount":500,"at":"1970-01-01T00:00:02.500Z","auction":"lot-1","bidId":"b1","bidder":"ada"}`,
		lot + ` v3 7 BidAccepted {"amount":4611686018427387904,"at":"1970-01-01T00:00:02.750Z","auction":"lot-1","bidId":"b\u003c\u0026\u003e","bidder":"é\""}`,
		lot + ` v4 6 AuctionClosed {"at":"1970-01-01T00:00:09.000Z","auction":"lot-1"}`,
	}
	if strings.Join(said, "\n") != strings.Join(want, "\n") {
		t.Errorf("the audit says\n%s\nwant\n%s", strings.Join(said, "\n"), strings.Join(want, "\n"))
	}
}

func TestAVariantOfItemsTakesNoAppends(t *testing.T) {
	target, parts, _ := dynamodb.Variant("bid-transact")
	i := dytest.Open(t, dytest.Serve(t, emulator.Options{}), dynamodb.New(target, parts))
	_, err := dytest.Connect(t, i, "writer", dytest.Env("writer")).Store().Append(t.Context(), eventstore.Append{
		Stream: "a", Request: "1", Events: []eventstore.NewEvent{{ID: eventstore.EventID{1}, Type: "x"}},
	})
	if outcome, reason := eventstore.Classify(err); outcome != eventstore.Fail || reason != eventstore.Invalid {
		t.Errorf("got %v", err)
	}
}
