package dynamodb_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/eventproof/eventproof/emulators/dynamodb"
)

const writers = 64

func TestOneOfSixtyFourConditionalPutsWins(t *testing.T) {
	b := start(t, dynamodb.Options{})
	b.table(t, "tab")
	for round := range 10 {
		var won, lost atomic.Int64
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				_, err := b.db.PutItem(context.Background(), &sdk.PutItemInput{TableName: aws.String("tab"), Item: with(key("a", fmt.Sprint(round)), "w", n(w)),
					ConditionExpression: aws.String("attribute_not_exists(pk)")})
				switch code(err) {
				case "":
					won.Add(1)
				case "ConditionalCheckFailedException":
					lost.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 || lost.Load() != writers-1 {
			t.Errorf("round %d: %d won, %d lost", round, won.Load(), lost.Load())
		}
	}
}

func TestNoneOfSixtyFourWritersUpdatesIsLost(t *testing.T) {
	b := start(t, dynamodb.Options{})
	b.table(t, "tab")
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range 8 {
				if _, err := b.db.UpdateItem(context.Background(), &sdk.UpdateItemInput{TableName: aws.String("tab"), Key: key("a", "1"),
					UpdateExpression: aws.String("ADD v :one"), ExpressionAttributeValues: attrs{":one": n(1)}}); err != nil {
					t.Error(err)
				}
				if err := b.transact("", txAdd(key("a", "1"), 1), txAdd(key("a", "2"), 1)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	one, two := b.get(t, "tab", key("a", "1"))["v"].(*num).Value, b.get(t, "tab", key("a", "2"))["v"].(*num).Value
	if one != strconv.Itoa(writers*16) || two != strconv.Itoa(writers*8) {
		t.Errorf("%s and %s", one, two)
	}
}

// append is an optimistic append of one event beside its head, as 64 writers race for it, with and without a window.
func TestSixtyFourAppendersLeaveNoGapAndNoDouble(t *testing.T) {
	for name, opt := range map[string]dynamodb.Options{"no window": {}, "window": {Window: 100 * time.Microsecond, Seed: 7}} {
		t.Run(name, func(t *testing.T) {
			b := start(t, opt)
			b.table(t, "tab")
			head := key("stream", "head")
			b.put(t, "tab", with(head, "v", n(0)))
			var acked, conflicts atomic.Int64
			ctx, cancel := context.WithTimeout(context.Background(), 700*time.Millisecond)
			defer cancel()
			var wg sync.WaitGroup
			for range writers {
				wg.Go(func() {
					for ctx.Err() == nil {
						v, err := strconv.Atoi(b.get(t, "tab", head)["v"].(*num).Value)
						if err != nil {
							t.Error(err)
							return
						}
						err = b.transact("", types.TransactWriteItem{Update: &types.Update{TableName: aws.String("tab"), Key: head,
							UpdateExpression: aws.String("SET v = :new"), ConditionExpression: aws.String("v = :old"),
							ExpressionAttributeValues: attrs{":old": n(v), ":new": n(v + 1)}}}, txPut(key("stream", fmt.Sprintf("%08d", v+1)), ""))
						switch got := reasons(err); got {
						case "":
							acked.Add(1)
						case "ConditionalCheckFailed None":
						case "TransactionConflict None", "TransactionConflict TransactionConflict", "None TransactionConflict":
							conflicts.Add(1)
						default:
							t.Error(got)
						}
					}
				})
			}
			wg.Wait()
			keys, _ := b.all(t, &sdk.QueryInput{TableName: aws.String("tab"), KeyConditionExpression: aws.String("pk = :p AND sk < :head"), ConsistentRead: aws.Bool(true),
				ExpressionAttributeValues: attrs{":p": s("stream"), ":head": s("head")}})
			for i, k := range keys {
				if k != fmt.Sprintf("%08d", i+1) {
					t.Fatalf("event %d is %s", i+1, k)
				}
			}
			if int64(len(keys)) != acked.Load() || acked.Load() == 0 {
				t.Errorf("%d stored, %d acknowledged", len(keys), acked.Load())
			}
			if (conflicts.Load() > 0) != (opt.Window > 0) {
				t.Errorf("%d conflicts", conflicts.Load())
			}
			t.Logf("%d appends, %d conflicts", acked.Load(), conflicts.Load())
		})
	}
}

func BenchmarkConditionalPuts(b *testing.B) {
	for name, dir := range map[string]string{"memory": "", "log": b.TempDir()} {
		b.Run(name, func(b *testing.B) {
			h := start(b, dynamodb.Options{Dir: dir})
			h.table(b, "tab"+fmt.Sprint(b.N))
			table := "tab" + fmt.Sprint(b.N)
			payload := s(strings.Repeat("x", 200))
			var next atomic.Int64
			b.ResetTimer()
			var wg sync.WaitGroup
			for range writers {
				wg.Go(func() {
					for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
						if _, err := h.db.PutItem(context.Background(), &sdk.PutItemInput{TableName: &table, Item: with(key(fmt.Sprint(i%100), fmt.Sprintf("%010d", i)), "d", payload),
							ConditionExpression: aws.String("attribute_not_exists(pk)")}); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "puts/s")
		})
	}
}
