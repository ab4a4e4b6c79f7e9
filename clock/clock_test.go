package clock

import (
	"testing"
	"time"
)

func TestStampsAreThoseOfTheKernelsClock(t *testing.T) {
	// Between two readings of the kernel's clock, give or take the error of the anchor, for as long as the process lives.
	const slack = int64(time.Microsecond)
	for range 1000 {
		before := readMonotonic()
		got := Monotonic()
		after := readMonotonic()
		if got < before-slack || got > after+slack {
			t.Fatalf("%d is not between %d and %d", got, before, after)
		}
	}
}

func TestAnchorsAgree(t *testing.T) {
	// Processes anchor for themselves: what one calls now must be what another calls now.
	for range 20 {
		base, origin := anchor()
		a, b := Monotonic(), origin+int64(time.Since(base))
		c := Monotonic()
		if b < a-int64(time.Microsecond) || b > c+int64(time.Microsecond) {
			t.Errorf("another anchor reads %d, this one %d before and %d after", b, a, c)
		}
	}
}

func TestStampsNeverGoBack(t *testing.T) {
	last := Monotonic()
	for range 10_000 {
		now := Monotonic()
		if now < last {
			t.Fatalf("%d after %d", now, last)
		}
		last = now
	}
}

func BenchmarkMonotonic(b *testing.B) {
	for range b.N {
		Monotonic()
	}
}
