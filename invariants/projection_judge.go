package invariants

import (
	"fmt"
	"slices"
	"strings"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/verdict"
)

// feedJudge collects what a rule could not judge, projection by projection.
type feedJudge struct {
	run    *Run
	res    *verdict.Result
	feeds  *feeds
	judged int // projections

	notPromised, opened, failed []string
}

func judgeFeeds(run *Run, res *verdict.Result) *feedJudge {
	return &feedJudge{run: run, res: res, feeds: feedsOf(run)}
}

// drained reports whether the runner saw the projections at the end of the log before the fence.
func (j *feedJudge) drained() bool { return j.run.Fence != nil && j.run.Fence.Drained }

// hasLedger notes a projection that keeps no ledger.
func (j *feedJudge) hasLedger(s *sigma) bool {
	if !s.Info.Ledger {
		j.unpromised("%s keeps no ledger", s)
	}
	return s.Info.Ledger
}

// hasFold notes a view that the oracle can't fold: what it filters is not known.
func (j *feedJudge) hasFold(s *sigma) bool {
	if s.view == nil {
		j.open("there is no independent fold of view %q of %s", s.Info.View, s)
	}
	return s.view != nil
}

// unpromised notes what a projection does not offer.
func (j *feedJudge) unpromised(format string, args ...any) { note(&j.notPromised, format, args...) }

// open notes what stays undecided.
func (j *feedJudge) open(format string, args ...any) { note(&j.opened, format, args...) }

// bypassed notes that ledger rows are missing although the view shows their effects.
func (j *feedJudge) bypassed(s *sigma) {
	note(&j.failed, "the view of %s shows effects that its ledger lacks: the instrumentation was bypassed, see complete-history", s)
}

func note(list *[]string, format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(*list, text) {
		*list = append(*list, text)
	}
}

// conclude sets the verdict where the rule can't judge. A violation counts for more than everything else.
func (j *feedJudge) conclude() {
	switch {
	case j.res.Count > 0:
	case len(j.failed) > 0:
		j.res.Verdict, j.res.Reason = verdict.Error, strings.Join(j.failed, "; ")
	case len(j.opened) > 0:
		j.res.Verdict, j.res.Reason = verdict.Inconclusive, strings.Join(j.opened, "; ")
	case j.judged > 0 && len(j.notPromised) > 0:
		if shortfall(j.run, j.res) == "" {
			j.res.Verdict, j.res.Reason = verdict.Holds, "not judged: "+strings.Join(j.notPromised, "; ")
		}
	case len(j.notPromised) > 0:
		j.res.Verdict, j.res.Reason = verdict.NotPromised, strings.Join(j.notPromised, "; ")
	case j.judged == 0:
		j.res.Reason = "no projection ran"
	}
}

// countEvidence adds to the count of an opportunity.
func countEvidence(res *verdict.Result, o Opportunity, n int64) { res.Evidence[o.Name] += n }

// eventName names an event of the log for people.
func eventName(l *Logged) string { return fmt.Sprintf("%s v%d", l.Stream, l.Version) }

// lastStamp is when the final state was read, for records that have no time of their own.
func (r *Run) lastStamp() int64 {
	switch {
	case r.Fence != nil:
		return r.Fence.T
	case r.Audit != nil:
		return r.Audit.T
	case r.End != nil:
		return r.End.T
	}
	return r.Info.Start
}

// placed adds an event of the log as the append that made it, with its position.
func (w *witness) placed(l *Logged) *witness {
	where := "no position"
	if !l.Position.IsZero() {
		where = "position " + l.Position.String()
	}
	if l.Write == nil || l.Write.Invoke == Infinity {
		return w.add("store", w.run.lastStamp(), w.run.lastStamp(), "", "%s (%s) at %s, by no recorded append", eventName(l), l.Type, where)
	}
	outcome, end := "never acknowledged", Infinity
	if l.Write.Acked {
		outcome, end = "ok", l.Write.Return
	}
	return w.add(w.lane(l.Write.Owner.Process, l.Write.Owner.Session), l.Write.Invoke, end, outcome,
		"append of %s (%s %s) at %s", eventName(l), l.Type, shortID(l.ID), where)
}

// placedID adds the event with that id, if it is in the log.
func (w *witness) placedID(id eventstore.EventID) *witness {
	if l := w.run.Log[id]; l != nil {
		w.placed(l)
	}
	return w
}

// poll adds one answer of a feed.
func (w *witness) poll(p *history.Poll) *witness {
	held := ""
	if p.Held != "" {
		held = ", held by " + p.Held
	}
	return w.add(w.lane(p.Process, 0), p.Invoke, p.T, p.Outcome.String(), "poll of %s after %s: events: %d, next %s%s",
		p.Projection, cursorText(p.After), p.Events, cursorText(p.Next), held)
}

