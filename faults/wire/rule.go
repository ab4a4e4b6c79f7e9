package wire

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/eventproof/eventproof/history"
)

// Action is what a rule does to the connections of a proxy. The set is closed.
type Action uint8

// The actions.
const (
	// Delay keeps every byte for a while.
	Delay Action = iota + 1
	// Swallow drops bytes and keeps the connection open. A connection that lost bytes is useless: it is cut
	// when the rule is lifted.
	Swallow
	// DropReply lets a commit through and cuts the connection before its reply.
	DropReply
	// CutRequest cuts the connection before a commit is forwarded.
	CutRequest
	// HoldReply keeps replies until the rule is lifted.
	HoldReply
	// ParkRequest keeps a commit until the rule is lifted, also when its client has left meanwhile.
	ParkRequest
	// Refuse closes the connections and refuses new ones.
	Refuse
	// Reset resets the connections, and new ones as soon as they are open.
	Reset
)

// Directions of Delay and Swallow.
type Directions uint8

// The directions.
const (
	Up   Directions = 1 << iota // client to server
	Down                        // server to client
	Both = Up | Down
)

// Observer is told what a rule does. Its methods are called from the goroutines that carry bytes: they must be
// quick and safe for concurrent use.
type Observer interface {
	// Touched is called as soon as the rule acts on something (a message, a run of bytes, a connection).
	Touched()
	// Bite is called when the effect of that is known; a hold is known when it ends. A parked request
	// gives two: parked, then released or cut. The field Fault is left empty.
	Bite(b history.Bite)
}

// RuleSpec says what a rule does.
type RuleSpec struct {
	Action     Action
	Directions Directions // Delay and Swallow
	Delay      time.Duration
	Jitter     time.Duration // the delay is uniform in Delay ± Jitter
	Rand       *rand.Rand    // needed with Jitter; the rule owns it from then on
	Every      int           // act on every n-th commit, counted over all connections; 0 = 1
	Max        int           // act at most so often; 0 = no limit
	All        bool          // HoldReply: hold every reply, not only those of commits
	Observer   Observer
}

// Rule is one fault as proxies carry it out. It counts over all proxies that it is applied to.
type Rule struct {
	spec   RuleSpec
	lifted chan struct{}

	mu      sync.Mutex
	seen    int
	hits    int
	pending map[*conn]int // what is held or parked, and not known to have ended
	idle    chan struct{} // closed whenever pending becomes empty; nil when it is
}

// NewRule returns a rule that is in force wherever it is applied.
func NewRule(spec RuleSpec) (*Rule, error) {
	switch {
	case spec.Action < Delay || spec.Action > Reset:
		return nil, fmt.Errorf("wire: action %d is not known", spec.Action)
	case spec.Observer == nil:
		return nil, errors.New("wire: rule without observer")
	case spec.Jitter > 0 && spec.Rand == nil:
		return nil, errors.New("wire: jitter without a source of randomness")
	case spec.Jitter < 0 || spec.Delay < spec.Jitter:
		return nil, errors.New("wire: jitter must lie between 0 and the delay")
	}
	spec.Every = max(spec.Every, 1)
	return &Rule{spec: spec, lifted: make(chan struct{}), pending: map[*conn]int{}}, nil
}

// Lift ends the rule everywhere: what is held or parked goes on. Lifting twice is allowed.
func (r *Rule) Lift() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.isLifted() {
		close(r.lifted)
	}
}

func (r *Rule) isLifted() bool {
	select {
	case <-r.lifted:
		return true
	default:
		return false
	}
}

// Settle waits, after Lift, until everything that was held or parked is delivered and every parked commit is
// answered. When ctx ends before, the connections concerned are cut, which is recorded; the error is then
// that of ctx.
func (r *Rule) Settle(ctx context.Context) error {
	var cut error
	for {
		r.mu.Lock()
		idle := r.idle
		r.mu.Unlock()
		if idle == nil {
			return cut
		}
		if cut != nil {
			<-idle // closed sockets end every link
			continue
		}
		select {
		case <-idle:
		case <-ctx.Done():
			cut = fmt.Errorf("wire: what was held could not be delivered and was cut: %w", ctx.Err())
			r.cut()
		}
	}
}

// cut closes the connections that still hold something for the rule.
func (r *Rule) cut() {
	r.mu.Lock()
	conns := make([]*conn, 0, len(r.pending))
	for c := range r.pending {
		conns = append(conns, c)
	}
	r.mu.Unlock()
	for _, c := range conns {
		c.close()
	}
}

// acquire begins one effect on a connection unless the rule is lifted; end ends it, and Settle waits for that.
// With counting, the effect concerns a commit, which is counted, and only every n-th is acted on.
func (r *Rule) acquire(c *conn, counting bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isLifted() {
		return false
	}
	if counting {
		if r.spec.Max > 0 && r.hits >= r.spec.Max {
			return false
		}
		r.seen++
		if r.seen%r.spec.Every != 0 {
			return false
		}
		r.hits++
	}
	if r.idle == nil {
		r.idle = make(chan struct{})
	}
	r.pending[c]++
	return true
}

func (r *Rule) end(c *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending[c]--; r.pending[c] == 0 {
		delete(r.pending, c)
	}
	if len(r.pending) == 0 {
		close(r.idle)
		r.idle = nil
	}
}

// delay draws the next delay.
func (r *Rule) delay() time.Duration {
	if r.spec.Jitter == 0 {
		return r.spec.Delay
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.spec.Delay - r.spec.Jitter + time.Duration(r.spec.Rand.Int64N(2*int64(r.spec.Jitter)+1))
}

// on reports whether a rule of the given action works in direction d.
func (r *Rule) on(action Action, d Directions) bool {
	return r.spec.Action == action && r.spec.Directions&d != 0
}

// forever is the due time of what waits until its rule is lifted.
const forever = int64(1<<63 - 1)
