package runner_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/loadgen"
	"github.com/eventproof/eventproof/runner"
)

// served is one command as the history has it.
type served struct{ intended, started, ended int64 }

// stalled is what a history says of a load that one pause of the store has met.
type stalled struct {
	from, to int64 // the pause
	certain  int64 // it was in force from here on at the latest
	commands []served
}

func readStall(t *testing.T, path, writer string) stalled {
	t.Helper()
	var s stalled
	process := uint32(0)
	calls := map[uint64]*served{}
	for _, rec := range readHistory(t, path) {
		switch rec := rec.(type) {
		case *history.Process:
			if rec.Name == writer {
				process = rec.ID
			}
		case *history.CallStart:
			if rec.Process == process {
				calls[rec.Call] = &served{intended: rec.Intended, started: rec.Started}
			}
		case *history.CallEnd:
			if c := calls[rec.Call]; c != nil {
				c.ended = rec.T
			}
		case *history.Fault:
			s.from = rec.T
		case *history.Bite:
			if rec.Form == history.BitePaused {
				s.certain = rec.T
			}
		case *history.FaultEnd:
			s.to = rec.T
		}
	}
	if process == 0 || s.from == 0 || s.certain == 0 || s.to == 0 {
		t.Fatalf("writer, pause and resume are not all in the history: process %d, pause from %d, certain at %d, to %d", process, s.from, s.certain, s.to)
	}
	for _, c := range calls {
		s.commands = append(s.commands, *c)
	}
	slices.SortFunc(s.commands, func(a, b served) int { return cmp.Compare(a.intended, b.intended) })
	return s
}

// implied returns the response times that follow from the schedule: arrivals come when they were intended, so many
// workers take them in that order, each works as long as it did, and nobody works during the pause.
func (s stalled) implied(workers int) []time.Duration {
	free := make([]int64, workers)
	out := make([]time.Duration, len(s.commands))
	for i, c := range s.commands {
		work := c.ended - c.started - max(0, min(c.ended, s.to)-max(c.started, s.from))
		w := slices.Index(free, slices.Min(free))
		start := max(c.intended, free[w])
		if start >= s.from && start < s.to {
			start = s.to
		}
		end := start + work
		if start < s.from && end > s.from {
			end += s.to - s.from
		}
		free[w] = end
		out[i] = time.Duration(end - c.intended)
	}
	return out
}

func p99(ds []time.Duration) time.Duration {
	s := slices.Sorted(slices.Values(ds))
	return s[(len(s)*99+99)/100-1]
}

// The generator's own test on a real store: while the server stands still arrivals go on as scheduled, and the response
// time, which counts from the intended start, tells all of the wait. A generator that waits for the store would report
// what the service time shows here.
func TestAStallShowsInResponseTimeAndNotInServiceTime(t *testing.T) {
	server := postgres(t)
	const length, seed = 10 * time.Second, 5
	sc := findScenario(t, "stall")
	trial, path := conduct(t, runner.Spec{Scenario: sc, Target: findTarget(t, "postgres/xid-horizon"), Seed: seed}, server, runner.Options{For: length})
	nothingViolated(t, trial)
	if trial.Metrics.Commands.Dropped > 0 || trial.Metrics.LatencyS.Unanswered > 0 {
		t.Fatalf("the load was not carried out whole: %+v", trial.Metrics.Commands)
	}
	s := readStall(t, path, "writer-1")

	// Nothing of the schedule was left out or moved: the arrivals are those that the seed says.
	i, begin := 0, int64(0)
	for _, at := range loadgen.Schedule(loadgen.Poisson, sc.Load.Rate, length, loadgen.Seeds{Root: seed}.Stream("arrivals")) {
		if i == 0 && len(s.commands) > 0 {
			begin = s.commands[0].intended - int64(at)
		}
		if i >= len(s.commands) || s.commands[i].intended != begin+int64(at) {
			t.Fatalf("arrival %d of %d, %v after the beginning, is not in the history", i, len(s.commands), at)
		}
		i++
	}
	if i != len(s.commands) {
		t.Fatalf("%d arrivals scheduled, %d recorded", i, len(s.commands))
	}

	during := 0
	for _, c := range s.commands {
		if c.intended > s.certain && c.intended < s.to {
			during++
			if c.ended < s.to {
				t.Errorf("a command intended %v after the pause began was answered %v before it ended",
					time.Duration(c.intended-s.from), time.Duration(s.to-c.ended))
			}
		}
	}
	if during < 30 {
		t.Fatalf("only %d arrivals were intended during the pause of %v", during, time.Duration(s.to-s.from))
	}

	want := p99(s.implied(sc.Load.Workers)).Seconds()
	response, service := trial.Metrics.LatencyS.Response.P99, trial.Metrics.LatencyS.Service.P99
	t.Logf("%d arrivals, %d of them during a pause of %.3f s; response p99 %.3f s, the schedule implies %.3f s; service p99 %.3f s",
		len(s.commands), during, time.Duration(s.to-s.from).Seconds(), response, want, service)
	if response < 0.9*want || response > 1.1*want {
		t.Errorf("response p99 is %.3f s, the schedule implies %.3f s", response, want)
	}
	if service > response/3 {
		t.Errorf("service p99 is %.3f s, not far below the response p99 of %.3f s", service, response)
	}
}

func TestTheImpliedResponseTimesOfAStallAreThoseOfAQueue(t *testing.T) {
	const ms = int64(time.Millisecond)
	// One worker, 10 ms of work each, a pause from 100 to 200: the second is caught in the middle, the third waits
	// for it, and the last comes when all is over.
	s := stalled{from: 100 * ms, to: 200 * ms, commands: []served{
		{intended: 50 * ms, started: 50 * ms, ended: 60 * ms},
		{intended: 95 * ms, started: 95 * ms, ended: 205 * ms},
		{intended: 120 * ms, started: 205 * ms, ended: 215 * ms},
		{intended: 300 * ms, started: 300 * ms, ended: 310 * ms},
	}}
	want := []time.Duration{10 * time.Millisecond, 110 * time.Millisecond, 95 * time.Millisecond, 10 * time.Millisecond}
	if got := s.implied(1); !slices.Equal(got, want) {
		t.Errorf("one worker: %v, want %v", got, want)
	}
	want[2] = 90 * time.Millisecond
	if got := s.implied(2); !slices.Equal(got, want) {
		t.Errorf("two workers: %v, want %v", got, want)
	}
}
