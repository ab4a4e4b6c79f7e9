package invariants

import (
	"github.com/eventproof/eventproof/eventstore"
)

// The opportunities of feeds and projections: the temptation, counted from the load.
var (
	overlappingAppends = Opportunity{"overlapping_appends",
		"pairs of appends on different streams, both in the log, that were in flight at the same time"}
	overlappingAppendsPolled = Opportunity{"overlapping_appends_polled",
		"pairs of overlapping appends on different streams with a poll that began after one was answered and before the other was"}
	overlappingOnStream = Opportunity{"overlapping_appends_one_stream",
		"pairs of appends on one stream, both in the log, that were in flight at the same time"}
	heldTransactions = Opportunity{"held_transactions",
		"appends that stayed open for the whole of a poll"}
	burnedPositions = Opportunity{"burned_positions",
		"positions below an event that a checkpoint claims and that no event has: drawn, then rolled back or lost in a race"}
	unknownLanded = Opportunity{"unknown_landed",
		"writes that were never acknowledged and whose events a checkpoint claims"}
	restartsUnhandled = Opportunity{"restarts_with_unhandled_batch",
		"projectors that died with a page in hand and were started again"}
	eventsReadAgain = Opportunity{"events_read_again",
		"events of the view that a feed delivered to a projection although it had delivered them before"}
	killsBatchOpen = Opportunity{"kills_with_batch_open",
		"projectors that died between the delivery of a page and the answer to its application"}
	unknownApplies = Opportunity{"unknown_applies",
		"applications of a page that ended unknown"}
	streamsInBatch = Opportunity{"streams_in_one_batch",
		"view rows that one transaction moved by two or more events"}
	streamsAcrossOwners = Opportunity{"streams_across_owners",
		"view rows whose events were applied under more than one owner epoch"}
	checkpointMoves = Opportunity{"checkpoint_moves",
		"durable values of a checkpoint that follow, by its counter, one of the same generation that claimed an event"}
	checkpointOwners = Opportunity{"checkpoint_owner_changes",
		"moves of a checkpoint under another owner epoch than the value before"}
	observationsJudged = Opportunity{"observations",
		"atomic observations of checkpoint and view that were judged, after a page had been delivered"}
	rowsCompared = Opportunity{"view_rows_compared",
		"final view rows compared with the fold of the log"}
	effectsFolded = Opportunity{"events_projected",
		"events of the log that the compared rows are the fold of"}
	pollsAfterHeal = Opportunity{"polls_after_heal",
		"polls that began after the last fault was lifted"}
	callsAfterHeal = Opportunity{"calls_after_heal",
		"calls that ended after the last fault was lifted"}
)

// projectionRules are the rules of feeds and projections, root first: position and skip before fold.
func projectionRules() []Rule {
	return []Rule{
		{
			ID: "INV-POSITION", Slug: "position-order", Whole: true,
			Title:         "Positions are distinct, follow the versions of each stream and, where promised, real time",
			Promises:      []eventstore.Promise{eventstore.StreamOrder},
			NeedsLog:      true,
			Opportunities: []Opportunity{overlappingAppends, overlappingOnStream, overlappingAppendsPolled},
			Check:         checkPositionOrder,
		},
		{
			ID: "INV-NOSKIP", Slug: "no-skipped-checkpoint", Whole: true,
			Title:         "A checkpoint claims no event that was not handled by then",
			Promises:      []eventstore.Promise{eventstore.CompleteFeed},
			NeedsLog:      true,
			Opportunities: []Opportunity{overlappingAppendsPolled, burnedPositions, heldTransactions, unknownLanded, restartsUnhandled},
			Check:         checkNoSkip,
		},
		{
			ID: "INV-NODUP", Slug: "no-duplicate-projection", Whole: true,
			Title:         "An event is applied to a view row at most once",
			NeedsLog:      true,
			Opportunities: []Opportunity{eventsReadAgain, restartsUnhandled, unknownApplies},
			Check:         checkNoDuplicate,
		},
		{
			ID: "INV-ORDER", Slug: "in-order-projection", Whole: true,
			Title:         "A view row applies the events of its stream in version order, none left out",
			NeedsLog:      true,
			Opportunities: []Opportunity{streamsInBatch, streamsAcrossOwners},
			Check:         checkInOrder,
		},
		{
			ID: "INV-CKPTMONO", Slug: "monotonic-checkpoint", Whole: true,
			Title:         "What a checkpoint claims never shrinks within a generation",
			NeedsLog:      true,
			Opportunities: []Opportunity{checkpointMoves, checkpointOwners},
			Check:         checkMonotonicCheckpoint,
		},
		{
			ID: "INV-CKPTATOM", Slug: "atomic-checkpoint", Whole: true,
			Title:         "Whenever both are seen at once, the view is the fold of what its checkpoint claims",
			NeedsLog:      true,
			Opportunities: []Opportunity{observationsJudged, killsBatchOpen},
			Check:         checkAtomicCheckpoint,
		},
		{
			ID: "INV-FOLDEQ", Slug: "projection-equals-fold", Whole: true,
			Title:         "The final view is the fold of the log",
			NeedsLog:      true,
			Opportunities: []Opportunity{rowsCompared, effectsFolded},
			Check:         checkFoldEquals,
		},
		{
			ID: "INV-PROGRESS", Slug: "progress", Whole: true, Native: true,
			Title:         "After the faults, projections reach the end of the log and every stream serves its callers",
			NeedsLog:      true,
			Opportunities: []Opportunity{pollsAfterHeal, callsAfterHeal},
			Check:         checkProgress,
		},
	}
}
