package extending_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"os"
	"strings"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/extending/shelf"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/verdict"
)

type appendFunc = func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error)

// answers is a variant that appends rightly and changes what it says about it.
func answers(change func(a eventstore.Append, got *eventstore.Appended, err error) error) func() parts {
	return func() parts {
		return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
			got, err := c.Append(ctx, a)
			err = change(a, &got, err)
			return got, err
		}}
	}
}

var namesNothing = answers(func(_ eventstore.Append, got *eventstore.Appended, err error) error { got.Events = nil; return err })
var versionsZero = answers(func(_ eventstore.Append, got *eventstore.Appended, err error) error { got.First, got.Last = 0, 0; return err })

// lost and names nothing
func losesUnnamed() parts {
	var n atomic.Int64
	return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
		if n.Add(1)%20 == 0 && a.Expected.IsAny() {
			h := c.Shelf.Head(a.Stream)
			return eventstore.Appended{First: h + 1, Last: h + 1}, nil
		}
		return c.Append(ctx, a)
	}}
}
func losesUnnamedExact() parts {
	var n atomic.Int64
	return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
		if n.Add(1)%20 == 0 && !a.Expected.IsAny() && a.Expected.Version()>0 {
			return eventstore.Appended{}, nil
		}
		return c.Append(ctx, a)
	}}
}

func rejectsLegal(reason eventstore.Reason) func() parts {
	return func() parts {
		var n atomic.Int64
		return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
			if i := n.Add(1); i > 12 && i%5 == 0 {
				return eventstore.Appended{}, shelf.Refused("append", reason, errors.New("value out of range"))
			}
			return c.Append(ctx, a)
		}}
	}
}

// the turn is lost with the first caller that gives up: all later appends wait in vain
func leakedLock() parts {
	var n atomic.Int64
	return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
		if n.Add(1) > 60 {
			<-ctx.Done()
			return eventstore.Appended{}, shelf.Lost("append", ctx.Err())
		}
		return c.Append(ctx, a)
	}}
}
// throttled for good after a while
func throttledForGood() parts {
	var n atomic.Int64
	return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
		if n.Add(1) > 60 {
			return eventstore.Appended{}, shelf.Refused("append", eventstore.Throttled, nil)
		}
		return c.Append(ctx, a)
	}}
}

func editMeta(edit func(*eventstore.Metadata)) func() parts {
	return func() parts {
		return parts{append: func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error) {
			a.Events = slices.Clone(a.Events)
			for i := range a.Events {
				edit(&a.Events[i].Meta)
			}
			return c.Append(ctx, a)
		}}
	}
}
var metaBasis = editMeta(func(m *eventstore.Metadata) { m.BasisVersion++ })
var metaHash = editMeta(func(m *eventstore.Metadata) { m.BasisHash[0] ^= 1 })
var metaCommand = editMeta(func(m *eventstore.Metadata) { m.CommandID = "x" + m.CommandID })
var metaEmptyCommand = editMeta(func(m *eventstore.Metadata) { m.CommandID = "" })
var metaSchema = editMeta(func(m *eventstore.Metadata) { m.SchemaVersion = 9; m.Epoch = 4; m.CorrelationID = "oops" })

