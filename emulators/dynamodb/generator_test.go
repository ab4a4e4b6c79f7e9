package dynamodb_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// generator makes random requests over few keys and attributes, most of them legal.
type generator struct {
	rand     *rand.Rand
	table    string
	sortKind string

	// last is the last transaction with a token.
	last        document
	lastDamaged bool
	tokens      int
	// damaged tells that an expression of the request was made wrong on purpose.
	damaged bool

	// of the request that is being made
	values document
	names  document
}

func pick[T any](g *generator, from ...T) T { return from[g.rand.IntN(len(from))] }

func (g *generator) chance(p float64) bool { return g.rand.Float64() < p }

func (g *generator) sortKey() document {
	if g.sortKind == "N" {
		return document{"N": pick(g, "1", "2", "10", "-3")}
	}
	return document{"S": fmt.Sprintf("k%d", g.rand.IntN(4))}
}

func (g *generator) key() document {
	k := document{"pk": document{"S": pick(g, "a", "b", "c")}, "sk": g.sortKey()}
	if g.chance(0.01) {
		k["sk"] = pick(g, document{"S": ""}, document{"BOOL": true}, document{"N": "1"}, document{"S": "1"})
	}
	if g.chance(0.005) {
		delete(k, "sk")
	}
	return k
}

func (g *generator) number() string {
	return pick(g, "0", "1", "2", "-1", "10", "3.50", "1e2", "-0.001", "100000000000000000000", "1.0", "0.1")
}

func (g *generator) text() string { return pick(g, "", "x", "hello", "hel", "ü", "a b", "10") }

// scalar is a value that has an order.
func (g *generator) scalar() document {
	return pick(g, document{"N": g.number()}, document{"N": g.number()}, document{"S": g.text()}, document{"B": pick(g, "AAE=", "eA==")})
}

func (g *generator) value(depth int) document {
	switch n := g.rand.IntN(14); {
	case n < 4:
		return document{"N": g.number()}
	case n < 7:
		return document{"S": g.text()}
	case n == 7:
		return document{"BOOL": g.chance(0.5)}
	case n == 8:
		return pick(g, document{"NULL": true}, document{"B": "AAE="})
	case n == 9:
		return document{"SS": pick(g, []any{"a"}, []any{"a", "b"}, []any{"b", "c", "x"})}
	case n == 10:
		return document{"NS": pick(g, []any{"1"}, []any{"1", "2"}, []any{"2", "3.0", "1e1"})}
	case depth == 0:
		return document{"S": "leaf"}
	case n < 13:
		list := []any{}
		for range g.rand.IntN(4) {
			list = append(list, g.value(depth-1))
		}
		return document{"L": list}
	default:
		fields := document{}
		for range g.rand.IntN(3) {
			fields[pick(g, "x", "y", "z")] = g.value(depth - 1)
		}
		return document{"M": fields}
	}
}

// number, string, list and map mostly have the type that their name says, so that updates find what they need.
func (g *generator) attribute(name string) document {
	if g.chance(0.15) {
		return g.value(2)
	}
	switch name {
	case "n", "n2":
		return document{"N": g.number()}
	case "t":
		return document{"S": g.text()}
	case "tags":
		return document{"SS": pick(g, []any{"a"}, []any{"a", "b"}, []any{"b", "c", "x"})}
	case "l":
		return document{"L": []any{g.value(1), document{"N": "1"}, g.value(0)}}
	}
	return document{"M": document{"x": document{"N": "1"}, "y": g.value(1)}}
}

func (g *generator) item() document {
	it := g.key()
	for _, name := range []string{"n", "n2", "t", "tags", "l", "m"} {
		if g.chance(0.5) {
			it[name] = g.attribute(name)
		}
	}
	if g.chance(0.6) {
		it["g"] = document{"S": pick(g, "g1", "g2")}
	}
	if g.chance(0.6) {
		it["o"] = document{"N": pick(g, "1", "2", "3")}
	}
	if g.chance(0.005) {
		it["g"] = document{"N": "1"}
	}
	return it
}

// placeholder puts a value among the request's and returns its name.
func (g *generator) placeholder(v document) string {
	name := fmt.Sprintf(":v%d", len(g.values))
	g.values[name] = v
	return name
}

func (g *generator) named(name string) string {
	if !g.chance(0.3) {
		return name
	}
	g.names["#"+name] = name
	return "#" + name
}

func (g *generator) path() string {
	switch g.rand.IntN(8) {
	case 0:
		return g.named("l") + fmt.Sprintf("[%d]", g.rand.IntN(4))
	case 1:
		return g.named("m") + "." + g.named(pick(g, "x", "y", "z"))
	case 2:
		return g.named("gone")
	}
	return g.named(pick(g, "n", "n2", "t", "tags", "l", "m"))
}

func (g *generator) operand() string {
	switch g.rand.IntN(8) {
	case 0, 1, 2, 3:
		return g.placeholder(g.scalar())
	case 4:
		if g.chance(0.3) {
			return g.placeholder(g.value(1))
		}
	}
	return g.path()
}

// comparand is a value that has an order, as a rule.
func (g *generator) comparand() document {
	if g.chance(0.03) {
		return g.value(1)
	}
	return g.scalar()
}

