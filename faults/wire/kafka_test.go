package wire

import (
	"bytes"
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/eventproof/eventproof/history"
)

const kafkaTopic = "events"

// kafkaBench is a server for Kafka's protocol behind a proxy.
type kafkaBench struct {
	t *testing.T
	c *kfake.Cluster
	p *Proxy
}

func newKafkaBench(t *testing.T) *kafkaBench {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, kafkaTopic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	p, err := NewProxy(t.Context(), Options{Name: "owner-1", Upstream: c.ListenAddrs()[0], Protocol: Kafka()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n := p.Traffic().Unreadable; n > 0 {
			t.Errorf("%d connections could not be followed", n)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return &kafkaBench{t, c, p}
}

// client makes a client that goes through the proxy.
func (b *kafkaBench) client(opts ...kgo.Opt) *kgo.Client {
	b.t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(b.c.ListenAddrs()...), kgo.ClientID("owner-1/1"), kgo.DefaultProduceTopic(kafkaTopic),
		kgo.MetadataMinAge(10 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 5 * time.Millisecond }),
		kgo.Dialer(func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, b.p.Addr())
		}),
	}, opts...)...)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(c.Close)
	return c
}

// begin puts one record into a transaction.
func (b *kafkaBench) begin(c *kgo.Client, value string) {
	b.t.Helper()
	if err := c.BeginTransaction(); err != nil {
		b.t.Fatal(err)
	}
	if err := c.ProduceSync(b.t.Context(), kgo.StringRecord(value)).FirstErr(); err != nil {
		b.t.Fatal(err)
	}
}

// committed reads what read-committed consumers see, past the proxy, until it has n records or nothing comes for a
// while.
func (b *kafkaBench) committed(n int) []string {
	b.t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(b.c.ListenAddrs()...), kgo.ConsumeTopics(kafkaTopic),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(50*time.Millisecond))
	if err != nil {
		b.t.Fatal(err)
	}
	defer c.Close()
	limit := 5 * time.Second
	if n == 0 {
		limit = 200 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(b.t.Context(), limit)
	defer cancel()
	var got []string
	for (n == 0 || len(got) < n) && ctx.Err() == nil {
		c.PollFetches(ctx).EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	return got
}

func first(bites []history.Bite, form history.BiteForm) (b history.Bite) {
	i := slices.IndexFunc(bites, func(b history.Bite) bool { return b.Form == form })
	if i < 0 {
		return history.Bite{}
	}
	return bites[i]
}

func TestTransactionsPassThroughTheProxy(t *testing.T) {
	b := newKafkaBench(t)
	_, w := apply(t, b.p, RuleSpec{Action: HoldReply, Every: 1000})
	c := b.client(kgo.TransactionalID("t"))
	for _, v := range []string{"a", "b", "c"} {
		b.begin(c, v)
		if err := c.EndTransaction(t.Context(), kgo.TransactionEndTry(v != "b")); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.committed(2); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("committed %q", got)
	}
	if n, _ := w.all(); n != 0 {
		t.Errorf("%d touched", n)
	}
}

func TestADroppedReplyOfAnEndTxnHasLanded(t *testing.T) {
	b := newKafkaBench(t)
	c := b.client(kgo.TransactionalID("t"), kgo.RequestRetries(0))
	b.begin(c, "aborted")
	_, w := apply(t, b.p, RuleSpec{Action: DropReply})
	if err := c.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal("the reply to an abort was touched:", err)
	}
	b.begin(c, "kept")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := c.EndTransaction(ctx, kgo.TryCommit); err == nil {
		t.Error("the client knows that it committed")
	}
	bites := w.await(t, 1, 1)
	if got := first(bites, history.BiteReplyDropped); got.Landed != history.LandedYes || got.Session != "owner-1/1" {
		t.Errorf("bites %+v", bites)
	}
	if got := b.committed(1); !slices.Equal(got, []string{"kept"}) {
		t.Errorf("committed %q", got)
	}
}

