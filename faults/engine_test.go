package faults_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/faults"
	"github.com/eventproof/eventproof/faults/plan"
	"github.com/eventproof/eventproof/faults/wire"
	"github.com/eventproof/eventproof/history"
)

// notes keeps the records of an engine.
type notes struct {
	mu   sync.Mutex
	all  []history.Record
	fail error
}

func (n *notes) log(rs ...history.Record) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, rs...)
	return n.fail
}

func (n *notes) bites(id string) []history.Bite {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []history.Bite
	for _, r := range n.all {
		if b, ok := r.(*history.Bite); ok && b.Fault == id {
			out = append(out, *b)
		}
	}
	return out
}

// ended returns the FaultEnd of a fault and checks the order and stamps of its records.
func (n *notes) ended(t *testing.T, id string) history.FaultEnd {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	var begun int64
	for _, r := range n.all {
		switch r := r.(type) {
		case *history.Fault:
			if r.ID == id {
				begun = r.T
			}
		case *history.Bite:
			if r.Fault == id && (begun == 0 || r.T < begun) {
				t.Errorf("bite %+v before the fault began", r)
			}
		case *history.FaultEnd:
			if r.ID == id {
				if begun == 0 || r.T < begun {
					t.Errorf("%s ended before it began", id)
				}
				t.Logf("%s: bit %t, %d: %s", id, r.Bit, r.Count, r.Effect)
				return *r
			}
		}
	}
	t.Fatalf("%s has no end", id)
	return history.FaultEnd{}
}

// bench is an engine before the real Postgres, with a table of its own.
type bench struct {
	t      *testing.T
	e      *faults.Engine
	n      *notes
	s      *server
	direct *pgx.Conn
	table  string
}

var tables atomic.Int64

func newBench(t *testing.T) *bench {
	t.Helper()
	s := postgres(t)
	n := &notes{}
	b := &bench{t: t, n: n, s: s, table: fmt.Sprintf("faults_test_%d_%d", os.Getpid(), tables.Add(1))}
	b.e = faults.New(faults.Options{
		Log: n.log, Seed: 1, Protocol: wire.Postgres(), Probe: wire.ProbePostgres,
		Store: s, StoreAddr: s.addr(), Heal: 10 * time.Second,
	})
	for _, role := range []string{"writer-1", "writer-2", "projector"} {
		if _, err := b.e.Proxy(role, s.addr()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := b.e.Close(); err != nil {
			t.Error(err)
		}
	})
	b.reconnect()
	b.exec("create table " + b.table + " (id text primary key)")
	t.Cleanup(func() {
		ctx := context.Background()
		conn, err := pgx.Connect(ctx, s.url())
		if err == nil {
			_, err = conn.Exec(ctx, "drop table "+b.table)
			_ = conn.Close(ctx)
		}
		if err != nil {
			t.Error(err)
		}
	})
	return b
}

// reconnect opens the direct connection.
func (b *bench) reconnect() {
	b.t.Helper()
	conn, err := pgx.Connect(b.t.Context(), b.s.url())
	if err != nil {
		b.t.Fatal(err)
	}
	b.direct = conn
	b.t.Cleanup(func() { _ = conn.Close(context.Background()) })
}

func (b *bench) exec(sql string) {
	b.t.Helper()
	if _, err := b.direct.Exec(b.t.Context(), sql); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) has(id string) bool {
	b.t.Helper()
	var n int
	if err := b.direct.QueryRow(b.t.Context(), "select count(*) from "+b.table+" where id = $1", id).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n == 1
}

// connect opens a role's connection through its proxy.
func (b *bench) connect(role string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(b.s.url())
	if err != nil {
		return nil, err
	}
	cfg.DialFunc = b.e.Dialer(role)
	cfg.RuntimeParams["application_name"] = role + "/1"
	ctx, cancel := context.WithTimeout(b.t.Context(), 5*time.Second)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err == nil {
		b.t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_ = conn.Close(ctx)
		})
	}
	return conn, err
}

func (b *bench) mustConnect(role string) *pgx.Conn {
	b.t.Helper()
	conn, err := b.connect(role)
	if err != nil {
		b.t.Fatal(err)
	}
	return conn
}

// insert commits one row, with limit for each step.
func (b *bench) insert(conn *pgx.Conn, id string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(b.t.Context(), limit)
	defer cancel()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "insert into "+b.table+" values ($1)", id); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

