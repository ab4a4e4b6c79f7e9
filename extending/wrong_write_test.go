package extending_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/extending/shelf"
	"github.com/eventproof/eventproof/points"
)

// doze waits as a disk or a network would, whether or not the caller still listens.
func doze(d time.Duration) { time.Sleep(d) }

// put writes a frame, under the turn of the caller.
func put(c *shelf.Conn, f shelf.Frame) (eventstore.Appended, error) {
	if _, err := c.Shelf.Write(f); err != nil {
		return eventstore.Appended{}, shelf.Refused("append", eventstore.Rejected, err)
	}
	return f.Note.Answer, nil
}

// take takes the turn of the writers.
func take(ctx context.Context, c *shelf.Conn) error {
	if err := c.Shelf.Writing.Take(ctx); err != nil {
		return shelf.Refused("append", eventstore.NotSent, err)
	}
	return nil
}

// known answers a request that was executed before.
func known(c *shelf.Conn, a eventstore.Append) (eventstore.Appended, bool) {
	first, ok := c.Shelf.Noted(a.Request)
	first.Replayed = true
	return first, ok
}

// The head is compared before the turn is taken and trusted after it.
func checkThenAct() parts {
	return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
		head := c.Shelf.Head(a.Stream)
		if err := shelf.Compare(a.Expected, head); err != nil {
			return eventstore.Appended{}, err
		}
		doze(2 * time.Millisecond)
		if err := take(ctx, c); err != nil {
			return eventstore.Appended{}, err
		}
		defer c.Shelf.Writing.Leave()
		if first, ok := known(c, a); ok {
			return first, nil
		}
		return put(c, shelf.NewFrame(a, head))
	}}
}

// The expected version is not looked at: what was decided on an old state lands behind the new one.
func noVersionCheck() parts {
	return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
		a.Expected = eventstore.Any()
		return c.Append(ctx, a)
	}}
}

// The check is `expected > head` where it should be `expected != head`.
func onlyAheadIsRefused() parts {
	return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
		if a.Expected.Version() < c.Shelf.Head(a.Stream) {
			a.Expected = eventstore.Any()
		}
		return c.Append(ctx, a)
	}}
}

// The answer goes out when the event is in the buffer; the buffer is written a little later.
func ackBeforeWrite() parts {
	return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
		if err := take(ctx, c); err != nil {
			return eventstore.Appended{}, err
		}
		if first, ok := known(c, a); ok {
			c.Shelf.Writing.Leave()
			return first, nil
		}
		head := c.Shelf.Head(a.Stream)
		if err := shelf.Compare(a.Expected, head); err != nil {
			c.Shelf.Writing.Leave()
			return eventstore.Appended{}, err
		}
		f := shelf.NewFrame(a, head)
		answer := f.Note.Answer
		go func() {
			defer c.Shelf.Writing.Leave()
			doze(4 * time.Millisecond)
			_, _ = c.Shelf.Write(f)
		}()
		return answer, nil
	}}
}

// As before, and now and then the buffer is lost: every 40th.
func lostBuffer() parts {
	var mu sync.Mutex
	var n int
	return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
		mu.Lock()
		n++
		lost := n%40 == 0
		mu.Unlock()
		if !lost || shelf.Compare(a.Expected, c.Shelf.Head(a.Stream)) != nil {
			return c.Append(ctx, a)
		}
		return shelf.NewFrame(a, c.Shelf.Head(a.Stream)).Note.Answer, nil
	}}
}

// A request is not remembered: a repeated blind append is executed again, under the same event ids.
func forgetsRequests() parts {
	return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
		if err := take(ctx, c); err != nil {
			return eventstore.Appended{}, err
		}
		defer c.Shelf.Writing.Leave()
		head := c.Shelf.Head(a.Stream)
		if err := shelf.Compare(a.Expected, head); err != nil {
			return eventstore.Appended{}, err
		}
		return put(c, shelf.NewFrame(a, head))
	}}
}

// The store of remembered requests is a cache of three.
func shortMemory() parts {
	var mu sync.Mutex
	var last []string
	return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
		if err := take(ctx, c); err != nil {
			return eventstore.Appended{}, err
		}
		defer c.Shelf.Writing.Leave()
		mu.Lock()
		defer mu.Unlock()
		for _, r := range last {
			if first, ok := known(c, a); ok && r == a.Request {
				return first, nil
			}
		}
		head := c.Shelf.Head(a.Stream)
		if err := shelf.Compare(a.Expected, head); err != nil {
			return eventstore.Appended{}, err
		}
		if last = append(last, a.Request); len(last) > 3 {
			last = last[1:]
		}
		return put(c, shelf.NewFrame(a, head))
	}}
}

