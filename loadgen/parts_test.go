package loadgen_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/eventproof/eventproof/loadgen"
)

func offsets(p loadgen.Pattern, rate float64, end time.Duration, seed uint64) []time.Duration {
	var out []time.Duration
	for n, at := range loadgen.Schedule(p, rate, end, loadgen.Seeds{Root: seed}.Stream("arrivals")) {
		if n != uint64(len(out)) {
			panic("arrivals are not numbered one by one")
		}
		out = append(out, at)
	}
	return out
}

// dispersion is the variance of the counts in windows of equal length over their mean: 1 for a Poisson
// process, near 0 for equal gaps.
func dispersion(at []time.Duration, window, end time.Duration) float64 {
	counts := make([]float64, end/window)
	for _, t := range at {
		counts[t/window]++
	}
	mean := float64(len(at)) / float64(len(counts))
	sum := 0.0
	for _, c := range counts {
		sum += (c - mean) * (c - mean)
	}
	return sum / float64(len(counts)-1) / mean
}

func TestPoissonArrivalsHaveTheRightMeanSpreadAndGaps(t *testing.T) {
	const rate, end = 1000.0, 40 * time.Second
	for seed := range uint64(5) {
		at := offsets(loadgen.Poisson, rate, end, seed)
		n := float64(len(at))
		if want := rate * end.Seconds(); math.Abs(n-want) > 4*math.Sqrt(want) {
			t.Errorf("seed %d: %v arrivals, want about %v", seed, n, want)
		}
		// With 400 windows the index of dispersion has a standard deviation of 0.07.
		if d := dispersion(at, 100*time.Millisecond, end); d < 0.72 || d > 1.28 {
			t.Errorf("seed %d: index of dispersion %.3f, want 1", seed, d)
		}
		gaps := make([]float64, len(at)-1)
		for i := range gaps {
			gaps[i] = (at[i+1] - at[i]).Seconds()
		}
		slices.Sort(gaps)
		furthest := 0.0 // Kolmogorov-Smirnov distance to the exponential distribution
		for i, g := range gaps {
			furthest = max(furthest, math.Abs(1-math.Exp(-rate*g)-float64(i)/float64(len(gaps))))
		}
		if limit := 1.95 / math.Sqrt(n); furthest > limit { // the 0.1 % point
			t.Errorf("seed %d: gaps are %.4f from exponential, limit %.4f", seed, furthest, limit)
		}
	}
}

func TestFixedArrivalsHaveEqualGaps(t *testing.T) {
	at := offsets(loadgen.Fixed, 300, 10*time.Second, 1)
	if len(at) != 3000 || at[0] != 0 {
		t.Fatalf("%d arrivals, the first at %v", len(at), at[0])
	}
	for i := range len(at) - 1 {
		if gap := at[i+1] - at[i]; gap < 3333332 || gap > 3333335 {
			t.Fatalf("gap %d is %v", i, gap)
		}
	}
	if d := dispersion(at, 100*time.Millisecond, 10*time.Second); d > 0.01 {
		t.Errorf("index of dispersion %.3f", d)
	}
}

func TestASeedGivesTheSameArrivalsAndAnotherOthers(t *testing.T) {
	a, b, other := offsets(loadgen.Poisson, 100, time.Second, 1), offsets(loadgen.Poisson, 100, time.Second, 1), offsets(loadgen.Poisson, 100, time.Second, 2)
	if !slices.Equal(a, b) || slices.Equal(a, other) {
		t.Error("arrivals don't follow the seed")
	}
}

