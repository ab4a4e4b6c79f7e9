package wire

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eventproof/eventproof/history"
)

// webStub is an HTTP server that keeps the bodies it was sent, and answers by what the body says.
type webStub struct {
	*httptest.Server
	mu    sync.Mutex
	heard []string
}

func newWebStub(t *testing.T) *webStub {
	t.Helper()
	s := &webStub{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.heard = append(s.heard, string(body))
		s.mu.Unlock()
		switch string(body) {
		case "refuse":
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException"}`)
		case "busy":
			w.WriteHeader(http.StatusInternalServerError)
		case "long":
			for range 3 { // flushed, and so in chunks
				_, _ = io.WriteString(w, strings.Repeat("x", 3000))
				w.(http.Flusher).Flush()
			}
		default:
			_, _ = io.WriteString(w, "{}")
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *webStub) count(body string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.heard {
		if h == body {
			n++
		}
	}
	return n
}

// newWebProxy stands before the stub; the returned function makes a call through it, with a connection of its own.
func newWebProxy(t *testing.T, s *webStub) (*Proxy, func(operation, body string) (int, error)) {
	t.Helper()
	p, err := NewProxy(t.Context(), Options{Name: "writer-1", Upstream: s.Listener.Addr().String(), Protocol: HTTP()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p, func(operation, body string) (int, error) {
		transport := &http.Transport{DisableKeepAlives: true}
		defer transport.CloseIdleConnections()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.Addr()+"/", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.GetBody = nil
		request.Header.Set("X-Amz-Target", "DynamoDB_20120810."+operation)
		request.Header.Set(SessionHeader, "w/1")
		answer, err := (&http.Client{Transport: transport, Timeout: 5 * time.Second}).Do(request)
		if err != nil {
			return 0, err
		}
		defer answer.Body.Close()
		_, err = io.ReadAll(answer.Body)
		return answer.StatusCode, err
	}
}

func TestADroppedReplyOfAPutHasLanded(t *testing.T) {
	s := newWebStub(t)
	p, call := newWebProxy(t, s)
	_, w := apply(t, p, RuleSpec{Action: DropReply, Max: 1})
	for operation, body := range map[string]string{"Query": "read", "GetItem": "long", "PutItem": "refuse", "UpdateItem": "busy"} {
		if _, err := call(operation, body); err != nil {
			t.Errorf("%s %s: %v: only the reply of a commit is cut", operation, body, err)
		}
	}
	if code, err := call("TransactWriteItems", "put"); err == nil {
		t.Errorf("the reply arrived: %d", code)
	}
	if n := s.count("put"); n != 1 {
		t.Errorf("%d puts reached the server", n)
	}
	one(t, w.await(t, 1, 1), history.BiteReplyDropped, history.LandedYes, "w/1")
	if _, err := call("PutItem", "put"); err != nil {
		t.Error("after the last one allowed:", err)
	}
}

func TestACutPutNeverReachesTheServer(t *testing.T) {
	s := newWebStub(t)
	p, call := newWebProxy(t, s)
	_, w := apply(t, p, RuleSpec{Action: CutRequest, Max: 1})
	if _, err := call("Scan", "read"); err != nil {
		t.Error("a read was cut:", err)
	}
	if _, err := call("PutItem", "put"); err == nil {
		t.Error("the put was answered")
	}
	if n := s.count("put"); n != 0 {
		t.Errorf("%d puts reached the server", n)
	}
	one(t, w.await(t, 1, 1), history.BiteRequestCut, history.LandedNo, "w/1")
}

func TestAParkedPutIsSentOnWhenLifted(t *testing.T) {
	for body, landed := range map[string]history.Landed{"put": history.LandedYes, "refuse": history.LandedNo, "busy": history.LandedUnknown} {
		t.Run(body, func(t *testing.T) {
			s := newWebStub(t)
			p, call := newWebProxy(t, s)
			r, w := apply(t, p, RuleSpec{Action: ParkRequest, Max: 1})
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = call("PutItem", body) // what it is answered is the witness's business
			}()
			w.await(t, 1, 1)
			if s.count(body) != 0 {
				t.Error("sent before it was lifted")
			}
			withdraw(t, p, r)
			<-done
			_, bites := w.all()
			one(t, bites, history.BiteRequestReleased, landed, "w/1")
			if s.count(body) != 1 {
				t.Error("not sent on")
			}
		})
	}
}

func TestTheOutcomeHeaderSpeaksBeforeTheStatus(t *testing.T) {
	for _, c := range []struct {
		status int
		header string
		body   string
		want   answer
	}{
		{200, "", "{}", committed},
		{200, "fail", "{}", rolledBack},
		{200, "unknown", "{}", undecided},
		{503, "ok", "{}", committed},
		{400, "", "ConditionalCheckFailedException", rolledBack},
		{400, "", "TransactionInProgressException", undecided},
		{400, "", "IdempotentParameterMismatchException", undecided},
		{408, "", "", undecided},
		{500, "", "", undecided},
	} {
		text := fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Length: %d\r\n", c.status, len(c.body))
		if c.header != "" {
			text += OutcomeHeader + ": " + c.header + "\r\n"
		}
		requests, replies := HTTP().framers()
		requests.feed([]byte("POST /append HTTP/1.1\r\nContent-Length: 0\r\n\r\n"), func(frame) {})
		var got []answer
		replies.feed([]byte(text+"\r\n"+c.body), func(f frame) { got = append(got, f.answer) })
		if !slices.Equal(got, []answer{c.want}) {
			t.Errorf("%d %q %q: answers %v, want %v", c.status, c.header, c.body, got, c.want)
		}
	}
}

const (
	webPut   = "POST / HTTP/1.1\r\nX-Amz-Target: DynamoDB_20120810.PutItem\r\nEventproof-Session: w/1\r\nContent-Length: 3\r\n\r\nput"
	webGet   = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n"
	webChunk = "POST /append HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n"
)

func TestRequestsAreFoundWhereverTheBytesAreCut(t *testing.T) {
	stream := []byte(webPut + webGet + webChunk)
	for at := range stream {
		requests, _ := HTTP().framers()
		var out []byte
		var commits []bool
		for _, part := range [][]byte{stream[:at], stream[at:]} {
			requests.feed(slices.Clone(part), func(f frame) { out, commits = append(out, f.data...), append(commits, f.commit) })
		}
		if !bytes.Equal(out, stream) || !slices.Equal(commits, []bool{true, false, true}) || requests.unreadable() {
			t.Fatalf("cut at %d: commits %v, readable %v, %d of %d bytes", at, commits, !requests.unreadable(), len(out), len(stream))
		}
	}
}

func TestWhatIsNoHTTPPassesUnread(t *testing.T) {
	for _, stream := range []string{
		"\x16\x03\x01 a TLS hello\r\n\r\n",
		"GET / HTTP/2.0\r\n\r\n",
		"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\nabc",
		"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nabc",
		"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\nabc",
		"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\nabc",
		"GET / HTTP/1.1\r\nno colon\r\n\r\n",
	} {
		requests, _ := HTTP().framers()
		var out []byte
		requests.feed([]byte(stream), func(f frame) { out = append(out, f.data...) })
		if string(out) != stream || !requests.unreadable() {
			t.Errorf("%q came out as %q, unreadable %v", stream, out, requests.unreadable())
		}
	}
}

func TestProbeOfAWebServer(t *testing.T) {
	for status, serves := range map[int]bool{200: true, 400: true, 404: true, 500: false, 503: false} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		c, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if err := ProbeHTTP(t.Context(), c); (err == nil) != serves {
			t.Errorf("%d: %v", status, err)
		}
		_ = c.Close()
		s.Close()
	}
}

func FuzzWebFraming(f *testing.F) {
	f.Add([]byte(webPut+webChunk), []byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 204 No\r\n\r\n"), uint16(9))
	f.Add([]byte(webGet), []byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"), uint16(40))
	f.Fuzz(func(t *testing.T, up, down []byte, at uint16) {
		requests, replies := HTTP().framers()
		for _, c := range []struct {
			stream []byte
			framer framer
		}{{up, requests}, {down, replies}} {
			n := min(int(at), len(c.stream))
			if o := through(c.framer, c.stream[:n], c.stream[n:]); !bytes.Equal(o.out, c.stream) {
				t.Fatal("the bytes changed")
			}
		}
	})
}
