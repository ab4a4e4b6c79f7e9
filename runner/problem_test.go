package runner

import (
	"errors"
	"fmt"
	"testing"

	"github.com/eventproof/eventproof/provision"
	"github.com/eventproof/eventproof/reports"
	"github.com/eventproof/eventproof/runner/script"
)

func TestAScriptThatAsksTooMuchOfAServerIsNoFaultOfTheHarness(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want reports.ProblemKind
	}{
		{"a kill of a server that is not ours", fmt.Errorf("fault kill: %w", provision.ErrUnsupported), reports.ProblemEnvironment},
		{"a session that never came", errors.New("the session did not come to a held point"), reports.ProblemInternal},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := problem(reports.Trial{}, &NotPlayedError{Scenario: "s", Err: &script.Error{Err: c.err}})
			if got.ProblemKind != c.want || got.Problem == "" {
				t.Errorf("got %q: %s", got.ProblemKind, got.Problem)
			}
		})
	}
}
