package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/eventproof/eventproof/eventstore"
)

// Poll implements eventstore.Feed.
func (s *session) Poll(ctx context.Context, after eventstore.Cursor, limit int) (eventstore.Page, error) {
	if limit <= 0 {
		limit = defaultPage
	}
	var page eventstore.Page
	err := s.with(ctx, "poll", phaseRead, func(c *conn) error {
		var err error
		page, err = s.parts.Reader.Poll(ctx, c, after, limit)
		return err
	})
	if err != nil {
		return eventstore.Page{}, err
	}
	return page, nil
}

// pageOf makes a page of the events found behind a cursor.
func pageOf(events []eventstore.Event, after eventstore.Cursor) eventstore.Page {
	page := eventstore.Page{Events: events, Next: after}
	if n := len(events); n > 0 {
		page.Next = eventstore.Through(events[n-1].Position)
	}
	return page
}

// PositionReader polls "position > last". It is right only beside an appender that makes positions visible in
// their own order.
type PositionReader struct{}

const selectBehindPosition = `select ` + eventColumns + ` from events
	where position > $1 order by position limit $2`

// Order implements Reader.
func (PositionReader) Order() Order { return BySequence }

// Poll implements Reader.
func (r PositionReader) Poll(ctx context.Context, q Querier, after eventstore.Cursor, limit int) (eventstore.Page, error) {
	rows, err := q.Query(ctx, selectBehindPosition, last(after).Minor, limit)
	events, err := collectEvents(rows, err, r.Order())
	if err != nil {
		return eventstore.Page{}, err
	}
	return pageOf(events, after), nil
}

// HorizonReader orders by (transaction id, position) and passes no transaction that might still commit below.
type HorizonReader struct{}

// The horizon belongs to the snapshot of the statement that reads the page: every id below it had ended when
// the page was read, so nothing can appear there any more. Taken later it would be too high.
const selectBelowHorizon = `select ` + eventColumns + ` from events
	where (xid, position) > ($1::xid8, $2::bigint) and xid < pg_snapshot_xmin(pg_current_snapshot())
	order by xid, position limit $3`

// selectHolder names who holds the horizon: the oldest transaction that still runs, if there is an event at
// or above it. Transaction ids are those of the whole cluster: the holder may work in another database, or be
// prepared and have no backend at all.
const selectHolder = `with horizon as materialized (select pg_snapshot_xmin(pg_current_snapshot()) as xmin)
	select h.xmin, a.pid, a.application_name, a.datname, a.state, p.gid, p.database
	from horizon h
	left join pg_stat_activity a on a.backend_xid = h.xmin::xid
	left join pg_prepared_xacts p on p.transaction = h.xmin::xid
	where exists (select from events where xid >= h.xmin)
	limit 1`

// Order implements Reader.
func (HorizonReader) Order() Order { return ByTransaction }

// Poll implements Reader.
func (r HorizonReader) Poll(ctx context.Context, q Querier, after eventstore.Cursor, limit int) (eventstore.Page, error) {
	from := last(after)
	rows, err := q.Query(ctx, selectBelowHorizon, from.Major, from.Minor, limit)
	events, err := collectEvents(rows, err, r.Order())
	if err != nil {
		return eventstore.Page{}, err
	}
	page := pageOf(events, after)
	if len(events) < limit {
		if page.Held, err = holder(ctx, q); err != nil {
			return eventstore.Page{}, err
		}
	}
	return page, nil
}

func holder(ctx context.Context, q Querier) (string, error) {
	var xmin uint64
	var pid *int32
	var app, database, state, gid, preparedIn *string
	err := q.QueryRow(ctx, selectHolder).Scan(&xmin, &pid, &app, &database, &state, &gid, &preparedIn)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "", nil
	case err != nil:
		return "", err
	case gid != nil:
		return fmt.Sprintf("transaction %d: prepared transaction %q in database %s", xmin, *gid, text(preparedIn)), nil
	case pid != nil:
		var known []string
		for _, s := range []*string{app, state} {
			if s != nil && *s != "" {
				known = append(known, *s)
			}
		}
		return fmt.Sprintf("transaction %d: backend %d (%s) in database %s", xmin, *pid, strings.Join(known, ", "), text(database)), nil
	}
	return fmt.Sprintf("transaction %d, which has ended meanwhile", xmin), nil
}

func text(s *string) string {
	if s == nil {
		return "unknown"
	}
	return *s
}
