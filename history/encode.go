package history

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"

	"github.com/eventproof/eventproof/eventstore"
)

// A history file is a header (magic, format version) and then frames:
//
//	uvarint n · kind (1 byte) · payload (n-1 bytes) · CRC-32C (4 bytes, little-endian) of all bytes before it
//
// Integers are uvarints, stamps and amounts zigzag varints, strings and bytes carry their length, ids and hashes
// are 16 raw bytes, lists carry their number of elements.
const (
	magic         = "\x8eEPHIST\n"
	formatVersion = 1
	headerSize    = len(magic) + 4
	crcSize       = 4
	// maxFrame bounds a record. Nothing that is recorded comes near it, so a length beyond it is damage.
	maxFrame = 16 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func header() []byte {
	return binary.LittleEndian.AppendUint32([]byte(magic), formatVersion)
}

// encoder appends the wire form of a record's fields.
type encoder struct {
	b   []byte
	err error
}

// appendFrame appends the frame of a record to dst; scratch is reused for the payload.
func (e *encoder) appendFrame(dst []byte, rec Record) ([]byte, error) {
	e.b, e.err = append(e.b[:0], byte(rec.Kind())), nil
	rec.walk(e)
	if e.err != nil {
		return dst, fmt.Errorf("history: %s record: %w", rec.Kind(), e.err)
	}
	if len(e.b) > maxFrame {
		return dst, fmt.Errorf("history: %s record of %d bytes exceeds the limit of %d", rec.Kind(), len(e.b), maxFrame)
	}
	start := len(dst)
	dst = binary.AppendUvarint(dst, uint64(len(e.b)))
	dst = append(dst, e.b...)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli)), nil
}

func (e *encoder) u64(_ string, v *uint64) { e.b = binary.AppendUvarint(e.b, *v) }
func (e *encoder) u32(_ string, v *uint32) { e.b = binary.AppendUvarint(e.b, uint64(*v)) }
func (e *encoder) i64(_ string, v *int64)  { e.b = binary.AppendVarint(e.b, *v) }

func (e *encoder) boolean(_ string, v *bool) {
	if *v {
		e.b = append(e.b, 1)
	} else {
		e.b = append(e.b, 0)
	}
}

func (e *encoder) str(_ string, v *string) {
	e.b = append(binary.AppendUvarint(e.b, uint64(len(*v))), *v...)
}

func (e *encoder) bytes(_ string, v *[]byte) {
	e.b = append(binary.AppendUvarint(e.b, uint64(len(*v))), *v...)
}

func (e *encoder) id(_ string, v *eventstore.EventID) { e.b = append(e.b, v[:]...) }

func (e *encoder) ids(_ string, v *[]eventstore.EventID) {
	e.b = binary.AppendUvarint(e.b, uint64(len(*v)))
	for i := range *v {
		e.b = append(e.b, (*v)[i][:]...)
	}
}

func (e *encoder) hash(_ string, v *eventstore.Hash) { e.b = append(e.b, v[:]...) }

func (e *encoder) rangeHash(_ string, v *RangeHash) {
	e.b = binary.BigEndian.AppendUint64(e.b, v.Hi)
	e.b = binary.BigEndian.AppendUint64(e.b, v.Lo)
}

func (e *encoder) position(_ string, v *eventstore.Position) {
	e.b = binary.AppendUvarint(e.b, uint64(v.Shard))
	e.b = binary.AppendUvarint(e.b, v.Major)
	e.b = binary.AppendUvarint(e.b, v.Minor)
}

func (e *encoder) positions(_ string, v *[]eventstore.Position) {
	e.b = binary.AppendUvarint(e.b, uint64(len(*v)))
	for i := range *v {
		e.position("", &(*v)[i])
	}
}

func (e *encoder) cursor(_ string, v *eventstore.Cursor) {
	e.positions("", &v.At)
	e.positions("", &v.Open)
}

func (e *encoder) info(_ string, v *TrialInfo) {
	b, err := json.Marshal(v)
	if err != nil {
		e.err = err
		return
	}
	e.bytes("", &b)
}

func (e *encoder) enum(name string, v *uint8, of *enumeration) {
	if !of.has(*v) {
		e.err = fmt.Errorf("%s: %s is not in the set", name, of.nameOf(*v))
	}
	e.b = append(e.b, *v)
}

func (e *encoder) writeEvents(_ string, v *[]WriteEvent) {
	e.b = binary.AppendUvarint(e.b, uint64(len(*v)))
	for i := range *v {
		(*v)[i].walk(e)
	}
}

func (*encoder) begin(string) {}
func (*encoder) end()         {}
