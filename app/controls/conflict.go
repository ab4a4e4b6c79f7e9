package controls

import (
	"context"

	"github.com/eventproof/eventproof/app"
)

// bumpVersion takes a version conflict for a number that was too low: it asks for the head and sends what was decided
// before at that version.
//
//	balance 100.00 at v1, two withdrawals of 60.00
//	a: load 1..1: 100.00   append expecting 1 → conflict   head 2, append the same expecting 2 → ok, answer 40.00
//	b: load 1..1: 100.00   append v2 → ok, answer 40.00
func bumpVersion(ctx context.Context, r *app.Run, w *app.Write) (app.Resolution, error) {
	answer, now, err := r.Reload(ctx, w.Basis)
	if err != nil || answer != nil {
		return app.Resolution{Answer: answer}, err
	}
	return app.Resolution{Write: w.Moved(now.State.Version())}, nil
}

// keepPending decides again on the newer state, but with the same aggregate object: the events of the first decision are
// still in its list, and both are appended.
//
//	a: load 1..1   pending [+10]   append expecting 1 → conflict   load 2   pending [+10, +10]   append v3, v4
func keepPending(ctx context.Context, r *app.Run, w *app.Write) (app.Resolution, error) {
	answer, basis, err := r.Reload(ctx, w.Basis)
	if err != nil || answer != nil {
		return app.Resolution{Answer: answer}, err
	}
	d, now, err := r.Decide(basis)
	if err != nil || len(d.Events) == 0 {
		return app.Resolution{Basis: basis}, err
	}
	d.Events = append(w.Facts(), d.Events...)
	both, err := r.NewWrite(basis, d, now)
	return app.Resolution{Write: both}, err
}
