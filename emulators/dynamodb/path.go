package dynamodb

import (
	"strconv"
	"strings"
)

// step is one step of a document path: a name, or an index into a list.
type step struct {
	name  string
	index int
	list  bool
}

// path leads to an attribute, or into one. The first step is always a name.
type path []step

func (p path) String() string {
	var b strings.Builder
	b.WriteByte('[')
	for i, s := range p {
		if i > 0 {
			b.WriteString(", ")
		}
		if s.list {
			b.WriteString("[" + strconv.Itoa(s.index) + "]")
		} else {
			b.WriteString(s.name)
		}
	}
	b.WriteByte(']')
	return b.String()
}

// prefixOf reports whether p leads to q or to something that holds q.
func (p path) prefixOf(q path) bool {
	if len(p) > len(q) {
		return false
	}
	for i := range p {
		if p[i] != q[i] {
			return false
		}
	}
	return true
}

// clashes reports whether p and q can't both be right about the shape of a document: one takes for a list what the
// other takes for a map.
func (p path) clashes(q path) bool {
	for i := range min(len(p), len(q)) {
		if p[i].list != q[i].list {
			return true
		}
		if p[i] != q[i] {
			return false
		}
	}
	return false
}

// in finds what p leads to.
func (p path) in(it item) (value, bool) {
	v, ok := it[p[0].name]
	for _, s := range p[1:] {
		if !ok {
			return value{}, false
		}
		switch {
		case s.list && v.kind == kindL && s.index < len(v.list):
			v = v.list[s.index]
		case !s.list && v.kind == kindM:
			v, ok = v.fields[s.name]
		default:
			return value{}, false
		}
	}
	return v, ok
}

// distinct refuses paths of which one holds another.
func distinct(kindOfExpression string, paths []path) *apiError {
	for i, p := range paths {
		for _, q := range paths[:i] {
			if p.prefixOf(q) || q.prefixOf(p) {
				return invalid("Invalid %s: Two document paths overlap with each other; must remove or rewrite one of these paths; path one: %s, path two: %s",
					kindOfExpression, q, p)
			}
			if p.clashes(q) {
				return invalid("Invalid %s: Two document paths conflict with each other; must remove or rewrite one of these paths; path one: %s, path two: %s",
					kindOfExpression, q, p)
			}
		}
	}
	return nil
}

// project keeps what the paths lead to. Elements of lists move together, in their order.
func project(it item, paths []path) item {
	root := &branch{}
	for _, p := range paths {
		root.grow(p)
	}
	out := root.pick(value{kind: kindM, fields: it})
	if out == nil {
		return item{}
	}
	return out.fields
}

// branch is a tree of paths; a leaf keeps everything below.
type branch struct {
	children map[step]*branch
}

func (b *branch) grow(p path) {
	if len(p) == 0 {
		return
	}
	if b.children == nil {
		b.children = map[step]*branch{}
	}
	child := b.children[p[0]]
	if child == nil {
		child = &branch{}
		b.children[p[0]] = child
	}
	child.grow(p[1:])
}

// pick returns the part of v that the branch keeps, nil if there is none.
func (b *branch) pick(v value) *value {
	if b.children == nil {
		return &v
	}
	switch v.kind {
	case kindM:
		kept := item{}
		for s, child := range b.children {
			if inner, ok := v.fields[s.name]; ok && !s.list {
				if part := child.pick(inner); part != nil {
					kept[s.name] = *part
				}
			}
		}
		if len(kept) > 0 {
			return &value{kind: kindM, fields: kept}
		}
	case kindL:
		var kept []value
		for i, inner := range v.list {
			if child := b.children[step{index: i, list: true}]; child != nil {
				if part := child.pick(inner); part != nil {
					kept = append(kept, *part)
				}
			}
		}
		if len(kept) > 0 {
			return &value{kind: kindL, list: kept}
		}
	case kindS, kindN, kindB, kindBool, kindNull, kindSS, kindNS, kindBS:
	}
	return nil
}
