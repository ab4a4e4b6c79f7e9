package invariants

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/invariants/oracle"
	"github.com/eventproof/eventproof/verdict"
)

// no-lost-ack (INV-NOLOSTACK): every event of a write with an ok answer or ok evidence is in L, with equal
// payload hash, at the acknowledged stream and, where the answer gives them, version and position; all ok
// answers of one write agree. The answer to the caller counts as much as that of the store.
//
// An answer that names another write of the same command (a repeated request, answered with the first result)
// is an ok for that other write. An answer that names an event of another command, only a part of a write, or
// events of several ones is wrong: it acknowledges what nobody asked for. The same bid is the same command,
// whatever its command id. A caller that is answered ok without being told of an event is told that the command
// has taken effect.
func checkNoLostAck(run *Run, res *verdict.Result) {
	t := run.tallied()
	res.Evidence[oppLanded.Name] = t.landed
	res.Evidence[oppNotLanded.Name] = t.notLanded
	res.Evidence[oppRetries.Name] = t.retries
	res.Evidence[oppContinued.Name] = t.continued
	res.Evidence[oppKills.Name] = int64(len(t.died))
	res.Evidence[oppStoreKills.Name] = t.storeKills
	run.each(func(_ *Stream, x *streamIndex) { res.Evidence[oppRacedAcks.Name] += x.contention().acked })
	for _, w := range run.Writes {
		var first *Attempt
		for i := range w.Attempts {
			a := &w.Attempts[i]
			if a.Answer == nil {
				continue
			}
			checkAnswer(run, res, a)
			if a.Answer.Names != w {
				continue
			}
			if first == nil {
				first = a
			} else if !agree(first.Answer, a.Answer) {
				violate(res, func() *witness {
					return newWitness(run, w.Stream, "Two ok answers to %s disagree about where it stands.", writeText(w)).
						attempt(first).cause().attempt(a).cause()
				})
			}
		}
		if w.Acked {
			checkPresent(run, res, w)
		}
	}
	for _, c := range run.Calls {
		if c.End != nil && c.End.Result == history.ResultOK {
			checkTold(run, res, c)
		}
	}
}

// checkTold compares what a caller was told of an ok with the log.
func checkTold(run *Run, res *verdict.Result, c *Call) {
	wrong := func(w *Write, l *Logged, format string, args ...any) {
		violate(res, func() *witness {
			v := newWitness(run, c.Stream, "The caller of %s was answered ok %s.", c.Command.ID, fmt.Sprintf(format, args...)).answer(c).cause()
			if w != nil {
				v.write(w)
			}
			if l != nil {
				v.logged(l).cause()
			}
			return v
		})
	}
	if len(c.End.Events) == 0 {
		for _, call := range c.Command.Calls {
			for _, w := range call.Writes {
				if w.Applied {
					return
				}
			}
		}
		wrong(nil, nil, "without any event, and the log holds none of its command")
		return
	}
	for i, id := range c.End.Events {
		version := c.End.version(i)
		l := run.eventAt(id, c.Stream, version)
		w := run.Owner(id)
		if l != nil {
			w = l.Write
		}
		switch {
		case w != nil && w.Owner.Command != c.Command && !sameBid(w.Owner, c):
			wrong(w, l, "with event %s, which belongs to command %s", shortID(id), w.Owner.Command.ID)
		case l == nil && w == nil:
			wrong(nil, nil, "with event %s, which is not in the log", shortID(id))
		case l == nil: // checkPresent says so
		case l.Stream != c.Stream:
			wrong(w, l, "on %s with event %s, the log holds it on %s", c.Stream, shortID(id), l.Stream)
		case c.End.Version != 0 && l.Version != version:
			wrong(w, l, "at v%d, the log holds event %s at v%d", c.End.Version, shortID(id), l.Version)
		}
	}
}

// sameBid reports whether two calls make one bid: the id of a bid is its own, whatever the command is called.
func sameBid(a, b *Call) bool {
	if a.Name != "bid" || b.Name != "bid" || a.Stream != b.Stream {
		return false
	}
	f, err := oracle.ParseCommand(a.Body)
	if err != nil {
		return false
	}
	g, err := oracle.ParseCommand(b.Body)
	return err == nil && f == g
}

