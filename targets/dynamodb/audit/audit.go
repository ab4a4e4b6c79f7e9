// Package audit reads the final state of a trial on DynamoDB. It shares no code with the adapter: it speaks the protocol
// by itself and has its own paging, its own decoding and its own reading of the streams, so that a mistake in one shows
// against the other. It never goes through a proxy. Where the store is the emulator and its folder is known, the items
// are compared with what the emulator's log says.
package audit

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/targets"
)

// Place names what is to be audited.
type Place struct {
	URL    string
	Table  string
	Stream string // ARN of the table's change stream
	// Projections of the trial, by name.
	Projections []string
	// DataDir is the emulator's folder; empty for any other server.
	DataDir string
	// NativeAuction: the table holds auctions as items, and no streams of events.
	NativeAuction bool
}

// Auditor implements targets.Auditor and targets.Sharded.
type Auditor struct {
	place  Place
	client *client

	mu     sync.Mutex // guards what follows
	stream stream
	rows   map[string]*known // by projection
}

var (
	_ targets.Auditor = (*Auditor)(nil)
	_ targets.Sharded = (*Auditor)(nil)
)

// New returns an auditor.
func New(p Place) *Auditor {
	return &Auditor{
		place: p, client: newClient(p.URL), rows: map[string]*known{},
		stream: stream{positions: map[eventstore.EventID]eventstore.Position{}, heads: map[uint32]eventstore.Position{}, changes: map[eventstore.EventID]uint64{}},
	}
}

// Close gives up the auditor's connections.
func (a *Auditor) Close() { a.client.http.CloseIdleConnections() }

// scan reads every item whose sort key begins with prefix.
func (a *Auditor) scan(ctx context.Context, prefix string, each func(row) error) error {
	return a.client.pages(ctx, opScan, map[string]any{
		"TableName": a.place.Table, "ConsistentRead": true,
		"FilterExpression":          "begins_with(#k, :p)",
		"ExpressionAttributeNames":  map[string]string{"#k": "sk"},
		"ExpressionAttributeValues": row{":p": s(prefix)},
	}, each)
}

// Log yields every event with its place in the streams, by stream and version. An event that no record of the streams
// tells of has no position.
func (a *Auditor) Log(ctx context.Context, yield func(history.LoggedEvent) error) error {
	if a.place.NativeAuction {
		return a.operations(ctx, yield)
	}
	var events []history.LoggedEvent
	err := a.scan(ctx, "EVENT#", func(r row) error {
		e, err := readEvent(r)
		events = append(events, e)
		return err
	})
	if err != nil {
		return err
	}
	if err := a.locate(ctx, events); err != nil {
		return err
	}
	if a.place.DataDir != "" {
		if err := a.compare(ctx); err != nil {
			return err
		}
	}
	slices.SortFunc(events, func(x, y history.LoggedEvent) int {
		return cmp.Or(cmp.Compare(x.Stream, y.Stream), cmp.Compare(x.Version, y.Version))
	})
	for _, e := range events {
		if err := yield(e); err != nil {
			return err
		}
	}
	return nil
}

func readEvent(r row) (history.LoggedEvent, error) {
	get := reader{row: r}
	id, meta := get.text("id"), get.text("meta")
	e := history.LoggedEvent{
		Stream: get.text("stream"), Version: get.count("version"), Type: get.text("type"), Data: get.bytes("data"),
	}
	pk, sk := get.text("pk"), get.text("sk")
	if get.err != nil {
		return e, get.err
	}
	if want := fmt.Sprintf("EVENT#%012d", e.Version); pk != "STREAM#"+e.Stream || sk != want {
		return e, fmt.Errorf("audit: the item at %s, %s says that it is version %d of %s", pk, sk, e.Version, e.Stream)
	}
	var err error
	if e.ID, err = eventstore.ParseEventID(id); err != nil {
		return e, err
	}
	if e.Meta, err = readMetadata(meta); err != nil {
		return e, fmt.Errorf("audit: event %s: %w", id, err)
	}
	return e, nil
}

func readMetadata(text string) (eventstore.Metadata, error) {
	var raw struct {
		Command, Correlation, Causation, BasisHash string
		Basis, Epoch                               uint64
		Schema                                     uint32
	}
	if err := json.Unmarshal([]byte(text), &raw); err != nil {
		return eventstore.Metadata{}, fmt.Errorf("metadata: %w", err)
	}
	m := eventstore.Metadata{
		CommandID: raw.Command, CorrelationID: raw.Correlation, CausationID: raw.Causation,
		BasisVersion: raw.Basis, Epoch: raw.Epoch, SchemaVersion: raw.Schema,
	}
	if raw.BasisHash == "" {
		return m, nil
	}
	if n, err := hex.Decode(m.BasisHash[:], []byte(raw.BasisHash)); err != nil || n != len(m.BasisHash) {
		return eventstore.Metadata{}, fmt.Errorf("metadata: basis hash %q", raw.BasisHash)
	}
	return m, nil
}

