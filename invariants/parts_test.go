package invariants

import (
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/invariants/oracle"
	"github.com/eventproof/eventproof/verdict"
)

// reopened is a source that begins again each time it is opened.
type reopened struct{ listSource }

func (*reopened) Warnings() []string { return nil }
func (*reopened) Close() error       { return nil }

func opener(records []history.Record) Open {
	return func() (ClosingSource, error) {
		return &reopened{listSource{records, io.EOF}}, nil
	}
}

// judgedAlike judges records at once and in parts and returns into how many parts they fell.
func judgedAlike(t *testing.T, name string, records []history.Record, parts int) int {
	t.Helper()
	run, err := NewRun(records)
	if err != nil {
		t.Fatal(err)
	}
	j, err := CheckInParts(opener(records), parts, Options{})
	if err != nil {
		t.Fatal(err)
	}
	whole := map[string]bool{}
	for _, r := range Rules() {
		whole[r.Slug] = r.Whole
	}
	for i, want := range Check(run, Options{}) {
		got := j.Results[i]
		if j.Parts > 1 && whole[want.Invariant] {
			if got.Verdict != verdict.Inconclusive && got.Verdict != verdict.NotPromised {
				t.Errorf("%s: %s can't be judged in parts and is %s", name, got.Invariant, got.Verdict)
			}
			continue
		}
		if j.Parts > 1 && want.Invariant == slugComplete && len(run.Info.Projections) > 0 && want.Verdict == verdict.Holds {
			if got.Verdict != verdict.Inconclusive {
				t.Errorf("%s: ledgers and views were not held against each other, and %s is %s", name, got.Invariant, got.Verdict)
			}
			continue
		}
		if len(got.Violations) != len(want.Violations) {
			t.Errorf("%s: %s keeps %d witnesses in %d parts, %d at once", name, got.Invariant, len(got.Violations), j.Parts, len(want.Violations))
		}
		// Which of many witnesses and reasons are told may differ.
		if want.Count <= maxViolations {
			byText := func(a, b verdict.Violation) int { return strings.Compare(a.Summary, b.Summary) }
			slices.SortFunc(got.Violations, byText)
			slices.SortFunc(want.Violations, byText)
		} else {
			got.Violations, want.Violations = nil, nil
		}
		if got.Reason != "" && want.Reason != "" && got.Verdict == verdict.Inconclusive {
			got.Reason, want.Reason = "", ""
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %s in %d parts:\n%+v\nat once:\n%+v", name, got.Invariant, j.Parts, got, want)
		}
	}
	return j.Parts
}

func TestAHistoryIsJudgedInPartsAsAtOnce(t *testing.T) {
	divided := 0
	note := func(parts int) {
		if parts > 1 {
			divided++
		}
	}
	for seed := range max(20, *seeds) {
		for _, workload := range []string{oracle.Bank, oracle.Auction} {
			s := simulate(t, seed, workload, 40)
			records := s.h.all()
			note(judgedAlike(t, "correct", records, 2))
			rng := rand.New(rand.NewPCG(seed, 3))
			rng.Shuffle(len(records), func(i, j int) { records[i], records[j] = records[j], records[i] })
			note(judgedAlike(t, "shuffled", records, 5))
		}
	}
	for _, m := range mutations() {
		for seed := range max(4, *seeds/10) {
			s := simulate(t, seed, []string{oracle.Bank, oracle.Auction}[seed%2], 30)
			if m.apply(s) {
				note(judgedAlike(t, m.name, s.h.all(), 3))
			}
		}
	}
	if divided < 50 {
		t.Errorf("only %d histories fell into parts", divided)
	}
}

// What one command or one event id connects is judged together, or a rule would not see it.
func TestStreamsThatShareAnIdAreInOnePart(t *testing.T) {
	const other = "account-2"
	apart := func(h *hist) {
		h.open(acc, 100)
		h.open(other, 100)
	}
	for _, c := range []struct {
		name  string
		spoil func(h *hist)
		parts int
	}{
		{"nothing", func(*hist) {}, 2},
		{"a command", func(h *hist) {
			h.callAs("c-both", 1, 1, 20, "deposit", acc, bankBody(acc, 5)).done(30)
			h.callAs("c-both", 1, 2, 40, "deposit", other, bankBody(other, 5)).done(50)
		}, 1},
		{"an event of the log", func(h *hist) {
			w := h.deposit(1, 20, acc, 5).done(30)
			l := *w.events[0]
			l.Stream, l.Version = other, 2
			h.logs[other] = append(h.logs[other], &l)
		}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHist(t, oracle.Bank)
			apart(h)
			c.spoil(h)
			if got := judgedAlike(t, c.name, h.all(), 2); got != c.parts {
				t.Errorf("%d parts, want %d", got, c.parts)
			}
		})
	}
}

func TestHostileHistoriesAreJudgedInParts(t *testing.T) {
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 2))
		records := simulate(t, seed, []string{oracle.Bank, oracle.Auction}[seed%2], 12).h.all()
		for range 1 + rng.IntN(20) {
			i := 1 + rng.IntN(len(records)-1)
			switch rng.IntN(5) {
			case 0:
				records = append(records[:i], records[i+1:]...)
			case 1:
				records = append(records, records[i])
			default:
				scramble(rng, reflect.ValueOf(records[i]).Elem())
			}
		}
		j, err := CheckInParts(opener(records), 3, Options{})
		if err != nil {
			t.Fatal(err)
		}
		run, err := NewRun(records)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range Check(run, Options{}) {
			if got := j.Results[i]; strings.Contains(got.Reason, "checker failed") || want.Verdict == verdict.Violated && got.Verdict == verdict.Holds {
				t.Errorf("seed %d: %s is %s in parts (%s), %s at once", seed, got.Invariant, got.Verdict, got.Reason, want.Verdict)
			}
		}
	}
}

func TestAHistoryThatCannotBeReadIsNotJudgedInParts(t *testing.T) {
	boom := errors.New("boom")
	open := func() (ClosingSource, error) {
		return nil, boom
	}
	if _, err := CheckInParts(open, 2, Options{}); !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
	if _, err := CheckInParts(opener(nil), 2, Options{}); !errors.Is(err, ErrNoTrial) {
		t.Errorf("got %v", err)
	}
}

func TestPartsFollowFromRecordsAndMemory(t *testing.T) {
	for _, c := range []struct {
		records, memory uint64
		want            int
	}{{1000, 0, 1}, {0, 1 << 30, 1}, {2_000_000, 1_000_000_000, 1}, {25_000_000, 1_000_000_000, 17}, {2_000_001, 1_000_000_000, 2}, {1 << 40, 1, maxParts}} {
		if got := Parts(c.records, c.memory); got != c.want {
			t.Errorf("%d records in %d bytes: %d parts, want %d", c.records, c.memory, got, c.want)
		}
	}
}
