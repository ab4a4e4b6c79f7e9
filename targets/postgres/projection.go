package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
)

// Progress is the store side of one projection: its view, its ledger and its checkpoint.
type Progress struct {
	s    *session
	view eventstore.View
}

var errNoProjection = errors.New("postgres: the trial has no such projection")

const (
	claimCheckpoint = `update checkpoints set epoch = epoch + 1 where projection = $1 and epoch = $2
		returning generation, seq, epoch, cursor`
	selectCheckpoint = `select generation, seq, epoch, cursor from checkpoints where projection = $1`
	lockCheckpoint   = selectCheckpoint + ` for update`
	// The move is a compare-and-set and leaves its value in the history. The counter is the row's own: its lock
	// makes it the order of commits.
	moveCheckpoint = `with moved as (
			update checkpoints set cursor = $6, seq = seq + 1
			where projection = $1 and generation = $2 and seq = $3 and epoch = $4 and cursor = $5
			returning projection, generation, seq, epoch, cursor)
		insert into checkpoint_history (projection, generation, seq, epoch, cursor)
		select projection, generation, seq, epoch, cursor from moved`
	claimRows = `insert into views (projection, generation, key)
		select $1, $2, k from unnest($3::text[]) as k order by k on conflict do nothing`
	lockRows = `select key, effects, state from views
		where projection = $1 and generation = $2 and key = any ($3) order by key for update`
	writeRows = `update views v set version = u.version, effects = u.effects, state = u.state
		from unnest($3::text[], $4::bigint[], $5::bigint[], $6::bytea[]) as u (key, version, effects, state)
		where v.projection = $1 and v.generation = $2 and v.key = u.key`
	writeLedger = `insert into projection_ledger
			(projection, generation, seq, epoch, event, stream, version, key, how, row_version, row_order)
		select $1, $2, $3, $4, u.* from unnest($5::uuid[], $6::text[], $7::bigint[], $8::text[], $9::text[],
			$10::bigint[], $11::bigint[]) as u`
	selectRow = `select state, version from views
		where projection = $1 and generation = (select generation from checkpoints where projection = $1)
		and key = $2 and state is not null`
)

// Claim implements eventstore.Projection.
func (p *Progress) Claim(ctx context.Context) (eventstore.Checkpoint, error) {
	for {
		seen, err := p.Load(ctx)
		if err != nil {
			return eventstore.Checkpoint{}, err
		}
		var mine eventstore.Checkpoint
		var won bool
		err = p.s.with(ctx, "claim", phaseSingle, func(c *conn) error {
			mine, won, err = scanCheckpoint(c.QueryRow(ctx, claimCheckpoint, p.view.Name(), seen.Epoch))
			return err
		})
		// Somebody else may have claimed between the two statements; then it is our turn again.
		if err != nil || won {
			return mine, err
		}
	}
}

// Load implements eventstore.Projection.
func (p *Progress) Load(ctx context.Context) (eventstore.Checkpoint, error) {
	var cp eventstore.Checkpoint
	err := p.s.with(ctx, "load checkpoint", phaseRead, func(c *conn) error {
		var found bool
		var err error
		cp, found, err = scanCheckpoint(c.QueryRow(ctx, selectCheckpoint, p.view.Name()))
		if err == nil && !found {
			return p.missing("load checkpoint")
		}
		return err
	})
	return cp, err
}

func (p *Progress) missing(op string) error {
	return &eventstore.Error{
		Op: op, Outcome: eventstore.Fail, Reason: eventstore.Invalid,
		Err: fmt.Errorf("%w: %q", errNoProjection, p.view.Name()),
	}
}

func scanCheckpoint(r pgx.Row) (cp eventstore.Checkpoint, found bool, err error) {
	var cursor string
	switch err := r.Scan(&cp.Generation, &cp.Seq, &cp.Epoch, &cursor); {
	case errors.Is(err, pgx.ErrNoRows):
		return eventstore.Checkpoint{}, false, nil
	case err != nil:
		return eventstore.Checkpoint{}, false, err
	}
	if cp.Cursor, err = eventstore.ParseCursor(cursor); err != nil {
		return eventstore.Checkpoint{}, false, err
	}
	return cp, true, nil
}

