package app_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/eventproof/eventproof/app"
	"github.com/eventproof/eventproof/app/controls"
	"github.com/eventproof/eventproof/domain/account"
	"github.com/eventproof/eventproof/domain/auction"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/points"
)

type (
	appendStep = func(context.Context, eventstore.Store, eventstore.Append) (eventstore.Appended, error)
	readStep   = func(context.Context, eventstore.Store, eventstore.ReadRequest) (eventstore.Slice, error)
)

func realRead(ctx context.Context, s eventstore.Store, r eventstore.ReadRequest) (eventstore.Slice, error) {
	return s.Read(ctx, r)
}

func noAnswer(context.Context, eventstore.Store, eventstore.ReadRequest) (eventstore.Slice, error) {
	return eventstore.Slice{}, &eventstore.Error{Op: "read", Outcome: eventstore.Fail, Reason: eventstore.LostReply}
}

// commandEvents returns the events of a command in the log.
func commandEvents(log []history.LoggedEvent, id string) []history.LoggedEvent {
	return slices.DeleteFunc(slices.Clone(log), func(e history.LoggedEvent) bool { return e.Meta.CommandID != id })
}

// wantTruth checks an ok answer against the log: its events are there and its state is the fold.
func wantTruth(t *testing.T, s *stand, d app.Domain, stream, command string, r app.Result) {
	t.Helper()
	events := commandEvents(s.logOf(stream), command)
	if len(events) != len(r.Events) || len(events) == 0 || events[len(events)-1].Version != r.Version {
		t.Fatalf("the answer names %d events up to version %d, the log has %v", len(r.Events), r.Version, events)
	}
	for i, e := range events {
		if e.ID != r.Events[i] {
			t.Fatalf("the answer names %s, the log has %s", r.Events[i], e.ID)
		}
	}
	if want := s.foldAt(d, stream, r.Version); !r.StateHash.IsZero() && r.StateHash != want {
		t.Fatalf("the answer's state at version %d is %s, the fold is %s", r.Version, r.StateHash, want)
	}
}

