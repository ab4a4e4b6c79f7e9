package dynamodb

import (
	"bytes"
	"cmp"
	"math/big"
	"strings"
	"testing"
)

func word(s string) value { return value{kind: kindS, str: s} }

func FuzzExpressionsNeverPanic(f *testing.F) {
	for _, text := range []string{
		"a = :a", "NOT (a.b[3] <> #n) AND size(c) BETWEEN :a AND :b", "a IN (:a, :b) OR contains(a, :b)", "SET a = if_not_exists(b, :a) + :b REMOVE c[0] ADD d :a DELETE e :b",
		"a, b.c, d[0][1]", "((a = :a))", "begins_with(a, :s)", strings.Repeat("NOT ", 400) + "a = :a", strings.Repeat("(", 400), "a[99999999999999999999]", "SET a = list_append(l, :l), l[3] = l[0]",
	} {
		f.Add(text)
	}
	one, _ := parseNumber("1")
	values := map[string]value{":a": numberValue(one), ":b": numberValue(one), ":s": word("x"), ":l": {kind: kindL, list: []value{word("y")}}}
	names := map[string]string{"#n": "n"}
	it := item{"a": numberValue(one), "l": {kind: kindL, list: []value{word("z")}}, "e": {kind: kindSS, set: []string{"q"}}, "m": {kind: kindM, fields: item{"x": word("v")}}}
	before := string(it.append(nil))
	f.Fuzz(func(t *testing.T, text string) {
		if c, _, err := parseCondition("ConditionExpression", text, newScope(names, values)); err == nil {
			c.holds(it)
			c.holds(nil)
		}
		if u, err := parseUpdate(text, newScope(names, values)); err == nil {
			if next, err := u.apply(it); err == nil {
				next.size()
			}
		}
		if paths, err := parseProjection(text, newScope(names, values)); err == nil {
			project(it, paths)
		}
		if after := string(it.append(nil)); after != before {
			t.Errorf("%s changed the item to %s", text, after)
		}
	})
}

func FuzzNumbersKeepValueAndOrder(f *testing.F) {
	f.Add("1", "2")
	f.Add("-1.50", "-1.5000001")
	f.Add("1e-130", "9.9e125")
	f.Add("0", "-0.0")
	f.Add(".5", "5.")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, err := parseNumber(a)
		if err != nil {
			return
		}
		y, err := parseNumber(b)
		if err != nil {
			return
		}
		rx, ry := rational(t, x.String()), rational(t, y.String())
		if want := rational(t, a); rx.Cmp(want) != 0 {
			t.Errorf("%q became %s", a, x)
		}
		if got, want := cmp.Compare(x.ordered(), y.ordered()), rx.Cmp(ry); got != want {
			t.Errorf("%s against %s: %d, want %d", x, y, got, want)
		}
		if again, err := parseNumber(x.String()); err != nil || again != x {
			t.Errorf("%s is not its own form", x)
		}
		for _, subtract := range []bool{false, true} {
			sum, err := x.add(y, subtract)
			if err != nil {
				continue
			}
			want := new(big.Rat).Add(rx, ry)
			if subtract {
				want.Sub(rx, ry)
			}
			if rational(t, sum.String()).Cmp(want) != 0 {
				t.Errorf("%s and %s, subtract=%v: %s", x, y, subtract, sum)
			}
		}
	})
}

func rational(t *testing.T, text string) *big.Rat {
	t.Helper()
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		t.Fatalf("%q is not a number", text)
	}
	return r
}

func FuzzALogIsReadUpToItsLastWholeRecord(f *testing.F) {
	whole := frame([]byte(`{"n":1,"at_ms":1,"kind":"open"}`))
	f.Add(whole, []byte(nil))
	f.Add(whole, whole[:9])
	f.Add([]byte("x"), whole)
	f.Add([]byte(nil), []byte("3 00000000 {}\n"))
	f.Fuzz(func(t *testing.T, head, tail []byte) {
		log := append(bytes.Clone(head), tail...)
		n := 0
		good, err := readLog(bytes.NewReader(log), func(logRecord) error { n++; return nil })
		if err != nil {
			return
		}
		again := 0
		if g, err := readLog(bytes.NewReader(log[:good]), func(logRecord) error { again++; return nil }); err != nil || g != good || again != n {
			t.Errorf("%d records in %d bytes, then %d in %d: %v", n, good, again, g, err)
		}
	})
}
