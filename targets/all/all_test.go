package all_test

import (
	"testing"

	"github.com/eventproof/eventproof/targets/all"
)

func TestEveryBuiltInTargetHasANameOfItsOwnAndEveryControlABase(t *testing.T) {
	r, err := all.Registry()
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range r.All() {
		if target.Correct() {
			continue
		}
		if base, ok := r.Find(target.Store + "/" + target.Base); !ok || !base.Correct() {
			t.Errorf("%s names the base %q, which is no correct target", target.Name(), target.Base)
		}
	}
}
