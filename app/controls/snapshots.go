package controls

import (
	"context"
	"fmt"

	"github.com/eventproof/eventproof/app"
	"github.com/eventproof/eventproof/domain/account"
	"github.com/eventproof/eventproof/points"
)

// The snapshot parts below know accounts only: to give a state another label is to write another version into it.

// labelHigh puts the state at v under v+1.
//
//	v3 deposit; snapshot "4" = fold(1..3)      v4 by another      load "4" + 5..: v4 is missing   append v5
type labelHigh struct{ app.Snapshotter }

// Answered implements app.SnapshotPolicy.
func (labelHigh) Answered(ctx context.Context, r *app.Run, a *app.Answer) error {
	if !r.SnapshotDue(a) {
		return nil
	}
	return r.BestEffort(putAs(ctx, r, a.State, a.Last+1))
}

// labelLow puts the state at v under v-1.
//
//	v3 deposit; snapshot "2" = fold(1..3)      load "2" + 3..: v3 counts twice   append v4
type labelLow struct{ app.Snapshotter }

// Answered implements app.SnapshotPolicy.
func (labelLow) Answered(ctx context.Context, r *app.Run, a *app.Answer) error {
	if !r.SnapshotDue(a) {
		return nil
	}
	return r.BestEffort(putAs(ctx, r, a.State, a.Last-1))
}

// speculative puts the state that a decision would lead to, before the append says whether it does.
//
//	a: decide v3: +10; snapshot 3 = fold(1..2) + 10 |held|        append expecting 2 → conflict, v4
//	b:                                              append v3 → ok
type speculative struct{ app.Snapshotter }

// Decided implements app.SnapshotPolicy.
func (speculative) Decided(ctx context.Context, r *app.Run, w *app.Write) error {
	if w.Append.Expected.IsAny() {
		return nil
	}
	hoped := w.Landed()
	if !r.SnapshotDue(hoped) {
		return nil
	}
	return r.BestEffort(r.SaveSnapshot(ctx, hoped.Last, hoped.State.Snapshot()))
}

// Answered implements app.SnapshotPolicy.
func (speculative) Answered(context.Context, *app.Run, *app.Answer) error { return nil }

// lateLabel keeps the state of its answer in hand and asks for the version when it comes to put it.
//
//	a: v3; state = fold(1..3) |held|              head? 4   snapshot 4 = fold(1..3)
//	b:                               append v4
type lateLabel struct{ app.Snapshotter }

// Answered implements app.SnapshotPolicy.
func (lateLabel) Answered(ctx context.Context, r *app.Run, a *app.Answer) error {
	if !r.SnapshotDue(a) {
		return nil
	}
	if err := r.At(ctx, points.SnapshotBeforePut); err != nil {
		return r.BestEffort(err)
	}
	now, err := r.LoadWhole(ctx)
	if err == nil {
		err = putAs(ctx, r, a.State, now.State.Version())
	}
	return r.BestEffort(err)
}

// fromCopy reads the stream once more for its snapshot, from a copy that may lag, and takes what it finds for the state at
// the version of its answer.
//
//	append v3 → ok      eventual read: 1..2      snapshot 3 = fold(1..2)
type fromCopy struct{ app.Snapshotter }

// Answered implements app.SnapshotPolicy.
func (fromCopy) Answered(ctx context.Context, r *app.Run, a *app.Answer) error {
	if !r.SnapshotDue(a) {
		return nil
	}
	seen, err := r.LoadEventual(ctx)
	if err == nil {
		err = putAs(ctx, r, seen, a.Last)
	}
	return r.BestEffort(err)
}

// emptyBase finds a snapshot, takes its version from it, and folds what came after onto an account without money.
//
//	snapshot 3: 150.00      v4 +1.00      load "3" + 4..: 1.00
type emptyBase struct{ app.Snapshotter }

// Load implements app.SnapshotPolicy.
func (emptyBase) Load(ctx context.Context, r *app.Run) (app.State, uint64) {
	found, version := app.Snapshotter{}.Load(ctx, r)
	if version == 0 {
		return found, 0
	}
	empty, err := emptied(found)
	if err != nil {
		return found, version
	}
	return empty, version
}

// emptied returns the state of an account with nothing on it.
func emptied(s app.State) (app.State, error) {
	was, err := account.DecodeState(s.Snapshot())
	if err != nil {
		return nil, fmt.Errorf("controls: %w", err)
	}
	was.Balance = 0
	return app.Bank().Restore(was.Encode())
}

// mustSave takes a snapshot that can't be put for a command that has failed.
//
//	append v3 → ok      put snapshot 3 → no connection      answer: failed
type mustSave struct{ app.Snapshotter }

// Answered implements app.SnapshotPolicy.
func (mustSave) Answered(ctx context.Context, r *app.Run, a *app.Answer) error {
	if !r.SnapshotDue(a) {
		return nil
	}
	return r.SaveSnapshot(ctx, a.Last, a.State.Snapshot())
}

// putAs puts an account's state under a version of the caller's.
func putAs(ctx context.Context, r *app.Run, s app.State, label uint64) error {
	state, err := account.DecodeState(s.Snapshot())
	if err != nil {
		return fmt.Errorf("controls: %w", err)
	}
	state.Version = label
	return r.SaveSnapshot(ctx, label, state.Encode())
}
