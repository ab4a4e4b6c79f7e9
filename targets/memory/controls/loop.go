package controls

import (
	"github.com/eventproof/eventproof/targets"
)

// What the command loop does wrong after a version conflict and with snapshots. The parts are those of package
// app/controls, which shows the schedules; the store is the correct one.

const (
	missesMoney = "the wrong state shows less money than there is"
	seesMoney   = "the wrong state shows more money than there is"
	lieIsKept   = "a snapshot of an answered state, which is not that of the log, is put"
	aheadOfLog  = "while the log is shorter than the snapshot every append expects too much and is refused"
)

// loopControls returns them.
func loopControls() []targets.Target {
	must := []string{"snapshot-equals-fold", "valid-decision", "truthful-answers"}
	all := []targets.Target{
		swap(targets.Control{
			ID: "cv-pg-16", Part: "conflict",
			Bug:     "after a version conflict asks for the head and sends the old decision again at that version",
			Must:    []string{"valid-decision", "truthful-answers", "no-overdraft"},
			May:     map[string]string{"snapshot-equals-fold": lieIsKept, "progress": aheadOfLog},
			Scripts: []string{"det-cv-pg-16"},
		}, "bump-version", nil),
		swap(targets.Control{
			ID: "cv-pg-21", Part: "conflict",
			Bug:     "decides again after a version conflict and keeps the events of the first decision on the aggregate",
			Must:    []string{"valid-decision"},
			May:     map[string]string{"no-overdraft": "there is money for one of the two withdrawals only"},
			Scripts: []string{"det-cv-pg-21"},
		}, "keep-pending", nil),
		swap(targets.Control{
			ID: "cv-sn-01", Part: "snapshot",
			Bug:     "puts a snapshot under a version one too high, which hides the next event",
			Must:    must,
			May:     map[string]string{"no-overdraft": seesMoney, "truthful-rejections": missesMoney, "progress": aheadOfLog},
			Scripts: []string{"det-cv-sn-01"},
		}, "label-high", nil),
		swap(targets.Control{
			ID: "cv-sn-02", Part: "snapshot",
			Bug:     "puts a snapshot under a version one too low, so that its last event is applied again",
			Must:    append([]string{"no-overdraft"}, must...),
			May:     map[string]string{"truthful-rejections": missesMoney},
			Scripts: []string{"det-cv-sn-02"},
		}, "label-low", nil),
		swap(targets.Control{
			ID: "cv-sn-03", Part: "snapshot",
			Bug:     "puts a snapshot of the state that a decision would lead to, before the append is confirmed",
			Must:    must,
			May:     map[string]string{"no-overdraft": seesMoney, "truthful-rejections": missesMoney, "progress": aheadOfLog},
			Scripts: []string{"det-cv-sn-03"},
		}, "speculative", nil),
		swap(targets.Control{
			ID: "cv-sn-04", Part: "snapshot",
			Bug:     "takes the state of a snapshot when the command is answered and its version when it is put",
			Must:    must,
			May:     map[string]string{"no-overdraft": seesMoney, "truthful-rejections": missesMoney},
			Scripts: []string{"det-cv-sn-04"},
		}, "late-label", nil),
		swap(targets.Control{
			ID: "cv-sn-05", Part: "snapshot",
			Bug:     "builds a snapshot from an eventual read and takes it for the state at the answered version",
			Must:    must,
			May:     map[string]string{"no-overdraft": seesMoney, "truthful-rejections": missesMoney},
			Scripts: []string{"det-cv-sn-05"},
		}, "from-copy", nil),
		swap(targets.Control{
			ID: "cv-sn-07", Part: "snapshot",
			Bug:     "takes the version from a snapshot and folds what came after it onto an empty account",
			Must:    must,
			May:     map[string]string{"no-overdraft": "an account that has been in debt is taken for empty", "truthful-rejections": missesMoney},
			Scripts: []string{"det-cv-sn-07"},
		}, "empty-base", nil),
	}
	for i := range all {
		all[i].Workloads = []string{"bank"}
	}
	return all
}
