package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/record"
)

// CommandID returns the command of the call.
func (r *Run) CommandID() string { return r.call.ID }

// MintToken replaces the idempotency token of all later writes of this call. A store then can't know that it
// executes the same command again.
func (r *Run) MintToken() { r.token = r.call.ID + "/" + r.h.newEventID().String() }

// Load reads the stream strongly: the snapshot, if there is one, and the events after it.
func (r *Run) Load(ctx context.Context) (*Basis, error) {
	state, version := r.h.cfg.Policy.Snapshots.Load(ctx, r)
	if version != 0 {
		ctx = record.WithSnapshot(ctx, version)
	}
	return r.load(ctx, 0, state, version)
}

// LoadWhole reads the stream strongly from version 1.
func (r *Run) LoadWhole(ctx context.Context) (*Basis, error) {
	return r.load(ctx, 0, r.h.cfg.Domain.Zero(), 0)
}

// LoadEventual reads the stream from version 1 as some copy of it shows it. No decision may rest on that.
func (r *Run) LoadEventual(ctx context.Context) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, r.h.cfg.Try)
	defer cancel()
	slice, err := r.h.cfg.Store.Read(ctx, eventstore.ReadRequest{Stream: r.call.Stream, From: 1, Consistency: eventstore.Eventual})
	if err != nil {
		return nil, err
	}
	return r.h.cfg.Domain.Fold(r.h.cfg.Domain.Zero(), slice.Events)
}

// Reload reads what came after a basis, strongly. Where an event of this command is found in it, by whichever
// call, that is the answer; else the newer state is returned.
func (r *Run) Reload(ctx context.Context, from *Basis) (*Answer, *Basis, error) {
	basis, err := r.load(ctx, 0, from.State, from.Snapshot)
	if err != nil {
		return nil, nil, err
	}
	answer, err := r.FindInTail(basis)
	return answer, basis, err
}

// FindInTail looks for this command among the events that the basis was loaded from.
func (r *Run) FindInTail(b *Basis) (*Answer, error) { return r.find(b.before, b.tail) }

// find looks for this command among events that continue a state, and makes the answer of what it finds; nil
// if there is none.
func (r *Run) find(from State, events []eventstore.Event) (*Answer, error) {
	var a Answer
	end := 0
	for i, e := range events {
		if e.Meta.CommandID != r.call.ID || a.Last != 0 && e.Version != a.Last+1 {
			continue
		}
		if a.Last == 0 {
			a.First = e.Version
		}
		a.Last, end = e.Version, i+1
		a.Events = append(a.Events, e.ID)
	}
	if a.Last == 0 {
		return nil, nil
	}
	state, err := r.h.cfg.Domain.Fold(from, events[:end])
	if err != nil {
		return nil, err
	}
	a.State, a.Accepted = state, r.acceptance(state)
	return &a, nil
}

// load folds the events after a state, up to version to (0 = all).
func (r *Run) load(ctx context.Context, to uint64, from State, snapshot uint64) (*Basis, error) {
	slice, err := r.read(ctx, from.Version()+1, to)
	if err != nil {
		return nil, err
	}
	state, err := r.h.cfg.Domain.Fold(from, slice.Events)
	if err != nil {
		return nil, &refusedError{fmt.Errorf("app: stream %s: %w", r.call.Stream, err)}
	}
	return &Basis{State: state, Read: slice.ID, Snapshot: snapshot, before: from, tail: slice.Events}, nil
}

// read reads strongly, and again after a pause while it gets no answer.
func (r *Run) read(ctx context.Context, from, to uint64) (eventstore.Slice, error) {
	for try := 0; ; try++ {
		slice, err := r.readOnce(ctx, from, to)
		if err == nil || crashed(err) {
			return slice, err
		}
		if pauseErr := r.h.pause(ctx, try); pauseErr != nil {
			return eventstore.Slice{}, fmt.Errorf("app: no answer to a read until the deadline: %w", err)
		}
	}
}

func (r *Run) readOnce(ctx context.Context, from, to uint64) (eventstore.Slice, error) {
	ctx, cancel := context.WithTimeout(ctx, r.h.cfg.Try)
	defer cancel()
	return r.h.cfg.Store.Read(ctx, eventstore.ReadRequest{Stream: r.call.Stream, From: from, To: to})
}

// reloadAndDecide throws the decision away: the stream has moved.
func reloadAndDecide(ctx context.Context, r *Run, w *Write) (Resolution, error) {
	answer, basis, err := r.Reload(ctx, w.Basis)
	return Resolution{Answer: answer, Basis: basis}, err
}

// errHeld: another command has the version that the caller demands.
var errHeld = errors.New("app: the demanded version is another command's")

// repeatWrite is the loop after unknown: it reads the slot that the write wants. Its own event there is the
// answer; another command's excludes the write for good, because the slot can be taken once; nothing there
// proves nothing, since the write may still be on its way: it is sent again.
func repeatWrite(ctx context.Context, r *Run, w *Write) (Resolution, error) {
	if w.Append.Expected.IsAny() {
		return Resolution{Repeat: true}, nil // no slot of its own; the store knows the request
	}
	slice, err := r.readOnce(ctx, w.Append.Expected.Version()+1, 0)
	if crashed(err) {
		return Resolution{}, err
	}
	if err != nil || len(slice.Events) == 0 || slice.Events[0].Version != w.Append.Expected.Version()+1 {
		return Resolution{Repeat: true}, nil //nolint:nilerr // a read without an answer tells nothing
	}
	if slice.Events[0].ID == w.Append.Events[0].ID {
		if err := r.rec.Evidence(history.E1OwnEvent, w.Append.Events[0].ID, eventstore.OK, slice.ID); err != nil {
			return Resolution{}, err
		}
		return Resolution{Answer: w.Landed()}, nil
	}
	if err := r.rec.Evidence(history.E2SlotHeld, w.Append.Events[0].ID, eventstore.Fail, slice.ID); err != nil {
		return Resolution{}, err
	}
	if w.Basis == nil {
		return Resolution{}, &refusedError{errHeld}
	}
	answer, err := r.find(w.Basis.State, slice.Events)
	if err != nil || answer != nil {
		return Resolution{Answer: answer}, err
	}
	state, err := r.h.cfg.Domain.Fold(w.Basis.State, slice.Events)
	if err != nil {
		return Resolution{}, &refusedError{fmt.Errorf("app: stream %s: %w", r.call.Stream, err)}
	}
	return Resolution{Basis: &Basis{State: state, Read: slice.ID, Snapshot: w.Basis.Snapshot, before: w.Basis.State, tail: slice.Events}}, nil
}

// Landed is the answer of a write that stands at the place it asked for.
func (w *Write) Landed() *Answer {
	a := &Answer{State: w.next, Accepted: w.accepted}
	a.First = w.Append.Expected.Version() + 1
	a.Last = a.First + uint64(len(w.Append.Events)) - 1
	for _, e := range w.Append.Events {
		a.Events = append(a.Events, e.ID)
	}
	return a
}

// wholeStream continues a command: it looks for it in the whole stream, since a snapshot would hide it.
func wholeStream(ctx context.Context, r *Run) (*Answer, *Basis, error) {
	basis, err := r.LoadWhole(ctx)
	if err != nil {
		return nil, nil, err
	}
	answer, err := r.FindInTail(basis)
	return answer, basis, err
}