func (b *bench) start(f plan.Fault) {
	b.t.Helper()
	if err := b.e.Start(b.t.Context(), f); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) lift(id string) {
	b.t.Helper()
	if err := b.e.Lift(b.t.Context(), id); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) await(id string, n uint64) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 5*time.Second)
	defer cancel()
	if err := b.e.Await(ctx, id, n); err != nil {
		b.t.Fatal(err)
	}
}

// calm is the control twin of every fault test: the other role, at the same time, without the fault.
func (b *bench) calm(id string) {
	b.t.Helper()
	if err := b.insert(b.mustConnect("projector"), id, 5*time.Second); err != nil {
		b.t.Errorf("a role without the fault: %v", err)
	}
	if !b.has(id) {
		b.t.Error("a role without the fault lost its row")
	}
}

func only(t *testing.T, bites []history.Bite, form history.BiteForm, landed history.Landed, session string) history.Bite {
	t.Helper()
	i := slices.IndexFunc(bites, func(b history.Bite) bool { return b.Form == form })
	if i < 0 || bites[i].Landed != landed || bites[i].Session != session {
		t.Fatalf("bites %+v; want %v, landed %d, session %q", bites, form, landed, session)
	}
	return bites[i]
}

func TestDropReplyLeavesTheRowAndAnErrorForTheClient(t *testing.T) {
	b := newBench(t)
	b.start(plan.Fault{ID: "f", Kind: plan.DropReply, On: "writer", Every: 2, Max: 1})
	conn := b.mustConnect("writer-1")
	if err := b.insert(conn, "first", 5*time.Second); err != nil {
		t.Fatal(err)
	}
	if err := b.insert(conn, "second", 5*time.Second); err == nil {
		t.Fatal("the client was told")
	}
	b.calm("calm")
	if !b.has("first") || !b.has("second") {
		t.Error("a row is missing")
	}
	b.lift("f")
	only(t, b.n.bites("f"), history.BiteReplyDropped, history.LandedYes, "writer-1/1")
	if end := b.n.ended(t, "f"); !end.Bit || end.Count != 1 {
		t.Errorf("end %+v", end)
	}
}

func TestCutRequestLeavesNoRowAndAnErrorForTheClient(t *testing.T) {
	b := newBench(t)
	b.start(plan.Fault{ID: "f", Kind: plan.CutRequest, On: "writer-1"})
	if err := b.insert(b.mustConnect("writer-1"), "cut", 5*time.Second); err == nil {
		t.Fatal("the client was told")
	}
	if err := b.insert(b.mustConnect("writer-2"), "other", 5*time.Second); err != nil {
		t.Error("another writer:", err)
	}
	b.calm("calm")
	b.lift("f")
	if b.has("cut") || !b.has("other") {
		t.Error("the wrong rows")
	}
	only(t, b.n.bites("f"), history.BiteRequestCut, history.LandedNo, "writer-1/1")
	if end := b.n.ended(t, "f"); !end.Bit || end.Count != 1 {
		t.Errorf("end %+v", end)
	}
}

