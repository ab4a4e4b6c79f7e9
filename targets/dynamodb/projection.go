package dynamodb

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
)

const (
	// maxRows bounds the view rows of one transaction, beside the checkpoint and the ledger; maxEffects bounds the
	// ledger item.
	maxRows    = 90
	maxEffects = 500
	// unprocessedPause is waited before the rest of a batched read is asked for.
	unprocessedPause = 5 * time.Millisecond
)

var (
	errNoProjection = errors.New("dynamodb: the trial has no such projection")
	errRowMoved     = errors.New("dynamodb: a view row is not the one that was read")
	errPartly       = errors.New("dynamodb: the first part of the batch was applied, a later one was not")
)

// progress is the store side of one projection: its view, its ledger and its checkpoint.
type progress struct {
	s    *session
	view eventstore.View
}

func (p *progress) checkpointKey() item {
	return keyOf(prefixProjection+p.view.Name(), sortCheckpoint)
}

// rowKey puts a view row beside the stream that has its name.
func (p *progress) rowKey(generation uint64, key string) item {
	return keyOf(prefixStream+key, fmt.Sprintf("%s%s#%012d", prefixView, p.view.Name(), generation))
}

// newCheckpoint is the checkpoint item of a fresh projection.
func newCheckpoint(view string) item {
	it := keyOf(prefixProjection+view, sortCheckpoint)
	it["generation"], it["seq"], it["epoch"], it["cursor"] = number(1), number(0), number(0), text("")
	return it
}

func decodeCheckpoint(it item) (eventstore.Checkpoint, error) {
	f := fields{it: it}
	cp := eventstore.Checkpoint{Generation: f.number("generation"), Seq: f.number("seq"), Epoch: f.number("epoch")}
	cursor := f.text("cursor")
	if f.err != nil {
		return eventstore.Checkpoint{}, f.err
	}
	var err error
	cp.Cursor, err = eventstore.ParseCursor(cursor)
	return cp, err
}

// Claim implements eventstore.Projection. The update is atomic, so of two that claim at once each gets an epoch of its
// own.
func (p *progress) Claim(ctx context.Context) (eventstore.Checkpoint, error) {
	var cp eventstore.Checkpoint
	err := p.s.with(ctx, "claim", func(c *Conn) error {
		out, err := c.db.UpdateItem(ctx, &sdk.UpdateItemInput{
			TableName: aws.String(p.s.cfg.Table), Key: p.checkpointKey(),
			UpdateExpression:          aws.String("SET #epoch = #epoch + :one"),
			ConditionExpression:       aws.String("attribute_exists(#pk)"),
			ExpressionAttributeNames:  map[string]string{"#epoch": "epoch", "#pk": "pk"},
			ExpressionAttributeValues: item{":one": number(1)},
			ReturnValues:              types.ReturnValueAllNew,
		})
		if _, missing := said[*types.ConditionalCheckFailedException](err); missing {
			return p.missing("claim")
		}
		if err != nil {
			return c.write("claim", err)
		}
		if cp, err = decodeCheckpoint(out.Attributes); err != nil {
			return &eventstore.Error{Op: "claim", Outcome: eventstore.Unknown, Reason: eventstore.ServerUncertain, Err: err}
		}
		return nil
	})
	return cp, err
}

func (p *progress) missing(op string) error {
	return fail(op, eventstore.Invalid, fmt.Errorf("%w: %q", errNoProjection, p.view.Name()))
}

// Load implements eventstore.Projection.
func (p *progress) Load(ctx context.Context) (eventstore.Checkpoint, error) {
	it, err := p.get(ctx, "load checkpoint", p.checkpointKey())
	switch {
	case err != nil:
		return eventstore.Checkpoint{}, err
	case it == nil:
		return eventstore.Checkpoint{}, p.missing("load checkpoint")
	}
	cp, err := decodeCheckpoint(it)
	if err != nil {
		return eventstore.Checkpoint{}, fail("load checkpoint", eventstore.Rejected, err)
	}
	return cp, nil
}

func (p *progress) get(ctx context.Context, op string, key item) (it item, err error) {
	err = p.s.read(ctx, op, func(c *Conn) error {
		out, err := c.db.GetItem(ctx, &sdk.GetItemInput{
			TableName: aws.String(p.s.cfg.Table), Key: key, ConsistentRead: aws.Bool(true),
		})
		if err == nil && len(out.Item) > 0 {
			it = out.Item
		}
		return err
	})
	return it, err
}

// Row implements eventstore.Projection.
func (p *progress) Row(ctx context.Context, key string) (state []byte, version uint64, found bool, err error) {
	cp, err := p.Load(ctx)
	if err != nil {
		return nil, 0, false, err
	}
	it, err := p.get(ctx, "row", p.rowKey(cp.Generation, key))
	if err != nil || it == nil {
		return nil, 0, false, err
	}
	row, err := decodeRow(it)
	if err != nil {
		return nil, 0, false, fail("row", eventstore.Rejected, err)
	}
	return row.state, row.version, true, nil
}

// viewRow is a row of the view. effects counts its changes.
type viewRow struct {
	version, effects uint64
	state            []byte
}

