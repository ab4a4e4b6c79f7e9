package loadgen

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
)

// Seeds derives every source of randomness of a run from one root, by name, so that a new consumer does not
// shift what the others draw.
type Seeds struct{ Root uint64 }

// Stream returns the source with this name, from its beginning. It is not safe for concurrent use.
func (s Seeds) Stream(name string) *rand.Rand { return s.At(name, 0) }

// At returns the n-th source with this name: what belongs to arrival n is the same, whoever draws it and
// whatever was drawn before.
func (s Seeds) At(name string, n uint64) *rand.Rand {
	b := make([]byte, 16, 64)
	binary.BigEndian.PutUint64(b, s.Root)
	binary.BigEndian.PutUint64(b[8:], n)
	h := sha256.Sum256(append(b, name...))
	return rand.New(rand.NewPCG(binary.BigEndian.Uint64(h[:8]), binary.BigEndian.Uint64(h[8:16])))
}
