package invariants

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
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
// Targets: after decoding at most 3 s for the rules and at most 700 MB for the process; at most 12 s from the
// compressed file. It is run with -benchtime 1x; with -short it is tried out with less, and gives no figures.
func BenchmarkCheckers(b *testing.B) {
	attempts := 1_000_000
	if testing.Short() {
		attempts = 50_000
		b.Log("-short: NOT A FIGURE")
	}
	path, merged := historyFile(b, newHotStream(attempts))
	before := calibration()
	b.Cleanup(func() { b.Logf("calibration %.3f s before, %.3f s after", before, calibration()) })
	b.ReportMetric(before, "calibration-s")
	b.ReportMetric(0, "ns/op") // one operation is the whole measurement
	for range b.N {
		resetPeak(b)
		begin, cpu := clock.Monotonic(), cpuSeconds(b)
		r, err := history.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		run, err := Load(r)
		if err := errors.Join(err, r.Close()); err != nil {
			b.Fatal(err)
		}
		decoded, decodedCPU := clock.Monotonic()-begin, cpuSeconds(b)-cpu
		most := peak(b)
		resetPeak(b) // decoding leaves garbage behind; what the rules need is counted without it
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		begin, cpu = clock.Monotonic(), cpuSeconds(b)
		verdicts := Check(run, Options{})
		judged, judgedCPU := clock.Monotonic()-begin, cpuSeconds(b)-cpu
		after := peak(b)
		for _, v := range verdicts {
			if v.Verdict == verdict.Violated || v.Verdict == verdict.Error {
				b.Errorf("%s: %s %v", v.Invariant, v.Reason, v.Violations)
			}
		}
		b.ReportMetric(float64(judged)/1e9, "rules-s")
		b.ReportMetric(float64(decoded+judged)/1e9, "from-file-s")
		b.ReportMetric(after, "MB-after-decoding")
		b.ReportMetric(float64(mem.HeapAlloc)/1e6, "MB-live")
		b.Logf("%d attempts, %d records, %.1f MB compressed: %.2f s to decode and index (%.2f s of CPU), %.2f s for the rules (%.2f s of CPU)",
			attempts, merged.Records, float64(merged.Bytes)/1e6, float64(decoded)/1e9, decodedCPU, float64(judged)/1e9, judgedCPU)
		b.Logf("%.0f MB live after decoding; resident at most %.0f MB while decoding, %.0f MB while the rules ran; targets: rules 3 s, 12 s in all, 700 MB",
			float64(mem.HeapAlloc)/1e6, most, after)
		runtime.KeepAlive(run)
	}
}

// BenchmarkCheckInParts is the other figure: 5,000,000 attempts on 1,000 streams, from the compressed file, in at most 1 GB.
func BenchmarkCheckInParts(b *testing.B) {
	attempts, streams := 5_000_000, 1000
	if testing.Short() {
		attempts, streams = 50_000, 20
		b.Log("-short: NOT A FIGURE")
	}
	const limit = 1_000_000_000
	path, merged := historyFile(b, newManyStreams(attempts, streams))
	before := calibration()
	b.Cleanup(func() { b.Logf("calibration %.3f s before, %.3f s after", before, calibration()) })
	b.ReportMetric(0, "ns/op")
	open := func() (ClosingSource, error) { return history.Open(path) }
	for range b.N {
		resetPeak(b)
		begin, cpu := clock.Monotonic(), cpuSeconds(b)
		j, err := CheckInParts(open, Parts(merged.Records, limit), Options{})
		if err != nil {
			b.Fatal(err)
		}
		took, used, most := clock.Monotonic()-begin, cpuSeconds(b)-cpu, peak(b)
		for _, v := range j.Results {
			if v.Verdict == verdict.Violated || v.Verdict == verdict.Error {
				b.Errorf("%s: %s %v", v.Invariant, v.Reason, v.Violations)
			}
		}
		b.ReportMetric(float64(took)/1e9, "from-file-s")
		b.ReportMetric(most, "MB-resident")
		b.ReportMetric(float64(j.Parts), "parts")
		b.Logf("%d attempts on %d streams, %d records, %.1f MB compressed: %.1f s (%.1f s of CPU) in %d parts, at most %.0f MB resident; target: 1000 MB",
			attempts, streams, merged.Records, float64(merged.Bytes)/1e6, float64(took)/1e9, used, j.Parts, most)
	}
}

// calibration times the piece of work that the report of every run shows: 64 MiB of checksums.
func calibration() float64 {
	block, table := make([]byte, 1<<20), crc32.MakeTable(crc32.Koopman)
	begin, sum := clock.Monotonic(), uint32(0)
	for range 64 {
		sum = crc32.Update(sum, table, block)
	}
	block[0] = byte(sum)
	return float64(clock.Monotonic()-begin) / 1e9
}

// historyFile writes a history as a run does: segment first, then merged and compressed.
func historyFile(b *testing.B, src Source) (path string, merged history.Merged) {
	b.Helper()
	dir := b.TempDir()
	segment := filepath.Join(dir, "a"+history.SegmentExt)
	w, err := history.Create(segment)
	if err != nil {
		b.Fatal(err)
	}
	const together = 256
	batch := make([]history.Record, 0, together)
	flush := func() {
		if err := w.Write(batch...); err != nil {
			b.Fatal(err)
		}
		batch = batch[:0]
	}
	for {
		rec, err := src.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if batch = append(batch, rec); len(batch) == together {
			flush()
		}
	}
	flush()
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	path = filepath.Join(dir, "a"+history.Ext)
	if merged, err = history.Merge(path, []string{segment}); err != nil {
		b.Fatal(err)
	}
	return path, merged
}

// resetPeak forgets the highest resident memory of this process so far.
func resetPeak(b *testing.B) {
	b.Helper()
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		b.Skipf("NOT MEASURED: the peak of the resident memory can't be reset here: %v", err)
	}
}

// peak is the highest resident memory of this process since resetPeak, in MB.
func peak(b *testing.B) float64 {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	for line := range bytes.Lines(status) {
		var kB float64
		if _, err := fmt.Sscanf(string(line), "VmHWM: %f kB", &kB); err == nil {
			return kB * 1024 / 1e6
		}
	}
	b.Fatal("no VmHWM in /proc/self/status")
	return 0
}
