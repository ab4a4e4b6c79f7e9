package wire

import (
	"bytes"
	"encoding/binary"
)

// Postgres is the version 3 protocol of PostgreSQL without TLS. A connection that switches to TLS is passed
// on unread.
func Postgres() Protocol { return postgres{} }

type postgres struct{}

func (postgres) framers() (requests, replies framer) { return &pgRequests{}, &pgReplies{} }
func (postgres) greets() bool                        { return true }

// Codes that stand in place of a protocol version at the start of a connection.
const (
	pgCancelCode = 80877102
	pgSSLCode    = 80877103
	pgGSSCode    = 80877104
)

const (
	// pgMaxStartup is the server's own limit of a startup packet.
	pgMaxStartup = 10_000
	// pgMaxInspected bounds what is kept back to be looked into. A longer message can't be a lone commit,
	// and is passed on as it comes.
	pgMaxInspected = 64 << 10
	// pgMaxMessage is what the server accepts at most.
	pgMaxMessage = 1 << 30
)

// split walks through the messages in p.
func (f *pgSplitter) split(p []byte, emit func(frame), g grammar) {
	f.scan(p, emit, func(r *run, at int) int {
		if !g.started() {
			return g.head(r, at)
		}
		return f.message(r, at, g)
	})
}

// pgSplitter splits what both directions have in common.
type pgSplitter struct{ splitter }

// grammar is what differs between the directions. head handles what comes before the first message and returns
// the bytes it used, 0 for "more is needed"; it is called until started() says that messages follow.
type grammar interface {
	started() bool
	head(r *run, at int) (used int)
	// known reports whether a message type belongs to this direction, and whether it has to be looked into.
	known(kind byte) (ok, look bool)
	// tooLong is told of a message that has to be looked into but is too long to be kept back.
	tooLong(r *run, kind byte)
	message(r *run, at, to int, kind byte, body []byte)
}

// message handles the message at r.data[at:] and returns its length, 0 when more is needed or the message is
// passed on by skipping.
func (s *pgSplitter) message(r *run, at int, g grammar) int {
	rest := r.data[at:]
	ok, look := g.known(rest[0])
	if !ok {
		s.giveUp()
		return 0
	}
	if len(rest) < 5 {
		return 0
	}
	n := binary.BigEndian.Uint32(rest[1:])
	if n < 4 || n > pgMaxMessage {
		s.giveUp()
		return 0
	}
	total := int(n) + 1
	if look && total > pgMaxInspected {
		g.tooLong(r, rest[0])
		look = false
	}
	if !look {
		s.skip = total
		return 0
	}
	if len(rest) < total {
		return 0
	}
	g.message(r, at, at+total, rest[0], rest[5:total])
	return total
}

// pgRequests splits what a client sends.
type pgRequests struct {
	pgSplitter
	begun bool
	// Names of prepared statements, and of portals bound to them, that are a commit.
	statements, portals map[string]bool
}

func (f *pgRequests) feed(p []byte, emit func(frame)) { f.split(p, emit, f) }

func (f *pgRequests) started() bool { return f.begun }

func (f *pgRequests) head(r *run, at int) int {
	rest := r.data[at:]
	if rest[0] != 0 { // a TLS hello, or no Postgres at all: the length of a startup packet is below 2^24
		f.giveUp()
		return 0
	}
	if len(rest) < 8 {
		return 0
	}
	n := binary.BigEndian.Uint32(rest)
	code := binary.BigEndian.Uint32(rest[4:])
	switch {
	case n < 8 || n > pgMaxStartup:
		f.giveUp()
		return 0
	case (code == pgSSLCode || code == pgGSSCode) && n == 8:
		return 8 // the start-up packet or a TLS hello follows
	case code == pgCancelCode:
		f.opaque = true // nothing follows that matters
		return 0
	case code>>16 != 3:
		f.giveUp()
		return 0
	case len(rest) < int(n):
		return 0
	}
	f.begun = true
	r.special(at, at+int(n), frame{session: startupName(rest[8:n])})
	return int(n)
}

// startupName returns application_name of a startup packet's parameters.
func startupName(b []byte) string {
	for {
		key, rest, ok := bytes.Cut(b, []byte{0})
		if !ok || len(key) == 0 {
			return ""
		}
		value, rest, ok := bytes.Cut(rest, []byte{0})
		if !ok {
			return ""
		}
		if string(key) == "application_name" {
			return string(value)
		}
		b = rest
	}
}

