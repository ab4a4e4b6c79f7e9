package oracle

import (
	"fmt"
	"strings"

	"github.com/eventproof/eventproof/history"
)

// The views that can be folded.
const (
	Balances = "balances"
	HighBids = "high-bids"
)

// RowKey returns the row of a view that an event belongs to: the row named like its stream, for events of the
// view's kind of stream. ok is false for an event that the view filters.
func RowKey(view string, ev history.LoggedEvent) (key string, ok bool) {
	switch view {
	case Balances:
		ok = strings.HasPrefix(ev.Stream, "account-")
	case HighBids:
		ok = strings.HasPrefix(ev.Stream, "auction-")
	}
	return ev.Stream, ok
}

// Row is the fold of one row of a view. Like the view it shows what was applied, right or wrong: any event begins
// the row.
type Row struct {
	view    string
	exists  bool
	closed  bool
	amount  int64  // balance or high bid
	name    string // owner or bidder
	count   uint64 // accepted bids
	version uint64
}

// NewRow returns the fold of a row of the view before the first event; an unknown view is an error.
func NewRow(view string) (*Row, error) {
	switch view {
	case Balances, HighBids:
		return &Row{view: view}, nil
	}
	return nil, fmt.Errorf("oracle: no fold for the view %q", view)
}

// Version is that of the last event applied, 0 before the first.
func (r *Row) Version() uint64 { return r.version }

// Apply folds the next event into the row, whatever its version and whatever was applied before. The error, which
// wraps ErrLog, is that of data that can't be read, or of an event of another view; the row is what it was before.
func (r *Row) Apply(ev history.LoggedEvent) error {
	f, err := parseEvent(&ev)
	if err != nil {
		return err
	}
	if err := r.fold(&ev, &f); err != nil {
		return fmt.Errorf("%w: row of %s: %s at version %d: %w", ErrLog, r.view, ev.Type, ev.Version, err)
	}
	r.version = ev.Version
	return nil
}

func (r *Row) fold(ev *history.LoggedEvent, f *fields) error {
	type event struct{ view, typ string }
	switch (event{r.view, ev.Type}) {
	case event{Balances, accountOpened}:
		r.name = string(f.text[textOwner])
	case event{Balances, fundsDeposited}:
		r.amount += f.number[numAmount]
	case event{Balances, fundsWithdrawn}:
		r.amount -= f.number[numAmount]
	case event{Balances, accountClosed}, event{HighBids, auctionClosed}:
		r.closed = true
	case event{HighBids, auctionCreated}:
		r.amount = f.number[numOpeningPrice]
	case event{HighBids, bidAccepted}:
		r.count++
		if bid := f.number[numAmount]; bid > r.amount {
			r.amount, r.name = bid, string(f.text[textBidder])
		}
	default:
		return errForeign
	}
	r.exists = true
	return nil
}

// Encode returns the row's state as the view must hold it, nil when there is no row yet.
func (r *Row) Encode() []byte {
	if !r.exists {
		return nil
	}
	var b []byte
	switch r.view {
	case Balances:
		b = appendNumber(append(b, `{"balance":`...), r.amount)
		b = appendText(append(b, `,"owner":`...), []byte(r.name))
	case HighBids:
		b = appendNumber(append(b, `{"accepted":`...), int64(r.count))
		b = appendText(append(b, `,"bidder":`...), []byte(r.name))
		b = appendNumber(append(b, `,"high":`...), r.amount)
	}
	if r.closed {
		return append(b, `,"status":"closed"}`...)
	}
	return append(b, `,"status":"open"}`...)
}