// The late twin: a commit is parked, its client gives up and tries again, and both meet on the server.
func TestParkedCommitLandsLate(t *testing.T) {
	b := newBench(t)
	b.start(plan.Fault{ID: "f", Kind: plan.ParkRequest, On: "writer", Max: 1})
	if err := b.insert(b.mustConnect("writer-1"), "late", 300*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal("the client got", err)
	}
	if b.has("late") {
		t.Fatal("landed while parked")
	}
	// The retry waits for the row lock of the parked transaction.
	retry := make(chan error, 1)
	go func() {
		conn, err := b.connect("writer-2")
		if err == nil {
			err = b.insert(conn, "late", 10*time.Second)
		}
		retry <- err
	}()
	var waiting bool
	for !waiting {
		if err := b.direct.QueryRow(t.Context(), "select exists(select from pg_stat_activity where application_name = 'writer-2/1' and wait_event_type = 'Lock')").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	b.calm("calm")
	b.lift("f")
	if !b.has("late") {
		t.Fatal("did not land when released")
	}
	if err := <-retry; err == nil || !strings.Contains(err.Error(), "23505") {
		t.Error("the retry got", err)
	}
	bites := b.n.bites("f")
	only(t, bites, history.BiteRequestParked, history.LandedUnknown, "writer-1/1")
	released := only(t, bites, history.BiteRequestReleased, history.LandedYes, "writer-1/1")
	if held := time.Duration(released.T - released.Since); held < 250*time.Millisecond {
		t.Errorf("parked for %v only", held)
	}
	if end := b.n.ended(t, "f"); !end.Bit || end.Count != 1 {
		t.Errorf("end %+v", end)
	}
}

func TestParkedCommitWhoseTransactionTheServerEndsIsRecordedAsCut(t *testing.T) {
	b := newBench(t)
	conn := b.mustConnect("writer-1")
	if _, err := conn.Exec(t.Context(), "set idle_in_transaction_session_timeout = '100ms'"); err != nil {
		t.Fatal(err)
	}
	b.start(plan.Fault{ID: "f", Kind: plan.ParkRequest, On: "writer"})
	if err := b.insert(conn, "never", 5*time.Second); err == nil {
		t.Fatal("the client was told")
	}
	b.lift("f")
	only(t, b.n.bites("f"), history.BiteRequestCut, history.LandedNo, "writer-1/1")
	if b.has("never") {
		t.Error("landed")
	}
	b.n.ended(t, "f")
}

func TestHeldReplyArrivesWhenLifted(t *testing.T) {
	b := newBench(t)
	conn := b.mustConnect("writer-1")
	b.start(plan.Fault{ID: "f", Kind: plan.HoldReply, On: "writer", Every: 1, Max: 1})
	result := make(chan error, 1)
	go func() { result <- b.insert(conn, "held", 10*time.Second) }()
	b.await("f", 1)
	if !b.has("held") {
		t.Error("not executed")
	}
	b.calm("calm")
	select {
	case err := <-result:
		t.Fatal("answered while held:", err)
	case <-time.After(50 * time.Millisecond):
	}
	b.lift("f")
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	bite := only(t, b.n.bites("f"), history.BiteReplyHeld, history.LandedYes, "writer-1/1")
	if held := time.Duration(bite.T - bite.Since); held < 50*time.Millisecond {
		t.Errorf("held for %v only", held)
	}
	if end := b.n.ended(t, "f"); !end.Bit || end.Count != 1 {
		t.Errorf("end %+v", end)
	}
}

func TestLatencyIsFeltAndMeasured(t *testing.T) {
	b := newBench(t)
	conn := b.mustConnect("writer-1")
	ping := func(c *pgx.Conn) time.Duration {
		begin := clock.Monotonic()
		if err := c.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		return time.Duration(clock.Monotonic() - begin)
	}
	// The best of several: one ping may meet a busy machine.
	best := func(c *pgx.Conn) time.Duration {
		d := ping(c)
		for range 20 {
			d = min(d, ping(c))
		}
		return d
	}
	before := best(conn)
	b.start(plan.Fault{ID: "f", Kind: plan.Latency, On: "writer", Delay: 40 * time.Millisecond, Jitter: 5 * time.Millisecond})
	during, other := ping(conn), best(b.mustConnect("projector"))
	b.lift("f")
	after := best(conn)
	if during < 70*time.Millisecond || before > 40*time.Millisecond || after > 40*time.Millisecond || other > 40*time.Millisecond {
		t.Errorf("before %v, during %v, after %v, another role %v", before, during, after, other)
	}
	bite := only(t, b.n.bites("f"), history.BiteDelayed, history.LandedUnknown, "writer-1/1")
	if d := time.Duration(bite.T - bite.Since); d < 35*time.Millisecond {
		t.Errorf("measured %v", d)
	}
	if end := b.n.ended(t, "f"); !end.Bit || end.Count < 2 || !regexp.MustCompile(`\d+ runs of bytes delayed; \d+(\.\d+)?ms to`).MatchString(end.Effect) {
		t.Errorf("end %+v", end)
	}
}

func TestDownClosesAndRefuses(t *testing.T) {
	b := newBench(t)
	conn := b.mustConnect("writer-1")
	b.start(plan.Fault{ID: "f", Kind: plan.Down, On: "writer-1"})
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("the live connection still works")
	}
	if _, err := b.connect("writer-1"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error("a new connection got", err)
	}
	b.calm("calm")
	b.lift("f")
	if err := b.insert(b.mustConnect("writer-1"), "back", 5*time.Second); err != nil {
		t.Error("after it was lifted:", err)
	}
	bites := b.n.bites("f")
	only(t, bites, history.BiteConnectionCut, history.LandedUnknown, "writer-1/1")
	only(t, bites, history.BiteRefused, history.LandedUnknown, "")
	if end := b.n.ended(t, "f"); !end.Bit || end.Count < 2 {
		t.Errorf("end %+v", end)
	}
}

