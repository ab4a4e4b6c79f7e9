package dynamodb_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/eventproof/eventproof/emulators/dynamodb"
)

// all reads every page of a query, and returns the sort keys and the sizes of the pages.
func (b *bench) all(t *testing.T, in *sdk.QueryInput) (keys, pages []string) {
	t.Helper()
	for {
		out, err := b.db.Query(context.Background(), in)
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range out.Items {
			keys = append(keys, it["sk"].(*str).Value)
		}
		pages = append(pages, fmt.Sprint(out.ScannedCount))
		if out.LastEvaluatedKey == nil {
			return keys, pages
		}
		in.ExclusiveStartKey = out.LastEvaluatedKey
	}
}

func (b *bench) fill(t testing.TB, pk string, n int, more ...any) {
	t.Helper()
	for i := range n {
		b.put(t, "tab", with(key(pk, fmt.Sprintf("%03d", i)), more...))
	}
}

func TestKeyConditionsGiveTheirRangeInBothDirections(t *testing.T) {
	b := start(t, dynamodb.Options{})
	b.table(t, "tab")
	b.fill(t, "a", 12)
	b.fill(t, "b", 3)
	for condition, want := range map[string]string{
		"pk = :p AND sk = :l":                 "003",
		"pk = :p AND sk < :l":                 "000 001 002",
		"pk = :p AND sk <= :l":                "000 001 002 003",
		"pk = :p AND sk > :h":                 "010 011",
		"sk >= :h AND pk = :p":                "009 010 011",
		"pk = :p AND sk BETWEEN :l AND :h":    "003 004 005 006 007 008 009",
		"pk = :p AND begins_with(sk, :pre)":   "010 011",
		"pk = :none":                          "",
		"(pk = :p) AND (begins_with(sk, :l))": "003",
	} {
		for _, forward := range []bool{true, false} {
			for _, limit := range []int32{1, 2, 100} {
				keys, _ := b.all(t, &sdk.QueryInput{TableName: aws.String("tab"), KeyConditionExpression: &condition, ScanIndexForward: &forward, Limit: &limit,
					ConsistentRead:            aws.Bool(true),
					ExpressionAttributeValues: usedWords(condition, attrs{":p": s("a"), ":l": s("003"), ":h": map[bool]types.AttributeValue{true: s("009"), false: s("010")}[!strings.Contains(condition, "sk > ")], ":pre": s("01"), ":none": s("zzz")})})
				wantKeys := strings.Fields(want)
				if strings.Contains(condition, "sk > ") {
					wantKeys = []string{"011"}
				}
				if !forward {
					for i, j := 0, len(wantKeys)-1; i < j; i, j = i+1, j-1 {
						wantKeys[i], wantKeys[j] = wantKeys[j], wantKeys[i]
					}
				}
				if got := strings.Join(keys, " "); got != strings.Join(wantKeys, " ") {
					t.Errorf("%s forward=%v limit=%d: %s", condition, forward, limit, got)
				}
			}
		}
	}
}

