package runner

import (
	"bufio"
	"bytes"
	"fmt"
	"hash/crc32"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/reports"
)

// Environment describes the machine that a run's numbers were taken on.
func Environment() reports.Environment {
	e := reports.Environment{OS: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU(), GoVersion: runtime.Version(),
		LoadBefore: LoadAverage(), CalibrationS: calibrate(), CPU: firstField("/proc/cpuinfo", "model name")}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		e.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) == nil {
		e.MemoryBytes = si.Totalram * uint64(si.Unit)
	}
	return e
}

// SpareMemory is half of the memory that is free on this machine, in bytes; 0 where it is not known.
func SpareMemory() uint64 {
	var kB uint64
	if _, err := fmt.Sscanf(firstField("/proc/meminfo", "MemAvailable"), "%d kB", &kB); err != nil {
		return 0
	}
	return kB << 10 / 2
}

// LoadAverage is the machine's load of the last minute, 0 where it is not known.
func LoadAverage() float64 {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), " ")
	v, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return v
}

// calibrate times a fixed piece of work: 64 MiB of checksums. Absolute figures of two runs can be compared only as
// far as their calibrations agree.
func calibrate() float64 {
	block := make([]byte, 1<<20)
	t0 := clock.Monotonic()
	sum := uint32(0)
	for range 64 {
		sum = crc32.Update(sum, crc32.MakeTable(crc32.Koopman), block)
	}
	block[0] = byte(sum)
	return float64(clock.Monotonic()-t0) / 1e9
}

func firstField(file, name string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	s := bufio.NewScanner(bytes.NewReader(b))
	for s.Scan() {
		if k, v, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
