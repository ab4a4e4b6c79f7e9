package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/eventproof/eventproof/eventstore"
)

// Tx is one transaction. It belongs to one goroutine and ends with Commit or Rollback; a second end does
// nothing.
type Tx struct {
	db        *DB
	id        uint64
	holder    string
	first     uint64 // lowest position drawn; 0 = none
	done      chan struct{}
	ended     bool // guarded by db.mu
	committed bool // guarded by db.mu
	keys      []any

	events     []eventstore.Event
	request    string
	result     Result
	projection string
	table      *table // locked by this transaction
	rows       map[string]ViewRow
	effects    []Effect
	checkpoint *eventstore.Checkpoint
}

// Begin opens a transaction on behalf of holder, a session's name.
func (db *DB) Begin(holder string) *Tx {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.transactions++
	return &Tx{db: db, id: db.transactions, holder: holder, done: make(chan struct{})}
}

// ID returns the transaction's number.
func (tx *Tx) ID() uint64 { return tx.id }

// Head returns the highest committed version of a stream, 0 if there is none.
func (tx *Tx) Head(stream string) uint64 {
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	rows := tx.db.streams[stream]
	if len(rows) == 0 {
		return 0
	}
	return rows[len(rows)-1].Version
}

// Executed returns the committed result of a request.
func (tx *Tx) Executed(token string) (Result, bool) {
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	r, ok := tx.db.requests[token]
	return r, ok
}

// Draw takes n positions from the sequence and returns the first. They are in flight until the transaction
// ends and stay a hole if it rolls back.
func (tx *Tx) Draw(n int) uint64 {
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	first := tx.db.sequence + 1
	tx.db.sequence += uint64(n)
	if tx.first == 0 {
		tx.first = first
		tx.db.flying[tx] = struct{}{}
	}
	return first
}

// Claim takes a unique key. While an open transaction holds it, Claim waits for the end of that transaction
// or of ctx; a key of a committed transaction is ErrTaken.
func (tx *Tx) Claim(ctx context.Context, key any) error {
	for {
		tx.db.mu.Lock()
		holder := tx.db.keys[key]
		if holder == nil {
			tx.db.keys[key] = tx
			tx.keys = append(tx.keys, key)
		}
		taken := holder != nil && holder != tx && holder.committed
		tx.db.mu.Unlock()
		switch {
		case taken:
			return fmt.Errorf("%w: %v", ErrTaken, key)
		case holder == nil || holder == tx:
			return nil
		}
		select {
		case <-holder.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Insert stages events; they become visible at commit.
func (tx *Tx) Insert(events []eventstore.Event) {
	for _, e := range events {
		e.Data = slices.Clone(e.Data)
		tx.events = append(tx.events, e)
	}
}

// Remember stages what the request's token stands for from the commit on.
func (tx *Tx) Remember(token string, r Result) { tx.request, tx.result = token, r }

// Lock takes the projection's row locks until the transaction ends and returns its checkpoint. It waits for
// another transaction that holds them, or for the end of ctx.
func (tx *Tx) Lock(ctx context.Context, projection string) (eventstore.Checkpoint, error) {
	tx.db.mu.Lock()
	t, ok := tx.db.tables[projection]
	tx.db.mu.Unlock()
	if !ok {
		return eventstore.Checkpoint{}, fmt.Errorf("%w: %q", ErrNoTable, projection)
	}
	select {
	case t.lock <- struct{}{}:
	case <-ctx.Done():
		return eventstore.Checkpoint{}, ctx.Err()
	}
	tx.projection, tx.table, tx.rows = projection, t, map[string]ViewRow{}
	return tx.db.Checkpoint(projection)
}

// Row returns a row of the locked projection as this transaction sees it.
func (tx *Tx) Row(key string) (ViewRow, bool) {
	if r, ok := tx.rows[key]; ok {
		return r, true
	}
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	r, ok := tx.table.rows[key]
	return r, ok
}

// PutRow stages a row of the locked projection.
func (tx *Tx) PutRow(key string, r ViewRow) { tx.rows[key] = r }

// Record stages a ledger row of the locked projection.
func (tx *Tx) Record(e Effect) {
	e.Transaction = tx.id
	tx.effects = append(tx.effects, e)
}

// Move stages the locked projection's next checkpoint and returns it: the row's counter is one higher.
func (tx *Tx) Move(current eventstore.Checkpoint, to eventstore.Cursor, epoch uint64) eventstore.Checkpoint {
	next := eventstore.Checkpoint{Cursor: to, Seq: current.Seq + 1, Epoch: epoch, Generation: current.Generation}
	tx.checkpoint = &next
	return next
}

// Commit makes everything staged visible at once. ErrFenced means that it was rolled back.
func (tx *Tx) Commit() error {
	db := tx.db
	db.mu.Lock()
	defer db.mu.Unlock()
	if tx.ended {
		return nil
	}
	if db.fenced {
		tx.end(false)
		return ErrFenced
	}
	if err := db.journal.write(tx); err != nil {
		tx.end(false)
		return err
	}
	for _, e := range tx.events {
		db.insert(Row{Event: e, Transaction: tx.id})
	}
	if tx.request != "" {
		db.requests[tx.request] = tx.result
	}
	for key, r := range tx.rows {
		tx.table.rows[key] = r
	}
	if tx.checkpoint != nil {
		tx.table.checkpoint = *tx.checkpoint
	}
	tx.end(true)
	return nil
}

// Rollback ends the transaction without effect. Drawn positions stay a hole.
func (tx *Tx) Rollback() {
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	if !tx.ended {
		tx.end(false)
	}
}

// end releases what the transaction holds. The database's lock is held.
func (tx *Tx) end(committed bool) {
	tx.ended, tx.committed = true, committed
	if !committed {
		for _, key := range tx.keys {
			delete(tx.db.keys, key)
		}
	}
	delete(tx.db.flying, tx)
	if tx.table != nil {
		<-tx.table.lock
	}
	tx.keys, tx.events, tx.rows, tx.effects = nil, nil, nil, nil
	close(tx.done)
}

// insert keeps streams ordered by version and position, and the log by position. The lock is held.
func (db *DB) insert(r Row) {
	s := db.streams[r.Stream]
	at, _ := slices.BinarySearchFunc(s, r, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Version, b.Version), a.Position.Compare(b.Position))
	})
	db.streams[r.Stream] = slices.Insert(s, at, r)
	at, _ = slices.BinarySearchFunc(db.log, r, func(a, b Row) int { return a.Position.Compare(b.Position) })
	db.log = slices.Insert(db.log, at, r)
}