// checkAnswer compares what an ok answer names with the log.
func checkAnswer(run *Run, res *verdict.Result, a *Attempt) {
	ans, w := a.Answer, a.Write
	wrong := func(l *Logged, format string, args ...any) {
		violate(res, func() *witness {
			v := newWitness(run, w.Stream, "%s was answered ok %s.", writeText(w), fmt.Sprintf(format, args...)).attempt(a).cause()
			if l != nil {
				return v.logged(l).cause()
			}
			if ans.Names != nil && ans.Names != w {
				v.write(ans.Names)
			}
			return v
		})
	}
	n := ans.count(w)
	switch {
	case ans.Names != nil && ans.Names.Owner.Command != w.Owner.Command && (!run.native() || !sameBid(ans.Names.Owner, w.Owner)):
		wrong(nil, "with an event of another command, %s", ans.Names.Owner.Command.ID)
	case ans.Names != nil && ans.Names.Stream != w.Stream:
		wrong(nil, "with an event of another stream, %s", ans.Names.Stream)
	case ans.Names != nil && ans.Events != nil && !sameIDs(ans.Events, ans.Names.Events):
		wrong(nil, "with %d events, which are not those of one write", n)
	}
	if ans.Span != 0 && int(ans.Span) != n {
		wrong(nil, "at %d versions from v%d on with %d events", ans.Span, ans.First, n)
	}
	for i := range n {
		id := ans.event(w, i)
		l := run.Log[id]
		if ans.Names != nil && i < len(ans.Names.Events) && ans.Names.Events[i].ID == id {
			if l = run.eventOf(ans.Names, i); l == nil {
				continue // checkPresent says so
			}
		}
		if l == nil {
			wrong(nil, "with event %s, which nobody wrote and the log does not hold", shortID(id))
			continue
		}
		want := ans.First + uint64(i)
		if at := run.eventAt(id, l.Stream, want); at.Write == l.Write {
			l = at // it may stand in the log more than once; that is for command-once to say
		}
		if ans.First != 0 && l.Version != want {
			wrong(l, "with event %s at v%d, the log holds it at v%d", shortID(id), want, l.Version)
		}
		if i < len(ans.Positions) && !ans.Positions[i].IsZero() && ans.Positions[i] != l.Position {
			wrong(l, "with event %s at position %s, the log holds it at %s", shortID(id), ans.Positions[i], l.Position)
		}
	}
}

// agree compares what two ok answers to one write tell; what one of them does not tell is no disagreement.
func agree(a, b *Answer) bool {
	if a.First != 0 && b.First != 0 && a.First != b.First || a.Span != 0 && b.Span != 0 && a.Span != b.Span {
		return false
	}
	for i := range min(len(a.Positions), len(b.Positions)) {
		if p, q := a.Positions[i], b.Positions[i]; !p.IsZero() && !q.IsZero() && p != q {
			return false
		}
	}
	return true
}

// checkPresent reports the events of an acknowledged write that L lacks, or holds otherwise.
func checkPresent(run *Run, res *verdict.Result, w *Write) {
	for i, e := range w.Events {
		l := run.eventOf(w, i)
		switch {
		case l == nil:
			violate(res, func() *witness {
				v := newWitness(run, w.Stream, "%s was acknowledged, but event %s is not in the log.", writeText(w), shortID(e.ID)).write(w).cause()
				if other := run.Log[e.ID]; other != nil {
					v.logged(other)
				}
				if !w.Any {
					for _, other := range run.index(run.Streams[w.Stream]).slot(w.Expected + 1 + uint64(i)) {
						v.logged(other)
					}
				}
				return v
			})
		case l.Stream != w.Stream:
			violate(res, func() *witness {
				return newWitness(run, w.Stream, "Event %s was acknowledged on %s, the log holds it on %s.", shortID(e.ID), w.Stream, l.Stream).
					write(w).cause().logged(l).cause()
			})
		case l.Payload != e.Payload:
			violate(res, func() *witness {
				return newWitness(run, w.Stream, "Event %s says something else in the log than what was acknowledged.", shortID(e.ID)).
					write(w).cause().logged(l).cause()
			})
		}
	}
}

