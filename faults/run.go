package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/eventproof/eventproof/faults/plan"
)

// Run carries a plan out: every fault begins at t0 (a stamp of the engine's clock) plus its At and is lifted
// after its For. A fault without For stays until LiftAll. It returns when all timed faults are lifted; when ctx
// ends before, faults that have not begun never will, and those in force are lifted at once.
func (e *Engine) Run(ctx context.Context, faults []plan.Fault, t0 int64) error {
	for _, f := range faults {
		if err := f.Validate(); err != nil {
			return err
		}
	}
	due := slices.Clone(faults)
	slices.SortStableFunc(due, func(a, b plan.Fault) int { return int(a.At - b.At) })
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
	)
	failed := func(err error) {
		if err != nil && !errors.Is(err, ErrNotActive) {
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		}
	}
	for _, f := range due {
		if !e.sleepUntil(ctx, t0+int64(f.At)) {
			break
		}
		begin := func() bool {
			err := e.Start(ctx, f)
			failed(err)
			return err == nil && f.For > 0
		}
		finish := func() {
			e.sleepUntil(ctx, t0+int64(f.At+f.For))
			failed(e.Lift(context.WithoutCancel(ctx), f.ID))
		}
		if processFault(f.Kind) { // killing takes its time: the others must not wait for it
			wg.Go(func() {
				if begin() {
					finish()
				}
			})
		} else if begin() {
			wg.Go(finish)
		}
	}
	wg.Wait()
	if len(errs) > 0 {
		return fmt.Errorf("faults: %w", errors.Join(errs...))
	}
	return nil
}

func processFault(k plan.Kind) bool {
	switch k {
	case plan.KillStore, plan.PauseStore, plan.KillRole, plan.PauseRole:
		return true
	case plan.Latency, plan.Reset, plan.BlackHole, plan.Down, plan.DropReply, plan.CutRequest, plan.HoldReply, plan.ParkRequest,
		plan.Throttle, plan.Conflict:
	}
	return false
}

// sleepUntil waits for a stamp of the engine's clock; false means that ctx ended before.
func (e *Engine) sleepUntil(ctx context.Context, stamp int64) bool {
	for {
		left := stamp - e.opts.Clock.Now()
		if left <= 0 {
			return ctx.Err() == nil
		}
		if !pause(ctx, time.Duration(left)) {
			return false
		}
	}
}