// A repeated request is answered with where the stream stands now, in place of the first result.
func replayTellsTheHead() parts {
	return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
		answer, err := c.Append(ctx, a)
		if answer.Replayed {
			answer.Last = c.Shelf.Head(a.Stream)
			answer.First = answer.Last
			answer.Positions = nil
		}
		return answer, err
	}}
}

// The request is noted before the version is compared and in a unit of its own: after a conflict the next decision of
// the same command is answered with a result that never was.
func noteBeforeAppend() parts {
	var mu sync.Mutex
	notes := map[string]eventstore.Appended{}
	return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
		mu.Lock()
		first, ok := notes[a.Request]
		if !ok {
			notes[a.Request] = shelf.NewFrame(a, c.Shelf.Head(a.Stream)).Note.Answer
		}
		mu.Unlock()
		if ok {
			first.Replayed = true
			return first, nil
		}
		return c.Append(ctx, a)
	}}
}

// Two appends in a row that say the same are taken for one that was repeated.
func dedupeByContent() parts {
	var mu sync.Mutex
	type seen struct {
		data   []byte
		answer eventstore.Appended
	}
	last := map[string]seen{}
	return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
		mu.Lock()
		s, ok := last[a.Stream]
		mu.Unlock()
		// The time stamp of the event is left out of the comparison: a client's clock may have moved.
		cut := func(b []byte) []byte { b, _, _ = bytes.Cut(b, []byte(`"at"`)); return b }
		if ok && len(cut(s.data)) > 2 && bytes.Equal(cut(s.data), cut(a.Events[0].Data)) {
			s.answer.Replayed = true
			return s.answer, nil
		}
		answer, err := c.Append(ctx, a)
		if err == nil {
			mu.Lock()
			last[a.Stream] = seen{a.Events[0].Data, answer}
			mu.Unlock()
		}
		return answer, err
	}}
}

// A time-out that struck after the commit is told as a failure.
func timeoutMeansFailed() parts {
	return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
		answer, err := c.Append(ctx, a)
		if err == nil && a.Events[0].ID[15]%8 == 0 {
			return eventstore.Appended{}, shelf.Refused("append", eventstore.Rejected, errors.New("i/o timeout"))
		}
		return answer, err
	}}
}

// The work goes on in the background when the caller's patience ends, and the caller is told "not sent".
func lateAfterNotSent() parts {
	return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
		if a.Events[0].ID[15]%16 != 0 {
			return c.Append(ctx, a)
		}
		go func() {
			doze(30 * time.Millisecond)
			_, _ = c.Append(context.WithoutCancel(ctx), a)
		}()
		return eventstore.Appended{}, shelf.Refused("append", eventstore.Rejected, errors.New("pool is exhausted"))
	}}
}

// The lock is one for the whole store, and whoever does not get it at once is told that the version has moved.
func falseConflicts() parts {
	return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
		select {
		case c.Shelf.Writing <- struct{}{}:
			doze(time.Millisecond)
			c.Shelf.Writing.Leave()
			return c.Append(ctx, a)
		default:
			return eventstore.Appended{}, shelf.Refused("append", eventstore.VersionConflict, errors.New("busy"))
		}
	}}
}

// Each connection caches heads; a head that another connection has moved makes it refuse what is legal.
func cachedHeads() parts {
	var mu sync.Mutex
	type key struct{ conn, stream string }
	heads := map[key]uint64{}
	return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
		k := key{c.Name, a.Stream}
		mu.Lock()
		head, ok := heads[k]
		delete(heads, k) // a refusal invalidates the entry
		mu.Unlock()
		if ok && a.Expected.Version() > head {
			return eventstore.Appended{}, shelf.Compare(a.Expected, head)
		}
		answer, err := c.Append(ctx, a)
		if err == nil {
			mu.Lock()
			heads[k] = answer.Last
			mu.Unlock()
		}
		return answer, err
	}}
}

// Strong reads are answered by a copy that is refreshed every 25 ms.
func readsFromCopy() parts {
	var mu sync.Mutex
	copies := map[string][]eventstore.Event{}
	at := map[string]time.Time{}
	return parts{read: func(_ context.Context, c *shelf.Conn, r eventstore.ReadRequest) (eventstore.Slice, error) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(at[r.Stream]) > 25*time.Millisecond {
			copies[r.Stream], at[r.Stream] = c.Shelf.Stream(r.Stream, 0, 0), time.Now()
		}
		var s eventstore.Slice
		for _, e := range copies[r.Stream] {
			if e.Version >= r.From && (r.To == 0 || e.Version <= r.To) {
				s.Events = append(s.Events, e)
			}
		}
		return s, nil
	}}
}

