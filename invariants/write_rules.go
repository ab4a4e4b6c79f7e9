package invariants

import (
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/invariants/oracle"
)

// The opportunities of the write side: the temptation, counted from the load.
var (
	oppRacedAcks = Opportunity{"raced_acks",
		"acknowledged writes that were in flight together with another write of the stream"}
	oppRacedDecisions = Opportunity{"raced_decisions",
		"decisions made while another write of the stream was in flight"}
	oppEqualExpected = Opportunity{"equal_expected_overlaps",
		"writes in flight together with another one of the same stream and expected version"}
	oppLanded = Opportunity{"unknown_tries_landed",
		"tries that ended unknown and took effect, told by the fault record"}
	oppNotLanded = Opportunity{"unknown_tries_not_landed",
		"tries that ended unknown and took no effect, told by the fault record"}
	oppUnknown   = Opportunity{"unknown_tries", "tries that ended unknown"}
	oppRetries   = Opportunity{"blind_retries", "tries of a write after one that may have landed"}
	oppContinued = Opportunity{"continued_commands",
		"calls that continued a command for which another call had sent a write"}
	oppKills      = Opportunity{"kills_with_tries_open", "processes that died with a try open"}
	oppStoreKills = Opportunity{"store_kills", "kills of the store's server"}
	oppFailed     = Opportunity{"failed_writes", "writes all of whose tries were reported as failed"}
	oppNearLimit  = Opportunity{"withdrawals_near_limit",
		"withdrawals that left less than they took: the same one again would be refused"}
	oppFundsRefusals = Opportunity{"refusals_for_funds", "withdrawals refused for insufficient funds"}
	oppRefusals      = Opportunity{"refusals", "commands refused by a decision or for load"}
	oppExhausted     = Opportunity{"exhausted", "commands that used up their decisions"}
	oppAnswers       = Opportunity{"answers", "ok answers that returned a state"}
	oppReplayed      = Opportunity{"replayed_answers", "ok answers from an earlier execution that returned a state"}
	oppConflicts     = Opportunity{"conflicts", "version conflicts that were reported"}
	oppSelfConflicts = Opportunity{"self_conflicts", "conflicts with an event of the own command"}
	oppReadsBeside   = Opportunity{"reads_beside_writes", "reads that overlapped a write of the stream"}
	oppPaged         = Opportunity{"reads_of_several_pages", "reads that took more than one page"}
	oppRepeated      = Opportunity{"repeated_observations", "reads and answers that showed versions which the audit read again"}
	oppBatches       = Opportunity{"batches", "writes of several events"}
	oppInterrupted   = Opportunity{"batches_interrupted", "writes of several events with a try that ended unknown"}
	oppBatchReads    = Opportunity{"reads_beside_batches", "strong reads that ended inside or at a batch that was in flight"}
	oppUpgrades      = Opportunity{"upgrades", "unknown writes settled by evidence"}
	oppRepliesCut    = Opportunity{"replies_cut", "tries whose reply a fault cut after the request was forwarded"}
	oppRepliesHeld   = Opportunity{"replies_held", "tries whose reply a fault held back"}
	oppSnapshots     = Opportunity{"snapshots", "snapshots that were kept"}
	oppLoads         = Opportunity{"loads_from_snapshots", "decisions on a state loaded from a snapshot"}

	oppOverlappingBids = Opportunity{"overlapping_bids", "bids in flight together with another write of the auction"}
	oppEqualBids       = Opportunity{"equal_amounts", "bids of the same amount as an earlier bid with another id"}
	oppHighBidsShown   = Opportunity{"high_bids_shown", "answers that showed the high bid"}
	oppReplays         = Opportunity{"replays", "bids sent again with the same id and body"}
	oppAlteredBids     = Opportunity{"altered_bids", "bids sent again with the same id and another body"}
	oppClosesWithBids  = Opportunity{"closes_with_bids_in_flight", "closes in flight together with another write of the auction"}
	oppBidsAfterClose  = Opportunity{"bids_after_close", "bids that began after an answer had shown the auction as closed"}

	oppAttempts     = Opportunity{"attempts", "attempts of writes in the history"}
	oppProcesses    = Opportunity{"processes", "processes that wrote the history"}
	oppRequirements = Opportunity{"requirements", "invariants that the scenario requires"}
	oppFaults       = Opportunity{"faults_that_bit", "planned faults that were observed to bite"}
)

