package pgtest

import (
	"crypto/sha256"
	"testing"

	"github.com/eventproof/eventproof/eventstore"
)

// Write makes an append of one event; id names event and request.
func Write(stream string, expected eventstore.Expected, id string, data string) eventstore.Append {
	return eventstore.Append{
		Stream: stream, Expected: expected, Request: "r-" + id,
		Events: []eventstore.NewEvent{{
			ID: EventID(id), Type: "Added", Data: []byte(data), Meta: eventstore.Metadata{CommandID: "c-" + id, SchemaVersion: 1},
		}},
	}
}

// EventID makes an id from a name.
func EventID(name string) eventstore.EventID {
	sum := sha256.Sum256([]byte(name))
	return eventstore.EventID(sum[:16])
}

// MustAppend appends or ends the test.
func MustAppend(t testing.TB, s eventstore.Store, a eventstore.Append) eventstore.Appended {
	t.Helper()
	done, err := s.Append(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// Started is an append that runs on its own.
type Started struct {
	Done eventstore.Appended
	Err  error
	end  chan struct{}
}

// Start begins an append.
func Start(t testing.TB, s eventstore.Store, a eventstore.Append) *Started {
	st := &Started{end: make(chan struct{})}
	go func() {
		defer close(st.end)
		st.Done, st.Err = s.Append(t.Context(), a)
	}()
	return st
}

// Wait waits for its end.
func (s *Started) Wait(t testing.TB) {
	t.Helper()
	select {
	case <-s.end:
	case <-t.Context().Done():
		t.Fatal("the append did not end")
	}
}

// Await waits for a channel to be closed.
func Await(t testing.TB, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-t.Context().Done():
		t.Fatal("waited in vain")
	}
}

// MustPoll polls or ends the test.
func MustPoll(t testing.TB, f eventstore.Feed, after eventstore.Cursor) eventstore.Page {
	t.Helper()
	page, err := f.Poll(t.Context(), after, 100)
	if err != nil {
		t.Fatal(err)
	}
	return page
}

// PollUntil polls from the beginning until a page is as wanted. Transaction ids belong to the whole server:
// whatever else runs there may hold the horizon for a while.
func PollUntil(t testing.TB, f eventstore.Feed, wanted func(eventstore.Page) bool) eventstore.Page {
	t.Helper()
	var page eventstore.Page
	for range 2000 {
		if page = MustPoll(t, f, eventstore.Cursor{}); wanted(page) {
			return page
		}
	}
	t.Fatalf("no page was as wanted; the last was %+v", page)
	return page
}

// MustAppendRetrying repeats an append until it is answered.
func MustAppendRetrying(t testing.TB, s eventstore.Store, a eventstore.Append) eventstore.Appended {
	t.Helper()
	for {
		done, err := s.Append(t.Context(), a)
		outcome, reason := eventstore.Classify(err)
		switch {
		case err == nil:
			return done
		case outcome == eventstore.Fail && !reason.Retriable(), t.Context().Err() != nil:
			t.Fatal(err)
		}
	}
}
