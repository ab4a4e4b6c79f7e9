package controls

import (
	"context"
	"fmt"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets/kafka/internal/broker"
	"github.com/eventproof/eventproof/targets/kafka/owner"
)

// atEveryStart is CV-KA-06: nobody else has this transactional id.
func atEveryStart(p *owner.Partition) string {
	return fmt.Sprintf("%s-p%d-%s-%x", p.Trial(), p.Number(), p.Owner(), clock.Monotonic())
}

// endOffset is CV-KA-10: every owner serves every partition. What it knows is read up to the end of the log before each
// group, and written without a transaction after that.
type endOffset struct{}

// Own implements owner.Appender: nobody owns anything.
func (endOffset) Own(ctx context.Context, p *owner.Partition, _ bool) error {
	return p.CatchUp(ctx, broker.Uncommitted)
}

// Commit implements owner.Appender.
func (endOffset) Commit(ctx context.Context, p *owner.Partition, g *owner.Group) error {
	producer := p.Producer("")
	if !producer.Ready() {
		if err := producer.Init(ctx); err != nil {
			return err
		}
	}
	if _, err := producer.Produce(ctx, p.Topic(), p.Number(), g.Records()); err != nil {
		if broker.Answered(err) {
			return err
		}
		return &eventstore.Error{Op: "append", Outcome: eventstore.Unknown, Reason: eventstore.ServerUncertain, Err: err}
	}
	if err := p.At(ctx, points.AppendAfterInsert); err != nil {
		return err
	}
	if err := p.CatchUp(ctx, broker.Uncommitted); err != nil {
		return &eventstore.Error{Op: "append", Outcome: eventstore.Unknown, Reason: eventstore.ServerUncertain, Err: err}
	}
	return nil
}

// Prove implements owner.Appender.
func (endOffset) Prove(context.Context, *owner.Partition) error { return nil }

// Early implements owner.Appender.
func (endOffset) Early(*owner.Partition, *owner.Request) (owner.Answer, bool) {
	return owner.Answer{}, false
}

// everyWriterItsOwn spreads the writers over the owners by their names.
func everyWriterItsOwn(session string, _, owners int) int {
	sum := 0
	for _, c := range []byte(session) {
		sum += int(c)
	}
	return sum % owners
}

// early is CV-KA-17.
type early struct{ owner.Fenced }

// Early implements owner.Appender: whoever asks while a group is being written is told what the group will make of it.
func (early) Early(p *owner.Partition, r *owner.Request) (owner.Answer, bool) { return p.Tip(r) }
