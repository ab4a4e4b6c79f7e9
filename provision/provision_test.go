package provision

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eventproof/eventproof/provision/internal/proc"
)

func TestSweepTouchesNothingThatIsNotItsOwn(t *testing.T) {
	for _, c := range []struct {
		name   string
		folder string
		file   string // of the record, "" = the one that goes with the folder
		swept  bool
	}{
		{"ours", folderPrefix + "kafka-a", "", true},
		{"of another name", "precious", "", false},
		{"named by another record", folderPrefix + "kafka-b", folderPrefix + "kafka-c", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cache, dir := t.TempDir(), filepath.Join(t.TempDir(), c.folder)
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			r, err := newRecord(cache, dir)
			if err != nil {
				t.Fatal(err)
			}
			if removed, err := Sweep(cache); err != nil && c.swept || len(removed) != 0 {
				t.Errorf("of a run that lives: removed %q, %v", removed, err)
			}
			r.Owner.Start++ // another process had this pid
			if c.file != "" {
				if err := r.remove(); err != nil {
					t.Fatal(err)
				}
				r.path = filepath.Join(cache, recordFolder, c.file+recordExt)
			}
			if err := r.write(); err != nil {
				t.Fatal(err)
			}
			removed, err := Sweep(cache)
			if (err == nil) != c.swept || (len(removed) == 1) != c.swept {
				t.Errorf("removed %q, %v", removed, err)
			}
			if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) != c.swept {
				t.Error(err)
			}
		})
	}
	if removed, err := Sweep(t.TempDir()); err != nil || removed != nil {
		t.Errorf("cache without records: %q, %v", removed, err)
	}
}

// closing counts that it was closed.
type closing struct {
	Process
	n *atomic.Int32
}

func (c closing) Close() error {
	c.n.Add(1)
	return nil
}

func TestAutoTakesTheFirstWayThatLeadsToAServer(t *testing.T) {
	var closed atomic.Int32
	way := func(kind string, emulated bool, err error) Way {
		fidelity := Real
		if emulated {
			fidelity = Emulated
		}
		return Way{Kind: kind, Emulated: emulated && kind != External, Start: func(context.Context, Options) (*Server, error) {
			if err != nil {
				return nil, err
			}
			return NewServer(Info{Kind: kind, Fidelity: fidelity, Title: "Thing"}, closing{n: &closed}), nil
		}}
	}
	none := &NoServerError{Title: "Thing", Tried: []Try{{"Java in PATH", "not found"}}, Remedy: "Install it"}
	broken := errors.New("it does not answer")
	for _, c := range []struct {
		name     string
		options  Options
		external Way
		native   error
		embedded error
		want     string // the kind, or a part of the error
		warnings int
	}{
		{"the product", Options{}, way(External, false, nil), nil, nil, Native, 0},
		{"a stand-in, with one warning", Options{}, way(External, false, nil), none, nil, Embedded, 1},
		{"a stand-in for one that does not start", Options{Kind: Auto}, way(External, false, nil), broken, nil, Embedded, 1},
		{"what was named, though another would do", Options{URL: "u"}, way(External, false, nil), nil, nil, External, 0},
		{"only what was named", Options{URL: "u"}, way(External, false, broken), nil, nil, "it does not answer", 0},
		{"nothing", Options{}, way(External, false, nil), none, broken, "Java in PATH: not found; embedded: it does not answer. Get a thing", 1},
		{"no stand-in where the product is required", Options{RequireReal: true}, way(External, false, nil), none, nil, "Java in PATH: not found; embedded: a stand-in", 0},
		{"the product where it is required", Options{RequireReal: true}, way(External, false, nil), nil, nil, Native, 0},
		{"no stand-in of others either", Options{RequireReal: true, URL: "u"}, way(External, true, nil), nil, nil, "a stand-in, and the product itself is required", 0},
		{"a stand-in that was asked for needs no warning", Options{Kind: Embedded}, way(External, false, nil), nil, nil, Embedded, 0},
		{"no other kind than the one asked for", Options{Kind: Native}, way(External, false, nil), none, nil, "Java in PATH: not found. Get a thing", 0},
		{"unknown kind", Options{Kind: "docker-ish"}, way(External, false, nil), nil, nil, `unknown provider "docker-ish" for thing (known: auto, external, native, embedded)`, 0},
		{"external without a URL", Options{Kind: External}, way(External, false, nil), nil, nil, "EVENTPROOF_THING_URL", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			closed.Store(0)
			store := Store{Name: "thing", Title: "Thing", Remedy: "Get a thing",
				Ways: []Way{c.external, way(Native, false, c.native), way(Embedded, true, c.embedded)}}
			var warnings []string
			c.options.Cache = t.TempDir()
			c.options.Log = func(line string) {
				if strings.HasPrefix(line, "warning: ") {
					warnings = append(warnings, line)
				}
			}
			s, err := store.Select(t.Context(), c.options)
			if slices.Contains(Kinds(), c.want) {
				if err != nil || s.Kind() != c.want {
					t.Errorf("%v, %v", s, err)
				}
			} else if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, %v", s, err)
			}
			if strings.Contains(c.want, "Get a thing") != errors.Is(err, ErrNoServer) && !c.options.RequireReal {
				t.Errorf("%v does not match ErrNoServer", err)
			}
			if len(warnings) != c.warnings {
				t.Errorf("warnings: %q", warnings)
			}
			if refused := c.options.RequireReal && c.options.URL != ""; refused != (closed.Load() == 1) {
				t.Errorf("closed %d times", closed.Load())
			}
		})
	}
}

