package postgres_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/targets/postgres"
	"github.com/eventproof/eventproof/targets/postgres/internal/pgtest"
)

// BenchmarkAppend appends single events to streams of their own, from eight workers.
func BenchmarkAppend(b *testing.B) {
	for _, target := range pgtest.EventSourced(postgres.Targets()) {
		b.Run(target.Variant, func(b *testing.B) {
			store := pgtest.Connect(b, pgtest.Open(b, target), "writer", pgtest.Env("writer")).Store()
			var n atomic.Uint64
			b.SetParallelism(4)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					id := fmt.Sprint(n.Add(1))
					if _, err := store.Append(b.Context(), pgtest.Write(id, eventstore.Exact(0), id, `{"amount":1}`)); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// BenchmarkProject polls and applies pages of 200 events over 50 streams; one operation is one event.
func BenchmarkProject(b *testing.B) {
	const batch, page, streams = 50, 200, 50
	for _, target := range pgtest.EventSourced(postgres.Targets()) {
		b.Run(target.Variant, func(b *testing.B) {
			i := pgtest.Open(b, target, pgtest.Count{})
			store := pgtest.Connect(b, i, "writer", pgtest.Env("writer")).Store()
			for done := 0; done < b.N; done += batch {
				stream := fmt.Sprint(done / batch % streams)
				a := eventstore.Append{Stream: stream, Expected: eventstore.Any(), Request: fmt.Sprint(done)}
				for k := range batch {
					a.Events = append(a.Events, pgtest.Write("", eventstore.Any(), fmt.Sprint(done, k), `{"amount":1}`).Events...)
				}
				pgtest.MustAppend(b, store, a)
			}
			s := pgtest.Connect(b, i, "projector", pgtest.Env("projector"))
			p, err := s.Projection(pgtest.Count{})
			if err != nil {
				b.Fatal(err)
			}
			at, err := p.Claim(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			for done := 0; done < b.N; {
				got, err := s.Feed().Poll(b.Context(), at.Cursor, page)
				if err != nil {
					b.Fatal(err)
				}
				if len(got.Events) == 0 {
					continue
				}
				if at, err = p.Apply(b.Context(), eventstore.Batch{Prev: at, Events: got.Events, Next: got.Next}); err != nil {
					b.Fatal(err)
				}
				done += len(got.Events)
			}
		})
	}
}
