package runner_test

import (
	"bytes"
	"fmt"
	"os"
	"runtime/debug"
	"testing"
	"time"

	"github.com/eventproof/eventproof/runner"
	"github.com/eventproof/eventproof/scenarios"
	"github.com/eventproof/eventproof/verdict"
)

// BenchmarkRunnerMemory is how much memory the runner takes at 10,000 recorded commands a second: a whole run in one
// process, open loop, until its history is merged and judged. Target: at most 500 MB, taken for 10 s of load; judging
// keeps the whole history in memory, so that a longer load takes more. What the no-op store keeps, every event, lies
// in the same process and is counted in.
func BenchmarkRunnerMemory(b *testing.B) {
	lengths := []time.Duration{10 * time.Second, 20 * time.Second}
	if testing.Short() {
		lengths = []time.Duration{3 * time.Second}
	}
	for _, length := range lengths {
		b.Run("load="+length.String(), func(b *testing.B) {
			printMachine(b)
			for range b.N {
				runnerMemory(b, length)
			}
		})
	}
}

func runnerMemory(b *testing.B, length time.Duration) {
	const rate = 10_000
	sc := scenarios.Scenario{
		Name: "runner-memory",
		Workload: scenarios.Workload{
			Kind: "bank", Streams: 10_000, Keys: scenarios.Keys{Dist: "uniform"}, InitialBalance: 1_000_000, MaxAmount: 100,
			Withdraw: 0.5, Deposit: 0.5,
		},
		Load: scenarios.Load{
			Model: "open", Arrival: "poisson", Rate: rate, Workers: 16, Queue: 50_000, Deadline: 10 * time.Second, Try: 5 * time.Second,
			Phases: []scenarios.Phase{{Name: "load", For: length}},
		},
		Roles: scenarios.Roles{Writers: 2},
	}
	base, loading := resetPeak(b), 0.0
	trial, _ := conduct(b, runner.Spec{Scenario: sc, Target: newNoop().target(), Seed: 1}, nil, runner.Options{
		Progress: func(runner.Progress) { loading = peak(b) },
	})
	total := peak(b)
	for _, v := range trial.Verdicts {
		if v.Verdict == verdict.Violated || v.Verdict == verdict.Error || v.Verdict == verdict.Inconclusive {
			b.Errorf("%s: %s %s", v.Invariant, v.Verdict, v.Reason)
		}
	}
	m := trial.Metrics
	b.ReportMetric(loading, "MB-loading")
	b.ReportMetric(total, "MB-peak")
	b.ReportMetric(m.Throughput.CommandsPerS, "commands/s")
	b.Logf("peak of the resident memory: %.0f MB under load, %.0f MB to the verdicts (%.0f MB before the run); target at most 500",
		loading, total, base)
	b.Logf("%d commands in %.0f s, %d dropped, %d records, %.1f MB compressed; generator lag p99 %.1f ms, response p99 %.1f ms",
		m.Commands.Calls, m.Throughput.MeasuredS, m.Commands.Dropped, trial.History.Records, float64(trial.History.Bytes)/1e6,
		m.Generator.LagS.P99*1e3, m.LatencyS.Response.P99*1e3)
	if m.Commands.Dropped > 0 || m.Throughput.CommandsPerS < 0.99*rate {
		b.Errorf("the rate was not reached: %.0f commands a second, %d dropped", m.Throughput.CommandsPerS, m.Commands.Dropped)
	}
}

// resetPeak forgets the highest resident memory of this process so far and returns the present one, in MB.
func resetPeak(tb testing.TB) float64 {
	tb.Helper()
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		tb.Skipf("NOT MEASURED: the peak of the resident memory can't be reset here: %v", err)
	}
	return peak(tb)
}

// peak is the highest resident memory of this process since resetPeak, in MB.
func peak(tb testing.TB) float64 {
	tb.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		tb.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		var kB float64
		if _, err := fmt.Sscanf(string(line), "VmHWM: %f kB", &kB); err == nil {
			return kB * 1024 / 1e6
		}
	}
	tb.Fatal("no VmHWM in /proc/self/status")
	return 0
}
