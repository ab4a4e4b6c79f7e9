package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/kafka/audit"
	"github.com/eventproof/eventproof/targets/kafka/internal/broker"
	"github.com/eventproof/eventproof/targets/kafka/internal/form"
	"github.com/eventproof/eventproof/targets/kafka/owner"
)

// New completes a target: t says what it is, parts how it works.
func New(t targets.Target, parts Parts) targets.Target {
	t.Store, t.Needs, t.Owners, t.Outcomes = "kafka", "kafka", owners, rulings()
	t.Open = func(ctx context.Context, site targets.Site) (targets.Instance, error) { return open(ctx, site, parts) }
	t.Attach = func(ctx context.Context, raw json.RawMessage, env targets.Env) (targets.Session, error) {
		c, err := parseConfig[config](raw)
		if err != nil {
			return nil, err
		}
		return attached(ctx, c, parts, env)
	}
	t.Serve = func(ctx context.Context, raw json.RawMessage, env targets.Env, ready func()) error {
		c, err := parseConfig[owner.Config](raw)
		if err != nil {
			return err
		}
		return owner.Serve(ctx, c, owner.Parts{Append: parts.Append}, env, ready)
	}
	return t
}

// Variant returns a correct variant with its parts, for building a control from it: "fenced-writer".
func Variant(name string) (targets.Target, Parts, bool) {
	if name != "fenced-writer" {
		return targets.Target{}, Parts{}, false
	}
	return targets.Target{
		Variant: name,
		Summary: "one fenced owner a partition checks expected versions and commits in groups; feeds read committed partitions",
		Promises: []eventstore.Promise{
			eventstore.OptimisticConcurrency, eventstore.AtomicBatch, eventstore.IdempotentAppend, eventstore.StrongRead,
			eventstore.StreamOrder, eventstore.PartitionedLog, eventstore.CompleteFeed, eventstore.FencedOwnership,
			eventstore.FreshRefusals, eventstore.AtomicProjection, eventstore.Durable,
		},
		Workloads:      []string{"bank", "auction"},
		ProjectionMode: "transactional",
		Assembly: targets.Assembly{
			Append: name, Reader: "read-committed", Projection: "kafka-transaction", Retry: "repeat-write", Continue: "whole-stream",
		},
	}, Parts{Append: owner.Fenced{ID: owner.ByPartition}, Route: Preferred}, true
}

// Targets returns the correct variants.
func Targets() []targets.Target {
	t, parts, _ := Variant("fenced-writer")
	return []targets.Target{New(t, parts)}
}

// instance is what open made on the server.
type instance struct {
	cfg     config
	parts   Parts
	views   []string
	auditor *audit.Auditor
}

var (
	_ targets.Instance = (*instance)(nil)
	_ targets.Owned    = (*instance)(nil)
)

const (
	adminTimeout = 20 * time.Second
	// pollTopic is the pause between two looks at a topic that is not led yet.
	pollTopic = 10 * time.Millisecond
)

func open(ctx context.Context, site targets.Site, parts Parts) (targets.Instance, error) {
	addr, err := parseURL(site.AdminURL)
	if err != nil {
		return nil, err
	}
	if err := form.CheckTrial(site.Trial); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	i := &instance{cfg: config{Addr: addr, Trial: site.Trial, Partitions: form.Partitions}, parts: parts}
	for _, v := range site.Views {
		i.views = append(i.views, v.Name())
	}
	if i.cfg.Owners, err = freePorts(site.Trial, owners); err != nil {
		return nil, err
	}
	if i.cfg.Transactions, err = broker.TransactionLevel(ctx, broker.Options{Addr: addr, Name: site.Trial + "-open"}); err != nil {
		return nil, err
	}
	if err := i.create(ctx); err != nil {
		// What was made belongs to nobody.
		return nil, errors.Join(err, i.Close(context.WithoutCancel(ctx)))
	}
	i.auditor = audit.New(audit.Place{
		Addr: addr, Trial: site.Trial, Partitions: form.Partitions, Projections: i.views, Unfenced: parts.Unfenced,
	})
	return i, nil
}

