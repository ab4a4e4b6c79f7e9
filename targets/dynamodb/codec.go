package dynamodb

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/eventproof/eventproof/eventstore"
)

// item is an item, or a key, of the table.
type item = map[string]types.AttributeValue

// Sort keys, or their beginnings.
const (
	prefixStream     = "STREAM#"
	prefixEvent      = "EVENT#"
	prefixView       = "VIEW#"
	prefixRequest    = "REQUEST#"
	prefixID         = "ID#"
	prefixProjection = "PROJECTION#"
	prefixBatch      = "BATCH#"
	sortHead         = "HEAD"
	sortSnapshot     = "SNAPSHOT"
	sortRequest      = "REQUEST"
	sortID           = "ID"
	sortCheckpoint   = "CHECKPOINT"
)

// Stored is an event with what the table keeps beside it.
type Stored struct {
	eventstore.Event
	Request   string
	BatchLast uint64 // version of the last event of the append that wrote it
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
func number(n uint64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatUint(n, 10)}
}
func amount(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}
func bytesOf(b []byte) types.AttributeValue {
	if b == nil {
		b = []byte{}
	}
	return &types.AttributeValueMemberB{Value: b}
}

func keyOf(pk, sk string) item { return item{"pk": text(pk), "sk": text(sk)} }

// eventKey is the sort key of a version. Keys sort as text, hence the padding.
func eventKey(version uint64) string { return fmt.Sprintf("%s%012d", prefixEvent, version) }

// eventKeyEnd lies behind every version.
const eventKeyEnd = prefixEvent + "999999999999"

// metadata is the stored form: the contract's fields, with the hash in hexadecimal for people who look at the table.
type metadata struct {
	Command     string `json:"command"`
	Correlation string `json:"correlation,omitempty"`
	Causation   string `json:"causation,omitempty"`
	Basis       uint64 `json:"basis"`
	BasisHash   string `json:"basisHash,omitempty"`
	Epoch       uint64 `json:"epoch,omitempty"`
	Schema      uint32 `json:"schema"`
}

func encodeEvent(a eventstore.Append, i int, first uint64) (item, error) {
	e := a.Events[i]
	m := metadata{
		Command: e.Meta.CommandID, Correlation: e.Meta.CorrelationID, Causation: e.Meta.CausationID,
		Basis: e.Meta.BasisVersion, Epoch: e.Meta.Epoch, Schema: e.Meta.SchemaVersion,
	}
	if !e.Meta.BasisHash.IsZero() {
		m.BasisHash = e.Meta.BasisHash.String()
	}
	meta, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("dynamodb: encoding metadata: %w", err)
	}
	it := keyOf(prefixStream+a.Stream, eventKey(first+uint64(i)))
	it["stream"], it["version"] = text(a.Stream), number(first+uint64(i))
	it["last"] = number(first + uint64(len(a.Events)) - 1)
	it["id"], it["type"], it["data"] = text(e.ID.String()), text(e.Type), bytesOf(e.Data)
	it["meta"], it["request"] = text(string(meta)), text(token(a))
	return it, nil
}

// token identifies an append: its request, or its first event where the caller gave none.
func token(a eventstore.Append) string {
	if a.Request != "" {
		return a.Request
	}
	return a.Events[0].ID.String()
}

func decodeEvent(it item) (Stored, error) {
	f := fields{it: it}
	s := Stored{Request: f.text("request"), BatchLast: f.number("last")}
	s.Stream, s.Version, s.Type, s.Data = f.text("stream"), f.number("version"), f.text("type"), f.binary("data")
	id, meta := f.text("id"), f.text("meta")
	if f.err != nil {
		return Stored{}, f.err
	}
	var err error
	if s.ID, err = eventstore.ParseEventID(id); err != nil {
		return Stored{}, err
	}
	var m metadata
	if err := json.Unmarshal([]byte(meta), &m); err != nil {
		return Stored{}, fmt.Errorf("dynamodb: metadata of event %s: %w", id, err)
	}
	s.Meta = eventstore.Metadata{
		CommandID: m.Command, CorrelationID: m.Correlation, CausationID: m.Causation,
		BasisVersion: m.Basis, Epoch: m.Epoch, SchemaVersion: m.Schema,
	}
	hash, err := hex.DecodeString(m.BasisHash)
	if err != nil || len(hash) > len(s.Meta.BasisHash) {
		return Stored{}, fmt.Errorf("dynamodb: metadata of event %s: bad basis hash %q", id, m.BasisHash)
	}
	copy(s.Meta.BasisHash[:], hash)
	return s, nil
}

// joinIDs and splitIDs keep the event ids of a request record in order, in one attribute.
func joinIDs(events []eventstore.NewEvent) string {
	ids := make([]string, len(events))
	for i, e := range events {
		ids[i] = e.ID.String()
	}
	return strings.Join(ids, " ")
}

func splitIDs(s string) ([]eventstore.EventID, error) {
	var out []eventstore.EventID
	for part := range strings.FieldsSeq(s) {
		id, err := eventstore.ParseEventID(part)
		if err != nil {
			return nil, err
		}
		out = append(out, id)
	}
	return out, nil
}

var errItem = errors.New("dynamodb: an item lacks an attribute, or it has another type")

// fields reads the attributes of an item and keeps the first error.
type fields struct {
	it  item
	err error
}

func (f *fields) miss(name string) {
	if f.err == nil {
		f.err = fmt.Errorf("%w: %q", errItem, name)
	}
}

func (f *fields) text(name string) string {
	v, ok := f.it[name].(*types.AttributeValueMemberS)
	if !ok {
		f.miss(name)
		return ""
	}
	return v.Value
}

func (f *fields) number(name string) uint64 {
	v, ok := f.it[name].(*types.AttributeValueMemberN)
	if !ok {
		f.miss(name)
		return 0
	}
	n, err := strconv.ParseUint(v.Value, 10, 64)
	if err != nil {
		f.miss(name)
	}
	return n
}

func (f *fields) amount(name string) int64 {
	v, ok := f.it[name].(*types.AttributeValueMemberN)
	if !ok {
		f.miss(name)
		return 0
	}
	n, err := strconv.ParseInt(v.Value, 10, 64)
	if err != nil {
		f.miss(name)
	}
	return n
}

func (f *fields) event(name string) eventstore.EventID {
	id, err := eventstore.ParseEventID(f.text(name))
	if err != nil {
		f.miss(name)
	}
	return id
}

func (f *fields) binary(name string) []byte {
	v, ok := f.it[name].(*types.AttributeValueMemberB)
	if !ok {
		f.miss(name)
		return nil
	}
	return v.Value
}
