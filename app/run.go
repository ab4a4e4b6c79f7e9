package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/record"
)

// Codes of answers that no domain decides.
const (
	CodeExhausted = "CONFLICT_EXHAUSTED" // the decision budget was used up
	CodeFailed    = "STORE_REFUSED"      // the store refused for good
	CodeUnknown   = "OUTCOME_UNKNOWN"    // the deadline passed with the outcome open
)

// Basis is a state to decide on, with how it was come by.
type Basis struct {
	State    State
	Read     uint64 // the read that fixed its version
	Snapshot uint64 // version of the snapshot it was built from; 0 = none
	before   State  // what the tail was folded onto
	tail     []eventstore.Event
}

// Answer is what is known of a command that has taken effect.
type Answer struct {
	First, Last uint64
	Events      []eventstore.EventID
	State       State // at version Last; nil where it is not known
	Replayed    bool
	Accepted    *Acceptance
}

// Write is one decision of the call with what became of its tries.
type Write struct {
	Append   eventstore.Append
	Basis    *Basis // nil for a blind append
	next     State  // the basis and the write's events
	accepted *Acceptance
	open     bool // a try ended unknown
	counted  bool // a version conflict was counted
}

// Facts returns what the write's events say.
func (w *Write) Facts() []Fact {
	var out []Fact
	for _, e := range w.Append.Events {
		out = append(out, Fact{Type: e.Type, Data: e.Data})
	}
	return out
}

// Moved returns the write at another version: the same decision under the same event ids.
func (w *Write) Moved(head uint64) *Write {
	moved := &Write{Append: w.Append, Basis: w.Basis, next: w.next, accepted: w.accepted}
	moved.Append.Expected = eventstore.Exact(head)
	return moved
}

// Run is one call in progress; parts work with it. It belongs to one goroutine.
type Run struct {
	h         *Handler
	rec       *record.Call
	call      Call
	token     string
	conflicts uint32
	cause     error // why it is no ok, for people
}

// errUnsettled ends a call whose outcome can't be told.
var errUnsettled = errors.New("app: the outcome is unknown")

// run carries the call out. The error is points.ErrCrashed or nil.
func (r *Run) run(ctx context.Context) (history.CallEnd, error) {
	answer, end, err := r.settle(ctx)
	if err == nil && answer != nil {
		if err = r.h.cfg.Policy.Snapshots.Answered(ctx, r, answer); err != nil && !crashed(err) {
			answer, end, err = r.failed(err)
		}
	}
	switch {
	case crashed(err):
		return history.CallEnd{}, points.ErrCrashed
	case err != nil:
		r.cause = err
		return history.CallEnd{Result: history.ResultUnknown, Code: CodeUnknown, Retriable: true, Text: err.Error()}, nil //nolint:nilerr // the error is the answer
	case answer == nil:
		return end, nil
	}
	end = history.CallEnd{Result: history.ResultOK, Version: answer.Last, Events: answer.Events, Replayed: answer.Replayed}
	if answer.State != nil {
		end.StateHash = eventstore.HashBytes(answer.State.Encode())
	}
	if a := answer.Accepted; a != nil {
		end.Want, end.At = a.Amount, a.Millis
	}
	return end, nil
}

// settle decides and appends until there is an answer, or an end that is none. An error leaves the outcome
// open.
func (r *Run) settle(ctx context.Context) (*Answer, history.CallEnd, error) {
	answer, basis, err := r.begin(ctx)
	for err == nil && answer == nil {
		if r.conflicts >= MaxDecisions {
			return nil, history.CallEnd{
				Result: history.ResultExhausted, Code: CodeExhausted,
				Text: fmt.Sprintf("%s - gave up after %d version conflicts", CodeExhausted, r.conflicts),
			}, nil
		}
		d, now, decideErr := r.Decide(basis)
		switch {
		case decideErr != nil:
			return r.failed(decideErr)
		case d.Refusal != nil:
			return nil, r.refusal(d.Refusal, basis, now), nil
		case d.Replay != nil:
			answer, err = r.replay(ctx, basis, d.Replay)
			continue
		}
		w, foldErr := r.NewWrite(basis, d, now)
		if foldErr != nil {
			return r.failed(foldErr)
		}
		if err = r.At(ctx, points.WriterAfterDecide); err == nil {
			err = r.h.cfg.Policy.Snapshots.Decided(ctx, r, w)
		}
		if err == nil {
			answer, basis, err = r.send(ctx, w)
		}
	}
	var refused *refusedError
	if errors.As(err, &refused) {
		return r.failed(refused.err)
	}
	return answer, history.CallEnd{}, err
}

