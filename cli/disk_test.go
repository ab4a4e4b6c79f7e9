package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mountSmall mounts a file system of its own, which is full soon.
func mountSmall(t *testing.T, size string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "small")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("NOT TESTED WITH A FULL DISK. A file system can't be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestAFullDiskEndsARunWithWhatWasRecorded(t *testing.T) {
	t.Parallel()
	for _, size := range []string{"16k", "48k", "60k", "100k", "250k"} {
		t.Run(size, func(t *testing.T) {
			small, dir := mountSmall(t, size), t.TempDir()
			p := startProgram(t, dir, serverFolder(t), "run", "-s", writeScenario(t, dir, "2s"), "-t", "memory/reference", "--out", small)
			if code := p.wait(time.Minute); code != 4 {
				t.Errorf("exit code %d", code)
			}
			if s := p.stderr(); !strings.Contains(s, "no space left on device") || !strings.Contains(s, "make room and run: eventproof check") {
				t.Errorf("stderr:\n%s", s)
			}
			wholeFiles(t, small)
			runs, err := filepath.Glob(filepath.Join(small, "2*"))
			if err != nil || len(runs) != 1 {
				t.Fatalf("%q %v", runs, err)
			}
			// 0: only the reports found no room. 2: the audit did not. 64: nothing did. Never 1: a full disk is no bug of
			// the store.
			code, _, stderr := checkAgain(t, runs[0])
			if code != 0 && code != 2 && (code != 64 || !strings.Contains(stderr, "holds no history")) {
				t.Errorf("check: exit code %d\n%s", code, stderr)
			}
		})
	}
}

func TestAVerdictIsPrintedAlthoughItCantBeWritten(t *testing.T) {
	small, dir := mountSmall(t, "24k"), t.TempDir()
	p := startProgram(t, dir, serverFolder(t), "run", "-s", "det-cv-mem-01", "-t", "memory/reference~cv-mem-01", "--out", small)
	if code := p.wait(time.Minute); code != 1 {
		t.Errorf("exit code %d: a violation counts more than a full disk\n%s", code, p.stderr())
	}
	if !strings.Contains(p.stdout.String(), "no-lost-ack") || !strings.Contains(p.stderr(), "are not complete") {
		t.Errorf("%s\n%s", p.stdout.String(), p.stderr())
	}
	wholeFiles(t, small)
}

func TestAReadOnlyResultsFolderIsSaidBeforeAnythingIsStarted(t *testing.T) {
	small, dir := mountSmall(t, "16k"), t.TempDir()
	if err := unix.Mount("", small, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	p := startProgram(t, dir, serverFolder(t), "run", "-s", writeScenario(t, dir, "2s"), "-t", "memory/reference", "--out", small)
	if code := p.wait(time.Minute); code != 4 {
		t.Errorf("exit code %d", code)
	}
	oneMessage(t, p.stderr()+"\n", "read-only file system; choose another with --out")
}

// wholeFiles checks that no file is half written: none with a temporary name, none empty.
func wholeFiles(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		st, err := e.Info()
		if strings.Contains(e.Name(), ".tmp-") || strings.HasPrefix(e.Name(), ".") || err == nil && st.Size() == 0 {
			t.Errorf("half written: %s, %d bytes", path, st.Size())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