// no-phantom-event (INV-NOPHANTOM): every event of L belongs to exactly one recorded write (event id, stream,
// exact version where given) with equal payload hash; every ledger row names an event in L, and by its right place
// where it tells one. An id that several writes claim belongs to the one whose place it has: an old decision that
// is sent again with another number is judged by valid-decision.
func checkNoPhantom(run *Run, res *verdict.Result) {
	t := run.tallied()
	res.Evidence[oppUnknown.Name] = t.unknown
	res.Evidence[oppFailed.Name] = t.failed
	run.each(func(s *Stream, x *streamIndex) {
		res.Evidence[oppRacedAcks.Name] += x.contention().acked
		for _, l := range s.Log {
			checkOwned(run, res, l)
		}
	})
	for _, p := range run.sigmas() {
		for _, row := range p.Ledger {
			if l := run.Log[row.Event]; l != nil {
				checkNamed(run, res, p, row, l)
				continue
			}
			violate(res, func() *witness {
				v := newWitness(run, row.Stream, "Projection %s has the effect of event %s (v%d of %s), which is not in the log.",
					p.Projection, shortID(row.Event), row.Version, row.Stream).
					add("store", run.Info.Start, Infinity, row.How.String(), "ledger row of %s: %s v%d on row %s", p.Projection, shortID(row.Event), row.Version, row.Row).cause()
				if w := run.Owner(row.Event); w != nil {
					v.write(w)
				}
				return v
			})
		}
	}
}

// checkNamed compares a ledger row with the event that it names.
func checkNamed(run *Run, res *verdict.Result, p *Projection, row *history.LedgerRow, l *Logged) {
	fits := func(l *Logged) bool {
		return (row.Stream == "" || row.Stream == l.Stream) && (row.Version == 0 || row.Version == l.Version)
	}
	if fits(l) || slices.ContainsFunc(run.copies[l.ID], fits) {
		return
	}
	violate(res, func() *witness {
		return newWitness(run, l.Stream, "Projection %s has the effect of event %s as v%d of %s, the log holds it at v%d of %s.",
			p.Projection, shortID(l.ID), row.Version, row.Stream, l.Version, l.Stream).
			add("store", run.Info.Start, Infinity, row.How.String(), "ledger row of %s: %s v%d on row %s", p.Projection, shortID(row.Event), row.Version, row.Row).
			cause().logged(l).cause()
	})
}

func checkOwned(run *Run, res *verdict.Result, l *Logged) {
	w := l.Write
	if w == nil {
		violate(res, func() *witness {
			return newWitness(run, l.Stream, "The log holds v%d of %s (event %s), which no recorded write made.", l.Version, l.Stream, shortID(l.ID)).
				logged(l).cause()
		})
		return
	}
	all := slices.DeleteFunc(slices.Clone(run.Disputed[l.ID]), func(w *Write) bool { return !w.fits(l.ID, l.Stream, l.Version) })
	if len(all) > 1 {
		violate(res, func() *witness {
			return newWitness(run, l.Stream, "Event %s of the log belongs to %d recorded writes.", shortID(l.ID), len(all)).
				logged(l).cause().write(all[0]).write(all[1])
		})
		return
	}
	i := slices.IndexFunc(w.Events, func(e WriteEvent) bool { return e.ID == l.ID })
	wrong := ""
	switch {
	case l.Stream != w.Stream:
		wrong = fmt.Sprintf("was written to %s, but stands in %s", w.Stream, l.Stream)
	case l.Payload != w.Events[i].Payload:
		wrong = "says something else than what was written"
	case !w.Any && l.Version != w.Expected+1+uint64(i):
		wrong = fmt.Sprintf("stands at v%d, its write asked for v%d", l.Version, w.Expected+1+uint64(i))
	default:
		return
	}
	violate(res, func() *witness {
		return newWitness(run, l.Stream, "Event %s %s.", shortID(l.ID), wrong).logged(l).cause().write(w)
	})
}

// sigmas returns the projections in a fixed order.
func (r *Run) sigmas() []*Projection {
	out := make([]*Projection, 0, len(r.Projections))
	for _, p := range r.Projections {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *Projection) int {
		return cmp.Or(cmp.Compare(a.Projection, b.Projection), cmp.Compare(a.Generation, b.Generation))
	})
	return out
}

