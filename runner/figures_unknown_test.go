package runner_test

import (
	"slices"
	"testing"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/runner"
	"github.com/eventproof/eventproof/verdict"
)

// unknowns counts what ended unknown in a history, by what came of it.
type unknowns struct {
	// Tries whose caller never learned how they ended, and of which the fault that did it knows.
	landed, absent int
	// Commands whose last answer is "unknown", by whether an event of theirs is in the final log.
	commandsLanded, commandsAbsent int
	// contradicted are tries of which the fault saw the commit's answer and whose event is not in the log.
	contradicted int
	fenced       bool // the log is final: what was open is told by it
}

func countUnknowns(recs []history.Record) unknowns {
	type try struct {
		write  uint64
		invoke int64
	}
	var (
		u       unknowns
		audited bool
		open    = map[uint64]try{} // by attempt: invoked, not answered yet
		lost    = map[string][]history.Return{}
		tries   = map[uint64]try{}
		first   = map[uint64]eventstore.EventID{} // by write
		logged  = map[eventstore.EventID]bool{}
		did     = map[string]bool{} // by command
		command = map[uint64]string{}
		ends    = map[string]history.Result{}
		bites   []*history.Bite
	)
	for _, rec := range recs {
		switch rec := rec.(type) {
		case *history.CallStart:
			command[rec.Call] = rec.CommandID
		case *history.CallEnd:
			ends[command[rec.Call]] = rec.Result
		case *history.Write:
			first[rec.Write] = rec.Events[0].ID
		case *history.Invoke:
			open[rec.Attempt] = try{rec.Write, rec.T}
		case *history.Return:
			tries[rec.Attempt] = open[rec.Attempt]
			if rec.Outcome == eventstore.Unknown {
				lost[rec.Session] = append(lost[rec.Session], *rec)
			}
		case *history.Bite:
			bites = append(bites, rec)
		case *history.LoggedEvent:
			logged[rec.ID] = true
			did[rec.Meta.CommandID] = true
		case *history.Fence:
			u.fenced = rec.Fenced
		case *history.Audit:
			audited = true
		}
	}
	u.fenced = u.fenced && audited
	for _, b := range bites {
		if b.Landed == history.LandedUnknown {
			continue
		}
		// The try that the fault hit was on this connection at that time. A held reply bites when it is let go, or its
		// connection is cut: it was on its way from Since on.
		since := b.T
		if b.Since > 0 {
			since = b.Since
		}
		for i, r := range lost[b.Session] {
			if t := tries[r.Attempt]; t.invoke <= since && since <= r.T {
				lost[b.Session] = slices.Delete(lost[b.Session], i, i+1) // one bite for one try
				if b.Landed == history.LandedNo {
					u.absent++
					break
				}
				u.landed++
				if !logged[first[t.write]] {
					u.contradicted++
				}
				break
			}
		}
	}
	for id, result := range ends {
		switch {
		case result != history.ResultUnknown:
		case did[id]:
			u.commandsLanded++
		default:
			u.commandsAbsent++
		}
	}
	return u
}

// BenchmarkUnknownOutcomes runs the scenario unknown-outcomes on both variants, on a server of our own. Targets: at
// least 100 unknown tries that landed and 100 that did not, told by the fault record; at least 20 commands that ended
// unknown each way; all resolved by the final log; every required verdict holds.
func BenchmarkUnknownOutcomes(b *testing.B) {
	if testing.Short() {
		b.Skip("SKIPPED in short mode: the scenario takes 41 s on each variant")
	}
	server := nativeServer(b)
	sc := findScenario(b, "unknown-outcomes")
	for _, name := range []string{"postgres/advisory-lock", "postgres/xid-horizon"} {
		b.Run(name, func(b *testing.B) {
			printMachine(b)
			for range b.N {
				trial, path := conduct(b, runner.Spec{Scenario: sc, Target: findTarget(b, name), Seed: 1}, server, runner.Options{})
				required := map[string]bool{}
				for _, e := range sc.Expect {
					required[e.Invariant] = true
				}
				holds := 0
				for _, v := range trial.Verdicts {
					switch {
					case v.Verdict == verdict.Holds:
						holds++
					case required[v.Invariant] || v.Verdict == verdict.Violated || v.Verdict == verdict.Error:
						b.Errorf("%s: %s %s", v.Invariant, v.Verdict, v.Reason)
					}
				}
				u := countUnknowns(readHistory(b, path))
				b.ReportMetric(float64(u.landed), "tries-landed")
				b.ReportMetric(float64(u.absent), "tries-absent")
				b.ReportMetric(float64(u.commandsLanded), "commands-landed")
				b.ReportMetric(float64(u.commandsAbsent), "commands-absent")
				b.Logf("unknown tries, by the fault record: %d landed, %d did not; commands that ended unknown: %d landed, %d did not; %d rules hold",
					u.landed, u.absent, u.commandsLanded, u.commandsAbsent, holds)
				if u.landed < 100 || u.absent < 100 || u.commandsLanded < 20 || u.commandsAbsent < 20 {
					b.Errorf("too few unknown outcomes: %+v", u)
				}
				if !u.fenced || u.contradicted > 0 {
					b.Errorf("not all is resolved, or the log contradicts the fault record: %+v", u)
				}
			}
		})
	}
}
