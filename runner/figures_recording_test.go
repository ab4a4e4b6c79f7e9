package runner_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eventproof/eventproof/app"
	appcontrols "github.com/eventproof/eventproof/app/controls"
	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/loadgen"
	"github.com/eventproof/eventproof/loadgen/workload"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/provision"
	"github.com/eventproof/eventproof/record"
	"github.com/eventproof/eventproof/roles"
	"github.com/eventproof/eventproof/targets"
)

// loop runs commands on a store. It is the product's command loop with or without a history.
type loop interface {
	do(c workload.Command, worker int) app.Result
	close() error
}

func loopConfig(target targets.Target) roles.Config {
	return roles.Config{
		Kind: "writer", Name: "writer-1", Process: 10, Incarnation: 1, Target: target.Name(), Promises: target.Promises,
		Workload: "bank", Seed: 1, MaxDecisions: app.MaxDecisions, Deadline: 20 * time.Second, Try: 10 * time.Second,
	}
}

// recorded is the loop as a writer of a run has it.
type recorded struct {
	w       *roles.Writer
	segment *history.Writer
}

func newRecorded(cfg roles.Config, session targets.Session, path string) (loop, error) {
	segment, err := history.Create(path)
	if err != nil {
		return nil, err
	}
	env := roles.Env{Gate: points.Open{}, Dial: roles.Direct, Clock: clock.System{}, Rand: roles.Seeded(cfg), Rec: segment}
	w, err := roles.NewWriter(cfg, appcontrols.Parts(), env, session)
	if err != nil {
		return nil, errors.Join(err, segment.Close())
	}
	return &recorded{w, segment}, nil
}

func (r *recorded) do(c workload.Command, worker int) app.Result {
	return r.w.Do(context.Background(), command(c), uint32(worker), clock.Monotonic(), false)
}

func (r *recorded) close() error { return errors.Join(r.w.Close(), r.segment.Close()) }

// plain is the same loop on the bare store: nothing between them, and nothing written.
type plain struct{ h *app.Handler }

func newPlain(cfg roles.Config, session targets.Session) (loop, error) {
	policy, err := appcontrols.Parts().Resolve(cfg.Loop)
	if err != nil {
		return nil, err
	}
	return plain{app.NewHandler(app.Config{
		Domain: app.Bank(), Policy: policy, Store: session.Store(), Recorder: record.Discard(clock.System{}), Gate: points.Open{},
		Clock: clock.System{}, Rand: roles.Seeded(cfg), Idempotent: slices.Contains(cfg.Promises, eventstore.IdempotentAppend),
		Deadline: cfg.Deadline, Try: cfg.Try,
	})}, nil
}

func (p plain) do(c workload.Command, worker int) app.Result {
	return p.h.Do(context.Background(), app.Call{Command: command(c), Session: uint32(worker), Intended: clock.Monotonic(), Started: clock.Monotonic()})
}

func (plain) close() error { return nil }

func command(c workload.Command) app.Command {
	return app.Command{ID: c.ID, Stream: c.Stream, Name: c.Name, Body: c.Body}
}

// newLoop returns a loop of either kind.
func newLoop(tb testing.TB, withHistory bool, cfg roles.Config, session targets.Session) loop {
	tb.Helper()
	var l loop
	var err error
	if withHistory {
		l, err = newRecorded(cfg, session, filepath.Join(tb.TempDir(), "a"+history.SegmentExt))
	} else {
		l, err = newPlain(cfg, session)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// deposits and withdrawals on so many accounts, with money for all of them.
func money(tb testing.TB, streams int, seed uint64) workload.Workload {
	tb.Helper()
	w, err := roles.Workload("bank", seed, 1_000_000_000, roles.LoadConfig{
		Streams: streams, KeyDist: "uniform", MaxAmount: 100, Withdraw: 0.5, Deposit: 0.5,
	})
	if err != nil {
		tb.Fatal(err)
	}
	return w
}

// BenchmarkRecordingOnNoOpTarget is what recording a command costs where the store costs nothing: the CPU time of the
// writer's command loop, minus that of the same loop without a history, in rounds that alternate. Target: at most
// 15 µs a command. Garbage collection is in it.
func BenchmarkRecordingOnNoOpTarget(b *testing.B) {
	rounds, commands := 15, 20_000
	if testing.Short() {
		rounds, commands = 3, 5_000
	}
	source, store := money(b, 100, 1), newNoop()
	session, cfg := noopSession{store}, loopConfig(store.target())
	setup := newLoop(b, false, cfg, session)
	for _, c := range source.Setup() {
		setup.do(c, 0)
	}
	store.frozen.Store(true) // every command finds the same short stream
	made := make([]workload.Command, commands)
	for i := range made {
		made[i] = source.Command(uint64(i))
	}
	for _, workers := range []int{1, 8} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			printMachine(b)
			r := rand.New(rand.NewPCG(1, 1))
			var with, without, price []float64
			for range b.N * rounds {
				var cost [2]float64
				for _, k := range r.Perm(2) {
					cost[k] = cpuPerCommand(b, newLoop(b, k == 1, cfg, session), made, workers)
				}
				without, with, price = append(without, cost[0]), append(with, cost[1]), append(price, cost[1]-cost[0])
			}
			b.ReportMetric(median(with), "cpu-µs/command")
			b.ReportMetric(median(without), "cpu-µs/unrecorded")
			b.ReportMetric(median(price), "cpu-µs/recording")
			b.Logf("recording: median %.1f µs, %.1f to %.1f over %d rounds of %d commands; target at most 15", median(price),
				slices.Min(price), slices.Max(price), len(price), commands)
		})
	}
}

