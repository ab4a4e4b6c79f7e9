package reports

import (
	"fmt"
	"io"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/eventproof/eventproof/verdict"
)

// Prometheus writes metrics.prom: the text exposition of the result. Labels name target, scenario and seed,
// never a stream. Quantiles come from the run's own histograms and are exposed as such.
func Prometheus(w io.Writer, r *Result) error {
	p := &promWriter{registry: prometheus.NewRegistry(), families: map[string]*prometheus.GaugeVec{}}
	p.set("eventproof_build_info", "Version of the tool that made the result.", 1, "version", r.Run.ToolVersion)
	p.set("eventproof_run_exit_code", "Exit code of the run.", float64(r.Exit.Code))
	p.set("eventproof_run_duration_seconds", "Length of the run.", r.Run.DurationS)
	for i := range r.Trials {
		p.trial(&r.Trials[i])
	}
	if p.err != nil {
		return fmt.Errorf("reports: metrics: %w", p.err)
	}
	families, err := p.registry.Gather()
	if err != nil {
		return fmt.Errorf("reports: metrics: %w", err)
	}
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(w, f); err != nil {
			return err
		}
	}
	return nil
}

type promWriter struct {
	registry *prometheus.Registry
	families map[string]*prometheus.GaugeVec
	err      error
}

// set exposes one sample; labels are name and value in turn. The names keep the _total of what they count,
// though a finished run exposes them as gauges: nothing will ever add to them.
func (p *promWriter) set(name, help string, v float64, labels ...string) {
	var keys, values []string
	for i := 0; i < len(labels); i += 2 {
		keys, values = append(keys, labels[i]), append(values, plain(labels[i+1]))
	}
	vec := p.families[name]
	if vec == nil {
		vec = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, keys)
		if err := p.registry.Register(vec); err != nil {
			p.err = err
			return
		}
		p.families[name] = vec
	}
	g, err := vec.GetMetricWithLabelValues(values...)
	if err != nil {
		p.err = err
		return
	}
	g.Add(v)
}

func (p *promWriter) trial(t *Trial) {
	base := []string{"target", t.Target, "scenario", t.Scenario, "seed", fmt.Sprint(t.Seed), "fidelity", t.Fidelity}
	with := func(more ...string) []string { return append(append([]string{}, base...), more...) }
	for i := range t.Verdicts {
		v := &t.Verdicts[i]
		p.set("eventproof_invariant_checks_total", "Judgements by verdict.", 1, with("invariant", v.Invariant, "verdict", v.Verdict.String())...)
		if v.Verdict == verdict.Violated {
			p.set("eventproof_invariant_violations_total", "Violations found.", float64(max(1, v.Count)), with("invariant", v.Invariant)...)
		}
		p.set("eventproof_invariant_opportunities", "Places where the invariant could have been broken.", float64(opportunities(v.Evidence)), with("invariant", v.Invariant)...)
	}
	for _, f := range t.Faults {
		p.set("eventproof_fault_observed", "1 if the planned fault was observed to bite.", float64(boolInt(f.Observed)), with("fault", f.ID, "kind", f.Kind)...)
	}
	if t.History.Records > 0 {
		p.set("eventproof_history_records_total", "Records in the history of the trial.", float64(t.History.Records), base...)
	}
	if !t.hasMetrics() {
		return
	}
	m := &t.Metrics
	for _, c := range []struct {
		outcome string
		n       int64
	}{
		{"ok", m.Commands.OK}, {"refused", m.Commands.Refused}, {"conflict_exhausted", m.Commands.Exhausted},
		{"failed", m.Commands.Failed}, {"unknown", m.Commands.Unknown}, {"dropped", m.Commands.Dropped},
	} {
		p.set("eventproof_commands_total", "Commands by how their last call ended; dropped ones never began.", float64(c.n), with("outcome", c.outcome)...)
	}
	for _, c := range []struct {
		outcome string
		n       int64
	}{{"ok", m.Attempts.OK}, {"fail", m.Attempts.Fail}, {"unknown", m.Attempts.Unknown}} {
		p.set("eventproof_history_ops_total", "Attempts by outcome.", float64(c.n), with("type", c.outcome)...)
	}
	p.set("eventproof_append_conflicts_total", "Appends refused for a version conflict.", float64(m.Contention.Conflicts), base...)
	p.set("eventproof_append_self_conflicts_total", "Version conflicts lost to an earlier try of the same command.", float64(m.Contention.SelfConflicts), base...)
	if m.Attempts.OK+m.Attempts.Fail+m.Attempts.Unknown > 0 {
		p.set("eventproof_command_attempts", "Mean attempts of a command that made any.", m.Contention.AttemptsPerCommand, base...)
	}
	p.quantiles("eventproof_command_duration_seconds", "Time to the answer, from the intended or the actual start.", m.LatencyS.Response, with("from", "intended"))
	p.quantiles("eventproof_command_duration_seconds", "Time to the answer, from the intended or the actual start.", m.LatencyS.Service, with("from", "actual"))
	p.quantiles("eventproof_loadgen_start_delay_seconds", "Delay of the generator itself.", m.Generator.LagS, base)
	p.quantiles("eventproof_projection_lag_seconds", "Append acknowledged to visible in the projection.", lagOf(m), base)
	if m.LagS != nil || m.NeverVisible > 0 {
		p.set("eventproof_projection_never_visible_events", "Events of the log that the projection never showed.", float64(m.NeverVisible), base...)
	}
	if m.RecoveryS != nil {
		p.set("eventproof_recovery_seconds", "From the lifting of the last fault to the first ok answer.", *m.RecoveryS, base...)
	}
	if m.Throughput.MeasuredS > 0 {
		p.set("eventproof_commands_per_second", "Commands answered ok or refused, per second of the measured phases.", m.Throughput.CommandsPerS, base...)
	}
	p.set("eventproof_performance_valid", "1 if the numbers are usable as performance evidence.", float64(boolInt(m.Valid)), base...)
}

func (p *promWriter) quantiles(name, help string, q Quantiles, labels []string) {
	if q.N == 0 {
		return
	}
	for _, v := range []struct {
		q string
		v float64
	}{{"0", q.Min}, {"0.5", q.P50}, {"0.95", q.P95}, {"0.99", q.P99}, {"1", q.Max}} {
		p.set(name, help, v.v, append(append([]string{}, labels...), "quantile", v.q)...)
	}
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
