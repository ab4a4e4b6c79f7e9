package dynamodb

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
)

func itoa(n int) string { return strconv.Itoa(n) }

// update is a parsed UpdateExpression.
type update struct {
	sets    []assignment
	removes []path
	adds    []amendment
	deletes []amendment
}

// assignment is one clause of SET.
type assignment struct {
	to path
	by formula
}

// amendment is one clause of ADD or DELETE.
type amendment struct {
	at path
	by value
}

// formula computes a value from the old item.
type formula interface {
	of(it item) (value, *apiError)
}

type (
	operandFormula struct{ o operand }
	sum            struct {
		left, right formula
		subtract    bool
	}
	ifNotExists struct {
		p       path
		instead formula
	}
	listAppend struct{ left, right formula }
)

// The three complaints about an item that does not fit an update.
func missingOperand() *apiError {
	return invalid("The provided expression refers to an attribute that does not exist in the item")
}

func wrongOperand() *apiError {
	return invalid("An operand in the update expression has an incorrect data type")
}

func wrongPath() *apiError {
	return invalid("The document path provided in the update expression is invalid for update")
}

func (f operandFormula) of(it item) (value, *apiError) {
	v, ok := f.o.in(it)
	if !ok {
		return value{}, missingOperand()
	}
	return v, nil
}

func (f ifNotExists) of(it item) (value, *apiError) {
	if v, ok := f.p.in(it); ok {
		return v, nil
	}
	return f.instead.of(it)
}

func (f sum) of(it item) (value, *apiError) {
	l, r, err := pair(f.left, f.right, it)
	if err != nil {
		return value{}, err
	}
	if l.kind != kindN || r.kind != kindN {
		return value{}, wrongOperand()
	}
	n, err := l.number().add(r.number(), f.subtract)
	return numberValue(n), err
}

func (f listAppend) of(it item) (value, *apiError) {
	l, r, err := pair(f.left, f.right, it)
	if err != nil {
		return value{}, err
	}
	if l.kind != kindL || r.kind != kindL {
		return value{}, wrongOperand()
	}
	return value{kind: kindL, list: slices.Concat(l.list, r.list)}, nil
}

func pair(left, right formula, it item) (l, r value, err *apiError) {
	if l, err = left.of(it); err == nil {
		r, err = right.of(it)
	}
	return l, r, err
}

// parseUpdate reads an UpdateExpression.
func parseUpdate(text string, s *scope) (*update, *apiError) {
	p, err := newParser("UpdateExpression", text, s)
	if err != nil {
		return nil, err
	}
	u := &update{}
	seen := map[string]bool{}
	for p.peek().kind != tokenEnd {
		t := p.next()
		word := strings.ToUpper(t.text)
		clause := map[string]func(*parser) *apiError{"SET": u.parseSet, "REMOVE": u.parseRemove, "ADD": u.parseAdd, "DELETE": u.parseDelete}[word]
		if t.kind != tokenName || clause == nil {
			return nil, syntaxError(p.what, t.text)
		}
		if seen[word] {
			return nil, p.fail("The %q section can only be used once in an update expression;", word)
		}
		seen[word] = true
		for {
			if err := clause(p); err != nil {
				return nil, err
			}
			if !p.symbol(",") {
				break
			}
		}
	}
	return u, distinct(p.what, u.paths())
}

// paths returns what the update changes.
func (u *update) paths() []path {
	var out []path
	for _, a := range u.sets {
		out = append(out, a.to)
	}
	out = append(out, u.removes...)
	for _, a := range u.adds {
		out = append(out, a.at)
	}
	for _, a := range u.deletes {
		out = append(out, a.at)
	}
	return out
}

func (u *update) parseSet(p *parser) *apiError {
	to, err := p.path()
	if err != nil {
		return err
	}
	if err := p.expect("="); err != nil {
		return err
	}
	by, err := p.formula()
	if err != nil {
		return err
	}
	if t := p.peek(); t.kind == tokenSymbol && (t.text == "+" || t.text == "-") {
		p.next()
		right, err := p.formula()
		if err != nil {
			return err
		}
		for _, f := range []formula{by, right} {
			if v, ok := constant(f); ok && v.kind != kindN {
				return p.fail("Incorrect operand type for operator or function; operator or function: %s, operand type: %s", t.text, v.kind)
			}
		}
		by = sum{by, right, t.text == "-"}
	}
	u.sets = append(u.sets, assignment{to, by})
	return nil
}

func constant(f formula) (value, bool) {
	if o, ok := f.(operandFormula); ok {
		if l, ok := o.o.(literal); ok {
			return l.v, true
		}
	}
	return value{}, false
}

// formula reads an operand of SET: a path, a value or one of its two functions.
func (p *parser) formula() (formula, *apiError) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer func() { p.nested-- }()
	if p.symbol("(") {
		f, err := p.formula()
		if err != nil {
			return nil, err
		}
		return f, p.expect(")")
	}
	t := p.peek()
	if t.kind != tokenName || p.tokens[1] != (token{tokenSymbol, "("}) {
		o, err := p.operand()
		return operandFormula{o}, err
	}
	if t.text != "if_not_exists" && t.text != "list_append" {
		return nil, p.fail("The function is not allowed in an update expression; function: %s", t.text)
	}
	p.next()
	p.next()
	left, err := p.formula()
	if err != nil {
		return nil, err
	}
	if err := p.expect(","); err != nil {
		return nil, err
	}
	right, err := p.formula()
	if err != nil {
		return nil, err
	}
	if err := p.expect(")"); err != nil {
		return nil, err
	}
	if t.text == "list_append" {
		for _, f := range []formula{left, right} {
			if v, ok := constant(f); ok && v.kind != kindL {
				return nil, p.fail("Incorrect operand type for operator or function; operator or function: list_append, operand type: %s", v.kind)
			}
		}
		return listAppend{left, right}, nil
	}
	if o, ok := left.(operandFormula); ok {
		if a, ok := o.o.(attribute); ok {
			return ifNotExists{a.p, right}, nil
		}
	}
	return nil, p.fail("Operator or function requires a document path; operator or function: if_not_exists")
}

