package cli

import (
	"slices"
	"strings"
	"testing"
)

func TestArgumentsAreWrittenDownWithoutPasswords(t *testing.T) {
	for _, c := range []struct{ arg, want []string }{
		{[]string{"--endpoint", "postgres=postgres://boss:sekret@127.0.0.1:5432/db"}, []string{"--endpoint", "postgres=postgres://boss:xxxxx@127.0.0.1:5432/db"}},
		{[]string{"--endpoint=postgres=postgres://boss:sekret@127.0.0.1/db"}, []string{"--endpoint=postgres=postgres://boss:xxxxx@127.0.0.1/db"}},
		{[]string{"--endpoint", "postgres=postgres://boss:sek/ret@127.0.0.1/db"}, []string{"--endpoint", "postgres=xxxxx"}},
		{[]string{"--endpoint", "postgres=postgres://boss:sek%ret@127.0.0.1/db"}, []string{"--endpoint", "postgres=xxxxx"}},
		{[]string{"--endpoint", "postgres=host=127.0.0.1 password=sekret"}, []string{"--endpoint", "postgres=xxxxx"}},
		{[]string{"--endpoint", "boss:sekret"}, []string{"--endpoint", "xxxxx"}},
		{[]string{"--endpoint", "postgres=postgres://h/db?password=sekret&sslmode=disable"}, []string{"--endpoint", "postgres=postgres://h/db?password=xxxxx&sslmode=disable"}},
		{[]string{"-s", "postgres://boss:sek@ret@h/db"}, []string{"-s", "postgres://boss:xxxxx@h/db"}},
		{[]string{"password='se kret'"}, []string{"password=xxxxx"}},
		{[]string{"run", "-s", "hot-account", "-t", "postgres/*", "--for", "10s"}, []string{"run", "-s", "hot-account", "-t", "postgres/*", "--for", "10s"}},
	} {
		if got := maskArgs(c.arg); !slices.Equal(got, c.want) {
			t.Errorf("%q became %q, want %q", c.arg, got, c.want)
		}
	}
}

func FuzzMaskedArgumentsHoldNoPassword(f *testing.F) {
	f.Add("boss", "sekret", "127.0.0.1")
	f.Add("b", "a@b/c:d?e#f%zz", "h")
	f.Fuzz(func(t *testing.T, user, password, host string) {
		if len(password) < 4 || strings.ContainsAny(password, " \t\n\r\v\f\u0085\u00a0") || strings.Contains(user+host+"postgres=://xxxxx", password) || strings.ContainsAny(user+host, "@ :/?#%\t\n") {
			t.Skip()
		}
		for _, arg := range maskArgs([]string{"--endpoint", "postgres=postgres://" + user + ":" + password + "@" + host + "/db"}) {
			if strings.Contains(arg, password) {
				t.Errorf("%q", arg)
			}
		}
	})
}

func TestPrintableTextHasNoControlSequencesAndStartsNoCommand(t *testing.T) {
	for in, want := range map[string]string{
		"plain ✓ ×":          "plain ✓ ×",
		"two\nlines\tindent": "two\nlines\tindent",
		"\x1b[31mred\x9b":    "\uFFFD[31mred\uFFFD",
		"ok\r\n  ::error::x": "ok\uFFFD\n|   ::error::x",
		"\xff\xfe":           "\uFFFD",
		"a\u202eb":           "a\uFFFDb",
	} {
		if got := printable(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func TestOneLineJoinsWithoutRepeating(t *testing.T) {
	if got, want := oneLine("failed to connect:\n\ta: refused\n\ta: refused\n\tb: refused\n"), "failed to connect: a: refused; b: refused"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOfTwoExitCodesTheOneThatCountsMoreIsTaken(t *testing.T) {
	order := []int{1, 143, 130, 70, 4, 2, 3, 0}
	for i, a := range order {
		for _, b := range order[i:] {
			if worse(a, b) != a || worse(b, a) != a {
				t.Errorf("worse(%d, %d) = %d, %d", a, b, worse(a, b), worse(b, a))
			}
		}
	}
}
