package invariants

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"sort"
	"sync"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/invariants/oracle"
)

// shared is what several rules need of a run; each part is computed once, when first asked for.
type shared struct {
	mu      sync.Mutex
	streams map[*Stream]*streamIndex
	tally   *tally
	feeds   *feeds
	reads   map[*Call][]*Read // see readsOf
}

// index returns the index of a stream.
func (r *Run) index(s *Stream) *streamIndex {
	r.shared.mu.Lock()
	defer r.shared.mu.Unlock()
	x := r.shared.streams[s]
	if x == nil {
		if r.shared.streams == nil {
			r.shared.streams = map[*Stream]*streamIndex{}
		}
		x = newStreamIndex(r, s)
		r.shared.streams[s] = x
	}
	return x
}

// each visits the streams in the order of their names.
func (r *Run) each(visit func(s *Stream, x *streamIndex)) {
	for _, name := range r.StreamNames {
		s := r.Streams[name]
		visit(s, r.index(s))
	}
}

// streamIndex answers questions about one stream in O(1) or O(log n). Prefixes of L(s) are named by the number
// of events in them, so that a log with holes or doubles is judged by the same code as a good one.
type streamIndex struct {
	run *Run
	s   *Stream
	// dense: versions are 1..n, so that a version is the length of its prefix.
	dense bool
	// sums[i] is the range hash of Log[:i].
	sums []history.RangeHash
	// lastInvoke[i] is the latest invoke of a write with an event in Log[:i].
	lastInvoke []int64
	// acks are the returns of writes of L in order of time, each with the event of the highest version returned by then.
	acks    []ackPoint
	folded  *foldResult
	tree    []int64 // see invokedAfter
	races   *races
	bidding *auctionIndex
}

type ackPoint struct {
	t int64
	l *Logged
}

func newStreamIndex(r *Run, s *Stream) *streamIndex {
	n := len(s.Log)
	x := &streamIndex{
		run: r, s: s, dense: true,
		sums: make([]history.RangeHash, n+1), lastInvoke: make([]int64, n+1), acks: make([]ackPoint, 0, n),
	}
	x.lastInvoke[0] = -1 << 63
	for i, l := range s.Log {
		x.dense = x.dense && l.Version == uint64(i+1)
		x.sums[i+1] = x.sums[i].Add(history.HashEvent(l.Version, l.ID, l.Payload))
		x.lastInvoke[i+1] = x.lastInvoke[i]
		if l.Write == nil {
			continue
		}
		if l.Write.Invoke != Infinity {
			x.lastInvoke[i+1] = max(x.lastInvoke[i], l.Write.Invoke)
		}
		if l.Write.Return != Infinity {
			x.acks = append(x.acks, ackPoint{l.Write.Return, l})
		}
	}
	slices.SortFunc(x.acks, func(a, b ackPoint) int { return cmp.Compare(a.t, b.t) })
	for i := 1; i < len(x.acks); i++ {
		if x.acks[i-1].l.Version > x.acks[i].l.Version {
			x.acks[i].l = x.acks[i-1].l
		}
	}
	return x
}

// upTo returns how many events of L have a version ≤ k.
func (x *streamIndex) upTo(k uint64) int {
	n := len(x.s.Log)
	if x.dense {
		return int(min(k, uint64(n)))
	}
	return sort.Search(n, func(i int) bool { return x.s.Log[i].Version > k })
}

// head is the highest version of L(s).
func (x *streamIndex) head() uint64 {
	if n := len(x.s.Log); n > 0 {
		return x.s.Log[n-1].Version
	}
	return 0
}

// slot returns the events of L at version v: one in a good log.
func (x *streamIndex) slot(v uint64) []*Logged {
	if v == 0 {
		return nil
	}
	return x.s.Log[x.upTo(v-1):x.upTo(v)]
}

// returnedBefore returns the highest version of L whose write had returned before t, with its event.
func (x *streamIndex) returnedBefore(t int64) (uint64, *Logged) {
	i := sort.Search(len(x.acks), func(i int) bool { return x.acks[i].t >= t })
	if i == 0 {
		return 0, nil
	}
	return x.acks[i-1].l.Version, x.acks[i-1].l
}

