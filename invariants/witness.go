package invariants

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/verdict"
)

// What a report can show: a few violations with a few records each.
const (
	maxViolations = 5
	maxEvidence   = 15
)

// violate counts a violation. The first few are kept as witnesses, so build is called only for those.
func violate(res *verdict.Result, build func() *witness) {
	res.Count++
	if len(res.Violations) < maxViolations {
		res.Violations = append(res.Violations, build().violation())
	}
}

// witness builds a violation that a person can follow: who did what when, on one clock.
type witness struct {
	run     *Run
	summary string
	stream  string
	records []verdict.Evidence
}

// newWitness begins a witness with its story in one sentence.
func newWitness(run *Run, stream, format string, args ...any) *witness {
	return &witness{run: run, stream: stream, summary: fmt.Sprintf(format, args...)}
}

// lane names who did something: process and worker, "writer-1/3".
func (w *witness) lane(process, session uint32) string {
	p := w.run.Processes[process]
	name := fmt.Sprintf("process-%d", process)
	if p != nil && p.Name != "" {
		name = p.Name
		if p.Incarnation > 1 {
			name = fmt.Sprintf("%s#%d", name, p.Incarnation)
		}
	}
	if session == 0 {
		return name
	}
	return fmt.Sprintf("%s/%d", name, session)
}

// add puts one record on a lane. Times are stamps of the run; end Infinity = never returned.
func (w *witness) add(lane string, start, end int64, outcome, format string, args ...any) *witness {
	e := verdict.Evidence{Lane: lane, StartNS: w.at(start), EndNS: w.at(end), What: fmt.Sprintf(format, args...), Outcome: outcome}
	if end == Infinity {
		e.EndNS = -1
	}
	w.records = append(w.records, e)
	return w
}

func (w *witness) at(t int64) int64 {
	if t == Infinity {
		return t
	}
	return max(0, t-w.run.Info.Start)
}

// cause marks the record added last as one that makes it wrong.
func (w *witness) cause() *witness {
	if n := len(w.records); n > 0 {
		w.records[n-1].Cause = true
	}
	return w
}

// attempt adds a wire try as a bar.
func (w *witness) attempt(a *Attempt) *witness {
	return w.add(w.lane(a.Write.Owner.Process, a.Write.Owner.Session), a.Invoke, a.T, attemptOutcome(a),
		"%s", attemptText(a))
}

func attemptOutcome(a *Attempt) string {
	if a.Outcome == eventstore.OK {
		return a.Outcome.String()
	}
	s := a.Outcome.String() + " (" + a.Reason.String()
	if a.HeadKnown {
		s += fmt.Sprintf(", head %d", a.Head)
	}
	return s + ")"
}

func attemptText(a *Attempt) string {
	s := "append " + writeText(a.Write)
	if a.Answer != nil && a.Answer.First != 0 {
		s += fmt.Sprintf(", acknowledged at v%s", versionsText(a.Answer.First, a.Answer.First+uint64(max(a.Answer.count(a.Write), 1))-1))
	}
	return s
}

func writeText(w *Write) string {
	what := w.Owner.Name
	if what == "" {
		what = "?"
	}
	id := ""
	if len(w.Events) > 0 {
		id = " " + shortID(w.Events[0].ID)
	}
	s := fmt.Sprintf("%s%s of command %s expecting ", what, id, w.Owner.Command.ID)
	if w.Any {
		return s + "any version"
	}
	return s + fmt.Sprintf("v%d", w.Expected)
}

func versionsText(first, last uint64) string {
	if last <= first {
		return fmt.Sprint(first)
	}
	return fmt.Sprintf("%d…%d", first, last)
}

// shortID is enough of an event id to tell events of one story apart.
func shortID(id eventstore.EventID) string { return id.String()[:8] }

// write adds all attempts of a write, or a mark if it was never sent.
func (w *witness) write(v *Write) *witness {
	for i := range v.Attempts {
		w.attempt(&v.Attempts[i])
	}
	for e := v.Evidence; e != nil; e = e.Next {
		w.add(w.lane(history.ProcessOf(e.Call), 0), e.T, e.T, e.Outcome.String(), "evidence %s about %s", e.Form, writeText(v))
	}
	return w
}

