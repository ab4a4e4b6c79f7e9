package controls

import (
	"context"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/postgres"
)

// commitSwaps are ways to end a transaction that tell the caller what did not happen.
func commitSwaps() []swap {
	// What follows when an acknowledged event is not in the log.
	lost := map[string]string{
		optimistic:        "the version of the lost event is acknowledged a second time",
		immutable:         "the version of the lost event is taken again",
		snapshotEquals:    "a snapshot of the lost state was put",
		truthfulAnswers:   "an answer rests on a snapshot of the lost state",
		truthfulRejection: "a refusal rests on a snapshot of the lost state",
		validDecision:     "a decision rests on a snapshot of the lost state",
		progress:          "a snapshot of the lost state is ahead of the log: every append expects too much",
		monotonicBids:     "the lost bid was answered as accepted, lower ones are accepted after it",
		idempotentBids:    "the lost bid was answered as accepted and is in no ledger",
		closeFinal:        "the lost closing was answered and bids go on",
	}
	return []swap{
		{
			// The connection is cut before COMMIT reaches the server, which rolls back. On the new session there
			// is no transaction: COMMIT is answered by a warning and the tag COMMIT.
			base: "advisory-lock", id: "cv-pg-18", part: "commit",
			bug:  "reconnects when the connection breaks at COMMIT and sends COMMIT on the new session",
			must: []string{noLostAck},
			may:  lost,
			replace: func(a *targets.Assembly, p *postgres.Parts) {
				a.Commit, p.Commit = "commit-on-new-session", commitOnNewSession{}
			},
		},
		{
			// The server commits, its answer is cut, and the caller is told that the store has refused for good.
			base: "advisory-lock", id: "cv-pg-19", part: "commit",
			bug:  "reports a COMMIT without an answer as a definite failure",
			must: []string{failedMeansAbsent, honestOutcomes},
			replace: func(a *targets.Assembly, p *postgres.Parts) {
				a.Commit, p.Commit = "silence-is-failure", silenceIsFailure{}
			},
		},
		{
			// COMMIT is answered while its record is in the server's memory; the server is killed before its log
			// writer comes round (every 200 ms), and recovery finds no such transaction.
			base: "advisory-lock", id: "cv-pg-27", part: "commit",
			bug:  "commits asynchronously: an append is acknowledged before the server has written its log",
			must: []string{noLostAck},
			may:  lost,
			replace: func(a *targets.Assembly, p *postgres.Parts) {
				a.Commit, p.Commit = "asynchronous", asynchronous{}
			},
		},
	}
}

// commitOnNewSession is CV-PG-18.
type commitOnNewSession struct{}

// Commit implements postgres.Committer.
func (commitOnNewSession) Commit(ctx context.Context, tx *postgres.Tx) error {
	tag, err := tx.Simple(ctx, "commit")
	if err != nil && !postgres.Answered(err) && tx.Reconnect(ctx) == nil {
		tag, err = tx.Simple(ctx, "commit")
	}
	return tx.End(tag, err)
}

// silenceIsFailure is CV-PG-19.
type silenceIsFailure struct{}

// Commit implements postgres.Committer.
func (silenceIsFailure) Commit(ctx context.Context, tx *postgres.Tx) error {
	err := tx.Commit(ctx)
	if outcome, reason := eventstore.Classify(err); outcome == eventstore.Unknown && reason != eventstore.Killed {
		return &eventstore.Error{Op: "append", Outcome: eventstore.Fail, Reason: eventstore.Rejected, Err: err}
	}
	return err
}

// asynchronous is CV-PG-27.
type asynchronous struct{}

// Commit implements postgres.Committer.
func (asynchronous) Commit(ctx context.Context, tx *postgres.Tx) error {
	if _, err := tx.Simple(ctx, "set local synchronous_commit to off"); err != nil {
		return tx.Fail(ctx, err)
	}
	return tx.Commit(ctx)
}