// invokedAfter returns the event of Log[from:to] whose write was invoked last, if that was after t.
func (x *streamIndex) invokedAfter(from, to int, t int64) *Logged {
	if from >= to || x.lastInvoke[to] <= t {
		return nil
	}
	// Only a log that is wrong somewhere below gets here; a tree keeps the answer cheap even then.
	n := len(x.s.Log)
	if x.tree == nil {
		x.tree = make([]int64, 2*n)
		for i, l := range x.s.Log {
			x.tree[n+i] = -1 << 63
			if l.Write != nil && l.Write.Invoke != Infinity {
				x.tree[n+i] = l.Write.Invoke
			}
		}
		for i := n - 1; i > 0; i-- {
			x.tree[i] = max(x.tree[2*i], x.tree[2*i+1])
		}
	}
	best := -1
	for lo, hi := from+n, to+n; lo < hi; lo, hi = lo/2, hi/2 {
		if lo&1 == 1 {
			if best < 0 || x.tree[lo] > x.tree[best] {
				best = lo
			}
			lo++
		}
		if hi&1 == 1 {
			hi--
			if best < 0 || x.tree[hi] > x.tree[best] {
				best = hi
			}
		}
	}
	if best < 0 || x.tree[best] <= t {
		return nil
	}
	for best < n {
		if best *= 2; x.tree[best] < x.tree[best+1] {
			best++
		}
	}
	return x.s.Log[best-n]
}

// flights are the times during which writes were in flight: starts and ends, each ascending.
type flights struct{ starts, ends []int64 }

func flightsOf(writes []*Write) flights {
	f := flights{make([]int64, 0, len(writes)), make([]int64, 0, len(writes))}
	for _, w := range writes {
		if len(w.Attempts) > 0 {
			f.starts = append(f.starts, w.Invoke)
			f.ends = append(f.ends, w.Last)
		}
	}
	slices.Sort(f.ends)
	return f
}

// during counts the writes that were in flight at some time of [from, to].
func (f flights) during(from, to int64) int {
	begun := sort.Search(len(f.starts), func(i int) bool { return f.starts[i] > to })
	over := sort.Search(len(f.ends), func(i int) bool { return f.ends[i] >= from })
	return begun - over
}

// races are the opportunities of contention on one stream.
type races struct {
	decisions int64 // decisions made while another write was in flight
	equal     int64 // writes in flight together with another one of the same expected version
	acked     int64 // acknowledged writes that overlapped another write
	reads     int64 // reads that overlapped a write in flight
	bids      int64 // bids that overlapped another write
	closes    int64 // closes that overlapped another write
}

// contention counts them once for all rules.
func (x *streamIndex) contention() *races {
	if x.races != nil {
		return x.races
	}
	c := &races{}
	x.races = c
	open := flightsOf(x.s.Writes)
	claims := make([]*Write, 0, len(x.s.Writes))
	for _, w := range x.s.Writes {
		if len(w.Attempts) == 0 {
			continue
		}
		raced := open.during(w.Invoke, w.Last) > 1
		if raced && w.Acked {
			c.acked++
		}
		if raced && w.Owner.Name == "bid" {
			c.bids++
		}
		if raced && w.Owner.Name == "close" {
			c.closes++
		}
		if w.Any {
			continue
		}
		if raced || w.Basis.Read != nil && open.during(min(w.Basis.Read.Invoke, w.Invoke), w.Last) > 1 {
			c.decisions++
		}
		claims = append(claims, w)
	}
	for _, call := range x.s.Calls {
		if call.End == nil || call.End.Result != history.ResultRefused || call.End.basis().Hash.IsZero() {
			continue
		}
		from := call.Started
		if call.End.basis().Read != nil {
			from = call.End.basis().Read.Invoke
		}
		if open.during(from, call.End.T) > 0 {
			c.decisions++
		}
	}
	c.equal = equalClaims(claims)
	for _, q := range x.s.Reads {
		if q.OK && open.during(q.Invoke, q.T) > 0 {
			c.reads++
		}
	}
	return c
}

// equalClaims counts the writes that were in flight together with another one of the same expected version. It
// sorts claims.
func equalClaims(claims []*Write) (n int64) {
	slices.SortFunc(claims, func(a, b *Write) int {
		return cmp.Or(cmp.Compare(a.Expected, b.Expected), cmp.Compare(a.Invoke, b.Invoke))
	})
	// longest is the write seen so far that is in flight longest; met tells whether it was counted.
	for i, longest, met := 0, 0, false; i < len(claims); i++ {
		if i == 0 || claims[i].Expected != claims[longest].Expected {
			longest, met = i, false
			continue
		}
		overlaps := claims[i].Invoke <= claims[longest].Last
		if overlaps {
			n++
			if !met {
				n, met = n+1, true
			}
		}
		if claims[i].Last > claims[longest].Last {
			longest, met = i, overlaps
		}
	}
	return n
}

// decision is something decided on a prefix of L(s): an applied write, or a refusal.
type decision struct {
	at    int // length of the prefix
	write *Write
	call  *Call
}

// basis returns what is recorded of the decision.
func (d decision) basis() Basis {
	if d.write != nil {
		return d.write.Basis
	}
	return d.call.End.basis()
}

