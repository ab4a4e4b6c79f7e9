package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
)

// Tx is one explicit transaction of a role on a connection of its own. Its end must be reached: Commit,
// Rollback or Abandon.
type Tx struct {
	op    string
	s     *session
	conn  *conn
	trace *eventstore.Trace
	trips int64 // of the connection when the transaction began
	ended bool
}

// begin opens a transaction. Errors are *eventstore.Error and always mean that nothing was sent.
func (s *session) begin(ctx context.Context, op string) (*Tx, error) {
	trace := eventstore.TraceFrom(ctx)
	c, err := s.pool.acquire(ctx)
	if err != nil {
		return nil, classify(op, phaseConnect, err)
	}
	tx := &Tx{op: op, s: s, conn: c, trace: trace, trips: c.wire.trips.Load()}
	trace.Session(c.name)
	if _, err := tx.Simple(ctx, begin); err != nil {
		tx.Abandon()
		return nil, classify(op, phaseBegin, err)
	}
	return tx, nil
}

const begin = "begin isolation level read committed read write"

// Simple runs one statement alone, in the simple protocol.
func (t *Tx) Simple(ctx context.Context, sql string) (pgconn.CommandTag, error) {
	results, err := t.conn.PgConn().Exec(ctx, sql).ReadAll()
	if len(results) == 0 {
		return pgconn.CommandTag{}, err
	}
	return results[len(results)-1].CommandTag, err
}

// Again commits what was done and opens another transaction on the connection.
func (t *Tx) Again(ctx context.Context) error {
	for _, sql := range []string{"commit", begin} {
		if _, err := t.Simple(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// Reconnect drops the connection and goes on with another one, on which no transaction is open. What was open on the old
// one is left to the server.
func (t *Tx) Reconnect(ctx context.Context) error {
	trips := t.conn.wire.trips.Load() - t.trips
	t.s.pool.discard(t.conn)
	c, err := t.s.pool.acquire(ctx)
	if err != nil {
		t.ended = true // there is nothing left to give back
		return classify(t.op, phaseConnect, err)
	}
	t.conn, t.trips = c, c.wire.trips.Load()-trips
	t.trace.Session(c.name)
	return nil
}

// Reopen drops the connection and opens a transaction on another one.
func (t *Tx) Reopen(ctx context.Context) error {
	if err := t.Reconnect(ctx); err != nil {
		return err
	}
	_, err := t.Simple(ctx, begin)
	return err
}

// At asks the role's gate. An error ends the transaction's work: the caller returns it at once.
func (t *Tx) At(ctx context.Context, p points.Point) error { return t.s.env.Gate.At(ctx, p, 0) }

// Exec runs one statement.
func (t *Tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return t.conn.Exec(ctx, sql, args...)
}

// Query runs one query.
func (t *Tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return t.conn.Query(ctx, sql, args...)
}

// QueryRow runs a query for one row.
func (t *Tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return t.conn.QueryRow(ctx, sql, args...)
}

// Send runs the statements of a batch in order in one round trip. Each sees what was committed before itself.
func (t *Tx) Send(ctx context.Context, b *pgx.Batch) error {
	return t.conn.SendBatch(ctx, b).Close()
}

// Commit ends the transaction. The statement travels alone, in the simple protocol, so that a fault can be aimed
// at it. Errors are *eventstore.Error by the table of outcomes.
func (t *Tx) Commit(ctx context.Context) error {
	return t.End(t.Simple(ctx, "commit"))
}

// End ends the transaction with what was answered to its COMMIT. Errors are *eventstore.Error by the table of outcomes.
func (t *Tx) End(tag pgconn.CommandTag, err error) error {
	err = committed(t.op, tag, err)
	if err != nil && !errors.Is(err, errRolledBack) && !Answered(err) {
		t.Abandon()
		return err
	}
	t.leave()
	return err
}

// Rollback ends the transaction without effect. Its own failure changes nothing about that.
func (t *Tx) Rollback(ctx context.Context) {
	if t.ended {
		return
	}
	if _, err := t.Simple(ctx, "rollback"); err != nil {
		t.Abandon()
		return
	}
	t.leave()
}

// Abandon drops the connection without another word: after a crash, and when the answer is missing.
func (t *Tx) Abandon() {
	if t.ended {
		return
	}
	t.ended = true
	t.trace.RoundTrips(int(t.conn.wire.trips.Load() - t.trips))
	t.s.pool.discard(t.conn)
}

// Fail ends the transaction after an error before COMMIT and returns that error in the contract's form.
func (t *Tx) Fail(ctx context.Context, err error) error {
	if Answered(err) {
		t.Rollback(ctx)
	} else {
		t.Abandon()
	}
	return classify(t.op, phaseStatement, err)
}

// leave gives the connection back.
func (t *Tx) leave() {
	if t.ended {
		return
	}
	t.ended = true
	t.trace.RoundTrips(int(t.conn.wire.trips.Load() - t.trips))
	t.s.pool.release(t.conn)
}

// Answered reports whether an error came from the server, or was decided here, with the connection intact.
func Answered(err error) bool {
	var state *pgconn.PgError
	if errors.As(err, &state) {
		return true
	}
	var spoken *eventstore.Error
	return errors.As(err, &spoken) && spoken.Outcome == eventstore.Fail
}
