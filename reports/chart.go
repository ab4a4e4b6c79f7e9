package reports

import (
	"fmt"
	"html/template"
	"math"
)

// maxPoints bounds what a line draws; longer series are reduced to the smallest and largest of each stretch.
const maxPoints = 600

const (
	chartWidth  = 960.0
	chartLeft   = 64.0
	chartRight  = 12.0
	chartPlot   = 170.0
	chartLegend = 22.0
	bandHeight  = 17.0
	chartBottom = 40.0
	fontSize    = 12.0
	smallFont   = 11.0
)

// chart is one picture of lines over the time of a trial, with the faults as named bands.
type chart struct {
	id, title string
	length    float64 // seconds
	step      float64
	seconds   bool    // the values are durations: logarithmic axis; else rates, from zero
	floor     float64 // durations at or below it are drawn on the axis
	lines     []chartLine
	bands     []band
	phases    []Phase
}

type chartLine struct {
	name   string
	values []float64 // NaN = nothing measured
}

type band struct {
	name     string
	from, to float64
	observed bool
}

// readout is what the enhancement script needs to show values under the pointer.
type readout struct {
	Left   float64       `json:"left"`
	Right  float64       `json:"right"`
	Width  float64       `json:"width"`
	Length float64       `json:"length"`
	Unit   string        `json:"unit"`
	Lines  []readoutLine `json:"lines"`
}

type readoutLine struct {
	Name   string       `json:"name"`
	Points [][2]float64 `json:"points"`
}

func (c *chart) format(v float64) string {
	if c.seconds {
		return duration(v)
	}
	return rate(v)
}

// tick writes a round value without idle zeros.
func (c *chart) tick(v float64) string {
	if !c.seconds {
		if v != math.Trunc(v) {
			return fmt.Sprintf("%g", rounded(v))
		}
		return count(int64(v))
	}
	switch {
	case v < 0.9e-3:
		return fmt.Sprintf("%g µs", rounded(v*1e6))
	case v < 0.9:
		return fmt.Sprintf("%g ms", rounded(v*1e3))
	default:
		return fmt.Sprintf("%g s", rounded(v))
	}
}

// scale maps values to a height above the axis between 0 and 1.
type scale struct {
	low, high float64
	log       bool
	ticks     []float64
}

func (s scale) at(v float64) float64 {
	if s.log {
		return math.Log10(max(v, s.low)/s.low) / math.Log10(s.high/s.low)
	}
	return (v - s.low) / (s.high - s.low)
}

