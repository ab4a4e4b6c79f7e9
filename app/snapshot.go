package app

import (
	"context"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
)

// SnapshotPolicy says what the command loop does with snapshots. A snapshot is a cache: whatever becomes of one, the
// answers stay the same.
type SnapshotPolicy interface {
	// Load returns what a load begins from: a state, and the version of the snapshot that it is from; the stream is read
	// from the state's version on. The zero state and 0 where there is no snapshot that can be used.
	Load(ctx context.Context, r *Run) (State, uint64)
	// Decided is told of a write before its first try. Nothing is known of it yet.
	Decided(ctx context.Context, r *Run, w *Write) error
	// Answered is told of an answer before the caller is. An error fails the call; a crash ends it.
	Answered(ctx context.Context, r *Run, a *Answer) error
}

// Snapshotter is the correct policy: every so many versions the state of an acknowledged answer is put under the version
// that it is the state of. It is best effort: a snapshot that can't be had or put only costs time.
type Snapshotter struct{}

// Load implements SnapshotPolicy.
func (Snapshotter) Load(ctx context.Context, r *Run) (State, uint64) {
	zero := r.h.cfg.Domain.Zero()
	snap, found, err := r.LoadSnapshot(ctx)
	if err == nil && !found {
		return zero, 0
	}
	var state State
	if err == nil {
		state, err = r.h.cfg.Domain.Restore(snap.State)
	}
	if err != nil || state.Version() != snap.Version {
		r.h.bad.Add(1)
		return zero, 0
	}
	return state, snap.Version
}

// Decided implements SnapshotPolicy: a decision is no event.
func (Snapshotter) Decided(context.Context, *Run, *Write) error { return nil }

// Answered implements SnapshotPolicy. Only a crash ends the call here.
func (Snapshotter) Answered(ctx context.Context, r *Run, a *Answer) error {
	if !r.SnapshotDue(a) {
		return nil
	}
	return r.BestEffort(r.SaveSnapshot(ctx, a.Last, a.State.Snapshot()))
}

// SnapshotDue reports whether an answer's events passed a multiple of SnapshotEvery and its state is known.
func (r *Run) SnapshotDue(a *Answer) bool {
	every := r.h.cfg.SnapshotEvery
	return r.h.cfg.Snapshots != nil && every != 0 && a.State != nil && !a.Replayed && a.Last/every != (a.First-1)/every
}

// BestEffort counts a failure of the snapshots and lets go of it, unless it is a crash.
func (r *Run) BestEffort(err error) error {
	if err == nil || crashed(err) {
		return err
	}
	r.h.bad.Add(1)
	return nil
}

// LoadSnapshot asks for the snapshot of the call's stream; without snapshots there is none.
func (r *Run) LoadSnapshot(ctx context.Context) (eventstore.Snapshot, bool, error) {
	if r.h.cfg.Snapshots == nil || r.h.cfg.SnapshotEvery == 0 {
		return eventstore.Snapshot{}, false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.h.cfg.Try)
	defer cancel()
	return r.h.cfg.Snapshots.LoadSnapshot(ctx, r.call.Stream)
}

// SaveSnapshot puts a snapshot of the call's stream.
func (r *Run) SaveSnapshot(ctx context.Context, version uint64, state []byte) error {
	if err := r.At(ctx, points.SnapshotBeforePut); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, r.h.cfg.Try)
	defer cancel()
	return r.h.cfg.Snapshots.SaveSnapshot(ctx, eventstore.Snapshot{Stream: r.call.Stream, Version: version, State: state})
}
