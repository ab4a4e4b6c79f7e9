package postgres_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/eventproof/eventproof/eventstore/storetest"
	"github.com/eventproof/eventproof/targets/postgres"
	"github.com/eventproof/eventproof/targets/postgres/internal/pgtest"
)

func TestConformance(t *testing.T) {
	for _, target := range pgtest.EventSourced(postgres.Targets()) {
		t.Run(target.Variant, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) storetest.Fixture {
				i := pgtest.Open(t, target, storetest.Views()...)
				var n atomic.Int64
				return storetest.Fixture{
					Promises: target.Promises,
					Connect: func(t *testing.T) storetest.Conn {
						id := n.Add(1)
						writer := pgtest.Connect(t, i, "writer", pgtest.Env(fmt.Sprintf("writer-%d", id)))
						projector := pgtest.Connect(t, i, "projector", pgtest.Env(fmt.Sprintf("projector-%d", id)))
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
