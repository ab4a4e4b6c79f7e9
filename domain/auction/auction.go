// Package auction is the auction as an aggregate: events, fold and decisions. It is pure: no clock, no I/O, no
// randomness. Losing is normal: most bids of a hot auction are refused.
//
// Each accepted bid stays in the state's ledger, which makes bids idempotent: the same bid again is answered
// with its first acceptance, whatever has happened since.
package auction

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/bits"
	"time"
)

// Status of an auction.
type Status uint8

// The statuses. Their numbers are part of the canonical encoding.
const (
	// Missing: no event yet.
	Missing Status = iota
	Open
	Closed
)

// String returns the name used in view rows and messages.
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

// Bid is an accepted bid.
type Bid struct {
	Bidder     string
	Amount     int64
	AcceptedAt string // ISO 8601, UTC, milliseconds
	Version    uint64 // of the event that accepted it
}

// AcceptedMillis returns AcceptedAt in unix milliseconds, 0 where it is not a time.
func (b Bid) AcceptedMillis() int64 {
	t, err := time.Parse(time.RFC3339Nano, b.AcceptedAt)
	if err != nil {
		return 0
	}
	return t.UnixMilli()
}

// State is the fold of an auction's events. The zero State is the auction before its first event. States are
// values: Apply and Rehydrate never change the ledger of the state they were given.
type State struct {
	Status       Status
	OpeningPrice int64
	// High is the amount to beat: the highest accepted bid, the opening price while there is none.
	High       int64
	HighBidder string // empty while there is no bid
	HighBidID  string
	Accepted   uint64 // BidAccepted events
	Version    uint64 // of the last event applied

	bids   map[string]Bid // the ledger, by bid id
	ledger digest         // of bids
}

// Bid looks a bid up in the ledger of accepted bids.
func (s State) Bid(id string) (Bid, bool) {
	b, ok := s.bids[id]
	return b, ok
}

// Bids yields the ledger of accepted bids in no particular order.
func (s State) Bids() iter.Seq2[string, Bid] { return maps.All(s.bids) }

// digest is the sum mod 2^128 of one hash a bid: cheap to keep while bids are added, and the same whatever
// order they are added in.
type digest struct{ hi, lo uint64 }

func (d digest) add(id string, b Bid) digest {
	buf := make([]byte, 0, 128)
	for _, s := range [...]string{id, b.Bidder, b.AcceptedAt} {
		buf = binary.AppendUvarint(buf, uint64(len(s)))
		buf = append(buf, s...)
	}
	buf = binary.BigEndian.AppendUint64(buf, uint64(b.Amount))
	buf = binary.BigEndian.AppendUint64(buf, b.Version)
	h := sha256.Sum256(buf)
	lo, carry := bits.Add64(d.lo, binary.BigEndian.Uint64(h[8:16]), 0)
	hi, _ := bits.Add64(d.hi, binary.BigEndian.Uint64(h[:8]), carry)
	return digest{hi, lo}
}

// ErrLog marks an error of the log, not of a caller: a correct store with correct writers never produces it.
var ErrLog = errors.New("auction: impossible log")

// Apply folds one event into a state. It doesn't ask whether the event was a good decision, nor whether
// versions are continuous: a wrong log must become a verdict, not a stop. A bid that does not raise the high
// bid leaves it; a bid id that is in the ledger keeps its first acceptance; both are counted.
//
// Errors are ErrLog: an event on a missing auction, a second creation, an unknown type. The state is returned
// unchanged with them. Apply copies the ledger; Rehydrate copies it once.
func Apply(s State, e Event) (State, error) {
	return Rehydrate(s, []Event{e})
}

// Rehydrate folds events into a state, a snapshot or the zero State. It stops at the first error of Apply
// and returns the state before the event that caused it.
func Rehydrate(from State, events []Event) (State, error) {
	s := from
	shared := true // the ledger still belongs to from
	for _, e := range events {
		if s.Status == Missing && e.Type != Created {
			return s, fmt.Errorf("%w: %s at version %d of auction %q, which was never created", ErrLog, e.Type, e.Version, e.Auction)
		}
		switch e.Type {
		case Created:
			if s.Status != Missing {
				return s, fmt.Errorf("%w: auction %q created again at version %d", ErrLog, e.Auction, e.Version)
			}
			s.Status, s.OpeningPrice, s.High = Open, e.OpeningPrice, e.OpeningPrice
		case BidAccepted:
			if shared {
				ledger := make(map[string]Bid, len(s.bids)+len(events))
				maps.Copy(ledger, s.bids)
				s.bids, shared = ledger, false
			}
			s.accept(e)
		case ClosedEvent:
			s.Status = Closed
		default:
			return s, fmt.Errorf("%w: unknown event type %q at version %d", ErrLog, e.Type, e.Version)
		}
		s.Version = e.Version
	}
	return s, nil
}

// accept changes the ledger in place.
func (s *State) accept(e Event) {
	s.Accepted++
	if _, known := s.bids[e.BidID]; !known {
		bid := Bid{Bidder: e.Bidder, Amount: e.Amount, AcceptedAt: e.At, Version: e.Version}
		s.bids[e.BidID] = bid
		s.ledger = s.ledger.add(e.BidID, bid)
	}
	if e.Amount > s.High {
		s.High, s.HighBidder, s.HighBidID = e.Amount, e.Bidder, e.BidID
	}
}

// Decision is the answer yes.
type Decision struct {
	// Events to append; they claim the versions after the state's.
	Events []Event
	// Replay is set, without events, when the same bid was accepted earlier.
	Replay *Bid
}

// Decide returns what a command leads to on a state, or a *Refusal. For a bid the ledger is asked before
// closed and stale: the winner's replay also looks stale. A closing answers with the high bid; closing again
// is refused.
//
// A name that is no command is a programming error and returned as a plain error.
func Decide(s State, c Command, now time.Time) (Decision, error) {
	e := Event{Auction: c.Auction, Version: s.Version + 1, At: timestamp(now)}
	switch c.Name {
	case CommandCreate:
		if s.Status != Missing {
			return Decision{}, Deny(s, c, AlreadyExists)
		}
		if c.Amount < 0 {
			return Decision{}, Deny(s, c, InvalidAmount)
		}
		e.Type, e.OpeningPrice = Created, c.Amount
	case CommandBid:
		if first, ok := s.Bid(c.BidID); ok {
			if first.Bidder != c.Bidder || first.Amount != c.Amount {
				return Decision{}, Deny(s, c, InvalidPayload)
			}
			return Decision{Replay: &first}, nil
		}
		if s.Status != Open {
			return Decision{}, Deny(s, c, AuctionClosed)
		}
		if c.Amount <= s.High {
			return Decision{}, Deny(s, c, StaleBid)
		}
		e.Type, e.BidID, e.Bidder, e.Amount = BidAccepted, c.BidID, c.Bidder, c.Amount
	case CommandClose:
		if s.Status != Open {
			return Decision{}, Deny(s, c, AuctionClosed)
		}
		e.Type, e.HighBid, e.HighBidder = ClosedEvent, s.High, s.HighBidder
	default:
		return Decision{}, fmt.Errorf("auction: unknown command %q", c.Name)
	}
	return Decision{Events: []Event{e}}, nil
}

// timestamp renders ISO 8601 in UTC with milliseconds.
func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