func (g *generator) condition(depth int) string {
	if depth > 0 {
		switch g.rand.IntN(6) {
		case 0:
			return "(" + g.condition(depth-1) + ")"
		case 1:
			return "NOT " + g.condition(depth-1)
		case 2:
			return g.condition(depth-1) + " AND " + g.condition(depth-1)
		case 3:
			return g.condition(depth-1) + " OR " + g.condition(depth-1)
		}
	}
	switch g.rand.IntN(12) {
	case 0:
		return "attribute_exists(" + g.path() + ")"
	case 1:
		return "attribute_not_exists(" + g.path() + ")"
	case 2:
		return "attribute_type(" + g.path() + ", " + g.placeholder(document{"S": pick(g, "S", "N", "L", "M", "SS", "BOOL")}) + ")"
	case 3:
		return "begins_with(" + g.path() + ", " + g.placeholder(document{"S": pick(g, "hel", "x", "h")}) + ")"
	case 4:
		if g.chance(0.3) {
			return "(attribute_type(l, " + g.placeholder(document{"S": "L"}) + ") AND contains(l, " + g.placeholder(document{"N": pick(g, "1", "1.00")}) + "))"
		}
		return "contains(" + g.path() + ", " + g.placeholder(document{"S": pick(g, "a", "l", "b")}) + ")"
	case 5:
		if g.chance(0.1) {
			return g.path() + " BETWEEN " + g.operand() + " AND " + g.operand()
		}
		low, high := document{"N": pick(g, "-1", "0", "1")}, document{"N": pick(g, "1", "2", "1e2")}
		if g.chance(0.3) {
			low, high = document{"S": pick(g, "", "a")}, document{"S": pick(g, "hello", "x")}
		}
		return g.path() + " BETWEEN " + g.placeholder(low) + " AND " + g.placeholder(high)
	case 6:
		return g.path() + " IN (" + g.placeholder(g.scalar()) + ", " + g.placeholder(g.value(1)) + ")"
	case 7:
		p := g.path()
		return "(attribute_exists(" + p + ") AND " + g.path() + " " + pick(g, "=", "<>", "<", ">=") + " " + p + ")"
	case 8:
		p := g.path()
		return "(attribute_type(" + p + ", " + g.placeholder(document{"S": pick(g, "S", "L", "M", "SS")}) + ") AND size(" + p + ") " +
			pick(g, "=", "<", ">=") + " " + g.placeholder(document{"N": pick(g, "0", "1", "2")}) + ")"
	}
	return g.path() + " " + pick(g, "=", "=", "<>", "<", "<=", ">", ">=") + " " + g.placeholder(g.comparand())
}

func (g *generator) update() string {
	targets := []string{"n", "n2", "t", "tags", "l", "m", "gone"}
	g.rand.Shuffle(len(targets), func(i, j int) { targets[i], targets[j] = targets[j], targets[i] })
	// next is a path that does not overlap with the ones before, as a rule.
	next := func(nested float64) string {
		if g.chance(0.02) {
			return g.path()
		}
		t := targets[0]
		targets = targets[1:]
		switch {
		case t == "l" && g.chance(nested):
			return g.named("l") + fmt.Sprintf("[%d]", g.rand.IntN(4))
		case t == "m" && g.chance(nested):
			return g.named("m") + "." + g.named(pick(g, "x", "y", "z"))
		}
		return g.named(t)
	}
	var sections []string
	if g.chance(0.7) {
		var clauses []string
		for range 1 + g.rand.IntN(2) {
			clauses = append(clauses, next(0.5)+" = "+g.formula())
		}
		sections = append(sections, "SET "+strings.Join(clauses, ", "))
	}
	if g.chance(0.3) {
		sections = append(sections, "REMOVE "+next(0.1))
	}
	if g.chance(0.25) {
		by := document{"N": g.number()}
		at := next(0.1)
		if strings.HasSuffix(at, "tags") || g.chance(0.02) {
			by = document{"SS": []any{"a", "z"}}
		}
		sections = append(sections, "ADD "+at+" "+g.placeholder(by))
	}
	if g.chance(0.2) || len(sections) == 0 {
		sections = append(sections, "DELETE "+next(0.1)+" "+g.placeholder(document{"SS": pick(g, []any{"a"}, []any{"a", "b"})}))
	}
	g.rand.Shuffle(len(sections), func(i, j int) { sections[i], sections[j] = sections[j], sections[i] })
	return strings.Join(sections, " ")
}

func (g *generator) formula() string {
	plain := func() string {
		if g.chance(0.8) {
			return g.placeholder(pick(g, document{"N": g.number()}, document{"N": g.number()}, g.value(1)))
		}
		return g.path()
	}
	switch g.rand.IntN(5) {
	case 0:
		return plain() + pick(g, " + ", " - ") + g.placeholder(document{"N": g.number()})
	case 1:
		return "if_not_exists(" + g.path() + ", " + plain() + ")"
	case 2:
		if g.chance(0.9) {
			return "list_append(l, " + g.placeholder(document{"L": []any{g.value(0)}}) + ")"
		}
		return "list_append(" + g.path() + ", " + g.placeholder(document{"L": []any{g.value(0)}}) + ")"
	}
	return plain()
}

// fill makes requests that put items into a new table.
func (g *generator) fill() document {
	var requests []any
	for _, pk := range []string{"a", "b", "c"} {
		sk := g.sortKey()
		it := g.item()
		it["pk"], it["sk"], it["g"], it["o"] = document{"S": pk}, sk, document{"S": "g1"}, document{"N": "1"}
		requests = append(requests, document{"PutRequest": document{"Item": it}})
	}
	return document{"RequestItems": document{g.table: requests}}
}

// broken damages an expression now and then.
func (g *generator) broken(expression string) string {
	if !g.chance(0.02) {
		return expression
	}
	g.damaged = true
	words := strings.Fields(expression)
	i := g.rand.IntN(len(words))
	switch g.rand.IntN(3) {
	case 0:
		words = append(words[:i], words[i+1:]...)
	case 1:
		words[i] = pick(g, "AND", "(", ",", "status", ":undefined", "#undefined", "=", "nope(")
	case 2:
		words = append(words, words[i])
	}
	if len(words) == 0 {
		return " "
	}
	return strings.Join(words, " ")
}
