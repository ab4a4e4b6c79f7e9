package runner_test

import (
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/provision"
	"github.com/eventproof/eventproof/provision/all"
	"github.com/eventproof/eventproof/reports"
	"github.com/eventproof/eventproof/runner"
	"github.com/eventproof/eventproof/scenarios"
	"github.com/eventproof/eventproof/targets"
)

// The benchmarks of the files figures_* stand behind docs/figures.md. One operation is one whole measurement, so they
// are run with -benchtime 1x; with -short they are tried out with less of everything, and give no figures.

// printMachine prints what the figure was taken on, now and when the benchmark ends: a figure is worth as much as its
// calibration is steady.
func printMachine(b *testing.B) {
	b.Helper()
	if testing.Short() {
		b.Log("-short: NOT A FIGURE")
	}
	before := runner.Environment()
	b.Logf("%s, %d cores, %.1f GB, %s, Linux %s, %s", before.CPU, before.Cores, float64(before.MemoryBytes)/1e9, before.OS,
		before.Kernel, before.GoVersion)
	b.Cleanup(func() {
		after := runner.Environment()
		b.Logf("calibration %.3f s before, %.3f s after; load average %.1f before, %.1f after", before.CalibrationS,
			after.CalibrationS, before.LoadBefore, after.LoadBefore)
	})
	// A figure of its own, so that it stands beside the others.
	b.ReportMetric(before.CalibrationS, "calibration-s")
	b.ReportMetric(0, "ns/op") // one operation is the whole measurement: its length says nothing
}

// nativeServer starts a server of our own for the length of the test.
func nativeServer(tb testing.TB) *provision.Server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	s, err := all.Select(ctx, "postgres", provision.Options{Kind: provision.Native})
	if errors.Is(err, provision.ErrNoServer) {
		tb.Skipf("NOT MEASURED: %v", err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	tb.Logf("%s", s)
	return s
}

// findTarget returns a built-in target.
func findTarget(tb testing.TB, name string) targets.Target {
	tb.Helper()
	p, err := newProgram()
	if err != nil {
		tb.Fatal(err)
	}
	target, ok := p.Targets.Find(name)
	if !ok {
		tb.Fatalf("no target %q", name)
	}
	return target
}

// findScenario returns a scenario of the library.
func findScenario(tb testing.TB, name string) scenarios.Scenario {
	tb.Helper()
	library, err := scenarios.Library()
	if err != nil {
		tb.Fatal(err)
	}
	i := slices.IndexFunc(library, func(s scenarios.Scenario) bool { return s.Name == name })
	if i < 0 {
		tb.Fatalf("no scenario %q", name)
	}
	return library[i]
}

// conduct runs one trial and returns it with the path of its history.
func conduct(tb testing.TB, spec runner.Spec, server runner.Server, o runner.Options) (reports.Trial, string) {
	tb.Helper()
	p, err := newProgram()
	if err != nil {
		tb.Fatal(err)
	}
	o.Dir = tb.TempDir()
	r := runner.New(p, o)
	defer r.Close()
	trial := r.Run(context.Background(), spec, server)
	if trial.Problem != "" {
		tb.Fatal(trial.Problem)
	}
	return trial, filepath.Join(o.Dir, trial.History.File)
}

// readHistory returns all records of a history.
func readHistory(tb testing.TB, path string) []history.Record {
	tb.Helper()
	r, err := history.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	var out []history.Record
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, rec)
	}
}

// cpuTime returns the user and system time that this process has used.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// ratio is the geometric mean of paired ratios with the ends of its 90 % interval, from a percentile bootstrap over
// the pairs.
type ratio struct{ mean, low, high float64 }

func pairedRatio(ratios []float64, r *rand.Rand) ratio {
	const resamples = 20_000
	logs := make([]float64, len(ratios))
	for i, x := range ratios {
		logs[i] = math.Log(x)
	}
	means := make([]float64, resamples)
	for i := range means {
		sum := 0.0
		for range logs {
			sum += logs[r.IntN(len(logs))]
		}
		means[i] = sum / float64(len(logs))
	}
	slices.Sort(means)
	sum := 0.0
	for _, l := range logs {
		sum += l
	}
	return ratio{
		mean: math.Exp(sum / float64(len(logs))), low: math.Exp(means[resamples*5/100]), high: math.Exp(means[resamples*95/100]),
	}
}

func TestThePairedRatioIsTheGeometricMeanWithinItsInterval(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	if got := pairedRatio([]float64{0.5, 2, 0.5, 2}, r); math.Abs(got.mean-1) > 1e-9 || got.low > 0.75 || got.high < 1.3 {
		t.Errorf("wide pairs: %+v", got)
	}
	if got := pairedRatio(slices.Repeat([]float64{0.9}, 20), r); math.Abs(got.mean-0.9)+math.Abs(got.low-0.9)+math.Abs(got.high-0.9) > 1e-9 {
		t.Errorf("equal pairs: %+v", got)
	}
	// 20 draws around 0.95 with the noise of short segments: the true mean lies in the interval nine times of ten.
	inside := 0
	const series = 100
	for range series {
		pairs := make([]float64, 20)
		for i := range pairs {
			pairs[i] = 0.95 * math.Exp(0.1*r.NormFloat64())
		}
		if got := pairedRatio(pairs, r); got.low <= 0.95 && 0.95 <= got.high {
			inside++
		}
	}
	if inside < 78 || inside == series {
		t.Errorf("the interval held the true mean in %d of %d series", inside, series)
	}
}
