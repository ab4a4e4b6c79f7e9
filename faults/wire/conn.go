package wire

import (
	"net"
	"sync"

	"github.com/eventproof/eventproof/history"
)

// conn is one proxied connection: two sockets and two links between them.
type conn struct {
	proxy          *Proxy
	client, server *net.TCPConn
	up, down       *link
	probe          bool // the harness's own; no fault counts it

	// clientGone and serverGone are closed when nothing more comes from that side.
	clientGone, serverGone chan struct{}

	mu      sync.Mutex
	session string
	links   int // links that still run
	asked   int // turns that the client has ended
	told    int // turns that the server has ended, without the one that ends the log-in
	greeted bool
	parked  *parkedCommit
	lost    *Rule // whose swallowing has spoilt the connection
}

// parkedCommit is a commit that a rule keeps on one connection; at most one, since what follows waits behind.
type parkedCommit struct {
	rule     *Rule
	since    int64
	turn     int // answered after so many turns
	released bool
	void     bool          // the server has ended the transaction by itself
	done     chan struct{} // closed when its fate is known
}

func newConn(p *Proxy, client, server *net.TCPConn) *conn {
	c := &conn{
		proxy: p, client: client, server: server, links: 2,
		clientGone: make(chan struct{}), serverGone: make(chan struct{}),
	}
	requests, replies := framer(opaque{}), framer(opaque{})
	if p.opts.Protocol != nil {
		requests, replies = p.opts.Protocol.framers()
		c.greeted = !p.opts.Protocol.greets()
	}
	c.up = &link{conn: c, dir: Up, framer: requests, gone: c.serverGone}
	c.down = &link{conn: c, dir: Down, framer: replies, gone: c.clientGone}
	return c
}

// close closes both sockets; the links end by that.
func (c *conn) close() {
	_ = c.client.Close()
	_ = c.server.Close()
}

// reset closes both sockets abruptly: both peers see a reset.
func (c *conn) reset() {
	resetSocket(c.client)
	resetSocket(c.server)
}

func resetSocket(s *net.TCPConn) {
	_ = s.SetLinger(0) // fails only on a closed socket
	_ = s.Close()
}

func (c *conn) name() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

func (c *conn) setName(name string) {
	if name == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session = name
}

func (c *conn) now() int64 { return c.proxy.opts.Clock.Now() }

// touched tells a rule's observer that the rule acts on this connection.
func (c *conn) touched(r *Rule) {
	if !c.probe {
		r.spec.Observer.Touched()
	}
}

func (c *conn) bite(r *Rule, b history.Bite) {
	if c.probe {
		return
	}
	b.Session = c.name()
	if b.T == 0 {
		b.T = c.now()
	}
	r.spec.Observer.Bite(b)
}

// biteAtOnce records an effect that is over as soon as it begins, and gives up the hold on the rule.
func (c *conn) biteAtOnce(r *Rule, b history.Bite) {
	c.touched(r)
	c.bite(r, b)
	r.end(c)
}

// park notes a commit that the up link keeps from now on.
func (c *conn) park(r *Rule, since int64) {
	c.mu.Lock()
	c.parked = &parkedCommit{rule: r, since: since, turn: c.asked, done: make(chan struct{})}
	c.mu.Unlock()
	c.touched(r)
	c.bite(r, history.Bite{T: since, Form: history.BiteRequestParked, Since: since})
}

// release notes that the parked commit is about to be sent on. It comes before the first byte leaves, since
// the answer may be here before the sender has been scheduled again. False means that there is nothing left to
// commit.
func (c *conn) release() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parked == nil || c.parked.void {
		return false
	}
	c.parked.released = true
	return true
}

// unpark ends a parked commit whose fate is known.
func (c *conn) unpark(form history.BiteForm, landed history.Landed, text string) {
	c.mu.Lock()
	p := c.parked
	c.parked = nil
	c.mu.Unlock()
	if p == nil {
		return
	}
	c.bite(p.rule, history.Bite{Form: form, Landed: landed, Since: p.since, Text: text})
	close(p.done)
	p.rule.end(c)
}

// answered matches what the server says with a released commit.
func (c *conn) answered(f frame) {
	c.mu.Lock()
	current := c.parked != nil && c.told == c.parked.turn
	waits := current && c.parked.released
	if current && !waits && f.answer != noAnswer {
		c.parked.void = true // an error that nobody asked for ends the session, and with it the transaction
	}
	if f.turns > 0 {
		if !c.greeted {
			c.greeted = true
			f.turns--
		}
		c.told += f.turns
	}
	over := waits && c.told > c.parked.turn
	c.mu.Unlock()
	switch {
	case !waits:
	case f.answer != noAnswer:
		c.unpark(history.BiteRequestReleased, f.answer.landed(), "answered after it was released")
	case over:
		c.unpark(history.BiteRequestReleased, history.LandedUnknown, "answered without saying how it ended")
	}
}

// serverEnded ends a released commit that nobody will answer any more.
func (c *conn) serverEnded() {
	c.mu.Lock()
	waits := c.parked != nil && c.parked.released
	c.mu.Unlock()
	if waits {
		c.unpark(history.BiteRequestReleased, history.LandedUnknown, "the server left without an answer")
	}
}

// unresolved returns a channel that is closed when the fate of the parked commit is known, nil when there is
// none.
func (c *conn) unresolved() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parked == nil {
		return nil
	}
	return c.parked.done
}

// spoil notes that bytes of the connection were swallowed.
func (c *conn) spoil(r *Rule) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = r
}

func (c *conn) spoiltBy(r *Rule) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost == r
}

// linkEnded is called when a link is over: nothing comes from its source any more.
func (c *conn) linkEnded() {
	c.mu.Lock()
	c.links--
	over := c.links == 0
	c.mu.Unlock()
	if over {
		c.proxy.forget(c)
	}
}
