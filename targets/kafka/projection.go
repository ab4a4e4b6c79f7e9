package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets/kafka/internal/broker"
	"github.com/eventproof/eventproof/targets/kafka/internal/form"
)

const (
	// projectionTimeout is when the broker ends a transaction that a projector has left open.
	projectionTimeout = 10 * time.Second
	// stableWait is how long a look at the checkpoint waits for a transaction that is open: one that has been acknowledged
	// becomes stable within a few milliseconds, one whose projector is gone only at its time-out.
	stableWait = 200 * time.Millisecond
	// claimBound bounds a claim whose caller sets no bound.
	claimBound = 10 * time.Second
	// viewPartition is the only partition of a projection's topic.
	viewPartition = 0
)

// viewRow is a row of the view as it is committed.
type viewRow struct {
	version, effects uint64
	state            []byte
}

// projection is the store side of one projection: a topic with the rows of the view, the ledger and the checkpoint, and a
// consumer group whose offsets are the checkpoint once more.
//
// What it knows is read from the topic. A batch is compared with that under a transactional id which this session was
// the last to initialise; if somebody else has initialised it meanwhile, the broker refuses the batch. So the comparison
// holds until the commit: together they are a compare-and-set.
type projection struct {
	s    *session
	view eventstore.View

	mu       sync.Mutex
	producer *broker.Producer
	next     int64 // where to read on
	now      eventstore.Checkpoint
	moved    string             // the tag of the transaction that moved the checkpoint last
	rows     map[string]viewRow // of the current generation
}

var _ eventstore.Projection = (*projection)(nil)

func newProjection(s *session, v eventstore.View) *projection {
	return &projection{s: s, view: v, now: eventstore.Checkpoint{Generation: 1}, rows: map[string]viewRow{}}
}

func (p *projection) topic() string { return form.View(p.s.cfg.Trial, p.view.Name()) }

var errKind = errors.New("kafka: a record of the projection's topic is of an unknown kind")

// read adds a committed record to what is known. One that is known already is passed over.
func (p *projection) read(r *kgo.Record) error {
	if r.Offset < p.next {
		return nil
	}
	switch kind := form.ViewKind(r); kind {
	case form.KindRow:
		row, err := form.ViewValue[form.Row](r)
		if err != nil {
			return err
		}
		p.rows[string(r.Key)] = viewRow{version: row.Version, effects: row.Effects, state: row.State}
	case form.KindEffect:
	case form.KindClaim, form.KindCheckpoint:
		c, err := form.ViewValue[form.Checkpoint](r)
		if err != nil {
			return err
		}
		cursor, err := eventstore.ParseCursor(c.Cursor)
		if err != nil {
			return err
		}
		p.now = eventstore.Checkpoint{Cursor: cursor, Seq: c.Seq, Epoch: c.Epoch, Generation: c.Generation}
		if kind == form.KindCheckpoint {
			p.moved = c.Tag
		}
	default:
		return fmt.Errorf("%w: %q at %d", errKind, kind, r.Offset)
	}
	p.next = r.Offset + 1
	return nil
}

// catchUp reads what has been committed since, up to the end of the log; it waits for open transactions until ctx ends.
func (p *projection) catchUp(ctx context.Context, c *broker.Client, iso broker.Isolation) error {
	end, err := c.End(ctx, p.topic(), viewPartition, iso)
	if err != nil {
		return err
	}
	next, err := c.Through(ctx, p.topic(), viewPartition, p.next, end, p.read)
	p.next = max(p.next, next)
	return err
}

// look reads what has been committed, without owning anything.
func (p *projection) look(ctx context.Context) error {
	c, err := p.s.broker()
	if err != nil {
		return err
	}
	eventstore.TraceFrom(ctx).Session(c.Name())
	short, cancel := context.WithTimeout(ctx, stableWait)
	defer cancel()
	err = p.catchUp(short, c, broker.Uncommitted)
	if err != nil && short.Err() != nil && ctx.Err() == nil {
		return p.catchUp(ctx, c, broker.Committed)
	}
	return err
}

// Load implements eventstore.Projection.
func (p *projection) Load(ctx context.Context) (eventstore.Checkpoint, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.look(ctx); err != nil {
		return eventstore.Checkpoint{}, readFrom("load checkpoint", err)
	}
	return p.now, nil
}

// Row implements eventstore.Projection.
func (p *projection) Row(ctx context.Context, key string) (state []byte, version uint64, found bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.look(ctx); err != nil {
		return nil, 0, false, readFrom("row", err)
	}
	row, found := p.rows[key]
	return row.state, row.version, found, nil
}

