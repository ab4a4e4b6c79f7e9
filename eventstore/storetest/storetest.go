// Package storetest is the conformance suite of package eventstore: what every adapter has to keep. Tests are
// enabled by the promises of the target; what is not promised is skipped by name.
package storetest

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eventproof/eventproof/eventstore"
)

// Fixture is one fresh, empty place in a store.
type Fixture struct {
	Promises []eventstore.Promise
	// Connect opens one more connection, as another process would have it. It registers its own clean-up and
	// is called from the test's goroutine.
	Connect func(t *testing.T) Conn
	// Hold opens a connection whose first append stops between drawing its position and its commit: arrived is
	// closed when it stands there, release lets it go on. It is nil where an append can't be stopped there.
	Hold func(t *testing.T) (c Conn, arrived <-chan struct{}, release func())
}

// Conn is one connection.
type Conn struct {
	Store eventstore.Store
	// Snapshots is nil where the store keeps none.
	Snapshots eventstore.Snapshots
	// Feed is nil where the store has none.
	Feed eventstore.Feed
	// Projection is nil where the store keeps none.
	Projection func(v eventstore.View) (eventstore.Projection, error)
}

func (f Fixture) promises(p eventstore.Promise) bool { return slices.Contains(f.Promises, p) }

func (f Fixture) require(t *testing.T, ps ...eventstore.Promise) {
	t.Helper()
	for _, p := range ps {
		if !f.promises(p) {
			t.Skipf("not promised: %s", p)
		}
	}
}

// Run runs the suite. open is called once a test and prepares a place that knows the views of Views.
func Run(t *testing.T, open func(t *testing.T) Fixture) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, f Fixture)
	}{
		{"an exact append takes the next versions and keeps its event ids", exactAppend},
		{"an append that expects no stream is refused on an existing one", noStream},
		{"a conflict tells the truth and leaves nothing", conflict},
		{"an expected version ahead of the head is refused", expectedAhead},
		{"a batch is all or nothing", batch},
		{"a blind append takes whatever version comes next", anyAppend},
		{"a malformed append is refused", malformed},
		{"a repeated append is answered with the first result", repeated},
		{"a repeated request with other event ids is answered with the first result", repeatedOtherIDs},
		{"a request repeated by many at once is executed once", repeatedAtOnce},
		{"an event id used again under another request is refused", eventIDReused},
		{"a read is complete whatever the page size", pagedReads},
		{"a read keeps to its range", ranges},
		{"data and metadata come back unchanged", unchanged},
		{"a strong read on another connection shows what was acknowledged", strongRead},
		{"of 64 writers on one version exactly one wins", oneWinner},
		{"a cancelled append never fails and lands", cancelled},
		{"the feed gives every event once, in order, on every page size", feedPages},
		{"the feed resumes from a stored cursor", feedResumes},
		{"the feed misses no event of concurrent writers", feedConcurrent},
		{"the feed does not pass an event that is still in flight", feedInFlight},
		{"positions agree between append, read and feed", positions},
		{"a snapshot is one overwritten item a stream", snapshot},
		{"a projection moves rows and checkpoint together", projectionApplies},
		{"a batch polled from an old checkpoint is superseded and applies nothing", projectionStale},
		{"a claim by another owner supersedes the former one", projectionOwners},
		{"of many that apply the same batch exactly one wins", projectionRace},
		{"a view that fails leaves nothing of its batch", projectionError},
		{"a cancelled apply leaves all of the batch or nothing", projectionCancelled},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) { c.test(t, open(t)) })
	}
}

// Views returns the views that the suite projects; the place that Run's open prepares must know them.
func Views() []eventstore.View { return []eventstore.View{Tally{}} }

// Tally is a view that counts and sums: one row a stream, {"n":2,"sum":5}. Applying an event twice shows. It
// filters events of type "Ignored" and fails on type "Poison".
type Tally struct{}

type tallyRow struct {
	N   int `json:"n"`
	Sum int `json:"sum"`
}

var errPoison = errors.New("poison")

// Name implements eventstore.View.
func (Tally) Name() string { return "tally" }

