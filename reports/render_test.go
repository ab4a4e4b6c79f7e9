package reports

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/eventproof/eventproof/verdict"
)

func rendered(t *testing.T, render func(io.Writer) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := render(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// hostile puts text that wants to break out into every string that others write.
func hostile() *Result {
	evil := "</title><script>alert(1)</script>\"'`|]]>\n::error file=x::owned\n##[error]owned \x1b[31m\u202e%0A::stop-commands::x"
	r := sampleResult()
	r.Run.Name, r.Run.Args, r.Environment.CPU = evil, []string{evil}, evil
	for i := range r.Trials {
		t := &r.Trials[i]
		t.Description, t.Fence, t.StoreVersion, t.Warnings = evil, evil, evil, []string{evil}
		t.Target += evil
		for k := range t.Faults {
			t.Faults[k].Effect, t.Faults[k].Planned, t.Faults[k].ID = evil, evil, t.Faults[k].ID+evil
		}
		for k := range t.Verdicts {
			v := &t.Verdicts[k]
			v.Reason = evil
			for n := range v.Violations {
				w := &v.Violations[n]
				w.Summary, w.Stream, w.Recheck = evil, evil, evil
				for m := range w.Records {
					w.Records[m].What, w.Records[m].Lane, w.Records[m].Outcome = evil, w.Records[m].Lane+evil, evil
				}
			}
		}
	}
	r.Trials = append(r.Trials, Trial{Target: evil, Scenario: evil, Problem: evil})
	r.Exit = ExitCode(r, true)
	return r
}

func TestNothingInAHistoryCanBreakOutOfARendering(t *testing.T) {
	r := hostile()
	page := rendered(t, func(w io.Writer) error { return HTML(w, r) })
	if strings.Contains(page, "<script>alert") || strings.Count(page, "<title>") != 1 {
		t.Error("markup of a history reached the page")
	}
	if n := strings.Count(page, "<script>"); n != 1 {
		t.Errorf("%d scripts in the page, want its own", n)
	}
	for name, text := range map[string]string{
		"terminal":    rendered(t, func(w io.Writer) error { return Text(w, r, Style{}) }),
		"annotations": rendered(t, func(w io.Writer) error { return Annotations(w, r) }),
		"summary":     rendered(t, func(w io.Writer) error { return Markdown(w, r) }),
		"junit":       rendered(t, func(w io.Writer) error { return JUnit(w, r, true) }),
	} {
		if strings.ContainsAny(text, "\x1b\u202e") {
			t.Errorf("%s: control characters of a history came through", name)
		}
		if strings.Contains(text, "##[") {
			t.Errorf("%s: ##[ came through", name)
		}
		for l := range strings.Lines(text) {
			own := name == "annotations" && (strings.HasPrefix(l, "::error ") || strings.HasPrefix(l, "::warning "))
			if strings.HasPrefix(strings.TrimSpace(l), "::") && !own {
				t.Errorf("%s: a workflow command came through: %q", name, l)
			}
			if !own {
				continue
			}
			props, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(l, "::error "), "::warning "), "::")
			for p := range strings.SplitSeq(props, ",") {
				if key, _, _ := strings.Cut(p, "="); key != "file" && key != "line" && key != "title" || strings.HasPrefix(p, "file=x") {
					t.Errorf("a property was injected: %q", p)
				}
			}
		}
	}
	summary := rendered(t, func(w io.Writer) error { return Markdown(w, r) })
	if strings.Contains(regexp.MustCompile("(?s)```text.*?```").ReplaceAllString(summary, ""), "<script>") {
		t.Error("markup reached the summary")
	}
	var suites junitSuites
	if err := xml.Unmarshal([]byte(rendered(t, func(w io.Writer) error { return JUnit(w, r, true) })), &suites); err != nil {
		t.Errorf("junit: %v", err)
	}
}

