package app_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
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
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/memory"
	memorycontrols "github.com/eventproof/eventproof/targets/memory/controls"
)

// stand is one trial's store with its roles; the store is memory/reference.
type stand struct {
	t        *testing.T
	instance targets.Instance
	process  uint32
}

func newStand(t *testing.T, target targets.Target) *stand {
	t.Helper()
	views := append(app.Views("bank"), app.Views("auction")...)
	instance, err := target.Open(t.Context(), targets.Site{Trial: "t", Views: views, Assembly: target.Assembly})
	if err != nil {
		t.Fatal(err)
	}
	return &stand{t: t, instance: instance}
}

func (s *stand) session(name string, gate points.Gate) targets.Session {
	s.t.Helper()
	session, err := s.instance.Connect(s.t.Context(), name, targets.Env{Gate: gate, Name: name})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = session.Close() })
	return session
}

// writer is a command loop with its history.
type writer struct {
	*app.Handler
	t       *testing.T
	path    string
	segment *history.Writer
}

type writerOptions struct {
	domain   app.Domain
	policy   app.Policy
	gate     points.Gate
	wrap     func(eventstore.Store) eventstore.Store
	wrapSnap func(eventstore.Snapshots) eventstore.Snapshots
	blind    bool // the store promises no idempotent append
	deadline time.Duration
	try      time.Duration
	every    uint64
}

// writer builds the command loop of a role named name.
func (s *stand) writer(name string, o writerOptions) *writer {
	s.t.Helper()
	if o.gate == nil {
		o.gate = points.Open{}
	}
	if o.domain == nil {
		o.domain = app.Bank()
	}
	if o.policy.Retry == nil {
		o.policy = policy(s.t, app.DefaultParts(), "", "")
	}
	if o.deadline == 0 {
		o.deadline = 10 * time.Second
	}
	if o.try == 0 {
		o.try = 2 * time.Second
	}
	session := s.session(name, o.gate)
	inner := session.Store()
	if o.wrap != nil {
		inner = o.wrap(inner)
	}
	snaps := session.Snapshots()
	if o.wrapSnap != nil {
		snaps = o.wrapSnap(snaps)
	}
	s.process++
	path := filepath.Join(s.t.TempDir(), name+history.SegmentExt)
	segment, err := history.Create(path)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = segment.Close() })
	rec := record.New(segment, clock.System{}, s.process)
	return &writer{t: s.t, path: path, segment: segment, Handler: app.NewHandler(app.Config{
		Domain: o.domain, Policy: o.policy, Store: record.Store(inner, rec), Snapshots: record.Snapshots(snaps, rec),
		Recorder: rec, Gate: o.gate, Clock: clock.System{}, Rand: rand.New(rand.NewPCG(1, uint64(s.process))),
		Idempotent: !o.blind, Deadline: o.deadline, Try: o.try, SnapshotEvery: o.every,
	})}
}

func policy(t *testing.T, parts *app.Parts, retry, continuation string) app.Policy {
	t.Helper()
	p, err := parts.Resolve(app.Choice{Retry: retry, Continue: continuation})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// do runs a command and checks that it was answered.
func (w *writer) do(c app.Command) app.Result {
	w.t.Helper()
	return w.call(app.Call{Command: c})
}

func (w *writer) call(c app.Call) app.Result {
	w.t.Helper()
	r := w.Do(w.t.Context(), c)
	if !r.Answered {
		w.t.Fatalf("command %s was not answered: %v", c.ID, r.Err)
	}
	return r
}

// must runs a command that has to end ok.
func (w *writer) must(c app.Command) app.Result {
	w.t.Helper()
	r := w.do(c)
	if r.Result != history.ResultOK {
		w.t.Fatalf("command %s ended %s %s (%v)", c.ID, r.Result, r.Code, r.Err)
	}
	return r
}

// records reads the writer's segment.
func (w *writer) records() []history.Record {
	w.t.Helper()
	f, err := os.Open(w.path)
	if err != nil {
		w.t.Fatal(err)
	}
	defer f.Close()
	r, err := history.NewReader(f)
	if err != nil {
		w.t.Fatal(err)
	}
	var out []history.Record
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			w.t.Fatal(err)
		}
		out = append(out, rec)
	}
}

// evidence returns what the writer recorded of writes by evidence.
func (w *writer) evidence() []*history.Evidence {
	w.t.Helper()
	var out []*history.Evidence
	for _, r := range w.records() {
		if e, ok := r.(*history.Evidence); ok {
			out = append(out, e)
		}
	}
	return out
}

const acct = "a"

var stream = account.Stream(acct)

func bankCommand(id, name string, amount int64) app.Command {
	c := account.Command{Name: name, Account: acct, Amount: amount}
	if name == account.CommandOpen {
		c.Owner = "ada"
	}
	return app.Command{ID: id, Stream: stream, Name: name, Body: c.Body()}
}

func bid(t *testing.T, id, bidID string, amount int64) app.Command {
	t.Helper()
	return auctionCommand(t, id, auction.Command{Name: auction.CommandBid, BidID: bidID, Bidder: "bo", Amount: amount})
}