func TestTheLoopAfterUnknown(t *testing.T) {
	const amount = 6000
	for _, c := range []struct {
		name     string
		balance  int64
		appends  func(other *writer) []appendStep
		reads    []readStep // the first is the load
		noDedupe bool       // the store does not know requests
		deadline time.Duration
		command  string
		result   history.Result
		code     string
		sent     int // appends that went out; 0 = any number
		writes   int // different writes among them
		landed   int // events of the command in the log
		evidence []history.EvidenceForm
		replayed bool
	}{
		{
			name: "own event in the slot is the answer", balance: 10000,
			appends: func(*writer) []appendStep { return []appendStep{landsUnanswered} },
			result:  history.ResultOK, sent: 1, writes: 1, landed: 1,
			evidence: []history.EvidenceForm{history.E1OwnEvent},
		},
		{
			name: "an empty slot proves nothing and the same write is sent again", balance: 10000,
			appends: func(*writer) []appendStep { return []appendStep{lost} },
			result:  history.ResultOK, sent: 2, writes: 1, landed: 1,
		},
		{
			name: "a read without an answer proves nothing either", balance: 10000,
			appends: func(*writer) []appendStep { return []appendStep{landsUnanswered} },
			reads:   []readStep{realRead, noAnswer},
			result:  history.ResultOK, sent: 2, writes: 1, landed: 1, replayed: true,
		},
		{
			name: "without dedupe a conflict of the repeat is looked up before it is believed", balance: 10000, noDedupe: true,
			appends: func(*writer) []appendStep { return []appendStep{landsUnanswered} },
			reads:   []readStep{realRead, noAnswer},
			result:  history.ResultOK, sent: 2, writes: 1, landed: 1,
			evidence: []history.EvidenceForm{history.E1OwnEvent},
		},
		{
			name: "a slot held by another command excludes the write, and the new decision counts", balance: 20000,
			appends: func(o *writer) []appendStep {
				return []appendStep{lostThenOvertaken(o, bankCommand("other", account.CommandWithdraw, amount))}
			},
			result: history.ResultOK, sent: 2, writes: 2, landed: 1,
			evidence: []history.EvidenceForm{history.E2SlotHeld},
		},
		{
			name: "after the exclusion the business may refuse", balance: 10000,
			appends: func(o *writer) []appendStep {
				return []appendStep{lostThenOvertaken(o, bankCommand("other", account.CommandWithdraw, amount))}
			},
			result: history.ResultRefused, code: account.InsufficientFunds, sent: 1, writes: 1, landed: 0,
			evidence: []history.EvidenceForm{history.E2SlotHeld},
		},
		{
			name: "a retriable failure repeats the write without a lookup", balance: 10000,
			appends: func(*writer) []appendStep {
				return []appendStep{fails(eventstore.Throttled), fails(eventstore.TransactionConflict), fails(eventstore.NotSent)}
			},
			result: history.ResultOK, sent: 4, writes: 1, landed: 1,
		},
		{
			name: "a definite refusal of the only try fails the command", balance: 10000,
			appends: func(*writer) []appendStep { return []appendStep{fails(eventstore.Rejected)} },
			result:  history.ResultFailed, code: app.CodeFailed, sent: 1, writes: 1, landed: 0,
		},
		{
			name: "a definite refusal of the second try says nothing about the first", balance: 10000,
			appends: func(*writer) []appendStep { return []appendStep{landsUnanswered, fails(eventstore.Rejected)} },
			reads:   []readStep{realRead, noAnswer},
			result:  history.ResultOK, sent: 2, writes: 1, landed: 1,
			evidence: []history.EvidenceForm{history.E1OwnEvent},
		},
		{
			name: "the deadline ends in unknown, never in a failure", balance: 10000, deadline: 80 * time.Millisecond,
			appends: func(*writer) []appendStep { return slices.Repeat([]appendStep{lost}, 1000) },
			result:  history.ResultUnknown, code: app.CodeUnknown, writes: 1, landed: 0,
		},
		{
			name: "a blind write is repeated where requests are known", balance: 10000, command: account.CommandBlindDeposit,
			appends: func(*writer) []appendStep { return []appendStep{landsUnanswered} },
			result:  history.ResultOK, sent: 2, writes: 1, landed: 1, replayed: true,
		},
		{
			name: "a blind write is unknown at once where they are not", balance: 10000, command: account.CommandBlindDeposit, noDedupe: true,
			appends: func(*writer) []appendStep { return []appendStep{landsUnanswered} },
			result:  history.ResultUnknown, code: app.CodeUnknown, sent: 1, writes: 1, landed: 1,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStand(t, reference())
			other := s.writer("other", writerOptions{})
			other.must(bankCommand("open", account.CommandOpen, c.balance))
			script := &scripted{appends: c.appends(other), reads: c.reads}
			w := s.writer("writer", writerOptions{
				blind: c.noDedupe, deadline: c.deadline,
				wrap: func(inner eventstore.Store) eventstore.Store {
					if c.noDedupe {
						inner = forgetful{inner}
					}
					script.Store = inner
					return script
				},
			})
			name := c.command
			if name == "" {
				name = account.CommandWithdraw
			}
			r := w.do(bankCommand("c", name, amount))
			if r.Result != c.result || r.Code != c.code || r.Replayed != c.replayed {
				t.Fatalf("answered %s %q replayed %v (%v), want %s %q replayed %v", r.Result, r.Code, r.Replayed, r.Err, c.result, c.code, c.replayed)
			}
			if c.sent != 0 && len(script.sent) != c.sent {
				t.Errorf("%d appends were sent, want %d", len(script.sent), c.sent)
			}
			writes := map[eventstore.EventID]bool{}
			for _, a := range script.sent {
				writes[a.Events[0].ID] = true
				if a.Request != "c" {
					t.Errorf("an append carried the request %q, want the command id", a.Request)
				}
			}
			if len(writes) != c.writes {
				t.Errorf("%d writes were made, want %d", len(writes), c.writes)
			}
			if n := len(commandEvents(s.logOf(stream), "c")); n != c.landed {
				t.Errorf("the command has %d events in the log, want %d", n, c.landed)
			}
			var forms []history.EvidenceForm
			for _, e := range w.evidence() {
				forms = append(forms, e.Form)
				if e.Read == 0 {
					t.Errorf("evidence %s names no read", e.Form)
				}
			}
			if !slices.Equal(forms, c.evidence) {
				t.Errorf("evidence %v, want %v", forms, c.evidence)
			}
			if r.Result == history.ResultOK {
				wantTruth(t, s, app.Bank(), stream, "c", r)
			}
		})
	}
}

