package roles

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/points"
)

// The conversation between the runner and a role process, one JSON object a line on a socket pair (fd 3 of the
// child). The child says ready, points it comes to, status once a second, and done. The runner says start,
// verdicts on points, and stop. End of file on the socket ends the child.

// Message is one line of the conversation.
type Message struct {
	Kind MessageKind `json:"kind"`
	// point
	Seq   uint64       `json:"seq,omitempty"`
	Point points.Point `json:"point,omitempty"`
	N     uint64       `json:"n,omitempty"`
	// pass
	Action Action        `json:"action,omitempty"`
	Delay  time.Duration `json:"delay,omitempty"`
	// start
	T0 int64 `json:"t0,omitempty"` // monotonic stamp at which the load begins
	// status and done
	Status Status `json:"status,omitzero"`
	Error  string `json:"error,omitempty"`
	// Errno is the operating system's reason of the error, 0 if it is none of its: the text alone does not tell whose
	// problem a full disk is.
	Errno syscall.Errno `json:"errno,omitempty"`
}

// Failure is the error of a done message, nil for a good end.
func (m Message) Failure() error {
	switch {
	case m.Error == "":
		return nil
	case m.Errno == 0:
		return errors.New(m.Error)
	}
	return &remoteError{text: m.Error, errno: m.Errno}
}

// remoteError is an error of a role process with what the operating system said.
type remoteError struct {
	text  string
	errno syscall.Errno
}

func (e *remoteError) Error() string { return e.text }

func (e *remoteError) Unwrap() error { return e.errno }

// MessageKind says what a message is.
type MessageKind string

// The kinds of messages.
const (
	MsgReady  MessageKind = "ready"  // child: connected, recording, waiting for start
	MsgPoint  MessageKind = "point"  // child: stands at a point
	MsgStatus MessageKind = "status" // child: counts so far
	MsgDone   MessageKind = "done"   // child: ended by itself; Error if not clean
	MsgStart  MessageKind = "start"  // runner: begin the load
	MsgPass   MessageKind = "pass"   // runner: answer to a point
	MsgStop   MessageKind = "stop"   // runner: finish what is open and end
)

// Action is the runner's answer to a point.
type Action string

// The actions.
const (
	ActionGo    Action = "go"
	ActionDelay Action = "delay"
	ActionCrash Action = "crash"
)

// Status is what a role has done so far, for the live display and for deciding when a projector is drained.
type Status struct {
	Started   int64  `json:"started,omitempty"`
	Ended     int64  `json:"ended,omitempty"`
	OK        int64  `json:"ok,omitempty"`
	Refused   int64  `json:"refused,omitempty"`
	Unknown   int64  `json:"unknown,omitempty"`
	Conflicts int64  `json:"conflicts,omitempty"`
	Dropped   int64  `json:"dropped,omitempty"`
	Applied   int64  `json:"applied,omitempty"` // events applied by a projector
	Cursor    string `json:"cursor,omitempty"`  // a projector's checkpoint
	Idle      bool   `json:"idle,omitempty"`    // a projector whose last poll found nothing
}

// Conn is one end of the conversation; sends are safe for concurrent use, one goroutine receives.
type Conn struct {
	rw   io.ReadWriteCloser
	in   *bufio.Scanner
	send sync.Mutex
}

// maxLine bounds a message: none of them is long.
const maxLine = 1 << 20

// NewConn wraps a socket.
func NewConn(rw io.ReadWriteCloser) *Conn {
	in := bufio.NewScanner(rw)
	in.Buffer(nil, maxLine)
	return &Conn{rw: rw, in: in}
}

// Send writes one message.
func (c *Conn) Send(m Message) error {
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("role control: %w", err)
	}
	c.send.Lock()
	defer c.send.Unlock()
	if _, err := c.rw.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("role control: %w", err)
	}
	return nil
}

// Receive reads the next message; io.EOF when the other end is gone.
func (c *Conn) Receive() (Message, error) {
	if !c.in.Scan() {
		if err := c.in.Err(); err != nil {
			return Message{}, fmt.Errorf("role control: %w", err)
		}
		return Message{}, io.EOF
	}
	var m Message
	if err := json.Unmarshal(c.in.Bytes(), &m); err != nil {
		return Message{}, fmt.Errorf("role control: %w", err)
	}
	return m, nil
}

// Close closes the socket.
func (c *Conn) Close() error { return c.rw.Close() }

// remoteGate asks the runner at the points it cares about; all others pass without a round trip.
type remoteGate struct {
	conn *Conn
	care map[points.Point]bool

	mu      sync.Mutex
	seq     uint64
	visits  map[points.Point]uint64
	waiting map[uint64]chan Message
	gone    chan struct{}
}

func newRemoteGate(conn *Conn, care []points.Point) *remoteGate {
	g := &remoteGate{conn: conn, care: map[points.Point]bool{}, visits: map[points.Point]uint64{},
		waiting: map[uint64]chan Message{}, gone: make(chan struct{})}
	for _, p := range care {
		g.care[p] = true
	}
	return g
}

// errRunnerGone ends a role whose runner is no more.
var errRunnerGone = errors.New("roles: the runner is gone")

// At implements points.Gate.
func (g *remoteGate) At(ctx context.Context, p points.Point, _ uint64) error {
	if !g.care[p] {
		return nil
	}
	answer := make(chan Message, 1)
	g.mu.Lock()
	g.seq++
	g.visits[p]++
	seq, n := g.seq, g.visits[p]
	g.waiting[seq] = answer
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		delete(g.waiting, seq)
		g.mu.Unlock()
	}()
	if err := g.conn.Send(Message{Kind: MsgPoint, Seq: seq, Point: p, N: n}); err != nil {
		return err
	}
	select {
	case m := <-answer:
		switch m.Action {
		case ActionGo:
			return nil
		case ActionDelay:
			return clock.Sleep(ctx, m.Delay)
		case ActionCrash:
			return points.ErrCrashed
		}
		return fmt.Errorf("roles: the runner answered a point with %q", m.Action)
	case <-ctx.Done():
		return ctx.Err()
	case <-g.gone:
		return errRunnerGone
	}
}

// passed delivers the runner's answer.
func (g *remoteGate) passed(m Message) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ch, ok := g.waiting[m.Seq]; ok {
		ch <- m
	}
}

// Add returns the sum of two statuses; the cursor is dropped.
func (s Status) Add(o Status) Status {
	return Status{
		Started: s.Started + o.Started, Ended: s.Ended + o.Ended, OK: s.OK + o.OK, Refused: s.Refused + o.Refused,
		Unknown: s.Unknown + o.Unknown, Conflicts: s.Conflicts + o.Conflicts, Dropped: s.Dropped + o.Dropped,
		Applied: s.Applied + o.Applied,
	}
}