func TestBadQueriesAreRefused(t *testing.T) {
	b := start(t, dynamodb.Options{})
	b.table(t, "tab")
	values := attrs{":p": s("a"), ":s": s("b"), ":n": n(1)}
	for name, in := range map[string]*sdk.QueryInput{
		"no hash key":                {KeyConditionExpression: aws.String("sk = :s")},
		"hash key not by =":          {KeyConditionExpression: aws.String("pk > :p")},
		"two conditions on sort key": {KeyConditionExpression: aws.String("pk = :p AND sk > :s AND sk < :s")},
		"not a key":                  {KeyConditionExpression: aws.String("pk = :p AND other = :s")},
		"or":                         {KeyConditionExpression: aws.String("pk = :p OR sk = :s")},
		"unequal":                    {KeyConditionExpression: aws.String("pk = :p AND sk <> :s")},
		"wrong type":                 {KeyConditionExpression: aws.String("pk = :n")},
		"filter on the hash key":     {KeyConditionExpression: aws.String("pk = :p"), FilterExpression: aws.String("pk = :s")},
		"filter on the sort key":     {KeyConditionExpression: aws.String("pk = :p"), FilterExpression: aws.String("attribute_exists(other) AND sk > :s")},
		"limit 0":                    {KeyConditionExpression: aws.String("pk = :p"), Limit: aws.Int32(0)},
		"foreign start key":          {KeyConditionExpression: aws.String("pk = :p"), ExclusiveStartKey: key("other", "1")},
		"half a start key":           {KeyConditionExpression: aws.String("pk = :p"), ExclusiveStartKey: attrs{"pk": s("a")}},
		"no such index":              {KeyConditionExpression: aws.String("pk = :p"), IndexName: aws.String("gsi")},
		"capacity":                   {KeyConditionExpression: aws.String("pk = :p"), ReturnConsumedCapacity: "TOTAL"},
		"of before expressions":      {KeyConditionExpression: aws.String("pk = :p"), AttributesToGet: []string{"pk"}},
	} {
		in.TableName = aws.String("tab")
		expression := *in.KeyConditionExpression
		if in.FilterExpression != nil {
			expression += " " + *in.FilterExpression
		}
		in.ExpressionAttributeValues = usedWords(expression, values)
		_, err := b.db.Query(context.Background(), in)
		if code(err) != "ValidationException" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnExactMultipleOfTheLimitEndsWithAnEmptyPage(t *testing.T) {
	b := start(t, dynamodb.Options{})
	b.table(t, "tab")
	b.fill(t, "a", 6)
	for limit, want := range map[int32]string{2: "2 2 2 0", 3: "3 3 0", 4: "4 2", 6: "6 0", 7: "6"} {
		_, pages := b.all(t, &sdk.QueryInput{TableName: aws.String("tab"), KeyConditionExpression: aws.String("pk = :p"), Limit: &limit,
			ExpressionAttributeValues: attrs{":p": s("a")}})
		if got := strings.Join(pages, " "); got != want {
			t.Errorf("limit %d: pages of %s, want %s", limit, got, want)
		}
	}
}

func TestAPageEndsAtOneMegabyte(t *testing.T) {
	b := start(t, dynamodb.Options{})
	b.table(t, "tab")
	b.fill(t, "a", 16, "d", s(strings.Repeat("x", 100_000)))
	in := &sdk.QueryInput{TableName: aws.String("tab"), KeyConditionExpression: aws.String("pk = :p"), ExpressionAttributeValues: attrs{":p": s("a")}}
	keys, pages := b.all(t, in)
	if len(keys) != 16 || strings.Join(pages, " ") != "10 6" {
		t.Errorf("%d items in pages of %v", len(keys), pages)
	}
	// A filter makes the answer smaller, not the page.
	in.ExclusiveStartKey, in.FilterExpression = nil, aws.String("attribute_not_exists(d)")
	keys, pages = b.all(t, in)
	if len(keys) != 0 || strings.Join(pages, " ") != "10 6" {
		t.Errorf("with a filter: %d items in pages of %v", len(keys), pages)
	}
}

func TestFiltersCountAndProject(t *testing.T) {
	b := start(t, dynamodb.Options{})
	b.table(t, "tab")
	for i := range 10 {
		b.put(t, "tab", with(key("a", fmt.Sprint(i)), "v", n(i), "m", &types.AttributeValueMemberM{Value: attrs{"x": n(i), "y": n(0)}}))
	}
	out, err := b.db.Query(context.Background(), &sdk.QueryInput{TableName: aws.String("tab"), KeyConditionExpression: aws.String("pk = :p"),
		FilterExpression: aws.String("v >= :v"), ProjectionExpression: aws.String("sk, m.x"), Limit: aws.Int32(9),
		ExpressionAttributeValues: attrs{":p": s("a"), ":v": n(8)}})
	if err != nil {
		t.Fatal(err)
	}
	if out.Count != 1 || out.ScannedCount != 9 || text(out.LastEvaluatedKey) != text(key("a", "8")) || text(out.Items[0]) != `m={x=8} sk="8"` {
		t.Errorf("count %d of %d, last %s, items %v", out.Count, out.ScannedCount, text(out.LastEvaluatedKey), out.Items)
	}
	out, err = b.db.Query(context.Background(), &sdk.QueryInput{TableName: aws.String("tab"), KeyConditionExpression: aws.String("pk = :p"),
		Select: types.SelectCount, ExpressionAttributeValues: attrs{":p": s("a")}})
	if err != nil || out.Count != 10 || out.Items != nil {
		t.Errorf("count: %v %v", out, err)
	}
	_, err = b.db.Query(context.Background(), &sdk.QueryInput{TableName: aws.String("tab"), KeyConditionExpression: aws.String("pk = :p"),
		ProjectionExpression: aws.String("m, m.x"), ExpressionAttributeValues: attrs{":p": s("a")}})
	wantCode(t, err, "ValidationException")
}

func TestAScanMeetsEveryItemOnceInSegmentsAndPages(t *testing.T) {
	b := start(t, dynamodb.Options{})
	b.table(t, "tab")
	want := map[string]bool{}
	for i := range 60 {
		k := key(fmt.Sprintf("p%d", i%20), fmt.Sprint(i))
		b.put(t, "tab", k)
		want[text(k)] = true
	}
	for _, segments := range []int32{1, 3} {
		seen := map[string]int{}
		for segment := range segments {
			in := &sdk.ScanInput{TableName: aws.String("tab"), Limit: aws.Int32(7), Segment: &segment, TotalSegments: &segments}
			for {
				out, err := b.db.Scan(context.Background(), in)
				if err != nil {
					t.Fatal(err)
				}
				for _, it := range out.Items {
					seen[text(it)]++
				}
				if in.ExclusiveStartKey = out.LastEvaluatedKey; in.ExclusiveStartKey == nil {
					break
				}
				// What comes and goes meanwhile does no harm.
				gone := key(fmt.Sprintf("q%d", len(seen)), "x")
				b.put(t, "tab", gone)
				if _, err := b.db.DeleteItem(context.Background(), &sdk.DeleteItemInput{TableName: aws.String("tab"), Key: gone}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if len(seen) != len(want) {
			t.Errorf("%d segments: %d items, want %d", segments, len(seen), len(want))
		}
		for k, times := range seen {
			if times != 1 || !want[k] {
				t.Errorf("%d segments: %s seen %d times", segments, k, times)
			}
		}
	}
}

func TestNumbersAreOrderedByValue(t *testing.T) {
	b := start(t, dynamodb.Options{})
	_, err := b.db.CreateTable(context.Background(), &sdk.CreateTableInput{TableName: aws.String("tab"), BillingMode: "PAY_PER_REQUEST",
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("pk"), AttributeType: "S"}, {AttributeName: aws.String("sk"), AttributeType: "N"}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("pk"), KeyType: "HASH"}, {AttributeName: aws.String("sk"), KeyType: "RANGE"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []string{"10", "9", "-1", "-1.5", "-100", "0", "0.001", "1e20", "-1E-20", "1.0", "99999999999999999999999999999999999999", "100", "-0.5", "3"} {
		b.put(t, "tab", attrs{"pk": s("a"), "sk": n(v)})
	}
	out, err := b.db.Query(context.Background(), &sdk.QueryInput{TableName: aws.String("tab"), KeyConditionExpression: aws.String("pk = :p"), ExpressionAttributeValues: attrs{":p": s("a")}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, it := range out.Items {
		got = append(got, it["sk"].(*num).Value)
	}
	want := "-100 -1.5 -1 -0.5 -0.00000000000000000001 0 0.001 1 3 9 10 100 100000000000000000000 99999999999999999999999999999999999999"
	if strings.Join(got, " ") != want {
		t.Errorf("%v", got)
	}
}

// indexed makes a table with two global secondary indexes: one of all, one of keys.
func (b *bench) indexed(t *testing.T) {
	t.Helper()
	attribute := func(name string, kind types.ScalarAttributeType) types.AttributeDefinition {
		return types.AttributeDefinition{AttributeName: &name, AttributeType: kind}
	}
	schema := func(hash, rng string) []types.KeySchemaElement {
		return []types.KeySchemaElement{{AttributeName: &hash, KeyType: "HASH"}, {AttributeName: &rng, KeyType: "RANGE"}}
	}
	_, err := b.db.CreateTable(context.Background(), &sdk.CreateTableInput{TableName: aws.String("tab"), BillingMode: "PAY_PER_REQUEST",
		AttributeDefinitions: []types.AttributeDefinition{attribute("pk", "S"), attribute("sk", "S"), attribute("g", "S"), attribute("o", "N")},
		KeySchema:            schema("pk", "sk"),
		GlobalSecondaryIndexes: []types.GlobalSecondaryIndex{
			{IndexName: aws.String("full"), KeySchema: schema("g", "o"), Projection: &types.Projection{ProjectionType: "ALL"}},
			{IndexName: aws.String("keys"), KeySchema: schema("g", "o"), Projection: &types.Projection{ProjectionType: "KEYS_ONLY"}},
			{IndexName: aws.String("some"), KeySchema: schema("g", "o"), Projection: &types.Projection{ProjectionType: "INCLUDE", NonKeyAttributes: []string{"x"}}},
		}})
	if err != nil {
		t.Fatal(err)
	}
}

func TestIndexesFollowTheirTable(t *testing.T) {
	b := start(t, dynamodb.Options{})
	b.indexed(t)
	ctx := context.Background()
	for i := range 6 {
		b.put(t, "tab", with(key("a", fmt.Sprint(i)), "g", s("G"), "o", n(5-i/2), "x", n(i), "y", n(i)))
	}
	b.put(t, "tab", with(key("a", "sparse"), "g", s("G")))
	query := func(index string, limit int32) (keys []string, first attrs) {
		in := &sdk.QueryInput{TableName: aws.String("tab"), IndexName: &index, KeyConditionExpression: aws.String("g = :g"), Limit: &limit, ExpressionAttributeValues: attrs{":g": s("G")}}
		for {
			out, err := b.db.Query(ctx, in)
			if err != nil {
				t.Fatal(err)
			}
			for _, it := range out.Items {
				keys = append(keys, it["sk"].(*str).Value)
				if first == nil {
					first = it
				}
			}
			if in.ExclusiveStartKey = out.LastEvaluatedKey; in.ExclusiveStartKey == nil {
				return keys, first
			}
		}
	}
	for index, want := range map[string]string{"full": `g="G" o=3 pk="a" sk="4" x=4 y=4`, "keys": `g="G" o=3 pk="a" sk="4"`, "some": `g="G" o=3 pk="a" sk="4" x=4`} {
		for _, limit := range []int32{1, 2, 3, 100} {
			keys, first := query(index, limit)
			if strings.Join(keys, " ") != "4 5 2 3 0 1" || text(first) != want {
				t.Errorf("%s limit %d: %v, first %s", index, limit, keys, text(first))
			}
		}
	}
	b.put(t, "tab", with(key("a", "5"), "g", s("other"), "o", n(1)))
	b.put(t, "tab", with(key("a", "0"), "g", s("G"), "o", n(1)))
	if _, err := b.db.DeleteItem(ctx, &sdk.DeleteItemInput{TableName: aws.String("tab"), Key: key("a", "2")}); err != nil {
		t.Fatal(err)
	}
	if keys, _ := query("full", 2); strings.Join(keys, " ") != "0 4 3 1" {
		t.Errorf("after changes: %v", keys)
	}
	_, err := b.db.Query(ctx, &sdk.QueryInput{TableName: aws.String("tab"), IndexName: aws.String("full"), ConsistentRead: aws.Bool(true), KeyConditionExpression: aws.String("g = :g"), ExpressionAttributeValues: attrs{":g": s("G")}})
	wantCode(t, err, "ValidationException")
	_, err = b.db.PutItem(ctx, &sdk.PutItemInput{TableName: aws.String("tab"), Item: with(key("a", "9"), "g", n(1))})
	wantCode(t, err, "ValidationException")
	out, err := b.db.Scan(ctx, &sdk.ScanInput{TableName: aws.String("tab"), IndexName: aws.String("keys")})
	if err != nil || out.Count != 5 {
		t.Errorf("scan of an index: %v %v", out, err)
	}
}

func TestBatchesHaveTheirLimits(t *testing.T) {
	b := start(t, dynamodb.Options{})
	b.table(t, "tab")
	ctx := context.Background()
	puts := func(n int) (out []types.WriteRequest) {
		for i := range n {
			out = append(out, types.WriteRequest{PutRequest: &types.PutRequest{Item: key("a", fmt.Sprint(i))}})
		}
		return out
	}
	write := func(w []types.WriteRequest) error {
		_, err := b.db.BatchWriteItem(ctx, &sdk.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{"tab": w}})
		return err
	}
	wantCode(t, write(puts(26)), "ValidationException")
	wantCode(t, write(append(puts(2), types.WriteRequest{DeleteRequest: &types.DeleteRequest{Key: key("a", "1")}})), "ValidationException")
	if got := b.get(t, "tab", key("a", "0")); got != nil {
		t.Error("a refused batch wrote something")
	}
	wantCode(t, write(puts(25)), "")
	get := func(n int, more ...attrs) (*sdk.BatchGetItemOutput, error) {
		var keys []attrs
		for i := range n {
			keys = append(keys, key("a", fmt.Sprint(i)))
		}
		return b.db.BatchGetItem(ctx, &sdk.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{"tab": {Keys: append(keys, more...)}}})
	}
	_, err := get(101)
	wantCode(t, err, "ValidationException")
	_, err = get(2, key("a", "1"))
	wantCode(t, err, "ValidationException")
	out, err := get(100)
	if err != nil || len(out.Responses["tab"]) != 25 || len(out.UnprocessedKeys) != 0 {
		t.Errorf("%v %v", out, err)
	}
}

func TestAReadOfSixteenMegabytesLeavesTheRestUnprocessed(t *testing.T) {
	b := start(t, dynamodb.Options{})
	b.table(t, "tab")
	b.fill(t, "a", 45, "d", s(strings.Repeat("x", 400_000)))
	var keys []attrs
	for i := range 45 {
		keys = append(keys, key("a", fmt.Sprintf("%03d", i)))
	}
	out, err := b.db.BatchGetItem(context.Background(), &sdk.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{"tab": {Keys: keys}}})
	if err != nil {
		t.Fatal(err)
	}
	got, left := len(out.Responses["tab"]), len(out.UnprocessedKeys["tab"].Keys)
	if got+left != 45 || got != 41 {
		t.Errorf("%d items, %d keys unprocessed", got, left)
	}
}
