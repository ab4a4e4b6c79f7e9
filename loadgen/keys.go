package loadgen

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
)

// Keys chooses among n keys, 0…n-1. It is immutable and safe for concurrent use.
type Keys struct {
	upTo []float64 // cumulated shares; the last is 1
}

// Len is the number of keys.
func (k Keys) Len() int { return len(k.upTo) }

// Pick draws a key.
func (k Keys) Pick(r *rand.Rand) int {
	u := r.Float64()
	return sort.Search(len(k.upTo)-1, func(i int) bool { return u < k.upTo[i] })
}

// Share is the probability of key i.
func (k Keys) Share(i int) float64 {
	if i == 0 {
		return k.upTo[0]
	}
	return k.upTo[i] - k.upTo[i-1]
}

// Uniform gives all keys the same share.
func Uniform(n int) (Keys, error) { return Zipf(n, 0) }

// maxKeys keeps the table within 8 MB.
const maxKeys = 1_000_000

// Zipf gives key i a share in proportion to 1/(i+1)^exponent. The table of the inverse distribution makes any
// exponent from 0 (uniform) possible and exact, including 1.
func Zipf(n int, exponent float64) (Keys, error) {
	if exponent < 0 || math.IsNaN(exponent) || math.IsInf(exponent, 0) {
		return Keys{}, fmt.Errorf("loadgen: zipf exponent %v, want 0 or more", exponent)
	}
	return weighted(n, func(i int) float64 { return math.Pow(float64(i+1), -exponent) })
}

// Hot gives the first hot keys together the share, evenly, and the others the rest.
func Hot(n, hot int, share float64) (Keys, error) {
	if hot < 1 || hot > n {
		return Keys{}, fmt.Errorf("loadgen: hot set of %d among %d keys", hot, n)
	}
	if !(share >= 0 && share <= 1) {
		return Keys{}, fmt.Errorf("loadgen: the hot set's share is %v, want 0 to 1", share)
	}
	if hot == n {
		return Uniform(n)
	}
	return weighted(n, func(i int) float64 {
		if i < hot {
			return share / float64(hot)
		}
		return (1 - share) / float64(n-hot)
	})
}

func weighted(n int, weight func(i int) float64) (Keys, error) {
	if n < 1 || n > maxKeys {
		return Keys{}, fmt.Errorf("loadgen: %d keys, want 1 to %d", n, maxKeys)
	}
	upTo := make([]float64, n)
	sum := 0.0
	for i := range upTo {
		sum += weight(i)
		upTo[i] = sum
	}
	for i := range upTo {
		upTo[i] /= sum
	}
	return Keys{upTo}, nil
}