func TestNamedSourcesAreIndependent(t *testing.T) {
	seeds := loadgen.Seeds{Root: 7}
	x, y := seeds.Stream("keys"), seeds.Stream("amounts")
	const n = 20000
	var sx, sy, sxy float64
	for range n {
		a, b := x.Float64()-0.5, y.Float64()-0.5
		sx, sy, sxy = sx+a, sy+b, sxy+a*b
	}
	if correlation := 12 * sxy / n; math.Abs(correlation) > 4/math.Sqrt(n) {
		t.Errorf("correlation %.4f", correlation)
	}
	// The first draws of neighbouring sources must be as uniform as one source.
	bins := make([]float64, 20)
	for i := range uint64(n) {
		bins[int(seeds.At("commands", i).Float64()*20)]++
	}
	if c := chiSquare(bins, func(int) float64 { return n / 20.0 }); c > 43.8 { // 19 degrees, 0.1 %
		t.Errorf("chi square %.1f", c)
	}
	if seeds.Stream("a").Uint64() != seeds.At("a", 0).Uint64() || seeds.At("a", 0).Uint64() == seeds.At("a", 1).Uint64() {
		t.Error("sources don't follow name and number")
	}
}

func chiSquare(observed []float64, expected func(i int) float64) float64 {
	sum := 0.0
	for i, o := range observed {
		e := expected(i)
		sum += (o - e) * (o - e) / e
	}
	return sum
}

func TestKeysAreDrawnInProportionToTheirShares(t *testing.T) {
	const n, draws = 50, 50_000
	zipf := func(s float64) func(i int) float64 {
		norm := 0.0
		for i := 1; i <= n; i++ {
			norm += 1 / math.Pow(float64(i), s)
		}
		return func(i int) float64 { return 1 / math.Pow(float64(i+1), s) / norm }
	}
	hot := func(i int) float64 {
		if i < 5 {
			return 0.8 / 5
		}
		return 0.2 / 45
	}
	type row struct {
		name  string
		keys  func() (loadgen.Keys, error)
		share func(i int) float64
	}
	rows := []row{
		{"uniform", func() (loadgen.Keys, error) { return loadgen.Uniform(n) }, zipf(0)},
		{"hot set", func() (loadgen.Keys, error) { return loadgen.Hot(n, 5, 0.8) }, hot},
		{"hot set of all", func() (loadgen.Keys, error) { return loadgen.Hot(n, n, 0.3) }, zipf(0)},
	}
	for _, s := range []float64{0, 0.5, 0.99, 1, 1.2, 2} {
		rows = append(rows, row{fmt.Sprintf("zipf %v", s), func() (loadgen.Keys, error) { return loadgen.Zipf(n, s) }, zipf(s)})
	}
	for _, c := range rows {
		t.Run(c.name, func(t *testing.T) {
			keys, err := c.keys()
			if err != nil || keys.Len() != n {
				t.Fatal(keys.Len(), err)
			}
			r := loadgen.Seeds{Root: 3}.Stream(c.name)
			counts := make([]float64, n)
			for range draws {
				counts[keys.Pick(r)]++
			}
			if x := chiSquare(counts, func(i int) float64 { return draws * c.share(i) }); x > 85.4 { // 49 degrees, 0.1 %
				t.Errorf("chi square %.1f", x)
			}
			for i := range n {
				if math.Abs(keys.Share(i)-c.share(i)) > 1e-12 {
					t.Fatalf("share of key %d is %v, want %v", i, keys.Share(i), c.share(i))
				}
			}
		})
	}
}

func TestAHotSetWithAllOrNothingOfTheLoadKeepsToIt(t *testing.T) {
	r := loadgen.Seeds{Root: 3}.Stream("keys")
	for _, c := range []struct {
		share    float64
		from, to int
	}{{1, 0, 4}, {0, 5, 9}} {
		keys, err := loadgen.Hot(10, 5, c.share)
		if err != nil {
			t.Fatal(err)
		}
		for range 10000 {
			if k := keys.Pick(r); k < c.from || k > c.to {
				t.Fatalf("share %v gives key %d", c.share, k)
			}
		}
	}
}

