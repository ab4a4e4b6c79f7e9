package broker

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/eventproof/eventproof/clock"
)

// Record is a record to be written.
type Record struct {
	Key, Value []byte
	Headers    []kmsg.Header
}

// MaxBatch is how many bytes of records one Produce may carry; a broker refuses about a megabyte by default.
const MaxBatch = 900 << 10

// Size returns about how many bytes a record takes in the log.
func (r Record) Size() int {
	n := len(r.Key) + len(r.Value) + 24
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value) + 6
	}
	return n
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const (
	attributeTransactional = 1 << 4
	crcFrom                = 21 // a batch's checksum covers what follows it
	lengthFrom             = 12 // a batch's length counts what follows it
)

// batch encodes records for one Produce.
func batch(producer int64, epoch int16, sequence int32, transactional bool, records []Record, now int64) []byte {
	b := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, LastOffsetDelta: int32(len(records)) - 1, FirstTimestamp: now, MaxTimestamp: now,
		ProducerID: producer, ProducerEpoch: epoch, FirstSequence: sequence, NumRecords: int32(len(records)),
	}
	if transactional {
		b.Attributes = attributeTransactional
	}
	for i, r := range records {
		one := kmsg.Record{OffsetDelta: int32(i), Key: r.Key, Value: r.Value, Headers: r.Headers}
		one.Length = int32(len(one.AppendTo(nil))) - 1 // what follows a length of 0, which takes one byte
		b.Records = one.AppendTo(b.Records)
	}
	raw := b.AppendTo(nil)
	b.Length = int32(len(raw)) - lengthFrom
	raw = b.AppendTo(raw[:0])
	b.CRC = int32(crc32.Checksum(raw[crcFrom:], castagnoli))
	return b.AppendTo(raw[:0])
}

type place struct {
	topic     string
	partition int32
}

// Producer writes with one producer id: in transactions if it has a transactional id, else each Produce by itself. It is
// used by one goroutine. After any error it has to be initialised again.
type Producer struct {
	c  *Client
	id string // transactional id, "" = none

	ready     bool
	number    int64
	epoch     int16
	sequences map[place]int32
	added     map[place]bool // to the open transaction
	timeout   time.Duration
}

// Producer returns a producer with a transactional id; "" for one without transactions. A transaction that its producer
// leaves open is ended by the broker after timeout.
func (c *Client) Producer(id string, timeout time.Duration) *Producer {
	return &Producer{c: c, id: id, timeout: timeout}
}

// Ready reports whether the producer is initialised and has seen no error since.
func (p *Producer) Ready() bool { return p.ready }

// Tag numbers a transaction of this producer: different for every n below 2^24 and every initialisation.
func (p *Producer) Tag(n uint64) uint64 {
	return uint64(p.number)<<40 | uint64(uint16(p.epoch))<<24 | n&(1<<24-1)
}

const (
	firstPause = time.Millisecond
	maxPause   = 50 * time.Millisecond
)

// Init takes the transactional id over: whatever another producer with this id has open is aborted, and nothing that it
// sends from now on has an effect. It tries until ctx ends.
func (p *Producer) Init(ctx context.Context) error {
	p.ready = false
	pause := firstPause
	for {
		err := p.init(ctx)
		if err == nil || ctx.Err() != nil || !again(err) {
			return err
		}
		if clock.Sleep(ctx, pause) != nil {
			return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		}
		pause = min(2*pause, maxPause)
	}
}

// again reports whether an initialisation may succeed by itself later: no answer, or one that asks to come back.
func again(err error) bool {
	return !Answered(err) || Moved(err) || errors.Is(err, kerr.ConcurrentTransactions)
}

