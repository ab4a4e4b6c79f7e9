package dynamodb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/dynamodb/audit"
)

// New completes a target: t says what it is, parts how it works.
func New(t targets.Target, parts Parts) targets.Target {
	t.Store, t.Needs, t.Outcomes = "dynamodb", "dynamodb", rulings()
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

// Variant returns a correct variant with its parts, for building a control from it: "conditional-put" or
// "transact-head", or "bid-transact", which knows auctions only.
func Variant(name string) (targets.Target, Parts, bool) {
	t := targets.Target{
		Variant: name,
		// Positions of the streams keep no order inside a stream of events, so StreamOrder is not promised.
		Promises: []eventstore.Promise{
			eventstore.OptimisticConcurrency, eventstore.StrongRead, eventstore.CompleteFeed, eventstore.FreshRefusals,
			eventstore.AtomicProjection, eventstore.Durable,
		},
		Workloads:      []string{"bank", "auction"},
		ProjectionMode: "transactional",
		Assembly: targets.Assembly{
			Append: name, Reader: "all-pages", Projection: "same-transaction",
			Retry: "repeat-write", Continue: "whole-stream", Snapshot: "best-effort",
		},
	}
	switch name {
	case "conditional-put":
		t.Summary = "the event's own key is the lock: one event an append, no request dedupe; the feed reads the streams"
		return t, Parts{Append: ConditionalPut{}, Reader: AllPages{}}, true
	case "transact-head":
		t.Summary = "one transaction moves a head record and puts events and request; the feed reads the streams"
		t.Promises = append(t.Promises, eventstore.AtomicBatch, eventstore.IdempotentAppend)
		return t, Parts{Append: TransactHead{}, Reader: AllPages{}}, true
	case "bid-transact":
		t.Summary = "auctions without a stream: a bid is one transaction on the auction's item and the bid's own, answered from its cancellation reasons"
		t.Promises = []eventstore.Promise{eventstore.IdempotentAppend, eventstore.FreshRefusals, eventstore.Durable}
		t.Workloads, t.ProjectionMode, t.NoLedger = []string{"auction"}, "", true
		t.Assembly = targets.Assembly{Auction: "one-transaction"}
		return t, Parts{Reader: AllPages{}, Bidding: TransactBid{}}, true
	}
	return targets.Target{}, Parts{}, false
}

// Targets returns the correct variants.
func Targets() []targets.Target {
	var all []targets.Target
	for _, name := range []string{"conditional-put", "transact-head", "bid-transact"} {
		t, parts, _ := Variant(name)
		all = append(all, New(t, parts))
	}
	return all
}

// instance is what open made on the server.
type instance struct {
	cfg     config
	parts   Parts
	admin   *sdk.Client
	idle    func()
	auditor *audit.Auditor
}

const (
	adminTimeout = 10 * time.Second
	// pollTable is the pause between two looks at a table that is not active yet.
	pollTable = 50 * time.Millisecond
)

func open(ctx context.Context, site targets.Site, parts Parts) (targets.Instance, error) {
	if _, err := parseURL(site.AdminURL); err != nil {
		return nil, err
	}
	table, err := tableOf(site.Trial)
	if err != nil {
		return nil, err
	}
	// Without a proxy: one from the environment would be asked for the store's own address.
	client := &http.Client{Transport: &http.Transport{Proxy: nil}, Timeout: adminTimeout}
	i := &instance{
		cfg: config{URL: site.AdminURL, Table: table, MaxConns: maxConns}, parts: parts,
		admin: tables(site.AdminURL, client), idle: client.CloseIdleConnections,
	}
	views := make([]string, 0, len(site.Views))
	for _, v := range site.Views {
		views = append(views, v.Name())
	}
	if err := i.create(ctx, views); err != nil {
		// What was made belongs to nobody.
		return nil, errors.Join(err, i.drop(context.WithoutCancel(ctx)))
	}
	// Whoever asks at the fence who is connected finds the audit alone.
	i.idle()
	i.auditor = audit.New(audit.Place{
		URL: site.AdminURL, Table: table, Stream: i.cfg.Stream, Projections: views, DataDir: site.DataDir,
		NativeAuction: parts.Bidding != nil,
	})
	return i, nil
}

// create makes the table with its stream and the checkpoints.
func (i *instance) create(ctx context.Context, views []string) error {
	_, err := i.admin.CreateTable(ctx, &sdk.CreateTableInput{
		TableName: aws.String(i.cfg.Table), BillingMode: types.BillingModePayPerRequest,
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String("pk"), KeyType: types.KeyTypeHash},
			{AttributeName: aws.String("sk"), KeyType: types.KeyTypeRange},
		},
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String("pk"), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String("sk"), AttributeType: types.ScalarAttributeTypeS},
		},
		StreamSpecification: &types.StreamSpecification{
			StreamEnabled: aws.Bool(true), StreamViewType: types.StreamViewTypeNewImage,
		},
	})
	if err != nil {
		return fmt.Errorf("dynamodb: creating the table: %w", err)
	}
	for {
		out, err := i.admin.DescribeTable(ctx, &sdk.DescribeTableInput{TableName: aws.String(i.cfg.Table)})
		if err != nil {
			return fmt.Errorf("dynamodb: waiting for the table: %w", err)
		}
		if out.Table.TableStatus == types.TableStatusActive && aws.ToString(out.Table.LatestStreamArn) != "" {
			i.cfg.Stream = *out.Table.LatestStreamArn
			break
		}
		if err := clock.Sleep(ctx, pollTable); err != nil {
			return fmt.Errorf("dynamodb: waiting for the table: %w", err)
		}
	}
	for _, view := range views {
		_, err := i.admin.PutItem(ctx, &sdk.PutItemInput{TableName: aws.String(i.cfg.Table), Item: newCheckpoint(view)})
		if err != nil {
			return fmt.Errorf("dynamodb: preparing the projection %s: %w", view, err)
		}
	}
	return nil
}

var errRole = errors.New("dynamodb: a role is \"writer\" or \"projector\"")

func (i *instance) config(role string) (config, error) {
	switch role {
	case "writer", "projector":
		return i.cfg, nil
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

// About implements targets.Instance. The API of the service tells neither a version nor how it stores; a stand-in may
// say so at a place of its own.
func (i *instance) About(ctx context.Context) (version string, durability map[string]string, err error) {
	return i.auditor.About(ctx)
}

// Close implements targets.Instance.
func (i *instance) Close(ctx context.Context) error {
	defer i.auditor.Close()
	return i.drop(ctx)
}

// drop deletes the table; one that is not there is as good.
func (i *instance) drop(ctx context.Context) error {
	defer i.idle()
	_, err := i.admin.DeleteTable(ctx, &sdk.DeleteTableInput{TableName: aws.String(i.cfg.Table)})
	var missing *types.ResourceNotFoundException
	if err != nil && !errors.As(err, &missing) {
		return fmt.Errorf("dynamodb: deleting the table: %w", err)
	}
	return nil
}