// foldResult is the one fold of a stream: every state it passed, and what deciding again there gave.
type foldResult struct {
	// hashes[i] is the hash of the state after Log[:i]; it is shorter than that where the fold stopped.
	hashes []eventstore.Hash
	// stopped says why the log can't be folded further; nil if it was folded to its end.
	stopped error
	// overdrawn lists the events that took a balance below zero.
	overdrawn []overdraft
	// nearLimit counts withdrawals after which the same one again would be refused.
	nearLimit int64
	// snapshots are the journal rows that differ from the state at their version.
	snapshots []*history.SnapshotWrite
	// findings are decisions that do not follow from their basis.
	findings []finding
	// unjudged counts decisions that could not be made again, the first with its reason.
	unjudged int
	why      string
	final    oracle.State
}

type overdraft struct {
	l             *Logged
	before, after int64
}

type finding struct {
	decision
	text string
}

// fold folds the stream and decides again wherever a decision is recorded.
func (x *streamIndex) fold() *foldResult {
	if x.folded != nil {
		return x.folded
	}
	f := &foldResult{}
	x.folded = f
	decisions := x.decisions()
	state, err := oracle.New(x.run.Info.Workload)
	if err != nil {
		f.stopped = err
		if n := len(decisions); n > 0 {
			f.unjudge(n, err.Error())
		}
		return f
	}
	f.hashes = make([]eventstore.Hash, 1, len(x.s.Log)+1)
	f.hashes[0] = state.Hash()
	kept := x.s.Snapshots
	for i := 0; ; i++ {
		for len(kept) > 0 && x.upTo(kept[0].Version) <= i {
			if !bytes.Equal(kept[0].State, state.Snapshot()) {
				f.snapshots = append(f.snapshots, kept[0])
			}
			kept = kept[1:]
		}
		for len(decisions) > 0 && decisions[0].at == i {
			f.again(state, decisions[0])
			decisions = decisions[1:]
		}
		if i == len(x.s.Log) {
			break
		}
		before := state.Balance()
		l := x.s.Log[i]
		if err := state.Apply(l.LoggedEvent); err != nil {
			f.stopped = fmt.Errorf("%s can't be folded past v%d: %w", x.s.Name, l.Version, err)
			break
		}
		after := state.Balance()
		if after < 0 && after < before {
			f.overdrawn = append(f.overdrawn, overdraft{l, before, after})
		}
		if after < before && after < before-after {
			f.nearLimit++
		}
		f.hashes = append(f.hashes, state.Hash())
	}
	if n := len(decisions); n > 0 {
		f.unjudge(n, f.stopped.Error())
	}
	f.final = state
	return f
}

func (f *foldResult) unjudge(n int, why string) {
	if f.unjudged == 0 {
		f.why = why
	}
	f.unjudged += n
}

// decisions lists what was decided on the stream, by basis: applied writes with a recorded basis, and
// refusals. Blind appends have none; a refusal that invites a retry was not decided.
func (x *streamIndex) decisions() []decision {
	var out []decision
	for _, w := range x.s.Writes {
		if w.Applied && !w.Basis.Hash.IsZero() {
			out = append(out, decision{at: x.upTo(w.Basis.Version), write: w})
		}
	}
	for _, c := range x.s.Calls {
		if c.refusedByDecision() {
			out = append(out, decision{at: x.upTo(c.End.basis().Version), call: c})
		}
	}
	slices.SortStableFunc(out, func(a, b decision) int { return cmp.Compare(a.at, b.at) })
	return out
}

// commandBlindDeposit is the only command that is decided without a state.
const commandBlindDeposit = "blind-deposit"

// refusedByDecision: the call ended with a refusal that a decision on a state led to.
func (c *Call) refusedByDecision() bool {
	return c.End != nil && c.End.Result == history.ResultRefused && !retriableCode(c.End.Code) &&
		(!c.End.basis().Hash.IsZero() || c.Name == commandBlindDeposit)
}

// retriableCode reports whether an answer with this code invites the same command again.
func retriableCode(code string) bool {
	switch code {
	case "THROTTLED", "INTERNAL", "GROUP_ABORTED", "group_aborted":
		return true
	}
	return false
}

