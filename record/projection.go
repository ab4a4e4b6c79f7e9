package record

import (
	"context"
	"sync/atomic"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
)

// Snapshots returns snapshots whose content is journalled before each put; a put that can't be journalled fails
// with reason NotSent. It returns nil for nil, the sign of a store that keeps none.
func Snapshots(inner eventstore.Snapshots, r *Recorder) eventstore.Snapshots {
	if inner == nil {
		return nil
	}
	return &snapshots{inner, r}
}

type snapshots struct {
	inner eventstore.Snapshots
	r     *Recorder
}

// LoadSnapshot implements eventstore.Snapshots. Which version a load started from is recorded with its read, see
// WithSnapshot.
func (s *snapshots) LoadSnapshot(ctx context.Context, stream string) (eventstore.Snapshot, bool, error) {
	return s.inner.LoadSnapshot(ctx, stream)
}

// SaveSnapshot implements eventstore.Snapshots.
func (s *snapshots) SaveSnapshot(ctx context.Context, snap eventstore.Snapshot) error {
	err := s.r.w.Write(&history.SnapshotWrite{
		Process: s.r.process, T: s.r.clk.Now(), Stream: snap.Stream, Version: snap.Version, State: snap.State,
	})
	if err != nil {
		return notSent("save snapshot", err)
	}
	err = s.inner.SaveSnapshot(ctx, snap)
	outcome, _ := eventstore.Classify(err)
	rerr := s.r.w.Write(&history.SnapshotResult{
		Process: s.r.process, T: s.r.clk.Now(), Stream: snap.Stream, Version: snap.Version, Outcome: outcome,
	})
	if rerr != nil {
		return unrecorded("save snapshot", eventstore.Unknown, err, rerr)
	}
	return err
}

// Feed returns a feed that records every poll for the projection of this name. gen holds the generation that is
// being built; share it with Projection, which keeps it up to date.
func Feed(inner eventstore.Feed, r *Recorder, projection string, gen *atomic.Uint64) eventstore.Feed {
	return &feed{inner, r, projection, gen}
}

type feed struct {
	inner      eventstore.Feed
	r          *Recorder
	projection string
	gen        *atomic.Uint64
}

// Poll implements eventstore.Feed.
func (f *feed) Poll(ctx context.Context, after eventstore.Cursor, limit int) (eventstore.Page, error) {
	rec := history.Poll{
		Process: f.r.process, Projection: f.projection, Generation: f.gen.Load(), Invoke: f.r.clk.Now(), After: after,
	}
	page, err := f.inner.Poll(ctx, after, limit)
	rec.T = f.r.clk.Now()
	if err != nil {
		rec.Outcome = eventstore.Fail // like a read: without an answer it claims nothing
	} else {
		rec.Outcome, rec.Next, rec.Events, rec.Held = eventstore.OK, page.Next, uint32(len(page.Events)), page.Held
	}
	if rerr := f.r.w.Write(&rec); rerr != nil {
		return eventstore.Page{}, unrecorded("poll", eventstore.Fail, err, rerr)
	}
	return page, err
}

// Projection returns a projection that records every apply and keeps gen at the generation of the checkpoint that
// it saw last.
func Projection(inner eventstore.Projection, r *Recorder, name string, gen *atomic.Uint64) eventstore.Projection {
	return &projection{inner, r, name, gen}
}

type projection struct {
	inner eventstore.Projection
	r     *Recorder
	name  string
	gen   *atomic.Uint64
}

// Claim implements eventstore.Projection.
func (p *projection) Claim(ctx context.Context) (eventstore.Checkpoint, error) {
	return p.seen(p.inner.Claim(ctx))
}

// Load implements eventstore.Projection.
func (p *projection) Load(ctx context.Context) (eventstore.Checkpoint, error) {
	return p.seen(p.inner.Load(ctx))
}

func (p *projection) seen(c eventstore.Checkpoint, err error) (eventstore.Checkpoint, error) {
	if err == nil {
		p.gen.Store(c.Generation)
	}
	return c, err
}

// Row implements eventstore.Projection.
func (p *projection) Row(ctx context.Context, key string) (state []byte, version uint64, found bool, err error) {
	return p.inner.Row(ctx, key)
}

// Apply implements eventstore.Projection.
func (p *projection) Apply(ctx context.Context, b eventstore.Batch) (eventstore.Checkpoint, error) {
	// An apply is recorded when it ends; a killed process must not even begin one.
	if err := p.r.w.Write(); err != nil {
		return eventstore.Checkpoint{}, notSent("apply", err)
	}
	rec := history.Apply{
		Process: p.r.process, Projection: p.name, Generation: b.Prev.Generation, Invoke: p.r.clk.Now(),
		Prev: b.Prev.Cursor, Next: b.Next, Events: uint32(len(b.Events)),
	}
	tr := trace(ctx)
	c, err := p.seen(p.inner.Apply(eventstore.WithTrace(ctx, &tr.hooks), b))
	rec.T = p.r.clk.Now()
	rec.Outcome, rec.Reason = eventstore.Classify(err)
	if err == nil {
		rec.Seq = c.Seq
	}
	rec.Session, _, _ = tr.told()
	if rerr := p.r.w.Write(&rec); rerr != nil {
		return eventstore.Checkpoint{}, unrecorded("apply", eventstore.Unknown, err, rerr)
	}
	return c, err
}
