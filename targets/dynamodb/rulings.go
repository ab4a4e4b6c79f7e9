package dynamodb

import (
	"context"
	"io"
	"maps"
	"net/http"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets"
)

// rulings prints the tables of outcomes.go as the classifier applies them.
func rulings() []targets.Ruling {
	var rows []targets.Ruling
	for _, s := range []struct {
		name string
		sent bool
	}{{"before the request was sent", false}, {"request sent", true}} {
		for _, silent := range []struct {
			err    error
			answer string
		}{
			{io.ErrUnexpectedEOF, "no answer: the connection was lost"}, {context.DeadlineExceeded, "no answer in time"},
			{context.Canceled, "no answer: the caller gave up"}, {points.ErrCrashed, "no answer: the role crashed here"},
		} {
			rows = append(rows, targets.Rule(s.name, silent.answer, classifyWrite("append", s.sent, silent.err)))
		}
	}
	const sent, cancelledAs = "request sent", "transaction cancelled"
	for _, code := range slices.Sorted(maps.Keys(answers)) {
		rows = append(rows, targets.Rule(sent, code, classifyWrite("append", true, answered(400, &smithy.GenericAPIError{Code: code}))))
	}
	rows = append(rows,
		targets.Rule(sent, "a code that is not listed", classifyWrite("append", true, answered(400, &smithy.GenericAPIError{Code: "Unlisted"}))),
		targets.Rule(sent, "a status of 500 or more, whatever the code", classifyWrite("append", true, answered(503, &smithy.GenericAPIError{Code: "ThrottlingException"}))))
	for _, c := range cancellations {
		rows = append(rows, targets.Rule(cancelledAs, "the weightiest reason is "+c.code, classifyWrite("append", true, answered(400, cancelledBy(c.code)))))
	}
	return append(rows, targets.Rule(cancelledAs, "reasons that are not listed", classifyWrite("append", true, answered(400, cancelledBy("Unlisted")))))
}

func cancelledBy(code string) error {
	return &types.TransactionCanceledException{CancellationReasons: []types.CancellationReason{{Code: aws.String(reasonNone)}, {Code: aws.String(code)}}}
}

// answered is an error as the library gives it for an answer with a status.
func answered(status int, err error) error {
	return &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: &http.Response{StatusCode: status}}, Err: err}
}
