package postgres

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
)

// phase is how far an operation had come when its error occurred.
type phase uint8

const (
	// phaseConnect: dialling, authenticating, waiting for a connection. Nothing of the request exists yet.
	phaseConnect phase = iota
	// phaseBegin: BEGIN. It carries nothing of the request and has no effect of its own.
	phaseBegin
	// phaseStatement: a statement inside the explicit transaction; COMMIT was not sent.
	phaseStatement
	// phaseCommit: COMMIT was handed to the connection.
	phaseCommit
	// phaseSingle: one autocommit statement with an effect.
	phaseSingle
	// phaseRead: a statement without effect; an error means only that there is no answer.
	phaseRead
)

// ruling is what the table says of one combination.
type ruling struct {
	outcome eventstore.Outcome
	reason  eventstore.Reason
}

// silence is an error that carries no SQLSTATE: the server's answer is missing.
type silence uint8

const (
	silenceLost      silence = iota // reset, end of file, anything else
	silenceTimedOut                 // deadline
	silenceCancelled                // the caller gave up
	silenceCrashed                  // the role was crashed here
)

// withoutAnswer rules errors without SQLSTATE.
//
// A connection that breaks inside the transaction before COMMIT was sent leaves no effect, and yet it is
// unknown: the contract says that bytes which may have left are never called a fail without an answer.
var withoutAnswer = map[phase]map[silence]ruling{
	phaseConnect: {
		silenceLost:      {eventstore.Fail, eventstore.NotSent},
		silenceTimedOut:  {eventstore.Fail, eventstore.NotSent},
		silenceCancelled: {eventstore.Fail, eventstore.NotSent},
		silenceCrashed:   {eventstore.Fail, eventstore.NotSent},
	},
	phaseBegin: {
		silenceLost:      {eventstore.Fail, eventstore.NotSent},
		silenceTimedOut:  {eventstore.Fail, eventstore.NotSent},
		silenceCancelled: {eventstore.Fail, eventstore.NotSent},
		silenceCrashed:   {eventstore.Unknown, eventstore.Killed},
	},
	phaseStatement: unanswered,
	phaseCommit:    unanswered,
	phaseSingle:    unanswered,
	phaseRead: {
		silenceLost:      {eventstore.Fail, eventstore.LostReply},
		silenceTimedOut:  {eventstore.Fail, eventstore.TimedOut},
		silenceCancelled: {eventstore.Fail, eventstore.Cancelled},
		silenceCrashed:   {eventstore.Fail, eventstore.Killed},
	},
}

var unanswered = map[silence]ruling{
	silenceLost:      {eventstore.Unknown, eventstore.LostReply},
	silenceTimedOut:  {eventstore.Unknown, eventstore.TimedOut},
	silenceCancelled: {eventstore.Unknown, eventstore.Cancelled},
	silenceCrashed:   {eventstore.Unknown, eventstore.Killed},
}

// sqlstate is one row of a table: the longest code or class that fits decides; "" fits everything.
type sqlstate struct {
	code string
	ruling
}

// refused rules what a SQLSTATE means where it proves that the statement, and with it the transaction, has no
// effect. The reason says whether the same request is worth sending again.
var refused = []sqlstate{
	{"", ruling{eventstore.Fail, eventstore.Rejected}},
	{"08", ruling{eventstore.Fail, eventstore.TransactionConflict}},    // the server lost the connection
	{"22", ruling{eventstore.Fail, eventstore.Invalid}},                // data exception
	{"23", ruling{eventstore.Fail, eventstore.Invalid}},                // constraint other than the unique ones
	{"25P03", ruling{eventstore.Fail, eventstore.TransactionConflict}}, // idle in transaction for too long
	{"40", ruling{eventstore.Fail, eventstore.TransactionConflict}},    // serialization failure, deadlock
	{"53", ruling{eventstore.Fail, eventstore.Throttled}},              // disk, memory, connections
	{"54", ruling{eventstore.Fail, eventstore.TooLarge}},               // program limit
	{"55P03", ruling{eventstore.Fail, eventstore.TransactionConflict}}, // lock not available
	{"57014", ruling{eventstore.Fail, eventstore.TransactionConflict}}, // statement cancelled or timed out
	{"57P", ruling{eventstore.Fail, eventstore.TransactionConflict}},   // shut down, crashed, starting up
}