// cpuPerCommand runs the commands and returns the CPU time of this process for each, in microseconds.
func cpuPerCommand(tb testing.TB, l loop, commands []workload.Command, workers int) float64 {
	tb.Helper()
	runtime.GC()
	before := cpuTime(tb)
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for i := w; i < len(commands); i += workers {
				if got := l.do(commands[i], w); got.Result != history.ResultOK {
					tb.Errorf("%s ended %s %s", commands[i].ID, got.Result, got.Text)
					return
				}
			}
		})
	}
	group.Wait()
	runtime.GC()
	used := cpuTime(tb) - before
	if err := l.close(); err != nil {
		tb.Error(err)
	}
	return float64(used.Nanoseconds()) / 1e3 / float64(len(commands))
}

func median(xs []float64) float64 {
	s := slices.Sorted(slices.Values(xs))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// price is how BenchmarkRecordingPrice measures.
type price struct {
	pairs   int
	slices  int           // of each segment
	warmUp  time.Duration // of each slice
	measure time.Duration // of each slice
	workers int           // and connections
	streams int
}

// BenchmarkRecordingPrice is throughput at saturation with recording by that without, on one server over direct
// connections, one a worker, in a closed loop. A pair is a segment of each kind, in schemas of their own; the two take
// turns in short slices, in random order, so that what else goes on here meets both. The first pair warms the server
// up and is dropped. Target: the lower end of the 90 % interval at 0.85 or more.
func BenchmarkRecordingPrice(b *testing.B) {
	p := price{pairs: 21, slices: 10, warmUp: 50 * time.Millisecond, measure: 250 * time.Millisecond, workers: 16, streams: 256}
	if testing.Short() {
		p.pairs, p.slices = 4, 4
	}
	server := nativeServer(b)
	for _, name := range []string{"postgres/advisory-lock", "postgres/xid-horizon"} {
		b.Run(name, func(b *testing.B) {
			printMachine(b)
			target := findTarget(b, name)
			for range b.N {
				p.run(b, server, target)
			}
		})
	}
}

func (p price) run(b *testing.B, server *provision.Server, target targets.Target) {
	r := rand.New(rand.NewPCG(1, 2))
	var plain, recorded segment // all pairs together
	var ratios []float64
	for pair := range p.pairs {
		var both [2]*segment
		for _, k := range r.Perm(2) {
			both[k] = p.segment(b, server, target, k == 1)
		}
		for turn := range 1 + p.slices {
			for _, k := range r.Perm(2) {
				p.slice(b, both[k], turn > 0) // the first turn warms them up
			}
		}
		without, with := both[0], both[1]
		without.close(b)
		with.close(b)
		if pair > 0 {
			ratios = append(ratios, with.answered.float()/without.answered.float())
			plain.add(without)
			recorded.add(with)
		}
	}
	got := pairedRatio(ratios, r)
	seconds := (time.Duration(len(ratios)*p.slices) * p.measure).Seconds()
	b.ReportMetric(got.mean, "ratio")
	b.ReportMetric(got.low, "ratio-low90")
	b.ReportMetric(recorded.answered.float()/seconds, "commands/s")
	b.ReportMetric(plain.answered.float()/seconds, "unrecorded/s")
	b.Logf("%d pairs: ratio %.3f, 90 %% interval %.3f to %.3f, pairs from %.3f to %.3f; target: lower end 0.85 or more",
		len(ratios), got.mean, got.low, got.high, slices.Min(ratios), slices.Max(ratios))
	b.Logf("client CPU a command: %.0f µs recorded, %.0f µs not; conflict ratio %.4f and %.4f", recorded.cpuEach(), plain.cpuEach(),
		recorded.conflictRatio(), plain.conflictRatio())
	if d := recorded.conflictRatio() - plain.conflictRatio(); d > 0.02 || d < -0.02 {
		b.Errorf("the two did not do the same work: their conflict ratios differ by %.3f", d)
	}
}

// segment is a load on a schema of its own.
type segment struct {
	place   targets.Instance
	session targets.Session
	source  workload.Workload
	loop    loop

	made      uint64 // commands so far
	cpu       time.Duration
	answered  count // in the measured parts
	decisions count
	conflicts count
	events    count // acknowledged
}

type count struct{ atomic.Int64 }

func (c *count) float() float64 { return float64(c.Load()) }

func (s *segment) add(o *segment) {
	s.made += o.made
	s.cpu += o.cpu
	s.answered.Add(o.answered.Load())
	s.decisions.Add(o.decisions.Load())
	s.conflicts.Add(o.conflicts.Load())
}

func (s *segment) cpuEach() float64 { return float64(s.cpu.Microseconds()) / float64(s.made) }

func (s *segment) conflictRatio() float64 {
	return float64(s.conflicts.Load()) / float64(s.decisions.Load())
}

const segmentBound = 2 * time.Minute

// segment opens a schema, connects, and sets the accounts up.
func (p price) segment(b *testing.B, server *provision.Server, target targets.Target, withHistory bool) *segment {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), segmentBound)
	defer cancel()
	s := &segment{source: money(b, p.streams, 1)}
	var err error
	s.place, err = target.Open(ctx, targets.Site{
		AdminURL: server.AdminURL(), Trial: fmt.Sprintf("f%x", clock.Monotonic()), Views: app.Views("bank"), Assembly: target.Assembly,
	})
	if err != nil {
		b.Fatal(err)
	}
	if s.session, err = s.place.Connect(ctx, "writer", targets.Env{Gate: points.Open{}, Dial: roles.Direct, Name: "writer-1"}); err != nil {
		b.Fatal(err)
	}
	setup := loopConfig(target)
	setup.Name = "setup" // event ids come from the name
	s.loop = newLoop(b, false, setup, s.session)
	commands := s.source.Setup()
	var group sync.WaitGroup
	for w := range p.workers { // all of them, so that all connections are there
		group.Go(func() {
			for i := w; i < len(commands); i += p.workers {
				s.do(b, commands[i], w)
			}
		})
	}
	group.Wait()
	s.decisions.Store(0)
	s.loop = newLoop(b, withHistory, loopConfig(target), s.session)
	return s
}

