package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/history"
)

// fakeServer speaks enough Postgres to be proxied: it answers each query with its first word as the tag and
// keeps what it was asked.
type fakeServer struct {
	ln   net.Listener
	wg   sync.WaitGroup
	mu   sync.Mutex
	said []string // queries, and "end" when a client's connection ended
	news chan struct{}
	mute bool // does not answer
	open []net.Conn
}

func newFakeServer(t *testing.T) *fakeServer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &fakeServer{ln: ln, news: make(chan struct{}, 1000)}
	s.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.open = append(s.open, c)
			s.mu.Unlock()
			s.wg.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		s.hangUp()
		s.wg.Wait()
	})
	return s
}

// hangUp closes every connection.
func (s *fakeServer) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.open {
		_ = c.Close()
	}
}

func (s *fakeServer) note(what string) {
	s.mu.Lock()
	s.said = append(s.said, what)
	s.mu.Unlock()
	s.news <- struct{}{}
}

func (s *fakeServer) heard() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.said...)
}

func (s *fakeServer) count(what string) int {
	n := 0
	for _, w := range s.heard() {
		if w == what {
			n++
		}
	}
	return n
}

// await waits until the server has heard something n times.
func (s *fakeServer) await(t *testing.T, what string, n int) {
	t.Helper()
	deadline := time.After(5 * time.Second)
	for s.count(what) < n {
		select {
		case <-s.news:
		case <-deadline:
			t.Fatalf("the server heard %q, not %d × %q", s.heard(), n, what)
		}
	}
}

func (s *fakeServer) serve(c net.Conn) {
	defer c.Close()
	defer s.note("end")
	var n [4]byte
	if _, err := io.ReadFull(c, n[:]); err != nil {
		return
	}
	rest := make([]byte, binary.BigEndian.Uint32(n[:])-4)
	if _, err := io.ReadFull(c, rest); err != nil {
		return
	}
	if _, err := c.Write(loginReply(startupName(rest[4:]))); err != nil {
		return
	}
	for {
		kind, body, err := readMsg(c)
		if err != nil || kind == 'X' {
			return
		}
		sql := strings.TrimRight(body, "\x00")
		s.note(sql)
		s.mu.Lock()
		mute := s.mute
		s.mu.Unlock()
		if kind != 'Q' || mute {
			continue
		}
		tag, _, _ := strings.Cut(strings.ToUpper(sql), " ")
		if _, err := c.Write(join(msg('C', tag+"\x00"), msg('Z', "I"))); err != nil {
			return
		}
	}
}

func readMsg(r io.Reader) (kind byte, body string, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, "", err
	}
	b := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
	_, err = io.ReadFull(r, b)
	return head[0], string(b), err
}

// client is the other end: it logs in and runs queries one after the other.
type client struct {
	t *testing.T
	net.Conn
}

func dial(t *testing.T, p *Proxy, session string) *client {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := &client{t, conn}
	c.send(named(session))
	if err := c.ready(); err != nil {
		t.Fatal("log-in:", err)
	}
	return c
}

func (c *client) send(b []byte) {
	c.t.Helper()
	if _, err := c.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// ready reads up to the end of an answer.
func (c *client) ready() error {
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	for {
		kind, _, err := readMsg(c)
		if err != nil || kind == 'Z' {
			return err
		}
	}
}

func (c *client) run(sql string) error {
	c.t.Helper()
	c.send(query(sql))
	return c.ready()
}

// quiet reports whether nothing arrives for a moment.
func (c *client) quiet() bool {
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
	_, err := c.Read(make([]byte, 1))
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// witness is an Observer.
type witness struct {
	mu      sync.Mutex
	touched int
	bites   []history.Bite
	news    chan struct{}
}

func newWitness() *witness { return &witness{news: make(chan struct{}, 1<<16)} }

func (w *witness) Touched() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.touched++
	w.news <- struct{}{}
}

func (w *witness) Bite(b history.Bite) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bites = append(w.bites, b)
	w.news <- struct{}{}
}

func (w *witness) all() (touched int, bites []history.Bite) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.touched, append([]history.Bite(nil), w.bites...)
}

func (w *witness) await(t *testing.T, touched, bites int) []history.Bite {
	t.Helper()
	deadline := time.After(5 * time.Second)
	for {
		n, b := w.all()
		if n >= touched && len(b) >= bites {
			return b
		}
		select {
		case <-w.news:
		case <-deadline:
			t.Fatalf("%d touched, bites %+v; want %d and %d", n, b, touched, bites)
		}
	}
}

