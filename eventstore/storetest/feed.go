package storetest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/eventproof/eventproof/eventstore"
)

func feedOf(t *testing.T, c Conn) eventstore.Feed {
	t.Helper()
	if c.Feed == nil {
		t.Skip("the store has no feed")
	}
	return c.Feed
}

// fill appends n events round robin to three streams and returns them in the order of their appends.
func fill(t *testing.T, s eventstore.Store, src *ids, n int) []eventstore.EventID {
	t.Helper()
	var out []eventstore.EventID
	for i := range n {
		e := src.event(i + 1)
		out = append(out, e.ID)
		mustAppend(t, s, src.write(fmt.Sprintf("s-%d", i%3), eventstore.Any(), e))
	}
	return out
}

// drain polls until n events have come, or fails after half a minute. Polls that give nothing are repeated:
// a reader may be held back for a while.
func drain(t *testing.T, feed eventstore.Feed, after eventstore.Cursor, limit, n int) ([]eventstore.Event, eventstore.Cursor) {
	t.Helper()
	ctx := within(t, 30*time.Second)
	var out []eventstore.Event
	for len(out) < n {
		page, err := feed.Poll(ctx, after, limit)
		if err != nil {
			t.Fatalf("poll after %q: %v (%d of %d events came)", after, err, len(out), n)
		}
		checkPage(t, page, after, limit)
		out, after = append(out, page.Events...), page.Next
	}
	return out, after
}

// checkPage checks what one page must keep by itself.
func checkPage(t *testing.T, page eventstore.Page, after eventstore.Cursor, limit int) {
	t.Helper()
	if len(page.Events) > limit {
		t.Fatalf("a page of %d events, the limit was %d", len(page.Events), limit)
	}
	if len(page.Events) == 0 && page.Next.String() != after.String() {
		t.Fatalf("an empty page moved the cursor from %q to %q", after, page.Next)
	}
	for i, e := range page.Events {
		if e.Position.IsZero() {
			t.Fatalf("%s version %d came without a position", e.Stream, e.Version)
		}
		if after.Covers(e.Position) {
			t.Fatalf("%s version %d at %s was claimed by the cursor %q", e.Stream, e.Version, e.Position, after)
		}
		if !page.Next.Covers(e.Position) {
			t.Fatalf("the cursor %q does not claim %s, which it returned", page.Next, e.Position)
		}
		if i > 0 && e.Position.Shard == page.Events[i-1].Position.Shard && e.Position.Compare(page.Events[i-1].Position) <= 0 {
			t.Fatalf("%s came after %s", e.Position, page.Events[i-1].Position)
		}
	}
}

func feedPages(t *testing.T, f Fixture) {
	conn := f.Connect(t)
	feed := feedOf(t, conn)
	var src ids
	if page, err := feed.Poll(t.Context(), eventstore.Cursor{}, 10); err != nil || len(page.Events) != 0 || !page.Next.IsZero() {
		t.Fatalf("the feed of an empty store gave %+v, %v", page, err)
	}
	want := fill(t, conn.Store, &src, 20)
	for _, limit := range []int{1, 3, 7, 20, 100} {
		got, end := drain(t, feed, eventstore.Cursor{}, limit, len(want))
		if f.promises(eventstore.RealTimeOrder) && !slices.Equal(storedIDs(got), want) {
			t.Fatalf("limit %d: the feed does not follow the order of the appends", limit)
		}
		checkComplete(t, got, want)
		page, err := feed.Poll(t.Context(), end, limit)
		if err != nil || len(page.Events) != 0 {
			t.Fatalf("limit %d: after the end came %d events, %v", limit, len(page.Events), err)
		}
		checkPage(t, page, end, limit)
	}
}

// checkComplete checks that got holds each event of want once, with the versions of each stream in order.
func checkComplete(t *testing.T, got []eventstore.Event, want []eventstore.EventID) {
	t.Helper()
	seen := map[eventstore.EventID]bool{}
	version := map[string]uint64{}
	for _, e := range got {
		if seen[e.ID] {
			t.Fatalf("the feed gave %s version %d twice", e.Stream, e.Version)
		}
		seen[e.ID] = true
		if e.Version != version[e.Stream]+1 {
			t.Fatalf("the feed gave %s version %d after version %d", e.Stream, e.Version, version[e.Stream])
		}
		version[e.Stream] = e.Version
	}
	for _, id := range want {
		if !seen[id] {
			t.Fatalf("the feed never gave %s", id)
		}
	}
}

func feedResumes(t *testing.T, f Fixture) {
	conn := f.Connect(t)
	feed := feedOf(t, conn)
	var src ids
	want := fill(t, conn.Store, &src, 9)
	first, cursor := drain(t, feed, eventstore.Cursor{}, 4, 4)
	stored, err := eventstore.ParseCursor(cursor.String())
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, fill(t, conn.Store, &src, 3)...)
	rest, _ := drain(t, feedOf(t, f.Connect(t)), stored, 5, len(want)-len(first))
	checkComplete(t, append(first, rest...), want)
}

