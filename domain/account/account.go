// Package account is the bank account as an aggregate: events, fold and decisions. It is pure: no clock, no
// I/O, no randomness. No overdraft is a rule inside one account; rules across accounts are another matter.
//
// Amounts are positive integers in minor units. An account that was closed stays closed.
package account

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

const streamPrefix = "account-"

// Stream returns the name of an account's stream.
func Stream(account string) string { return streamPrefix + account }

// FromStream returns the account whose stream has this name; ok is false for another kind of stream.
func FromStream(stream string) (account string, ok bool) {
	account, ok = strings.CutPrefix(stream, streamPrefix)
	return account, ok && account != ""
}

// Status of an account.
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

// State is the fold of an account's events. The zero State is the account before its first event.
type State struct {
	Status  Status
	Owner   string
	Balance int64
	Version uint64 // of the last event applied
}

// ErrLog marks an error of the log, not of a caller: a correct store with correct writers never produces it.
var ErrLog = errors.New("account: impossible log")

// Apply folds one event into a state. It doesn't ask whether the event was a good decision, nor whether
// versions are continuous: a wrong log must become a verdict, not a stop. A withdrawal may leave the balance
// negative, and money moves on a closed account move its balance (a blind deposit can't see the closing).
//
// Errors are ErrLog: an event on a missing account, a second opening, a balance outside 64 bits, an unknown
// type. The state is returned unchanged with them.
func Apply(s State, e Event) (State, error) {
	if s.Status == Missing && e.Type != Opened {
		return s, fmt.Errorf("%w: %s at version %d of account %q, which was never opened", ErrLog, e.Type, e.Version, e.Account)
	}
	next := s
	next.Version = e.Version
	var ok bool
	switch e.Type {
	case Opened:
		if s.Status != Missing {
			return s, fmt.Errorf("%w: account %q opened again at version %d", ErrLog, e.Account, e.Version)
		}
		next.Status, next.Owner = Open, e.Owner
		return next, nil
	case Deposited:
		next.Balance, ok = sum(s.Balance, e.Amount)
	case Withdrawn:
		next.Balance, ok = difference(s.Balance, e.Amount)
	case ClosedEvent:
		next.Status, ok = Closed, true
	default:
		return s, fmt.Errorf("%w: unknown event type %q at version %d", ErrLog, e.Type, e.Version)
	}
	if !ok {
		return s, fmt.Errorf("%w: %s of %d at version %d leaves 64 bits", ErrLog, e.Type, e.Amount, e.Version)
	}
	return next, nil
}

// Rehydrate folds events into a state, a snapshot or the zero State. It stops at the first error of Apply
// and returns the state before the event that caused it.
func Rehydrate(from State, events []Event) (State, error) {
	s := from
	for _, e := range events {
		var err error
		if s, err = Apply(s, e); err != nil {
			return s, err
		}
	}
	return s, nil
}

// Decide returns the events that a command leads to on a state, claiming the versions after s.Version, or a
// *Refusal. Opening with an amount gives two events, the opening and a deposit. Closing wants an empty
// account: money that is left would have no owner.
//
// Rules are asked in this order: status, amount, funds. A name that is no command, and a blind deposit, which
// is decided without a state, are programming errors and returned as plain errors.
func Decide(s State, c Command, now time.Time) ([]Event, error) {
	at := timestamp(now)
	next := func(n uint64, typ string) Event {
		return Event{Type: typ, Account: c.Account, Version: s.Version + n, At: at}
	}
	if c.Name == CommandOpen {
		if s.Status != Missing {
			return nil, &Refusal{Code: AlreadyOpen, Have: s.Balance, Want: c.Amount,
				Text: "account " + c.Account + " exists and is " + s.Status.String()}
		}
		if c.Amount < 0 {
			return nil, invalidAmount(0, c.Amount)
		}
		opened := next(1, Opened)
		opened.Owner = c.Owner
		if c.Amount == 0 {
			return []Event{opened}, nil
		}
		deposited := next(2, Deposited)
		deposited.Amount = c.Amount
		return []Event{opened, deposited}, nil
	}
	switch c.Name {
	case CommandDeposit, CommandWithdraw, CommandClose:
	case CommandBlindDeposit:
		return nil, errors.New("account: a blind deposit is decided without a state")
	default:
		return nil, fmt.Errorf("account: unknown command %q", c.Name)
	}
	if s.Status != Open {
		return nil, &Refusal{Code: NotOpen, Have: s.Balance, Want: c.Amount,
			Text: "account " + c.Account + " is " + s.Status.String()}
	}
	if c.Name == CommandClose {
		if s.Balance != 0 {
			return nil, &Refusal{Code: BalanceNotZero, Have: s.Balance,
				Text: fmt.Sprintf("balance is %d, only an empty account can be closed", s.Balance)}
		}
		return []Event{next(1, ClosedEvent)}, nil
	}
	if c.Amount <= 0 {
		return nil, invalidAmount(s.Balance, c.Amount)
	}
	e := next(1, Deposited)
	e.Amount = c.Amount
	if c.Name == CommandWithdraw {
		if c.Amount > s.Balance {
			return nil, &Refusal{Code: InsufficientFunds, Have: s.Balance, Want: c.Amount,
				Text: fmt.Sprintf("balance is %d, withdrawal of %d refused", s.Balance, c.Amount)}
		}
		e.Type = Withdrawn
	} else if _, ok := sum(s.Balance, c.Amount); !ok {
		return nil, invalidAmount(s.Balance, c.Amount)
	}
	return []Event{e}, nil
}

// DecideBlind returns the event of a blind deposit, which is appended at whatever version the stream has; the
// event's Version is 0. The error is a *Refusal (INVALID_AMOUNT), or a plain error for another command.
func DecideBlind(c Command, now time.Time) (Event, error) {
	if c.Name != CommandBlindDeposit {
		return Event{}, fmt.Errorf("account: %q is not decided without a state", c.Name)
	}
	if c.Amount <= 0 {
		return Event{}, invalidAmount(0, c.Amount)
	}
	return Event{Type: Deposited, Account: c.Account, At: timestamp(now), Amount: c.Amount}, nil
}

func sum(a, b int64) (int64, bool) {
	if b > 0 && a > math.MaxInt64-b || b < 0 && a < math.MinInt64-b {
		return 0, false
	}
	return a + b, true
}

func difference(a, b int64) (int64, bool) {
	if b < 0 && a > math.MaxInt64+b || b > 0 && a < math.MinInt64+b {
		return 0, false
	}
	return a - b, true
}

// timestamp renders ISO 8601 in UTC with milliseconds.
func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