// batch is a ledger item: what one transaction of a projection did.
type batch struct {
	projection, cursor, effects        string
	generation, seq, epoch, transacted uint64
}

// line is one effect in it.
type line struct {
	Event   string `json:"event"`
	Stream  string `json:"stream"`
	Version uint64 `json:"version"`
	Row     string `json:"row"`
	How     string `json:"how"`
	Order   uint64 `json:"order"`
}

func (b batch) lines() ([]line, error) {
	var lines []line
	if err := json.Unmarshal([]byte(b.effects), &lines); err != nil {
		return nil, fmt.Errorf("audit: ledger of %s at %d: %w", b.projection, b.seq, err)
	}
	return lines, nil
}

// batches reads the ledger items of a projection from a count on.
func (a *Auditor) batches(ctx context.Context, projection string, from uint64, each func(batch) error) error {
	return a.client.pages(ctx, opQuery, map[string]any{
		"TableName": a.place.Table, "ConsistentRead": true,
		"KeyConditionExpression":   "#p = :p AND #k BETWEEN :from AND :to",
		"ExpressionAttributeNames": map[string]string{"#p": "pk", "#k": "sk"},
		"ExpressionAttributeValues": row{
			":p": s("PROJECTION#" + projection), ":from": s(fmt.Sprintf("BATCH#%020d", from)), ":to": s("BATCH#~"),
		},
	}, func(r row) error {
		get := reader{row: r}
		b := batch{
			projection: projection, cursor: get.text("cursor"), effects: get.text("effects"),
			generation: get.count("generation"), seq: get.count("seq"), epoch: get.count("epoch"), transacted: get.count("unit"),
		}
		if get.err != nil {
			return get.err
		}
		return each(b)
	})
}

// Ledgers yields every effect.
func (a *Auditor) Ledgers(ctx context.Context, yield func(history.LedgerRow) error) error {
	for _, projection := range a.place.Projections {
		err := a.batches(ctx, projection, 0, func(b batch) error { return b.ledger(yield) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (b batch) ledger(yield func(history.LedgerRow) error) error {
	lines, err := b.lines()
	if err != nil {
		return err
	}
	for _, l := range lines {
		out := history.LedgerRow{
			Projection: b.projection, Generation: b.generation, Stream: l.Stream, Version: l.Version, Row: l.Row,
			RowOrder: l.Order, Seq: b.seq, Transaction: b.transacted, Epoch: b.epoch,
		}
		if out.Event, err = eventstore.ParseEventID(l.Event); err != nil {
			return err
		}
		if out.How, err = howOf(l.How); err != nil {
			return err
		}
		if out.How == history.Applied {
			out.RowVersion = l.Version
		}
		if err := yield(out); err != nil {
			return err
		}
	}
	return nil
}

var errHow = errors.New("audit: unknown way of handling an event")

func howOf(text string) (history.How, error) {
	for _, h := range []history.How{history.Applied, history.Superseded, history.Filtered, history.Parked} {
		if h.String() == text {
			return h, nil
		}
	}
	return 0, fmt.Errorf("%w: %q", errHow, text)
}

// Checkpoints yields every value that a checkpoint ever had.
func (a *Auditor) Checkpoints(ctx context.Context, yield func(history.CheckpointRow) error) error {
	for _, projection := range a.place.Projections {
		err := a.batches(ctx, projection, 0, func(b batch) error {
			cursor, err := eventstore.ParseCursor(b.cursor)
			if err != nil {
				return err
			}
			return yield(history.CheckpointRow{
				Projection: projection, Generation: b.generation, Seq: b.seq, Epoch: b.epoch, Cursor: cursor,
				Transaction: b.transacted,
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Views yields the final rows of every view, by projection, generation and row.
func (a *Auditor) Views(ctx context.Context, yield func(history.ViewRow) error) error {
	var rows []history.ViewRow
	err := a.scan(ctx, "VIEW#", func(r row) error {
		v, err := readViewRow(r)
		rows = append(rows, v)
		return err
	})
	if err != nil {
		return err
	}
	slices.SortFunc(rows, compareRows)
	for _, v := range rows {
		if err := yield(v); err != nil {
			return err
		}
	}
	return nil
}

func readViewRow(r row) (history.ViewRow, error) {
	get := reader{row: r}
	v := history.ViewRow{
		Projection: get.text("view"), Generation: get.count("generation"), Row: get.text("row"),
		Version: get.count("version"), State: get.bytes("state"),
	}
	return v, get.err
}

func compareRows(x, y history.ViewRow) int {
	return cmp.Or(cmp.Compare(x.Projection, y.Projection), cmp.Compare(x.Generation, y.Generation), cmp.Compare(x.Row, y.Row))
}
