package dynamodb_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/eventproof/eventproof/emulators/dynamodb"
)

func (b *bench) arm(t testing.TB, f dynamodb.Fault) string {
	t.Helper()
	id, err := b.Arm(f)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (b *bench) tryPut(it attrs) error {
	_, err := b.db.PutItem(context.Background(), &sdk.PutItemInput{TableName: aws.String("tab"), Item: it, ConditionExpression: aws.String("attribute_not_exists(pk)")})
	return err
}

func TestADroppedAnswerIsOfAWriteThatHappened(t *testing.T) {
	b := start(t, dynamodb.Options{})
	b.table(t, "tab")
	id := b.arm(t, dynamodb.Fault{Kind: dynamodb.DropAnswer, Ops: []string{"PutItem"}, Skip: 1, Count: 1})
	wantCode(t, b.tryPut(key("a", "1")), "")
	wantCode(t, b.tryPut(key("a", "1")), "ConditionalCheckFailedException") // a refusal is never dropped
	if err := b.tryPut(key("a", "2")); err == nil || !strings.HasPrefix(code(err), "not an answer") {
		t.Errorf("the answer came: %v", err)
	}
	if b.get(t, "tab", key("a", "2")) == nil {
		t.Error("the write did not happen")
	}
	wantCode(t, b.tryPut(key("a", "3")), "")
	if hits(b, id) != 1 {
		t.Errorf("%d hits", hits(b, id))
	}
}

func TestServerErrorsComeBeforeOrAfterTheWrite(t *testing.T) {
	b := start(t, dynamodb.Options{})
	b.table(t, "tab")
	for i, c := range []struct {
		fault  dynamodb.Fault
		code   string
		stored bool
	}{
		{dynamodb.Fault{Kind: dynamodb.ServerError}, "InternalServerError", false},
		{dynamodb.Fault{Kind: dynamodb.ServerError, Applied: true}, "InternalServerError", true},
		{dynamodb.Fault{Kind: dynamodb.ServerError, Code: "ServiceUnavailable"}, "ServiceUnavailable", false},
		{dynamodb.Fault{Kind: dynamodb.Throttle}, "ProvisionedThroughputExceededException", false},
		{dynamodb.Fault{Kind: dynamodb.Throttle, Code: "ThrottlingException"}, "ThrottlingException", false},
		{dynamodb.Fault{Kind: dynamodb.Throttle, Code: "RequestLimitExceeded"}, "RequestLimitExceeded", false},
		{dynamodb.Fault{Kind: dynamodb.Conflict}, "TransactionConflictException", false},
	} {
		c.fault.Count, c.fault.Ops = 1, []string{"PutItem"}
		id := b.arm(t, c.fault)
		k := key("a", fmt.Sprint(i))
		wantCode(t, b.tryPut(k), c.code)
		if got := b.get(t, "tab", k) != nil; got != c.stored {
			t.Errorf("%+v: stored %v", c.fault, got)
		}
		if hits(b, id) != 1 {
			t.Errorf("%+v: %d hits", c.fault, hits(b, id))
		}
		b.Disarm(id)
	}
}

func TestFaultsOfTransactionsAreCancellationReasons(t *testing.T) {
	b := start(t, dynamodb.Options{Seed: 1})
	b.table(t, "tab")
	for _, c := range []struct {
		fault dynamodb.Fault
		want  []string
	}{
		{dynamodb.Fault{Kind: dynamodb.Throttle}, []string{"ProvisionedThroughputExceededException"}},
		{dynamodb.Fault{Kind: dynamodb.Throttle, Reason: true}, []string{"ProvisionedThroughputExceeded None"}},
		{dynamodb.Fault{Kind: dynamodb.Conflict}, []string{"TransactionConflict None", "None TransactionConflict"}},
	} {
		c.fault.Ops = []string{"TransactWriteItems"}
		id := b.arm(t, c.fault)
		got := reasons(b.transact("", txPut(key("a", "1"), ""), txPut(key("a", "2"), "")))
		if got != c.want[0] && got != c.want[len(c.want)-1] {
			t.Errorf("%+v: %s", c.fault, got)
		}
		if hits(b, id) != 1 || b.get(t, "tab", key("a", "1")) != nil {
			t.Errorf("%+v: %d hits, or a write", c.fault, hits(b, id))
		}
		b.Disarm(id)
	}
	wantCode(t, b.transact("", txPut(key("a", "1"), "")), "")
}

func TestProbabilitiesComeFromTheSeed(t *testing.T) {
	pattern := func(seed uint64) string {
		b := start(t, dynamodb.Options{Seed: seed, Faults: []dynamodb.Fault{{ID: "f", Kind: dynamodb.Throttle, Ops: []string{"PutItem"}, Probability: 0.5}}})
		b.table(t, "tab")
		var out strings.Builder
		for i := range 40 {
			if code(b.tryPut(key("a", fmt.Sprint(i)))) == "" {
				out.WriteByte('.')
			} else {
				out.WriteByte('x')
			}
		}
		return out.String()
	}
	if a, again, other := pattern(1), pattern(1), pattern(2); a != again || a == other || !strings.Contains(a, "x") || !strings.Contains(a, ".") {
		t.Errorf("%s %s %s", a, again, other)
	}
}

func TestUnprocessedItemsAreNotWritten(t *testing.T) {
	b := start(t, dynamodb.Options{Seed: 5})
	b.table(t, "tab")
	id := b.arm(t, dynamodb.Fault{Kind: dynamodb.Unprocessed, Count: 2})
	var puts []types.WriteRequest
	var keys []attrs
	for i := range 10 {
		keys = append(keys, key("a", fmt.Sprint(i)))
		puts = append(puts, types.WriteRequest{PutRequest: &types.PutRequest{Item: keys[i]}})
	}
	out, err := b.db.BatchWriteItem(context.Background(), &sdk.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{"tab": puts}})
	if err != nil {
		t.Fatal(err)
	}
	left := map[string]bool{}
	for _, w := range out.UnprocessedItems["tab"] {
		left[text(w.PutRequest.Item)] = true
	}
	if len(left) == 0 {
		t.Fatal("all was processed")
	}
	for _, k := range keys {
		if (b.get(t, "tab", k) == nil) != left[text(k)] {
			t.Errorf("%s: unprocessed %v, stored %v", text(k), left[text(k)], !left[text(k)])
		}
	}
	got, err := b.db.BatchGetItem(context.Background(), &sdk.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{"tab": {Keys: keys}}})
	if err != nil || len(got.UnprocessedKeys["tab"].Keys) == 0 || hits(b, id) != 2 {
		t.Errorf("%v %v, %d hits", got, err, hits(b, id))
	}
}