// take makes this session the last to have initialised the transactional id, and reads what is committed after that.
func (p *projection) take(ctx context.Context, c *broker.Client) error {
	if p.producer == nil {
		p.producer = c.Producer(form.TransactionalView(p.s.cfg.Trial, p.view.Name()), projectionTimeout)
	}
	if err := p.producer.Init(ctx); err != nil {
		return err
	}
	return p.catchUp(ctx, c, broker.Uncommitted)
}

// Claim implements eventstore.Projection.
func (p *projection) Claim(ctx context.Context) (eventstore.Checkpoint, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, err := p.s.broker()
	if err != nil {
		return eventstore.Checkpoint{}, classifyWrite("claim", false, err)
	}
	ctx, cancel := context.WithTimeout(ctx, claimBound)
	defer cancel()
	for {
		claimed, err := p.claim(ctx, c)
		// Of a claim that was fenced, or not answered, only its turn is lost: the next one reads what became of it.
		if err == nil || broker.Answered(err) && !broker.Gone(err) && !broker.Moved(err) {
			return claimed, classifyWrite("claim", true, err)
		}
		if clock.Sleep(ctx, settlePause) != nil {
			return eventstore.Checkpoint{}, classifyWrite("claim", true, err)
		}
	}
}

func (p *projection) claim(ctx context.Context, c *broker.Client) (eventstore.Checkpoint, error) {
	if err := p.take(ctx, c); err != nil {
		return eventstore.Checkpoint{}, err
	}
	claimed := p.now
	claimed.Epoch++
	tag := p.tag(claimed.Seq)
	record, err := form.ViewRecord(form.KindClaim, form.KindClaim, tag, encodeCheckpoint(claimed, tag))
	if err != nil {
		return eventstore.Checkpoint{}, err
	}
	base, err := p.producer.Produce(ctx, p.topic(), viewPartition, []broker.Record{record})
	if err != nil {
		return eventstore.Checkpoint{}, err
	}
	if err := p.producer.Commit(ctx); err != nil {
		return eventstore.Checkpoint{}, err
	}
	p.now, p.next = claimed, base+1
	return claimed, nil
}

// tag names the transaction that moves the checkpoint to seq; no other one has this name.
func (p *projection) tag(seq uint64) string { return strconv.FormatUint(p.producer.Tag(seq), 10) }

func encodeCheckpoint(c eventstore.Checkpoint, tag string) form.Checkpoint {
	return form.Checkpoint{Generation: c.Generation, Seq: c.Seq, Epoch: c.Epoch, Cursor: c.Cursor.String(), Tag: tag}
}

func same(a, b eventstore.Checkpoint) bool {
	return a.Generation == b.Generation && a.Seq == b.Seq && a.Epoch == b.Epoch && a.Cursor.String() == b.Cursor.String()
}

func superseded(err error) error { return fail("apply", eventstore.Superseded, err) }

// Apply implements eventstore.Projection.
func (p *projection) Apply(ctx context.Context, b eventstore.Batch) (eventstore.Checkpoint, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, err := p.s.broker()
	if err != nil {
		return eventstore.Checkpoint{}, classifyWrite("apply", false, err)
	}
	eventstore.TraceFrom(ctx).Session(c.Name())
	if p.producer == nil || !p.producer.Ready() {
		err = p.take(ctx, c)
	} else if !same(p.now, b.Prev) {
		err = p.catchUp(ctx, c, broker.Committed)
	}
	if err != nil {
		// Nothing of the batch was sent.
		return eventstore.Checkpoint{}, classifyWrite("apply", false, err)
	}
	if !same(p.now, b.Prev) {
		return eventstore.Checkpoint{}, superseded(nil)
	}
	next := eventstore.Checkpoint{Cursor: b.Next, Seq: b.Prev.Seq + 1, Epoch: b.Prev.Epoch, Generation: b.Prev.Generation}
	tag := p.tag(next.Seq)
	rows, end, err := p.write(ctx, b.Events, next, tag)
	if err != nil {
		return eventstore.Checkpoint{}, p.unwritten(err)
	}
	if err := p.commit(ctx, c, tag); err != nil {
		return eventstore.Checkpoint{}, err
	}
	// What was written is not read again. It becomes stable a moment after the commit was answered, so a look at the topic
	// now may end in the middle: with the checkpoint of before.
	maps.Copy(p.rows, rows)
	p.now, p.moved, p.next = next, tag, end
	return next, classifyWrite("apply", true, p.s.env.Gate.At(ctx, points.ProjectorAfterCommit, 0))
}

// unwritten classifies an error before the commit was sent. Unless the broker says that the transaction has ended, it stands
// open until the next initialisation.
func (p *projection) unwritten(err error) error {
	var spoken *eventstore.Error
	if errors.As(err, &spoken) {
		return err // of the view: nothing was written yet
	}
	p.producer = nil
	if broker.Gone(err) {
		return superseded(err)
	}
	return classifyWrite("apply", true, err)
}

