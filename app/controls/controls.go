// Package controls holds the broken parts of the command loop: what real applications did wrong after a lost
// reply or a version conflict, and with snapshots. Each replaces exactly one part of package app.
package controls

import (
	"context"

	"github.com/eventproof/eventproof/app"
)

// The names of the parts, for assemblies.
const (
	RerunNewIDs     = "rerun-new-ids"     // CV-PG-17
	ReloadAndRefuse = "reload-and-refuse" // CV-PG-31
	TailOnly        = "tail-only"         // CV-PG-32
	BumpVersion     = "bump-version"      // CV-PG-16
	KeepPending     = "keep-pending"      // CV-PG-21
	LabelHigh       = "label-high"        // CV-SN-01
	LabelLow        = "label-low"         // CV-SN-02
	Speculative     = "speculative"       // CV-SN-03
	LateLabel       = "late-label"        // CV-SN-04
	FromCopy        = "from-copy"         // CV-SN-05
	EmptyBase       = "empty-base"        // CV-SN-07
	MustSave        = "must-save"         // CV-SN-08
)

// Parts returns the correct parts and the broken ones.
func Parts() *app.Parts {
	p := app.DefaultParts()
	p.AddRetry(RerunNewIDs, rerunNewIDs)
	p.AddRetry(ReloadAndRefuse, reloadAndRefuse)
	p.AddContinue(TailOnly, tailOnly)
	p.AddConflict(BumpVersion, bumpVersion)
	p.AddConflict(KeepPending, keepPending)
	p.AddSnapshots(LabelHigh, labelHigh{})
	p.AddSnapshots(LabelLow, labelLow{})
	p.AddSnapshots(Speculative, speculative{})
	p.AddSnapshots(LateLabel, lateLabel{})
	p.AddSnapshots(FromCopy, fromCopy{})
	p.AddSnapshots(EmptyBase, emptyBase{})
	p.AddSnapshots(MustSave, mustSave{})
	return p
}

// rerunNewIDs takes a lost reply for a failure and runs the whole command again: a new decision with new event
// ids under a new request token.
//
//	writer: append v2 (landed)  ×reply lost   load 1..2  append v3   → the command is executed twice
func rerunNewIDs(ctx context.Context, r *app.Run, _ *app.Write) (app.Resolution, error) {
	r.MintToken()
	basis, err := r.Load(ctx)
	return app.Resolution{Basis: basis}, err
}

// reloadAndRefuse takes a lost reply for a version conflict: it decides again on the state that holds its own
// event.
//
//	balance 100.00, withdraw 60.00
//	writer: append v2 (landed)  ×reply lost   load 1..2: 40.00   answer: insufficient funds
func reloadAndRefuse(ctx context.Context, r *app.Run, _ *app.Write) (app.Resolution, error) {
	basis, err := r.Load(ctx)
	return app.Resolution{Basis: basis}, err
}

// tailOnly continues a command but looks for it only among the events after the snapshot, and asks for it under
// a token of its own.
//
//	first:  append v2 (landed)  ×killed
//	others:                      v3  v4  v5, snapshot at 5
//	next:                                     load snapshot 5 + nothing: not found   append v6
func tailOnly(ctx context.Context, r *app.Run) (*app.Answer, *app.Basis, error) {
	r.MintToken()
	basis, err := r.Load(ctx)
	if err != nil {
		return nil, nil, err
	}
	answer, err := r.FindInTail(basis)
	return answer, basis, err
}
