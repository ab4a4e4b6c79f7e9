// Package audit reads the final state of a trial on PostgreSQL. It shares no code with the adapter: its SQL and
// its decoding are its own, so that a mistake in one shows against the other. It connects as admin and never
// through a proxy.
package audit

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
)

// Place names what is to be audited.
type Place struct {
	AdminURL string
	Schema   string
	// Roles are the users that the run's roles logged in with.
	Roles []string
	// ByTransaction: the reader under test orders by transaction id, then position; else by position alone.
	ByTransaction bool
	// NativeAuction: auctions are rows, there is no log of events.
	NativeAuction bool
}

// Auditor implements targets.Auditor. It keeps no connection between calls.
type Auditor struct{ place Place }

// New returns an auditor.
func New(p Place) *Auditor { return &Auditor{place: p} }

const connectTimeout = 5 * time.Second

var errURL = errors.New("audit: malformed admin URL")

// connect opens a connection; the URL decides, not the environment.
func (a *Auditor) connect(ctx context.Context) (*pgx.Conn, error) {
	u, err := url.Parse(a.place.AdminURL)
	if err != nil {
		return nil, errURL
	}
	cfg, err := pgx.ParseConfig(a.place.AdminURL)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	cfg.Password, _ = u.User.Password()
	cfg.ConnectTimeout = connectTimeout
	cfg.RuntimeParams = map[string]string{"application_name": "eventproof-audit", "search_path": a.place.Schema}
	c, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("audit: connecting: %w", err)
	}
	return c, nil
}

// snapshot runs f in one read-only snapshot.
func (a *Auditor) snapshot(ctx context.Context, f func(pgx.Tx) error) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(ctx) }()
	tx, err := c.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return fmt.Errorf("audit: opening a snapshot: %w", err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	return f(tx)
}

// stream reads the rows of one query as they arrive, without keeping them.
func (a *Auditor) stream(ctx context.Context, what, sql string, row func(pgx.Rows) error) error {
	return a.snapshot(ctx, func(tx pgx.Tx) error { return each(ctx, tx, what, sql, row) })
}

