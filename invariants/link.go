package invariants

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"slices"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
)

// finish links everything that was collected.
func (b *builder) finish() (*Run, error) {
	run, err := b.link()
	if err == nil {
		b.summarize()
	}
	return run, err
}

func (b *builder) link() (*Run, error) {
	if !b.trial {
		return nil, ErrNoTrial
	}
	b.linkCalls()
	b.joinWrites()
	b.linkAttempts()
	b.sortAll()
	b.linkWrites()
	b.linkLog()
	b.resolve()
	b.linkViews()
	if !b.apart {
		b.checkCounts()
	}
	b.keepStrays()
	for _, w := range b.run.Writes {
		b.run.attempts += int64(len(w.Attempts))
	}
	if !b.run.Complete {
		b.run.Warnings = append(b.run.Warnings, "the history ends without its end record: the trial was cut off")
	}
	return b.run, nil
}

// summarize says how many problems were not kept.
func (b *builder) summarize() {
	if b.dropped > 0 {
		b.run.Problems = append(b.run.Problems, fmt.Sprintf("… and %d more problems", b.dropped))
	}
}

func (b *builder) linkCalls() {
	r := b.run
	for id, end := range b.ends {
		if c := b.calls.get(id); c != nil {
			b.endCall(c, end)
		} else {
			b.problem("answer to call %s, which never began", idText(id))
		}
	}
	r.Calls = b.allCalls
	slices.SortFunc(r.Calls, func(a, c *Call) int {
		if d := cmp.Compare(a.Started, c.Started); d != 0 {
			return d
		}
		return cmp.Or(cmp.Compare(a.Command.ID, c.Command.ID), cmp.Compare(a.Process, c.Process),
			cmp.Compare(a.Session, c.Session), cmp.Compare(a.Name, c.Name), bytes.Compare(a.Body, c.Body), cmp.Compare(a.ended(), c.ended()))
	})
	for _, c := range r.Calls {
		c.Command.Calls = append(c.Command.Calls, c)
	}
	slices.SortStableFunc(r.Calls, func(a, c *Call) int { return cmp.Compare(a.Stream, c.Stream) })
	for s, calls := range byStream(r.Calls, func(c *Call) string { return c.Stream }) {
		r.Streams[s].Calls = calls
	}
	for _, c := range r.Calls {
		if c.End == nil {
			if p := r.Processes[c.Process]; p != nil && p.End != nil && p.End.How == history.Exited {
				b.problem("a call of command %s was never answered although its process %d ended by itself", c.Command.ID, c.Process)
			}
			continue
		}
		if c.End.T < c.Started {
			b.problem("a call of command %s is answered before it began", c.Command.ID)
		}
		if c.End.Basis != nil {
			c.End.Basis.Read = b.basisRead(b.endReads[c.End], c.Stream)
		}
	}
	for i, w := range r.Writes {
		ids := b.owners[i]
		w.Owner = b.calls.get(ids.call)
		if w.Owner == nil {
			if ids.call != 0 {
				b.problem("write %s belongs to call %s, which is not recorded", idText(ids.write), idText(ids.call))
			}
			w.Owner = &Call{Process: history.ProcessOf(ids.write), Command: &Command{}, Stream: w.Stream}
		}
		if len(w.Events) == 0 {
			b.problem("write %s has no events", idText(ids.write))
		}
		w.Basis.Read = b.basisRead(ids.read, w.Stream)
	}
	for i, q := range b.allReads {
		id := b.readers[i]
		if id == 0 {
			continue
		}
		if q.Call = b.calls.get(id); q.Call == nil {
			b.problem("a read of %s belongs to call %s, which is not recorded", q.Stream, idText(id))
		}
	}
}

