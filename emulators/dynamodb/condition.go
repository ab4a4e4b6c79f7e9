package dynamodb

import (
	"slices"
	"strings"
)

// condition is true or false of an item; a missing item is an empty one.
type condition interface{ holds(it item) bool }

// operand has a value in an item, or none.
type operand interface{ in(it item) (value, bool) }

type (
	literal   struct{ v value }
	attribute struct{ p path }
	sizeOf    struct{ of operand }
)

func (o literal) in(item) (value, bool)      { return o.v, true }
func (o attribute) in(it item) (value, bool) { return o.p.in(it) }

func (o sizeOf) in(it item) (value, bool) {
	v, ok := o.of.in(it)
	if !ok {
		return value{}, false
	}
	n, ok := v.length()
	if !ok {
		return value{}, false
	}
	return value{kind: kindN, str: itoa(n)}, true
}

type (
	either     struct{ left, right condition }
	both       struct{ left, right condition }
	negated    struct{ c condition }
	grouped    struct{ condition } // in parentheses
	comparison struct {
		operator    string
		left, right operand
	}
	between    struct{ of, low, high operand }
	membership struct {
		of operand
		in []operand
	}
	exists struct {
		p    path
		want bool
	}
	hasType struct {
		p path
		k kind
	}
	beginsWith struct{ of, prefix operand }
	contains   struct{ of, what operand }
)

func (c either) holds(it item) bool  { return c.left.holds(it) || c.right.holds(it) }
func (c both) holds(it item) bool    { return c.left.holds(it) && c.right.holds(it) }
func (c negated) holds(it item) bool { return !c.c.holds(it) }

func (c comparison) holds(it item) bool {
	l, lok := c.left.in(it)
	r, rok := c.right.in(it)
	return compare(c.operator, l, r, lok, rok)
}

// compare gives what the operators say. What is missing, or of another type, differs from everything and has no order.
func compare(operator string, l, r value, lok, rok bool) bool {
	switch operator {
	case "=":
		return lok && rok && l.equal(r)
	case "<>":
		return !lok || !rok || !l.equal(r)
	}
	if !lok || !rok || l.kind != r.kind || !isScalar(l.kind) {
		return false
	}
	order := strings.Compare(l.ordered(), r.ordered())
	switch operator {
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	case ">":
		return order > 0
	case ">=":
		return order >= 0
	}
	panic("unreachable: the parser knows no operator " + operator)
}

func (c between) holds(it item) bool {
	v, vok := c.of.in(it)
	l, lok := c.low.in(it)
	h, hok := c.high.in(it)
	return compare(">=", v, l, vok, lok) && compare("<=", v, h, vok, hok)
}

func (c membership) holds(it item) bool {
	v, ok := c.of.in(it)
	return ok && slices.ContainsFunc(c.in, func(o operand) bool {
		w, ok := o.in(it)
		return ok && v.equal(w)
	})
}

func (c exists) holds(it item) bool {
	_, ok := c.p.in(it)
	return ok == c.want
}

func (c hasType) holds(it item) bool {
	v, ok := c.p.in(it)
	return ok && v.kind == c.k
}

func (c beginsWith) holds(it item) bool {
	v, vok := c.of.in(it)
	p, pok := c.prefix.in(it)
	return vok && pok && v.kind == p.kind && (v.kind == kindS || v.kind == kindB) && strings.HasPrefix(v.str, p.str)
}

func (c contains) holds(it item) bool {
	v, vok := c.of.in(it)
	w, wok := c.what.in(it)
	if !vok || !wok {
		return false
	}
	switch v.kind {
	case kindS, kindB:
		return w.kind == v.kind && strings.Contains(v.str, w.str)
	case kindSS:
		return w.kind == kindS && slices.Contains(v.set, w.str)
	case kindNS:
		return w.kind == kindN && slices.Contains(v.set, w.str)
	case kindBS:
		return w.kind == kindB && slices.Contains(v.set, w.str)
	case kindL:
		return slices.ContainsFunc(v.list, w.equal)
	case kindN, kindBool, kindNull, kindM:
		return false
	}
	panic("unreachable: no such kind")
}
