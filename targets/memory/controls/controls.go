// Package controls holds the broken assemblies on memory/reference. Each has exactly one part swapped, and says
// which invariants must notice, which may fire as a consequence, and why; everything else must not. The lists
// come from the schedules in the comments, never from a run.
package controls

import (
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/memory"
)

// Names of the swapped parts. Those of the command loop are registered in app/controls.
const (
	losesEveryThird = "loses-every-third"
	checkThenInsert = "check-then-insert"
	laggingCopy     = "lagging-copy"
	naiveReader     = "naive-poll"
	rerunNewIDs     = "rerun-new-ids"
	refuseReloaded  = "reload-and-refuse"
	searchTailOnly  = "tail-only"
	checkpointFirst = "checkpoint-then-effect"
	effectFirst     = "effect-then-checkpoint"
	withoutCompare  = "batch-without-compare"
)

// Targets returns the controls.
func Targets() []targets.Target {
	return append([]targets.Target{
		losesAcknowledged(), versionCheckOutside("cv-mem-02"), versionCheckOutside("cv-pg-14"), laggingReads(),
		naivePoll(), rerun(), reloadAndRefuse(), tailOnly(),
		checkpointBeforeEffect(), effectThenCheckpoint(), batchWithoutCompare(),
	}, loopControls()...)
}

// swap makes a control of the reference: its assembly with one part renamed, its store with that part replaced.
func swap(c targets.Control, name string, parts func() memory.Parts) targets.Target {
	t := memory.Base()
	t.Base, t.Variant = t.Variant, t.Variant+"~"+c.ID
	t.Summary, t.Control = c.Bug, &c
	switch c.Part {
	case "append":
		t.Assembly.Append = name
	case "read":
		t.Assembly.Append += "+" + name
	case "reader":
		t.Assembly.Reader = name
	case "projection":
		t.Assembly.Projection = name
	case "retry":
		t.Assembly.Retry = name
	case "continue":
		t.Assembly.Continue = name
	case "conflict":
		t.Assembly.Conflict = name
	case "snapshot":
		t.Assembly.Snapshot = name
	default:
		panic("memory controls: no part " + c.Part)
	}
	if parts == nil {
		parts = memory.Reference
	}
	t.Open = memory.Open(parts)
	return t
}

// The controls of the command loop. Their parts are those of package app; the store is the correct one.

func rerun() targets.Target {
	return swap(targets.Control{
		ID: "cv-pg-17", Part: "retry",
		Bug:     "takes a lost reply for a failure and runs the whole command again with new event ids and a new request token",
		Must:    []string{"command-once"},
		May:     map[string]string{"failed-means-absent": "when there is no money left for the second run it is refused, although the first has landed"},
		Scripts: []string{"det-cv-pg-17"},
	}, rerunNewIDs, nil)
}

func reloadAndRefuse() targets.Target {
	t := swap(targets.Control{
		ID: "cv-pg-31", Part: "retry",
		Bug:     "after a lost reply decides again on the state that holds its own withdrawal, and answers insufficient funds",
		Must:    []string{"failed-means-absent"},
		Scripts: []string{"det-cv-pg-31"},
	}, refuseReloaded, nil)
	t.Workloads = []string{"bank"}
	return t
}

func tailOnly() targets.Target {
	t := swap(targets.Control{
		ID: "cv-pg-32", Part: "continue",
		Bug:     "continues a command but looks for it only in the tail after the snapshot, and asks under a new request token",
		Must:    []string{"command-once"},
		May:     map[string]string{"failed-means-absent": "when there is no money left for the second run it is refused, although the first has landed"},
		Scripts: []string{"det-cv-pg-32"},
	}, searchTailOnly, nil)
	t.Workloads = []string{"bank"}
	return t
}
