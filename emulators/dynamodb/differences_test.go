package dynamodb_test

import (
	"math/big"
	"reflect"
	"strings"
)

// question is a request and the two answers to it.
type question struct {
	op           string
	in           document
	ours, theirs answer
	// damaged expressions are in the request.
	damaged bool
	// succeeded before: a transaction with the request's token.
	succeeded bool
}

// difference is a way in which ministack and this emulator differ, and why this one does what it does.
type difference struct {
	what string
	is   func(question) bool
}

// refuses is a difference in what is refused here by a message, whatever the other one says.
func refuses(message, why string) difference {
	return difference{message + ": " + why, func(q question) bool {
		return (q.ours.code == "ValidationException" || q.ours.code == "TransactionCanceledException") && strings.Contains(q.ours.message, message)
	}}
}

// refusesDamaged is a difference of that kind in expressions that were made wrong on purpose.
func refusesDamaged(message, why string) difference {
	all := refuses(message, why)
	return difference{all.what, func(q question) bool { return q.damaged && all.is(q) }}
}

const numbersAsGiven = "ministack keeps some numbers as they were given; DynamoDB has one form for each"

// decimal gives numbers the form that DynamoDB has for them.
func decimal(v any) any {
	form := func(text any) any {
		r, ok := new(big.Rat).SetString(text.(string))
		if !ok {
			return text
		}
		digits := r.FloatString(150)
		return strings.TrimSuffix(strings.TrimRight(digits, "0"), ".")
	}
	switch v := v.(type) {
	case document:
		out := document{}
		for name, inner := range v {
			switch inner := inner.(type) {
			case string:
				out[name] = inner
				if name == "N" {
					out[name] = form(inner)
				}
			case []any:
				out[name] = decimal(inner)
				if name == "NS" {
					set := []any{}
					for _, m := range inner {
						set = append(set, form(m))
					}
					out[name] = plain(document{name: set}).(document)[name]
				}
			default:
				out[name] = decimal(inner)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = decimal(v[i])
		}
		return out
	}
	return v
}

var knownDifferences = []difference{
	refuses("Two document paths overlap", "AWS looks at all sections together; ministack at each section alone"),
	refusesDamaged("Invalid function name", "ministack reads a filter only when there is an item to filter, and overlooks what is too much in an update"),
	refusesDamaged("Syntax error", "ministack reads a filter only when there is an item to filter, and overlooks what is too much in an update"),
	refusesDamaged("The expression can not be empty", "ministack takes an empty expression for none"),
	refusesDamaged("is not defined", "ministack looks for a placeholder only when there is an item to show"),
	refusesDamaged("can only be used once", "ministack overlooks a section that is empty"),
	refusesDamaged("reserved keyword", "ministack reads the condition first"),
	refuses("The BETWEEN operator requires upper bound", "ministack compares the bounds only when there is an item"),
	refuses("The provided starting key is invalid", "ministack takes a key of another type"),
	refusesDamaged("unused in expressions", "ministack takes #t for used where #tags is"),
	refuses("The first operand must be distinct", "ministack looks only at some operators"),
	refuses("The BETWEEN operator requires same data type", "ministack compares the bounds with the item, not with each other"),
	refuses("Incorrect operand type for operator or function", "AWS refuses a literal of the wrong type before it looks at the item; ministack when it meets it"),
	refuses("does not project", "ministack lets an index be asked for what it has not, and finds nothing"),
	refuses("Filter Expression can only contain non-primary key attributes", "ministack lets filters use the key"),
	refuses("Unsupported operator in KeyConditionExpression", "ministack reads <> in a key condition, which has no such range"),
	refuses("The document path provided in the update expression is invalid for update", "ministack removes what has no parent in silence"),
	refuses("An operand in the update expression has an incorrect data type", "ministack takes what is no list, or no number, for an empty one"),
	{"a filter over an index by what is not in it: the index has nothing to filter by; ministack filters by the item of the table", func(q question) bool {
		return q.op == "Query" && q.in["IndexName"] == "keys" && q.in["FilterExpression"] != nil && q.ours.code == "" && q.theirs.code == ""
	}},
	{"UPDATED_NEW and UPDATED_OLD of an element of a list: AWS returns the element; ministack the whole list", func(q question) bool {
		returns, _ := q.in["ReturnValues"].(string)
		text, _ := q.in["UpdateExpression"].(string)
		return q.op == "UpdateItem" && strings.HasPrefix(returns, "UPDATED_") && strings.Contains(text, "l[") && q.ours.code == "" && q.theirs.code == ""
	}},
	{"begins_with of an attribute that is no text: AWS says false; ministack refuses the request", func(q question) bool {
		return strings.Contains(q.theirs.message, "operator or function: begins_with, operand type: S")
	}},
	{"the token of a cancelled transaction: AWS tells of successful ones that they are remembered; ministack remembers the request of others too", func(q question) bool {
		return q.op == "TransactWriteItems" && q.theirs.code == "IdempotentParameterMismatchException" && !q.succeeded
	}},
	{"a replayed token with the same request: ministack takes it for another one after it has changed the numbers in the first", func(q question) bool {
		return q.succeeded && q.ours.code == "" && q.theirs.code == "IdempotentParameterMismatchException" && !reflect.DeepEqual(decimal(q.in), any(q.in))
	}},
	{"a key of a transaction that does not fit the schema: a reason of the cancellation here; ministack takes a part of a key for a key of nothing, and refuses an empty one as a request", func(q question) bool {
		for _, m := range []string{"does not match the schema", "Missing the key", "Type mismatch for key", "cannot contain an empty"} {
			if strings.Contains(q.ours.message, m) {
				return strings.HasPrefix(q.op, "Transact")
			}
		}
		return false
	}},
}

// avoided are differences that the generator does not make, because they can't be told from others in a random request.
var avoided = []struct {
	what string
	// item is put first; a request fails or not, and shows the item in the end.
	item         document
	condition    string
	update       string
	values       document
	ours, theirs string
}{
	{"arithmetic has 38 digits; ministack rounds to 28", document{"n": document{"N": "12345678901234567890123456789012345678"}}, "", "SET n = n + :v", document{":v": document{"N": "1"}},
		"12345678901234567890123456789012345679", "12345678901234567890123456790000000000"},
	{"nothing is not in a list of nothing; ministack finds it there", document{}, "gone IN (more, :v)", "SET n = :v", document{":v": document{"N": "1"}},
		"ConditionalCheckFailedException", "1"},
	{"nothing does not equal nothing, of which AWS's text says nothing; in ministack it does", document{}, "gone = more", "SET n = :v", document{":v": document{"N": "1"}},
		"ConditionalCheckFailedException", "1"},
	{"a number has no size; in ministack it is 0", document{"n": document{"N": "5"}}, "size(n) < :v", "SET n = :v", document{":v": document{"N": "2"}},
		"ConditionalCheckFailedException", "2"},
	{"an unknown type is refused; ministack does not look at it", document{"n": document{"N": "5"}}, "NOT attribute_type(n, :t)", "SET n = :v", document{":v": document{"N": "0"}, ":t": document{"S": "nope"}},
		"ValidationException", "0"},
}

func (d *differential) avoided() {
	for _, c := range avoided {
		k := document{"pk": document{"S": "avoided"}, "sk": document{d.g.sortKind: "1"}}
		it := document{"pk": k["pk"], "sk": k["sk"]}
		for name, v := range c.item {
			it[name] = v
		}
		in := document{"TableName": d.table, "Key": k, "UpdateExpression": c.update, "ExpressionAttributeValues": c.values, "ReturnValues": "ALL_NEW"}
		if c.condition != "" {
			in["ConditionExpression"] = c.condition
		}
		d.both("PutItem", document{"TableName": d.table, "Item": it})
		ours, theirs := d.both("UpdateItem", in)
		for _, side := range []struct {
			name, want string
			got        answer
		}{{"ours", c.ours, ours}, {"theirs", c.theirs, theirs}} {
			got := side.got.code
			if got == "" {
				got = side.got.body["Attributes"].(document)["n"].(document)["N"].(string)
			}
			if got != side.want {
				d.Errorf("%s: %s says %s, want %s", c.what, side.name, got, side.want)
			}
		}
	}
	d.diverged = true
}
