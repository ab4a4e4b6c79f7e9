package controls_test

import (
	"slices"
	"sync"
	"testing"

	appcontrols "github.com/eventproof/eventproof/app/controls"
	"github.com/eventproof/eventproof/faults/plan"
	"github.com/eventproof/eventproof/runner"
	"github.com/eventproof/eventproof/scenarios"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/postgres"
	"github.com/eventproof/eventproof/targets/postgres/controls"
	"github.com/eventproof/eventproof/targets/postgres/internal/pgtest"
)

func TestEveryScriptCatchesItsControlAndLeavesTheCorrectVariantsAlone(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED in short mode: plays scripts")
	}
	server := pgtest.Server(t)
	library, err := scenarios.Library()
	if err != nil {
		t.Fatal(err)
	}
	var registry targets.Registry
	if err := registry.Add(append(postgres.Targets(), controls.Targets()...)...); err != nil {
		t.Fatal(err)
	}
	pairs, err := runner.Pairings(registry.All(), library)
	if err != nil {
		t.Fatal(err)
	}
	play := func(p runner.Pairing) {
		r := runner.New(runner.Program{Targets: &registry, Parts: appcontrols.Parts()}, runner.Options{Dir: t.TempDir()})
		defer r.Close()
		proof := r.Prove(t.Context(), p, server, 1, nil)
		if !proof.OK() {
			t.Errorf("%s, %s: wrong: %v, problems: %v, fired: %v", p.Target.Variant, p.Script.Name, proof.Wrong, proof.Problems, proof.Fired)
		}
	}
	// Some at a time, because they wait more than they work; whoever kills the server is alone with it.
	free := make(chan struct{}, 4)
	var together sync.WaitGroup
	for _, p := range pairs {
		if killsServer(p.Script) {
			continue
		}
		free <- struct{}{}
		together.Go(func() {
			defer func() { <-free }()
			play(p)
		})
	}
	together.Wait()
	for _, p := range pairs {
		if killsServer(p.Script) {
			play(p)
		}
	}
}

func killsServer(s scenarios.Scenario) bool {
	return slices.ContainsFunc(s.Script.Steps, func(st scenarios.Step) bool { return st.Fault != nil && st.Fault.Kind == plan.KillStore })
}
