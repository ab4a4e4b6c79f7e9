// Package targets describes what can be put under test and how the runner and the roles reach it. A target is
// an assembly of parts; a control is a correct assembly with exactly one part swapped for a broken one.
// Stores, readers and projections from outside register here like the built-in ones.
package targets

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/points"
)

// Assembly names the part that fills each place of a target. Empty means the correct default.
type Assembly struct {
	Append     string `json:"append,omitempty"`     // how the store appends: "advisory-lock", "xid-horizon", …
	Reader     string `json:"reader,omitempty"`     // how the feed reads: "advisory-lock", "xid-horizon", "naive-poll"
	Projection string `json:"projection,omitempty"` // how effects and checkpoint are stored: "same-transaction", …
	Retry      string `json:"retry,omitempty"`      // what the command loop does after unknown: "repeat-write", …
	Continue   string `json:"continue,omitempty"`   // how a command is continued by another process: "whole-stream", …
	Conflict   string `json:"conflict,omitempty"`   // what the command loop does after a version conflict: "reload-and-decide", …
	Commit     string `json:"commit,omitempty"`     // how an append's transaction is ended: "answered-commit", …
	Snapshot   string `json:"snapshot,omitempty"`   // "best-effort", …
	// Auction names the conditional statement of an auction in its native form: "conditional-update", …; empty: auctions
	// are event-sourced like everything else.
	Auction string `json:"auction,omitempty"`
}

// NativeAuction reports whether auctions are in their native form: conditional statements instead of a stream.
func (a Assembly) NativeAuction() bool { return a.Auction != "" }

// Map returns the assembly as part → name for reports.
func (a Assembly) Map() map[string]string {
	m := map[string]string{}
	for _, p := range []struct{ part, name string }{
		{"append", a.Append}, {"reader", a.Reader}, {"projection", a.Projection},
		{"retry", a.Retry}, {"continue", a.Continue}, {"conflict", a.Conflict}, {"commit", a.Commit},
		{"snapshot", a.Snapshot}, {"auction", a.Auction},
	} {
		if p.name != "" {
			m[p.part] = p.name
		}
	}
	return m
}

// Control says what is wrong with a control and what has to notice.
type Control struct {
	ID   string // "cv-pr-02"
	Part string // the place in the assembly that was swapped
	Bug  string // one sentence: what the part does wrong
	// Must are the invariants (slugs) that have to fire in the control's scripts.
	Must []string
	// May are consequences that may fire, each with its reason. Everything else must not.
	May map[string]string
	// Scripts are the names of the scripted scenarios that force the bug.
	Scripts []string
}

// Target is something that can be put under test.
type Target struct {
	Store    string // "postgres", "memory", …
	Variant  string // "advisory-lock"; a control without a name of its own is "<base>~<control id>"
	Summary  string // one sentence for `targets ls`
	Base     string // for a control: the variant it was swapped from
	Control  *Control
	Assembly Assembly
	Promises []eventstore.Promise
	// Workloads that the target can run: "bank", "auction".
	Workloads []string
	// ProjectionMode is "transactional" or "at-least-once".
	ProjectionMode string
	// Superseding: the projection declares that it passes over events older than what a row shows (a guarded
	// upsert); its ledger rows then say `superseded`.
	Superseding bool
	// Parking: the projection has a parking policy: events may be set aside, noted `parked`, and replayed.
	Parking bool
	// NoLedger: the projection writes no ledger rows. Rules that need them are then not promised.
	NoLedger bool
	// MaxHole is how long the reader may be held by a position that never comes; 0 = not declared.
	MaxHole time.Duration
	// Needs names the kind of server the target needs from a provider ("postgres"); empty = nothing.
	Needs string
	// Owners is how many owner roles the target wants: processes through which all its appends go, each owning a
	// share of the log. 0 = writers reach the store themselves.
	Owners int
	// Serve runs an owner until ctx ends or it can't go on; set where Owners is. It calls ready once it accepts
	// requests at its address (Owned) and returns nil when ctx ended. Env.Dial reaches the store, through the owner's
	// own proxy; writers reach the owner through theirs.
	Serve func(ctx context.Context, config json.RawMessage, env Env, ready func()) error
	// Emulated marks a stand-in.
	Emulated bool
	// Outcomes is what the adapter makes of the answers to a write, in the order of the steps; nil: it does not tell.
	Outcomes []Ruling
	// Open prepares a fresh place for one trial (a schema, a topic prefix) and returns its handle.
	Open func(ctx context.Context, site Site) (Instance, error)
	// Attach connects a role from what Instance.Config returned, in any process; nil where the store lives
	// in the runner's process only.
	Attach func(ctx context.Context, config json.RawMessage, env Env) (Session, error)
}

// Name returns store/variant.
func (t Target) Name() string { return t.Store + "/" + t.Variant }

// Promised reports whether the target declares p.
func (t Target) Promised(p eventstore.Promise) bool { return slices.Contains(t.Promises, p) }

// Correct reports whether the target must keep every promise it declares.
func (t Target) Correct() bool { return t.Control == nil }

