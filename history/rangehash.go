package history

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/eventproof/eventproof/eventstore"
)

// RangeHash is a sum mod 2^128 of one hash an event, so that the hash of any range of a log follows from two
// prefix sums in O(1).
type RangeHash struct{ Hi, Lo uint64 }

// Add returns the hash of both parts together.
func (h RangeHash) Add(o RangeHash) RangeHash {
	lo, carry := bits.Add64(h.Lo, o.Lo, 0)
	hi, _ := bits.Add64(h.Hi, o.Hi, carry)
	return RangeHash{hi, lo}
}

// Sub returns what has to be added to o to give h.
func (h RangeHash) Sub(o RangeHash) RangeHash {
	lo, borrow := bits.Sub64(h.Lo, o.Lo, 0)
	hi, _ := bits.Sub64(h.Hi, o.Hi, borrow)
	return RangeHash{hi, lo}
}

// String returns 32 hexadecimal digits.
func (h RangeHash) String() string { return fmt.Sprintf("%016x%016x", h.Hi, h.Lo) }

// HashEvent is the part that one event contributes: its version, id and payload hash.
func HashEvent(version uint64, id eventstore.EventID, payload eventstore.Hash) RangeHash {
	var b [40]byte
	binary.BigEndian.PutUint64(b[:8], version)
	copy(b[8:24], id[:])
	copy(b[24:], payload[:])
	s := sha256.Sum256(b[:])
	return RangeHash{binary.BigEndian.Uint64(s[:8]), binary.BigEndian.Uint64(s[8:16])}
}