// Row implements eventstore.Projection.
func (p *Progress) Row(ctx context.Context, key string) (state []byte, version uint64, found bool, err error) {
	err = p.s.with(ctx, "row", phaseRead, func(c *conn) error {
		err := c.QueryRow(ctx, selectRow, p.view.Name(), key).Scan(&state, &version)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		found = err == nil
		return err
	})
	return state, version, found, err
}

// Apply implements eventstore.Projection.
func (p *Progress) Apply(ctx context.Context, b eventstore.Batch) (eventstore.Checkpoint, error) {
	return p.s.parts.Projection.Apply(ctx, p, b)
}

// Begin opens a transaction for a part of this projection.
func (p *Progress) Begin(ctx context.Context) (*Tx, error) { return p.s.begin(ctx, "apply") }

// At asks the role's gate outside a transaction. A refusal is an *eventstore.Error.
func (p *Progress) At(ctx context.Context, at points.Point) error {
	return classify("apply", phaseStatement, p.s.env.Gate.At(ctx, at, 0))
}

// View returns the view's name.
func (p *Progress) View() string { return p.view.Name() }

// SameTransaction stores effects, ledger and checkpoint in one transaction. The checkpoint moves by
// compare-and-set: without it a batch repeated after a lost answer would be applied twice.
type SameTransaction struct{}

// Apply implements Projector.
func (SameTransaction) Apply(ctx context.Context, p *Progress, b eventstore.Batch) (eventstore.Checkpoint, error) {
	tx, err := p.Begin(ctx)
	if err != nil {
		return eventstore.Checkpoint{}, err
	}
	next, err := sameTransaction(ctx, tx, p, b)
	if err != nil {
		return eventstore.Checkpoint{}, tx.Fail(ctx, err)
	}
	if err := tx.Commit(ctx); err != nil {
		return eventstore.Checkpoint{}, err
	}
	return next, p.At(ctx, points.ProjectorAfterCommit)
}

func sameTransaction(ctx context.Context, tx *Tx, p *Progress, b eventstore.Batch) (eventstore.Checkpoint, error) {
	// The row lock first: a competitor waits here, before it has touched a view row.
	current, err := p.Lock(ctx, tx)
	if err != nil {
		return eventstore.Checkpoint{}, err
	}
	if !same(current, b.Prev) {
		return eventstore.Checkpoint{}, superseded()
	}
	next := eventstore.Checkpoint{
		Cursor: b.Next, Seq: b.Prev.Seq + 1, Epoch: b.Prev.Epoch, Generation: b.Prev.Generation,
	}
	if err := p.Effects(ctx, tx, b.Events, next); err != nil {
		return eventstore.Checkpoint{}, err
	}
	if err := tx.At(ctx, points.ProjectorAfterEffect); err != nil {
		return eventstore.Checkpoint{}, err
	}
	if err := p.Move(ctx, tx, b.Prev, b.Next); err != nil {
		return eventstore.Checkpoint{}, err
	}
	return next, tx.At(ctx, points.ProjectorBeforeCommit)
}

func same(a, b eventstore.Checkpoint) bool {
	return a.Generation == b.Generation && a.Seq == b.Seq && a.Epoch == b.Epoch && a.Cursor.String() == b.Cursor.String()
}

func superseded() error {
	return &eventstore.Error{Op: "apply", Outcome: eventstore.Fail, Reason: eventstore.Superseded}
}

// Lock reads the checkpoint and locks its row until the transaction ends.
func (p *Progress) Lock(ctx context.Context, tx *Tx) (eventstore.Checkpoint, error) {
	cp, found, err := scanCheckpoint(tx.QueryRow(ctx, lockCheckpoint, p.view.Name()))
	if err == nil && !found {
		return cp, p.missing("apply")
	}
	return cp, err
}

// Move moves the checkpoint by compare-and-set and records the new value. No row: reason Superseded.
func (p *Progress) Move(ctx context.Context, tx *Tx, from eventstore.Checkpoint, to eventstore.Cursor) error {
	tag, err := tx.Exec(ctx, moveCheckpoint, p.view.Name(), from.Generation, from.Seq, from.Epoch,
		from.Cursor.String(), to.String())
	if err == nil && tag.RowsAffected() != 1 {
		return superseded()
	}
	return err
}

