package postgres

import (
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/eventproof/eventproof/eventstore"
)

// metadata is the stored form: the contract's fields, with the hash in hexadecimal for people who look at the
// table.
type metadata struct {
	Command     string `json:"command"`
	Correlation string `json:"correlation,omitempty"`
	Causation   string `json:"causation,omitempty"`
	Basis       uint64 `json:"basis"`
	BasisHash   string `json:"basisHash,omitempty"`
	Epoch       uint64 `json:"epoch,omitempty"`
	Schema      uint32 `json:"schema"`
}

func encodeMetadata(m eventstore.Metadata) (string, error) {
	stored := metadata{
		Command: m.CommandID, Correlation: m.CorrelationID, Causation: m.CausationID,
		Basis: m.BasisVersion, Epoch: m.Epoch, Schema: m.SchemaVersion,
	}
	if !m.BasisHash.IsZero() {
		stored.BasisHash = m.BasisHash.String()
	}
	b, err := json.Marshal(stored)
	if err != nil {
		return "", fmt.Errorf("encoding metadata: %w", err)
	}
	return string(b), nil
}

func decodeMetadata(b []byte) (eventstore.Metadata, error) {
	var stored metadata
	if err := json.Unmarshal(b, &stored); err != nil {
		return eventstore.Metadata{}, fmt.Errorf("decoding metadata: %w", err)
	}
	m := eventstore.Metadata{
		CommandID: stored.Command, CorrelationID: stored.Correlation, CausationID: stored.Causation,
		BasisVersion: stored.Basis, Epoch: stored.Epoch, SchemaVersion: stored.Schema,
	}
	hash, err := hex.DecodeString(stored.BasisHash)
	if err != nil || len(hash) > len(m.BasisHash) {
		return eventstore.Metadata{}, fmt.Errorf("decoding metadata: bad basis hash %q", stored.BasisHash)
	}
	copy(m.BasisHash[:], hash)
	return m, nil
}

// eventColumns are what collectEvents reads, in its order.
const eventColumns = `id, stream, version, xid, position, type, data, metadata`

// collectEvents reads the rows of a query for eventColumns and closes them.
func collectEvents(rows pgx.Rows, err error, order Order) ([]eventstore.Event, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var events []eventstore.Event
	for rows.Next() {
		var e eventstore.Event
		var xid, sequence uint64
		var meta []byte
		if err := rows.Scan((*[16]byte)(&e.ID), &e.Stream, &e.Version, &xid, &sequence, &e.Type, &e.Data, &meta); err != nil {
			return nil, err
		}
		if e.Meta, err = decodeMetadata(meta); err != nil {
			return nil, err
		}
		e.Position = order.Position(xid, sequence)
		events = append(events, e)
	}
	return events, rows.Err()
}
