package auction

import (
	"encoding/json"
	"fmt"
)

// View is the name of the view of all high bids: one row a stream, keyed by the stream's name.
const View = "high-bids"

// Row is a row of the view. Its state in a store is canonical JSON with the keys in this order:
//
//	{"accepted":3,"bidder":"ada","high":750,"status":"open"}
//
// Any event begins a row that is not there yet: open, nothing accepted, no bidder, high 0. AuctionCreated sets
// high to the opening price; BidAccepted raises accepted by one and, if its amount is above high, sets high and
// bidder; AuctionClosed sets the status to closed. So the row shows what was applied, right or wrong, and an
// event applied twice shows.
type Row struct {
	Accepted uint64 `json:"accepted"`
	Bidder   string `json:"bidder"`
	High     int64  `json:"high"`
	Status   string `json:"status"` // "open" or "closed"
}

// Encode returns the row's state.
func (r Row) Encode() []byte { return marshal(r) }

// DecodeRow reads what Encode wrote.
func DecodeRow(state []byte) (Row, error) {
	var r Row
	if err := json.Unmarshal(state, &r); err != nil {
		return Row{}, fmt.Errorf("auction: row of %s: %w", View, err)
	}
	return r, nil
}

// Row returns the row that a view which has seen all events of the state shows.
func (s State) Row() Row {
	return Row{Accepted: s.Accepted, Bidder: s.HighBidder, High: s.High, Status: s.Status.String()}
}
