package audit_test

import (
	"fmt"
	"testing"

	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/postgres"
	"github.com/eventproof/eventproof/targets/postgres/internal/pgtest"
)

func TestTheAuditReadsHeadsWhereTheyAreKept(t *testing.T) {
	target, parts, _ := postgres.Variant("advisory-lock")
	for _, c := range []struct {
		name   string
		append postgres.Appender
		want   []history.HeadRow
	}{
		{"none are kept", parts.Append, nil},
		{"two are kept", keepsHeads{postgres.AdvisoryLock{}}, []history.HeadRow{{Stream: "a", Version: 3}, {Stream: "b"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			with := parts
			with.Append = c.append
			i := pgtest.Open(t, postgres.New(target, with))
			auditor, ok := i.Auditor().(targets.HeadAuditor)
			if !ok {
				t.Fatal("the audit reads no heads")
			}
			got := collect(t, func(yield func(history.HeadRow) error) error { return auditor.StreamHeads(t.Context(), yield) })
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// keepsHeads is an appender with a table of heads.
type keepsHeads struct{ postgres.AdvisoryLock }

// Tables makes it, with two rows.
func (keepsHeads) Tables(string) string {
	return "create table heads (stream text primary key, version bigint not null); insert into heads values ('b', 0), ('a', 3);"
}