func newTestProxy(t *testing.T, upstream string) *Proxy {
	t.Helper()
	before := runtime.NumGoroutine()
	p, err := NewProxy(t.Context(), Options{Name: "writer-1", Upstream: upstream, Protocol: Postgres()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if open := p.Traffic().Open + p.Traffic().Orphans; open > 0 {
			t.Errorf("%d connections left", open)
		}
		// Toxiproxy's readers and writers end after their sockets, by themselves.
		deadline := time.Now().Add(2 * time.Second)
		for runtime.NumGoroutine() > before+6 && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
		if n := runtime.NumGoroutine(); n > before+6 {
			t.Errorf("%d goroutines before, %d after", before, n)
		}
	})
	return p
}

func apply(t *testing.T, p *Proxy, spec RuleSpec) (*Rule, *witness) {
	t.Helper()
	w := newWitness()
	spec.Observer = w
	r, err := NewRule(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Apply(r); err != nil {
		t.Fatal(err)
	}
	return r, w
}

func withdraw(t *testing.T, p *Proxy, r *Rule) {
	t.Helper()
	if err := p.Withdraw(r); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := r.Settle(ctx); err != nil {
		t.Fatal(err)
	}
}

func one(t *testing.T, bites []history.Bite, form history.BiteForm, landed history.Landed, session string) history.Bite {
	t.Helper()
	var found []history.Bite
	for _, b := range bites {
		if b.Form == form {
			found = append(found, b)
		}
	}
	if len(found) != 1 || found[0].Landed != landed || found[0].Session != session || found[0].T == 0 {
		t.Fatalf("bites %+v; want one %v, landed %d, session %q", bites, form, landed, session)
	}
	return found[0]
}

func transaction(c *client) error {
	for _, sql := range []string{"begin", "insert x", "commit"} {
		if err := c.run(sql); err != nil {
			return err
		}
	}
	return nil
}

func TestWithoutRulesEverythingPasses(t *testing.T) {
	s := newFakeServer(t)
	p := newTestProxy(t, s.ln.Addr().String())
	c := dial(t, p, "w/1")
	for range 3 {
		if err := transaction(c); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.count("commit"); n != 3 {
		t.Errorf("%d commits at the server", n)
	}
	if tr := p.Traffic(); tr.Connections != 1 || tr.Open != 1 || tr.UpBytes == 0 || tr.DownBytes == 0 || tr.Unreadable != 0 {
		t.Errorf("traffic %+v", tr)
	}
	_ = c.Close()
	s.await(t, "end", 1)
}

func TestDroppedReplyOfEveryOtherCommit(t *testing.T) {
	s := newFakeServer(t)
	p := newTestProxy(t, s.ln.Addr().String())
	_, w := apply(t, p, RuleSpec{Action: DropReply, Every: 2, Max: 2})
	var failed []int
	for i := 1; i <= 6; i++ { // the count goes over connections
		c := dial(t, p, "w/1")
		if err := transaction(c); err != nil {
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			failed = append(failed, i)
		}
		_ = c.Close()
	}
	if len(failed) != 2 || failed[0] != 2 || failed[1] != 4 {
		t.Errorf("the clients %v lost their reply; want 2 and 4", failed)
	}
	if n := s.count("commit"); n != 6 {
		t.Errorf("%d commits reached the server", n)
	}
	touched, bites := w.all()
	if touched != 2 || len(bites) != 2 {
		t.Fatalf("%d touched, bites %+v", touched, bites)
	}
	one(t, bites[:1], history.BiteReplyDropped, history.LandedYes, "w/1")
	s.await(t, "end", 6)
}

func TestCutRequestNeverReachesTheServer(t *testing.T) {
	s := newFakeServer(t)
	p := newTestProxy(t, s.ln.Addr().String())
	_, w := apply(t, p, RuleSpec{Action: CutRequest, Max: 1})
	c := dial(t, p, "w/1")
	if err := transaction(c); !errors.Is(err, io.EOF) {
		t.Errorf("the client got %v", err)
	}
	s.await(t, "end", 1)
	if n := s.count("commit"); n != 0 {
		t.Errorf("%d commits reached the server", n)
	}
	one(t, w.await(t, 1, 1), history.BiteRequestCut, history.LandedNo, "w/1")
	if err := transaction(dial(t, p, "w/2")); err != nil {
		t.Error("after the last one allowed:", err)
	}
}

func TestParkedCommitOutlivesItsClient(t *testing.T) {
	s := newFakeServer(t)
	p := newTestProxy(t, s.ln.Addr().String())
	r, w := apply(t, p, RuleSpec{Action: ParkRequest, Max: 1})
	c := dial(t, p, "w/1")
	_ = c.run("begin")
	c.send(query("commit"))
	w.await(t, 1, 1)
	_ = c.Close()
	if err := transaction(dial(t, p, "w/2")); err != nil { // the retry, by another connection
		t.Fatal(err)
	}
	for p.Traffic().Orphans != 1 {
		time.Sleep(time.Millisecond)
	}
	if s.count("end") != 0 || s.count("commit") != 1 {
		t.Fatalf("before the release the server heard %q", s.heard())
	}
	withdraw(t, p, r)
	_, bites := w.all()
	one(t, bites, history.BiteRequestParked, history.LandedUnknown, "w/1")
	b := one(t, bites, history.BiteRequestReleased, history.LandedYes, "w/1")
	if b.Since == 0 || b.Since >= b.T {
		t.Errorf("parked from %d to %d", b.Since, b.T)
	}
	if s.count("commit") != 2 {
		t.Errorf("the server heard %q", s.heard())
	}
	s.await(t, "end", 1)
}

func TestParkedCommitOfAPatientClientIsAnswered(t *testing.T) {
	s := newFakeServer(t)
	p := newTestProxy(t, s.ln.Addr().String())
	r, w := apply(t, p, RuleSpec{Action: ParkRequest})
	c := dial(t, p, "w/1")
	c.send(query("commit"))
	w.await(t, 1, 1)
	if !c.quiet() {
		t.Error("answered while parked")
	}
	withdraw(t, p, r)
	if err := c.ready(); err != nil {
		t.Fatal(err)
	}
	_, bites := w.all()
	one(t, bites, history.BiteRequestReleased, history.LandedYes, "w/1")
	if err := transaction(c); err != nil {
		t.Error("the connection is spoilt:", err)
	}
}

func TestParkedCommitInTheExtendedProtocol(t *testing.T) {
	s := newFakeServer(t)
	s.mute = true
	p := newTestProxy(t, s.ln.Addr().String())
	r, w := apply(t, p, RuleSpec{Action: ParkRequest})
	c := dial(t, p, "w/1")
	c.send(join(msg('P', "\x00commit\x00", "\x00\x00"), msg('B', "\x00\x00", "\x00\x00\x00\x00\x00\x00"), msg('E', "\x00", "\x00\x00\x00\x00"), msg('S')))
	w.await(t, 1, 1)
	if err := p.Withdraw(r); err != nil {
		t.Fatal(err)
	}
	s.await(t, "", 2) // Execute and Sync
	s.mu.Lock()
	_, err := s.open[0].Write(join(msg('1'), msg('2'), errorReply("40001"), msg('Z', "I")))
	s.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	bites := w.await(t, 1, 2)
	one(t, bites, history.BiteRequestReleased, history.LandedNo, "w/1")
}

func TestParkedCommitIsCutWhenItsServerLeaves(t *testing.T) {
	s := newFakeServer(t)
	p := newTestProxy(t, s.ln.Addr().String())
	r, w := apply(t, p, RuleSpec{Action: ParkRequest})
	c := dial(t, p, "w/1")
	c.send(query("commit"))
	w.await(t, 1, 1)
	s.hangUp()
	one(t, w.await(t, 1, 2), history.BiteRequestCut, history.LandedNo, "w/1")
	withdraw(t, p, r)
	if s.count("commit") != 0 {
		t.Errorf("the server heard %q", s.heard())
	}
}

func TestReleasedCommitThatNobodyAnswersIsUnknown(t *testing.T) {
	s := newFakeServer(t)
	p := newTestProxy(t, s.ln.Addr().String())
	r, w := apply(t, p, RuleSpec{Action: ParkRequest})
	c := dial(t, p, "w/1")
	s.mu.Lock()
	s.mute = true
	s.mu.Unlock()
	c.send(query("commit"))
	w.await(t, 1, 1)
	_ = c.Close()
	if err := p.Withdraw(r); err != nil {
		t.Fatal(err)
	}
	s.await(t, "commit", 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Settle(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal("Settle:", err)
	}
	_, bites := w.all()
	one(t, bites, history.BiteRequestReleased, history.LandedUnknown, "w/1")
}

func TestHeldReplyOfACommit(t *testing.T) {
	s := newFakeServer(t)
	p := newTestProxy(t, s.ln.Addr().String())
	r, w := apply(t, p, RuleSpec{Action: HoldReply, Max: 1})
	c := dial(t, p, "w/1")
	if err := c.run("begin"); err != nil {
		t.Fatal(err)
	}
	c.send(query("commit"))
	w.await(t, 1, 0)
	if s.count("commit") != 1 || !c.quiet() {
		t.Fatal("not executed, or not held")
	}
	withdraw(t, p, r)
	if err := c.ready(); err != nil {
		t.Fatal(err)
	}
	_, bites := w.all()
	b := one(t, bites, history.BiteReplyHeld, history.LandedYes, "w/1")
	if d := time.Duration(b.T - b.Since); d < 30*time.Millisecond {
		t.Errorf("held for %v only", d)
	}
	if err := transaction(c); err != nil {
		t.Error(err)
	}
}

func TestEveryReplyHeldUntilTheClientLeaves(t *testing.T) {
	s := newFakeServer(t)
	p := newTestProxy(t, s.ln.Addr().String())
	c := dial(t, p, "w/1")
	r, w := apply(t, p, RuleSpec{Action: HoldReply, All: true})
	c.send(query("begin"))
	w.await(t, 1, 0)
	if !c.quiet() {
		t.Fatal("not held")
	}
	_ = c.Close()
	one(t, w.await(t, 1, 1), history.BiteReplyHeld, history.LandedUnknown, "w/1")
	withdraw(t, p, r)
	s.await(t, "end", 1)
}

func TestDelayIsMeasured(t *testing.T) {
	s := newFakeServer(t)
	p := newTestProxy(t, s.ln.Addr().String())
	c := dial(t, p, "w/1")
	begin := time.Now()
	if err := c.run("select"); err != nil {
		t.Fatal(err)
	}
	calm := time.Since(begin)
	r, w := apply(t, p, RuleSpec{Action: Delay, Directions: Both, Delay: 40 * time.Millisecond, Jitter: 10 * time.Millisecond, Rand: rand.New(rand.NewPCG(1, 2))})
	begin = time.Now()
	if err := c.run("select"); err != nil {
		t.Fatal(err)
	}
	late := time.Since(begin)
	if late < 60*time.Millisecond || calm > 50*time.Millisecond {
		t.Errorf("%v without, %v with a delay", calm, late)
	}
	for _, b := range w.await(t, 2, 2) {
		if d := time.Duration(b.T - b.Since); b.Form != history.BiteDelayed || b.Session != "w/1" || d < 30*time.Millisecond {
			t.Errorf("bite %+v after %v", b, d)
		}
	}
	// What is on its way when the rule is lifted arrives at once.
	slow, _ := apply(t, p, RuleSpec{Action: Delay, Directions: Both, Delay: time.Hour})
	withdraw(t, p, r)
	c.send(query("select"))
	time.Sleep(5 * time.Millisecond)
	withdraw(t, p, slow)
	if err := c.ready(); err != nil {
		t.Error(err)
	}
}

func TestSwallowedBytesSpoilTheirConnectionOnly(t *testing.T) {
	for _, c := range []struct {
		name   string
		dir    Directions
		form   history.BiteForm
		landed history.Landed
		heard  int
	}{
		{"requests", Up, history.BiteRequestCut, history.LandedNo, 0},
		{"replies", Down, history.BiteReplyDropped, history.LandedYes, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newFakeServer(t)
			p := newTestProxy(t, s.ln.Addr().String())
			hit, idle := dial(t, p, "w/1"), dial(t, p, "w/2")
			r, w := apply(t, p, RuleSpec{Action: Swallow, Directions: c.dir})
			hit.send(query("commit"))
			bites := w.await(t, 1, 1)
			if bites[0].Form != c.form || bites[0].Landed != c.landed || bites[0].Session != "w/1" {
				t.Errorf("bite %+v", bites[0])
			}
			if !hit.quiet() {
				t.Error("answered through a black hole")
			}
			if n := s.count("commit"); n != c.heard {
				t.Errorf("the server heard %d commits", n)
			}
			withdraw(t, p, r)
			if err := hit.ready(); !errors.Is(err, io.EOF) {
				t.Errorf("the spoilt connection got %v", err)
			}
			if err := transaction(idle); err != nil {
				t.Error("the other connection:", err)
			}
		})
	}
}

func TestRefusedConnectionsComeBackOnTheSamePort(t *testing.T) {
	s := newFakeServer(t)
	p := newTestProxy(t, s.ln.Addr().String())
	c := dial(t, p, "w/1")
	r, w := apply(t, p, RuleSpec{Action: Refuse})
	if err := c.ready(); !errors.Is(err, io.EOF) {
		t.Errorf("the live connection got %v", err)
	}
	for range 50 {
		if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("a new connection got %v", err)
		}
	}
	one(t, w.await(t, 1, 1), history.BiteConnectionCut, history.LandedUnknown, "w/1")
	withdraw(t, p, r)
	if err := transaction(dial(t, p, "w/2")); err != nil {
		t.Error(err)
	}
}

func TestResetReachesLiveAndNewConnections(t *testing.T) {
	s := newFakeServer(t)
	p := newTestProxy(t, s.ln.Addr().String())
	c := dial(t, p, "w/1")
	r, w := apply(t, p, RuleSpec{Action: Reset})
	if err := c.ready(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the live connection got %v", err)
	}
	fresh, err := net.Dial("tcp", p.Addr())
	if err == nil {
		_, err = fresh.Read(make([]byte, 1))
		_ = fresh.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a new connection got %v", err)
	}
	bites := w.await(t, 2, 2)
	one(t, bites, history.BiteConnectionCut, history.LandedUnknown, "w/1")
	one(t, bites, history.BiteRefused, history.LandedUnknown, "")
	withdraw(t, p, r)
	if err := transaction(dial(t, p, "w/2")); err != nil {
		t.Error(err)
	}
}

func TestARuleThatTouchesNothingSaysSo(t *testing.T) {
	s := newFakeServer(t)
	p := newTestProxy(t, s.ln.Addr().String())
	for a := Delay; a <= Reset; a++ {
		r, w := apply(t, p, RuleSpec{Action: a, Directions: Both, Delay: time.Millisecond, All: true})
		probe(t, p, a) // probes don't count
		withdraw(t, p, r)
		if touched, bites := w.all(); touched+len(bites) > 0 {
			t.Errorf("action %d: %d touched, bites %+v", a, touched, bites)
		}
	}
	if tr := p.Traffic(); tr.Connections != 0 || tr.UpBytes != 0 {
		t.Errorf("probes were counted: %+v", tr)
	}
}

// probe sends one through a proxy with a rule in force, which has to be felt.
func probe(t *testing.T, p *Proxy, a Action) {
	t.Helper()
	passes := a == Delay || a == DropReply || a == CutRequest || a == ParkRequest
	limit := 50 * time.Millisecond // nothing will come
	if passes {
		limit = 10 * time.Second // it will, however busy the machine is
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	conn, err := p.Dial(ctx)
	if err == nil {
		err = ProbePostgres(ctx, conn)
		_ = conn.Close()
	}
	if passes != (err == nil) {
		t.Errorf("action %d: the probe got %v", a, err)
	}
}

func TestEncryptedConnectionsPassUnread(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.ReadFull(c, make([]byte, 8))
		_, _ = c.Write([]byte("S"))
		_, _ = io.Copy(c, c)
	})
	p := newTestProxy(t, ln.Addr().String())
	_, w := apply(t, p, RuleSpec{Action: CutRequest})
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = conn.Write(sslRequest())
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	hello := join([]byte{0x16, 3, 1, 0, 5}, query("commit"))
	_, _ = conn.Write(hello)
	back := make([]byte, len(hello))
	if _, err := io.ReadFull(conn, back); err != nil || !bytes.Equal(back, hello) {
		t.Fatalf("%v, %q", err, back)
	}
	if touched, _ := w.all(); touched != 0 || p.Traffic().Unreadable != 1 {
		t.Errorf("%d touched, %d unreadable", touched, p.Traffic().Unreadable)
	}
}

