package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// pool keeps the connections of one session.
type pool struct {
	role  string
	slots chan struct{} // one token for each connection in use

	mu     sync.Mutex
	idle   []*Conn
	opened int // connections ever opened, for their names
	closed bool
}

var errClosed = errors.New("dynamodb: the session is closed")

func newPool(role string, size int) *pool {
	return &pool{role: role, slots: make(chan struct{}, size)}
}

// name returns the name of the next connection.
func (p *pool) name() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opened++
	return fmt.Sprintf("%s/%d", p.role, p.opened)
}

// acquire returns an idle connection, or a fresh one that connects with its first request. Every error means that
// nothing was sent.
func (p *pool) acquire(ctx context.Context, s *session) (*Conn, error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for a connection: %w", context.Cause(ctx))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		<-p.slots
		return nil, errClosed
	}
	if n := len(p.idle); n > 0 {
		c := p.idle[n-1]
		p.idle = p.idle[:n-1]
		c.trips, c.wrote = 0, false
		return c, nil
	}
	return newConn(s), nil
}

// release gives a connection back.
func (p *pool) release(c *Conn) {
	p.mu.Lock()
	if p.closed {
		c.drop()
	} else {
		p.idle = append(p.idle, c)
	}
	p.mu.Unlock()
	<-p.slots
}

// close drops the idle connections; those in use are dropped when they come back.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.idle {
		c.drop()
	}
	p.idle = nil
}
