// Package controls holds the broken assemblies of the Postgres target: each is a correct variant with exactly one
// part swapped, and says which invariants must notice and which may.
//
// The lists come from the schedule on paper (the comment of each control), never from a run.
package controls

import (
	"fmt"
	"slices"

	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/postgres"
)

// Slugs of the invariants named by the lists.
const (
	atomicBatch       = "atomic-batch"
	noPhantom         = "no-phantom-event"
	noLostAck         = "no-lost-ack"
	noOverdraft       = "no-overdraft"
	gapless           = "gapless-versions"
	failedMeansAbsent = "failed-means-absent"
	commandOnce       = "command-once"
	validDecision     = "valid-decision"
	truthfulRejection = "truthful-rejections"
	truthfulAnswers   = "truthful-answers"
	optimistic        = "optimistic-concurrency"
	linearizable      = "linearizable-stream"
	readIsPrefix      = "read-is-prefix"
	immutable         = "immutable-events"
	positionOrder     = "position-order"
	noSkip            = "no-skipped-checkpoint"
	noDuplicate       = "no-duplicate-projection"
	inOrder           = "in-order-projection"
	atomicCheckpoint  = "atomic-checkpoint"
	equalsFold        = "projection-equals-fold"
	progress          = "progress"
	honestOutcomes    = "honest-outcomes"
	snapshotEquals    = "snapshot-equals-fold"
	closeFinal        = "close-is-final"
	idempotentBids    = "idempotent-bids"
	monotonicBids     = "monotonic-bids"
)

// swap is one control: a base, and what is changed in it.
type swap struct {
	name    string // variant; "" = base~id
	base    string
	id      string
	part    string
	bug     string
	must    []string
	may     map[string]string
	replace func(*targets.Assembly, *postgres.Parts)
	// workloads that the bug is about; nil = those of the base
	workloads []string
}

// table lists the controls.
func table() []swap {
	return slices.Concat(firstSwaps(), commitSwaps(), batchSwaps(), expectedSwaps(), conflictSwaps(), snapshotSwaps())
}