func (p *Producer) init(ctx context.Context) error {
	req := kmsg.NewPtrInitProducerIDRequest()
	var node int32
	var err error
	if p.id != "" {
		req.TransactionalID, req.TransactionTimeoutMillis = kmsg.StringPtr(p.id), int32(p.timeout.Milliseconds())
		if node, err = p.c.find(ctx, ofTransaction, p.id); err != nil {
			return err
		}
	} else {
		req.TransactionTimeoutMillis = int32(p.timeout.Milliseconds())
		if node, err = p.c.any(ctx); err != nil {
			return err
		}
	}
	resp, err := p.c.send(ctx, node, req)
	if err != nil {
		return fmt.Errorf("kafka: initialising the producer %s: %w", p.id, err)
	}
	answer, ok := resp.(*kmsg.InitProducerIDResponse)
	if !ok {
		return errForm
	}
	if err := p.c.check(answer.ErrorCode); err != nil {
		return fmt.Errorf("kafka: initialising the producer %s: %w", p.id, err)
	}
	p.number, p.epoch, p.ready = answer.ProducerID, answer.ProducerEpoch, true
	p.sequences, p.added = map[place]int32{}, map[place]bool{}
	return nil
}

// any returns some broker.
func (c *Client) any(ctx context.Context) (int32, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, c.kgo)
	if err != nil {
		return 0, fmt.Errorf("kafka: asking for brokers: %w", err)
	}
	if len(resp.Brokers) == 0 {
		return 0, kerr.BrokerNotAvailable
	}
	return resp.Brokers[0].NodeID, nil
}

var errNotReady = errors.New("kafka: the producer is not initialised")

// Produce writes records to one partition and returns the offset of the first. Within a transaction they are visible
// after Commit only. A broker that says it is not the one, or that it is still ending the transaction before, has done
// nothing, and is asked again until ctx ends; every other error is the last word of this producer.
func (p *Producer) Produce(ctx context.Context, topic string, partition int32, records []Record) (int64, error) {
	if !p.ready {
		return 0, errNotReady
	}
	at := place{topic, partition}
	err := p.untilDone(ctx, func() error { return p.addPartition(ctx, at) })
	var base int64
	if err == nil {
		raw := batch(p.number, p.epoch, p.sequences[at], p.id != "", records, clock.System{}.Wall().UnixMilli())
		err = p.untilDone(ctx, func() error {
			base, err = p.produce(ctx, at, raw)
			return err
		})
	}
	if err != nil {
		p.ready = false
		return 0, fmt.Errorf("kafka: writing to %s/%d: %w", topic, partition, err)
	}
	p.sequences[at] += int32(len(records))
	return base, nil
}

// untilDone repeats what a broker definitely did not do.
func (p *Producer) untilDone(ctx context.Context, do func() error) error {
	pause := firstPause
	for {
		err := do()
		if err == nil || !Moved(err) && !errors.Is(err, kerr.ConcurrentTransactions) {
			return err
		}
		if clock.Sleep(ctx, pause) != nil {
			return err
		}
		pause = min(2*pause, maxPause)
	}
}

func (p *Producer) produce(ctx context.Context, at place, raw []byte) (int64, error) {
	node, err := p.c.leader(ctx, at.topic, at.partition)
	if err != nil {
		return 0, err
	}
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, int32(requestTimeout.Milliseconds())
	if p.id != "" {
		req.TransactionID = kmsg.StringPtr(p.id)
	}
	t := kmsg.NewProduceRequestTopic()
	t.Topic = at.topic
	tp := kmsg.NewProduceRequestTopicPartition()
	tp.Partition, tp.Records = at.partition, raw
	t.Partitions = append(t.Partitions, tp)
	req.Topics = append(req.Topics, t)
	resp, err := p.c.send(ctx, node, req)
	if err != nil {
		return 0, err
	}
	answer, ok := resp.(*kmsg.ProduceResponse)
	if !ok || len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1 {
		return 0, errForm
	}
	one := answer.Topics[0].Partitions[0]
	return one.BaseOffset, p.c.check(one.ErrorCode)
}