func TestThePageAsksForNothingAndNeedsNothing(t *testing.T) {
	page := rendered(t, func(w io.Writer) error { return HTML(w, sampleResult()) })
	for _, ref := range regexp.MustCompile(`(?:src|href|action|data|xlink:href)="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if strings.Contains(ref[1], "//") {
			t.Errorf("the page refers to %q", ref[1])
		}
	}
	for _, bad := range []string{"@import", "url(", "<img", "<link", "<iframe", " style=", " onclick="} {
		if strings.Contains(page, bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
	bare := regexp.MustCompile(`(?s)<style>.*?</style>|<script[^>]*>.*?</script>`).ReplaceAllString(page, "")
	for _, want := range []string{"✗ FAIL", `id="no-skipped-checkpoint--postgres-naive-poll"`, `href="#no-skipped-checkpoint--postgres-naive-poll"`,
		`role="img"`, "<caption>", `scope="col"`, `scope="row"`, `stroke="#2563a8"`, "What this run does not tell you", "no violation in N opportunities", "always the same verdict", "may interleave differently"} {
		if !strings.Contains(bare, want) {
			t.Errorf("without styles and scripts the page lacks %q", want)
		}
	}
	if strings.Contains(page, "proved") {
		t.Error("nothing is ever proved")
	}
	ids := map[string]bool{}
	for _, id := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if ids[id[1]] {
			t.Errorf("id %q is used twice", id[1])
		}
		ids[id[1]] = true
	}
	for _, ref := range regexp.MustCompile(`href="#([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if !ids[ref[1]] {
			t.Errorf("the link #%s leads nowhere", ref[1])
		}
	}
}

func TestALargeRunStaysSmall(t *testing.T) {
	r := sampleResult()
	for i := range r.Trials {
		s := r.Trials[i].Series
		for len(s.OK) < maxSteps {
			s.OK, s.Refused, s.Conflicts, s.Unknown = append(s.OK, 1234.567), append(s.Refused, 1), append(s.Conflicts, 2), append(s.Unknown, 3)
			s.ResponseP50, s.ResponseP99, s.ServiceP99 = append(s.ResponseP50, .0123456), append(s.ResponseP99, .0234567), append(s.ServiceP99, .0198765)
			s.LagP50, s.LagP99 = append(s.LagP50, .0012345), append(s.LagP99, 1.2345)
		}
		for k := range r.Trials[i].Verdicts {
			for n := range r.Trials[i].Verdicts[k].Violations {
				v := &r.Trials[i].Verdicts[k].Violations[n]
				for m := range 5000 {
					v.Records = append(v.Records, verdict.Evidence{Lane: fmt.Sprintf("writer-%d", m%40), StartNS: v.WindowNS[0] + int64(m)*1e4, EndNS: v.WindowNS[0] + int64(m)*1e4 + 5e5, What: strings.Repeat("append ", 10), Outcome: "ok"})
				}
			}
		}
	}
	if n := len(rendered(t, func(w io.Writer) error { return HTML(w, r) })); n > 2<<20 {
		t.Errorf("the page has %d bytes", n)
	}
}

func TestReduceKeepsThePeaks(t *testing.T) {
	values := make([]float64, 10*maxPoints)
	values[4321], values[17] = 99, -5
	got := reduce(values, 1)
	low, high := 0.0, 0.0
	for i, p := range got {
		low, high = min(low, p[1]), max(high, p[1])
		if i > 0 && p[0] < got[i-1][0] {
			t.Fatal("points are out of order")
		}
	}
	if low != -5 || high != 99 || len(got) > maxPoints {
		t.Errorf("%d points from %v to %v", len(got), low, high)
	}
}

func TestTheSummaryIsCutAtSectionsAndSaysSo(t *testing.T) {
	r := sampleResult()
	res := r.Trials[2].Verdicts[11]
	for i := range 200 {
		more := res
		more.Invariant = fmt.Sprintf("rule-%d", i)
		r.Trials[2].Verdicts = append(r.Trials[2].Verdicts, more)
	}
	s := rendered(t, func(w io.Writer) error { return Markdown(w, r) })
	if len(s) > summaryLimit || !strings.Contains(s, "Truncated at 64 KiB") || strings.Count(s, "<details>") != strings.Count(s, "</details>") {
		t.Errorf("%d bytes, %d of %d details closed", len(s), strings.Count(s, "</details>"), strings.Count(s, "<details>"))
	}
	if !strings.HasPrefix(s, "### ❌ eventproof FAIL") || !strings.Contains(s, "result.json") {
		t.Errorf("head and foot are missing: %.80q", s)
	}
}

