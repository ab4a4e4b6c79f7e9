package dynamodb_test

import (
	"context"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"github.com/eventproof/eventproof/emulators/dynamodb"
)

func (b *bench) streamArn(t testing.TB, table string) *string {
	t.Helper()
	out, err := b.streams.ListStreams(context.Background(), &dynamodbstreams.ListStreamsInput{TableName: &table})
	if err != nil || len(out.Streams) != 1 {
		t.Fatal(out, err)
	}
	return out.Streams[0].StreamArn
}

func (b *bench) shards(t testing.TB, arn *string) []streamtypes.Shard {
	t.Helper()
	out, err := b.streams.DescribeStream(context.Background(), &dynamodbstreams.DescribeStreamInput{StreamArn: arn})
	if err != nil {
		t.Fatal(err)
	}
	return out.StreamDescription.Shards
}

func (b *bench) iterator(t testing.TB, arn, shard *string, kind streamtypes.ShardIteratorType, sequence string) *string {
	t.Helper()
	in := &dynamodbstreams.GetShardIteratorInput{StreamArn: arn, ShardId: shard, ShardIteratorType: kind}
	if sequence != "" {
		in.SequenceNumber = &sequence
	}
	out, err := b.streams.GetShardIterator(context.Background(), in)
	if err != nil {
		t.Fatal(err)
	}
	return out.ShardIterator
}

func (b *bench) records(t testing.TB, iterator *string, limit int32) ([]streamtypes.Record, *string) {
	t.Helper()
	out, err := b.streams.GetRecords(context.Background(), &dynamodbstreams.GetRecordsInput{ShardIterator: iterator, Limit: &limit})
	if err != nil {
		t.Fatal(err)
	}
	return out.Records, out.NextShardIterator
}

// everything reads all shards from their beginning.
func (b *bench) everything(t testing.TB, table string) []streamtypes.Record {
	t.Helper()
	arn := b.streamArn(t, table)
	var all []streamtypes.Record
	for _, sh := range b.shards(t, arn) {
		it := b.iterator(t, arn, sh.ShardId, streamtypes.ShardIteratorTypeTrimHorizon, "")
		for it != nil {
			var page []streamtypes.Record
			if page, it = b.records(t, it, 3); len(page) == 0 {
				break
			}
			all = append(all, page...)
		}
	}
	return all
}

func image(it map[string]streamtypes.AttributeValue) string {
	var parts []string
	for _, name := range sorted(it) {
		switch v := it[name].(type) {
		case *streamtypes.AttributeValueMemberS:
			parts = append(parts, name+"="+v.Value)
		case *streamtypes.AttributeValueMemberN:
			parts = append(parts, name+"="+v.Value)
		default:
			parts = append(parts, fmt.Sprintf("%s=%T", name, v))
		}
	}
	return strings.Join(parts, " ")
}

func line(r streamtypes.Record) string {
	return fmt.Sprintf("%s %s: %s > %s", r.EventName, image(r.Dynamodb.Keys), image(r.Dynamodb.OldImage), image(r.Dynamodb.NewImage))
}

