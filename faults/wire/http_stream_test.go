package wire

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/eventproof/eventproof/history"
)

const (
	webAppend = "POST /append HTTP/1.1\r\nHost: o\r\nEventproof-Session: w/1\r\nContent-Length: 3\r\n\r\nput"
	webHead   = "HEAD /x HTTP/1.1\r\nHost: o\r\n\r\n"
	webBatch  = "POST / HTTP/1.1\r\nX-Amz-Target: DynamoDB_20120810.BatchWriteItem\r\nContent-Length: 2\r\n\r\n{}"
)

func TestAnswersAreMatchedWithTheirRequests(t *testing.T) {
	ok := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
	for _, c := range []struct {
		name     string
		up, down string
		turns    int
		answers  []answer
		lost     bool
	}{
		{"a read", webGet, ok, 1, nil, false},
		{"a commit", webAppend, ok, 1, []answer{committed}, false},
		{"pipelined", webGet + webAppend + webGet + webAppend, ok + ok + ok + "HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n", 4,
			[]answer{committed, rolledBack}, false},
		{"an interim answer", webAppend, "HTTP/1.1 100 Continue\r\n\r\n" + ok, 1, []answer{committed}, false},
		{"the length of a body that does not come", webHead + webAppend, "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + ok, 2, []answer{committed}, false},
		{"no content", webAppend + webAppend, "HTTP/1.1 204 No Content\r\n\r\n" + ok, 2, []answer{committed, committed}, false},
		{"in chunks", webAppend + webAppend, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nT: u\r\n\r\n" + ok, 2, []answer{committed, committed}, false},
		{"up to the end of the connection", webAppend, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nHTTP/1.1 400 No\r\n\r\n", 0, []answer{committed}, false},
		{"a batch may be done in part", webBatch + webAppend, ok + ok, 2, []answer{undecided, committed}, false},
		{"a batch that is refused", webBatch, "HTTP/1.1 400 No\r\nContent-Length: 2\r\n\r\n{}", 1, []answer{rolledBack}, false},
		{"a server error", webAppend, "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", 1, []answer{undecided}, false},
		{"an answer too many", webAppend, ok + ok, 1, []answer{committed}, true},
		{"another protocol", webAppend, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nwhatever", 0, nil, true},
		{"no HTTP", webAppend, "\x15\x03\x01", 0, nil, true},
		{"bare line feeds", webAppend, "HTTP/1.1 200 OK\nContent-Length: 0\n\n", 0, nil, true},
		{"a head that ends with bare line feeds", webAppend, "HTTP/1.1 200 OK\r\nA: b\n\nmore\r\n\r\n", 0, nil, true},
		{"two lengths", webAppend, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 0, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			for at := range len(c.down) + 1 {
				requests, replies := HTTP().framers()
				through(requests, []byte(c.up))
				o := through(replies, []byte(c.down[:at]), []byte(c.down[at:]))
				if o.turns != c.turns || !slices.Equal(o.answers, c.answers) || o.lost != c.lost || string(o.out) != c.down {
					t.Fatalf("cut at %d: turns %d, answers %v, lost %t; want %d, %v, %t", at, o.turns, o.answers, o.lost, c.turns, c.answers, c.lost)
				}
			}
		})
	}
}

func TestARequestThatCannotBeHTTPIsPassedOnAtOnce(t *testing.T) {
	for _, text := range []string{"\x16\x03\x01\x02", "PRI * HTTP/2.0\r\n", "EHLO x\r\n", "get / HTTP/1.1\r\n", "GET / HTTP/1.1\n", "\r\n"} {
		requests, _ := HTTP().framers()
		var out []byte
		requests.feed([]byte(text), func(f frame) { out = append(out, f.data...) })
		if string(out) != text || !requests.unreadable() {
			t.Errorf("%q: passed on %q", text, out)
		}
	}
}

func TestACommitThatWaitsToBeInvitedIsNotKeptBack(t *testing.T) {
	requests, _ := HTTP().framers()
	head := "POST /append HTTP/1.1\r\nHost: o\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
	var frames []frame
	requests.feed([]byte(head), func(f frame) { frames = append(frames, f) })
	if len(frames) != 1 || !frames[0].commit || frames[0].turns != 0 {
		t.Fatalf("frames %+v", frames)
	}
	if o := through(requests, []byte("put"+webAppend)); o.turns != 2 || o.commits != 1 || o.lost {
		t.Errorf("turns %d, commits %d", o.turns, o.commits)
	}
}

func TestACommitIsOneFrameHoweverItArrives(t *testing.T) {
	for _, text := range []string{webAppend, webChunk} {
		requests, _ := HTTP().framers()
		var frames []frame
		for i := range text {
			requests.feed([]byte{text[i]}, func(f frame) { frames = append(frames, f) })
		}
		if len(frames) != 1 || string(frames[0].data) != text || !frames[0].commit || frames[0].turns != 1 {
			t.Errorf("%q: frames %+v", text, frames)
		}
	}
	big := strings.Repeat("x", httpMaxCommit)
	requests, _ := HTTP().framers()
	o := through(requests, []byte("POST /append HTTP/1.1\r\nContent-Length: 4194305\r\n\r\n"), []byte(big), []byte("x"+webAppend))
	if o.commits != 2 || o.turns != 2 || o.lost {
		t.Errorf("a long one: commits %d, turns %d", o.commits, o.turns)
	}
}

func TestACommitThatWaitsToBeInvitedCanBeParked(t *testing.T) {
	heard := make(chan string, 1)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body) // what matters is what has come
		heard <- string(b)
	}))
	defer s.Close()
	p, err := NewProxy(t.Context(), Options{Name: "writer-1", Upstream: s.Listener.Addr().String(), Protocol: HTTP()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	r, w := apply(t, p, RuleSpec{Action: ParkRequest, Max: 1})
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(c, "POST /append HTTP/1.1\r\nHost: o\r\nEventproof-Session: w/2\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	w.await(t, 1, 1)
	if err := p.Withdraw(r); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(c)
	line, err := in.ReadString('\n')
	if err != nil || !strings.Contains(line, "100") {
		t.Fatalf("%q, %v", line, err)
	}
	if _, err := io.WriteString(c, "put"); err != nil {
		t.Fatal(err)
	}
	if got := <-heard; got != "put" {
		t.Errorf("the server got %q", got)
	}
	withdraw(t, p, r)
	_, bites := w.all()
	one(t, bites, history.BiteRequestReleased, history.LandedYes, "w/2")
}

func TestAnswersOfASlowServerAreHeldOrSwallowedWhole(t *testing.T) {
	s := newWebStub(t)
	p, call := newWebProxy(t, s)
	r, w := apply(t, p, RuleSpec{Action: HoldReply, Every: 1, Max: 1})
	done := make(chan error, 1)
	go func() {
		_, err := call("PutItem", "put")
		done <- err
	}()
	w.await(t, 1, 0)
	withdraw(t, p, r)
	if err := <-done; err != nil {
		t.Error("what was held did not arrive:", err)
	}
	_, bites := w.all()
	one(t, bites, history.BiteReplyHeld, history.LandedYes, "w/1")
}

func FuzzWebFramingInPieces(f *testing.F) {
	f.Add([]byte(webPut+webChunk+webHead), []byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"), uint8(3))
	f.Add([]byte(webBatch), []byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"), uint8(1))
	f.Fuzz(func(t *testing.T, up, down []byte, size uint8) {
		requests, replies := HTTP().framers()
		whole, wholeReplies := HTTP().framers()
		for _, c := range []struct {
			stream        []byte
			pieces, whole framer
		}{{up, requests, whole}, {down, replies, wholeReplies}} {
			var parts [][]byte
			for p := range slices.Chunk(c.stream, int(size)+1) {
				parts = append(parts, p)
			}
			o := through(c.pieces, parts...)
			all := through(c.whole, c.stream)
			if !bytes.Equal(o.out, c.stream) {
				t.Fatal("the bytes changed")
			}
			if o.turns != all.turns || o.commits != all.commits || !slices.Equal(o.sessions, all.sessions) {
				t.Fatalf("in pieces %+v, as a whole %+v", o, all)
			}
		}
	})
}
