package postgres

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/targets"
)

const (
	backOffFirst = 20 * time.Millisecond
	backOffMost  = time.Second
	closeBound   = time.Second
)

// pool keeps the connections of one session. It connects one at a time and backs off with jitter after a
// refusal, so that a server that comes back is not met by a storm. It never retries a request.
type pool struct {
	cfg *pgx.ConnConfig
	env targets.Env

	slots   chan struct{} // one token for each connection in use
	dialing chan struct{} // held while connecting

	mu        sync.Mutex
	idle      []*conn
	closed    bool
	opened    int   // connections ever opened, for their names
	failures  int   // connects refused in a row
	notBefore int64 // monotonic stamp before which no connect is tried
	jitter    *rand.Rand
}

var errClosed = errors.New("postgres: the session is closed")

func newPool(cfg *pgx.ConnConfig, env targets.Env, maxConns int) *pool {
	h := fnv.New64a()
	_, _ = h.Write([]byte(env.Name))
	return &pool{
		cfg: cfg, env: env,
		slots: make(chan struct{}, maxConns), dialing: make(chan struct{}, 1),
		jitter: rand.New(rand.NewPCG(h.Sum64(), 1)),
	}
}

// acquire returns an idle connection or opens one. Every error means that nothing was sent.
func (p *pool) acquire(ctx context.Context) (*conn, error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for a connection: %w", context.Cause(ctx))
	}
	c, err := p.take(ctx)
	if err != nil {
		<-p.slots
		return nil, err
	}
	return c, nil
}

func (p *pool) take(ctx context.Context) (*conn, error) {
	if c, err := p.fromIdle(); c != nil || err != nil {
		return c, err
	}
	select {
	case p.dialing <- struct{}{}:
		defer func() { <-p.dialing }()
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting to connect: %w", context.Cause(ctx))
	}
	// Somebody may have given one back meanwhile.
	if c, err := p.fromIdle(); c != nil || err != nil {
		return c, err
	}
	name, wait := p.next()
	if err := pause(ctx, wait); err != nil {
		return nil, fmt.Errorf("backing off after a refused connect: %w", err)
	}
	c, err := connect(ctx, p.cfg, p.env, name)
	p.learn(err)
	return c, err
}

func (p *pool) fromIdle() (*conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed
	}
	n := len(p.idle)
	if n == 0 {
		return nil, nil
	}
	c := p.idle[n-1]
	p.idle = p.idle[:n-1]
	return c, nil
}

// next names the next connection and says how long to wait before opening it.
func (p *pool) next() (name string, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opened++
	return fmt.Sprintf("%s/%d", p.env.Name, p.opened), time.Duration(p.notBefore - clock.Monotonic())
}

// learn remembers how a connect ended.
func (p *pool) learn(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.failures, p.notBefore = 0, 0
		return
	}
	d := min(backOffFirst<<min(p.failures, 6), backOffMost)
	p.failures++
	p.notBefore = clock.Monotonic() + int64(d/2) + p.jitter.Int64N(int64(d/2))
}

// release gives a connection back; one that is not idle in the protocol's sense is dropped.
func (p *pool) release(c *conn) {
	p.mu.Lock()
	keep := !p.closed && !c.IsClosed() && c.PgConn().TxStatus() == 'I'
	if keep {
		p.idle = append(p.idle, c)
	}
	p.mu.Unlock()
	if !keep {
		c.drop()
	}
	<-p.slots
}

// discard drops a connection that can't be used any more.
func (p *pool) discard(c *conn) {
	c.drop()
	<-p.slots
}

// close ends the idle connections in good order; those in use are dropped when they come back.
func (p *pool) close() error {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), closeBound)
	defer cancel()
	for _, c := range idle {
		// Whether the server hears the good-bye does not matter.
		_ = c.Close(ctx)
		c.drop()
	}
	return nil
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