func TestResetIsAReset(t *testing.T) {
	b := newBench(t)
	conn := b.mustConnect("writer-1")
	b.start(plan.Fault{ID: "f", Kind: plan.Reset, On: "writer-1"})
	if err := conn.Ping(t.Context()); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Error("the live connection got", err)
	}
	if _, err := b.connect("writer-1"); err == nil {
		t.Error("a new connection was made")
	}
	b.calm("calm")
	b.lift("f")
	if err := b.insert(b.mustConnect("writer-1"), "back", 5*time.Second); err != nil {
		t.Error("after it was lifted:", err)
	}
	bites := b.n.bites("f")
	only(t, bites, history.BiteConnectionCut, history.LandedUnknown, "writer-1/1")
	only(t, bites, history.BiteRefused, history.LandedUnknown, "")
	b.n.ended(t, "f")
}

func TestBlackHoleSwallowsOneWayOrTheOther(t *testing.T) {
	for _, c := range []struct {
		direction string
		form      history.BiteForm
		landed    history.Landed
		row       bool
	}{
		{"up", history.BiteRequestCut, history.LandedNo, false},
		{"down", history.BiteReplyDropped, history.LandedYes, true},
	} {
		t.Run(c.direction, func(t *testing.T) {
			b := newBench(t)
			conn := b.mustConnect("writer-1")
			tx, err := conn.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), "insert into "+b.table+" values ('x')"); err != nil {
				t.Fatal(err)
			}
			b.start(plan.Fault{ID: "f", Kind: plan.BlackHole, On: "writer-1", Direction: c.direction})
			result := make(chan error, 1)
			go func() { result <- tx.Commit(t.Context()) }()
			b.await("f", 1)
			b.calm("calm")
			select {
			case err := <-result:
				t.Fatal("the client was answered:", err)
			case <-time.After(30 * time.Millisecond):
			}
			b.lift("f")
			if err := <-result; err == nil {
				t.Error("the client was told after the lift")
			}
			if b.has("x") != c.row {
				t.Errorf("row present: %t", b.has("x"))
			}
			bites := b.n.bites("f")
			i := slices.IndexFunc(bites, func(b history.Bite) bool { return b.Landed == c.landed })
			if i < 0 || bites[i].Form != c.form || bites[i].Session != "writer-1/1" {
				t.Errorf("bites %+v", bites)
			}
			if end := b.n.ended(t, "f"); !end.Bit {
				t.Errorf("end %+v", end)
			}
			if err := b.insert(b.mustConnect("writer-1"), "back", 5*time.Second); err != nil {
				t.Error("after it was lifted:", err)
			}
		})
	}
}

func TestKilledStoreIsSeenDownAndBack(t *testing.T) {
	b := newBench(t)
	b.s.process(t)
	conn := b.mustConnect("writer-1")
	b.start(plan.Fault{ID: "f", Kind: plan.KillStore, On: "store"})
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("the store still answers")
	}
	b.lift("f")
	b.reconnect()
	b.calm("back")
	bites := b.n.bites("f")
	only(t, bites, history.BiteKilled, history.LandedUnknown, "")
	only(t, bites, history.BiteRestarted, history.LandedUnknown, "")
	if end := b.n.ended(t, "f"); !end.Bit || end.Count != 1 {
		t.Errorf("end %+v", end)
	}
}

func TestPausedStoreHangsAndGoesOn(t *testing.T) {
	b := newBench(t)
	b.s.process(t)
	conn := b.mustConnect("writer-1")
	b.start(plan.Fault{ID: "f", Kind: plan.PauseStore, On: "store"})
	result := make(chan error, 1)
	go func() { result <- b.insert(conn, "x", 10*time.Second) }()
	select {
	case err := <-result:
		t.Error("answered while paused:", err)
	case <-time.After(50 * time.Millisecond):
	}
	b.lift("f")
	if err := <-result; err != nil || !b.has("x") {
		t.Error("after the pause:", err)
	}
	only(t, b.n.bites("f"), history.BitePaused, history.LandedUnknown, "")
	if end := b.n.ended(t, "f"); !end.Bit {
		t.Errorf("end %+v", end)
	}
}