// uncertain lists the SQLSTATEs that, as the answer to a COMMIT or to an autocommit statement, don't tell
// whether it took effect.
var uncertain = []sqlstate{
	{"08", ruling{eventstore.Unknown, eventstore.ServerUncertain}},
	{"40003", ruling{eventstore.Unknown, eventstore.ServerUncertain}},
	{"57P01", ruling{eventstore.Unknown, eventstore.ServerUncertain}},
	{"57P02", ruling{eventstore.Unknown, eventstore.ServerUncertain}},
	{"57P03", ruling{eventstore.Unknown, eventstore.ServerUncertain}},
	{"XX", ruling{eventstore.Unknown, eventstore.ServerUncertain}},
}

// lookup returns the ruling of the longest code or class that fits.
func lookup(table []sqlstate, code string) (ruling, bool) {
	best := -1
	for i, r := range table {
		if strings.HasPrefix(code, r.code) && (best < 0 || len(r.code) > len(table[best].code)) {
			best = i
		}
	}
	if best < 0 {
		return ruling{}, false
	}
	return table[best].ruling, true
}

// answered rules an error with a SQLSTATE.
func answered(p phase, e *pgconn.PgError) ruling {
	r, _ := lookup(refused, e.Code)
	switch p {
	case phaseConnect, phaseBegin:
		return ruling{eventstore.Fail, eventstore.NotSent}
	case phaseStatement, phaseRead:
		return r
	case phaseCommit, phaseSingle:
		if u, ok := lookup(uncertain, e.Code); ok {
			return u
		}
		// A backend that dies of the error (a failed flush of the log, say) may leave a commit record that
		// recovery finds, whatever the code.
		if dying(e) {
			return ruling{eventstore.Unknown, eventstore.ServerUncertain}
		}
		return r
	}
	return ruling{eventstore.Unknown, eventstore.ServerUncertain}
}

func dying(e *pgconn.PgError) bool {
	severity := e.SeverityUnlocalized
	if severity == "" {
		severity = e.Severity
	}
	return severity == "FATAL" || severity == "PANIC"
}

// classify turns the error of an operation into the contract's error by the tables above. An error that
// speaks the contract already is returned as it is.
func classify(op string, p phase, err error) error {
	if err == nil {
		return nil
	}
	var spoken *eventstore.Error
	if errors.As(err, &spoken) {
		return err
	}
	var r ruling
	var state *pgconn.PgError
	if errors.As(err, &state) {
		r = answered(p, state)
	} else {
		r = withoutAnswer[p][silenceOf(err)]
	}
	return &eventstore.Error{Op: op, Outcome: r.outcome, Reason: r.reason, Err: err}
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

// errRolledBack: COMMIT was answered with the tag ROLLBACK, because the transaction had failed before.
var errRolledBack = errors.New("postgres: COMMIT was answered by ROLLBACK")

// errStrangeTag: COMMIT was answered with neither tag.
var errStrangeTag = errors.New("postgres: COMMIT was answered by a tag that is neither COMMIT nor ROLLBACK")

// committed rules the answer to a COMMIT.
func committed(op string, tag pgconn.CommandTag, err error) error {
	switch {
	case err != nil:
		return classify(op, phaseCommit, err)
	case tag.String() == "COMMIT":
		return nil
	case tag.String() == "ROLLBACK":
		return &eventstore.Error{Op: op, Outcome: eventstore.Fail, Reason: eventstore.TransactionConflict, Err: errRolledBack}
	}
	return &eventstore.Error{Op: op, Outcome: eventstore.Unknown, Reason: eventstore.ServerUncertain, Err: errStrangeTag}
}

// Names of the unique constraints whose violation has a meaning of its own.
const (
	UniqueVersion = "events_stream_version"
	UniqueEvent   = "events_pkey"
	uniqueRequest = "requests_pkey"
	uniqueBid     = "bids_pkey"
)

// violated returns the name of the unique constraint that a statement broke, or "".
func violated(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) && e.Code == "23505" {
		return e.ConstraintName
	}
	return ""
}
