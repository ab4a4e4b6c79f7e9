// Package controls holds the broken assemblies of the DynamoDB target: each is a correct variant with exactly one part
// swapped, and says which invariants must notice and which may.
//
// The lists come from the schedule on paper (the comment of each control), never from a run.
package controls

import (
	"fmt"

	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/dynamodb"
)

// Slugs of the invariants named by the lists.
const (
	noLostAck         = "no-lost-ack"
	noPhantom         = "no-phantom-event"
	noOverdraft       = "no-overdraft"
	failedMeansAbsent = "failed-means-absent"
	commandOnce       = "command-once"
	validDecision     = "valid-decision"
	truthfulRejection = "truthful-rejections"
	truthfulAnswers   = "truthful-answers"
	optimistic        = "optimistic-concurrency"
	readIsPrefix      = "read-is-prefix"
	immutable         = "immutable-events"
	honestOutcomes    = "honest-outcomes"
	inOrder           = "in-order-projection"
	atomicCheckpoint  = "atomic-checkpoint"
	equalsFold        = "projection-equals-fold"
	progress          = "progress"
	idempotentBids    = "idempotent-bids"
	monotonicBids     = "monotonic-bids"
	closeIsFinal      = "close-is-final"
)

// swap is one control: a base, and what is changed in it.
type swap struct {
	base    string
	id      string
	part    string
	bug     string
	must    []string
	may     map[string]string
	replace func(*targets.Assembly, *dynamodb.Parts)
}

// table lists the controls.
func table() []swap {
	return []swap{
		{
			// Both find version n and nothing at n+1; the second puts its event there and is acknowledged; the first puts
			// over it and is acknowledged. The log holds one withdrawal, so no account is overdrawn.
			base: "conditional-put", id: "cv-dy-01", part: "append",
			bug:  "puts the event without a condition",
			must: []string{noLostAck, immutable, optimistic},
			may: map[string]string{
				truthfulAnswers:  "an answer is folded from the event that was overwritten",
				readIsPrefix:     "a read before the second put shows an event that the log no longer holds",
				validDecision:    "a later decision stands on the event that was overwritten",
				noPhantom:        "the ledger names the event that was overwritten",
				equalsFold:       "the view has folded the event that was overwritten",
				inOrder:          "the stream shows both events of one version",
				atomicCheckpoint: "the view has folded the event that was overwritten",
			},
			replace: func(a *targets.Assembly, p *dynamodb.Parts) {
				a.Append, p.Append = "unconditional-put", unconditionalPut{}
			},
		},
		{
			// The first try lands, its answer is lost, the hidden second one fails at its own event. The attempt says
			// conflict, so everybody believes that the write is without effect; it is in the log.
			base: "conditional-put", id: "cv-dy-02", part: "append",
			bug:  "lets the client library try again by itself, and takes the condition that fails at its own event for a conflict",
			must: []string{failedMeansAbsent, optimistic, honestOutcomes},
			may: map[string]string{
				commandOnce: "a command loop that does not look for its own command after a conflict decides a second time",
			},
			replace: func(a *targets.Assembly, p *dynamodb.Parts) {
				a.Append, p.Append = "hidden-retries", hiddenRetries{}
			},
		},
		{
			// The stream is longer than a page and the pages of five decisions: every load ends below the head, and the next
			// slot is always taken.
			base: "conditional-put", id: "cv-dy-03", part: "reader",
			bug:  "reads the first page of a query and takes it for the whole",
			must: []string{readIsPrefix, progress},
			may: map[string]string{
				truthfulRejection: "a refusal is decided on the first page",
				noOverdraft:       "where the version does not come from the read",
			},
			replace: func(a *targets.Assembly, p *dynamodb.Parts) {
				a.Reader, p.Reader = "first-page", firstPage{}
			},
		},
		{
			// The winner's answer is lost; its repeat fails at both conditions, since the high bid is its own.
			base: "bid-transact", id: "cv-dy-07", part: "auction",
			bug:  "calls a bid stale before it asks whether the bid is in the ledger",
			must: []string{idempotentBids},
			may: map[string]string{
				failedMeansAbsent: "the first try was the same call's and had ended unknown",
				honestOutcomes:    "the refusal is taken as evidence against that first try",
				truthfulRejection: "the refused bid is the one that it lost to",
			},
			replace: func(a *targets.Assembly, p *dynamodb.Parts) {
				a.Auction, p.Bidding = "stale-before-replay", staleFirst{}
			},
		},
		{
			// Both read a high bid of 100; 700 is written, then 500 over it.
			base: "bid-transact", id: "cv-dy-09", part: "auction",
			bug:  "reads the high bid and compares it in code, and then writes its own whatever the high bid is by then",
			must: []string{monotonicBids},
			may: map[string]string{
				truthfulRejection: "a refusal shows a high bid that falls later",
				closeIsFinal:      "a closing shows a high bid that is not the highest",
			},
			replace: func(a *targets.Assembly, p *dynamodb.Parts) {
				a.Auction, p.Bidding = "compare-in-code", compareInCode{}
			},
		},
		{
			// The auction is found open, and is closed before the bid's transaction.
			base: "bid-transact", id: "cv-dy-10", part: "auction",
			bug:  "asks whether the auction is open before the transaction, and not in it",
			must: []string{closeIsFinal},
			may: map[string]string{
				monotonicBids:     "the closing showed a high bid that was outbid later",
				truthfulRejection: "a bid was refused as closed before one was accepted",
			},
			replace: func(a *targets.Assembly, p *dynamodb.Parts) {
				a.Auction, p.Bidding = "open-asked-before", openOutside{}
			},
		},
		{
			// The high bid is raised, the writer dies, the bid is never put: the auction has a winner that no ledger knows.
			base: "bid-transact", id: "cv-dy-11", part: "auction",
			bug:  "raises the high bid first and puts the bid's item after it, in a call of its own",
			must: []string{monotonicBids},
			may: map[string]string{
				idempotentBids:    "the repeat of the bid is called stale",
				closeIsFinal:      "the closing shows a high bid that nobody is known to have made",
				truthfulRejection: "a bid is refused for a high bid that nobody is known to have made",
			},
			replace: func(a *targets.Assembly, p *dynamodb.Parts) {
				a.Auction, p.Bidding = "ledger-later", ledgerLater{}
			},
		},
		{
			base: "bid-transact", id: "cv-dy-14", part: "auction",
			bug:  "accepts a bid that is as high as the high bid",
			must: []string{monotonicBids},
			may: map[string]string{
				closeIsFinal: "the closing names one of two highest bidders",
			},
			replace: func(a *targets.Assembly, p *dynamodb.Parts) {
				a.Auction, p.Bidding = "or-equal", orEqual{}
			},
		},
		{
			base: "bid-transact", id: "cv-dy-15", part: "auction",
			bug:  "answers a replay with the time of the repetition",
			must: []string{idempotentBids},
			replace: func(a *targets.Assembly, p *dynamodb.Parts) {
				a.Auction, p.Bidding = "fresh-time", freshTime{}
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
	t, parts, ok := dynamodb.Variant(s.base)
	if !ok {
		// The bases are constants of the table above; a test builds all of them.
		panic(fmt.Sprintf("controls: no variant %q", s.base))
	}
	t.Base, t.Variant, t.Summary = s.base, s.base+"~"+s.id, s.bug
	t.Control = &targets.Control{
		ID: s.id, Part: s.part, Bug: s.bug, Must: s.must, May: s.may, Scripts: []string{"det-" + s.id},
	}
	s.replace(&t.Assembly, &parts)
	return dynamodb.New(t, parts)
}