func TestACutEndTxnDoesNotLand(t *testing.T) {
	b := newKafkaBench(t)
	c := b.client(kgo.TransactionalID("t"), kgo.RequestRetries(0))
	b.begin(c, "lost")
	r, w := apply(t, b.p, RuleSpec{Action: CutRequest})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := c.EndTransaction(ctx, kgo.TryCommit); err == nil {
		t.Error("the commit was answered")
	}
	bites := w.await(t, 1, 1)
	if got := first(bites, history.BiteRequestCut); got.Landed != history.LandedNo || got.Session != "owner-1/1" {
		t.Errorf("bites %+v", bites)
	}
	if got := b.committed(0); len(got) > 0 {
		t.Errorf("committed %q", got)
	}
	withdraw(t, b.p, r)
	// The transaction is open still: whoever takes its id over ends it.
	next := b.client(kgo.TransactionalID("t"))
	b.begin(next, "after")
	if err := next.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	if got := b.committed(1); !slices.Equal(got, []string{"after"}) {
		t.Errorf("committed %q", got)
	}
}

func TestAParkedEndTxnIsSentOnWhenLifted(t *testing.T) {
	b := newKafkaBench(t)
	c := b.client(kgo.TransactionalID("t"))
	b.begin(c, "late")
	r, w := apply(t, b.p, RuleSpec{Action: ParkRequest, Max: 1})
	done := make(chan error, 1)
	go func() { done <- c.EndTransaction(t.Context(), kgo.TryCommit) }()
	w.await(t, 1, 1)
	if got := b.committed(0); len(got) > 0 {
		t.Errorf("committed %q before it was sent on", got)
	}
	withdraw(t, b.p, r)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	_, bites := w.all()
	one(t, bites, history.BiteRequestReleased, history.LandedYes, "owner-1/1")
	if got := b.committed(1); !slices.Equal(got, []string{"late"}) {
		t.Errorf("committed %q", got)
	}
}

func TestAParkedEndTxnOfAFencedProducerDoesNotLand(t *testing.T) {
	b := newKafkaBench(t)
	old := b.client(kgo.TransactionalID("t"), kgo.RequestRetries(0))
	b.begin(old, "zombie")
	r, w := apply(t, b.p, RuleSpec{Action: ParkRequest, Max: 1})
	done := make(chan error, 1)
	go func() { done <- old.EndTransaction(t.Context(), kgo.TryCommit) }()
	w.await(t, 1, 1)
	next := b.client(kgo.TransactionalID("t"))
	b.begin(next, "successor")
	if err := next.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	withdraw(t, b.p, r)
	if err := <-done; err == nil {
		t.Error("the fenced producer committed")
	}
	_, bites := w.all()
	one(t, bites, history.BiteRequestReleased, history.LandedNo, "owner-1/1")
	if got := b.committed(1); !slices.Equal(got, []string{"successor"}) {
		t.Errorf("committed %q", got)
	}
}

func TestAProduceOutsideOfTransactionsIsACommit(t *testing.T) {
	b := newKafkaBench(t)
	_, w := apply(t, b.p, RuleSpec{Action: DropReply, Max: 1})
	c := b.client()
	if err := c.ProduceSync(t.Context(), kgo.StringRecord("x")).FirstErr(); err != nil {
		t.Fatal("an idempotent producer tries again:", err)
	}
	one(t, w.await(t, 1, 1), history.BiteReplyDropped, history.LandedYes, "owner-1/1")
	if got := b.committed(1); !slices.Equal(got, []string{"x"}) {
		t.Errorf("stored %q", got)
	}
}

func TestAProduceInsideATransactionIsNone(t *testing.T) {
	b := newKafkaBench(t)
	_, w := apply(t, b.p, RuleSpec{Action: CutRequest, Max: 1})
	c := b.client(kgo.TransactionalID("t"))
	b.begin(c, "x")
	if n, bites := w.all(); n != 0 {
		t.Errorf("touched: %+v", bites)
	}
	if err := c.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
}

// kafkaRequestBytes is a request as it is on the wire.
func kafkaRequestBytes(version int16, number int32, q kmsg.Request) []byte {
	q.SetVersion(version)
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("w/1")).AppendRequest(nil, q, number)
}