func TestAStreamTellsWhatChangedAndNothingElse(t *testing.T) {
	b := start(t, dynamodb.Options{})
	b.table(t, "tab")
	ctx := context.Background()
	k := key("a", "1")
	b.put(t, "tab", with(k, "v", n(1)))
	b.put(t, "tab", with(k, "v", n(2)))
	b.put(t, "tab", with(k, "v", n("2.0"))) // changes nothing
	if _, err := b.db.UpdateItem(ctx, &sdk.UpdateItemInput{TableName: aws.String("tab"), Key: k, UpdateExpression: aws.String("REMOVE gone")}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second deletes nothing
		if _, err := b.db.DeleteItem(ctx, &sdk.DeleteItemInput{TableName: aws.String("tab"), Key: k}); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, b.transact("", txAdd(key("a", "head"), 1), txPut(key("a", "2"), "")), "")
	if got := reasons(b.transact("", txAdd(key("a", "head"), 1), txPut(key("a", "2"), "attribute_not_exists(pk)"))); got != "None ConditionalCheckFailed+item" {
		t.Fatal(got)
	}
	var got []string
	for _, r := range b.everything(t, "tab") {
		got = append(got, line(r))
	}
	want := []string{
		"INSERT pk=a sk=1:  > pk=a sk=1 v=1",
		"MODIFY pk=a sk=1: pk=a sk=1 v=1 > pk=a sk=1 v=2",
		"REMOVE pk=a sk=1: pk=a sk=1 v=2 > ",
		"INSERT pk=a sk=head:  > pk=a sk=head v=1",
		"INSERT pk=a sk=2:  > pk=a sk=2",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestSequenceNumbersRiseAndCanBeResumed(t *testing.T) {
	b := start(t, dynamodb.Options{})
	b.table(t, "tab")
	b.fill(t, "a", 7)
	all := b.everything(t, "tab")
	if len(all) != 7 {
		t.Fatalf("%d records", len(all))
	}
	last := new(big.Int)
	for i, r := range all {
		n, ok := new(big.Int).SetString(*r.Dynamodb.SequenceNumber, 10)
		if !ok || n.Cmp(last) <= 0 || n.IsInt64() {
			t.Fatalf("sequence number %s after %v", *r.Dynamodb.SequenceNumber, last)
		}
		last = n
		arn := b.streamArn(t, "tab")
		shard := b.shards(t, arn)[0].ShardId
		at, _ := b.records(t, b.iterator(t, arn, shard, streamtypes.ShardIteratorTypeAtSequenceNumber, *r.Dynamodb.SequenceNumber), 100)
		after, next := b.records(t, b.iterator(t, arn, shard, streamtypes.ShardIteratorTypeAfterSequenceNumber, *r.Dynamodb.SequenceNumber), 100)
		if len(at) != 7-i || len(after) != 6-i || next == nil {
			t.Errorf("record %d: %d at, %d after", i, len(at), len(after))
		}
	}
	arn := b.streamArn(t, "tab")
	it := b.iterator(t, arn, b.shards(t, arn)[0].ShardId, streamtypes.ShardIteratorTypeLatest, "")
	page, next := b.records(t, it, 100)
	if len(page) != 0 {
		t.Errorf("%d records after the latest", len(page))
	}
	b.put(t, "tab", key("b", "1"))
	if page, _ = b.records(t, next, 100); len(page) != 1 {
		t.Errorf("%d records after one more put", len(page))
	}
}

func TestShardsKeepTheOrderOfEachItemOverASplit(t *testing.T) {
	b := start(t, dynamodb.Options{Shards: 4})
	b.table(t, "tab")
	write := func(round int) {
		for i := range 20 {
			b.put(t, "tab", with(key("a", fmt.Sprint(i)), "v", n(round)))
		}
	}
	write(1)
	write(2)
	if err := b.SplitShards("tab"); err != nil {
		t.Fatal(err)
	}
	write(3)
	arn := b.streamArn(t, "tab")
	shards := b.shards(t, arn)
	if len(shards) != 8 {
		t.Fatalf("%d shards", len(shards))
	}
	versions := map[string]string{}
	used := map[string]int{}
	for i, sh := range shards {
		if parent, closed := i < 4, sh.SequenceNumberRange.EndingSequenceNumber != nil; parent != closed || parent == (sh.ParentShardId != nil) {
			t.Errorf("shard %d: %+v", i, sh)
		}
		it := b.iterator(t, arn, sh.ShardId, streamtypes.ShardIteratorTypeTrimHorizon, "")
		for it != nil {
			var page []streamtypes.Record
			page, it = b.records(t, it, 100)
			for _, r := range page {
				versions[image(r.Dynamodb.Keys)] += image(r.Dynamodb.NewImage)[len(image(r.Dynamodb.NewImage))-1:]
				used[*sh.ShardId]++
				if *r.Dynamodb.SequenceNumber < *sh.SequenceNumberRange.StartingSequenceNumber {
					t.Errorf("record %s before the beginning of its shard", *r.Dynamodb.SequenceNumber)
				}
			}
			if i >= 4 {
				break // open for ever
			}
		}
	}
	if len(versions) != 20 || len(used) != 8 {
		t.Errorf("%d items in %d shards", len(versions), len(used))
	}
	for k, v := range versions {
		if v != "123" {
			t.Errorf("%s: %s", k, v)
		}
	}
}

func TestAnOldIteratorExpires(t *testing.T) {
	clock := newFakeClock()
	b := start(t, dynamodb.Options{Clock: clock})
	b.table(t, "tab")
	arn := b.streamArn(t, "tab")
	it := b.iterator(t, arn, b.shards(t, arn)[0].ShardId, streamtypes.ShardIteratorTypeTrimHorizon, "")
	clock.advance(15 * time.Minute)
	_, next := b.records(t, it, 1)
	clock.advance(time.Millisecond)
	_, err := b.streams.GetRecords(context.Background(), &dynamodbstreams.GetRecordsInput{ShardIterator: it})
	wantCode(t, err, "ExpiredIteratorException")
	b.records(t, next, 1)
}

func TestStreamViewsShowWhatTheyShould(t *testing.T) {
	b := start(t, dynamodb.Options{})
	//nolint:exhaustive // the cases of interest
	for view, want := range map[types.StreamViewType]string{
		types.StreamViewTypeKeysOnly: "MODIFY pk=a:  > ", types.StreamViewTypeNewImage: "MODIFY pk=a:  > pk=a v=2", types.StreamViewTypeOldImage: "MODIFY pk=a: pk=a v=1 > ",
	} {
		name := "tab-" + string(view)
		_, err := b.db.CreateTable(context.Background(), &sdk.CreateTableInput{TableName: &name, BillingMode: "PAY_PER_REQUEST",
			AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("pk"), AttributeType: "S"}},
			KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("pk"), KeyType: "HASH"}},
			StreamSpecification:  &types.StreamSpecification{StreamEnabled: aws.Bool(true), StreamViewType: view}})
		if err != nil {
			t.Fatal(err)
		}
		b.put(t, name, attrs{"pk": s("a"), "v": n(1)})
		b.put(t, name, attrs{"pk": s("a"), "v": n(2)})
		if all := b.everything(t, name); len(all) != 2 || line(all[1]) != want {
			t.Errorf("%s: %v", view, all)
		}
	}
}

