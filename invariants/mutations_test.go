package invariants

import (
	"slices"
	"testing"

	"github.com/eventproof/eventproof/domain/auction"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/invariants/oracle"
)

// mutation spoils one thing of a correct history; it returns false if there is nothing to spoil.
type mutation struct {
	name  string
	apply func(s *simulator) bool
	// all of these must fire.
	caught []string
}

func pick[T any](s *simulator, all []T, ok func(T) bool) (T, bool) {
	var fit []T
	for _, x := range all {
		if ok(x) {
			fit = append(fit, x)
		}
	}
	if len(fit) == 0 {
		var none T
		return none, false
	}
	return fit[s.rng.IntN(len(fit))], true
}

func landed(w *writeOf) bool { return w.events[0].Version != 0 }

func acked(w *writeOf) bool {
	return landed(w) && slices.ContainsFunc(w.tries, func(r *history.Return) bool { return r.Outcome == eventstore.OK })
}

func TestASingleMutationOfACorrectHistoryIsCaught(t *testing.T) {
	for _, m := range mutations() {
		t.Run(m.name, func(t *testing.T) {
			tried := 0
			for seed := range max(40, *seeds) {
				workload := []string{oracle.Bank, oracle.Auction}[seed%2]
				s := simulate(t, seed, workload, 30)
				if !m.apply(s) {
					continue
				}
				tried++
				got := verdicts(s.h.run())
				for _, slug := range m.caught {
					if got[slug].Count == 0 {
						t.Errorf("seed %d, %s: %s is %s (%s)", seed, workload, slug, got[slug].Verdict, got[slug].Reason)
					}
				}
			}
			if tried < 5 {
				t.Errorf("applied only %d times", tried)
			}
		})
	}
}