// Decide decides the command on a basis, nil for a blind one, and says what time it took it to be.
func (r *Run) Decide(basis *Basis) (Decision, time.Time, error) {
	now := r.h.cfg.Clock.Wall()
	var state State
	if basis != nil {
		state = basis.State
	}
	d, err := r.h.cfg.Domain.Decide(state, r.call.Command, now)
	return d, now, err
}

// unreadError hides what kind of error kept an answer from being read: it says nothing about the write.
type unreadError struct{ err error }

func (e *unreadError) Error() string { return "app: no acceptance to answer with: " + e.err.Error() }

// refusedError: the store refused for good, and every write of this call is without effect.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }

// failed ends the call as failed. A call that continues another one can't speak for what that one had sent.
func (r *Run) failed(err error) (*Answer, history.CallEnd, error) {
	if r.call.Continued {
		return nil, history.CallEnd{}, err
	}
	r.cause = err
	return nil, history.CallEnd{Result: history.ResultFailed, Code: CodeFailed, Text: CodeFailed + " - " + err.Error()}, nil
}

func (r *Run) refusal(no *Refusal, basis *Basis, now time.Time) history.CallEnd {
	return history.CallEnd{
		Result: history.ResultRefused, Code: no.Code, Retriable: no.Retriable, Text: no.Text,
		Decision: decision(basis, now), Have: no.Have, Want: no.Want,
	}
}

func decision(basis *Basis, now time.Time) eventstore.Decision {
	if basis == nil {
		return eventstore.Decision{Now: now.UnixMilli()}
	}
	return eventstore.Decision{
		Basis: basis.State.Version(), Hash: eventstore.HashBytes(basis.State.Encode()),
		Read: basis.Read, Snapshot: basis.Snapshot, Now: now.UnixMilli(),
	}
}

// begin finds the state to decide on; a blind command has none.
func (r *Run) begin(ctx context.Context) (*Answer, *Basis, error) {
	if err := r.At(ctx, points.WriterBeforeLoad); err != nil {
		return nil, nil, err
	}
	blind := r.h.cfg.Domain.Blind(r.call.Command)
	if r.call.Continued {
		answer, basis, err := r.h.cfg.Policy.Continue(ctx, r)
		if err != nil || answer != nil || !blind {
			return answer, basis, err
		}
		if !r.h.cfg.Idempotent {
			return nil, nil, errUnsettled
		}
		return nil, nil, nil
	}
	if blind {
		return nil, nil, nil
	}
	basis, err := r.Load(ctx)
	return nil, basis, err
}

// NewWrite makes the write of a decision on a basis: new event ids, and the state that the answer will show.
func (r *Run) NewWrite(basis *Basis, d Decision, now time.Time) (*Write, error) {
	w := &Write{Basis: basis, accepted: d.Accepted}
	w.Append = eventstore.Append{
		Stream: r.call.Stream, Expected: eventstore.Any(), Request: r.token, Decision: decision(basis, now),
	}
	var version uint64
	if basis != nil {
		version = basis.State.Version()
		w.Append.Expected = eventstore.Exact(version)
	} else if v := r.call.Expected; v != nil {
		w.Append.Expected = eventstore.Exact(*v)
	}
	folded := make([]eventstore.Event, 0, len(d.Events))
	for i, f := range d.Events {
		e := eventstore.NewEvent{
			ID: r.h.newEventID(), Type: f.Type, Data: f.Data,
			Meta: eventstore.Metadata{
				CommandID: r.call.ID, BasisVersion: version, BasisHash: w.Append.Decision.Hash,
				SchemaVersion: r.h.cfg.Domain.SchemaVersion(),
			},
		}
		w.Append.Events = append(w.Append.Events, e)
		folded = append(folded, eventstore.Event{NewEvent: e, Stream: r.call.Stream, Version: version + 1 + uint64(i)})
	}
	if basis == nil {
		return w, nil
	}
	next, err := r.h.cfg.Domain.Fold(basis.State, folded)
	w.next = next
	return w, err
}

