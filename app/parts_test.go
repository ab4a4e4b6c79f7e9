package app_test

import (
	"fmt"
	"testing"

	"github.com/eventproof/eventproof/app"
	"github.com/eventproof/eventproof/app/controls"
	"github.com/eventproof/eventproof/domain/account"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
)

func choose(t *testing.T, c app.Choice) app.Policy {
	t.Helper()
	p, err := controls.Parts().Resolve(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestWhatTheConflictPartsAppendAfterALostRace(t *testing.T) {
	for _, c := range []struct {
		part   string
		result history.Result
		events int // of the loser's command
	}{
		{"", history.ResultRefused, 0}, {app.ReloadAndDecide, history.ResultRefused, 0}, {controls.BumpVersion, history.ResultOK, 1},
	} {
		t.Run("withdrawal, "+c.part, func(t *testing.T) {
			s := newStand(t, reference())
			other := s.writer("other", writerOptions{})
			other.must(bankCommand("open", account.CommandOpen, 10000))
			loser := s.writer("loser", writerOptions{policy: choose(t, app.Choice{Conflict: c.part}), wrap: func(inner eventstore.Store) eventstore.Store {
				return &scripted{Store: inner, appends: []appendStep{overtaken(other, bankCommand("o", account.CommandWithdraw, 6000))}}
			}})
			r := loser.do(bankCommand("c", account.CommandWithdraw, 6000))
			if n := len(commandEvents(s.logOf(stream), "c")); r.Result != c.result || n != c.events {
				t.Errorf("ended %s %s with %d events", r.Result, r.Code, n)
			}
		})
	}
	for part, want := range map[string]int{app.ReloadAndDecide: 1, controls.KeepPending: 2} {
		t.Run("deposit, "+part, func(t *testing.T) {
			s := newStand(t, reference())
			other := s.writer("other", writerOptions{})
			other.must(bankCommand("open", account.CommandOpen, 10000))
			loser := s.writer("loser", writerOptions{policy: choose(t, app.Choice{Conflict: part}), wrap: func(inner eventstore.Store) eventstore.Store {
				return &scripted{Store: inner, appends: []appendStep{overtaken(other, bankCommand("o", account.CommandDeposit, 5))}}
			}})
			loser.must(bankCommand("c", account.CommandDeposit, 10))
			if n := len(commandEvents(s.logOf(stream), "c")); n != want {
				t.Errorf("the command has %d events, want %d", n, want)
			}
		})
	}
}

func TestAWriteSentInPlaceOfAnotherUsesTheBudgetToo(t *testing.T) {
	for _, part := range []string{app.ReloadAndDecide, controls.BumpVersion, controls.KeepPending} {
		t.Run(part, func(t *testing.T) {
			s := newStand(t, reference())
			other := s.writer("other", writerOptions{})
			other.must(bankCommand("open", account.CommandOpen, 10000))
			script := &scripted{}
			for i := range app.MaxDecisions {
				script.appends = append(script.appends, overtaken(other, bankCommand(fmt.Sprint("o", i), account.CommandDeposit, 1)))
			}
			w := s.writer("loser", writerOptions{policy: choose(t, app.Choice{Conflict: part}), wrap: func(inner eventstore.Store) eventstore.Store {
				script.Store = inner
				return script
			}})
			r := w.do(bankCommand("c", account.CommandDeposit, 10))
			if r.Result != history.ResultExhausted || r.Conflicts != app.MaxDecisions || len(script.sent) != app.MaxDecisions {
				t.Errorf("ended %s after %d conflicts and %d appends", r.Result, r.Conflicts, len(script.sent))
			}
		})
	}
}

func TestWhichVersionAndBalanceTheSnapshotPartsPut(t *testing.T) {
	for _, c := range []struct {
		part    string
		version uint64
		balance int64
	}{
		{app.BestEffort, 4, 103}, {controls.LabelHigh, 5, 103}, {controls.LabelLow, 3, 103}, {controls.FromCopy, 4, 101},
		{controls.Speculative, 4, 103}, {controls.LateLabel, 4, 103}, {controls.MustSave, 4, 103}, {controls.EmptyBase, 4, 103},
	} {
		t.Run(c.part, func(t *testing.T) {
			s := newStand(t, reference())
			s.writer("opener", writerOptions{}).must(bankCommand("open", account.CommandOpen, 100)) // versions 1 and 2
			w := s.writer("writer", writerOptions{every: 4, policy: choose(t, app.Choice{Snapshot: c.part})})
			w.must(bankCommand("d1", account.CommandDeposit, 1))
			w.must(bankCommand("d2", account.CommandDeposit, 2))
			snap, found, err := s.session("reader", nil).Snapshots().LoadSnapshot(t.Context(), stream)
			if err != nil || !found {
				t.Fatalf("found %v, %v", found, err)
			}
			state, err := account.DecodeState(snap.State)
			if err != nil || snap.Version != c.version || state.Version != c.version || state.Balance != c.balance {
				t.Errorf("put at %d: %+v, %v", snap.Version, state, err)
			}
		})
	}
}

func TestOnlyThePartThatInsistsOnASnapshotFailsForWantOfOne(t *testing.T) {
	for part, want := range map[string]history.Result{
		app.BestEffort: history.ResultOK, controls.LabelHigh: history.ResultOK, controls.Speculative: history.ResultOK,
		controls.MustSave: history.ResultFailed,
	} {
		t.Run(part, func(t *testing.T) {
			s := newStand(t, reference())
			w := s.writer("writer", writerOptions{every: 2, policy: choose(t, app.Choice{Snapshot: part}), wrapSnap: func(in eventstore.Snapshots) eventstore.Snapshots {
				return failingSnapshots{in}
			}})
			if r := w.do(bankCommand("open", account.CommandOpen, 100)); r.Result != want {
				t.Errorf("ended %s %s (%v)", r.Result, r.Code, r.Err)
			}
			if n := len(s.logOf(stream)); n != 2 {
				t.Errorf("%d events", n)
			}
		})
	}
}

func TestASnapshotThatCanNotBePutDoesNotMakeAContinuedCallFailed(t *testing.T) {
	s := newStand(t, reference())
	s.writer("opener", writerOptions{}).must(bankCommand("open", account.CommandOpen, 100))
	w := s.writer("writer", writerOptions{every: 1, policy: choose(t, app.Choice{Snapshot: controls.MustSave}), wrapSnap: func(in eventstore.Snapshots) eventstore.Snapshots {
		return failingSnapshots{in}
	}})
	// Nothing is known of what the first call had sent.
	r := w.call(app.Call{Command: bankCommand("c", account.CommandDeposit, 1), Continued: true})
	if r.Result != history.ResultUnknown {
		t.Errorf("ended %s %s", r.Result, r.Code)
	}
}

func TestAVersionThatTheCallerDemandsIsNotDecidedAgain(t *testing.T) {
	demand := func(v uint64) app.Command {
		c := bankCommand("c", account.CommandBlindDeposit, 5)
		c.Expected = &v
		return c
	}
	for _, c := range []struct {
		name    string
		version uint64
		first   appendStep
		want    history.Result
		events  int
	}{
		{"it is the head", 2, nil, history.ResultOK, 1},
		{"it is behind", 1, nil, history.ResultFailed, 0},
		{"it is ahead", 5, nil, history.ResultFailed, 0},
		{"the reply is lost", 2, landsUnanswered, history.ResultOK, 1},
		{"the request is lost", 2, lost, history.ResultOK, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStand(t, reference())
			s.writer("opener", writerOptions{}).must(bankCommand("open", account.CommandOpen, 100))
			w := s.writer("writer", writerOptions{wrap: func(inner eventstore.Store) eventstore.Store {
				script := &scripted{Store: inner}
				if c.first != nil {
					script.appends = []appendStep{c.first}
				}
				return script
			}})
			r := w.do(demand(c.version))
			if n := len(commandEvents(s.logOf(stream), "c")); r.Result != c.want || n != c.events {
				t.Errorf("ended %s %s (%v) with %d events", r.Result, r.Code, r.Err, n)
			}
		})
	}
	t.Run("the request is lost and another takes the version", func(t *testing.T) {
		s := newStand(t, reference())
		other := s.writer("other", writerOptions{})
		other.must(bankCommand("open", account.CommandOpen, 100))
		w := s.writer("writer", writerOptions{wrap: func(inner eventstore.Store) eventstore.Store {
			return &scripted{Store: inner, appends: []appendStep{lostThenOvertaken(other, bankCommand("o", account.CommandDeposit, 1))}}
		}})
		if r := w.do(demand(2)); r.Result != history.ResultFailed || len(commandEvents(s.logOf(stream), "c")) != 0 {
			t.Errorf("ended %s %s (%v)", r.Result, r.Code, r.Err)
		}
	})
}
