package wire

import (
	"bufio"
	"bytes"
	"net/http"
	"strings"
	"sync"
)

// SessionHeader names the connection of a request: roles set it on every request.
const SessionHeader = "Eventproof-Session"

// OutcomeHeader says in an answer how the write ended, where the status alone does not: ok, fail or unknown.
const OutcomeHeader = "Eventproof-Outcome"

// HTTP is HTTP/1.1 without TLS, as the owners of a store and DynamoDB speak it. A commit is a POST of /append, and
// a DynamoDB call that writes. What is something else (TLS, HTTP/2, an upgrade, a tunnel) is passed on unread.
//
// The answer to a commit is the OutcomeHeader if there is one, else its status: 2xx took effect; 4xx did not and
// never will; 5xx tells neither. Neither do a request that timed out, what DynamoDB says about a token that another
// try has used or is using, and the success of a batch, which may have been applied in part.
func HTTP() Protocol { return httpProtocol{} }

type httpProtocol struct{}

func (httpProtocol) framers() (requests, replies framer) {
	x := &httpExchange{}
	return &httpRequests{exchange: x}, &httpReplies{exchange: x}
}

func (httpProtocol) greets() bool { return false }

const (
	// httpMaxHead bounds a message's first part, and a line of a chunked body.
	httpMaxHead = 64 << 10
	// httpMaxCommit bounds a commit that is kept back until it is whole. Of a longer one the head is the frame that
	// rules act on.
	httpMaxCommit = 4 << 20
	// httpMaxRefusal bounds a refusal that is kept back until it is whole.
	httpMaxRefusal = 64 << 10
)

// httpCommits are the DynamoDB calls that write; a batch is not one unit.
var httpCommits = map[string]httpKind{
	"PutItem": httpCommit, "UpdateItem": httpCommit, "DeleteItem": httpCommit, "TransactWriteItems": httpCommit,
	"BatchWriteItem": httpBatch,
}

// httpKind is what a request asks for, as far as it counts here.
type httpKind uint8

const (
	httpOther httpKind = iota
	httpCommit
	httpBatch
)

// httpExchange is what the two directions of a connection know together: which requests are unanswered.
type httpExchange struct {
	mu       sync.Mutex
	open     []httpRequest // oldest first
	switched bool          // to another protocol
}

// httpRequest is an unanswered request.
type httpRequest struct {
	method string
	kind   httpKind
}

func (x *httpExchange) asked(q httpRequest) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.open = append(x.open, q)
}

// first returns the request that is answered next.
func (x *httpExchange) first() (q httpRequest, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.open) == 0 {
		return httpRequest{}, false
	}
	return x.open[0], true
}

func (x *httpExchange) told() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.open = x.open[1:]
}

func (x *httpExchange) upgrade() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.switched = true
}

func (x *httpExchange) upgraded() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.switched
}

// httpSplitter is what both directions share: chunked bodies.
type httpSplitter struct {
	splitter
	chunks   bool // the chunks of a body follow
	trailers bool // the last chunk is over
}

// chunk handles a line of a chunked body, and what belongs to it.
func (s *httpSplitter) chunk(r *run, at int) int {
	line, _, ok := bytes.Cut(r.data[at:], []byte("\r\n"))
	if !ok {
		if len(line) > httpMaxHead {
			s.giveUp()
		}
		return 0
	}
	n := len(line) + 2
	switch {
	case s.trailers && len(line) > 0:
		return n
	case s.trailers:
		s.chunks, s.trailers = false, false
		r.turns++
		return n
	}
	size, ok := chunkSize(line)
	switch {
	case !ok:
		s.giveUp()
		return 0
	case size == 0:
		s.trailers = true
		return n
	}
	s.skip = n + size + 2
	return 0
}

// chunksEnd returns how long a chunked body is, if all of it is there; odd if it is none.
func chunksEnd(p []byte) (n int, whole, odd bool) {
	s := httpSplitter{chunks: true}
	r := &run{data: p}
	for s.chunks {
		used := s.chunk(r, n) + s.skip
		s.skip = 0
		if n += used; used == 0 || n > len(p) {
			return 0, false, s.lost
		}
	}
	return n, true, false
}

// chunkSize reads the line before a chunk.
func chunkSize(line []byte) (n int, ok bool) {
	line, _, _ = bytes.Cut(line, []byte{';'})
	line = bytes.TrimRight(line, " \t")
	if len(line) == 0 || len(line) > 8 {
		return 0, false
	}
	for _, c := range line {
		i := strings.IndexByte("0123456789abcdef", c|0x20)
		if i < 0 || c < '0' {
			return 0, false
		}
		n = n<<4 | i
	}
	return n, true
}

// head returns the first part of a message, up to the empty line, once it is there. It gives up on what can't be
// one as soon as that shows.
func (s *httpSplitter) head(rest []byte, fits func(line []byte, whole bool) bool) []byte {
	line, _, whole := bytes.Cut(rest, []byte("\r\n"))
	if !fits(line, whole) || bytes.IndexByte(line, '\n') >= 0 {
		s.giveUp()
		return nil
	}
	end := bytes.Index(rest, []byte("\r\n\r\n"))
	if end < 0 || end > httpMaxHead {
		if len(rest) > httpMaxHead {
			s.giveUp()
		}
		return nil
	}
	return rest[:end+4]
}

// spent reports whether a parser has used up all of a head; a part that is left was ended by bare line feeds.
func spent(b *bufio.Reader, under *bytes.Reader) bool { return b.Buffered() == 0 && under.Len() == 0 }

// httpRequests splits what a client sends.
type httpRequests struct {
	httpSplitter
	exchange *httpExchange
}