func TestStaleReadsReturnWhatReallyWas(t *testing.T) {
	clock := newFakeClock()
	b := start(t, dynamodb.Options{Clock: clock, Seed: 9})
	b.indexed(t)
	ctx := context.Background()
	item := func(v int) attrs { return with(key("a", "1"), "g", s(fmt.Sprintf("g%d", v%2)), "o", n(v)) }
	b.put(t, "tab", item(0))
	read := func(consistent bool) string {
		out, err := b.db.GetItem(ctx, &sdk.GetItemInput{TableName: aws.String("tab"), Key: key("a", "1"), ConsistentRead: &consistent})
		if err != nil {
			t.Fatal(err)
		}
		return out.Item["o"].(*num).Value
	}
	index := func() (found string) {
		for g := range 2 {
			out, err := b.db.Query(ctx, &sdk.QueryInput{TableName: aws.String("tab"), IndexName: aws.String("full"), KeyConditionExpression: aws.String("g = :g"),
				ExpressionAttributeValues: attrs{":g": s(fmt.Sprintf("g%d", g))}})
			if err != nil {
				t.Fatal(err)
			}
			for _, it := range out.Items {
				found += it["o"].(*num).Value
			}
		}
		return found
	}
	if read(false) != "0" {
		t.Fatal("a stale read without a fault")
	}
	id := b.arm(t, dynamodb.Fault{Kind: dynamodb.StaleRead, Lag: dynamodb.Duration(time.Second)})
	stale, indexStale := 0, 0
	for v := 1; v <= 40; v++ {
		clock.advance(500 * time.Millisecond)
		b.put(t, "tab", item(v))
		if got := read(true); got != fmt.Sprint(v) {
			t.Fatalf("a consistent read of %d gave %s", v, got)
		}
		// The lag is at most a second: the one before is the oldest that may be seen 0.5 s after it was written.
		switch got := read(false); got {
		case fmt.Sprint(v):
		case fmt.Sprint(v - 1), fmt.Sprint(v - 2):
			stale++
		default:
			t.Fatalf("an eventual read of %d gave %s", v, got)
		}
		for _, c := range index() {
			if !strings.ContainsRune(fmt.Sprint(v, v-1, v-2), c) {
				t.Fatalf("an index read of %d gave %c", v, c)
			}
		}
		if index() != fmt.Sprint(v) {
			indexStale++
		}
	}
	if stale == 0 || indexStale == 0 || hits(b, id) == 0 {
		t.Errorf("%d stale reads, %d of the index, %d hits", stale, indexStale, hits(b, id))
	}
	clock.advance(time.Second)
	if got := read(false); got != "40" {
		t.Errorf("after the lag: %s", got)
	}
	b.Disarm("")
	b.put(t, "tab", item(41))
	if got := read(false); got != "41" {
		t.Errorf("after the fault: %s", got)
	}
}

