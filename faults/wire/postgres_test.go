package wire

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// msg is one Postgres message.
func msg(kind byte, parts ...string) []byte {
	body := strings.Join(parts, "")
	b := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)+4))
	return append(b, body...)
}

func query(sql string) []byte { return msg('Q', sql, "\x00") }

func sslRequest() []byte { return []byte{0, 0, 0, 8, 4, 210, 22, 47} }

func named(application string) []byte { return startup("app", application) }

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// outcome is everything that a framer says about a stream.
type outcome struct {
	out      []byte
	commits  int
	turns    int
	answers  []answer
	sessions []string
	lost     bool
}

func through(f framer, chunks ...[]byte) outcome {
	var o outcome
	for _, c := range chunks {
		f.feed(slices.Clone(c), func(fr frame) {
			o.out = append(o.out, fr.data...)
			o.turns += fr.turns
			if fr.commit {
				o.commits++
			}
			if fr.answer != noAnswer {
				o.answers = append(o.answers, fr.answer)
			}
			if fr.session != "" {
				o.sessions = append(o.sessions, fr.session)
			}
		})
	}
	o.out = append(o.out, f.rest()...)
	o.lost = f.unreadable()
	return o
}

func TestCommitsAreFoundInRequests(t *testing.T) {
	start := named("w/1")
	for _, c := range []struct {
		name    string
		stream  []byte
		commits int
		turns   int
	}{
		{"a simple commit", join(start, query("begin"), query("insert into e values (1)"), query("commit")), 1, 3},
		{"after a request for encryption", join(sslRequest(), start, query("COMMIT;")), 1, 1},
		{"a rollback is none", join(start, query("rollback")), 0, 1},
		{"a commit of a prepared transaction is none", join(start, query("commit prepared 'x'")), 0, 1},
		{"the last statement of several", join(start, query("insert into e values ('a'); commit")), 1, 1},
		{"a commit that is not the last", join(start, query("commit; begin")), 0, 1},
		{"inside a literal", join(start, query("insert into e values ('; commit')")), 0, 1},
		{"an unnamed prepared commit", join(start,
			msg('P', "\x00commit\x00", "\x00\x00"), msg('B', "\x00\x00", "\x00\x00\x00\x00\x00\x00"), msg('E', "\x00", "\x00\x00\x00\x00"), msg('S')), 1, 1},
		{"a prepared insert", join(start,
			msg('P', "\x00insert\x00", "\x00\x00"), msg('B', "\x00\x00", "\x00\x00\x00\x00\x00\x00"), msg('E', "\x00", "\x00\x00\x00\x00"), msg('S')), 0, 1},
		{"a named commit that is used twice", join(start,
			msg('P', "c\x00commit\x00", "\x00\x00"), msg('B', "\x00c\x00"), msg('E', "\x00", "\x00\x00\x00\x00"), msg('S'),
			msg('B', "\x00c\x00"), msg('E', "\x00", "\x00\x00\x00\x00"), msg('S')), 2, 2},
		{"a portal that was bound to something else", join(start,
			msg('P', "c\x00commit\x00", "\x00\x00"), msg('B', "\x00c\x00"), msg('P', "\x00select\x00", "\x00\x00"), msg('B', "\x00\x00"), msg('E', "\x00", "\x00\x00\x00\x00"), msg('S')), 0, 1},
		{"a closed statement", join(start,
			msg('P', "c\x00commit\x00", "\x00\x00"), msg('C', "Sc\x00"), msg('B', "\x00c\x00"), msg('E', "\x00", "\x00\x00\x00\x00"), msg('S')), 0, 1},
		{"a long insert before it", join(start, query("insert "+strings.Repeat("x", 3*pgMaxInspected)), query("commit")), 1, 2},
		{"a long bind forgets the portal", join(start,
			msg('P', "c\x00commit\x00", "\x00\x00"), msg('B', "\x00c\x00"), msg('B', "\x00i\x00", strings.Repeat("x", pgMaxInspected)), msg('E', "\x00", "\x00\x00\x00\x00"), msg('S')), 0, 1},
		{"copy data that looks like one", join(start, msg('d', "Q\x00\x00\x00\x0bcommit\x00"), msg('c')), 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := through(&pgRequests{}, c.stream)
			if o.commits != c.commits || o.lost {
				t.Errorf("commits %d, unreadable %t; want %d, false", o.commits, o.lost, c.commits)
			}
			if o.turns != c.turns {
				t.Errorf("turns %d, want %d", o.turns, c.turns)
			}
			if !bytes.Equal(o.out, c.stream) {
				t.Error("the bytes changed")
			}
			if !slices.Equal(o.sessions, []string{"w/1"}) {
				t.Errorf("sessions %q", o.sessions)
			}
		})
	}
}

