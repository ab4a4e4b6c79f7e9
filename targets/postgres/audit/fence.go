package audit

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/eventproof/eventproof/targets"
)

const (
	// naturalEnd is how long backends are given to end by themselves: one whose client is gone may still have a
	// COMMIT in its buffer, which it carries out before it notices.
	naturalEnd = 3 * time.Second
	// forcedEnd is how long a terminated backend may take to be gone.
	forcedEnd = 5 * time.Second
	// again is the pause between two looks.
	again = 25 * time.Millisecond
	// quietLooks is how many looks in a row must find no backend: one that passed the log-in check just before
	// it was closed is listed a moment later.
	quietLooks = 4
)

var _ targets.Auditor = (*Auditor)(nil)

// Fence takes the right to log in from the users of the run, waits until none of their backends is left, and
// looks for prepared transactions. After that no request of the run can take effect. It may be called again.
func (a *Auditor) Fence(ctx context.Context) (targets.Proof, error) {
	c, err := a.connect(ctx)
	if err != nil {
		return targets.Proof{}, err
	}
	defer func() { _ = c.Close(ctx) }()
	for _, role := range a.place.Roles {
		if _, err := c.Exec(ctx, "alter role "+pgx.Identifier{role}.Sanitize()+" nologin"); err != nil {
			return targets.Proof{}, fmt.Errorf("audit: closing the log-in of %s: %w", role, err)
		}
	}
	found, err := a.backends(ctx, c)
	if err != nil {
		return targets.Proof{}, err
	}
	left, err := a.await(ctx, c, naturalEnd, backends.idle)
	if err != nil {
		return targets.Proof{}, err
	}
	terminated := left
	if left > 0 {
		const sql = `select count(*) from (select pg_terminate_backend(pid) as sent from pg_stat_activity
			where usename = any ($1)) as t where sent`
		if err := c.QueryRow(ctx, sql, a.place.Roles).Scan(&terminated); err != nil {
			return targets.Proof{}, fmt.Errorf("audit: terminating backends: %w", err)
		}
		if left, err = a.await(ctx, c, forcedEnd, backends.none); err != nil {
			return targets.Proof{}, err
		}
	}
	prepared, err := a.prepared(ctx, c)
	if err != nil {
		return targets.Proof{}, err
	}
	return proof(a.place.Roles, found.listed, terminated, left, prepared), nil
}

func proof(roles []string, found, terminated, left int, prepared []string) targets.Proof {
	var b strings.Builder
	fmt.Fprintf(&b, "%s may not log in any more; %d of their backends were still listed", strings.Join(roles, " and "), found)
	if found > 0 {
		fmt.Fprintf(&b, ", %d ended by themselves", max(found-terminated, 0))
	}
	if terminated > 0 {
		fmt.Fprintf(&b, ", %d were terminated, idle or after %s", terminated, naturalEnd)
	}
	fmt.Fprintf(&b, "; %d left in pg_stat_activity", left)
	if left == 0 {
		fmt.Fprintf(&b, " in %d looks", quietLooks)
	}
	fmt.Fprintf(&b, "; %d prepared transactions in the database", len(prepared))
	if len(prepared) > 0 {
		fmt.Fprintf(&b, " (%s)", strings.Join(prepared, ", "))
	}
	return targets.Proof{Fenced: left == 0 && len(prepared) == 0, Text: b.String()}
}

// backends are those of the run's users.
type backends struct {
	listed int
	busy   int // in a transaction, or in a state that is not shown to us
}

// none: there is nothing left to wait for.
func (b backends) none() bool { return b.listed == 0 }

// idle: whatever is left is outside any transaction, so nothing of the run can come of it by itself.
func (b backends) idle() bool { return b.busy == 0 }

func (a *Auditor) backends(ctx context.Context, c *pgx.Conn) (backends, error) {
	const sql = `select count(*), count(*) filter (where state is distinct from 'idle')
		from pg_stat_activity where usename = any ($1)`
	var b backends
	if err := c.QueryRow(ctx, sql, a.place.Roles).Scan(&b.listed, &b.busy); err != nil {
		return backends{}, fmt.Errorf("audit: looking for backends: %w", err)
	}
	return b, nil
}

// await looks until several looks in a row found what is waited for, or the bound is reached; it returns how
// many backends the last look found.
func (a *Auditor) await(ctx context.Context, c *pgx.Conn, bound time.Duration, done func(backends) bool) (int, error) {
	tick := time.NewTicker(again)
	defer tick.Stop()
	quiet := 0
	for spent := time.Duration(0); ; spent += again {
		seen, err := a.backends(ctx, c)
		if err != nil {
			return 0, err
		}
		if done(seen) {
			quiet++
		} else {
			quiet = 0
		}
		if quiet >= quietLooks || (quiet == 0 && spent >= bound) {
			return seen.listed, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, fmt.Errorf("audit: waiting for backends to end: %w", context.Cause(ctx))
		}
	}
}

// prepared names the prepared transactions of the database, which no fence ends.
func (a *Auditor) prepared(ctx context.Context, c *pgx.Conn) ([]string, error) {
	rows, err := c.Query(ctx, `select gid from pg_prepared_xacts where database = current_database() order by gid`)
	if err != nil {
		return nil, fmt.Errorf("audit: looking for prepared transactions: %w", err)
	}
	gids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("audit: looking for prepared transactions: %w", err)
	}
	return gids, nil
}