// A read returns one page and forgets that there are more.
func onePageOnly() parts {
	return parts{read: func(ctx context.Context, c *shelf.Conn, r eventstore.ReadRequest) (eventstore.Slice, error) {
		s, err := c.Read(ctx, r)
		s.Events = s.Events[:min(len(s.Events), 20)]
		return s, err
	}}
}

// Streams are found by prefix: "account-1" also finds "account-10". Here "account-1" finds "account-2" as well.
func prefixRead() parts {
	return parts{read: func(ctx context.Context, c *shelf.Conn, r eventstore.ReadRequest) (eventstore.Slice, error) {
		s, err := c.Read(ctx, r)
		if r.Stream == "account-1" && len(s.Events) > 0 {
			s.Events = append(s.Events, c.Shelf.Stream("account-2", s.Events[len(s.Events)-1].Version+1, r.To)...)
		}
		return s, err
	}}
}

// A batch is written event by event; the gate may end the role in between.
func tornBatch() parts {
	return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
		if err := take(ctx, c); err != nil {
			return eventstore.Appended{}, err
		}
		defer c.Shelf.Writing.Leave()
		if first, ok := known(c, a); ok {
			return first, nil
		}
		head := c.Shelf.Head(a.Stream)
		if err := shelf.Compare(a.Expected, head); err != nil {
			return eventstore.Appended{}, err
		}
		whole := shelf.NewFrame(a, head)
		var last eventstore.Appended
		for i, card := range whole.Cards {
			if i > 0 {
				if err := c.At(ctx, points.AppendAfterInsert); err != nil {
					return eventstore.Appended{}, shelf.Lost("append", err)
				}
			}
			one := shelf.Frame{Cards: []shelf.Card{card}, Note: &shelf.Note{}}
			if _, err := put(c, one); err != nil {
				return eventstore.Appended{}, err
			}
			last.Positions = append(last.Positions, one.Note.Answer.Positions...)
		}
		whole.Note.Answer.Positions = last.Positions
		answer := whole.Note.Answer
		_, err := c.Shelf.Write(shelf.Frame{Note: whole.Note})
		return answer, err
	}}
}

// The store makes event ids of its own.
func ownIDs() parts {
	return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
		mine := a
		mine.Events = append([]eventstore.NewEvent(nil), a.Events...)
		for i := range mine.Events {
			mine.Events[i].ID[3] ^= 0xff
		}
		answer, err := c.Append(ctx, mine)
		for i := range answer.Events {
			answer.Events[i] = a.Events[min(i, len(a.Events)-1)].ID
		}
		return answer, err
	}}
}

// Versions come from a counter that is drawn before the append and not given back by one that is refused.
func burnsVersions() parts {
	var mu sync.Mutex
	burned := map[string]uint64{}
	return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
		if err := take(ctx, c); err != nil {
			return eventstore.Appended{}, err
		}
		defer c.Shelf.Writing.Leave()
		mu.Lock()
		defer mu.Unlock()
		if first, ok := known(c, a); ok {
			return first, nil
		}
		head := c.Shelf.Head(a.Stream)
		if err := shelf.Compare(a.Expected, head); err != nil {
			burned[a.Stream]++
			return eventstore.Appended{}, err
		}
		head += burned[a.Stream]
		delete(burned, a.Stream)
		return put(c, shelf.NewFrame(a, head))
	}}
}

// The store parses the JSON and writes it again its own way, as a column of type jsonb does.
func reordersJSON() parts {
	return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
		mine := a
		mine.Events = append([]eventstore.NewEvent(nil), a.Events...)
		for i := range mine.Events {
			mine.Events[i].Data = bytes.ReplaceAll(mine.Events[i].Data, []byte(`{"`), []byte(`{ "`))
		}
		return c.Append(ctx, mine)
	}}
}

// Positions in the answer are those of the next frame.
func wrongPositions() parts {
	return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
		answer, err := c.Append(ctx, a)
		answer.Positions = append([]eventstore.Position(nil), answer.Positions...)
		for i := range answer.Positions {
			answer.Positions[i].Major++
		}
		return answer, err
	}}
}

