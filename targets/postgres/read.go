package postgres

import (
	"context"
	"errors"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/eventproof/eventproof/eventstore"
)

const defaultPage = 500

const selectStream = `select ` + eventColumns + ` from events
	where stream = $1 and version >= $2 and version <= $3 order by version limit $4`

// Read implements eventstore.Store. Every page is a statement of its own on one server, so any read is strong;
// events are never changed, so pages of different instants still make one prefix.
func (s *session) Read(ctx context.Context, r eventstore.ReadRequest) (eventstore.Slice, error) {
	var slice eventstore.Slice
	err := s.with(ctx, "read", phaseRead, func(c *conn) error {
		page, from, to := r.PageSize, max(r.From, 1), r.To
		if page <= 0 {
			page = defaultPage
		}
		if to == 0 {
			to = math.MaxInt64
		}
		for from <= to {
			rows, err := c.Query(ctx, selectStream, r.Stream, from, to, page)
			events, err := collectEvents(rows, err, s.parts.Reader.Order())
			if err != nil {
				return err
			}
			slice.Pages++
			slice.Events = append(slice.Events, events...)
			if len(events) < page {
				return nil
			}
			from = events[len(events)-1].Version + 1
		}
		return nil
	})
	if err != nil {
		return eventstore.Slice{}, err
	}
	return slice, nil
}

// with runs f on a connection outside a transaction and classifies its error.
func (s *session) with(ctx context.Context, op string, p phase, f func(*conn) error) error {
	c, err := s.pool.acquire(ctx)
	if err != nil {
		return classify(op, phaseConnect, err)
	}
	trace := eventstore.TraceFrom(ctx)
	trace.Session(c.name)
	before := c.wire.trips.Load()
	err = f(c)
	trace.RoundTrips(int(c.wire.trips.Load() - before))
	if err != nil && !Answered(err) && !errors.Is(err, pgx.ErrNoRows) {
		s.pool.discard(c)
	} else {
		s.pool.release(c)
	}
	return classify(op, p, err)
}

const (
	selectSnapshot = `select version, state from snapshots where stream = $1`
	// A late writer may not put an older state over a newer one: it would be right, and useless.
	upsertSnapshot = `insert into snapshots (stream, version, state) values ($1, $2, $3)
		on conflict (stream) do update set version = excluded.version, state = excluded.state
		where snapshots.version < excluded.version`
)

// LoadSnapshot implements eventstore.Snapshots.
func (s *session) LoadSnapshot(ctx context.Context, stream string) (eventstore.Snapshot, bool, error) {
	snap := eventstore.Snapshot{Stream: stream}
	found := true
	err := s.with(ctx, "load snapshot", phaseRead, func(c *conn) error {
		err := c.QueryRow(ctx, selectSnapshot, stream).Scan(&snap.Version, &snap.State)
		if errors.Is(err, pgx.ErrNoRows) {
			found = false
			return nil
		}
		return err
	})
	if err != nil || !found {
		return eventstore.Snapshot{}, false, err
	}
	return snap, true, nil
}

// SaveSnapshot implements eventstore.Snapshots.
func (s *session) SaveSnapshot(ctx context.Context, snap eventstore.Snapshot) error {
	return s.with(ctx, "save snapshot", phaseSingle, func(c *conn) error {
		_, err := c.Exec(ctx, upsertSnapshot, snap.Stream, snap.Version, notNil(snap.State))
		return err
	})
}
