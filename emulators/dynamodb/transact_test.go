package dynamodb_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/eventproof/eventproof/emulators/dynamodb"
)

const allOld = types.ReturnValuesOnConditionCheckFailureAllOld

func (b *bench) transact(token string, items ...types.TransactWriteItem) error {
	in := &sdk.TransactWriteItemsInput{TransactItems: items}
	if token != "" {
		in.ClientRequestToken = &token
	}
	_, err := b.db.TransactWriteItems(context.Background(), in)
	return err
}

func txPut(it attrs, condition string) types.TransactWriteItem {
	p := &types.Put{TableName: aws.String("tab"), Item: it}
	if condition != "" {
		p.ConditionExpression, p.ReturnValuesOnConditionCheckFailure = &condition, allOld
	}
	return types.TransactWriteItem{Put: p}
}

func txAdd(k attrs, by any) types.TransactWriteItem {
	return types.TransactWriteItem{Update: &types.Update{TableName: aws.String("tab"), Key: k, UpdateExpression: aws.String("ADD v :by"),
		ExpressionAttributeValues: attrs{":by": n(by)}}}
}

func txCheck(k attrs, condition string) types.TransactWriteItem {
	return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{TableName: aws.String("tab"), Key: k, ConditionExpression: &condition,
		ReturnValuesOnConditionCheckFailure: allOld}}
}

func txDelete(k attrs, condition string) types.TransactWriteItem {
	return types.TransactWriteItem{Delete: &types.Delete{TableName: aws.String("tab"), Key: k, ConditionExpression: &condition, ReturnValuesOnConditionCheckFailure: allOld}}
}

func TestCancellationReasonsStandInTheOrderOfTheOperations(t *testing.T) {
	b := start(t, dynamodb.Options{})
	b.table(t, "tab")
	there, gone := with(key("a", "there"), "v", n(1), "txt", s("x")), key("a", "gone")
	other := with(key("a", "other"), "v", n(5))
	b.put(t, "tab", there)
	b.put(t, "tab", other)
	k, o := key("a", "there"), key("a", "other")
	update := func(k attrs, update, condition string, values attrs) types.TransactWriteItem {
		u := &types.Update{TableName: aws.String("tab"), Key: k, UpdateExpression: &update, ExpressionAttributeValues: values, ReturnValuesOnConditionCheckFailure: allOld}
		if condition != "" {
			u.ConditionExpression = &condition
		}
		return types.TransactWriteItem{Update: u}
	}
	for name, c := range map[string]struct {
		items []types.TransactWriteItem
		want  string
	}{
		"put":          {[]types.TransactWriteItem{txPut(k, "attribute_not_exists(pk)"), txPut(gone, "")}, "ConditionalCheckFailed+item None"},
		"both fail":    {[]types.TransactWriteItem{txPut(k, "attribute_not_exists(pk)"), txPut(with(o), "attribute_not_exists(pk)")}, "ConditionalCheckFailed+item ConditionalCheckFailed+item"},
		"second fails": {[]types.TransactWriteItem{txPut(gone, ""), txCheck(k, "attribute_exists(nope)")}, "None ConditionalCheckFailed+item"},
		"no item":      {[]types.TransactWriteItem{txPut(k, ""), txCheck(gone, "attribute_exists(pk)")}, "None ConditionalCheckFailed"},
		"delete":       {[]types.TransactWriteItem{txDelete(k, "attribute_exists(nope)"), txPut(gone, "")}, "ConditionalCheckFailed+item None"},
		"update":       {[]types.TransactWriteItem{update(k, "SET v = :v", "v > :v", attrs{":v": n(3)}), update(o, "SET v = :v", "v > :v", attrs{":v": n(3)})}, "ConditionalCheckFailed+item None"},
		"bad operand":  {[]types.TransactWriteItem{txPut(gone, ""), update(k, "SET txt = txt + :v", "", attrs{":v": n(1)})}, "None ValidationError"},
		"key type":     {[]types.TransactWriteItem{txPut(gone, ""), txPut(attrs{"pk": n(1), "sk": s("x")}, "")}, "None ValidationError"},
		"one item":     {[]types.TransactWriteItem{txPut(k, ""), txCheck(k, "attribute_exists(pk)")}, "ValidationException"},
		"bad syntax":   {[]types.TransactWriteItem{txPut(k, "v ="), txPut(gone, "")}, "ValidationException"},
		"no table":     {[]types.TransactWriteItem{{Put: &types.Put{TableName: aws.String("nope"), Item: k}}}, "ResourceNotFoundException"},
		"none":         {nil, "ValidationException"},
	} {
		if name == "none" {
			c.items = []types.TransactWriteItem{{}}
		}
		if got := reasons(b.transact("", c.items...)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if b.get(t, "tab", gone) != nil || text(b.get(t, "tab", k)) != text(there) || text(b.get(t, "tab", o)) != text(other) {
			t.Fatalf("%s: a cancelled transaction left traces", name)
		}
	}
}

func TestTransactionsHaveTheirLimits(t *testing.T) {
	b := start(t, dynamodb.Options{})
	b.table(t, "tab")
	puts := func(n, size int) (out []types.TransactWriteItem) {
		for i := range n {
			out = append(out, txPut(with(key("a", fmt.Sprint(i)), "d", s(strings.Repeat("x", size))), ""))
		}
		return out
	}
	wantCode(t, b.transact("", puts(100, 1)...), "")
	wantCode(t, b.transact("", puts(101, 1)...), "ValidationException")
	wantCode(t, b.transact("", puts(10, 400_000)...), "")
	wantCode(t, b.transact("", puts(11, 400_000)...), "ValidationException")
}

func TestATransactionIsReadWholeOrNotAtAll(t *testing.T) {
	b := start(t, dynamodb.Options{})
	b.table(t, "tab")
	const accounts, total = 4, 400
	for i := range accounts {
		b.put(t, "tab", with(key("a", fmt.Sprint(i)), "v", n(total/accounts)))
	}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 25 {
				from, to := (w+i)%accounts, (w+i+1+i%2)%accounts
				if err := b.transact("", txAdd(key("a", fmt.Sprint(from)), -1), txAdd(key("a", fmt.Sprint(to)), 1)); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for range 25 {
				var gets []types.TransactGetItem
				for i := range accounts {
					gets = append(gets, types.TransactGetItem{Get: &types.Get{TableName: aws.String("tab"), Key: key("a", fmt.Sprint(i))}})
				}
				out, err := b.db.TransactGetItems(context.Background(), &sdk.TransactGetItemsInput{TransactItems: gets})
				if err != nil {
					t.Error(err)
					return
				}
				sum := 0
				for _, r := range out.Responses {
					var v int
					if _, err := fmt.Sscan(r.Item["v"].(*num).Value, &v); err != nil {
						t.Error(err)
					}
					sum += v
				}
				if sum != total {
					t.Errorf("a torn read: %d", sum)
				}
			}
		})
	}
	wg.Wait()
}

