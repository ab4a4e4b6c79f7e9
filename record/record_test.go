package record_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/record"
)

// ticks is a clock whose every look is one later, so that the order of stamps shows.
type ticks struct{ n atomic.Int64 }

func (t *ticks) Now() int64    { return t.n.Add(1) }
func (*ticks) Wall() time.Time { return time.Time{} }

// scripted is a store, snapshots, feed and projection whose answers a test sets.
type scripted struct {
	append func(ctx context.Context, a eventstore.Append) (eventstore.Appended, error)
	slice  eventstore.Slice
	page   eventstore.Page
	err    error
	cp     eventstore.Checkpoint
	during func()
	calls  int
}

func (s *scripted) called() {
	s.calls++
	if s.during != nil {
		s.during()
	}
}

func (s *scripted) Append(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	s.called()
	if s.append == nil {
		return eventstore.Appended{}, s.err
	}
	return s.append(ctx, a)
}

func (s *scripted) Read(context.Context, eventstore.ReadRequest) (eventstore.Slice, error) {
	s.called()
	return s.slice, s.err
}

func (s *scripted) LoadSnapshot(context.Context, string) (eventstore.Snapshot, bool, error) {
	return eventstore.Snapshot{}, false, nil
}

func (s *scripted) SaveSnapshot(context.Context, eventstore.Snapshot) error {
	s.called()
	return s.err
}

func (s *scripted) Poll(context.Context, eventstore.Cursor, int) (eventstore.Page, error) {
	s.called()
	return s.page, s.err
}

func (s *scripted) Claim(context.Context) (eventstore.Checkpoint, error) { return s.cp, s.err }
func (s *scripted) Load(context.Context) (eventstore.Checkpoint, error)  { return s.cp, s.err }

func (s *scripted) Apply(ctx context.Context, _ eventstore.Batch) (eventstore.Checkpoint, error) {
	s.called()
	eventstore.TraceFrom(ctx).Session("projector/1")
	return s.cp, s.err
}

func (s *scripted) Row(context.Context, string) ([]byte, uint64, bool, error) {
	return nil, 0, false, nil
}

// bed is a recorder on a segment of its own.
type bed struct {
	path string
	w    *history.Writer
	r    *record.Recorder
}

func newBed(t testing.TB) *bed {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a"+history.SegmentExt)
	w, err := history.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return &bed{path, w, record.New(w, &ticks{}, 7)}
}

func (b *bed) begin(t testing.TB) (context.Context, *record.Call) {
	t.Helper()
	ctx, c, err := b.r.Begin(context.Background(), record.CallInfo{CommandID: "c-1", Stream: "account-1", Name: "withdraw", Body: []byte(`{}`), Session: 3})
	if err != nil {
		t.Fatal(err)
	}
	return ctx, c
}

func (b *bed) records(t testing.TB) []history.Record {
	t.Helper()
	r, err := history.Open(b.path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var out []history.Record
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, rec)
	}
}

func (b *bed) kinds(t testing.TB) string {
	t.Helper()
	s := ""
	for _, rec := range b.records(t) {
		s += rec.Kind().String() + " "
	}
	return s
}

func find[T history.Record](t testing.TB, recs []history.Record) []T {
	t.Helper()
	var out []T
	for _, rec := range recs {
		if r, ok := rec.(T); ok {
			out = append(out, r)
		}
	}
	return out
}

func withdrawal(id byte, expected uint64) eventstore.Append {
	return eventstore.Append{
		Stream: "account-1", Expected: eventstore.Exact(expected), Request: "c-1",
		Events:   []eventstore.NewEvent{{ID: eventstore.EventID{id}, Type: "FundsWithdrawn", Data: []byte(`{"amount":6000}`)}},
		Decision: eventstore.Decision{Basis: expected, Read: 9, Now: 1},
	}
}

