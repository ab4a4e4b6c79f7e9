package scenarios

import (
	"strings"
	"testing"
)

func TestEveryScenarioOfTheLibraryParses(t *testing.T) {
	all, err := Library()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("the library is empty")
	}
}

const head = "version: 1\nname: x\nworkload: {kind: bank, streams: 4}\n"
const load = "load: {model: open, rate: 10, phases: [{name: calm, for: 1s}]}\n"

func TestAMistakeIsReportedWithPlaceAndRemedy(t *testing.T) {
	for _, c := range []struct{ name, src, want string }{
		{"empty file", "", "x.yaml:1:1: the file is empty"},
		{"broken YAML", "version: [1\n", "x.yaml:1:"},
		{"unknown field", head + load + "fauls: []\n", `x.yaml:5:1: fauls: there is no such field; did you mean "faults"?`},
		{"unknown nested field", head + "load: {model: open, rte: 10, phases: [{name: calm, for: 1s}]}\n", `did you mean "rate"?`},
		{"wrong type", head + "load: {model: open, rate: fast, phases: [{name: calm, for: 1s}]}\n", "x.yaml:4:21: load.rate:"},
		{"bad duration", head + "load: {model: open, rate: 1, phases: [{name: calm, for: soon}]}\n", "load.phases[0].for:"},
		{"wrong workload", "version: 1\nname: x\nworkload: {kind: bnk}\n" + load, "x.yaml:3:12: workload.kind:"},
		{"no load and no script", head, "needs a load (random mode) or a script"},
		{"open load without a rate", head + "load: {model: open, phases: [{name: calm, for: 1s}]}\n", "needs a rate above 0"},
		{"unknown command in the mix", "version: 1\nname: x\nworkload: {kind: bank, mix: {withdrw: 1}}\n" + load, `no command "withdrw"; did you mean "withdraw"?`},
		{"fault on nothing", head + load + "faults:\n  - {id: a, kind: latency, on: writer}\n", "x.yaml:6:6: faults[0]: fault a: delay: must be above 0"},
		{"fault after the load", head + load + "faults:\n  - {id: a, kind: down, on: writer, at: 2s, for: 1s}\n", "after the load"},
		{"fault id twice", head + load + "faults:\n  - {id: a, kind: down, on: writer}\n  - {id: a, kind: down, on: writer}\n", "used twice"},
		{"hot set larger than the streams", "version: 1\nname: x\nworkload: {kind: bank, streams: 2, keys: {dist: hot, count: 3}}\n" + load, "workload.keys.count"},
		{"step with two actions", head + "script:\n  sessions: [{name: w, role: writer}]\n  steps:\n    - {session: w, wait: true, release: true}\n", "x.yaml:7:"},
		{"step of a missing session", head + "script:\n  sessions: [{name: w, role: writer}]\n  steps:\n    - {session: v, wait: true}\n", `there is no "v"`},
		{"lift of a fault never switched on", head + "script:\n  sessions: [{name: w, role: writer}]\n  steps:\n    - {lift: a}\n", "no earlier step switched on"},
		{"word that is not in the list", head + load + "faults:\n  - {id: a, kind: latncy, on: writer, delay: 1ms}\n", `"latncy" is none of latency, reset`},
		{"word near one of the list", head + load + "faults:\n  - {id: a, kind: latncy, on: writer, delay: 1ms}\n", `did you mean "latency"?`},
		{"duration in no unit", head + "load: {model: open, rate: 1, phases: [{name: calm, for: soon}]}\n", `"soon" is not right; write a length of time: 250ms`},
		{"no mapping at all", "hello\n", "x.yaml:1:1: this is no scenario"},
		{"fault on a role that is not there", head + load + "faults:\n  - {id: a, kind: down, on: writer-9}\n", `x.yaml:6:25: faults[0].on: there is no role "writer-9"; this scenario has writer-1`},
		{"pause of a role in the runner's process", head + load + "faults:\n  - {id: a, kind: pause-role, on: writer}\n", "write roles: {writerProcess: true}"},
		{"view of another workload", head + "script:\n  sessions: [{name: p, role: projector, view: high-bids}]\n  steps:\n    - {session: p, drain: true}\n", `its view is "balances"`},
		{"a version demanded by a command that has its own", head + "script:\n  sessions: [{name: w, role: writer}]\n  steps:\n    - {session: w, do: {name: deposit, stream: account-a, amount: 1, expected: 4}}\n", "`expected` goes with blind-deposit"},
		{"two documents", head + load + "---\n" + head, "second document"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("x.yaml", []byte(c.src))
			if err == nil {
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got:\n%v\nwant it to contain %q", err, c.want)
			}
		})
	}
}

func TestAllMistakesOfAFileAreReportedAtOnceInItsOrder(t *testing.T) {
	_, err := Parse("x.yaml", []byte(head+load+"faults:\n  - {id: a, kind: latency, on: writer}\n  - {id: b, kind: kill-store, on: writer}\n"))
	if err == nil {
		t.Fatal("accepted")
	}
	a, b := strings.Index(err.Error(), "faults[0]"), strings.Index(err.Error(), "faults[1]")
	if a < 0 || b < 0 || a > b {
		t.Errorf("got:\n%v", err)
	}
}

func TestABlindCommandCanDemandAVersionAndNoneIsNotZero(t *testing.T) {
	const step = "    - {session: w, do: {name: blind-deposit, stream: account-a, amount: 1%s}}\n"
	src := head + "script:\n  sessions: [{name: w, role: writer}]\n  steps:\n"
	for _, expected := range []string{", expected: 0", ", expected: 4", ""} {
		src += strings.Replace(step, "%s", expected, 1)
	}
	s, err := Parse("x.yaml", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	steps := s.Script.Steps
	zero, four, none := steps[0].Do.Expected, steps[1].Do.Expected, steps[2].Do.Expected
	if zero == nil || *zero != 0 || four == nil || *four != 4 || none != nil {
		t.Errorf("got %v, %v, %v", zero, four, none)
	}
}

func TestSharesAreNormalisedAndDefaultsFilledIn(t *testing.T) {
	s, err := Parse("x.yaml", []byte("version: 1\nname: x\nworkload: {kind: bank, mix: {withdraw: 3, deposit: 1}}\n"+load))
	if err != nil {
		t.Fatal(err)
	}
	if s.Workload.Withdraw != 0.75 || s.Workload.Deposit != 0.25 || s.Load.Arrival != "poisson" || s.Load.Try >= s.Load.Deadline {
		t.Errorf("got %+v %+v", s.Workload, s.Load)
	}
}

func FuzzParseNeverPanics(f *testing.F) {
	f.Add([]byte(head + load))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = Parse("x.yaml", b) })
}