func TestAReplayedTokenHasOneEffect(t *testing.T) {
	clock := newFakeClock()
	b := start(t, dynamodb.Options{Clock: clock})
	b.table(t, "tab")
	k := key("a", "1")
	value := func() string { return b.get(t, "tab", k)["v"].(*num).Value }
	wantCode(t, b.transact("t1", txAdd(k, 1)), "")
	wantCode(t, b.transact("t1", txAdd(k, 1)), "")
	if value() != "1" {
		t.Errorf("v = %s after a replay", value())
	}
	wantCode(t, b.transact("t1", txAdd(k, 2)), "IdempotentParameterMismatchException")

	once := txPut(key("a", "2"), "attribute_not_exists(pk)")
	wantCode(t, b.transact("t2", once), "")
	wantCode(t, b.transact("t2", once), "")
	if got := reasons(b.transact("t3", once)); got != "ConditionalCheckFailed+item" {
		t.Errorf("another token: %s", got)
	}
	// A cancelled transaction is not remembered.
	if _, err := b.db.DeleteItem(context.Background(), &sdk.DeleteItemInput{TableName: aws.String("tab"), Key: key("a", "2")}); err != nil {
		t.Fatal(err)
	}
	wantCode(t, b.transact("t3", once), "")

	clock.advance(10*time.Minute - time.Second)
	wantCode(t, b.transact("t1", txAdd(k, 1)), "")
	if value() != "1" {
		t.Errorf("v = %s: the token was forgotten before its ten minutes", value())
	}
	clock.advance(time.Second)
	wantCode(t, b.transact("t1", txAdd(k, 1)), "")
	if value() != "2" {
		t.Errorf("v = %s: the token was remembered after its ten minutes", value())
	}
}

func TestSixtyFourClientsWithOneTokenHaveOneEffect(t *testing.T) {
	for name, window := range map[string]time.Duration{"no window": 0, "window": 200 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			b := start(t, dynamodb.Options{Window: window, Seed: longWindow})
			b.table(t, "tab")
			var mu sync.Mutex
			outcomes := map[string]int{}
			var wg sync.WaitGroup
			for range 64 {
				wg.Go(func() {
					got := code(b.transact("token", txAdd(key("a", "1"), 1), txAdd(key("a", "2"), 1)))
					mu.Lock()
					defer mu.Unlock()
					outcomes[got]++
				})
			}
			wg.Wait()
			if got := text(b.get(t, "tab", key("a", "1"))); got != `pk="a" sk="1" v=1` {
				t.Error(got)
			}
			for got := range outcomes {
				if got != "" && got != "TransactionInProgressException" {
					t.Errorf("unexpected %s", got)
				}
			}
			if outcomes[""] == 0 {
				t.Error("nobody was told of success")
			}
			if (outcomes["TransactionInProgressException"] > 0) != (window > 0) {
				t.Errorf("%v", outcomes)
			}
		})
	}
}