func TestCrashResetsTheRoleBeforeItsCodeUnwinds(t *testing.T) {
	b := newBench(t)
	dial := b.e.Dialer("writer-1")
	cfg, err := pgx.ParseConfig(b.s.url())
	if err != nil {
		t.Fatal(err)
	}
	cfg.DialFunc = dial
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "begin"); err != nil {
		t.Fatal(err)
	}
	if n := b.e.Crash("writer-1"); n != 1 {
		t.Errorf("%d sockets reset", n)
	}
	if _, err := conn.Exec(t.Context(), "rollback"); err == nil {
		t.Error("the unwinding code reached the store")
	}
	if _, err := dial(t.Context(), "tcp", b.s.addr()); !errors.Is(err, net.ErrClosed) {
		t.Error("the dead role dialled:", err)
	}
	b.mustConnect("writer-1") // the next incarnation
	b.calm("calm")
}

func TestPlanRunsOnOneClock(t *testing.T) {
	b := newBench(t)
	t0 := clock.Monotonic()
	faultPlan := []plan.Fault{
		{ID: "late", Kind: plan.Latency, On: "writer", At: 60 * time.Millisecond, For: 40 * time.Millisecond, Delay: time.Millisecond},
		{ID: "early", Kind: plan.Down, On: "projector", At: 10 * time.Millisecond, For: 30 * time.Millisecond},
		{ID: "open-end", Kind: plan.DropReply, On: "writer", At: 5 * time.Millisecond},
	}
	if err := b.e.Run(t.Context(), faultPlan, t0); err != nil {
		t.Fatal(err)
	}
	if err := b.e.LiftAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, f := range faultPlan {
		if end := b.n.ended(t, f.ID); end.Bit || end.Count > 0 {
			t.Errorf("nothing ran, but %+v", end)
		}
	}
	var order []string
	for _, r := range b.n.all {
		switch r := r.(type) {
		case *history.Fault:
			order = append(order, "+"+r.ID)
		case *history.FaultEnd:
			order = append(order, "-"+r.ID)
		}
	}
	if got := strings.Join(order, " "); got != "+open-end +early -early +late -late -open-end" {
		t.Error(got)
	}
}

func TestInterruptedPlanLeavesNothingBehind(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- b.e.Run(ctx, []plan.Fault{
			{ID: "now", Kind: plan.Down, On: "writer", For: time.Hour},
			{ID: "never", Kind: plan.Down, On: "writer", At: time.Hour, For: time.Hour},
		}, clock.Monotonic())
	}()
	for {
		if _, err := b.connect("writer-1"); err != nil {
			t.Log(err)
			break
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	b.n.ended(t, "now")
	if err := b.insert(b.mustConnect("writer-1"), "x", 5*time.Second); err != nil {
		t.Error(err)
	}
	if err := b.e.Lift(t.Context(), "never"); !errors.Is(err, faults.ErrNotActive) {
		t.Error("a fault that never began:", err)
	}
}

// plainServer echoes what it is sent; the engine's own tests need no more.
func plainServer(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		wg.Wait()
	})
	return ln.Addr().String()
}

func plainEngine(t *testing.T, o faults.Options) (*faults.Engine, *notes, string) {
	t.Helper()
	addr := plainServer(t)
	n := &notes{}
	o.Log = n.log
	e := faults.New(o)
	t.Cleanup(func() { _ = e.Close() })
	if _, err := e.Proxy("writer-1", addr); err != nil {
		t.Fatal(err)
	}
	return e, n, addr
}

// echo sends a line through a role's dialer.
func echo(t *testing.T, c net.Conn) error {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write([]byte("hello")); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 5))
	return err
}

func TestOnNamesARoleOrAGroupOfThem(t *testing.T) {
	for _, c := range []struct {
		on, role string
		want     bool
	}{
		{"writer", "writer-1", true}, {"writer-1", "writer-1", true}, {"writer-*", "writer-12", true},
		{"projector", "projector", true}, {"projector", "projector-balances-1", true},
		{"writer", "writers", false}, {"writer-1", "writer-12", false}, {"projector", "writer-1", false},
	} {
		if got := plan.Matches(c.on, c.role); got != c.want {
			t.Errorf("Matches(%q, %q) = %t", c.on, c.role, got)
		}
	}
}