// again makes one decision again and notes where it differs from what is recorded.
func (f *foldResult) again(state oracle.State, d decision) {
	basis := d.basis()
	note := func(format string, args ...any) {
		f.findings = append(f.findings, finding{d, fmt.Sprintf(format, args...)})
	}
	blind := d.call != nil && d.call.Name == commandBlindDeposit
	if at := state.Version(); at != basis.Version && !blind {
		note("it was decided on v%d, where the log has no event; the last one before is v%d", basis.Version, at)
		return
	}
	if have := state.Hash(); have != basis.Hash && !blind {
		note("it was decided on a state of v%d with hash %.8s, but the log up to v%d folds to %.8s",
			basis.Version, basis.Hash, basis.Version, have)
		return
	}
	call := d.call
	if d.write != nil {
		call = d.write.Owner
	}
	v, err := state.Decide(call.Name, call.Body, basis.Now)
	if err != nil {
		f.unjudge(1, fmt.Sprintf("%s of command %s can't be decided again: %v", call.Name, call.Command.ID, err))
		return
	}
	if d.write != nil {
		switch {
		case v.Code != "":
			note("deciding again on v%d gives the refusal %s (has %d, wants %d)", basis.Version, v.Code, v.Have, v.Want)
		case v.Replay != nil:
			note("deciding again on v%d finds that the bid had been accepted at v%d", basis.Version, v.Replay.Version)
		case !samePayloads(d.write.Events, v.Events):
			note("deciding again on v%d gives other events than those that were appended", basis.Version)
		}
		return
	}
	switch e := call.End; {
	case v.Code == "":
		note("deciding again on v%d accepts the command", basis.Version)
	case v.Code != e.Code:
		note("deciding again on v%d refuses with %s, the answer was %s", basis.Version, v.Code, e.Code)
	case v.Have != e.Have || v.Want != e.Want:
		note("deciding again on v%d shows has %d, wants %d; the answer showed has %d, wants %d", basis.Version, v.Have, v.Want, e.Have, e.Want)
	}
}

func samePayloads(written []WriteEvent, decided []oracle.Event) bool {
	if len(written) != len(decided) {
		return false
	}
	for i := range written {
		if written[i].Payload != decided[i].Payload {
			return false
		}
	}
	return true
}

// tally counts the temptations of unknown outcomes in the whole run.
type tally struct {
	unknown    int64           // tries that ended unknown
	landed     int64           // … that a fault record says took effect
	notLanded  int64           // … that a fault record says did not
	retries    int64           // tries of a write after one that may have landed
	continued  int64           // calls that continued a command for which another call had sent a write
	died       map[uint32]bool // processes that died with a try open
	failed     int64           // writes all of whose tries failed
	storeKills int64           // kills of the store
	cut        int64           // tries whose reply a fault cut
}

// tallied counts once for all rules.
func (r *Run) tallied() *tally {
	r.shared.mu.Lock()
	defer r.shared.mu.Unlock()
	if r.shared.tally != nil {
		return r.shared.tally
	}
	t := &tally{died: map[uint32]bool{}}
	r.shared.tally = t
	bites := r.bitesBySession()
	for _, w := range r.Writes {
		open := false
		if w.Failed && len(w.Attempts) > 0 {
			t.failed++
		}
		for i := range w.Attempts {
			a := &w.Attempts[i]
			if open {
				t.retries++
			}
			open = open || a.Outcome != eventstore.Fail
			if a.Outcome != eventstore.Unknown {
				continue
			}
			t.unknown++
			if a.Open {
				if _, ok := r.Processes[w.Owner.Process].Died(); ok {
					t.died[w.Owner.Process] = true
				}
			}
			switch landedOf(bites[r.SessionOf(a)], a) {
			case history.LandedYes:
				t.landed++
			case history.LandedNo:
				t.notLanded++
			case history.LandedUnknown:
			}
		}
	}
	for _, c := range r.Calls {
		if c.Continued && c.takesUp() {
			t.continued++
		}
	}
	for _, f := range r.Faults {
		for _, b := range f.Bites {
			switch {
			case b.Form == history.BiteKilled && f.On == "store":
				t.storeKills++
			case b.Form == history.BiteReplyDropped:
				t.cut++
			}
		}
	}
	return t
}

// takesUp reports whether a call that began before this one had sent a write for the same command.
func (c *Call) takesUp() bool {
	for _, o := range c.Command.Calls {
		if o == c {
			return false
		}
		for _, w := range o.Writes {
			if len(w.Attempts) > 0 {
				return true
			}
		}
	}
	return false
}

// bitten is a bite with its fault.
type bitten struct {
	*history.Bite
	fault *Fault
}

// bitesBySession returns the bites of each named connection in order of time.
func (r *Run) bitesBySession() map[string][]bitten {
	out := map[string][]bitten{}
	for _, f := range r.Faults {
		for _, b := range f.Bites {
			if b.Session != "" {
				out[b.Session] = append(out[b.Session], bitten{b, f})
			}
		}
	}
	for _, bs := range out {
		slices.SortStableFunc(bs, func(a, b bitten) int { return cmp.Compare(a.T, b.T) })
	}
	return out
}

// landedOf says what the fault record knows of an unknown try. A connection carries one try at a time and is
// not used again after an unknown one, so the first bite since the invoke that tells is about this try, even
// if it came later (a parked request that was released after the client had gone).
func landedOf(bites []bitten, a *Attempt) history.Landed {
	for _, b := range bites {
		if b.T >= a.Invoke && b.Landed != history.LandedUnknown {
			return b.Landed
		}
	}
	return history.LandedUnknown
}
