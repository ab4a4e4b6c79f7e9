package loadgen_test

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/loadgen"
)

// bubbleClock reads the time of the surrounding synctest bubble.
type bubbleClock struct{}

func (bubbleClock) Now() int64      { return time.Now().UnixNano() }
func (bubbleClock) Wall() time.Time { return time.Now() }

var _ clock.Clock = bubbleClock{}

func openLoop() loadgen.Config {
	return loadgen.Config{
		Model: loadgen.Open, Pattern: loadgen.Poisson, Rate: 500, For: 10 * time.Second, Workers: 16, Queue: 4000,
		Shards: 1, Seeds: loadgen.Seeds{Root: 1}, Clock: bubbleClock{},
	}
}

// run is Run in a bubble of its own, where sleeping takes no time.
func run(t *testing.T, cfg loadgen.Config, do func(ctx context.Context, worker int, a loadgen.Arrival)) loadgen.Stats {
	t.Helper()
	var stats loadgen.Stats
	synctest.Test(t, func(t *testing.T) {
		var err error
		if stats, err = loadgen.Run(t.Context(), cfg, do); err != nil {
			t.Fatal(err)
		}
	})
	return stats
}

// stallingTarget takes service for every command and answers nothing in [from, to) after its creation.
func stallingTarget(service, from, to time.Duration) func(ctx context.Context, worker int, a loadgen.Arrival) {
	var once sync.Once
	var begin time.Time
	return func(_ context.Context, _ int, a loadgen.Arrival) {
		once.Do(func() { begin = time.Unix(0, a.Intended).Add(-a.Offset) })
		time.Sleep(service)
		if at := time.Since(begin); from <= at && at < to {
			time.Sleep(to - at)
		}
	}
}

func TestAStallShowsInResponseTimesAsTheScheduleImplies(t *testing.T) {
	const stall, service = 2 * time.Second, time.Millisecond
	cfg := openLoop()
	stats := run(t, cfg, stallingTarget(service, 4*time.Second, 4*time.Second+stall))
	// A fifth of the arrivals falls into the stall and waits for its end, from 2 s down to nothing: the slowest
	// hundredth of all waits longer than 2 s less a hundredth of the run. The backlog drains 32 times faster
	// than it grew.
	implied := stall - cfg.For/100
	p99 := stats.Response.Quantile(0.99)
	if off := math.Abs(float64(p99-implied)) / float64(implied); off > 0.1 {
		t.Errorf("response p99 is %v, the schedule implies %v", p99, implied)
	}
	if slow := stats.Service.Quantile(0.99); slow > 20*service {
		t.Errorf("service p99 is %v, want about %v", slow, service)
	}
	if stats.Service.Max() < stall*9/10 {
		t.Errorf("longest service is %v: the stall did not bite", stats.Service.Max())
	}
	if stats.Dropped != 0 || stats.Lag.Max() > time.Millisecond {
		t.Errorf("dropped %d, generator lag up to %v", stats.Dropped, stats.Lag.Max())
	}
}

func TestAClosedLoopDoesNotSeeTheStall(t *testing.T) {
	cfg := openLoop()
	cfg.Model = loadgen.Closed
	stats := run(t, cfg, stallingTarget(time.Millisecond, 4*time.Second, 6*time.Second))
	if p99 := stats.Response.Quantile(0.99); p99 > 20*time.Millisecond {
		t.Errorf("response p99 is %v", p99)
	}
	if stats.Response.Max() < 1900*time.Millisecond {
		t.Errorf("longest response is %v: the stall did not bite", stats.Response.Max())
	}
}

func TestWithoutAStallResponseIsServiceTime(t *testing.T) {
	stats := run(t, openLoop(), stallingTarget(time.Millisecond, 0, 0))
	if p99 := stats.Response.Quantile(0.99); p99 > 2*time.Millisecond {
		t.Errorf("response p99 is %v", p99)
	}
	if stats.Offered != stats.Started || math.Abs(float64(stats.Offered)-5000) > 5*math.Sqrt(5000) {
		t.Errorf("offered %d, started %d, want about 5000", stats.Offered, stats.Started)
	}
}

func TestAFullQueueDropsAndCounts(t *testing.T) {
	cfg := openLoop()
	cfg.Queue, cfg.Pattern = 100, loadgen.Fixed
	var told int
	cfg.Dropped = func(a loadgen.Arrival, at int64) {
		told++
		if a.Started != 0 || at < a.Intended {
			t.Errorf("dropped at %d: %+v", at, a)
		}
	}
	stats := run(t, cfg, stallingTarget(time.Millisecond, 4*time.Second, 6*time.Second))
	// 1000 arrivals fall into the stall; 16 are in service and 100 wait.
	if stats.Dropped < 850 || stats.Dropped > 900 || told != int(stats.Dropped) {
		t.Errorf("dropped %d, told of %d", stats.Dropped, told)
	}
	if stats.Offered != 5000 || stats.Started != 5000-stats.Dropped {
		t.Errorf("offered %d, started %d, dropped %d", stats.Offered, stats.Started, stats.Dropped)
	}
}

