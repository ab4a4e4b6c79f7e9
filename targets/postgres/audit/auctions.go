package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/targets"
)

var _ targets.AuctionAuditor = (*Auditor)(nil)

// operations yields what the rows of auctions and bids say was done, as events. Their versions are the counts of changes
// that were copied in the transaction of the change.
func (a *Auditor) operations(ctx context.Context, yield func(history.LoggedEvent) error) error {
	const sql = `select x.auction, x.changes, x.event::text, x.type, x.at, x.id, x.bidder, x.amount from (
			select o.auction, 1::bigint as changes, o.opened_event as event, 'AuctionCreated' as type, o.opened_at as at,
				'' as id, '' as bidder, o.opening as amount from auctions as o
			union all
			select b.auction, b.changes, b.event, 'BidAccepted', b.accepted_at, b.id, b.bidder, b.amount from bids as b
			union all
			select c.auction, c.closed_changes, c.closed_event, 'AuctionClosed', c.closed_at, '', '', 0 from auctions as c
				where c.closed_event is not null
		) as x order by x.auction, x.changes, x.event`
	return a.stream(ctx, "the auctions", sql, func(r pgx.Rows) error {
		var stream, event, kind, bid, bidder string
		var changes, at, amount int64
		if err := r.Scan(&stream, &changes, &event, &kind, &at, &bid, &bidder, &amount); err != nil {
			return err
		}
		id, err := eventstore.ParseEventID(event)
		if err != nil {
			return err
		}
		data, err := operation(kind, stream, at, bid, bidder, amount)
		if err != nil {
			return fmt.Errorf("%s %s: %w", kind, event, err)
		}
		return yield(history.LoggedEvent{Stream: stream, Version: uint64(changes), ID: id, Type: kind, Data: data})
	})
}

// operation writes down what a row says, in the canonical form of the event that asked for it: keys sorted, no blanks.
func operation(kind, stream string, at int64, bid, bidder string, amount int64) ([]byte, error) {
	fields := map[string]any{
		"auction": strings.TrimPrefix(stream, "auction-"),
		"at":      time.UnixMilli(at).UTC().Format("2006-01-02T15:04:05.000Z"),
	}
	switch kind {
	case "AuctionCreated":
		fields["openingPrice"] = amount
	case "BidAccepted":
		fields["amount"], fields["bidId"], fields["bidder"] = amount, bid, bidder
	}
	return json.Marshal(fields) // sorts the keys
}

// Auctions implements targets.AuctionAuditor.
func (a *Auditor) Auctions(ctx context.Context, yield func(history.AuctionRow) error) error {
	if !a.place.NativeAuction {
		return nil
	}
	const sql = `select a.auction, a.status, a.opening, a.high, a.bidder, a.accepted, a.changes from auctions as a order by a.auction`
	return a.stream(ctx, "the auctions", sql, func(r pgx.Rows) error {
		var row history.AuctionRow
		var status string
		var accepted, changes int64
		if err := r.Scan(&row.Stream, &status, &row.Opening, &row.High, &row.Bidder, &accepted, &changes); err != nil {
			return err
		}
		row.Closed, row.Accepted, row.Changes = status == "closed", uint64(accepted), uint64(changes)
		return yield(row)
	})
}
