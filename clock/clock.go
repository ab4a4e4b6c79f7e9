// Package clock is the only place that reads time. All stamps of one host come from CLOCK_MONOTONIC, which
// is the same for every process; the time.Time of the runtime hides a per-process origin and can't be
// compared across processes. Wall-clock time is payload, never order.
package clock

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// Clock gives stamps and payload time.
type Clock interface {
	// Now returns nanoseconds of CLOCK_MONOTONIC.
	Now() int64
	// Wall returns the wall-clock time, for payloads only.
	Wall() time.Time
}

// System is the host's clock.
type System struct{}

// Now implements Clock.
func (System) Now() int64 { return Monotonic() }

// Wall implements Clock.
func (System) Wall() time.Time { return time.Now() }

// Monotonic returns nanoseconds of CLOCK_MONOTONIC, comparable between processes of one host to within a microsecond:
// a request on its way from one to another takes longer.
func Monotonic() int64 { return origin + int64(time.Since(base)) }

// The runtime reads the same clock without a system call, which is ten times as fast, but only tells differences. origin
// is where CLOCK_MONOTONIC stood at base.
var base, origin = anchor()

// anchor brackets readings of the one by readings of the other: origin lies in every bracket, so in what they have in
// common, a fraction of a microsecond. A bracket that is torn by a preemption does no harm.
func anchor() (base time.Time, origin int64) {
	const brackets = 100
	base = time.Now()
	low, high := int64(math.MinInt64), int64(math.MaxInt64)
	for range brackets {
		before := readMonotonic()
		since := int64(time.Since(base))
		after := readMonotonic()
		low, high = max(low, before-since), min(high, after-since)
	}
	return base, low + (high-low)/2
}

func readMonotonic() int64 {
	var ts unix.Timespec
	// clock_gettime(CLOCK_MONOTONIC) can't fail with a valid clock id and pointer.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}