// The bad twins: the same lost reply, with the retry part swapped.
func TestBrokenRetryPartsDoWhatTheirControlsSay(t *testing.T) {
	for _, c := range []struct {
		part    string
		balance int64
		result  history.Result
		code    string
		landed  int
	}{
		{app.RepeatWrite, 20000, history.ResultOK, "", 1},
		{app.RepeatWrite, 10000, history.ResultOK, "", 1},
		{controls.RerunNewIDs, 20000, history.ResultOK, "", 2},
		{controls.ReloadAndRefuse, 10000, history.ResultRefused, account.InsufficientFunds, 1},
	} {
		t.Run(c.part, func(t *testing.T) {
			s := newStand(t, reference())
			script := &scripted{appends: []appendStep{nil, landsUnanswered}}
			script.appends[0] = func(ctx context.Context, s eventstore.Store, a eventstore.Append) (eventstore.Appended, error) {
				return s.Append(ctx, a)
			}
			w := s.writer("writer", writerOptions{
				policy: policy(t, controls.Parts(), c.part, ""),
				wrap:   func(inner eventstore.Store) eventstore.Store { script.Store = inner; return script },
			})
			w.must(bankCommand("open", account.CommandOpen, c.balance))
			r := w.do(bankCommand("c", account.CommandWithdraw, 6000))
			if r.Result != c.result || r.Code != c.code {
				t.Fatalf("answered %s %s (%v), want %s %s", r.Result, r.Code, r.Err, c.result, c.code)
			}
			if n := len(commandEvents(s.logOf(stream), "c")); n != c.landed {
				t.Fatalf("the command has %d events in the log, want %d", n, c.landed)
			}
		})
	}
}

func TestAnUnknownPartIsRefusedWithTheKnownOnes(t *testing.T) {
	if _, err := app.DefaultParts().Resolve(app.Choice{Retry: "no-such-part"}); !errors.Is(err, app.ErrUnknownPart) {
		t.Fatalf("got %v", err)
	}
	if _, err := app.DefaultParts().Resolve(app.Choice{Continue: controls.TailOnly}); !errors.Is(err, app.ErrUnknownPart) {
		t.Fatalf("the correct registry knows a broken part: %v", err)
	}
}

// gated holds the first visitor of a point until it is released.
type gated struct {
	point    points.Point
	arrived  chan struct{}
	release  chan error
	once     sync.Once
	restless bool // hold every visit
}

func newGated(p points.Point) *gated {
	return &gated{point: p, arrived: make(chan struct{}), release: make(chan error, 1)}
}