func TestWriteAndInvokeAreInTheFileBeforeTheStoreIsAsked(t *testing.T) {
	b := newBed(t)
	ctx, call := b.begin(t)
	inner := &scripted{}
	inner.append = func(context.Context, eventstore.Append) (eventstore.Appended, error) {
		if got := b.kinds(t); got != "call-start write invoke " {
			t.Errorf("on disk when the store is asked: %s", got)
		}
		return eventstore.Appended{First: 6, Last: 6, Events: []eventstore.EventID{{1}}, Positions: []eventstore.Position{{Minor: 4}}}, nil
	}
	ans, err := record.Store(inner, b.r).Append(ctx, withdrawal(1, 5))
	if err != nil || ans.First != 6 {
		t.Fatalf("%+v, %v", ans, err)
	}
	if err := call.End(history.CallEnd{Result: history.ResultOK, Version: 6}); err != nil {
		t.Fatal(err)
	}
	if got := b.kinds(t); got != "call-start write invoke return call-end " {
		t.Fatal(got)
	}
	recs := b.records(t)
	start, w, inv, ret, end := recs[0].(*history.CallStart), recs[1].(*history.Write), recs[2].(*history.Invoke), recs[3].(*history.Return), recs[4].(*history.CallEnd)
	if start.Process != 7 || start.Session != 3 || start.Started == 0 || history.ProcessOf(start.Call) != 7 {
		t.Errorf("start %+v", start)
	}
	if w.Call != start.Call || w.Expected != 5 || w.Any || w.Request != "c-1" || w.Decision.Read != 9 ||
		w.Events[0] != (history.WriteEvent{ID: eventstore.EventID{1}, Type: "FundsWithdrawn", Payload: eventstore.PayloadHash("FundsWithdrawn", []byte(`{"amount":6000}`))}) {
		t.Errorf("write %+v", w)
	}
	if inv.Write != w.Write || ret.Attempt != inv.Attempt || end.Call != start.Call {
		t.Errorf("links: %+v %+v %+v", inv, ret, end)
	}
	if start.Started >= inv.T || inv.T >= ret.T || ret.T >= end.T {
		t.Errorf("stamps %d %d %d %d", start.Started, inv.T, ret.T, end.T)
	}
	if ret.Outcome != eventstore.OK || ret.First != 6 || len(ret.Positions) != 1 {
		t.Errorf("return %+v", ret)
	}
	if got, want := b.r.Counts(), (record.Counts{Calls: 1, Writes: 1, Attempts: 1}); got != want {
		t.Errorf("counts %+v", got)
	}
}

func TestABlindRetryIsTheSameWriteAndAnythingElseIsNot(t *testing.T) {
	other := withdrawal(1, 5)
	other.Events[0].Data = []byte(`{"amount":1}`)
	longer := withdrawal(1, 5)
	longer.Events = append(longer.Events, eventstore.NewEvent{ID: eventstore.EventID{2}})
	blind := withdrawal(1, 5)
	blind.Expected = eventstore.Any()
	token := withdrawal(1, 5)
	token.Request = "another"
	for name, c := range map[string]struct {
		again  eventstore.Append
		writes int
	}{
		"the same append":        {withdrawal(1, 5), 1},
		"a re-decision":          {withdrawal(2, 6), 2},
		"a bumped version":       {withdrawal(1, 6), 2},
		"another payload":        {other, 2},
		"more events":            {longer, 2},
		"no expected version":    {blind, 2},
		"another request":        {token, 2},
		"an append of no events": {eventstore.Append{}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			ctx, _ := b.begin(t)
			st := record.Store(&scripted{err: &eventstore.Error{Op: "append", Reason: eventstore.LostReply}}, b.r)
			for _, a := range []eventstore.Append{withdrawal(1, 5), c.again} {
				if _, err := st.Append(ctx, a); err == nil {
					t.Fatal("no error")
				}
			}
			recs := b.records(t)
			writes, invokes := find[*history.Write](t, recs), find[*history.Invoke](t, recs)
			if len(writes) != c.writes || len(invokes) != 2 {
				t.Fatalf("%d writes, %d attempts", len(writes), len(invokes))
			}
			if invokes[0].Attempt == invokes[1].Attempt || invokes[1].Write != writes[len(writes)-1].Write {
				t.Errorf("attempts %+v %+v", invokes[0], invokes[1])
			}
			if got := b.r.Counts(); int(got.Writes) != c.writes || got.Attempts != 2 {
				t.Errorf("counts %+v", got)
			}
		})
	}
}