func TestFaultsThatCannotBeAreRefused(t *testing.T) {
	e, n, _ := plainEngine(t, faults.Options{})
	var none *faults.NoTargetError
	for _, f := range []plan.Fault{
		{ID: "a", Kind: plan.Down, On: "reader"},
		{ID: "b", Kind: plan.KillStore, On: "store"},
		{ID: "c", Kind: plan.KillRole, On: "writer"},
	} {
		if err := e.Start(t.Context(), f); !errors.As(err, &none) {
			t.Errorf("%s: %v", f.ID, err)
		}
	}
	if err := e.Start(t.Context(), plan.Fault{ID: "d", Kind: plan.DropReply, On: "writer"}); err == nil {
		t.Error("commits were looked for without a protocol")
	}
	if end := n.ended(t, "d"); end.Bit {
		t.Errorf("end %+v", end)
	}
	if err := e.Start(t.Context(), plan.Fault{ID: "e", Kind: plan.Down, On: "writer"}); err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context(), plan.Fault{ID: "e", Kind: plan.Down, On: "writer"}); err == nil {
		t.Error("an id was used twice")
	}
}

func TestADialPastTheProxiesIsRefused(t *testing.T) {
	e, _, addr := plainEngine(t, faults.Options{})
	_, port, _ := net.SplitHostPort(addr)
	dial := e.Dialer("writer-1")
	for _, to := range []string{addr, e.Map("writer-1")[addr]} {
		c, err := dial(t.Context(), "tcp", to)
		if err != nil {
			t.Fatalf("%s: %v", to, err)
		}
		if err := echo(t, c); err != nil {
			t.Error(err)
		}
		_ = c.Close()
	}
	var unmapped *faults.UnmappedError
	if _, err := dial(t.Context(), "tcp", net.JoinHostPort("127.0.0.2", port)); !errors.As(err, &unmapped) {
		t.Error("got", err)
	}
	named := faults.MapDialer(map[string]string{net.JoinHostPort("localhost", port): addr})
	c, err := named.Dial(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal("a name that was looked up before:", err)
	}
	_ = c.Close()
	if n := named.Reset(); n != 0 {
		t.Errorf("%d sockets left after Close", n)
	}
}

