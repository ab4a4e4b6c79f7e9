package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/targets"
)

// session is a role's connection to the store.
type session struct {
	pool  *pool
	env   targets.Env
	parts Parts
}

var (
	_ targets.Session        = (*session)(nil)
	_ targets.BiddingSession = (*session)(nil)
	_ eventstore.Store       = (*session)(nil)
	_ eventstore.Feed        = (*session)(nil)
	_ eventstore.Snapshots   = (*session)(nil)
	_ eventstore.Bidding     = (*session)(nil)
)

// errCache: a session of the sequence would draw numbers ahead.
var errCache = errors.New("postgres: the sequence of positions must have CACHE 1: cached numbers are used late")

// attach connects a role. While the server can't be reached it tries again until ctx ends; a refusal (wrong
// password, no such schema, a sequence with a cache) ends it.
func attach(ctx context.Context, c config, parts Parts, env targets.Env) (*session, error) {
	cfg, err := connConfig(c.URL, roleParams(c.Schema))
	if err != nil {
		return nil, err
	}
	s := &session{pool: newPool(cfg, env, max(c.MaxConns, 1)), env: env, parts: parts}
	for {
		if err = s.check(ctx); err == nil {
			return s, nil
		}
		if !again(err) || ctx.Err() != nil {
			return nil, errors.Join(fmt.Errorf("attaching %s: %w", env.Name, err), s.Close())
		}
	}
}

// check refuses a store that can't keep the order of positions.
func (s *session) check(ctx context.Context) error {
	return s.with(ctx, "attach", phaseRead, func(c *conn) error {
		var cache int64
		err := c.QueryRow(ctx, `select seqcache from pg_sequence where seqrelid = 'positions'::regclass`).Scan(&cache)
		if err == nil && cache != 1 {
			return &eventstore.Error{
				Op: "attach", Outcome: eventstore.Fail, Reason: eventstore.Invalid, Err: fmt.Errorf("%w (it has %d)", errCache, cache),
			}
		}
		return err
	})
}

// again reports whether an error of attach may go away by itself: no answer, or a server that is starting,
// stopping or full.
func again(err error) bool {
	var state *pgconn.PgError
	if errors.As(err, &state) {
		return strings.HasPrefix(state.Code, "57P") || strings.HasPrefix(state.Code, "53")
	}
	_, reason := eventstore.Classify(err)
	return reason != eventstore.Invalid
}

// Store implements targets.Session.
func (s *session) Store() eventstore.Store { return s }

// Snapshots implements targets.Session.
func (s *session) Snapshots() eventstore.Snapshots { return s }

// Feed implements targets.Session.
func (s *session) Feed() eventstore.Feed { return s }

// Bidding implements targets.BiddingSession.
func (s *session) Bidding() eventstore.Bidding { return s }

// Projection implements targets.Session.
func (s *session) Projection(v eventstore.View) (eventstore.Projection, error) {
	return &Progress{s: s, view: v}, nil
}

// Close implements targets.Session.
func (s *session) Close() error { return s.pool.close() }
