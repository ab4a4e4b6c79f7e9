package dynamodb

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
)

// sessionHeader carries the name of the connection on every request, for the faults that read the wire.
const sessionHeader = "Eventproof-Session"

const connectTimeout = 3 * time.Second

// Conn is one connection to the store, used by one operation at a time. It is the HTTP client of its own SDK clients:
// it writes a request once and reads the answer, and it never sends anything again. (net/http would, on a connection
// that the server had closed, without telling whether the first try left.)
type Conn struct {
	s       *session
	db      *sdk.Client
	streams *dynamodbstreams.Client

	name  string // of the connection, unique in the trial; a new connection gets a new one
	conn  net.Conn
	in    *bufio.Reader
	wrote bool // a byte of the current request may have left
	trips int
}

func newConn(s *session) *Conn {
	c := &Conn{s: s}
	c.db, c.streams = tables(s.cfg.URL, c), changes(s.cfg.URL, c)
	return c
}

// Do implements the SDK's HTTP client: one attempt.
func (c *Conn) Do(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	c.wrote = false
	if err := c.connect(ctx); err != nil {
		return nil, err
	}
	eventstore.TraceFrom(ctx).Session(c.name)
	req.Header.Set(sessionHeader, c.name)
	resp, err := c.exchange(ctx, req)
	if err != nil {
		c.drop()
		if cause := context.Cause(ctx); cause != nil {
			err = fmt.Errorf("%w (%w)", cause, err)
		}
		return nil, err
	}
	return resp, nil
}

// connect dials through the role's environment, if need be.
func (c *Conn) connect(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if c.conn != nil {
		return nil
	}
	dialing, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := c.s.env.Dial(dialing, "tcp", c.s.addr)
	if err != nil {
		return fmt.Errorf("dynamodb: connecting: %w", err)
	}
	c.conn, c.in, c.name = conn, bufio.NewReader(conn), c.s.pool.name()
	return nil
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

func (c *Conn) exchange(ctx context.Context, req *http.Request) (*http.Response, error) {
	conn := c.conn
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(past) })
	defer stop()
	c.wrote = true
	c.trips++
	if err := req.Write(conn); err != nil {
		return nil, fmt.Errorf("dynamodb: sending: %w", err)
	}
	resp, err := http.ReadResponse(c.in, req)
	if err != nil {
		return nil, fmt.Errorf("dynamodb: reading the answer: %w", err)
	}
	body, err := io.ReadAll(resp.Body)
	if err = firstOf(err, resp.Body.Close()); err != nil {
		return nil, fmt.Errorf("dynamodb: reading the answer: %w", err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if !stop() || resp.Close {
		// The answer is whole; only the connection is spoilt.
		c.drop()
	}
	return resp, nil
}

func firstOf(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// drop closes the connection; the next request opens another one, with another name.
func (c *Conn) drop() {
	if c.conn == nil {
		return
	}
	_ = c.conn.Close()
	c.conn, c.in = nil, nil
}

// At asks the role's gate before anything of the operation was sent. A refusal is an *eventstore.Error.
func (c *Conn) At(ctx context.Context, p points.Point) error {
	return held("append", c.s.env.Gate.At(ctx, p, 0), false)
}