func mutations() []mutation {
	return []mutation{
		{"drop an acknowledged event", func(s *simulator) bool {
			w, ok := pick(s, s.writes, acked)
			if ok {
				s.h.logs[w.rec.Stream] = slices.DeleteFunc(s.h.logs[w.rec.Stream], func(l *history.LoggedEvent) bool { return l == w.events[0] })
			}
			return ok
		}, []string{"no-lost-ack"}},
		{"execute a command again", func(s *simulator) bool {
			w, ok := pick(s, s.writes, landed)
			if !ok {
				return false
			}
			again := w.c.writeEvents([]oracle.Event{{Type: w.events[0].Type, Data: w.events[0].Data}})
			again.rec.Expected = s.h.head(w.rec.Stream)
			again.land().lost(s.now+1, s.now+2)
			return true
		}, []string{"command-once"}},
		{"put an event into the log twice", func(s *simulator) bool {
			w, ok := pick(s, s.writes, landed)
			if ok {
				twice := *w.events[0]
				twice.Version = s.h.head(w.rec.Stream) + 1
				s.h.logs[w.rec.Stream] = append(s.h.logs[w.rec.Stream], &twice)
			}
			return ok
		}, []string{"command-once"}},
		{"change what an event says", func(s *simulator) bool {
			w, ok := pick(s, s.writes, landed)
			if ok {
				w.events[0].Data = append(slices.Clone(w.events[0].Data), ' ')
			}
			return ok
		}, []string{"no-phantom-event"}},
		{"swap two versions", func(s *simulator) bool {
			for _, log := range s.orderedLogs() {
				if n := len(log); n >= 4 {
					i := 2 + s.rng.IntN(n-3)
					if s.exact(log[i]) || s.exact(log[i+1]) {
						log[i].Version, log[i+1].Version = log[i+1].Version, log[i].Version
						return true
					}
				}
			}
			return false
		}, []string{"no-phantom-event"}},
		{"leave a hole in the versions", func(s *simulator) bool {
			for _, log := range s.orderedLogs() {
				if n := len(log); n >= 3 {
					log[n-1].Version++
					return true
				}
			}
			return false
		}, []string{"gapless-versions"}},
		{"call an unknown or acknowledged try failed", func(s *simulator) bool {
			w, ok := pick(s, s.writes, landed)
			if !ok {
				return false
			}
			for _, r := range w.tries {
				r.Outcome, r.Reason, r.Events = eventstore.Fail, eventstore.Rejected, nil
				if r.T == 0 {
					r.T = us(s.now)
					s.h.add(r)
				}
			}
			return true
		}, []string{"failed-means-absent"}},
		{"call a conflict acknowledged", func(s *simulator) bool {
			w, ok := pick(s, s.writes, func(w *writeOf) bool {
				return !landed(w) && slices.ContainsFunc(w.tries, func(r *history.Return) bool { return r.Reason == eventstore.VersionConflict })
			})
			if !ok {
				return false
			}
			r := w.tries[len(w.tries)-1]
			r.Outcome, r.Reason, r.HeadKnown = eventstore.OK, eventstore.ReasonNone, false
			r.Events, r.First, r.Last = idsOf(w), w.rec.Expected+1, w.rec.Expected+1
			if r.T == 0 {
				r.T = us(s.now)
				s.h.add(r)
			}
			return true
		}, []string{"no-lost-ack"}},
		{"answer an accepted command as refused", func(s *simulator) bool {
			w, ok := pick(s, s.writes, func(w *writeOf) bool { return acked(w) && w.c.end != nil && w.c.end.Result == history.ResultOK })
			if ok {
				w.c.end.Result, w.c.end.Code = history.ResultRefused, "INSUFFICIENT_FUNDS"
				w.c.end.Decision = w.c.decision()
			}
			return ok
		}, []string{"failed-means-absent"}},
		{"change the amount of a refusal", func(s *simulator) bool {
			e, ok := pick(s, s.h.records, func(r history.Record) bool {
				e, is := r.(*history.CallEnd)
				return is && e.Result == history.ResultRefused && !e.Decision.Hash.IsZero()
			})
			if ok {
				e.(*history.CallEnd).Have++
			}
			return ok
		}, []string{"truthful-rejections"}},
		{"change the state of an answer", func(s *simulator) bool {
			w, ok := pick(s, s.writes, func(w *writeOf) bool { return acked(w) && w.c.end != nil && w.c.end.Result == history.ResultOK })
			if ok {
				w.c.end.StateHash[3]++
			}
			return ok
		}, []string{"truthful-answers"}},
		{"change the basis of a decision", func(s *simulator) bool {
			w, ok := pick(s, s.writes, landed)
			if ok {
				w.rec.Decision.Hash[3]++
			}
			return ok
		}, []string{"valid-decision"}},
		{"change what a read showed", func(s *simulator) bool {
			q, ok := s.pickRead(func(q *history.Read) bool { return q.Count > 0 })
			if ok {
				q.Range.Hi++
			}
			return ok
		}, []string{"read-is-prefix"}},
		{"report a conflict of a write that won", func(s *simulator) bool {
			w, ok := pick(s, s.writes, func(w *writeOf) bool { return acked(w) && len(w.tries) == 1 })
			if ok {
				r := w.tries[0]
				r.Outcome, r.Reason, r.Events = eventstore.Fail, eventstore.VersionConflict, nil
			}
			return ok
		}, []string{"optimistic-concurrency"}},
		{"a refusal shows another amount than was asked for", func(s *simulator) bool {
			e, ok := s.pickEnd(decidedRefusal)
			if ok {
				e.Want--
			}
			return ok
		}, []string{"truthful-rejections"}},
		{"a refusal has another code", func(s *simulator) bool {
			e, ok := s.pickEnd(decidedRefusal)
			if ok {
				e.Code = map[bool]string{true: "NOT_OPEN", false: "INSUFFICIENT_FUNDS"}[e.Code != "NOT_OPEN"]
			}
			return ok
		}, []string{"truthful-rejections"}},
		{"a refusal was decided on an older state than had been acknowledged", func(s *simulator) bool {
			c, ok := pick(s, s.callsOf(), func(c *callOf) bool {
				if c.end == nil || !decidedRefusal(c.end) || c.end.Decision.Basis < 3 {
					return false
				}
				w := s.at(c.start.Stream, c.end.Decision.Basis)
				return w != nil && s.returned(w) < c.look.Invoke && s.codeAt(c, c.end.Decision.Basis-1) == c.end.Code
			})
			if !ok {
				return false
			}
			c.basis = c.end.Decision.Basis - 1
			v := c.decide()
			c.end.Have, c.end.Want, c.end.Decision = v.Have, v.Want, c.decision()
			return true
		}, []string{"truthful-rejections"}},
		{"an answer names an older version with its state", func(s *simulator) bool {
			w, ok := pick(s, s.writes, func(w *writeOf) bool { return answered(w) && w.c.end.Version > 2 })
			if ok {
				w.c.end.Version--
				w.c.end.StateHash = s.h.state(w.rec.Stream, w.c.end.Version).Hash()
			}
			return ok
		}, []string{"no-lost-ack"}},
		{"a caller is told of the events of another command", func(s *simulator) bool {
			a, ok := pick(s, s.writes, answered)
			if !ok {
				return false
			}
			b, ok := pick(s, s.writes, func(w *writeOf) bool { return landed(w) && w.rec.Request != a.rec.Request })
			if ok {
				a.c.end.Events = idsOf(b)
			}
			return ok
		}, []string{"no-lost-ack"}},
		{"a try is answered ok with the events of another command", func(s *simulator) bool {
			a, ok := pick(s, s.writes, acked)
			if !ok {
				return false
			}
			b, ok := pick(s, s.writes, func(w *writeOf) bool { return landed(w) && w.rec.Request != a.rec.Request })
			if ok {
				a.okTry().Events = idsOf(b)
			}
			return ok
		}, []string{"no-lost-ack"}},
		{"a write is acknowledged at another version", func(s *simulator) bool {
			w, ok := pick(s, s.writes, acked)
			if ok {
				w.okTry().First++
				w.okTry().Last++
			}
			return ok
		}, []string{"no-lost-ack"}},
		{"a second call carries the command out again", func(s *simulator) bool {
			w, ok := pick(s, s.writes, landed)
			if !ok {
				return false
			}
			o := w.c.start
			c := s.h.callAs(o.CommandID, 1, 50, s.now, o.Name, o.Stream, o.Body)
			c.basis = s.h.head(o.Stream)
			again := c.writeEvents([]oracle.Event{{Type: w.events[0].Type, Data: w.events[0].Data}}).land().ok(s.now+1, s.now+2)
			c.answer(s.now+3, again)
			return true
		}, []string{"command-once"}},
		{"one conflict of an exhausted call was none", func(s *simulator) bool {
			c, ok := pick(s, s.callsOf(), func(c *callOf) bool { return c.end != nil && c.end.Result == history.ResultExhausted })
			if !ok {
				return false
			}
			for _, w := range s.writes {
				if w.c == c && len(w.tries) == 1 && w.tries[0].Reason == eventstore.VersionConflict {
					w.tries[0].Reason = eventstore.Throttled
					return true
				}
			}
			return false
		}, []string{"truthful-rejections"}},
		{"a losing bid is told that its id was used", func(s *simulator) bool {
			e, ok := s.pickEnd(func(e *history.CallEnd) bool { return e.Code == codeStale })
			if ok {
				e.Code = codeInvalidPayload
			}
			return ok
		}, []string{"truthful-rejections"}},
		{"a replay shows another time", func(s *simulator) bool {
			e, ok := s.pickEnd(func(e *history.CallEnd) bool { return e.Result == history.ResultOK && e.At != 0 })
			if ok {
				e.At++
			}
			return ok
		}, []string{"idempotent-bids"}},
		{"a winner is told that it lost", func(s *simulator) bool {
			w, ok := pick(s, s.writes, func(w *writeOf) bool { return answered(w) && w.c.start.Name == auction.CommandBid })
			if ok {
				f, _ := oracle.ParseCommand(w.c.start.Body)
				e := w.c.end
				*e = history.CallEnd{Call: e.Call, T: e.T, Result: history.ResultRefused, Code: codeStale, Have: f.Amount, Want: f.Amount, Decision: w.rec.Decision}
			}
			return ok
		}, []string{"failed-means-absent", "truthful-rejections", "idempotent-bids"}},
		{"a try whose reply was cut is reported as failed", func(s *simulator) bool { return s.lie(eventstore.Fail) }, []string{"honest-outcomes"}},
		{"a try whose reply was cut is reported as acknowledged", func(s *simulator) bool { return s.lie(eventstore.OK) }, []string{"honest-outcomes"}},
		{"a strong read misses what had been acknowledged", func(s *simulator) bool {
			q, ok := s.pickRead(func(q *history.Read) bool {
				if !q.Strong || q.To != 0 || q.Count < 2 {
					return false
				}
				w := s.at(q.Stream, q.Last)
				return w != nil && s.returned(w) < q.Invoke
			})
			if ok {
				s.h.show(q, q.Last-1)
			}
			return ok
		}, []string{"read-is-prefix"}},
		{"a read shows what was sent only later", func(s *simulator) bool {
			q, ok := s.pickRead(func(q *history.Read) bool { return q.Count > 0 && s.at(q.Stream, q.Last) != nil })
			if ok {
				q.T = s.invoked(s.at(q.Stream, q.Last)) - 1
				q.Invoke = q.T - 1
			}
			return ok
		}, []string{"read-is-prefix"}},
		{"a strong read shows half a batch", func(s *simulator) bool {
			q, ok := s.pickRead(func(q *history.Read) bool {
				w := s.at(q.Stream, q.Last)
				return q.Strong && q.To == 0 && q.Count > 1 && w != nil && len(w.events) == 2 && w.events[1].Version == q.Last
			})
			if ok {
				s.h.show(q, q.Last-1)
			}
			return ok
		}, []string{"atomic-batch"}},
		{"a snapshot carries another version", func(s *simulator) bool {
			r, ok := pick(s, s.h.records, func(r history.Record) bool { return r.Kind() == history.KindSnapshotWrite })
			if ok {
				r.(*history.SnapshotWrite).Version--
			}
			return ok
		}, []string{"snapshot-equals-fold"}},
		{"an effect of an event that is not in the log", func(s *simulator) bool {
			s.ledger(s.h.eventID(), s.streams[0], 1)
			return true
		}, []string{"no-phantom-event"}},
		{"an effect of an event under another version", func(s *simulator) bool {
			w, ok := pick(s, s.writes, landed)
			if ok {
				s.ledger(w.events[0].ID, w.rec.Stream, w.events[0].Version+1)
			}
			return ok
		}, []string{"no-phantom-event"}},
		{"a write that evidence had excluded lands", func(s *simulator) bool {
			r, ok := pick(s, s.h.records, func(r history.Record) bool {
				e, is := r.(*history.Evidence)
				return is && e.Outcome == eventstore.Fail
			})
			if !ok {
				return false
			}
			for _, w := range s.writes {
				if w.rec.Write == r.(*history.Evidence).Write {
					w.land()
				}
			}
			return true
		}, []string{"failed-means-absent", "honest-outcomes"}},
		{"a write that lost its race lands", func(s *simulator) bool {
			w, ok := pick(s, s.writes, func(w *writeOf) bool {
				return !landed(w) && len(w.tries) == 1 && w.tries[0].Reason == eventstore.VersionConflict
			})
			if ok {
				w.land()
			}
			return ok
		}, []string{"failed-means-absent", "optimistic-concurrency"}},
		{"a withdrawal or bid of another amount is written and logged than was decided", func(s *simulator) bool {
			w, ok := pick(s, s.writes, func(w *writeOf) bool {
				return landed(w) && !w.rec.Any && len(w.events) == 1 && w.c.start.Name != auction.CommandClose
			})
			if ok {
				w.events[0].Data = raised(w.events[0].Data)
				w.rec.Events[0].Payload = eventstore.PayloadHash(w.events[0].Type, w.events[0].Data)
			}
			return ok
		}, []string{"valid-decision"}},
		{"an event stands in another stream", func(s *simulator) bool {
			w, ok := pick(s, s.writes, func(w *writeOf) bool { return acked(w) && len(w.events) == 1 })
			if ok {
				s.h.logs[w.rec.Stream] = slices.DeleteFunc(s.h.logs[w.rec.Stream], func(l *history.LoggedEvent) bool { return l == w.events[0] })
				w.events[0].Stream = "elsewhere"
				s.h.logs["elsewhere"] = append(s.h.logs["elsewhere"], w.events[0])
			}
			return ok
		}, []string{"no-lost-ack", "no-phantom-event"}},
		{"a record is lost", func(s *simulator) bool {
			s.h.edit = append(s.h.edit, func(rs []history.Record) []history.Record {
				i := s.pickIndex(rs, false)
				return slices.Delete(slices.Clone(rs), i, i+1)
			})
			return true
		}, []string{"complete-history"}},
		{"a record is there twice", func(s *simulator) bool {
			s.h.edit = append(s.h.edit, func(rs []history.Record) []history.Record { return append(slices.Clone(rs), rs[s.pickIndex(rs, true)]) })
			return true
		}, []string{"complete-history"}},
	}
}

