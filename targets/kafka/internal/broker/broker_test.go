package broker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/eventproof/eventproof/targets/kafka/internal/broker"
)

const topic = "t"

func open(t *testing.T, opts ...kfake.Opt) *broker.Client {
	t.Helper()
	cluster, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(1, topic)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	o := broker.Options{Addr: cluster.ListenAddrs()[0], Name: "test"}
	if o.Transactions, err = broker.TransactionLevel(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	c, err := broker.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func texts(values ...string) []broker.Record {
	var out []broker.Record
	for _, v := range values {
		out = append(out, broker.Record{Key: []byte("k"), Value: []byte(v), Headers: []kmsg.Header{{Key: "h", Value: []byte(v)}}})
	}
	return out
}

func read(t *testing.T, c *broker.Client) []string {
	t.Helper()
	end, err := c.End(t.Context(), topic, 0, broker.Uncommitted)
	if err != nil {
		t.Fatal(err)
	}
	got := []string{}
	next, err := c.Through(t.Context(), topic, 0, 0, end, func(r *kgo.Record) error {
		if string(r.Key) != "k" || string(r.Headers[0].Value) != string(r.Value) {
			t.Errorf("read %+v", r)
		}
		got = append(got, string(r.Value))
		return nil
	})
	if err != nil || next < end {
		t.Fatalf("read up to %d of %d: %v", next, end, err)
	}
	return got
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// levels runs a test with both levels of the transaction protocol.
func levels(t *testing.T, test func(t *testing.T, c *broker.Client)) {
	t.Helper()
	t.Run("protocol 2", func(t *testing.T) { test(t, open(t)) })
	t.Run("protocol 1", func(t *testing.T) { test(t, open(t, kfake.MaxVersions(kversion.V3_9_0()))) })
}

func TestTransactionsAreReadWholeOrNotAtAll(t *testing.T) {
	levels(t, func(t *testing.T, c *broker.Client) {
		p := c.Producer("id", time.Minute)
		must(t, p.Init(t.Context()))
		for _, values := range [][]string{{"a", "b"}, {"c"}} {
			base, err := p.Produce(t.Context(), topic, 0, texts(values...))
			must(t, err)
			if open, err := c.End(t.Context(), topic, 0, broker.Committed); err != nil || open > base {
				t.Errorf("before the end of a transaction at %d the log is stable up to %d, %v", base, open, err)
			}
			must(t, p.Commit(t.Context()))
		}
		_, err := p.Produce(t.Context(), topic, 0, texts("lost"))
		must(t, err)
		must(t, p.Init(t.Context()))
		_, err = p.Produce(t.Context(), topic, 0, texts("d"))
		must(t, err)
		must(t, p.Commit(t.Context()))
		if got := read(t, c); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
			t.Errorf("read %v", got)
		}
	})
}

func TestWhoeverInitialisesTheIDShutsOutTheOthers(t *testing.T) {
	for _, produced := range []bool{true, false} {
		t.Run(fmt.Sprintf("produced before %v", produced), func(t *testing.T) {
			levels(t, func(t *testing.T, c *broker.Client) {
				old, now := c.Producer("id", time.Minute), c.Producer("id", time.Minute)
				must(t, old.Init(t.Context()))
				if produced {
					_, err := old.Produce(t.Context(), topic, 0, texts("old"))
					must(t, err)
				}
				must(t, now.Init(t.Context()))
				var err error
				if produced {
					err = old.Commit(t.Context())
				} else {
					_, err = old.Produce(t.Context(), topic, 0, texts("old"))
				}
				if !broker.Gone(err) || old.Ready() {
					t.Errorf("the old producer got %v, ready %v", err, old.Ready())
				}
				_, err = now.Produce(t.Context(), topic, 0, texts("new"))
				must(t, err)
				must(t, now.Commit(t.Context()))
				if got := read(t, c); !slices.Equal(got, []string{"new"}) {
					t.Errorf("read %v", got)
				}
			})
		})
	}
}

func TestOffsetsMoveWithTheirTransaction(t *testing.T) {
	levels(t, func(t *testing.T, c *broker.Client) {
		p := c.Producer("id", time.Minute)
		must(t, p.Init(t.Context()))
		at := func() kadm.OffsetResponse {
			k, err := kgo.NewClient(kgo.SeedBrokers(c.Addr()))
			must(t, err)
			defer k.Close()
			all, err := kadm.NewClient(k).FetchOffsets(t.Context(), "g")
			if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
				t.Fatal(err)
			}
			o, _ := all.Lookup(topic, 0)
			return o
		}
		for _, commit := range []bool{false, true} {
			_, err := p.Produce(t.Context(), topic, 0, texts("x"))
			must(t, err)
			must(t, p.CommitOffsets(t.Context(), "g", topic, map[int32]int64{0: 7}, "meta"))
			if commit {
				must(t, p.Commit(t.Context()))
			} else {
				must(t, p.Init(t.Context()))
			}
			if o := at(); (o.At == 7 && o.Metadata == "meta") != commit {
				t.Errorf("committed %v: the group stands at %+v", commit, o)
			}
		}
	})
}

func TestAnOffsetThatTheLogDoesNotReachIsDataLoss(t *testing.T) {
	c := open(t)
	p := c.Producer("", time.Minute)
	must(t, p.Init(t.Context()))
	_, err := p.Produce(t.Context(), topic, 0, texts("a"))
	must(t, err)
	if _, err := c.Fetch(t.Context(), topic, map[int32]int64{0: 5}, broker.Committed, 0, 1<<20); !errors.Is(err, broker.ErrDataLoss) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Through(t.Context(), topic, 0, 0, 5, func(*kgo.Record) error { return nil }); !errors.Is(err, broker.ErrDataLoss) {
		t.Errorf("got %v", err)
	}
}

func TestReadingUpToTheEndWaitsForAnOpenTransactionUntilTheCallerGivesUp(t *testing.T) {
	c := open(t)
	p := c.Producer("id", time.Minute)
	must(t, p.Init(t.Context()))
	_, err := p.Produce(t.Context(), topic, 0, texts("a"))
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	next, err := c.Through(ctx, topic, 0, 0, 1, func(*kgo.Record) error { return nil })
	if !errors.Is(err, context.DeadlineExceeded) || next != 0 {
		t.Errorf("read up to %d, %v", next, err)
	}
	must(t, p.Commit(t.Context()))
	if got := read(t, c); !slices.Equal(got, []string{"a"}) {
		t.Errorf("read %v", got)
	}
}

func TestWhatABrokerHasDefinitelyNotDoneIsAskedForAgain(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, topic))
	must(t, err)
	t.Cleanup(cluster.Close)
	c, err := broker.Open(broker.Options{Addr: cluster.ListenAddrs()[0], Name: "test", Transactions: 2})
	must(t, err)
	t.Cleanup(c.Close)
	p := c.Producer("id", time.Minute)
	must(t, p.Init(t.Context()))
	f := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition, Count: 2})
	_, err = p.Produce(t.Context(), topic, 0, texts("a"))
	must(t, err)
	if f.Hits() != 2 {
		t.Errorf("the fault struck %d times", f.Hits())
	}
	must(t, p.Commit(t.Context()))
	if got := read(t, c); !slices.Equal(got, []string{"a"}) {
		t.Errorf("read %v", got)
	}
}
