package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
)

var (
	errEmptyAppend = errors.New("postgres: an append needs a stream and at least one event, each with an id and a type")
	errEventTaken  = errors.New("postgres: an event id is in the log already, under another request")
	errNoStreams   = errors.New("postgres: this variant keeps auctions as rows and has no streams")
	errNoPositions = errors.New("postgres: the insert returned no position")
)

// Append implements eventstore.Store.
func (s *session) Append(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	if err := valid(a); err != nil {
		return eventstore.Appended{}, err
	}
	if s.parts.Bidding != nil {
		return eventstore.Appended{}, &eventstore.Error{Op: "append", Outcome: eventstore.Fail, Reason: eventstore.Invalid, Err: errNoStreams}
	}
	tx, err := s.begin(ctx, "append")
	if err != nil {
		return eventstore.Appended{}, err
	}
	done, err := s.parts.Append.Append(ctx, tx, a)
	switch {
	case violated(err) != "":
		return tx.lost(ctx, a, err)
	case err != nil:
		return eventstore.Appended{}, tx.Fail(ctx, err)
	case done.Replayed:
		tx.Rollback(ctx)
		return done, nil
	}
	if err := s.parts.Commit.Commit(ctx, tx); err != nil {
		return eventstore.Appended{}, err
	}
	if err := s.env.Gate.At(ctx, points.AppendAfterCommit, 0); err != nil {
		return eventstore.Appended{}, classify("append", phaseCommit, err)
	}
	return done, nil
}

func valid(a eventstore.Append) error {
	invalid := a.Stream == "" || len(a.Events) == 0
	for _, e := range a.Events {
		invalid = invalid || e.ID.IsZero() || e.Type == ""
	}
	if invalid {
		return &eventstore.Error{Op: "append", Outcome: eventstore.Fail, Reason: eventstore.Invalid, Err: errEmptyAppend}
	}
	return nil
}

// AnsweredCommit sends COMMIT once, on the transaction's own connection, and reports what was answered by the table of
// outcomes: without an answer the outcome is unknown.
type AnsweredCommit struct{}

// Commit implements Committer.
func (AnsweredCommit) Commit(ctx context.Context, tx *Tx) error { return tx.Commit(ctx) }

// AdvisoryLock appends under one lock for all appenders.
//
// The lock is taken in a statement of its own: a position drawn in the statement that waits for the lock could
// be older than those of the holder, and a head read in it would be the one from before the wait. It travels with the
// statements that read the head, each of which sees what was committed before itself, so that the lock is held
// for one round trip less. It is released after the commit has become visible: positions appear in their own
// order, and "position > last" skips nothing.
type AdvisoryLock struct{}

// AppendLock takes the allocator lock; the second half of the key is the schema's own number, so that
// trials on one server don't wait for each other.
const AppendLock = `select pg_advisory_xact_lock(1163219025, hashtext(current_schema()))`

// Append implements Appender.
func (AdvisoryLock) Append(ctx context.Context, tx *Tx, a eventstore.Append) (eventstore.Appended, error) {
	if err := tx.At(ctx, points.AppendBegin); err != nil {
		return eventstore.Appended{}, err
	}
	return insertAtHead(ctx, tx, a, AppendLock)
}

// Without implements Appender.
func (AdvisoryLock) Without() []string { return nil }

// XIDHorizon appends without waiting for other streams.
//
// The head is read before anything assigns the transaction's id: whoever reads head n gets an id above that of
// the writer of n, so within a stream the order by transaction id is the order by version. That is why the
// request row comes after the events, and why nothing may be written before the head is read.
type XIDHorizon struct{}

// Append implements Appender.
func (XIDHorizon) Append(ctx context.Context, tx *Tx, a eventstore.Append) (eventstore.Appended, error) {
	if err := tx.At(ctx, points.AppendBegin); err != nil {
		return eventstore.Appended{}, err
	}
	return insertAtHead(ctx, tx, a)
}

// Without implements Appender.
func (XIDHorizon) Without() []string { return nil }

// insertAtHead runs the statements that come first, reads head and request, decides, and inserts.
func insertAtHead(ctx context.Context, tx *Tx, a eventstore.Append, before ...string) (eventstore.Appended, error) {
	if err := tx.At(ctx, points.AppendBeforeHead); err != nil {
		return eventstore.Appended{}, err
	}
	head, first, err := tx.Head(ctx, a, before...)
	if err != nil || first != nil {
		return deref(first), err
	}
	if err := Compare(a.Expected, head); err != nil {
		return eventstore.Appended{}, err
	}
	if err := tx.At(ctx, points.AppendAfterHead); err != nil {
		return eventstore.Appended{}, err
	}
	done, err := tx.Insert(ctx, a, head+1, true)
	if err != nil {
		return eventstore.Appended{}, err
	}
	return done, tx.At(ctx, points.AppendAfterInsert)
}

func deref(a *eventstore.Appended) eventstore.Appended {
	if a == nil {
		return eventstore.Appended{}
	}
	return *a
}

// Compare holds the expected version against the head. Its errors are *eventstore.Error with outcome Fail.
func Compare(want eventstore.Expected, head uint64) error {
	switch {
	case want.IsAny() || want.Version() == head:
		return nil
	case want.Version() > head:
		return &eventstore.Error{Op: "append", Outcome: eventstore.Fail, Reason: eventstore.ExpectedAhead, Head: head, HeadKnown: true}
	}
	return &eventstore.Error{Op: "append", Outcome: eventstore.Fail, Reason: eventstore.VersionConflict, Head: head, HeadKnown: true}
}

