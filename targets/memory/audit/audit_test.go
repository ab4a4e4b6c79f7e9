package audit_test

import (
	"context"
	"errors"
	"testing"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/targets/memory/audit"
)

// source is a journal and tables that need not agree.
type source struct {
	journal []string
	tables  map[string][]eventstore.Event
}

func (s source) Journal() [][]byte {
	var out [][]byte
	for _, r := range s.journal {
		out = append(out, []byte(r))
	}
	return out
}
func (s source) Stream(name string, _, _ uint64) []eventstore.Event { return s.tables[name] }
func (s source) Fence(context.Context) int                          { return 0 }

const appended = `{"tx":4,"events":[{"stream":"s","version":1,"position":7,"id":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1],"type":"Added","data":"e30=","meta":{"command":"c"}}]}`

func event(data string) eventstore.Event {
	return eventstore.Event{
		NewEvent: eventstore.NewEvent{ID: eventstore.EventID{15: 1}, Type: "Added", Data: []byte(data)},
		Stream:   "s", Version: 1, Position: eventstore.Position{Minor: 7},
	}
}

func TestTheLogIsTheJournalAndMustAgreeWithTheTables(t *testing.T) {
	for _, c := range []struct {
		name   string
		tables map[string][]eventstore.Event
		good   bool
	}{
		{"equal", map[string][]eventstore.Event{"s": {event("{}")}}, true},
		{"event missing in the tables", nil, false},
		{"other data in the tables", map[string][]eventstore.Event{"s": {event("[]")}}, false},
		{"one more in the tables", map[string][]eventstore.Event{"s": {event("{}"), event("{}")}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []history.LoggedEvent
			err := audit.New(source{[]string{appended}, c.tables}).Log(t.Context(), func(e history.LoggedEvent) error {
				got = append(got, e)
				return nil
			})
			if c.good && (err != nil || len(got) != 1 || got[0].Transaction != 4 || got[0].Position.Minor != 7 || string(got[0].Data) != "{}") {
				t.Fatalf("got %+v, %v", got, err)
			}
			if !c.good && !errors.Is(err, audit.ErrContradiction) {
				t.Fatalf("got %v, want a contradiction", err)
			}
		})
	}
}

func TestProjectionsAreReadFromTheirCommits(t *testing.T) {
	s := source{journal: []string{
		`{"tx":1,"projection":"v","generation":1,"checkpoint":{"seq":1,"epoch":1,"cursor":""}}`,
		`{"tx":2,"projection":"v","generation":1,"rows":[{"key":"s","version":1,"state":"MQ=="}],
		  "effects":[{"event":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1],"stream":"s","version":1,"row":"s","rowVersion":1,"rowOrder":1,"seq":2,"epoch":1},
		             {"event":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,2],"stream":"q","version":1,"filtered":true,"seq":2}],
		  "checkpoint":{"seq":2,"epoch":1,"cursor":"0:0:8"}}`,
	}}
	a := audit.New(s)
	var hows []history.How
	if err := a.Ledgers(t.Context(), func(r history.LedgerRow) error { hows = append(hows, r.How); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(hows) != 2 || hows[0] != history.Applied || hows[1] != history.Filtered {
		t.Fatalf("ledger %v", hows)
	}
	var seqs []uint64
	if err := a.Checkpoints(t.Context(), func(r history.CheckpointRow) error { seqs = append(seqs, r.Seq); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(seqs) != 2 || seqs[1] != 2 {
		t.Fatalf("checkpoints %v", seqs)
	}
	o, rows, err := a.Observe(t.Context(), "v")
	if err != nil || o.Seq != 2 || o.Rows != 1 || !o.Cursor.Covers(eventstore.Position{Minor: 8}) || string(rows[0].State) != "1" {
		t.Fatalf("observed %+v %+v, %v", o, rows, err)
	}
}

func TestARottenJournalIsAnError(t *testing.T) {
	if err := audit.New(source{journal: []string{"{"}}).Log(t.Context(), func(history.LoggedEvent) error { return nil }); err == nil {
		t.Fatal("read a journal that is no JSON")
	}
}
