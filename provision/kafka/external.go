package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/eventproof/eventproof/provision"
)

// CheckURL says what is wrong with the URL of an external broker as far as that can be told without connecting.
func CheckURL(rawURL string, allowRemote bool) error {
	_, err := parse(rawURL, allowRemote)
	return err
}

// parse returns the broker's host:port.
func parse(rawURL string, allowRemote bool) (addr string, err error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "kafka" || u.Hostname() == "" || u.Port() == "" || u.User != nil || u.RawQuery != "" || (u.Path != "" && u.Path != "/") {
		return "", errors.New("provision: the external broker's URL must have the form kafka://host:port; encryption and passwords are not supported")
	}
	if !provision.Loopback(u.Hostname()) && !allowRemote {
		return "", fmt.Errorf("provision: external broker %s: %s is not a loopback address; "+
			"eventproof puts load on it, so allow that with --allow-remote", provision.Masked(u), u.Hostname())
	}
	return u.Host, nil
}

const externalTimeout = 10 * time.Second

// OpenExternal checks that a broker which somebody else runs can be reached. An address that is not loopback needs
// allowRemote.
func OpenExternal(ctx context.Context, rawURL string, allowRemote bool) (*provision.Server, error) {
	addr, err := parse(rawURL, allowRemote)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, externalTimeout)
	defer cancel()
	got, err := probe(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("provision: external broker %s%s can't be used: %w", scheme, addr, err)
	}
	fidelity := provision.Real
	if got.cluster == clusterID {
		fidelity = provision.Emulated // our own stand-in, started by hand
	}
	return provision.NewServer(provision.Info{
		Store: Name, Title: title, Kind: provision.External, Fidelity: fidelity, Version: got.version, URL: scheme + addr, Addr: addr,
	}, nil), nil
}

func external(ctx context.Context, o provision.Options) (*provision.Server, error) {
	s, err := OpenExternal(ctx, o.URL, o.AllowRemote)
	if err == nil {
		o.Logf("kafka: %s: external, because its URL was given", s)
	}
	return s, err
}

// answer is what a broker says of itself.
type answer struct {
	version string // guessed from what it supports
	cluster string
}

// probe asks a broker, by protocol, for the versions that it speaks and for its metadata. It succeeds when the broker
// is a member of its cluster at the address that we know and every partition has a leader: then it can be used.
func probe(ctx context.Context, addr string) (answer, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RequestRetries(0), kgo.DisableClientMetrics(),
		kgo.Dialer(new(net.Dialer).DialContext), kgo.RequestTimeoutOverhead(externalTimeout))
	if err != nil {
		return answer{}, err
	}
	defer client.Close()
	versions, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(versions.ErrorCode)
	}
	if err != nil {
		return answer{}, fmt.Errorf("it does not answer as a Kafka broker does: %w", err)
	}
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = nil // all
	meta, err := req.RequestWith(ctx, client)
	if err != nil {
		return answer{}, fmt.Errorf("asking for its metadata: %w", err)
	}
	if err := usable(meta, addr); err != nil {
		return answer{}, err
	}
	got := answer{version: kversion.FromApiVersionsResponse(versions).VersionGuess()}
	if meta.ClusterID != nil {
		got.cluster = *meta.ClusterID
	}
	return got, nil
}

func usable(meta *kmsg.MetadataResponse, addr string) error {
	known := false
	for _, b := range meta.Brokers {
		known = known || same(net.JoinHostPort(b.Host, fmt.Sprint(b.Port)), addr)
	}
	switch {
	case len(meta.Brokers) == 0:
		return errors.New("it is no member of its cluster yet")
	case !known && len(meta.Brokers) == 1:
		return fmt.Errorf("it tells clients to go to %s:%d instead of %s", meta.Brokers[0].Host, meta.Brokers[0].Port, addr)
	}
	for _, t := range meta.Topics {
		for _, p := range t.Partitions {
			if p.Leader < 0 {
				name := ""
				if t.Topic != nil {
					name = *t.Topic
				}
				return fmt.Errorf("partition %d of topic %s has no leader yet", p.Partition, name)
			}
		}
	}
	return nil
}

// same compares addresses; localhost and the loopback addresses are one.
func same(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil {
		return false
	}
	return portA == portB && (hostA == hostB || provision.Loopback(hostA) && provision.Loopback(hostB))
}
