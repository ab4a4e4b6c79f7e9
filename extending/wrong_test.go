package extending_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/extending/shelf"
	"github.com/eventproof/eventproof/reports"
	"github.com/eventproof/eventproof/verdict"
)

// wrong is a variant of the shelf with one bug, and what has to notice.
type wrong struct {
	bug      string
	build    func() parts
	scenario string
	// must name the bug: the rules that a user of the store would expect to fire, all of them.
	must string
	// may are consequences; everything else must stay silent.
	may string
}

// What follows from other bugs, by the reason.
const (
	// The log is not what its writers decided on, so what they answered and what they kept does not fit it.
	otherBasis = "valid-decision no-overdraft snapshot-equals-fold truthful-answers truthful-rejections "
	// Evidence that rests on a slot being taken once misleads where a slot is no slot.
	misledEvidence = "honest-outcomes failed-means-absent "
	// Two events at one version: there is no one order that a view could have followed.
	twoAtOnce = "immutable-events position-order in-order-projection atomic-checkpoint projection-equals-fold "
	// One event at two places was acknowledged at one of them, and the other one has no interval of its own.
	twoPlaces = "no-lost-ack no-duplicate-projection read-is-prefix linearizable-stream position-order immutable-events"
	// A view that is wrong is wrong at every look.
	wrongView = "atomic-checkpoint projection-equals-fold "
)

const (
	bank    = "crowd-bank.yaml"
	auction = "crowd-auction.yaml"
)