// addPartition tells the coordinator that the transaction will write to a partition; since level 2 of the protocol the
// write itself does.
func (p *Producer) addPartition(ctx context.Context, at place) error {
	if p.id == "" || p.c.opts.Transactions >= 2 || p.added[at] {
		return nil
	}
	node, err := p.c.find(ctx, ofTransaction, p.id)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = p.id, p.number, p.epoch
	t := kmsg.NewAddPartitionsToTxnRequestTopic()
	t.Topic, t.Partitions = at.topic, []int32{at.partition}
	req.Topics = append(req.Topics, t)
	resp, err := p.c.send(ctx, node, req)
	if err != nil {
		return err
	}
	answer, ok := resp.(*kmsg.AddPartitionsToTxnResponse)
	if !ok || len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1 {
		return errForm
	}
	if err := p.c.check(answer.Topics[0].Partitions[0].ErrorCode); err != nil {
		return err
	}
	p.added[at] = true
	return nil
}

// CommitOffsets adds a group's offsets to the open transaction, with one piece of metadata for all of them.
func (p *Producer) CommitOffsets(ctx context.Context, group, topic string, offsets map[int32]int64, metadata string) error {
	if !p.ready {
		return errNotReady
	}
	err := p.untilDone(ctx, func() error { return p.addGroup(ctx, group) })
	if err == nil {
		err = p.untilDone(ctx, func() error { return p.commitOffsets(ctx, group, topic, offsets, metadata) })
	}
	if err != nil {
		p.ready = false
		return fmt.Errorf("kafka: offsets of %s: %w", group, err)
	}
	return nil
}

func (p *Producer) addGroup(ctx context.Context, group string) error {
	if p.c.opts.Transactions >= 2 {
		return nil
	}
	node, err := p.c.find(ctx, ofTransaction, p.id)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrAddOffsetsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = p.id, p.number, p.epoch, group
	resp, err := p.c.send(ctx, node, req)
	if err != nil {
		return err
	}
	answer, ok := resp.(*kmsg.AddOffsetsToTxnResponse)
	if !ok {
		return errForm
	}
	return p.c.check(answer.ErrorCode)
}

func (p *Producer) commitOffsets(ctx context.Context, group, topic string, offsets map[int32]int64, metadata string) error {
	node, err := p.c.find(ctx, ofGroup, group)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = p.id, p.number, p.epoch, group
	t := kmsg.NewTxnOffsetCommitRequestTopic()
	t.Topic = topic
	for partition, offset := range offsets {
		tp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		tp.Partition, tp.Offset, tp.Metadata = partition, offset, kmsg.StringPtr(metadata)
		t.Partitions = append(t.Partitions, tp)
	}
	req.Topics = append(req.Topics, t)
	resp, err := p.c.send(ctx, node, req)
	if err != nil {
		return err
	}
	answer, ok := resp.(*kmsg.TxnOffsetCommitResponse)
	if !ok || len(answer.Topics) != 1 {
		return errForm
	}
	for _, one := range answer.Topics[0].Partitions {
		if err := p.c.check(one.ErrorCode); err != nil {
			return err
		}
	}
	return nil
}

// Commit ends the open transaction. It is sent once. After an error, whatever it says, only a new initialisation and a
// read up to the high watermark after that tell whether it took effect.
func (p *Producer) Commit(ctx context.Context) error {
	if !p.ready {
		return errNotReady
	}
	p.ready = false
	node, err := p.c.find(ctx, ofTransaction, p.id)
	if err != nil {
		return fmt.Errorf("kafka: committing %s: %w", p.id, err)
	}
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = p.id, p.number, p.epoch, true
	resp, err := p.c.send(ctx, node, req)
	if err != nil {
		return fmt.Errorf("kafka: committing %s: %w", p.id, err)
	}
	answer, ok := resp.(*kmsg.EndTxnResponse)
	if !ok {
		return errForm
	}
	if err := p.c.check(answer.ErrorCode); err != nil {
		return fmt.Errorf("kafka: committing %s: %w", p.id, err)
	}
	p.ready = true
	clear(p.added)
	if answer.Version >= 5 && answer.ProducerID >= 0 {
		p.number, p.epoch = answer.ProducerID, answer.ProducerEpoch
		clear(p.sequences)
	}
	return nil
}