func TestBulkKeepsItsBytesUnderDelay(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.Copy(c, c)
	})
	p, err := NewProxy(t.Context(), Options{Name: "bytes", Upstream: ln.Addr().String(), Clock: clock.System{}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	r, w := apply(t, p, RuleSpec{Action: Delay, Directions: Both, Delay: 2 * time.Millisecond, Jitter: 2 * time.Millisecond, Rand: rand.New(rand.NewPCG(1, 2))})
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	sent := make([]byte, 8<<20)
	for i := range sent {
		sent[i] = byte(i * 7 >> 3)
	}
	wg.Go(func() { _, _ = conn.Write(sent) })
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, sent) {
		t.Fatal("the bytes changed:", err)
	}
	withdraw(t, p, r)
	if touched, _ := w.all(); touched == 0 {
		t.Error("nothing was delayed")
	}
}

func TestRulesAreCheckedWhenMade(t *testing.T) {
	for _, s := range []RuleSpec{
		{Observer: newWitness()},
		{Action: Reset},
		{Action: Delay, Delay: 1, Jitter: 1, Observer: newWitness()},
		{Action: Delay, Delay: 1, Jitter: 2, Rand: rand.New(rand.NewPCG(1, 2)), Observer: newWitness()},
		{Action: Reset + 1, Observer: newWitness()},
	} {
		if _, err := NewRule(s); err == nil {
			t.Errorf("%+v was accepted", s)
		}
	}
}
