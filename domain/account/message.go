package account

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// The commands.
const (
	CommandOpen         = "open"
	CommandDeposit      = "deposit"
	CommandBlindDeposit = "blind-deposit"
	CommandWithdraw     = "withdraw"
	CommandClose        = "close"
)

// Command is what a caller wants of one account.
type Command struct {
	Name    string
	Account string
	Owner   string // open
	Amount  int64  // minor units; open: the opening balance, may be 0
}

// commandBody is the wire form of a command; its name travels beside it. Fields are in the order of their keys.
type commandBody struct {
	Account string `json:"account"`
	Amount  int64  `json:"amount,omitempty"`
	Owner   string `json:"owner,omitempty"`
}

// Body returns the command as canonical JSON: keys sorted, no blanks, fields without a value left out.
func (c Command) Body() []byte {
	return marshal(commandBody{Account: c.Account, Amount: c.Amount, Owner: c.Owner})
}

// ParseCommand reads what Body wrote. A body with an unknown field, or without an account, is an error.
func ParseCommand(name string, body []byte) (Command, error) {
	switch name {
	case CommandOpen, CommandDeposit, CommandBlindDeposit, CommandWithdraw, CommandClose:
	default:
		return Command{}, fmt.Errorf("account: unknown command %q", name)
	}
	var b commandBody
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&b); err != nil {
		return Command{}, fmt.Errorf("account: body of %s: %w", name, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Command{}, fmt.Errorf("account: body of %s: something follows the object", name)
	}
	if b.Account == "" {
		return Command{}, fmt.Errorf("account: body of %s: no account", name)
	}
	return Command{Name: name, Account: b.Account, Owner: b.Owner, Amount: b.Amount}, nil
}

// The event types.
const (
	Opened      = "AccountOpened"
	Deposited   = "FundsDeposited"
	Withdrawn   = "FundsWithdrawn"
	ClosedEvent = "AccountClosed"
)

// SchemaVersion is the version of the data format of all events.
const SchemaVersion = 1

// Event is a fact about one account.
type Event struct {
	Type    string
	Account string
	Version uint64 // of the stream; not part of the data
	At      string // ISO 8601, UTC, milliseconds; payload, never order
	Owner   string // AccountOpened
	Amount  int64  // FundsDeposited, FundsWithdrawn; minor units
}

// Data returns the event's data as canonical JSON: keys sorted, no blanks, exactly the fields of its type,
// without the version. It panics on a type that is no event of an account.
func (e Event) Data() []byte {
	switch e.Type {
	case Opened:
		return marshal(struct {
			Account string `json:"account"`
			At      string `json:"at"`
			Owner   string `json:"owner"`
		}{e.Account, e.At, e.Owner})
	case Deposited, Withdrawn:
		return marshal(struct {
			Account string `json:"account"`
			Amount  int64  `json:"amount"`
			At      string `json:"at"`
		}{e.Account, e.Amount, e.At})
	case ClosedEvent:
		return marshal(struct {
			Account string `json:"account"`
			At      string `json:"at"`
		}{e.Account, e.At})
	}
	panic(fmt.Sprintf("account: %q is not an event type", e.Type))
}

// ParseEvent reads the data of an event that stands at version. Unknown fields are passed over, so that a
// later schema may add some; a missing field of the type is an error that wraps ErrLog.
func ParseEvent(typ string, version uint64, data []byte) (Event, error) {
	var d struct {
		Account string  `json:"account"`
		Amount  *int64  `json:"amount"`
		At      string  `json:"at"`
		Owner   *string `json:"owner"`
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return Event{}, fmt.Errorf("%w: data of %s at version %d: %w", ErrLog, typ, version, err)
	}
	missing := d.Account == "" || d.At == ""
	e := Event{Type: typ, Account: d.Account, Version: version, At: d.At}
	switch typ {
	case Opened:
		if missing = missing || d.Owner == nil; !missing {
			e.Owner = *d.Owner
		}
	case Deposited, Withdrawn:
		if missing = missing || d.Amount == nil; !missing {
			e.Amount = *d.Amount
		}
	case ClosedEvent:
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
