// Package loadgen makes load: when commands arrive, who runs them, how long they took.
//
// In an open loop arrivals follow a schedule that does not wait for the store, and latency counts from the
// intended start. A closed loop, or latency from the actual start, hides every stall: while the store stands
// still, nothing is asked of it and nothing is measured.
package loadgen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/eventproof/eventproof/clock"
)

// Model is what decides when the next command starts.
type Model string

// The models.
const (
	// Open: a schedule decides.
	Open Model = "open"
	// Closed: each worker starts the next command when the last has ended.
	Closed Model = "closed"
)

// ParseModel reads the name of a model.
func ParseModel(s string) (Model, error) {
	switch m := Model(s); m {
	case Open, Closed:
		return m, nil
	}
	return "", fmt.Errorf("loadgen: unknown load model %q, want open or closed", s)
}

// TimedBase is where the numbers of Config.Timed begin; those of the schedule stay below.
const TimedBase = uint64(1) << 48

// Config describes one writer's share of a load.
type Config struct {
	Model   Model
	Pattern Pattern       // open loop
	Rate    float64       // open loop: arrivals a second, over all shards
	For     time.Duration // arrivals are intended before this much time has passed
	Workers int           // of this shard
	// Queue bounds the arrivals that wait for a worker of this shard. After a stall the backlog is worked off
	// as fast as the store allows, and what does not fit is dropped and counted.
	Queue int
	// Shard of Shards: of all arrivals this writer takes those whose number is Shard modulo Shards.
	Shard, Shards int
	Seeds         Seeds
	// Timed are arrivals besides the pattern, in an open or closed loop: the i-th is intended at Timed[i] and
	// has the number TimedBase+i.
	Timed []time.Duration
	Clock clock.Clock
	// Start is the stamp of Clock at which the load begins, the same for all shards; 0 = when Run is called.
	Start int64
	// First is the number of arrivals that the predecessor of this writer may have made in a closed loop. Numbers
	// begin behind them, so that none is given twice.
	First uint64
	// Skip leaves out what is intended before this offset: a writer that takes the place of a killed one begins
	// where it starts. Without it overdue arrivals are made at once, late.
	Skip time.Duration
	// Dropped, if not nil, is told of each arrival that was due and not started: the queue was full, or ctx ended
	// while it waited. Its Started is 0. Calls do not overlap.
	Dropped func(a Arrival, t int64)
}

// Arrival is one command to be made. Times are stamps of the clock.
type Arrival struct {
	Seq      uint64
	Offset   time.Duration // from the load's beginning to the intended start
	Intended int64         // in a closed loop equal to Started
	Queued   int64         // when the generator let it go: Queued-Intended is the generator's own lag
	Started  int64         // when a worker took it
}

// Stats is what a shard has done.
type Stats struct {
	Offered uint64 // arrivals that were due: Started + Dropped
	Started uint64
	Dropped uint64
	// Lag is how late the generator let arrivals go. It is the generator's fault alone: waiting for a busy
	// worker is not in it, that is part of Response.
	Lag *Histogram
	// Response counts from the intended start to the end, Service from the actual start to the end.
	Response, Service *Histogram
}

func (c Config) validate() error {
	switch {
	case c.Model != Open && c.Model != Closed:
		return fmt.Errorf("unknown model %q", c.Model)
	case c.Model == Open && c.Pattern != Poisson && c.Pattern != Fixed:
		return fmt.Errorf("unknown arrival pattern %q", c.Pattern)
	case c.Model == Open && !validRate(c.Rate):
		return fmt.Errorf("rate of %v a second", c.Rate)
	case c.For <= 0:
		return fmt.Errorf("duration of %v", c.For)
	case c.Workers < 1:
		return fmt.Errorf("%d workers", c.Workers)
	case c.Queue < 1:
		return fmt.Errorf("queue of %d", c.Queue)
	case c.Shards < 1 || c.Shard < 0 || c.Shard >= c.Shards:
		return fmt.Errorf("shard %d of %d", c.Shard, c.Shards)
	case c.Skip < 0:
		return fmt.Errorf("skip of %v", c.Skip)
	case c.Clock == nil:
		return errors.New("no clock")
	}
	return nil
}

// Run makes this shard's arrivals and calls do for each, on one of Workers goroutines; worker is 0…Workers-1,
// and calls of one worker never overlap. It returns when the last call has ended.
//
// When ctx ends no further arrival is made or started; do gets the same ctx. That is not an error: errors are
// those of the configuration.
func Run(ctx context.Context, cfg Config, do func(ctx context.Context, worker int, a Arrival)) (Stats, error) {
	if err := cfg.validate(); err != nil {
		return Stats{}, fmt.Errorf("loadgen: %w", err)
	}
	if cfg.Start == 0 {
		cfg.Start = cfg.Clock.Now()
	}
	g := &generator{Config: cfg, queue: make(chan Arrival, cfg.Queue), lag: NewHistogram()}
	workers := make([]*worker, cfg.Workers)
	var group sync.WaitGroup
	for i := range workers {
		w := &worker{generator: g, id: i, do: do, response: NewHistogram(), service: NewHistogram()}
		workers[i] = w
		group.Go(func() { w.work(ctx) })
	}
	g.dispatch(ctx)
	group.Wait()

	s := Stats{Lag: g.lag, Response: NewHistogram(), Service: NewHistogram()}
	for _, w := range workers {
		for _, a := range w.late {
			g.drop(a)
		}
		s.Response.Merge(w.response)
		s.Service.Merge(w.service)
	}
	for a := range g.queue { // nobody came to take it before ctx ended
		g.drop(a)
	}
	s.Started, s.Dropped = s.Response.Count(), g.dropped
	s.Offered = s.Started + s.Dropped
	return s, nil
}

