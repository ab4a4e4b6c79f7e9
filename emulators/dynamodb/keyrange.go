package dynamodb

import (
	"sort"
	"strings"
)

// keyRange is what a key condition asks for: one partition, and the sort keys for which neither tooLow nor tooHigh
// holds. Both are monotone.
type keyRange struct {
	hash            string
	tooLow, tooHigh func(sort string) bool
}

func (k keyRange) holds(sort string) bool { return !k.tooLow(sort) && !k.tooHigh(sort) }

func (c *collection) rowsOf(k keyRange) []*row {
	p := c.parts[k.hash]
	if p == nil {
		return nil
	}
	from := sort.Search(len(p.rows), func(i int) bool { return !k.tooLow(p.rows[i].key.sort) })
	rows := p.rows[from:]
	return rows[:sort.Search(len(rows), func(i int) bool { return k.tooHigh(rows[i].key.sort) })]
}

// keyRange reads a key condition: the hash key equal to a value, and at most one condition on the sort key.
func (p *page) keyRange(where condition) (keyRange, *apiError) {
	where = ungrouped(where)
	parts := []condition{where}
	if b, ok := where.(both); ok {
		parts = []condition{ungrouped(b.left), ungrouped(b.right)}
	}
	never := func(string) bool { return false }
	out := keyRange{tooLow: never, tooHigh: never}
	var hashed, ranged bool
	for _, part := range parts {
		name, err := keyOperand(part)
		if err != nil {
			return out, err
		}
		switch {
		case name == p.key.Hash && !hashed:
			c, ok := part.(comparison)
			if !ok || c.operator != "=" {
				return out, invalid("Query key condition not supported")
			}
			v := c.right.(literal).v
			if err := p.keyValue(name, v); err != nil {
				return out, err
			}
			out.hash, hashed = v.ordered(), true
		case name == p.key.Range && p.key.Range != "" && !ranged:
			if err := p.sortRange(part, &out); err != nil {
				return out, err
			}
			ranged = true
		case name == p.key.Hash || name == p.key.Range:
			return out, invalid("KeyConditionExpressions must only contain one condition per key")
		default:
			return out, invalid("Query condition missed key schema element: %s", p.missed(hashed))
		}
	}
	if !hashed {
		return out, invalid("Query condition missed key schema element: %s", p.key.Hash)
	}
	return out, nil
}

func ungrouped(c condition) condition {
	if g, ok := c.(grouped); ok {
		return g.condition
	}
	return c
}

func (p *page) missed(hashed bool) string {
	if hashed && p.key.Range != "" {
		return p.key.Range
	}
	return p.key.Hash
}

// keyOperand returns the attribute that a part of a key condition is about; the rest of it must be literals.
func keyOperand(c condition) (string, *apiError) {
	var subject operand
	var rest []operand
	switch c := c.(type) {
	case comparison:
		subject, rest = c.left, []operand{c.right}
	case between:
		subject, rest = c.of, []operand{c.low, c.high}
	case beginsWith:
		subject, rest = c.of, []operand{c.prefix}
	default:
		return "", invalid("Invalid operator used in KeyConditionExpression")
	}
	a, ok := subject.(attribute)
	if !ok || len(a.p) != 1 {
		return "", invalid("Invalid condition in KeyConditionExpression: the left side must be a key attribute")
	}
	for _, o := range rest {
		if _, ok := o.(literal); !ok {
			return "", invalid("Invalid condition in KeyConditionExpression: the right side must be a value")
		}
	}
	return a.p[0].name, nil
}

func (p *page) keyValue(name string, v value) *apiError {
	if v.kind.String() != p.t.def.Attributes[name] {
		return invalidParam("Condition parameter type does not match schema type")
	}
	if v.str == "" {
		return invalidParam("One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an empty string value. Key: %s", name)
	}
	return nil
}

func (p *page) sortRange(c condition, out *keyRange) *apiError {
	below := func(v string) func(string) bool { return func(s string) bool { return s < v } }
	above := func(v string) func(string) bool { return func(s string) bool { return s > v } }
	upTo := func(v string) func(string) bool { return func(s string) bool { return s <= v } }
	from := func(v string) func(string) bool { return func(s string) bool { return s >= v } }
	values := func(operands ...operand) (out []string, err *apiError) {
		for _, o := range operands {
			v := o.(literal).v
			if err := p.keyValue(p.key.Range, v); err != nil {
				return nil, err
			}
			out = append(out, v.ordered())
		}
		return out, nil
	}
	switch c := c.(type) {
	case comparison:
		v, err := values(c.right)
		if err != nil {
			return err
		}
		switch c.operator {
		case "=":
			out.tooLow, out.tooHigh = below(v[0]), above(v[0])
		case "<":
			out.tooHigh = from(v[0])
		case "<=":
			out.tooHigh = above(v[0])
		case ">":
			out.tooLow = upTo(v[0])
		case ">=":
			out.tooLow = below(v[0])
		default:
			return invalid("Unsupported operator in KeyConditionExpression: %s", c.operator)
		}
	case between:
		v, err := values(c.low, c.high)
		if err != nil {
			return err
		}
		out.tooLow, out.tooHigh = below(v[0]), above(v[1])
	case beginsWith:
		v, err := values(c.prefix)
		if err != nil {
			return err
		}
		if p.t.def.Attributes[p.key.Range] == "N" {
			return invalid("Invalid KeyConditionExpression: Incorrect operand type for operator or function; operator or function: begins_with, operand type: N")
		}
		out.tooLow = below(v[0])
		out.tooHigh = func(s string) bool { return s >= v[0] && !strings.HasPrefix(s, v[0]) }
	}
	return nil
}
