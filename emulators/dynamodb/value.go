package dynamodb

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// kind is the type of an attribute value.
type kind uint8

const (
	kindS kind = iota + 1
	kindN
	kindB
	kindBool
	kindNull
	kindSS
	kindNS
	kindBS
	kindL
	kindM
)

var kindNames = [...]string{kindS: "S", kindN: "N", kindB: "B", kindBool: "BOOL", kindNull: "NULL",
	kindSS: "SS", kindNS: "NS", kindBS: "BS", kindL: "L", kindM: "M"}

func (k kind) String() string { return kindNames[k] }

func kindOf(name string) (kind, bool) {
	i := slices.Index(kindNames[1:], name)
	return kind(i + 1), i >= 0
}

// maxDepth is how deep documents may nest.
const maxDepth = 32

// value is one attribute value. Values are immutable once they are part of a stored item: the log, streams and
// answers share them.
type value struct {
	kind   kind
	str    string // S; the plain decimal form of N; the bytes of B
	flag   bool   // BOOL
	set    []string
	list   []value
	fields item
}

// item is a map of attributes.
type item map[string]value

func numberValue(n number) value { return value{kind: kindN, str: n.String()} }

// UnmarshalJSON reads the {"S": "text"} form. It returns an *apiError for what is not a legal value.
func (v *value) UnmarshalJSON(b []byte) error {
	var union map[string]json.RawMessage
	if err := json.Unmarshal(b, &union); err != nil {
		return err
	}
	if len(union) != 1 {
		if len(union) == 0 {
			return invalid("Supplied AttributeValue is empty, must contain exactly one of the supported datatypes")
		}
		return invalid("Supplied AttributeValue has more than one datatypes set, must contain exactly one of the supported datatypes")
	}
	for name, raw := range union {
		k, ok := kindOf(name)
		if !ok {
			return invalid("Supplied AttributeValue is empty, must contain exactly one of the supported datatypes")
		}
		return v.decode(k, raw)
	}
	panic("unreachable: one member")
}

func (v *value) decode(k kind, raw json.RawMessage) error {
	v.kind = k
	switch k {
	case kindS:
		return json.Unmarshal(raw, &v.str)
	case kindN:
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return err
		}
		n, err := parseNumber(text)
		if err != nil {
			return err
		}
		v.str = n.String()
		return nil
	case kindB:
		var b []byte
		err := json.Unmarshal(raw, &b)
		v.str = string(b)
		return err
	case kindBool:
		return json.Unmarshal(raw, &v.flag)
	case kindNull:
		if err := json.Unmarshal(raw, &v.flag); err != nil {
			return err
		}
		if !v.flag {
			return invalidParam("Null attribute value types must have the value of true")
		}
		return nil
	case kindSS, kindNS, kindBS:
		return v.decodeSet(k, raw)
	case kindL:
		if err := json.Unmarshal(raw, &v.list); err != nil {
			return err
		}
		if v.list == nil {
			v.list = []value{}
		}
		return nil
	case kindM:
		if err := json.Unmarshal(raw, &v.fields); err != nil {
			return err
		}
		if v.fields == nil {
			v.fields = item{}
		}
		return nil
	}
	panic("unreachable: no such kind")
}

func (v *value) decodeSet(k kind, raw json.RawMessage) error {
	if k == kindBS {
		var members [][]byte
		if err := json.Unmarshal(raw, &members); err != nil {
			return err
		}
		for _, m := range members {
			v.set = append(v.set, string(m))
		}
	} else if err := json.Unmarshal(raw, &v.set); err != nil {
		return err
	}
	if len(v.set) == 0 {
		//nolint:exhaustive // the sets
		return invalidParam("An %s set  may not be empty", map[kind]string{kindSS: "string", kindNS: "number", kindBS: "binary"}[k])
	}
	if k == kindNS {
		for i, text := range v.set {
			n, err := parseNumber(text)
			if err != nil {
				return err
			}
			v.set[i] = n.String()
		}
	}
	n := len(v.set)
	v.set = sortSet(k, v.set)
	if len(v.set) < n {
		return invalidParam("Input collection contains duplicates.")
	}
	return nil
}

// sortSet gives the members of a set their one order, each once. It changes its argument.
func sortSet(k kind, set []string) []string {
	if k == kindNS {
		slices.SortFunc(set, func(a, b string) int { return strings.Compare(orderedNumber(a), orderedNumber(b)) })
	} else {
		slices.Sort(set)
	}
	return slices.Compact(set)
}

// number returns the number of an N, whose text was checked when the value was made.
func (v value) number() number { return mustNumber(v.str) }

func mustNumber(text string) number {
	n, err := parseNumber(text)
	if err != nil {
		panic(err)
	}
	return n
}

