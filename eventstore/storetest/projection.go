package storetest

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eventproof/eventproof/eventstore"
)

func tally(t *testing.T, c Conn) eventstore.Projection {
	t.Helper()
	if c.Projection == nil || c.Feed == nil {
		t.Skip("the store keeps no projection")
	}
	p, err := c.Projection(Tally{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// claim repeats a claim that definitely failed for a reason that invites the same again, such as a conflict with an
// apply that was cut off; a store has about five seconds for that.
func claim(t *testing.T, p eventstore.Projection) eventstore.Checkpoint {
	t.Helper()
	for try := 0; ; try++ {
		c, err := p.Claim(t.Context())
		outcome, reason := eventstore.Classify(err)
		switch {
		case outcome == eventstore.OK:
			return c
		case outcome == eventstore.Fail && reason.Retriable() && try < 5000:
			time.Sleep(time.Millisecond)
		default:
			t.Fatalf("claim: %v", err)
		}
	}
}

func load(t *testing.T, p eventstore.Projection) eventstore.Checkpoint {
	t.Helper()
	c, err := p.Load(t.Context())
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	return c
}

// next polls one page after a checkpoint and makes the batch of it.
func next(t *testing.T, c Conn, from eventstore.Checkpoint, n int) eventstore.Batch {
	t.Helper()
	events, cursor := drain(t, c.Feed, from.Cursor, n, n)
	return eventstore.Batch{Prev: from, Events: events, Next: cursor}
}

func wantRow(t *testing.T, p eventstore.Projection, key string, want tallyRow, version uint64) {
	t.Helper()
	state, v, found, err := p.Row(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	var got tallyRow
	if found {
		if err := json.Unmarshal(state, &got); err != nil {
			t.Fatal(err)
		}
	}
	if got != want || found != (want.N > 0) || found && v != version {
		t.Fatalf("row %s is %+v at version %d (found %v), want %+v at version %d", key, got, v, found, want, version)
	}
}

func projectionApplies(t *testing.T, f Fixture) {
	conn := f.Connect(t)
	p := tally(t, conn)
	var src ids
	fresh := load(t, p)
	if !fresh.Cursor.IsZero() || fresh.Generation != 1 {
		t.Fatalf("a fresh projection stands at %+v", fresh)
	}
	wantRow(t, p, "s", tallyRow{}, 0)
	mustAppend(t, conn.Store, src.write("s", eventstore.Exact(0), src.event(5)))
	mustAppend(t, conn.Store, src.write("s", eventstore.Exact(1), src.event(7)))
	ignored := src.event(9)
	ignored.Type = "Ignored"
	mustAppend(t, conn.Store, src.write("quiet", eventstore.Exact(0), ignored))

	from := claim(t, p)
	b := next(t, conn, from, 3)
	got, err := p.Apply(t.Context(), b)
	if err != nil {
		t.Fatalf("apply: %v", err)
	}
	if got.Cursor.String() != b.Next.String() || got.Seq <= from.Seq || got.Epoch != from.Epoch || got.Generation != from.Generation {
		t.Fatalf("applied %+v to %+v: the checkpoint is %+v", b.Next, from, got)
	}
	other := f.Connect(t)
	if loaded := load(t, tally(t, other)); loaded.Cursor.String() != got.Cursor.String() || loaded.Seq != got.Seq || loaded.Epoch != got.Epoch {
		t.Fatalf("another connection loads %+v, want %+v", loaded, got)
	}
	wantRow(t, tally(t, other), "s", tallyRow{N: 2, Sum: 12}, 2)
	wantRow(t, p, "quiet", tallyRow{}, 0)

	mustAppend(t, conn.Store, src.write("s", eventstore.Exact(2), src.event(1)))
	if _, err := p.Apply(t.Context(), next(t, conn, got, 1)); err != nil {
		t.Fatalf("apply of the next page: %v", err)
	}
	wantRow(t, p, "s", tallyRow{N: 3, Sum: 13}, 3)
}

func projectionStale(t *testing.T, f Fixture) {
	f.require(t, eventstore.AtomicProjection)
	conn := f.Connect(t)
	p := tally(t, conn)
	var src ids
	fill(t, conn.Store, &src, 6)
	from := claim(t, p)
	b := next(t, conn, from, 3)
	first, err := p.Apply(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Apply(t.Context(), b)
	wantFail(t, err, eventstore.Superseded)
	// A longer page from the same old checkpoint: its new events must not slip in either.
	_, err = p.Apply(t.Context(), next(t, conn, from, 6))
	wantFail(t, err, eventstore.Superseded)
	if now := load(t, p); now.Cursor.String() != first.Cursor.String() || now.Seq != first.Seq {
		t.Fatalf("the checkpoint went from %+v to %+v", first, now)
	}
	for i, key := range []string{"s-0", "s-1", "s-2"} {
		wantRow(t, p, key, tallyRow{N: 1, Sum: i + 1}, 1)
	}
}

func projectionOwners(t *testing.T, f Fixture) {
	f.require(t, eventstore.AtomicProjection)
	a, b := f.Connect(t), f.Connect(t)
	pa, pb := tally(t, a), tally(t, b)
	var src ids
	fill(t, a.Store, &src, 3)
	former := claim(t, pa)
	batch := next(t, a, former, 3)
	now := claim(t, pb)
	if now.Epoch <= former.Epoch {
		t.Fatalf("the second claim has epoch %d, the first had %d", now.Epoch, former.Epoch)
	}
	_, err := pa.Apply(t.Context(), batch)
	wantFail(t, err, eventstore.Superseded)
	wantRow(t, pa, "s-0", tallyRow{}, 0)
	if _, err := pb.Apply(t.Context(), next(t, b, now, 3)); err != nil {
		t.Fatalf("the new owner's apply: %v", err)
	}
	wantRow(t, pa, "s-0", tallyRow{N: 1, Sum: 1}, 1)
}

func projectionRace(t *testing.T, f Fixture) {
	f.require(t, eventstore.AtomicProjection)
	const appliers = 8
	conn := f.Connect(t)
	p := tally(t, conn)
	var src ids
	fill(t, conn.Store, &src, 3)
	b := next(t, conn, claim(t, p), 3)
	ctx := within(t, 30*time.Second)
	var wins atomic.Int32
	var wg sync.WaitGroup
	for range appliers {
		own := tally(t, f.Connect(t))
		wg.Go(func() {
			for {
				_, err := own.Apply(ctx, b)
				outcome, reason := eventstore.Classify(err)
				switch {
				case err == nil:
					wins.Add(1)
				case outcome == eventstore.Fail && reason.Retriable():
					continue
				case outcome != eventstore.Fail || reason != eventstore.Superseded:
					t.Errorf("a loser got %v, want superseded", err)
				}
				return
			}
		})
	}
	wg.Wait()
	if n := wins.Load(); n != 1 {
		t.Fatalf("%d of %d applied the same batch", n, appliers)
	}
	for i, key := range []string{"s-0", "s-1", "s-2"} {
		wantRow(t, p, key, tallyRow{N: 1, Sum: i + 1}, 1)
	}
}

func projectionError(t *testing.T, f Fixture) {
	f.require(t, eventstore.AtomicProjection)
	conn := f.Connect(t)
	p := tally(t, conn)
	var src ids
	mustAppend(t, conn.Store, src.write("s", eventstore.Exact(0), src.event(5)))
	poison := src.event(1)
	poison.Type = "Poison"
	mustAppend(t, conn.Store, src.write("s", eventstore.Exact(1), poison))
	from := claim(t, p)
	_, err := p.Apply(t.Context(), next(t, conn, from, 2))
	wantFail(t, err)
	wantRow(t, p, "s", tallyRow{}, 0)
	if now := load(t, p); now.Seq != from.Seq {
		t.Fatalf("the checkpoint moved from %+v to %+v", from, now)
	}
}

func projectionCancelled(t *testing.T, f Fixture) {
	f.require(t, eventstore.AtomicProjection)
	const events = 30
	conn := f.Connect(t)
	p := tally(t, conn)
	var src ids
	for v := range uint64(events) {
		mustAppend(t, conn.Store, src.write("s", eventstore.Exact(v), src.event(1)))
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	at := claim(t, p)
	for range events {
		ctx, stop := context.WithTimeout(t.Context(), time.Duration(rnd.IntN(2000))*time.Microsecond)
		_, err := p.Apply(ctx, next(t, conn, at, 1))
		stop()
		if outcome, _ := eventstore.Classify(err); outcome == eventstore.Fail {
			if now := load(t, p); now.Seq != at.Seq {
				t.Fatalf("an apply that was told to have failed moved the checkpoint: %v", err)
			}
		}
		at = settled(t, p, at)
		if at.Cursor.IsZero() {
			wantRow(t, p, "s", tallyRow{}, 0)
			continue
		}
		version, err := lastVersion(t, conn, at)
		if err != nil {
			t.Fatal(err)
		}
		wantRow(t, p, "s", tallyRow{N: int(version), Sum: int(version)}, version)
		if version == events {
			return
		}
	}
}

// settled returns the checkpoint once a claim has shut out whatever a cancelled apply may still do.
func settled(t *testing.T, p eventstore.Projection, at eventstore.Checkpoint) eventstore.Checkpoint {
	t.Helper()
	c := claim(t, p)
	if c.Epoch <= at.Epoch {
		t.Fatalf("a claim went from epoch %d to %d", at.Epoch, c.Epoch)
	}
	return c
}

// lastVersion returns the version of the last event of stream s that the checkpoint claims.
func lastVersion(t *testing.T, c Conn, at eventstore.Checkpoint) (uint64, error) {
	t.Helper()
	slice, err := c.Store.Read(t.Context(), all("s"))
	if err != nil {
		return 0, err
	}
	var version uint64
	fed, _ := drain(t, c.Feed, eventstore.Cursor{}, len(slice.Events), len(slice.Events))
	for _, e := range fed {
		if at.Cursor.Covers(e.Position) {
			version = e.Version
		}
	}
	return version, nil
}
