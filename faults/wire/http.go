package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// SessionHeader names the session that a request belongs to.
const SessionHeader = "Eventproof-Session"

// OutcomeHeader says in an answer how the write ended, where the status alone does not: ok, fail or unknown.
const OutcomeHeader = "Eventproof-Outcome"

// HTTP is HTTP/1.1 without TLS, as it is spoken by DynamoDB and by owners. Commits are the calls that write: by the
// operation in X-Amz-Target, or POST /append.
func HTTP() Protocol { return web{} }

type web struct{}

func (web) greets() bool { return false }

func (web) framers() (requests, replies framer) {
	shared := &exchange{}
	return &webRequests{exchange: shared}, &webReplies{exchange: shared}
}

// exchange is what the two directions of a connection know of each other: which requests wait for an answer.
type exchange struct {
	mu      sync.Mutex
	waiting []asked
}

// asked is a request that has not been answered.
type asked struct{ commit, head bool }

func (x *exchange) ask(a asked) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.waiting = append(x.waiting, a)
}

// next returns the request that the next answer is to.
func (x *exchange) next() (a asked, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.waiting) == 0 {
		return asked{}, false
	}
	return x.waiting[0], true
}

func (x *exchange) answered() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.waiting = x.waiting[1:]
}

// maxWebMessage bounds what is kept back of one message: the largest that DynamoDB takes or gives is 16 MB.
const maxWebMessage = 32 << 20

// webStream is what both directions share.
type webStream struct {
	buf    []byte
	opaque bool
}

func (s *webStream) rest() []byte {
	b := s.buf
	s.buf = nil
	return b
}

func (s *webStream) unreadable() bool { return s.opaque }

// feed keeps a message back until it is whole, so that it is passed, held or cut as one. one returns the length of
// the message at the start of what it is given, 0 when more is needed; an error ends the reading.
func (s *webStream) feed(p []byte, emit func(frame), one func([]byte) (int, frame, error)) {
	if len(s.buf) > 0 {
		p = append(s.buf, p...)
		s.buf = nil
	}
	for len(p) > 0 && !s.opaque {
		n, f, err := one(p)
		if err != nil || n == 0 && len(p) > maxWebMessage {
			s.opaque = true
			break
		}
		if n == 0 {
			s.buf = slices.Clone(p)
			return
		}
		f.data = p[:n:n]
		emit(f)
		p = p[n:]
	}
	if len(p) > 0 {
		emit(frame{data: p})
	}
}

// webRequests splits what a client sends.
type webRequests struct {
	webStream
	exchange *exchange
}

func (r *webRequests) feed(p []byte, emit func(frame)) { r.webStream.feed(p, emit, r.one) }

func (r *webRequests) one(p []byte) (int, frame, error) {
	line, header, body, err := webHead(p)
	if err != nil || body == 0 {
		return 0, frame{}, err
	}
	method, target, ok := strings.Cut(line, " ")
	path, version, ok2 := strings.Cut(target, " ")
	if !ok || !ok2 || !strings.HasPrefix(version, "HTTP/1.") || header.Get("Upgrade") != "" || method == http.MethodConnect {
		return 0, frame{}, fmt.Errorf("%w: request line %q", errWeb, line)
	}
	n, whole, err := webBody(p[body:], header, false)
	if err != nil || !whole {
		return 0, frame{}, err
	}
	a := asked{commit: webCommit(method, path, header), head: method == http.MethodHead}
	r.exchange.ask(a)
	return body + n, frame{turns: 1, commit: a.commit, session: header.Get(SessionHeader)}, nil
}

// webCommit reports whether a request writes.
func webCommit(method, path string, header textproto.MIMEHeader) bool {
	if _, operation, ok := strings.Cut(header.Get("X-Amz-Target"), "."); ok {
		switch operation {
		case "PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems", "BatchWriteItem":
			return true
		}
		return false
	}
	return method == http.MethodPost && path == "/append"
}

// webReplies splits what a server sends.
type webReplies struct {
	webStream
	exchange *exchange
}

func (r *webReplies) feed(p []byte, emit func(frame)) { r.webStream.feed(p, emit, r.one) }

func (r *webReplies) one(p []byte) (int, frame, error) {
	line, header, body, err := webHead(p)
	if err != nil || body == 0 {
		return 0, frame{}, err
	}
	version, rest, ok := strings.Cut(line, " ")
	word, _, _ := strings.Cut(rest, " ")
	status, err := strconv.Atoi(word)
	if err != nil || !ok || !strings.HasPrefix(version, "HTTP/1.") || status == http.StatusSwitchingProtocols {
		return 0, frame{}, fmt.Errorf("%w: status line %q", errWeb, line)
	}
	if status < 200 {
		return body, frame{}, nil // an interim answer; the final one follows
	}
	to, known := r.exchange.next()
	if !known {
		return 0, frame{}, fmt.Errorf("%w: an answer that nobody asked for", errWeb)
	}
	n := 0
	if !to.head && status != http.StatusNoContent && status != http.StatusNotModified {
		var whole bool
		if n, whole, err = webBody(p[body:], header, true); err != nil || !whole {
			return 0, frame{}, err
		}
	}
	r.exchange.answered()
	f := frame{turns: 1}
	if to.commit {
		f.answer = webAnswer(status, header, p[body:body+n])
	}
	return body + n, f, nil
}

