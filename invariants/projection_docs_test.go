package invariants

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEveryRuleHasAPageThatNamesItsOpportunities(t *testing.T) {
	dir := filepath.Join("..", "docs", "invariants")
	index, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range Rules() {
		page, err := os.ReadFile(filepath.Join(dir, r.Slug+".md"))
		if err != nil {
			t.Errorf("%s: %v", r.Slug, err)
			continue
		}
		wanted := []string{"`" + r.ID + "`"}
		for _, o := range r.Opportunities {
			wanted = append(wanted, "`"+o.Name+"`")
		}
		for _, p := range r.Promises {
			wanted = append(wanted, "`"+string(p)+"`")
		}
		for _, w := range wanted {
			if !strings.Contains(string(page), w) {
				t.Errorf("the page of %s does not mention %s", r.Slug, w)
			}
		}
		if !strings.Contains(string(index), "("+r.Slug+".md)") {
			t.Errorf("the index does not link %s", r.Slug)
		}
	}
}
