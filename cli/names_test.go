package cli_test

import (
	"slices"
	"testing"

	"github.com/eventproof/eventproof/app"
	"github.com/eventproof/eventproof/scenarios"
)

// Scenarios are data and don't know the application; the names of its views stand in both.
func TestScenariosNameTheRolesAsTheRunnerDoes(t *testing.T) {
	for _, kind := range []string{"bank", "auction"} {
		s, err := scenarios.Parse("x.yaml", []byte("version: 1\nname: x\nworkload: {kind: "+kind+"}\n"+
			"load: {model: open, rate: 10, phases: [{name: calm, for: 1s}]}\nroles: {writers: 1, projectors: 1}\n"))
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"writer-1"}
		for _, v := range app.Views(kind) {
			want = append(want, "projector-"+v.Name()+"-1")
		}
		if got := s.Names(); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", kind, got, want)
		}
	}
}
