package reports

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/eventproof/eventproof/verdict"
)

// sampleResult is a realistic run: two targets, one of them a control, on two scenarios.
func sampleResult() *Result {
	r := &Result{
		Schema: Schema,
		Run: Run{ID: "20261130T190500Z-bench", Name: "bench", Started: "2026-11-30T19:05:00Z", DurationS: 184.2, Seed: 42,
			ToolVersion: "v0.1.0", Args: []string{"eventproof", "bench", "--seed", "42"}},
		Environment: Environment{OS: "linux", Kernel: "6.1.0", CPU: "Example CPU @ 2.50GHz", Cores: 2, MemoryBytes: 8 << 30,
			CalibrationS: 0.412, LoadBefore: 0.4, LoadAfter: 2.1, GoVersion: "go1.26.0"},
	}
	for _, target := range []string{"advisory-lock", "naive-poll"} {
		for _, scenario := range []string{"hot-account", "hot-auction"} {
			r.Trials = append(r.Trials, sampleTrial(target, scenario))
		}
	}
	limit := 0.0841
	r.Gates = []Gate{{Scenario: "hot-account", Target: "postgres/advisory-lock", Metric: "latency_s.response.p99", Op: "<=", Limit: 0.25, Value: &limit, OK: true,
		File: "scenarios/hot-account.yaml", Line: 41}}
	r.Exit = ExitCode(r, true)
	return r
}

func sampleTrial(variant, scenario string) Trial {
	rnd := rand.New(rand.NewPCG(7, uint64(len(variant)*100+len(scenario))))
	control := variant == "naive-poll"
	t := Trial{
		ID: variant + "-" + scenario, Scenario: scenario, ScenarioFile: "scenarios/" + scenario + ".yaml",
		Description: map[string]string{"hot-account": "concurrent withdrawals on two hot and 48 cold accounts, calm and through faults",
			"hot-auction": "bids on three hot auctions with replays, equal bids and a close"}[scenario],
		ExpectLines: map[string]int{"no-skipped-checkpoint": 33},
		Store:       "postgres", Target: "postgres/" + variant, Variant: variant,
		Assembly: map[string]string{"append": "advisory-lock", "reader": variant, "projection": "same-transaction"},
		Promises: []string{"optimistic-concurrency", "idempotent-append", "global-order", "complete-feed"},
		Kind:     "correct", Mode: "random", Provider: "native", Fidelity: "real", StoreVersion: "PostgreSQL 15.14",
		Durability: map[string]string{"fsync": "on", "synchronous_commit": "on"}, Path: "proxied",
		Fence: "role users NOLOGIN, no backend left, no prepared transaction", Seed: 42, StartNS: 1, DurationS: 45,
		Phases: []Phase{{"warmup", 0, 5}, {"calm", 5, 15}, {"faults", 20, 20}, {"drain", 40, 5}},
		Faults: []Fault{
			{ID: "slow-writer", Kind: "latency", On: "writer-1", AtS: 22, LengthS: 6, Planned: "40 ms ± 20 ms", Observed: true, Effect: "1,204 messages delayed"},
			{ID: "lost-replies", Kind: "drop-reply", On: "writer", AtS: 24, LengthS: 8, Planned: "every 50th commit", Observed: true, Effect: "38 replies cut after the commit was forwarded"},
			{ID: "kill-projector", Kind: "kill-role", On: "projector", AtS: 34, LengthS: 3, Planned: "kill -9, restart after 3 s", Observed: true, Effect: "1 process killed"},
			{ID: "store-pause", Kind: "pause-store", On: "store", AtS: 38, LengthS: 1.5, Planned: "1.5 s", Observed: scenario == "hot-account", Effect: "stopped and continued"},
		},
		History: HistoryFile{File: "history/" + variant + "-" + scenario + ".hist.zst", Records: 412880, Bytes: 9_812_233},
	}
	if control {
		t.Kind, t.Control = "control", "cv-pg-01"
	}
	t.Verdicts = sampleVerdicts(control, scenario, t.Target)
	t.Metrics = sampleMetrics(control)
	t.Series = sampleSeries(rnd)
	return t
}