func each(ctx context.Context, tx pgx.Tx, what, sql string, row func(pgx.Rows) error, args ...any) error {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return fmt.Errorf("audit: reading %s: %w", what, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return fmt.Errorf("audit: reading %s: %w", what, err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("audit: reading %s: %w", what, err)
	}
	return nil
}

// position puts a row into the order of the reader under test.
func (a *Auditor) position(xid, sequence uint64) eventstore.Position {
	if a.place.ByTransaction {
		return eventstore.Position{Major: xid, Minor: sequence}
	}
	return eventstore.Position{Minor: sequence}
}

// Log yields every event, with the transaction that wrote it.
func (a *Auditor) Log(ctx context.Context, yield func(history.LoggedEvent) error) error {
	if a.place.NativeAuction {
		return a.operations(ctx, yield)
	}
	const sql = `select e.id::text, e.stream, e.version, e.type, e.data, e.metadata::text, e.position, e.xid::text::bigint
		from events as e order by e.stream, e.version, e.xid, e.position`
	return a.stream(ctx, "the log", sql, func(r pgx.Rows) error {
		var id, stream, kind, meta string
		var version, sequence, xid int64
		var data []byte
		if err := r.Scan(&id, &stream, &version, &kind, &data, &meta, &sequence, &xid); err != nil {
			return err
		}
		event, err := eventstore.ParseEventID(id)
		if err != nil {
			return err
		}
		m, err := readMetadata(meta)
		if err != nil {
			return fmt.Errorf("event %s: %w", id, err)
		}
		return yield(history.LoggedEvent{
			Stream: stream, Version: uint64(version), ID: event, Type: kind, Data: data, Meta: m,
			Position: a.position(uint64(xid), uint64(sequence)), Transaction: uint64(xid),
		})
	})
}

func readMetadata(s string) (eventstore.Metadata, error) {
	var raw struct {
		Command, Correlation, Causation, BasisHash string
		Basis, Epoch                               uint64
		Schema                                     uint32
	}
	if err := json.Unmarshal([]byte(s), &raw); err != nil {
		return eventstore.Metadata{}, fmt.Errorf("metadata: %w", err)
	}
	m := eventstore.Metadata{
		CommandID: raw.Command, CorrelationID: raw.Correlation, CausationID: raw.Causation,
		BasisVersion: raw.Basis, Epoch: raw.Epoch, SchemaVersion: raw.Schema,
	}
	if raw.BasisHash == "" {
		return m, nil
	}
	if n, err := hex.Decode(m.BasisHash[:], []byte(raw.BasisHash)); err != nil || n != len(m.BasisHash) {
		return eventstore.Metadata{}, fmt.Errorf("metadata: basis hash %q", raw.BasisHash)
	}
	return m, nil
}

var errHow = errors.New("unknown way of handling an event")

func howOf(s string) (history.How, error) {
	for _, h := range []history.How{history.Applied, history.Superseded, history.Filtered, history.Parked} {
		if h.String() == s {
			return h, nil
		}
	}
	return 0, fmt.Errorf("%w: %q", errHow, s)
}

// Ledgers yields every effect.
func (a *Auditor) Ledgers(ctx context.Context, yield func(history.LedgerRow) error) error {
	const sql = `select l.projection, l.generation, l.event::text, l.stream, l.version, l.key, l.how,
			l.row_version, l.row_order, l.seq, l.xid::text::bigint, l.epoch
		from projection_ledger as l order by l.projection, l.generation, l.key, l.row_order, l.xid`
	return a.stream(ctx, "the ledger", sql, func(r pgx.Rows) error {
		var row history.LedgerRow
		var event, how string
		var generation, version, rowVersion, rowOrder, seq, xid, epoch int64
		err := r.Scan(&row.Projection, &generation, &event, &row.Stream, &version, &row.Row, &how,
			&rowVersion, &rowOrder, &seq, &xid, &epoch)
		if err != nil {
			return err
		}
		if row.Event, err = eventstore.ParseEventID(event); err != nil {
			return err
		}
		if row.How, err = howOf(how); err != nil {
			return err
		}
		row.Generation, row.Version, row.RowVersion = uint64(generation), uint64(version), uint64(rowVersion)
		row.RowOrder, row.Seq, row.Transaction, row.Epoch = uint64(rowOrder), uint64(seq), uint64(xid), uint64(epoch)
		return yield(row)
	})
}

// Checkpoints yields every value that a checkpoint ever had.
func (a *Auditor) Checkpoints(ctx context.Context, yield func(history.CheckpointRow) error) error {
	const sql = `select c.projection, c.generation, c.seq, c.epoch, c.cursor, c.xid::text::bigint
		from checkpoint_history as c order by c.projection, c.generation, c.seq`
	return a.stream(ctx, "the checkpoints", sql, func(r pgx.Rows) error {
		var row history.CheckpointRow
		var cursor string
		var generation, seq, epoch, xid int64
		err := r.Scan(&row.Projection, &generation, &seq, &epoch, &cursor, &xid)
		if err != nil {
			return err
		}
		if row.Cursor, err = eventstore.ParseCursor(cursor); err != nil {
			return err
		}
		row.Generation, row.Seq, row.Epoch, row.Transaction = uint64(generation), uint64(seq), uint64(epoch), uint64(xid)
		return yield(row)
	})
}

// Views yields the final rows of every view.
func (a *Auditor) Views(ctx context.Context, yield func(history.ViewRow) error) error {
	const sql = `select v.projection, v.generation, v.key, v.version, v.state
		from views as v order by v.projection, v.generation, v.key`
	return a.stream(ctx, "the views", sql, func(r pgx.Rows) error {
		row, err := readViewRow(r)
		if err != nil {
			return err
		}
		return yield(row)
	})
}

func readViewRow(r pgx.Rows) (history.ViewRow, error) {
	var row history.ViewRow
	var generation, version int64
	err := r.Scan(&row.Projection, &generation, &row.Row, &version, &row.State)
	row.Generation, row.Version = uint64(generation), uint64(version)
	return row, err
}

// Observe reads checkpoint and rows of one projection in one snapshot.
func (a *Auditor) Observe(ctx context.Context, projection string) (history.Observation, []history.ViewRow, error) {
	seen := history.Observation{Projection: projection}
	var rows []history.ViewRow
	err := a.snapshot(ctx, func(tx pgx.Tx) error {
		var cursor string
		var generation, seq int64
		err := tx.QueryRow(ctx, `select c.generation, c.seq, c.cursor from checkpoints as c where c.projection = $1`,
			projection).Scan(&generation, &seq, &cursor)
		if err != nil {
			return fmt.Errorf("audit: observing %s: %w", projection, err)
		}
		if seen.Cursor, err = eventstore.ParseCursor(cursor); err != nil {
			return fmt.Errorf("audit: observing %s: %w", projection, err)
		}
		seen.Generation, seen.Seq = uint64(generation), uint64(seq)
		const sql = `select v.projection, v.generation, v.key, v.version, v.state
			from views as v where v.projection = $1 and v.generation = $2 order by v.key`
		return each(ctx, tx, "the view", sql, func(r pgx.Rows) error {
			row, err := readViewRow(r)
			rows = append(rows, row)
			return err
		}, projection, generation)
	})
	if err != nil {
		return history.Observation{}, nil, err
	}
	seen.Rows = uint32(len(rows))
	return seen, rows, nil
}

// Head returns the position of the last event; the zero position if there is none.
func (a *Auditor) Head(ctx context.Context) (eventstore.Position, error) {
	sql := `select e.xid::text::bigint, e.position from events as e order by e.position desc limit 1`
	if a.place.ByTransaction {
		sql = `select e.xid::text::bigint, e.position from events as e order by e.xid desc, e.position desc limit 1`
	}
	var head eventstore.Position
	err := a.snapshot(ctx, func(tx pgx.Tx) error {
		var xid, sequence int64
		err := tx.QueryRow(ctx, sql).Scan(&xid, &sequence)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("audit: reading the head: %w", err)
		}
		head = a.position(uint64(xid), uint64(sequence))
		return nil
	})
	return head, err
}
