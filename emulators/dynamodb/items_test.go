package dynamodb_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/eventproof/eventproof/emulators/dynamodb"
)

func sorted[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func TestTablesAreActiveAtOnceAndListedInPages(t *testing.T) {
	b := start(t, dynamodb.Options{})
	ctx := context.Background()
	for i := range 5 {
		b.table(t, fmt.Sprintf("table-%d", i))
	}
	if err := sdk.NewTableExistsWaiter(b.db).Wait(ctx, &sdk.DescribeTableInput{TableName: aws.String("table-0")}, time.Second); err != nil {
		t.Fatal(err)
	}
	var names []string
	pages := sdk.NewListTablesPaginator(b.db, &sdk.ListTablesInput{Limit: aws.Int32(2)})
	for pages.HasMorePages() {
		p, err := pages.NextPage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, p.TableNames...)
	}
	if got := strings.Join(names, " "); got != "table-0 table-1 table-2 table-3 table-4" {
		t.Error(got)
	}
	if _, err := b.db.DeleteTable(ctx, &sdk.DeleteTableInput{TableName: aws.String("table-3")}); err != nil {
		t.Fatal(err)
	}
	_, err := b.db.DescribeTable(ctx, &sdk.DescribeTableInput{TableName: aws.String("table-3")})
	wantCode(t, err, "ResourceNotFoundException")
	_, err = b.db.CreateTable(ctx, &sdk.CreateTableInput{TableName: aws.String("table-1"), BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("pk"), AttributeType: "S"}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("pk"), KeyType: "HASH"}}})
	wantCode(t, err, "ResourceInUseException")
}

func TestAFailedConditionTellsTheItemThatItSaw(t *testing.T) {
	b := start(t, dynamodb.Options{})
	b.table(t, "tab")
	ctx := context.Background()
	old := with(key("a", "1"), "v", n(1))
	b.put(t, "tab", old)
	calls := map[string]func(types.ReturnValuesOnConditionCheckFailure) error{
		"put": func(r types.ReturnValuesOnConditionCheckFailure) error {
			_, err := b.db.PutItem(ctx, &sdk.PutItemInput{TableName: aws.String("tab"), Item: key("a", "1"),
				ConditionExpression: aws.String("attribute_not_exists(pk)"), ReturnValuesOnConditionCheckFailure: r})
			return err
		},
		"update": func(r types.ReturnValuesOnConditionCheckFailure) error {
			_, err := b.db.UpdateItem(ctx, &sdk.UpdateItemInput{TableName: aws.String("tab"), Key: key("a", "1"),
				UpdateExpression: aws.String("SET v = :n"), ConditionExpression: aws.String("v = :o"),
				ExpressionAttributeValues: attrs{":n": n(3), ":o": n(2)}, ReturnValuesOnConditionCheckFailure: r})
			return err
		},
		"delete": func(r types.ReturnValuesOnConditionCheckFailure) error {
			_, err := b.db.DeleteItem(ctx, &sdk.DeleteItemInput{TableName: aws.String("tab"), Key: key("a", "1"),
				ConditionExpression: aws.String("v > :o"), ExpressionAttributeValues: attrs{":o": n(1)}, ReturnValuesOnConditionCheckFailure: r})
			return err
		},
	}
	for name, call := range calls {
		//nolint:exhaustive // the cases of interest
		for r, want := range map[types.ReturnValuesOnConditionCheckFailure]string{"": "none", "NONE": "none", "ALL_OLD": text(old)} {
			var failed *types.ConditionalCheckFailedException
			if err := call(r); !errors.As(err, &failed) {
				t.Errorf("%s: %v", name, err)
			} else if got := text(failed.Item); got != want {
				t.Errorf("%s with %q: item %s, want %s", name, r, got, want)
			}
		}
	}
	if got := text(b.get(t, "tab", key("a", "1"))); got != text(old) {
		t.Errorf("the item is now %s", got)
	}
}

