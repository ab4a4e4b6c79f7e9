package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// mend ends the transactions that were open when the stand-in was killed, before clients can connect.
//
// kfake counts them as aborted when it reads its log again, but writes no marker of it. A client that reads committed
// records drops everything that the producer writes after them, up to a marker that never comes: committed records are
// lost to it. And kfake answers a late commit by yes, if the transaction before had been committed. A broker does
// neither: its coordinator ends such a transaction, with a marker, and refuses the late commit.
func mend(ctx context.Context, dir string) error {
	if found, err := os.ReadDir(dir); err != nil || len(found) == 0 {
		return nil // there is no log yet
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID(clusterID), kfake.DataDir(dir))
	if err != nil {
		return fmt.Errorf("provision: stand-in for Kafka: %w", err)
	}
	defer cluster.Close() // in good order, so that what was mended is there when the log is opened again
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.DisableClientMetrics())
	if err != nil {
		return fmt.Errorf("provision: %w", err)
	}
	defer client.Close()
	m := mender{client: client, admin: kadm.NewClient(client)}
	if err := m.run(ctx); err != nil {
		return fmt.Errorf("provision: ending the transactions that were open in %s: %w", dir, err)
	}
	return nil
}

type mender struct {
	client *kgo.Client
	admin  *kadm.Client
}

func (m *mender) run(ctx context.Context) error {
	topics, err := m.admin.ListTopics(ctx)
	if err != nil {
		return err
	}
	dangling := map[int64]int16{} // producer → epoch
	for _, t := range topics.Sorted() {
		for _, p := range t.Partitions.Sorted() {
			open, err := m.open(ctx, t, p)
			if err != nil {
				return err
			}
			for producer, epoch := range open {
				dangling[producer] = epoch
				if err := m.abort(ctx, t.Topic, p, producer, epoch); err != nil {
					return err
				}
			}
		}
	}
	if len(dangling) == 0 {
		return nil
	}
	known, err := m.admin.ListTransactions(ctx, nil, nil)
	if err != nil {
		return err
	}
	for _, t := range known.Sorted() {
		if _, ok := dangling[t.ProducerID]; !ok {
			continue
		}
		// One more epoch: the one that follows the aborted transaction's is what kfake takes a late commit for.
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.TransactionTimeoutMillis = kmsg.StringPtr(t.TxnID), 1000
		resp, err := req.RequestWith(ctx, m.client)
		if err = errors.Join(err, codeOf(resp)); err != nil {
			return err
		}
	}
	return nil
}

func codeOf(resp *kmsg.InitProducerIDResponse) error {
	if resp == nil {
		return nil
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}

// open returns the transactions of a partition that have no end, but lie below the last stable offset.
func (m *mender) open(ctx context.Context, t kadm.TopicDetail, p kadm.PartitionDetail) (map[int64]int16, error) {
	type transaction struct {
		epoch int16
		first int64
	}
	open := map[int64]transaction{}
	var stable int64
	for next := int64(0); ; {
		part, err := m.fetch(ctx, t, p, next)
		if err != nil {
			return nil, err
		}
		stable = part.LastStableOffset
		begin := next
		for raw := part.RecordBatches; len(raw) > lengthEnd; {
			length := int(binary.BigEndian.Uint32(raw[8:])) + lengthEnd
			if len(raw) < length {
				break
			}
			var b kmsg.RecordBatch
			if err := b.ReadFrom(raw[:length]); err != nil {
				return nil, err
			}
			raw, next = raw[length:], b.FirstOffset+int64(b.LastOffsetDelta)+1
			switch transactional, control := b.Attributes&(1<<4) != 0, b.Attributes&(1<<5) != 0; {
			case control:
				delete(open, b.ProducerID)
			case transactional:
				if _, known := open[b.ProducerID]; !known {
					open[b.ProducerID] = transaction{b.ProducerEpoch, b.FirstOffset}
				}
			}
		}
		if next == begin {
			break
		}
	}
	dangling := map[int64]int16{}
	for producer, tx := range open {
		if tx.first < stable {
			dangling[producer] = tx.epoch
		}
	}
	return dangling, nil
}

// lengthEnd is where the length of a batch ends, which counts what follows it.
const lengthEnd = 12

var errShort = errors.New("the stand-in answered without the partition that was asked for")

// fetch reads raw batches, committed or not; none at the end of the partition.
func (m *mender) fetch(ctx context.Context, t kadm.TopicDetail, p kadm.PartitionDetail, from int64) (*kmsg.FetchResponseTopicPartition, error) {
	req := kmsg.NewPtrFetchRequest()
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = t.Topic, t.ID
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = p.Partition, from, 16<<20
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	kresp, err := m.client.Broker(int(p.Leader)).RetriableRequest(ctx, req)
	if err != nil {
		return nil, err
	}
	resp, ok := kresp.(*kmsg.FetchResponse)
	if !ok || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, errShort
	}
	part := &resp.Topics[0].Partitions[0]
	return part, kerr.ErrorForCode(part.ErrorCode)
}

func (m *mender) abort(ctx context.Context, topic string, p kadm.PartitionDetail, producer int64, epoch int16) error {
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	marker := kmsg.NewWriteTxnMarkersRequestMarker()
	marker.ProducerID, marker.ProducerEpoch, marker.Committed = producer, epoch, false
	mt := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
	mt.Topic, mt.Partitions = topic, []int32{p.Partition}
	marker.Topics = append(marker.Topics, mt)
	req.Markers = append(req.Markers, marker)
	kresp, err := m.client.Broker(int(p.Leader)).RetriableRequest(ctx, req)
	if err != nil {
		return err
	}
	resp, ok := kresp.(*kmsg.WriteTxnMarkersResponse)
	if !ok {
		return errShort
	}
	for _, marker := range resp.Markers {
		for _, t := range marker.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
