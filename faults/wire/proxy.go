package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/rs/zerolog"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/history"
)

// Options of a proxy.
type Options struct {
	Name     string   // for messages
	Upstream string   // host:port of the server
	Protocol Protocol // nil: bytes only
	Clock    clock.Clock
	// DialTimeout bounds a dial of the server; 0 = 5 s.
	DialTimeout time.Duration
}

// Proxy stands between one role and one server: toxiproxy's links and chains behind a listener of our own.
type Proxy struct {
	opts  Options
	id    uint64
	addr  string
	api   *toxiproxy.ApiServer
	inner *toxiproxy.Proxy
	meter meter
	rules atomic.Pointer[[]*Rule]
	ctx   context.Context // ends with Close; for dials
	stop  context.CancelFunc
	links sync.WaitGroup // links and the goroutines that start them

	mu       sync.Mutex
	closed   bool
	listener net.Listener // nil while refusing
	reserved *reservation // not nil while refusing
	conns    map[*conn]struct{}
	started  uint64
	probes   map[string]bool // local addresses of probes, until accepted
	starting *conn           // whose links StartLink is making
}

// ErrClosed is returned for a proxy that was closed.
var ErrClosed = errors.New("wire: the proxy is closed")

// NewProxy returns a proxy that listens on a free port of 127.0.0.1.
func NewProxy(ctx context.Context, opts Options) (*Proxy, error) {
	if opts.Clock == nil {
		opts.Clock = clock.System{}
	}
	if opts.DialTimeout == 0 {
		opts.DialTimeout = 5 * time.Second
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("wire: proxy for %s: %w", opts.Name, err)
	}
	p := &Proxy{
		opts: opts, addr: ln.Addr().String(), listener: ln,
		conns: map[*conn]struct{}{}, probes: map[string]bool{},
		api: toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()),
	}
	p.ctx, p.stop = context.WithCancel(context.WithoutCancel(ctx))
	p.id = proxies.add(p)
	p.inner = toxiproxy.NewProxy(p.api, opts.Name, p.addr, opts.Upstream)
	err = p.api.Collection.Add(p.inner, false)
	for _, requests := range []bool{true, false} {
		if err == nil {
			err = p.install(requests)
		}
	}
	if err != nil {
		proxies.remove(p.id)
		return nil, errors.Join(fmt.Errorf("wire: proxy for %s: %w", opts.Name, err), ln.Close())
	}
	p.links.Go(func() { p.accept(ln) })
	return p, nil
}

// install adds our toxic to a chain, before any connection exists.
func (p *Proxy) install(requests bool) error {
	side := "downstream"
	if requests {
		side = "upstream"
	}
	_, err := p.inner.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(
		`{"name":%q,"type":%q,"stream":%q,"attributes":{"proxy":%d,"requests":%t}}`,
		toxicType+"-"+side, toxicType, side, p.id, requests)))
	return err
}

// Addr is where the proxy listens.
func (p *Proxy) Addr() string { return p.addr }

// Upstream is the server behind the proxy.
func (p *Proxy) Upstream() string { return p.opts.Upstream }

// Traffic returns what was carried so far.
func (p *Proxy) Traffic() Traffic {
	m := &p.meter
	t := Traffic{
		Connections: m.connections.Load(), Failed: m.failed.Load(), Unreadable: m.unreadable.Load(),
		UpBytes: m.upBytes.Load(), UpChunks: m.upChunks.Load(),
		DownBytes: m.downBytes.Load(), DownChunks: m.downChunks.Load(),
	}
	for _, c := range p.snapshot() {
		if c.probe {
			continue
		}
		select {
		case <-c.clientGone:
			t.Orphans++
		default:
			t.Open++
		}
	}
	return t
}

func (p *Proxy) active() []*Rule {
	if rules := p.rules.Load(); rules != nil {
		return *rules
	}
	return nil
}

// change replaces the rules by edit's answer.
func (p *Proxy) change(edit func([]*Rule) []*Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rules := edit(slices.Clone(p.active()))
	p.rules.Store(&rules)
}

// Apply puts a rule in force on this proxy. Where several rules want the same message, the first applied wins.
func (p *Proxy) Apply(r *Rule) error {
	p.change(func(rules []*Rule) []*Rule { return append(rules, r) })
	switch r.spec.Action {
	case Refuse:
		return p.refuse(r)
	case Reset:
		p.cutAll(r, (*conn).reset, "reset")
	case Delay, Swallow, DropReply, CutRequest, HoldReply, ParkRequest:
	}
	return nil
}

// Withdraw lifts a rule and takes it off this proxy: what it held goes on, connections that lost bytes by it
// are cut, and new connections are accepted again.
func (p *Proxy) Withdraw(r *Rule) error {
	r.Lift()
	p.change(func(rules []*Rule) []*Rule {
		return slices.DeleteFunc(rules, func(q *Rule) bool { return q == r })
	})
	if r.spec.Action == Swallow {
		for _, c := range p.snapshot() {
			if c.spoiltBy(r) {
				c.close()
			}
		}
	}
	if r.spec.Action == Refuse && p.first(Refuse) == nil {
		return p.listenAgain()
	}
	return nil
}

