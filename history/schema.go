package history

import (
	"bytes"
	"encoding/json"

	"github.com/eventproof/eventproof/eventstore"
)

// Format names the format in TrialInfo and in the schema.
const Format = "eventproof.history/v1"

type schemaDoc struct {
	Format  string                  `json:"format"`
	Version int                     `json:"version"`
	Frame   string                  `json:"frame"`
	Types   map[string]string       `json:"types"`
	Records []schemaRecord          `json:"records"`
	Enums   map[string][]schemaEnum `json:"enums"`
}

type schemaRecord struct {
	Kind   uint8         `json:"kind"`
	Name   string        `json:"name"`
	Says   string        `json:"says"`
	Fields []schemaField `json:"fields"`
}

type schemaField struct {
	Name   string        `json:"name"`
	Type   string        `json:"type"`
	Enum   string        `json:"enum,omitempty"`
	Fields []schemaField `json:"fields,omitempty"`
}

type schemaEnum struct {
	Value uint8  `json:"value"`
	Name  string `json:"name"`
	Means string `json:"means"`
}

// Schema returns a JSON document with every record kind, its fields in wire order and what the values of its
// enumerations mean.
func Schema() []byte {
	doc := schemaDoc{
		Format: Format, Version: formatVersion,
		Frame: "a file, or what zstd gives back from it, is the 8 bytes 8e 45 50 48 49 53 54 0a, the version (4 bytes, little-endian) " +
			"and frames; a frame is uvarint n, kind (1 byte), n-1 bytes of fields, CRC-32C of all that (4 bytes, little-endian)",
		Types: map[string]string{
			"u64":       "unsigned integer; uvarint",
			"u32":       "unsigned integer; uvarint",
			"i64":       "integer; zigzag varint. Stamps (t, invoke, started, …) are nanoseconds of the host's monotonic clock",
			"bool":      "one byte, 0 or 1",
			"string":    "uvarint length and UTF-8",
			"bytes":     "uvarint length and bytes; in JSON the value itself when they are JSON, else {\"base64\": …}, null when empty",
			"id":        "16 bytes; in JSON a UUID",
			"hash":      "16 bytes, all zero = none; in JSON 32 hexadecimal digits",
			"rangeHash": "16 bytes, big-endian: sum mod 2^128 of one hash an event; in JSON 32 hexadecimal digits",
			"position":  "shard, major and minor as uvarints; in JSON shard:major:minor",
			"cursor":    "list of claimed positions and list of open positions; in JSON at;at|open;open",
			"enum":      "one byte; in JSON the name",
			"info":      "uvarint length and a JSON object",
			"object":    "its fields one after the other",
			"[]…":       "uvarint count and the elements",
		},
		Enums: map[string][]schemaEnum{},
	}
	for k := KindTrial; k <= lastKind; k++ {
		line := kindTable[k]
		s := &schemaVisitor{enums: doc.Enums}
		line.make().walk(s)
		doc.Records = append(doc.Records, schemaRecord{Kind: uint8(k), Name: line.name, Says: line.says, Fields: s.fields})
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(doc); err != nil {
		return nil // strings and numbers always have a JSON form
	}
	return out.Bytes()
}

// schemaVisitor writes down names and types of the fields.
type schemaVisitor struct {
	fields []schemaField
	outer  [][]schemaField
	names  []string
	enums  map[string][]schemaEnum
}

func (s *schemaVisitor) add(name, typ string) {
	s.fields = append(s.fields, schemaField{Name: name, Type: typ})
}

func (s *schemaVisitor) u64(name string, _ *uint64)                      { s.add(name, "u64") }
func (s *schemaVisitor) u32(name string, _ *uint32)                      { s.add(name, "u32") }
func (s *schemaVisitor) i64(name string, _ *int64)                       { s.add(name, "i64") }
func (s *schemaVisitor) boolean(name string, _ *bool)                    { s.add(name, "bool") }
func (s *schemaVisitor) str(name string, _ *string)                      { s.add(name, "string") }
func (s *schemaVisitor) bytes(name string, _ *[]byte)                    { s.add(name, "bytes") }
func (s *schemaVisitor) id(name string, _ *eventstore.EventID)           { s.add(name, "id") }
func (s *schemaVisitor) ids(name string, _ *[]eventstore.EventID)        { s.add(name, "[]id") }
func (s *schemaVisitor) hash(name string, _ *eventstore.Hash)            { s.add(name, "hash") }
func (s *schemaVisitor) rangeHash(name string, _ *RangeHash)             { s.add(name, "rangeHash") }
func (s *schemaVisitor) position(name string, _ *eventstore.Position)    { s.add(name, "position") }
func (s *schemaVisitor) positions(name string, _ *[]eventstore.Position) { s.add(name, "[]position") }
func (s *schemaVisitor) cursor(name string, _ *eventstore.Cursor)        { s.add(name, "cursor") }
func (s *schemaVisitor) info(name string, _ *TrialInfo)                  { s.add(name, "info") }

func (s *schemaVisitor) enum(name string, _ *uint8, of *enumeration) {
	s.fields = append(s.fields, schemaField{Name: name, Type: "enum", Enum: of.name})
	if _, ok := s.enums[of.name]; ok {
		return
	}
	for i := range of.names {
		s.enums[of.name] = append(s.enums[of.name], schemaEnum{of.first + uint8(i), of.names[i], of.meaning[i]})
	}
}

func (s *schemaVisitor) writeEvents(name string, _ *[]WriteEvent) {
	s.begin(name)
	new(WriteEvent).walk(s)
	s.end()
	s.fields[len(s.fields)-1].Type = "[]object"
}

func (s *schemaVisitor) begin(name string) {
	s.outer, s.names, s.fields = append(s.outer, s.fields), append(s.names, name), nil
}

func (s *schemaVisitor) end() {
	inner, last := s.fields, len(s.outer)-1
	s.fields = s.outer[last]
	s.fields = append(s.fields, schemaField{Name: s.names[last], Type: "object", Fields: inner})
	s.outer, s.names = s.outer[:last], s.names[:last]
}