func TestTheSameAppendInAnotherCallIsAWriteOfItsOwn(t *testing.T) {
	b := newBed(t)
	st := record.Store(&scripted{}, b.r)
	for range 2 {
		ctx, _ := b.begin(t)
		if _, err := st.Append(ctx, withdrawal(1, 5)); err != nil {
			t.Fatal(err)
		}
	}
	if w := find[*history.Write](t, b.records(t)); len(w) != 2 || w[0].Call == w[1].Call {
		t.Errorf("writes %+v", w)
	}
}

func TestReturnsSayWhatTheAdapterTold(t *testing.T) {
	b := newBed(t)
	ctx, _ := b.begin(t)
	outer := ""
	ctx = eventstore.WithTrace(ctx, &eventstore.Trace{Session: func(s string) { outer = s }})
	inner := &scripted{append: func(ctx context.Context, _ eventstore.Append) (eventstore.Appended, error) {
		tr := eventstore.TraceFrom(ctx)
		tr.Session("writer-1/3")
		tr.RoundTrips(4)
		tr.DriverRetry()
		tr.Transaction(12)
		return eventstore.Appended{}, fmt.Errorf("wrapped: %w", &eventstore.Error{Op: "append", Outcome: eventstore.Fail, Reason: eventstore.VersionConflict, Head: 8, HeadKnown: true})
	}}
	_, err := record.Store(inner, b.r).Append(ctx, withdrawal(1, 5))
	if outcome, reason := eventstore.Classify(err); outcome != eventstore.Fail || reason != eventstore.VersionConflict {
		t.Errorf("answer %v", err)
	}
	ret := find[*history.Return](t, b.records(t))[0]
	if ret.Outcome != eventstore.Fail || ret.Reason != eventstore.VersionConflict || ret.Head != 8 || !ret.HeadKnown ||
		ret.Session != "writer-1/3" || ret.RoundTrips != 4 || ret.DriverRetries != 1 || ret.Text == "" {
		t.Errorf("return %+v", ret)
	}
	if outer != "writer-1/3" {
		t.Error("the caller's own trace was cut off")
	}
}

