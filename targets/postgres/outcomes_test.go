package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets"
)

func state(code, severity string) error {
	return &pgconn.PgError{Code: code, Severity: severity, SeverityUnlocalized: severity}
}

func TestEveryRowOfTheOutcomeTable(t *testing.T) {
	const (
		ok, fail, unknown = eventstore.OK, eventstore.Fail, eventstore.Unknown
	)
	for _, c := range []struct {
		name    string
		phase   phase
		err     error
		outcome eventstore.Outcome
		reason  eventstore.Reason
	}{
		{"dial refused", phaseConnect, io.ErrClosedPipe, fail, eventstore.NotSent},
		{"dial timed out", phaseConnect, context.DeadlineExceeded, fail, eventstore.NotSent},
		{"gave up waiting for a connection", phaseConnect, context.Canceled, fail, eventstore.NotSent},
		{"server is starting up", phaseConnect, state("57P03", "FATAL"), fail, eventstore.NotSent},
		{"too many connections", phaseConnect, state("53300", "FATAL"), fail, eventstore.NotSent},
		{"dead connection at BEGIN", phaseBegin, io.EOF, fail, eventstore.NotSent},
		{"SQLSTATE on BEGIN", phaseBegin, state("57P01", "FATAL"), fail, eventstore.NotSent},
		{"crashed while BEGIN was open", phaseBegin, points.ErrCrashed, unknown, eventstore.Killed},

		{"reset before COMMIT", phaseStatement, io.ErrUnexpectedEOF, unknown, eventstore.LostReply},
		{"timed out before COMMIT", phaseStatement, context.DeadlineExceeded, unknown, eventstore.TimedOut},
		{"cancelled before COMMIT", phaseStatement, context.Canceled, unknown, eventstore.Cancelled},
		{"crashed before COMMIT", phaseStatement, points.ErrCrashed, unknown, eventstore.Killed},
		{"serialization failure", phaseStatement, state("40001", "ERROR"), fail, eventstore.TransactionConflict},
		{"deadlock", phaseStatement, state("40P01", "ERROR"), fail, eventstore.TransactionConflict},
		{"class 08 before COMMIT", phaseStatement, state("08006", "FATAL"), fail, eventstore.TransactionConflict},
		{"shut down before COMMIT", phaseStatement, state("57P01", "FATAL"), fail, eventstore.TransactionConflict},
		{"statement cancelled", phaseStatement, state("57014", "ERROR"), fail, eventstore.TransactionConflict},
		{"lock not available", phaseStatement, state("55P03", "ERROR"), fail, eventstore.TransactionConflict},
		{"idle in transaction", phaseStatement, state("25P03", "FATAL"), fail, eventstore.TransactionConflict},
		{"disk full", phaseStatement, state("53100", "ERROR"), fail, eventstore.Throttled},
		{"data exception", phaseStatement, state("22021", "ERROR"), fail, eventstore.Invalid},
		{"check violation", phaseStatement, state("23514", "ERROR"), fail, eventstore.Invalid},
		{"row too big", phaseStatement, state("54000", "ERROR"), fail, eventstore.TooLarge},
		{"no right", phaseStatement, state("42501", "ERROR"), fail, eventstore.Rejected},
		{"internal error before COMMIT", phaseStatement, state("XX000", "ERROR"), fail, eventstore.Rejected},

		{"reset at COMMIT", phaseCommit, io.ErrUnexpectedEOF, unknown, eventstore.LostReply},
		{"timed out at COMMIT", phaseCommit, context.DeadlineExceeded, unknown, eventstore.TimedOut},
		{"cancelled at COMMIT", phaseCommit, context.Canceled, unknown, eventstore.Cancelled},
		{"crashed at COMMIT", phaseCommit, points.ErrCrashed, unknown, eventstore.Killed},
		{"08000 on COMMIT", phaseCommit, state("08000", "ERROR"), unknown, eventstore.ServerUncertain},
		{"08006 on COMMIT", phaseCommit, state("08006", "FATAL"), unknown, eventstore.ServerUncertain},
		{"08007 on COMMIT", phaseCommit, state("08007", "ERROR"), unknown, eventstore.ServerUncertain},
		{"57P01 on COMMIT", phaseCommit, state("57P01", "FATAL"), unknown, eventstore.ServerUncertain},
		{"57P02 on COMMIT", phaseCommit, state("57P02", "FATAL"), unknown, eventstore.ServerUncertain},
		{"57P03 on COMMIT", phaseCommit, state("57P03", "FATAL"), unknown, eventstore.ServerUncertain},
		{"40003 on COMMIT", phaseCommit, state("40003", "ERROR"), unknown, eventstore.ServerUncertain},
		{"XX000 on COMMIT", phaseCommit, state("XX000", "ERROR"), unknown, eventstore.ServerUncertain},
		{"XX001 on COMMIT", phaseCommit, state("XX001", "ERROR"), unknown, eventstore.ServerUncertain},
		{"log flush failed at COMMIT", phaseCommit, state("58030", "PANIC"), unknown, eventstore.ServerUncertain},
		{"40001 on COMMIT", phaseCommit, state("40001", "ERROR"), fail, eventstore.TransactionConflict},
		{"40P01 on COMMIT", phaseCommit, state("40P01", "ERROR"), fail, eventstore.TransactionConflict},
		{"57014 on COMMIT", phaseCommit, state("57014", "ERROR"), fail, eventstore.TransactionConflict},
		{"deferred constraint", phaseCommit, state("23505", "ERROR"), fail, eventstore.Invalid},
		{"io error, transaction aborted", phaseCommit, state("58030", "ERROR"), fail, eventstore.Rejected},

		{"autocommit without reply", phaseSingle, io.EOF, unknown, eventstore.LostReply},
		{"autocommit, 57P01", phaseSingle, state("57P01", "FATAL"), unknown, eventstore.ServerUncertain},
		{"autocommit, 08006", phaseSingle, state("08006", "FATAL"), unknown, eventstore.ServerUncertain},
		{"autocommit, XX000", phaseSingle, state("XX000", "ERROR"), unknown, eventstore.ServerUncertain},
		{"autocommit, no right", phaseSingle, state("42501", "ERROR"), fail, eventstore.Rejected},

		{"read without reply", phaseRead, io.EOF, fail, eventstore.LostReply},
		{"read timed out", phaseRead, context.DeadlineExceeded, fail, eventstore.TimedOut},
		{"read cancelled", phaseRead, context.Canceled, fail, eventstore.Cancelled},
		{"read refused", phaseRead, state("57P01", "FATAL"), fail, eventstore.TransactionConflict},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := classify("x", c.phase, c.err)
			outcome, reason := eventstore.Classify(err)
			if outcome != c.outcome || reason != c.reason {
				t.Errorf("got %s (%s), want %s (%s)", outcome, reason, c.outcome, c.reason)
			}
			if !errors.Is(err, c.err) {
				t.Error("the driver's error is lost")
			}
		})
	}
	if err := classify("x", phaseCommit, nil); err != nil {
		t.Errorf("no error became %v", err)
	}
	if outcome, _ := eventstore.Classify(committed("x", pgconn.NewCommandTag("COMMIT"), nil)); outcome != ok {
		t.Errorf("COMMIT is %s", outcome)
	}
}

