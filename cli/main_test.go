package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/eventproof/eventproof/cli"
	"github.com/eventproof/eventproof/provision"
	postgresserver "github.com/eventproof/eventproof/provision/postgres"
)

// TestMain lets the test binary be eventproof, also for the role processes that it starts.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"eventproof": func() {
		p, err := cli.Builtin()
		if err != nil {
			panic(err)
		}
		p.Version = "test"
		os.Exit(cli.Main(p, os.Args[1:], os.Stdout, os.Stderr))
	}})
}

// postgres says why no server can be started here, "" if one can.
func postgres(ctx context.Context) (why string) {
	var all []string
	for _, o := range postgresserver.Store().Inspect(ctx, provision.Options{}) {
		if o.Available {
			return ""
		}
		all = append(all, o.Name+": "+o.Detail)
	}
	return "no Postgres server can be started here: " + strings.Join(all, "; ")
}

// needPostgres skips a test where no server can be had, and says so.
func needPostgres(t *testing.T) {
	t.Helper()
	if why := postgres(t.Context()); why != "" {
		t.Skip("NOT TESTED ON POSTGRES. " + why)
	}
}

// serverFolder is a TMPDIR that the server's user can enter, which it can't enter that of the test.
func serverFolder(t testing.TB) string {
	dir, err := os.MkdirTemp("", "eventproof-cli-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestSessions(t *testing.T) {
	why := postgres(t.Context())
	if why != "" {
		t.Log("SESSIONS WITH POSTGRES ARE SKIPPED. " + why)
	}
	cache, err := provision.DefaultCache()
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("EVENTPROOF_CACHE", cache)
			dir := serverFolder(env.T().(testing.TB))
			env.Setenv("SERVERS", dir)
			return nil
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "postgres":
				return why == "", nil
			case "root":
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": exits, "json": jsonOnly, "damage": damage, "listen": listen, "sameverdicts": sameVerdicts,
		},
	})
}

// exits runs a command that must end with a code: exits 64 eventproof run.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND …")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		code = ended.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got := fmt.Sprint(code); got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}

// damage makes a broken copy of a file: damage cut|flip|empty FROM TO.
func damage(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: damage HOW FROM TO")
	}
	from, err := filepath.Glob(ts.MkAbs(args[1]))
	ts.Check(err)
	if len(from) != 1 {
		ts.Fatalf("%s: %d files", args[1], len(from))
	}
	b, err := os.ReadFile(from[0])
	ts.Check(err)
	switch args[0] {
	case "cut":
		b = b[:len(b)/2]
	case "flip":
		b = bytes.Clone(b)
		b[len(b)/2] ^= 0xff
	case "copy":
	default:
		ts.Fatalf("damage how?")
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), b, 0o644))
}

// listen starts a server on loopback that is no Postgres and puts its address into a variable.
func listen(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: listen VARIABLE")
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	ts.Check(err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n\x1b[31m::error::hello\n")) // the other end may be gone
			_ = c.Close()
		}
	}()
	ts.Defer(func() {
		_ = l.Close() // ends the goroutine
		<-done
	})
	ts.Setenv(args[0], l.Addr().String())
}
