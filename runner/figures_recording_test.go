package runner_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eventproof/eventproof/app"
	appcontrols "github.com/eventproof/eventproof/app/controls"
	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/domain/account"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/loadgen"
	"github.com/eventproof/eventproof/loadgen/workload"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/provision"
	"github.com/eventproof/eventproof/record"
	"github.com/eventproof/eventproof/roles"
	"github.com/eventproof/eventproof/targets"
)

// loopConfig is that of the writers whose recording is measured.
func loopConfig(target string, promises []eventstore.Promise) roles.Config {
	return roles.Config{
		Kind: "writer", Name: "writer-1", Process: 10, Incarnation: 1, Target: target, Promises: promises, Workload: "bank",
		Seed: 1, MaxDecisions: app.MaxDecisions, Deadline: 10 * time.Second, Try: 5 * time.Second,
	}
}

// recordedLoop is the command loop as the product runs it. path is where its segment goes; end closes it.
func recordedLoop(tb testing.TB, cfg roles.Config, session targets.Session, path string) (do func(workload.Command, int), end func()) {
	tb.Helper()
	segment, err := history.Create(path)
	if err != nil {
		tb.Fatal(err)
	}
	clk := clock.System{}
	w, err := roles.NewWriter(cfg, appcontrols.Parts(), roles.Env{
		Gate: points.Open{}, Dial: roles.Direct, Clock: clk, Rand: roles.Seeded(cfg), Rec: segment,
	}, session)
	if err != nil {
		tb.Fatal(err)
	}
	do = func(c workload.Command, worker int) {
		mustAnswer(tb, w.Do(context.Background(), app.Command{ID: c.ID, Stream: c.Stream, Name: c.Name, Body: c.Body}, uint32(worker), clk.Now(), false))
	}
	return do, func() {
		if err := w.Close(); err != nil {
			tb.Error(err)
		}
		if err := segment.Close(); err != nil {
			tb.Error(err)
		}
	}
}

// plainLoop is the same command loop on the same store without a recorder between them, and without a history.
func plainLoop(tb testing.TB, cfg roles.Config, session targets.Session) func(workload.Command, int) {
	tb.Helper()
	policy, err := appcontrols.Parts().Resolve(cfg.Retry, cfg.Continue)
	if err != nil {
		tb.Fatal(err)
	}
	clk := clock.System{}
	h := app.NewHandler(app.Config{
		Domain: app.Bank(), Policy: policy, Store: session.Store(), Recorder: record.Discard(clk), Gate: points.Open{},
		Clock: clk, Rand: roles.Seeded(cfg), Idempotent: slices.Contains(cfg.Promises, eventstore.IdempotentAppend),
		Deadline: cfg.Deadline, Try: cfg.Try,
	})
	return func(c workload.Command, worker int) {
		now := clk.Now()
		mustAnswer(tb, h.Do(context.Background(), app.Call{
			Command: app.Command{ID: c.ID, Stream: c.Stream, Name: c.Name, Body: c.Body}, Session: uint32(worker), Intended: now, Started: now,
		}))
	}
}
