package history

import "github.com/eventproof/eventproof/eventstore"

// TrialInfo describes a trial; it is stored as JSON in the first record of its history.
type TrialInfo struct {
	Format   string `json:"format"` // "eventproof.history/v1"
	Tool     string `json:"tool"`
	Trial    string `json:"trial"` // unique id
	Scenario string `json:"scenario"`
	Target   string `json:"target"`
	Store    string `json:"store"`
	Variant  string `json:"variant"`
	// Control is the id of the swapped part ("cv-pr-02"); empty for a correct assembly.
	Control      string               `json:"control,omitempty"`
	Assembly     map[string]string    `json:"assembly,omitempty"`
	Mode         string               `json:"mode"` // "scripted" or "random"
	Seed         uint64               `json:"seed"`
	Provider     string               `json:"provider"`
	Fidelity     string               `json:"fidelity"` // "real" or "emulated"
	StoreVersion string               `json:"storeVersion,omitempty"`
	Durability   map[string]string    `json:"durability,omitempty"`
	Path         string               `json:"path"`        // "direct" or "proxied"
	StartedWall  string               `json:"startedWall"` // RFC 3339, payload only
	Start        int64                `json:"start"`       // monotonic stamp of the trial's begin
	Workload     string               `json:"workload"`    // "bank" or "auction"
	Promises     []eventstore.Promise `json:"promises"`
	// Auction is "native" where auctions are rows changed by conditional statements; empty: they are event-sourced.
	Auction string `json:"auction,omitempty"`
	// MaxDecisions is the decision budget of one call (5).
	MaxDecisions int `json:"maxDecisions"`
	// Projections that ran, with what a checker must know of each.
	Projections []ProjectionInfo `json:"projections,omitempty"`
	// Required lists the invariants that the scenario requires, with minimum opportunities.
	Required []Requirement `json:"required,omitempty"`
	Faults   []string      `json:"faults,omitempty"` // ids of the planned faults, each of which must bite
}

// NativeAuction is the value of TrialInfo.Auction for the native form.
const NativeAuction = "native"

// ProjectionInfo describes one projection of a trial.
type ProjectionInfo struct {
	Name string `json:"name"` // the view's name: "balances", "high-bids"
	View string `json:"view"` // which fold applies: "balances", "high-bids", or a name from outside
	// Mode is "transactional" (view and checkpoint in one atomic unit) or "at-least-once".
	Mode string `json:"mode"`
	// Ledger is false for a projection that can't write ledger rows: rules that need them are not promised.
	Ledger bool `json:"ledger"`
	// Superseding: the strategy declares that it drops older versions.
	Superseding bool `json:"superseding,omitempty"`
	// Parking: the projection has a parking policy: events may be set aside, noted `parked`, and replayed.
	Parking bool `json:"parking,omitempty"`
	// Feed names the reader ("advisory-lock", "xid-horizon", "naive-poll").
	Feed string `json:"feed"`
	// MaxHoleMS is how long the reader may be held by a permanent hole.
	MaxHoleMS int64 `json:"maxHoleMs,omitempty"`
}

// Requirement is an invariant that a scenario requires and the opportunities it must have had.
type Requirement struct {
	Invariant string           `json:"invariant"`
	Min       map[string]int64 `json:"min,omitempty"`
}