// ledger collects the columns of ledger rows.
type ledger struct {
	events                [][16]byte
	streams, keys, hows   []string
	versions, rowVersions []uint64
	rowOrders             []uint64
}

func (l *ledger) add(e eventstore.Event, key, how string, rowVersion, rowOrder uint64) {
	l.events = append(l.events, [16]byte(e.ID))
	l.streams = append(l.streams, e.Stream)
	l.versions = append(l.versions, e.Version)
	l.keys = append(l.keys, key)
	l.hows = append(l.hows, how)
	l.rowVersions = append(l.rowVersions, rowVersion)
	l.rowOrders = append(l.rowOrders, rowOrder)
}

// viewRow is a locked row of the view.
type viewRow struct {
	version, effects uint64
	state            []byte
}

// Effects applies events to their rows and writes one ledger row each. The rows are read under a lock that
// lasts until the transaction ends, so that the change of each is one to what is there, not to what was read
// before. at names the checkpoint that the same transaction moves to; Seq 0 where it moves none.
func (p *Progress) Effects(ctx context.Context, tx *Tx, events []eventstore.Event, at eventstore.Checkpoint) error {
	if len(events) == 0 {
		return nil
	}
	keys := p.keys(events)
	rows, err := p.lockRows(ctx, tx, at.Generation, keys)
	if err != nil {
		return err
	}
	var book ledger
	for _, e := range events {
		key, ok := p.view.Key(e)
		if !ok {
			book.add(e, "", "filtered", 0, 0)
			continue
		}
		row := rows[key]
		if row.state, err = p.view.Apply(row.state, e); err != nil {
			return &eventstore.Error{
				Op: "apply", Outcome: eventstore.Fail, Reason: eventstore.Invalid,
				Err: fmt.Errorf("view %s, event %s: %w", p.view.Name(), e.ID, err),
			}
		}
		row.version, row.effects = e.Version, row.effects+1
		rows[key] = row
		book.add(e, key, "applied", row.version, row.effects)
	}
	return p.write(ctx, tx, at, keys, rows, &book)
}

// keys returns the rows that events belong to, each once, in one order for everybody: otherwise two projectors
// could lock them crosswise.
func (p *Progress) keys(events []eventstore.Event) []string {
	var keys []string
	for _, e := range events {
		if key, ok := p.view.Key(e); ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// lockRows makes the rows that don't exist yet and locks all of them: a row that isn't there can't be locked.
func (p *Progress) lockRows(ctx context.Context, tx *Tx, generation uint64, keys []string) (map[string]viewRow, error) {
	rows := make(map[string]viewRow, len(keys))
	if len(keys) == 0 {
		return rows, nil
	}
	var b pgx.Batch
	b.Queue(claimRows, p.view.Name(), generation, keys)
	b.Queue(lockRows, p.view.Name(), generation, keys).Query(func(r pgx.Rows) error {
		for r.Next() {
			var key string
			var row viewRow
			if err := r.Scan(&key, &row.effects, &row.state); err != nil {
				return err
			}
			rows[key] = row
		}
		return r.Err()
	})
	return rows, tx.Send(ctx, &b)
}

func (p *Progress) write(ctx context.Context, tx *Tx, at eventstore.Checkpoint, keys []string, rows map[string]viewRow, book *ledger) error {
	versions, effects := make([]uint64, len(keys)), make([]uint64, len(keys))
	states := make([][]byte, len(keys))
	for i, key := range keys {
		row := rows[key]
		versions[i], effects[i], states[i] = row.version, row.effects, notNil(row.state)
	}
	var b pgx.Batch
	if len(keys) > 0 {
		b.Queue(writeRows, p.view.Name(), at.Generation, keys, versions, effects, states)
	}
	b.Queue(writeLedger, p.view.Name(), at.Generation, at.Seq, at.Epoch, book.events, book.streams, book.versions,
		book.keys, book.hows, book.rowVersions, book.rowOrders)
	return tx.Send(ctx, &b)
}