// do runs a command; the only answers of this load are ok and, rarely, exhausted.
func (s *segment) do(b *testing.B, c workload.Command, worker int) {
	got := s.loop.do(c, worker)
	s.conflicts.Add(int64(got.Conflicts))
	s.decisions.Add(int64(got.Conflicts))
	switch got.Result {
	case history.ResultOK:
		s.decisions.Add(1)
		s.events.Add(int64(len(got.Events)))
	case history.ResultExhausted:
	case history.ResultUnknown, history.ResultRefused, history.ResultFailed:
		b.Errorf("%s ended %s %s: %v", c.ID, got.Result, got.Text, got.Err)
	}
}

// slice is a turn of a segment; what it does is counted or not.
func (p price) slice(b *testing.B, s *segment, counted bool) {
	b.Helper()
	runtime.GC()
	begin, used := clock.Monotonic(), cpuTime(b)
	from, to := begin+int64(p.warmUp), begin+int64(p.warmUp+p.measure)
	stats, err := loadgen.Run(context.Background(), loadgen.Config{
		Model: loadgen.Closed, For: p.warmUp + p.measure, Workers: p.workers, Queue: 1, Shards: 1, Seeds: loadgen.Seeds{Root: 1},
		Clock: clock.System{}, Start: begin, First: s.made,
	}, func(_ context.Context, worker int, a loadgen.Arrival) {
		s.do(b, s.source.Command(a.Seq), worker)
		if t := clock.Monotonic(); counted && t >= from && t < to {
			s.answered.Add(1)
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	s.cpu += cpuTime(b) - used
	s.made += stats.Started
}

// close ends a segment and asks the log whether it has done what it was told.
func (s *segment) close(b *testing.B) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), segmentBound)
	defer cancel()
	logged := int64(0)
	err := s.place.Auditor().Log(ctx, func(history.LoggedEvent) error { logged++; return nil })
	if err := errors.Join(err, s.loop.close(), s.session.Close(), s.place.Close(ctx)); err != nil {
		b.Fatal(err)
	}
	if logged != s.events.Load() {
		b.Errorf("%d events were acknowledged, %d are in the log", s.events.Load(), logged)
	}
}
