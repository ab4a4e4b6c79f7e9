package reports

import (
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
)

// list is a history in memory.
type list struct {
	records []history.Record
	err     error
}

func (l *list) Next() (history.Record, error) {
	if len(l.records) == 0 {
		if l.err != nil {
			return nil, l.err
		}
		return nil, io.EOF
	}
	r := l.records[0]
	l.records = l.records[1:]
	return r, nil
}

const (
	ms  = int64(1e6)
	sec = int64(1e9)
)

func event(n byte) eventstore.EventID { return eventstore.EventID{15: n} }

func at(n uint64) eventstore.Position { return eventstore.Position{Minor: n} }

// small is a history whose numbers can be worked out by hand: warm-up 0–1 s, calm 1–2 s, faults 2–3 s, drain.
//
//	set-up      before the first phase, counts nowhere
//	warm        in the warm-up, one ok
//	a           ok at the first try
//	b           conflict on version 1 (a holds it), read again, ok
//	c           unknown; the repeat conflicts with its own event; ok by evidence (self-conflict)
//	d           refused
//	e           unknown, killed, continued by another process, ended unknown; it did land
//	f           unknown, did not land
//	g           exhausted after two conflicts
//	dropped     one arrival in the fault phase
//	stray       begins after the load is over, counts nowhere
func small() []history.Record {
	start := 10 * sec
	t := func(milli int64) int64 { return start + milli*ms }
	call := func(id uint64, cmd string, session uint32, intended, started int64) history.Record {
		return &history.CallStart{Call: id, Process: uint32(1), Session: session, CommandID: cmd, Stream: "s", Intended: t(intended), Started: t(started)}
	}
	end := func(id uint64, milli int64, r history.Result) *history.CallEnd {
		return &history.CallEnd{Call: id, T: t(milli), Result: r}
	}
	write := func(id, call uint64, stream string, expected uint64, read uint64, e byte) history.Record {
		return &history.Write{Write: id, Call: call, Stream: stream, Expected: expected, Events: []history.WriteEvent{{ID: event(e)}},
			Decision: eventstore.Decision{Basis: expected, Read: read}}
	}
	invoke := func(attempt, write uint64, milli int64) history.Record {
		return &history.Invoke{Attempt: attempt, Write: write, T: t(milli)}
	}
	ok := func(attempt uint64, milli int64, e byte, pos uint64) history.Record {
		return &history.Return{Attempt: attempt, T: t(milli), Outcome: eventstore.OK, Events: []eventstore.EventID{event(e)}, Positions: []eventstore.Position{at(pos)}}
	}
	not := func(attempt uint64, milli int64, o eventstore.Outcome, r eventstore.Reason) history.Record {
		return &history.Return{Attempt: attempt, T: t(milli), Outcome: o, Reason: r}
	}
	logged := func(e byte, stream string, version, pos uint64, cmd string) history.Record {
		return &history.LoggedEvent{Stream: stream, Version: version, ID: event(e), Type: "Withdrawn", Meta: eventstore.Metadata{CommandID: cmd}, Position: at(pos)}
	}
	refused := end(40, 1540, history.ResultRefused)
	refused.Code = "INSUFFICIENT_FUNDS"
	refused.Decision = eventstore.Decision{Basis: 3}
	continued := call(51, "e", 9, 2400, 2400).(*history.CallStart)
	continued.Process, continued.Continued = 2, true
	return []history.Record{
		&history.Trial{Info: history.TrialInfo{Scenario: "hot", Mode: "random", Fidelity: "real", Start: start, Faults: []string{"f1", "f2"}}},
		call(1, "setup", 0, -50, -50), write(1, 1, "s", 0, 0, 1), invoke(1, 1, -49), ok(1, -40, 1, 1), end(1, -39, history.ResultOK),
		&history.Phase{Name: "warmup", T: t(0)}, &history.Phase{Name: "calm", T: t(1000)}, &history.Phase{Name: "faults", T: t(2000)}, &history.Phase{Name: "drain", T: t(3000)},

		call(10, "warm", 1, 500, 500), write(10, 10, "s", 1, 0, 2), invoke(10, 10, 501), ok(10, 510, 2, 2), end(10, 511, history.ResultOK),

		// a: intended 1100, taken at 1102 by an idle worker, answered at 1120: response 20 ms, service 18 ms.
		call(20, "a", 1, 1100, 1102), &history.Read{Read: 1, Call: 20, Stream: "s", Invoke: t(1103), T: t(1105), Outcome: eventstore.OK},
		write(20, 20, "s", 2, 1, 3), invoke(20, 20, 1106), ok(20, 1118, 3, 3), end(20, 1120, history.ResultOK),

		// b: worker 1 is busy until 1120, so its delay is no generator lag.
		call(30, "b", 1, 1110, 1125), &history.Read{Read: 2, Call: 30, Stream: "s", Invoke: t(1126), T: t(1128), Outcome: eventstore.OK},
		write(30, 30, "s", 2, 2, 4), invoke(30, 30, 1130), not(30, 1132, eventstore.Fail, eventstore.VersionConflict),
		write(31, 30, "s", 3, 0, 5), invoke(31, 31, 1136), ok(31, 1140, 5, 4), end(30, 1150, history.ResultOK),

		call(35, "c", 2, 1300, 1300), write(35, 35, "t", 0, 0, 6), invoke(35, 35, 1301), not(35, 1310, eventstore.Unknown, eventstore.LostReply),
		invoke(36, 35, 1311), not(36, 1320, eventstore.Fail, eventstore.VersionConflict),
		&history.Evidence{Write: 35, Call: 35, T: t(1330), Form: history.E2SlotHeld, Outcome: eventstore.OK}, end(35, 1335, history.ResultOK),

		call(40, "d", 3, 1500, 1500), refused,

		call(50, "e", 4, 2100, 2100), write(50, 50, "u", 0, 0, 7), invoke(50, 50, 2101),
		continued, end(51, 2600, history.ResultUnknown),

		call(60, "f", 5, 2200, 2200), write(60, 60, "v", 0, 0, 8), invoke(60, 60, 2201), not(60, 2300, eventstore.Unknown, eventstore.TimedOut), end(60, 2500, history.ResultUnknown),

		call(70, "g", 6, 2700, 2700), write(70, 70, "s", 1, 0, 9), invoke(70, 70, 2701), not(70, 2702, eventstore.Fail, eventstore.VersionConflict),
		write(71, 70, "s", 2, 0, 10), invoke(71, 71, 2703), not(71, 2704, eventstore.Fail, eventstore.VersionConflict), end(70, 2710, history.ResultExhausted),

		call(90, "stray", 8, 3010, 3010), end(90, 3020, history.ResultOK),
		&history.Drop{Process: 1, Intended: t(2800), T: t(2801)},
		&history.Fault{ID: "f1", FaultKind: "drop-reply", On: "writer", T: t(2050), Text: "every 2nd commit"},
		&history.Bite{Fault: "f1", T: t(2100)},
		&history.FaultEnd{ID: "f1", T: t(2090), Bit: true, Effect: "1 reply cut"},
		// h: the first ok answer after the fault, 410 ms later.
		call(80, "h", 7, 2450, 2450), write(80, 80, "w", 0, 0, 11), invoke(80, 80, 2451), ok(80, 2490, 11, 7), end(80, 2500, history.ResultOK),

		&history.Apply{Projection: "balances", Generation: 1, Invoke: t(1120), T: t(1121), Prev: eventstore.Through(at(2)), Next: eventstore.Through(at(3)), Events: 1, Seq: 2, Outcome: eventstore.OK},
		&history.Apply{Projection: "balances", Generation: 1, Invoke: t(1139), T: t(1139), Prev: eventstore.Through(at(3)), Next: eventstore.Through(at(4)), Events: 1, Seq: 3, Outcome: eventstore.OK},
		&history.Apply{Projection: "balances", Generation: 1, Invoke: t(2000), T: t(2600), Prev: eventstore.Through(at(4)), Outcome: eventstore.Unknown},
		&history.Fence{T: t(3100), Fenced: true, Proof: "no backend left"},
		logged(1, "s", 1, 1, "setup"), logged(2, "s", 2, 2, "warm"), logged(3, "s", 3, 3, "a"), logged(5, "s", 4, 4, "b"),
		logged(6, "t", 1, 5, "c"), logged(7, "u", 1, 6, "e"), logged(11, "w", 1, 7, "h"),
		&history.Audit{T: t(3200), Events: 7},
		&history.End{T: t(3300)},
	}
}

