package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/eventproof/eventproof/cli"
	"github.com/eventproof/eventproof/history"
)

// call runs the command line in this process.
func call(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	p, err := cli.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	code = cli.Main(p, args, &out, &errs)
	return code, out.String(), errs.String()
}

// recorded returns a finished history and an uncompressed one.
func recorded(t *testing.T) (merged, segment []byte) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "a"+history.SegmentExt)
	w, err := history.Create(path, &history.Trial{Info: history.TrialInfo{
		Format: "eventproof.history/v1", Trial: "t1", Scenario: "s", Target: "memory/reference", Store: "memory", Variant: "reference", Workload: "bank",
	}}, &history.Process{ID: 1, Role: "runner", Name: "runner", Incarnation: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 500 {
		if err := w.Write(&history.Phase{Name: "calm", T: int64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	dst := filepath.Join(dir, "a"+history.Ext)
	if _, err := history.Merge(dst, []string{path}); err != nil {
		t.Fatal(err)
	}
	return read(t, dst), read(t, path)
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func flipped(b []byte, at int) []byte {
	b = bytes.Clone(b)
	b[at] ^= 0x55
	return b
}

func TestCheckOfAFileThatCantBeJudgedGivesOneMessageAndExits64(t *testing.T) {
	merged, segment := recorded(t)
	for _, c := range []struct {
		name, file string
		content    []byte
		want       string
	}{
		{"empty", "h.hist.zst", nil, "not an eventproof history"},
		{"a few bytes", "h.hist.zst", merged[:3], "not an eventproof history"},
		{"cut inside the compressed header", "h.hist.zst", merged[:10], "not an eventproof history"},
		{"noise", "h.hist.zst", []byte("\x00\x01\x02\x03 noise \xff\xfe"), "not an eventproof history"},
		{"noise that claims to be compressed", "h.hist.zst", []byte("\x28\xb5\x2f\xfd noise \xff\xfe"), "not an eventproof history"},
		{"a zip file", "h.hist.zst", []byte("PK\x03\x04zip"), "not an eventproof history"},
		{"a result", "r.json", []byte(`{"schema":"eventproof.result/v1"}`), "not an eventproof history"},
		{"a scenario", "s.yaml", []byte("version: 1\n"), "not an eventproof history"},
		{"segment cut inside its header", "h.seg", segment[:9], "not an eventproof history"},
		{"segment without its trial", "h.seg", segment[:12], "no trial record"},
		{"byte turned in the middle", "h.seg", flipped(segment, len(segment)/2), "history is damaged at byte"},
		{"byte turned in the compressed file", "h.hist.zst", flipped(merged, len(merged)/2), "damaged"},
		{"version of the future", "h.seg", flipped(segment, 8), "format version not supported: the file has version"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), c.file)
			if err := os.WriteFile(path, c.content, 0o644); err != nil {
				t.Fatal(err)
			}
			code, stdout, stderr := call(t, "check", path)
			if code != 64 || stdout != "" {
				t.Errorf("exit code %d, stdout %q", code, stdout)
			}
			oneMessage(t, stderr, c.want)
			if !strings.Contains(stderr, path) {
				t.Errorf("%q does not name the file", stderr)
			}
		})
	}
}

func oneMessage(t *testing.T, stderr, want string) {
	t.Helper()
	if !strings.HasPrefix(stderr, "eventproof: ") || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, want) {
		t.Errorf("not one message with %q:\n%s", want, stderr)
	}
}

func TestCheckOfAPathWithoutHistorySaysWhatItLooksFor(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	run := filepath.Join(dir, "results", "latest")
	if err := os.MkdirAll(filepath.Join(run, "history", "t1"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, want string }{
		{filepath.Join(dir, "nothing"), "there is no such file or folder"},
		{dir, "holds no history (*.hist.zst, or the segments of a run that was killed)"},
		{filepath.Join(dir, "results"), "did you mean " + run + "?"},
		{run, "holds no history"},
		{fifo, "is neither a file nor a folder"},
		{"/dev/zero", "is neither a file nor a folder"},
	} {
		code, stdout, stderr := call(t, "check", c.path)
		if code != 64 || stdout != "" {
			t.Errorf("%s: exit code %d, stdout %q", c.path, code, stdout)
		}
		oneMessage(t, stderr, c.want)
	}
}

func TestCheckOfHalfAHistoryJudgesWhatIsThereAndExits2(t *testing.T) {
	_, segment := recorded(t)
	path := filepath.Join(t.TempDir(), "h.seg")
	if err := os.WriteFile(path, segment[:len(segment)/2], 0o644); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := call(t, "check", path, "--strict")
	if code != 2 || !strings.Contains(stdout, "? inconclusive") || !strings.Contains(stderr, "cut off inside a record") {
		t.Errorf("exit code %d\n%s\n%s", code, stdout, stderr)
	}
}

// What a history says of itself is text of others: it must not move the cursor of who reads the verdict, nor start a
// workflow command.
func TestNamesInAHistoryReachTheTerminalHarmless(t *testing.T) {
	const evil = "\x1b[2J\x1b]0;owned\a\n::error::owned\r\u202e"
	path := filepath.Join(t.TempDir(), "h.seg")
	w, err := history.Create(path, &history.Trial{Info: history.TrialInfo{
		Format: "eventproof.history/v1", Trial: evil, Scenario: "s" + evil, Target: "t" + evil, Store: evil, Variant: evil, Workload: "bank",
		Fidelity: evil, Faults: []string{evil}, Required: []history.Requirement{{Invariant: "no-overdraft", Min: map[string]int64{evil: 1}}},
	}}, &history.Process{ID: 1, Role: evil, Name: evil, Incarnation: 1}, &history.Phase{Name: evil, T: 1},
		&history.Fault{ID: evil, FaultKind: evil, On: evil, T: 2, Text: evil}, &history.End{T: 3, Interrupt: evil})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := call(t, "check", path)
	if code != 2 && code != 1 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	for _, text := range []string{stdout, stderr} {
		if strings.ContainsAny(text, "\x1b\a\r\u202e") {
			t.Errorf("control characters in %q", text)
		}
		for line := range strings.SplitSeq(text, "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "::") {
				t.Errorf("a workflow command: %q", line)
			}
		}
	}
}
