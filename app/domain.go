// Package app is the application under test: the command loop that decides and appends, and the projector that
// keeps read models. It knows stores only by the contract of package eventstore, and aggregates only by Domain.
//
// What could be done wrong here is a part with a name (Parts), so that a control swaps exactly one of them;
// the code that calls a part never asks which one it has.
package app

import (
	"errors"
	"fmt"
	"time"

	"github.com/eventproof/eventproof/domain/account"
	"github.com/eventproof/eventproof/domain/auction"
	"github.com/eventproof/eventproof/eventstore"
)

// Command is a caller's intent about one stream. ID stays the same over retries and over processes.
type Command struct {
	ID     string
	Stream string
	Name   string // "withdraw", "bid", …
	Body   []byte // canonical JSON
	// Expected is the version that the caller demands of the stream, for a command that is decided without a state; nil:
	// any.
	Expected *uint64
}

// State is the fold of a stream. States are values: folding more events gives another State.
type State interface {
	// Version of the last event folded, 0 for none.
	Version() uint64
	// Encode returns the canonical encoding, the one that is hashed.
	Encode() []byte
	// Snapshot returns what Domain.Restore reads; it may be longer than Encode.
	Snapshot() []byte
}

// Fact is an event that a decision leads to.
type Fact struct {
	Type string
	Data []byte // canonical JSON
}

// Refusal is the business answer no.
type Refusal struct {
	Code       string
	Have, Want int64
	Retriable  bool
	Text       string // wire form
}

// Acceptance is what an answer says of an accepted bid.
type Acceptance struct {
	Amount  int64
	Millis  int64  // acceptedAt, unix milliseconds
	Version uint64 // of the event, for a replay
}

// Decision is the outcome of deciding a command on a state: exactly one of Events, Refusal and Replay is set.
type Decision struct {
	Events  []Fact
	Refusal *Refusal
	// Replay: the state shows that this command, or the same bid, was accepted before.
	Replay *Acceptance
	// Accepted goes with Events where the answer tells more than the version.
	Accepted *Acceptance
}

// Domain is a kind of aggregate: pure, without I/O, clock or randomness.
type Domain interface {
	// Workload is the name that scenarios use: "bank", "auction".
	Workload() string
	// Zero returns the state before the first event.
	Zero() State
	// Fold applies events in the order given. It does not check that versions are continuous. An error means
	// that the log is impossible; the state before the event that caused it is returned with it.
	Fold(s State, events []eventstore.Event) (State, error)
	// Restore reads what State.Snapshot wrote.
	Restore(snapshot []byte) (State, error)
	// Blind reports whether the command is decided without a state and appended at any version.
	Blind(c Command) bool
	// Decide decides on a state; for a blind command the state is nil. An error means that the command is
	// malformed.
	Decide(s State, c Command, now time.Time) (Decision, error)
	// SchemaVersion of the events' data.
	SchemaVersion() uint32
	// View is the domain's read model.
	View() eventstore.View
}

// DomainFor returns the domain of a workload.
func DomainFor(workload string) (Domain, error) {
	for _, d := range []Domain{Bank(), Auction()} {
		if d.Workload() == workload {
			return d, nil
		}
	}
	return nil, fmt.Errorf("app: unknown workload %q", workload)
}

// Views returns the read models of a workload; none for one that is unknown.
func Views(workload string) []eventstore.View {
	d, err := DomainFor(workload)
	if err != nil {
		return nil
	}
	return []eventstore.View{d.View()}
}

// Bank returns the domain of bank accounts.
func Bank() Domain { return bank{} }

// Auction returns the domain of auctions.
func Auction() Domain { return auctions{} }

type bank struct{}

type accountState struct{ account.State }

// Version implements State.
func (s accountState) Version() uint64 { return s.State.Version }

// Snapshot implements State.
func (s accountState) Snapshot() []byte { return s.Encode() }

func (bank) Workload() string      { return "bank" }
func (bank) Zero() State           { return accountState{} }
func (bank) SchemaVersion() uint32 { return account.SchemaVersion }
func (bank) View() eventstore.View { return Balances() }

func (bank) Blind(c Command) bool { return c.Name == account.CommandBlindDeposit }