// gapless-versions (INV-GAPLESS): versions in L(s) are exactly 1..n, once each; the store's own record of where the
// stream ends, if it keeps one, says n. Positions may have holes for ever; versions may not.
func checkGapless(run *Run, res *verdict.Result) {
	run.each(func(s *Stream, x *streamIndex) {
		res.Evidence[oppEqualExpected.Name] += x.contention().equal
		if s.Head != nil && s.Head.Version != x.head() {
			violate(res, func() *witness {
				v := newWitness(run, s.Name, "The store's record of %s says that it ends at v%d, its log ends at v%d.", s.Name, s.Head.Version, x.head()).
					add("store", run.Info.Start, Infinity, "head", "head record of %s: v%d", s.Name, s.Head.Version).cause()
				for _, l := range x.slot(x.head()) {
					withWrites(v.logged(l).cause(), l)
				}
				return v
			})
		}
		if x.dense {
			return
		}
		next := uint64(1)
		for i, l := range s.Log {
			switch {
			case l.Version == next:
				next++
			case l.Version < next && i > 0:
				violate(res, func() *witness {
					v := newWitness(run, s.Name, "v%d of %s is in the log twice.", l.Version, s.Name).
						logged(s.Log[i-1]).cause().logged(l).cause()
					return withWrites(v, s.Log[i-1], l)
				})
			case l.Version == 0:
				violate(res, func() *witness {
					return withWrites(newWitness(run, s.Name, "%s has a v0; versions begin with 1.", s.Name).logged(l).cause(), l)
				})
			default:
				from := next
				next = l.Version + 1
				violate(res, func() *witness {
					v := newWitness(run, s.Name, "%s has no v%s, but a v%d.", s.Name, versionsText(from, l.Version-1), l.Version)
					if i > 0 {
						v.logged(s.Log[i-1])
					}
					return withWrites(v.logged(l).cause(), l)
				})
			}
		}
	})
}

// withWrites adds the writes that made events.
func withWrites(v *witness, events ...*Logged) *witness {
	for _, l := range events {
		if l.Write != nil {
			v.read(l.Write.Basis.Read)
			v.write(l.Write)
		}
	}
	return v
}

// immutable-events (INV-IMMUTABLE): two observations of one (stream, version) agree in event id and payload
// hash. Observations are the final log, ok answers (they name ids at versions), and reads: a read that shows
// every version of its range once, but not the content of the log, saw another event at one of them.
//
//	writer 1   append e1 expecting v5 → ok v6
//	writer 2   append e2 expecting v5 → ok v6      (the second put overwrote the first)
//	audit      v6 = e2
func checkImmutable(run *Run, res *verdict.Result) {
	type sight struct {
		version uint64
		id      eventstore.EventID
		a       *Attempt
	}
	run.each(func(s *Stream, x *streamIndex) {
		if !x.dense {
			for i := 1; i < len(s.Log); i++ {
				a, b := s.Log[i-1], s.Log[i]
				if a.Version == b.Version && (a.ID != b.ID || a.Payload != b.Payload) {
					violate(res, func() *witness {
						return withWrites(newWitness(run, s.Name, "The log holds two events at v%d of %s.", a.Version, s.Name).
							logged(a).cause().logged(b).cause(), a, b)
					})
				}
			}
		}
		var sights []sight // answers that the log does not confirm
		for _, w := range s.Writes {
			for i := range w.Attempts {
				a := &w.Attempts[i]
				if a.Answer == nil || a.Answer.First == 0 {
					continue
				}
				res.Evidence[oppRepeated.Name]++
				for j := range a.Answer.count(w) {
					id, v := a.Answer.event(w, j), a.Answer.First+uint64(j)
					slot := x.slot(v)
					if slices.ContainsFunc(slot, func(l *Logged) bool { return l.ID == id }) {
						continue
					}
					sights = append(sights, sight{v, id, a})
					if len(slot) == 0 {
						continue
					}
					violate(res, func() *witness {
						return withWrites(newWitness(run, s.Name, "v%d of %s was acknowledged as event %s, the log holds %s there.",
							v, s.Name, shortID(id), shortID(slot[0].ID)).attempt(a).cause().logged(slot[0]).cause(), slot[0])
					})
				}
			}
		}
		slices.SortStableFunc(sights, func(a, b sight) int { return cmp.Compare(a.version, b.version) })
		for i := 1; i < len(sights); i++ {
			a, b := sights[i-1], sights[i]
			if a.version == b.version && a.id != b.id && len(x.slot(a.version)) == 0 {
				violate(res, func() *witness {
					return newWitness(run, s.Name, "v%d of %s was acknowledged as two different events.", a.version, s.Name).
						attempt(a.a).cause().attempt(b.a).cause()
				})
			}
		}
		for _, q := range s.Reads {
			if !q.OK || q.Count == 0 {
				continue
			}
			res.Evidence[oppRepeated.Name]++
			if q.Pages > 1 {
				res.Evidence[oppPaged.Name]++
			}
			if q.First == 0 || q.Last < q.First || q.Count != q.Last-q.First+1 || q.Last > x.head() {
				continue // not a whole range: read-is-prefix
			}
			lo, hi := x.upTo(q.First-1), x.upTo(q.Last)
			if uint64(hi-lo) == q.Count && x.sums[hi].Sub(x.sums[lo]) != q.Range {
				violate(res, func() *witness {
					v := newWitness(run, s.Name, "A read of %s showed v%s with other content than the log holds.", s.Name,
						versionsText(q.First, q.Last)).read(q).cause()
					for i := lo; i < hi && i < lo+3; i++ {
						v.logged(s.Log[i])
					}
					return v
				})
			}
		}
	})
}