// generator makes arrivals. Its own state belongs to the goroutine of Run; made is shared.
type generator struct {
	Config
	queue   chan Arrival
	lag     *Histogram
	dropped uint64
	made    atomic.Uint64 // arrivals of the closed loop
}

// dispatch queues every arrival that has a time of its own when it is due, and closes the queue.
func (g *generator) dispatch(ctx context.Context) {
	defer close(g.queue)
	timer := time.NewTimer(g.For)
	defer timer.Stop()
	for seq, offset := range g.due() {
		a := Arrival{Seq: seq, Offset: offset, Intended: g.Start + int64(offset)}
		if !g.waitUntil(ctx, timer, a.Intended) {
			return
		}
		a.Queued = g.Clock.Now()
		g.lag.Record(time.Duration(a.Queued - a.Intended))
		select {
		case g.queue <- a:
		default:
			g.drop(a)
		}
	}
}

// waitUntil sleeps until t. What is due already is let go at once, so that arrivals that came due during one sleep
// go together. It returns false when ctx has ended.
func (g *generator) waitUntil(ctx context.Context, timer *time.Timer, t int64) bool {
	early := t - g.Clock.Now()
	if early <= 0 {
		return ctx.Err() == nil
	}
	timer.Reset(time.Duration(early))
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (g *generator) drop(a Arrival) {
	g.dropped++
	if g.Dropped != nil {
		g.Dropped(a, g.Clock.Now())
	}
}

// due yields this shard's arrivals that have a time of their own, by time.
func (g *generator) due() iter.Seq2[uint64, time.Duration] {
	type arrival struct {
		seq uint64
		at  time.Duration
	}
	var timed []arrival
	for i, at := range g.Timed {
		if seq := TimedBase + uint64(i); g.mine(seq) && at >= g.Skip && at < g.For {
			timed = append(timed, arrival{seq, at})
		}
	}
	slices.SortStableFunc(timed, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	scheduled := func(func(uint64, time.Duration) bool) {}
	if g.Model == Open {
		scheduled = Schedule(g.Pattern, g.Rate, g.For, g.Seeds.Stream("arrivals"))
	}
	return func(yield func(uint64, time.Duration) bool) {
		for seq, at := range scheduled {
			for len(timed) > 0 && timed[0].at <= at {
				if !yield(timed[0].seq, timed[0].at) {
					return
				}
				timed = timed[1:]
			}
			if at >= g.Skip && g.mine(seq) && !yield(seq, at) {
				return
			}
		}
		for _, a := range timed {
			if !yield(a.seq, a.at) {
				return
			}
		}
	}
}

func (g *generator) mine(seq uint64) bool { return seq%uint64(g.Shards) == uint64(g.Shard) }

// worker runs commands one after the other.
type worker struct {
	*generator
	id                int
	do                func(ctx context.Context, worker int, a Arrival)
	response, service *Histogram
	late              []Arrival // taken when ctx had ended
}

func (w *worker) work(ctx context.Context) {
	if w.Model == Closed {
		w.loop(ctx)
	}
	for a := range w.queue {
		if ctx.Err() != nil {
			w.late = append(w.late, a)
			return
		}
		w.run(ctx, a)
	}
}

// loop runs the closed loop from its beginning until its time is over; timed arrivals go first.
func (w *worker) loop(ctx context.Context) {
	timer := time.NewTimer(w.For)
	defer timer.Stop()
	if !w.waitUntil(ctx, timer, w.Start) {
		return
	}
	for queue := w.queue; ; {
		now := w.Clock.Now()
		if ctx.Err() != nil || now-w.Start >= int64(w.For) {
			return
		}
		select {
		case a, ok := <-queue:
			if ok {
				w.run(ctx, a)
			} else {
				queue = nil
			}
		default:
			seq := (w.First+w.made.Add(1)-1)*uint64(w.Shards) + uint64(w.Shard)
			w.run(ctx, Arrival{Seq: seq, Offset: time.Duration(now - w.Start), Queued: now})
		}
	}
}

func (w *worker) run(ctx context.Context, a Arrival) {
	a.Started = w.Clock.Now()
	if a.Intended == 0 {
		a.Intended = a.Started
	}
	w.do(ctx, w.id, a)
	end := w.Clock.Now()
	w.response.Record(time.Duration(end - a.Intended))
	w.service.Record(time.Duration(end - a.Started))
}