// webAnswer is what an answer says of the write. A client error is a refusal; what DynamoDB says about a token that is
// in use, or was used for something else, is about another try and leaves this one open.
func webAnswer(status int, header textproto.MIMEHeader, body []byte) answer {
	switch header.Get(OutcomeHeader) {
	case "ok":
		return committed
	case "fail":
		return rolledBack
	case "unknown":
		return undecided
	}
	switch {
	case status >= 200 && status < 300:
		return committed
	case status >= 400 && status < 500 && status != http.StatusRequestTimeout:
		for _, open := range []string{"TransactionInProgressException", "IdempotentParameterMismatchException"} {
			if bytes.Contains(body, []byte(open)) {
				return undecided
			}
		}
		return rolledBack
	}
	return undecided
}

var errWeb = errors.New("wire: no HTTP/1.1")

// maxWebHead bounds the lines before a body.
const maxWebHead = 1 << 20

// webHead reads first line and header; body is where the body begins, 0 when more is needed.
func webHead(p []byte) (line string, header textproto.MIMEHeader, body int, err error) {
	end := bytes.Index(p, []byte("\r\n\r\n"))
	if end < 0 {
		if len(p) > maxWebHead {
			err = fmt.Errorf("%w: no end of the header", errWeb)
		}
		return "", nil, 0, err
	}
	first, rest, _ := bytes.Cut(p[:end], []byte("\r\n"))
	header = textproto.MIMEHeader{}
	for field := range strings.SplitSeq(string(rest), "\r\n") {
		if field == "" {
			continue
		}
		name, value, ok := strings.Cut(field, ":")
		if !ok {
			return "", nil, 0, fmt.Errorf("%w: header line %q", errWeb, field)
		}
		header.Add(name, strings.TrimSpace(value))
	}
	return string(first), header, end + 4, nil
}

// webBody returns how long the body is, and whether all of it is there. One that ends with the connection can't be
// told apart from one that was cut.
func webBody(p []byte, header textproto.MIMEHeader, reply bool) (n int, whole bool, err error) {
	if coding := header.Get("Transfer-Encoding"); coding != "" {
		if !strings.EqualFold(coding, "chunked") {
			return 0, false, fmt.Errorf("%w: transfer encoding %q", errWeb, coding)
		}
		return webChunks(p)
	}
	text := header.Get("Content-Length")
	switch {
	case text == "" && reply:
		return 0, false, fmt.Errorf("%w: an answer without a length", errWeb)
	case text == "":
		return 0, true, nil
	}
	n, err = strconv.Atoi(text)
	if err != nil || n < 0 || len(header["Content-Length"]) > 1 {
		return 0, false, fmt.Errorf("%w: content length %q", errWeb, header["Content-Length"])
	}
	return n, len(p) >= n, nil
}

// webChunks finds the end of a body in chunks.
func webChunks(p []byte) (n int, whole bool, err error) {
	for {
		line, _, ok := bytes.Cut(p[n:], []byte("\r\n"))
		if !ok {
			return 0, false, nil
		}
		word, _, _ := strings.Cut(string(line), ";")
		size, err := strconv.ParseUint(strings.TrimSpace(word), 16, 31)
		if err != nil {
			return 0, false, fmt.Errorf("%w: chunk of length %q", errWeb, word)
		}
		n += len(line) + 2
		if size == 0 {
			break
		}
		if n += int(size) + 2; n > len(p) {
			return 0, false, nil
		}
	}
	for { // trailers, up to an empty line
		line, _, ok := bytes.Cut(p[n:], []byte("\r\n"))
		if !ok {
			return 0, false, nil
		}
		if n += len(line) + 2; len(line) == 0 {
			return n, true, nil
		}
	}
}

// ProbeHTTP asks over an open connection whether an HTTP server serves: any answer but a server's error will do.
// The deadline of ctx bounds it.
func ProbeHTTP(ctx context.Context, conn net.Conn) error {
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n"); err != nil {
		return err
	}
	var status [12]byte
	if _, err := io.ReadFull(conn, status[:]); err != nil {
		return err
	}
	if !bytes.HasPrefix(status[:], []byte("HTTP/1.")) || status[9] == '5' {
		return &NotReadyError{Answer: fmt.Sprintf("%q", status[:])}
	}
	return nil
}
