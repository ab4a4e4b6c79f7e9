package app_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eventproof/eventproof/app"
	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/domain/account"
	"github.com/eventproof/eventproof/domain/auction"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/record"
)

// projector is a running projector of a view.
type projector struct {
	t      *testing.T
	cancel context.CancelFunc
	done   chan error
	idle   chan app.Progress // the newest idle report
}

type projectorOptions struct {
	view  eventstore.View
	gate  points.Gate
	wrap  func(eventstore.Projection) eventstore.Projection
	batch int
}

func (s *stand) projector(name string, o projectorOptions) *projector {
	s.t.Helper()
	if o.gate == nil {
		o.gate = points.Open{}
	}
	if o.view == nil {
		o.view = app.Balances()
	}
	if o.batch == 0 {
		o.batch = 2
	}
	session := s.session(name, o.gate)
	inner, err := session.Projection(o.view)
	if err != nil {
		s.t.Fatal(err)
	}
	if o.wrap != nil {
		inner = o.wrap(inner)
	}
	s.process++
	segment, err := history.Create(filepath.Join(s.t.TempDir(), name+history.SegmentExt))
	if err != nil {
		s.t.Fatal(err)
	}
	rec := record.New(segment, clock.System{}, s.process)
	gen := new(atomic.Uint64)
	p := &projector{t: s.t, done: make(chan error, 1), idle: make(chan app.Progress, 1)}
	ctx, cancel := context.WithCancel(s.t.Context())
	p.cancel = cancel
	run := app.NewProjector(app.ProjectorConfig{
		Feed: record.Feed(session.Feed(), rec, o.view.Name(), gen), Projection: record.Projection(inner, rec, o.view.Name(), gen),
		Gate: o.gate, Batch: o.batch, Pause: time.Millisecond, Try: 200 * time.Millisecond, Report: p.report,
	})
	go func() { p.done <- run.Run(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		<-p.done
		_ = segment.Close()
	})
	return p
}

// report keeps the newest idle report.
func (p *projector) report(now app.Progress) {
	if !now.Idle {
		return
	}
	select {
	case <-p.idle:
	default:
	}
	p.idle <- now
}

// ended waits for the projector's end and returns its error.
func (p *projector) ended() error {
	p.t.Helper()
	select {
	case err := <-p.done:
		p.done <- err
		return err
	case <-time.After(10 * time.Second):
		p.t.Fatal("the projector did not end")
		return nil
	}
}

