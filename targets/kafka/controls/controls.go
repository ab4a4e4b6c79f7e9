// Package controls holds the broken assemblies of the Kafka target: each is a correct variant with exactly one part
// swapped, and says which invariants must notice and which may.
//
// The lists come from the schedule on paper (the comment of each control), never from a run.
package controls

import (
	"fmt"

	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/kafka"
	"github.com/eventproof/eventproof/targets/kafka/owner"
)

// Slugs of the invariants named by the lists.
const (
	noLostAck         = "no-lost-ack"
	noOverdraft       = "no-overdraft"
	gapless           = "gapless-versions"
	validDecision     = "valid-decision"
	truthfulRejection = "truthful-rejections"
	truthfulAnswers   = "truthful-answers"
	optimistic        = "optimistic-concurrency"
	linearizable      = "linearizable-stream"
	readIsPrefix      = "read-is-prefix"
	immutable         = "immutable-events"
	positionOrder     = "position-order"
	inOrder           = "in-order-projection"
	atomicCheckpoint  = "atomic-checkpoint"
	equalsFold        = "projection-equals-fold"
	kafkaLog          = "kafka-log"
	fencedOwner       = "fenced-owner"
	honestOutcomes    = "honest-outcomes"
)

// swap is one control: a base, and what is changed in it.
type swap struct {
	base    string
	id      string
	part    string
	bug     string
	must    []string
	may     map[string]string
	replace func(*targets.Assembly, *kafka.Parts)
}

// table lists the controls.
func table() []swap {
	return []swap{
		{
			// Owner 1 has checked v2 against head 1 and is stopped; owner 2 takes the partition with an id of its own, which
			// fences nobody, and commits another v2 under lease 2; owner 1 goes on, commits its v2 behind it under lease 1, and
			// answers yes. Its decision stands on version 1 and is valid by itself.
			base: "fenced-writer", id: "cv-ka-06", part: "append",
			bug:  "takes a transactional id of its own at every start, which fences nobody",
			must: []string{fencedOwner, gapless, optimistic, immutable},
			may: map[string]string{
				validDecision:     "a decision is taken on a head that holds two events of one version",
				positionOrder:     "the former owner's event follows later versions at a higher offset",
				linearizable:      "an append that waited takes a version that was taken before it began",
				noOverdraft:       "both owners spend the same money",
				truthfulAnswers:   "an answer shows a state without the other owner's event",
				readIsPrefix:      "reads from both owners differ at the same version",
				truthfulRejection: "a refusal is decided on a state that misses one of the two events",
				inOrder:           "one version is applied twice to a row, or a lower one after a higher one",
				equalsFold:        "the view folds the two events in another order than their versions",
				atomicCheckpoint:  "the view folds the two events in another order than their versions",
				kafkaLog:          "offsets do not follow versions",
			},
			replace: func(a *targets.Assembly, p *kafka.Parts) {
				a.Append, p.Append = "random-transactional-id", owner.Fenced{ID: atEveryStart}
			},
		},
		{
			// The number of an event is the head that was read at the end of the log, plus one, and is carried in the record.
			// 100.00, two withdrawals of 60.00 through two owners: both read head 1, both write v2, both are answered with
			// 40.00; the fold is -20.00.
			base: "fenced-writer", id: "cv-ka-10", part: "append",
			bug:  "reads the end of the log and compares the expected version with it, while other owners write there too",
			must: []string{optimistic, gapless, immutable, truthfulAnswers, noOverdraft},
			may: map[string]string{
				validDecision:     "a decision is taken on a head that holds two events of one version",
				truthfulRejection: "a refusal is decided on a state that misses one of the two events",
				linearizable:      "an append that waited takes a version that was taken before it began",
				readIsPrefix:      "reads before and after the second event differ at the same version",
				positionOrder:     "an event that was numbered early follows later versions at a higher offset",
				inOrder:           "one version is applied twice to a row, or a lower one after a higher one",
				equalsFold:        "the view folds the two events in another order than their versions",
				atomicCheckpoint:  "the view folds the two events in another order than their versions",
				kafkaLog:          "offsets do not follow versions, or an unanswered append is repeated",
			},
			replace: func(a *targets.Assembly, p *kafka.Parts) {
				a.Append, p.Append, p.Route, p.Unfenced = "end-offset", endOffset{}, everyWriterItsOwn, true
			},
		},
		{
			// A withdrawal is written, its transaction is open. Another command reads its event, has too little money left and
			// is refused; a third one, decided before, is told of a conflict with it. Then the owner dies and the transaction is
			// aborted: neither was so. Commands are decided by writers, so what is told too early is also read too early.
			base: "fenced-writer", id: "cv-ka-17", part: "append",
			bug:  "answers reads and conflicts from what is written but not committed",
			must: []string{truthfulRejection, optimistic, readIsPrefix},
			may: map[string]string{
				truthfulAnswers: "an answer is folded from the aborted event",
				validDecision:   "a decision is taken on the aborted event",
				noLostAck:       "whoever lost an answer reads the event before it is aborted, and takes that for evidence",
				immutable:       "another event stands where the aborted one was seen",
				honestOutcomes:  "a slot that the aborted event held is taken for evidence against another try",
			},
			replace: func(a *targets.Assembly, p *kafka.Parts) {
				a.Append, p.Append = "early-answers", early{owner.Fenced{ID: owner.ByPartition}}
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
	t, parts, ok := kafka.Variant(s.base)
	if !ok {
		// The bases are constants of the table above; a test builds all of them.
		panic(fmt.Sprintf("controls: no variant %q", s.base))
	}
	t.Base, t.Variant, t.Summary = s.base, s.base+"~"+s.id, s.bug
	t.Control = &targets.Control{
		ID: s.id, Part: s.part, Bug: s.bug, Must: s.must, May: s.may, Scripts: []string{"det-" + s.id},
	}
	s.replace(&t.Assembly, &parts)
	return kafka.New(t, parts)
}
