package invariants

import (
	"errors"
	"io"

	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/verdict"
)

// What a record costs, in bytes: one that is held while the rules run, the room that the collector takes included, and one
// that is only told apart (docs/figures.md).
const (
	heldRecord  = 500
	knownRecord = 10
)

// maxParts bounds how often a history is read.
const maxParts = 256

// Parts returns into how many parts a history of so many records has to be divided to be judged in so much memory, in
// bytes; 0 means that memory is no concern.
func Parts(records, memory uint64) int {
	if memory == 0 || records <= memory/heldRecord {
		return 1
	}
	if records >= memory/(2*knownRecord) {
		return maxParts
	}
	return int(min(records*heldRecord/(memory-records*knownRecord)+1, maxParts))
}

// Open opens one history from its beginning, as often as it is called.
type Open func() (ClosingSource, error)

// ClosingSource is a source to be closed by whoever opened it.
type ClosingSource interface {
	Source
	io.Closer
}

// Judgement is what judging a history in parts gives.
type Judgement struct {
	Info     history.TrialInfo
	Warnings []string
	Parts    int // that it was divided into
	Results  []verdict.Result
}

// CheckInParts judges a history that is too large to be held in memory at once. It is read once to find streams that have
// nothing to do with each other, and once for each part, which holds some of these and what is recorded of the run. The
// results are those of Check but for two things: rules that compare streams with each other (Rule.Whole) are inconclusive
// where there is more than one part, and those violations of many that are kept as witnesses may be others. Streams that
// share a command or an event are judged together, however many they are. Errors are those of Load and of open.
func CheckInParts(open Open, parts int, opts Options) (*Judgement, error) {
	c := newComponents()
	frame := newBuilder()
	frame.apart = true
	warnings, err := eachRecord(open, func(rec history.Record) {
		c.add(rec)
		frame.addFrame(rec)
	})
	if err != nil {
		return nil, err
	}
	frame.run.Warnings = warnings
	whole, err := frame.link()
	if err != nil {
		return nil, err
	}
	n := c.deal(parts)
	if n == 1 {
		return checkAtOnce(open, opts)
	}
	p := newPartial(whole, opts)
	for i := range n {
		b := newBuilder()
		b.apart = true
		if _, err := eachRecord(open, func(rec history.Record) {
			if part, every := c.part(rec); part == int32(i) || every {
				b.addPart(rec)
			}
		}); err != nil {
			return nil, err
		}
		run, err := b.link()
		if err != nil {
			return nil, err
		}
		frame.adopt(b)
		p.add(run)
	}
	frame.checkCounts()
	frame.summarize()
	return &Judgement{Info: whole.Info, Warnings: whole.Warnings, Parts: n, Results: p.results()}, nil
}

// checkAtOnce judges a history that can't be divided.
func checkAtOnce(open Open, opts Options) (*Judgement, error) {
	b := newBuilder()
	warnings, err := eachRecord(open, b.add)
	if err != nil {
		return nil, err
	}
	b.run.Warnings = warnings
	run, err := b.finish()
	if err != nil {
		return nil, err
	}
	return &Judgement{Info: run.Info, Warnings: run.Warnings, Parts: 1, Results: Check(run, opts)}, nil
}

// eachRecord hands over every record of a history, opened for that, and returns the warnings of its source.
func eachRecord(open Open, take func(history.Record)) (warnings []string, err error) {
	src, err := open()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	return readAll(src, take)
}

// addFrame takes what is recorded of the run, and only counts views and checkpoints.
func (b *builder) addFrame(rec history.Record) {
	switch rec := rec.(type) {
	case *history.CheckpointRow:
		b.counts.checkpoints++
	case *history.ViewRow:
		if rec.Observation == 0 {
			b.counts.views++
		}
	case *history.CallStart, *history.CallEnd, *history.Write, *history.Invoke, *history.Return, *history.Evidence, *history.Read,
		*history.SnapshotWrite, *history.SnapshotResult, *history.LoggedEvent, *history.LedgerRow, *history.AuctionRow, *history.HeadRow,
		*history.Poll, *history.Apply, *history.Observation:
	default:
		b.add(rec)
	}
}