// kafkaReplyBytes is an answer as it is on the wire.
func kafkaReplyBytes(number int32, a kmsg.Response) []byte {
	b := []byte{byte(number >> 24), byte(number >> 16), byte(number >> 8), byte(number)}
	if a.IsFlexible() && a.Key() != kafkaAPIVersions {
		b = append(b, 1, 7, 2, 'x', 'y') // one tagged field
	}
	b = a.AppendTo(b)
	return append([]byte{byte(len(b) >> 24), byte(len(b) >> 16), byte(len(b) >> 8), byte(len(b))}, b...)
}

func TestEveryVersionOfACommitAndOfItsAnswerIsRead(t *testing.T) {
	endTxn := func(commit bool) kmsg.Request {
		q := kmsg.NewPtrEndTxnRequest()
		q.TransactionalID, q.Commit, q.ProducerID = "some-id", commit, 0x0101010101010101
		return q
	}
	endTxnAnswer := func(version, code int16) kmsg.Response {
		a := kmsg.NewPtrEndTxnResponse()
		a.SetVersion(version)
		a.ErrorCode, a.ThrottleMillis = code, 0x01010101
		return a
	}
	produce := func(id *string, acks int16) kmsg.Request {
		q := kmsg.NewPtrProduceRequest()
		q.TransactionID, q.Acks = id, acks
		p := kmsg.NewProduceRequestTopicPartition()
		p.Records = bytes.Repeat([]byte{1}, 3000)
		topic := kmsg.NewProduceRequestTopic()
		topic.Topic, topic.Partitions = "t", append(topic.Partitions, p)
		q.Topics = append(q.Topics, topic)
		return q
	}
	produceAnswer := func(version int16, codes ...int16) kmsg.Response {
		a := kmsg.NewPtrProduceResponse()
		a.SetVersion(version)
		for _, code := range codes {
			p := kmsg.NewProduceResponseTopicPartition()
			p.ErrorCode = code
			if code != 0 {
				p.ErrorRecords = append(p.ErrorRecords, kmsg.NewProduceResponseTopicPartitionErrorRecord())
				p.ErrorMessage = kmsg.StringPtr("no")
			}
			topic := kmsg.NewProduceResponseTopic()
			topic.Topic, topic.Partitions = "t", append(topic.Partitions, p)
			a.Topics = append(a.Topics, topic)
		}
		return a
	}
	check := func(q kmsg.Request, a kmsg.Response, version int16, commits int, want ...answer) {
		t.Helper()
		requests, replies := Kafka().framers()
		up := kafkaRequestBytes(version, 9, q)
		down := kafkaReplyBytes(9, a)
		for at := range len(up) {
			if at > 20 && at < len(up)-20 && at%97 != 0 {
				continue
			}
			requests, _ := Kafka().framers()
			if o := through(requests, up[:at], up[at:]); o.commits != commits || o.turns != 1 || !bytes.Equal(o.out, up) || o.lost || !slices.Equal(o.sessions, []string{"w/1"}) {
				t.Fatalf("%s v%d cut at %d: commits %d, turns %d, sessions %q, lost %t", kmsg.NameForKey(q.Key()), version, at, o.commits, o.turns, o.sessions, o.lost)
			}
		}
		through(requests, up)
		if o := through(replies, down[:5], down[5:]); !slices.Equal(o.answers, want) || o.turns != 1 || o.lost || !bytes.Equal(o.out, down) {
			t.Errorf("%s v%d: answers %v, want %v; turns %d, lost %t", kmsg.NameForKey(q.Key()), version, o.answers, want, o.turns, o.lost)
		}
	}
	for v := int16(0); v <= kafkaEndTxnVersions; v++ {
		check(endTxn(true), endTxnAnswer(v, 0), v, 1, committed)
		check(endTxn(true), endTxnAnswer(v, 47), v, 1, rolledBack)
		check(endTxn(true), endTxnAnswer(v, 51), v, 1, undecided)
		check(endTxn(false), endTxnAnswer(v, 0), v, 0)
	}
	id := "some-id"
	for v := int16(3); v <= kafkaProduceVersions; v++ {
		check(produce(nil, -1), produceAnswer(v, 0, 0), v, 1, committed)
		check(produce(nil, -1), produceAnswer(v, 10, 10), v, 1, rolledBack)
		check(produce(nil, -1), produceAnswer(v, 0, 10), v, 1, undecided)
		check(produce(nil, 1), produceAnswer(v, 20), v, 1, undecided)
		check(produce(nil, -1), produceAnswer(v, 6), v, 1, undecided)
		check(produce(&id, -1), produceAnswer(v, 0), v, 0)
	}
}

