package roles

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/eventproof/eventproof/app"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/loadgen"
	"github.com/eventproof/eventproof/record"
	"github.com/eventproof/eventproof/targets"
)

func isEOF(err error) bool { return errors.Is(err, io.EOF) }

// Writer runs commands through the command loop and records them.
type Writer struct {
	cfg    Config
	env    Env
	rec    *record.Recorder
	store  eventstore.Store
	loop   loop
	counts counters
}

// loop runs one command to its answer.
type loop interface {
	Do(ctx context.Context, c app.Call) app.Result
}

// errNoBidding: a target says that its auctions are native, and its sessions can't bid.
var errNoBidding = errors.New("roles: the target's sessions have no native form of the auction")

// counters are what a writer has done, for the live display.
type counters struct{ started, ended, ok, refused, unknown, conflicts, dropped atomic.Int64 }

// NewWriter builds a writer and writes its Process record.
func NewWriter(cfg Config, parts *app.Parts, env Env, session targets.Session) (*Writer, error) {
	domain, err := app.DomainFor(cfg.Workload)
	if err != nil {
		return nil, err
	}
	policy, err := parts.Resolve(cfg.Loop)
	if err != nil {
		return nil, err
	}
	var bidding eventstore.Bidding
	if cfg.NativeAuction {
		s, ok := session.(targets.BiddingSession)
		if !ok || s.Bidding() == nil {
			return nil, errNoBidding
		}
		bidding = s.Bidding()
	}
	if err := begin(cfg, env); err != nil {
		return nil, err
	}
	w := &Writer{cfg: cfg, env: env, rec: record.New(env.Rec, env.Clock, cfg.Process)}
	w.store = record.Store(session.Store(), w.rec)
	var snapshots eventstore.Snapshots
	if s := session.Snapshots(); s != nil && cfg.SnapshotEvery > 0 {
		snapshots = record.Snapshots(s, w.rec)
	}
	looped := app.Config{
		Domain: domain, Policy: policy, Store: w.store, Snapshots: snapshots, Recorder: w.rec, Gate: env.Gate,
		Clock: env.Clock, Rand: env.Rand, Idempotent: slices.Contains(cfg.Promises, eventstore.IdempotentAppend),
		Deadline: cfg.Deadline, Try: cfg.Try, SnapshotEvery: uint64(cfg.SnapshotEvery),
	}
	if !cfg.NativeAuction {
		w.loop = app.NewHandler(looped)
		return w, nil
	}
	w.loop = app.NewBidder(looped, record.Bidding(bidding, w.rec))
	return w, nil
}

// begin writes the Process record.
func begin(cfg Config, env Env) error {
	return env.Rec.Write(&history.Process{
		ID: cfg.Process, Role: cfg.Kind, Name: cfg.Name, Incarnation: cfg.Incarnation, PID: uint32(os.Getpid()),
		Child: cfg.Child, T: env.Clock.Now(),
	})
}

// Do runs one command to its answer.
func (w *Writer) Do(ctx context.Context, c app.Command, session uint32, intended int64, continued bool) app.Result {
	w.counts.started.Add(1)
	res := w.loop.Do(ctx, app.Call{Command: c, Session: session, Intended: intended, Started: w.env.Clock.Now(), Continued: continued})
	w.counts.ended.Add(1)
	w.counts.conflicts.Add(int64(res.Conflicts))
	switch res.Result {
	case history.ResultOK:
		w.counts.ok.Add(1)
	case history.ResultRefused:
		w.counts.refused.Add(1)
	case history.ResultUnknown, history.ResultExhausted, history.ResultFailed:
		w.counts.unknown.Add(1)
	}
	return res
}

// Read reads a stream outside any command.
func (w *Writer) Read(ctx context.Context, r eventstore.ReadRequest) (eventstore.Slice, error) {
	return w.store.Read(ctx, r)
}

// Close writes the ProcessEnd record with what the recorder has counted. A writer that has lost a record does not claim
// a good end.
func (w *Writer) Close() error {
	if err := w.env.Rec.Lost(); err != nil {
		return err
	}
	n := w.rec.Counts()
	return w.env.Rec.Write(&history.ProcessEnd{
		ID: w.cfg.Process, T: w.env.Clock.Now(), How: history.Exited, Calls: n.Calls, Writes: n.Writes, Attempts: n.Attempts, Reads: n.Reads,
	})
}

func (w *Writer) status() Status {
	c := &w.counts
	return Status{Started: c.started.Load(), Ended: c.ended.Load(), OK: c.ok.Load(), Refused: c.refused.Load(),
		Unknown: c.unknown.Load(), Conflicts: c.conflicts.Load(), Dropped: c.dropped.Load()}
}

// RunLoad continues what a killed incarnation had begun, and runs the writer's share of the load from stamp t0 on
// until it is over or ctx ends; commands that are running then are finished.
func (w *Writer) RunLoad(ctx, life context.Context, t0 int64) error {
	l := w.cfg.Load
	source, err := Workload(w.cfg.Workload, w.cfg.Seed, 0, *l)
	if err != nil {
		return err
	}
	var continued sync.WaitGroup
	for i, c := range w.cfg.Open {
		continued.Go(func() {
			w.Do(life, app.Command{ID: c.ID, Stream: c.Stream, Name: c.Name, Body: c.Body}, uint32(l.Workers+i), c.Intended, true)
		})
	}
	defer continued.Wait()
	model, err := loadgen.ParseModel(l.Model)
	if err != nil {
		return err
	}
	pattern, err := loadgen.ParsePattern(l.Arrival)
	if err != nil {
		return err
	}
	// A writer that starts in the middle takes the arrivals that are still to come: those before died with the
	// incarnation that should have run them.
	late := time.Duration(max(0, w.env.Clock.Now()-t0))
	if late >= l.Length {
		return nil
	}
	_, err = loadgen.Run(ctx, loadgen.Config{
		Model: model, Pattern: pattern, Rate: l.Rate, For: l.Length, Workers: l.Workers, Queue: l.Queue,
		Shard: l.Shard, Shards: l.Shards, Seeds: loadgen.Seeds{Root: w.cfg.Seed}, Timed: source.Timed(), Clock: w.env.Clock, Start: t0,
		Skip: late,
		Dropped: func(a loadgen.Arrival, t int64) {
			w.counts.dropped.Add(1)
			// A drop that can't be recorded shows as a failed segment when the role ends.
			_ = w.env.Rec.Write(&history.Drop{Process: w.cfg.Process, Intended: a.Intended, T: t})
		},
	}, func(_ context.Context, worker int, a loadgen.Arrival) {
		c := source.Command(a.Seq)
		w.Do(life, app.Command{ID: c.ID, Stream: c.Stream, Name: c.Name, Body: c.Body}, uint32(worker), a.Intended, false)
	})
	return err
}
