package controls_test

import (
	"testing"

	appcontrols "github.com/eventproof/eventproof/app/controls"
	"github.com/eventproof/eventproof/runner"
	"github.com/eventproof/eventproof/scenarios"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/memory"
	"github.com/eventproof/eventproof/targets/memory/controls"
)

func TestEveryScriptCatchesItsControlAndLeavesTheReferenceAlone(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED in short mode: plays scripts")
	}
	library, err := scenarios.Library()
	if err != nil {
		t.Fatal(err)
	}
	var registry targets.Registry
	if err := registry.Add(append(memory.Targets(), controls.Targets()...)...); err != nil {
		t.Fatal(err)
	}
	pairs, err := runner.Pairings(registry.All(), library)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pairs {
		t.Run(p.Target.Variant+"/"+p.Script.Name, func(t *testing.T) {
			t.Parallel()
			r := runner.New(runner.Program{Targets: &registry, Parts: appcontrols.Parts()}, runner.Options{Dir: t.TempDir()})
			defer r.Close()
			if proof := r.Prove(t.Context(), p, nil, 1, nil); !proof.OK() {
				t.Errorf("wrong: %v, problems: %v, fired: %v", proof.Wrong, proof.Problems, proof.Fired)
			}
		})
	}
}
