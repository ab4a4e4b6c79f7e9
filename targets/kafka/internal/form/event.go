package form

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/targets/kafka/internal/broker"
)

// Headers of the records. An event is a record with the stream as key and the data as value, byte for byte; the rest of
// it is in headers. A lease is a record of its own kind in the same partition.
const (
	headerKind     = "kind"
	headerID       = "id"
	headerType     = "type"
	headerVersion  = "version"
	headerMetadata = "metadata"
	headerRequest  = "request"
	headerTag      = "tx"

	kindEvent = "event"
	kindLease = "lease"
)

// Lease says who owns a partition since it stands there. Epochs rise by one from lease to lease.
type Lease struct {
	Owner string `json:"owner"`
	Epoch uint64 `json:"epoch"`
}

// Entry is a decoded record of the topic of events: an event, or a lease.
type Entry struct {
	Event   eventstore.Event
	Request string
	Lease   *Lease
}

func header(key, value string) kmsg.Header { return kmsg.Header{Key: key, Value: []byte(value)} }

// EncodeEvent makes the record of an event. tag names the transaction that writes it.
func EncodeEvent(e eventstore.Event, request string, tag uint64) (broker.Record, error) {
	meta, err := EncodeMetadata(e.Meta)
	if err != nil {
		return broker.Record{}, err
	}
	return broker.Record{
		Key: []byte(e.Stream), Value: e.Data,
		Headers: []kmsg.Header{
			header(headerKind, kindEvent), header(headerID, e.ID.String()), header(headerType, e.Type),
			header(headerVersion, strconv.FormatUint(e.Version, 10)), header(headerMetadata, meta),
			header(headerRequest, request), header(headerTag, strconv.FormatUint(tag, 10)),
		},
	}, nil
}

// EncodeLease makes the record of a lease.
func EncodeLease(l Lease) (broker.Record, error) {
	value, err := json.Marshal(l)
	if err != nil {
		return broker.Record{}, fmt.Errorf("kafka: encoding a lease: %w", err)
	}
	return broker.Record{Key: []byte(kindLease), Value: value, Headers: []kmsg.Header{header(headerKind, kindLease)}}, nil
}

var errRecord = errors.New("kafka: a record of the topic is none of ours")

// Decode reads a record of the topic of events.
func Decode(r *kgo.Record) (Entry, error) {
	entry, err := decode(r)
	if err != nil {
		return Entry{}, fmt.Errorf("%w: %s/%d at %d: %w", errRecord, r.Topic, r.Partition, r.Offset, err)
	}
	return entry, nil
}

func decode(r *kgo.Record) (Entry, error) {
	h := headersOf(r)
	switch h[headerKind] {
	case kindLease:
		var l Lease
		if err := json.Unmarshal(r.Value, &l); err != nil {
			return Entry{}, err
		}
		return Entry{Lease: &l}, nil
	case kindEvent:
	default:
		return Entry{}, fmt.Errorf("kind %q", h[headerKind])
	}
	id, err := eventstore.ParseEventID(h[headerID])
	if err != nil {
		return Entry{}, err
	}
	version, err := strconv.ParseUint(h[headerVersion], 10, 64)
	if err != nil {
		return Entry{}, err
	}
	meta, err := DecodeMetadata(h[headerMetadata])
	if err != nil {
		return Entry{}, err
	}
	return Entry{
		Event: eventstore.Event{
			NewEvent: eventstore.NewEvent{ID: id, Type: h[headerType], Data: r.Value, Meta: meta},
			Stream:   string(r.Key), Version: version, Position: Position(r.Partition, r.Offset),
		},
		Request: h[headerRequest],
	}, nil
}

func headersOf(r *kgo.Record) map[string]string {
	h := make(map[string]string, len(r.Headers))
	for _, one := range r.Headers {
		h[one.Key] = string(one.Value)
	}
	return h
}

// Position is the place of a record. The zero Position means none, so offsets count from 1 in it: it is the offset to go
// on from, as in the offsets that a group commits.
func Position(partition int32, offset int64) eventstore.Position {
	return eventstore.Position{Shard: uint32(partition), Minor: uint64(offset) + 1}
}

// metadata is the stored form: the contract's fields, with the hash in hexadecimal.
type metadata struct {
	Command     string `json:"command"`
	Correlation string `json:"correlation,omitempty"`
	Causation   string `json:"causation,omitempty"`
	Basis       uint64 `json:"basis"`
	BasisHash   string `json:"basisHash,omitempty"`
	Epoch       uint64 `json:"epoch,omitempty"`
	Schema      uint32 `json:"schema"`
}

// EncodeMetadata returns the stored form of metadata.
func EncodeMetadata(m eventstore.Metadata) (string, error) {
	stored := metadata{
		Command: m.CommandID, Correlation: m.CorrelationID, Causation: m.CausationID,
		Basis: m.BasisVersion, Epoch: m.Epoch, Schema: m.SchemaVersion,
	}
	if !m.BasisHash.IsZero() {
		stored.BasisHash = m.BasisHash.String()
	}
	b, err := json.Marshal(stored)
	if err != nil {
		return "", fmt.Errorf("kafka: encoding metadata: %w", err)
	}
	return string(b), nil
}

// DecodeMetadata reads what EncodeMetadata wrote.
func DecodeMetadata(s string) (eventstore.Metadata, error) {
	var stored metadata
	if err := json.Unmarshal([]byte(s), &stored); err != nil {
		return eventstore.Metadata{}, fmt.Errorf("kafka: decoding metadata: %w", err)
	}
	m := eventstore.Metadata{
		CommandID: stored.Command, CorrelationID: stored.Correlation, CausationID: stored.Causation,
		BasisVersion: stored.Basis, Epoch: stored.Epoch, SchemaVersion: stored.Schema,
	}
	hash, err := hex.DecodeString(stored.BasisHash)
	if err != nil || len(hash) > len(m.BasisHash) {
		return eventstore.Metadata{}, fmt.Errorf("kafka: decoding metadata: bad basis hash %q", stored.BasisHash)
	}
	copy(m.BasisHash[:], hash)
	return m, nil
}
