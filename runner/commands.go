package runner

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/eventproof/eventproof/app"
	"github.com/eventproof/eventproof/domain/account"
	"github.com/eventproof/eventproof/domain/auction"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/roles"
	"github.com/eventproof/eventproof/scenarios"
)

// setupCommands open what the load or the script works on. Where the store promises no batches, an opening with an
// amount, which is two events, becomes two commands.
func (t *trial) setupCommands() ([]app.Command, error) {
	commands, err := t.openings()
	if err != nil || t.spec.Target.Promised(eventstore.AtomicBatch) {
		return commands, err
	}
	var out []app.Command
	for _, c := range commands {
		each, err := oneEventEach(c)
		if err != nil {
			return nil, err
		}
		out = append(out, each...)
	}
	return out, nil
}

// oneEventEach splits the opening of an account with an amount into the opening and a deposit.
func oneEventEach(c app.Command) ([]app.Command, error) {
	if _, ok := account.FromStream(c.Stream); !ok || c.Name != account.CommandOpen {
		return []app.Command{c}, nil
	}
	opening, err := account.ParseCommand(c.Name, c.Body)
	if err != nil || opening.Amount == 0 {
		return []app.Command{c}, err
	}
	deposit := account.Command{Name: account.CommandDeposit, Account: opening.Account, Amount: opening.Amount}
	opening.Amount = 0
	first, second := c, c
	first.Body = opening.Body()
	second.ID, second.Name, second.Body = c.ID+"-deposit", deposit.Name, deposit.Body()
	return []app.Command{first, second}, nil
}

// openings are the commands that make the streams.
func (t *trial) openings() ([]app.Command, error) {
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
		return app.Command{ID: c.ID, Stream: c.Stream, Name: c.Name, Body: body.Body(), Expected: c.Expected}, nil
	}
	if id, ok := auction.FromStream(c.Stream); ok {
		body := auction.Command{Name: c.Name, Auction: id, BidID: c.Bid, Bidder: c.Bidder, Amount: c.Amount}
		return app.Command{ID: c.ID, Stream: c.Stream, Name: c.Name, Body: body.Body()}, nil
	}
	return app.Command{}, fmt.Errorf("stream %q is neither account-… nor auction-…", c.Stream)
}
