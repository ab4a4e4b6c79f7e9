package controls_test

import (
	"slices"
	"testing"

	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/dynamodb"
	"github.com/eventproof/eventproof/targets/dynamodb/controls"
)

func TestEveryControlSwapsExactlyOnePartOfACorrectVariant(t *testing.T) {
	var r targets.Registry
	if err := r.Add(append(dynamodb.Targets(), controls.Targets()...)...); err != nil {
		t.Fatal(err)
	}
	for _, c := range controls.Targets() {
		base, ok := r.Find("dynamodb/" + c.Base)
		if !ok || !base.Correct() {
			t.Fatalf("%s: base %q is no correct variant", c.Name(), c.Base)
		}
		var changed []string
		was, is := base.Assembly.Map(), c.Assembly.Map()
		for part := range is {
			if was[part] != is[part] {
				changed = append(changed, part)
			}
		}
		if len(changed) != 1 || changed[0] != c.Control.Part {
			t.Errorf("%s: changed %v, says %s", c.Name(), changed, c.Control.Part)
		}
		if !slices.Equal(base.Promises, c.Promises) || len(c.Control.Must) == 0 || c.Control.Bug == "" {
			t.Errorf("%s is incomplete, or promises less than its base", c.Name())
		}
		for _, must := range c.Control.Must {
			if _, both := c.Control.May[must]; both {
				t.Errorf("%s: %s is in both lists", c.Name(), must)
			}
		}
	}
}