func (c *chart) scale() scale {
	low, high := math.Inf(1), math.Inf(-1)
	for _, l := range c.lines {
		for _, v := range l.values {
			if !math.IsNaN(v) {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	if c.seconds {
		s := scale{log: true, low: c.floor, high: c.floor * 10}
		if !math.IsInf(low, 1) && low > c.floor {
			s.low = math.Pow(10, math.Floor(math.Log10(low)))
			s.high = s.low * 10
		}
		for s.high < high {
			s.high *= 10
		}
		for t := s.low; t <= s.high*1.0001; t *= 10 {
			s.ticks = append(s.ticks, t)
		}
		if len(s.ticks) <= 3 {
			var fine []float64
			for i, t := range s.ticks {
				fine = append(fine, t)
				if i+1 < len(s.ticks) {
					fine = append(fine, 2*t, 5*t)
				}
			}
			s.ticks = fine
		}
		return s
	}
	s := scale{high: 1}
	if !math.IsInf(high, -1) && high > 0 {
		step := niceStep(high / 4)
		s.high = math.Ceil(high/step) * step
		for t := 0.0; t <= s.high*1.0001; t += step {
			s.ticks = append(s.ticks, t)
		}
		return s
	}
	s.ticks = []float64{0, 1}
	return s
}

// niceStep rounds up to 1, 2 or 5 times a power of ten.
func niceStep(v float64) float64 {
	if v <= 0 {
		return 1
	}
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5, 10} {
		if m*p >= v*0.9999 {
			return m * p
		}
	}
	return 10 * p
}

func (c *chart) empty() bool {
	for _, l := range c.lines {
		for _, v := range l.values {
			if !math.IsNaN(v) {
				return false
			}
		}
	}
	return true
}

func (c *chart) x(t float64) float64 {
	return chartLeft + min(max(t/c.length, 0), 1)*(chartWidth-chartLeft-chartRight)
}

// draw returns the picture; it is the same for the same chart.
func (c *chart) draw() template.HTML {
	if c.length <= 0 {
		c.length = 1
	}
	right := chartWidth - chartRight
	var strips lanes
	type placed struct {
		band
		row            int
		x0, x1, labelX float64
		anchor, label  string
	}
	var marks []placed
	for _, b := range c.bands {
		p := placed{band: b, x0: c.x(b.from), x1: max(c.x(b.to), c.x(b.from)+2), anchor: "start"}
		p.label = b.name
		if !b.observed {
			p.label += " (did not bite)"
		}
		w := textWidth(p.label, smallFont)
		from, to := p.x0, max(p.x1, p.x0+w+8)
		p.labelX = p.x0 + 4
		if to > right {
			p.anchor, p.labelX = "end", min(p.x1, right)-4
			from, to = min(p.x0, p.labelX-w-4), p.x1
			if from < chartLeft {
				p.label = fit(p.label, right-chartLeft-8, smallFont)
				p.anchor, p.labelX, from, to = "start", chartLeft+4, chartLeft, right
			}
		}
		p.row = strips.place(from, to+4)
		marks = append(marks, p)
	}
	top := chartLegend + float64(len(strips.rows))*bandHeight + 4
	bottom := top + chartPlot
	s := newSVG(chartWidth, bottom+chartBottom, c.id, c.title, c.describe())
	sc := c.scale()

	for _, p := range marks {
		y := chartLegend + float64(p.row)*bandHeight
		s.rect(p.x0, top, p.x1-p.x0, chartPlot, inkFault, `fill-opacity="0.10"`)
		s.line(p.x0, y, p.x0, bottom, inkFault, `stroke-width="1" stroke-dasharray="3 3" stroke-opacity="0.7"`)
		s.rect(p.x0, y, p.x1-p.x0, bandHeight-3, inkFault, `fill-opacity="0.22"`)
		s.text(p.labelX, y+11, p.anchor, p.label, inkText, `font-size="11"`)
	}
	for _, t := range sc.ticks {
		y := bottom - sc.at(t)*chartPlot
		s.line(chartLeft, y, right, y, inkGrid, `stroke-width="1"`)
		label := c.tick(t)
		if sc.log && t <= c.floor {
			label = "≤ " + label
		}
		s.text(chartLeft-6, y+4, "end", label, inkMuted, `font-size="11"`)
	}
	s.line(chartLeft, bottom, right, bottom, inkAxis, `stroke-width="1"`)
	step := niceStep(c.length / 12)
	for t := 0.0; t <= c.length*1.0001; t += step {
		s.line(c.x(t), bottom, c.x(t), bottom+4, inkAxis, `stroke-width="1"`)
		s.text(c.x(t), bottom+16, anchorAt(c.x(t), right), significantTick(t), inkMuted, `font-size="11"`)
	}
	var names lanes
	for _, p := range c.phases {
		if p.AtS > c.length {
			continue
		}
		x := c.x(p.AtS)
		s.line(x, top, x, bottom, inkAxis, `stroke-width="1" stroke-dasharray="1 3"`)
		s.line(x, bottom+22, x, bottom+34, inkAxis, `stroke-width="1"`)
		label := "▸ " + p.Name
		if w := textWidth(label, smallFont); x+w+4 <= right && names.place(x, x+w+8) == 0 {
			s.text(x+3, bottom+32, "start", label, inkMuted, `font-size="11"`)
		}
	}
	x := chartLeft
	for i, l := range c.lines {
		s.line(x, 11, x+24, 11, lineInks[i], `stroke-width="2"`+dash(i))
		s.text(x+30, 15, "start", l.name, inkText, "")
		x += 30 + textWidth(l.name, fontSize) + 22
	}
	for i, l := range c.lines {
		for _, run := range runs(reduce(l.values, c.step)) {
			pts := make([]point, len(run))
			for k, p := range run {
				pts[k] = point{c.x(p[0]), bottom - min(max(sc.at(p[1]), 0), 1)*chartPlot}
			}
			if len(pts) == 1 {
				s.circle(pts[0].x, pts[0].y, 2, lineInks[i])
				continue
			}
			s.path(pts, lineInks[i], `stroke-width="1.6" stroke-linejoin="round"`+dash(i))
		}
	}
	return s.html()
}

func dash(i int) string {
	if lineDashes[i] == "" {
		return ""
	}
	return fmt.Sprintf(` stroke-dasharray="%s"`, lineDashes[i])
}

func anchorAt(x, right float64) string {
	if x > right-20 {
		return "end"
	}
	return "middle"
}

func significantTick(t float64) string {
	if t == math.Trunc(t) {
		return fmt.Sprintf("%d s", int64(t))
	}
	return fmt.Sprintf("%.1f s", t)
}

// describe is the picture in words, for readers who can't see it.
func (c *chart) describe() string {
	out := ""
	for _, l := range c.lines {
		low, high, n := math.Inf(1), math.Inf(-1), 0
		for _, v := range l.values {
			if !math.IsNaN(v) {
				low, high, n = min(low, v), max(high, v), n+1
			}
		}
		if n > 0 {
			out += fmt.Sprintf("%s: from %s to %s. ", l.name, c.format(low), c.format(high))
		}
	}
	for _, b := range c.bands {
		out += fmt.Sprintf("Fault %s from %s to %s. ", b.name, duration(b.from), duration(b.to))
	}
	return out
}

// reduce returns (time, value) points, at most maxPoints: of each stretch its smallest and its largest value,
// in their order. A stretch without any value is one NaN.
func reduce(values []float64, step float64) [][2]float64 {
	stretch := 1
	if len(values) > maxPoints {
		stretch = int(math.Ceil(float64(len(values)) / (maxPoints / 2)))
	}
	var out [][2]float64
	at := func(i int) float64 { return (float64(i) + 0.5) * step }
	for from := 0; from < len(values); from += stretch {
		low, high := -1, -1
		for i := from; i < min(from+stretch, len(values)); i++ {
			if math.IsNaN(values[i]) {
				continue
			}
			if low < 0 || values[i] < values[low] {
				low = i
			}
			if high < 0 || values[i] > values[high] {
				high = i
			}
		}
		switch {
		case low < 0:
			out = append(out, [2]float64{at(from), math.NaN()})
		case low == high:
			out = append(out, [2]float64{at(low), values[low]})
		default:
			a, b := min(low, high), max(low, high)
			out = append(out, [2]float64{at(a), values[a]}, [2]float64{at(b), values[b]})
		}
	}
	return out
}

// runs splits points at what was not measured.
func runs(points [][2]float64) [][][2]float64 {
	var out [][][2]float64
	var run [][2]float64
	for _, p := range points {
		if math.IsNaN(p[1]) {
			if len(run) > 0 {
				out = append(out, run)
			}
			run = nil
			continue
		}
		run = append(run, p)
	}
	if len(run) > 0 {
		out = append(out, run)
	}
	return out
}

func (c *chart) readout() readout {
	r := readout{Left: chartLeft, Right: chartWidth - chartRight, Width: chartWidth, Length: c.length, Unit: "1/s"}
	if c.seconds {
		r.Unit = "s"
	}
	for _, l := range c.lines {
		line := readoutLine{Name: l.name}
		for _, p := range reduce(l.values, c.step) {
			if !math.IsNaN(p[1]) {
				line.Points = append(line.Points, [2]float64{math.Round(p[0]*100) / 100, rounded(p[1])})
			}
		}
		r.Lines = append(r.Lines, line)
	}
	return r
}

// rounded keeps four significant digits, which is more than a readout shows.
func rounded(v float64) float64 {
	if v == 0 {
		return 0
	}
	p := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*p) / p
}

// without replaces the marker of "nothing measured" by NaN.
func without(values []float64, none float64) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = v
		if v == none {
			out[i] = math.NaN()
		}
	}
	return out
}

