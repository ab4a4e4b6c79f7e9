package dynamodb

import (
	"context"
	"errors"
	"net"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
)

// ruling is what the table says of one answer.
type ruling struct {
	outcome eventstore.Outcome
	reason  eventstore.Reason
}

// answers rules the error codes of the service as the answer to a write on its only attempt. What is not listed is
// unknown, and so is every answer with a status of 500 or more.
//
//   - TransactionInProgressException: an earlier try with the same token is still being carried out.
//   - IdempotentParameterMismatchException: something was executed under our own token; what, the answer does not say.
var answers = map[string]ruling{
	"ConditionalCheckFailedException": {eventstore.Fail, eventstore.VersionConflict},

	"TransactionConflictException":     {eventstore.Fail, eventstore.TransactionConflict},
	"ReplicatedWriteConflictException": {eventstore.Fail, eventstore.TransactionConflict},

	"ProvisionedThroughputExceededException": {eventstore.Fail, eventstore.Throttled},
	"RequestLimitExceeded":                   {eventstore.Fail, eventstore.Throttled},
	"ThrottlingException":                    {eventstore.Fail, eventstore.Throttled},
	"Throttling":                             {eventstore.Fail, eventstore.Throttled},

	"ItemCollectionSizeLimitExceededException": {eventstore.Fail, eventstore.TooLarge},
	"ValidationException":                      {eventstore.Fail, eventstore.Invalid},
	"SerializationException":                   {eventstore.Fail, eventstore.Invalid},

	"AccessDeniedException":               {eventstore.Fail, eventstore.Rejected},
	"IncompleteSignatureException":        {eventstore.Fail, eventstore.Rejected},
	"MissingAuthenticationTokenException": {eventstore.Fail, eventstore.Rejected},
	"ResourceNotFoundException":           {eventstore.Fail, eventstore.Rejected},
	"UnknownOperationException":           {eventstore.Fail, eventstore.Rejected},
	"UnrecognizedClientException":         {eventstore.Fail, eventstore.Rejected},

	"TransactionInProgressException":       {eventstore.Unknown, eventstore.ServerUncertain},
	"IdempotentParameterMismatchException": {eventstore.Unknown, eventstore.ServerUncertain},
	"InternalServerError":                  {eventstore.Unknown, eventstore.ServerUncertain},
}

// cancellations rules the reasons of a cancelled transaction, the weightier first: of several, the first that occurs
// decides. A cancelled transaction has no effect and never will.
var cancellations = []struct {
	code string
	ruling
}{
	{"ConditionalCheckFailed", ruling{eventstore.Fail, eventstore.VersionConflict}},
	{"ValidationError", ruling{eventstore.Fail, eventstore.Invalid}},
	{"DuplicateItem", ruling{eventstore.Fail, eventstore.Invalid}},
	{"ItemCollectionSizeLimitExceeded", ruling{eventstore.Fail, eventstore.TooLarge}},
	{"AccessDenied", ruling{eventstore.Fail, eventstore.Rejected}},
	{"TransactionConflict", ruling{eventstore.Fail, eventstore.TransactionConflict}},
	{"ThrottlingError", ruling{eventstore.Fail, eventstore.Throttled}},
	{"ProvisionedThroughputExceeded", ruling{eventstore.Fail, eventstore.Throttled}},
}

const (
	reasonNone      = "None"
	reasonCondition = "ConditionalCheckFailed"
)

// cancelled rules a list of cancellation reasons.
func cancelled(reasons []types.CancellationReason) ruling {
	for _, row := range cancellations {
		for _, r := range reasons {
			if codeOf(r) == row.code {
				return row.ruling
			}
		}
	}
	return ruling{eventstore.Fail, eventstore.Rejected}
}

func codeOf(r types.CancellationReason) string {
	if r.Code == nil || *r.Code == "" {
		return reasonNone
	}
	return *r.Code
}

// classifyWrite turns the error of a call with an effect into the contract's error. sent tells whether a byte of it
// may have left. An error that speaks the contract already is returned as it is.
func classifyWrite(op string, sent bool, err error) error {
	if err == nil || spoken(err) {
		return err
	}
	r := silent(err)
	switch api, status := answerOf(err); {
	case api != nil && status < 500:
		var cancel *types.TransactionCanceledException
		var listed bool
		if errors.As(err, &cancel) {
			r, listed = cancelled(cancel.CancellationReasons), true
		} else {
			r, listed = lookUp(api.ErrorCode())
		}
		if !listed {
			r = ruling{eventstore.Unknown, eventstore.ServerUncertain}
		}
	case status != 0:
		r = ruling{eventstore.Unknown, eventstore.ServerUncertain}
	case !sent && malformed(err):
		r = ruling{eventstore.Fail, eventstore.Invalid}
	case !sent && r.reason != eventstore.Killed:
		r = ruling{eventstore.Fail, eventstore.NotSent}
	}
	return &eventstore.Error{Op: op, Outcome: r.outcome, Reason: r.reason, Err: err}
}

// classifyRead turns the error of a call without effect into the contract's error: an answer that is missing claims
// nothing, so the outcome is always fail.
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

func lookUp(code string) (ruling, bool) {
	r, ok := answers[code]
	return r, ok
}

// answerOf returns what the service answered: an error code (nil if the answer has none) and a status (0 if there was
// no answer).
func answerOf(err error) (smithy.APIError, int) {
	var status int
	var resp *smithyhttp.ResponseError
	if errors.As(err, &resp) {
		status = resp.HTTPStatusCode()
	}
	var api smithy.APIError
	if !errors.As(err, &api) {
		return nil, status
	}
	return api, status
}

// said returns an exception that the service answered with a status that makes it definite.
func said[E error](err error) (e E, ok bool) {
	_, status := answerOf(err)
	ok = errors.As(err, &e) && status < 500
	return e, ok
}

// malformed reports whether the SDK itself refused to make a request of the input.
func malformed(err error) bool {
	var params smithy.InvalidParamsError
	var serial *smithy.SerializationError
	return errors.As(err, &params) || errors.As(err, &serial)
}

// silent rules an error without an answer.
func silent(err error) ruling {
	var timeout net.Error
	switch {
	case errors.Is(err, points.ErrCrashed):
		return ruling{eventstore.Unknown, eventstore.Killed}
	case errors.Is(err, context.Canceled):
		return ruling{eventstore.Unknown, eventstore.Cancelled}
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return ruling{eventstore.Unknown, eventstore.TimedOut}
	}
	return ruling{eventstore.Unknown, eventstore.LostReply}
}

// held turns a refusal of the gate into the contract's error. Where nothing was sent yet, only a crash leaves the
// outcome open: the role's end is nobody's answer.
func held(op string, err error, sent bool) error {
	return classifyWrite(op, sent, err)
}

func spoken(err error) bool {
	var e *eventstore.Error
	return errors.As(err, &e)
}

// fail makes a definite failure.
func fail(op string, reason eventstore.Reason, err error) error {
	return &eventstore.Error{Op: op, Outcome: eventstore.Fail, Reason: reason, Err: err}
}

// failAt is fail with the head that was seen.
func failAt(op string, reason eventstore.Reason, head uint64, err error) error {
	return &eventstore.Error{Op: op, Outcome: eventstore.Fail, Reason: reason, Head: head, HeadKnown: true, Err: err}
}