// atomic-batch (INV-BATCH): a write of k>1 events is in L whole or not at all, at versions v..v+k−1 in order;
// no strong read whose range holds versions i < j of the batch showed j without i, and no open one i without j. Where
// no strong reads are promised, none is judged.
func checkBatch(run *Run, res *verdict.Result) {
	type batch struct {
		w           *Write
		first, last uint64
	}
	promised := run.Promised(eventstore.StrongRead)
	run.each(func(s *Stream, _ *streamIndex) {
		var batches []batch
		for _, w := range s.Writes {
			if len(w.Events) < 2 || len(w.Attempts) == 0 {
				continue
			}
			res.Evidence[oppBatches.Name]++
			for i := range w.Attempts {
				if w.Attempts[i].Outcome == eventstore.Unknown {
					res.Evidence[oppInterrupted.Name]++
					break
				}
			}
			if !w.Applied {
				continue
			}
			whole := true
			first := run.eventOf(w, 0)
			for i := range w.Events {
				l := run.eventOf(w, i)
				whole = whole && l != nil && l.Stream == w.Stream && l.Version == first.Version+uint64(i)
				if !whole {
					break
				}
			}
			if whole {
				batches = append(batches, batch{w, first.Version, first.Version + uint64(len(w.Events)) - 1})
				continue
			}
			violate(res, func() *witness {
				v := newWitness(run, s.Name, "%s wrote %d events at once, the log does not hold them whole and in order.", writeText(w), len(w.Events)).write(w)
				for i, e := range w.Events {
					if l := run.eventOf(w, i); l != nil {
						v.logged(l).cause()
					} else {
						v.add("store", run.Info.Start, Infinity, "missing", "event %s is not in the log", shortID(e.ID)).cause()
					}
				}
				return v
			})
		}
		if len(batches) == 0 {
			return
		}
		slices.SortFunc(batches, func(a, b batch) int { return cmp.Compare(a.first, b.first) })
		// around returns the batch that version v is inside of, if any.
		around := func(v uint64) (batch, bool) {
			i, found := slices.BinarySearchFunc(batches, v, func(b batch, v uint64) int { return cmp.Compare(b.first, v) })
			if !found {
				i--
			}
			if i < 0 || v > batches[i].last {
				return batch{}, false
			}
			return batches[i], true
		}
		torn := func(q *Read, b batch, shown, hidden uint64) {
			violate(res, func() *witness {
				return newWitness(run, s.Name, "A strong read showed v%d of %s, but not v%d, which was written in the same batch.", shown, s.Name, hidden).
					read(q).cause().write(b.w).cause()
			})
		}
		for _, q := range s.Reads {
			if !q.OK || !q.Strong || !promised || q.Count == 0 {
				continue
			}
			if b, ok := around(q.Last); ok {
				if q.Invoke <= b.w.Last && b.w.Invoke <= q.T {
					res.Evidence[oppBatchReads.Name]++
				}
				if q.To == 0 && q.Last < b.last {
					torn(q, b, q.Last, q.Last+1)
				}
			}
			if b, ok := around(q.First); ok && q.First > b.first && q.From < q.First {
				torn(q, b, q.First, max(b.first, q.From))
			}
		}
	})
}
