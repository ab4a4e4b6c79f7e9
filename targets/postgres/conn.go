package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/eventproof/eventproof/targets"
)

// conn is one connection with the name it has in the trial.
type conn struct {
	*pgx.Conn
	name string
	wire *wire
}

// drop closes the socket and nothing else: no rollback, no terminate message. The server finds out by itself.
// After a crash that is the point; after a lost reply there is nobody left to talk to.
func (c *conn) drop() { _ = c.wire.Close() }

var errSealed = errors.New("postgres: cancel requests are not sent")

// connect opens a connection through env.Dial and names it, on the wire too.
func connect(ctx context.Context, base *pgx.ConnConfig, env targets.Env, name string) (*conn, error) {
	c := &conn{name: name}
	var sealed atomic.Bool
	cfg := base.Copy()
	cfg.RuntimeParams["application_name"] = name
	// The proxy map of env knows the address as it was configured; resolving it here would hide it.
	cfg.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		// The driver cancels a running statement over a second connection, which no fault could be matched
		// with; the server notices a closed socket by client_connection_check_interval instead.
		if sealed.Load() {
			return nil, errSealed
		}
		nc, err := env.Dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c.wire = &wire{Conn: nc}
		return c.wire, nil
	}
	var err error
	if c.Conn, err = pgx.ConnectConfig(ctx, cfg); err != nil {
		return nil, fmt.Errorf("connecting %s: %w", name, err)
	}
	sealed.Store(true)
	return c, nil
}

// wire counts the round trips of a connection: reads that follow a write.
type wire struct {
	net.Conn
	asked atomic.Bool
	trips atomic.Int64
}

// Write implements net.Conn.
func (w *wire) Write(b []byte) (int, error) {
	w.asked.Store(true)
	return w.Conn.Write(b)
}

// Read implements net.Conn.
func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if n > 0 && w.asked.Swap(false) {
		w.trips.Add(1)
	}
	return n, err
}
