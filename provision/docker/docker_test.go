package docker

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eventproof/eventproof/provision"
	"github.com/eventproof/eventproof/provision/internal/proc"
)

// scripted is an engine at the socket that the library is told of, once a process: it does not ask again.
type scripted struct {
	mu      sync.Mutex
	answers map[string]func(http.ResponseWriter) // by a part of the path; what is not listed is 404
}

var daemon scripted

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Getenv("EVENTPROOF_DOCKER_TEST") != "" {
		return m.Run() // a real engine
	}
	dir, err := os.MkdirTemp("", "engine-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a leftover does no harm
	l, err := net.Listen("unix", filepath.Join(dir, "docker.sock"))
	if err != nil {
		panic(err)
	}
	s := &http.Server{ReadHeaderTimeout: time.Second, Handler: &daemon}
	go func() { _ = s.Serve(l) }()
	defer s.Close() //nolint:errcheck // nobody is left to tell
	if err := os.Setenv("DOCKER_HOST", "unix://"+l.Addr().String()); err != nil {
		panic(err)
	}
	return m.Run()
}

func (d *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Api-Version", "1.41")
	w.Header().Set("Content-Type", "application/json")
	d.mu.Lock()
	defer d.mu.Unlock()
	for part, answer := range d.answers {
		if strings.Contains(r.URL.Path, part) {
			answer(w)
			return
		}
	}
	w.WriteHeader(http.StatusNotFound)
	_, _ = w.Write([]byte(`{"message":"scripted: no such thing"}`))
}

func engine(t *testing.T, answers map[string]func(w http.ResponseWriter)) {
	t.Helper()
	if os.Getenv("EVENTPROOF_DOCKER_TEST") != "" {
		t.Skip("the engine is a real one")
	}
	daemon.mu.Lock()
	defer daemon.mu.Unlock()
	daemon.answers = answers
}

func says(status int, body string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

func sample() Image {
	return Image{
		Store: "sample", Title: "Sample", Ref: "sample:1", Port: 5000,
		Env: func(string) map[string]string { return nil }, URL: func(addr string) string { return "sample://" + addr },
		Open: func(context.Context, string) (*provision.Server, error) {
			return nil, errors.New("scripted: not ready")
		},
	}
}

func TestWhatStandsInTheWayIsTold(t *testing.T) {
	up := map[string]func(http.ResponseWriter){
		"/_ping": says(200, "OK"), "/info": says(200, `{"ServerVersion":"20.10"}`), "/containers/json": says(200, `[]`),
	}
	with := func(part string, answer func(http.ResponseWriter)) map[string]func(http.ResponseWriter) {
		all := map[string]func(http.ResponseWriter){part: answer}
		for k, v := range up {
			all[k] = v
		}
		return all
	}
	for _, c := range []struct {
		name    string
		answers map[string]func(http.ResponseWriter)
		kind    string
		want    string
	}{
		{"an image that is missing is not pulled unasked", up, provision.Auto, "the image sample:1 is not here, and none is pulled unasked (eventproof doctor --fetch pulls it)"},
		{"an image that can't be pulled", with("/images/create", says(500, `{"message":"scripted: refused"}`)), provision.Docker, "the image sample:1 can't be pulled"},
		{"an engine that can't look for an image", with("/images/sample:1/json", says(500, `{"message":"scripted: broken"}`)), provision.Auto, "asking the Docker engine for the image sample:1"},
		{"a container that can't be made", with("/images/sample:1/json", says(200, `{"Id":"sha256:1"}`)), provision.Auto, "a container of sample:1 does not start"},
		{"an engine that fails after it has answered", map[string]func(http.ResponseWriter){"/": says(500, `{"message":"scripted"}`)}, provision.Docker, "asking the Docker engine for the image sample:1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			engine(t, c.answers)
			_, err := sample().start(t.Context(), provision.Options{Kind: c.kind, Cache: t.TempDir()})
			if !errors.Is(err, provision.ErrNoServer) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if opts := sample().inspect(t.Context(), provision.Options{}); len(opts) != 1 || opts[0].Available != (c.name == "a container that can't be made") {
				t.Errorf("doctor says %+v", opts)
			}
		})
	}
}

func TestOnlyContainersOfRunsThatAreGoneAreOrphans(t *testing.T) {
	own, err := labels()
	if err != nil {
		t.Fatal(err)
	}
	edit := func(key, value string) map[string]string {
		all := map[string]string{}
		for k, v := range own {
			all[k] = v
		}
		all[key] = value
		return all
	}
	for _, c := range []struct {
		name   string
		labels map[string]string
		want   bool
	}{
		{"of this process", own, false},
		{"of one that had its pid before", edit(labelStart, "1"), true},
		{"of a process that is gone", edit(labelOwner, "4194304"), true},
		{"of another boot", edit(labelBoot, "another"), true},
		{"of somebody else", map[string]string{"other": "1"}, false},
		{"with a label that is no number", edit(labelOwner, "x"), false},
		{"without a boot", edit(labelBoot, ""), false},
	} {
		if got := orphan(c.labels); got != c.want {
			t.Errorf("%s: %v (boot %s)", c.name, got, proc.BootID())
		}
	}
}

// TestAContainerIsKilledPausedAndRestartedOnItsData needs an engine with the image of the smoke test.
func TestAContainerIsKilledPausedAndRestartedOnItsData(t *testing.T) {
	if os.Getenv("EVENTPROOF_DOCKER_TEST") == "" {
		t.Skip("SKIPPED: no Docker engine with the images of make docker-smoke")
	}
	i := Image{
		Store: "dynamodb", Title: "DynamoDB", Ref: "of EVENTPROOF_DYNAMODB_IMAGE", Port: 8000, Emulated: true,
		Env: func(string) map[string]string { return nil }, URL: func(addr string) string { return "http://" + addr },
		Open: func(ctx context.Context, url string) (*provision.Server, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/", nil)
			if err != nil {
				return nil, err
			}
			resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
			if err != nil {
				return nil, err
			}
			return provision.NewServer(provision.Info{Fidelity: provision.Emulated, Version: "smoke"}, nil), resp.Body.Close()
		},
	}
	logs := t.TempDir()
	s, err := i.start(t.Context(), provision.Options{Kind: provision.Docker, Cache: t.TempDir(), Logs: logs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	answers := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := i.Open(ctx, s.AdminURL())
		return err
	}
	if s.Kind() != provision.Docker || s.Fidelity() != provision.Emulated || !s.Can(provision.CanKill) || answers() != nil {
		t.Fatalf("%s, %s, %s, %v", s, s.Kind(), s.Fidelity(), answers())
	}
	if err := s.Pause(); err != nil || answers() == nil {
		t.Errorf("paused: %v, and it answers: %v", err, answers() == nil)
	}
	if err := s.Kill(t.Context()); err != nil || answers() == nil { // also what is paused
		t.Errorf("killed: %v, and it answers: %v", err, answers() == nil)
	}
	if err := s.Restart(t.Context()); err != nil || answers() != nil {
		t.Errorf("started again: %v, %v", err, answers())
	}
	if err := s.Pause(); err != nil {
		t.Error(err)
	}
	if err := s.Resume(); err != nil || answers() != nil {
		t.Errorf("resumed: %v, %v", err, answers())
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if answers() == nil {
		t.Error("it answers after Close")
	}
	if _, err := os.Stat(filepath.Join(logs, "dynamodb-docker.log")); err != nil {
		t.Error(err)
	}
}
