package kafka

import (
	"context"
	"io"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/kafka/internal/form"
)

// rulings prints the tables of outcomes.go as the classifier applies them, and what an owner answers.
func rulings() []targets.Ruling {
	var rows []targets.Ruling
	for _, s := range []struct {
		name string
		sent bool
	}{{"before the owner was asked", false}, {"owner asked", true}} {
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
	for _, a := range []struct {
		answer  string
		outcome eventstore.Outcome
		reason  eventstore.Reason
	}{
		{"the transaction has ended with a commit", eventstore.OK, eventstore.ReasonNone},
		{"another version is the stream's last", eventstore.Fail, eventstore.VersionConflict},
		{"the expected version lies ahead of the stream's last", eventstore.Fail, eventstore.ExpectedAhead},
		{"the transaction was aborted", eventstore.Fail, eventstore.GroupAborted},
		{"the transaction was aborted: another owner has fenced this one", eventstore.Fail, eventstore.Fenced},
		{"it does not fit into a transaction", eventstore.Fail, eventstore.TooLarge},
		{"malformed, or an event id that is taken", eventstore.Fail, eventstore.Invalid},
		{"the end of the transaction was not answered, and fencing and reading again did not tell", eventstore.Unknown, eventstore.ServerUncertain},
	} {
		rows = append(rows, targets.Rule("owner answered", a.answer,
			said("append", form.Answer{Outcome: a.outcome.String(), Reason: a.reason.String()})))
	}
	return rows
}