// Site is where and for whom a target is opened.
type Site struct {
	// AdminURL reaches the server with the right to create and drop; empty where Needs is empty.
	AdminURL string
	// Trial is a short unique id, lower-case letters and digits; everything created carries it.
	Trial string
	// DataDir is the server's data folder, where the provider can tell it; for audits that decode a store's own log.
	DataDir string
	// Views that will be projected in this trial.
	Views []eventstore.View
	// Assembly of the target that is opened.
	Assembly Assembly
}

// Env is what role code gets from its surroundings.
type Env struct {
	// Gate is asked at every point; never nil.
	Gate points.Gate
	// Dial opens every connection of the role. It maps the store's address to the role's proxy and lets a
	// crash reset the role's sockets.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Name is the role's name in the trial, used to name its sessions.
	Name string
	// Views by name, for Session.Projection.
	Views []eventstore.View
}

// Session is a role's connection to a store.
type Session interface {
	Store() eventstore.Store
	// Snapshots returns nil where the store keeps none.
	Snapshots() eventstore.Snapshots
	Feed() eventstore.Feed
	// Projection returns the store side of a view's projection.
	Projection(v eventstore.View) (eventstore.Projection, error)
	// Close releases the session's connections.
	Close() error
}

// BiddingSession is implemented by the sessions of targets with auctions in their native form (Assembly.Auction).
type BiddingSession interface {
	Session
	Bidding() eventstore.Bidding
}

// Instance is the runner's handle on what Open prepared.
type Instance interface {
	// Connect opens a session for a role in the runner's process.
	Connect(ctx context.Context, role string, env Env) (Session, error)
	// Config returns what Target.Attach needs to connect the role ("writer", "projector") from another process.
	Config(role string) (json.RawMessage, error)
	// Auditor reads the store by its own code and never through a proxy.
	Auditor() Auditor
	// About returns the store's version and durability settings for the report.
	About(ctx context.Context) (version string, durability map[string]string, err error)
	// Close drops what Open created.
	Close(ctx context.Context) error
}

// Owned is implemented by instances of targets with owners.
type Owned interface {
	// OwnerAddr returns the loopback address (host:port) at which the owner with this name ("owner-1", "owner-2", …)
	// listens, over all its incarnations. Config(name) returns what Target.Serve needs.
	OwnerAddr(name string) string
}

// Proof says how it is known that no request of the run can take effect any more.
type Proof struct {
	Fenced bool
	Text   string
}

// Auditor reads the final state of one trial, by code that shares nothing with the adapter.
type Auditor interface {
	// Fence makes sure that no request of the run can take effect any more (INVARIANTS 3).
	Fence(ctx context.Context) (Proof, error)
	Log(ctx context.Context, yield func(history.LoggedEvent) error) error
	Ledgers(ctx context.Context, yield func(history.LedgerRow) error) error
	Checkpoints(ctx context.Context, yield func(history.CheckpointRow) error) error
	Views(ctx context.Context, yield func(history.ViewRow) error) error
	// Observe reads checkpoint and view rows of one projection in one atomic read, during the run.
	Observe(ctx context.Context, projection string) (history.Observation, []history.ViewRow, error)
	// Head returns the position of the last event, for deciding whether a projection is drained.
	Head(ctx context.Context) (eventstore.Position, error)
}

// AuctionAuditor is implemented by auditors of targets with auctions in their native form. Log yields what such an
// auction holds as the events that its operations carried: AuctionCreated, BidAccepted and AuctionClosed, the last
// without a high bid. Their version is the count of changes of the auction's row, where the store lets the audit prove
// it, else 0.
type AuctionAuditor interface {
	// Auctions yields the row of every auction.
	Auctions(ctx context.Context, yield func(history.AuctionRow) error) error
}

// HeadAuditor is implemented by auditors of stores that may keep a record of where each stream ends.
type HeadAuditor interface {
	// StreamHeads yields those records.
	StreamHeads(ctx context.Context, yield func(history.HeadRow) error) error
}

// Sharded is implemented by auditors of stores with an order for each shard instead of one over all; Head is then not
// asked.
type Sharded interface {
	// Heads returns the position of the last event of every shard that has one, ascending by shard.
	Heads(ctx context.Context) ([]eventstore.Position, error)
}

// Registry is the set of targets a program knows. The zero Registry is empty and ready to use.
type Registry struct{ all []Target }

// Add registers targets; a name that is taken is an error.
func (r *Registry) Add(ts ...Target) error {
	for _, t := range ts {
		if t.Store == "" || t.Variant == "" || strings.ContainsAny(t.Name(), " *") {
			return fmt.Errorf("targets: bad target name %q", t.Name())
		}
		if t.Open == nil {
			return fmt.Errorf("targets: %s has no Open", t.Name())
		}
		if _, ok := r.Find(t.Name()); ok {
			return fmt.Errorf("targets: %s is registered twice", t.Name())
		}
		r.all = append(r.all, t)
	}
	return nil
}

// Find returns the target with the name store/variant.
func (r *Registry) Find(name string) (Target, bool) {
	for _, t := range r.all {
		if t.Name() == name {
			return t, true
		}
	}
	return Target{}, false
}

// All returns the targets, correct ones first, by name.
func (r *Registry) All() []Target {
	out := slices.Clone(r.all)
	sort.SliceStable(out, func(i, j int) bool {
		if out[i].Correct() != out[j].Correct() {
			return out[i].Correct()
		}
		return out[i].Name() < out[j].Name()
	})
	return out
}