// joinWrites makes one write of those that are the same one recorded by several calls of a command: event ids, payloads,
// stream, expected version and basis are equal, as after a blind retry.
func (b *builder) joinWrites() {
	if len(b.run.Disputed) == 0 {
		return
	}
	first := map[eventstore.EventID][]int{}
	gone := map[*Write]bool{}
	b.alias = map[uint64]uint64{}
	byID := make([]int, len(b.run.Writes))
	for i := range byID {
		byID[i] = i
	}
	slices.SortFunc(byID, func(i, j int) int { return cmp.Compare(b.owners[i].write, b.owners[j].write) })
	for _, i := range byID {
		w := b.run.Writes[i]
		if len(w.Events) == 0 {
			continue
		}
		id := w.Events[0].ID
		if _, disputed := b.run.Disputed[id]; !disputed {
			continue
		}
		same := slices.IndexFunc(first[id], func(j int) bool { return w.same(b.run.Writes[j]) })
		if same < 0 {
			first[id] = append(first[id], i)
			continue
		}
		j := first[id][same]
		b.alias[b.owners[i].write] = b.owners[j].write
		b.writes.set(b.owners[i].write, b.run.Writes[j])
		gone[w] = true
		b.shared = append(b.shared, sharedWrite{w.Owner, b.run.Writes[j]})
	}
	b.run.Writes = slices.DeleteFunc(b.run.Writes, func(w *Write) bool { return gone[w] })
}

// same reports whether the records of two calls describe one write of their command.
func (w *Write) same(o *Write) bool {
	return w.Owner != o.Owner && w.Owner.Command == o.Owner.Command && w.Stream == o.Stream && w.Any == o.Any && w.Expected == o.Expected &&
		w.Basis.Version == o.Basis.Version && w.Basis.Hash == o.Basis.Hash && slices.Equal(w.Events, o.Events)
}

// linkWrites lists the writes of each call, and those that claim the same event, in the order of the run.
func (b *builder) linkWrites() {
	r := b.run
	for _, w := range r.Writes {
		w.Owner.Writes = append(w.Owner.Writes, w)
	}
	for _, s := range b.shared {
		if !slices.Contains(s.call.Writes, s.write) {
			s.call.Writes = append(s.call.Writes, s.write)
		}
	}
	if len(r.Disputed) == 0 {
		return
	}
	for _, w := range r.Writes {
		for _, e := range w.Events {
			if claims, ok := r.Disputed[e.ID]; ok && (len(claims) == 0 || claims[len(claims)-1] != w) {
				r.Disputed[e.ID] = append(claims, w)
			}
		}
	}
	for id, claims := range r.Disputed {
		b.byEvent[id] = claims[0]
		if len(claims) == 1 {
			delete(r.Disputed, id)
		}
	}
}

// basisRead finds the read that fixed a decision's basis; one of another stream is a problem.
func (b *builder) basisRead(id uint64, stream string) *Read {
	if id == 0 {
		return nil
	}
	q := b.reads.get(id)
	if q == nil {
		b.problem("a decision on %s names read %s, which is not recorded", stream, idText(id))
		return nil
	}
	if q.Stream != stream {
		b.problem("a decision on %s names read %s of %s", stream, idText(id), q.Stream)
		return nil
	}
	return q
}