func TestImpossibleKeysAreErrors(t *testing.T) {
	for name, make := range map[string]func() (loadgen.Keys, error){
		"none":              func() (loadgen.Keys, error) { return loadgen.Uniform(0) },
		"too many":          func() (loadgen.Keys, error) { return loadgen.Uniform(1_000_001) },
		"negative exponent": func() (loadgen.Keys, error) { return loadgen.Zipf(5, -0.1) },
		"no exponent":       func() (loadgen.Keys, error) { return loadgen.Zipf(5, math.NaN()) },
		"infinite exponent": func() (loadgen.Keys, error) { return loadgen.Zipf(5, math.Inf(1)) },
		"empty hot set":     func() (loadgen.Keys, error) { return loadgen.Hot(5, 0, 0.5) },
		"hot set too large": func() (loadgen.Keys, error) { return loadgen.Hot(5, 6, 0.5) },
		"share above 1":     func() (loadgen.Keys, error) { return loadgen.Hot(5, 1, 1.1) },
		"no share":          func() (loadgen.Keys, error) { return loadgen.Hot(5, 1, math.NaN()) },
	} {
		if _, err := make(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestAnyKeysPickWithinTheirRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 2000).Draw(t, "keys")
		keys, err := loadgen.Zipf(n, rapid.Float64Range(0, 40).Draw(t, "exponent"))
		if err != nil {
			t.Fatal(err)
		}
		r := loadgen.Seeds{Root: rapid.Uint64().Draw(t, "seed")}.Stream("keys")
		for range 100 {
			if k := keys.Pick(r); k < 0 || k >= n {
				t.Fatalf("key %d of %d", k, n)
			}
		}
	})
}

func TestAHistogramClampsAndCountsWhatIsOutOfRange(t *testing.T) {
	h := loadgen.NewHistogram()
	for _, d := range []time.Duration{-time.Second, 0, time.Microsecond, time.Second, loadgen.HistogramMax, time.Hour} {
		h.Record(d)
	}
	if below, above := h.Clamped(); below != 1 || above != 1 || h.Count() != 6 {
		t.Errorf("%d below, %d above, %d in all", below, above, h.Count())
	}
	if got := h.Max(); math.Abs(float64(got-loadgen.HistogramMax)) > 0.001*float64(loadgen.HistogramMax) {
		t.Errorf("max %v", got)
	}
	if got := loadgen.NewHistogram(); got.Quantile(0.99) != 0 || got.Max() != 0 || got.Mean() != 0 || got.Count() != 0 {
		t.Error("an empty histogram has values")
	}
}

func TestMergedHistogramsAreTheHistogramOfAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all, parts := loadgen.NewHistogram(), []*loadgen.Histogram{loadgen.NewHistogram(), loadgen.NewHistogram()}
		values := rapid.SliceOfN(rapid.Int64Range(-10, int64(20*time.Minute)), 1, 50).Draw(t, "durations")
		for i, v := range values {
			all.Record(time.Duration(v))
			parts[i%2].Record(time.Duration(v))
		}
		parts[0].Merge(parts[1])
		ab, aa := all.Clamped()
		pb, pa := parts[0].Clamped()
		if parts[0].Count() != all.Count() || ab != pb || aa != pa || parts[0].Max() != all.Max() || parts[0].Mean() != all.Mean() {
			t.Fatal("parts and whole differ")
		}
		for _, q := range []float64{0, 0.5, 0.95, 0.99, 1} {
			if parts[0].Quantile(q) != all.Quantile(q) {
				t.Fatalf("quantile %v: %v and %v", q, parts[0].Quantile(q), all.Quantile(q))
			}
		}
		slices.Sort(values)
		want := min(max(values[len(values)-1], 0), int64(loadgen.HistogramMax))
		if got := int64(all.Quantile(1)); math.Abs(float64(got-want)) > 0.001*float64(want)+1 {
			t.Fatalf("quantile 1 is %d, want %d", got, want)
		}
	})
}