func TestShardsShareOneStreamOfArrivals(t *testing.T) {
	const shards = 3
	cfg := openLoop()
	cfg.Rate, cfg.Workers = 100, 2
	cfg.Timed = []time.Duration{3 * time.Second, time.Second, 2 * time.Second, time.Minute, 4 * time.Second}
	all := map[uint64]time.Duration{}
	var mu sync.Mutex
	for shard := range shards {
		cfg.Shard, cfg.Shards = shard, shards
		run(t, cfg, func(_ context.Context, _ int, a loadgen.Arrival) {
			mu.Lock()
			defer mu.Unlock()
			if _, twice := all[a.Seq]; twice || a.Started != a.Intended {
				t.Errorf("arrival %+v made twice or late", a)
			}
			all[a.Seq] = a.Offset
		})
	}
	want := map[uint64]time.Duration{}
	for seq, at := range loadgen.Schedule(cfg.Pattern, cfg.Rate, cfg.For, cfg.Seeds.Stream("arrivals")) {
		want[seq] = at
	}
	for i, at := range cfg.Timed {
		if at < cfg.For {
			want[loadgen.TimedBase+uint64(i)] = at
		}
	}
	if len(all) != len(want) || len(all) < 900 {
		t.Fatalf("%d arrivals made, want %d", len(all), len(want))
	}
	for seq, at := range want {
		if all[seq] != at {
			t.Errorf("arrival %d at %v, want %v", seq, all[seq], at)
		}
	}
}

func TestAClosedLoopNumbersItsArrivalsAndMakesTheTimedOnes(t *testing.T) {
	cfg := openLoop()
	cfg.Model, cfg.Workers, cfg.Shard, cfg.Shards, cfg.First = loadgen.Closed, 4, 1, 2, 10
	cfg.For = time.Second
	cfg.Timed = []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, 999_500 * time.Microsecond, 400 * time.Millisecond}
	var mu sync.Mutex
	var seqs []uint64
	stats := run(t, cfg, func(_ context.Context, _ int, a loadgen.Arrival) {
		mu.Lock()
		seqs = append(seqs, a.Seq)
		mu.Unlock()
		time.Sleep(10 * time.Millisecond)
		if a.Seq < loadgen.TimedBase && a.Intended != a.Started {
			t.Errorf("%+v was intended before it started", a)
		}
	})
	slices.Sort(seqs)
	n := len(seqs) - 2
	if stats.Started != uint64(len(seqs)) || n < 390 || n > 400 {
		t.Fatalf("%d commands, %d started", len(seqs), stats.Started)
	}
	for i, seq := range seqs[:n] {
		if want := uint64(2*(10+i) + 1); seq != want {
			t.Fatalf("number %d, want %d", seq, want)
		}
	}
	if want := []uint64{loadgen.TimedBase + 1, loadgen.TimedBase + 3}; !slices.Equal(seqs[n:], want) {
		t.Errorf("timed arrivals %v, want %v", seqs[n:], want)
	}
}

func TestALateWriterMakesOverdueArrivalsOrPassesOverThem(t *testing.T) {
	for _, c := range []struct {
		name string
		skip time.Duration
		want uint64
		late time.Duration
	}{{"late", 0, 100, 500 * time.Millisecond}, {"in the place of a killed one", 500 * time.Millisecond, 50, 0}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := openLoop()
				cfg.Pattern, cfg.Rate, cfg.For, cfg.Skip = loadgen.Fixed, 100, time.Second, c.skip
				cfg.Start = bubbleClock{}.Now() - int64(500*time.Millisecond)
				stats, err := loadgen.Run(t.Context(), cfg, func(context.Context, int, loadgen.Arrival) {})
				if err != nil || stats.Started != c.want || math.Abs(float64(stats.Lag.Max()-c.late)) > float64(c.late)/1000 {
					t.Errorf("started %d, lag up to %v, %v", stats.Started, stats.Lag.Max(), err)
				}
			})
		})
	}
}

func TestNoLoadBeginsBeforeItsStart(t *testing.T) {
	for _, model := range []loadgen.Model{loadgen.Open, loadgen.Closed} {
		t.Run(string(model), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := openLoop()
				cfg.Model, cfg.For = model, time.Second
				cfg.Start = bubbleClock{}.Now() + int64(time.Minute)
				stats, err := loadgen.Run(t.Context(), cfg, func(_ context.Context, _ int, a loadgen.Arrival) {
					if a.Started < cfg.Start || a.Offset < 0 {
						t.Errorf("%+v is before the start", a)
					}
					time.Sleep(10 * time.Millisecond)
				})
				if err != nil || stats.Started < 100 {
					t.Errorf("started %d, %v", stats.Started, err)
				}
			})
		})
	}
}

