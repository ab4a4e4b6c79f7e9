package controls_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/eventproof/eventproof/app"
	appcontrols "github.com/eventproof/eventproof/app/controls"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/postgres"
	"github.com/eventproof/eventproof/targets/postgres/controls"
	"github.com/eventproof/eventproof/targets/postgres/internal/pgtest"
)

func TestEveryControlSwapsExactlyOnePartOfACorrectVariant(t *testing.T) {
	var r targets.Registry
	if err := r.Add(append(postgres.Targets(), controls.Targets()...)...); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, c := range controls.Targets() {
		base, ok := r.Find("postgres/" + c.Base)
		if !ok || !base.Correct() {
			t.Errorf("%s: base %q is no correct variant", c.Name(), c.Base)
			continue
		}
		var changed []string
		was, is := base.Assembly.Map(), c.Assembly.Map()
		for part := range is {
			if was[part] != is[part] {
				changed = append(changed, part)
			}
		}
		if len(changed) != 1 || changed[0] != c.Control.Part {
			t.Errorf("%s: changed %v, says %s", c.Name(), changed, c.Control.Part)
		}
		if !slices.Equal(base.Promises, c.Promises) {
			t.Errorf("%s promises less than its base: the rules would be switched off", c.Name())
		}
		if len(c.Control.Must) == 0 || c.Control.Bug == "" || !slices.Equal(c.Control.Scripts, []string{"det-" + c.Control.ID}) {
			t.Errorf("%s is incomplete: %+v", c.Name(), c.Control)
		}
		if _, err := appcontrols.Parts().Resolve(app.Choice{
			Retry: c.Assembly.Retry, Continue: c.Assembly.Continue, Conflict: c.Assembly.Conflict, Snapshot: c.Assembly.Snapshot,
		}); err != nil {
			t.Errorf("%s: %v", c.Name(), err)
		}
		for _, must := range c.Control.Must {
			if _, both := c.Control.May[must]; both {
				t.Errorf("%s: %s is in both lists", c.Name(), must)
			}
		}
		seen[c.Control.ID] = true
	}
	for _, id := range []string{
		"cv-pg-01", "cv-pg-14", "cv-pg-16", "cv-pg-17", "cv-pg-14b", "cv-pg-18", "cv-pg-19", "cv-pg-20", "cv-pg-21", "cv-pg-23", "cv-pg-25",
		"cv-pg-26", "cv-pg-27", "cv-pg-28", "cv-pg-31", "cv-pg-32", "cv-pg-33",
		"cv-pr-01", "cv-pr-02", "cv-pr-32", "cv-sn-01", "cv-sn-02", "cv-sn-03", "cv-sn-04", "cv-sn-07", "cv-sn-08",
	} {
		if !seen[id] {
			t.Errorf("%s is missing", id)
		}
	}
}

func control(t *testing.T, variant string) targets.Target {
	t.Helper()
	for _, c := range controls.Targets() {
		if c.Variant == variant {
			return c
		}
	}
	t.Fatalf("no control %s", variant)
	return targets.Target{}
}

func held(name string, p points.Point) (targets.Env, *pgtest.Gate) {
	e, g := pgtest.Env(name), pgtest.Hold(p)
	e.Gate = g
	return e, g
}

func TestNaivePollSkipsATransactionThatCommitsLate(t *testing.T) {
	i := pgtest.Open(t, control(t, "naive-poll"))
	e, gate := held("early", points.AppendAfterInsert)
	early := pgtest.Start(t, pgtest.Connect(t, i, "writer", e).Store(), pgtest.Write("a", eventstore.Exact(0), "1", "x"))
	pgtest.Await(t, gate.Arrived())
	pgtest.MustAppend(t, pgtest.Connect(t, i, "writer", pgtest.Env("late")).Store(), pgtest.Write("b", eventstore.Exact(0), "2", "y"))
	feed := pgtest.Connect(t, i, "projector", pgtest.Env("projector")).Feed()
	page := pgtest.MustPoll(t, feed, eventstore.Cursor{})
	gate.Release(nil)
	early.Wait(t)
	if early.Err != nil || len(page.Events) != 1 || !page.Next.Covers(early.Done.Positions[0]) {
		t.Fatalf("the cursor %s does not claim the late event at %v (%v)", page.Next, early.Done.Positions, early.Err)
	}
	if page = pgtest.MustPoll(t, feed, page.Next); len(page.Events) != 0 {
		t.Error("the late event was delivered after all")
	}
}

