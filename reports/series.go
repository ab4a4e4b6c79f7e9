package reports

import (
	"cmp"
	"math"
	"slices"

	"github.com/eventproof/eventproof/history"
)

// A run shorter than this is drawn in finer steps; one longer than maxSteps steps in coarser ones.
const (
	shortRunS = 30.0
	fineStepS = 0.2
	maxSteps  = 3600
)

func (j *joined) series() *Series {
	if len(j.order) == 0 {
		return nil
	}
	last := j.origin
	j.eachCall(func(call *callFact) { last = max(last, call.started, call.end) })
	length := seconds(last - j.origin)
	step := 1.0
	if length < shortRunS {
		step = fineStepS
	}
	if length/step > maxSteps {
		step = math.Ceil(length / maxSteps)
	}
	n := int(length/step) + 1
	s := &Series{StepS: step, OK: make([]float64, n), Refused: make([]float64, n), Conflicts: make([]float64, n), Unknown: make([]float64, n)}
	bucket := func(t int64) int { return min(max(int(seconds(t-j.origin)/step), 0), n-1) }
	per := 1 / step

	var response, service, lag []sample
	j.eachCall(func(call *callFact) {
		if !call.ended {
			return
		}
		b := bucket(call.end)
		switch call.result {
		case history.ResultOK:
			s.OK[b] += per
		case history.ResultRefused:
			s.Refused[b] += per
		case history.ResultUnknown:
			s.Unknown[b] += per
		case history.ResultExhausted, history.ResultFailed:
		}
	})
	for i := range j.attempts.list {
		if a := &j.attempts.list[i]; a.returned && conflict(a) {
			s.Conflicts[bucket(a.t)] += per
		}
	}
	for _, a := range j.arrivals {
		if a.end != 0 {
			response = append(response, sample{bucket(a.intended), a.end - a.intended})
			service = append(service, sample{bucket(a.started), a.end - a.started})
		}
	}
	for _, l := range j.lags {
		lag = append(lag, sample{bucket(l.ack), l.lag})
	}
	s.ResponseP50, s.ResponseP99 = perStep(response, n, NoSample)
	_, s.ServiceP99 = perStep(service, n, NoSample)
	s.LagP50, s.LagP99 = perStep(lag, n, NoLag)
	return s
}

type sample struct {
	step int
	ns   int64
}

// perStep returns the exact median and 99th percentile of each step.
func perStep(samples []sample, n int, none float64) (p50, p99 []float64) {
	p50, p99 = make([]float64, n), make([]float64, n)
	for i := range p50 {
		p50[i], p99[i] = none, none
	}
	slices.SortFunc(samples, func(a, b sample) int {
		return cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(a.ns, b.ns))
	})
	for from := 0; from < len(samples); {
		to := from
		for to < len(samples) && samples[to].step == samples[from].step {
			to++
		}
		at := func(q float64) float64 {
			return seconds(samples[from+max(0, int(math.Ceil(q*float64(to-from)-1e-9))-1)].ns)
		}
		p50[samples[from].step], p99[samples[from].step] = at(0.50), at(0.99)
		from = to
	}
	return p50, p99
}
