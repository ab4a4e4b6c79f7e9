package controls

import (
	"context"
	"slices"
	"sync"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/memory"
	"github.com/eventproof/eventproof/targets/memory/engine"
)

// losesAcknowledged acknowledges before it stores and loses the first append at each third version of a
// stream.
//
//	a: append v3 → ok, nothing stored      b: load 1..2   append v3 → ok, stored
//
// a is acknowledged and not in L. Two appends that expected version 2 are ok. Nobody ever reads the lost event,
// so reads, answers and decisions hold together without it; a snapshot that a's process put may show it, and a
// load from that snapshot then expects a version ahead of the head.
func losesAcknowledged() targets.Target {
	return swap(targets.Control{
		ID: "cv-mem-01", Part: "append",
		Bug:  "acknowledges before it stores, and loses the first append at each third version of a stream",
		Must: []string{"no-lost-ack"},
		May: map[string]string{
			"optimistic-concurrency": "the lost version is acknowledged a second time",
			"immutable-events":       "the slot is taken again: two acknowledged events at one version",
			"snapshot-equals-fold":   "a snapshot of the lost state was put",
			"truthful-answers":       "where a snapshot of the lost state was put, later answers rest on it",
			"truthful-rejections":    "where a snapshot of the lost state was put, later refusals rest on it",
			"valid-decision":         "where a snapshot of the lost state was put, later decisions rest on it",
			"idempotent-bids":        "the lost bid was answered as accepted and is in no ledger",
			"monotonic-bids":         "the lost bid was answered as accepted; lower ones are accepted after it",
			"close-is-final":         "a lost closing was answered and bids go on",
			"progress":               "a snapshot of the lost state makes every later append of the stream expect too much",
		},
		Scripts: []string{"det-cv-mem-01"},
	}, losesEveryThird, func() memory.Parts {
		p := memory.Reference()
		p.Append = lossy(p.Append)
		return p
	})
}

// lossy keeps in mind which slots it has lost already, so that the stream goes on after each loss.
func lossy(store func(context.Context, *memory.Conn, eventstore.Append) (eventstore.Appended, error)) func(context.Context, *memory.Conn, eventstore.Append) (eventstore.Appended, error) {
	var mu sync.Mutex
	lost := map[engine.Slot]bool{}
	lose := func(slot engine.Slot, head uint64) bool {
		mu.Lock()
		defer mu.Unlock()
		if head+1 != slot.Version || slot.Version%3 != 0 || lost[slot] {
			return false
		}
		lost[slot] = true
		return true
	}
	return func(ctx context.Context, c *memory.Conn, a eventstore.Append) (eventstore.Appended, error) {
		tx := c.DB.Begin(c.Name)
		head := tx.Head(a.Stream)
		tx.Rollback()
		slot := engine.Slot{Stream: a.Stream, Version: a.Expected.Version() + 1}
		if a.Expected.IsAny() || !lose(slot, head) {
			return store(ctx, c, a)
		}
		got := eventstore.Appended{First: slot.Version, Last: head + uint64(len(a.Events))}
		for _, e := range a.Events {
			got.Events = append(got.Events, e.ID)
		}
		return got, nil
	}
}

// versionCheckOutside compares the head and inserts in two steps that nothing holds together: no unique key on
// (stream, version).
//
//	balance 100.00 at v5
//	a: head 5 ✓ |held|            insert v6: −60.00 → ok, answer 40.00
//	b:            head 5 ✓ insert v6: −60.00 → ok, answer 40.00
//
// Two acknowledged events at (s, 6); L folds to −20.00 there, so both answers are wrong.
func versionCheckOutside(id string) targets.Target {
	return swap(targets.Control{
		ID: id, Part: "append",
		Bug: "compares the head outside of the critical section: two appends that saw the same head both insert",
		// no-overdraft: the script has money for one withdrawal and two ask for it.
		Must: []string{"optimistic-concurrency", "gapless-versions", "immutable-events", "truthful-answers", "no-overdraft"},
		May: map[string]string{
			"snapshot-equals-fold":   "a snapshot at the doubled version shows one of its two events",
			"valid-decision":         "the state at the doubled version is not the one that was decided on",
			"truthful-rejections":    "a refusal decided on one of the two events at a version",
			"linearizable-stream":    "the doubled version has no order",
			"read-is-prefix":         "a read shows one of the two events, a later one both",
			"in-order-projection":    "the second event of the version comes after the first",
			"projection-equals-fold": "the fold at the doubled version depends on the order",
			"position-order":         "the version does not rise with the position",
			"atomic-checkpoint":      "the fold at the doubled version depends on the order",
			"monotonic-bids":         "two bids decided on the same high bid are both accepted",
			"idempotent-bids":        "one bid id may be accepted twice",
			"close-is-final":         "a bid may be accepted at the version of the closing",
		},
		Scripts: []string{"det-cv-pg-14"},
	}, checkThenInsert, func() memory.Parts {
		p := memory.Reference()
		p.Append = memory.AppendWith(func(context.Context, *engine.Tx, []engine.Slot) error { return nil })
		return p
	})
}

