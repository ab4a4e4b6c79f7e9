package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
)

// head is what is known of the end of a partition of events.
type head struct {
	next int64
	last eventstore.Position
}

// Head implements targets.Auditor; there is no order over all partitions, see Heads.
func (a *Auditor) Head(context.Context) (eventstore.Position, error) {
	return eventstore.Position{}, nil
}

// Heads implements targets.Sharded: the last committed event of every partition that has one.
func (a *Auditor) Heads(ctx context.Context) ([]eventstore.Position, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []eventstore.Position
	for p := range a.place.Partitions {
		h := a.heads[p]
		if h == nil {
			h = &head{}
			a.heads[p] = h
		}
		next, err := a.scan(ctx, a.events(), p, h.next, func(r *kgo.Record) error {
			e, is, err := logged(r)
			if err == nil && is {
				h.last = e.Position
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		h.next = next
		if !h.last.IsZero() {
			out = append(out, h.last)
		}
	}
	return out, nil
}

// observed is a projection as of one stable offset: everything before it is decided, so rows and checkpoint belong to
// the same moment.
type observed struct {
	next       int64
	generation uint64
	seq        uint64
	cursor     eventstore.Cursor
	rows       map[string]history.ViewRow // by key
}

// mark is the checkpoint in a record of its own.
type mark struct {
	Generation, Seq, Epoch uint64
	Cursor                 string
	Tx                     string
}

func value[V any](r *kgo.Record) (V, error) {
	var v V
	if err := json.Unmarshal(r.Value, &v); err != nil {
		return v, fmt.Errorf("%w: %s at offset %d: %w", errForm, r.Topic, r.Offset, err)
	}
	return v, nil
}

var errUnknown = errors.New("audit: the trial has no such projection")

// records yields the records of a projection's topic with their kind.
func (a *Auditor) records(ctx context.Context, projection string, from int64, yield func(kind string, r *kgo.Record) error) (int64, error) {
	return a.scan(ctx, a.topic(projection), 0, from, func(r *kgo.Record) error {
		f := fields{record: r}
		kind := f.text("kind")
		switch {
		case f.err != nil:
			return f.err
		case !slices.Contains([]string{"row", "effect", "checkpoint", "claim"}, kind):
			return fmt.Errorf("%w: kind %q in %s at offset %d", errForm, kind, r.Topic, r.Offset)
		}
		return yield(kind, r)
	})
}

// Observe reads checkpoint and rows of a projection as of the last stable offset of its topic.
func (a *Auditor) Observe(ctx context.Context, projection string) (history.Observation, []history.ViewRow, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o, err := a.observe(ctx, projection)
	if err != nil {
		return history.Observation{}, nil, err
	}
	rows := o.sorted()
	return history.Observation{
		Projection: projection, Generation: o.generation, Seq: o.seq, Cursor: o.cursor, Rows: uint32(len(rows)),
	}, rows, nil
}

// observe goes on reading where the observation before ended.
func (a *Auditor) observe(ctx context.Context, projection string) (*observed, error) {
	if !slices.Contains(a.place.Projections, projection) {
		return nil, fmt.Errorf("%w: %s", errUnknown, projection)
	}
	o := a.views[projection]
	if o == nil {
		o = &observed{generation: 1, rows: map[string]history.ViewRow{}}
	}
	// What a scan that fails has read is thrown away: it ended in the middle of a transaction, perhaps.
	fresh := &observed{generation: o.generation, seq: o.seq, cursor: o.cursor, rows: maps.Clone(o.rows)}
	next, err := a.records(ctx, projection, o.next, func(kind string, r *kgo.Record) error {
		switch kind {
		case "row":
			v, err := viewRow(projection, r)
			fresh.rows[v.Row] = v
			return err
		case "checkpoint":
			m, err := value[mark](r)
			if err != nil {
				return err
			}
			fresh.generation, fresh.seq = m.Generation, m.Seq
			fresh.cursor, err = eventstore.ParseCursor(m.Cursor)
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	fresh.next = next
	a.views[projection] = fresh
	return fresh, nil
}

func viewRow(projection string, r *kgo.Record) (history.ViewRow, error) {
	v, err := value[struct {
		Generation, Version uint64
		State               []byte
	}](r)
	return history.ViewRow{
		Projection: projection, Generation: v.Generation, Row: string(r.Key), Version: v.Version, State: v.State,
	}, err
}

func (o *observed) sorted() []history.ViewRow {
	var rows []history.ViewRow
	for _, v := range o.rows {
		if v.Generation == o.generation {
			rows = append(rows, v)
		}
	}
	slices.SortFunc(rows, func(x, y history.ViewRow) int { return cmp.Compare(x.Row, y.Row) })
	return rows
}

// Views yields the final rows of every view.
func (a *Auditor) Views(ctx context.Context, yield func(history.ViewRow) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, projection := range a.place.Projections {
		delete(a.views, projection) // what was observed during the run is not relied on
		o, err := a.observe(ctx, projection)
		if err != nil {
			return err
		}
		for _, v := range o.sorted() {
			if err := yield(v); err != nil {
				return err
			}
		}
	}
	return nil
}

// Ledgers yields every effect.
func (a *Auditor) Ledgers(ctx context.Context, yield func(history.LedgerRow) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, projection := range a.place.Projections {
		_, err := a.records(ctx, projection, 0, func(kind string, r *kgo.Record) error {
			if kind != "effect" {
				return nil
			}
			row, err := effect(projection, r)
			if err != nil {
				return err
			}
			return yield(row)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func effect(projection string, r *kgo.Record) (history.LedgerRow, error) {
	v, err := value[struct {
		Generation, Seq, Epoch, Version, RowVersion, RowOrder uint64
		Event, Stream, Row, How                               string
	}](r)
	if err != nil {
		return history.LedgerRow{}, err
	}
	f := fields{record: r}
	out := history.LedgerRow{
		Projection: projection, Generation: v.Generation, Stream: v.Stream, Version: v.Version, Row: v.Row, RowVersion: v.RowVersion,
		RowOrder: v.RowOrder, Seq: v.Seq, Transaction: f.count("tx"), Epoch: v.Epoch,
	}
	if out.Event, err = eventstore.ParseEventID(v.Event); err != nil {
		return out, fmt.Errorf("%w: %s at offset %d: %w", errForm, r.Topic, r.Offset, err)
	}
	if out.How, err = howOf(v.How); err != nil {
		return out, err
	}
	return out, f.err
}

func howOf(text string) (history.How, error) {
	for _, h := range []history.How{history.Applied, history.Superseded, history.Filtered, history.Parked} {
		if h.String() == text {
			return h, nil
		}
	}
	return 0, fmt.Errorf("%w: way of handling an event %q", errForm, text)
}

// ErrOffsets says that the offsets of a projection's group are not what its last checkpoint says: they did not move in
// one transaction.
var ErrOffsets = errors.New("audit: the offsets of the group and the checkpoint differ")

// Checkpoints yields every value that a checkpoint ever had, and compares the last one with the offsets of the group.
func (a *Auditor) Checkpoints(ctx context.Context, yield func(history.CheckpointRow) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, projection := range a.place.Projections {
		last := mark{}
		_, err := a.records(ctx, projection, 0, func(kind string, r *kgo.Record) error {
			if kind != "checkpoint" {
				return nil
			}
			m, err := value[mark](r)
			if err != nil {
				return err
			}
			last = m
			row := history.CheckpointRow{Projection: projection, Generation: m.Generation, Seq: m.Seq, Epoch: m.Epoch}
			if row.Cursor, err = eventstore.ParseCursor(m.Cursor); err != nil {
				return err
			}
			if row.Transaction, err = strconv.ParseUint(m.Tx, 10, 64); err != nil {
				return fmt.Errorf("%w: %s at offset %d: %w", errForm, r.Topic, r.Offset, err)
			}
			return yield(row)
		})
		if err != nil {
			return err
		}
		if err := a.compare(ctx, projection, last); err != nil {
			return err
		}
	}
	return nil
}

// compare holds the offsets of a projection's group against its last checkpoint.
func (a *Auditor) compare(ctx context.Context, projection string, last mark) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	cursor, err := eventstore.ParseCursor(last.Cursor)
	if err != nil {
		return err
	}
	group := a.place.Trial + "-" + projection
	committed, err := kadm.NewClient(c).FetchOffsets(ctx, group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) { // before the first batch there is no group
		return fmt.Errorf("audit: offsets of %s: %w", group, err)
	}
	want := map[int32]int64{}
	for _, p := range cursor.At {
		want[int32(p.Shard)] = int64(p.Minor)
	}
	for partition, o := range committed[a.events()] {
		if o.Err != nil {
			return fmt.Errorf("audit: offsets of %s: %w", group, o.Err)
		}
		if o.At < 0 {
			continue
		}
		if w, ok := want[partition]; !ok || w != o.At {
			return fmt.Errorf("%w: %s stands at offset %d of partition %d, the checkpoint %d at %d", ErrOffsets, group, o.At, partition, last.Seq, w)
		}
		var m mark
		if err := json.Unmarshal([]byte(o.Metadata), &m); err != nil {
			return fmt.Errorf("%w: metadata of the offsets of %s: %w", errForm, group, err)
		}
		if m.Cursor = last.Cursor; m != last {
			return fmt.Errorf("%w: the offset of partition %d was committed with %+v, the checkpoint is %+v", ErrOffsets, partition, m, last)
		}
		delete(want, partition)
	}
	if len(want) > 0 {
		return fmt.Errorf("%w: %s has no offsets for %d partitions of the checkpoint %d", ErrOffsets, group, len(want), last.Seq)
	}
	return nil
}