func TestAProduceWithoutAcknowledgementIsNotAwaited(t *testing.T) {
	requests, replies := Kafka().framers()
	q := kmsg.NewPtrProduceRequest()
	q.Acks = 0
	up := join(kafkaRequestBytes(7, 1, q), kafkaRequestBytes(0, 2, kmsg.NewPtrApiVersionsRequest()))
	if o := through(requests, up); o.commits != 1 || o.turns != 1 || o.lost {
		t.Errorf("commits %d, turns %d", o.commits, o.turns)
	}
	if o := through(replies, kafkaReplyBytes(2, kmsg.NewPtrApiVersionsResponse())); o.turns != 1 || o.lost {
		t.Errorf("turns %d, lost %t", o.turns, o.lost)
	}
}

func TestWhatIsNoKafkaPassesUnread(t *testing.T) {
	sasl := kmsg.NewPtrSASLHandshakeRequest()
	for name, up := range map[string][]byte{
		"a TLS hello": []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello"),
		"HTTP":        []byte("GET / HTTP/1.1\r\n\r\n"),
		"Postgres":    {0, 0, 0, 8, 4, 210, 22, 47},
		"raw tokens":  join(kafkaRequestBytes(0, 1, sasl), []byte{0, 0, 0, 2, 1, 1}),
		"a long name": {0, 0, 0, 12, 0, 18, 0, 0, 0, 0, 0, 1, 0x7f, 0xff, 1, 1},
	} {
		requests, _ := Kafka().framers()
		if o := through(requests, up); !o.lost || !bytes.Equal(o.out, up) {
			t.Errorf("%s: came out as %q, lost %t", name, o.out, o.lost)
		}
	}
	for name, down := range map[string][]byte{
		"an answer that nobody asked for": {0, 0, 0, 4, 0, 0, 0, 1},
		"an answer without a number":      {0, 0, 0, 2, 0, 0},
	} {
		_, replies := Kafka().framers()
		if o := through(replies, down); !o.lost || !bytes.Equal(o.out, down) {
			t.Errorf("%s: came out as %q, lost %t", name, o.out, o.lost)
		}
	}
}

func TestProbeOfAKafkaServer(t *testing.T) {
	b := newKafkaBench(t)
	c, err := b.p.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := ProbeKafka(ctx, c); err != nil {
		t.Error(err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	near, far := net.Pipe()
	defer near.Close()
	wg.Go(func() {
		defer far.Close()
		_, _ = far.Read(make([]byte, 100)) // the question
		_, _ = far.Write([]byte("HTTP/1.1 400 Bad Request"))
	})
	if err := ProbeKafka(ctx, near); err == nil {
		t.Error("a web server passes for Kafka")
	}
}

func FuzzKafkaFraming(f *testing.F) {
	q := kmsg.NewPtrEndTxnRequest()
	q.TransactionalID, q.Commit = "t", true
	up := kafkaRequestBytes(3, 1, q)
	a := kmsg.NewPtrEndTxnResponse()
	a.SetVersion(3)
	f.Add(join(up, up), kafkaReplyBytes(1, a), uint16(9))
	f.Add(kafkaRequestBytes(9, 1, kmsg.NewPtrProduceRequest()), kafkaReplyBytes(1, kmsg.NewPtrProduceResponse()), uint16(3))
	f.Fuzz(func(t *testing.T, up, down []byte, at uint16) {
		requests, replies := Kafka().framers()
		for _, c := range []struct {
			stream []byte
			framer framer
		}{{up, requests}, {down, replies}} {
			n := min(int(at), len(c.stream))
			if o := through(c.framer, c.stream[:n], c.stream[n:]); !bytes.Equal(o.out, c.stream) {
				t.Fatal("the bytes changed")
			}
		}
	})
}