// linkAttempts gives each write its attempts and closes those that a dead process left open.
func (b *builder) linkAttempts() {
	keep := b.attempts[:0]
	for _, a := range b.attempts {
		if !a.invoked {
			b.problem("answer to attempt %s, which was never invoked", idText(a.id))
			continue
		}
		if first, ok := b.alias[a.write]; ok {
			a.write = first
		}
		if a.Write = b.writes.get(a.write); a.Write == nil {
			b.problem("attempt %s belongs to no recorded write", idText(a.id))
			continue
		}
		if a.answers && a.T < a.Invoke {
			b.problem("attempt %s returned before it was invoked", idText(a.id))
			a.T = a.Invoke
		}
		if a.Open {
			a.Outcome, a.Reason = eventstore.Unknown, eventstore.Killed
			p := b.run.Processes[history.ProcessOf(a.id)]
			if t, ok := p.Died(); ok {
				a.T = max(t, a.Invoke)
			} else if p != nil && p.End != nil {
				b.problem("attempt %s has no answer although its process ended by itself", idText(a.id))
			}
		}
		keep = append(keep, a)
	}
	slices.SortFunc(keep, func(a, c attemptDraft) int {
		return cmp.Or(cmp.Compare(a.write, c.write), cmp.Compare(a.Invoke, c.Invoke), cmp.Compare(a.id, c.id))
	})
	all := make([]Attempt, len(keep))
	for i := range keep {
		all[i] = keep[i].Attempt
	}
	b.attempts, b.attempt = nil, byID[int32]{}
	for i := 0; i < len(all); {
		w, j := all[i].Write, i
		for j < len(all) && all[j].Write == w {
			w.Last = max(w.Last, all[j].T)
			j++
		}
		w.Invoke = all[i].Invoke
		w.Attempts = all[i:j:j]
		i = j
	}
}

// byStream yields the runs of equal streams of a list that is grouped by stream; they share its memory.
func byStream[T any](list []T, stream func(T) string) iter.Seq2[string, []T] {
	return func(yield func(string, []T) bool) {
		for i := 0; i < len(list); {
			j := i + 1
			for j < len(list) && stream(list[j]) == stream(list[i]) {
				j++
			}
			if !yield(stream(list[i]), list[i:j:j]) {
				return
			}
			i = j
		}
	}
}

func (b *builder) sortAll() {
	r := b.run
	slices.SortFunc(r.Writes, func(a, c *Write) int {
		if d := cmp.Or(cmp.Compare(a.Stream, c.Stream), cmp.Compare(a.Invoke, c.Invoke)); d != 0 {
			return d
		}
		return cmp.Or(a.compareIDs(c), cmp.Compare(a.Expected, c.Expected), cmp.Compare(a.Last, c.Last),
			cmp.Compare(a.Owner.Command.ID, c.Owner.Command.ID), cmp.Compare(a.Owner.Started, c.Owner.Started))
	})
	for s, writes := range byStream(r.Writes, func(w *Write) string { return w.Stream }) {
		r.Streams[s].Writes = writes
	}
	slices.SortFunc(b.allReads, func(a, c *Read) int {
		if d := cmp.Or(cmp.Compare(a.Stream, c.Stream), cmp.Compare(a.Invoke, c.Invoke)); d != 0 {
			return d
		}
		return cmp.Or(cmp.Compare(a.T, c.T), cmp.Compare(a.Process, c.Process), cmp.Compare(a.Session, c.Session), cmp.Compare(a.From, c.From), cmp.Compare(a.Last, c.Last), cmp.Compare(a.Count, c.Count),
			cmp.Compare(a.Range.Hi, c.Range.Hi), cmp.Compare(a.Range.Lo, c.Range.Lo))
	})
	for _, q := range b.allReads {
		if q.T < q.Invoke {
			b.problem("a read of %s by process %d returned before it was invoked", q.Stream, q.Process)
			q.T = q.Invoke
		}
	}
	for s, reads := range byStream(b.allReads, func(q *Read) string { return q.Stream }) {
		r.Streams[s].Reads = reads
	}
	r.StreamNames = make([]string, 0, len(r.Streams))
	for name := range r.Streams {
		r.StreamNames = append(r.StreamNames, name)
	}
	slices.Sort(r.StreamNames)
	for _, s := range r.Streams {
		slices.SortStableFunc(s.Snapshots, func(a, c *history.SnapshotWrite) int {
			return cmp.Or(cmp.Compare(a.Version, c.Version), cmp.Compare(a.T, c.T), cmp.Compare(a.Process, c.Process), bytes.Compare(a.State, c.State))
		})
	}
	slices.SortStableFunc(r.Polls, func(a, c *history.Poll) int {
		return cmp.Or(cmp.Compare(a.Invoke, c.Invoke), cmp.Compare(a.T, c.T), cmp.Compare(a.Projection, c.Projection), cmp.Compare(a.Process, c.Process),
			cmp.Compare(a.Events, c.Events))
	})
	slices.SortStableFunc(r.Applies, func(a, c *history.Apply) int {
		return cmp.Or(cmp.Compare(a.Invoke, c.Invoke), cmp.Compare(a.T, c.T), cmp.Compare(a.Projection, c.Projection), cmp.Compare(a.Process, c.Process),
			cmp.Compare(a.Seq, c.Seq))
	})
	slices.SortStableFunc(r.Faults, func(a, c *Fault) int { return cmp.Or(cmp.Compare(a.T, c.T), cmp.Compare(a.ID, c.ID)) })
	for _, f := range r.Faults {
		if !f.Began() {
			b.problem("fault %s has effects or an end, but no begin", f.ID)
		}
		slices.SortStableFunc(f.Bites, func(a, c *history.Bite) int {
			return cmp.Or(cmp.Compare(a.T, c.T), cmp.Compare(a.Session, c.Session), cmp.Compare(a.Form, c.Form), cmp.Compare(a.Landed, c.Landed))
		})
	}
	slices.SortStableFunc(r.Drops, func(a, c history.Drop) int {
		return cmp.Or(cmp.Compare(a.T, c.T), cmp.Compare(a.Intended, c.Intended), cmp.Compare(a.Process, c.Process))
	})
	slices.SortStableFunc(r.Phases, func(a, c history.Phase) int { return cmp.Or(cmp.Compare(a.T, c.T), cmp.Compare(a.Name, c.Name)) })
}

