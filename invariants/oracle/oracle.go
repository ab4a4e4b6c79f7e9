// Package oracle folds and decides a second time. It is written apart from the domain packages and shares no
// code with them: it reads events, commands and rows by parsers of its own and knows their rules from the
// reference. What both have in common are byte formats, which the domain documents: the canonical encoding of
// a state, the snapshot, the data of events, the rows of views.
//
// A log may be wrong in any way, that is what it is judged for: nothing here panics on one. A fold that goes
// below zero, past a closing or under the high bid goes on and shows it; only what can't be folded at all is an
// error.
package oracle

import (
	"errors"
	"fmt"
	"iter"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
)

// The workloads that can be folded.
const (
	Bank    = "bank"
	Auction = "auction"
)

// ErrLog marks an event that can't be folded: unreadable data, an unknown type, an event on a stream that was
// never opened, a second opening, a balance outside 64 bits.
var ErrLog = errors.New("oracle: impossible log")

// Status of an aggregate. The numbers are part of the canonical encoding.
type Status uint8

// The statuses.
const (
	Missing Status = iota
	Open
	Closed
)

// String returns the name used in view rows.
func (s Status) String() string {
	switch s {
	case Missing:
		return "missing"
	case Open:
		return "open"
	case Closed:
		return "closed"
	}
	return fmt.Sprintf("status(%d)", uint8(s))
}

// State is the fold of one stream. It has one owner: methods must not be called at the same time, not even
// those that only look.
type State interface {
	// Apply folds the next event, whatever its version. After an error, which wraps ErrLog, the state is what
	// it was before.
	Apply(ev history.LoggedEvent) error
	// Version is the version of the last event applied, 0 before the first.
	Version() uint64
	// Hash is the hash of the canonical encoding, as decision records carry it.
	Hash() eventstore.Hash
	// Encode returns the canonical encoding.
	Encode() []byte
	// Snapshot returns the bytes that a snapshot of the state must have.
	Snapshot() []byte
	// Clone returns a copy that lives its own life. It costs time in proportion to the accepted bids.
	Clone() State
	// Decide returns what the command must lead to on this state at a time given in unix milliseconds. A body
	// that can't be read, or a command that the workload does not know, is an error.
	Decide(name string, body []byte, nowMillis int64) (Verdict, error)

	Status() Status
	// Balance of an account in minor units; 0 for an auction.
	Balance() int64
	// High is the amount to beat in an auction: its highest accepted bid, the opening price while there is
	// none; 0 for an account.
	High() int64
	// HighBidder of an auction, empty while there is no bid; empty for an account.
	HighBidder() string
	// Accepted counts the accepted bids of an auction; 0 for an account.
	Accepted() uint64
	// Bid looks up the first acceptance of a bid id.
	Bid(id string) (Bid, bool)
	// Bids yields the first acceptance of every bid id in no particular order.
	Bids() iter.Seq2[string, Bid]
}

// Bid is an accepted bid.
type Bid struct {
	Bidder     string
	Amount     int64
	AcceptedAt string // ISO 8601 as in the event
	Millis     int64  // AcceptedAt in unix milliseconds; 0 if it is not a time
	Version    uint64 // of the event that accepted it
}

// Verdict is what a command must lead to: exactly one of Events, Code and Replay is set.
type Verdict struct {
	// Events to append at the versions after the state's.
	Events []Event
	// Code of a refusal with the amounts that it shows: Have is the balance or the high bid, 0 for a blind
	// deposit; Want the amount asked for.
	Code       string
	Have, Want int64
	// Replay is the earlier acceptance of the same bid.
	Replay *Bid
}

// Event is an event that a decision must have given. Its id is not decided.
type Event struct {
	Type    string
	Data    []byte
	Payload eventstore.Hash
}

// New returns the fold of a workload's streams before the first event.
func New(workload string) (State, error) {
	switch workload {
	case Bank:
		return &account{}, nil
	case Auction:
		return &lot{bids: map[string]Bid{}}, nil
	}
	return nil, fmt.Errorf("oracle: no fold for the workload %q", workload)
}

// accept builds the verdict of an accepted command.
func accept(events ...Event) Verdict { return Verdict{Events: events} }

func newEvent(typ string, data []byte) Event {
	return Event{Type: typ, Data: data, Payload: eventstore.PayloadHash(typ, data)}
}

func refuse(code string, have, want int64) Verdict {
	return Verdict{Code: code, Have: have, Want: want}
}
