package dynamodb

import (
	"slices"
	"strconv"
	"strings"
)

// scope holds the placeholders of one request, and which of them its expressions have used.
type scope struct {
	names      map[string]string
	values     map[string]value
	usedNames  map[string]bool
	usedValues map[string]bool
}

func newScope(names map[string]string, values map[string]value) *scope {
	return &scope{names, values, map[string]bool{}, map[string]bool{}}
}

// unused refuses placeholders that no expression used: they are a mistake of the caller.
func (s *scope) unused() *apiError {
	for _, name := range sortedKeys(s.names) {
		if !s.usedNames[name] {
			return invalid("Value provided in ExpressionAttributeNames unused in expressions: keys: {%s}", name)
		}
	}
	for _, name := range sortedKeys(s.values) {
		if !s.usedValues[name] {
			return invalid("Value provided in ExpressionAttributeValues unused in expressions: keys: {%s}", name)
		}
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// parser reads one expression by recursive descent.
//
//	condition := and { OR and }
//	and       := not { AND not }
//	not       := NOT not | '(' condition ')' | predicate
//	predicate := operand cmp operand | operand BETWEEN operand AND operand | operand IN '(' operand {',' operand} ')'
//	           | function '(' … ')'
//	operand   := path | :value | size '(' path ')'
//	path      := name { '.' name | '[' digits ']' }
type parser struct {
	what   string // "ConditionExpression", for messages
	tokens []token
	scope  *scope
	paths  []path // all that were read
	nested int
}

// maxNesting bounds recursion on hostile input. A real expression is bounded by its 4 KB.
const (
	maxNesting    = 300
	maxExpression = 4096
)

func newParser(what, text string, s *scope) (*parser, *apiError) {
	if strings.TrimSpace(text) == "" {
		return nil, invalid("Invalid %s: The expression can not be empty;", what)
	}
	if len(text) > maxExpression {
		return nil, invalid("Invalid %s: Expression size has exceeded the maximum allowed size; expression size: %d", what, len(text))
	}
	tokens, err := lex(what, text)
	if err != nil {
		return nil, err
	}
	return &parser{what: what, tokens: tokens, scope: s}, nil
}

func (p *parser) peek() token { return p.tokens[0] }

func (p *parser) next() token {
	t := p.tokens[0]
	if t.kind != tokenEnd {
		p.tokens = p.tokens[1:]
	}
	return t
}

func (p *parser) fail(format string, args ...any) *apiError {
	return invalid("Invalid "+p.what+": "+format, args...)
}

func (p *parser) unexpected() *apiError { return syntaxError(p.what, p.peek().text) }

func (p *parser) symbol(text string) bool {
	if t := p.peek(); t.kind == tokenSymbol && t.text == text {
		p.next()
		return true
	}
	return false
}

func (p *parser) expect(text string) *apiError {
	if !p.symbol(text) {
		return p.unexpected()
	}
	return nil
}

func (p *parser) keyword(word string) bool {
	if t := p.peek(); t.kind == tokenName && strings.EqualFold(t.text, word) {
		p.next()
		return true
	}
	return false
}

func (p *parser) end() *apiError {
	if p.peek().kind != tokenEnd {
		return p.unexpected()
	}
	return nil
}

// enter counts a level of nesting; the caller leaves it by p.nested--.
func (p *parser) enter() *apiError {
	p.nested++
	if p.nested > maxNesting {
		return p.fail("The expression is nested too deeply")
	}
	return nil
}

// parseCondition reads a condition or filter. It also returns the paths in it.
func parseCondition(what, text string, s *scope) (condition, []path, *apiError) {
	p, err := newParser(what, text, s)
	if err != nil {
		return nil, nil, err
	}
	c, err := p.condition()
	if err != nil {
		return nil, nil, err
	}
	return c, p.paths, p.end()
}

// parseProjection reads a list of paths.
func parseProjection(text string, s *scope) ([]path, *apiError) {
	p, err := newParser("ProjectionExpression", text, s)
	if err != nil {
		return nil, err
	}
	for {
		if _, err := p.path(); err != nil {
			return nil, err
		}
		if !p.symbol(",") {
			break
		}
	}
	if err := p.end(); err != nil {
		return nil, err
	}
	return p.paths, distinct(p.what, p.paths)
}

func (p *parser) condition() (condition, *apiError) {
	return p.chain("OR", p.conjunction, func(l, r condition) condition { return either{l, r} })
}

func (p *parser) conjunction() (condition, *apiError) {
	return p.chain("AND", p.negation, func(l, r condition) condition { return both{l, r} })
}

func (p *parser) chain(word string, part func() (condition, *apiError), join func(l, r condition) condition) (condition, *apiError) {
	left, err := part()
	for err == nil && p.keyword(word) {
		var right condition
		if right, err = part(); err == nil {
			left = join(left, right)
		}
	}
	return left, err
}

func (p *parser) negation() (condition, *apiError) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer func() { p.nested-- }()
	if p.keyword("NOT") {
		c, err := p.negation()
		return negated{c}, err
	}
	if p.symbol("(") {
		c, err := p.condition()
		if err != nil {
			return nil, err
		}
		if _, twice := c.(grouped); twice {
			return nil, p.fail("The expression has redundant parentheses;")
		}
		return grouped{c}, p.expect(")")
	}
	return p.predicate()
}

func (p *parser) predicate() (condition, *apiError) {
	if name := p.peek(); name.kind == tokenName && p.tokens[1] == (token{tokenSymbol, "("}) && name.text != "size" {
		return p.function()
	}
	left, err := p.operand()
	if err != nil {
		return nil, err
	}
	t := p.peek()
	switch {
	case p.keyword("BETWEEN"):
		return p.between(left)
	case p.keyword("IN"):
		return p.membership(left)
	case t.kind == tokenSymbol && slices.Contains([]string{"=", "<>", "<", "<=", ">", ">="}, t.text):
		p.next()
		right, err := p.operand()
		if err != nil {
			return nil, err
		}
		if t.text != "=" && t.text != "<>" {
			if err := p.scalars(t.text, left, right); err != nil {
				return nil, err
			}
		}
		return comparison{t.text, left, right}, p.differ(t.text, left, right)
	}
	return nil, p.unexpected()
}

// scalars refuses literals that have no order.
func (p *parser) scalars(operator string, operands ...operand) *apiError {
	for _, o := range operands {
		if l, ok := o.(literal); ok && !isScalar(l.v.kind) {
			return p.fail("Incorrect operand type for operator or function; operator: %s, operand type: %s", operator, l.v.kind)
		}
	}
	return nil
}

func isScalar(k kind) bool { return k == kindS || k == kindN || k == kindB }

// differ refuses an operator between an attribute and itself.
func (p *parser) differ(operator string, first operand, rest ...operand) *apiError {
	a, ok := first.(attribute)
	if !ok {
		return nil
	}
	for _, o := range rest {
		if b, ok := o.(attribute); ok && slices.Equal(a.p, b.p) {
			return p.fail("The first operand must be distinct from the remaining operands for this operator or function; operator: %s, first operand: %s",
				operator, a.p)
		}
	}
	return nil
}

func (p *parser) between(left operand) (condition, *apiError) {
	low, err := p.operand()
	if err != nil {
		return nil, err
	}
	if !p.keyword("AND") {
		return nil, p.unexpected()
	}
	high, err := p.operand()
	if err != nil {
		return nil, err
	}
	if err := p.scalars("BETWEEN", left, low, high); err != nil {
		return nil, err
	}
	l, lok := low.(literal)
	h, hok := high.(literal)
	if lok && hok {
		if l.v.kind != h.v.kind {
			return nil, p.fail("The BETWEEN operator requires same data type for lower and upper bounds; lower bound operand: AttributeValue: {%s}, upper bound operand: AttributeValue: {%s}", l.v.kind, h.v.kind)
		}
		if l.v.ordered() > h.v.ordered() {
			return nil, p.fail("The BETWEEN operator requires upper bound to be greater than or equal to lower bound; lower bound operand: AttributeValue: {%s:%s}, upper bound operand: AttributeValue: {%s:%s}",
				l.v.kind, l.v.str, h.v.kind, h.v.str)
		}
	}
	return between{left, low, high}, p.differ("BETWEEN", left, low, high)
}

// maxMembers is how many operands IN takes.
const maxMembers = 100

func (p *parser) membership(left operand) (condition, *apiError) {
	if err := p.expect("("); err != nil {
		return nil, err
	}
	c := membership{of: left}
	for {
		o, err := p.operand()
		if err != nil {
			return nil, err
		}
		c.in = append(c.in, o)
		if !p.symbol(",") {
			break
		}
	}
	if len(c.in) > maxMembers {
		return nil, p.fail("Number of operands for operator IN is beyond the limit; number of operands: %d", len(c.in))
	}
	if err := p.expect(")"); err != nil {
		return nil, err
	}
	return c, p.differ("IN", left, c.in...)
}

func (p *parser) function() (condition, *apiError) {
	name := p.next().text
	arity := map[string]int{"attribute_exists": 1, "attribute_not_exists": 1, "attribute_type": 2, "begins_with": 2, "contains": 2}[name]
	if arity == 0 {
		if slices.Contains([]string{"if_not_exists", "list_append"}, name) {
			return nil, p.fail("The function is not allowed in this expression; function: %s", name)
		}
		return nil, p.fail("Invalid function name; function: %s", name)
	}
	args, err := p.arguments(name, arity)
	if err != nil {
		return nil, err
	}
	subject, isPath := args[0].(attribute)
	switch name {
	case "attribute_exists", "attribute_not_exists":
		if !isPath {
			return nil, p.fail("Operator or function requires a document path; operator or function: %s", name)
		}
		return exists{subject.p, name == "attribute_exists"}, nil
	case "attribute_type":
		l, ok := args[1].(literal)
		if !ok || l.v.kind != kindS {
			return nil, p.fail("Incorrect operand type for operator or function; operator or function: attribute_type")
		}
		k, ok := kindOf(l.v.str)
		if !ok {
			return nil, p.fail("Invalid attribute type name found; type: %s, valid types: {B,NULL,SS,BOOL,L,BS,N,NS,S,M}", l.v.str)
		}
		if !isPath {
			return nil, p.fail("Operator or function requires a document path; operator or function: attribute_type")
		}
		return hasType{subject.p, k}, nil
	case "begins_with":
		for _, a := range args {
			if l, ok := a.(literal); ok && l.v.kind != kindS && l.v.kind != kindB {
				return nil, p.fail("Incorrect operand type for operator or function; operator or function: begins_with, operand type: %s", l.v.kind)
			}
		}
		return beginsWith{args[0], args[1]}, p.differ(name, args[0], args[1])
	}
	return contains{args[0], args[1]}, p.differ(name, args[0], args[1])
}

func (p *parser) arguments(name string, arity int) ([]operand, *apiError) {
	if err := p.expect("("); err != nil {
		return nil, err
	}
	var args []operand
	for {
		o, err := p.operand()
		if err != nil {
			return nil, err
		}
		args = append(args, o)
		if !p.symbol(",") {
			break
		}
	}
	if err := p.expect(")"); err != nil {
		return nil, err
	}
	if len(args) != arity {
		return nil, p.fail("Incorrect number of operands for operator or function; operator or function: %s, number of operands: %d", name, len(args))
	}
	return args, nil
}

func (p *parser) operand() (operand, *apiError) {
	t := p.peek()
	if t.kind == tokenValue {
		p.next()
		v, err := p.value(t.text)
		return literal{v}, err
	}
	if t.kind == tokenName && p.tokens[1] == (token{tokenSymbol, "("}) {
		if t.text != "size" {
			return nil, p.fail("The function is not allowed to be used this way in an expression; function: %s", t.text)
		}
		p.next()
		p.next()
		inner, err := p.operand()
		if err != nil {
			return nil, err
		}
		if l, ok := inner.(literal); ok {
			if _, ok := l.v.length(); !ok {
				return nil, p.fail("Incorrect operand type for operator or function; operator or function: size, operand type: %s", l.v.kind)
			}
		}
		return sizeOf{inner}, p.expect(")")
	}
	at, err := p.path()
	return attribute{at}, err
}

func (p *parser) value(name string) (value, *apiError) {
	v, ok := p.scope.values[name]
	if !ok {
		return value{}, p.fail("An expression attribute value used in expression is not defined; attribute value: %s", name)
	}
	p.scope.usedValues[name] = true
	return v, nil
}

func (p *parser) path() (path, *apiError) {
	first, err := p.name()
	if err != nil {
		return nil, err
	}
	out := path{first}
	for {
		switch {
		case p.symbol("."):
			s, err := p.name()
			if err != nil {
				return nil, err
			}
			out = append(out, s)
		case p.symbol("["):
			t := p.next()
			i, err := strconv.Atoi(t.text)
			if t.kind != tokenIndex || err != nil {
				return nil, syntaxError(p.what, t.text)
			}
			out = append(out, step{index: i, list: true})
			if err := p.expect("]"); err != nil {
				return nil, err
			}
		default:
			if len(out) > maxDepth {
				return nil, p.fail("The document path has too many nesting elements; nesting levels: %d", len(out))
			}
			p.paths = append(p.paths, out)
			return out, nil
		}
	}
}

func (p *parser) name() (step, *apiError) {
	t := p.peek()
	switch t.kind {
	case tokenName:
		if reserved(t.text) {
			return step{}, p.fail("Attribute name is a reserved keyword; reserved keyword: %s", t.text)
		}
		p.next()
		return step{name: t.text}, nil
	case tokenPlaceholder:
		p.next()
		name, ok := p.scope.names[t.text]
		if !ok {
			return step{}, p.fail("An expression attribute name used in the document path is not defined; attribute name: %s", t.text)
		}
		p.scope.usedNames[t.text] = true
		return step{name: name}, nil
	case tokenEnd, tokenValue, tokenIndex, tokenSymbol:
	}
	return step{}, p.unexpected()
}
