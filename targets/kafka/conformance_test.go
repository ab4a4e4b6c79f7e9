package kafka_test

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/eventproof/eventproof/eventstore/storetest"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/kafka"
	"github.com/eventproof/eventproof/targets/kafka/internal/kafkatest"
)

func TestConformance(t *testing.T) {
	for name, opts := range map[string][]kfake.Opt{
		"every transaction an epoch": nil,
		// Without KIP-890 partitions and groups are added to transactions by requests of their own.
		"transaction protocol 1": {kfake.MaxVersions(kversion.V3_9_0())},
	} {
		if len(opts) > 0 && os.Getenv(kafkatest.EnvURL) != "" {
			continue
		}
		server := kafkatest.Serve(t, opts...)
		for _, target := range kafka.Targets() {
			t.Run(target.Variant+"/"+name, func(t *testing.T) {
				storetest.Run(t, func(t *testing.T) storetest.Fixture { return fixture(t, server, target) })
			})
		}
	}
}

func fixture(t *testing.T, server *kafkatest.Server, target targets.Target) storetest.Fixture {
	i := kafkatest.Open(t, server, target, storetest.Views()...)
	hold := kafkatest.Hold(points.AppendAfterInsert)
	hold.Disarm()
	for n := range target.Owners {
		env := kafkatest.Env(fmt.Sprintf("owner-%d", n+1))
		env.Gate = hold
		kafkatest.Start(t, target, i, env.Name, env)
	}
	var n atomic.Int64
	connect := func(t *testing.T) storetest.Conn {
		id := n.Add(1)
		writer := kafkatest.Connect(t, i, "writer", kafkatest.Env(fmt.Sprintf("writer-%d", id)))
		projector := kafkatest.Connect(t, i, "projector", kafkatest.Env(fmt.Sprintf("projector-%d", id)))
		return storetest.Conn{
			Store: writer.Store(), Snapshots: writer.Snapshots(), Feed: projector.Feed(), Projection: projector.Projection,
		}
	}
	return storetest.Fixture{
		Promises: target.Promises, Connect: connect,
		Hold: func(t *testing.T) (storetest.Conn, <-chan struct{}, func()) {
			hold.Arm()
			return connect(t), hold.Arrived(), func() { hold.Release(nil) }
		},
	}
}