// logged adds an event of L. The log has no clock: the event stands where its write did.
func (w *witness) logged(l *Logged) *witness {
	start, end := w.run.Info.Start, Infinity
	if l.Write != nil && l.Write.Invoke != Infinity {
		start, end = l.Write.Invoke, l.Write.Return
	}
	return w.add("store", start, end, "", "log of %s holds v%d: %s", l.Stream, l.Version, eventText(l))
}

func eventText(l *Logged) string {
	s := l.Type + " " + shortID(l.ID)
	if len(l.Data) > 0 && len(l.Data) <= 160 {
		s += " " + strings.ToValidUTF8(string(l.Data), "�")
	}
	return s
}

// read adds a read as a bar.
func (w *witness) read(q *Read) *witness {
	if q == nil {
		return w
	}
	what, outcome := "read", "fail"
	if q.Strong {
		what = "strong read"
	}
	if q.OK {
		outcome = fmt.Sprintf("%d events", q.Count)
		if q.Count > 0 {
			outcome += " v" + versionsText(q.First, q.Last)
		}
	}
	to := "…"
	if q.To != 0 {
		to = fmt.Sprintf("…%d", q.To)
	}
	return w.add(w.lane(q.Process, q.Session), q.Invoke, q.T, outcome, "%s of %s from v%d%s", what, q.Stream, q.From, to)
}

// answer adds what a caller was told, as a bar over the whole call.
func (w *witness) answer(c *Call) *witness {
	end, outcome := Infinity, "no answer"
	if c.End != nil {
		end, outcome = c.End.T, answerText(c.End)
	} else if t, ok := w.run.Processes[c.Process].Died(); ok {
		end, outcome = t, "process died"
	}
	body := strings.ToValidUTF8(string(c.Body), "�")
	if len(body) > 160 {
		body = "…"
	}
	return w.add(w.lane(c.Process, c.Session), c.Started, end, outcome, "%s %s %s", c.Name, c.Command.ID, body)
}

func answerText(e *CallEnd) string {
	s := e.Result.String()
	switch e.Result {
	case history.ResultOK:
		s += fmt.Sprintf(" v%d", e.Version)
		if e.Replayed {
			s += " (replayed)"
		}
	case history.ResultRefused:
		s += fmt.Sprintf(" %s (has %d, wants %d)", e.Code, e.Have, e.Want)
		if e.Basis != nil {
			s += fmt.Sprintf(", decided on v%d", e.Basis.Version)
		}
	case history.ResultExhausted, history.ResultFailed, history.ResultUnknown:
		if e.Code != "" {
			s += " " + e.Code
		}
	}
	return s
}

// bite adds what a fault did.
func (w *witness) bite(f *Fault, b *history.Bite) *witness {
	return w.add("fault", b.T, b.T, b.Form.String(), "%s %s on %s: %s", f.FaultKind, f.ID, b.Session, b.Text)
}

// violation renders the witness: records in order of time, never more than a person can follow, the causes
// kept before all others.
func (w *witness) violation() verdict.Violation {
	records := w.records
	if len(records) > maxEvidence {
		slices.SortStableFunc(records, func(a, b verdict.Evidence) int {
			return cmp.Compare(rank(a), rank(b))
		})
		records = records[:maxEvidence]
	}
	slices.SortStableFunc(records, func(a, b verdict.Evidence) int { return cmp.Compare(a.StartNS, b.StartNS) })
	v := verdict.Violation{Summary: w.summary, Stream: w.stream, Records: records}
	for i, e := range records {
		end := max(e.EndNS, e.StartNS)
		if i == 0 {
			v.WindowNS = [2]int64{e.StartNS, end}
		}
		v.WindowNS[0] = min(v.WindowNS[0], e.StartNS)
		v.WindowNS[1] = max(v.WindowNS[1], end)
	}
	return v
}

func rank(e verdict.Evidence) int {
	if e.Cause {
		return 0
	}
	return 1
}
