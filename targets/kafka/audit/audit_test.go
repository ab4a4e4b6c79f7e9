package audit_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/eventstore/storetest"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/kafka"
	"github.com/eventproof/eventproof/targets/kafka/audit"
	"github.com/eventproof/eventproof/targets/kafka/internal/kafkatest"
)

// site is a trial with owners, a writer and a projector.
type site struct {
	t      *testing.T
	inst   targets.Instance
	store  eventstore.Store
	feed   eventstore.Feed
	view   eventstore.Projection
	addr   string
	trial  string
	events []eventstore.NewEvent
}

func newSite(t *testing.T, gate points.Gate) *site {
	t.Helper()
	target := kafka.Targets()[0]
	s := &site{t: t, inst: kafkatest.Open(t, kafkatest.Serve(t), target, storetest.Views()...)}
	for n := range target.Owners {
		env := kafkatest.Env(fmt.Sprintf("owner-%d", n+1))
		env.Gate = gate
		kafkatest.Start(t, target, s.inst, env.Name, env)
	}
	s.store = kafkatest.Connect(t, s.inst, "writer", kafkatest.Env("writer")).Store()
	p := kafkatest.Connect(t, s.inst, "projector", kafkatest.Env("projector"))
	s.feed = p.Feed()
	var err error
	if s.view, err = p.Projection(storetest.Tally{}); err != nil {
		t.Fatal(err)
	}
	raw, err := s.inst.Config("writer")
	if err != nil {
		t.Fatal(err)
	}
	var c struct{ Addr, Trial string }
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	s.addr, s.trial = c.Addr, c.Trial
	return s
}

func (s *site) auditor() targets.Auditor { return s.inst.Auditor() }

// append writes n events to each of three streams, two an append.
func (s *site) append(n int) {
	s.t.Helper()
	for i := range n {
		for k := range 3 {
			pair := []eventstore.NewEvent{kafkatest.NewEvent(1), kafkatest.NewEvent(1)}
			if i%2 == 1 {
				pair[1].Type = "Ignored"
			}
			kafkatest.MustAppend(s.t, s.store, kafkatest.Write(fmt.Sprintf("s-%d", k), eventstore.Any(), pair...))
			s.events = append(s.events, pair...)
		}
	}
}

// project applies everything, in batches of five.
func (s *site) project() eventstore.Checkpoint {
	s.t.Helper()
	now, err := s.view.Claim(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	for done := 0; done < len(s.events); {
		page, err := s.feed.Poll(s.t.Context(), now.Cursor, 5)
		if err != nil {
			s.t.Fatal(err)
		}
		if len(page.Events) == 0 {
			continue
		}
		if now, err = s.view.Apply(s.t.Context(), eventstore.Batch{Prev: now, Events: page.Events, Next: page.Next}); err != nil {
			s.t.Fatal(err)
		}
		done += len(page.Events)
	}
	return now
}

func (s *site) fence() targets.Proof {
	s.t.Helper()
	proof, err := s.auditor().Fence(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return proof
}

func (s *site) client(opts ...kgo.Opt) *kgo.Client {
	s.t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(s.addr), kgo.DisableClientMetrics()}, opts...)...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	return c
}