func feedConcurrent(t *testing.T, f Fixture) {
	f.require(t, eventstore.CompleteFeed)
	const writers, each = 8, 25
	var src ids
	reader := f.Connect(t)
	feed := feedOf(t, reader)
	ctx := within(t, 60*time.Second)
	var (
		mu   sync.Mutex
		want []eventstore.EventID
		wg   sync.WaitGroup
	)
	for w := range writers {
		own := f.Connect(t).Store
		wg.Go(func() {
			for v := range uint64(each) {
				e := src.event(1)
				if _, err := retried(ctx, own, src.write(fmt.Sprintf("w-%d", w), eventstore.Exact(v), e)); err != nil {
					t.Errorf("append: %v", err)
					return
				}
				mu.Lock()
				want = append(want, e.ID)
				mu.Unlock()
			}
		})
	}
	got, _ := drain(t, feed, eventstore.Cursor{}, 7, writers*each)
	wg.Wait()
	checkComplete(t, got, want)
}

func feedInFlight(t *testing.T, f Fixture) {
	f.require(t, eventstore.CompleteFeed)
	if f.Hold == nil {
		t.Skip("an append of this store can't be held at its commit")
	}
	var src ids
	conn := f.Connect(t)
	feed := feedOf(t, conn)
	held, arrived, release := f.Hold(t)
	ctx := within(t, 30*time.Second)
	early, late := src.event(1), src.event(1)
	var wg sync.WaitGroup
	send := func(s eventstore.Store, stream string, e eventstore.NewEvent) <-chan struct{} {
		done := make(chan struct{})
		wg.Go(func() {
			defer close(done)
			if _, err := s.Append(ctx, src.write(stream, eventstore.NoStream(), e)); err != nil {
				t.Errorf("append to %s: %v", stream, err)
			}
		})
		return done
	}
	send(held.Store, "early", early)
	select {
	case <-arrived:
	case <-ctx.Done():
		t.Fatal("the held append did not come to its commit")
	}
	passed := send(f.Connect(t).Store, "late", late)
	// A store that lets nobody draw a position meanwhile makes the later append wait; that is right as well.
	select {
	case <-passed:
	case <-time.After(200 * time.Millisecond):
	}
	page, err := feed.Poll(ctx, eventstore.Cursor{}, 10)
	if err != nil {
		t.Fatal(err)
	}
	checkPage(t, page, eventstore.Cursor{}, 10)
	release()
	wg.Wait()
	rest, _ := drain(t, feed, page.Next, 10, 2-len(page.Events))
	checkComplete(t, append(page.Events, rest...), []eventstore.EventID{early.ID, late.ID})
}

func positions(t *testing.T, f Fixture) {
	f.require(t, eventstore.GlobalOrder)
	conn := f.Connect(t)
	feed := feedOf(t, conn)
	var src ids
	told := map[eventstore.EventID]eventstore.Position{}
	var n int
	for i := range 6 {
		events := src.events(1 + i%2)
		if !f.promises(eventstore.AtomicBatch) {
			events = events[:1]
		}
		got := mustAppend(t, conn.Store, src.write(fmt.Sprintf("s-%d", i%3), eventstore.Any(), events...))
		if got.Positions != nil && len(got.Positions) != len(events) {
			t.Fatalf("%d events were given %d positions", len(events), len(got.Positions))
		}
		for j, p := range got.Positions {
			told[events[j].ID] = p
		}
		n += len(events)
	}
	fed, _ := drain(t, feed, eventstore.Cursor{}, 4, n)
	for _, e := range fed {
		if p, ok := told[e.ID]; ok && p != e.Position {
			t.Errorf("%s version %d: append told position %s, the feed %s", e.Stream, e.Version, p, e.Position)
		}
		told[e.ID] = e.Position
	}
	for i := range 3 {
		for _, e := range mustRead(t, conn.Store, all(fmt.Sprintf("s-%d", i))) {
			if !e.Position.IsZero() && e.Position != told[e.ID] {
				t.Errorf("%s version %d: read told position %s, the feed %s", e.Stream, e.Version, e.Position, told[e.ID])
			}
		}
	}
}

func snapshot(t *testing.T, f Fixture) {
	conn := f.Connect(t)
	if conn.Snapshots == nil {
		t.Skip("the store keeps no snapshots")
	}
	if _, found, err := conn.Snapshots.LoadSnapshot(t.Context(), "s"); err != nil || found {
		t.Fatalf("a snapshot that was never saved: found %v, %v", found, err)
	}
	other := f.Connect(t).Snapshots
	for _, v := range []uint64{10, 20} {
		want := eventstore.Snapshot{Stream: "s", Version: v, State: []byte{0, byte(v), 0xff, '\n'}}
		if err := conn.Snapshots.SaveSnapshot(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		got, found, err := other.LoadSnapshot(t.Context(), "s")
		if err != nil || !found || got.Stream != "s" || got.Version != v || !slices.Equal(got.State, want.State) {
			t.Fatalf("saved %+v, loaded %+v, found %v, %v", want, got, found, err)
		}
	}
	if _, found, err := conn.Snapshots.LoadSnapshot(t.Context(), "other"); err != nil || found {
		t.Fatalf("the snapshot of another stream: found %v, %v", found, err)
	}
}
