package account

import (
	"encoding/json"
	"fmt"
)

// View is the name of the view of all balances: one row a stream, keyed by the stream's name.
const View = "balances"

// Row is a row of the view. Its state in a store is canonical JSON with the keys in this order:
//
//	{"balance":4000,"owner":"ada","status":"open"}
//
// Any event begins a row that is not there yet: open, without owner, balance 0. AccountOpened sets the owner,
// FundsDeposited and FundsWithdrawn move the balance, AccountClosed sets the status to closed. So the row shows
// what was applied, right or wrong, and an event applied twice shows.
type Row struct {
	Balance int64  `json:"balance"`
	Owner   string `json:"owner"`
	Status  string `json:"status"` // "open" or "closed"
}

// Encode returns the row's state.
func (r Row) Encode() []byte { return marshal(r) }

// DecodeRow reads what Encode wrote.
func DecodeRow(state []byte) (Row, error) {
	var r Row
	if err := json.Unmarshal(state, &r); err != nil {
		return Row{}, fmt.Errorf("account: row of %s: %w", View, err)
	}
	return r, nil
}

// Row returns the row that a view which has seen all events of the state shows.
func (s State) Row() Row { return Row{Balance: s.Balance, Owner: s.Owner, Status: s.Status.String()} }