const (
	selectHead = `select coalesce(max(version), 0) from events where stream = $1`
	// The versions come from the events themselves: a request row names the ids only, so that nothing has to be
	// known about the head when it is written.
	selectRequest = `select r.events, e.first, e.last from requests r
		cross join lateral (select min(version) as first, max(version) as last from events where id = any (r.events)) e
		where r.request = $1 and e.first is not null`
	insertEvent = `insert into events (id, stream, version, type, data, metadata)
		values ($1, $2, $3, $4, $5, $6) returning xid, position`
	insertRequest = `insert into requests (request, stream, events) values ($1, $2, $3)`
)

// Head runs the statements of before, then reads the stream's head and the first result of the request, nil if
// it was never executed; all in one round trip. The order matters: a head moved by this very request's first
// execution comes with its request row.
func (t *Tx) Head(ctx context.Context, a eventstore.Append, before ...string) (head uint64, first *eventstore.Appended, err error) {
	var b pgx.Batch
	for _, sql := range before {
		b.Queue(sql)
	}
	b.Queue(selectHead, a.Stream).QueryRow(func(r pgx.Row) error { return r.Scan(&head) })
	b.Queue(selectRequest, token(a)).QueryRow(func(r pgx.Row) error {
		first, err = scanRequest(r)
		return err
	})
	return head, first, t.Send(ctx, &b)
}

func scanRequest(r pgx.Row) (*eventstore.Appended, error) {
	var ids [][16]byte
	var done eventstore.Appended
	err := r.Scan(&ids, &done.First, &done.Last)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		done.Events = append(done.Events, eventstore.EventID(id))
	}
	done.Replayed = true
	return &done, nil
}

// token identifies an append: its request, or its first event where the caller gave none.
func token(a eventstore.Append) string {
	if a.Request != "" {
		return a.Request
	}
	return a.Events[0].ID.String()
}

// Insert draws positions and inserts the events at first, first+1, …; then, if asked to, the request row.
func (t *Tx) Insert(ctx context.Context, a eventstore.Append, first uint64, request bool) (eventstore.Appended, error) {
	done := eventstore.Appended{First: first, Last: first + uint64(len(a.Events)) - 1}
	var b pgx.Batch
	var xid uint64
	for i, e := range a.Events {
		meta, err := encodeMetadata(e.Meta)
		if err != nil {
			return eventstore.Appended{}, err
		}
		done.Events = append(done.Events, e.ID)
		b.Queue(insertEvent, [16]byte(e.ID), a.Stream, first+uint64(i), e.Type, notNil(e.Data), meta).
			QueryRow(func(r pgx.Row) error {
				var sequence uint64
				if err := r.Scan(&xid, &sequence); err != nil {
					return err
				}
				done.Positions = append(done.Positions, t.s.parts.Reader.Order().Position(xid, sequence))
				return nil
			})
	}
	if request {
		queueRequest(&b, a)
	}
	if err := t.Send(ctx, &b); err != nil {
		return eventstore.Appended{}, err
	}
	if len(done.Positions) != len(a.Events) {
		return eventstore.Appended{}, errNoPositions
	}
	t.trace.Transaction(xid)
	return done, nil
}

// Request writes the request row alone.
func (t *Tx) Request(ctx context.Context, a eventstore.Append) error {
	var b pgx.Batch
	queueRequest(&b, a)
	return t.Send(ctx, &b)
}

func queueRequest(b *pgx.Batch, a eventstore.Append) {
	ids := make([][16]byte, len(a.Events))
	for i, e := range a.Events {
		ids[i] = e.ID
	}
	b.Queue(insertRequest, token(a), a.Stream, ids)
}

// notNil keeps an empty payload apart from SQL NULL.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// lost ends an append whose insert broke a unique constraint. The transaction has no effect; what to answer
// depends on who got there first: this request itself, or somebody else.
func (t *Tx) lost(ctx context.Context, a eventstore.Append, cause error) (eventstore.Appended, error) {
	fail := func(r eventstore.Reason, err error) (eventstore.Appended, error) {
		return eventstore.Appended{}, &eventstore.Error{Op: t.op, Outcome: eventstore.Fail, Reason: r, Err: err}
	}
	if _, err := t.Simple(ctx, "rollback"); err != nil {
		t.Abandon()
		return fail(eventstore.TransactionConflict, cause)
	}
	head, first, err := t.Head(ctx, a)
	if err != nil {
		// Nothing happened, but who won is not known: the loser may be a repeat of the winner, which a
		// version conflict would deny.
		t.Abandon()
		return fail(eventstore.TransactionConflict, errors.Join(cause, err))
	}
	t.leave()
	switch {
	case first != nil:
		return *first, nil
	case violated(cause) == UniqueEvent:
		return fail(eventstore.Invalid, errors.Join(errEventTaken, cause))
	case violated(cause) != UniqueVersion:
		return fail(eventstore.TransactionConflict, cause)
	case a.Expected.IsAny():
		return fail(eventstore.LostRace, cause)
	}
	return eventstore.Appended{}, &eventstore.Error{
		Op: t.op, Outcome: eventstore.Fail, Reason: eventstore.VersionConflict, Head: head, HeadKnown: true, Err: cause,
	}
}
