package app

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/record"
)

// MaxDecisions is the decision budget of one call: so many version conflicts end it.
const MaxDecisions = 5

// Config is what a Handler is made of.
type Config struct {
	Domain Domain
	Policy Policy
	// Store and Snapshots are those of the recorder. Snapshots may be nil.
	Store     eventstore.Store
	Snapshots eventstore.Snapshots
	Recorder  *record.Recorder
	Gate      points.Gate
	Clock     clock.Clock
	// Rand is the source of event ids and of jitter; the handler owns it.
	Rand *rand.Rand
	// Promises of the target: a blind append is repeated only where IdempotentAppend is among them.
	Idempotent bool
	// Deadline bounds a call, Try one round trip below it.
	Deadline, Try time.Duration
	// SnapshotEvery versions a snapshot is put; 0 = none, not even looked for.
	SnapshotEvery uint64
}

// Call is one run of the command loop, as the load asks for it.
type Call struct {
	Command
	Session   uint32 // worker; calls of one session never overlap
	Intended  int64  // when the schedule wanted it, a stamp of the clock
	Started   int64  // when a worker took it
	Continued bool   // another call, perhaps of another process, had begun the command
}

// Result is the answer to the caller.
type Result struct {
	history.CallEnd
	// Answered: the call ended and its answer is recorded. Else the role was crashed in the middle, or the call
	// could not be recorded; Err says which.
	Answered bool
	// Err says, for people, why the result is neither ok nor refused.
	Err error
}

// Handler is the command loop. It is safe for concurrent use.
type Handler struct {
	cfg Config

	mu  sync.Mutex // guards cfg.Rand
	bad atomic.Int64
}

// NewHandler returns a handler.
func NewHandler(cfg Config) *Handler { return &Handler{cfg: cfg} }

// SnapshotFailures counts snapshots that could not be loaded, read or put; none of them fails a command.
func (h *Handler) SnapshotFailures() int64 { return h.bad.Load() }

// Do runs a command to its answer: load, decide, append at the next version; on a version conflict reload and
// decide again, at most MaxDecisions times; after an unknown append as INVARIANTS 2.4 says. Within the deadline
// it answers ok, refused, exhausted or failed only when that is certain; else the result is unknown.
func (h *Handler) Do(ctx context.Context, c Call) Result {
	return h.conduct(ctx, c, func(ctx context.Context, rec *record.Call) (history.CallEnd, error, error) {
		r := &Run{h: h, rec: rec, call: c, token: c.ID}
		end, err := r.run(ctx)
		end.Conflicts = r.conflicts
		return end, r.cause, err
	})
}

// conduct records a call around run, which returns the answer, why it is no ok, and points.ErrCrashed or nil. Its context
// ends at the deadline.
func (h *Handler) conduct(ctx context.Context, c Call, run func(context.Context, *record.Call) (end history.CallEnd, cause, err error)) Result {
	ctx, rec, err := h.cfg.Recorder.Begin(ctx, record.CallInfo{
		CommandID: c.ID, Stream: c.Stream, Name: c.Name, Body: c.Body, Continued: c.Continued,
		Intended: c.Intended, Started: c.Started, Session: c.Session,
	})
	if err != nil {
		return Result{Err: err}
	}
	bounded, cancel := context.WithTimeout(ctx, h.cfg.Deadline)
	defer cancel()
	end, cause, err := run(bounded, rec)
	if err == nil {
		// The answer is given even when the deadline strikes here: only a crash takes it away.
		err = h.cfg.Gate.At(ctx, points.WriterBeforeAnswer, 0)
	}
	if crashed(err) || crashed(context.Cause(ctx)) {
		return Result{Err: points.ErrCrashed}
	}
	if err := rec.End(end); err != nil {
		return Result{Err: err}
	}
	return Result{CallEnd: end, Answered: true, Err: cause}
}

// crashed reports whether the role has come to its end: by a gate, or because its segment takes no record any
// more.
func crashed(err error) bool {
	return errors.Is(err, points.ErrCrashed) || errors.Is(err, history.ErrKilled)
}

// newEventID draws a random (version 4) UUID.
func (h *Handler) newEventID() eventstore.EventID {
	h.mu.Lock()
	hi, lo := h.cfg.Rand.Uint64(), h.cfg.Rand.Uint64()
	h.mu.Unlock()
	var id eventstore.EventID
	for i := range 8 {
		id[i], id[8+i] = byte(hi>>(56-8*i)), byte(lo>>(56-8*i))
	}
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id
}

// The back-off between tries of one write: full jitter below a bound that doubles.
const (
	firstPause = 2 * time.Millisecond
	maxPause   = 200 * time.Millisecond
)

// pause waits a random while that grows with the number of tries; it returns early with ctx's error.
func (h *Handler) pause(ctx context.Context, try int) error {
	bound := min(firstPause<<min(try, 10), maxPause)
	h.mu.Lock()
	d := time.Duration(h.cfg.Rand.Int64N(int64(bound)) + 1)
	h.mu.Unlock()
	return clock.Sleep(ctx, d)
}