// drained waits until the projector is idle at the end of the log.
func (s *stand) drained(p *projector) app.Progress {
	s.t.Helper()
	head, err := s.instance.Auditor().Head(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	timeout := time.After(10 * time.Second)
	for {
		select {
		case now := <-p.idle:
			if now.Checkpoint.Cursor.Covers(head) {
				return now
			}
		case <-timeout:
			s.t.Fatal("the projector did not come to the end of the log")
		}
	}
}

// view reads the final row of a stream by the audit's code.
func (s *stand) view(projection, key string) []byte {
	s.t.Helper()
	var state []byte
	err := s.instance.Auditor().Views(s.t.Context(), func(r history.ViewRow) error {
		if r.Projection == projection && r.Row == key {
			state = r.State
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return state
}

func (s *stand) balance() int64 {
	s.t.Helper()
	row, err := account.DecodeRow(s.view(account.View, stream))
	if err != nil {
		s.t.Fatal(err)
	}
	return row.Balance
}

// applied counts the applied ledger rows of each version of the account.
func (s *stand) applied() map[uint64]int {
	s.t.Helper()
	n := map[uint64]int{}
	err := s.instance.Auditor().Ledgers(s.t.Context(), func(r history.LedgerRow) error {
		if r.Projection == account.View && r.How == history.Applied {
			n[r.Version]++
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *stand) fillBank() {
	s.t.Helper()
	w := s.writer("writer", writerOptions{})
	w.must(bankCommand("open", account.CommandOpen, 100))
	for _, id := range []string{"d1", "d2", "d3"} {
		w.must(bankCommand(id, account.CommandDeposit, 10))
	}
	w.must(bankCommand("w1", account.CommandWithdraw, 30))
}

func wantEachOnce(t *testing.T, s *stand, events int) {
	t.Helper()
	applied := s.applied()
	for v := uint64(1); v <= uint64(events); v++ {
		if applied[v] != 1 {
			t.Errorf("version %d was applied %d times", v, applied[v])
		}
	}
	if got := s.balance(); got != 100 {
		t.Errorf("the view shows %d, the log folds to 100", got)
	}
}

func TestAProjectorCrashedAtAnyPointAppliesEachEventOnceAfterItsRestart(t *testing.T) {
	for _, p := range []points.Point{
		points.ProjectorBeforePoll, points.ProjectorAfterPoll, points.ProjectorAfterEffect,
		points.ProjectorBeforeCommit, points.ProjectorAfterCommit,
	} {
		t.Run(string(p), func(t *testing.T) {
			s := newStand(t, reference())
			s.fillBank()
			gate := newGated(p)
			gate.release <- points.ErrCrashed
			if err := s.projector("projector", projectorOptions{gate: gate}).ended(); !errors.Is(err, points.ErrCrashed) {
				t.Fatalf("the crashed projector ended with %v", err)
			}
			s.drained(s.projector("projector", projectorOptions{}))
			wantEachOnce(t, s, 6)
		})
	}
}

// The bad twins: the same crash with the projection part swapped.
func TestBrokenProjectionPartsLoseOrRepeatWhenTheyCrashBetweenTheirTransactions(t *testing.T) {
	for _, c := range []struct {
		control string
		point   points.Point
		first   int // applications of version 1
	}{
		{"cv-pr-01", points.ProjectorAfterCheckpoint, 0},
		{"cv-pr-02", points.ProjectorAfterEffect, 2},
	} {
		t.Run(c.control, func(t *testing.T) {
			s := newStand(t, control(t, c.control))
			s.fillBank()
			gate := newGated(c.point)
			gate.release <- points.ErrCrashed
			if err := s.projector("projector", projectorOptions{gate: gate}).ended(); !errors.Is(err, points.ErrCrashed) {
				t.Fatalf("the crashed projector ended with %v", err)
			}
			s.drained(s.projector("projector", projectorOptions{}))
			if n := s.applied()[1]; n != c.first {
				t.Fatalf("version 1 was applied %d times, want %d", n, c.first)
			}
		})
	}
}

// unknownOnce lets one apply end unknown: landed, not landed, or late (it lands when late is called).
type unknownOnce struct {
	eventstore.Projection
	land bool
	once sync.Once
	late func()
}

// Apply implements eventstore.Projection.
func (u *unknownOnce) Apply(ctx context.Context, b eventstore.Batch) (eventstore.Checkpoint, error) {
	hit := false
	u.once.Do(func() { hit = true })
	if !hit {
		return u.Projection.Apply(ctx, b)
	}
	unknown := &eventstore.Error{Op: "apply", Outcome: eventstore.Unknown, Reason: eventstore.LostReply}
	if u.land {
		if _, err := u.Projection.Apply(ctx, b); err != nil {
			return eventstore.Checkpoint{}, err
		}
		return eventstore.Checkpoint{}, unknown
	}
	late := context.WithoutCancel(ctx)
	u.late = func() { _, _ = u.Projection.Apply(late, b) }
	return eventstore.Checkpoint{}, unknown
}

func TestAnUnknownApplyIsNeitherLostNorRepeated(t *testing.T) {
	for _, c := range []struct {
		name    string
		control string
		land    bool
		late    bool
		first   int
	}{
		{"landed", "", true, false, 1},
		{"not landed", "", false, false, 1},
		{"landing late", "", false, true, 1},
		{"landing late without compare-and-set", "cv-pr-32", false, true, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			target := reference()
			if c.control != "" {
				target = control(t, c.control)
			}
			s := newStand(t, target)
			s.fillBank()
			var u *unknownOnce
			p := s.projector("projector", projectorOptions{batch: 10, wrap: func(inner eventstore.Projection) eventstore.Projection {
				u = &unknownOnce{Projection: inner, land: c.land}
				return u
			}})
			s.drained(p)
			if c.late {
				u.late()
			}
			if n := s.applied()[1]; n != c.first {
				t.Fatalf("version 1 was applied %d times, want %d", n, c.first)
			}
			if c.first == 1 {
				wantEachOnce(t, s, 6)
			}
		})
	}
}

func TestCompetingProjectorsApplyEachEventOnce(t *testing.T) {
	s := newStand(t, reference())
	a, b := s.projector("a", projectorOptions{batch: 1}), s.projector("b", projectorOptions{batch: 3})
	s.fillBank()
	s.drained(a)
	s.drained(b)
	wantEachOnce(t, s, 6)
}

func TestAProjectorPassesAnEventInFlightOnlyWithANaiveReader(t *testing.T) {
	for _, c := range []struct {
		control string
		covered bool // the second account's event is passed before the first one's has committed
		skipped bool
	}{{"", false, false}, {"cv-pg-01", true, true}} {
		target := reference()
		if c.control != "" {
			target = control(t, c.control)
		}
		s := newStand(t, target)
		setup := s.writer("setup", writerOptions{})
		setup.must(bankCommand("open", account.CommandOpen, 100))
		gate := newGated(points.AppendAfterInsert)
		held := s.writer("held", writerOptions{gate: gate})
		done := make(chan app.Result, 1)
		go func() { done <- held.Do(t.Context(), app.Call{Command: bankCommand("d", account.CommandDeposit, 10)}) }()
		<-gate.arrived
		other := account.Command{Name: account.CommandOpen, Account: "other", Owner: "bo"}
		setup.must(app.Command{ID: "o", Stream: account.Stream("other"), Name: other.Name, Body: other.Body()})

		p := s.projector("projector", projectorOptions{})
		now := <-p.idle
		if got := s.view(account.View, account.Stream("other")) != nil; got != c.covered {
			t.Fatalf("%s: the later event is in the view: %v, want %v", target.Name(), got, c.covered)
		}
		if (now.Held == "") != c.covered {
			t.Fatalf("%s: held by %q", target.Name(), now.Held)
		}
		gate.release <- nil
		if r := <-done; r.Result != history.ResultOK {
			t.Fatalf("the held append ended %s", r.Result)
		}
		s.drained(p)
		if skipped := s.applied()[3] == 0; skipped != c.skipped {
			t.Fatalf("%s: the held event was skipped: %v, want %v", target.Name(), skipped, c.skipped)
		}
	}
}

func TestTheViewsShowWhatTheLogFoldsTo(t *testing.T) {
	s := newStand(t, reference())
	s.fillBank()
	w := s.writer("bidder", writerOptions{domain: app.Auction()})
	w.must(auctionCommand(t, "create", auction.Command{Name: auction.CommandCreate, Amount: 100}))
	w.must(bid(t, "c1", "b1", 200))
	w.must(bid(t, "c2", "b2", 300))
	w.must(auctionCommand(t, "close", auction.Command{Name: auction.CommandClose}))
	s.drained(s.projector("balances", projectorOptions{}))
	s.drained(s.projector("high-bids", projectorOptions{view: app.HighBids()}))
	for _, c := range []struct {
		view, key, want string
	}{
		{account.View, stream, `{"balance":100,"owner":"ada","status":"open"}`},
		{account.View, "auction-x", ``},
		{auction.View, "auction-x", `{"accepted":2,"bidder":"bo","high":300,"status":"closed"}`},
		{auction.View, stream, ``},
	} {
		if got := string(s.view(c.view, c.key)); got != c.want {
			t.Errorf("row %s of %s is %s, want %s", c.key, c.view, got, c.want)
		}
	}
}
