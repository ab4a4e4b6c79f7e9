package form

import (
	"encoding/json"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/eventproof/eventproof/targets/kafka/internal/broker"
)

// Kinds of records in the topic of a projection. All records of one transaction carry its tag.
const (
	KindRow        = "row"        // the new state of a view row
	KindEffect     = "effect"     // one row of the ledger
	KindCheckpoint = "checkpoint" // the checkpoint moved
	KindClaim      = "claim"      // the checkpoint stays, its epoch rises
)

// Row is the state of a view row after a transaction. The record's key is the row's.
type Row struct {
	Generation uint64 `json:"generation"`
	Version    uint64 `json:"version"`
	Effects    uint64 `json:"effects"` // the row's own counter
	State      []byte `json:"state"`
}

// Effect is one row of the ledger. The record's key is the event's id.
type Effect struct {
	Generation uint64 `json:"generation"`
	Seq        uint64 `json:"seq"`
	Epoch      uint64 `json:"epoch"`
	Event      string `json:"event"`
	Stream     string `json:"stream"`
	Version    uint64 `json:"version"`
	Row        string `json:"row"`
	How        string `json:"how"`
	RowVersion uint64 `json:"rowVersion"`
	RowOrder   uint64 `json:"rowOrder"`
}

// Checkpoint is the checkpoint after a transaction; it also is the metadata of the group's offsets, without the cursor,
// which those are themselves.
type Checkpoint struct {
	Generation uint64 `json:"generation"`
	Seq        uint64 `json:"seq"`
	Epoch      uint64 `json:"epoch"`
	Cursor     string `json:"cursor,omitempty"`
	Tag        string `json:"tx"`
}

// ViewRecord makes a record of a projection's topic.
func ViewRecord(kind, key, tag string, value any) (broker.Record, error) {
	b, err := json.Marshal(value)
	if err != nil {
		return broker.Record{}, fmt.Errorf("kafka: encoding a %s: %w", kind, err)
	}
	return broker.Record{
		Key: []byte(key), Value: b, Headers: []kmsg.Header{header(headerKind, kind), header(headerTag, tag)},
	}, nil
}

// ViewKind returns what a record of a projection's topic is.
func ViewKind(r *kgo.Record) string { return headersOf(r)[headerKind] }

// ViewValue reads the value of a record of a projection's topic.
func ViewValue[V any](r *kgo.Record) (V, error) {
	var v V
	if err := json.Unmarshal(r.Value, &v); err != nil {
		return v, fmt.Errorf("%w: %s/%d at %d: %w", errRecord, r.Topic, r.Partition, r.Offset, err)
	}
	return v, nil
}

// Metadata puts a checkpoint into the metadata of the group's offsets.
func Metadata(c Checkpoint) (string, error) {
	b, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("kafka: encoding a checkpoint: %w", err)
	}
	return string(b), nil
}
