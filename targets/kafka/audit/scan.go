package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/eventproof/eventproof/clock"
)

const (
	pageBytes   = 1 << 20
	fetchWaitMS = 10
	// pauseScan is waited before a scan goes on after an answer that asks for it.
	pauseScan = 20 * time.Millisecond
)

// connect returns the auditor's client. The lock is held.
func (a *Auditor) connect() (*kgo.Client, error) {
	if a.client == nil {
		c, err := kgo.NewClient(kgo.SeedBrokers(a.place.Addr), kgo.ClientID(a.place.Trial+"-audit"), kgo.DisableClientMetrics(),
			kgo.MetadataMinAge(10*time.Millisecond))
		if err != nil {
			return nil, fmt.Errorf("audit: %w", err)
		}
		a.client = c
	}
	return a.client, nil
}

// leader returns the broker that leads a partition, and the topic's id, by which newer requests name it.
func (a *Auditor) leader(ctx context.Context, c *kgo.Client, topic string, partition int32) (node int32, id [16]byte, err error) {
	listed, err := kadm.NewClient(c).ListTopics(ctx, topic)
	if err != nil {
		return 0, id, fmt.Errorf("audit: asking for %s: %w", topic, err)
	}
	d, ok := listed[topic]
	if err := d.Err; err != nil || !ok {
		return 0, id, fmt.Errorf("audit: topic %s: %w", topic, err)
	}
	return d.Partitions[partition].Leader, d.ID, nil
}

var (
	errShort = errors.New("audit: the broker answered without the partition that was asked for")
	errLost  = errors.New("audit: the log does not reach an offset that it had: data was lost")
)

// scan yields the committed records of a partition from an offset up to the last stable offset at the moment it begins,
// and returns the offset to go on from. The lock is held.
func (a *Auditor) scan(ctx context.Context, topic string, partition int32, from int64, yield func(*kgo.Record) error) (next int64, err error) {
	c, err := a.connect()
	if err != nil {
		return from, err
	}
	node, id, err := a.leader(ctx, c, topic, partition)
	if err != nil {
		return from, err
	}
	until := int64(-1)
	for until < 0 || from < until {
		req := kmsg.NewPtrFetchRequest()
		req.IsolationLevel, req.MaxWaitMillis, req.MinBytes = 1, fetchWaitMS, 1
		t := kmsg.NewFetchRequestTopic()
		t.Topic, t.TopicID = topic, id
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, from, pageBytes
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
		resp, err := c.Broker(int(node)).RetriableRequest(ctx, req)
		if err != nil {
			return from, fmt.Errorf("audit: reading %s/%d: %w", topic, partition, err)
		}
		fetch, ok := resp.(*kmsg.FetchResponse)
		if !ok || len(fetch.Topics) != 1 || len(fetch.Topics[0].Partitions) != 1 {
			return from, fmt.Errorf("%w (%s/%d)", errShort, topic, partition)
		}
		part := &fetch.Topics[0].Partitions[0]
		switch err := kerr.ErrorForCode(part.ErrorCode); {
		case errors.Is(err, kerr.OffsetOutOfRange):
			return from, fmt.Errorf("%w: %s/%d offset %d: %w", errLost, topic, partition, from, err)
		case kerr.IsRetriable(err):
			if err := clock.Sleep(ctx, pauseScan); err != nil {
				return from, err
			}
			if node, id, err = a.leader(ctx, c, topic, partition); err != nil {
				return from, err
			}
			continue
		case err != nil:
			return from, fmt.Errorf("audit: reading %s/%d at %d: %w", topic, partition, from, err)
		}
		if until < 0 {
			until = part.LastStableOffset
		}
		if part.LastStableOffset < until {
			return from, fmt.Errorf("%w: %s/%d was stable up to %d, now up to %d", errLost, topic, partition, until, part.LastStableOffset)
		}
		page, at := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
			Offset: from, IsolationLevel: kgo.ReadCommitted(), Topic: topic, Partition: partition,
		}, part, kgo.DefaultDecompressor(), nil)
		if page.Err != nil {
			return from, fmt.Errorf("audit: reading %s/%d at %d: %w", topic, partition, from, page.Err)
		}
		for _, r := range page.Records {
			if r.Offset >= until {
				return until, nil
			}
			if err := yield(r); err != nil {
				return from, err
			}
		}
		from = at
	}
	return from, nil
}
