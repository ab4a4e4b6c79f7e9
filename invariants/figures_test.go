package invariants

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/verdict"
)

// BenchmarkCheckers is what docs/figures.md says of the checkers: 1,000,000 attempts on one hot stream, in one pass.
// Targets: the rules at most 3 s and the whole process at most 700 MB after decoding; at most 12 s from the compressed
// file. It is run with -benchtime 1x; with -short it is tried out with less, and gives no figures.
func BenchmarkCheckers(b *testing.B) {
	attempts := 1_000_000
	if testing.Short() {
		attempts = 50_000
		b.Log("-short: NOT A FIGURE")
	}
	path, records := hotFile(b, attempts)
	st, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(0, "ns/op") // one operation is the whole measurement
	for range b.N {
		debug.FreeOSMemory()
		begin := clock.Monotonic()
		r, err := history.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		run, err := Load(r)
		if err := errors.Join(err, r.Close()); err != nil {
			b.Fatal(err)
		}
		decoded := clock.Monotonic()
		// Decoding leaves garbage behind; what the rules need is counted without it.
		debug.FreeOSMemory()
		loaded := live()
		after, stop := watchResident()
		rules := clock.Monotonic()
		verdicts := Check(run, Options{})
		end := clock.Monotonic()
		stop()
		for _, v := range verdicts {
			if v.Verdict == verdict.Violated || v.Verdict == verdict.Error {
				b.Errorf("%s: %s %v", v.Invariant, v.Reason, v.Violations)
			}
		}
		b.ReportMetric(float64(end-rules)/1e9, "rules-s")
		b.ReportMetric(float64(decoded-begin+end-rules)/1e9, "from-file-s")
		b.ReportMetric(*after, "MB-after-decoding")
		b.Logf("%d attempts, %d records, %.1f MB compressed: %.2f s to decode and index, %.2f s for the rules; %.0f MB of live heap, %.0f MB resident at most while the rules ran",
			attempts, records, float64(st.Size())/1e6, float64(decoded-begin)/1e9, float64(end-rules)/1e9, loaded, *after)
		runtime.KeepAlive(run)
	}
}
