// Package broker speaks to Kafka one request at a time: what has an effect is sent once, and whether it was answered is
// told to the caller. The producer of the client library would repeat a batch until it succeeds, past every deadline,
// and would not say so.
package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

const (
	// requestTimeout bounds one request; nobody waits longer for a broker that does not answer.
	requestTimeout = 3 * time.Second
	dialTimeout    = 3 * time.Second
	// lookTries is how often the library may repeat what has no effect.
	lookTries = 2
)

// Options say how to reach a cluster.
type Options struct {
	// Addr is the address of one broker, host:port.
	Addr string
	// Name is the client id of every request; faults on the wire name it.
	Name string
	// Dial opens every connection; nil dials directly.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Transactions is the level of the cluster's transaction protocol: see TransactionLevel.
	Transactions int16
}

// Client is a connection to a cluster. It is safe for concurrent use; its producers are not.
type Client struct {
	kgo  *kgo.Client
	opts Options

	mu           sync.Mutex
	leaders      map[string]map[int32]int32
	coordinators map[coordinator]int32
}

type coordinator struct {
	kind int8
	key  string
}

// Kinds of coordinators.
const (
	ofGroup       int8 = 0
	ofTransaction int8 = 1
)

// Open makes a client. It does not connect.
func Open(o Options) (*Client, error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(o.Addr), kgo.ClientID(o.Name), kgo.DisableClientMetrics(), kgo.MaxVersions(versions(o.Transactions)),
		kgo.RequestTimeoutOverhead(requestTimeout), kgo.DialTimeout(dialTimeout), kgo.RequestRetries(lookTries),
		kgo.RetryTimeout(requestTimeout), kgo.MetadataMinAge(10 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
	}
	if o.Dial != nil {
		opts = append(opts, kgo.Dialer(o.Dial))
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	return &Client{
		kgo: client, opts: o, leaders: map[string]map[int32]int32{}, coordinators: map[coordinator]int32{},
	}, nil
}

// Close closes every connection; requests that are under way end with an error.
func (c *Client) Close() { c.kgo.Close() }

// Addr returns the address that the client was given.
func (c *Client) Addr() string { return c.opts.Addr }

// Name returns the client id.
func (c *Client) Name() string { return c.opts.Name }

// Numbers of the requests whose version matters.
const (
	keyProduce         = 0
	keyFetch           = 1
	keyFindCoordinator = 10
	keyAddPartitions   = 24
	keyEndTxn          = 26
	keyTxnOffsetCommit = 28
)

// versions pins the requests to forms that name topics by their names, and to one level of the transaction protocol:
// below 2 partitions and groups are added to a transaction by requests of their own.
func versions(transactions int16) *kversion.Versions {
	v := kversion.Stable()
	pins := map[int16]int16{
		keyProduce: 12, keyFetch: 12, keyFindCoordinator: 3, keyAddPartitions: 3, keyTxnOffsetCommit: 5, keyEndTxn: 5,
	}
	if transactions < 2 {
		pins[keyProduce], pins[keyTxnOffsetCommit], pins[keyEndTxn] = 11, 4, 4
	}
	for key, version := range pins {
		v.SetMaxKeyVersion(key, version)
	}
	return v
}

// TransactionLevel asks a cluster for the level of its transaction protocol: 2 and above is KIP-890, with an epoch of
// its own for every transaction.
func TransactionLevel(ctx context.Context, o Options) (int16, error) {
	c, err := Open(o)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "eventproof", "1"
	resp, err := req.RequestWith(ctx, c.kgo)
	if err != nil {
		return 0, fmt.Errorf("kafka: asking %s what it can do: %w", o.Addr, err)
	}
	for _, f := range resp.FinalizedFeatures {
		if f.Name == "transaction.version" {
			return f.MaxVersionLevel, nil
		}
	}
	return 0, nil
}

// errForm: the answer is not about what was asked.
var errForm = errors.New("kafka: the answer does not name what was asked for")

// look sends a request without effect, and once more on a new connection if the one that there was has died.
func (c *Client) look(ctx context.Context, node int32, req kmsg.Request) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.kgo.Broker(int(node)).RetriableRequest(ctx, req)
}