func TestJUnitCountsAndMapsEveryVerdict(t *testing.T) {
	r := green()
	r.Trials[0].Verdicts = nil
	for v := verdict.NotExercised; v <= verdict.Error; v++ {
		r.Trials[0].Verdicts = append(r.Trials[0].Verdicts, verdict.Result{Invariant: v.String(), Verdict: v, Required: true})
	}
	for strict, want := range map[bool][4]int{false: {6, 1, 1, 3}, true: {6, 3, 1, 1}} {
		var s junitSuites
		if err := xml.Unmarshal([]byte(rendered(t, func(w io.Writer) error { return JUnit(w, r, strict) })), &s); err != nil {
			t.Fatal(err)
		}
		if got := [4]int{s.Tests, s.Failures, s.Errors, s.Skipped}; got != want {
			t.Errorf("strict %v: tests, failures, errors, skipped = %v, want %v", strict, got, want)
		}
	}
}

func TestSeedsOfOneColumnAreJudgedByTheWorst(t *testing.T) {
	r := green()
	second := r.Trials[0]
	second.Seed = 2
	second.Verdicts = []verdict.Result{{Invariant: "gapless-versions", Verdict: verdict.Violated, Count: 4}}
	r.Trials = append(r.Trials, second)
	v := newView(r)
	if len(v.columns) != 1 {
		t.Fatalf("%d columns", len(v.columns))
	}
	if c := v.columns[0].cell("gapless-versions"); c.text() != "✗ violated 4" {
		t.Errorf("cell = %q", c.text())
	}
}

func TestMetricsAreValidExpositionText(t *testing.T) {
	text := rendered(t, func(w io.Writer) error { return Prometheus(w, sampleResult()) })
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"eventproof_commands_total", "eventproof_command_duration_seconds", "eventproof_append_conflicts_total",
		"eventproof_loadgen_start_delay_seconds", "eventproof_projection_lag_seconds", "eventproof_invariant_checks_total",
		"eventproof_invariant_violations_total", "eventproof_history_ops_total", "eventproof_build_info"} {
		if families[want] == nil {
			t.Errorf("%s is missing", want)
		}
	}
	if strings.Contains(text, "account-1") {
		t.Error("a stream became a label")
	}
}

// parseBench reads the Go benchmark format: configuration lines, then results under that configuration.
func parseBench(t *testing.T, text string) (results []map[string]string) {
	t.Helper()
	config := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			continue
		}
		if key, value, ok := strings.Cut(line, ": "); ok && !strings.HasPrefix(line, "Benchmark") {
			if !regexp.MustCompile(`^[a-z][a-z0-9-]*$`).MatchString(key) {
				t.Errorf("bad key %q", key)
			}
			config[key] = value
			continue
		}
		f := strings.Fields(line)
		if !regexp.MustCompile(`^Benchmark[A-Z]`).MatchString(f[0]) || len(f)%2 != 0 || len(f) < 4 {
			t.Errorf("bad line %q", line)
			continue
		}
		if _, err := strconv.Atoi(f[1]); err != nil {
			t.Error(err)
		}
		res := map[string]string{"name": f[0], "target": config["target"]}
		for i := 2; i < len(f); i += 2 {
			if _, err := strconv.ParseFloat(f[i], 64); err != nil {
				t.Error(err)
			}
			res[f[i+1]] = f[i]
		}
		results = append(results, res)
	}
	return results
}

func TestBenchReadsBack(t *testing.T) {
	results := parseBench(t, rendered(t, func(w io.Writer) error { return Bench(w, sampleResult()) }))
	if len(results) != 4*4 {
		t.Fatalf("%d results, want four a trial", len(results))
	}
	first := results[0]
	if first["target"] != "postgres/advisory-lock" || first["name"] != "BenchmarkTrial/target=postgres~advisory-lock/scenario=hot-account" ||
		first["p99-sec"] != "0.0841" || first["commands/sec"] != "1742.3" || first["lag-p99-sec"] != "0.91" {
		t.Errorf("first = %v", first)
	}
}