func orderedNumber(text string) string { return mustNumber(text).ordered() }

// MarshalJSON writes the {"S": "text"} form.
func (v value) MarshalJSON() ([]byte, error) { return v.append(nil), nil }

// MarshalJSON writes the attributes in the order of their names, so that equal items have equal texts.
func (it item) MarshalJSON() ([]byte, error) {
	if it == nil {
		return []byte("null"), nil
	}
	return it.append(nil), nil
}

func (it item) append(b []byte) []byte {
	names := make([]string, 0, len(it))
	for name := range it {
		names = append(names, name)
	}
	slices.Sort(names)
	b = append(b, '{')
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(b, name)
		b = append(b, ':')
		b = it[name].append(b)
	}
	return append(b, '}')
}

func (v value) append(b []byte) []byte {
	b = append(b, '{', '"')
	b = append(b, v.kind.String()...)
	b = append(b, '"', ':')
	switch v.kind {
	case kindS, kindN:
		b = appendText(b, v.str)
	case kindB:
		b = appendBytes(b, v.str)
	case kindBool, kindNull:
		if v.flag {
			b = append(b, "true"...)
		} else {
			b = append(b, "false"...)
		}
	case kindSS, kindNS, kindBS:
		b = append(b, '[')
		for i, m := range v.set {
			if i > 0 {
				b = append(b, ',')
			}
			if v.kind == kindBS {
				b = appendBytes(b, m)
			} else {
				b = appendText(b, m)
			}
		}
		b = append(b, ']')
	case kindL:
		b = append(b, '[')
		for i, e := range v.list {
			if i > 0 {
				b = append(b, ',')
			}
			b = e.append(b)
		}
		b = append(b, ']')
	case kindM:
		b = v.fields.append(b)
	}
	return append(b, '}')
}

func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			text, err := json.Marshal(s)
			if err != nil {
				panic(err) // a string always has a JSON form
			}
			return append(b, text...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

func appendBytes(b []byte, s string) []byte {
	b = append(b, '"')
	b = base64.StdEncoding.AppendEncode(b, []byte(s))
	return append(b, '"')
}

func (v value) equal(w value) bool {
	return v.kind == w.kind && v.str == w.str && v.flag == w.flag && slices.Equal(v.set, w.set) &&
		slices.EqualFunc(v.list, w.list, value.equal) && v.fields.equal(w.fields)
}

func (it item) equal(other item) bool { return maps.EqualFunc(it, other, value.equal) }

// ordered is a form of a S, N or B whose byte order is the order of the values of that kind.
func (v value) ordered() string {
	if v.kind == kindN {
		return v.number().ordered()
	}
	return v.str
}

func (v value) clone() value {
	v.set = slices.Clone(v.set)
	if v.list != nil {
		list := make([]value, len(v.list))
		for i, e := range v.list {
			list[i] = e.clone()
		}
		v.list = list
	}
	if v.fields != nil {
		fields := make(item, len(v.fields))
		for name, e := range v.fields {
			fields[name] = e.clone()
		}
		v.fields = fields
	}
	return v
}

func (v value) depth() int {
	deepest := 0
	for _, e := range v.list {
		deepest = max(deepest, e.depth())
	}
	for _, e := range v.fields {
		deepest = max(deepest, e.depth())
	}
	return 1 + deepest
}

// size is what an item counts for, in bytes: names and values.
func (it item) size() int {
	n := 0
	for name, v := range it {
		n += len(name) + v.size()
	}
	return n
}

func (v value) size() int {
	switch v.kind {
	case kindS, kindB:
		return len(v.str)
	case kindN:
		return v.number().size()
	case kindBool, kindNull:
		return 1
	case kindSS, kindBS, kindNS:
		n := 0
		for _, m := range v.set {
			if v.kind == kindNS {
				n += mustNumber(m).size()
			} else {
				n += len(m)
			}
		}
		return n
	case kindL:
		n := 3 + len(v.list)
		for _, e := range v.list {
			n += e.size()
		}
		return n
	case kindM:
		return 3 + len(v.fields) + v.fields.size()
	}
	panic("unreachable: no such kind")
}

// length is what the function size() gives; false for the kinds that have none.
func (v value) length() (int, bool) {
	switch v.kind {
	case kindS:
		return utf8.RuneCountInString(v.str), true
	case kindB:
		return len(v.str), true
	case kindSS, kindNS, kindBS:
		return len(v.set), true
	case kindL:
		return len(v.list), true
	case kindM:
		return len(v.fields), true
	case kindN, kindBool, kindNull:
		return 0, false
	}
	panic("unreachable: no such kind")
}
