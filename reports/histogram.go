package reports

import (
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A histogram keeps durations in nanoseconds with three significant digits. Negative values are kept (a
// projection may show an event before its acknowledgement arrives); what lies beyond an hour either way is
// clamped and counted.
type histogram struct {
	positive, negative *hdrhistogram.Histogram
	min, max           int64
	clamped            int64
}

const histogramLimit = int64(time.Hour)

func newHistogram() *histogram {
	return &histogram{
		positive: hdrhistogram.New(1, histogramLimit, 3),
		min:      math.MaxInt64, max: math.MinInt64,
	}
}

func (h *histogram) record(ns int64) {
	h.min, h.max = min(h.min, ns), max(h.max, ns)
	side, v := h.positive, ns
	if ns < 0 {
		if h.negative == nil {
			h.negative = hdrhistogram.New(1, histogramLimit, 3)
		}
		side, v = h.negative, -ns
	}
	if v < 0 || v > histogramLimit {
		h.clamped++
		v = histogramLimit
	}
	if err := side.RecordValue(v); err != nil {
		h.clamped++ // can't be: v is within the range
	}
}

func (h *histogram) count() int64 {
	n := h.positive.TotalCount()
	if h.negative != nil {
		n += h.negative.TotalCount()
	}
	return n
}

// quantile returns the value at q percent: the ⌈q·n⌉-th smallest, negatives first.
func (h *histogram) quantile(q float64) int64 {
	n := h.count()
	if n == 0 {
		return 0
	}
	rank := max(1, int64(math.Ceil(q/100*float64(n)-1e-9)))
	var below int64
	if h.negative != nil {
		below = h.negative.TotalCount()
	}
	if rank <= below {
		// The rank-th smallest negative is the (below−rank+1)-th smallest magnitude.
		return h.bound(-valueAtRank(h.negative, below-rank+1))
	}
	return h.bound(valueAtRank(h.positive, rank-below))
}

// bound keeps a bucket's upper edge from lying outside what was seen.
func (h *histogram) bound(v int64) int64 { return min(max(v, h.min), h.max) }

// valueAtRank asks for the percentile that the library rounds down to exactly this rank.
func valueAtRank(h *hdrhistogram.Histogram, rank int64) int64 {
	return h.ValueAtPercentile(float64(rank) / float64(h.TotalCount()) * 100)
}

func (h *histogram) quantiles() Quantiles {
	n := h.count()
	if n == 0 {
		return Quantiles{}
	}
	return Quantiles{
		P50: seconds(h.quantile(50)), P95: seconds(h.quantile(95)), P99: seconds(h.quantile(99)),
		Min: seconds(h.min), Max: seconds(h.max), N: n, Clamped: h.clamped,
	}
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }
