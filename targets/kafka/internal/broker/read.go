package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Isolation of a read.
type Isolation int8

// The isolations.
const (
	Uncommitted Isolation = 0
	Committed   Isolation = 1
)

// End returns where a partition ends: the high watermark, or the last stable offset.
func (c *Client) End(ctx context.Context, topic string, partition int32, iso Isolation) (int64, error) {
	node, err := c.leader(ctx, topic, partition)
	if err != nil {
		return 0, err
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.IsolationLevel = int8(iso)
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = partition, -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := c.look(ctx, node, req)
	if err != nil {
		return 0, fmt.Errorf("kafka: asking where %s/%d ends: %w", topic, partition, err)
	}
	list, ok := resp.(*kmsg.ListOffsetsResponse)
	if !ok || len(list.Topics) != 1 || len(list.Topics[0].Partitions) != 1 {
		return 0, errForm
	}
	answer := list.Topics[0].Partitions[0]
	if err := c.check(answer.ErrorCode); err != nil {
		return 0, fmt.Errorf("kafka: end of %s/%d: %w", topic, partition, err)
	}
	return answer.Offset, nil
}

// Fetched is what a fetch found in one partition.
type Fetched struct {
	Records []*kgo.Record // without control records, and read committed without those of aborted transactions
	Next    int64         // the offset to go on from
	Stable  int64         // last stable offset
	High    int64         // high watermark
}

// Fetch reads partitions of one topic from offsets on. It waits at most so long for something to read, and returns what
// fits into about size bytes a partition. An offset beyond the end of the log, or before its beginning, is ErrDataLoss.
func (c *Client) Fetch(ctx context.Context, topic string, from map[int32]int64, iso Isolation, wait time.Duration, size int32) (map[int32]Fetched, error) {
	byNode := map[int32][]int32{}
	for partition := range from {
		node, err := c.leader(ctx, topic, partition)
		if err != nil {
			return nil, err
		}
		byNode[node] = append(byNode[node], partition)
	}
	found := map[int32]Fetched{}
	for node, partitions := range byNode {
		req := kmsg.NewPtrFetchRequest()
		req.IsolationLevel, req.MinBytes, req.MaxWaitMillis = int8(iso), 1, int32(wait.Milliseconds())
		t := kmsg.NewFetchRequestTopic()
		t.Topic = topic
		for _, partition := range partitions {
			p := kmsg.NewFetchRequestTopicPartition()
			p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, from[partition], size
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
		resp, err := c.look(ctx, node, req)
		if err != nil {
			return nil, fmt.Errorf("kafka: reading %s: %w", topic, err)
		}
		fetch, ok := resp.(*kmsg.FetchResponse)
		if !ok {
			return nil, errForm
		}
		if err := c.check(fetch.ErrorCode); err != nil {
			return nil, fmt.Errorf("kafka: reading %s: %w", topic, err)
		}
		for i := range fetch.Topics {
			for j := range fetch.Topics[i].Partitions {
				answer := &fetch.Topics[i].Partitions[j]
				f, err := c.decode(topic, from[answer.Partition], iso, answer)
				if err != nil {
					return nil, err
				}
				found[answer.Partition] = f
			}
		}
	}
	if len(found) != len(from) {
		return nil, errForm
	}
	return found, nil
}

func (c *Client) decode(topic string, from int64, iso Isolation, answer *kmsg.FetchResponseTopicPartition) (Fetched, error) {
	if err := c.check(answer.ErrorCode); err != nil {
		if errors.Is(err, kerr.OffsetOutOfRange) {
			err = fmt.Errorf("%w: offset %d (%w)", ErrDataLoss, from, err)
		}
		return Fetched{}, fmt.Errorf("kafka: reading %s/%d: %w", topic, answer.Partition, err)
	}
	level := kgo.ReadUncommitted()
	if iso == Committed {
		level = kgo.ReadCommitted()
	}
	read, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: from, IsolationLevel: level, Topic: topic, Partition: answer.Partition,
	}, answer, kgo.DefaultDecompressor(), nil)
	if read.Err != nil {
		return Fetched{}, fmt.Errorf("kafka: reading %s/%d at %d: %w", topic, answer.Partition, from, read.Err)
	}
	return Fetched{Records: read.Records, Next: next, Stable: read.LastStableOffset, High: read.HighWatermark}, nil
}

// Through reads a partition from one offset up to another, committed records only, and returns where to go on from. If
// an open transaction is in the way it waits for its end until ctx ends; then the error is ctx's, and yield has had what
// came before.
func (c *Client) Through(ctx context.Context, topic string, partition int32, from, to int64, yield func(*kgo.Record) error) (int64, error) {
	for from < to {
		found, err := c.Fetch(ctx, topic, map[int32]int64{partition: from}, Committed, throughWait, throughBytes)
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return from, cause
			}
			return from, err
		}
		f := found[partition]
		if f.High < to {
			return from, fmt.Errorf("%w: %s/%d ends at %d, not %d", ErrDataLoss, topic, partition, f.High, to)
		}
		for _, r := range f.Records {
			if err := yield(r); err != nil {
				return from, err
			}
		}
		from = f.Next
		if ctx.Err() != nil && from < to {
			return from, context.Cause(ctx)
		}
	}
	return from, nil
}

const (
	throughWait  = 20 * time.Millisecond
	throughBytes = 1 << 20
)