func TestUpdatesDoWhatTheirExpressionSays(t *testing.T) {
	base := with(key("a", "1"), "n", n(5), "txt", s("x"),
		"els", &types.AttributeValueMemberL{Value: []types.AttributeValue{n(1), n(2), n(3)}},
		"map", &types.AttributeValueMemberM{Value: attrs{"inner": n(7)}},
		"tags", &types.AttributeValueMemberSS{Value: []string{"a", "b"}})
	rest := ` pk="a" sk="1" tags=ss["a" "b"] txt="x"`
	for _, c := range []struct{ update, want string }{
		{"SET n = n + :one", `els=[1 2 3] map={inner=7} n=6` + rest},
		{"SET n = n - :one", `els=[1 2 3] map={inner=7} n=4` + rest},
		{"SET n = if_not_exists(n, :one)", `els=[1 2 3] map={inner=7} n=5` + rest},
		{"SET n = if_not_exists(gone, :one) + :one", `els=[1 2 3] map={inner=7} n=2` + rest},
		{"SET els[9] = :one, els[0] = :one", `els=[1 2 3 1] map={inner=7} n=5` + rest},
		{"SET els = list_append(els, :l)", `els=[1 2 3 1] map={inner=7} n=5` + rest},
		{"REMOVE els[0], els[1]", `els=[3] map={inner=7} n=5` + rest},
		{"SET #m.#i = #m.#i + :one", `els=[1 2 3] map={inner=8} n=5` + rest},
		{"SET #m.more = n REMOVE n", `els=[1 2 3] map={inner=7 more=5}` + rest},
		{"ADD n :one, fresh :one", `els=[1 2 3] fresh=1 map={inner=7} n=6` + rest},
		{"DELETE tags :b", `els=[1 2 3] map={inner=7} n=5 pk="a" sk="1" tags=ss["a"] txt="x"`},
		{"ADD tags :b DELETE tags :b", "ValidationException"},
		{"SET n = txt + :one", "ValidationException"},
		{"SET n = gone", "ValidationException"},
		{"SET gone.deep = :one", "ValidationException"},
		{"SET pk = :one", "ValidationException"},
		{"SET n = :one, n = :one", "ValidationException"},
		{"ADD txt :one", "ValidationException"},
		{"SET n = :one SET txt = :one", "ValidationException"},
		{"SET n :one", "ValidationException"},
		{"", "ValidationException"},
	} {
		t.Run(c.update, func(t *testing.T) {
			b := start(t, dynamodb.Options{})
			b.table(t, "tab")
			b.put(t, "tab", base)
			in := &sdk.UpdateItemInput{TableName: aws.String("tab"), Key: key("a", "1"), UpdateExpression: &c.update, ReturnValues: "ALL_NEW"}
			in.ExpressionAttributeValues = used(c.update, attrs{":one": n(1), ":l": &types.AttributeValueMemberL{Value: []types.AttributeValue{n(1)}},
				":b": &types.AttributeValueMemberSS{Value: []string{"b"}}})
			in.ExpressionAttributeNames = used(c.update, map[string]string{"#m": "map", "#i": "inner"})
			out, err := b.db.UpdateItem(context.Background(), in)
			if err != nil {
				wantCode(t, err, c.want)
				if got := text(b.get(t, "tab", key("a", "1"))); got != text(base) {
					t.Errorf("a refused update left %s", got)
				}
				return
			}
			if got := text(out.Attributes); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if got := text(b.get(t, "tab", key("a", "1"))); got != c.want {
				t.Errorf("stored %s", got)
			}
		})
	}
}

// used keeps the placeholders that are in the expression, nil for none.
func used[V any](expression string, all map[string]V) map[string]V {
	var out map[string]V
	for name, v := range all {
		if strings.Contains(expression, name) {
			if out == nil {
				out = map[string]V{}
			}
			out[name] = v
		}
	}
	return out
}

func TestReturnValuesOfUpdates(t *testing.T) {
	//nolint:exhaustive // the cases of interest
	for r, want := range map[types.ReturnValue]string{
		"": "none", "NONE": "none", "ALL_OLD": `a=1 b=2 pk="a" sk="1"`, "ALL_NEW": `a=9 b=2 pk="a" sk="1"`, "UPDATED_OLD": "a=1", "UPDATED_NEW": "a=9",
	} {
		b := start(t, dynamodb.Options{})
		b.table(t, "tab")
		b.put(t, "tab", with(key("a", "1"), "a", n(1), "b", n(2)))
		out, err := b.db.UpdateItem(context.Background(), &sdk.UpdateItemInput{TableName: aws.String("tab"), Key: key("a", "1"),
			UpdateExpression: aws.String("SET a = :v"), ExpressionAttributeValues: attrs{":v": n(9)}, ReturnValues: r})
		if err != nil {
			t.Fatal(err)
		}
		if got := text(out.Attributes); got != want {
			t.Errorf("%s: got %s, want %s", r, got, want)
		}
	}
}

func TestItemsThatCannotBeStoredAreRefused(t *testing.T) {
	b := start(t, dynamodb.Options{})
	b.table(t, "tab")
	for name, it := range map[string]attrs{
		"400 KB":          with(key("a", "1"), "d", s(strings.Repeat("x", 400<<10))),
		"no sort key":     {"pk": s("a")},
		"number as key":   {"pk": n(1), "sk": s("1")},
		"empty key":       key("a", ""),
		"empty set":       with(key("a", "1"), "d", &types.AttributeValueMemberSS{}),
		"39 digits":       with(key("a", "1"), "d", n(strings.Repeat("1", 39))),
		"not a number":    with(key("a", "1"), "d", n("1x")),
		"overflow":        with(key("a", "1"), "d", n("1e126")),
		"duplicate in NS": with(key("a", "1"), "d", &types.AttributeValueMemberNS{Value: []string{"1", "1.0"}}),
	} {
		_, err := b.db.PutItem(context.Background(), &sdk.PutItemInput{TableName: aws.String("tab"), Item: it})
		if code(err) != "ValidationException" {
			t.Errorf("%s: %v", name, err)
		}
	}
	just := with(key("a", "1"), "d", s(strings.Repeat("x", 400<<10-len("pka")-len("sk1")-len("d"))))
	b.put(t, "tab", just)
	if got := b.get(t, "tab", key("a", "1")); text(got) != text(just) {
		t.Error("the largest item did not come back")
	}
}