func decodeRow(it item) (viewRow, error) {
	f := fields{it: it}
	row := viewRow{version: f.number("version"), effects: f.number("effects"), state: f.binary("state")}
	return row, f.err
}

// effect is one line of a ledger item.
type effect struct {
	Event    string `json:"event"`
	Stream   string `json:"stream"`
	Version  uint64 `json:"version"`
	Row      string `json:"row,omitempty"`
	How      string `json:"how"`
	RowOrder uint64 `json:"order,omitempty"`
}

// Apply implements eventstore.Projection: one transaction for the rows, the ledger and the checkpoint, which moves under
// a condition on all it says. A batch with more rows than a transaction holds is applied in parts.
func (p *progress) Apply(ctx context.Context, b eventstore.Batch) (eventstore.Checkpoint, error) {
	at := b.Prev
	for i, part := range p.parts(b) {
		next, err := p.applyPart(ctx, at, part)
		if err != nil && i > 0 {
			// Neither applied nor without effect: only the checkpoint can say how far it came.
			_, reason := eventstore.Classify(err)
			err = &eventstore.Error{Op: "apply", Outcome: eventstore.Unknown, Reason: reason, Err: errors.Join(errPartly, err)}
		}
		if err != nil {
			return eventstore.Checkpoint{}, err
		}
		at = next
	}
	return at, nil
}

// parts splits a batch. The cursor of a part claims what the batch's claims, but for the events that are left.
func (p *progress) parts(b eventstore.Batch) []eventstore.Batch {
	var out []eventstore.Batch
	rows := map[string]struct{}{}
	from := 0
	for i, e := range b.Events {
		key, ok := p.view.Key(e)
		_, known := rows[key]
		if ok && !known && len(rows) == maxRows || i-from == maxEffects {
			out = append(out, eventstore.Batch{Events: b.Events[from:i], Next: without(b.Next, b.Events[i:])})
			from = i
			clear(rows)
		}
		if ok {
			rows[key] = struct{}{}
		}
	}
	return append(out, eventstore.Batch{Events: b.Events[from:], Next: b.Next})
}

// without returns a cursor that claims what c does, but for some events.
func without(c eventstore.Cursor, events []eventstore.Event) eventstore.Cursor {
	open := slices.Clone(c.Open)
	for _, e := range events {
		open = append(open, e.Position)
	}
	slices.SortFunc(open, eventstore.Position.Compare)
	return eventstore.Cursor{At: c.At, Open: slices.Compact(open)}
}

func (p *progress) applyPart(ctx context.Context, prev eventstore.Checkpoint, b eventstore.Batch) (eventstore.Checkpoint, error) {
	next := eventstore.Checkpoint{Cursor: b.Next, Seq: prev.Seq + 1, Epoch: prev.Epoch, Generation: prev.Generation}
	err := p.s.with(ctx, "apply", func(c *Conn) error {
		before, err := p.rows(ctx, c, prev.Generation, b.Events)
		if err != nil {
			return unsent(err)
		}
		ops, err := p.operations(prev, next, b.Events, before)
		if err != nil {
			return err
		}
		for _, at := range []points.Point{points.ProjectorAfterEffect, points.ProjectorBeforeCommit} {
			if err := held("apply", p.s.env.Gate.At(ctx, at, 0), false); err != nil {
				return err
			}
		}
		_, err = c.db.TransactWriteItems(ctx, &sdk.TransactWriteItemsInput{TransactItems: ops})
		return p.moved(c, len(ops), err)
	})
	if err != nil {
		return eventstore.Checkpoint{}, err
	}
	return next, held("apply", p.s.env.Gate.At(ctx, points.ProjectorAfterCommit, 0), true)
}

// Places of the operations in the transaction; the rows follow.
const (
	placeCheckpoint = iota
	placeLedger
	placeRows
)

// moved classifies the end of an apply.
func (p *progress) moved(c *Conn, ops int, err error) error {
	cancel, ok := said[*types.TransactionCanceledException](err)
	if !ok || len(cancel.CancellationReasons) != ops {
		return c.write("apply", err)
	}
	if codeOf(cancel.CancellationReasons[placeCheckpoint]) == reasonCondition {
		return fail("apply", eventstore.Superseded, err)
	}
	for _, r := range cancel.CancellationReasons[placeRows:] {
		if codeOf(r) == reasonCondition {
			return fail("apply", eventstore.TransactionConflict, errors.Join(errRowMoved, err))
		}
	}
	return c.write("apply", err)
}