func TestTheTerminalTextFitsAndHasColourOnlyWhenAsked(t *testing.T) {
	r := sampleResult()
	for _, w := range []int{60, 80, 120} {
		text := rendered(t, func(out io.Writer) error { return Text(out, r, Style{Width: w}) })
		if strings.Contains(text, "\x1b") {
			t.Error("colour without being asked")
		}
		in := false
		for line := range strings.Lines(text) {
			in = strings.HasPrefix(line, "INVARIANTS") || in && line != "NOT DECIDED\n"
			if in && !strings.HasPrefix(line, "INVARIANTS") && width(line) > w+1 {
				t.Errorf("at %d columns: %q", w, line)
			}
		}
	}
	coloured := rendered(t, func(out io.Writer) error {
		return Text(out, r, Style{Color: true, Width: 120, Folder: "results/latest"})
	})
	if !strings.Contains(coloured, "\x1b[31m✗ violated 3") {
		t.Error("no colour although asked")
	}
	if plainText := regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(coloured, ""); !strings.HasSuffix(plainText, "report: results/latest/report.html   (exit 1)\n") {
		t.Errorf("closing line: %q", plainText[len(plainText)-120:])
	}
}

func TestTimelinesSurviveOddWitnesses(t *testing.T) {
	for name, v := range map[string]verdict.Violation{
		"nothing":       {Summary: "x"},
		"no window":     {Records: []verdict.Evidence{{Lane: "a", StartNS: 5, EndNS: 9, What: "w"}}},
		"one instant":   {WindowNS: [2]int64{7, 7}, Records: []verdict.Evidence{{Lane: "a", StartNS: 7, EndNS: 7, What: "w"}}},
		"open":          {WindowNS: [2]int64{0, 10}, Records: []verdict.Evidence{{Lane: "a", StartNS: 7, EndNS: -1, What: "w"}}},
		"only a fault":  {Records: []verdict.Evidence{{Lane: "fault", StartNS: 7, EndNS: -1, What: "w"}}},
		"ends too soon": {WindowNS: [2]int64{0, 10}, Records: []verdict.Evidence{{Lane: "a", StartNS: 7, EndNS: 3, What: strings.Repeat("long ", 100)}}},
	} {
		t.Run(name, func(t *testing.T) {
			lines := timeline(&v, 100)
			if (len(lines) > 0) != (len(v.Records) > 0) {
				t.Errorf("lines = %q", lines)
			}
			if p := string(drawWitness("id", &v)); strings.Contains(p, "NaN") || strings.Contains(p, "Inf") || strings.Contains(p, `width="-`) {
				t.Error(p)
			}
		})
	}
}

func TestAnEmptyResultRenders(t *testing.T) {
	r := &Result{Schema: Schema}
	r.Exit = ExitCode(r, false)
	dir := t.TempDir()
	if err := WriteAll(dir, r, Options{}); err != nil {
		t.Fatal(err)
	}
	if text := rendered(t, func(w io.Writer) error { return Text(w, r, Style{}) }); !strings.Contains(text, "UNDECIDED") {
		t.Error(text)
	}
}

func TestWriteAllWritesEveryFileAndReadsBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	r := sampleResult()
	if err := os.MkdirAll(filepath.Join(dir, "violations"), 0o755); err != nil {
		t.Fatal(err)
	}
	stale := filepath.Join(dir, "violations", "gone--x.md")
	if err := os.WriteFile(stale, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := WriteAll(dir, r, Options{Strict: true}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"result.json", "report.html", "junit.xml", "summary.md", "metrics.prom", "bench.txt", "env.json",
		"violations/no-skipped-checkpoint--postgres-naive-poll.md", "violations/projection-equals-fold--postgres-naive-poll.md"} {
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Stat(stale); err == nil {
		t.Error("the page of a violation that is gone is still there")
	}
	again, err := Read(filepath.Join(dir, "result.json"))
	if err != nil {
		t.Fatal(err)
	}
	one, two := rendered(t, func(w io.Writer) error { return JSON(w, r) }), rendered(t, func(w io.Writer) error { return JSON(w, again) })
	if one != two {
		t.Error("result.json changes when it is read and written again")
	}
	if hidden, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(hidden) > 0 {
		t.Errorf("left over: %v %v", hidden, err)
	}
}

func TestAFileThatCannotBeWrittenLeavesTheOldOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "result.json")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	full := fmt.Errorf("no space left on device")
	err := WriteFile(path, func(w io.Writer) error {
		if _, err := io.WriteString(w, "half"); err != nil {
			return err
		}
		return full
	})
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("err = %v", err)
	}
	if b, _ := os.ReadFile(path); string(b) != "old" {
		t.Errorf("the file holds %q", b)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("left over: %v", entries)
	}
	if err := WriteAll(filepath.Join(path, "below-a-file"), sampleResult(), Options{}); err == nil {
		t.Error("a folder below a file was made")
	}
}