// Key implements eventstore.View.
func (Tally) Key(e eventstore.Event) (string, bool) { return e.Stream, e.Type != "Ignored" }

// Apply implements eventstore.View.
func (Tally) Apply(row []byte, e eventstore.Event) ([]byte, error) {
	if e.Type == "Poison" {
		return nil, errPoison
	}
	var r tallyRow
	if row != nil {
		if err := json.Unmarshal(row, &r); err != nil {
			return nil, err
		}
	}
	var d struct {
		Amount int `json:"amount"`
	}
	if err := json.Unmarshal(e.Data, &d); err != nil {
		return nil, err
	}
	r.N++
	r.Sum += d.Amount
	return json.Marshal(r)
}

// ids gives event ids; one source a test.
type ids struct{ n atomic.Uint64 }

func (s *ids) next() eventstore.EventID {
	var id eventstore.EventID
	id[6], id[8] = 0x40, 0x80 // the form of a random UUID
	binary.BigEndian.PutUint32(id[12:], uint32(s.n.Add(1)))
	return id
}

// event makes an event with an amount.
func (s *ids) event(amount int) eventstore.NewEvent {
	return eventstore.NewEvent{
		ID: s.next(), Type: "Added", Data: fmt.Appendf(nil, `{"amount":%d}`, amount),
		Meta: eventstore.Metadata{CommandID: fmt.Sprintf("c-%d", s.n.Load()), SchemaVersion: 1},
	}
}

func (s *ids) events(n int) []eventstore.NewEvent {
	out := make([]eventstore.NewEvent, n)
	for i := range out {
		out[i] = s.event(i + 1)
	}
	return out
}

// write makes an append with a request token of its own.
func (s *ids) write(stream string, want eventstore.Expected, events ...eventstore.NewEvent) eventstore.Append {
	return eventstore.Append{
		Stream: stream, Expected: want, Events: events, Request: "r-" + events[0].ID.String(),
	}
}

func eventIDs(events []eventstore.NewEvent) []eventstore.EventID {
	out := make([]eventstore.EventID, len(events))
	for i, e := range events {
		out[i] = e.ID
	}
	return out
}

func storedIDs(events []eventstore.Event) []eventstore.EventID {
	out := make([]eventstore.EventID, len(events))
	for i, e := range events {
		out[i] = e.ID
	}
	return out
}

func mustAppend(t *testing.T, s eventstore.Store, a eventstore.Append) eventstore.Appended {
	t.Helper()
	got, err := s.Append(t.Context(), a)
	if err != nil {
		t.Fatalf("append to %s, expected %s: %v", a.Stream, a.Expected, err)
	}
	return got
}

func mustRead(t *testing.T, s eventstore.Store, r eventstore.ReadRequest) []eventstore.Event {
	t.Helper()
	got, err := s.Read(t.Context(), r)
	if err != nil {
		t.Fatalf("read %s: %v", r.Stream, err)
	}
	return got.Events
}

func all(stream string) eventstore.ReadRequest {
	return eventstore.ReadRequest{Stream: stream, From: 1}
}

// wantStream checks that a stream holds exactly these events at versions 1..n.
func wantStream(t *testing.T, s eventstore.Store, stream string, want []eventstore.EventID) {
	t.Helper()
	got := mustRead(t, s, all(stream))
	if !slices.Equal(storedIDs(got), want) {
		t.Fatalf("%s holds %v, want %v", stream, storedIDs(got), want)
	}
	for i, e := range got {
		if e.Version != uint64(i+1) || e.Stream != stream {
			t.Fatalf("event %d of %s is %s version %d", i+1, stream, e.Stream, e.Version)
		}
	}
}

// wantFail checks that err is a definite *eventstore.Error with one of the reasons, and returns it.
func wantFail(t *testing.T, err error, reasons ...eventstore.Reason) *eventstore.Error {
	t.Helper()
	var e *eventstore.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %T (%v), want an *eventstore.Error", err, err)
	}
	if e.Outcome != eventstore.Fail || len(reasons) > 0 && !slices.Contains(reasons, e.Reason) {
		t.Fatalf("got %v, want a definite failure with reason %v", err, reasons)
	}
	return e
}

// within bounds a test that waits for a store.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