func (f *httpRequests) feed(p []byte, emit func(frame)) { f.scan(p, emit, f.next) }

func (f *httpRequests) next(r *run, at int) int {
	if f.chunks {
		return f.chunk(r, at)
	}
	rest := r.data[at:]
	if f.exchange.upgraded() {
		f.giveUp()
		return 0
	}
	head := f.head(rest, func(line []byte, whole bool) bool {
		return line == nil || len(line) == 0 && !whole || len(line) > 0 && line[0] >= 'A' && line[0] <= 'Z' &&
			(!whole || bytes.HasSuffix(line, []byte(" HTTP/1.1")) || bytes.HasSuffix(line, []byte(" HTTP/1.0")))
	})
	if head == nil {
		return 0
	}
	under := bytes.NewReader(head)
	b := bufio.NewReader(under)
	q, err := http.ReadRequest(b)
	if err != nil || !spent(b, under) || q.Method == http.MethodConnect || q.Header.Get("Upgrade") != "" {
		f.giveUp()
		return 0
	}
	chunked := len(q.TransferEncoding) > 0
	length := int(q.ContentLength)
	kind := kindOf(q)
	if kind != httpOther && q.Header.Get("Expect") == "" {
		// A commit is one frame: kept, cut or sent on as a whole.
		if chunked {
			n, whole, odd := chunksEnd(rest[len(head):])
			if odd {
				f.giveUp()
				return 0
			}
			chunked, length = !whole, n
		}
		if (chunked && len(rest) <= httpMaxCommit) || len(rest) < len(head)+length && length <= httpMaxCommit {
			return 0
		}
	}
	f.exchange.asked(httpRequest{q.Method, kind})
	now := len(head)
	out := frame{commit: kind != httpOther, session: q.Header.Get(SessionHeader)}
	switch {
	case chunked:
		f.chunks = true
	case len(rest) >= len(head)+length:
		now += length
		out.turns = 1
	default:
		f.skip, f.ends = len(head)+length-len(rest), 1
		now = len(rest)
	}
	r.special(at, at+now, out)
	return now
}

func kindOf(q *http.Request) httpKind {
	if q.Method != http.MethodPost {
		return httpOther
	}
	if service, call, ok := strings.Cut(q.Header.Get("X-Amz-Target"), "."); ok && strings.HasPrefix(service, "DynamoDB_") {
		return httpCommits[call]
	}
	if q.URL.Path == "/append" {
		return httpCommit
	}
	return httpOther
}

// httpReplies splits what a server sends.
type httpReplies struct {
	httpSplitter
	exchange *httpExchange
}

func (f *httpReplies) feed(p []byte, emit func(frame)) { f.scan(p, emit, f.next) }

func (f *httpReplies) next(r *run, at int) int {
	if f.chunks {
		return f.chunk(r, at)
	}
	rest := r.data[at:]
	q, ok := f.exchange.first()
	if !ok {
		f.giveUp() // nobody has asked
		return 0
	}
	head := f.head(rest, func(line []byte, _ bool) bool {
		const start = "HTTP/1."
		n := min(len(line), len(start))
		return string(line[:n]) == start[:n]
	})
	if head == nil {
		return 0
	}
	under := bytes.NewReader(head)
	b := bufio.NewReader(under)
	a, err := http.ReadResponse(b, &http.Request{Method: q.method})
	if err != nil {
		f.giveUp()
		return 0
	}
	all := spent(b, under)
	_ = a.Body.Close() // only the head was given
	if !all {
		f.giveUp()
		return 0
	}
	if a.StatusCode < 200 {
		if a.StatusCode == http.StatusSwitchingProtocols {
			f.exchange.upgrade()
			f.giveUp()
			return 0
		}
		return len(head) // the answer is still to come
	}
	chunked := len(a.TransferEncoding) > 0
	length := int(a.ContentLength)
	if q.method == http.MethodHead || a.StatusCode == http.StatusNoContent || a.StatusCode == http.StatusNotModified {
		chunked, length = false, 0
	}
	whole := !chunked && length >= 0 && len(rest) >= len(head)+length
	refusal := a.StatusCode >= 400 && a.StatusCode < 500
	if q.kind != httpOther && refusal && !whole && !chunked && length >= 0 && length <= httpMaxRefusal {
		return 0 // what it says is looked into
	}
	f.exchange.told()
	now := len(head)
	var out frame
	switch {
	case whole:
		now += length
		out.turns = 1
	case chunked:
		f.chunks = true
	case length < 0:
		f.opaque = true // up to the end of the connection
	default:
		f.skip, f.ends = len(head)+length-len(rest), 1
		now = len(rest)
	}
	if q.kind == httpOther {
		r.turns += out.turns
		return now
	}
	out.answer = q.kind.judge(a, rest[len(head):now])
	r.special(at, at+now, out)
	return now
}

// judge tells from a final answer how a commit ended.
func (k httpKind) judge(a *http.Response, body []byte) answer {
	switch a.Header.Get(OutcomeHeader) {
	case "ok":
		return committed
	case "fail":
		return rolledBack
	case "unknown":
		return undecided
	}
	switch status := a.StatusCode; {
	case status >= 200 && status < 300 && k == httpCommit:
		return committed
	case status == http.StatusRequestTimeout:
		return undecided
	case status >= 400 && status < 500 && !aboutToken(body):
		return rolledBack
	}
	return undecided
}

// aboutToken reports whether DynamoDB refuses a transaction because of what became, or becomes, of another try with
// the same token.
func aboutToken(body []byte) bool {
	for _, name := range []string{"TransactionInProgressException", "IdempotentParameterMismatchException"} {
		if bytes.Contains(body, []byte(name)) {
			return true
		}
	}
	return false
}