// reply is what the scripted server does when it has read a statement.
type reply func(b *pgproto3.Backend, c net.Conn)

func tag(s string, status byte) reply {
	return func(b *pgproto3.Backend, _ net.Conn) {
		b.Send(&pgproto3.CommandComplete{CommandTag: []byte(s)})
		b.Send(&pgproto3.ReadyForQuery{TxStatus: status})
		_ = b.Flush()
	}
}

func refuse(code, severity string) reply {
	return func(b *pgproto3.Backend, c net.Conn) {
		b.Send(&pgproto3.ErrorResponse{Code: code, Severity: severity, SeverityUnlocalized: severity})
		if severity != "ERROR" {
			_ = b.Flush()
			_ = c.Close()
			return
		}
		b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		_ = b.Flush()
	}
}

func hangUp(_ *pgproto3.Backend, c net.Conn) { _ = c.Close() }

func silent(*pgproto3.Backend, net.Conn) {}

// scripted serves connections that answer "begin" properly and everything else by script.
func scripted(t *testing.T, script map[string]reply) *session {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c, script)
		}
	}()
	cfg, err := connConfig("postgres://u:p@"+l.Addr().String()+"/d?sslmode=disable", map[string]string{})
	if err != nil {
		t.Fatal(err)
	}
	var d net.Dialer
	env := targets.Env{Gate: points.Open{}, Dial: d.DialContext, Name: "w"}
	s := &session{env: env, pool: newPool(cfg, env, 2)}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func serve(c net.Conn, script map[string]reply) {
	defer func() { _ = c.Close() }()
	b := pgproto3.NewBackend(c, c)
	if _, err := b.ReceiveStartupMessage(); err != nil {
		return
	}
	b.Send(&pgproto3.AuthenticationOk{})
	b.Send(&pgproto3.BackendKeyData{ProcessID: 1, SecretKey: []byte{0, 0, 0, 1}})
	b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	if b.Flush() != nil {
		return
	}
	for {
		m, err := b.Receive()
		if err != nil {
			return
		}
		q, ok := m.(*pgproto3.Query)
		if !ok {
			continue
		}
		answer := tag("BEGIN", 'T')
		if r, ok := script[q.String]; ok {
			answer = r
		}
		answer(b, c)
	}
}