func TestDisturbedDeliveriesKeepTheOrderOfEachItem(t *testing.T) {
	b := start(t, dynamodb.Options{Seed: 3})
	b.table(t, "tab")
	for round := range 5 {
		for i := range 6 {
			b.put(t, "tab", with(key("a", fmt.Sprint(i)), "v", n(round)))
		}
	}
	arn := b.streamArn(t, "tab")
	shard := b.shards(t, arn)[0].ShardId
	deliver := func() (sequences []string, perItem map[string][]string) {
		perItem = map[string][]string{}
		it := b.iterator(t, arn, shard, streamtypes.ShardIteratorTypeTrimHorizon, "")
		for {
			var page []streamtypes.Record
			if page, it = b.records(t, it, 10); len(page) == 0 {
				return sequences, perItem
			}
			for _, r := range page {
				sequences = append(sequences, *r.Dynamodb.SequenceNumber)
				perItem[image(r.Dynamodb.Keys)] = append(perItem[image(r.Dynamodb.Keys)], *r.Dynamodb.SequenceNumber)
			}
		}
	}
	plain, _ := deliver()
	if len(plain) != 30 || !slices.IsSorted(plain) {
		t.Fatalf("without a fault: %v", plain)
	}
	id, err := b.Arm(dynamodb.Fault{Kind: dynamodb.StreamReorder})
	if err != nil {
		t.Fatal(err)
	}
	mixed, perItem := deliver()
	if hits(b, id) != 3 || len(mixed) != 30 || slices.IsSorted(mixed) {
		t.Errorf("reorder: %d hits, %v", hits(b, id), mixed)
	}
	for k, sequences := range perItem {
		if len(sequences) != 5 || !slices.IsSorted(sequences) {
			t.Errorf("%s: %v", k, sequences)
		}
	}
	b.Disarm("")
	if id, err = b.Arm(dynamodb.Fault{Kind: dynamodb.StreamDuplicate}); err != nil {
		t.Fatal(err)
	}
	// The first delivery has nothing before it, so it is no hit; the last, empty one begins with old records too, so
	// the reader must stop by what it has seen.
	it := b.iterator(t, arn, shard, streamtypes.ShardIteratorTypeTrimHorizon, "")
	_, it = b.records(t, it, 10)
	if hits(b, id) != 0 {
		t.Error("a hit that disturbed nothing")
	}
	page, _ := b.records(t, it, 10)
	if hits(b, id) != 1 || len(page) <= 10 || *page[0].Dynamodb.SequenceNumber > plain[9] || *page[len(page)-1].Dynamodb.SequenceNumber != plain[19] {
		t.Errorf("duplicate: %d hits, %d records", hits(b, id), len(page))
	}
}
