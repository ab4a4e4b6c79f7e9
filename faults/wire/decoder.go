package wire

import "encoding/binary"

// decoder reads the fields of a Kafka message. Beyond the end everything is zero and short is set.
type decoder struct {
	b        []byte
	flexible bool // short lengths, and tagged fields
	short    bool
}

func (d *decoder) skip(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.b, d.short = nil, true
		return nil
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

// int reads a whole number of n bytes; one of 1, 2 and 4 bytes comes without its sign.
func (d *decoder) int(n int) int64 {
	v := int64(0)
	for _, c := range d.skip(n) {
		v = v<<8 | int64(c)
	}
	return v
}

func (d *decoder) uvarint() int {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > kafkaMaxMessage {
		d.b, d.short = nil, true
		return 0
	}
	d.b = d.b[n:]
	return int(v)
}

// text passes over a string and reports whether there is one, be it empty.
func (d *decoder) text() bool {
	n := 0
	if d.flexible {
		n = d.uvarint() - 1
	} else {
		n = int(int16(d.int(2)))
	}
	if n < 0 || d.short {
		return false
	}
	d.skip(n)
	return !d.short
}

// count reads the length of a list, 0 for none. A length that can't be is short.
func (d *decoder) count() int {
	n := 0
	if d.flexible {
		n = d.uvarint() - 1
	} else {
		n = int(int32(d.int(4)))
	}
	if n > len(d.b) {
		d.b, d.short = nil, true
	}
	if n < 0 || d.short {
		return 0
	}
	return n
}

// tags passes over the tagged fields, where a message has them.
func (d *decoder) tags() {
	if !d.flexible {
		return
	}
	for range d.uvarint() {
		if d.short {
			return
		}
		d.uvarint()
		d.skip(d.uvarint())
	}
}
