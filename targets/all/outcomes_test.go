package all_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/all"
)

var update = flag.Bool("update", false, "write docs/outcomes.md")

const page = "../../docs/outcomes.md"

const preface = `# What an answer means

A try of a write ends ` + "`ok`" + `, ` + "`fail`" + ` (definitely without effect) or ` + "`unknown`" + `. These tables say which, for every
answer a store can give and for every way in which an answer can be missing; ` + "`eventproof targets show TARGET`" + ` prints them
too. The rows are what the adapters' classifiers say, and a test holds this page against them. What fits no row is unknown.
`

// TestThePageOfOutcomesIsWhatTheAdaptersSay also fails where a store says nothing, or never says unknown.
func TestThePageOfOutcomesIsWhatTheAdaptersSay(t *testing.T) {
	registry, err := all.Registry()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString(preface)
	seen := map[string]bool{}
	for _, target := range registry.All() {
		if seen[target.Store] || target.Needs == "" {
			continue
		}
		seen[target.Store] = true
		fmt.Fprintf(&b, "\n## %s\n\n| step | answer | outcome |\n|---|---|---|\n", target.Store)
		counts := map[eventstore.Outcome]int{}
		rows := map[string]bool{}
		for _, r := range target.Outcomes {
			counts[r.Outcome]++
			if rows[r.Step+r.Answer] {
				t.Errorf("%s: %s, %s is there twice", target.Store, r.Step, r.Answer)
			}
			rows[r.Step+r.Answer] = true
			fmt.Fprintf(&b, "| %s | %s | %s |\n", r.Step, r.Answer, text(r))
		}
		if counts[eventstore.Fail] == 0 || counts[eventstore.Unknown] == 0 {
			t.Errorf("%s says %v: a store without failures or without unknown outcomes is not believed", target.Store, counts)
		}
	}
	if len(seen) != 3 {
		t.Errorf("stores: %v", seen)
	}
	if *update {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil { //nolint:gosec // a page of the documentation
			t.Fatal(err)
		}
		return
	}
	is, err := os.ReadFile(page)
	if err != nil || string(is) != b.String() {
		t.Errorf("docs/outcomes.md is not what the adapters say (%v): go test ./targets/all -update", err)
	}
}

func text(r targets.Ruling) string {
	if r.Outcome == eventstore.OK {
		return "ok"
	}
	return fmt.Sprintf("%s (%s)", r.Outcome, r.Reason)
}
