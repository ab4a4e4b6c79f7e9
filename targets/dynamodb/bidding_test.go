package dynamodb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/eventproof/eventproof/eventstore"
)

// wire is an item of texts and numbers as the service shows it.
func wire(t *testing.T, it item) string {
	t.Helper()
	out := map[string]map[string]string{}
	for name, v := range it {
		switch v := v.(type) {
		case *types.AttributeValueMemberS:
			out[name] = map[string]string{"S": v.Value}
		case *types.AttributeValueMemberN:
			out[name] = map[string]string{"N": v.Value}
		default:
			t.Fatalf("%s is a %T", name, v)
		}
	}
	text, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func auctionShown(t *testing.T, status string, high int64) string {
	t.Helper()
	it := item{
		"status": text(status), "high": amount(high), "bidder": text("bob"), "changes": number(4),
		"openedEvent": text(eventstore.EventID{1}.String()), "openedRequest": text("o"),
	}
	if status == statusClosed {
		it["closedEvent"], it["closedRequest"] = text(eventstore.EventID{2}.String()), text("c")
	}
	return failedWith(wire(t, it))
}

func TestEveryAnswerToABid(t *testing.T) {
	const ok, fail, unknown = eventstore.OK, eventstore.Fail, eventstore.Unknown
	b := eventstore.Bid{Auction: "auction-a", ID: "b1", Bidder: "ada", Amount: 500, At: 7, Event: eventstore.NewEvent{ID: eventstore.EventID{5}}}
	bidShown := func(bidder string, sum int64) string {
		return failedWith(wire(t, item{"bidder": text(bidder), "amount": amount(sum), "at": amount(3), "event": text(eventstore.EventID{4}.String())}))
	}
	own, otherBody := bidShown("ada", 500), bidShown("ada", 900)
	open, closed, missing := auctionShown(t, statusOpen, 750), auctionShown(t, statusClosed, 750), because("ConditionalCheckFailed")
	conflict := because("TransactionConflict")
	for _, c := range []struct {
		name    string
		reply   reply
		outcome eventstore.Outcome
		reason  eventstore.Reason
		says    string // the refusal
		replay  bool
	}{
		{"done", answer(200, "{}"), ok, eventstore.ReasonNone, "", false},
		{"accepted before", canceled(none, own), ok, eventstore.ReasonNone, "", true},
		{"accepted before, and it looks stale", canceled(open, own), ok, eventstore.ReasonNone, "", true},
		{"accepted before, and the auction is closed", canceled(closed, own), ok, eventstore.ReasonNone, "", true},
		{"accepted before, and the auction is in the way", canceled(conflict, own), ok, eventstore.ReasonNone, "", true},
		{"accepted before with another amount", canceled(open, otherBody), fail, eventstore.Refused, "altered, high bid 750", false},
		{"accepted before of another bidder", canceled(none, bidShown("bob", 500)), fail, eventstore.Refused, "altered", false},
		{"accepted before, but it is not shown", canceled(open, missing), fail, eventstore.TransactionConflict, "", false},
		{"the bid's item is in the way, and it looks stale", canceled(open, conflict), fail, eventstore.TransactionConflict, "", false},
		{"the bid's item is in the way, and the auction is closed", canceled(closed, conflict), fail, eventstore.TransactionConflict, "", false},
		{"the bid's item is throttled, and it looks stale", canceled(open, because("ThrottlingError")), fail, eventstore.Throttled, "", false},
		{"missing", canceled(missing, none), fail, eventstore.Refused, "closed, the auction is missing", false},
		{"closed", canceled(closed, none), fail, eventstore.Refused, "closed, high bid 750", false},
		{"stale", canceled(open, none), fail, eventstore.Refused, "stale, high bid 750", false},
		{"the auction is in the way", canceled(conflict, none), fail, eventstore.TransactionConflict, "", false},
		{"throttled", canceled(because("ProvisionedThroughputExceeded"), none), fail, eventstore.Throttled, "", false},
		{"an item that can't be read", canceled(failedWith(`{"status":{"S":"HALF"}}`), none), fail, eventstore.TransactionConflict, "", false},
		{"a reason for one operation only", canceled(open), fail, eventstore.VersionConflict, "", false},
		{"throttled as a whole", exception(400, "ThrottlingException"), fail, eventstore.Throttled, "", false},
		{"in progress", exception(400, "TransactionInProgressException"), unknown, eventstore.ServerUncertain, "", false},
		{"internal error", exception(500, "InternalServerError"), unknown, eventstore.ServerUncertain, "", false},
		{"hung up", hangUp, unknown, eventstore.LostReply, "", false},
		{"no answer", silentReply, unknown, eventstore.TimedOut, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, server := scripted(t, Parts{Reader: AllPages{}, Bidding: TransactBid{}}, c.reply)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			got, err := s.PlaceBid(ctx, b)
			check(t, err, c.outcome, c.reason)
			var no *eventstore.BidRefusal
			if errors.As(err, &no) != (c.says != "") || no != nil && strings.TrimPrefix(no.Error(), "eventstore: refused: ") != c.says {
				t.Errorf("refused: %v, want %q", no, c.says)
			}
			want := eventstore.Taken{}
			switch {
			case c.replay:
				want = eventstore.Taken{Event: eventstore.EventID{4}, Amount: 500, At: 3, Replayed: true}
			case c.outcome == ok:
				want = eventstore.Taken{Event: eventstore.EventID{5}, Amount: 500, At: 7}
			}
			if got != want {
				t.Errorf("answered %+v, want %+v", got, want)
			}
			once(t, server, "TransactWriteItems")
		})
	}
}