// answered: the call that made the write was answered ok with it.
func answered(w *writeOf) bool {
	return acked(w) && w.c.end != nil && w.c.end.Result == history.ResultOK && slices.Equal(w.c.end.Events, idsOf(w)) && !w.rec.Any
}

func decidedRefusal(e *history.CallEnd) bool {
	return e.Result == history.ResultRefused && !e.Decision.Hash.IsZero()
}

// okTry is the first acknowledged try.
func (w *writeOf) okTry() *history.Return {
	return w.tries[slices.IndexFunc(w.tries, func(r *history.Return) bool { return r.Outcome == eventstore.OK })]
}

// raised is an event's data with another amount.
func raised(data []byte) []byte {
	i := slices.Index(data, ':') + 1
	for data[i] < '1' || data[i] > '9' {
		i++
	}
	return slices.Insert(slices.Clone(data), i, '1')
}

func (s *simulator) exact(l *history.LoggedEvent) bool {
	return slices.ContainsFunc(s.writes, func(w *writeOf) bool { return w.events[0] == l && !w.rec.Any })
}

func (s *simulator) orderedLogs() (out [][]*history.LoggedEvent) {
	for _, name := range slices.Sorted(mapKeys(s.h.logs)) {
		out = append(out, s.h.logs[name])
	}
	return out
}

