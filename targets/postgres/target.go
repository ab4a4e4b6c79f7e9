package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/postgres/audit"
)

// New completes a target: t says what it is, parts how it works.
func New(t targets.Target, parts Parts) targets.Target {
	t.Store, t.Needs, t.Outcomes = "postgres", "postgres", rulings()
	t.Open = func(ctx context.Context, site targets.Site) (targets.Instance, error) { return open(ctx, site, parts) }
	t.Attach = func(ctx context.Context, raw json.RawMessage, env targets.Env) (targets.Session, error) {
		c, err := parseConfig(raw)
		if err != nil {
			return nil, err
		}
		return attach(ctx, c, parts, env)
	}
	return t
}

// Variant returns a correct variant with its parts, for building a control from it: "advisory-lock" or
// "xid-horizon", or "bid-conditional", which knows auctions only.
func Variant(name string) (targets.Target, Parts, bool) {
	t := targets.Target{
		Variant: name,
		Promises: []eventstore.Promise{
			eventstore.OptimisticConcurrency, eventstore.AtomicBatch, eventstore.IdempotentAppend,
			eventstore.StrongRead, eventstore.GlobalOrder, eventstore.RealTimeOrder, eventstore.CompleteFeed,
			eventstore.FreshRefusals, eventstore.AtomicProjection, eventstore.Durable,
		},
		Workloads:      []string{"bank", "auction"},
		ProjectionMode: "transactional",
		Assembly: targets.Assembly{
			Append: name, Commit: "answered-commit", Reader: name, Projection: "same-transaction",
			Retry: "repeat-write", Continue: "whole-stream", Conflict: "reload-and-decide", Snapshot: "best-effort",
		},
	}
	switch name {
	case "advisory-lock":
		t.Summary = "one lock for all appenders, taken before positions are drawn; the feed polls position > last"
		return t, Parts{Append: AdvisoryLock{}, Commit: AnsweredCommit{}, Reader: PositionReader{}, Projection: SameTransaction{}}, true
	case "bid-conditional":
		t.Summary = "auctions without a stream: a bid is one conditional update with its row in the ledger, which is looked up only after that"
		t.Promises = []eventstore.Promise{eventstore.IdempotentAppend, eventstore.FreshRefusals, eventstore.Durable}
		t.Workloads, t.ProjectionMode, t.NoLedger = []string{"auction"}, "", true
		t.Assembly = targets.Assembly{Auction: "conditional-update", Commit: "answered-commit"}
		return t, Parts{Append: AdvisoryLock{}, Commit: AnsweredCommit{}, Reader: PositionReader{}, Projection: SameTransaction{}, Bidding: ConditionalUpdate{}}, true
	case "xid-horizon":
		t.Summary = "appenders don't wait; the feed orders by transaction id and stops below the oldest running transaction"
		return t, Parts{Append: XIDHorizon{}, Commit: AnsweredCommit{}, Reader: HorizonReader{}, Projection: SameTransaction{}}, true
	}
	return targets.Target{}, Parts{}, false
}

// Targets returns the correct variants.
func Targets() []targets.Target {
	var all []targets.Target
	for _, name := range []string{"advisory-lock", "xid-horizon", "bid-conditional"} {
		t, parts, _ := Variant(name)
		all = append(all, New(t, parts))
	}
	return all
}

// instance is what open made on the server.
type instance struct {
	place    place
	adminURL string
	parts    Parts
	configs  map[string]config // by role user
	auditor  *audit.Auditor
}

func open(ctx context.Context, site targets.Site, parts Parts) (targets.Instance, error) {
	p, err := placeOf(site.Trial)
	if err != nil {
		return nil, err
	}
	views := make([]string, 0, len(site.Views))
	for _, v := range site.Views {
		views = append(views, v.Name())
	}
	i := &instance{place: p, adminURL: site.AdminURL, parts: parts, configs: map[string]config{}}
	var passwords map[string]string
	err = asAdmin(ctx, site.AdminURL, func(c *pgx.Conn) error {
		passwords, err = p.create(ctx, c, parts, views)
		return err
	})
	if err != nil {
		return nil, err
	}
	for role, password := range passwords {
		u, err := asUser(site.AdminURL, role, password)
		if err != nil {
			return nil, err
		}
		i.configs[role] = config{URL: u, Schema: p.schema, MaxConns: maxConns}
	}
	i.auditor = audit.New(audit.Place{
		AdminURL: site.AdminURL, Schema: p.schema, Roles: p.roles(), ByTransaction: parts.Reader.Order() == ByTransaction,
		NativeAuction: parts.Bidding != nil,
	})
	return i, nil
}

var errRole = errors.New("postgres: a role is \"writer\" or \"projector\"")

func (i *instance) config(role string) (config, error) {
	switch role {
	case "writer":
		return i.configs[i.place.writer], nil
	case "projector":
		return i.configs[i.place.projector], nil
	}
	return config{}, fmt.Errorf("%w, not %q", errRole, role)
}

// Connect implements targets.Instance.
func (i *instance) Connect(ctx context.Context, role string, env targets.Env) (targets.Session, error) {
	c, err := i.config(role)
	if err != nil {
		return nil, err
	}
	return attach(ctx, c, i.parts, env)
}

// Config implements targets.Instance.
func (i *instance) Config(role string) (json.RawMessage, error) {
	c, err := i.config(role)
	if err != nil {
		return nil, err
	}
	return json.Marshal(c)
}

// Auditor implements targets.Instance.
func (i *instance) Auditor() targets.Auditor { return i.auditor }

// About implements targets.Instance.
func (i *instance) About(ctx context.Context) (version string, durability map[string]string, err error) {
	durability = map[string]string{}
	err = asAdmin(ctx, i.adminURL, func(c *pgx.Conn) error {
		if err := c.QueryRow(ctx, `show server_version`).Scan(&version); err != nil {
			return err
		}
		rows, err := c.Query(ctx, `select name, setting from pg_settings where name = any ($1)`, []string{
			"fsync", "synchronous_commit", "full_page_writes", "wal_sync_method", "wal_level", "synchronous_standby_names",
			"commit_delay", "data_checksums",
		})
		if err != nil {
			return err
		}
		var name, setting string
		_, err = pgx.ForEachRow(rows, []any{&name, &setting}, func() error {
			durability[name] = setting
			return nil
		})
		return err
	})
	return version, durability, err
}

// Close implements targets.Instance.
func (i *instance) Close(ctx context.Context) error {
	return asAdmin(ctx, i.adminURL, func(c *pgx.Conn) error { return i.place.drop(ctx, c) })
}
