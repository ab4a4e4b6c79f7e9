// Package eventstore is the contract that every store under test implements: what an append, a read, a
// feed and a projection promise, which outcomes they may report, and what an audit may rely on.
// It imports the standard library only; adapters, the application and the checkers all speak it.
package eventstore

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
)

// EventID is the client-made identity of one event (a UUID). It stays the same over blind retries and is
// new for every re-decision.
type EventID [16]byte

// String renders the id in the usual 8-4-4-4-12 form.
func (id EventID) String() string {
	var b [36]byte
	hex.Encode(b[0:8], id[0:4])
	b[8] = '-'
	hex.Encode(b[9:13], id[4:6])
	b[13] = '-'
	hex.Encode(b[14:18], id[6:8])
	b[18] = '-'
	hex.Encode(b[19:23], id[8:10])
	b[23] = '-'
	hex.Encode(b[24:36], id[10:16])
	return string(b[:])
}

// IsZero reports whether the id is unset.
func (id EventID) IsZero() bool { return id == EventID{} }

var errEventID = errors.New("eventstore: malformed event id")

// ParseEventID reads the form that String writes.
func ParseEventID(s string) (EventID, error) {
	var id EventID
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return id, fmt.Errorf("%w: %q", errEventID, s)
	}
	h := s[0:8] + s[9:13] + s[14:18] + s[19:23] + s[24:36]
	if _, err := hex.Decode(id[:], []byte(h)); err != nil {
		return EventID{}, fmt.Errorf("%w: %q", errEventID, s)
	}
	return id, nil
}

// Hash is the first 128 bits of a SHA-256. The zero value means "none recorded".
type Hash [16]byte

// IsZero reports whether no hash was recorded.
func (h Hash) IsZero() bool { return h == Hash{} }

// String renders the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// HashBytes hashes one byte string.
func HashBytes(b []byte) Hash {
	sum := sha256.Sum256(b)
	return Hash(sum[:16])
}

// PayloadHash identifies what an event says: its type and its data, byte for byte. Stores must return the
// data bytes unchanged (a Postgres column of type jsonb would not: it reorders keys).
func PayloadHash(eventType string, data []byte) Hash {
	h := sha256.New()
	var n [8]byte
	for i, l := 0, uint64(len(eventType)); i < 8; i++ {
		n[i] = byte(l >> (8 * i))
	}
	h.Write(n[:])
	h.Write([]byte(eventType))
	h.Write(data)
	return Hash(h.Sum(nil)[:16])
}

// Metadata travels with an event and is stored with it.
type Metadata struct {
	// CommandID names the caller's intent that led to the event.
	CommandID string `json:"command"`
	// CorrelationID groups the commands of one protocol; empty for a command that stands alone.
	CorrelationID string `json:"correlation,omitempty"`
	// CausationID is the id of what caused the command; empty for a command from outside.
	CausationID string `json:"causation,omitempty"`
	// BasisVersion is the stream version that the decision was made on.
	BasisVersion uint64 `json:"basis"`
	// BasisHash is the hash of the canonical encoding of the state at BasisVersion.
	BasisHash Hash `json:"basisHash"`
	// Epoch is the writer's lease epoch where fenced ownership is promised, else 0.
	Epoch uint64 `json:"epoch,omitempty"`
	// SchemaVersion is the version of the event's data format.
	SchemaVersion uint32 `json:"schema"`
}

// NewEvent is an event that a caller wants appended.
type NewEvent struct {
	ID   EventID
	Type string
	Data []byte
	Meta Metadata
}

// Event is an event as the store returns it: an immutable fact at a version of its stream and, where the
// store has an order across streams, at a position.
type Event struct {
	NewEvent
	Stream   string
	Version  uint64
	Position Position
}