func wrongStores() []wrong {
	return []wrong{
		// The write side.
		{"checks the head before its lock", checkThenAct, bank, "gapless-versions optimistic-concurrency",
			otherBasis + misledEvidence + twoAtOnce + "read-is-prefix no-lost-ack linearizable-stream atomic-batch command-once"},
		{"does not look at the expected version", noVersionCheck, bank, "optimistic-concurrency valid-decision",
			otherBasis + misledEvidence + "no-phantom-event command-once"},
		{"refuses only what is ahead", onlyAheadIsRefused, bank, "optimistic-concurrency valid-decision",
			otherBasis + misledEvidence + "no-phantom-event command-once"},
		{"answers before it writes", ackBeforeWrite, bank, "read-is-prefix",
			otherBasis + "linearizable-stream no-lost-ack"},
		{"loses every fortieth append", lostBuffer, bank, "no-lost-ack",
			otherBasis + "immutable-events optimistic-concurrency read-is-prefix"},
		{"loses blind appends", losesBlindAppends, bank, "no-lost-ack", "immutable-events"},
		{"executes a repeated request again", forgetsRequests, bank, "command-once", twoPlaces},
		{"remembers three requests", shortMemory, bank, "command-once", twoPlaces},
		{"answers a repeated request with the head", replayTellsTheHead, bank, "no-lost-ack", "immutable-events"},
		{"notes a request before it is executed", noteBeforeAppend, bank, "no-lost-ack",
			otherBasis + "immutable-events optimistic-concurrency honest-outcomes"},
		{"takes two equal appends for one", dedupeByContent, bank, "no-lost-ack", otherBasis + "immutable-events command-once"},
		{"calls a late time-out a failure", timeoutMeansFailed, bank, "honest-outcomes failed-means-absent", ""},
		{"goes on after it has said that it failed", lateAfterNotSent, bank, "honest-outcomes failed-means-absent", "command-once"},
		{"calls a busy lock a conflict", falseConflicts, bank, "optimistic-concurrency", "truthful-rejections"},
		{"calls what is legal a conflict", refuses(eventstore.VersionConflict), bank, "optimistic-concurrency", "truthful-rejections"},
		{"calls what is legal ahead", refuses(eventstore.ExpectedAhead), bank, "optimistic-concurrency", "truthful-rejections"},
		{"caches heads", cachedHeads, bank, "optimistic-concurrency", "truthful-rejections"},
		{"makes event ids of its own", ownIDs, bank, "no-phantom-event no-lost-ack", "immutable-events command-once"},
		{"burns versions", burnsVersions, bank, "gapless-versions",
			otherBasis + misledEvidence + "no-phantom-event optimistic-concurrency"},
		{"writes JSON its own way", reordersJSON, bank, "no-phantom-event", "no-lost-ack"},
		{"tells wrong positions", wrongPositions, bank, "no-lost-ack", ""},
		{"writes on another stream", wrongStream, bank, "no-phantom-event", otherBasis + "no-lost-ack immutable-events atomic-batch"},
		{"lets the last writer win", lastWriterWins, bank, "gapless-versions optimistic-concurrency immutable-events",
			otherBasis + misledEvidence + twoAtOnce + "read-is-prefix no-lost-ack no-phantom-event linearizable-stream"},
		{"tears a batch", tornBatch, "torn-batch.yaml", "atomic-batch", ""},

		// Reads and snapshots.
		{"reads from a copy", readsFromCopy, bank, "read-is-prefix", "truthful-rejections"},
		{"reads bids from a copy", readsFromCopy, auction, "read-is-prefix", "truthful-rejections monotonic-bids idempotent-bids close-is-final"},
		{"reads one page", onePageOnly, bank, "read-is-prefix", otherBasis},
		{"reads by prefix", prefixRead, bank, "read-is-prefix", otherBasis + "immutable-events"},
		{"reads an event twice", readsTwice, bank, "read-is-prefix", otherBasis},
		{"reads from the next version", readsFromTheNext, bank, "read-is-prefix", otherBasis + misledEvidence},
		{"mixes up snapshots", collidingSnapshots, bank, "valid-decision", otherBasis},
		{"lets snapshots rot", rottenSnapshots, bank, "valid-decision", otherBasis},

		// The feed.
		{"takes the cursor late", cursorReadLate, bank, "no-skipped-checkpoint", wrongView + "in-order-projection"},
		{"cuts the page and not the cursor", pageCutByOne, bank, "no-skipped-checkpoint", wrongView + "in-order-projection"},
		{"begins at the cursor", inclusive, bank, "no-duplicate-projection", wrongView},
		{"delivers the newest first", newestFirst, bank, "in-order-projection", wrongView},
		{"uses a buffer again", reusedBuffer, bank, "projection-equals-fold", wrongView},
		{"leaves out what it does not know", unknownType, bank, "no-skipped-checkpoint", wrongView + "in-order-projection"},
		// Both draw positions before they commit, and the shelf's promises have real-time order among them.
		{"looks too early what is in flight", looksTooEarly, bank, "no-skipped-checkpoint",
			wrongView + "position-order in-order-projection monotonic-checkpoint no-duplicate-projection"},
		{"knows no gaps", knowsNoGaps, bank, "no-skipped-checkpoint", wrongView + "position-order in-order-projection"},
		{"rewinds", rewinds, bank, "no-duplicate-projection", wrongView + "monotonic-checkpoint in-order-projection"},

		// The projection.
		{"applies without compare-and-set", noCompareAndSet, bank, "no-duplicate-projection",
			wrongView + "monotonic-checkpoint in-order-projection"},
		{"hides that behind a unique key of the ledger", uniqueLedger, bank, "projection-equals-fold",
			wrongView + "monotonic-checkpoint in-order-projection"},
		{"loses updates between two projectors", lostUpdate, bank, "projection-equals-fold",
			wrongView + "no-duplicate-projection monotonic-checkpoint in-order-projection"},
		{"moves the checkpoint in a unit of its own, later", checkpointBehind, "det-cv-pr-02", "no-duplicate-projection atomic-checkpoint", wrongView},
		{"moves the checkpoint in a unit of its own, before", checkpointAhead, "between-two-units.yaml", "no-skipped-checkpoint atomic-checkpoint", wrongView},
		{"writes effects after the checkpoint", effectsAfter, bank, "atomic-checkpoint", "no-skipped-checkpoint"},
		{"caches rows", staleRowCache, bank, "projection-equals-fold", wrongView},
		{"filters too much", filtersTooMuch, bank, "projection-equals-fold", wrongView + "no-skipped-checkpoint in-order-projection"},
		{"skips and calls it filtered", passes("filtered"), bank, "projection-equals-fold no-skipped-checkpoint", wrongView + "in-order-projection"},
		{"skips and calls it superseded", passes("superseded"), bank, "projection-equals-fold", wrongView + "no-skipped-checkpoint in-order-projection"},
		{"skips and calls it parked", passes("parked"), bank, "projection-equals-fold no-skipped-checkpoint", wrongView + "in-order-projection"},
		{"updates rows that are not there", updateWithoutInsert, bank, "projection-equals-fold", wrongView + "in-order-projection"},
		{"keeps a row's version one behind", rowVersionBehind, bank, "projection-equals-fold", wrongView},
		{"cuts keys", cutKeys, bank, "projection-equals-fold", wrongView + "in-order-projection complete-history"},
		{"stores an old cursor", storesOldCursor, bank, "no-duplicate-projection", wrongView},
		{"starts over at a claim", claimStartsOver, bank, "monotonic-checkpoint no-duplicate-projection", wrongView},
		{"starts counting at a claim", claimStartsCounting, bank, "monotonic-checkpoint",
			// What was compared may be the number of another claim's checkpoint.
			wrongView + "no-skipped-checkpoint no-duplicate-projection in-order-projection complete-history"},
		{"rebuilds on old rows", claimRebuildsOnOldRows, bank, "projection-equals-fold", wrongView},
		{"skips what it can't apply", skipsPoison, bank, "no-skipped-checkpoint", wrongView + "in-order-projection"},
		{"writes rows later", rowsLater, bank, "projection-equals-fold", wrongView + "in-order-projection"},
		{"forgets ledger rows", forgetsLedger, bank, "complete-history", "no-skipped-checkpoint in-order-projection"},
		{"ledger with other versions", ledger(func(e *shelf.Effect) { e.Version += 3 }), bank, "no-phantom-event", "complete-history"},
		{"ledger with another stream", ledger(func(e *shelf.Effect) { e.Stream = "account-1" }), bank, "no-phantom-event", "complete-history"},
		{"drops closed auctions", dropsClosed, auction, "projection-equals-fold", wrongView},
	}
}

