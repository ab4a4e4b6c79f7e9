//go:build escapes

package extending_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/extending/shelf"
	"github.com/eventproof/eventproof/reports"
	"github.com/eventproof/eventproof/targets"
)

// Metadata that the store has no column for is dropped.
func dropsMetadata() parts {
	return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
		mine := a
		mine.Events = append([]eventstore.NewEvent(nil), a.Events...)
		for i := range mine.Events {
			mine.Events[i].Meta = eventstore.Metadata{CommandID: a.Events[i].Meta.CommandID}
		}
		return c.Append(ctx, mine)
	}}
}

// The answer to a repeated request does not say that it is one.
func silentReplay() parts {
	return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
		answer, err := c.Append(ctx, a)
		answer.Replayed = false
		return answer, err
	}}
}

// Reads do not bring the metadata back.
var readsWithoutMetadata = reads(func(s *eventstore.Slice) {
	for i := range s.Events {
		s.Events[i].Meta = eventstore.Metadata{}
	}
})

// A page is sorted by stream: versions of each stream keep their order, positions do not.
var sortedByStream = feeds(func(_ *shelf.Conn, _ eventstore.Cursor, p *eventstore.Page) {
	slices.SortStableFunc(p.Events, func(a, b eventstore.Event) int { return strings.Compare(a.Stream, b.Stream) })
})

// edits is a variant that stores other metadata than it was given.
func edits(edit func(*eventstore.Metadata)) func() parts {
	return func() parts {
		return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
			a.Events = slices.Clone(a.Events)
			for i := range a.Events {
				edit(&a.Events[i].Meta)
			}
			return c.Append(ctx, a)
		}}
	}
}

// answers is a variant that appends rightly and says something else of it.
func answers(change func(*eventstore.Appended)) func() parts {
	return func() parts {
		return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
			got, err := c.Append(ctx, a)
			change(&got)
			return got, err
		}}
	}
}

// Stores that are wrong and were judged green. Each line is a rule that is too weak; once it is stronger the line moves
// to wrongStores.
func TestEscapes(t *testing.T) {
	caught(t, []wrong{
		{"loses metadata but the command id", dropsMetadata, bank, "no-phantom-event", ""},
		{"stores another command id", edits(func(m *eventstore.Metadata) { m.CommandID = "x" + m.CommandID }), bank, "no-phantom-event", "command-once"},
		{"stores no command id", edits(func(m *eventstore.Metadata) { m.CommandID = "" }), bank, "no-phantom-event", "command-once"},
		{"stores another basis", edits(func(m *eventstore.Metadata) { m.BasisVersion++ }), bank, "no-phantom-event", "valid-decision"},
		{"stores another basis hash", edits(func(m *eventstore.Metadata) { m.BasisHash[0] ^= 1 }), bank, "no-phantom-event", "valid-decision"},
		{"does not read metadata", readsWithoutMetadata, bank, "read-is-prefix", ""},
		{"answers version 0", answers(func(a *eventstore.Appended) { a.First, a.Last = 0, 0 }), auction, "no-lost-ack", "snapshot-equals-fold truthful-answers"},
		{"answers without event ids", answers(func(a *eventstore.Appended) { a.Events = nil }), bank, "no-lost-ack", ""},
		{"does not say that an answer is a repetition", silentReplay, bank, "no-lost-ack", ""},
		{"delivers a page by stream", sortedByStream, bank, "position-order", "in-order-projection"},
		{"ledger with other row versions", ledger(func(e *shelf.Effect) { e.Stands += 7 }), bank, "in-order-projection", "complete-history"},
	}, 2)
}

// configured is an instance that could be reached from another process.
type configured struct{ targets.Instance }

func (configured) Config(string) (json.RawMessage, error) { return json.RawMessage("{}"), nil }

// A target with its own server, attached from role processes, that needs none of the built-in servers.
func TestATargetThatCanBeAttachedAndNeedsNoServerIsNoPanic(t *testing.T) {
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("the runner panicked: %v", p)
		}
	}()
	target := shelf.Target()
	target.Attach = func(context.Context, json.RawMessage, targets.Env) (targets.Session, error) {
		return nil, errors.New("never comes to this")
	}
	target.Open = func(ctx context.Context, site targets.Site) (targets.Instance, error) {
		inner, err := shelf.Open(ctx, site)
		return configured{inner}, err
	}
	j := job{target, "hot-auction", 1, time.Second}
	if trial := j.run(t.Context(), scenario(t, j.scenario), t.TempDir()); trial.Problem == "" && len(trial.Warnings) == 0 {
		t.Error("there is no process to attach, and nobody says so")
	}
}

// A store that never answers a request which was parked: its context has no end, and the trial waits for it.
func TestAStoreThatHangsDoesNotHangTheTrial(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	target := variant("hangs", func() parts {
		var n atomic.Int64
		return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
			if n.Add(1) < 60 {
				return c.Append(ctx, a)
			}
			select {
			case <-ctx.Done():
			case <-hang:
			}
			return eventstore.Appended{}, shelf.Lost("append", ctx.Err())
		}}
	})
	done := make(chan reports.Trial, 1)
	s, dir := scenario(t, bank), t.TempDir()
	go func() { done <- job{target, bank, 1, time.Second}.run(context.Background(), s, dir) }()
	select {
	case <-done:
	case <-time.After(40 * time.Second):
		t.Error("the trial has not ended after 40 s")
		hang <- struct{}{}
		for {
			select {
			case hang <- struct{}{}:
			case <-done:
				return
			}
		}
	}
}
