package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
)

// UnmappedError is returned for a dial that would go past the role's proxies.
type UnmappedError struct{ Addr string }

func (e *UnmappedError) Error() string {
	return fmt.Sprintf("faults: %s has no proxy for this role; a connection past the proxies would escape every fault", e.Addr)
}

// Dialer opens the connections of one incarnation of one role, each by way of a proxy, and keeps them in hand.
// It is built from data, so that a role in another process can have one too.
type Dialer struct {
	addrs   map[string]string
	refused func() // told of refused dials; may be nil

	mu    sync.Mutex
	open  map[*socket]struct{}
	reset bool
}

// MapDialer returns a dialer that goes to addrs[addr] in place of addr. The proxies' own addresses are allowed
// too: drivers dial the peer of a connection again, to cancel a request. Every other address is refused.
func MapDialer(addrs map[string]string) *Dialer {
	return &Dialer{addrs: addrs, open: map[*socket]struct{}{}}
}

// Dial has the form of net.Dialer.DialContext.
func (d *Dialer) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	to, ok := d.resolve(ctx, addr)
	if !ok {
		return nil, &UnmappedError{Addr: addr}
	}
	var nd net.Dialer
	c, err := nd.DialContext(ctx, network, to)
	if err != nil {
		// A reset is how a connect ends that was in the listener's queue when the listener was closed.
		if d.refused != nil && (errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET)) {
			d.refused()
		}
		return nil, err
	}
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("faults: %s connection where TCP is needed", network), c.Close())
	}
	s := &socket{TCPConn: tcp, owner: d}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reset {
		abort(tcp)
		return nil, &net.OpError{Op: "dial", Net: network, Err: net.ErrClosed}
	}
	d.open[s] = struct{}{}
	return s, nil
}

// resolve maps an address. Drivers may have looked a host name up before they dial.
func (d *Dialer) resolve(ctx context.Context, addr string) (to string, ok bool) {
	if to, ok = d.addrs[addr]; ok {
		return to, true
	}
	for _, to := range d.addrs {
		if to == addr {
			return to, true
		}
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", false
	}
	for from, to := range d.addrs {
		name, p, err := net.SplitHostPort(from)
		if err != nil || p != port {
			continue
		}
		ips, err := net.DefaultResolver.LookupHost(ctx, name)
		if err == nil && slices.Contains(ips, host) {
			return to, true
		}
	}
	return "", false
}

// Reset resets every open socket and lets nothing be dialled any more. It returns how many were open.
func (d *Dialer) Reset() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reset = true
	n := len(d.open)
	for s := range d.open {
		abort(s.TCPConn)
	}
	clear(d.open)
	return n
}

// abort closes a socket so that its peer sees a reset and nothing that was still unsent.
func abort(c *net.TCPConn) {
	_ = c.SetLinger(0) // fails only on a closed socket
	_ = c.Close()
}

// socket is a connection that its dialer knows of until it is closed.
type socket struct {
	*net.TCPConn
	owner *Dialer
}

// Close implements net.Conn.
func (s *socket) Close() error {
	s.owner.mu.Lock()
	delete(s.owner.open, s)
	s.owner.mu.Unlock()
	return s.TCPConn.Close()
}
