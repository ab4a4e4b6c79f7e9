package reports

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/eventproof/eventproof/verdict"
)

// causes of each exit code, as edits of a result that would end with 0.
var causes = map[int]func(*Result){
	ExitOK: func(*Result) {},
	ExitViolated: func(r *Result) {
		r.Trials[0].Verdicts = append(r.Trials[0].Verdicts, verdict.Result{Invariant: "no-overdraft", Verdict: verdict.Violated, Count: 2})
	},
	ExitUndecided: func(r *Result) {
		r.Trials[0].Verdicts = append(r.Trials[0].Verdicts, verdict.Result{Invariant: "exercised", Verdict: verdict.NotExercised, Required: true, Reason: "f1 did not bite"})
	},
	ExitGate: func(r *Result) { r.Gates = append(r.Gates, Gate{Metric: "m", Op: "<="}) },
	ExitEnvironment: func(r *Result) {
		r.Trials = append(r.Trials, Trial{Target: "postgres/x", Problem: "no server", ProblemKind: ProblemEnvironment})
	},
	ExitInternal:    func(r *Result) { r.Trials = append(r.Trials, Trial{Target: "postgres/x", Problem: "checker panicked"}) },
	ExitInterrupted: func(r *Result) { r.Run.Interrupted = "SIGINT" },
	ExitTerminated:  func(r *Result) { r.Run.Interrupted = "SIGTERM" },
}

func green() *Result {
	return &Result{Trials: []Trial{{Target: "memory/reference", Scenario: "hot", Verdicts: []verdict.Result{
		{Invariant: "gapless-versions", Verdict: verdict.Holds, Required: true, Evidence: map[string]int64{"opportunities": 10}}}}}}
}

func TestOfEveryPairOfReasonsThePrecedentOneDecides(t *testing.T) {
	precedence := []int{ExitViolated, ExitTerminated, ExitInterrupted, ExitInternal, ExitEnvironment, ExitUndecided, ExitGate, ExitOK}
	for i, stronger := range precedence {
		for k, weaker := range precedence[i:] {
			if stronger == ExitTerminated && weaker == ExitInterrupted {
				continue // one run is interrupted by one signal
			}
			for _, order := range [][2]int{{stronger, weaker}, {weaker, stronger}} {
				t.Run(fmt.Sprintf("%d and %d", order[0], order[1]), func(t *testing.T) {
					r := green()
					causes[order[0]](r)
					if k > 0 {
						causes[order[1]](r)
					}
					got := ExitCode(r, false)
					if got.Code != stronger {
						t.Errorf("code %d, want %d: %q", got.Code, stronger, got.Reasons)
					}
					if want := boolInt(stronger != ExitOK) + boolInt(k > 0 && weaker != ExitOK); len(got.Reasons) != want {
						t.Errorf("%d reasons, want %d: %q", len(got.Reasons), want, got.Reasons)
					}
				})
			}
		}
	}
}

func TestExitCodeOfSingleVerdicts(t *testing.T) {
	for _, c := range []struct {
		verdict      verdict.Verdict
		required     bool
		code, strict int
	}{
		{verdict.Holds, true, 0, 0},
		{verdict.Violated, false, 1, 1},
		{verdict.Error, false, 70, 70},
		{verdict.Inconclusive, true, 2, 2},
		{verdict.Inconclusive, false, 0, 2},
		{verdict.NotExercised, true, 2, 2},
		{verdict.NotExercised, false, 0, 0},
		{verdict.NotPromised, false, 0, 0},
		{verdict.NotPromised, true, 2, 2},
	} {
		r := green()
		r.Trials[0].Verdicts = append(r.Trials[0].Verdicts, verdict.Result{Invariant: "x", Verdict: c.verdict, Required: c.required})
		if got := ExitCode(r, false).Code; got != c.code {
			t.Errorf("%s (required %v): %d, want %d", c.verdict, c.required, got, c.code)
		}
		if got := ExitCode(r, true).Code; got != c.strict {
			t.Errorf("%s (required %v) strict: %d, want %d", c.verdict, c.required, got, c.strict)
		}
	}
}

func TestARunThatJudgedNothingIsNotGreen(t *testing.T) {
	for name, r := range map[string]*Result{"no trial": {}, "no verdict": {Trials: []Trial{{Target: "x/y"}}}} {
		if got := ExitCode(r, false); got.Code != ExitUndecided {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestGatesCompareWhatWasMeasured(t *testing.T) {
	m := sampleMetrics(false)
	specs := []GateSpec{
		{Metric: "latency_s.response.p99", Op: "<=", Limit: 0.0841},
		{Metric: "latency_s.response.p99", Op: "<", Limit: 0.0841},
		{Metric: "contention.conflict_ratio", Op: "<=", Limit: 0.1},
		{Metric: "throughput.commands_per_s", Op: ">=", Limit: 1000},
		{Metric: "projection_lag_s.max", Op: ">", Limit: 3},
		{Metric: "commands.conflict_exhausted", Op: "<=", Limit: 150},
		{Metric: "never_visible", Op: "<=", Limit: 0},
	}
	gates, err := EvaluateGates("hot", "postgres/x", specs, m)
	if err != nil {
		t.Fatal(err)
	}
	var got []bool
	for _, g := range gates {
		got = append(got, g.OK)
	}
	if want := []bool{true, false, false, true, true, false, true}; !reflect.DeepEqual(got, want) {
		t.Errorf("met = %v, want %v", got, want)
	}
}

func TestAMetricThatWasNotMeasuredMissesItsGate(t *testing.T) {
	for _, path := range []string{"latency_s.response.p99", "projection_lag_s.p50", "recovery_s", "contention.conflict_ratio", "throughput.commands_per_s", "never_visible"} {
		gates, err := EvaluateGates("hot", "x/y", []GateSpec{{Metric: path, Op: "<=", Limit: 1}}, Metrics{})
		if err != nil {
			t.Fatal(err)
		}
		if g := gates[0]; g.OK || g.Value != nil {
			t.Errorf("%s: ok %v, value %v; absent is not zero", path, g.OK, g.Value)
		}
	}
}

func TestABadGateIsNamedWithTheValidOnes(t *testing.T) {
	err := CheckGate(GateSpec{Metric: "latency.response.p99", Op: "<="})
	var unknown *UnknownMetricError
	if !errors.As(err, &unknown) || unknown.Valid[0] != "latency_s.response.p99" || !strings.Contains(err.Error(), "throughput.commands_per_s") {
		t.Errorf("err = %v", err)
	}
	for _, path := range []string{"", "latency_s", "latency_s.response", "commands.refused_by_code", "valid", "phases"} {
		if err := CheckGate(GateSpec{Metric: path, Op: "<="}); !errors.As(err, &unknown) {
			t.Errorf("%q: err = %v", path, err)
		}
	}
	var op *GateOpError
	if err := CheckGate(GateSpec{Metric: "recovery_s", Op: "=="}); !errors.As(err, &op) {
		t.Errorf("err = %v", err)
	}
	for _, path := range MetricPaths() {
		if err := CheckGate(GateSpec{Metric: path, Op: ">="}); err != nil {
			t.Error(err)
		}
	}
}
