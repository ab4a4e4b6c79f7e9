package pgtest

import (
	"bytes"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// Proxy is a dialer whose connections lose the reply to one commit, or keep one commit back.
type Proxy struct {
	cut, park atomic.Bool // what to do with the next commit
	bitten    chan struct{}
	lifted    chan struct{}
	landed    chan struct{}
}

// NewProxy returns a proxy that forwards everything until it is told otherwise.
func NewProxy() *Proxy {
	return &Proxy{bitten: make(chan struct{}), lifted: make(chan struct{}), landed: make(chan struct{})}
}

// Cut makes the proxy forward the next commit whole and cut its reply.
func (p *Proxy) Cut() { p.cut.Store(true) }

// Park makes the proxy keep the next commit until Lift, also if its client is gone by then.
func (p *Proxy) Park() { p.park.Store(true) }

// Lift sends the parked commit on and waits until the server has answered it.
func (p *Proxy) Lift(t testing.TB) {
	close(p.lifted)
	Await(t, p.landed)
}

// Bitten is closed when a reply was cut or a commit parked.
func (p *Proxy) Bitten() <-chan struct{} { return p.bitten }

// Bit reports whether that has happened.
func (p *Proxy) Bit() bool {
	select {
	case <-p.bitten:
		return true
	default:
		return false
	}
}

// Dial returns the dialer of a role.
func (p *Proxy) Dial(t testing.TB) DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		var d net.Dialer
		server, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		client, near := net.Pipe()
		l := &link{p: p, near: near, server: server}
		t.Cleanup(l.close)
		go l.up()
		go l.down()
		return client, nil
	}
}

// link is one connection through a proxy.
type link struct {
	p            *Proxy
	near, server net.Conn
	cut, parked  atomic.Bool
	once         sync.Once
}

func (l *link) close() { l.once.Do(func() { _, _ = l.near.Close(), l.server.Close() }) }

func (l *link) up() {
	defer l.close()
	buf := make([]byte, 64<<10)
	for {
		n, err := l.near.Read(buf)
		if bytes.Contains(buf[:n], []byte("commit\x00")) {
			switch {
			case l.p.cut.CompareAndSwap(true, false):
				l.cut.Store(true)
			case l.p.park.CompareAndSwap(true, false):
				l.parked.Store(true)
				close(l.p.bitten)
				<-l.p.lifted
				_, _ = l.server.Write(buf[:n])
				<-l.p.landed
				return
			}
		}
		if _, werr := l.server.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

func (l *link) down() {
	defer l.close()
	buf := make([]byte, 64<<10)
	for {
		n, err := l.server.Read(buf)
		switch {
		case l.cut.Load():
			close(l.p.bitten)
			return
		case l.parked.Load():
			close(l.p.landed)
			return
		}
		if _, werr := l.near.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

// Refuse refuses the first connects and counts them; the others are dialled.
func Refuse(dial DialFunc, refused *int, first int) DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if *refused < first {
			*refused++
			return nil, syscall.ECONNREFUSED
		}
		return dial(ctx, network, addr)
	}
}

// DialFunc has the form of targets.Env.Dial.
type DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)
