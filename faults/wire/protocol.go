package wire

import "github.com/eventproof/eventproof/history"

// Protocol knows how to split both directions of a connection into messages. A nil Protocol treats a
// connection as bytes: everything works except the faults that look for commits.
type Protocol interface {
	// framers returns splitters for what the client and what the server sends on one connection.
	framers() (requests, replies framer)
	// greets reports whether the server's first turn answers the beginning of the connection, not a request.
	greets() bool
}

// framer splits one direction of one connection. Whatever it is fed comes out again, byte for byte and in
// order; it may keep the beginning of a message back until it has seen enough to tell what it is. Bytes that
// don't follow the protocol are passed on untouched and from then on unread.
type framer interface {
	// feed takes bytes, which the framer owns from then on, and emits frames.
	feed(p []byte, emit func(frame))
	// rest returns what is kept back, when the stream has ended.
	rest() []byte
	// unreadable reports whether the framer has given up on the stream (TLS, an unknown protocol).
	unreadable() bool
}

// frame is a run of bytes that is passed, held or cut as one.
type frame struct {
	data []byte
	// turns counts the ends of requests, or of answers, in data: where the other side's turn begins.
	turns int
	// commit marks a request to commit.
	commit bool
	// answer is set when data tells how a commit ended.
	answer answer
	// session is the name of the connection, if data tells it.
	session string
}

// answer is what a server said about a commit.
type answer uint8

const (
	noAnswer   answer = iota
	committed         // it took effect
	rolledBack        // it did not and never will
	undecided         // an error that tells neither
)

func (a answer) landed() history.Landed {
	switch a {
	case committed:
		return history.LandedYes
	case rolledBack:
		return history.LandedNo
	case noAnswer, undecided:
	}
	return history.LandedUnknown
}

// opaque is the framer of connections without a protocol.
type opaque struct{}

func (opaque) feed(p []byte, emit func(frame)) { emit(frame{data: p}) }
func (opaque) rest() []byte                    { return nil }
func (opaque) unreadable() bool                { return true }
