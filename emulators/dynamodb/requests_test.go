package dynamodb_test

import (
	"fmt"
	"strings"
)

func (g *generator) begin() { g.values, g.names = document{}, document{} }

// end puts the placeholders into the request.
func (g *generator) end(in document) document {
	if len(g.values) > 0 {
		in["ExpressionAttributeValues"] = g.values
	}
	if len(g.names) > 0 {
		in["ExpressionAttributeNames"] = g.names
	}
	return in
}

func (g *generator) maybeCondition(in document, p float64) {
	if g.chance(p) {
		in["ConditionExpression"] = g.broken(g.condition(2))
		if g.chance(0.5) {
			in["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
		}
	}
}

// write makes the parameters of a write: Put, Update, Delete or ConditionCheck.
func (g *generator) write(kind string) document {
	g.begin()
	in := document{"TableName": g.table}
	switch kind {
	case "Put":
		in["Item"] = g.item()
		g.maybeCondition(in, 0.5)
	case "Delete":
		in["Key"] = g.key()
		g.maybeCondition(in, 0.5)
	case "ConditionCheck":
		in["Key"] = g.key()
		g.maybeCondition(in, 1)
	case "Update":
		in["Key"] = g.key()
		in["UpdateExpression"] = g.broken(g.update())
		g.maybeCondition(in, 0.4)
	}
	return g.end(in)
}

// operation makes a request.
func (g *generator) operation() (string, document) {
	g.damaged = false
	switch n := g.rand.IntN(100); {
	case n < 22:
		in := g.write("Put")
		if g.chance(0.3) {
			in["ReturnValues"] = pick(g, "ALL_OLD", "NONE")
		}
		return "PutItem", in
	case n < 50:
		in := g.write("Update")
		if g.chance(0.7) {
			in["ReturnValues"] = pick(g, "ALL_OLD", "ALL_NEW", "UPDATED_OLD", "UPDATED_NEW")
		}
		return "UpdateItem", in
	case n < 56:
		in := g.write("Delete")
		if g.chance(0.3) {
			in["ReturnValues"] = "ALL_OLD"
		}
		return "DeleteItem", in
	case n < 62:
		g.begin()
		in := document{"TableName": g.table, "Key": g.key(), "ConsistentRead": true}
		g.projection(in)
		return "GetItem", g.end(in)
	case n < 78:
		return "Query", g.query()
	case n < 82:
		g.begin()
		in := document{"TableName": g.table, "ConsistentRead": true}
		g.page(in)
		return "Scan", g.end(in)
	case n < 85:
		return "BatchWriteItem", g.batchWrite()
	case n < 87:
		return "BatchGetItem", g.batchGet()
	case n < 97:
		return "TransactWriteItems", g.transaction()
	}
	var gets []any
	for range 1 + g.rand.IntN(3) {
		g.begin()
		in := document{"TableName": g.table, "Key": g.key()}
		g.projection(in)
		gets = append(gets, document{"Get": g.end(in)})
	}
	return "TransactGetItems", document{"TransactItems": gets}
}

func (g *generator) projection(in document) {
	if !g.chance(0.4) {
		return
	}
	var paths []string
	for range 1 + g.rand.IntN(3) {
		paths = append(paths, g.path())
	}
	in["ProjectionExpression"] = g.broken(strings.Join(paths, ", "))
}

func (g *generator) page(in document) {
	if g.chance(0.4) {
		in["FilterExpression"] = g.broken(g.condition(1))
	}
	g.projection(in)
	if in["ProjectionExpression"] == nil && g.chance(0.1) {
		in["Select"] = "COUNT"
	}
	if g.chance(0.4) {
		in["Limit"] = 1 + g.rand.IntN(4)
	}
}

func (g *generator) query() document {
	g.begin()
	in := document{"TableName": g.table}
	hash, rng := document{"S": pick(g, "a", "b", "c")}, g.sortKey()
	hashName, rngName := "pk", "sk"
	if g.chance(0.3) {
		in["IndexName"] = pick(g, "full", "keys")
		hash, rng = document{"S": pick(g, "g1", "g2")}, document{"N": pick(g, "1", "2", "3")}
		hashName, rngName = "g", "o"
	} else if g.chance(0.7) {
		in["ConsistentRead"] = true
	}
	condition := g.named(hashName) + " = " + g.placeholder(hash)
	if g.chance(0.6) {
		bound := g.placeholder(rng)
		part := rngName + " " + pick(g, "=", "<", "<=", ">", ">=") + " " + bound
		switch {
		case g.chance(0.2):
			part = rngName + " BETWEEN " + bound + " AND " + g.placeholder(rng)
		case g.chance(0.2) && g.sortKind == "S" && rngName == "sk":
			part = "begins_with(sk, " + bound + ")"
		case g.chance(0.02):
			part = rngName + " <> " + bound
		}
		condition += " AND " + part
	}
	in["KeyConditionExpression"] = g.broken(condition)
	g.page(in)
	if g.chance(0.02) {
		in["FilterExpression"] = hashName + " = " + g.placeholder(hash)
	}
	if g.chance(0.3) {
		in["ScanIndexForward"] = g.chance(0.5)
	}
	if g.chance(0.2) && in["IndexName"] == nil {
		in["ExclusiveStartKey"] = document{"pk": hash, "sk": g.sortKey()}
	}
	return g.end(in)
}

func (g *generator) batchWrite() document {
	var requests []any
	for range 1 + g.rand.IntN(4) {
		if g.chance(0.7) {
			requests = append(requests, document{"PutRequest": document{"Item": g.item()}})
		} else {
			requests = append(requests, document{"DeleteRequest": document{"Key": g.key()}})
		}
	}
	return document{"RequestItems": document{g.table: requests}}
}

func (g *generator) batchGet() document {
	var keys []any
	for range 1 + g.rand.IntN(3) {
		keys = append(keys, g.key())
	}
	g.begin()
	in := document{"Keys": keys, "ConsistentRead": true}
	g.projection(in)
	return document{"RequestItems": document{g.table: g.end(in)}}
}

func (g *generator) transaction() document {
	if g.last != nil && g.chance(0.2) {
		// Again with the token of before, and now and then with something else under it.
		if g.chance(0.8) {
			g.damaged = g.lastDamaged
			return g.last
		}
		in := document{"TransactItems": []any{document{"Put": g.write("Put")}}, "ClientRequestToken": g.last["ClientRequestToken"]}
		return in
	}
	var items []any
	taken := map[string]bool{}
	for range 1 + g.rand.IntN(4) {
		kind := pick(g, "Put", "Put", "Update", "Update", "Delete", "ConditionCheck")
		w := g.write(kind)
		place := fmt.Sprint(w["Key"])
		if it, ok := w["Item"].(document); ok {
			place = fmt.Sprint(document{"pk": it["pk"], "sk": it["sk"]})
		}
		// One item twice is refused: not too often.
		if taken[place] && !g.chance(0.02) {
			continue
		}
		taken[place] = true
		items = append(items, document{kind: w})
	}
	in := document{"TransactItems": items}
	if g.chance(0.3) {
		g.tokens++
		in["ClientRequestToken"] = fmt.Sprintf("token-%d", g.tokens)
		g.last, g.lastDamaged = in, g.damaged
	}
	return in
}