func (s *simulator) callsOf() (out []*callOf) {
	for _, c := range s.played {
		if c.look != nil {
			out = append(out, c)
		}
	}
	return out
}

// at returns the write with an event at that version.
func (s *simulator) at(stream string, v uint64) *writeOf {
	for _, w := range s.writes {
		for _, l := range w.events {
			if w.rec.Stream == stream && v != 0 && l.Version == v {
				return w
			}
		}
	}
	return nil
}

// returned is when a write was first acknowledged.
func (s *simulator) returned(w *writeOf) int64 {
	at := Infinity
	for _, r := range w.tries {
		if r.Outcome == eventstore.OK && r.T != 0 && slices.Equal(r.Events, idsOf(w)) {
			at = min(at, r.T)
		}
	}
	return at
}

// invoked is when a write was first sent.
func (s *simulator) invoked(w *writeOf) int64 {
	at := Infinity
	for _, r := range s.h.records {
		if i, ok := r.(*history.Invoke); ok && i.Write == w.rec.Write {
			at = min(at, i.T)
		}
	}
	return at
}

// codeAt is the refusal that a call would have met on an older state.
func (s *simulator) codeAt(c *callOf, k uint64) string {
	v, err := s.h.state(c.start.Stream, k).Decide(c.start.Name, c.start.Body, 1_000)
	if err != nil {
		s.h.t.Fatal(err)
	}
	return v.Code
}