// missing returns the rules that should have fired and did not.
func (w wrong) missing(trial reports.Trial) []string {
	fired := with(trial, verdict.Violated, verdict.Error)
	return slices.DeleteFunc(strings.Fields(w.must), func(slug string) bool { return slices.Contains(fired, slug) })
}

// tries is how many seeds a bug that needs luck may take.
const tries = 4

func TestEachWrongStoreIsCaughtByTheRuleThatNamesItsBug(t *testing.T) {
	caught(t, wrongStores(), tries)
}

// caught runs every store and judges the rules by it.
func caught(t *testing.T, all []wrong, tries uint64) {
	t.Helper()
	jobs := make([]job, len(all))
	for i, w := range all {
		name := strings.NewReplacer(" ", "-", ",", "", "'", "").Replace(w.bug)
		jobs[i] = job{variant(name, w.build), w.scenario, 1, time.Second}
	}
	together(t, jobs, func(t *testing.T, i int, trial reports.Trial) {
		w, j := all[i], jobs[i]
		for {
			if trial.Problem != "" {
				t.Logf("seed %d: %s", j.seed, trial.Problem) // a wrong store may end a trial early; it is judged all the same
			}
			allowed := strings.Fields(w.must + " " + w.may)
			for _, slug := range with(trial, verdict.Violated, verdict.Error) {
				if !slices.Contains(allowed, slug) {
					t.Error("nothing is wrong with this:", tell(trial, slug))
				}
			}
			missing := w.missing(trial)
			if len(missing) == 0 {
				return
			}
			if j.seed == tries {
				t.Fatalf("not caught by %v; fired: %v", missing, with(trial, verdict.Violated, verdict.Error))
			}
			j.seed++
			trial = j.run(t.Context(), scenario(t, j.scenario), t.TempDir())
		}
	})
}

// A store that answers nobody any more is no store that makes progress.
func TestAStoreThatHasStoppedIsNotSaidToMakeProgress(t *testing.T) {
	together(t, []job{{variant("throttles-for-good", throttlesForGood), bank, 1, 0}}, func(t *testing.T, _ int, trial reports.Trial) {
		if slices.Contains(with(trial, verdict.Holds), "progress") {
			t.Errorf("%s; commands: %+v", tell(trial, "progress"), trial.Metrics.Commands)
		}
	})
}
