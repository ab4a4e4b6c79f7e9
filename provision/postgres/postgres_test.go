package postgres

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/ulikunitz/xz"
	"golang.org/x/sys/unix"

	"github.com/eventproof/eventproof/provision"
	"github.com/eventproof/eventproof/provision/internal/proc"
)

// TestMain lets the test binary play a runner that is killed, see TestAKilledRunnerLeavesNothing.
func TestMain(m *testing.M) {
	if cache := os.Getenv("PROVISION_TEST_RUNNER"); cache != "" {
		victim(cache)
	}
	os.Exit(m.Run())
}

// victim starts a server, pauses it so that it can't notice the death of its parent, and waits to be killed.
func victim(cache string) {
	s, err := StartNative(context.Background(), os.Getenv("PROVISION_TEST_BIN"), cache, "")
	if err == nil && os.Getenv("PROVISION_TEST_PAUSE") != "" {
		err = s.Pause()
	}
	if err != nil {
		_, _ = os.Stdout.WriteString("error " + err.Error() + "\n")
		os.Exit(1)
	}
	_, _ = os.Stdout.WriteString("ready\n")
	select {}
}

func installed(t *testing.T) string {
	t.Helper()
	bins, tried := findInstalled(t.Context())
	if len(bins) == 0 {
		t.Skipf("NO POSTGRES IS INSTALLED, so starting, killing and pausing one is not tested here: %v", tried)
	}
	return bins[0].dir
}

func start(t *testing.T, bin string) (*provision.Server, *provision.Child) {
	t.Helper()
	c, err := startChild(t.Context(), bin, t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	s := server(c)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, c
}

// head is the postmaster.
func head(t *testing.T, c *provision.Child) proc.Process {
	t.Helper()
	p, ok := proc.Of(c.PID())
	if !ok {
		t.Fatal("the postmaster does not run")
	}
	return p
}

func connect(t *testing.T, s *provision.Server) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), s.AdminURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func TestANativeServerIsKilledPausedAndRestartedOnItsData(t *testing.T) {
	t.Parallel()
	s, child := start(t, installed(t))
	ctx := t.Context()
	if s.Kind() != provision.Native || s.Fidelity() != "real" || s.Version() == "" || !s.Can(provision.CanKill) || !strings.HasPrefix(s.Addr(), "127.0.0.1:2") {
		t.Errorf("%s %s %s %s", s, s.Kind(), s.Version(), s.Addr())
	}
	c := connect(t, s)
	for setting, want := range map[string]string{"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "server_encoding": "UTF8", "max_connections": "200"} {
		var got string
		if err := c.QueryRow(ctx, "SELECT current_setting($1)", setting).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q, want %q (%v)", setting, got, want, err)
		}
	}
	if _, err := c.Exec(ctx, "CREATE TABLE kept AS SELECT 42 AS n"); err != nil {
		t.Fatal(err)
	}

	// A backend that is busy on the processor does not notice the postmaster's death.
	busy := connect(t, s)
	busyErr := make(chan error, 1)
	go func() {
		_, err := busy.Exec(ctx, "DO $$ BEGIN LOOP END LOOP; END $$")
		busyErr <- err
	}()
	if err := proc.Await(ctx, "the loop runs", func() bool {
		var n int
		err := c.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'DO %'").Scan(&n)
		return err == nil && n == 1
	}); err != nil {
		t.Fatal(err)
	}
	family := append(proc.Children(child.PID()), head(t, child))
	if len(family) < 4 {
		t.Fatalf("the server has %d processes", len(family))
	}
	if err := s.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	for _, p := range family {
		if p.Runs() {
			t.Errorf("process %d still runs", p.PID)
			_ = p.Signal(unix.SIGKILL)
		}
	}
	if err := <-busyErr; err == nil {
		t.Error("the loop ended without an error")
	}
	if _, err := probe(ctx, s.AdminURL(), time.Second); err == nil {
		t.Error("a killed server answers")
	}
	if err := s.Kill(ctx); err != nil {
		t.Errorf("second kill: %v", err)
	}
	if err := s.Pause(); !errors.Is(err, provision.ErrDead) {
		t.Errorf("pause of a dead server: %v", err)
	}
	addr := s.Addr()
	if err := s.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	var n int
	c = connect(t, s)
	if err := c.QueryRow(ctx, "SELECT n FROM kept").Scan(&n); err != nil || n != 42 || s.Addr() != addr {
		t.Errorf("n = %d at %s, %v", n, s.Addr(), err)
	}

	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() { answered <- c.QueryRow(ctx, "SELECT n FROM kept").Scan(&n) }()
	select {
	case err := <-answered:
		t.Errorf("a paused server answers: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Errorf("the query did not outlive the pause: %v", err)
	}

	// A postmaster that dies by another's hand leaves stopped children behind, which would hold the shared memory.
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := head(t, child).Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := proc.Await(ctx, "it is waited for", func() bool { _, ok := proc.Of(child.PID()); return !ok }); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(ctx); err != nil {
		t.Fatalf("restart after a foreign kill: %v", err)
	}
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(ctx); err != nil {
		t.Fatalf("restart of a paused server: %v", err)
	}
	dir := child.Dir()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the data is still there: %v", err)
	}
	if err := s.Restart(ctx); !errors.Is(err, provision.ErrClosed) {
		t.Errorf("restart after close: %v", err)
	}
}