func (bank) Fold(s State, events []eventstore.Event) (State, error) {
	parsed, err := parse(events, account.ParseEvent)
	state, foldErr := account.Rehydrate(s.(accountState).State, parsed)
	return accountState{state}, errors.Join(foldErr, err)
}

func (bank) Restore(snapshot []byte) (State, error) {
	s, err := account.DecodeState(snapshot)
	return accountState{s}, err
}

func (bank) Decide(s State, c Command, now time.Time) (Decision, error) {
	cmd, err := account.ParseCommand(c.Name, c.Body)
	if err != nil {
		return Decision{}, err
	}
	if account.Stream(cmd.Account) != c.Stream {
		return Decision{}, fmt.Errorf("app: command %s for stream %s names account %q", c.ID, c.Stream, cmd.Account)
	}
	var events []account.Event
	if s == nil {
		var e account.Event
		e, err = account.DecideBlind(cmd, now)
		events = []account.Event{e}
	} else {
		events, err = account.Decide(s.(accountState).State, cmd, now)
	}
	if err != nil {
		var r *account.Refusal
		if errors.As(err, &r) {
			return Decision{Refusal: &Refusal{Code: r.Code, Have: r.Have, Want: r.Want, Retriable: r.Retriable, Text: r.Error()}}, nil
		}
		return Decision{}, err
	}
	d := Decision{}
	for _, e := range events {
		d.Events = append(d.Events, Fact{Type: e.Type, Data: e.Data()})
	}
	return d, nil
}

type auctions struct{}

type auctionState struct{ auction.State }

// Version implements State.
func (s auctionState) Version() uint64 { return s.State.Version }

func (auctions) Workload() string      { return "auction" }
func (auctions) Zero() State           { return auctionState{} }
func (auctions) SchemaVersion() uint32 { return auction.SchemaVersion }
func (auctions) View() eventstore.View { return HighBids() }
func (auctions) Blind(Command) bool    { return false }

func (auctions) Fold(s State, events []eventstore.Event) (State, error) {
	parsed, err := parse(events, auction.ParseEvent)
	state, foldErr := auction.Rehydrate(s.(auctionState).State, parsed)
	return auctionState{state}, errors.Join(foldErr, err)
}

func (auctions) Restore(snapshot []byte) (State, error) {
	s, err := auction.DecodeSnapshot(snapshot)
	return auctionState{s}, err
}

func (auctions) Decide(s State, c Command, now time.Time) (Decision, error) {
	cmd, err := auction.ParseCommand(c.Name, c.Body)
	if err != nil {
		return Decision{}, err
	}
	if auction.Stream(cmd.Auction) != c.Stream {
		return Decision{}, fmt.Errorf("app: command %s for stream %s names auction %q", c.ID, c.Stream, cmd.Auction)
	}
	d, err := auction.Decide(s.(auctionState).State, cmd, now)
	if err != nil {
		var r *auction.Refusal
		if errors.As(err, &r) {
			return Decision{Refusal: &Refusal{Code: r.Code, Have: r.Have, Want: r.Want, Retriable: r.Retriable, Text: r.Error()}}, nil
		}
		return Decision{}, err
	}
	if b := d.Replay; b != nil {
		return Decision{Replay: &Acceptance{Amount: b.Amount, Millis: b.AcceptedMillis(), Version: b.Version}}, nil
	}
	out := Decision{}
	for _, e := range d.Events {
		out.Events = append(out.Events, Fact{Type: e.Type, Data: e.Data()})
		if e.Type == auction.BidAccepted {
			at := auction.Bid{AcceptedAt: e.At}.AcceptedMillis()
			out.Accepted = &Acceptance{Amount: e.Amount, Millis: at, Version: e.Version}
		}
	}
	return out, nil
}

// parse reads events up to the first that can't be read, which it reports.
func parse[E any](events []eventstore.Event, one func(typ string, version uint64, data []byte) (E, error)) ([]E, error) {
	out := make([]E, 0, len(events))
	for _, e := range events {
		p, err := one(e.Type, e.Version, e.Data)
		if err != nil {
			return out, err
		}
		out = append(out, p)
	}
	return out, nil
}