// linkLog orders L and finds the write behind every event.
func (b *builder) linkLog() {
	r := b.run
	for _, name := range r.StreamNames {
		s := r.Streams[name]
		slices.SortStableFunc(s.Log, func(a, c *Logged) int {
			return cmp.Or(cmp.Compare(a.Version, c.Version), a.Position.Compare(c.Position), bytes.Compare(a.ID[:], c.ID[:]),
				bytes.Compare(a.Payload[:], c.Payload[:]))
		})
		for _, l := range s.Log {
			if r.Log[l.ID] == nil {
				r.Log[l.ID] = l
			} else {
				if r.copies == nil {
					r.copies = map[eventstore.EventID][]*Logged{}
				}
				r.copies[l.ID] = append(r.copies[l.ID], l)
			}
			w := b.ownerAt(l.ID, l.Stream, l.Version)
			if w == nil {
				continue
			}
			l.Write = w
			if !w.Applied {
				w.Applied, w.At = true, l.Version
			}
		}
	}
}

// ownerAt returns the write that an event belongs to which stands at a version of a stream; nil if it is none's. Where
// several writes claim the id (an old decision that is sent again with another number), the place tells.
func (b *builder) ownerAt(id eventstore.EventID, stream string, version uint64) *Write {
	for _, w := range b.run.Disputed[id] {
		if w.fits(id, stream, version) {
			return w
		}
	}
	return b.byEvent[id]
}