// rows reads the rows that events belong to, strongly.
func (p *progress) rows(ctx context.Context, c *Conn, generation uint64, events []eventstore.Event) (map[string]viewRow, error) {
	table := p.s.cfg.Table
	names := map[string]string{} // partition key → row
	var keys []item
	for _, e := range events {
		key, ok := p.view.Key(e)
		if _, known := names[prefixStream+key]; ok && !known {
			names[prefixStream+key] = key
			keys = append(keys, p.rowKey(generation, key))
		}
	}
	rows := map[string]viewRow{}
	for len(keys) > 0 {
		out, err := c.db.BatchGetItem(ctx, &sdk.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{
			table: {Keys: keys, ConsistentRead: aws.Bool(true)},
		}})
		if err != nil {
			return nil, c.read("apply", err)
		}
		for _, it := range out.Responses[table] {
			f := fields{it: it}
			pk := f.text("pk")
			row, err := decodeRow(it)
			if err != nil {
				return nil, fail("apply", eventstore.Rejected, err)
			}
			rows[names[pk]] = row
		}
		if keys = out.UnprocessedKeys[table].Keys; len(keys) > 0 {
			if err := clock.Sleep(ctx, unprocessedPause); err != nil {
				return nil, classifyRead("apply", false, err)
			}
		}
	}
	return rows, nil
}

// operations makes the transaction of a part.
func (p *progress) operations(prev, next eventstore.Checkpoint, events []eventstore.Event, before map[string]viewRow) ([]types.TransactWriteItem, error) {
	after, order := map[string]viewRow{}, []string{}
	book := make([]effect, 0, len(events))
	for _, e := range events {
		line := effect{Event: e.ID.String(), Stream: e.Stream, Version: e.Version, How: "filtered"}
		if key, ok := p.view.Key(e); ok {
			row, known := after[key]
			if !known {
				row = before[key]
				order = append(order, key)
			}
			var err error
			if row.state, err = p.view.Apply(row.state, e); err != nil {
				return nil, fail("apply", eventstore.Invalid, fmt.Errorf("view %s, event %s: %w", p.view.Name(), e.ID, err))
			}
			row.version, row.effects = e.Version, row.effects+1
			after[key] = row
			line.Row, line.How, line.RowOrder = key, "applied", row.effects
		}
		book = append(book, line)
	}
	ledger, err := p.ledger(next, book)
	if err != nil {
		return nil, fail("apply", eventstore.Invalid, err)
	}
	ops := []types.TransactWriteItem{placeCheckpoint: p.move(prev, next), placeLedger: ledger}
	for _, key := range order {
		ops = append(ops, p.putRow(next.Generation, key, before[key], after[key]))
	}
	return ops, nil
}

// move is the compare-and-set of the checkpoint.
func (p *progress) move(prev, next eventstore.Checkpoint) types.TransactWriteItem {
	return types.TransactWriteItem{Update: &types.Update{
		TableName: aws.String(p.s.cfg.Table), Key: p.checkpointKey(),
		UpdateExpression:    aws.String("SET #seq = :next, #cursor = :to"),
		ConditionExpression: aws.String("#seq = :seq AND #epoch = :epoch AND #generation = :generation AND #cursor = :from"),
		ExpressionAttributeNames: map[string]string{
			"#seq": "seq", "#epoch": "epoch", "#generation": "generation", "#cursor": "cursor",
		},
		ExpressionAttributeValues: item{
			":seq": number(prev.Seq), ":epoch": number(prev.Epoch), ":generation": number(prev.Generation),
			":from": text(prev.Cursor.String()), ":next": number(next.Seq), ":to": text(next.Cursor.String()),
		},
	}}
}

// ledger is the item of a batch: the value that the checkpoint moves to, and the effects. Its key holds a number of its
// own, so that no second batch at the same count could hide the first.
func (p *progress) ledger(next eventstore.Checkpoint, book []effect) (types.TransactWriteItem, error) {
	var unit [8]byte
	if _, err := rand.Read(unit[:]); err != nil {
		return types.TransactWriteItem{}, err
	}
	effects, err := json.Marshal(book)
	if err != nil {
		return types.TransactWriteItem{}, err
	}
	it := keyOf(prefixProjection+p.view.Name(), fmt.Sprintf("%s%020d#%x", prefixBatch, next.Seq, unit))
	it["generation"], it["seq"], it["epoch"] = number(next.Generation), number(next.Seq), number(next.Epoch)
	it["cursor"], it["effects"] = text(next.Cursor.String()), text(string(effects))
	it["unit"] = number(binary.BigEndian.Uint64(unit[:]) | 1)
	return types.TransactWriteItem{Put: &types.Put{TableName: aws.String(p.s.cfg.Table), Item: it}}, nil
}

// putRow writes a row if it is still the one that was read. The condition on the checkpoint keeps other owners away; this
// one keeps away a read that met a transaction half way.
func (p *progress) putRow(generation uint64, key string, before, after viewRow) types.TransactWriteItem {
	it := p.rowKey(generation, key)
	it["view"], it["generation"], it["row"] = text(p.view.Name()), number(generation), text(key)
	it["version"], it["effects"], it["state"] = number(after.version), number(after.effects), bytesOf(after.state)
	put := &types.Put{TableName: aws.String(p.s.cfg.Table), Item: it}
	if before.effects == 0 {
		put.ConditionExpression = aws.String(absent)
		put.ExpressionAttributeNames = map[string]string{"#pk": "pk"}
	} else {
		put.ConditionExpression = aws.String("#effects = :effects")
		put.ExpressionAttributeNames = map[string]string{"#effects": "effects"}
		put.ExpressionAttributeValues = item{":effects": number(before.effects)}
	}
	return types.TransactWriteItem{Put: put}
}
