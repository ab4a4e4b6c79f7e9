package dynamodb

import (
	"fmt"
	"slices"
	"testing"

	"github.com/eventproof/eventproof/eventstore"
)

// at makes a record of version v of a stream.
func at(shard uint32, sequence uint64, stream string, v uint64) change {
	p := eventstore.Position{Shard: shard, Major: 10, Minor: sequence}
	e := eventstore.Event{Stream: stream, Version: v, Position: p}
	e.ID = eventstore.EventID{byte(v), stream[0]}
	return change{at: p, event: e}
}

// give polls a feed that has read some records, without a store.
func give(f *feed, after eventstore.Cursor, limit int) (names []string, next eventstore.Cursor, held string) {
	f.claim(after)
	page := f.page(after, limit)
	for _, e := range page.Events {
		names = append(names, fmt.Sprintf("%s%d", e.Stream, e.Version))
	}
	return names, page.Next, page.Held
}

func TestTheFeedHoldsBackWhatComesBeforeALowerVersion(t *testing.T) {
	s := &session{}
	for _, c := range []struct {
		name    string
		records []change
		want    [][]string // page by page, at most 3 events each
		held    string     // by the last page, which is empty
	}{
		{"in order", []change{at(0, 1, "a", 1), at(0, 2, "b", 1), at(0, 3, "a", 2)}, [][]string{{"a1", "b1", "a2"}}, ""},
		{"turned round in a shard", []change{at(0, 1, "a", 2), at(0, 2, "a", 1), at(0, 3, "b", 1)}, [][]string{{"a1", "b1"}, {"a2"}}, ""},
		{"over two shards", []change{at(1, 1, "a", 1), at(0, 2, "a", 2), at(1, 3, "a", 3)}, [][]string{{"a1", "a2", "a3"}}, ""},
		{"turned round over two shards", []change{at(0, 1, "a", 2), at(1, 2, "a", 1), at(1, 3, "b", 1)}, [][]string{{"a1", "b1", "a2"}}, ""},
		{"delivered twice", []change{at(0, 1, "a", 1), at(0, 2, "a", 1), at(0, 3, "a", 2)}, [][]string{{"a1", "a2"}}, ""},
		{"a hole for ever", []change{at(0, 1, "a", 1), at(0, 2, "a", 3), at(0, 3, "b", 1)}, [][]string{{"a1", "b1"}}, "version 3 of a is here, version 2 is not"},
		{"three turned round", []change{at(0, 1, "a", 3), at(0, 2, "a", 2), at(0, 3, "a", 1)}, [][]string{{"a1"}, {"a2"}, {"a3"}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFeed(s)
			for _, r := range c.records {
				f.take(r)
			}
			var after eventstore.Cursor
			for i, want := range append(c.want, nil) {
				got, next, held := give(f, after, 3)
				if !slices.Equal(got, want) {
					t.Fatalf("page %d: %v, want %v", i+1, got, want)
				}
				// A new process that has only the cursor goes on in the same way.
				again := newFeed(s)
				again.claim(after)
				for _, r := range c.records {
					again.take(r)
				}
				if page := again.page(after, 3); page.Next.String() != next.String() || len(page.Events) != len(got) {
					t.Fatalf("page %d: after a restart %d events up to %q, before %q", i+1, len(page.Events), page.Next, next)
				}
				if len(want) == 0 && (held != c.held || next.String() != after.String()) {
					t.Errorf("held by %q, cursor from %q to %q", held, after, next)
				}
				after = next
			}
		})
	}
}

func TestWhatIsHeldBackStandsInTheCursor(t *testing.T) {
	f := newFeed(&session{})
	first, second := at(0, 1, "a", 2), at(0, 2, "a", 1)
	f.take(first)
	f.take(second)
	_, next, _ := give(f, eventstore.Cursor{}, 1)
	if !next.Covers(second.at) || next.Covers(first.at) {
		t.Fatalf("%q claims the held event", next)
	}
	// The record of the held event has not been read again yet when the next page is made.
	late := newFeed(&session{})
	late.claim(next)
	late.take(second)
	late.take(at(0, 3, "b", 1))
	if _, after, _ := give(late, next, 1); after.Covers(first.at) || !after.Covers(eventstore.Position{Major: 10, Minor: 3}) {
		t.Errorf("%q forgets the held event", after)
	}
}

func TestAnOverwrittenEventIsGivenOutAsWell(t *testing.T) {
	f := newFeed(&session{})
	again := at(0, 2, "a", 1)
	again.rewritten = true
	f.take(at(0, 1, "a", 1))
	f.take(again)
	if got, _, _ := give(f, eventstore.Cursor{}, 5); !slices.Equal(got, []string{"a1", "a1"}) {
		t.Errorf("gave %v", got)
	}
}

func TestAReadThatShowsATransactionInPartIsTorn(t *testing.T) {
	stored := func(versions ...uint64) (out []Stored) {
		for _, v := range versions {
			s := Stored{BatchLast: v}
			if v == 5 || v == 6 {
				s.BatchLast = 6
			}
			s.Version = v
			out = append(out, s)
		}
		return out
	}
	for _, c := range []struct {
		name     string
		from, to uint64
		events   []Stored
		torn     bool
	}{
		{"nothing", 1, 0, nil, false},
		{"whole", 4, 0, stored(4, 5, 6), false},
		{"without the end of the batch", 4, 0, stored(4, 5), true},
		{"without its beginning", 4, 0, stored(4, 6), true},
		{"the range begins behind what is there", 5, 0, stored(6), true},
		{"the range ends in the batch", 4, 5, stored(4, 5), false},
		{"the range goes beyond, the read does not", 4, 9, stored(4, 5), true},
	} {
		if got := torn(c.events, eventstore.ReadRequest{From: c.from, To: c.to}); got != c.torn {
			t.Errorf("%s: torn %v", c.name, got)
		}
	}
}

func TestAPositionIsTheSequenceNumberInTwoParts(t *testing.T) {
	for text, want := range map[string]eventstore.Position{
		"1":                                      {Shard: 2, Minor: 1},
		"100000000000000000007":                  {Shard: 2, Major: 10, Minor: 7},
		"12345678901234567890123456789012345678": {Shard: 2, Major: 1234567890123456789, Minor: 123456789012345678},
	} {
		if got, err := positionOf(2, text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "-4", "x", "999999999999999999999999999999999999999999"} {
		if got, err := positionOf(0, text); err == nil {
			t.Errorf("%q became %v", text, got)
		}
	}
}