// writeRules are the rules of the write side, root first.
func writeRules() []Rule {
	return []Rule{
		{
			ID: "INV-NOLOSTACK", Slug: "no-lost-ack", NeedsLog: true, Native: true,
			Title:         "Every acknowledged event is in the log, at the place it was acknowledged at",
			Opportunities: []Opportunity{oppRacedAcks, oppLanded, oppNotLanded, oppRetries, oppContinued, oppKills, oppStoreKills},
			Check:         checkNoLostAck,
		},
		{
			ID: "INV-NOPHANTOM", Slug: "no-phantom-event", NeedsLog: true, Native: true,
			Title:         "Every event of the log was written by exactly one recorded write, as it stands there",
			Opportunities: []Opportunity{oppRacedAcks, oppUnknown, oppFailed},
			Check:         checkNoPhantom,
		},
		{
			ID: "INV-GAPLESS", Slug: "gapless-versions", NeedsLog: true,
			Title:         "The versions of every stream are 1 to n, once each",
			Opportunities: []Opportunity{oppEqualExpected},
			Check:         checkGapless,
		},
		{
			ID: "INV-IMMUTABLE", Slug: "immutable-events", NeedsLog: true,
			Title:         "Whoever looks at a version of a stream sees the same event",
			Opportunities: []Opportunity{oppRepeated, oppPaged},
			Check:         checkImmutable,
		},
		{
			ID: "INV-BATCH", Slug: "atomic-batch", NeedsLog: true,
			Title:         "The events of one write are in the log all or none, and are never seen in part",
			Promises:      []eventstore.Promise{eventstore.AtomicBatch},
			Opportunities: []Opportunity{oppBatches, oppInterrupted, oppBatchReads},
			Check:         checkBatch,
		},
		{
			ID: "INV-OCC", Slug: "optimistic-concurrency", NeedsLog: true,
			Title:         "One expected version is won once, and a conflict is reported only where there is one",
			Promises:      []eventstore.Promise{eventstore.OptimisticConcurrency},
			Opportunities: []Opportunity{oppEqualExpected, oppConflicts, oppSelfConflicts},
			Check:         checkOCC,
		},
		{
			ID: "INV-LINEAR", Slug: "linearizable-stream", NeedsLog: true,
			Title:         "Versions follow real time: what was acknowledged before stands before",
			Opportunities: []Opportunity{oppRacedAcks},
			Check:         checkLinear,
		},
		{
			ID: "INV-PREFIX", Slug: "read-is-prefix", NeedsLog: true,
			Title:         "Every read shows a prefix of the log, a strong one all that was acknowledged before it",
			Opportunities: []Opportunity{oppReadsBeside, oppPaged},
			Check:         checkPrefix,
		},
		{
			ID: "INV-CLASSIFY", Slug: "honest-outcomes", NeedsLog: true, Native: true,
			Title:         "What is reported as failed had no effect, and only evidence settles what is unknown",
			Opportunities: []Opportunity{oppUnknown, oppFailed, oppUpgrades, oppRepliesCut, oppRepliesHeld},
			Check:         checkHonest,
		},
		{
			ID: "INV-FAILCLEAN", Slug: "failed-means-absent", NeedsLog: true, Native: true,
			Title:         "What was answered as failed or refused has left nothing behind",
			Opportunities: []Opportunity{oppLanded, oppNotLanded, oppRetries, oppContinued, oppKills, oppFailed},
			Check:         checkFailClean,
		},
		{
			ID: "INV-ONCE", Slug: "command-once", NeedsLog: true, Native: true,
			Title:         "A command takes effect at most once",
			Opportunities: []Opportunity{oppLanded, oppNotLanded, oppRetries, oppContinued, oppKills},
			Check:         checkOnce,
		},
		{
			ID: "INV-DECISION", Slug: "valid-decision", NeedsLog: true,
			Title:         "Every write follows from the state it was decided on",
			Opportunities: []Opportunity{oppRacedDecisions, oppNearLimit},
			Check:         checkDecision,
		},
		{
			ID: "INV-OVERDRAFT", Slug: "no-overdraft", NeedsLog: true, Workload: oracle.Bank,
			Title:         "No prefix of an account's log folds to a balance below zero",
			Opportunities: []Opportunity{oppRacedDecisions, oppNearLimit, oppFundsRefusals},
			Check:         checkOverdraft,
		},
		{
			ID: "INV-SNAPEQ", Slug: "snapshot-equals-fold", NeedsLog: true,
			Title:         "Every snapshot is what the log folds to at its version",
			Opportunities: []Opportunity{oppSnapshots, oppLoads},
			Check:         checkSnapshots,
		},
		{
			ID: "INV-OUTCOME", Slug: "truthful-rejections", NeedsLog: true, Native: true,
			Title:         "Every refusal was right, on a state that was current",
			Opportunities: []Opportunity{oppRacedDecisions, oppRefusals, oppExhausted},
			Check:         checkOutcome,
		},
		{
			ID: "INV-ANSWER", Slug: "truthful-answers", NeedsLog: true,
			Title:         "The state in every ok answer is what the log folds to at the answered version",
			Opportunities: []Opportunity{oppAnswers, oppReplayed},
			Check:         checkAnswers,
		},
	}
}