func TestKnownBadModesBreakTheirPromise(t *testing.T) {
	t.Run("skip condition", func(t *testing.T) {
		b := start(t, dynamodb.Options{})
		b.table(t, "tab")
		b.put(t, "tab", key("a", "1"))
		id := b.arm(t, dynamodb.Fault{Kind: dynamodb.BadSkipCondition, Count: 2})
		wantCode(t, b.tryPut(key("a", "1")), "")
		wantCode(t, b.transact("", txPut(key("a", "1"), "attribute_not_exists(pk)")), "")
		wantCode(t, b.tryPut(key("a", "1")), "ConditionalCheckFailedException")
		if hits(b, id) != 2 {
			t.Errorf("%d hits", hits(b, id))
		}
	})
	t.Run("lose write", func(t *testing.T) {
		b := start(t, dynamodb.Options{})
		b.table(t, "tab")
		id := b.arm(t, dynamodb.Fault{Kind: dynamodb.BadLoseWrite, Count: 2})
		wantCode(t, b.tryPut(key("a", "1")), "")
		wantCode(t, b.transact("", txPut(key("a", "1"), "")), "")
		if b.get(t, "tab", key("a", "1")) != nil || hits(b, id) != 2 {
			t.Errorf("it is there, or %d hits", hits(b, id))
		}
	})
	t.Run("forget token", func(t *testing.T) {
		b := start(t, dynamodb.Options{})
		b.table(t, "tab")
		id := b.arm(t, dynamodb.Fault{Kind: dynamodb.BadForgetToken})
		wantCode(t, b.transact("t", txAdd(key("a", "1"), 1)), "")
		if hits(b, id) != 0 {
			t.Error("a hit without a replay")
		}
		wantCode(t, b.transact("t", txAdd(key("a", "1"), 1)), "")
		if got := text(b.get(t, "tab", key("a", "1"))); got != `pk="a" sk="1" v=2` || hits(b, id) != 1 {
			t.Errorf("%s, %d hits", got, hits(b, id))
		}
	})
}

func TestFaultsThatCannotBeAreRefused(t *testing.T) {
	b := start(t, dynamodb.Options{})
	for _, f := range []dynamodb.Fault{
		{}, {Kind: "nope"}, {Kind: dynamodb.Throttle, Ops: []string{"Nope"}}, {Kind: dynamodb.Throttle, Probability: 2}, {Kind: dynamodb.Slow},
		{Kind: dynamodb.StaleRead}, {Kind: dynamodb.Throttle, Delay: 1}, {Kind: dynamodb.Throttle, Applied: true}, {Kind: dynamodb.Conflict, Reason: true},
		{Kind: dynamodb.Throttle, Code: "Nope"},
	} {
		if _, err := b.Arm(f); !errors.Is(err, dynamodb.ErrFault) {
			t.Errorf("%+v: %v", f, err)
		}
	}
	b.arm(t, dynamodb.Fault{ID: "x", Kind: dynamodb.Throttle})
	if _, err := b.Arm(dynamodb.Fault{ID: "x", Kind: dynamodb.Throttle}); !errors.Is(err, dynamodb.ErrFault) {
		t.Error(err)
	}
}

func (b *bench) admin(t testing.TB, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, b.url+path, bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil || resp.Header.Get(dynamodb.ProbeHeader) != dynamodb.Version {
		t.Fatal(err, resp.Header)
	}
	return resp.StatusCode, strings.TrimSpace(string(got))
}

