package kafka

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const mendTopic = "mended"

// transact writes one record in a transaction of its own.
func transact(t *testing.T, c *kgo.Client, value string) {
	t.Helper()
	if err := c.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := c.ProduceSync(t.Context(), kgo.StringRecord(value)).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := c.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
}

func producerOf(t *testing.T, addr string) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.TransactionalID("writer"), kgo.DefaultProduceTopic(mendTopic), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// committed reads what a consumer finds from the beginning, until it has found so many or two seconds have passed.
func committed(t *testing.T, addr string, want int) []string {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics(mendTopic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(50*time.Millisecond), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var got []string
	for len(got) < want && ctx.Err() == nil {
		c.PollFetches(ctx).EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	return got
}

// killed returns the folder of a stand-in that was killed with a transaction open, after one that was committed, and
// that transaction's producer.
func killed(t *testing.T) (dir string, producer int64, epoch int16) {
	t.Helper()
	live := t.TempDir()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID(clusterID), kfake.DataDir(live))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	addr := cluster.ListenAddrs()[0]
	c := producerOf(t, addr)
	if _, err := kadm.NewClient(c).CreateTopic(t.Context(), 1, 1, nil, mendTopic); err != nil {
		t.Fatal(err)
	}
	transact(t, c, "before")
	if err := c.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := c.ProduceSync(t.Context(), kgo.StringRecord("open")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if producer, epoch, err = c.ProducerID(t.Context()); err != nil {
		t.Fatal(err)
	}
	// What is in the folder now is what a kill would leave there.
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(live)); err != nil {
		t.Fatal(err)
	}
	return dir, producer, epoch
}

func TestWhatIsCommittedAfterAKillWithAnOpenTransactionCanBeRead(t *testing.T) {
	for _, mended := range []bool{true, false} {
		t.Run(fmt.Sprintf("mended %v", mended), func(t *testing.T) {
			dir, _, _ := killed(t)
			if mended {
				if err := mend(t.Context(), dir); err != nil {
					t.Fatal(err)
				}
			}
			cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID(clusterID), kfake.DataDir(dir))
			if err != nil {
				t.Fatal(err)
			}
			defer cluster.Close()
			addr := cluster.ListenAddrs()[0]
			c := producerOf(t, addr)
			transact(t, c, "after")
			got := committed(t, addr, 2)
			if whole := fmt.Sprint(got) == "[before after]"; whole != mended {
				t.Errorf("a consumer reads %v", got)
			}
		})
	}
}

func TestALateCommitOfATransactionThatWasOpenAtAKillIsRefused(t *testing.T) {
	dir, producer, epoch := killed(t)
	if err := mend(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID(clusterID), kfake.DataDir(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	c, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = "writer", producer, epoch, true
	resp, err := req.RequestWith(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); !errors.Is(err, kerr.ProducerFenced) {
		t.Errorf("the late commit is answered by %v", err)
	}
}

func TestMendingAnEmptyFolderDoesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := mend(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if found, err := os.ReadDir(dir); err != nil || len(found) != 0 {
		t.Errorf("%v, %v", found, err)
	}
}
