package kafka

import (
	"context"
	"errors"
	"net"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets/kafka/internal/broker"
	"github.com/eventproof/eventproof/targets/kafka/internal/form"
)

// ruling is what a table says of one combination.
type ruling struct {
	outcome eventstore.Outcome
	reason  eventstore.Reason
}

// silence is how an answer is missing.
type silence uint8

const (
	silenceLost      silence = iota // reset, end of file, an answer that can't be read, anything else
	silenceTimedOut                 // deadline
	silenceCancelled                // the caller gave up
	silenceCrashed                  // the role was crashed here
)

// silent rules a write without an answer of which a byte may have left.
var silent = map[silence]ruling{
	silenceLost:      {eventstore.Unknown, eventstore.LostReply},
	silenceTimedOut:  {eventstore.Unknown, eventstore.TimedOut},
	silenceCancelled: {eventstore.Unknown, eventstore.Cancelled},
	silenceCrashed:   {eventstore.Unknown, eventstore.Killed},
}

// unsent rules a write of which no byte has left.
var unsent = map[silence]ruling{
	silenceLost:      {eventstore.Fail, eventstore.NotSent},
	silenceTimedOut:  {eventstore.Fail, eventstore.NotSent},
	silenceCancelled: {eventstore.Fail, eventstore.NotSent},
	silenceCrashed:   {eventstore.Unknown, eventstore.Killed}, // the role's end is nobody's answer
}

func silenceOf(err error) silence {
	var timeout net.Error
	switch {
	case errors.Is(err, points.ErrCrashed):
		return silenceCrashed
	case errors.Is(err, context.Canceled):
		return silenceCancelled
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return silenceTimedOut
	}
	return silenceLost
}

// classifyWrite turns the error of a write into the contract's error. One that speaks the contract is returned as it is.
func classifyWrite(op string, sent bool, err error) error {
	var spoken *eventstore.Error
	if err == nil || errors.As(err, &spoken) {
		return err
	}
	r := unsent[silenceOf(err)]
	if sent {
		r = silent[silenceOf(err)]
	}
	return &eventstore.Error{Op: op, Outcome: r.outcome, Reason: r.reason, Err: err}
}

// classifyRead does the same for what has no effect: an answer that is missing claims nothing.
func classifyRead(op string, sent bool, err error) error {
	err = classifyWrite(op, sent, err)
	var e *eventstore.Error
	if errors.As(err, &e) && e.Outcome == eventstore.Unknown {
		read := *e
		read.Outcome = eventstore.Fail
		return &read
	}
	return err
}

// readFrom classifies the error of a read from a broker. Lost data is not an answer that may come later.
func readFrom(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, broker.ErrDataLoss), broker.Answered(err) && !broker.Moved(err):
		return &eventstore.Error{Op: op, Outcome: eventstore.Fail, Reason: eventstore.Rejected, Err: err}
	case broker.Answered(err):
		return &eventstore.Error{Op: op, Outcome: eventstore.Fail, Reason: eventstore.Throttled, Err: err}
	}
	return classifyRead(op, true, err)
}

var errText = errors.New("kafka: the owner says")

// said turns an owner's answer into the contract's error; nil for an answer that is ok.
func said(op string, a form.Answer) error {
	outcome, err := form.ParseOutcome(a.Outcome)
	if err != nil {
		return err
	}
	if outcome == eventstore.OK {
		return nil
	}
	reason, err := form.ParseReason(a.Reason)
	if err != nil {
		return err
	}
	e := &eventstore.Error{Op: op, Outcome: outcome, Reason: reason, Err: errors.Join(errText, errors.New(a.Text))}
	if a.Head != nil {
		e.Head, e.HeadKnown = *a.Head, true
	}
	return e
}

// fail makes a definite failure.
func fail(op string, reason eventstore.Reason, err error) error {
	return &eventstore.Error{Op: op, Outcome: eventstore.Fail, Reason: reason, Err: err}
}