func TestCheckThenInsertAcknowledgesTwoEventsOfOneVersion(t *testing.T) {
	i := pgtest.Open(t, control(t, "check-then-insert"))
	e, gate := held("slow", points.AppendAfterHead)
	slow := pgtest.Start(t, pgtest.Connect(t, i, "writer", e).Store(), pgtest.Write("a", eventstore.Exact(0), "1", "x"))
	pgtest.Await(t, gate.Arrived())
	fast := pgtest.MustAppend(t, pgtest.Connect(t, i, "writer", pgtest.Env("fast")).Store(), pgtest.Write("a", eventstore.Exact(0), "2", "y"))
	gate.Release(nil)
	slow.Wait(t)
	if slow.Err != nil || slow.Done.First != fast.First {
		t.Errorf("slow %+v %v, fast %+v", slow.Done, slow.Err, fast)
	}
}

func TestRequestFirstInvertsVersionsInFeedOrder(t *testing.T) {
	i := pgtest.Open(t, control(t, "xid-horizon~cv-pg-28"))
	e, gate := held("slow", points.AppendBeforeHead)
	slow := pgtest.Start(t, pgtest.Connect(t, i, "writer", e).Store(), pgtest.Write("a", eventstore.Any(), "1", "x"))
	pgtest.Await(t, gate.Arrived())
	fast := pgtest.Connect(t, i, "writer", pgtest.Env("fast")).Store()
	first := pgtest.MustAppend(t, fast, pgtest.Write("a", eventstore.Any(), "2", "y"))
	gate.Release(nil)
	slow.Wait(t)
	if slow.Err != nil || slow.Done.First != 2 || slow.Done.Positions[0].Compare(first.Positions[0]) >= 0 {
		t.Errorf("slow %+v %v, fast %+v", slow.Done, slow.Err, first)
	}
	if again := pgtest.MustAppend(t, fast, pgtest.Write("a", eventstore.Any(), "1", "x")); !again.Replayed || again.First != 2 {
		t.Errorf("the part that was not swapped is broken: %+v", again)
	}
}

func TestLedgerFirstCallsTheRepeatOfTheHighBidStale(t *testing.T) {
	i := pgtest.Open(t, control(t, "bid-conditional~cv-pg-33"))
	bidding := func(e targets.Env) eventstore.Bidding {
		return pgtest.Connect(t, i, "writer", e).(targets.BiddingSession).Bidding()
	}
	fast := bidding(pgtest.Env("fast"))
	if _, err := fast.OpenAuction(t.Context(), eventstore.Opening{
		Auction: "auction-a", Request: "o", Price: 100, Event: eventstore.NewEvent{ID: pgtest.EventID("o")},
	}); err != nil {
		t.Fatal(err)
	}
	bid := func(try string) eventstore.Bid {
		return eventstore.Bid{Auction: "auction-a", ID: "b1", Bidder: "ada", Amount: 500, Event: eventstore.NewEvent{ID: pgtest.EventID(try)}}
	}
	e, gate := held("slow", points.AppendBeforeHead)
	slow := bidding(e)
	repeated := make(chan error, 1)
	go func() {
		_, err := slow.PlaceBid(t.Context(), bid("second"))
		repeated <- err
	}()
	pgtest.Await(t, gate.Arrived())
	if _, err := fast.PlaceBid(t.Context(), bid("first")); err != nil {
		t.Fatal(err)
	}
	gate.Release(nil)
	var no *eventstore.BidRefusal
	if err := <-repeated; !errors.As(err, &no) || no.Code != eventstore.BidStale || no.High != 500 {
		t.Errorf("the repeat of the high bid was answered with %v", err)
	}
	if again, err := fast.PlaceBid(t.Context(), bid("third")); err != nil || !again.Replayed {
		t.Errorf("the part that was not swapped is broken: %+v, %v", again, err)
	}
}