func measure(t *testing.T, records []history.Record) Measured {
	t.Helper()
	m, err := Measure(&list{records: records})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 0.0011*math.Abs(want)+1e-9 {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

func TestMeasureCountsWhatCanBeCountedByHand(t *testing.T) {
	got := measure(t, small())
	m := got.Metrics

	wantCommands := Commands{Offered: 9, Calls: 9, Dropped: 1, OK: 4, Refused: 1, ByCode: map[string]int64{"INSUFFICIENT_FUNDS": 1},
		Exhausted: 1, Unknown: 2, UnknownLanded: 1, Continued: 1}
	if !reflect.DeepEqual(m.Commands, wantCommands) {
		t.Errorf("commands = %+v, want %+v", m.Commands, wantCommands)
	}
	wantAttempts := Attempts{OK: 3, Fail: 4, Unknown: 3, UnknownLanded: 2}
	if m.Attempts != wantAttempts {
		t.Errorf("attempts = %+v, want %+v", m.Attempts, wantAttempts)
	}
	if m.Contention.Conflicts != 4 || m.Contention.SelfConflicts != 1 {
		t.Errorf("conflicts %d, of the own command %d; want 4 and 1", m.Contention.Conflicts, m.Contention.SelfConflicts)
	}
	near(t, "conflict ratio", m.Contention.ConflictRatio, 0.4)
	near(t, "attempts per command", m.Contention.AttemptsPerCommand, 10.0/7) // d made none
	if want := []int64{6, 2}; !reflect.DeepEqual(m.Contention.ByTries, want) {
		t.Errorf("ladder = %v, want %v", m.Contention.ByTries, want)
	}
	// a: read 1103–1105, append 1106–1118: 8 ms; b: 1126–1128, 1130–1132: 4 ms.
	near(t, "window", m.Contention.WindowS, 0.006)
	if h := m.Contention.Hot[0]; h != (HotStream{"s", 5, 3}) {
		t.Errorf("hottest = %+v", h)
	}
	if m.Contention.ModelRatio <= 0 || m.Contention.ModelRatio > 0.1 {
		t.Errorf("model ratio = %v", m.Contention.ModelRatio)
	}

	r := m.LatencyS.Response
	near(t, "response max (e, from its first intended start)", r.Max, 0.5)
	near(t, "response min (g)", r.Min, 0.010)
	if r.N != 8 || m.LatencyS.Unanswered != 0 {
		t.Errorf("responses %d, unanswered %d", r.N, m.LatencyS.Unanswered)
	}
	near(t, "service p50", m.LatencyS.Service.P50, 0.035)
	near(t, "measured", m.Throughput.MeasuredS, 2)
	near(t, "commands/s", m.Throughput.CommandsPerS, 2.5) // a b c d h
	near(t, "offered/s", m.Throughput.OfferedPerS, 4.5)
	near(t, "events/s", m.Throughput.EventsPerS, 1.5) // a b h: c was never answered ok
	if m.Generator.LagS.N != 7 {
		t.Errorf("generator lag of %d calls, want 7: b waited for its worker, e was continued", m.Generator.LagS.N)
	}
	near(t, "generator lag max", m.Generator.LagS.Max, 0.002)
	if m.RecoveryS == nil {
		t.Fatal("no recovery time")
	}
	near(t, "recovery", *m.RecoveryS, 0.41)

	if m.Valid || len(m.Invalid) != 1 {
		t.Errorf("valid = %v, %v; a dropped arrival spoils the numbers", m.Valid, m.Invalid)
	}
	if len(got.Phases) != 4 || got.Phases[1] != (Phase{"calm", 1, 1}) {
		t.Errorf("phases = %+v", got.Phases)
	}
	if len(m.Phases) != 3 {
		t.Fatalf("numbers of %d phases, want warmup, calm and faults", len(m.Phases))
	}
	near(t, "conflict ratio while calm", m.Phases[1].ConflictRatio, 2.0/5)
	wantFaults := []Fault{{ID: "f2", Effect: "never began"},
		{ID: "f1", Kind: "drop-reply", On: "writer", AtS: 2.05, LengthS: 0.04, Planned: "every 2nd commit", Observed: true, Effect: "1 reply cut"}}
	if !reflect.DeepEqual(got.Faults, wantFaults) {
		t.Errorf("faults = %+v", got.Faults)
	}
	if got.Fence != "no backend left" || !got.Complete || got.Records != uint64(len(small())) {
		t.Errorf("fence %q, complete %v, records %d", got.Fence, got.Complete, got.Records)
	}
	near(t, "duration", got.DurationS, 3.3)
}

func TestMeasureDoesNotDependOnTheOrderOfRecords(t *testing.T) {
	want := measure(t, small())
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		records := small()
		rnd.Shuffle(len(records), func(i, j int) { records[i], records[j] = records[j], records[i] })
		if got := measure(t, records); !reflect.DeepEqual(got, want) {
			t.Fatalf("got  %+v\nwant %+v", got, want)
		}
	}
}

func TestLagByCursorKeepsNegativeValuesAndCountsWhatNeverShowed(t *testing.T) {
	m := measure(t, small()).Metrics
	// a: acknowledged 1118, visible 1121; b: acknowledged 1140, visible 1139; h never, like c and e, whose
	// acknowledgements are missing besides.
	if m.LagS == nil || m.LagS.N != 2 || m.NeverVisible != 3 {
		t.Fatalf("lag = %+v, never visible %d", m.LagS, m.NeverVisible)
	}
	near(t, "lag min", m.LagS.Min, -0.001)
	near(t, "lag max", m.LagS.Max, 0.003)
}

func TestLagByLedgerDoesNotBelieveACursorThatSkipped(t *testing.T) {
	row := func(e byte, seq uint64) history.Record {
		return &history.LedgerRow{Projection: "balances", Generation: 1, Event: event(e), How: history.Applied, Seq: seq}
	}
	// b's row is missing though the cursor passed it; h was handled by a move whose answer was lost and
	// that no later one confirms.
	records := append(small(), row(1, 1), row(2, 1), row(3, 2), row(6, 9), row(7, 9), row(11, 9))
	m := measure(t, records).Metrics
	if m.LagS == nil || m.LagS.N != 1 || m.NeverVisible != 1 {
		t.Fatalf("lag = %+v, never visible %d; want a alone, and b never", m.LagS, m.NeverVisible)
	}
	near(t, "lag of a", m.LagS.Max, 0.003)
}

func TestLagByCursorWaitsForTheGapsThatAReaderKeepsOpen(t *testing.T) {
	ack := func(e byte, milli int64) []history.Record {
		id := uint64(e)
		return []history.Record{
			&history.CallStart{Call: id, CommandID: string(rune('a' + e)), Intended: sec, Started: sec},
			&history.Write{Write: id, Call: id, Events: []history.WriteEvent{{ID: event(e)}}},
			&history.Invoke{Attempt: id, Write: id, T: sec},
			&history.Return{Attempt: id, T: sec + milli*ms, Outcome: eventstore.OK, Events: []eventstore.EventID{event(e)}},
			&history.LoggedEvent{ID: event(e), Version: id, Position: at(id)},
		}
	}
	records := append(ack(1, 10), ack(2, 10)...)
	records = append(records,
		&history.Apply{Projection: "p", T: sec + 20*ms, Next: eventstore.Cursor{At: []eventstore.Position{at(2)}, Open: []eventstore.Position{at(1)}}, Outcome: eventstore.OK},
		&history.Apply{Projection: "p", T: sec + 50*ms, Next: eventstore.Through(at(2)), Outcome: eventstore.OK})
	m := measure(t, records).Metrics
	if m.LagS == nil || m.LagS.N != 2 {
		t.Fatalf("lag = %+v", m.LagS)
	}
	near(t, "lag of the event behind no gap", m.LagS.Min, 0.010)
	near(t, "lag of the event in the gap", m.LagS.Max, 0.040)
}

func TestSelfConflictsAreFoundWithoutAnAudit(t *testing.T) {
	var cut []history.Record
	for _, r := range small() {
		switch r.(type) {
		case *history.LoggedEvent, *history.Audit, *history.End, *history.Fence:
		default:
			cut = append(cut, r)
		}
	}
	got := measure(t, cut)
	if m := got.Metrics; m.Contention.SelfConflicts != 1 || m.Contention.Conflicts != 4 {
		t.Errorf("conflicts = %+v", m.Contention)
	}
	if got.Complete || got.Fence != "not fenced: the trial ended before the fence" {
		t.Errorf("complete %v, fence %q", got.Complete, got.Fence)
	}
}

func TestValidityNamesWhatSpoilsTheNumbers(t *testing.T) {
	edit := func(f func(*history.Trial)) []history.Record {
		var out []history.Record
		for _, r := range small() {
			if _, dropped := r.(*history.Drop); dropped {
				continue
			}
			if tr, ok := r.(*history.Trial); ok {
				f(tr)
			}
			out = append(out, r)
		}
		return out
	}
	for name, c := range map[string]struct {
		records []history.Record
		want    int
	}{
		"clean":     {edit(func(*history.Trial) {}), 0},
		"emulated":  {edit(func(t *history.Trial) { t.Info.Fidelity = "emulated" }), 1},
		"scripted":  {edit(func(t *history.Trial) { t.Info.Mode = "scripted" }), 1},
		"nothing":   {nil, 1},
		"interrupt": {append(edit(func(*history.Trial) {}), &history.End{T: 14 * sec, Interrupt: "SIGINT"}), 1},
		"late generator": {append(edit(func(*history.Trial) {}),
			&history.CallStart{Call: 99, CommandID: "late", Session: 77, Intended: 11600 * ms, Started: 11700 * ms},
			&history.CallEnd{Call: 99, T: 11701 * ms, Result: history.ResultOK}), 1},
	} {
		t.Run(name, func(t *testing.T) {
			m := measure(t, c.records).Metrics
			if len(m.Invalid) != c.want || m.Valid != (c.want == 0) {
				t.Errorf("valid = %v: %q", m.Valid, m.Invalid)
			}
		})
	}
}

func TestMeasureReturnsTheErrorOfItsSource(t *testing.T) {
	bad := errors.New("bad frame")
	if _, err := Measure(&list{records: small()[:5], err: bad}); !errors.Is(err, bad) {
		t.Errorf("err = %v", err)
	}
}

func TestSeriesPutsEachNumberInItsStep(t *testing.T) {
	s := measure(t, small()).Series
	if s == nil || s.StepS != fineStepS {
		t.Fatalf("series = %+v", s)
	}
	step := func(milli int) int { return milli / 200 }
	near(t, "ok at 1.1 s", s.OK[step(1100)], 10) // two answers in 0.2 s
	near(t, "refused at 1.5 s", s.Refused[step(1540)], 5)
	near(t, "conflicts at 2.7 s", s.Conflicts[step(2702)], 10)
	near(t, "response p99 at 2.1 s", s.ResponseP99[step(2100)], 0.5)
	near(t, "lag p50 at 1.1 s", s.LagP50[step(1118)], -0.001)
	if s.ResponseP50[step(1900)] != NoSample || s.LagP99[step(1900)] != NoLag {
		t.Error("a step without a sample must say so")
	}
}

func TestHistogramKeepsThreeDigitsAndBothSides(t *testing.T) {
	h := newHistogram()
	for i := int64(-100); i <= 899; i++ {
		h.record(i * ms)
	}
	q := h.quantiles()
	near(t, "min", q.Min, -0.1)
	near(t, "max", q.Max, 0.899)
	near(t, "p50", q.P50, 0.399)
	near(t, "p99", q.P99, 0.889)
	near(t, "p5", seconds(h.quantile(5)), -0.051)
	if q.N != 1000 || q.Clamped != 0 {
		t.Errorf("n = %d, clamped = %d", q.N, q.Clamped)
	}
	h.record(2 * histogramLimit)
	if q := h.quantiles(); q.Clamped != 1 || q.Max != 7200 {
		t.Errorf("clamped = %d, max = %v", q.Clamped, q.Max)
	}
	if (newHistogram().quantiles() != Quantiles{}) {
		t.Error("an empty histogram has no quantiles")
	}
}

func BenchmarkMeasure(b *testing.B) {
	one := small()
	for b.Loop() {
		if _, err := Measure(&list{records: one}); err != nil {
			b.Fatal(err)
		}
	}
}
