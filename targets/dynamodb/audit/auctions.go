package audit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/targets"
)

var _ targets.AuctionAuditor = (*Auditor)(nil)

// change notes which change of its auction an image of the item shows.
func (a *Auditor) change(image row) error {
	get := reader{row: image}
	event, n := get.text("changed"), get.count("changes")
	if get.err != nil {
		return get.err
	}
	id, err := eventstore.ParseEventID(event)
	if err != nil {
		return err
	}
	if _, seen := a.stream.changes[id]; !seen {
		a.stream.changes[id] = n
	}
	return nil
}

// auctionItem is the item of an auction.
type auctionItem struct {
	row                history.AuctionRow
	opened, closed     eventstore.EventID // closed is zero while it is open
	openedAt, closedAt int64
}

// auctions reads the item of every auction.
func (a *Auditor) auctions(ctx context.Context) ([]auctionItem, error) {
	var all []auctionItem
	err := a.scan(ctx, "META", func(r row) error {
		it, err := readAuction(r)
		all = append(all, it)
		return err
	})
	slices.SortFunc(all, func(x, y auctionItem) int { return cmp.Compare(x.row.Stream, y.row.Stream) })
	return all, err
}

func readAuction(r row) (auctionItem, error) {
	get := reader{row: r}
	it := auctionItem{row: history.AuctionRow{
		Stream: get.text("auction"), Opening: get.amount("opening"), High: get.amount("high"), Bidder: get.text("bidder"),
		Accepted: get.count("accepted"), Changes: get.count("changes"),
	}}
	pk, status, opened := get.text("pk"), get.text("status"), get.text("openedEvent")
	it.openedAt = get.amount("openedAt")
	var closed string
	switch status {
	case "OPEN":
	case "CLOSED":
		it.row.Closed = true
		closed, it.closedAt = get.text("closedEvent"), get.amount("closedAt")
	default:
		return it, fmt.Errorf("audit: auction %s has the status %q", it.row.Stream, status)
	}
	if get.err != nil {
		return it, get.err
	}
	if pk != "AUCTION#"+it.row.Stream {
		return it, fmt.Errorf("audit: the item at %s says that it is the auction %s", pk, it.row.Stream)
	}
	var err error
	if it.opened, err = eventstore.ParseEventID(opened); err != nil {
		return it, err
	}
	if it.row.Closed {
		it.closed, err = eventstore.ParseEventID(closed)
	}
	return it, err
}

// Auctions implements targets.AuctionAuditor.
func (a *Auditor) Auctions(ctx context.Context, yield func(history.AuctionRow) error) error {
	if !a.place.NativeAuction {
		return nil
	}
	all, err := a.auctions(ctx)
	if err != nil {
		return err
	}
	for _, it := range all {
		if err := yield(it.row); err != nil {
			return err
		}
	}
	return nil
}

// operations yields what the items of auctions and bids say was done, as events. Their versions are the changes of the
// auction's item that the streams show them to have made; 0 for one that the streams do not tell of.
func (a *Auditor) operations(ctx context.Context, yield func(history.LoggedEvent) error) error {
	all, err := a.auctions(ctx)
	if err != nil {
		return err
	}
	var events []history.LoggedEvent
	note := func(id eventstore.EventID, kind, stream string, at int64, fields map[string]any) error {
		data, err := operation(stream, at, fields)
		events = append(events, history.LoggedEvent{Stream: stream, ID: id, Type: kind, Data: data})
		return err
	}
	for _, it := range all {
		if err := note(it.opened, "AuctionCreated", it.row.Stream, it.openedAt, map[string]any{"openingPrice": it.row.Opening}); err != nil {
			return err
		}
		if !it.row.Closed {
			continue
		}
		if err := note(it.closed, "AuctionClosed", it.row.Stream, it.closedAt, map[string]any{}); err != nil {
			return err
		}
	}
	err = a.scan(ctx, "BID#", func(r row) error {
		get := reader{row: r}
		stream, bid, bidder, event := get.text("auction"), get.text("bid"), get.text("bidder"), get.text("event")
		amount, at := get.amount("amount"), get.amount("at")
		pk, sk := get.text("pk"), get.text("sk")
		if get.err != nil {
			return get.err
		}
		if pk != "AUCTION#"+stream || sk != "BID#"+bid {
			return fmt.Errorf("audit: the item at %s, %s says that it is bid %s of %s", pk, sk, bid, stream)
		}
		id, err := eventstore.ParseEventID(event)
		if err != nil {
			return err
		}
		return note(id, "BidAccepted", stream, at, map[string]any{"amount": amount, "bidId": bid, "bidder": bidder})
	})
	if err != nil {
		return err
	}
	if err := a.number(ctx, events); err != nil {
		return err
	}
	if a.place.DataDir != "" {
		if err := a.compare(ctx); err != nil {
			return err
		}
	}
	slices.SortFunc(events, func(x, y history.LoggedEvent) int {
		return cmp.Or(cmp.Compare(x.Stream, y.Stream), cmp.Compare(x.Version, y.Version), bytes.Compare(x.ID[:], y.ID[:]))
	})
	for _, e := range events {
		if err := yield(e); err != nil {
			return err
		}
	}
	return nil
}

// operation writes down what an item says, in the canonical form of the event that asked for it: keys sorted, no blanks.
func operation(stream string, at int64, fields map[string]any) ([]byte, error) {
	fields["auction"] = strings.TrimPrefix(stream, "auction-")
	fields["at"] = time.UnixMilli(at).UTC().Format("2006-01-02T15:04:05.000Z")
	return json.Marshal(fields) // sorts the keys
}

// number gives the operations their versions. The streams follow the table: what is missing is waited for, within a bound.
func (a *Auditor) number(ctx context.Context, events []history.LoggedEvent) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for waited := time.Duration(0); ; waited += streamPause {
		if err := a.read(ctx); err != nil {
			return err
		}
		missing := false
		for i := range events {
			n, ok := a.stream.changes[events[i].ID]
			events[i].Version, missing = n, missing || !ok
		}
		if !missing || waited >= streamLag {
			return nil
		}
		if err := clock.Sleep(ctx, streamPause); err != nil {
			return fmt.Errorf("audit: waiting for the streams: %w", err)
		}
	}
}
