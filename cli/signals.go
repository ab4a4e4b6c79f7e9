package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/eventproof/eventproof/runner"
)

// interruptible runs f under a context that the first SIGINT or SIGTERM cancels with the signal as cause; what ran
// until then is still judged and written. A second signal ends the program at once. Commands that only read and print
// do without: the first signal ends them.
//
// A reader of our output that goes away (`2>&1 | head`) does not end the run: its results are in files.
func (a *app) interruptible(f func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals, pipes := make(chan os.Signal, 2), make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	signal.Notify(pipes, syscall.SIGPIPE) // not Ignore: children would inherit that
	defer signal.Stop(signals)
	defer signal.Stop(pipes)
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case s := <-signals:
			a.logf("eventproof: %s: stopping; what ran until now is judged and written (again: stop at once)", s)
			cancel(&runner.Interrupted{Signal: s.(syscall.Signal)})
		case <-done:
			return
		}
		select {
		case s := <-signals:
			// The store and the role processes end with us; their folders are removed at the next start.
			signal.Reset()
			_ = syscall.Kill(os.Getpid(), s.(syscall.Signal))
		case <-done:
		}
	}()
	return f(ctx)
}

// interrupted returns the signal that ended the run, 0 if none did.
func interrupted(ctx context.Context) syscall.Signal {
	var stopped *runner.Interrupted
	if errors.As(context.Cause(ctx), &stopped) {
		return stopped.Signal
	}
	return 0
}
