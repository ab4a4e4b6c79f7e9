package kafka

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/targets/kafka/internal/form"
)

const (
	connectTimeout = 2 * time.Second
	// maxConns bounds the connections of one session to one owner; requests beyond it wait.
	maxConns = 16
)

// conn is one connection to an owner, used by one request at a time. It writes a request once and reads the answer;
// net/http's client would send one again on a connection that had broken, without telling whether the first try left.
type conn struct {
	name string // unique in the trial
	net  net.Conn
	in   *bufio.Reader
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// exchange sends a request and reads the whole answer. wrote tells whether a byte of it may have left; spoilt that the
// connection can't be used again.
func (c *conn) exchange(ctx context.Context, req *http.Request) (body []byte, wrote, spoilt bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, false, false, context.Cause(ctx)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.net.SetDeadline(past) })
	defer stop()
	if err := req.Write(c.net); err != nil {
		return nil, true, true, because(ctx, "sending", err)
	}
	resp, err := http.ReadResponse(c.in, req)
	if err != nil {
		return nil, true, true, because(ctx, "reading the answer", err)
	}
	body, err = io.ReadAll(resp.Body)
	if err = firstOf(err, resp.Body.Close()); err != nil {
		return nil, true, true, because(ctx, "reading the answer", err)
	}
	// A deadline that struck after the answer was whole spoils the connection only.
	return body, true, !stop() || resp.Close, nil
}

func because(ctx context.Context, what string, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("kafka: %s: %w (%w)", what, cause, err)
	}
	return fmt.Errorf("kafka: %s: %w", what, err)
}

func firstOf(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// names gives every connection of a session a name of its own.
type names struct {
	mu   sync.Mutex
	role string
	n    int
}

func (n *names) next() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.n++
	return n.role + "/" + strconv.Itoa(n.n)
}

// pool keeps the connections of one session to one owner.
type pool struct {
	addr  string
	dial  func(ctx context.Context, network, addr string) (net.Conn, error)
	names *names
	slots chan struct{} // one token for each connection in use

	mu     sync.Mutex
	idle   []*conn
	closed bool
}

var errClosed = errors.New("kafka: the session is closed")

func newPool(addr string, dial func(ctx context.Context, network, addr string) (net.Conn, error), n *names) *pool {
	return &pool{addr: addr, dial: dial, names: n, slots: make(chan struct{}, maxConns)}
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
	}
	return c, err
}

func (p *pool) take(ctx context.Context) (*conn, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, errClosed
	}
	if n := len(p.idle); n > 0 {
		c := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return c, nil
	}
	p.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	nc, err := p.dial(ctx, "tcp", p.addr)
	if err != nil {
		return nil, fmt.Errorf("kafka: connecting to the owner at %s: %w", p.addr, err)
	}
	return &conn{name: p.names.next(), net: nc, in: bufio.NewReader(nc)}, nil
}

// release gives a connection back, or closes it.
func (p *pool) release(c *conn, spoilt bool) {
	p.mu.Lock()
	if spoilt || p.closed {
		_ = c.net.Close()
	} else {
		p.idle = append(p.idle, c)
	}
	p.mu.Unlock()
	<-p.slots
}

// drop closes the idle connections: where one has broken the others may have, and a request on one of those would be lost
// for nothing.
func (p *pool) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.idle {
		_ = c.net.Close()
	}
	p.idle = nil
}

// close closes the idle connections; those in use are closed when they come back.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.drop()
}

// call asks the owner once and decodes its answer into out. wrote tells whether a byte may have left.
//
// An idle connection may have been closed by an owner that has ended since. Nothing of the request reached it then, but
// that can't be told from an answer that was lost, so the caller is told that it may have.
func (p *pool) call(ctx context.Context, method, path string, message, out any) (wrote bool, err error) {
	var body []byte
	if message != nil {
		if body, err = json.Marshal(message); err != nil {
			return false, fmt.Errorf("kafka: encoding a request: %w", err)
		}
	}
	c, err := p.acquire(ctx)
	if err != nil {
		return false, err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+p.addr+path, bytes.NewReader(body))
	if err != nil {
		p.release(c, false)
		return false, fmt.Errorf("kafka: %w", err)
	}
	req.Header.Set(form.SessionHeader, c.name)
	eventstore.TraceFrom(ctx).Session(c.name)
	answer, wrote, spoilt, err := c.exchange(ctx, req)
	p.release(c, spoilt)
	if err != nil {
		p.drop()
		return wrote, err
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return wrote, fmt.Errorf("kafka: decoding an answer: %w", err)
	}
	return wrote, nil
}