func TestAKilledRunnerLeavesNothing(t *testing.T) {
	bin := installed(t)
	t.Run("and its server notices", func(t *testing.T) {
		t.Parallel()
		killRunner(t, bin, "")
	})
	t.Run("though its server is stopped", func(t *testing.T) {
		t.Parallel()
		killRunner(t, bin, "1")
	})
}

// record is what a test reads of the record of a server.
type record struct {
	Server proc.Process `json:"server"`
	Dir    string       `json:"dir"`
}

func read(t *testing.T, path string) record {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func killRunner(t *testing.T, bin, paused string) {
	t.Helper()
	cache := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), "PROVISION_TEST_RUNNER="+cache, "PROVISION_TEST_BIN="+bin, "PROVISION_TEST_PAUSE="+paused)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 500)
	if n, err := out.Read(line); string(line[:n]) != "ready\n" {
		t.Fatalf("%q, %v", line[:n], err)
	}
	records, _ := filepath.Glob(filepath.Join(cache, "servers", "*"))
	if len(records) != 1 {
		t.Fatalf("records %q", records)
	}
	if removed, err := provision.Sweep(cache); len(removed) != 0 || err != nil {
		t.Fatalf("swept a server whose runner lives: %v, %v", removed, err)
	}
	r := read(t, records[0])
	family := append(proc.Children(r.Server.PID), r.Server)
	if len(family) < 4 {
		t.Fatalf("%d processes", len(family))
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	removed, err := provision.Sweep(cache)
	if err != nil || len(removed) != 1 || removed[0] != r.Dir {
		t.Errorf("removed %q, %v", removed, err)
	}
	for _, p := range family {
		if p.Runs() {
			t.Errorf("process %d still runs", p.PID)
			_ = p.Signal(unix.SIGKILL)
		}
	}
	if _, err := os.Stat(r.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", r.Dir, err)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "servers", "*")); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

func TestACancelledStartLeavesNothing(t *testing.T) {
	t.Parallel()
	bin := installed(t)
	cache := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := StartNative(ctx, bin, cache, "")
		result <- err
	}()
	// initdb has begun when the data folder is there.
	var r record
	if err := proc.Await(t.Context(), "initdb runs", func() bool {
		records, _ := filepath.Glob(filepath.Join(cache, "servers", "*"+".json"))
		if len(records) != 1 {
			return false
		}
		b, err := os.ReadFile(records[0])
		if err != nil || json.Unmarshal(b, &r) != nil {
			return false
		}
		_, err = os.Stat(filepath.Join(r.Dir, "data", "base"))
		return err == nil
	}); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if ps := proc.WorkingIn(r.Dir); len(ps) != 0 {
		t.Errorf("left: %+v", ps)
	}
	if _, err := os.Stat(r.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", r.Dir, err)
	}
}

func TestAServerThatCannotStartSaysWhy(t *testing.T) {
	bin := t.TempDir()
	if err := os.Chmod(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"initdb", "postgres"} {
		script := "#!/bin/sh\nif [ \"$1\" = --version ]; then echo postgres 99; exit; fi\necho no luck today >&2; exit 3\n"
		if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(envBin, bin)
	cache := t.TempDir()
	_, err := Store().Select(t.Context(), provision.Options{Kind: provision.Native, Cache: cache, Fetch: true})
	var no *provision.NoServerError
	if !errors.As(err, &no) || !errors.Is(err, provision.ErrNoServer) || len(no.Tried) != 1 || !strings.Contains(err.Error(), envBin) {
		t.Fatalf("%v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "servers", "*")); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

func TestNothingInstalledAndNothingFetchedNamesTheRemedy(t *testing.T) {
	t.Setenv(envBin, t.TempDir())
	_, err := Store().Select(t.Context(), provision.Options{Kind: provision.Native, Cache: t.TempDir()})
	if !errors.Is(err, provision.ErrNoServer) || !strings.Contains(err.Error(), "has no program initdb") || !strings.Contains(err.Error(), "Install Postgres") {
		t.Errorf("%v", err)
	}
	if _, err := fetched(t.Context(), t.TempDir(), provision.Options{}); !errors.Is(err, provision.ErrNotFetched) {
		t.Errorf("%v", err)
	}
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	if _, err := Store().Select(t.Context(), provision.Options{Kind: "docker-ish"}); err == nil || !strings.Contains(err.Error(), "docker-ish") {
		t.Errorf("%v", err)
	}
	if _, err := Store().Select(t.Context(), provision.Options{Kind: provision.External}); err == nil || !strings.Contains(err.Error(), provision.EnvURL(Name)) {
		t.Errorf("%v", err)
	}
}

func TestExternalServersAreCheckedAndPasswordsMasked(t *testing.T) {
	for _, c := range []struct {
		name, url string
		remote    bool
		want      string
	}{
		{"another scheme", "mysql://u:geheim@127.0.0.1/db", false, "postgres://user"},
		{"no host", "postgres:///db?password=geheim", false, "postgres://user"},
		{"garbage", "postgres://u:geheim@127.0.0.1:port\x7f", false, "postgres://user"},
		{"bad parameter", "postgres://u:geheim@127.0.0.1/db?connect_timeout=soon", false, "parameters"},
		{"remote", "postgres://u:geheim@10.9.8.7:5432/db", false, "--allow-remote"},
		{"remote behind loopback", "postgres://u:geheim@127.0.0.1:1,10.9.8.7:1/db?sslmode=disable", false, "--allow-remote"},
		{"remote by parameter", "postgres://u:geheim@127.0.0.1:1/db?host=10.9.8.7&password=geheim", false, "--allow-remote"},
		{"a name", "postgres://u:geheim@db.example:5432/db", false, "--allow-remote"},
		{"unreachable", "postgres://u:geheim@127.0.0.1:1/db?password=geheim", false, "can't be used"},
		{"unreachable, remote allowed", "postgres://u:geheim@127.0.0.1:1/db", true, "can't be used"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := OpenExternal(t.Context(), c.url, c.remote)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "geheim") {
				t.Errorf("the password is shown: %v", err)
			}
		})
	}
}

func TestAnExternalServerIsUsedButNeverKilled(t *testing.T) {
	t.Parallel()
	own, _ := start(t, installed(t))
	url := strings.Replace(own.AdminURL(), "postgres@", "postgres:geheim@", 1)
	var said []string
	s, err := Store().Select(t.Context(), provision.Options{URL: url, Log: func(line string) { said = append(said, line) }})
	if err != nil {
		t.Fatal(err)
	}
	if s.Kind() != provision.External || s.Addr() != own.Addr() || s.Version() != own.Version() || s.AdminURL() != url || s.Can(provision.CanKill) || s.Logs() != "" {
		t.Errorf("%+v", s)
	}
	if all := s.String() + strings.Join(said, "\n"); strings.Contains(all, "geheim") || !strings.Contains(all, "external") {
		t.Errorf("%q", all)
	}
	for name, op := range map[string]func() error{
		"kill": func() error { return s.Kill(t.Context()) }, "restart": func() error { return s.Restart(t.Context()) },
		"pause": s.Pause, "resume": s.Resume,
	} {
		if err := op(); !errors.Is(err, provision.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := probe(t.Context(), own.AdminURL(), 2*time.Second); err != nil {
		t.Errorf("closing the handle ended the server: %v", err)
	}
	for _, o := range Store().Inspect(t.Context(), provision.Options{URL: url, Cache: t.TempDir()}) {
		if o.Detail == "" || strings.Contains(o.Detail, "geheim") {
			t.Errorf("%+v", o)
		}
	}
}

func TestTheFetchedArchiveRuns(t *testing.T) {
	t.Parallel()
	if err := archivePlatform(); err != nil {
		t.Skip(err)
	}
	cache, err := provision.DefaultCache() // unpacking takes seconds, so what is there is used
	if err != nil {
		t.Fatal(err)
	}
	bin, err := Fetch(t.Context(), provision.Options{Cache: cache})
	if err != nil {
		t.Skipf("THE ARCHIVE CAN'T BE FETCHED HERE, so it is not tested: %v", err)
	}
	if o := inspectFetched(provision.Options{Cache: cache}); !o.Available {
		t.Errorf("%+v", o)
	}
	if s, _ := start(t, bin); !strings.HasPrefix(s.Version(), "17.") {
		t.Errorf("version %s", s.Version())
	}
}

func TestAHalfDownloadedArchiveIsNeverUnpacked(t *testing.T) {
	if err := archivePlatform(); err != nil {
		t.Skip(err)
	}
	cache := t.TempDir()
	if err := os.WriteFile(filepath.Join(cache, archiveJar), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := fetched(t.Context(), cache, provision.Options{}); !errors.Is(err, provision.ErrChecksum) || !strings.Contains(err.Error(), "half downloaded") {
		t.Errorf("%v", err)
	}
	if o := inspectFetched(provision.Options{Cache: cache}); o.Available || !strings.Contains(o.Detail, "checksum") {
		t.Errorf("%+v", o)
	}
}

func TestMavenGetsTheSameArchive(t *testing.T) {
	if os.Getenv("PROVISION_TEST_MAVEN") == "" {
		t.Skip("Maven takes long to start: set PROVISION_TEST_MAVEN=1")
	}
	jar := filepath.Join(t.TempDir(), archiveJar)
	if err := byMaven(t.Context(), jar); err != nil {
		t.Skipf("MAVEN CAN'T FETCH HERE, so it is not tested: %v", err)
	}
	if err := archive.Check(jar); err != nil {
		t.Error(err)
	}
}

func TestUnpackingNeverLeavesTheFolder(t *testing.T) {
	pack := func(hs ...tar.Header) []byte {
		var out bytes.Buffer
		x, err := xz.NewWriter(&out)
		if err != nil {
			t.Fatal(err)
		}
		w := tar.NewWriter(x)
		for _, h := range hs {
			h.Mode = 0o755
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(make([]byte, h.Size)); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(w.Close(), x.Close()); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	file := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name, Size: 3} }
	link := func(name, to string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}
	}
	for _, c := range []struct {
		name    string
		entries []tar.Header
		good    bool
	}{
		{"plain", []tar.Header{file("bin/postgres"), link("lib/a.so", "a.so.1"), link("lib/b", "../bin/postgres")}, true},
		{"parent", []tar.Header{file("../out")}, false},
		{"absolute", []tar.Header{file("/tmp/out")}, false},
		{"link out", []tar.Header{link("l", "../../etc")}, false},
		{"absolute link", []tar.Header{link("l", "/etc")}, false},
		{"twice", []tar.Header{file("a"), file("a")}, false},
		{"device", []tar.Header{{Typeflag: tar.TypeFifo, Name: "f"}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			outer := t.TempDir()
			dir := filepath.Join(outer, "in")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			err := untar(bytes.NewReader(pack(c.entries...)), dir)
			if (err == nil) != c.good {
				t.Errorf("error %v", err)
			}
			if entries, _ := os.ReadDir(outer); len(entries) != 1 {
				t.Errorf("outside: %v", entries)
			}
		})
	}
	if err := untar(strings.NewReader("no xz"), t.TempDir()); err == nil {
		t.Error("unpacked a text")
	}
	empty := filepath.Join(t.TempDir(), "a.jar")
	var b bytes.Buffer
	if err := zip.NewWriter(&b).Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(empty, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unpack(empty, filepath.Join(t.TempDir(), "x")); err == nil {
		t.Error("unpacked an empty archive")
	}
}
