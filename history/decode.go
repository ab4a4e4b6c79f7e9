package history

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"math"

	"github.com/eventproof/eventproof/eventstore"
)

var (
	errShort    = errors.New("the record ends inside the field")
	errTrailing = errors.New("bytes are left over after the last field")
	errRange    = errors.New("the value is out of range")
)

// decoder sets a record's fields from the wire form. After the first error it sets zero values only.
// Everything it allocates is bounded by the bytes that are there.
type decoder struct {
	b      []byte
	err    error
	field  string // where err happened
	intern interner
	idSlab []eventstore.EventID
}

// decode reads one payload into rec.
func (d *decoder) decode(rec Record, payload []byte) error {
	d.b, d.err = payload, nil
	rec.walk(d)
	if d.err == nil && len(d.b) > 0 {
		d.err, d.field = errTrailing, "end"
	}
	if d.err != nil {
		return fmt.Errorf("%s record, field %s: %w", rec.Kind(), d.field, d.err)
	}
	return nil
}

func (d *decoder) fail(name string, err error) {
	if d.err == nil {
		d.err, d.field = err, name
	}
	d.b = nil
}

func (d *decoder) uvarint(name string) uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail(name, errShort)
		return 0
	}
	d.b = d.b[n:]
	return v
}

// take returns the next n bytes; they are the reader's buffer and must be copied to be kept.
func (d *decoder) take(name string, n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.fail(name, errShort)
		return nil
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) u64(name string, v *uint64) { *v = d.uvarint(name) }

func (d *decoder) u32(name string, v *uint32) {
	u := d.uvarint(name)
	if u > math.MaxUint32 {
		d.fail(name, errRange)
		u = 0
	}
	*v = uint32(u)
}

func (d *decoder) i64(name string, v *int64) {
	i, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail(name, errShort)
		*v = 0
		return
	}
	d.b = d.b[n:]
	*v = i
}

func (d *decoder) boolean(name string, v *bool) {
	b := d.take(name, 1)
	if len(b) == 1 && b[0] > 1 {
		d.fail(name, errRange)
	}
	*v = len(b) == 1 && b[0] == 1
}

func (d *decoder) str(name string, v *string) { *v = d.intern.str(d.take(name, d.uvarint(name))) }

func (d *decoder) bytes(name string, v *[]byte) {
	*v = nil
	if b := d.take(name, d.uvarint(name)); len(b) > 0 {
		*v = append([]byte(nil), b...)
	}
}

func (d *decoder) id(name string, v *eventstore.EventID) {
	*v = eventstore.EventID{}
	copy(v[:], d.take(name, uint64(len(v))))
}

func (d *decoder) ids(name string, v *[]eventstore.EventID) {
	*v = nil
	n := d.list(name, len(eventstore.EventID{}))
	if n == 0 {
		return
	}
	// Most lists hold one id: they are cut from a common slab.
	const slab = 256
	if n > len(d.idSlab) {
		d.idSlab = make([]eventstore.EventID, max(n, slab))
	}
	out := d.idSlab[:n:n]
	d.idSlab = d.idSlab[n:]
	for i := range out {
		copy(out[i][:], d.take(name, uint64(len(out[i]))))
	}
	*v = out
}

func (d *decoder) hash(name string, v *eventstore.Hash) {
	*v = eventstore.Hash{}
	copy(v[:], d.take(name, uint64(len(v))))
}

func (d *decoder) rangeHash(name string, v *RangeHash) {
	*v = RangeHash{}
	if b := d.take(name, 16); len(b) == 16 {
		v.Hi, v.Lo = binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	}
}

func (d *decoder) position(name string, v *eventstore.Position) {
	d.u32(name, &v.Shard)
	d.u64(name, &v.Major)
	d.u64(name, &v.Minor)
}

func (d *decoder) positions(name string, v *[]eventstore.Position) {
	*v = nil
	n := d.list(name, 3)
	if n == 0 {
		return
	}
	*v = make([]eventstore.Position, n)
	for i := range *v {
		d.position(name, &(*v)[i])
	}
}

func (d *decoder) cursor(name string, v *eventstore.Cursor) {
	d.positions(name, &v.At)
	d.positions(name, &v.Open)
}

func (d *decoder) info(name string, v *TrialInfo) {
	*v = TrialInfo{}
	b := d.take(name, d.uvarint(name))
	if d.err != nil {
		return
	}
	if err := json.Unmarshal(b, v); err != nil {
		d.fail(name, err)
	}
}

func (d *decoder) enum(name string, v *uint8, of *enumeration) {
	*v = 0
	if b := d.take(name, 1); len(b) == 1 {
		if !of.has(b[0]) {
			d.fail(name, fmt.Errorf("%w: %s", errRange, of.nameOf(b[0])))
			return
		}
		*v = b[0]
	}
}

func (d *decoder) writeEvents(name string, v *[]WriteEvent) {
	*v = nil
	n := d.list(name, 16+1+16)
	if n == 0 {
		return
	}
	*v = make([]WriteEvent, n)
	for i := range *v {
		(*v)[i].walk(d)
	}
}

// list returns the number of elements of a list, each of which takes at least size bytes.
func (d *decoder) list(name string, size int) int {
	n := d.uvarint(name)
	if n > uint64(len(d.b)/size) {
		d.fail(name, errShort)
		return 0
	}
	return int(n)
}

func (*decoder) begin(string) {}
func (*decoder) end()         {}

// interner keeps one copy of short strings that come again (streams, sessions, command ids), in a table of fixed
// size where a newcomer takes the place of what hashed alike.
type interner struct {
	seed  maphash.Seed
	table []string
}

const (
	internSlots  = 1 << 13
	internLength = 64
)

func newInterner() interner {
	return interner{seed: maphash.MakeSeed(), table: make([]string, internSlots)}
}

func (in *interner) str(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if len(b) > internLength {
		return string(b)
	}
	slot := &in.table[maphash.Bytes(in.seed, b)%internSlots]
	if *slot != string(b) {
		*slot = string(b)
	}
	return *slot
}