func TestEveryAnswerToOpeningAndClosing(t *testing.T) {
	const ok, fail, unknown = eventstore.OK, eventstore.Fail, eventstore.Unknown
	condition := func(shown string) reply {
		return answer(400, `{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","message":"scripted"`+shown+`}`)
	}
	item := func(status string) string {
		_, rest, _ := strings.Cut(auctionShown(t, status, 750), `"Item":`)
		return `,"Item":` + strings.TrimSuffix(rest, "}")
	}
	all := func(status string) reply {
		_, rest, _ := strings.Cut(item(status), `"Item":`)
		return answer(200, fmt.Sprintf(`{"Attributes":%s}`, rest))
	}
	open := func(request string) func(context.Context, *session) (eventstore.Taken, error) {
		return func(ctx context.Context, s *session) (eventstore.Taken, error) {
			return s.OpenAuction(ctx, eventstore.Opening{Auction: "auction-a", Request: request, Price: 100, Event: eventstore.NewEvent{ID: eventstore.EventID{1}}})
		}
	}
	shut := func(request string) func(context.Context, *session) (eventstore.Taken, error) {
		return func(ctx context.Context, s *session) (eventstore.Taken, error) {
			return s.CloseAuction(ctx, eventstore.Closing{Auction: "auction-a", Request: request, Event: eventstore.NewEvent{ID: eventstore.EventID{2}}})
		}
	}
	for _, c := range []struct {
		name    string
		do      func(context.Context, *session) (eventstore.Taken, error)
		reply   reply
		outcome eventstore.Outcome
		reason  eventstore.Reason
		want    eventstore.Taken
	}{
		{"opened", open("o"), answer(200, "{}"), ok, eventstore.ReasonNone, eventstore.Taken{Event: eventstore.EventID{1}, Version: 1}},
		{"opened before by this request", open("o"), condition(item(statusOpen)), ok, eventstore.ReasonNone, eventstore.Taken{Event: eventstore.EventID{1}, Version: 1, Replayed: true}},
		{"opened before by another", open("x"), condition(item(statusOpen)), fail, eventstore.Refused, eventstore.Taken{}},
		{"opened before, by whom is not shown", open("o"), condition(""), fail, eventstore.TransactionConflict, eventstore.Taken{}},
		{"opening with a server error", open("o"), exception(500, "InternalServerError"), unknown, eventstore.ServerUncertain, eventstore.Taken{}},
		{"closed", shut("c"), all(statusClosed), ok, eventstore.ReasonNone, eventstore.Taken{Event: eventstore.EventID{2}, Version: 4, High: 750, Bidder: "bob"}},
		{"closed without telling what it found", shut("c"), answer(200, "{}"), unknown, eventstore.ServerUncertain, eventstore.Taken{}},
		{"closed before by this request", shut("c"), condition(item(statusClosed)), ok, eventstore.ReasonNone, eventstore.Taken{Event: eventstore.EventID{2}, Version: 4, High: 750, Bidder: "bob", Replayed: true}},
		{"closed before by another", shut("x"), condition(item(statusClosed)), fail, eventstore.Refused, eventstore.Taken{}},
		{"closing a missing one", shut("c"), condition(""), fail, eventstore.Refused, eventstore.Taken{}},
		{"refused although it is open", shut("c"), condition(item(statusOpen)), fail, eventstore.TransactionConflict, eventstore.Taken{}},
		{"closing in the way of a transaction", shut("c"), exception(400, "TransactionConflictException"), fail, eventstore.TransactionConflict, eventstore.Taken{}},
		{"closing without an answer", shut("c"), hangUp, unknown, eventstore.LostReply, eventstore.Taken{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, _ := scripted(t, Parts{Reader: AllPages{}, Bidding: TransactBid{}}, c.reply)
			got, err := c.do(t.Context(), s)
			check(t, err, c.outcome, c.reason)
			if got != c.want {
				t.Errorf("answered %+v, want %+v", got, c.want)
			}
		})
	}
}