// checkpoint adds one durable value of a checkpoint. It stands where the application that moved it did.
func (w *witness) checkpoint(s *sigma, c value) *witness {
	what := fmt.Sprintf("checkpoint %d of %s durable at %s", c.seq, s, cursorText(c.cursor))
	if c.observation != 0 {
		what += fmt.Sprintf(" (seen by observation %d)", c.observation)
		for _, o := range s.Observations {
			if o.ID == c.observation {
				return w.add("store", o.T, o.T, "", "%s", what)
			}
		}
	}
	start, end := w.moved(s, c.seq)
	return w.add("store", start, end, "", "%s", what)
}

// effect adds a ledger row.
func (w *witness) effect(s *sigma, r *history.LedgerRow) *witness {
	with := "in a transaction that moved no checkpoint"
	if r.Seq > 0 {
		with = fmt.Sprintf("with checkpoint %d", r.Seq)
	}
	start, end := w.moved(s, r.Seq)
	return w.add("store", start, end, r.How.String(), "ledger of %s: %s v%d (%s) on view row %s, row version %d, row order %d, %s, transaction %d",
		s, r.Stream, r.Version, shortID(r.Event), r.Row, r.RowVersion, r.RowOrder, with, r.Transaction)
}

// moved returns when the checkpoint was moved to seq, as the journal of applications tells; else the end.
func (w *witness) moved(s *sigma, seq uint64) (start, end int64) {
	for _, a := range s.applies {
		if seq > 0 && a.Seq == seq && a.Outcome == eventstore.OK {
			return a.Invoke, a.T
		}
	}
	return w.run.lastStamp(), w.run.lastStamp()
}

// noLedgerRow adds what the audit did not find.
func (w *witness) noLedgerRow(s *sigma, l *Logged, row string) *witness {
	return w.add("store", w.run.lastStamp(), w.run.lastStamp(), "missing", "ledger of %s: no row for %s (%s) on view row %s",
		s, eventName(l), shortID(l.ID), row)
}

// viewRow adds a view row that differs, as seen at t.
func (w *witness) viewRow(s *sigma, t int64, d difference) *witness {
	return w.add("store", t, t, "", "view row %s of %s: %s", d.row, s, d)
}

// observed adds the events that an observed row shows and its checkpoint does not claim, or the other way round; where
// their versions do not tell them apart, those of differing.
func (w *witness) observed(s *sigma, d difference) *witness {
	const most = 3
	is := uint64(0)
	if d.is != nil {
		if is = d.is.Version; is == 0 {
			return w.differing(s, d) // a view that keeps no versions
		}
	}
	from, to := min(is, d.want.version), max(is, d.want.version)
	at := s.log.spans[d.stream]
	shown := 0
	for event := at.from; event < at.to && shown < most; event++ {
		l := s.log.events[event]
		if !s.passes[event] || l.Version <= from || l.Version > to {
			continue
		}
		shown++
		w.placed(l)
		s.rows(event, func(_ int32, r *history.LedgerRow) bool { w.effect(s, r); return true })
		if s.ledgerOf[event] < 0 && s.Info.Ledger {
			w.noLedgerRow(s, l, d.row)
		}
	}
	if shown == 0 {
		return w.differing(s, d)
	}
	return w
}

// differing adds the events of a row that the ledger or the checkpoint makes suspicious, else the last one that the
// row had to show.
func (w *witness) differing(s *sigma, d difference) *witness {
	const most = 3
	at := s.log.spans[d.stream]
	shown := 0
	for event := at.from; event < at.to && shown < most; event++ {
		n := 0
		s.rows(event, func(_ int32, r *history.LedgerRow) bool {
			if r.How == history.Applied {
				n++
			}
			return true
		})
		if n == 1 || n == 0 && s.handled(event) {
			continue
		}
		shown++
		l := s.log.events[event]
		w.placed(l)
		s.rows(event, func(_ int32, r *history.LedgerRow) bool { w.effect(s, r); return true })
		if s.ledgerOf[event] < 0 && s.Info.Ledger {
			w.noLedgerRow(s, l, d.row)
		}
	}
	if shown == 0 && at.to > at.from {
		last := at.to - 1
		for event := at.from; event < at.to; event++ {
			if s.passes[event] && s.log.events[event].Version <= d.want.version {
				last = event
			}
		}
		w.placed(s.log.events[last])
		s.rows(last, func(_ int32, r *history.LedgerRow) bool { w.effect(s, r); return true })
	}
	return w
}

func cursorText(c eventstore.Cursor) string {
	if c.IsZero() {
		return "the beginning"
	}
	return c.String()
}
