package controls

import (
	"maps"

	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/postgres"
)

// snapshotSwaps are what the command loop does wrong with snapshots. The parts are those of package app/controls.
func snapshotSwaps() []swap {
	// What follows from deciding on a state that never was, where the script does not force it.
	wrongState := map[string]string{
		noOverdraft:       "the wrong state shows more money than there is",
		truthfulRejection: "the wrong state shows less money than there is",
	}
	return []swap{
		{
			// v3 is put as "4"; v4 is blind; the next load takes "4" and reads from 5 on: it decides without v4
			// and is answered without it.
			base: "advisory-lock", id: "cv-sn-01", part: "snapshot",
			bug:  "puts a snapshot under a version one too high, which hides the next event",
			must: []string{snapshotEquals, validDecision, truthfulAnswers},
			may: also(wrongState, map[string]string{
				progress: "while the log is shorter than the label every append expects too much and is refused",
			}),
			workloads: []string{"bank"},
			replace:   func(a *targets.Assembly, _ *postgres.Parts) { a.Snapshot = "label-high" },
		},
		{
			// v3, a deposit of 50.00, is put as "2" with 150.00; the next load adds v3 again: 200.00, and grants
			// a withdrawal of 180.00.
			base: "advisory-lock", id: "cv-sn-02", part: "snapshot",
			bug:       "puts a snapshot under a version one too low, so that its last event is applied again",
			must:      []string{snapshotEquals, validDecision, truthfulAnswers, noOverdraft},
			may:       map[string]string{truthfulRejection: wrongState[truthfulRejection]},
			workloads: []string{"bank"},
			replace:   func(a *targets.Assembly, _ *postgres.Parts) { a.Snapshot = "label-low" },
		},
		{
			// The first writer decides v3 on v2 and puts its snapshot; v3 is taken by another; its append meets a
			// conflict and becomes v4. The next load begins from the snapshot of a v3 that never was.
			base: "advisory-lock", id: "cv-sn-03", part: "snapshot",
			bug:       "puts a snapshot of the state that a decision would lead to, before the append is confirmed",
			must:      []string{snapshotEquals, validDecision, truthfulAnswers},
			may:       also(wrongState, map[string]string{progress: "a snapshot ahead of a log that never gets there makes every append expect too much"}),
			workloads: []string{"bank"},
			replace:   func(a *targets.Assembly, _ *postgres.Parts) { a.Snapshot = "speculative" },
		},
		{
			// The state at v3 is in hand; v4 comes; the head is asked for and the state put as "4". The next load
			// begins from it without v4.
			base: "advisory-lock", id: "cv-sn-04", part: "snapshot",
			bug:       "takes the state of a snapshot when the command is answered and its version when it is put",
			must:      []string{snapshotEquals, validDecision, truthfulAnswers},
			may:       wrongState,
			workloads: []string{"bank"},
			replace:   func(a *targets.Assembly, _ *postgres.Parts) { a.Snapshot = "late-label" },
		},
		{
			// Snapshot 3 holds 150.00, v4 adds 1.00: the next deposit is decided on 1.00 and answered with it. What
			// is decided on a load from a snapshot is not the full replay.
			base: "advisory-lock", id: "cv-sn-07", part: "snapshot",
			bug:  "takes the version from a snapshot and folds what came after it onto an empty account",
			must: []string{snapshotEquals, validDecision, truthfulAnswers},
			may: map[string]string{
				noOverdraft:       "an account that has been in debt is taken for empty",
				truthfulRejection: wrongState[truthfulRejection],
			},
			workloads: []string{"bank"},
			replace:   func(a *targets.Assembly, _ *postgres.Parts) { a.Snapshot = "empty-base" },
		},
		{
			// The append is acknowledged, the connection breaks, the put of the snapshot has no answer, and the
			// caller is told that the command has failed.
			base: "advisory-lock", id: "cv-sn-08", part: "snapshot",
			bug:     "fails a command whose event is stored because its snapshot could not be put",
			must:    []string{failedMeansAbsent},
			replace: func(a *targets.Assembly, _ *postgres.Parts) { a.Snapshot = "must-save" },
		},
	}
}

// also returns both maps in one.
func also(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}
