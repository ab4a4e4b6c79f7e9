// Package record holds decorators that write down what goes through a store, a feed and a projection. What can
// have an effect is recorded before it is sent; if it can't be recorded, it is not sent.
package record

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
)

// Recorder writes the records of one process. There is one a process id, since it hands out that process's ids.
// It is safe for concurrent use.
type Recorder struct {
	w       *history.Writer
	clk     clock.Clock
	process uint32
	last    atomic.Uint64 // the counter behind all ids

	calls, writes, attempts, reads atomic.Uint64
}

// New returns a recorder of the process with this id.
func New(w *history.Writer, clk clock.Clock, process uint32) *Recorder {
	return &Recorder{w: w, clk: clk, process: process}
}

// Discard returns a recorder that writes nothing, for measuring what recording costs. A loop that runs with it can't
// be judged.
func Discard(clk clock.Clock) *Recorder { return &Recorder{clk: clk} }

// write appends to the segment, if there is one.
func (r *Recorder) write(recs ...history.Record) error {
	if r.w == nil {
		return nil
	}
	return r.w.Write(recs...)
}

// Counts is what a recorder has written, for the ProcessEnd record.
type Counts struct{ Calls, Writes, Attempts, Reads uint64 }

// Counts returns how many calls, writes, attempts and reads are in the segment by now.
func (r *Recorder) Counts() Counts {
	return Counts{r.calls.Load(), r.writes.Load(), r.attempts.Load(), r.reads.Load()}
}

func (r *Recorder) id() uint64 { return history.MakeID(r.process, r.last.Add(1)) }

// CallInfo describes one run of the command loop.
type CallInfo struct {
	CommandID string
	Stream    string
	Name      string // "withdraw", "bid", …
	Body      []byte // canonical JSON of the command's body
	Continued bool   // another call had begun the command
	Intended  int64  // when the schedule wanted it to start
	Started   int64  // when a worker took it; 0 = now
	Session   uint32 // worker within the process
}

// Call is one recorded run of the command loop.
type Call struct {
	r       *Recorder
	id      uint64
	session uint32

	mu     sync.Mutex
	writes []*history.Write
	reads  []history.Record // not in the segment yet, see write
}

// write appends records of the call behind its reads: a read is recorded at the latest with what rests on it, in one
// piece. A read that nothing rests on yet is lost with its process, which is as if it had never been made.
func (c *Call) write(recs ...history.Record) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.reads)
	if n > 0 {
		recs = append(c.reads, recs...)
	}
	if err := c.r.write(recs...); err != nil {
		return err // the reads stay, for the next one
	}
	c.reads = nil
	c.r.reads.Add(uint64(n))
	return nil
}

// read keeps a read for the next write. The error is that of a segment that takes no more.
func (c *Call) read(rec *history.Read) error {
	if err := c.r.write(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads = append(c.reads, rec)
	return nil
}

type callKey struct{}

// Begin records the start of a call. What is done with the returned context belongs to the call. On error nothing
// was recorded and the command must not be run.
func (r *Recorder) Begin(ctx context.Context, info CallInfo) (context.Context, *Call, error) {
	c := &Call{r: r, id: r.id(), session: info.Session}
	if info.Started == 0 {
		info.Started = r.clk.Now()
	}
	err := r.write(&history.CallStart{
		Call: c.id, Process: r.process, Session: info.Session, CommandID: info.CommandID, Stream: info.Stream,
		Name: info.Name, Body: info.Body, Continued: info.Continued, Intended: info.Intended, Started: info.Started,
	})
	if err != nil {
		return ctx, nil, fmt.Errorf("record: begin of call: %w", err)
	}
	r.calls.Add(1)
	return context.WithValue(ctx, callKey{}, c), c, nil
}

func callFrom(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}

// ID returns the call's id in the history.
func (c *Call) ID() uint64 { return c.id }

// End records the answer to the caller. Call is filled in, and T where it is 0. On error the caller must not be
// answered.
func (c *Call) End(end history.CallEnd) error {
	end.Call = c.id
	if end.T == 0 {
		end.T = c.r.clk.Now()
	}
	if err := c.write(&end); err != nil {
		return fmt.Errorf("record: end of call: %w", err)
	}
	return nil
}

// ErrNoWrite says that no write of the call begins with the event that evidence was given for.
var ErrNoWrite = errors.New("record: the call has no write that begins with this event")

// Evidence records a fact that settles the unknown attempts of the call's write that begins with firstEvent.
// readID is Slice.ID of the read it rests on, 0 if none. Errors: ErrNoWrite, or that of the segment.
func (c *Call) Evidence(form history.EvidenceForm, firstEvent eventstore.EventID, outcome eventstore.Outcome, readID uint64) error {
	if c.r.w == nil {
		return nil
	}
	w := c.find(func(w *history.Write) bool { return len(w.Events) > 0 && w.Events[0].ID == firstEvent })
	if w == nil {
		return fmt.Errorf("%w: %s", ErrNoWrite, firstEvent)
	}
	err := c.write(&history.Evidence{
		Write: w.Write, Call: c.id, Read: readID, T: c.r.clk.Now(), Form: form, Outcome: outcome,
	})
	if err != nil {
		return fmt.Errorf("record: evidence: %w", err)
	}
	return nil
}

// find returns the last recorded write that matches.
func (c *Call) find(match func(*history.Write) bool) *history.Write {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range slices.Backward(c.writes) {
		if match(w) {
			return w
		}
	}
	return nil
}

func (c *Call) remember(w *history.Write) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes = append(c.writes, w)
}

type snapshotKey struct{}

// WithSnapshot marks the reads made with the returned context as the tail behind a snapshot of that version.
func WithSnapshot(ctx context.Context, version uint64) context.Context {
	return context.WithValue(ctx, snapshotKey{}, version)
}

func snapshotFrom(ctx context.Context) uint64 {
	v, _ := ctx.Value(snapshotKey{}).(uint64)
	return v
}

// notSent is the answer to an operation that could not be recorded and was therefore not sent.
func notSent(op string, err error) error {
	return &eventstore.Error{Op: op, Outcome: eventstore.Fail, Reason: eventstore.NotSent, Err: err}
}

// unrecorded is the answer to an operation whose reply could not be recorded: for the history it has none. inner is
// the error of the operation itself, which may be nil.
func unrecorded(op string, outcome eventstore.Outcome, inner, err error) error {
	reason := eventstore.LostReply
	if errors.Is(err, history.ErrKilled) {
		reason = eventstore.Killed
	}
	return &eventstore.Error{Op: op, Outcome: outcome, Reason: reason, Err: errors.Join(inner, err)}
}

// shorten keeps error texts small.
func shorten(err error) string {
	const limit = 200
	if err == nil {
		return ""
	}
	s := err.Error()
	if len(s) > limit {
		s = s[:limit] + "…"
	}
	return s
}