// charts are the pictures of one trial.
func charts(t *Trial, id string) []*chart {
	s := t.Series
	if s == nil || len(s.OK) == 0 {
		return nil
	}
	length := float64(len(s.OK)) * s.StepS
	var bands []band
	for _, f := range t.Faults {
		if f.Effect != "never began" {
			bands = append(bands, band{f.ID + ": " + f.Kind + " on " + f.On, f.AtS, f.AtS + f.LengthS, f.Observed})
		}
	}
	base := chart{length: length, step: s.StepS, bands: bands, phases: t.Phases}
	latency, lag, through := base, base, base
	name := t.Target + " × " + t.Scenario
	latency.id, latency.title, latency.seconds, latency.floor = id+"-latency", "Latency over time, "+name, true, 1e-4
	latency.lines = []chartLine{
		{"response p50", without(s.ResponseP50, NoSample)},
		{"response p99", without(s.ResponseP99, NoSample)},
		{"service p99", without(s.ServiceP99, NoSample)},
	}
	lag.id, lag.title, lag.seconds, lag.floor = id+"-lag", "Projection lag over time, "+name, true, 1e-4
	lag.lines = []chartLine{{"lag p50", without(s.LagP50, NoLag)}, {"lag p99", without(s.LagP99, NoLag)}}
	through.id, through.title = id+"-rate", "Answers and conflicts per second, "+name
	through.lines = []chartLine{{"ok", s.OK}, {"refused", s.Refused}, {"conflicts", s.Conflicts}, {"unknown", s.Unknown}}
	var out []*chart
	for _, c := range []*chart{&latency, &lag, &through} {
		if !c.empty() {
			out = append(out, c)
		}
	}
	return out
}