// resolve finds what ok answers, evidence and failed conditions say about writes.
func (b *builder) resolve() {
	for _, w := range b.run.Writes {
		w.Failed = true
		for i := range w.Attempts {
			a := &w.Attempts[i]
			w.Failed = w.Failed && a.Outcome == eventstore.Fail
			if a.Answer != nil {
				b.resolveAnswer(a)
			}
		}
	}
	slices.SortStableFunc(b.evidence, func(a, c *Evidence) int {
		return cmp.Or(cmp.Compare(a.T, c.T), cmp.Compare(a.Form, c.Form), cmp.Compare(a.Outcome, c.Outcome), cmp.Compare(a.Call, c.Call), cmp.Compare(a.Read, c.Read))
	})
	last := map[*Write]*Evidence{}
	for _, e := range b.evidence {
		w := b.writes.get(e.Write)
		if w == nil {
			b.problem("evidence about write %s, which is not recorded", idText(e.Write))
			continue
		}
		if prev := last[w]; prev != nil {
			prev.Next = e
		} else {
			w.Evidence = e
		}
		last[w] = e
		if e.Read != 0 {
			if e.Look = b.reads.get(e.Read); e.Look == nil {
				b.problem("evidence about write %s rests on read %s, which is not recorded", idText(e.Write), idText(e.Read))
			}
		}
		switch e.Outcome {
		case eventstore.OK:
			w.ack(e.T)
		case eventstore.Fail:
			w.Refuted = true
		case eventstore.Unknown:
			b.problem("evidence about write %s that says nothing", idText(e.Write))
		}
	}
	for _, c := range b.run.Calls {
		if c.End == nil || c.End.Result != history.ResultOK {
			continue
		}
		// The answer to the caller names its events as much as the store's answer does; for a command
		// found by another process it is the only one.
		for i, id := range c.End.Events {
			if w := b.ownerAt(id, c.Stream, c.End.version(i)); w != nil {
				w.ack(c.End.T)
			}
		}
	}
	for _, w := range b.run.Writes {
		w.Refuted = w.Refuted || w.conditionFailed()
	}
}

func (w *Write) ack(t int64) {
	w.Acked = true
	w.Return = min(w.Return, t)
}

// resolveAnswer finds the write that an ok answer names. An answer that names another write of the command
// (a repeated request, answered with the first result) says that the asking write was not carried out.
func (b *builder) resolveAnswer(a *Attempt) {
	w, ans := a.Write, a.Answer
	if len(ans.Events) == 0 || sameIDs(ans.Events, w.Events) {
		ans.Events = nil
		ans.Names = w
		w.ack(a.T)
		return
	}
	ans.Names = b.ownerAt(ans.Events[0], w.Stream, ans.First)
	if ans.Names == nil {
		return
	}
	ans.Names.ack(a.T)
	if ans.Names != w {
		w.Refuted = true
	}
}

func sameIDs(ids []eventstore.EventID, events []WriteEvent) bool {
	if len(ids) != len(events) {
		return false
	}
	for i, id := range ids {
		if events[i].ID != id {
			return false
		}
	}
	return true
}

// conditionFailed reports a write-level fail by a condition: the slot was taken, and no other try of the
// write, sent before the answer returned, could have been the one that took it. A condition that failed
// because the stream was still too short may hold later and is no such fail.
func (w *Write) conditionFailed() bool {
	if w.Any {
		return false
	}
	for i := range w.Attempts {
		a := &w.Attempts[i]
		if a.Outcome != eventstore.Fail || a.Reason != eventstore.VersionConflict || a.HeadKnown && a.Head < w.Expected {
			continue
		}
		alone := true
		for j := range w.Attempts {
			o := &w.Attempts[j]
			if j != i && o.Invoke <= a.T && o.Outcome != eventstore.Fail {
				alone = false
				break
			}
		}
		if alone {
			return true
		}
	}
	return false
}

func (b *builder) linkViews() {
	r := b.run
	for _, v := range b.views {
		if v.Observation == 0 {
			p := b.projection(v.Projection, v.Generation)
			p.Final = append(p.Final, v)
			continue
		}
		o := b.obs[v.Observation]
		if o == nil || o.Projection != v.Projection || o.Generation != v.Generation {
			b.problem("view row %q of observation %d, which is not recorded", v.Row, v.Observation)
			continue
		}
		o.View = append(o.View, v)
	}
	infos := map[string]history.ProjectionInfo{}
	for _, info := range r.Info.Projections {
		infos[info.Name] = info
	}
	for _, p := range r.Projections {
		info, ok := infos[p.Projection]
		if !ok {
			b.problem("projection %q is not described by the trial", p.Projection)
			info = history.ProjectionInfo{Name: p.Projection}
		}
		p.Info = info
		sortProjection(p)
	}
}

