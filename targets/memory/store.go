package memory

import (
	"context"
	"errors"
	"slices"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets/memory/engine"
)

type store struct{ *session }

var _ eventstore.Store = store{}

// Append implements eventstore.Store.
func (s store) Append(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	if err := s.conn.ready(ctx, "append"); err != nil {
		return eventstore.Appended{}, err
	}
	if a.Stream == "" || len(a.Events) == 0 {
		return eventstore.Appended{}, refused(eventstore.Invalid, errors.New("no stream or no event"))
	}
	eventstore.TraceFrom(ctx).RoundTrips(1)
	return s.parts.Append(ctx, s.conn, a)
}

// Read implements eventstore.Store.
func (s store) Read(ctx context.Context, r eventstore.ReadRequest) (eventstore.Slice, error) {
	if err := s.conn.ready(ctx, "read"); err != nil {
		return eventstore.Slice{}, err
	}
	events, err := s.parts.Read(ctx, s.conn, r)
	if err != nil {
		return eventstore.Slice{}, err
	}
	pages := 1
	if r.PageSize > 0 && len(events) > 0 {
		pages = (len(events) + r.PageSize - 1) / r.PageSize
	}
	return eventstore.Slice{Events: events, Pages: pages}, nil
}

// readTables reads the stream as it is. An eventual read is served by a copy that the newest event has not reached: a
// store in memory has none, and would be read as if the two were the same.
func readTables(_ context.Context, c *Conn, r eventstore.ReadRequest) ([]eventstore.Event, error) {
	events := c.DB.Stream(r.Stream, r.From, r.To)
	if r.Consistency == eventstore.Eventual {
		head := c.DB.Head(r.Stream)
		events = slices.DeleteFunc(events, func(e eventstore.Event) bool { return e.Version >= head })
	}
	return events, nil
}

func refused(reason eventstore.Reason, err error) error {
	return &eventstore.Error{Op: "append", Outcome: eventstore.Fail, Reason: reason, Err: err}
}

// Uniqueness is how an append makes sure that a version of a stream is taken once.
type Uniqueness func(ctx context.Context, tx *engine.Tx, slots []engine.Slot) error

// appendUnique is the append of the reference: head compared, positions drawn, then the stream's slots, the
// request and the event ids claimed under unique keys, so that two transactions that saw the same head can't
// both commit.
func appendUnique(ctx context.Context, c *Conn, a eventstore.Append) (eventstore.Appended, error) {
	return AppendWith(func(ctx context.Context, tx *engine.Tx, slots []engine.Slot) error {
		for _, slot := range slots {
			if err := tx.Claim(ctx, slot); err != nil {
				return err
			}
		}
		return nil
	})(ctx, c, a)
}

// AppendWith returns an append part with the given guard of versions.
//
// A request that was executed before is looked up first and again before any refusal is answered: the first
// try of the same request may have committed in between, and its own event is no conflict.
func AppendWith(unique Uniqueness) func(context.Context, *Conn, eventstore.Append) (eventstore.Appended, error) {
	return func(ctx context.Context, c *Conn, a eventstore.Append) (eventstore.Appended, error) {
		tx := c.DB.Begin(c.Name)
		defer tx.Rollback()
		eventstore.TraceFrom(ctx).Transaction(tx.ID())
		answer, err := prepare(ctx, c, tx, a, unique)
		if err != nil {
			if first, ok := tx.Executed(a.Request); ok && a.Request != "" && isRefusal(err) {
				return replayed(first), nil
			}
			return eventstore.Appended{}, err
		}
		if answer.Replayed {
			return answer, nil
		}
		if c.dead.Load() {
			return eventstore.Appended{}, Broken("append", eventstore.Fail, errClosed)
		}
		if err := tx.Commit(); err != nil {
			return eventstore.Appended{}, refused(eventstore.Rejected, err)
		}
		if err := c.At(ctx, points.AppendAfterCommit); err != nil {
			return eventstore.Appended{}, Broken("append", eventstore.Unknown, err)
		}
		return answer, nil
	}
}

