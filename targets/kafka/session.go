package kafka

import (
	"context"
	"sync"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/kafka/internal/broker"
)

// session is a role's way to the owners and to the cluster. It connects when it is first used.
type session struct {
	cfg    config
	env    targets.Env
	names  *names
	writer *writer

	mu     sync.Mutex
	client *broker.Client
	closed bool
}

var _ targets.Session = (*session)(nil)

func attach(cfg config, parts Parts, env targets.Env) *session {
	s := &session{cfg: cfg, env: env, names: &names{role: env.Name}}
	var pools []*pool
	for _, addr := range cfg.Owners {
		pools = append(pools, newPool(addr, env.Dial, s.names))
	}
	s.writer = newWriter(cfg, parts.Route, pools, env.Name)
	return s
}

// broker returns the session's client of the cluster.
func (s *session) broker() (*broker.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	if s.client == nil {
		c, err := broker.Open(broker.Options{
			Addr: s.cfg.Addr, Name: s.names.next(), Dial: s.env.Dial, Transactions: s.cfg.Transactions,
		})
		if err != nil {
			return nil, err
		}
		s.client = c
	}
	return s.client, nil
}

// Store implements targets.Session.
func (s *session) Store() eventstore.Store { return s.writer }

// Snapshots implements targets.Session: a log keeps none.
func (s *session) Snapshots() eventstore.Snapshots { return nil }

// Feed implements targets.Session.
func (s *session) Feed() eventstore.Feed { return &feed{s: s, ahead: map[int32]*lane{}} }

// Projection implements targets.Session.
func (s *session) Projection(v eventstore.View) (eventstore.Projection, error) {
	return newProjection(s, v), nil
}

// Close implements targets.Session.
func (s *session) Close() error {
	s.writer.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.client != nil {
		s.client.Close()
	}
	return nil
}

// attached is attach for roles in any process.
func attached(ctx context.Context, cfg config, parts Parts, env targets.Env) (targets.Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	return attach(cfg, parts, env), nil
}
