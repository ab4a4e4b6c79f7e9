package eventstore

import (
	"errors"
	"fmt"
)

// Outcome is what one attempt against a store is known to have done. The set is closed.
type Outcome uint8

// The three outcomes. When unsure, an adapter says Unknown.
const (
	// Unknown: the attempt may take effect zero or one times, at any time up to the fence.
	Unknown Outcome = iota
	// OK: acknowledged.
	OK
	// Fail: this attempt definitely had no effect and never will.
	Fail
)

// String returns the name used in histories and reports.
func (o Outcome) String() string {
	switch o {
	case Unknown:
		return "unknown"
	case OK:
		return "ok"
	case Fail:
		return "fail"
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// Reason says why an attempt failed or is unknown. The set is closed.
type Reason uint8

// The reasons.
const (
	ReasonNone Reason = iota
	// VersionConflict: an exact expected version did not match (write-level when no other try of the
	// write is open). Head is the head seen, if the store told it.
	VersionConflict
	// ExpectedAhead: the expected version lies beyond the head; refused.
	ExpectedAhead
	// LostRace: an append without an expected version lost a race; nothing happened, try again.
	LostRace
	// TransactionConflict: serialization failure, deadlock or a store's transaction conflict; retriable.
	TransactionConflict
	// Throttled: the store refused for load; retriable.
	Throttled
	// GroupAborted: the group commit that held the write was aborted; retriable.
	GroupAborted
	// NotSent: no byte of the request left the process.
	NotSent
	// TooLarge: the batch or an event exceeds what the store accepts; refused before sending.
	TooLarge
	// Invalid: the request itself is malformed; refused.
	Invalid
	// Rejected: the store answered with a definite error of another kind before any effect.
	Rejected
	// LostReply: the connection failed after bytes of the request may have left.
	LostReply
	// TimedOut: no reply within the attempt's own time-out.
	TimedOut
	// Cancelled: the caller gave up after bytes of the request may have left.
	Cancelled
	// ServerUncertain: the server answered with an error that does not tell whether the write took effect.
	ServerUncertain
	// Killed: the process died with the attempt open.
	Killed
	// Fenced: a newer owner has taken over; definite only where the store's table says so.
	Fenced
	// Superseded: the conditional move of a checkpoint found another value; rolled back.
	Superseded
	// Refused: the condition of a native operation said no, in one atomic evaluation; Err holds a *BidRefusal.
	Refused
	reasonEnd
)

var reasonNames = [...]string{
	ReasonNone: "none", VersionConflict: "version-conflict", ExpectedAhead: "expected-ahead", LostRace: "lost-race",
	TransactionConflict: "transaction-conflict", Throttled: "throttled", GroupAborted: "group-aborted",
	NotSent: "not-sent", TooLarge: "too-large", Invalid: "invalid", Rejected: "rejected", LostReply: "lost-reply",
	TimedOut: "timed-out", Cancelled: "cancelled", ServerUncertain: "server-uncertain", Killed: "killed",
	Fenced: "fenced", Superseded: "superseded", Refused: "refused",
}

// String returns the name used in histories and reports.
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// Retriable reports whether a definite failure with this reason invites the same write again: it claims
// nothing about the command.
func (r Reason) Retriable() bool {
	switch r {
	case LostRace, TransactionConflict, Throttled, GroupAborted, NotSent:
		return true
	case ReasonNone, VersionConflict, ExpectedAhead, TooLarge, Invalid, Rejected, LostReply, TimedOut, Cancelled,
		ServerUncertain, Killed, Fenced, Superseded, Refused, reasonEnd:
		return false
	}
	return false
}

// Error is the error of every operation of a store. Its Outcome is Fail or Unknown, never OK.
type Error struct {
	Op      string // "append", "read", "poll", "apply", …
	Outcome Outcome
	Reason  Reason
	// Head is the stream's head that a conflict answer showed, if HeadKnown.
	Head      uint64
	HeadKnown bool
	// Err is the driver's error; it may be nil.
	Err error
}

// Error implements error.
func (e *Error) Error() string {
	s := "eventstore: " + e.Op + ": " + e.Outcome.String() + " (" + e.Reason.String() + ")"
	if e.HeadKnown {
		s += fmt.Sprintf(", head %d", e.Head)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the driver's error.
func (e *Error) Unwrap() error { return e.Err }

// Classify returns outcome and reason of an operation's error. A nil error is OK; an error that is not an
// *Error is Unknown: what does not speak the contract can't be trusted to have had no effect.
func Classify(err error) (Outcome, Reason) {
	if err == nil {
		return OK, ReasonNone
	}
	var e *Error
	if errors.As(err, &e) && e.Outcome != OK {
		return e.Outcome, e.Reason
	}
	return Unknown, ServerUncertain
}
