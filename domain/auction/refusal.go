package auction

// The codes of answers no. THROTTLED and INTERNAL are never decided here: the application answers them when
// the store refused for load or could not tell.
const (
	StaleBid       = "STALE_BID"
	AuctionClosed  = "AUCTION_CLOSED"
	InvalidPayload = "INVALID_PAYLOAD"
	AlreadyExists  = "ALREADY_EXISTS"
	InvalidAmount  = "INVALID_AMOUNT"
	Throttled      = "THROTTLED"
	Internal       = "INTERNAL"
)

// Retriable reports whether an answer with this code invites the same command again.
func Retriable(code string) bool { return code == Throttled || code == Internal }

// Refusal is the business answer no.
type Refusal struct {
	Code      string
	Have      int64 // the high bid that was decided on (the opening price while there is no bid, 0 when missing)
	Want      int64 // the amount asked for
	Retriable bool
	Text      string
}

// Error returns the wire form.
func (r *Refusal) Error() string { return Wire(r.Code, r.Text) }

// Wire is the form in which a rejection travels: CODE - message.
func Wire(code, text string) string { return code + " - " + text }

func refuse(s State, c Command, code, text string) *Refusal {
	return &Refusal{Code: code, Have: s.High, Want: c.Amount, Retriable: Retriable(code), Text: text}
}
