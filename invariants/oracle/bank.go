package oracle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
)

const (
	accountOpened  = "AccountOpened"
	fundsDeposited = "FundsDeposited"
	fundsWithdrawn = "FundsWithdrawn"
	accountClosed  = "AccountClosed"
)

// account is the fold of an account's stream.
type account struct {
	status  Status
	owner   string
	balance int64
	version uint64
	scratch []byte
}

func (a *account) Apply(ev history.LoggedEvent) error {
	f, err := parseEvent(&ev)
	if err != nil {
		return err
	}
	if err := a.fold(&ev, &f); err != nil {
		return fmt.Errorf("%w: %s at version %d: %w", ErrLog, ev.Type, ev.Version, err)
	}
	a.version = ev.Version
	return nil
}

var (
	errForeign  = errors.New("not an event of this kind of stream")
	errUnopened = errors.New("the stream was never opened")
	errReopened = errors.New("the stream was opened before")
	errOverflow = errors.New("the balance leaves 64 bits")
)

func (a *account) fold(ev *history.LoggedEvent, f *fields) error {
	if ev.Type == accountOpened {
		if a.status != Missing {
			return errReopened
		}
		a.status, a.owner = Open, string(f.text[textOwner])
		return nil
	}
	if a.status == Missing {
		return errUnopened
	}
	moved := f.number[numAmount]
	switch ev.Type {
	case fundsDeposited:
		after := a.balance + moved
		if (after < a.balance) != (moved < 0) {
			return errOverflow
		}
		a.balance = after
	case fundsWithdrawn:
		after := a.balance - moved
		if (after > a.balance) != (moved < 0) {
			return errOverflow
		}
		a.balance = after
	case accountClosed:
		a.status = Closed
	default:
		return errForeign
	}
	return nil
}

func (a *account) appendEncoding(b []byte) []byte {
	b = append(b, 'A', 1, byte(a.status))
	b = binary.BigEndian.AppendUint64(b, a.version)
	b = binary.BigEndian.AppendUint64(b, uint64(a.balance))
	return append(b, a.owner...)
}

func (a *account) Hash() eventstore.Hash {
	a.scratch = a.appendEncoding(a.scratch[:0])
	return eventstore.HashBytes(a.scratch)
}

func (a *account) Encode() []byte   { return a.appendEncoding(nil) }
func (a *account) Snapshot() []byte { return a.appendEncoding(nil) }

func (a *account) Clone() State {
	c := *a
	c.scratch = nil
	return &c
}

func (a *account) Version() uint64              { return a.version }
func (a *account) Status() Status               { return a.status }
func (a *account) Balance() int64               { return a.balance }
func (a *account) High() int64                  { return 0 }
func (a *account) HighBidder() string           { return "" }
func (a *account) Accepted() uint64             { return 0 }
func (a *account) Bid(string) (Bid, bool)       { return Bid{}, false }
func (a *account) Bids() iter.Seq2[string, Bid] { return func(func(string, Bid) bool) {} }

func (a *account) Decide(name string, body []byte, nowMillis int64) (Verdict, error) {
	c, err := parse(body, true)
	if err == nil && (c.has&^bankFields != 0 || !c.whole(0, someText(textAccount))) {
		err = errFields
	}
	if err != nil {
		return Verdict{}, fmt.Errorf("oracle: body of %s: %w", name, err)
	}
	want := c.number[numAmount]
	switch name {
	case "open":
		if a.status != Missing {
			return refuse("ALREADY_OPEN", a.balance, want), nil
		}
		if want < 0 {
			return refuse("INVALID_AMOUNT", 0, want), nil
		}
		opened := newEvent(accountOpened, openedData(&c, nowMillis))
		if want == 0 {
			return accept(opened), nil
		}
		return accept(opened, newEvent(fundsDeposited, movedData(&c, nowMillis))), nil
	case "blind-deposit":
		if want <= 0 {
			return refuse("INVALID_AMOUNT", 0, want), nil
		}
		return accept(newEvent(fundsDeposited, movedData(&c, nowMillis))), nil
	case "deposit", "withdraw", "close":
		if a.status != Open {
			return refuse("NOT_OPEN", a.balance, want), nil
		}
	default:
		return Verdict{}, fmt.Errorf("oracle: %q is no command of an account", name)
	}

	if name == "close" {
		if a.balance != 0 {
			return refuse("BALANCE_NOT_ZERO", a.balance, 0), nil
		}
		return accept(newEvent(accountClosed, closedData(&c, nowMillis))), nil
	}
	if want <= 0 {
		return refuse("INVALID_AMOUNT", a.balance, want), nil
	}
	if name == "deposit" {
		if a.balance+want < a.balance {
			return refuse("INVALID_AMOUNT", a.balance, want), nil
		}
		return accept(newEvent(fundsDeposited, movedData(&c, nowMillis))), nil
	}
	if a.balance < want {
		return refuse("INSUFFICIENT_FUNDS", a.balance, want), nil
	}
	return accept(newEvent(fundsWithdrawn, movedData(&c, nowMillis))), nil
}

func openedData(c *fields, now int64) []byte {
	b := appendText(append(make([]byte, 0, 96), `{"account":`...), c.text[textAccount])
	b = appendTime(append(b, `,"at":`...), now)
	b = appendText(append(b, `,"owner":`...), c.text[textOwner])
	return append(b, '}')
}

func movedData(c *fields, now int64) []byte {
	b := appendText(append(make([]byte, 0, 96), `{"account":`...), c.text[textAccount])
	b = appendNumber(append(b, `,"amount":`...), c.number[numAmount])
	b = appendTime(append(b, `,"at":`...), now)
	return append(b, '}')
}

func closedData(c *fields, now int64) []byte {
	b := appendText(append(make([]byte, 0, 64), `{"account":`...), c.text[textAccount])
	b = appendTime(append(b, `,"at":`...), now)
	return append(b, '}')
}