func (s *simulator) pickEnd(ok func(*history.CallEnd) bool) (*history.CallEnd, bool) {
	r, found := pick(s, s.h.records, func(r history.Record) bool {
		e, is := r.(*history.CallEnd)
		return is && ok(e)
	})
	if !found {
		return nil, false
	}
	return r.(*history.CallEnd), true
}

// pickRead fills in what reads showed before it picks one.
func (s *simulator) pickRead(ok func(*history.Read) bool) (*history.Read, bool) {
	s.h.fill()
	r, found := pick(s, s.h.records, func(r history.Record) bool {
		q, is := r.(*history.Read)
		return is && ok(q)
	})
	if !found {
		return nil, false
	}
	return r.(*history.Read), true
}

// lie reports a try whose reply was cut with an outcome that nobody could know.
func (s *simulator) lie(outcome eventstore.Outcome) bool {
	cut := map[string]bool{}
	for _, r := range s.h.records {
		if b, ok := r.(*history.Bite); ok && b.Form == history.BiteReplyDropped && b.Landed == history.LandedYes {
			cut[b.Session] = true
		}
	}
	w, ok := pick(s, s.writes, func(w *writeOf) bool {
		return slices.ContainsFunc(w.tries, func(r *history.Return) bool { return cut[r.Session] && r.T != 0 })
	})
	if !ok {
		return false
	}
	for _, r := range w.tries {
		if cut[r.Session] && r.T != 0 {
			r.Outcome, r.Reason = outcome, eventstore.ReasonNone
		}
	}
	return true
}

