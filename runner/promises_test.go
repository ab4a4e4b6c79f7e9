package runner

import (
	"testing"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/targets"
)

func TestWhatIsRequiredIfPromisedAsksTheTarget(t *testing.T) {
	global := targets.Target{Promises: []eventstore.Promise{eventstore.GlobalOrder}}
	stream := targets.Target{Promises: []eventstore.Promise{eventstore.StreamOrder}}
	none := targets.Target{}
	for _, c := range []struct {
		target targets.Target
		rule   string
		want   bool
	}{
		{global, "position-order", true}, {stream, "position-order", true}, {none, "position-order", false},
		{none, "no-lost-ack", true}, {none, "fenced-owner", false}, {none, "a-rule-that-is-none", true},
	} {
		if got := promises(c.target, c.rule); got != c.want {
			t.Errorf("%v promises %s: %v", c.target.Promises, c.rule, got)
		}
	}
}
