package loadgen

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// The range of a Histogram.
const (
	HistogramMin = time.Duration(0)
	HistogramMax = 10 * time.Minute
)

// Histogram counts durations with three significant digits. A duration out of range is clamped to the range
// and counted apart, never lost. It has one owner: keep one a worker and merge them.
type Histogram struct {
	h            *hdrhistogram.Histogram
	below, above uint64
}

// NewHistogram returns an empty histogram; it takes about a quarter of a megabyte.
func NewHistogram() *Histogram {
	return &Histogram{h: hdrhistogram.New(1, int64(HistogramMax), 3)}
}

// Record counts a duration.
func (h *Histogram) Record(d time.Duration) {
	switch {
	case d < HistogramMin:
		d = HistogramMin
		h.below++
	case d > HistogramMax:
		d = HistogramMax
		h.above++
	}
	if err := h.h.RecordValue(int64(d)); err != nil {
		panic(err) // the value is in range
	}
}

// Merge adds what another histogram has counted.
func (h *Histogram) Merge(o *Histogram) {
	h.h.Merge(o.h) // equal ranges: nothing is dropped
	h.below += o.below
	h.above += o.above
}

// Count is the number of durations, clamped ones included.
func (h *Histogram) Count() uint64 { return uint64(h.h.TotalCount()) }

// Clamped is the number of durations below and above the range.
func (h *Histogram) Clamped() (below, above uint64) { return h.below, h.above }

// Quantile returns the duration that the share q, 0 to 1, of the durations does not exceed; 0 when empty.
func (h *Histogram) Quantile(q float64) time.Duration {
	return time.Duration(h.h.ValueAtQuantile(100 * q))
}

// Max is the longest duration, to three digits; 0 when empty.
func (h *Histogram) Max() time.Duration { return time.Duration(h.h.Max()) }

// Mean of the durations, to three digits; 0 when empty.
func (h *Histogram) Mean() time.Duration { return time.Duration(h.h.Mean()) }