// firstSwaps lists the first controls, one or two of a kind.
func firstSwaps() []swap {
	return []swap{
		{
			// T1 draws position 1 and waits; T2 draws 2 and commits; the reader sees 2, claims everything up to
			// it and never looks below again; T1 commits. Writers are not touched by it.
			name: "naive-poll", base: "xid-horizon", id: "cv-pg-01", part: "reader",
			bug:  "polls position > last although positions are drawn before they are visible",
			must: []string{noSkip, equalsFold},
			may: map[string]string{
				inOrder:          "a later event of the skipped event's stream is applied",
				atomicCheckpoint: "an observation after the skip shows a view without an event that the checkpoint claims",
			},
			replace: func(a *targets.Assembly, p *postgres.Parts) {
				a.Reader, p.Reader = "naive-poll", postgres.PositionReader{}
			},
		},
		{
			// 100.00, two withdrawals of 60.00 decided on version n: both find head n, both insert n+1, both are
			// acknowledged with 40.00, the fold is -20.00.
			name: "check-then-insert", base: "xid-horizon", id: "cv-pg-14", part: "append",
			bug:  "reads the head and then inserts; nothing makes a version unique",
			must: []string{optimistic, gapless, immutable, truthfulAnswers, noOverdraft},
			may: map[string]string{
				validDecision:     "a decision is taken on a head that holds two events of one version",
				truthfulRejection: "a refusal is decided on a state that misses one of the two events",
				linearizable:      "an append that waited takes a version that was taken before it began",
				readIsPrefix:      "reads before and after the second insert differ at the same version",
				inOrder:           "one version is applied twice to a row, or a lower one after a higher one",
				equalsFold:        "the view folds the two events in another order than their versions",
				positionOrder:     "a late insert at an old version follows later versions in position order",
				atomicCheckpoint:  "the view folds the two events in another order than their versions",
			},
			replace: func(a *targets.Assembly, p *postgres.Parts) {
				a.Append, p.Append = "check-then-insert", checkThenInsert{}
			},
		},
		{
			base: "advisory-lock", id: "cv-pg-17", part: "retry",
			bug:  "runs a command again with new event ids after the reply to its commit was lost",
			must: []string{commandOnce},
			replace: func(a *targets.Assembly, _ *postgres.Parts) {
				a.Retry = "rerun-new-ids"
			},
		},
		{
			// T1 writes its request row, which assigns its transaction id, and waits; T2 does the same, appends
			// version n+1 and commits; T1 reads head n+1 and appends n+2 under the lower id.
			base: "xid-horizon", id: "cv-pg-28", part: "append",
			bug:  "writes the request row before it reads the head, so that the transaction id is assigned too early",
			must: []string{positionOrder, inOrder},
			may: map[string]string{
				equalsFold: "a view that takes the last event's state or demands contiguous versions",
				progress:   "a view that demands contiguous versions does not get past the inversion",
			},
			replace: func(a *targets.Assembly, p *postgres.Parts) {
				a.Append, p.Append = "request-first", requestFirst{}
			},
		},
		{
			base: "advisory-lock", id: "cv-pg-31", part: "retry",
			bug:  "reloads after an unknown append, sees too little money because of its own withdrawal, and refuses",
			must: []string{failedMeansAbsent},
			replace: func(a *targets.Assembly, _ *postgres.Parts) {
				a.Retry = "reload-and-refuse"
			},
		},
		{
			base: "advisory-lock", id: "cv-pg-32", part: "continue",
			bug:  "continues a command after looking for its id only in the events behind the snapshot",
			must: []string{commandOnce},
			replace: func(a *targets.Assembly, _ *postgres.Parts) {
				a.Continue = "tail-only"
			},
		},
		{
			// A bid and its repeat: the repeat finds no row in the ledger and waits; the first try is accepted; the
			// update of the repeat changes no row, because the high bid is its own.
			base: "bid-conditional", id: "cv-pg-33", part: "auction",
			bug:  "looks for a bid in the ledger before the conditional update, and calls the repeat of the high bid stale",
			must: []string{idempotentBids},
			may: map[string]string{
				monotonicBids:     "the high bid that the refused repeat is shown is its own",
				failedMeansAbsent: "the first try was the same call's and had ended unknown",
				honestOutcomes:    "the refusal is taken as evidence against that first try",
			},
			replace: func(a *targets.Assembly, p *postgres.Parts) {
				a.Auction, p.Bidding = "ledger-first", ledgerFirst{}
			},
		},
		{
			// The checkpoint commits, the projector dies, the effect is never made; the restart begins behind it.
			base: "advisory-lock", id: "cv-pr-01", part: "projection",
			bug:  "commits the checkpoint in a transaction of its own before the effect",
			must: []string{noSkip, atomicCheckpoint, equalsFold},
			may: map[string]string{
				inOrder: "a later event of the lost event's stream is applied",
			},
			replace: func(a *targets.Assembly, p *postgres.Parts) {
				a.Projection, p.Projection = "checkpoint-then-effect", checkpointThenEffect{}
			},
		},
		{
			// The effect commits, the projector dies, the restart reads the event again.
			base: "advisory-lock", id: "cv-pr-02", part: "projection",
			bug:  "commits the effect, a change to what is there, and then the checkpoint in a transaction of its own",
			must: []string{noDuplicate, atomicCheckpoint, equalsFold},
			replace: func(a *targets.Assembly, p *postgres.Parts) {
				a.Projection, p.Projection = "effect-then-checkpoint", effectThenCheckpoint{}
			},
		},
		{
			// The commit is parked on the way, the batch is repeated and waits for its rows, the parked commit
			// arrives, the repeat finds the rows as the first left them and changes them again.
			base: "advisory-lock", id: "cv-pr-32", part: "projection",
			bug:  "repeats a batch after an unknown commit and moves the checkpoint without comparing it",
			must: []string{noDuplicate, equalsFold},
			may: map[string]string{
				atomicCheckpoint: "an observation after the repeat shows the effect twice",
			},
			replace: func(a *targets.Assembly, p *postgres.Parts) {
				a.Projection, p.Projection = "no-compare-and-set", noCompareAndSet{}
			},
		},
	}
}

// Targets returns the controls.
func Targets() []targets.Target {
	var all []targets.Target
	for _, s := range table() {
		all = append(all, s.target())
	}
	return all
}

func (s swap) target() targets.Target {
	t, parts, ok := postgres.Variant(s.base)
	if !ok {
		// The bases are constants of the table above; a test builds all of them.
		panic(fmt.Sprintf("controls: no variant %q", s.base))
	}
	t.Base, t.Variant, t.Summary = s.base, s.name, s.bug
	if t.Variant == "" {
		t.Variant = s.base + "~" + s.id
	}
	if s.workloads != nil {
		t.Workloads = s.workloads
	}
	may := s.may
	if may == nil {
		may = map[string]string{}
	}
	t.Control = &targets.Control{
		ID: s.id, Part: s.part, Bug: s.bug, Must: s.must, May: may, Scripts: []string{"det-" + s.id},
	}
	s.replace(&t.Assembly, &parts)
	return postgres.New(t, parts)
}
