package reports

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
)

// Bench writes the numbers in the Go benchmark format, for benchstat: configuration lines, then one line a
// trial and phase. Repetitions of a trial give repeated lines. A number that was not measured is left out.
func Bench(w io.Writer, r *Result) error {
	v := newView(r)
	var b strings.Builder
	config := func(key, value string) { fmt.Fprintf(&b, "%s: %s\n", key, plain(value)) }
	config("goos", r.Environment.OS)
	config("cpu", r.Environment.CPU)
	config("cores", strconv.Itoa(r.Environment.Cores))
	config("calibration-sec", number(r.Environment.CalibrationS))
	config("run", r.Run.ID)
	config("tool", r.Run.ToolVersion)
	for _, c := range v.columns {
		for _, t := range c.Trials {
			if !t.hasMetrics() {
				continue
			}
			b.WriteString("\n")
			config("target", t.Target)
			config("scenario", t.Scenario)
			config("seed", strconv.FormatUint(t.Seed, 10))
			config("fidelity", t.Fidelity)
			config("provider", t.Provider)
			config("path", t.Path)
			config("co-located", strconv.FormatBool(coLocated(t)))
			config("valid", strconv.FormatBool(t.Metrics.Valid))
			m := &t.Metrics
			line := newBenchLine(t, "", m.LatencyS.Response.N)
			line.quantiles(m.LatencyS.Response, m.LatencyS.Service)
			if m.Throughput.MeasuredS > 0 {
				line.add(m.Throughput.CommandsPerS, "commands/sec")
				line.add(m.Throughput.EventsPerS, "events/sec")
			}
			if n := m.Attempts.OK + m.Attempts.Fail + m.Attempts.Unknown; n > 0 {
				line.add(m.Contention.ConflictRatio, "conflicts/attempt")
				line.add(m.Contention.AttemptsPerCommand, "attempts/command")
			}
			if m.LagS != nil {
				line.add(m.LagS.P50, "lag-p50-sec")
				line.add(m.LagS.P99, "lag-p99-sec")
			}
			if m.RecoveryS != nil {
				line.add(*m.RecoveryS, "recovery-sec")
			}
			b.WriteString(line.String())
			for i := range m.Phases {
				p := &m.Phases[i]
				line := newBenchLine(t, p.Name, p.Response.N)
				line.quantiles(p.Response, p.Service)
				line.add(p.CommandsPerS, "commands/sec")
				line.add(p.ConflictRatio, "conflicts/attempt")
				if p.LagS != nil {
					line.add(p.LagS.P50, "lag-p50-sec")
					line.add(p.LagS.P99, "lag-p99-sec")
				}
				b.WriteString(line.String())
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

type benchLine struct{ strings.Builder }

func newBenchLine(t *Trial, phase string, n int64) *benchLine {
	l := &benchLine{}
	l.WriteString("BenchmarkTrial/target=" + benchName(t.Target) + "/scenario=" + benchName(t.Scenario))
	if phase != "" {
		l.WriteString("/phase=" + benchName(phase))
	}
	fmt.Fprintf(l, " %d", max(1, n))
	return l
}

func (l *benchLine) add(v float64, unit string) { l.WriteString(" " + number(v) + " " + unit) }

func (l *benchLine) quantiles(response, service Quantiles) {
	if response.N > 0 {
		l.add(response.P50, "p50-sec")
		l.add(response.P99, "p99-sec")
	}
	if service.N > 0 {
		l.add(service.P99, "service-p99-sec")
	}
}

func (l *benchLine) String() string { return l.Builder.String() + "\n" }

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// benchName keeps a name to one field of the line and one component of the benchmark's name.
func benchName(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsSpace(c) || c == '/' || c == '=' {
			return '~'
		}
		return c
	}, plain(s))
}