func TestTheAuditReadsWhatWasWritten(t *testing.T) {
	s := newSite(t, points.Open{})
	s.append(4)
	last := s.project()
	if proof := s.fence(); !proof.Fenced || !strings.Contains(proof.Text, "5 transactional ids have a new epoch") {
		t.Errorf("%+v", proof)
	}
	told := map[eventstore.EventID]eventstore.NewEvent{}
	for _, e := range s.events {
		told[e.ID] = e
	}
	logged := map[eventstore.EventID]history.LoggedEvent{}
	versions := map[string]uint64{}
	err := s.auditor().Log(t.Context(), func(e history.LoggedEvent) error {
		was := told[e.ID]
		was.Meta.Epoch = e.Meta.Epoch
		if e.Type != was.Type || string(e.Data) != string(was.Data) || e.Meta != was.Meta || e.Meta.Epoch != 1 || e.Transaction == 0 {
			t.Errorf("%+v was written as %+v", e, was)
		}
		if versions[e.Stream]++; versions[e.Stream] != e.Version {
			t.Errorf("version %d of %s follows %d", e.Version, e.Stream, versions[e.Stream]-1)
		}
		logged[e.ID] = e
		return nil
	})
	if err != nil || len(logged) != len(told) {
		t.Fatalf("%d of %d events, %v", len(logged), len(told), err)
	}
	ledger := map[eventstore.EventID]history.LedgerRow{}
	units := map[uint64]uint64{} // checkpoint counter → transaction
	err = s.auditor().Ledgers(t.Context(), func(r history.LedgerRow) error {
		e := logged[r.Event]
		want := history.Applied
		if e.Type == "Ignored" {
			want = history.Filtered
		}
		if r.How != want || r.Version != e.Version || r.Stream != e.Stream || want == history.Applied && (r.Row != e.Stream || r.RowVersion != e.Version) {
			t.Errorf("the ledger says %+v of %+v", r, e)
		}
		ledger[r.Event], units[r.Seq] = r, r.Transaction
		return nil
	})
	if err != nil || len(ledger) != len(told) {
		t.Fatalf("%d ledger rows, %v", len(ledger), err)
	}
	var seq uint64
	err = s.auditor().Checkpoints(t.Context(), func(r history.CheckpointRow) error {
		if seq++; r.Seq != seq || r.Transaction != units[seq] || r.Epoch != 1 || r.Generation != 1 {
			t.Errorf("checkpoint %+v, the ledger's transaction is %d", r, units[seq])
		}
		return nil
	})
	if err != nil || seq != last.Seq {
		t.Fatalf("%d checkpoints, %v", seq, err)
	}
	rows := 0
	err = s.auditor().Views(t.Context(), func(r history.ViewRow) error {
		rows++
		if r.Version != 7 || string(r.State) != `{"n":6,"sum":6}` {
			t.Errorf("%+v: %s", r, r.State)
		}
		return nil
	})
	if err != nil || rows != 3 {
		t.Fatalf("%d rows, %v", rows, err)
	}
	heads, err := s.auditor().(targets.Sharded).Heads(t.Context())
	if err != nil || len(heads) != 3 {
		t.Fatalf("heads %v, %v", heads, err)
	}
	for _, h := range heads {
		if !last.Cursor.Covers(h) {
			t.Errorf("the projection was drained, but %s does not cover %s", last.Cursor, h)
		}
	}
	seen, _, err := s.auditor().Observe(t.Context(), storetest.Tally{}.Name())
	if err != nil || seen.Seq != last.Seq || seen.Cursor.String() != last.Cursor.String() {
		t.Errorf("observed %+v, %v", seen, err)
	}
}