func (f *pgRequests) known(kind byte) (ok, look bool) {
	switch kind {
	case 'Q', 'P', 'B', 'E', 'C', 'S', 'F':
		return true, true
	case 'D', 'H', 'X', 'd', 'c', 'f', 'p':
		return true, false
	}
	return false, false
}

func (f *pgRequests) tooLong(r *run, kind byte) {
	// A commit is short and has no parameters, so what is too long replaces a name by something else. Which
	// name is unknown without looking; forgetting all of them can only miss a commit, never invent one.
	switch kind {
	case 'Q', 'F':
		r.turns++
	case 'P':
		f.statements, f.portals = nil, nil
	case 'B':
		f.portals = nil
	}
}

func (f *pgRequests) message(r *run, at, to int, kind byte, body []byte) {
	switch kind {
	case 'Q':
		if text, _, _ := bytes.Cut(body, []byte{0}); endsInCommit(text) {
			r.special(at, to, frame{commit: true, turns: 1})
			return
		}
		r.turns++
	case 'S', 'F':
		r.turns++
	case 'P':
		name, rest, _ := bytes.Cut(body, []byte{0})
		text, _, _ := bytes.Cut(rest, []byte{0})
		mark(&f.statements, string(name), endsInCommit(text))
	case 'B':
		portal, rest, _ := bytes.Cut(body, []byte{0})
		name, _, _ := bytes.Cut(rest, []byte{0})
		mark(&f.portals, string(portal), f.statements[string(name)])
	case 'C':
		if len(body) > 0 {
			name, _, _ := bytes.Cut(body[1:], []byte{0})
			if body[0] == 'S' {
				mark(&f.statements, string(name), false)
			} else {
				mark(&f.portals, string(name), false)
			}
		}
	case 'E':
		if portal, _, _ := bytes.Cut(body, []byte{0}); f.portals[string(portal)] {
			r.special(at, to, frame{commit: true})
		}
	}
}

func mark(set *map[string]bool, name string, in bool) {
	if !in {
		delete(*set, name)
		return
	}
	if *set == nil {
		*set = map[string]bool{}
	}
	(*set)[name] = true
}

// pgReplies splits what a server sends.
type pgReplies struct {
	pgSplitter
	begun bool
}

func (f *pgReplies) feed(p []byte, emit func(frame)) { f.split(p, emit, f) }

func (f *pgReplies) started() bool { return f.begun }

// head handles the one-byte answers to requests for encryption. The first message of a session is an
// authentication request or an error, so the letters can't be confused.
func (f *pgReplies) head(r *run, at int) int {
	switch r.data[at] {
	case 'N':
		return 1
	case 'S', 'G':
		f.giveUp()
		return 0
	}
	f.begun = true
	return f.pgSplitter.message(r, at, f)
}

func (f *pgReplies) known(kind byte) (ok, look bool) {
	switch kind {
	case 'C', 'E', 'S', 'Z':
		return true, true
	case 'R', 'K', 'v', 'T', 'D', 't', 'n', 's', 'I', 'N', 'A', '1', '2', '3', 'G', 'H', 'W', 'd', 'c', 'V':
		return true, false
	}
	return false, false
}

func (f *pgReplies) tooLong(*run, byte) {}

func (f *pgReplies) message(r *run, at, to int, kind byte, body []byte) {
	switch kind {
	case 'C':
		switch tag, _, _ := bytes.Cut(body, []byte{0}); string(tag) {
		case "COMMIT":
			r.special(at, to, frame{answer: committed})
		case "ROLLBACK":
			r.special(at, to, frame{answer: rolledBack})
		}
	case 'E':
		r.special(at, to, frame{answer: errorAnswer(body)})
	case 'S':
		if key, rest, _ := bytes.Cut(body, []byte{0}); string(key) == "application_name" {
			name, _, _ := bytes.Cut(rest, []byte{0})
			r.special(at, to, frame{session: string(name)})
		}
	case 'Z':
		r.turns++
	}
}

// errorAnswer judges an ErrorResponse to a commit by its SQLSTATE: most say that the transaction was rolled
// back, some are given by a server that may or may not have finished.
func errorAnswer(body []byte) answer {
	code := sqlState(body)
	switch {
	case len(code) != 5:
		return undecided
	case code[:2] == "08", code[:2] == "XX", code == "40003", code == "57P01", code == "57P02", code == "57P03":
		return undecided
	}
	return rolledBack
}

func sqlState(body []byte) string {
	for len(body) > 1 && body[0] != 0 {
		value, rest, ok := bytes.Cut(body[1:], []byte{0})
		if !ok {
			return ""
		}
		if body[0] == 'C' {
			return string(value)
		}
		body = rest
	}
	return ""
}