func TestTheAdminEndpointSwitchesFaultsAndTellsTheState(t *testing.T) {
	b := start(t, dynamodb.Options{})
	b.table(t, "tab")
	if status, got := b.admin(t, "POST", dynamodb.FaultsPath, `{"kind": "slow", "ops": ["PutItem"], "delay": "300ms", "session": "writer-1/"}`); status != 200 || got != `{"id":"fault-1"}` {
		t.Fatal(status, got)
	}
	for _, bad := range []string{`{"kind": "nope"}`, `{"kind": "slow", "dela": "1s"}`, `{`, `{"kind": "slow", "delay": "never"}`} {
		if status, got := b.admin(t, "POST", dynamodb.FaultsPath, bad); status != 400 || !strings.Contains(got, "error") {
			t.Errorf("%s: %d %s", bad, status, got)
		}
	}
	wantCode(t, b.tryPut(key("a", "1")), "")
	done := make(chan error, 1)
	go func() {
		req, err := http.NewRequest("POST", b.url, strings.NewReader(`{"TableName": "tab", "Item": {"pk": {"S": "a"}, "sk": {"S": "2"}}}`))
		if err == nil {
			req.Header.Set("X-Amz-Target", "DynamoDB_20120810.PutItem")
			req.Header.Set(dynamodb.SessionHeader, "writer-1/7")
			var resp *http.Response
			if resp, err = http.DefaultClient.Do(req); err == nil {
				err = resp.Body.Close()
			}
		}
		done <- err
	}()
	var st dynamodb.State
	for len(st.InFlight) == 0 {
		_, got := b.admin(t, "GET", dynamodb.StatePath, "")
		if err := json.Unmarshal([]byte(got), &st); err != nil {
			t.Fatal(err)
		}
	}
	if f := st.InFlight[0]; f.Op != "PutItem" || f.Session != "writer-1/7" || b.get(t, "tab", key("a", "2")) != nil {
		t.Errorf("%+v", f)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := b.State(); len(got.InFlight) != 0 || b.get(t, "tab", key("a", "2")) == nil {
		t.Errorf("%+v", got)
	}
	if _, got := b.admin(t, "GET", dynamodb.FaultsPath, ""); got != `{"faults":[{"id":"fault-1","kind":"slow","ops":["PutItem"],"session":"writer-1/","delay":"300ms","seen":1,"hits":1}]}` {
		t.Error(got)
	}
	if _, got := b.admin(t, "DELETE", dynamodb.FaultsPath+"?id=fault-1", ""); !strings.Contains(got, `"hits":1`) || len(b.Faults()) != 0 {
		t.Error(got)
	}
	if status, _ := b.admin(t, "POST", dynamodb.SplitPath+"?table=tab", ""); status != 200 || len(b.shards(t, b.streamArn(t, "tab"))) != 2 {
		t.Errorf("split: %d", status)
	}
	if status, got := b.admin(t, "GET", "/", ""); status != 200 || !strings.Contains(got, "eventproof") {
		t.Errorf("probe: %d %s", status, got)
	}
	if status, _ := b.admin(t, "GET", "/other", ""); status != 400 {
		t.Errorf("unknown path: %d", status)
	}
}

func TestUnsupportedCallsAreRefusedClearly(t *testing.T) {
	b := start(t, dynamodb.Options{})
	b.table(t, "tab")
	ctx := context.Background()
	_, err := b.db.UpdateTable(ctx, &sdk.UpdateTableInput{TableName: aws.String("tab")})
	wantCode(t, err, "UnknownOperationException")
	_, err = b.db.ExecuteStatement(ctx, &sdk.ExecuteStatementInput{Statement: aws.String("SELECT * FROM tab")})
	wantCode(t, err, "UnknownOperationException")
	_, err = b.db.PutItem(ctx, &sdk.PutItemInput{TableName: aws.String("tab"), Item: key("a", "1"), Expected: map[string]types.ExpectedAttributeValue{"pk": {Exists: aws.Bool(false)}}})
	wantCode(t, err, "ValidationException")
	_, err = b.db.CreateTable(ctx, &sdk.CreateTableInput{TableName: aws.String("tab2"), BillingMode: "PAY_PER_REQUEST",
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("pk"), AttributeType: "S"}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("pk"), KeyType: "HASH"}},
		Tags:                 []types.Tag{{Key: aws.String("a"), Value: aws.String("b")}}})
	wantCode(t, err, "ValidationException")
}