func TestTheEndOfTheContextLosesNoArrival(t *testing.T) {
	for _, model := range []loadgen.Model{loadgen.Open, loadgen.Closed} {
		t.Run(string(model), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := openLoop()
				cfg.Model, cfg.Workers = model, 2
				cfg.Timed = []time.Duration{900 * time.Millisecond, 999 * time.Millisecond, 2 * time.Second}
				var told uint64
				cfg.Dropped = func(loadgen.Arrival, int64) { told++ }
				ctx, cancel := context.WithTimeout(t.Context(), time.Second+time.Microsecond)
				defer cancel()
				var mu sync.Mutex
				var started uint64
				begin := time.Now()
				stats, err := loadgen.Run(ctx, cfg, func(ctx context.Context, _ int, _ loadgen.Arrival) {
					mu.Lock()
					started++
					mu.Unlock()
					select {
					case <-ctx.Done():
					case <-time.After(300 * time.Millisecond):
					}
				})
				if err != nil || time.Since(begin) > time.Second+time.Millisecond {
					t.Errorf("ended after %v, %v", time.Since(begin), err)
				}
				if stats.Started != started || stats.Dropped != told || stats.Offered != started+told || told == 0 {
					t.Errorf("%+v, but %d were started and %d dropped", stats, started, told)
				}
			})
		})
	}
}

func TestCallsOfOneWorkerDoNotOverlap(t *testing.T) {
	cfg := openLoop()
	cfg.Workers = 3
	busy := make([]bool, 3)
	run(t, cfg, func(_ context.Context, worker int, _ loadgen.Arrival) {
		if busy[worker] {
			t.Errorf("worker %d was given two commands", worker)
		}
		busy[worker] = true
		time.Sleep(5 * time.Millisecond)
		busy[worker] = false
	})
}

func TestRealTimeIsKeptToo(t *testing.T) {
	cfg := openLoop()
	cfg.Clock, cfg.For, cfg.Rate = clock.System{}, 200*time.Millisecond, 1000
	stats, err := loadgen.Run(t.Context(), cfg, func(context.Context, int, loadgen.Arrival) {})
	if err != nil || stats.Started < 120 || stats.Started > 280 || stats.Dropped != 0 {
		t.Errorf("%+v, %v", stats, err)
	}
	if below, _ := stats.Lag.Clamped(); below != 0 {
		t.Errorf("%d arrivals were let go before their time", below)
	}
}

func TestBadConfigurationsAreErrors(t *testing.T) {
	for name, spoil := range map[string]func(*loadgen.Config){
		"no model":         func(c *loadgen.Config) { c.Model = "" },
		"no pattern":       func(c *loadgen.Config) { c.Pattern = "" },
		"no rate":          func(c *loadgen.Config) { c.Rate = 0 },
		"not a rate":       func(c *loadgen.Config) { c.Rate = math.NaN() },
		"endless rate":     func(c *loadgen.Config) { c.Rate = math.Inf(1) },
		"no time":          func(c *loadgen.Config) { c.For = 0 },
		"no workers":       func(c *loadgen.Config) { c.Workers = 0 },
		"no queue":         func(c *loadgen.Config) { c.Queue = 0 },
		"no shards":        func(c *loadgen.Config) { c.Shards = 0 },
		"shard out of all": func(c *loadgen.Config) { c.Shard = 1 },
		"negative skip":    func(c *loadgen.Config) { c.Skip = -1 },
		"no clock":         func(c *loadgen.Config) { c.Clock = nil },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := openLoop()
			spoil(&cfg)
			if _, err := loadgen.Run(t.Context(), cfg, func(context.Context, int, loadgen.Arrival) { t.Error("a command ran") }); err == nil {
				t.Error("no error")
			}
		})
	}
}

func TestModelsAndPatternsAreReadByName(t *testing.T) {
	for _, name := range []string{"open", "closed"} {
		if m, err := loadgen.ParseModel(name); err != nil || string(m) != name {
			t.Errorf("%q gives %q, %v", name, m, err)
		}
	}
	for _, name := range []string{"poisson", "fixed"} {
		if p, err := loadgen.ParsePattern(name); err != nil || string(p) != name {
			t.Errorf("%q gives %q, %v", name, p, err)
		}
	}
	if _, err := loadgen.ParseModel("ajar"); err == nil {
		t.Error("ajar is a model")
	}
	if _, err := loadgen.ParsePattern("burst"); err == nil {
		t.Error("burst is a pattern")
	}
}
