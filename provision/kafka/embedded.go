package kafka

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/eventproof/eventproof/provision"
)

// clusterID tells our stand-in from a broker.
const clusterID = "eventproof-kfake"

// minSession is the shortest session of a group member, so that a killed one is soon gone.
const minSession = time.Second

// Serve runs the stand-in at addr, host:port with a fixed port on loopback, with its log below dir, until ctx ends.
// ready is called once it can be used. One broker leads every partition for ever: after a move without a later produce
// kfake answers as if data had been lost.
func Serve(ctx context.Context, addr, dir string, ready func(addr string)) error {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("provision: %w", err)
	}
	port, err := strconv.Atoi(p)
	if err != nil || port <= 0 {
		return fmt.Errorf("provision: %s: the broker needs a fixed port, which clients come back to after a restart", addr)
	}
	if !provision.Loopback(host) {
		return fmt.Errorf("provision: %s is not a loopback address", addr)
	}
	if err := mend(ctx, dir); err != nil {
		return err
	}
	cluster, err := kfake.NewCluster(
		kfake.Ports(port), kfake.ClusterID(clusterID), kfake.DefaultNumPartitions(1),
		// Without a data folder a restart would begin empty.
		kfake.DataDir(dir),
		kfake.GroupMinSessionTimeout(minSession),
		kfake.BrokerConfigs(map[string]string{
			"group.consumer.heartbeat.interval.ms": "200",
			"group.consumer.session.timeout.ms":    "3000",
		}))
	if err != nil {
		return fmt.Errorf("provision: stand-in for Kafka: %w", err)
	}
	ready(addr)
	<-ctx.Done()
	cluster.Close()
	return nil
}

func embedded(ctx context.Context, o provision.Options) (*provision.Server, error) {
	return provision.StandIn{
		Store: Name, Title: "Kafka stand-in", Scheme: scheme,
		Probe: func(ctx context.Context, addr string) (string, error) {
			_, err := probe(ctx, addr)
			return "kfake", err
		},
	}.Start(ctx, o)
}

func inspectEmbedded(context.Context, provision.Options) []provision.Option {
	return []provision.Option{{Name: provision.Embedded, Available: true, Detail: "kfake, a stand-in of this program: it proves code paths, not the product"}}
}
