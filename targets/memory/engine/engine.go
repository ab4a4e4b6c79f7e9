// Package engine is the small database under memory/reference: transactions, unique keys, a position sequence
// and tables, all in one process. It behaves like a relational store where that matters for event sourcing:
// positions are drawn before commit and become visible at commit, a burned position leaves a hole, a unique
// key held by an open transaction makes others wait, and nothing of a transaction shows before it commits.
package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/eventproof/eventproof/eventstore"
)

// Errors of transactions.
var (
	// ErrTaken: a unique key belongs to a committed transaction.
	ErrTaken = errors.New("engine: the key is taken")
	// ErrFenced: the database was fenced; the transaction was rolled back.
	ErrFenced = errors.New("engine: fenced, rolled back")
	// ErrNoTable: the projection was not created with the database.
	ErrNoTable = errors.New("engine: no such projection")
)

// Row is one stored event with the transaction that wrote it.
type Row struct {
	eventstore.Event
	Transaction uint64
}

// Result is what a request id stands for once its transaction has committed.
type Result struct {
	Stream      string
	First, Last uint64
	Events      []eventstore.EventID
	Positions   []eventstore.Position
}

// ViewRow is one row of a projection.
type ViewRow struct {
	State   []byte
	Version uint64
	Order   uint64 // counts the effects on this row
}

// Effect is one ledger row: an event applied to a view row, or passed over as filtered.
type Effect struct {
	Event       eventstore.EventID `json:"event"`
	Stream      string             `json:"stream"`
	Version     uint64             `json:"version"`
	Row         string             `json:"row,omitempty"`
	Filtered    bool               `json:"filtered,omitempty"`
	RowVersion  uint64             `json:"rowVersion,omitempty"`
	RowOrder    uint64             `json:"rowOrder,omitempty"`
	Seq         uint64             `json:"seq,omitempty"`
	Epoch       uint64             `json:"epoch,omitempty"`
	Transaction uint64             `json:"tx,omitempty"`
}

// Keys of the unique indexes.
type (
	// Slot is a version of a stream.
	Slot struct {
		Stream  string
		Version uint64
	}
	// Request is an idempotency token.
	Request string
)

// DB is one database. Its zero value is not usable; see New.
type DB struct {
	mu           sync.Mutex
	sequence     uint64
	transactions uint64
	fenced       bool
	flying       map[*Tx]struct{} // open transactions that have drawn a position
	streams      map[string][]Row
	log          []Row // by position
	requests     map[string]Result
	keys         map[any]*Tx // unique keys, of open and of committed transactions
	tables       map[string]*table
	snapshots    map[string]eventstore.Snapshot
	journal      journal
}

type table struct {
	lock       chan struct{} // the row locks of a projection's transaction, held until it ends
	checkpoint eventstore.Checkpoint
	rows       map[string]ViewRow
}

// New returns an empty database with a table for each named projection, in generation 1.
func New(projections ...string) *DB {
	db := &DB{
		flying: map[*Tx]struct{}{}, streams: map[string][]Row{}, requests: map[string]Result{},
		keys: map[any]*Tx{}, tables: map[string]*table{}, snapshots: map[string]eventstore.Snapshot{},
	}
	for _, name := range projections {
		db.tables[name] = &table{
			lock: make(chan struct{}, 1), rows: map[string]ViewRow{},
			checkpoint: eventstore.Checkpoint{Generation: 1},
		}
	}
	return db
}

// Stream returns the committed events of a stream with from ≤ version ≤ to (0 = open end). The data of the
// events is shared and must not be changed.
func (db *DB) Stream(name string, from, to uint64) []eventstore.Event {
	db.mu.Lock()
	defer db.mu.Unlock()
	rows := db.streams[name]
	start, _ := slices.BinarySearchFunc(rows, from, func(r Row, v uint64) int { return cmp.Compare(r.Version, v) })
	var out []eventstore.Event
	for _, r := range rows[start:] {
		if to != 0 && r.Version > to {
			break
		}
		out = append(out, r.Event)
	}
	return out
}

// Head returns the highest committed version of a stream, 0 for none.
func (db *DB) Head(name string) uint64 {
	db.mu.Lock()
	defer db.mu.Unlock()
	if rows := db.streams[name]; len(rows) > 0 {
		return rows[len(rows)-1].Version
	}
	return 0
}

// Visible returns up to limit committed events with a position above after, in position order.
func (db *DB) Visible(after uint64, limit int) []eventstore.Event {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.visible(after, 0, limit)
}

// Settled returns up to limit committed events with a position above after and below the lowest position of
// any open transaction: no event can appear at or below what it returned. Held names the transaction that
// holds the answer back when more is visible than may be passed.
func (db *DB) Settled(after uint64, limit int) (events []eventstore.Event, held string) {
	db.mu.Lock()
	defer db.mu.Unlock()
	var oldest *Tx
	for tx := range db.flying {
		if oldest == nil || tx.first < oldest.first {
			oldest = tx
		}
	}
	if oldest == nil {
		return db.visible(after, 0, limit), ""
	}
	events = db.visible(after, oldest.first, limit)
	if n := len(db.log); n > 0 && len(events) < limit && db.log[n-1].Position.Minor > oldest.first {
		held = fmt.Sprintf("transaction %d of %s", oldest.id, oldest.holder)
	}
	return events, held
}

// visible collects events with after < position < below (0 = no bound). The lock is held.
func (db *DB) visible(after, below uint64, limit int) []eventstore.Event {
	start, _ := slices.BinarySearchFunc(db.log, after+1, func(r Row, p uint64) int {
		return cmp.Compare(r.Position.Minor, p)
	})
	var out []eventstore.Event
	for _, r := range db.log[start:] {
		if len(out) == limit || below != 0 && r.Position.Minor >= below {
			break
		}
		out = append(out, r.Event)
	}
	return out
}

// LoadSnapshot returns the snapshot item of a stream.
func (db *DB) LoadSnapshot(stream string) (eventstore.Snapshot, bool) {
	db.mu.Lock()
	defer db.mu.Unlock()
	s, ok := db.snapshots[stream]
	s.State = slices.Clone(s.State)
	return s, ok
}

// SaveSnapshot overwrites the snapshot item of a stream, unless the stored one is newer.
func (db *DB) SaveSnapshot(s eventstore.Snapshot) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.fenced {
		return ErrFenced
	}
	if old, ok := db.snapshots[s.Stream]; ok && old.Version > s.Version {
		return nil
	}
	s.State = slices.Clone(s.State)
	db.snapshots[s.Stream] = s
	return nil
}

// Checkpoint returns a projection's committed checkpoint.
func (db *DB) Checkpoint(projection string) (eventstore.Checkpoint, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	t, ok := db.tables[projection]
	if !ok {
		return eventstore.Checkpoint{}, fmt.Errorf("%w: %q", ErrNoTable, projection)
	}
	return t.checkpoint, nil
}

// ViewRow returns a committed row of a projection.
func (db *DB) ViewRow(projection, key string) (ViewRow, bool, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	t, ok := db.tables[projection]
	if !ok {
		return ViewRow{}, false, fmt.Errorf("%w: %q", ErrNoTable, projection)
	}
	r, ok := t.rows[key]
	r.State = slices.Clone(r.State)
	return r, ok, nil
}

// Fence refuses every later commit and returns once no transaction can take effect any more: what is still
// open is told so when it tries to commit. The number of those is returned.
func (db *DB) Fence(context.Context) (open int) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.fenced = true
	return len(db.flying)
}
