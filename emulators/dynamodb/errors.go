package dynamodb

import (
	"fmt"
	"strings"
)

// The exceptions that the emulator answers with. All but the two server errors are HTTP 400.
const (
	excValidation          = "ValidationException"
	excSerialization       = "SerializationException"
	excUnknownOperation    = "UnknownOperationException"
	excNotFound            = "ResourceNotFoundException"
	excInUse               = "ResourceInUseException"
	excConditionFailed     = "ConditionalCheckFailedException"
	excCanceled            = "TransactionCanceledException"
	excConflict            = "TransactionConflictException"
	excInProgress          = "TransactionInProgressException"
	excTokenMismatch       = "IdempotentParameterMismatchException"
	excThroughput          = "ProvisionedThroughputExceededException"
	excThrottling          = "ThrottlingException"
	excRequestLimit        = "RequestLimitExceeded"
	excTrimmed             = "TrimmedDataAccessException"
	excExpiredIterator     = "ExpiredIteratorException"
	excInternal            = "InternalServerError"
	excUnavailable         = "ServiceUnavailable"
	codeNone               = "None"
	codeConditionFailed    = "ConditionalCheckFailed"
	codeConflict           = "TransactionConflict"
	codeValidation         = "ValidationError"
	codeThroughputExceeded = "ProvisionedThroughputExceeded"
)

// apiError is an answer other than success.
type apiError struct {
	status  int
	kind    string
	message string
	// item is what a failed condition saw, if the caller asked for it.
	item item
	// reasons of a cancelled transaction, one for each of its operations, in their order.
	reasons []reason
}

func (e *apiError) Error() string { return e.kind + ": " + e.message }

// reason says why one operation of a transaction stands in its way; codeNone if it does not.
type reason struct {
	Code    string `json:"Code"`
	Message string `json:"Message,omitempty"`
	Item    item   `json:"Item,omitempty"`
}

func fault(kind, format string, args ...any) *apiError {
	status := 400
	switch kind {
	case excInternal:
		status = 500
	case excUnavailable:
		status = 503
	}
	return &apiError{status: status, kind: kind, message: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) *apiError { return fault(excValidation, format, args...) }

func invalidParam(format string, args ...any) *apiError {
	return invalid("One or more parameter values were invalid: "+format, args...)
}

func canceled(reasons []reason) *apiError {
	codes := make([]string, len(reasons))
	for i, r := range reasons {
		codes[i] = r.Code
	}
	e := fault(excCanceled, "Transaction cancelled, please refer cancellation reasons for specific reasons [%s]",
		strings.Join(codes, ", "))
	e.reasons = reasons
	return e
}

func conflict() *apiError {
	return fault(excConflict, "Transaction is ongoing for the item")
}