// At implements points.Gate.
func (g *gated) At(ctx context.Context, p points.Point, _ uint64) error {
	if p != g.point {
		return nil
	}
	first := false
	g.once.Do(func() { first = true; close(g.arrived) })
	if !first && !g.restless {
		return nil
	}
	select {
	case err := <-g.release:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestOfTwoWithdrawalsOnOneVersionTheLoserSeesTheRestAndIsRefused(t *testing.T) {
	for _, held := range []points.Point{points.WriterAfterDecide, points.AppendAfterHead, points.AppendAfterInsert} {
		t.Run(string(held), func(t *testing.T) {
			s := newStand(t, reference())
			gate := newGated(held)
			first := s.writer("first", writerOptions{gate: gate})
			second := s.writer("second", writerOptions{})
			second.must(bankCommand("open", account.CommandOpen, 10000))

			results := make(chan app.Result, 2)
			go func() {
				results <- first.Do(t.Context(), app.Call{Command: bankCommand("one", account.CommandWithdraw, 6000)})
			}()
			<-gate.arrived
			go func() {
				results <- second.Do(t.Context(), app.Call{Command: bankCommand("two", account.CommandWithdraw, 6000)})
			}()
			if held == points.AppendAfterInsert {
				// The first holds the slot: the second waits for it.
				gate.release <- nil
			}
			a := <-results
			if held != points.AppendAfterInsert {
				gate.release <- nil
			}
			b := <-results
			if a.Result != history.ResultOK {
				a, b = b, a
			}
			if a.Result != history.ResultOK || b.Result != history.ResultRefused || b.Code != account.InsufficientFunds {
				t.Fatalf("answered %s %s and %s %s", a.Result, a.Code, b.Result, b.Code)
			}
			raced := held != points.AppendAfterInsert // there the second may also load after the first has committed
			if b.Have != 4000 || b.Want != 6000 || b.Decision.Basis != 3 || raced && b.Conflicts != 1 {
				t.Fatalf("the loser saw %d of %d wanted, after %d conflicts, at version %d", b.Have, b.Want, b.Conflicts, b.Decision.Basis)
			}
			if b.Decision.Hash != s.foldAt(app.Bank(), stream, 3) || b.Decision.Read == 0 {
				t.Fatal("the refusal does not show what it was decided on")
			}
		})
	}
}

func TestFiveConflictsExhaustACall(t *testing.T) {
	for _, conflicts := range []int{app.MaxDecisions - 1, app.MaxDecisions} {
		s := newStand(t, reference())
		other := s.writer("other", writerOptions{})
		other.must(bankCommand("open", account.CommandOpen, 100))
		script := &scripted{}
		for i := range conflicts {
			script.appends = append(script.appends, overtaken(other, bankCommand("o"+string(rune('a'+i)), account.CommandDeposit, 1)))
		}
		w := s.writer("writer", writerOptions{wrap: func(inner eventstore.Store) eventstore.Store { script.Store = inner; return script }})
		r := w.do(bankCommand("c", account.CommandDeposit, 5))
		want := history.ResultOK
		if conflicts == app.MaxDecisions {
			want = history.ResultExhausted
		}
		if r.Result != want || r.Conflicts != uint32(conflicts) {
			t.Fatalf("after %d conflicts: %s %s with %d counted", conflicts, r.Result, r.Code, r.Conflicts)
		}
		if landed := len(commandEvents(s.logOf(stream), "c")); (landed == 1) != (want == history.ResultOK) {
			t.Fatalf("after %d conflicts the command has %d events", conflicts, landed)
		}
		if want == history.ResultOK {
			wantTruth(t, s, app.Bank(), stream, "c", r)
		}
	}
}

func TestAConflictWithTheCommandsOwnEventEndsOK(t *testing.T) {
	s := newStand(t, reference())
	setup := s.writer("setup", writerOptions{})
	setup.must(bankCommand("open", account.CommandOpen, 10000))
	// Another call of the same command lands between this call's load and its append; the store knows no
	// requests, so the append ends in a conflict.
	script := &scripted{appends: []appendStep{overtaken(setup, bankCommand("c", account.CommandWithdraw, 6000))}}
	w := s.writer("writer", writerOptions{
		blind: true,
		wrap:  func(inner eventstore.Store) eventstore.Store { script.Store = forgetful{inner}; return script },
	})
	r := w.call(app.Call{Command: bankCommand("c", account.CommandWithdraw, 6000), Continued: true})
	if r.Result != history.ResultOK || r.Conflicts != 1 {
		t.Fatalf("answered %s %s after %d conflicts (%v)", r.Result, r.Code, r.Conflicts, r.Err)
	}
	wantTruth(t, s, app.Bank(), stream, "c", r)
}

func TestABidAgainIsAnsweredWithItsFirstAcceptance(t *testing.T) {
	for _, snapshots := range []uint64{0, 2} {
		s := newStand(t, reference())
		w := s.writer("writer", writerOptions{domain: app.Auction(), every: snapshots})
		create := auctionCommand(t, "create", auction.Command{Name: auction.CommandCreate, Amount: 100})
		w.must(create)
		first := w.must(bid(t, "c1", "b1", 200))
		if first.Want != 200 || first.At == 0 || first.Replayed {
			t.Fatalf("accepted with %+v", first.CallEnd)
		}
		w.must(bid(t, "c2", "b2", 300))
		again := w.must(bid(t, "c1", "b1", 200))
		if !again.Replayed || again.Want != 200 || again.At != first.At || again.Version != first.Version || !slices.Equal(again.Events, first.Events) {
			t.Fatalf("the replay was answered with %+v, the bid with %+v", again.CallEnd, first.CallEnd)
		}
		stale := w.do(bid(t, "c3", "b3", 250))
		if stale.Result != history.ResultRefused || stale.Code != auction.StaleBid || stale.Have != 300 {
			t.Fatalf("a lower bid was answered with %+v", stale.CallEnd)
		}
		altered := w.do(bid(t, "c4", "b1", 400))
		if altered.Result != history.ResultRefused || altered.Code != auction.InvalidPayload {
			t.Fatalf("the same bid with another body was answered with %+v", altered.CallEnd)
		}
		if n := len(s.logOf(create.Stream)); n != 3 {
			t.Fatalf("the auction has %d events, want 3", n)
		}
	}
}

func TestAReplayedAppendAnswersWithTheFirstExecution(t *testing.T) {
	s := newStand(t, reference())
	first := s.writer("first", writerOptions{domain: app.Auction()})
	first.must(auctionCommand(t, "create", auction.Command{Name: auction.CommandCreate, Amount: 100}))
	var accepted app.Result
	// The command is executed by another process between this one's load and its append.
	script := &scripted{appends: []appendStep{func(ctx context.Context, s eventstore.Store, a eventstore.Append) (eventstore.Appended, error) {
		time.Sleep(2 * time.Millisecond) // acceptedAt counts milliseconds: the two decisions must differ in it
		accepted = first.must(bid(t, "c", "b1", 200))
		first.must(bid(t, "d", "b2", 300))
		return s.Append(ctx, a)
	}}}
	w := s.writer("writer", writerOptions{
		domain: app.Auction(), wrap: func(inner eventstore.Store) eventstore.Store { script.Store = inner; return script },
	})
	r := w.must(bid(t, "c", "b1", 200))
	if !r.Replayed || r.Version != accepted.Version || r.At != accepted.At || !slices.Equal(r.Events, accepted.Events) {
		t.Fatalf("answered %+v, the first execution %+v", r.CallEnd, accepted.CallEnd)
	}
	if r.StateHash != accepted.StateHash {
		t.Fatal("the replayed answer's state is not the one at its version")
	}
}

func TestAContinuedCommandIsLookedForInTheWholeStream(t *testing.T) {
	for _, c := range []struct {
		part   string
		landed bool
		want   int
	}{
		{app.WholeStream, true, 1}, {app.WholeStream, false, 1}, {controls.TailOnly, true, 2}, {controls.TailOnly, false, 1},
	} {
		s := newStand(t, reference())
		other := s.writer("other", writerOptions{every: 2})
		other.must(bankCommand("open", account.CommandOpen, 50000))
		gate := newGated(points.AppendAfterInsert)
		if c.landed {
			gate = newGated(points.WriterAfterUnknown)
		}
		killed := s.writer("killed", writerOptions{gate: gate, wrap: func(inner eventstore.Store) eventstore.Store {
			if !c.landed {
				return inner
			}
			return &scripted{Store: inner, appends: []appendStep{landsUnanswered}}
		}})
		done := make(chan app.Result, 1)
		go func() {
			done <- killed.Do(t.Context(), app.Call{Command: bankCommand("c", account.CommandWithdraw, 6000)})
		}()
		<-gate.arrived
		gate.release <- points.ErrCrashed
		if r := <-done; r.Answered || !errors.Is(r.Err, points.ErrCrashed) {
			t.Fatalf("the crashed call was answered: %+v", r)
		}
		for _, id := range []string{"o1", "o2", "o3"} {
			other.must(bankCommand(id, account.CommandDeposit, 1)) // a snapshot at 4 or later hides the withdrawal
		}
		next := s.writer("next", writerOptions{every: 2, policy: policy(t, controls.Parts(), "", c.part)})
		r := next.call(app.Call{Command: bankCommand("c", account.CommandWithdraw, 6000), Continued: true})
		if r.Result != history.ResultOK {
			t.Fatalf("%s, landed %v: answered %s %s (%v)", c.part, c.landed, r.Result, r.Code, r.Err)
		}
		if n := len(commandEvents(s.logOf(stream), "c")); n != c.want {
			t.Fatalf("%s, landed %v: the command has %d events, want %d", c.part, c.landed, n, c.want)
		}
		if c.part == app.WholeStream {
			wantTruth(t, s, app.Bank(), stream, "c", r)
		}
	}
}

type failingSnapshots struct{ eventstore.Snapshots }

var errDisk = errors.New("disk full")

func (failingSnapshots) LoadSnapshot(context.Context, string) (eventstore.Snapshot, bool, error) {
	return eventstore.Snapshot{}, false, errDisk
}
func (failingSnapshots) SaveSnapshot(context.Context, eventstore.Snapshot) error { return errDisk }

type garbageSnapshots struct{ eventstore.Snapshots }

func (garbageSnapshots) LoadSnapshot(_ context.Context, stream string) (eventstore.Snapshot, bool, error) {
	return eventstore.Snapshot{Stream: stream, Version: 2, State: []byte("rubbish")}, true, nil
}

func TestSnapshotsNeverFailACommand(t *testing.T) {
	for _, c := range []struct {
		name string
		wrap func(eventstore.Snapshots) eventstore.Snapshots
		good bool
	}{
		{"good", func(s eventstore.Snapshots) eventstore.Snapshots { return s }, true},
		{"failing", func(s eventstore.Snapshots) eventstore.Snapshots { return failingSnapshots{s} }, false},
		{"garbage", func(s eventstore.Snapshots) eventstore.Snapshots { return garbageSnapshots{s} }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStand(t, reference())
			script := &scripted{}
			w := s.writer("writer", writerOptions{every: 2, wrapSnap: c.wrap, wrap: func(inner eventstore.Store) eventstore.Store { script.Store = inner; return script }})
			w.must(bankCommand("open", account.CommandOpen, 100)) // versions 1 and 2
			for _, id := range []string{"d1", "d2", "d3"} {
				r := w.must(bankCommand(id, account.CommandDeposit, 1))
				wantTruth(t, s, app.Bank(), stream, id, r)
			}
			if (w.SnapshotFailures() == 0) != c.good {
				t.Fatalf("%d failures were counted", w.SnapshotFailures())
			}
			if last := script.asked[len(script.asked)-1]; (last.From > 1) != c.good {
				t.Fatalf("the last load began at version %d", last.From)
			}
		})
	}
}

func TestACrashAtAnyPointAnswersNothing(t *testing.T) {
	for _, p := range []points.Point{
		points.WriterBeforeLoad, points.WriterAfterDecide, points.WriterBeforeAnswer, points.SnapshotBeforePut,
		points.AppendBegin, points.AppendBeforeHead, points.AppendAfterHead, points.AppendAfterInsert, points.AppendAfterCommit,
	} {
		t.Run(string(p), func(t *testing.T) {
			s := newStand(t, reference())
			gate := newGated(p)
			gate.release <- points.ErrCrashed
			w := s.writer("writer", writerOptions{gate: gate, every: 1})
			r := w.Do(t.Context(), app.Call{Command: bankCommand("open", account.CommandOpen, 1)})
			if r.Answered || !errors.Is(r.Err, points.ErrCrashed) {
				t.Fatalf("answered %v %+v", r.Answered, r)
			}
			for _, rec := range w.records() {
				if _, ok := rec.(*history.CallEnd); ok {
					t.Fatal("the history shows an answer")
				}
			}
		})
	}
}

func TestACommandAboutAnotherStreamFails(t *testing.T) {
	s := newStand(t, reference())
	w := s.writer("writer", writerOptions{})
	r := w.do(app.Command{ID: "c", Stream: stream, Name: account.CommandDeposit, Body: []byte(`{"account":"b","amount":1}`)})
	if r.Result != history.ResultFailed {
		t.Fatalf("a command about another account than its stream's was answered %s", r.Result)
	}
}