func sampleVerdicts(control bool, scenario, target string) []verdict.Result {
	slugs := []struct{ slug, id string }{
		{"no-overdraft", "INV-OVERDRAFT"}, {"gapless-versions", "INV-GAPLESS"}, {"no-lost-ack", "INV-NOLOSTACK"}, {"no-phantom-event", "INV-NOPHANTOM"},
		{"failed-means-absent", "INV-FAILCLEAN"}, {"command-once", "INV-ONCE"}, {"valid-decision", "INV-DECISION"}, {"truthful-rejections", "INV-OUTCOME"},
		{"optimistic-concurrency", "INV-OCC"}, {"read-is-prefix", "INV-PREFIX"}, {"position-order", "INV-POSITION"}, {"no-skipped-checkpoint", "INV-NOSKIP"},
		{"no-duplicate-projection", "INV-NODUP"}, {"projection-equals-fold", "INV-FOLDEQ"}, {"fenced-owner", "INV-FENCE"}, {"monotonic-bids", "INV-BIDMONO"},
		{"close-is-final", "INV-CLOSEFINAL"}, {"exercised", "INV-EXERCISED"},
	}
	var out []verdict.Result
	for i, s := range slugs {
		v := verdict.Result{Invariant: s.slug, ID: s.id, Verdict: verdict.Holds, Required: i < 14,
			Evidence: map[string]int64{"opportunities": int64(1200 + 977*i), "streams": 50}}
		switch {
		case s.slug == "no-overdraft" && scenario == "hot-auction", s.slug == "monotonic-bids" && scenario == "hot-account", s.slug == "close-is-final" && scenario == "hot-account":
			v.Verdict, v.Required, v.Evidence, v.Reason = verdict.NotExercised, false, map[string]int64{}, "the workload has none of it"
		case s.slug == "fenced-owner":
			v.Verdict, v.Evidence, v.Reason = verdict.NotPromised, map[string]int64{}, "fenced-ownership is not declared"
		case s.slug == "exercised" && scenario == "hot-auction":
			v.Verdict, v.Required, v.Reason = verdict.NotExercised, true, "fault store-pause did not bite"
		case control && s.slug == "no-skipped-checkpoint":
			v.Verdict, v.Count = verdict.Violated, 3
			v.Violations = []verdict.Violation{sampleViolation(scenario, target)}
		case control && s.slug == "projection-equals-fold" && scenario == "hot-account":
			v.Verdict, v.Count = verdict.Violated, 1
			v.Violations = []verdict.Violation{{
				Summary: "account-7 shows a balance of 120.00 at version 18, but the log folds to 60.00 at version 19", Stream: "account-7",
				WindowNS: [2]int64{44e9, 44.2e9},
				Records:  []verdict.Evidence{{Lane: "auditor", StartNS: 44.1e9, EndNS: 44.15e9, What: "read row account-7: version 18, balance 120.00", Cause: true}},
				Recheck:  "eventproof check results/latest --invariant projection-equals-fold",
			}}
		}
		out = append(out, v)
	}
	return out
}

func sampleViolation(scenario, target string) verdict.Violation {
	const ms = int64(1e6)
	at := 36912 * ms
	return verdict.Violation{
		Summary: "position 41 was allocated before 42 but committed after it; the projector saved checkpoint 42, so event account-7@19 at position 41 is never delivered",
		Stream:  "account-7", WindowNS: [2]int64{at, at + 50*ms},
		Records: []verdict.Evidence{
			{Lane: "writer-1/3", StartNS: at + 1*ms, EndNS: at + 32*ms, What: "append account-7@19, position 41", Outcome: "ok", Cause: true},
			{Lane: "writer-2/7", StartNS: at + 8*ms, EndNS: at + 14*ms, What: "append account-3@4, position 42", Outcome: "ok"},
			{Lane: "writer-2/7", StartNS: at + 33*ms, EndNS: -1, What: "append account-3@5, position 43", Outcome: "unknown"},
			{Lane: "projector-1", StartNS: at + 16*ms, EndNS: at + 18*ms, What: "poll after 40: position 42", Outcome: "ok"},
			{Lane: "projector-1", StartNS: at + 19*ms, EndNS: at + 22*ms, What: "apply, checkpoint 42 (seq 812)", Outcome: "ok", Cause: true},
			{Lane: "projector-1", StartNS: at + 40*ms, EndNS: at + 41*ms, What: "poll after 42: nothing", Outcome: "ok"},
			{Lane: "store", StartNS: at + 45*ms, EndNS: at + 45*ms, What: "no ledger row names account-7@19", Cause: true},
			{Lane: "fault", StartNS: at - 15000*ms, EndNS: at + 20*ms, What: "slow-writer: latency 40 ms on writer-1"},
		},
		Recheck: "eventproof check results/latest --invariant no-skipped-checkpoint",
		Repeat:  fmt.Sprintf("eventproof run --scenario %s --target %s --seed 42", scenario, target),
	}
}