func reads(change func(s *eventstore.Slice)) func() parts {
	return func() parts {
		return parts{read: func(ctx context.Context, c *shelf.Conn, r eventstore.ReadRequest) (eventstore.Slice, error) {
			s, err := c.Read(ctx, r)
			change(&s)
			return s, err
		}}
	}
}
var readsShuffled = reads(func(s *eventstore.Slice) {
	if n := len(s.Events); n > 3 {
		slices.Reverse(s.Events[1 : n-1])
	}
})
var readsBackwards = reads(func(s *eventstore.Slice) { slices.Reverse(s.Events) })
var readsTwice = reads(func(s *eventstore.Slice) {
	if n := len(s.Events); n > 3 {
		s.Events = append(s.Events[:2:2], s.Events[1:]...)
	}
})
var readsTwiceDropping = reads(func(s *eventstore.Slice) {
	if n := len(s.Events); n > 4 {
		s.Events = slices.Clone(s.Events)
		s.Events[2] = s.Events[1]
	}
})
var readsNoMeta = reads(func(s *eventstore.Slice) {
	for i := range s.Events {
		s.Events[i].Meta = eventstore.Metadata{}
	}
})
var readsWrongStream = reads(func(s *eventstore.Slice) {
	for i := range s.Events {
		s.Events[i].Stream = "account-77"
		s.Events[i].Position = eventstore.Position{Minor: 4}
	}
})
func offByOne() parts {
	return parts{read: func(ctx context.Context, c *shelf.Conn, r eventstore.ReadRequest) (eventstore.Slice, error) {
		if r.From > 1 { r.From++ }
		return c.Read(ctx, r)
	}}
}
func toIgnored() parts {
	return parts{read: func(ctx context.Context, c *shelf.Conn, r eventstore.ReadRequest) (eventstore.Slice, error) {
		r.To = 0
		return c.Read(ctx, r)
	}}
}
func snapshotFlip() parts {
	return parts{find: func(ctx context.Context, c *shelf.Conn, stream string) (eventstore.Snapshot, bool, error) {
		s, ok, err := c.LoadSnapshot(ctx, stream)
		s.State = slices.Clone(s.State)
		if len(s.State) > 18 { s.State[18] ^= 1 }
		return s, ok, err
	}}
}

var parksSome = pages(func(s *shelf.Shelf, v eventstore.View, b eventstore.Batch, p *shelf.Page) { passes(s, v, b, p, "parked") })
var supersedesSome = pages(func(s *shelf.Shelf, v eventstore.View, b eventstore.Batch, p *shelf.Page) { passes(s, v, b, p, "superseded") })
var filtersSome = pages(func(s *shelf.Shelf, v eventstore.View, b eventstore.Batch, p *shelf.Page) { passes(s, v, b, p, "filtered") })

