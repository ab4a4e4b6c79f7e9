package kafkatest

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
)

// Numbers of requests that tests cut off.
const (
	Produce     = 0
	ListOffsets = 2
	EndTxn      = 26
)

// errCut is what a role sees of a connection that was cut.
var errCut = errors.New("kafkatest: the connection was cut")

// Wire is a role's way to everything. It can cut the next request of a kind, or the reply to it, and keep the role from
// an address. It relies on one request being one write, which holds for the client library.
type Wire struct {
	mu     sync.Mutex
	shut   map[string]bool
	cuts   map[int16]cut
	bites  int
	dialer net.Dialer
}

type cut uint8

const (
	cutRequest cut = iota + 1
	cutReply
)

// NewWire returns a way on which nothing is wrong.
func NewWire() *Wire { return &Wire{shut: map[string]bool{}, cuts: map[int16]cut{}} }

// CutRequest keeps the next request with this number from the broker.
func (w *Wire) CutRequest(key int16) { w.arm(key, cutRequest) }

// CutReply lets the next request with this number through, and cuts the connection before the reply.
func (w *Wire) CutReply(key int16) { w.arm(key, cutReply) }

func (w *Wire) arm(key int16, c cut) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cuts[key] = c
}

// Shut keeps the role from an address: connects are refused. Connections that stand stay.
func (w *Wire) Shut(addr string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shut[addr] = true
}

// Open lets the role reach an address again.
func (w *Wire) Open(addr string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.shut, addr)
}

// Bites returns how many requests or replies were cut.
func (w *Wire) Bites() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bites
}

// Dial is the Dial of a role's Env.
func (w *Wire) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	w.mu.Lock()
	shut := w.shut[addr]
	w.mu.Unlock()
	if shut {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errCut}
	}
	c, err := w.dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &wired{Conn: c, w: w}, nil
}

// strike tells what is to be done to a request.
func (w *Wire) strike(request []byte) cut {
	if len(request) < 6 {
		return 0
	}
	key := int16(binary.BigEndian.Uint16(request[4:]))
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.cuts[key]
	if c != 0 {
		delete(w.cuts, key)
		w.bites++
	}
	return c
}

type wired struct {
	net.Conn
	w *Wire

	mu  sync.Mutex
	cut bool
}

// Write implements net.Conn.
func (c *wired) Write(b []byte) (int, error) {
	switch c.w.strike(b) {
	case cutRequest:
		_ = c.Close()
		return 1, errCut // as if a part had left
	case cutReply:
		c.mu.Lock()
		c.cut = true
		c.mu.Unlock()
	}
	return c.Conn.Write(b)
}

// Read implements net.Conn: the reply is taken off the wire, so that the request has taken effect, and thrown away.
func (c *wired) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		_ = c.Close()
		return 0, errCut
	}
	return n, err
}