func sampleMetrics(control bool) Metrics {
	recovery := 0.412
	m := Metrics{
		Valid: true,
		Commands: Commands{Offered: 61204, Calls: 61310, OK: 54100, Refused: 6890, ByCode: map[string]int64{"INSUFFICIENT_FUNDS": 6890},
			Exhausted: 151, Unknown: 63, UnknownLanded: 41, Continued: 6},
		Attempts: Attempts{OK: 54100, Fail: 9120, Unknown: 412, UnknownLanded: 208},
		Contention: Contention{AttemptsPerCommand: 1.18, ConflictRatio: 0.1433, Conflicts: 9120, SelfConflicts: 17, ModelRatio: 0.151, WindowS: 0.0021,
			ByTries: []int64{49000, 9800, 1800, 380, 151}, Hot: []HotStream{{"account-1", 14012, 5200}, {"account-2", 13870, 3700}, {"account-17", 610, 90}}},
		LatencyS: Latency{Response: Quantiles{P50: 0.0041, P95: 0.0312, P99: 0.0841, Max: 1.612, Min: 0.0011, N: 61140},
			Service: Quantiles{P50: 0.0039, P95: 0.0221, P99: 0.0512, Max: 1.5, Min: 0.0011, N: 61140}, Unanswered: 1},
		Throughput: Throughput{CommandsPerS: 1742.3, EventsPerS: 1545.7, OfferedPerS: 1751, MeasuredS: 35},
		Generator:  Generator{LagS: Quantiles{P50: 0.00004, P95: 0.0002, P99: 0.0011, Max: 0.004, N: 58000}},
		LagS:       &Quantiles{P50: 0.012, P95: 0.081, P99: 0.91, Max: 3.4, Min: -0.0004, N: 54100},
		RecoveryS:  &recovery,
		Phases: []PhaseMetrics{
			{Name: "warmup", CommandsPerS: 1700, ConflictRatio: 0.12, Response: Quantiles{P50: .004, P99: .02, N: 8000}, Service: Quantiles{P50: .004, P99: .018, N: 8000}, LagS: &Quantiles{P50: .01, P99: .04, N: 8000}},
			{Name: "calm", CommandsPerS: 1751, ConflictRatio: 0.121, Response: Quantiles{P50: .0039, P99: .019, N: 26000}, Service: Quantiles{P50: .0038, P99: .017, N: 26000}, LagS: &Quantiles{P50: .01, P99: .042, N: 26000}},
			{Name: "faults", CommandsPerS: 1735, ConflictRatio: 0.16, Response: Quantiles{P50: .0052, P99: .41, N: 35000}, Service: Quantiles{P50: .0049, P99: .12, N: 35000}, LagS: &Quantiles{P50: .02, P99: 2.9, N: 35000}, Unknown: 63},
		},
	}
	if control {
		m.NeverVisible = 3
		m.Valid, m.Invalid = false, []string{"12 of 61,204 arrivals were dropped: the queue was full"}
		m.Commands.Dropped = 12
	}
	return m
}

func sampleSeries(rnd *rand.Rand) *Series {
	s := &Series{StepS: 1}
	round := func(v float64) float64 { return math.Round(v*1e6) / 1e6 }
	for i := range 46 {
		noise := func(v float64) float64 { return round(v * (0.85 + 0.3*rnd.Float64())) }
		slow, dead, paused := i >= 22 && i < 28, i >= 34 && i < 37, i == 38 || i == 39
		f := func(calm, during float64, when bool) float64 {
			if when {
				return noise(during)
			}
			return noise(calm)
		}
		if i >= 40 {
			s.OK, s.Refused, s.Conflicts, s.Unknown = append(s.OK, 0), append(s.Refused, 0), append(s.Conflicts, 0), append(s.Unknown, 0)
			s.ResponseP50, s.ResponseP99, s.ServiceP99 = append(s.ResponseP50, NoSample), append(s.ResponseP99, NoSample), append(s.ServiceP99, NoSample)
			s.LagP50, s.LagP99 = append(s.LagP50, NoLag), append(s.LagP99, NoLag)
			continue
		}
		s.OK = append(s.OK, f(1550, 300, paused))
		s.Refused = append(s.Refused, f(200, 30, paused))
		s.Conflicts = append(s.Conflicts, f(260, 390, slow))
		s.Unknown = append(s.Unknown, math.Round(f(0, 6, i >= 24 && i < 32)))
		s.ResponseP50 = append(s.ResponseP50, f(f(.004, .011, slow), .9, paused))
		s.ResponseP99 = append(s.ResponseP99, f(f(.02, .12, slow), 1.55, paused))
		s.ServiceP99 = append(s.ServiceP99, f(f(.017, .09, slow), .3, paused))
		s.LagP50 = append(s.LagP50, f(f(.01, .02, slow), 1.4, dead))
		s.LagP99 = append(s.LagP99, f(f(.04, .2, slow), 3.1, dead))
	}
	return s
}