// laggingReads serves strong reads from a copy: a read shows the stream as it was at the read before, and only
// then the copy catches up. It lags by whole commits, so that it never tears a batch.
//
//	a: load 1..2   append v3 → ok     b: strong read: 1..2     c: strong read: 1..3
//
// The read ends before a version that was acknowledged before it began. Appends are checked on the tables, so
// decisions on the old state end in a conflict; refusals on it do not.
func laggingReads() targets.Target {
	return swap(targets.Control{
		ID: "cv-mem-03", Part: "read",
		Bug:  "serves strong reads from a copy that is brought up to date only after each read",
		Must: []string{"read-is-prefix"},
		May: map[string]string{
			"truthful-rejections": "a refusal decided on the old state",
			"monotonic-bids":      "a stale high bid is shown after a higher one was accepted",
			"idempotent-bids":     "a replay whose acceptance the copy does not show yet is refused",
			"failed-means-absent": "a replay whose acceptance the copy does not show yet is refused",
			"command-once":        "a continued command whose event the copy does not show yet is decided again",
		},
		Scripts: []string{"det-cv-mem-03"},
	}, laggingCopy, func() memory.Parts {
		p := memory.Reference()
		p.Read = lagging(p.Read)
		return p
	})
}

func lagging(tables func(context.Context, *memory.Conn, eventstore.ReadRequest) ([]eventstore.Event, error)) func(context.Context, *memory.Conn, eventstore.ReadRequest) ([]eventstore.Event, error) {
	var mu sync.Mutex
	copied := map[string]uint64{} // the head that the copy of a stream has reached; the first read makes it
	return func(ctx context.Context, c *memory.Conn, r eventstore.ReadRequest) ([]eventstore.Event, error) {
		events, err := tables(ctx, c, r)
		if err != nil || len(events) == 0 {
			return events, err
		}
		mu.Lock()
		defer mu.Unlock()
		shown, known := copied[r.Stream]
		if last := events[len(events)-1].Version; last > shown {
			copied[r.Stream] = last
		}
		if known {
			events = slices.DeleteFunc(events, func(e eventstore.Event) bool { return e.Version > shown })
		}
		return events, nil
	}
}

// naivePoll reads every visible event after the checkpoint, also above a position that is still in flight.
//
//	a: position 7 |held|                      commit
//	b:              position 8  commit
//	projector:                   poll: 8, checkpoint 8        poll after 8: nothing
//
// Event 7 is covered and never handled.
func naivePoll() targets.Target {
	return swap(targets.Control{
		ID: "cv-pg-01", Part: "reader",
		Bug:  "polls position > checkpoint and takes the highest position seen for its checkpoint",
		Must: []string{"no-skipped-checkpoint", "projection-equals-fold"},
		May: map[string]string{
			"in-order-projection": "a later event of the skipped event's stream is applied",
			"atomic-checkpoint":   "an observation after the skip shows a view without the covered event",
		},
		Scripts: []string{"det-cv-pg-01"},
	}, naiveReader, func() memory.Parts {
		p := memory.Reference()
		p.Poll = memory.PollWith(func(db *engine.DB, after uint64, limit int) ([]eventstore.Event, string) {
			return db.Visible(after, limit), ""
		})
		return p
	})
}
