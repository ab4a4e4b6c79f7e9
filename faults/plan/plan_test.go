package plan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/eventproof/eventproof/faults/plan"
)

func TestValidateNamesTheFieldThatIsWrong(t *testing.T) {
	for _, c := range []struct {
		fault plan.Fault
		wrong string // "" = valid
	}{
		{plan.Fault{ID: "f", Kind: plan.DropReply, On: "writer", Every: 3, Max: 10}, ""},
		{plan.Fault{Kind: plan.DropReply, On: "writer"}, "without id"},
		{plan.Fault{ID: "f", Kind: "drop", On: "writer"}, `kind "drop"`},
		{plan.Fault{ID: "f", Kind: plan.DropReply}, "on:"},
		{plan.Fault{ID: "f", Kind: plan.DropReply, On: "writer", At: -1}, "at and for"},
		{plan.Fault{ID: "f", Kind: plan.DropReply, On: "writer", Max: -1}, "every and max"},
		{plan.Fault{ID: "f", Kind: plan.DropReply, On: "store"}, "name a role"},
		{plan.Fault{ID: "f", Kind: plan.KillStore, On: "store", For: time.Second}, ""},
		{plan.Fault{ID: "f", Kind: plan.KillStore, On: "writer"}, "`on: store`"},
		{plan.Fault{ID: "f", Kind: plan.Throttle, On: "store", Every: 2, Max: 5}, ""},
		{plan.Fault{ID: "f", Kind: plan.Throttle, On: "writer"}, "`on: store`"},
		{plan.Fault{ID: "f", Kind: plan.Conflict, On: "store"}, ""},
		{plan.Fault{ID: "f", Kind: plan.Conflict, On: "store", Every: -1}, "every and max"},
		{plan.Fault{ID: "f", Kind: plan.Latency, On: "writer", Delay: 20, Jitter: 20, Direction: "down"}, ""},
		{plan.Fault{ID: "f", Kind: plan.Latency, On: "writer"}, "delay:"},
		{plan.Fault{ID: "f", Kind: plan.Latency, On: "writer", Delay: 20, Jitter: 21}, "jitter:"},
		{plan.Fault{ID: "f", Kind: plan.Latency, On: "writer", Delay: 20, Direction: "left"}, "direction:"},
		{plan.Fault{ID: "f", Kind: plan.BlackHole, On: "writer", Direction: "both"}, ""},
		{plan.Fault{ID: "f", Kind: plan.BlackHole, On: "writer"}, "direction:"},
	} {
		err := c.fault.Validate()
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%+v: %v, want %q", c.fault, err, c.wrong)
		}
	}
}