func TestBiteRecordsAreBoundedButAllAreCounted(t *testing.T) {
	e, n, addr := plainEngine(t, faults.Options{MaxBites: 3})
	c, err := e.Dialer("writer-1")(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context(), plan.Fault{ID: "f", Kind: plan.Latency, On: "writer", Delay: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if err := echo(t, c); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Lift(t.Context(), "f"); err != nil {
		t.Fatal(err)
	}
	if end := n.ended(t, "f"); end.Count < 20 || len(n.bites("f")) != 3 {
		t.Errorf("count %d, %d records", end.Count, len(n.bites("f")))
	}
}

func TestANewProxyGetsTheFaultsInForce(t *testing.T) {
	e, n, addr := plainEngine(t, faults.Options{})
	if err := e.Start(t.Context(), plan.Fault{ID: "f", Kind: plan.Down, On: "writer"}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Proxy("writer-2", addr); err != nil {
		t.Fatal(err)
	}
	dial := e.Dialer("writer-2")
	if _, err := dial(t.Context(), "tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error("got", err)
	}
	if err := e.LiftAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := dial(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if end := n.ended(t, "f"); !end.Bit || end.Count != 1 {
		t.Errorf("end %+v", end)
	}
}

func TestAWayThatDoesNotHealIsAnError(t *testing.T) {
	sick := errors.New("sick")
	e, n, _ := plainEngine(t, faults.Options{Heal: 500 * time.Millisecond, Probe: func(context.Context, net.Conn) error { return sick }})
	if err := e.Start(t.Context(), plan.Fault{ID: "f", Kind: plan.Reset, On: "writer"}); err != nil {
		t.Fatal(err)
	}
	err := e.Lift(t.Context(), "f")
	var heal *faults.HealError
	if !errors.As(err, &heal) || heal.Way != "writer-1" || !errors.Is(err, sick) {
		t.Error("got", err)
	}
	n.ended(t, "f")
}

func TestAFaultThatCannotBeWrittenDownDoesNotBegin(t *testing.T) {
	e, n, addr := plainEngine(t, faults.Options{})
	n.fail = os.ErrClosed
	if err := e.Start(t.Context(), plan.Fault{ID: "f", Kind: plan.Down, On: "writer"}); !errors.Is(err, os.ErrClosed) {
		t.Error("got", err)
	}
	c, err := e.Dialer("writer-1")(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}

// fakeRoles kills and pauses roles that are a connection each.
type fakeRoles struct {
	kill, pause, resume func(name string) error
}

func (r *fakeRoles) Kill(name string) error                { return r.kill(name) }
func (r *fakeRoles) Restart(context.Context, string) error { return nil }
func (r *fakeRoles) Pause(name string) error               { return r.pause(name) }
func (r *fakeRoles) Resume(name string) error              { return r.resume(name) }

func TestKilledRoleIsSeenToLeave(t *testing.T) {
	for _, dies := range []bool{true, false} {
		t.Run(fmt.Sprintf("dies %t", dies), func(t *testing.T) {
			roles := &fakeRoles{}
			e, n, addr := plainEngine(t, faults.Options{Roles: roles})
			roles.kill = func(name string) error {
				if dies {
					e.Crash(name)
				}
				return nil
			}
			c, err := e.Dialer("writer-1")(t.Context(), "tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			if err := echo(t, c); err != nil {
				t.Fatal(err)
			}
			if err := e.Start(t.Context(), plan.Fault{ID: "f", Kind: plan.KillRole, On: "writer"}); err != nil {
				t.Fatal(err)
			}
			if err := e.Lift(t.Context(), "f"); err != nil {
				t.Fatal(err)
			}
			if end := n.ended(t, "f"); end.Bit != dies {
				t.Errorf("end %+v", end)
			}
			_ = c.Close()
		})
	}
}

func TestPausedRoleIsSeenToSendNothing(t *testing.T) {
	for _, obeys := range []bool{true, false} {
		t.Run(fmt.Sprintf("obeys %t", obeys), func(t *testing.T) {
			none := func(string) error { return nil }
			e, n, addr := plainEngine(t, faults.Options{Roles: &fakeRoles{pause: none, resume: none}})
			c, err := e.Dialer("writer-1")(t.Context(), "tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			if err := echo(t, c); err != nil {
				t.Fatal(err)
			}
			if err := e.Start(t.Context(), plan.Fault{ID: "f", Kind: plan.PauseRole, On: "writer"}); err != nil {
				t.Fatal(err)
			}
			if !obeys {
				if err := echo(t, c); err != nil {
					t.Fatal(err)
				}
			}
			if err := e.Lift(t.Context(), "f"); err != nil {
				t.Fatal(err)
			}
			if end := n.ended(t, "f"); end.Bit != obeys {
				t.Errorf("end %+v", end)
			}
			_ = c.Close()
		})
	}
}

// The module lists of proxies are partial: a careless upgrade falls back to a version from 2022 whose toxics
// leak goroutines.
func TestToxiproxyIsTheVersionThatWasRead(t *testing.T) {
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^\s*(require )?github\.com/Shopify/toxiproxy/v2 v2\.12\.0$`).Match(mod) {
		t.Error("go.mod does not require toxiproxy v2.12.0")
	}
}

// BenchmarkRoundTrip shows what a proxy without a fault costs a connection.
func BenchmarkRoundTrip(b *testing.B) {
	s, err := func() (*server, error) {
		theServer.once.Do(func() { theServer.s, theServer.err = startServer() })
		return theServer.s, theServer.err
	}()
	if err != nil {
		b.Skip(err)
	}
	e := faults.New(faults.Options{Protocol: wire.Postgres()})
	defer func() { _ = e.Close() }()
	if _, err := e.Proxy("writer-1", s.addr()); err != nil {
		b.Fatal(err)
	}
	var direct net.Dialer
	for name, dial := range map[string]func(context.Context, string, string) (net.Conn, error){
		"direct": direct.DialContext, "proxied": e.Dialer("writer-1"),
	} {
		b.Run(name, func(b *testing.B) {
			cfg, err := pgx.ParseConfig(s.url())
			if err != nil {
				b.Fatal(err)
			}
			cfg.DialFunc = dial
			conn, err := pgx.ConnectConfig(b.Context(), cfg)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = conn.Close(context.Background()) }()
			for b.Loop() {
				if _, err := conn.Exec(b.Context(), "commit"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