// addPart takes what rules need that judge parts: no feeds and no views.
func (b *builder) addPart(rec history.Record) {
	switch rec.(type) {
	case *history.Poll, *history.Apply, *history.Observation, *history.CheckpointRow, *history.ViewRow:
	default:
		b.add(rec)
	}
}

// adopt takes over what a part found amiss, and what it counted.
func (b *builder) adopt(part *builder) {
	for _, p := range part.run.Problems {
		b.problem("%s", p)
	}
	b.dropped += part.dropped
	for id, p := range part.run.Processes {
		seen := &b.process(id).Seen
		seen.Calls += p.Seen.Calls
		seen.Writes += p.Seen.Writes
		seen.Attempts += p.Seen.Attempts
		seen.Reads += p.Seen.Reads
	}
	b.counts.events += part.counts.events
	b.counts.ledger += part.counts.ledger
	b.counts.views += part.counts.views
}

// partial sums up what the parts of a history gave.
type partial struct {
	whole *Run // without streams and projections
	opts  Options
	rules []Rule
	sums  []verdict.Result
	died  map[uint32]bool
}

func newPartial(whole *Run, opts Options) *partial {
	rules := Rules()
	return &partial{whole: whole, opts: opts, rules: rules, sums: make([]verdict.Result, len(rules)), died: map[uint32]bool{}}
}

// add judges one more part.
func (p *partial) add(run *Run) {
	p.whole.attempts += run.attempts
	for id := range run.tallied().died {
		p.died[id] = true
	}
	for i, r := range p.rules {
		if r.Slug == slugExercised || r.Slug == slugComplete || r.Whole || !p.opts.needs(p.whole, p.rules, r) {
			continue
		}
		p.sums[i] = sum(p.sums[i], examine(run, r))
	}
}

// sum adds the result of a part to that of the parts before it; the zero result is that of none.
func sum(all, part verdict.Result) verdict.Result {
	switch {
	case all.Verdict == verdict.Error:
		return all
	case all.Invariant == "" || part.Verdict == verdict.Error:
		return part
	}
	for name, n := range part.Evidence {
		if name == oppStoreKills.Name {
			all.Evidence[name] = max(all.Evidence[name], n) // of the run, so each part counts them all
			continue
		}
		all.Evidence[name] += n
	}
	all.Count += part.Count
	all.Violations = append(all.Violations, part.Violations...)
	all.Violations = all.Violations[:min(len(all.Violations), maxViolations)]
	if all.Reason == "" {
		all.Verdict, all.Reason = part.Verdict, part.Reason
	}
	return all
}

// results concludes the sums.
func (p *partial) results() []verdict.Result {
	return p.opts.collect(p.whole, p.rules, func(i int) verdict.Result {
		r := p.rules[i]
		switch {
		case r.Slug == slugComplete:
			return p.complete(r)
		case r.Whole:
			r.Check = tooLarge
			return judge(p.whole, r)
		}
		res := p.sums[i]
		if _, counted := res.Evidence[oppKills.Name]; counted {
			res.Evidence[oppKills.Name] = int64(len(p.died))
		}
		conclude(p.whole, &res)
		return res
	})
}

// complete judges whether the history is complete, which needs none of the streams but where ledgers and views are held
// against each other.
func (p *partial) complete(r Rule) verdict.Result {
	res := judge(p.whole, r)
	if res.Verdict == verdict.Holds && len(p.whole.Info.Projections) > 0 {
		tooLarge(p.whole, &res)
	}
	return res
}

func tooLarge(_ *Run, res *verdict.Result) {
	res.Verdict = verdict.Inconclusive
	res.Reason = "the history is too large to be held in memory at once, and this can't be judged in parts: give more memory (--memory)"
}