func TestOnlyWhatHasThePinnedChecksumGetsIntoTheCache(t *testing.T) {
	const path, sum = "a/b/1/b-1.jar", "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" // of "hello"
	for _, c := range []struct {
		name   string
		serve  http.HandlerFunc
		want   error
		reason string
	}{
		{"whole", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }, nil, ""},
		{"another", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hellp")) }, ErrChecksum, "SHA-256"},
		{"half, and the length says so", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5")
			_, _ = w.Write([]byte("hel"))
		}, nil, "unexpected EOF"},
		{"half, and nothing says so", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hel")) }, ErrChecksum, "SHA-256"},
		{"missing", http.NotFound, nil, "404"},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/"+path {
					t.Errorf("asked for %s", r.URL.Path)
				}
				c.serve(w, r)
			}))
			defer srv.Close()
			dir := t.TempDir()
			dst := filepath.Join(dir, "b-1.jar")
			f := File{Path: path, SHA256: sum}
			err := f.downloadFrom(t.Context(), srv.Client(), srv.URL, dst)
			good := c.reason == ""
			if (err == nil) != good || !good && !strings.Contains(err.Error(), c.reason) || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%v", err)
			}
			if (f.Check(dst) == nil) != good {
				t.Errorf("check: %v", f.Check(dst))
			}
			if entries, _ := os.ReadDir(dir); len(entries) > 1 || len(entries) == 1 != good {
				t.Errorf("in the cache: %v", entries)
			}
		})
	}
}

func TestOneAtATimeFillsTheCache(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "new")
	unlock, err := Lock(t.Context(), cache, "kafka")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 120*time.Millisecond)
	defer cancel()
	if _, err := Lock(ctx, cache, "kafka"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("second: %v", err)
	}
	other, err := Lock(t.Context(), cache, "postgres")
	if err != nil {
		t.Fatal(err)
	}
	other()
	unlock()
	again, err := Lock(t.Context(), cache, "kafka")
	if err != nil {
		t.Fatal(err)
	}
	again()
}

// script is a server program for tests: a shell script that may say something and waits.
func script(text string, probe func(ctx context.Context, addr string) (string, error)) Program {
	return Program{
		Store: "script", Ports: 1, Probe: probe, Ready: 300 * time.Millisecond,
		Command: func(c *Child) (args, env []string, err error) {
			return []string{"/bin/sh", "-c", text, "server", c.Addr()}, []string{"KEPT=1"}, nil
		},
	}
}

func refuse(context.Context, string) (string, error) { return "", errors.New("refused") }

func TestAServerThatNeverBecomesReadyLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, want string }{
		{"silent", "echo starting; exec sleep 60", "does not answer: context deadline exceeded (refused): starting"},
		{"with children", "sleep 60 & echo forked; wait", "does not answer"},
		{"ended", "echo no luck today; exit 3", "ended while starting (exit status 3): no luck today"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cache, logs := t.TempDir(), t.TempDir()
			var dir string
			p := script(c.text, refuse)
			p.Prepare = func(_ context.Context, c *Child) error {
				dir = c.Dir()
				return nil
			}
			_, err := StartChild(t.Context(), p, cache, logs)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is left: %v", dir, err)
			}
			if left := proc.WorkingIn(dir); len(left) != 0 {
				t.Errorf("left: %+v", left)
			}
			if left, _ := filepath.Glob(filepath.Join(cache, recordFolder, "*")); len(left) != 0 {
				t.Errorf("left: %q", left)
			}
			if kept, _ := filepath.Glob(filepath.Join(logs, "script-*.log")); len(kept) != 1 {
				t.Errorf("logs: %q", kept)
			}
		})
	}
}

func TestAChildKeepsItsPortAndEndsOnRequest(t *testing.T) {
	t.Parallel()
	c, err := StartChild(t.Context(), script(`trap 'echo bye; exit 0' TERM; echo "up $KEPT:$HOME."; while :; do sleep 0.01; done`, func(context.Context, string) (string, error) {
		return "1", nil
	}), t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	said := func(want string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := proc.Await(ctx, "it says "+want, func() bool {
			b, err := os.ReadFile(c.Log())
			return err == nil && strings.Contains(string(b), want)
		}); err != nil {
			t.Fatal(err)
		}
	}
	said("up 1:.\n") // and nothing of our environment
	addr, pid := c.Addr(), c.PID()
	if err := c.Terminate(t.Context()); err != nil {
		t.Fatal(err)
	}
	said("bye")
	if err := c.Terminate(t.Context()); !errors.Is(err, ErrDead) {
		t.Errorf("a second time: %v", err)
	}
	if err := c.Restart(t.Context()); err != nil || c.Addr() != addr || c.PID() == pid {
		t.Errorf("%v: %s, process %d", err, c.Addr(), c.PID())
	}
}

func TestATakenPortIsNotUsed(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if !taken(t.Context(), port) {
		t.Error("a port with a listener is free")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if taken(t.Context(), port) {
		t.Error("a port without a listener is taken")
	}
}

func TestAServerOfOthersIsLeftAlone(t *testing.T) {
	s := NewServer(Info{Title: "Thing", Version: "1", Kind: External, URL: "thing://u:geheim@h", Shown: "thing://h"}, nil)
	for name, op := range map[string]func() error{
		"kill": func() error { return s.Kill(t.Context()) }, "restart": func() error { return s.Restart(t.Context()) },
		"pause": s.Pause, "resume": s.Resume,
	} {
		if err := op(); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s.Close() != nil || s.Abilities() != nil || strings.Contains(fmt.Sprint(s), "geheim") {
		t.Errorf("%s %v", s, s.Abilities())
	}
}
