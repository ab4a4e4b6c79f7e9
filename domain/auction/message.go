package auction

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// The commands.
const (
	CommandCreate = "create"
	CommandBid    = "bid"
	CommandClose  = "close"
)

// Command is what a caller wants of one auction.
type Command struct {
	Name    string
	Auction ID
	BidID   string // bid; made by the client, so that a retry is the same bid
	Bidder  string // bid
	Amount  int64  // minor units; create: the opening price
}

// commandBody is the wire form of a command; its name travels beside it. Fields are in the order of their keys.
type commandBody struct {
	Amount  int64  `json:"amount,omitempty"`
	Auction ID     `json:"auction"`
	BidID   string `json:"bidId,omitempty"`
	Bidder  string `json:"bidder,omitempty"`
}

// Body returns the command as canonical JSON: keys sorted, no blanks, fields without a value left out.
func (c Command) Body() []byte {
	return marshal(commandBody{Auction: c.Auction, Amount: c.Amount, BidID: c.BidID, Bidder: c.Bidder})
}

// ParseCommand reads what Body wrote. A body with an unknown field, without a valid auction, or a bid without
// bid id and bidder, is an error.
func ParseCommand(name string, body []byte) (Command, error) {
	switch name {
	case CommandCreate, CommandBid, CommandClose:
	default:
		return Command{}, fmt.Errorf("auction: unknown command %q", name)
	}
	var b commandBody
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&b); err != nil {
		return Command{}, fmt.Errorf("auction: body of %s: %w", name, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Command{}, fmt.Errorf("auction: body of %s: something follows the object", name)
	}
	if b.Auction.IsZero() || name == CommandBid && (b.BidID == "" || b.Bidder == "") {
		return Command{}, fmt.Errorf("auction: body of %s lacks a field", name)
	}
	return Command{Name: name, Auction: b.Auction, BidID: b.BidID, Bidder: b.Bidder, Amount: b.Amount}, nil
}

// The event types.
const (
	Created     = "AuctionCreated"
	BidAccepted = "BidAccepted"
	ClosedEvent = "AuctionClosed"
)

// SchemaVersion is the version of the data format of all events.
const SchemaVersion = 1

// Event is a fact about one auction.
type Event struct {
	Type         string
	Auction      ID
	Version      uint64 // of the stream; not part of the data
	At           string // ISO 8601, UTC, milliseconds; of BidAccepted: acceptedAt; payload, never order
	OpeningPrice int64  // AuctionCreated
	BidID        string // BidAccepted
	Bidder       string // BidAccepted
	Amount       int64  // BidAccepted
	HighBid      int64  // AuctionClosed: the opening price if there was no bid
	HighBidder   string // AuctionClosed: empty if there was no bid
}

// Data returns the event's data as canonical JSON: keys sorted, no blanks, exactly the fields of its type,
// without the version. It panics on a type that is no event of an auction.
func (e Event) Data() []byte {
	switch e.Type {
	case Created:
		return marshal(struct {
			At           string `json:"at"`
			Auction      ID     `json:"auction"`
			OpeningPrice int64  `json:"openingPrice"`
		}{e.At, e.Auction, e.OpeningPrice})
	case BidAccepted:
		return marshal(struct {
			Amount  int64  `json:"amount"`
			At      string `json:"at"`
			Auction ID     `json:"auction"`
			BidID   string `json:"bidId"`
			Bidder  string `json:"bidder"`
		}{e.Amount, e.At, e.Auction, e.BidID, e.Bidder})
	case ClosedEvent:
		return marshal(struct {
			At         string `json:"at"`
			Auction    ID     `json:"auction"`
			HighBid    int64  `json:"highBid"`
			HighBidder string `json:"highBidder"`
		}{e.At, e.Auction, e.HighBid, e.HighBidder})
	}
	panic(fmt.Sprintf("auction: %q is not an event type", e.Type))
}

// ParseEvent reads the data of an event that stands at version. Unknown fields are passed over, so that a
// later schema may add some; a missing field of the type is an error that wraps ErrLog.
func ParseEvent(typ string, version uint64, data []byte) (Event, error) {
	var d struct {
		Amount       *int64  `json:"amount"`
		At           string  `json:"at"`
		Auction      ID      `json:"auction"`
		BidID        string  `json:"bidId"`
		Bidder       *string `json:"bidder"`
		OpeningPrice *int64  `json:"openingPrice"`
		HighBid      *int64  `json:"highBid"`
		HighBidder   *string `json:"highBidder"`
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return Event{}, fmt.Errorf("%w: data of %s at version %d: %w", ErrLog, typ, version, err)
	}
	missing := d.Auction.IsZero() || d.At == ""
	e := Event{Type: typ, Auction: d.Auction, Version: version, At: d.At}
	switch typ {
	case Created:
		if missing = missing || d.OpeningPrice == nil; !missing {
			e.OpeningPrice = *d.OpeningPrice
		}
	case BidAccepted:
		if missing = missing || d.Amount == nil || d.BidID == "" || d.Bidder == nil; !missing {
			e.Amount, e.BidID, e.Bidder = *d.Amount, d.BidID, *d.Bidder
		}
	case ClosedEvent:
		if missing = missing || d.HighBid == nil || d.HighBidder == nil; !missing {
			e.HighBid, e.HighBidder = *d.HighBid, *d.HighBidder
		}
	default:
		return Event{}, fmt.Errorf("%w: unknown event type %q at version %d", ErrLog, typ, version)
	}
	if missing {
		return Event{}, fmt.Errorf("%w: data of %s at version %d lacks a field", ErrLog, typ, version)
	}
	return e, nil
}

// marshal renders structs of strings and numbers, which can't fail.
func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
