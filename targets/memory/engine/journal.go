package engine

import (
	"encoding/json"
	"slices"

	"github.com/eventproof/eventproof/eventstore"
)

// journal is the database's write-ahead log: one JSON record a commit, in commit order. The audit reads
// nothing else.
type journal struct{ records [][]byte }

type record struct {
	Transaction uint64            `json:"tx"`
	Events      []eventRecord     `json:"events,omitempty"`
	Projection  string            `json:"projection,omitempty"`
	Generation  uint64            `json:"generation,omitempty"`
	Rows        []rowRecord       `json:"rows,omitempty"`
	Effects     []Effect          `json:"effects,omitempty"`
	Checkpoint  *checkpointRecord `json:"checkpoint,omitempty"`
}

type eventRecord struct {
	Stream   string              `json:"stream"`
	Version  uint64              `json:"version"`
	Position uint64              `json:"position"`
	ID       eventstore.EventID  `json:"id"`
	Type     string              `json:"type"`
	Data     []byte              `json:"data"`
	Meta     eventstore.Metadata `json:"meta"`
}

type rowRecord struct {
	Key     string `json:"key"`
	Version uint64 `json:"version"`
	State   []byte `json:"state"`
}

type checkpointRecord struct {
	Seq    uint64 `json:"seq"`
	Epoch  uint64 `json:"epoch"`
	Cursor string `json:"cursor"`
}

// write adds the record of a transaction that is about to commit; nothing is written for one without effect.
func (j *journal) write(tx *Tx) error {
	r := record{Transaction: tx.id, Effects: tx.effects}
	for _, e := range tx.events {
		r.Events = append(r.Events, eventRecord{
			Stream: e.Stream, Version: e.Version, Position: e.Position.Minor,
			ID: e.ID, Type: e.Type, Data: e.Data, Meta: e.Meta,
		})
	}
	if tx.table != nil {
		r.Projection, r.Generation = tx.projection, tx.table.checkpoint.Generation
		for key, row := range tx.rows {
			r.Rows = append(r.Rows, rowRecord{Key: key, Version: row.Version, State: row.State})
		}
	}
	if c := tx.checkpoint; c != nil {
		r.Checkpoint = &checkpointRecord{Seq: c.Seq, Epoch: c.Epoch, Cursor: c.Cursor.String()}
	}
	if len(r.Events)+len(r.Effects)+len(r.Rows) == 0 && r.Checkpoint == nil {
		return nil
	}
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	j.records = append(j.records, b)
	return nil
}

// Journal returns the records written so far, one a commit, in commit order.
func (db *DB) Journal() [][]byte {
	db.mu.Lock()
	defer db.mu.Unlock()
	return slices.Clip(db.journal.records)
}