func (u *update) parseRemove(p *parser) *apiError {
	at, err := p.path()
	u.removes = append(u.removes, at)
	return err
}

func (u *update) parseAdd(p *parser) *apiError {
	a, err := p.amendment("ADD", kindN, kindSS, kindNS, kindBS)
	u.adds = append(u.adds, a)
	return err
}

func (u *update) parseDelete(p *parser) *apiError {
	a, err := p.amendment("DELETE", kindSS, kindNS, kindBS)
	u.deletes = append(u.deletes, a)
	return err
}

func (p *parser) amendment(section string, kinds ...kind) (amendment, *apiError) {
	at, err := p.path()
	if err != nil {
		return amendment{}, err
	}
	t := p.next()
	if t.kind != tokenValue {
		return amendment{}, syntaxError(p.what, t.text)
	}
	v, err := p.value(t.text)
	if err == nil && !slices.Contains(kinds, v.kind) {
		err = p.fail("Incorrect operand type for operator or function; operator: %s, operand type: %s", section, v.kind)
	}
	return amendment{at, v}, err
}

// apply returns the item after the update. All operands are read from the old item, which stays as it is.
func (u *update) apply(old item) (item, *apiError) {
	out := maps.Clone(old)
	// What a nested path changes is copied first: the old item may be shared.
	for _, p := range u.paths() {
		if v, ok := old[p[0].name]; ok && len(p) > 1 {
			out[p[0].name] = v.clone()
		}
	}
	sets := slices.Clone(u.sets)
	// Elements that are set behind the end of a list are appended in the order of their indexes.
	slices.SortStableFunc(sets, func(a, b assignment) int { return cmp.Compare(a.to[len(a.to)-1].index, b.to[len(b.to)-1].index) })
	for _, a := range sets {
		v, err := a.by.of(old)
		if err != nil {
			return nil, err
		}
		if err := set(out, a.to, v); err != nil {
			return nil, err
		}
	}
	removes := slices.Clone(u.removes)
	// From the end, so that the indexes before it stay what they were.
	slices.SortStableFunc(removes, func(a, b path) int { return cmp.Compare(b[len(b)-1].index, a[len(a)-1].index) })
	for _, p := range removes {
		if err := remove(out, p); err != nil {
			return nil, err
		}
	}
	for _, a := range u.adds {
		if err := a.add(old, out); err != nil {
			return nil, err
		}
	}
	for _, a := range u.deletes {
		if err := a.delete(old, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (a amendment) add(old, out item) *apiError {
	was, ok := a.at.in(old)
	if !ok {
		return set(out, a.at, a.by)
	}
	if was.kind != a.by.kind {
		return wrongOperand()
	}
	if was.kind != kindN {
		return set(out, a.at, value{kind: was.kind, set: sortSet(was.kind, slices.Concat(was.set, a.by.set))})
	}
	n, err := was.number().add(a.by.number(), false)
	if err != nil {
		return err
	}
	return set(out, a.at, numberValue(n))
}

func (a amendment) delete(old, out item) *apiError {
	was, ok := a.at.in(old)
	if !ok {
		return nil
	}
	if was.kind != a.by.kind {
		return wrongOperand()
	}
	left := slices.DeleteFunc(slices.Clone(was.set), func(m string) bool { return slices.Contains(a.by.set, m) })
	if len(left) == 0 {
		return remove(out, a.at)
	}
	return set(out, a.at, value{kind: was.kind, set: left})
}

// set writes v where p leads, in documents that are no longer shared.
func set(it item, p path, v value) *apiError {
	return edit(it, p, func(holder *value, last step) *apiError {
		switch {
		case !last.list && holder.kind == kindM:
			holder.fields[last.name] = v
		case last.list && holder.kind == kindL && last.index < len(holder.list):
			holder.list[last.index] = v
		case last.list && holder.kind == kindL:
			holder.list = append(holder.list, v)
		default:
			return wrongPath()
		}
		return nil
	})
}

// remove takes away what p leads to. A missing last step is no mistake; a missing step before it is.
func remove(it item, p path) *apiError {
	return edit(it, p, func(holder *value, last step) *apiError {
		switch {
		case !last.list && holder.kind == kindM:
			delete(holder.fields, last.name)
		case last.list && holder.kind == kindL:
			if last.index < len(holder.list) {
				holder.list = slices.Delete(holder.list, last.index, last.index+1)
			}
		default:
			return wrongPath()
		}
		return nil
	})
}

// edit calls do with the document that holds the last step of p, and puts the changed documents back on its way out.
func edit(it item, p path, do func(holder *value, last step) *apiError) *apiError {
	root := value{kind: kindM, fields: it}
	return editIn(&root, p, do)
}

func editIn(holder *value, p path, do func(*value, step) *apiError) *apiError {
	s := p[0]
	if len(p) == 1 {
		return do(holder, s)
	}
	switch {
	case !s.list && holder.kind == kindM:
		v, ok := holder.fields[s.name]
		if !ok {
			return wrongPath()
		}
		if err := editIn(&v, p[1:], do); err != nil {
			return err
		}
		holder.fields[s.name] = v
		return nil
	case s.list && holder.kind == kindL && s.index < len(holder.list):
		return editIn(&holder.list[s.index], p[1:], do)
	}
	return wrongPath()
}
