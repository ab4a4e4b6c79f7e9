package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/targets"
)

// stablePause is the pause between two looks at partitions that are not stable yet.
const stablePause = 20 * time.Millisecond

// Fence makes sure that nothing of the run can take effect any more. Every transactional id of the trial gets a new
// epoch, which aborts what is open under it and shuts out what is still on its way; then no group may have a member, and
// every partition has to be stable up to its end. What was written without transactions can't be shut out so.
func (a *Auditor) Fence(ctx context.Context) (targets.Proof, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c, err := a.connect()
	if err != nil {
		return targets.Proof{}, err
	}
	adm := kadm.NewClient(c)
	ids, err := a.transactional(ctx, adm)
	if err != nil {
		return targets.Proof{}, err
	}
	for _, id := range ids {
		if err := a.newEpoch(ctx, id); err != nil {
			return targets.Proof{}, err
		}
	}
	text := fmt.Sprintf("%d transactional ids have a new epoch", len(ids))
	busy, err := a.members(ctx, adm)
	if err != nil {
		return targets.Proof{}, err
	}
	if busy != "" {
		return targets.Proof{Text: text + "; " + busy}, nil
	}
	ends, err := a.stable(ctx, adm)
	if err != nil {
		return targets.Proof{Text: text + "; " + err.Error()}, nil
	}
	text += "; no group has a member; last stable offset = high watermark: " + ends
	if a.place.Unfenced {
		return targets.Proof{Text: text + "; but events are written without transactions, and one may still be on its way"}, nil
	}
	return targets.Proof{Fenced: true, Text: text}, nil
}

// transactional returns every transactional id that the trial can have used: those that its roles are given, and those
// that the broker knows.
func (a *Auditor) transactional(ctx context.Context, adm *kadm.Client) ([]string, error) {
	var ids []string
	for p := range a.place.Partitions {
		ids = append(ids, a.place.Trial+"-p"+strconv.Itoa(int(p)))
	}
	for _, v := range a.place.Projections {
		ids = append(ids, a.place.Trial+"-view-"+v)
	}
	known, err := adm.ListTransactions(ctx, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("audit: listing transactions: %w", err)
	}
	for _, t := range known.Sorted() {
		if strings.HasPrefix(t.TxnID, a.place.Trial+"-") {
			ids = append(ids, t.TxnID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

func (a *Auditor) newEpoch(ctx context.Context, id string) error {
	c, err := kgo.NewClient(kgo.SeedBrokers(a.place.Addr), kgo.ClientID(a.place.Trial+"-fence"), kgo.TransactionalID(id),
		kgo.DisableClientMetrics(), kgo.ConcurrentTransactionsBackoff(time.Millisecond))
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	defer c.Close()
	if _, _, err := c.ProducerID(ctx); err != nil {
		return fmt.Errorf("audit: a new epoch for %s: %w", id, err)
	}
	return nil
}

// members says which group of the trial has members, "" if none has.
func (a *Auditor) members(ctx context.Context, adm *kadm.Client) (string, error) {
	if len(a.place.Projections) == 0 {
		return "", nil
	}
	var groups []string
	for _, v := range a.place.Projections {
		groups = append(groups, a.place.Trial+"-"+v)
	}
	described, err := adm.DescribeGroups(ctx, groups...)
	if err != nil {
		return "", fmt.Errorf("audit: describing groups: %w", err)
	}
	for _, g := range described.Sorted() {
		switch {
		case errors.Is(g.Err, kerr.GroupIDNotFound):
		case g.Err != nil:
			return "", fmt.Errorf("audit: describing group %s: %w", g.Group, g.Err)
		case len(g.Members) > 0:
			return fmt.Sprintf("group %s has %d members", g.Group, len(g.Members)), nil
		}
	}
	return "", nil
}

var errUnstable = errors.New("audit: a partition is not stable")

// stable waits until every partition of the trial is stable up to its end, and says where they end.
func (a *Auditor) stable(ctx context.Context, adm *kadm.Client) (string, error) {
	topics := []string{a.events()}
	for _, v := range a.place.Projections {
		topics = append(topics, a.topic(v))
	}
	for {
		high, err := adm.ListEndOffsets(ctx, topics...)
		if err = errors.Join(err, high.Error()); err != nil {
			return "", fmt.Errorf("audit: high watermarks: %w", err)
		}
		stable, err := adm.ListCommittedOffsets(ctx, topics...)
		if err = errors.Join(err, stable.Error()); err != nil {
			return "", fmt.Errorf("audit: last stable offsets: %w", err)
		}
		var texts []string
		var open error
		high.Each(func(o kadm.ListedOffset) {
			s, ok := stable.Lookup(o.Topic, o.Partition)
			if !ok || s.Offset != o.Offset {
				open = fmt.Errorf("%w: %s/%d up to %d of %d", errUnstable, o.Topic, o.Partition, s.Offset, o.Offset)
			}
			texts = append(texts, fmt.Sprintf("%s/%d at %d", o.Topic, o.Partition, o.Offset))
		})
		if open == nil {
			slices.Sort(texts)
			return strings.Join(texts, ", "), nil
		}
		if clock.Sleep(ctx, stablePause) != nil {
			return "", open
		}
	}
}