func TestLatestFollowsTheNewestRunAndTouchesNothingElse(t *testing.T) {
	parent := t.TempDir()
	for _, name := range []string{"one", "two"} {
		if err := os.Mkdir(filepath.Join(parent, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := Latest(filepath.Join(parent, name) + "/"); err != nil {
			t.Fatal(err)
		}
		if got, err := os.Readlink(filepath.Join(parent, "latest")); err != nil || got != name {
			t.Errorf("latest → %q, %v; want %q", got, err, name)
		}
	}
	link := filepath.Join(parent, "latest")
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(link, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Latest(filepath.Join(parent, "one")); err == nil {
		t.Error("a folder named latest was replaced")
	}
}

func TestResultsMatchThePublishedSchema(t *testing.T) {
	text, err := ResultSchema()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("result.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("result.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]*Result{"sample": sampleResult(), "hostile": hostile(), "empty": {Schema: Schema}} {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(rendered(t, func(w io.Writer) error { return JSON(w, r) })))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(v); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	bad, err := jsonschema.UnmarshalJSON(strings.NewReader(`{"schema":"eventproof.result/v1","trials":3}`))
	if err != nil {
		t.Fatal(err)
	}
	if schema.Validate(bad) == nil {
		t.Error("the schema accepts what is no result")
	}
}

func TestReadRefusesWhatIsNoResult(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"empty": "", "other": `{"schema":"x/v1"}`, "newer": `{"schema":"eventproof.result/v9"}`} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNumbersAreWrittenForPeople(t *testing.T) {
	for got, want := range map[string]string{
		count(1234567): "1,234,567", count(-1000): "-1,000", count(12): "12",
		duration(0): "0", duration(0.0000123): "12.3 µs", duration(0.0841): "84.1 ms", duration(0.9996): "1.00 s", duration(-0.002): "-2.00 ms",
		duration(184.2): "3m04s", clockTime(4.25): "4.2s", clockTime(3725): "1h02m05s", percent(0.1433): "14.3 %", rate(1742.3): "1,742",
		plain("a\nb\x1b[1m"): "a b[1m", plain(" ::error::x"): ": :error::x", Anchor("no-overdraft", "a/B c"): "no-overdraft--a-b-c",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestTheTerminalTellsFewFaultsOneByOneAndOfManyThoseThatDidNotBite(t *testing.T) {
	text := func(faults int) string {
		r := sampleResult()
		for i := range r.Trials {
			r.Trials[i].Faults = nil
		}
		for i := range faults {
			r.Trials[0].Faults = append(r.Trials[0].Faults, Fault{ID: fmt.Sprintf("f%d", i), Kind: "drop-reply", On: "writer-1", Observed: i != 1})
		}
		var b bytes.Buffer
		if err := Text(&b, r, Style{}); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	few, many := text(fullFaults), text(fullFaults+1)
	if !strings.Contains(few, "bit          f0:") || !strings.Contains(few, "did not bite f1:") {
		t.Errorf("few faults are not told one by one:\n%s", few)
	}
	if strings.Contains(many, " f0:") || !strings.Contains(many, "did not bite f1:") || !strings.Contains(many, fmt.Sprintf("○ %d of %d bit", fullFaults, fullFaults+1)) {
		t.Errorf("of many faults those that did not bite are not told:\n%s", many)
	}
	if strings.Contains(text(0), "FAULTS") {
		t.Error("a title without faults")
	}
}