func auctionCommand(t *testing.T, id string, c auction.Command) app.Command {
	t.Helper()
	var err error
	if c.Auction, err = auction.NewID("x"); err != nil {
		t.Fatal(err)
	}
	return app.Command{ID: id, Stream: auction.Stream(c.Auction), Name: c.Name, Body: c.Body()}
}

// logOf reads the final log of a stream by the audit's code.
func (s *stand) logOf(stream string) []history.LoggedEvent {
	s.t.Helper()
	var out []history.LoggedEvent
	err := s.instance.Auditor().Log(s.t.Context(), func(e history.LoggedEvent) error {
		if e.Stream == stream {
			out = append(out, e)
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// foldAt folds the log up to a version and hashes the state.
func (s *stand) foldAt(d app.Domain, stream string, version uint64) eventstore.Hash {
	s.t.Helper()
	var events []eventstore.Event
	for _, e := range s.logOf(stream) {
		if e.Version <= version {
			events = append(events, eventstore.Event{
				NewEvent: eventstore.NewEvent{ID: e.ID, Type: e.Type, Data: e.Data, Meta: e.Meta}, Stream: e.Stream, Version: e.Version,
			})
		}
	}
	state, err := d.Fold(d.Zero(), events)
	if err != nil {
		s.t.Fatal(err)
	}
	return eventstore.HashBytes(state.Encode())
}

// scripted is a store whose appends are answered by a script, one entry a call, the real store after its end.
type scripted struct {
	eventstore.Store
	appends []func(ctx context.Context, s eventstore.Store, a eventstore.Append) (eventstore.Appended, error)
	reads   []func(ctx context.Context, s eventstore.Store, r eventstore.ReadRequest) (eventstore.Slice, error)
	sent    []eventstore.Append
	asked   []eventstore.ReadRequest
}

// Append implements eventstore.Store.
func (s *scripted) Append(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	n := len(s.sent)
	s.sent = append(s.sent, a)
	if n < len(s.appends) {
		return s.appends[n](ctx, s.Store, a)
	}
	return s.Store.Append(ctx, a)
}

// Read implements eventstore.Store.
func (s *scripted) Read(ctx context.Context, r eventstore.ReadRequest) (eventstore.Slice, error) {
	n := len(s.asked)
	s.asked = append(s.asked, r)
	if n < len(s.reads) {
		return s.reads[n](ctx, s.Store, r)
	}
	return s.Store.Read(ctx, r)
}

var _ eventstore.Store = (*scripted)(nil)

func lostReply() error {
	return &eventstore.Error{Op: "append", Outcome: eventstore.Unknown, Reason: eventstore.LostReply}
}

// landsUnanswered executes the append and loses the reply.
func landsUnanswered(ctx context.Context, s eventstore.Store, a eventstore.Append) (eventstore.Appended, error) {
	if _, err := s.Append(ctx, a); err != nil {
		return eventstore.Appended{}, err
	}
	return eventstore.Appended{}, lostReply()
}

// lost never executes the append; the caller can't know.
func lost(context.Context, eventstore.Store, eventstore.Append) (eventstore.Appended, error) {
	return eventstore.Appended{}, lostReply()
}

// fails answers with a definite failure.
func fails(reason eventstore.Reason) func(context.Context, eventstore.Store, eventstore.Append) (eventstore.Appended, error) {
	return func(context.Context, eventstore.Store, eventstore.Append) (eventstore.Appended, error) {
		return eventstore.Appended{}, &eventstore.Error{Op: "append", Outcome: eventstore.Fail, Reason: reason}
	}
}

// overtaken appends an event of another command at the same place first, then sends the append.
func overtaken(other *writer, c app.Command) func(context.Context, eventstore.Store, eventstore.Append) (eventstore.Appended, error) {
	return func(ctx context.Context, s eventstore.Store, a eventstore.Append) (eventstore.Appended, error) {
		other.must(c)
		return s.Append(ctx, a)
	}
}

// lostThenOvertaken never executes the append, and lets another command take the slot.
func lostThenOvertaken(other *writer, c app.Command) func(context.Context, eventstore.Store, eventstore.Append) (eventstore.Appended, error) {
	return func(context.Context, eventstore.Store, eventstore.Append) (eventstore.Appended, error) {
		other.must(c)
		return eventstore.Appended{}, lostReply()
	}
}

// forgetful hides that a store promises idempotent append: the token never reaches it.
type forgetful struct{ eventstore.Store }

// Append implements eventstore.Store.
func (f forgetful) Append(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	a.Request = ""
	return f.Store.Append(ctx, a)
}

var reference = memory.Base

// control returns the control of memory/reference with this id.
func control(t *testing.T, id string) targets.Target {
	t.Helper()
	for _, target := range memorycontrols.Targets() {
		if target.Control.ID == id {
			return target
		}
	}
	t.Fatalf("there is no control %s", id)
	return targets.Target{}
}
