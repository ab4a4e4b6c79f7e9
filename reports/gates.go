package reports

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// GateSpec is an absolute limit on one metric, as a scenario states it.
type GateSpec struct {
	Metric string // dotted path below metrics: "latency_s.response.p99"
	Op     string // "<=", "<", ">=", ">"
	Limit  float64
	File   string
	Line   int
}

// UnknownMetricError says that a gate names a metric that does not exist.
type UnknownMetricError struct {
	Metric string
	Valid  []string
}

// Error lists the valid metrics, the likeliest first.
func (e *UnknownMetricError) Error() string {
	return fmt.Sprintf("reports: gate: metric %q is not known; valid are: %s", e.Metric, strings.Join(e.Valid, ", "))
}

// GateOpError says that a gate compares with an operator that does not exist.
type GateOpError struct{ Metric, Op string }

// Error implements error.
func (e *GateOpError) Error() string {
	return fmt.Sprintf("reports: gate %s: operator %q is not one of <=, <, >=, >", e.Metric, e.Op)
}

// CheckGate reports whether a gate can be evaluated at all, before anything is run. Errors are
// *UnknownMetricError and *GateOpError.
func CheckGate(g GateSpec) error {
	if _, ok := gateOps[g.Op]; !ok {
		return &GateOpError{g.Metric, g.Op}
	}
	valid := MetricPaths()
	if !slices.Contains(valid, g.Metric) {
		// Those that share the most path components come first.
		slices.SortStableFunc(valid, func(a, b string) int { return shared(b, g.Metric) - shared(a, g.Metric) })
		return &UnknownMetricError{g.Metric, valid}
	}
	return nil
}

func shared(a, b string) int {
	n := 0
	for _, part := range strings.Split(b, ".") {
		if part != "" && strings.Contains(a, part) {
			n++
		}
	}
	return n
}

// EvaluateGates compares the metrics of one trial with its gates. A metric that was not measured misses its
// gate: absent is not zero. Errors are those of CheckGate.
func EvaluateGates(scenario, target string, specs []GateSpec, m Metrics) ([]Gate, error) {
	var out []Gate
	for _, s := range specs {
		if err := CheckGate(s); err != nil {
			return nil, err
		}
		g := Gate{Scenario: scenario, Target: target, Metric: s.Metric, Op: s.Op, Limit: s.Limit, File: s.File, Line: s.Line}
		if v, ok := metricValue(reflect.ValueOf(m), strings.Split(s.Metric, ".")); ok && m.measured(s.Metric) {
			g.Value = &v
			g.OK = gateOps[s.Op](v, s.Limit)
		}
		out = append(out, g)
	}
	return out, nil
}

var gateOps = map[string]func(v, limit float64) bool{
	"<=": func(v, limit float64) bool { return v <= limit },
	"<":  func(v, limit float64) bool { return v < limit },
	">=": func(v, limit float64) bool { return v >= limit },
	">":  func(v, limit float64) bool { return v > limit },
}

// measured tells a zero that was counted from one that stands for nothing to count.
func (m Metrics) measured(path string) bool {
	group, name, _ := strings.Cut(path, ".")
	switch group {
	case "contention":
		if name == "conflict_ratio_model" || name == "decision_window_s" {
			return m.Contention.WindowS > 0
		}
		return m.Attempts.OK+m.Attempts.Fail+m.Attempts.Unknown > 0
	case "throughput":
		return m.Throughput.MeasuredS > 0
	case "never_visible":
		return m.LagS != nil || m.NeverVisible > 0
	}
	return true
}

// MetricPaths lists the metrics that a gate may name, in the order of the result.
func MetricPaths() []string {
	var out []string
	var walk func(t reflect.Type, prefix string)
	walk = func(t reflect.Type, prefix string) {
		for i := range t.NumField() {
			f := t.Field(i)
			path := prefix + jsonName(f)
			ft := f.Type
			if ft.Kind() == reflect.Pointer {
				ft = ft.Elem()
			}
			switch {
			case ft.Kind() == reflect.Struct:
				walk(ft, path+".")
			case ft.Kind() == reflect.Float64 || ft.Kind() == reflect.Int64:
				out = append(out, path)
			}
		}
	}
	walk(reflect.TypeFor[Metrics](), "")
	return out
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// metricValue follows a path that MetricPaths lists; ok is false where nothing was measured.
func metricValue(v reflect.Value, path []string) (float64, bool) {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return 0, false
		}
		v = v.Elem()
	}
	if len(path) == 0 {
		if v.Kind() == reflect.Int64 {
			return float64(v.Int()), true
		}
		return v.Float(), true
	}
	if q, ok := v.Interface().(Quantiles); ok && q.N == 0 && path[0] != "n" {
		return 0, false
	}
	for i := range v.NumField() {
		if jsonName(v.Type().Field(i)) == path[0] {
			return metricValue(v.Field(i), path[1:])
		}
	}
	return 0, false
}

// gateText writes a gate as people read it: what was measured, then the limit.
func gateText(g Gate) string {
	measured := "not measured"
	if g.Value != nil {
		measured = fmt.Sprintf("%.4g", *g.Value)
	}
	return fmt.Sprintf("%s = %s, limit %s %.4g", g.Metric, measured, g.Op, g.Limit)
}
