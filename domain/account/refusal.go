package account

import "fmt"

// The codes of business refusals. All are terminal: the same command on the same state is refused again.
const (
	NotOpen           = "NOT_OPEN"
	AlreadyOpen       = "ALREADY_OPEN"
	InvalidAmount     = "INVALID_AMOUNT"
	InsufficientFunds = "INSUFFICIENT_FUNDS"
	BalanceNotZero    = "BALANCE_NOT_ZERO"
)

// Refusal is the business answer no.
type Refusal struct {
	Code      string
	Have      int64 // the balance that was decided on; 0 for a decision without a state
	Want      int64 // the amount asked for
	Retriable bool  // always false here; part of the shape that all domains share
	Text      string
}

// Error returns the wire form.
func (r *Refusal) Error() string { return Wire(r.Code, r.Text) }

// Wire is the form in which a refusal travels: CODE - message.
func Wire(code, text string) string { return code + " - " + text }

func invalidAmount(balance, amount int64) *Refusal {
	return &Refusal{Code: InvalidAmount, Have: balance, Want: amount, Text: fmt.Sprintf("amount of %d is not possible", amount)}
}