func passes(s *shelf.Shelf, v eventstore.View, b eventstore.Batch, p *shelf.Page, how string) {
	kept := b
	kept.Events = slices.DeleteFunc(slices.Clone(b.Events), func(e eventstore.Event) bool { return e.Version%9 == 8 })
	again, err := shelf.NewPage(s, v, kept)
	if err != nil { return }
	for _, e := range p.Effects {
		if e.Version%9 == 8 {
			x := shelf.Effect{Event: e.Event, Stream: e.Stream, Version: e.Version, How: how}
			if how != "filtered" { x.Row = e.Row; x.Stands = e.Version }
			again.Effects = append(again.Effects, x)
		}
	}
	*p = *again
}
// ledger with a unique key and no CAS
func dedupedLedger() parts {
	seen := map[string]bool{}
	var mu sync.Mutex
	return parts{apply: func(ctx context.Context, c *shelf.Conn, v eventstore.View, b eventstore.Batch) (eventstore.Checkpoint, error) {
		time.Sleep(2 * time.Millisecond)
		turn := c.Shelf.Book(v.Name()).Turn
		if err := turn.Take(ctx); err != nil {
			return eventstore.Checkpoint{}, shelf.Refused("apply", eventstore.NotSent, err)
		}
		defer turn.Leave()
		now := c.Shelf.Checkpoint(v.Name())
		p, err := shelf.NewPage(c.Shelf, v, b)
		if err != nil {
			return eventstore.Checkpoint{}, err
		}
		p.Seq, p.Epoch = now.Seq+1, now.Epoch
		mu.Lock()
		p.Effects = slices.DeleteFunc(p.Effects, func(e shelf.Effect) bool { dup := seen[e.Event]; seen[e.Event] = true; return dup })
		mu.Unlock()
		return written(c, v, p)
	}}
}
var ledgerVersions = pages(func(_ *shelf.Shelf, _ eventstore.View, _ eventstore.Batch, p *shelf.Page) {
	for i := range p.Effects { p.Effects[i].Version += 3; }
})
var ledgerStreams = pages(func(_ *shelf.Shelf, _ eventstore.View, _ eventstore.Batch, p *shelf.Page) {
	for i := range p.Effects { p.Effects[i].Stream = "account-1" }
})
var ledgerStands = pages(func(_ *shelf.Shelf, _ eventstore.View, _ eventstore.Batch, p *shelf.Page) {
	for i := range p.Effects { p.Effects[i].Stands += 7 }
})
// rows are written by another goroutine a little later
func asyncRows() parts {
	return pages(func(s *shelf.Shelf, v eventstore.View, b eventstore.Batch, p *shelf.Page) {
		later := &shelf.Page{Projection: p.Projection, Generation: 1, Cursor: p.Cursor, Rows: p.Rows}
		book := s.Book(v.Name())
		_ = book
		rows := p.Rows
		p.Rows = nil
		go func() {
			time.Sleep(100*time.Microsecond)
			later.Rows = rows
			_, _ = s.Write(shelf.Frame{Page: later})
		}()
		time.Sleep(200*time.Microsecond)
	})()
}
// effects and rows later than the checkpoint, in a frame of their own
func effectsAfter() parts {
	return parts{apply: func(ctx context.Context, c *shelf.Conn, v eventstore.View, b eventstore.Batch) (eventstore.Checkpoint, error) {
		turn := c.Shelf.Book(v.Name()).Turn
		if err := turn.Take(ctx); err != nil {
			return eventstore.Checkpoint{}, shelf.Refused("apply", eventstore.NotSent, err)
		}
		defer turn.Leave()
		if now := c.Shelf.Checkpoint(v.Name()); now.Seq != b.Prev.Seq {
			return eventstore.Checkpoint{}, shelf.Refused("apply", eventstore.Superseded, nil)
		}
		p, err := shelf.NewPage(c.Shelf, v, b)
		if err != nil {
			return eventstore.Checkpoint{}, err
		}
		next, err := written(c, v, &shelf.Page{Projection: p.Projection, Generation: 1, Seq: p.Seq, Epoch: p.Epoch, Cursor: p.Cursor})
		if err != nil { return next, err }
		p.Seq, p.Epoch = 0, 0
		_, err = written(c, v, p)
		return next, err
	}}
}
// seq starts over at each claim
func claimResetsSeq() parts {
	return parts{claim: func(ctx context.Context, c *shelf.Conn, v eventstore.View) (eventstore.Checkpoint, error) {
		turn := c.Shelf.Book(v.Name()).Turn
		if err := turn.Take(ctx); err != nil { return eventstore.Checkpoint{}, err }
		defer turn.Leave()
		now := c.Shelf.Checkpoint(v.Name())
		return written(c, v, &shelf.Page{Projection: v.Name(), Generation: 1, Seq: 1, Epoch: now.Epoch + 1, Cursor: now.Cursor.String()})
	}}
}
// a claim opens a new generation and keeps the rows and the cursor
func claimNewGeneration(fromStart bool) func() parts {
	return func() parts {
	return parts{claim: func(ctx context.Context, c *shelf.Conn, v eventstore.View) (eventstore.Checkpoint, error) {
		turn := c.Shelf.Book(v.Name()).Turn
		if err := turn.Take(ctx); err != nil { return eventstore.Checkpoint{}, err }
		defer turn.Leave()
		now := c.Shelf.Checkpoint(v.Name())
		p := &shelf.Page{Projection: v.Name(), Generation: now.Generation + 1, Seq: 1, Epoch: now.Epoch + 1, Cursor: now.Cursor.String()}
		if fromStart { p.Cursor = "" }
		return written(c, v, p)
	}}}
}
type logEdit struct{ targets.Auditor; f func(*history.LoggedEvent) bool }
func (l logEdit) Log(ctx context.Context, y func(history.LoggedEvent) error) error {
	return l.Auditor.Log(ctx, func(e history.LoggedEvent) error { if !l.f(&e) { return nil }; return y(e) })
}
type notFenced struct{ targets.Auditor }
func (n notFenced) Fence(ctx context.Context) (targets.Proof, error) { p, err := n.Auditor.Fence(ctx); p.Fenced = false; return p, err }
func unfenced() parts { return parts{audit: func(a targets.Auditor) targets.Auditor { return notFenced{a} }} }
type noLedger struct{ targets.Auditor }
func (n noLedger) Ledgers(context.Context, func(history.LedgerRow) error) error { return nil }
func withoutLedger() parts { return parts{audit: func(a targets.Auditor) targets.Auditor { return noLedger{a} }} }
type noCheckpoints struct{ targets.Auditor }
func (n noCheckpoints) Checkpoints(context.Context, func(history.CheckpointRow) error) error { return nil }
func withoutCheckpoints() parts { return parts{audit: func(a targets.Auditor) targets.Auditor { return noCheckpoints{a} }} }
type noViews struct{ targets.Auditor }
func (n noViews) Views(context.Context, func(history.ViewRow) error) error { return nil }
func withoutViews() parts { return parts{audit: func(a targets.Auditor) targets.Auditor { return noViews{a} }} }
type noLog struct{ targets.Auditor }
func (n noLog) Log(context.Context, func(history.LoggedEvent) error) error { return nil }
func withoutLog() parts { return parts{audit: func(a targets.Auditor) targets.Auditor { return noLog{a} }} }
type noMetaLog struct{ targets.Auditor }

