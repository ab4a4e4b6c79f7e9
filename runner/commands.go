package runner

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/eventproof/eventproof/app"
	"github.com/eventproof/eventproof/domain/account"
	"github.com/eventproof/eventproof/domain/auction"
	"github.com/eventproof/eventproof/roles"
	"github.com/eventproof/eventproof/scenarios"
)

// setupCommands open what the load or the script works on.
func (t *trial) setupCommands() ([]app.Command, error) {
	sc := t.spec.Scenario
	var out []app.Command
	if !sc.Scripted() {
		source, err := roles.Workload(sc.Workload.Kind, t.spec.Seed, sc.Workload.InitialBalance, *t.loadConfig(0, time.Second))
		if err != nil {
			return nil, err
		}
		for _, c := range source.Setup() {
			out = append(out, app.Command{ID: c.ID, Stream: c.Stream, Name: c.Name, Body: c.Body})
		}
		return out, nil
	}
	for _, name := range slices.Sorted(maps.Keys(sc.Script.Streams)) {
		c := scenarios.Command{ID: "setup-" + name, Name: "open", Stream: name, Amount: sc.Script.Streams[name]}
		if sc.Workload.Kind == "auction" {
			c.Name = "create"
		}
		cmd, err := command(c)
		if err != nil {
			return nil, err
		}
		out = append(out, cmd)
	}
	return out, nil
}

// command turns a command of a script into one of the application.
func command(c scenarios.Command) (app.Command, error) {
	if acc, ok := account.FromStream(c.Stream); ok {
		body := account.Command{Name: c.Name, Account: acc, Amount: c.Amount}
		if c.Name == "open" {
			body.Owner = "owner of " + acc
		}
		return app.Command{ID: c.ID, Stream: c.Stream, Name: c.Name, Body: body.Body()}, nil
	}
	if id, ok := auction.FromStream(c.Stream); ok {
		body := auction.Command{Name: c.Name, Auction: id, BidID: c.Bid, Bidder: c.Bidder, Amount: c.Amount}
		return app.Command{ID: c.ID, Stream: c.Stream, Name: c.Name, Body: body.Body()}, nil
	}
	return app.Command{}, fmt.Errorf("stream %q is neither account-… nor auction-…", c.Stream)
}