// sortProjection orders what was read of a projection by counters of the store and by content: the order of records
// must not matter. The audits of our stores read in this order, which makes it cheap.
func sortProjection(p *Projection) {
	slices.SortStableFunc(p.Ledger, func(a, c *history.LedgerRow) int {
		if d := cmp.Or(cmp.Compare(a.Row, c.Row), cmp.Compare(a.RowOrder, c.RowOrder)); d != 0 {
			return d
		}
		return cmp.Or(cmp.Compare(a.Transaction, c.Transaction), cmp.Compare(a.Seq, c.Seq), cmp.Compare(a.Stream, c.Stream),
			cmp.Compare(a.Version, c.Version), cmp.Compare(a.How, c.How), cmp.Compare(a.RowVersion, c.RowVersion),
			cmp.Compare(a.Epoch, c.Epoch), bytes.Compare(a.Event[:], c.Event[:]))
	})
	slices.SortStableFunc(p.Checkpoints, func(a, c *history.CheckpointRow) int {
		if d := cmp.Compare(a.Seq, c.Seq); d != 0 {
			return d
		}
		return cmp.Or(cmp.Compare(a.Epoch, c.Epoch), cmp.Compare(a.Cursor.String(), c.Cursor.String()), cmp.Compare(a.Transaction, c.Transaction))
	})
	slices.SortStableFunc(p.Observations, func(a, c *Observation) int { return cmp.Or(cmp.Compare(a.T, c.T), cmp.Compare(a.ID, c.ID)) })
	sortRows(p.Final)
	for _, o := range p.Observations {
		sortRows(o.View)
	}
}

func sortRows(rows []*history.ViewRow) {
	slices.SortStableFunc(rows, func(a, c *history.ViewRow) int {
		return cmp.Or(cmp.Compare(a.Row, c.Row), cmp.Compare(a.Version, c.Version), bytes.Compare(a.State, c.State))
	})
}

// keepStrays remembers the owners of events that were acknowledged or have effects and are not in L; those of
// all others are known by L, or never asked for.
func (b *builder) keepStrays() {
	r := b.run
	r.strays = map[eventstore.EventID]*Write{}
	for _, w := range r.Writes {
		for _, e := range w.Events {
			if w.Acked && r.Log[e.ID] == nil {
				r.strays[e.ID] = b.byEvent[e.ID]
			}
		}
	}
	for _, p := range r.Projections {
		for _, row := range p.Ledger {
			if w := b.byEvent[row.Event]; w != nil && r.Log[row.Event] == nil {
				r.strays[row.Event] = w
			}
		}
	}
}

// checkCounts compares what processes and the audit say they have written with what arrived.
func (b *builder) checkCounts() {
	r := b.run
	ids := make([]uint32, 0, len(r.Processes))
	for id := range r.Processes {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		p := r.Processes[id]
		if p.End == nil || p.End.How != history.Exited {
			continue
		}
		for _, c := range []struct {
			what      string
			said, has uint64
		}{
			{"calls", p.End.Calls, p.Seen.Calls}, {"writes", p.End.Writes, p.Seen.Writes},
			{"attempts", p.End.Attempts, p.Seen.Attempts}, {"reads", p.End.Reads, p.Seen.Reads},
		} {
			if c.said != c.has {
				b.problem("process %d (%s) wrote %d %s, %d are in the history", id, p.Name, c.said, c.what, c.has)
			}
		}
	}
	if r.Audit == nil {
		return
	}
	for _, c := range []struct {
		what      string
		said, has uint64
	}{
		{"events", r.Audit.Events, b.counts.events}, {"ledger rows", r.Audit.Ledger, b.counts.ledger},
		{"checkpoints", r.Audit.Checkpoints, b.counts.checkpoints}, {"view rows", r.Audit.Views, b.counts.views},
	} {
		if c.said != c.has {
			b.problem("the audit read %d %s, %d are in the history", c.said, c.what, c.has)
		}
	}
}
