package invariants

import (
	"cmp"
	"slices"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/verdict"
)

// read-is-prefix (INV-PREFIX): a strong read of [i..to] = L[i..k], k ≤ to (empty = i−1); k ≥ min(to, every
// version of L whose write returned before the read's invoke); nothing in it was invoked after the read
// returned; over non-overlapping open reads of one stream in one session k never decreases. Eventual reads,
// and all reads of a target that promises no strong ones: content and the invoke rule only. An answer that contradicts
// itself is wrong by itself.
func checkPrefix(run *Run, res *verdict.Result) {
	promised := run.Promised(eventstore.StrongRead)
	run.each(func(s *Stream, x *streamIndex) {
		res.Evidence[oppReadsBeside.Name] += x.contention().reads
		var open []*Read
		for _, q := range s.Reads {
			if !q.OK {
				continue
			}
			if q.Pages > 1 {
				res.Evidence[oppPaged.Name]++
			}
			strong := promised && q.Strong
			if !checkContent(run, res, x, q) || !strong {
				continue
			}
			checkFresh(run, res, x, q)
			if q.To == 0 {
				open = append(open, q)
			}
		}
		checkSessions(run, res, s, open)
	})
}

// end is the k of a read: the last version it claims to have seen.
func (q *Read) end() uint64 {
	if q.Count == 0 {
		return max(q.From, 1) - 1
	}
	return q.Last
}

// checkContent judges content and the invoke rule; it returns false if the read was wrong.
func checkContent(run *Run, res *verdict.Result, x *streamIndex, q *Read) bool {
	if q.Count == 0 {
		return true
	}
	from := max(q.From, 1)
	lo := x.upTo(from - 1)
	hi := max(x.upTo(q.Last), lo)
	wrong := run.Flaws[q]
	switch {
	case wrong != "":
	case q.To != 0 && q.Last > q.To:
		wrong = "it returned versions beyond the range that was asked for"
	case q.First < from:
		wrong = "it returned versions below the range that was asked for"
	case q.Last > x.head():
		wrong = "it returned versions that the final log does not have"
	case uint64(hi-lo) != q.Count:
		wrong = "the log holds another number of events in this range"
	case x.sums[hi].Sub(x.sums[lo]) != q.Range:
		wrong = "the log holds other events in this range"
	case q.First != x.s.Log[lo].Version:
		wrong = "it does not begin with the first event of this range"
	}
	if wrong != "" {
		violate(res, func() *witness {
			v := newWitness(run, x.s.Name, "A read of %s does not show a prefix of the log: %s.", x.s.Name, wrong).read(q).cause()
			for i := max(lo, hi-3); i < hi; i++ {
				v.logged(x.s.Log[i])
			}
			return v
		})
		return false
	}
	if l := x.invokedAfter(lo, hi, q.T); l != nil {
		violate(res, func() *witness {
			return newWitness(run, x.s.Name, "A read of %s showed v%d before that was sent.", x.s.Name, l.Version).read(q).cause().write(l.Write).cause()
		})
		return false
	}
	return true
}

// checkFresh: a strong read shows everything that had been acknowledged before it began.
func checkFresh(run *Run, res *verdict.Result, x *streamIndex, q *Read) {
	must, l := x.returnedBefore(q.Invoke)
	if l == nil {
		return
	}
	k := q.end()
	if q.To != 0 && must > q.To {
		if k >= q.To {
			return
		}
		// Something above the range was acknowledged; within the range everything below it has to be there.
		must = q.To
	}
	if must <= k {
		return
	}
	violate(res, func() *witness {
		return newWitness(run, x.s.Name, "A strong read of %s ended at v%d, but v%d had been acknowledged before it began.", x.s.Name, k, l.Version).
			write(l.Write).cause().logged(l).read(q).cause()
	})
}

// checkSessions: what a session saw once it keeps seeing.
func checkSessions(run *Run, res *verdict.Result, s *Stream, open []*Read) {
	slices.SortStableFunc(open, func(a, b *Read) int {
		return cmp.Or(cmp.Compare(a.Process, b.Process), cmp.Compare(a.Session, b.Session))
	})
	for i := 0; i < len(open); {
		j := i
		for j < len(open) && open[j].Process == open[i].Process && open[j].Session == open[i].Session {
			j++
		}
		session := open[i:j]
		i = j
		ended := slices.Clone(session)
		slices.SortStableFunc(ended, func(a, b *Read) int { return cmp.Compare(a.T, b.T) })
		var best *Read
		next := 0
		for _, q := range session {
			for next < len(ended) && ended[next].T < q.Invoke {
				// An empty read tells that the stream ended below its range, not where.
				if e := ended[next]; e.Count > 0 && (best == nil || e.Last > best.Last) {
					best = e
				}
				next++
			}
			if best == nil || q.end() >= best.Last {
				continue
			}
			seen := best
			violate(res, func() *witness {
				return newWitness(run, s.Name, "A session that had seen v%d of %s later saw it end at v%d.", seen.Last, s.Name, q.end()).
					read(seen).cause().read(q).cause()
			})
		}
	}
}