// prepare does everything before the commit; every error it returns is a definite failure.
func prepare(ctx context.Context, c *Conn, tx *engine.Tx, a eventstore.Append, unique Uniqueness) (eventstore.Appended, error) {
	var none eventstore.Appended
	at := func(p points.Point) error {
		if err := c.At(ctx, p); err != nil {
			return Broken("append", eventstore.Fail, err)
		}
		return nil
	}
	if err := at(points.AppendBegin); err != nil {
		return none, err
	}
	if first, ok := tx.Executed(a.Request); ok && a.Request != "" {
		return replayed(first), nil
	}
	if err := at(points.AppendBeforeHead); err != nil {
		return none, err
	}
	head := tx.Head(a.Stream)
	if err := compareHead(a.Expected, head); err != nil {
		return none, err
	}
	if err := at(points.AppendAfterHead); err != nil {
		return none, err
	}

	position := tx.Draw(len(a.Events))
	slots := make([]engine.Slot, len(a.Events))
	events := make([]eventstore.Event, len(a.Events))
	answer := eventstore.Appended{First: head + 1, Last: head + uint64(len(a.Events))}
	for i, e := range a.Events {
		slots[i] = engine.Slot{Stream: a.Stream, Version: head + 1 + uint64(i)}
		events[i] = eventstore.Event{
			NewEvent: e, Stream: a.Stream, Version: slots[i].Version,
			Position: eventstore.Position{Minor: position + uint64(i)},
		}
		answer.Events = append(answer.Events, e.ID)
		answer.Positions = append(answer.Positions, events[i].Position)
	}
	if err := claim(ctx, tx, a, slots, unique); err != nil {
		return none, err
	}
	tx.Insert(events)
	if a.Request != "" {
		tx.Remember(a.Request, engine.Result{
			Stream: a.Stream, First: answer.First, Last: answer.Last,
			Events: answer.Events, Positions: answer.Positions,
		})
	}
	return answer, at(points.AppendAfterInsert)
}

// compareHead refuses an exact expected version that is not the head.
func compareHead(want eventstore.Expected, head uint64) error {
	if want.IsAny() || want.Version() == head {
		return nil
	}
	reason := eventstore.VersionConflict
	if want.Version() > head {
		reason = eventstore.ExpectedAhead
	}
	return &eventstore.Error{Op: "append", Outcome: eventstore.Fail, Reason: reason, Head: head, HeadKnown: true}
}

// claim takes the unique keys in one order for all: slots, request, event ids ascending, so that no two
// appends can wait for each other.
func claim(ctx context.Context, tx *engine.Tx, a eventstore.Append, slots []engine.Slot, unique Uniqueness) error {
	if err := unique(ctx, tx, slots); err != nil {
		if !errors.Is(err, engine.ErrTaken) {
			return Broken("append", eventstore.Fail, err)
		}
		if a.Expected.IsAny() {
			return refused(eventstore.LostRace, err)
		}
		return &eventstore.Error{
			Op: "append", Outcome: eventstore.Fail, Reason: eventstore.VersionConflict,
			Head: tx.Head(a.Stream), HeadKnown: true, Err: err,
		}
	}
	var keys []any
	if a.Request != "" {
		keys = append(keys, engine.Request(a.Request))
	}
	ids := make([]eventstore.EventID, len(a.Events))
	for i, e := range a.Events {
		ids[i] = e.ID
	}
	slices.SortFunc(ids, func(x, y eventstore.EventID) int { return slices.Compare(x[:], y[:]) })
	for i, id := range ids {
		if i > 0 && ids[i-1] == id {
			return refused(eventstore.Invalid, errors.New("one event id twice in a batch"))
		}
		keys = append(keys, id)
	}
	for _, key := range keys {
		if err := tx.Claim(ctx, key); errors.Is(err, engine.ErrTaken) {
			return refused(eventstore.Rejected, err)
		} else if err != nil {
			return Broken("append", eventstore.Fail, err)
		}
	}
	return nil
}

// isRefusal reports whether the store itself refused, as opposed to a broken connection.
func isRefusal(err error) bool {
	_, reason := eventstore.Classify(err)
	return slices.Contains([]eventstore.Reason{
		eventstore.VersionConflict, eventstore.ExpectedAhead, eventstore.LostRace, eventstore.Rejected,
	}, reason)
}

func replayed(r engine.Result) eventstore.Appended {
	return eventstore.Appended{
		First: r.First, Last: r.Last, Events: slices.Clone(r.Events), Positions: slices.Clone(r.Positions), Replayed: true,
	}
}

type snapshots struct{ conn *Conn }

var _ eventstore.Snapshots = snapshots{}

// LoadSnapshot implements eventstore.Snapshots.
func (s snapshots) LoadSnapshot(ctx context.Context, stream string) (eventstore.Snapshot, bool, error) {
	if err := s.conn.ready(ctx, "load snapshot"); err != nil {
		return eventstore.Snapshot{}, false, err
	}
	snap, ok := s.conn.DB.LoadSnapshot(stream)
	return snap, ok, nil
}

// SaveSnapshot implements eventstore.Snapshots.
func (s snapshots) SaveSnapshot(ctx context.Context, snap eventstore.Snapshot) error {
	if err := s.conn.ready(ctx, "save snapshot"); err != nil {
		return err
	}
	if err := s.conn.DB.SaveSnapshot(snap); err != nil {
		return &eventstore.Error{Op: "save snapshot", Outcome: eventstore.Fail, Reason: eventstore.Rejected, Err: err}
	}
	return nil
}
