package dynamodb

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/targets"
)

// session is a role's connection to the store.
type session struct {
	cfg   config
	addr  string
	env   targets.Env
	parts Parts
	pool  *pool
	seen  seen
	acked acked
}

var (
	_ targets.Session      = (*session)(nil)
	_ eventstore.Store     = (*session)(nil)
	_ eventstore.Snapshots = (*session)(nil)
	_ eventstore.Bidding   = (*session)(nil)

	_ targets.BiddingSession = (*session)(nil)
)

// attach connects a role. While the server can't be reached it tries again until ctx ends; a definite refusal (no such
// table) ends it.
func attach(ctx context.Context, cfg config, parts Parts, env targets.Env) (*session, error) {
	addr, err := parseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	s := &session{cfg: cfg, addr: addr, env: env, parts: parts, pool: newPool(env.Name, max(cfg.MaxConns, 1))}
	for {
		err = s.read(ctx, "attach", func(c *Conn) error {
			_, err := c.db.GetItem(ctx, &sdk.GetItemInput{
				TableName: aws.String(cfg.Table), Key: keyOf(prefixProjection, sortCheckpoint), ConsistentRead: aws.Bool(true),
			})
			return err
		})
		if err == nil {
			return s, nil
		}
		_, reason := eventstore.Classify(err)
		refused := reason == eventstore.Rejected || reason == eventstore.Invalid || reason == eventstore.Killed
		if refused || clock.Sleep(ctx, attachPause) != nil {
			s.pool.close()
			return nil, fmt.Errorf("attaching %s: %w", env.Name, err)
		}
	}
}

// with runs f on a connection and reports the round trips it took. f classifies its own errors.
func (s *session) with(ctx context.Context, op string, f func(*Conn) error) error {
	c, err := s.pool.acquire(ctx, s)
	if err != nil {
		return classifyWrite(op, false, err)
	}
	defer s.pool.release(c)
	err = f(c)
	eventstore.TraceFrom(ctx).RoundTrips(c.trips)
	return err
}

// read runs a call without effect.
func (s *session) read(ctx context.Context, op string, f func(*Conn) error) error {
	return s.with(ctx, op, func(c *Conn) error { return c.read(op, f(c)) })
}

// read classifies the error of a call without effect, the last on this connection.
func (c *Conn) read(op string, err error) error { return classifyRead(op, c.wrote, err) }

// write classifies the error of a call with an effect, the last on this connection.
func (c *Conn) write(op string, err error) error { return classifyWrite(op, c.wrote, err) }

// Store implements targets.Session.
func (s *session) Store() eventstore.Store { return s }

// Bidding implements targets.BiddingSession.
func (s *session) Bidding() eventstore.Bidding { return s }

// Snapshots implements targets.Session.
func (s *session) Snapshots() eventstore.Snapshots { return s }

// Feed implements targets.Session. Every feed has a place of its own in the streams.
func (s *session) Feed() eventstore.Feed { return newFeed(s) }

// Projection implements targets.Session.
func (s *session) Projection(v eventstore.View) (eventstore.Projection, error) {
	return &progress{s: s, view: v}, nil
}

// Close implements targets.Session.
func (s *session) Close() error {
	s.pool.close()
	return nil
}