// write produces rows, ledger and checkpoint, and adds the group's offsets to the transaction. It returns the new rows and
// the offset behind what it wrote.
func (p *projection) write(ctx context.Context, events []eventstore.Event, next eventstore.Checkpoint, tag string) (map[string]viewRow, int64, error) {
	rows, records, err := p.effects(events, next, tag)
	if err != nil {
		return nil, 0, err
	}
	for len(records) > 0 {
		n, size := 0, 0
		for n < len(records) && (n == 0 || size+records[n].Size() <= broker.MaxBatch) {
			size += records[n].Size()
			n++
		}
		if _, err := p.producer.Produce(ctx, p.topic(), viewPartition, records[:n]); err != nil {
			return nil, 0, err
		}
		records = records[n:]
	}
	if err := p.s.env.Gate.At(ctx, points.ProjectorAfterEffect, 0); err != nil {
		return nil, 0, err
	}
	moved := encodeCheckpoint(next, tag)
	record, err := form.ViewRecord(form.KindCheckpoint, form.KindCheckpoint, tag, moved)
	if err != nil {
		return nil, 0, err
	}
	at, err := p.producer.Produce(ctx, p.topic(), viewPartition, []broker.Record{record})
	if err != nil {
		return nil, 0, err
	}
	if err := p.offsets(ctx, next, moved); err != nil {
		return nil, 0, err
	}
	return rows, at + 1, p.s.env.Gate.At(ctx, points.ProjectorBeforeCommit, 0)
}

// offsets adds the group's offsets to the transaction. A position's number is the offset to go on from.
func (p *projection) offsets(ctx context.Context, next eventstore.Checkpoint, moved form.Checkpoint) error {
	moved.Cursor = ""
	metadata, err := form.Metadata(moved)
	if err != nil {
		return err
	}
	offsets := map[int32]int64{}
	for _, at := range next.Cursor.At {
		offsets[int32(at.Shard)] = int64(at.Minor)
	}
	if len(offsets) == 0 {
		return nil
	}
	return p.producer.CommitOffsets(ctx, form.Group(p.s.cfg.Trial, p.view.Name()), form.Events(p.s.cfg.Trial), offsets, metadata)
}

// effects folds events into their rows and makes the records of the rows and of the ledger.
func (p *projection) effects(events []eventstore.Event, next eventstore.Checkpoint, tag string) (map[string]viewRow, []broker.Record, error) {
	rows := map[string]viewRow{}
	var records []broker.Record
	for _, e := range events {
		entry := form.Effect{
			Generation: next.Generation, Seq: next.Seq, Epoch: next.Epoch, Event: e.ID.String(), Stream: e.Stream, Version: e.Version,
			How: "filtered",
		}
		if key, ok := p.view.Key(e); ok {
			row, changed := rows[key]
			if !changed {
				row = p.rows[key]
			}
			var err error
			if row.state, err = p.view.Apply(row.state, e); err != nil {
				return nil, nil, fail("apply", eventstore.Invalid, fmt.Errorf("view %s, event %s: %w", p.view.Name(), e.ID, err))
			}
			row.version, row.effects = e.Version, row.effects+1
			rows[key] = row
			entry.Row, entry.How, entry.RowVersion, entry.RowOrder = key, "applied", row.version, row.effects
		}
		record, err := form.ViewRecord(form.KindEffect, entry.Event, tag, entry)
		if err != nil {
			return nil, nil, err
		}
		records = append(records, record)
	}
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		row := rows[key]
		record, err := form.ViewRecord(form.KindRow, key, tag, form.Row{
			Generation: next.Generation, Version: row.version, Effects: row.effects, State: row.state,
		})
		if err != nil {
			return nil, nil, err
		}
		records = append(records, record)
	}
	return rows, records, nil
}

// commit ends the transaction. An end that was not answered, or not by yes, is looked for. Once the transactional id has
// been initialised anew, by somebody else or here, the transaction has ended one way or the other, and what is committed
// up to the high watermark taken after that shows which.
func (p *projection) commit(ctx context.Context, c *broker.Client, tag string) error {
	cause := p.producer.Commit(ctx)
	if cause == nil {
		return nil
	}
	before := p.now
	for ctx.Err() == nil {
		var err error
		if broker.Fenced(cause) {
			err = p.catchUp(ctx, c, broker.Uncommitted)
		} else if err = p.catchUp(ctx, c, broker.Committed); err == nil && same(p.now, before) {
			err = p.take(ctx, c)
		}
		switch {
		case err == nil && p.moved == tag:
			return nil
		case err == nil:
			return superseded(cause)
		}
		_ = clock.Sleep(ctx, settlePause)
	}
	return classifyWrite("apply", true, fmt.Errorf("%w (%w)", context.Cause(ctx), cause))
}

const settlePause = 20 * time.Millisecond