func TestReadsAreRecordedWithTheHashOfWhatCameBack(t *testing.T) {
	b := newBed(t)
	ctx, call := b.begin(t)
	ev := func(v uint64) eventstore.Event {
		return eventstore.Event{NewEvent: eventstore.NewEvent{ID: eventstore.EventID{byte(v)}, Type: "T", Data: []byte{byte(v)}}, Stream: "account-1", Version: v}
	}
	inner := &scripted{slice: eventstore.Slice{Events: []eventstore.Event{ev(11), ev(12)}, Pages: 2}}
	st := record.Store(inner, b.r)
	got, err := st.Read(record.WithSnapshot(ctx, 10), eventstore.ReadRequest{Stream: "account-1", From: 11})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Read(context.Background(), eventstore.ReadRequest{Stream: "account-1", From: 1, To: 12, Consistency: eventstore.Eventual}); err != nil {
		t.Fatal(err)
	}
	inner.err = errors.New("connection reset")
	if _, err := st.Read(ctx, eventstore.ReadRequest{Stream: "account-1", From: 1}); !errors.Is(err, inner.err) {
		t.Fatal(err)
	}
	if err := call.End(history.CallEnd{Result: history.ResultUnknown}); err != nil {
		t.Fatal(err)
	}
	reads := find[*history.Read](t, b.records(t))
	slices.SortFunc(reads, func(a, b *history.Read) int { return cmp.Compare(a.Invoke, b.Invoke) })
	want := &history.Read{
		Read: got.ID, Call: reads[0].Call, Process: 7, Session: 3, Stream: "account-1", From: 11, Invoke: reads[0].Invoke, T: reads[0].Invoke + 1,
		Outcome: eventstore.OK, Strong: true, First: 11, Last: 12, Count: 2, Snapshot: 10, Pages: 2,
		Range: history.HashEvent(11, eventstore.EventID{11}, eventstore.PayloadHash("T", []byte{11})).
			Add(history.HashEvent(12, eventstore.EventID{12}, eventstore.PayloadHash("T", []byte{12}))),
	}
	if !reflect.DeepEqual(reads[0], want) || got.ID == 0 || want.Call == 0 {
		t.Errorf("got  %s\nwant %s", history.JSON(reads[0]), history.JSON(want))
	}
	if r := reads[1]; r.Call != 0 || r.Session != 0 || r.Strong || r.To != 12 || r.Snapshot != 0 || r.Process != 7 {
		t.Errorf("read outside a call: %+v", r)
	}
	if r := reads[2]; r.Outcome != eventstore.Fail || r.Count != 0 || r.Range != (history.RangeHash{}) {
		t.Errorf("failed read: %+v", r)
	}
	if b.r.Counts().Reads != 3 {
		t.Errorf("counts %+v", b.r.Counts())
	}
}

func TestAReadIsRecordedAtTheLatestWithWhatRestsOnIt(t *testing.T) {
	read := func(t *testing.T, ctx context.Context, st eventstore.Store) {
		t.Helper()
		if _, err := st.Read(ctx, eventstore.ReadRequest{Stream: "account-1", From: 1}); err != nil {
			t.Fatal(err)
		}
	}
	for name, rests := range map[string]struct {
		on   func(ctx context.Context, st eventstore.Store, call *record.Call) error
		then string
	}{
		"an append": {func(ctx context.Context, st eventstore.Store, _ *record.Call) error {
			_, err := st.Append(ctx, withdrawal(1, 10))
			return err
		}, "call-start read write invoke return "},
		"an answer": {func(_ context.Context, _ eventstore.Store, call *record.Call) error {
			return call.End(history.CallEnd{Result: history.ResultRefused})
		}, "call-start read call-end "},
		"evidence": {func(ctx context.Context, st eventstore.Store, call *record.Call) error {
			a := withdrawal(1, 10)
			_, err := st.Append(ctx, a)
			read(t, ctx, st)
			return errors.Join(err, call.Evidence(history.E1OwnEvent, a.Events[0].ID, eventstore.OK, 1))
		}, "call-start read write invoke return read evidence "},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			ctx, call := b.begin(t)
			st := record.Store(&scripted{}, b.r)
			read(t, ctx, st)
			if got := b.kinds(t); got != "call-start " || b.r.Counts().Reads != 0 {
				t.Errorf("before: %s, %+v", got, b.r.Counts())
			}
			if err := rests.on(ctx, st, call); err != nil {
				t.Fatal(err)
			}
			if got := b.kinds(t); got != rests.then || b.r.Counts().Reads != uint64(strings.Count(got, "read")) {
				t.Errorf("after: %s, want %s, %+v", got, rests.then, b.r.Counts())
			}
		})
	}
}