// send tries a write until it is known to have landed or to be excluded: then it returns the answer, or the
// state to decide on next. Tries that had definitely no effect, and tries that ended unknown, repeat the same
// write; only the deadline bounds them.
func (r *Run) send(ctx context.Context, w *Write) (*Answer, *Basis, error) {
	for try := 0; ; try++ {
		got, err := r.append(ctx, w)
		outcome, reason := eventstore.Classify(err)
		conflict := outcome == eventstore.Fail && reason == eventstore.VersionConflict && !w.Append.Expected.IsAny()
		if conflict && !w.counted {
			w.counted = true
			r.conflicts++
		}
		var next Resolution
		switch {
		case outcome == eventstore.OK:
			answer, err := r.acknowledged(ctx, w, got)
			return answer, nil, err
		case crashed(err):
			return nil, nil, err
		case outcome == eventstore.Unknown:
			w.open = true
			if err := r.At(ctx, points.WriterAfterUnknown); err != nil {
				return nil, nil, err
			}
			if w.Append.Expected.IsAny() && !r.h.cfg.Idempotent {
				return nil, nil, fmt.Errorf("%w: %w", errUnsettled, err)
			}
			next, err = r.h.cfg.Policy.Retry(ctx, r, w)
		case conflict && !w.open && w.Basis == nil:
			return nil, nil, &refusedError{err} // the caller's own version: there is nothing to decide again
		case conflict && !w.open:
			next, err = r.h.cfg.Policy.Conflict(ctx, r, w)
		case conflict || w.open && final(reason):
			// Refused with an earlier try open: the refusal may be about that try's own effect.
			next, err = r.h.cfg.Policy.Retry(ctx, r, w)
		case final(reason):
			return nil, nil, &refusedError{err}
		default:
			next, err = Resolution{Repeat: true}, nil
		}
		switch {
		case err != nil:
			return nil, nil, err
		case next.Answer != nil || next.Basis != nil:
			return next.Answer, next.Basis, nil
		case next.Write != nil && r.conflicts >= MaxDecisions:
			return nil, w.Basis, nil // the budget is used up, whatever is sent instead
		case next.Write != nil:
			w = next.Write
		}
		if err := r.h.pause(ctx, try); err != nil {
			return nil, nil, fmt.Errorf("app: %d tries until the deadline: %w", try+1, err)
		}
	}
}

func (r *Run) append(ctx context.Context, w *Write) (eventstore.Appended, error) {
	ctx, cancel := context.WithTimeout(ctx, r.h.cfg.Try)
	defer cancel()
	return r.h.cfg.Store.Append(ctx, w.Append)
}

// final reports whether a definite failure speaks against the write itself. Everything else was an accident of
// one try.
func final(reason eventstore.Reason) bool {
	return slices.Contains([]eventstore.Reason{
		eventstore.ExpectedAhead, eventstore.TooLarge, eventstore.Invalid, eventstore.Rejected, eventstore.Fenced,
	}, reason)
}

// acknowledged makes the answer of an ok. A replayed answer is about the first execution of the request, by
// whichever process: its state and acceptance are those of then.
func (r *Run) acknowledged(ctx context.Context, w *Write, got eventstore.Appended) (*Answer, error) {
	a := &Answer{First: got.First, Last: got.Last, Events: got.Events, Replayed: got.Replayed}
	own := slices.EqualFunc(got.Events, w.Append.Events, func(id eventstore.EventID, e eventstore.NewEvent) bool { return id == e.ID })
	if !got.Replayed || own {
		a.State, a.Accepted = w.next, w.accepted
		return a, nil
	}
	basis, err := r.load(ctx, got.Last, r.h.cfg.Domain.Zero(), 0)
	switch {
	case crashed(err):
		return nil, err
	case err == nil && basis.State.Version() == got.Last:
		a.State = basis.State
		a.Accepted = r.acceptance(basis.State)
		return a, nil
	case w.accepted != nil && err == nil:
		return nil, errUnsettled // the stream is shorter than the answer says
	case w.accepted != nil:
		// The answer has to show the acceptance; why it can't be had is no statement about the write.
		return nil, errors.Join(errUnsettled, &unreadError{err})
	default:
		return a, nil
	}
}

// acceptance asks a state that holds the command's effect what it says of it.
func (r *Run) acceptance(s State) *Acceptance {
	d, err := r.h.cfg.Domain.Decide(s, r.call.Command, r.h.cfg.Clock.Wall())
	if err != nil {
		return nil
	}
	return d.Replay
}

// replay answers from the ledger in the state. The state returned by then is known only where nothing has
// happened since.
func (r *Run) replay(ctx context.Context, basis *Basis, first *Acceptance) (*Answer, error) {
	a := &Answer{First: first.Version, Last: first.Version, Replayed: true, Accepted: first}
	if first.Version == basis.State.Version() {
		a.State = basis.State
	}
	events := basis.tail
	if i, ok := findVersion(events, first.Version); ok {
		a.Events = []eventstore.EventID{events[i].ID}
		return a, nil
	}
	slice, err := r.read(ctx, first.Version, first.Version)
	if err != nil {
		return nil, err
	}
	if len(slice.Events) == 0 {
		return nil, fmt.Errorf("app: version %d is in the state but not in the stream", first.Version)
	}
	a.Events = []eventstore.EventID{slice.Events[0].ID}
	return a, nil
}

func findVersion(events []eventstore.Event, v uint64) (int, bool) {
	i := slices.IndexFunc(events, func(e eventstore.Event) bool { return e.Version == v })
	return i, i >= 0
}

// At asks the role's gate.
func (r *Run) At(ctx context.Context, p points.Point) error { return r.h.cfg.Gate.At(ctx, p, 0) }