func TestStreamsThatAreNoPostgresPassUntouched(t *testing.T) {
	for name, stream := range map[string][]byte{
		"a TLS hello":           join(sslRequest(), []byte{0x16, 3, 1, 0, 5}, query("commit")),
		"HTTP":                  []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"an old protocol":       {0, 0, 0, 9, 0, 2, 0, 0, 0},
		"an absurd length":      {0, 0xff, 0xff, 0xff, 0, 3, 0, 0},
		"an unknown message":    join(named("w/1"), []byte{'?', 0, 0, 0, 4}, query("commit")),
		"a length below 4":      join(named("w/1"), []byte{'Q', 0, 0, 0, 1}, query("commit")),
		"a length beyond bound": join(named("w/1"), []byte{'Q', 0xff, 0, 0, 1}, query("commit")),
	} {
		t.Run(name, func(t *testing.T) {
			o := through(&pgRequests{}, stream)
			if !o.lost || o.commits > 0 {
				t.Errorf("unreadable %t, commits %d; want true, 0", o.lost, o.commits)
			}
			if !bytes.Equal(o.out, stream) {
				t.Error("the bytes changed")
			}
		})
	}
	cancel := []byte{0, 0, 0, 16, 4, 210, 22, 46, 0, 0, 0, 1, 0, 0, 0, 2}
	if o := through(&pgRequests{}, cancel); o.lost || !bytes.Equal(o.out, cancel) {
		t.Errorf("a cancel request: unreadable %t, out %v", o.lost, o.out)
	}
}

func loginReply(application string) []byte {
	return join(msg('R', "\x00\x00\x00\x00"), msg('S', "server_version\x0015\x00"),
		msg('S', "application_name\x00", application, "\x00"), msg('K', "\x00\x00\x00\x01\x00\x00\x00\x02"), msg('Z', "I"))
}

func errorReply(code string) []byte {
	return msg('E', "SERROR\x00C", code, "\x00Mno\x00\x00")
}

func TestAnswersAreFoundInReplies(t *testing.T) {
	login := loginReply("w/1")
	for _, c := range []struct {
		name    string
		stream  []byte
		answers []answer
	}{
		{"a commit", join(login, msg('C', "COMMIT\x00"), msg('Z', "I")), []answer{committed}},
		{"after N to a request for encryption", join([]byte("N"), login, msg('C', "COMMIT\x00"), msg('Z', "I")), []answer{committed}},
		{"a rollback in its place", join(login, msg('C', "ROLLBACK\x00"), msg('Z', "I")), []answer{rolledBack}},
		{"an insert", join(login, msg('C', "INSERT 0 1\x00"), msg('Z', "T")), nil},
		{"serialization failure", join(login, errorReply("40001"), msg('Z', "I")), []answer{rolledBack}},
		{"unknown completion", join(login, errorReply("40003"), msg('Z', "I")), []answer{undecided}},
		{"shutdown", join(login, errorReply("57P01")), []answer{undecided}},
		{"connection failure", join(login, errorReply("08006")), []answer{undecided}},
		{"internal error", join(login, errorReply("XX000")), []answer{undecided}},
		{"rows that look like one", join(login, msg('D', "C\x00\x00\x00\x0bCOMMIT\x00"), msg('C', "SELECT 1\x00"), msg('Z', "I")), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := through(&pgReplies{}, c.stream)
			if !slices.Equal(o.answers, c.answers) || o.lost {
				t.Errorf("answers %v, unreadable %t; want %v", o.answers, o.lost, c.answers)
			}
			if !bytes.Equal(o.out, c.stream) || !slices.Equal(o.sessions, []string{"w/1"}) {
				t.Errorf("bytes equal %t, sessions %q", bytes.Equal(o.out, c.stream), o.sessions)
			}
		})
	}
	tls := join([]byte("S"), msg('C', "COMMIT\x00"))
	if o := through(&pgReplies{}, tls); !o.lost || len(o.answers) > 0 || !bytes.Equal(o.out, tls) {
		t.Errorf("after the switch to TLS: %+v", o)
	}
}