// ledger adds a row of a projection.
func (s *simulator) ledger(event eventstore.EventID, stream string, version uint64) {
	s.h.info.Projections = []history.ProjectionInfo{{Name: "balances", View: "balances", Mode: "transactional", Ledger: true}}
	s.h.add(&history.LedgerRow{Projection: "balances", Generation: 1, Event: event, Stream: stream, Version: version, Row: stream, How: history.Applied})
	s.h.edit = append(s.h.edit, func(rs []history.Record) []history.Record {
		for _, r := range rs {
			if a, ok := r.(*history.Audit); ok {
				a.Ledger++
			}
		}
		return rs
	})
}

// pickIndex chooses a record whose loss, or whose repetition, the books show: one of a process that ended by itself.
func (s *simulator) pickIndex(rs []history.Record, twice bool) int {
	whole := map[uint32]bool{}
	for _, r := range rs {
		if e, ok := r.(*history.ProcessEnd); ok && e.How == history.Exited {
			whole[e.ID] = true
		}
	}
	for {
		i := s.rng.IntN(len(rs))
		ok := false
		switch r := rs[i].(type) {
		case *history.CallStart:
			ok = whole[r.Process]
		case *history.CallEnd:
			ok = whole[history.ProcessOf(r.Call)]
		case *history.Write:
			ok = whole[history.ProcessOf(r.Write)]
		case *history.Invoke:
			ok = whole[history.ProcessOf(r.Attempt)]
		case *history.Return:
			ok = whole[history.ProcessOf(r.Attempt)]
		case *history.Read:
			ok = whole[r.Process]
		case *history.LoggedEvent:
			ok = true
		case *history.Fault, *history.Audit, *history.Fence, *history.End, *history.Process:
			ok = twice
		}
		if ok {
			return i
		}
	}
}
