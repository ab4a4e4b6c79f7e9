package runner

import (
	"testing"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/faults/plan"
	"github.com/eventproof/eventproof/scenarios"
	"github.com/eventproof/eventproof/targets"
)

func TestWhatIsRequiredIfPromisedAsksTheTarget(t *testing.T) {
	global := targets.Target{Promises: []eventstore.Promise{eventstore.GlobalOrder}}
	stream := targets.Target{Promises: []eventstore.Promise{eventstore.StreamOrder}}
	none := targets.Target{}
	native := targets.Target{Assembly: targets.Assembly{Auction: "conditional-update"}}
	for _, c := range []struct {
		target targets.Target
		rule   string
		want   bool
	}{
		{global, "position-order", true}, {stream, "position-order", true}, {none, "position-order", false},
		{none, "no-lost-ack", true}, {none, "fenced-owner", false}, {none, "a-rule-that-is-none", true},
		{native, "monotonic-bids", true}, {native, "no-lost-ack", true}, {native, "gapless-versions", false}, {native, "projection-equals-fold", false},
	} {
		if got := promises(c.target, c.rule); got != c.want {
			t.Errorf("%v promises %s: %v", c.target.Promises, c.rule, got)
		}
	}
}

func TestWithoutAFeedNothingIsProjectedAndNothingBefallsProjectors(t *testing.T) {
	sc := scenarios.Scenario{Roles: scenarios.Roles{Writers: 2, Projectors: 1}, Faults: []plan.Fault{
		{ID: "a", On: "writer-1"}, {ID: "b", On: "projector"}, {ID: "c", On: "projector-high-bids-1"}, {ID: "d", On: "store"},
	}}
	got := withoutFeed(sc)
	if got.Roles.Projectors != 0 || got.Roles.Writers != 2 || len(got.Faults) != 2 || got.Faults[0].ID != "a" || got.Faults[1].ID != "d" {
		t.Errorf("%+v", got)
	}
	if len(sc.Faults) != 4 || sc.Faults[1].ID != "b" || sc.Roles.Projectors != 1 {
		t.Errorf("the scenario itself was changed: %+v", sc)
	}
}

func TestAScriptIsProvedOnTargetsOfItsWorkloadOnly(t *testing.T) {
	script := scenarios.Scenario{Name: "det-x", Workload: scenarios.Workload{Kind: "bank"}}
	both, auctions := []string{"bank", "auction"}, []string{"auction"}
	pairs, err := Pairings([]targets.Target{
		{Store: "s", Variant: "right", Workloads: both}, {Store: "s", Variant: "rows", Workloads: auctions},
		{Store: "s", Variant: "wrong", Workloads: both, Control: &targets.Control{ID: "x", Scripts: []string{"det-x"}}},
	}, []scenarios.Scenario{script})
	if err != nil || len(pairs) != 2 || pairs[0].Target.Variant != "wrong" || pairs[1].Target.Variant != "right" {
		t.Errorf("%+v, %v", pairs, err)
	}
}
