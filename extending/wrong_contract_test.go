package extending_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/extending/shelf"
	"github.com/eventproof/eventproof/reports"
	"github.com/eventproof/eventproof/verdict"
)

// Overload is reported after the fact: the append has taken effect and is answered "throttled, try again".
func throttledAfterCommit() parts {
	return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
		answer, err := c.Append(ctx, a)
		if err == nil && !answer.Replayed && a.Events[0].ID[15]%8 == 0 {
			return eventstore.Appended{}, shelf.Refused("append", eventstore.Throttled, errors.New("queue is full"))
		}
		return answer, err
	}}
}

// The conflict is real, the head in its answer is not: it names the version that was expected.
func conflictNamesWrongHead() parts {
	return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
		answer, err := c.Append(ctx, a)
		var e *eventstore.Error
		if errors.As(err, &e) && e.Reason == eventstore.VersionConflict {
			e.Head = a.Expected.Version()
		}
		return answer, err
	}}
}

// The events between the first and the last of a read come in reverse.
var readsShuffled = reads(func(s *eventstore.Slice) {
	if n := len(s.Events); n > 3 {
		slices.Reverse(s.Events[1 : n-1])
	}
})

// Events that are read name another stream and another position.
var readsOtherNames = reads(func(s *eventstore.Slice) {
	for i := range s.Events {
		s.Events[i].Stream, s.Events[i].Position = "account-77", eventstore.Position{Minor: 4}
	}
})

// Stores that do their work and say something untrue about it.
func TestStoresThatContradictThemselvesAreCaught(t *testing.T) {
	caught(t, []wrong{
		{"throttles after the commit", throttledAfterCommit, bank, "honest-outcomes", "failed-means-absent"},
		{"names the expected version as the head of a conflict", conflictNamesWrongHead, bank, "optimistic-concurrency", "truthful-rejections"},
		{"calls what is legal too large", refuses(eventstore.TooLarge), bank, "truthful-rejections", ""},
		{"calls what is legal malformed", refuses(eventstore.Invalid), bank, "truthful-rejections", ""},
		{"fences an owner that nobody took over from", refuses(eventstore.Fenced), bank, "truthful-rejections", ""},
		{"reads in no order", readsShuffled, bank, "read-is-prefix", "truthful-answers"},
		{"reads other names", readsOtherNames, bank, "read-is-prefix", ""},
	}, 2)
}

// A store that refuses legal appends with an error of its own may have a reason that no rule sees; it is not green.
func TestRefusalsWithoutAReasonAreNotGreen(t *testing.T) {
	together(t, []job{{variant("rejects-what-is-legal", refuses(eventstore.Rejected)), bank, 1, 0}}, func(t *testing.T, _ int, trial reports.Trial) {
		if !slices.Contains(with(trial, verdict.Inconclusive), "truthful-rejections") {
			t.Error(tell(trial, "truthful-rejections"))
		}
	})
}