// asAdmin runs f with a client of its own.
func (i *instance) asAdmin(ctx context.Context, f func(context.Context, *kadm.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	c, err := kgo.NewClient(kgo.SeedBrokers(i.cfg.Addr), kgo.ClientID(i.cfg.Trial+"-admin"), kgo.DisableClientMetrics(),
		kgo.MetadataMinAge(pollTopic)) // else topics that are not led yet are not asked for again for seconds
	if err != nil {
		return fmt.Errorf("kafka: %w", err)
	}
	defer c.Close()
	return f(ctx, kadm.NewClient(c))
}

func (i *instance) topics() []string {
	topics := []string{form.Events(i.cfg.Trial)}
	for _, v := range i.views {
		topics = append(topics, form.View(i.cfg.Trial, v))
	}
	return topics
}

// create makes the topics and waits until all of their partitions are led. Nothing is ever dropped from them during a
// trial, neither by age nor by compaction: the ledger is in them.
func (i *instance) create(ctx context.Context) error {
	keep := map[string]*string{
		"cleanup.policy": new("delete"), "retention.ms": new("-1"), "retention.bytes": new("-1"),
	}
	return i.asAdmin(ctx, func(ctx context.Context, adm *kadm.Client) error {
		for n, topic := range i.topics() {
			partitions := int32(1)
			if n == 0 {
				partitions = form.Partitions
			}
			made, err := adm.CreateTopic(ctx, partitions, -1, keep, topic)
			if err = firstOf(err, made.Err); err != nil {
				return fmt.Errorf("kafka: creating the topic %s: %w", topic, err)
			}
		}
		for {
			listed, err := adm.ListTopics(ctx, i.topics()...)
			if err != nil {
				return fmt.Errorf("kafka: waiting for the topics: %w", err)
			}
			if i.led(listed) {
				return nil
			}
			if err := clock.Sleep(ctx, pollTopic); err != nil {
				return fmt.Errorf("kafka: waiting for the topics: %w", err)
			}
		}
	})
}

func (i *instance) led(listed kadm.TopicDetails) bool {
	for n, topic := range i.topics() {
		d := listed[topic]
		if d.Err != nil || n == 0 && len(d.Partitions) != form.Partitions || n > 0 && len(d.Partitions) != 1 {
			return false
		}
		for _, p := range d.Partitions {
			if p.Err != nil || p.Leader < 0 {
				return false
			}
		}
	}
	return true
}

var errRole = errors.New("kafka: a role is \"writer\" or \"projector\"")

// Connect implements targets.Instance.
func (i *instance) Connect(ctx context.Context, role string, env targets.Env) (targets.Session, error) {
	if role != "writer" && role != "projector" {
		return nil, fmt.Errorf("%w, not %q", errRole, role)
	}
	return attached(ctx, i.cfg, i.parts, env)
}

// Config implements targets.Instance. An owner is asked for by its name.
func (i *instance) Config(role string) (json.RawMessage, error) {
	if role == "writer" || role == "projector" {
		return json.Marshal(i.cfg)
	}
	for n := range owners {
		if role == ownerName(n) {
			return json.Marshal(i.cfg.ownerConfig(n))
		}
	}
	return nil, fmt.Errorf("%w, or an owner's name, not %q", errRole, role)
}

// OwnerAddr implements targets.Owned.
func (i *instance) OwnerAddr(name string) string {
	for n := range owners {
		if name == ownerName(n) {
			return i.cfg.Owners[n]
		}
	}
	return ""
}

// Auditor implements targets.Instance.
func (i *instance) Auditor() targets.Auditor { return i.auditor }

// durabilitySettings are the settings of a topic that say when what it holds is safe.
var durabilitySettings = []string{"min.insync.replicas", "flush.messages", "flush.ms", "unclean.leader.election.enable"}

// About implements targets.Instance.
func (i *instance) About(ctx context.Context) (version string, durability map[string]string, err error) {
	durability = map[string]string{"acks": "all", "transaction.version": fmt.Sprint(i.cfg.Transactions)}
	err = i.asAdmin(ctx, func(ctx context.Context, adm *kadm.Client) error {
		brokers, err := adm.ApiVersions(ctx)
		if err != nil {
			return fmt.Errorf("kafka: asking for the version: %w", err)
		}
		for _, b := range brokers.Sorted() {
			if b.Err == nil {
				version = b.VersionGuess()
				break
			}
		}
		topics, err := adm.ListTopics(ctx, form.Events(i.cfg.Trial))
		if err != nil {
			return fmt.Errorf("kafka: asking for the replicas: %w", err)
		}
		durability["replicas"] = fmt.Sprint(topics[form.Events(i.cfg.Trial)].Partitions.NumReplicas())
		configs, err := adm.DescribeTopicConfigs(ctx, form.Events(i.cfg.Trial))
		if err != nil {
			return fmt.Errorf("kafka: asking for the settings: %w", err)
		}
		for _, topic := range configs {
			for _, c := range topic.Configs {
				if slices.Contains(durabilitySettings, c.Key) {
					durability[c.Key] = c.MaybeValue()
				}
			}
		}
		return nil
	})
	return version, durability, err
}

// Close implements targets.Instance. Transactional ids can't be deleted; a broker forgets them by itself.
func (i *instance) Close(ctx context.Context) error {
	if i.auditor != nil {
		i.auditor.Close()
	}
	return i.asAdmin(ctx, func(ctx context.Context, adm *kadm.Client) error {
		var errs []error
		topics, err := adm.DeleteTopics(ctx, i.topics()...)
		errs = append(errs, err)
		for _, t := range topics {
			if t.Err != nil && !errors.Is(t.Err, kerr.UnknownTopicOrPartition) {
				errs = append(errs, t.Err)
			}
		}
		var groups []string
		for _, v := range i.views {
			groups = append(groups, form.Group(i.cfg.Trial, v))
		}
		if len(groups) > 0 {
			deleted, err := adm.DeleteGroups(ctx, groups...)
			errs = append(errs, err)
			for _, g := range deleted {
				if g.Err != nil && !errors.Is(g.Err, kerr.GroupIDNotFound) {
					errs = append(errs, g.Err)
				}
			}
		}
		if err := errors.Join(errs...); err != nil {
			return fmt.Errorf("kafka: dropping the trial: %w", err)
		}
		return nil
	})
}