// longWindow is a seed whose first window is nearly as long as it may be.
const longWindow = 4

// holding starts a transaction that stays in its window, and returns a function that waits for its end.
func (b *bench) holding(t *testing.T, token string, items ...types.TransactWriteItem) (end func() error) {
	t.Helper()
	id, err := b.Arm(dynamodb.Fault{Kind: dynamodb.TransactionWindow, Delay: dynamodb.Duration(400 * time.Millisecond), Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- b.transact(token, items...) }()
	for b.State().Transactions == 0 {
		if len(done) > 0 {
			t.Fatal("the transaction ended before it was seen in its window")
		}
		time.Sleep(100 * time.Microsecond)
	}
	if hits(b, id) != 1 {
		t.Fatal("the window did not hit")
	}
	return func() error { return <-done }
}

func TestOthersConflictWithATransactionInItsWindow(t *testing.T) {
	b := start(t, dynamodb.Options{Seed: longWindow})
	b.table(t, "tab")
	ctx := context.Background()
	k, free := key("a", "1"), key("a", "free")
	b.put(t, "tab", with(k, "v", n(1)))
	end := b.holding(t, "token", txAdd(k, 1))

	var single *types.TransactionConflictException
	if _, err := b.db.PutItem(ctx, &sdk.PutItemInput{TableName: aws.String("tab"), Item: k}); !errors.As(err, &single) {
		t.Errorf("put: %v", err)
	}
	_, err := b.db.UpdateItem(ctx, &sdk.UpdateItemInput{TableName: aws.String("tab"), Key: k, UpdateExpression: aws.String("REMOVE v")})
	wantCode(t, err, "TransactionConflictException")
	_, err = b.db.DeleteItem(ctx, &sdk.DeleteItemInput{TableName: aws.String("tab"), Key: k})
	wantCode(t, err, "TransactionConflictException")
	if got := reasons(b.transact("", txPut(free, ""), txAdd(k, 1))); got != "None TransactionConflict" {
		t.Errorf("transaction: %s", got)
	}
	wantCode(t, b.transact("token", txAdd(k, 1)), "TransactionInProgressException")
	wantCode(t, b.transact("token", txAdd(k, 2)), "IdempotentParameterMismatchException")
	_, err = b.db.TransactGetItems(ctx, &sdk.TransactGetItemsInput{TransactItems: []types.TransactGetItem{{Get: &types.Get{TableName: aws.String("tab"), Key: k}}}})
	if got := reasons(err); got != "TransactionConflict" {
		t.Errorf("transactional get: %s", got)
	}
	out, err := b.db.BatchWriteItem(ctx, &sdk.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{"tab": {
		{PutRequest: &types.PutRequest{Item: k}}, {PutRequest: &types.PutRequest{Item: free}}}}})
	if err != nil || len(out.UnprocessedItems["tab"]) != 1 || text(out.UnprocessedItems["tab"][0].PutRequest.Item) != text(k) {
		t.Errorf("batch: %v %v", out, err)
	}
	// Reads go on, and see what was before.
	if got := text(b.get(t, "tab", k)); got != `pk="a" sk="1" v=1` {
		t.Errorf("read in the window: %s", got)
	}
	wantCode(t, end(), "")
	if got := text(b.get(t, "tab", k)); got != `pk="a" sk="1" v=2` {
		t.Errorf("after the window: %s", got)
	}
	wantCode(t, b.transact("", txAdd(k, 1)), "")
}

func TestConditionsAreJudgedAtTheEndOfTheWindow(t *testing.T) {
	b := start(t, dynamodb.Options{Seed: longWindow})
	b.table(t, "tab")
	end := b.holding(t, "", txPut(key("a", "1"), ""))
	if _, err := b.db.DeleteTable(context.Background(), &sdk.DeleteTableInput{TableName: aws.String("tab")}); err != nil {
		t.Fatal(err)
	}
	wantCode(t, end(), "ResourceNotFoundException")
}

func TestTransactionGetsProjectAndTellWhatIsMissing(t *testing.T) {
	b := start(t, dynamodb.Options{})
	b.table(t, "tab")
	b.put(t, "tab", with(key("a", "1"), "v", n(1), "w", n(2)))
	out, err := b.db.TransactGetItems(context.Background(), &sdk.TransactGetItemsInput{TransactItems: []types.TransactGetItem{
		{Get: &types.Get{TableName: aws.String("tab"), Key: key("a", "1"), ProjectionExpression: aws.String("w")}},
		{Get: &types.Get{TableName: aws.String("tab"), Key: key("a", "2")}},
	}})
	if err != nil || len(out.Responses) != 2 || text(out.Responses[0].Item) != "w=2" || out.Responses[1].Item != nil {
		t.Errorf("%v %v", out, err)
	}
}