// send sends a request once to one broker.
func (c *Client) send(ctx context.Context, node int32, req kmsg.Request) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.kgo.Broker(int(node)).Request(ctx, req)
}

// leader returns the broker that leads a partition.
func (c *Client) leader(ctx context.Context, topic string, partition int32) (int32, error) {
	c.mu.Lock()
	node, ok := c.leaders[topic][partition]
	c.mu.Unlock()
	if ok {
		return node, nil
	}
	leaders, err := c.ask(ctx, topic)
	if err != nil {
		return 0, err
	}
	if node, ok = leaders[partition]; !ok {
		return 0, fmt.Errorf("kafka: %s partition %d: %w", topic, partition, kerr.LeaderNotAvailable)
	}
	return node, nil
}

func (c *Client) ask(ctx context.Context, topic string) (map[int32]int32, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, c.kgo)
	if err != nil {
		return nil, fmt.Errorf("kafka: asking for the partitions of %s: %w", topic, err)
	}
	if len(resp.Topics) != 1 {
		return nil, errForm
	}
	if err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); err != nil {
		return nil, fmt.Errorf("kafka: partitions of %s: %w", topic, err)
	}
	leaders := map[int32]int32{}
	for _, p := range resp.Topics[0].Partitions {
		if p.ErrorCode == 0 && p.Leader >= 0 {
			leaders[p.Partition] = p.Leader
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaders[topic] = leaders
	return leaders, nil
}

// find returns the broker that coordinates a group or a transactional id.
func (c *Client) find(ctx context.Context, kind int8, key string) (int32, error) {
	c.mu.Lock()
	node, ok := c.coordinators[coordinator{kind, key}]
	c.mu.Unlock()
	if ok {
		return node, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType, req.CoordinatorKey = kind, key
	resp, err := req.RequestWith(ctx, c.kgo)
	if err != nil {
		return 0, fmt.Errorf("kafka: asking for the coordinator of %s: %w", key, err)
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return 0, fmt.Errorf("kafka: coordinator of %s: %w", key, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.coordinators[coordinator{kind, key}] = resp.NodeID
	return resp.NodeID, nil
}

// forget drops what is known of where things are, after an answer that it is no longer so.
func (c *Client) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.leaders)
	clear(c.coordinators)
}

// check returns the error of an answer's code, and forgets where things are if the code says that they have moved.
func (c *Client) check(code int16) error {
	err := kerr.ErrorForCode(code)
	if err != nil && Moved(err) {
		c.forget()
	}
	return err
}

// Moved reports whether a broker refused a request since another one is in charge, or none at the moment.
func Moved(err error) bool {
	for _, e := range []error{
		kerr.NotLeaderForPartition, kerr.LeaderNotAvailable, kerr.UnknownTopicOrPartition, kerr.FencedLeaderEpoch,
		kerr.NotCoordinator, kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Fenced reports whether a broker refused a producer because of a newer one with its transactional id.
func Fenced(err error) bool {
	return errors.Is(err, kerr.InvalidProducerEpoch) || errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.OperationNotAttempted)
}

// Gone reports whether a broker refused a write since the transaction that it belongs to has ended: the producer was fenced,
// or the transaction's time was up. If its commit was not sent, nobody can commit it any more.
func Gone(err error) bool { return Fenced(err) || errors.Is(err, kerr.InvalidTxnState) }

// Answered reports whether err is what a broker answered; any other error leaves open what became of the request.
func Answered(err error) bool {
	var code *kerr.Error
	return errors.As(err, &code)
}

// ErrDataLoss is returned by a fetch from an offset that the log does not reach, or has dropped: what was read before
// is no longer there.
var ErrDataLoss = errors.New("kafka: the log does not hold the offset that was read before: data was lost")
