package controls_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/eventstore/storetest"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/kafka"
	"github.com/eventproof/eventproof/targets/kafka/controls"
	"github.com/eventproof/eventproof/targets/kafka/internal/kafkatest"
)

func TestEveryControlSwapsExactlyOnePartOfACorrectVariant(t *testing.T) {
	var r targets.Registry
	if err := r.Add(append(kafka.Targets(), controls.Targets()...)...); err != nil {
		t.Fatal(err)
	}
	for _, c := range controls.Targets() {
		base, ok := r.Find("kafka/" + c.Base)
		if !ok || !base.Correct() {
			t.Fatalf("%s: base %q is no correct variant", c.Name(), c.Base)
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
		if !slices.Equal(base.Promises, c.Promises) || len(c.Control.Must) == 0 || c.Control.Bug == "" {
			t.Errorf("%s is incomplete, or promises less than its base", c.Name())
		}
		for _, must := range c.Control.Must {
			if _, both := c.Control.May[must]; both {
				t.Errorf("%s: %s is in both lists", c.Name(), must)
			}
		}
	}
}

// stream lies in a partition that owner-1 takes first.
const stream = "s"

// pair is a control, or its base, with two owners, the first of which stops at a point.
type pair struct {
	t     *testing.T
	inst  targets.Instance
	owned targets.Owned
	gate  *kafkatest.Gate
	first *kafkatest.Owner
}

// both runs a schedule on a control and on its base.
func both(t *testing.T, id string, at points.Point, schedule func(p *pair, broken bool)) {
	t.Helper()
	i := slices.IndexFunc(controls.Targets(), func(c targets.Target) bool { return c.Control.ID == id })
	for _, target := range []targets.Target{controls.Targets()[i], kafka.Targets()[0]} {
		t.Run(target.Variant, func(t *testing.T) {
			p := &pair{t: t, inst: kafkatest.Open(t, kafkatest.Serve(t), target, storetest.Views()...), gate: kafkatest.Hold(at)}
			p.gate.Disarm()
			var ok bool
			if p.owned, ok = p.inst.(targets.Owned); !ok {
				t.Fatal("the target has no owners")
			}
			env := kafkatest.Env("owner-1")
			env.Gate = p.gate
			p.first = kafkatest.Start(t, target, p.inst, "owner-1", env)
			kafkatest.Start(t, target, p.inst, "owner-2", kafkatest.Env("owner-2"))
			schedule(p, !target.Correct())
		})
	}
}

// writer connects a writer whose name leads it to the n-th owner, should names matter. One that is away reaches the
// second only.
func (p *pair) writer(n int, away bool) eventstore.Store {
	p.t.Helper()
	env := kafkatest.Env([]string{"b", "a"}[n-1])
	if away {
		wire := kafkatest.NewWire()
		wire.Shut(p.owned.OwnerAddr("owner-1"))
		env.Dial = wire.Dial
	}
	return kafkatest.Connect(p.t, p.inst, "writer", env).Store()
}

func (p *pair) log() []history.LoggedEvent {
	p.t.Helper()
	var out []history.LoggedEvent
	if err := p.inst.Auditor().Log(p.t.Context(), func(e history.LoggedEvent) error { out = append(out, e); return nil }); err != nil {
		p.t.Fatal(err)
	}
	return out
}

func begin(s eventstore.Store, a eventstore.Append) <-chan error {
	c := make(chan error, 1)
	go func() {
		_, err := s.Append(context.Background(), a)
		c <- err
	}()
	return c
}

func TestAZombieWithAnIDOfItsOwnWritesBehindTheNewOwner(t *testing.T) {
	both(t, "cv-ka-06", points.AppendAfterHead, func(p *pair, broken bool) {
		old := p.writer(1, false)
		kafkatest.MustAppend(p.t, old, kafkatest.Write(stream, eventstore.NoStream(), kafkatest.NewEvent(1)))
		p.gate.Arm()
		held := begin(old, kafkatest.Write(stream, eventstore.Exact(1), kafkatest.NewEvent(2)))
		p.gate.Await(p.t)
		kafkatest.MustAppend(p.t, p.writer(2, true), kafkatest.Write(stream, eventstore.Exact(1), kafkatest.NewEvent(3)))
		p.gate.Release(nil)
		err := <-held
		var versions, epochs []uint64
		for _, e := range p.log() {
			versions, epochs = append(versions, e.Version), append(epochs, e.Meta.Epoch)
		}
		if broken {
			if err != nil || !slices.Equal(versions, []uint64{1, 2, 2}) || !slices.Equal(epochs, []uint64{1, 2, 1}) {
				p.t.Errorf("the zombie got %v; versions %v, leases %v", err, versions, epochs)
			}
		} else if _, reason := eventstore.Classify(err); reason != eventstore.VersionConflict || !slices.Equal(versions, []uint64{1, 2}) {
			p.t.Errorf("the former owner's writer got %v; versions %v, leases %v", err, versions, epochs)
		}
	})
}

func TestTwoOwnersThatReadTheEndOfTheLogGiveOneVersionTwice(t *testing.T) {
	both(t, "cv-ka-10", points.AppendAfterHead, func(p *pair, broken bool) {
		one, two := p.writer(1, false), p.writer(2, false)
		kafkatest.MustAppend(p.t, one, kafkatest.Write(stream, eventstore.NoStream(), kafkatest.NewEvent(1)))
		p.gate.Arm()
		held := begin(one, kafkatest.Write(stream, eventstore.Exact(1), kafkatest.NewEvent(2)))
		p.gate.Await(p.t)
		other := begin(two, kafkatest.Write(stream, eventstore.Exact(1), kafkatest.NewEvent(3)))
		if broken {
			if err := <-other; err != nil {
				p.t.Error(err)
			}
		}
		p.gate.Release(nil)
		first := <-held
		if first != nil {
			p.t.Error(first)
		}
		if !broken {
			if _, reason := eventstore.Classify(<-other); reason != eventstore.VersionConflict {
				p.t.Errorf("both writers won, or neither")
			}
		}
		var versions []uint64
		for _, e := range p.log() {
			versions = append(versions, e.Version)
		}
		if want := []uint64{1, 2, 2}[:len(versions)]; broken != (len(versions) == 3) || !slices.Equal(versions, want) {
			p.t.Errorf("versions %v", versions)
		}
	})
}

func TestWhatIsAnsweredEarlyIsNotSoWhenTheGroupIsAborted(t *testing.T) {
	both(t, "cv-ka-17", points.AppendAfterInsert, func(p *pair, broken bool) {
		one, two := p.writer(1, false), p.writer(2, false)
		kafkatest.MustAppend(p.t, one, kafkatest.Write(stream, eventstore.NoStream(), kafkatest.NewEvent(1)))
		p.gate.Arm()
		held := begin(one, kafkatest.Write(stream, eventstore.Exact(1), kafkatest.NewEvent(2)))
		p.gate.Await(p.t)
		ctx, cancel := context.WithTimeout(p.t.Context(), 300*time.Millisecond)
		defer cancel()
		read, readErr := two.Read(ctx, eventstore.ReadRequest{Stream: stream, From: 1})
		_, conflict := two.Append(ctx, kafkatest.Write(stream, eventstore.Exact(1), kafkatest.NewEvent(3)))
		p.gate.Release(points.ErrCrashed)
		if err := p.first.Wait(); !errors.Is(err, points.ErrCrashed) {
			p.t.Error(err)
		}
		<-held
		outcome, reason := eventstore.Classify(conflict)
		told := fmt.Sprintf("read %d events, %v; the append got %v", len(read.Events), readErr, conflict)
		if broken && (len(read.Events) != 2 || reason != eventstore.VersionConflict) {
			p.t.Errorf("nothing was answered early: %s", told)
		}
		if !broken && (readErr == nil || outcome == eventstore.OK || reason == eventstore.VersionConflict) {
			p.t.Errorf("answered while the transaction was open: %s", told)
		}
		// The next owner aborts what stood open.
		if got, err := p.writer(2, true).Read(p.t.Context(), eventstore.ReadRequest{Stream: stream, From: 1}); err != nil || len(got.Events) != 1 {
			p.t.Errorf("after the abort: %d events, %v", len(got.Events), err)
		}
	})
}