func TestConditionsHoldAndFailAsTheyShould(t *testing.T) {
	b := start(t, dynamodb.Options{})
	b.table(t, "tab")
	it := with(key("a", "1"), "num", n("10"), "txt", s("hello"), "flag", &types.AttributeValueMemberBOOL{Value: true},
		"tags", &types.AttributeValueMemberSS{Value: []string{"x", "y"}}, "els", &types.AttributeValueMemberL{Value: []types.AttributeValue{n(1), s("e")}},
		"m", &types.AttributeValueMemberM{Value: attrs{"deep": n(3)}})
	values := attrs{":two": n(2), ":ten": n("10.0"), ":twenty": n(20), ":he": s("he"), ":x": s("x"), ":e": s("e"), ":S": s("S"), ":N": s("N"), ":true": &types.AttributeValueMemberBOOL{Value: true}}
	names := map[string]string{"#t": "txt"}
	for condition, want := range map[string]bool{
		"num = :ten": true, "num = :two": false, "num <> :two": true, "num > :two": true, "num < :two": false,
		"num >= :ten AND num <= :ten": true, "num BETWEEN :two AND :twenty": true, "num BETWEEN :ten AND :ten": true,
		"num IN (:two, :ten)": true, "num IN (:two, :twenty)": false,
		"txt > :two": false, "NOT txt > :two": true, "gone <> :two": true, "gone = :two": false,
		"attribute_exists(m.deep)": true, "attribute_exists(m.gone)": false, "attribute_not_exists(els[5])": true, "attribute_exists(els[1])": true,
		"attribute_type(#t, :S)": true, "attribute_type(#t, :N)": false, "begins_with(#t, :he)": true, "begins_with(#t, :x)": false,
		"contains(#t, :e)": true, "contains(tags, :x)": true, "contains(tags, :he)": false, "contains(els, :e)": true,
		"size(#t) > :two": true, "size(tags) = :two": true, "size(num) = :two": false,
		"num = :two OR num = :ten AND txt = :x": false, "(num = :two OR num = :ten) AND #t <> :x": true,
		"NOT num = :two AND NOT (txt = :x)": true, "flag = :true": true, "m.deep > :two": true, "els[0] < :two": true,
	} {
		b.put(t, "tab", it)
		_, err := b.db.DeleteItem(context.Background(), &sdk.DeleteItemInput{TableName: aws.String("tab"), Key: key("a", "1"), ConditionExpression: &condition,
			ExpressionAttributeValues: usedWords(condition, values), ExpressionAttributeNames: used(condition, names)})
		if got := code(err); (want && got != "") || (!want && got != "ConditionalCheckFailedException") {
			t.Errorf("%s: %v, want %v", condition, err, want)
		}
	}
	for _, bad := range []string{"num =", "num = = :two", "num", "(num = :two", "((num = :two))", "((num = :two) OR num = :ten", "num = :gone", "#gone = :two", "nope(num)", "num BETWEEN :twenty AND :two",
		"begins_with(txt, :two)", "attribute_exists(:two)", "size(num)", "num < :true", "num = num", "if_not_exists(num, :two)", "num = :two extra", "status = :two", "a.b[x] = :two"} {
		_, err := b.db.DeleteItem(context.Background(), &sdk.DeleteItemInput{TableName: aws.String("tab"), Key: key("a", "1"), ConditionExpression: &bad,
			ExpressionAttributeValues: usedWords(bad, values)})
		if code(err) != "ValidationException" {
			t.Errorf("%s: %v", bad, err)
		}
	}
	_, err := b.db.DeleteItem(context.Background(), &sdk.DeleteItemInput{TableName: aws.String("tab"), Key: key("a", "1"),
		ConditionExpression: aws.String("num = :two"), ExpressionAttributeValues: attrs{":two": n(2), ":more": n(3)}})
	wantCode(t, err, "ValidationException")
}

// usedWords is used for placeholders of which one begins with another.
func usedWords(expression string, all attrs) attrs {
	var out attrs
	for _, word := range strings.FieldsFunc(expression, func(r rune) bool { return strings.ContainsRune(" (),", r) }) {
		if v, ok := all[word]; ok {
			if out == nil {
				out = attrs{}
			}
			out[word] = v
		}
	}
	return out
}