func TestTheFenceEndsWhatStandsOpenAndShutsItOut(t *testing.T) {
	gate := kafkatest.Hold(points.AppendAfterInsert)
	s := newSite(t, gate)
	held := make(chan error, 1)
	go func() {
		_, err := s.store.Append(t.Context(), kafkatest.Write("s", eventstore.NoStream(), kafkatest.NewEvent(1)))
		held <- err
	}()
	gate.Await(t)
	if proof := s.fence(); !proof.Fenced {
		t.Errorf("%+v", proof)
	}
	n := func() (n int) {
		if err := s.auditor().Log(t.Context(), func(history.LoggedEvent) error { n++; return nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n() != 0 {
		t.Error("what stood open is in the log")
	}
	gate.Release(nil)
	// The owner's commit is refused. It takes the partition again, which a role of a trial that is fenced no longer can.
	if err := <-held; err != nil {
		if o, _ := eventstore.Classify(err); o != eventstore.Fail {
			t.Error(err)
		}
	}
}

func TestAForeignTransactionOnTheTrialsTopicsIsNoFence(t *testing.T) {
	s := newSite(t, points.Open{})
	s.append(1)
	c := s.client(kgo.TransactionalID("foreign"), kgo.DefaultProduceTopic(s.trial+"-events"))
	if err := c.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := c.ProduceSync(t.Context(), kgo.StringRecord("x")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := timeout(t)
	defer cancel()
	proof, err := s.auditor().Fence(ctx)
	if err != nil || proof.Fenced || !strings.Contains(proof.Text, "not stable") {
		t.Errorf("%+v, %v", proof, err)
	}
}

func TestRecordsThatTheAuditCantReadAreAnError(t *testing.T) {
	s := newSite(t, points.Open{})
	s.append(1)
	if err := s.client().ProduceSync(t.Context(), &kgo.Record{Topic: s.trial + "-events", Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := s.auditor().Log(t.Context(), func(history.LoggedEvent) error { return nil }); err == nil {
		t.Error("a record that is nobody's was passed over")
	}
}

func TestOffsetsThatMovedWithoutTheCheckpointAreFound(t *testing.T) {
	for name, tamper := range map[string]func(t *testing.T, adm *kadm.Client, group, topic string, at kadm.Offsets){
		"moved on": func(t *testing.T, adm *kadm.Client, group, _ string, at kadm.Offsets) {
			at.Each(func(o kadm.Offset) { o.At++; at.Add(o) })
			commit(t, adm, group, at)
		},
		"other metadata": func(t *testing.T, adm *kadm.Client, group, _ string, at kadm.Offsets) {
			at.Each(func(o kadm.Offset) {
				o.Metadata = strings.Replace(o.Metadata, `"seq":`, `"seq":9`, 1)
				at.Delete(o.Topic, o.Partition)
				at.Add(o)
			})
			commit(t, adm, group, at)
		},
		"gone": func(t *testing.T, adm *kadm.Client, group, _ string, _ kadm.Offsets) {
			if _, err := adm.DeleteGroups(t.Context(), group); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, points.Open{})
			s.append(1)
			s.project()
			all := func(history.CheckpointRow) error { return nil }
			if err := s.auditor().Checkpoints(t.Context(), all); err != nil {
				t.Fatal(err)
			}
			adm := kadm.NewClient(s.client())
			group := s.trial + "-" + storetest.Tally{}.Name()
			found, err := adm.FetchOffsets(t.Context(), group)
			if err != nil {
				t.Fatal(err)
			}
			tamper(t, adm, group, s.trial+"-events", found.Offsets())
			if err := s.auditor().Checkpoints(t.Context(), all); !errors.Is(err, audit.ErrOffsets) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func commit(t *testing.T, adm *kadm.Client, group string, at kadm.Offsets) {
	t.Helper()
	if err := adm.CommitAllOffsets(t.Context(), group, at); err != nil {
		t.Fatal(err)
	}
}

func TestATrialThatProjectedNothingHasNoCheckpoint(t *testing.T) {
	s := newSite(t, points.Open{})
	s.append(1)
	if proof := s.fence(); !proof.Fenced {
		t.Errorf("%+v", proof)
	}
	n := 0
	if err := s.auditor().Checkpoints(t.Context(), func(history.CheckpointRow) error { n++; return nil }); err != nil || n != 0 {
		t.Errorf("%d checkpoints, %v", n, err)
	}
	seen, rows, err := s.auditor().Observe(t.Context(), storetest.Tally{}.Name())
	if err != nil || seen.Seq != 0 || !seen.Cursor.IsZero() || len(rows) != 0 {
		t.Errorf("observed %+v %v, %v", seen, rows, err)
	}
	if _, _, err := s.auditor().Observe(t.Context(), "other"); err == nil {
		t.Error("a projection that does not exist was observed")
	}
}
