package loadgen

import (
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"time"
)

// Pattern is how arrivals of an open loop follow each other.
type Pattern string

// The patterns.
const (
	// Poisson: independent of each other, exponential gaps.
	Poisson Pattern = "poisson"
	// Fixed: equal gaps.
	Fixed Pattern = "fixed"
)

// ParsePattern reads the name of a pattern.
func ParsePattern(s string) (Pattern, error) {
	switch p := Pattern(s); p {
	case Poisson, Fixed:
		return p, nil
	}
	return "", fmt.Errorf("loadgen: unknown arrival pattern %q, want poisson or fixed", s)
}

// Schedule yields the arrivals of the whole load before its end: their numbers, from 0, and when each is
// intended, counted from the beginning. It depends on nothing but its arguments, so every writer derives the
// same arrivals and takes its share of them.
//
// Rate is in arrivals a second. Poisson draws from r, Fixed doesn't.
func Schedule(p Pattern, rate float64, end time.Duration, r *rand.Rand) iter.Seq2[uint64, time.Duration] {
	return func(yield func(uint64, time.Duration) bool) {
		gap := float64(time.Second) / rate
		at := 0.0
		for n := uint64(0); ; n++ {
			switch p {
			case Poisson:
				at += gap * r.ExpFloat64()
			case Fixed:
				at = gap * float64(n)
			}
			if at >= float64(end) || !yield(n, time.Duration(at)) {
				return
			}
		}
	}
}

// validRate reports whether a schedule with this rate makes progress.
func validRate(rate float64) bool { return rate > 0 && rate <= 1e9 && !math.IsNaN(rate) }
