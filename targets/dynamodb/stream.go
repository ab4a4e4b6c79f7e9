package dynamodb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"github.com/eventproof/eventproof/eventstore"
)

// maxRecords is how many records one call asks for, the most the service gives.
const maxRecords = 1000

var (
	errShards   = errors.New("dynamodb: the list of shards does not continue the one seen before")
	errSequence = errors.New("dynamodb: malformed sequence number")
)

// change is a record of the stream that is about an event.
type change struct {
	at    eventstore.Position
	event eventstore.Event
	// rewritten: the key held another event before, which no correct writer does.
	rewritten bool
}

// tail reads the stream of the table from its oldest record: every shard once, parents before their children.
type tail struct {
	arn    string
	listed bool
	shards []*shard // by number
}

// shard is a place in one shard. Its number is its place among the shards in the order of their ids, which is the order
// in which they were made.
type shard struct {
	id, parent string
	number     uint32
	iterator   string
	last       string // highest sequence number seen; an answer may repeat records, and mix those of several items
	lastAt     eventstore.Position
	done       bool // closed, and read to its end
}

// more says how much more a tail may have at once.
type more uint8

const (
	nothing   more = iota // no shard gave anything new
	something             // the shards gave less than they can
	plenty                // a shard gave as much as it can, or came to its end
)

// pump asks every shard that may be read for records, once, and hands over those about events.
func (t *tail) pump(ctx context.Context, c *Conn, take func(change)) (left more, err error) {
	if !t.listed {
		if err := t.list(ctx, c); err != nil {
			return nothing, err
		}
	}
	for _, s := range t.shards {
		if s.done || !t.ready(s) {
			continue
		}
		n, err := t.pumpShard(ctx, c, s, take)
		if err != nil {
			return nothing, err
		}
		switch {
		case s.done:
			// It has children, which may not be known yet.
			t.listed, left = false, plenty
		case n >= maxRecords:
			left = plenty
		case n > 0:
			left = max(left, something)
		}
	}
	return left, nil
}

// ready reports whether a shard's parent was read to its end. A parent that is not listed was trimmed away, or never
// was.
func (t *tail) ready(s *shard) bool {
	for _, p := range t.shards {
		if p.id == s.parent {
			return p.done
		}
	}
	return true
}

// pumpShard asks one shard once and returns how many records were new.
func (t *tail) pumpShard(ctx context.Context, c *Conn, s *shard, take func(change)) (fresh int, err error) {
	if s.iterator == "" {
		if err := t.open(ctx, c, s); err != nil {
			return 0, err
		}
	}
	out, err := c.streams.GetRecords(ctx, &dynamodbstreams.GetRecordsInput{
		ShardIterator: aws.String(s.iterator), Limit: aws.Int32(maxRecords),
	})
	if err != nil {
		// Iterators expire; the next poll takes a new one behind what was seen.
		s.iterator = ""
		return 0, c.read("poll", err)
	}
	for _, r := range out.Records {
		ch, ok, err := decodeChange(s.number, r)
		if err != nil {
			s.iterator = ""
			return 0, fail("poll", eventstore.Rejected, err)
		}
		if s.last == "" || ch.at.Compare(s.lastAt) > 0 {
			s.last, s.lastAt = aws.ToString(r.Dynamodb.SequenceNumber), ch.at
			fresh++
		}
		if ok {
			take(ch)
		}
	}
	s.iterator = aws.ToString(out.NextShardIterator)
	s.done = s.iterator == ""
	return fresh, nil
}

// open takes an iterator behind the last record seen, or at the oldest one.
func (t *tail) open(ctx context.Context, c *Conn, s *shard) error {
	in := &dynamodbstreams.GetShardIteratorInput{
		StreamArn: aws.String(t.arn), ShardId: aws.String(s.id), ShardIteratorType: streamtypes.ShardIteratorTypeTrimHorizon,
	}
	if s.last != "" {
		in.ShardIteratorType, in.SequenceNumber = streamtypes.ShardIteratorTypeAfterSequenceNumber, aws.String(s.last)
	}
	out, err := c.streams.GetShardIterator(ctx, in)
	if err != nil {
		return c.read("poll", err)
	}
	s.iterator = aws.ToString(out.ShardIterator)
	return nil
}

// list learns of new shards.
func (t *tail) list(ctx context.Context, c *Conn) error {
	var found []*shard
	var after *string
	for {
		out, err := c.streams.DescribeStream(ctx, &dynamodbstreams.DescribeStreamInput{
			StreamArn: aws.String(t.arn), ExclusiveStartShardId: after,
		})
		if err != nil {
			return c.read("poll", err)
		}
		for _, s := range out.StreamDescription.Shards {
			found = append(found, &shard{id: aws.ToString(s.ShardId), parent: aws.ToString(s.ParentShardId)})
		}
		if after = out.StreamDescription.LastEvaluatedShardId; after == nil {
			break
		}
	}
	slices.SortFunc(found, func(a, b *shard) int { return cmp.Compare(a.id, b.id) })
	for i, s := range t.shards {
		if i >= len(found) || found[i].id != s.id {
			return fail("poll", eventstore.Rejected, errShards)
		}
	}
	for i := len(t.shards); i < len(found); i++ {
		found[i].number = uint32(i)
		t.shards = append(t.shards, found[i])
	}
	t.listed = true
	return nil
}

// decodeChange reads a record; ok is false for one that is not about an event, of which only the position is told.
func decodeChange(number uint32, r streamtypes.Record) (ch change, ok bool, err error) {
	if r.Dynamodb == nil {
		return change{}, false, errItem
	}
	if ch.at, err = positionOf(number, aws.ToString(r.Dynamodb.SequenceNumber)); err != nil {
		return change{}, false, err
	}
	sk, isText := r.Dynamodb.Keys["sk"].(*streamtypes.AttributeValueMemberS)
	if !isText || !strings.HasPrefix(sk.Value, prefixEvent) || len(r.Dynamodb.NewImage) == 0 {
		return ch, false, nil
	}
	it, err := attributevalue.FromDynamoDBStreamsMap(r.Dynamodb.NewImage)
	if err != nil {
		return change{}, false, err
	}
	stored, err := decodeEvent(it)
	if err != nil {
		return change{}, false, err
	}
	ch.event, ch.rewritten = stored.Event, r.EventName == streamtypes.OperationTypeModify
	ch.event.Position = ch.at
	return ch, true, nil
}

// sequenceBase splits sequence numbers, which have up to 40 digits, in two.
var sequenceBase = new(big.Int).Exp(big.NewInt(10), big.NewInt(19), nil)

// positionOf makes a position of a shard's number and a sequence number.
func positionOf(number uint32, sequence string) (eventstore.Position, error) {
	n, ok := new(big.Int).SetString(sequence, 10)
	if !ok || n.Sign() <= 0 {
		return eventstore.Position{}, fmt.Errorf("%w: %q", errSequence, sequence)
	}
	major, minor := new(big.Int).DivMod(n, sequenceBase, new(big.Int))
	if !major.IsUint64() {
		return eventstore.Position{}, fmt.Errorf("%w: %q is too large", errSequence, sequence)
	}
	return eventstore.Position{Shard: number, Major: major.Uint64(), Minor: minor.Uint64()}, nil
}
