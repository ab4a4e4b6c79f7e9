package postgres

import (
	"context"
	"io"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets"
)

// rulings prints the tables of outcomes.go as the classifier applies them.
func rulings() []targets.Ruling {
	var rows []targets.Ruling
	steps := []struct {
		phase phase
		name  string
	}{{phaseConnect, "connect"}, {phaseBegin, "begin"}, {phaseStatement, "statement before commit"}, {phaseCommit, "commit"}}
	for _, s := range steps {
		for _, silent := range []struct {
			err    error
			answer string
		}{
			{io.ErrUnexpectedEOF, "no answer: the connection was lost"}, {context.DeadlineExceeded, "no answer in time"},
			{context.Canceled, "no answer: the caller gave up"}, {points.ErrCrashed, "no answer: the role crashed here"},
		} {
			rows = append(rows, targets.Rule(s.name, silent.answer, classify("append", s.phase, silent.err)))
		}
		switch s.phase {
		case phaseConnect, phaseBegin:
			rows = append(rows, targets.Rule(s.name, "any SQLSTATE", classify("append", s.phase, serverError("XX000", "FATAL"))))
		case phaseStatement:
			for _, r := range refused {
				rows = append(rows, targets.Rule(s.name, codeText(r.code), classify("append", s.phase, serverError(r.code, "ERROR"))))
			}
		case phaseCommit:
			for _, r := range uncertain {
				rows = append(rows, targets.Rule(s.name, codeText(r.code), classify("append", s.phase, serverError(r.code, "ERROR"))))
			}
			rows = append(rows,
				targets.Rule(s.name, "FATAL or PANIC, whatever the SQLSTATE", classify("append", s.phase, serverError("40001", "FATAL"))),
				targets.Rule(s.name, "SQLSTATE 40001", classify("append", s.phase, serverError("40001", "ERROR"))),
				targets.Rule(s.name, "any other SQLSTATE, as before commit: of class 23", classify("append", s.phase, serverError("23514", "ERROR"))),
				targets.Rule(s.name, "the tag COMMIT", committed("append", pgconn.NewCommandTag("COMMIT"), nil)),
				targets.Rule(s.name, "the tag ROLLBACK", committed("append", pgconn.NewCommandTag("ROLLBACK"), nil)),
				targets.Rule(s.name, "another tag", committed("append", pgconn.NewCommandTag("SELECT 1"), nil)))
		case phaseSingle, phaseRead:
		}
	}
	return rows
}

// serverError is an error of the server with a code or class; a class gets digits that no code of it has.
func serverError(code, severity string) error {
	return &pgconn.PgError{Code: (code + "99999")[:5], SeverityUnlocalized: severity}
}

func codeText(code string) string {
	if code == "" {
		return "a SQLSTATE that is not listed"
	}
	return "SQLSTATE " + code + strings.Repeat("…", min(1, 5-len(code)))
}