// However a stream is cut into chunks, the same bytes come out and the same things are seen.
func TestFramingDoesNotDependOnChunks(t *testing.T) {
	requests := []func(*rapid.T) []byte{
		func(*rapid.T) []byte { return query("commit") },
		func(*rapid.T) []byte { return query("begin") },
		func(t *rapid.T) []byte {
			return query("insert '" + strings.Repeat("x", rapid.IntRange(0, 200).Draw(t, "size")) + "'")
		},
		func(*rapid.T) []byte {
			return join(msg('P', "\x00commit\x00", "\x00\x00"), msg('B', "\x00\x00"), msg('E', "\x00", "\x00\x00\x00\x00"), msg('S'))
		},
		func(t *rapid.T) []byte {
			return msg('d', string(rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(t, "copy")))
		},
		func(*rapid.T) []byte { return query(strings.Repeat("y", pgMaxInspected)) },
		func(t *rapid.T) []byte { return rapid.SliceOfN(rapid.Byte(), 0, 6).Draw(t, "noise") },
	}
	replies := []func(*rapid.T) []byte{
		func(*rapid.T) []byte { return join(msg('C', "COMMIT\x00"), msg('Z', "I")) },
		func(*rapid.T) []byte { return join(msg('C', "INSERT 0 1\x00"), msg('Z', "T")) },
		func(*rapid.T) []byte { return join(errorReply("40001"), msg('Z', "I")) },
		func(t *rapid.T) []byte {
			return msg('D', string(rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(t, "row")))
		},
		func(t *rapid.T) []byte { return rapid.SliceOfN(rapid.Byte(), 0, 6).Draw(t, "noise") },
	}
	check := func(t *rapid.T, stream []byte, fresh func() framer) {
		whole := through(fresh(), stream)
		if !bytes.Equal(whole.out, stream) {
			t.Fatal("the bytes changed in one chunk")
		}
		var chunks [][]byte
		for rest := stream; len(rest) > 0; {
			n := rapid.IntRange(1, min(len(rest), 40)).Draw(t, "chunk")
			if rapid.IntRange(0, 9).Draw(t, "long") == 0 {
				n = rapid.IntRange(1, len(rest)).Draw(t, "chunk")
			}
			chunks, rest = append(chunks, rest[:n]), rest[n:]
			if len(chunks) > 300 {
				chunks, rest = append(chunks, rest), nil
			}
		}
		cut := through(fresh(), chunks...)
		if !bytes.Equal(cut.out, stream) {
			t.Fatal("the bytes changed in chunks")
		}
		if cut.commits != whole.commits || cut.turns != whole.turns || cut.lost != whole.lost ||
			!slices.Equal(cut.answers, whole.answers) || !slices.Equal(cut.sessions, whole.sessions) {
			t.Fatalf("in one chunk %+v, in chunks %+v", whole, cut)
		}
	}
	t.Run("requests", rapid.MakeCheck(func(t *rapid.T) {
		stream := named("w/1")
		for range rapid.IntRange(0, 8).Draw(t, "messages") {
			stream = append(stream, rapid.SampledFrom(requests).Draw(t, "message")(t)...)
		}
		check(t, stream, func() framer { return &pgRequests{} })
	}))
	t.Run("replies", rapid.MakeCheck(func(t *rapid.T) {
		stream := loginReply("w/1")
		for range rapid.IntRange(0, 8).Draw(t, "messages") {
			stream = append(stream, rapid.SampledFrom(replies).Draw(t, "message")(t)...)
		}
		check(t, stream, func() framer { return &pgReplies{} })
	}))
}

func TestOnlyACommitEndsInCommit(t *testing.T) {
	for sql, want := range map[string]bool{
		"commit":                           true,
		" Commit Work ; ":                  true,
		"END TRANSACTION":                  true,
		"commit and chain":                 true,
		"-- done\ncommit":                  true,
		"/* a /* nested */ b */ commit":    true,
		"commit -- done":                   true,
		"select $x$ ; $x$; commit":         true,
		"insert into t values ($1);commit": true,
		`select E'\'; commit'`:             false,
		`select E'\''; commit`:             true,
		"select 'it''s; commit'":           false,
		"select $$; commit$$":              false,
		`select ";commit"`:                 false,
		"-- commit":                        false,
		"/* commit":                        false,
		"commit prepared 'a'":              false,
		"committed":                        false,
		"select commit":                    false,
		"rollback":                         false,
		"end of file":                      false,
		"commit work and no chain please":  false,
		"":                                 false,
		";;":                               false,
		"select '":                         false,
		"select $x$ ; commit":              false,
	} {
		if got := endsInCommit([]byte(sql)); got != want {
			t.Errorf("endsInCommit(%q) = %t", sql, got)
		}
	}
}

func FuzzFraming(f *testing.F) {
	f.Add(join(named("w/1"), query("commit")), loginReply("w/1"), uint16(7))
	f.Add(join(sslRequest(), named("w/1"), msg('P', "\x00commit\x00")), join([]byte("N"), errorReply("40001")), uint16(1))
	f.Fuzz(func(t *testing.T, requests, replies []byte, at uint16) {
		for _, c := range []struct {
			stream []byte
			framer framer
		}{{requests, &pgRequests{}}, {replies, &pgReplies{}}} {
			n := min(int(at), len(c.stream))
			if o := through(c.framer, c.stream[:n], c.stream[n:]); !bytes.Equal(o.out, c.stream) {
				t.Fatal("the bytes changed")
			}
		}
	})
}
