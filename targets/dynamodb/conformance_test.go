package dynamodb_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	emulator "github.com/eventproof/eventproof/emulators/dynamodb"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/eventstore/storetest"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/dynamodb"
	"github.com/eventproof/eventproof/targets/dynamodb/internal/dytest"
)

func TestConformance(t *testing.T) {
	for _, target := range dynamodb.Targets() {
		for name, opt := range map[string]emulator.Options{
			"one shard": {},
			"disturbed": {Seed: 7, Shards: 3, Window: 200 * time.Microsecond, Faults: []emulator.Fault{
				{Kind: emulator.StreamReorder, Probability: 0.5}, {Kind: emulator.StreamDuplicate, Probability: 0.3},
			}},
		} {
			t.Run(target.Variant+"/"+name, func(t *testing.T) {
				server := dytest.Serve(t, opt)
				if target.Assembly.Auction != "" {
					storetest.RunBidding(t, func(t testing.TB) func(testing.TB) eventstore.Bidding {
						i := dytest.Open(t, server, target)
						var n atomic.Int64
						return func(t testing.TB) eventstore.Bidding {
							return dytest.Connect(t, i, "writer", dytest.Env(fmt.Sprintf("writer-%d", n.Add(1)))).(targets.BiddingSession).Bidding()
						}
					})
					return
				}
				storetest.Run(t, func(t *testing.T) storetest.Fixture {
					i := dytest.Open(t, server, target, storetest.Views()...)
					var n atomic.Int64
					return storetest.Fixture{
						Promises: target.Promises,
						Connect: func(t *testing.T) storetest.Conn {
							id := n.Add(1)
							writer := dytest.Connect(t, i, "writer", dytest.Env(fmt.Sprintf("writer-%d", id)))
							projector := dytest.Connect(t, i, "projector", dytest.Env(fmt.Sprintf("projector-%d", id)))
							return storetest.Conn{
								Store: writer.Store(), Snapshots: writer.Snapshots(),
								Feed: projector.Feed(), Projection: projector.Projection,
							}
						},
					}
				})
			})
		}
	}
}
