package controls

import (
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/postgres"
)

// conflictSwaps are what the command loop does wrong after a version conflict. The parts are those of package
// app/controls.
func conflictSwaps() []swap {
	return []swap{
		{
			// 100.00 at v2, two withdrawals of 60.00 decided there. The second is v3 with 40.00 left; the first
			// meets a conflict and sends its old decision expecting 3: v4, answered with 40.00, folds to -20.00.
			base: "advisory-lock", id: "cv-pg-16", part: "conflict",
			bug:  "after a version conflict asks for the head and sends the old decision again at that version",
			must: []string{validDecision, truthfulAnswers, noOverdraft},
			may: map[string]string{
				snapshotEquals: "a snapshot of the answered state, which is not that of the log, is put",
				monotonicBids:  "a bid that was decided on an older high bid is accepted below the present one",
				closeFinal:     "a bid that was decided before the close is accepted after it",
				idempotentBids: "a bid that was accepted meanwhile is accepted again",
				progress:       "an answered state with a version too low makes snapshots that lie",
			},
			replace: func(a *targets.Assembly, _ *postgres.Parts) { a.Conflict = "bump-version" },
		},
		{
			// The first decision is +10; the conflict's reload decides +10 again and both are appended as one
			// batch: two payloads where deciding on that state gives one. The answered state holds both.
			base: "advisory-lock", id: "cv-pg-21", part: "conflict",
			bug:  "decides again after a version conflict and keeps the events of the first decision on the aggregate",
			must: []string{validDecision},
			may: map[string]string{
				noOverdraft:    "there is money for one of the two withdrawals only",
				monotonicBids:  "the bid decided on the older high bid is accepted besides",
				idempotentBids: "one bid is accepted twice",
			},
			replace: func(a *targets.Assembly, _ *postgres.Parts) { a.Conflict = "keep-pending" },
		},
	}
}