func TestEvidenceNamesTheWriteByItsFirstEvent(t *testing.T) {
	b := newBed(t)
	ctx, call := b.begin(t)
	st := record.Store(&scripted{err: errors.New("lost")}, b.r)
	_, _ = st.Append(ctx, withdrawal(1, 5))
	_, _ = st.Append(ctx, withdrawal(2, 6))
	if err := call.Evidence(history.E1OwnEvent, eventstore.EventID{1}, eventstore.OK, 42); err != nil {
		t.Fatal(err)
	}
	if err := call.Evidence(history.E1OwnEvent, eventstore.EventID{3}, eventstore.OK, 42); !errors.Is(err, record.ErrNoWrite) {
		t.Errorf("got %v", err)
	}
	recs := b.records(t)
	ev, writes := find[*history.Evidence](t, recs), find[*history.Write](t, recs)
	if len(ev) != 1 || ev[0].Write != writes[0].Write || ev[0].Call != call.ID() || ev[0].Read != 42 || ev[0].T == 0 {
		t.Errorf("evidence %+v", ev)
	}
}

func TestAKilledProcessSendsNothingAndSaysNothing(t *testing.T) {
	b := newBed(t)
	ctx, call := b.begin(t)
	var gen atomic.Uint64
	inner := &scripted{}
	st, snaps := record.Store(inner, b.r), record.Snapshots(inner, b.r)
	feed, proj := record.Feed(inner, b.r, "balances", &gen), record.Projection(inner, b.r, "balances", &gen)
	b.w.Kill()
	before := b.kinds(t)

	appendErr := func() error { _, err := st.Append(ctx, withdrawal(1, 5)); return err }
	applyErr := func() error { _, err := proj.Apply(ctx, eventstore.Batch{}); return err }
	for name, op := range map[string]func() error{
		"append": appendErr, "apply": applyErr,
		"snapshot": func() error { return snaps.SaveSnapshot(ctx, eventstore.Snapshot{}) },
	} {
		err := op()
		if outcome, reason := eventstore.Classify(err); outcome != eventstore.Fail || reason != eventstore.NotSent || !errors.Is(err, history.ErrKilled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if inner.calls != 0 {
		t.Errorf("the store was asked %d times", inner.calls)
	}
	for name, op := range map[string]func() error{
		"read": func() error { _, err := st.Read(ctx, eventstore.ReadRequest{}); return err },
		"poll": func() error { _, err := feed.Poll(ctx, eventstore.Cursor{}, 1); return err },
	} {
		if outcome, reason := eventstore.Classify(op()); outcome != eventstore.Fail || reason != eventstore.Killed {
			t.Errorf("%s: %s %s", name, outcome, reason)
		}
	}
	if err := call.End(history.CallEnd{}); !errors.Is(err, history.ErrKilled) {
		t.Errorf("end: %v", err)
	}
	if _, _, err := b.r.Begin(ctx, record.CallInfo{}); !errors.Is(err, history.ErrKilled) {
		t.Errorf("begin: %v", err)
	}
	if got := b.kinds(t); got != before {
		t.Errorf("recorded after the kill: %s", got)
	}
	if got, want := b.r.Counts(), (record.Counts{Calls: 1}); got != want {
		t.Errorf("counts %+v", got)
	}
}

func TestAKillDuringAnOperationLeavesItOpen(t *testing.T) {
	crashed := errors.New("crashed at a point")
	for name, op := range map[string]func(ctx context.Context, b *bed, inner *scripted) error{
		"append": func(ctx context.Context, b *bed, inner *scripted) error {
			_, err := record.Store(inner, b.r).Append(ctx, withdrawal(1, 5))
			return err
		},
		"apply": func(ctx context.Context, b *bed, inner *scripted) error {
			_, err := record.Projection(inner, b.r, "balances", new(atomic.Uint64)).Apply(ctx, eventstore.Batch{})
			return err
		},
		"snapshot": func(ctx context.Context, b *bed, inner *scripted) error {
			return record.Snapshots(inner, b.r).SaveSnapshot(ctx, eventstore.Snapshot{})
		},
	} {
		for _, inside := range []error{nil, crashed} {
			b := newBed(t)
			ctx, _ := b.begin(t)
			err := op(ctx, b, &scripted{during: b.w.Kill, err: inside})
			if outcome, reason := eventstore.Classify(err); outcome != eventstore.Unknown || reason != eventstore.Killed {
				t.Errorf("%s: %v", name, err)
			}
			if inside != nil && !errors.Is(err, inside) {
				t.Errorf("%s: the cause is hidden: %v", name, err)
			}
			recs := b.records(t)
			if len(find[*history.Return](t, recs))+len(find[*history.Apply](t, recs))+len(find[*history.SnapshotResult](t, recs)) != 0 {
				t.Errorf("%s: a dead process recorded its end", name)
			}
		}
	}
}

func TestSnapshotsAreJournalledBeforeThePut(t *testing.T) {
	b := newBed(t)
	inner := &scripted{}
	inner.during = func() {
		if got := b.kinds(t); got != "snapshot-write " {
			t.Errorf("on disk at the put: %s", got)
		}
	}
	inner.err = &eventstore.Error{Outcome: eventstore.Fail, Reason: eventstore.Throttled}
	err := record.Snapshots(inner, b.r).SaveSnapshot(context.Background(), eventstore.Snapshot{Stream: "account-1", Version: 10, State: []byte("s")})
	if !errors.Is(err, inner.err) {
		t.Error(err)
	}
	recs := b.records(t)
	if w := recs[0].(*history.SnapshotWrite); w.Version != 10 || string(w.State) != "s" || w.Process != 7 {
		t.Errorf("%+v", w)
	}
	if r := recs[1].(*history.SnapshotResult); r.Version != 10 || r.Outcome != eventstore.Fail {
		t.Errorf("%+v", r)
	}
	if record.Snapshots(nil, b.r) != nil {
		t.Error("snapshots of a store that keeps none")
	}
}

func TestPollsAndAppliesCarryTheGenerationTheyBuild(t *testing.T) {
	b := newBed(t)
	var gen atomic.Uint64
	next := eventstore.Through(eventstore.Position{Minor: 9})
	inner := &scripted{
		page: eventstore.Page{Events: make([]eventstore.Event, 2), Next: next, Held: "pid 4"},
		cp:   eventstore.Checkpoint{Generation: 2, Seq: 5},
	}
	feed, proj := record.Feed(inner, b.r, "balances", &gen), record.Projection(inner, b.r, "balances", &gen)
	ctx := context.Background()
	cp, err := proj.Claim(ctx)
	if err != nil {
		t.Fatal(err)
	}
	page, err := feed.Poll(ctx, cp.Cursor, 10)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := proj.Apply(ctx, eventstore.Batch{Prev: cp, Events: page.Events, Next: page.Next}); err != nil {
		t.Fatal(err)
	}
	inner.err = &eventstore.Error{Op: "apply", Outcome: eventstore.Fail, Reason: eventstore.Superseded}
	if _, err := proj.Apply(ctx, eventstore.Batch{Prev: cp}); err == nil {
		t.Fatal("no error")
	}
	if _, err := feed.Poll(ctx, cp.Cursor, 10); err == nil {
		t.Fatal("no error")
	}
	recs := b.records(t)
	polls, applies := find[*history.Poll](t, recs), find[*history.Apply](t, recs)
	if p := polls[0]; p.Generation != 2 || p.Events != 2 || p.Held != "pid 4" || !reflect.DeepEqual(p.Next, next) || p.Outcome != eventstore.OK || p.Projection != "balances" {
		t.Errorf("poll %+v", p)
	}
	if p := polls[1]; p.Outcome != eventstore.Fail || !p.Next.IsZero() {
		t.Errorf("failed poll %+v", p)
	}
	if a := applies[0]; a.Generation != 2 || a.Events != 2 || a.Seq != 5 || a.Session != "projector/1" || !reflect.DeepEqual(a.Next, next) || a.Invoke >= a.T {
		t.Errorf("apply %+v", a)
	}
	if a := applies[1]; a.Outcome != eventstore.Fail || a.Reason != eventstore.Superseded || a.Seq != 0 {
		t.Errorf("superseded apply %+v", a)
	}
}