func TestACommitIsClassifiedByWhatTheServerSays(t *testing.T) {
	for _, c := range []struct {
		name    string
		answer  reply
		outcome eventstore.Outcome
		reason  eventstore.Reason
		kept    bool // the connection is used again
	}{
		{"acknowledged", tag("COMMIT", 'I'), eventstore.OK, eventstore.ReasonNone, true},
		{"answered by a rollback tag", tag("ROLLBACK", 'I'), eventstore.Fail, eventstore.TransactionConflict, true},
		{"answered by another tag", tag("SELECT 1", 'I'), eventstore.Unknown, eventstore.ServerUncertain, false},
		{"serialization failure", refuse("40001", "ERROR"), eventstore.Fail, eventstore.TransactionConflict, true},
		{"statement completion unknown", refuse("40003", "ERROR"), eventstore.Unknown, eventstore.ServerUncertain, true},
		{"class 08", refuse("08006", "FATAL"), eventstore.Unknown, eventstore.ServerUncertain, false},
		{"shut down", refuse("57P01", "FATAL"), eventstore.Unknown, eventstore.ServerUncertain, false},
		{"crash of another backend", refuse("57P02", "FATAL"), eventstore.Unknown, eventstore.ServerUncertain, false},
		{"cannot connect now", refuse("57P03", "FATAL"), eventstore.Unknown, eventstore.ServerUncertain, false},
		{"internal error", refuse("XX000", "ERROR"), eventstore.Unknown, eventstore.ServerUncertain, true},
		{"hung up", hangUp, eventstore.Unknown, eventstore.LostReply, false},
		{"silence", silent, eventstore.Unknown, eventstore.TimedOut, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := scripted(t, map[string]reply{"commit": c.answer})
			tx, err := s.begin(t.Context(), "append")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if outcome, reason := eventstore.Classify(tx.Commit(ctx)); outcome != c.outcome || reason != c.reason {
				t.Errorf("got %s (%s), want %s (%s)", outcome, reason, c.outcome, c.reason)
			}
			if kept := len(s.pool.idle) == 1; kept != c.kept {
				t.Errorf("the connection was kept: %t, want %t", kept, c.kept)
			}
			if len(s.pool.slots) != 0 {
				t.Error("the connection's slot was not given back")
			}
		})
	}
}

func TestACancelledCommitIsUnknown(t *testing.T) {
	asked := make(chan struct{})
	s := scripted(t, map[string]reply{"commit": func(*pgproto3.Backend, net.Conn) { close(asked) }})
	tx, err := s.begin(t.Context(), "append")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if outcome, reason := eventstore.Classify(tx.Commit(ctx)); outcome != eventstore.Unknown || reason != eventstore.Cancelled {
		t.Errorf("got %s (%s)", outcome, reason)
	}
}

func TestAStatementBeforeCommitIsClassifiedByWhatTheServerSays(t *testing.T) {
	for _, c := range []struct {
		name    string
		answer  reply
		outcome eventstore.Outcome
		reason  eventstore.Reason
	}{
		{"serialization failure", refuse("40001", "ERROR"), eventstore.Fail, eventstore.TransactionConflict},
		{"shut down", refuse("57P01", "FATAL"), eventstore.Fail, eventstore.TransactionConflict},
		{"class 08", refuse("08006", "FATAL"), eventstore.Fail, eventstore.TransactionConflict},
		{"internal error", refuse("XX000", "ERROR"), eventstore.Fail, eventstore.Rejected},
		{"hung up", hangUp, eventstore.Unknown, eventstore.LostReply},
		{"silence", silent, eventstore.Unknown, eventstore.TimedOut},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := scripted(t, map[string]reply{"work": c.answer, "rollback": tag("ROLLBACK", 'I')})
			tx, err := s.begin(t.Context(), "append")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_, err = tx.Exec(ctx, "work", pgx.QueryExecModeSimpleProtocol)
			if err == nil {
				t.Fatal("the statement did not fail")
			}
			if outcome, reason := eventstore.Classify(tx.Fail(t.Context(), err)); outcome != c.outcome || reason != c.reason {
				t.Errorf("got %s (%s), want %s (%s)", outcome, reason, c.outcome, c.reason)
			}
			if len(s.pool.slots) != 0 {
				t.Error("the connection's slot was not given back")
			}
		})
	}
}

func TestAFailureToConnectOrBeginIsNotSent(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer reply
	}{
		{"hung up at BEGIN", hangUp},
		{"SQLSTATE at BEGIN", refuse("57P01", "FATAL")},
		{"silence at BEGIN", silent},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := scripted(t, map[string]reply{"begin isolation level read committed read write": c.answer})
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_, err := s.begin(ctx, "append")
			if outcome, reason := eventstore.Classify(err); outcome != eventstore.Fail || reason != eventstore.NotSent {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("nobody listens", func(t *testing.T) {
		s := scripted(t, nil)
		s.env.Dial = nil
		s.pool.env.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, io.ErrClosedPipe }
		_, err := s.begin(t.Context(), "append")
		if outcome, reason := eventstore.Classify(err); outcome != eventstore.Fail || reason != eventstore.NotSent {
			t.Errorf("got %v", err)
		}
	})
}

func TestRefusedConnectsAreSpacedOut(t *testing.T) {
	s := scripted(t, nil)
	dials := 0
	s.pool.env.Dial = func(context.Context, string, string) (net.Conn, error) {
		dials++
		return nil, io.ErrClosedPipe
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	for ctx.Err() == nil {
		if _, err := s.pool.acquire(ctx); err == nil {
			t.Fatal("connected to nobody")
		}
	}
	if dials < 2 || dials > 10 {
		t.Errorf("%d connects in half a second", dials)
	}
}
