package dynamodb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	emulator "github.com/eventproof/eventproof/emulators/dynamodb"
	"github.com/eventproof/eventproof/provision"
)

// TestMain lets the test binary be the program that serves the emulator.
func TestMain(m *testing.M) {
	if a := os.Args; len(a) > 6 && a[1] == "emulator" && a[2] == Name {
		if err := emulator.Serve(context.Background(), a[4], emulator.Options{Dir: a[6]}, nil); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// call makes one request without a driver.
func call(t *testing.T, s *provision.Server, op, body string) (int, map[string]any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	status, got, err := try(ctx, s, op, body)
	if err != nil {
		t.Fatalf("%s: %v", op, err)
	}
	return status, got
}

func try(ctx context.Context, s *provision.Server, op, body string) (status int, got map[string]any, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.AdminURL(), strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/x-amz-json-1.0")
	req.Header.Set("X-Amz-Target", "DynamoDB_20120810."+op)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	return resp.StatusCode, got, json.NewDecoder(resp.Body).Decode(&got)
}

func TestTheEmulatorIsKilledPausedAndRestartedOnItsData(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	s, err := Store().Select(t.Context(), provision.Options{Cache: t.TempDir(), Exe: exe})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("usable after %v", time.Since(begun))
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if s.Kind() != provision.Embedded || s.Fidelity() != provision.Emulated || s.Store() != Name || s.AdminURL() != "http://"+s.Addr() || !strings.HasPrefix(s.Addr(), "127.0.0.1:2") {
		t.Errorf("%s %s %s", s, s.Kind(), s.Fidelity())
	}
	ctx := t.Context()
	if status, got := call(t, s, "CreateTable", `{"TableName":"kept","BillingMode":"PAY_PER_REQUEST","AttributeDefinitions":[{"AttributeName":"pk","AttributeType":"S"}],"KeySchema":[{"AttributeName":"pk","KeyType":"HASH"}]}`); status != http.StatusOK {
		t.Fatalf("%d %v", status, got)
	}
	if status, got := call(t, s, "PutItem", `{"TableName":"kept","Item":{"pk":{"S":"a"},"n":{"N":"42"}}}`); status != http.StatusOK {
		t.Fatalf("%d %v", status, got)
	}
	if err := s.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := probe(ctx, s.AdminURL()); err == nil {
		t.Error("a killed emulator answers")
	}
	begun = time.Now()
	if err := s.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("usable %v after kill -9", time.Since(begun))
	const get = `{"TableName":"kept","ConsistentRead":true,"Key":{"pk":{"S":"a"}}}`
	if _, got := call(t, s, "GetItem", get); fmt.Sprint(got) != "map[Item:map[n:map[N:42] pk:map[S:a]]]" {
		t.Errorf("after kill -9: %v", got)
	}
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, _, err := try(ctx, s, "GetItem", get)
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Errorf("a paused emulator answers: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Errorf("the read did not outlive the pause: %v", err)
	}

	// The same endpoint, named by hand, is still a stand-in, and nobody's to kill.
	ext, err := Store().Select(ctx, provision.Options{URL: s.AdminURL() + "/"})
	if err != nil || ext.Fidelity() != provision.Emulated || ext.Can(provision.CanKill) || ext.Addr() != s.Addr() || ext.AdminURL() != s.AdminURL() {
		t.Errorf("%v, %v", ext, err)
	}
	if _, err := Store().Select(ctx, provision.Options{URL: s.AdminURL(), RequireReal: true}); !errors.Is(err, provision.ErrNoServer) {
		t.Errorf("required to be real: %v", err)
	}
	dir := filepath.Dir(s.DataDir())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the data is still there: %v", err)
	}
}

func TestWithoutAProgramThereIsNoEmulator(t *testing.T) {
	_, err := Store().Select(t.Context(), provision.Options{Cache: t.TempDir()})
	if !errors.Is(err, provision.ErrNoServer) || !strings.Contains(err.Error(), "EVENTPROOF_DYNAMODB_URL") {
		t.Errorf("%v", err)
	}
}

func TestAnEndpointThatIsAnotherProductIsToldApart(t *testing.T) {
	answer := func(status int, kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for _, c := range []struct {
		name  string
		serve http.HandlerFunc
		other bool   // another product
		want  string // in the error; "" = none
	}{
		{"DynamoDB", answer(200, "application/x-amz-json-1.0", `{"TableNames":[]}`), false, ""},
		{"one that answers plain JSON", answer(200, "application/json", `{"TableNames":["a"]}`), false, ""},
		{"a web page", answer(200, "text/html", `<html>{"TableNames":[]}`), true, "not DynamoDB"},
		{"another JSON API", answer(200, "application/json", `{"name":"node-1","tagline":"You Know, for Search"}`), true, "not DynamoDB"},
		{"no such page", answer(404, "application/json", `{"error":"no such page"}`), true, "404"},
		{"an object store", answer(403, "application/xml", `<Error/>`), true, "403"},
		{"a redirect", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusFound) }, true, "302"},
		{"not JSON at all", answer(200, "application/x-amz-json-1.0", `TableNames`), true, "not DynamoDB"},
		{"DynamoDB that lets nobody in", answer(400, "application/x-amz-json-1.0", `{"__type":"com.amazon.coral.service#UnrecognizedClientException","message":"no"}`), false, "dummy credentials"},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv := httptest.NewServer(c.serve)
			defer srv.Close()
			_, err := OpenExternal(t.Context(), srv.URL, false)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
			var other *NotDynamoDBError
			if errors.As(err, &other) != c.other {
				t.Errorf("%v", err)
			}
		})
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = c.Write([]byte("\x00\x00\x00\x01\x00")) // no HTTP
			_ = c.Close()
		}
	}()
	if _, err := OpenExternal(t.Context(), "http://"+l.Addr().String(), false); err == nil || !strings.Contains(err.Error(), "can't be used") {
		t.Errorf("no HTTP: %v", err)
	}
}

func TestEndpointsAreChecked(t *testing.T) {
	for _, c := range []struct {
		url    string
		remote bool
		want   string
	}{
		{"http://127.0.0.1:8000", false, ""},
		{"http://localhost:8000/", false, ""},
		{"https://[::1]:8000", false, ""},
		{"https://dynamodb.eu-central-1.amazonaws.com", true, ""},
		{"https://dynamodb.eu-central-1.amazonaws.com", false, "--allow-remote"},
		{"http://127.0.0.1.example:8000", false, "--allow-remote"},
		{"dynamodb://127.0.0.1:8000", false, "the form http://host:port"},
		{"127.0.0.1:8000", false, "the form"},
		{"http://u:geheim@127.0.0.1:8000", false, "the form"},
		{"http://127.0.0.1:8000/x", false, "the form"},
		{"http://127.0.0.1:8000?token=geheim", false, "the form"},
	} {
		err := CheckURL(c.url, c.remote)
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "geheim")) {
			t.Errorf("%s: %v", c.url, err)
		}
	}
}