func TestTmp2(t *testing.T) {
	only := os.Getenv("ONLY")
	for _, v := range []tv{
		{"names-nothing", namesNothing, "b"}, {"versions-zero", versionsZero, "b"}, {"loses-unnamed", losesUnnamed, "b"}, {"loses-unnamed-exact", losesUnnamedExact, "b"},
		{"rejects", rejectsLegal(eventstore.Rejected), "b"}, {"rejects-toolarge", rejectsLegal(eventstore.TooLarge), "b"}, {"rejects-invalid", rejectsLegal(eventstore.Invalid), "b"}, {"rejects-throttled", rejectsLegal(eventstore.Throttled), "b"}, {"rejects-conflict", rejectsLegal(eventstore.VersionConflict), "b"}, {"rejects-ahead", rejectsLegal(eventstore.ExpectedAhead), "b"},{"rejects-fenced", rejectsLegal(eventstore.Fenced), "b"},{"rejects-superseded", rejectsLegal(eventstore.Superseded), "b"},{"rejects-lostreply", rejectsLegal(eventstore.LostReply), "b"},
		{"leaked", leakedLock, "b"}, {"throttled-good", throttledForGood, "b"},
		{"meta-basis", metaBasis, "b"}, {"meta-hash", metaHash, "b"}, {"meta-command", metaCommand, "b"}, {"meta-nocommand", metaEmptyCommand, "b"}, {"meta-schema", metaSchema, "b"},
		{"r-shuffled", readsShuffled, "b"}, {"r-shuffled-a", readsShuffled, "a"}, {"r-back", readsBackwards, "b"}, {"r-twice", readsTwice, "b"}, {"r-twicedrop", readsTwiceDropping, "b"}, {"r-nometa", readsNoMeta, "b"}, {"r-wrongstream", readsWrongStream, "b"}, {"r-offby", offByOne, "b"}, {"r-to", toIgnored, "b"}, {"r-to-a", toIgnored, "a"}, {"snapflip", snapshotFlip, "b"},
		{"p-parks", parksSome, "b"}, {"p-supersedes", supersedesSome, "b"}, {"p-filters", filtersSome, "b"}, {"p-dedupledger", dedupedLedger, "b"}, {"p-lver", ledgerVersions, "b"}, {"p-lstream", ledgerStreams, "b"}, {"p-lstands", ledgerStands, "b"}, {"p-async", asyncRows, "b"}, {"p-after", effectsAfter, "b"}, {"p-reseq", claimResetsSeq, "b"}, {"p-gen", claimNewGeneration(false), "b"}, {"p-gen0", claimNewGeneration(true), "b"},
		{"unfenced", unfenced, "b"}, {"a-noledger", withoutLedger, "b"}, {"a-nockpt", withoutCheckpoints, "b"}, {"a-noviews", withoutViews, "b"}, {"a-nolog", withoutLog, "b"},
	} {
		if only != "" && !strings.Contains(","+only+",", ","+v.name+",") { continue }
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			sc := "crowd-bank.yaml"
			if v.sc == "a" { sc = "crowd-auction.yaml" }
			tr := run(t, variant(v.name, v.f), sc, 1, time.Second)
			if tr.Problem != "" { t.Log("PROBLEM", v.name, tr.Problem) }
			t.Log("VIOLATED", v.name, with(tr, verdict.Violated), "ERR", with(tr, verdict.Error), "INC", with(tr, verdict.Inconclusive))
			t.Logf("CMDS %s %+v %v", v.name, tr.Metrics.Commands, tr.Warnings)
			if only != "" {
				for _, s := range with(tr, verdict.Violated, verdict.Error, verdict.Inconclusive) { t.Log(tell(tr, s)) }
			}
		})
	}
}