// trial is one event waiting for a projector.
type trial struct {
	i       targets.Instance
	session targets.Session
	p       eventstore.Projection
	batch   eventstore.Batch
}

func projecting(t *testing.T, variant string, e targets.Env) trial {
	t.Helper()
	i := pgtest.Open(t, control(t, variant), pgtest.Sum{})
	pgtest.MustAppend(t, pgtest.Connect(t, i, "writer", pgtest.Env("writer")).Store(), pgtest.Write("a", eventstore.Exact(0), "1", "x"))
	return resume(t, i, e)
}

// resume starts a projector: it claims, polls and has a batch in hand.
func resume(t *testing.T, i targets.Instance, e targets.Env) trial {
	t.Helper()
	s := pgtest.Connect(t, i, "projector", e)
	p, err := s.Projection(pgtest.Sum{})
	if err != nil {
		t.Fatal(err)
	}
	at, err := p.Claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	page := pgtest.MustPoll(t, s.Feed(), at.Cursor)
	return trial{i, s, p, eventstore.Batch{Prev: at, Events: page.Events, Next: page.Next}}
}

func (tr trial) row(t *testing.T) string {
	t.Helper()
	state, _, _, err := tr.p.Row(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	return string(state)
}

func (tr trial) effects(t *testing.T) (n int) {
	t.Helper()
	err := tr.i.Auditor().Ledgers(t.Context(), func(history.LedgerRow) error { n++; return nil })
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// crashAt applies the batch and dies at the point.
func crashAt(t *testing.T, variant string, p points.Point) trial {
	t.Helper()
	e, gate := held("projector", p)
	tr := projecting(t, variant, e)
	gate.Release(points.ErrCrashed)
	if _, err := tr.p.Apply(t.Context(), tr.batch); !errors.Is(err, points.ErrCrashed) {
		t.Fatalf("the projector did not die at %s: %v", p, err)
	}
	return resume(t, tr.i, pgtest.Env("projector-again"))
}

func TestEffectThenCheckpointAppliesTwiceAfterACrashBetween(t *testing.T) {
	tr := crashAt(t, "advisory-lock~cv-pr-02", points.ProjectorAfterEffect)
	if len(tr.batch.Events) != 1 {
		t.Fatalf("%d events after the restart", len(tr.batch.Events))
	}
	if _, err := tr.p.Apply(t.Context(), tr.batch); err != nil {
		t.Fatal(err)
	}
	if tr.row(t) != "xx" || tr.effects(t) != 2 {
		t.Errorf("row %q, %d effects", tr.row(t), tr.effects(t))
	}
}

func TestCheckpointThenEffectLosesTheEventAfterACrashBetween(t *testing.T) {
	tr := crashAt(t, "advisory-lock~cv-pr-01", points.ProjectorAfterCheckpoint)
	if len(tr.batch.Events) != 0 || tr.row(t) != "" || tr.effects(t) != 0 {
		t.Errorf("%d events after the restart, row %q, %d effects", len(tr.batch.Events), tr.row(t), tr.effects(t))
	}
}

func TestTheCorrectProjectionSurvivesACrashAtEveryPoint(t *testing.T) {
	for _, p := range []points.Point{points.ProjectorAfterEffect, points.ProjectorBeforeCommit, points.ProjectorAfterCommit} {
		t.Run(string(p), func(t *testing.T) {
			// The append control leaves the projection as it is.
			tr := crashAt(t, "naive-poll", p)
			if _, err := tr.p.Apply(t.Context(), tr.batch); err != nil {
				t.Fatal(err)
			}
			if tr.row(t) != "x" || tr.effects(t) != 1 {
				t.Errorf("row %q, %d effects", tr.row(t), tr.effects(t))
			}
		})
	}
}

// apply loses the reply to its commit.
func applyWithLostReply(t *testing.T, variant string) (trial, error) {
	t.Helper()
	proxy := pgtest.NewProxy()
	e := pgtest.Env("projector")
	e.Dial = proxy.Dial(t)
	tr := projecting(t, variant, e)
	proxy.Cut()
	_, err := tr.p.Apply(t.Context(), tr.batch)
	if !proxy.Bit() {
		t.Fatal("the fault did not bite")
	}
	return tr, err
}

func TestNoCompareAndSetAppliesTwiceAfterALostCommitReply(t *testing.T) {
	tr, err := applyWithLostReply(t, "advisory-lock~cv-pr-32")
	if err != nil || tr.row(t) != "xx" || tr.effects(t) != 2 {
		t.Errorf("row %q, %d effects, %v", tr.row(t), tr.effects(t), err)
	}
}

func TestTheCorrectProjectionIsUnknownAfterALostCommitReplyAndSupersededWhenRepeated(t *testing.T) {
	tr, err := applyWithLostReply(t, "naive-poll")
	if outcome, _ := eventstore.Classify(err); outcome != eventstore.Unknown {
		t.Fatalf("got %v", err)
	}
	_, err = tr.p.Apply(t.Context(), tr.batch)
	if outcome, reason := eventstore.Classify(err); outcome != eventstore.Fail || reason != eventstore.Superseded {
		t.Errorf("got %v", err)
	}
	if tr.row(t) != "x" || tr.effects(t) != 1 {
		t.Errorf("row %q, %d effects", tr.row(t), tr.effects(t))
	}
}

// applyParked parks the commit of a batch, lets the projector give up and repeat, and then sends the commit on.
func applyParked(t *testing.T, variant string) (trial, error) {
	t.Helper()
	proxy := pgtest.NewProxy()
	e := pgtest.Env("projector")
	e.Dial = proxy.Dial(t)
	tr := projecting(t, variant, e)
	proxy.Park()
	ended := make(chan error, 1)
	go func() {
		for {
			// The projector's own bound of one try, and its habit to go on.
			ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
			_, err := tr.p.Apply(ctx, tr.batch)
			cancel()
			if outcome, reason := eventstore.Classify(err); outcome != eventstore.Unknown && reason != eventstore.NotSent {
				ended <- err
				return
			}
		}
	}()
	pgtest.Await(t, proxy.Bitten())
	admin := pgtest.Admin(t)
	for waiting := 0; waiting == 0; {
		const sql = `select count(*) from pg_stat_activity where wait_event_type = 'Lock' and application_name like 'projector/%'`
		if err := admin.QueryRow(t.Context(), sql).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	proxy.Lift(t)
	return tr, <-ended
}

func TestNoCompareAndSetAppliesTwiceWhenAParkedCommitArrivesLate(t *testing.T) {
	tr, err := applyParked(t, "advisory-lock~cv-pr-32")
	if err != nil || tr.row(t) != "xx" || tr.effects(t) != 2 {
		t.Errorf("row %q, %d effects, %v", tr.row(t), tr.effects(t), err)
	}
}

func TestTheCorrectProjectionIsSupersededWhenAParkedCommitArrivesLate(t *testing.T) {
	tr, err := applyParked(t, "naive-poll")
	if outcome, reason := eventstore.Classify(err); outcome != eventstore.Fail || reason != eventstore.Superseded {
		t.Errorf("got %v", err)
	}
	if tr.row(t) != "x" || tr.effects(t) != 1 {
		t.Errorf("row %q, %d effects", tr.row(t), tr.effects(t))
	}
}

func TestNoCompareAndSetEndsWhenTheRoleIsCutOff(t *testing.T) {
	e, gate := held("projector", points.ProjectorBeforeCommit)
	dial, cut := e.Dial, make(chan struct{})
	e.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		select {
		case <-cut:
			return nil, net.ErrClosed
		default:
			return dial(ctx, network, addr)
		}
	}
	tr := projecting(t, "advisory-lock~cv-pr-32", e)
	close(cut)
	gate.Release(points.ErrCrashed)
	if _, err := tr.p.Apply(t.Context(), tr.batch); !errors.Is(err, points.ErrCrashed) {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(tr.batch.Next.String(), ":") || tr.effects(t) != 0 {
		t.Error("a crash before the commit left an effect")
	}
}