// first returns the first active rule with the action.
func (p *Proxy) first(a Action) *Rule {
	for _, r := range p.active() {
		if r.spec.Action == a && !r.isLifted() {
			return r
		}
	}
	return nil
}

// refuse closes the listener, keeping its port, and every connection.
func (p *Proxy) refuse(r *Rule) error {
	p.mu.Lock()
	ln := p.listener
	var err error
	if ln != nil {
		p.listener = nil
		err = ln.Close()
		if err == nil {
			p.reserved, err = reserve(p.addr)
		}
	}
	p.mu.Unlock()
	p.cutAll(r, (*conn).close, "closed")
	if err != nil {
		return fmt.Errorf("wire: proxy for %s: %w", p.opts.Name, err)
	}
	return nil
}

func (p *Proxy) listenAgain() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.listener != nil {
		return nil
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(p.ctx, "tcp", p.addr)
	if err != nil {
		return fmt.Errorf("wire: proxy for %s can't listen again: %w", p.opts.Name, err)
	}
	p.reserved.release()
	p.reserved, p.listener = nil, ln
	p.links.Go(func() { p.accept(ln) })
	return nil
}

// cutAll ends every connection by way of how.
func (p *Proxy) cutAll(r *Rule, how func(*conn), text string) {
	for _, c := range p.snapshot() {
		if r.acquire(c, false) {
			how(c)
			c.biteAtOnce(r, history.Bite{Form: history.BiteConnectionCut, Text: "connection " + text})
		}
	}
}

func (p *Proxy) snapshot() []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	conns := make([]*conn, 0, len(p.conns))
	for c := range p.conns {
		conns = append(conns, c)
	}
	return conns
}

func (p *Proxy) accept(ln net.Listener) {
	for {
		s, err := ln.Accept()
		switch {
		case err == nil:
			p.links.Go(func() { p.serve(s.(*net.TCPConn)) })
		case errors.Is(err, net.ErrClosed):
			return
		default: // out of descriptors, say: the next try may work
			select {
			case <-p.ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}

// serve joins an accepted connection to the server. Every dial has a goroutine and a time-out of its own: a
// server that does not answer one dial must not keep the others waiting.
func (p *Proxy) serve(client *net.TCPConn) {
	probe := p.isProbe(client.RemoteAddr().String())
	if r := p.first(Reset); r != nil {
		resetSocket(client)
		p.refused(r, probe, "new connection reset")
		return
	}
	d := net.Dialer{Timeout: p.opts.DialTimeout}
	s, err := d.DialContext(p.ctx, "tcp", p.opts.Upstream)
	if err != nil {
		p.meter.failed.Add(1)
		_ = client.Close()
		return
	}
	c := newConn(p, client, s.(*net.TCPConn))
	c.probe = probe
	if !p.start(c) {
		c.reset()
		for _, a := range []Action{Refuse, Reset} {
			if r := p.first(a); r != nil {
				p.refused(r, probe, "new connection closed")
				break
			}
		}
	}
}

func (p *Proxy) refused(r *Rule, probe bool, text string) {
	c := &conn{proxy: p, probe: probe}
	if r.acquire(c, false) {
		c.biteAtOnce(r, history.Bite{Form: history.BiteRefused, Text: text})
	}
}

// start begins to carry bytes, unless connections are cut at the moment.
func (p *Proxy) start(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.first(Refuse) != nil || p.first(Reset) != nil {
		return false
	}
	if !c.probe {
		p.meter.connections.Add(1)
	}
	p.conns[c] = struct{}{}
	p.started++
	p.links.Add(2)
	p.starting = c
	p.inner.Toxics.StartLink(p.api, fmt.Sprintf("%d-up", p.started), c.client, c.server, stream.Upstream)
	p.inner.Toxics.StartLink(p.api, fmt.Sprintf("%d-down", p.started), c.server, c.client, stream.Downstream)
	p.starting = nil
	return true
}

// forget drops a connection whose links have both ended.
func (p *Proxy) forget(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *Proxy) isProbe(remote string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	is := p.probes[remote]
	delete(p.probes, remote)
	return is
}

// Dial opens a connection through the proxy that no fault counts, to see whether the way is clear. It is
// subject to every rule like any other.
func (p *Proxy) Dial(ctx context.Context) (net.Conn, error) {
	var local string
	d := net.Dialer{ControlContext: bindLocal(func(addr string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		local = addr
		p.probes[addr] = true
	})}
	conn, err := d.DialContext(ctx, "tcp", p.addr)
	if err != nil {
		p.isProbe(local) // it will not be accepted any more
		return nil, err
	}
	return conn, nil
}

// Close closes the listener and every connection and waits until all goroutines have ended. What is still held
// or parked is cut, and recorded so.
func (p *Proxy) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	var err error
	if p.listener != nil {
		err = p.listener.Close()
		p.listener = nil
	}
	if p.reserved != nil {
		p.reserved.release()
		p.reserved = nil
	}
	p.mu.Unlock()
	p.stop()
	for _, c := range p.snapshot() {
		c.close()
	}
	p.links.Wait()
	proxies.remove(p.id)
	return err
}
