package controls_test

import (
	"context"
	"errors"
	"net/url"
	"sync"
	"testing"

	"github.com/eventproof/eventproof/app/controls"
	emulator "github.com/eventproof/eventproof/emulators/dynamodb"
	"github.com/eventproof/eventproof/runner"
	"github.com/eventproof/eventproof/scenarios"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/dynamodb"
	dycontrols "github.com/eventproof/eventproof/targets/dynamodb/controls"
	"github.com/eventproof/eventproof/targets/dynamodb/internal/dytest"
)

// server is an emulator as the runner wants it; its process is the test's.
type server struct{ s *dytest.Server }

var errInProcess = errors.New("the emulator runs in the process of the test")

func (s server) AdminURL() string { return s.s.URL }
func (s server) Addr() string {
	u, err := url.Parse(s.s.URL)
	if err != nil {
		return ""
	}
	return u.Host
}
func (s server) Kind() string                  { return "embedded" }
func (s server) Fidelity() string              { return "emulated" }
func (s server) DataDir() string               { return s.s.Dir }
func (s server) Kill(context.Context) error    { return errInProcess }
func (s server) Pause() error                  { return errInProcess }
func (s server) Resume() error                 { return errInProcess }
func (s server) Restart(context.Context) error { return errInProcess }

func TestEveryScriptCatchesItsControlAndLeavesTheCorrectVariantsAlone(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED in short mode: plays scripts")
	}
	library, err := scenarios.Library()
	if err != nil {
		t.Fatal(err)
	}
	var registry targets.Registry
	if err := registry.Add(append(dynamodb.Targets(), dycontrols.Targets()...)...); err != nil {
		t.Fatal(err)
	}
	pairs, err := runner.Pairings(registry.All(), library)
	if err != nil {
		t.Fatal(err)
	}
	// Side by side, because some of them wait for time to pass.
	var all sync.WaitGroup
	for _, p := range pairs {
		s := dytest.Serve(t, emulator.Options{Dir: t.TempDir()})
		r := runner.New(runner.Program{Targets: &registry, Parts: controls.Parts()}, runner.Options{Dir: t.TempDir()})
		all.Go(func() {
			defer r.Close()
			proof := r.Prove(t.Context(), p, server{s}, 1, nil)
			if !proof.OK() {
				t.Errorf("%s, %s: wrong: %v, problems: %v, fired: %v", p.Target.Variant, p.Script.Name, proof.Wrong, proof.Problems, proof.Fired)
			}
		})
	}
	all.Wait()
}