// Snapshots are kept under a hash of the stream's name, and the hash is a short one.
func collidingSnapshots() parts {
	short := func(stream string) string { return "slot-" + string(rune('0'+len(stream)%2)) }
	return parts{
		save: func(ctx context.Context, c *shelf.Conn, s eventstore.Snapshot) error {
			s.Stream = short(s.Stream)
			return c.SaveSnapshot(ctx, s)
		},
		find: func(ctx context.Context, c *shelf.Conn, stream string) (eventstore.Snapshot, bool, error) {
			s, ok, err := c.LoadSnapshot(ctx, short(stream))
			s.Stream = stream
			return s, ok, err
		},
	}
}

// An event is put at the version that its writer expects, whatever is there, and reads show what was put last.
func lastWriterWins() parts {
	return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
		if err := take(ctx, c); err != nil {
			return eventstore.Appended{}, err
		}
		defer c.Shelf.Writing.Leave()
		if first, ok := known(c, a); ok {
			return first, nil
		}
		head := c.Shelf.Head(a.Stream)
		if !a.Expected.IsAny() {
			head = a.Expected.Version()
		}
		return put(c, shelf.NewFrame(a, head))
	}, read: func(ctx context.Context, c *shelf.Conn, r eventstore.ReadRequest) (eventstore.Slice, error) {
		s, err := c.Read(ctx, r)
		byVersion := map[uint64]eventstore.Event{}
		var top uint64
		for _, e := range s.Events {
			byVersion[e.Version] = e
			top = max(top, e.Version)
		}
		s.Events = nil
		for v := r.From; v <= top; v++ {
			if e, ok := byVersion[v]; ok {
				s.Events = append(s.Events, e)
			}
		}
		return s, err
	}}
}

// Now and then an event lands on the stream of another account: the statement is prepared with the last caller's name.
func wrongStream() parts {
	var mu sync.Mutex
	var last string
	return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
		mu.Lock()
		before := last
		last = a.Stream
		mu.Unlock()
		if before == "" || before == a.Stream || !a.Expected.IsAny() {
			return c.Append(ctx, a)
		}
		a.Stream = before
		return c.Append(ctx, a)
	}}
}

// An acknowledgement of nothing: one blind append in twenty is answered and forgotten.
func losesBlindAppends() parts {
	var n atomic.Int64
	return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
		if n.Add(1)%20 != 0 || !a.Expected.IsAny() {
			return c.Append(ctx, a)
		}
		head := c.Shelf.Head(a.Stream)
		return eventstore.Appended{First: head + 1, Last: head + 1}, nil
	}}
}

// refuses is a variant that now and then answers a legal append with a definite failure.
func refuses(reason eventstore.Reason) func() parts {
	return func() parts {
		var n atomic.Int64
		return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
			if i := n.Add(1); i > 12 && i%5 == 0 {
				return eventstore.Appended{}, shelf.Refused("append", reason, errors.New("value out of range"))
			}
			return c.Append(ctx, a)
		}}
	}
}

// reads is a variant that changes what a right read shows.
func reads(change func(s *eventstore.Slice)) func() parts {
	return func() parts {
		return parts{read: func(ctx context.Context, c *shelf.Conn, r eventstore.ReadRequest) (eventstore.Slice, error) {
			s, err := c.Read(ctx, r)
			change(&s)
			return s, err
		}}
	}
}

// An event at a page's border comes twice.
var readsTwice = reads(func(s *eventstore.Slice) {
	if len(s.Events) > 3 {
		s.Events = append(s.Events[:2:2], s.Events[1:]...)
	}
})

// `version > from` where it should be `>=`.
func readsFromTheNext() parts {
	return parts{read: func(ctx context.Context, c *shelf.Conn, r eventstore.ReadRequest) (eventstore.Slice, error) {
		if r.From > 1 {
			r.From++
		}
		return c.Read(ctx, r)
	}}
}

// One bit of a snapshot is lost.
func rottenSnapshots() parts {
	return parts{find: func(ctx context.Context, c *shelf.Conn, stream string) (eventstore.Snapshot, bool, error) {
		s, ok, err := c.LoadSnapshot(ctx, stream)
		if s.State = slices.Clone(s.State); len(s.State) > 18 {
			s.State[18] ^= 1
		}
		return s, ok, err
	}}
}

// After its sixtieth append the store refuses every later one for load, for good.
func throttlesForGood() parts {
	var n atomic.Int64
	return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
		if n.Add(1) > 60 {
			return eventstore.Appended{}, shelf.Refused("append", eventstore.Throttled, nil)
		}
		return c.Append(ctx, a)
	}}
}
