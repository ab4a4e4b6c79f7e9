// Package cli is the command line: flags, help, exit codes. It prints; everything below it returns values. A program
// with targets of its own calls Main with a registry that also holds them.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/eventproof/eventproof/runner"
	"github.com/eventproof/eventproof/scenarios"
)

// Exit codes (see `eventproof help exit-codes`).
const (
	exitOK          = 0
	exitEnvironment = 4
	exitUsage       = 64
	exitInternal    = 70
)

const exitCodes = `Exit codes
  0    every required invariant holds
  1    an invariant is violated (also when the run was interrupted afterwards)
  2    inconclusive, or not exercised (with --strict, which is the default when CI is set)
  3    a gate failed
  4    environment: a store could not be had or started
  64   usage or bad configuration, found before a trial started
  70   internal error of eventproof
  130  interrupted (143: terminated); partial results are written

Of several reasons the first of 1, 70, 4, 2, 3 counts. "run" judges whatever it is given: a control that is
caught exits 1. Only "prove" turns that around.`

// exitError ends the program with a code; its message has been printed if it is empty.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// app is one invocation.
type app struct {
	program runner.Program
	args    []string
	out     io.Writer // results
	err     io.Writer // progress, logs, mistakes
}

// Main runs the command line and returns the exit code.
func Main(p runner.Program, args []string, stdout, stderr io.Writer) int {
	ctx, stop := interruptible(stderr)
	defer stop()
	a := &app{program: p, args: args, out: stdout, err: stderr}
	root := a.root()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	var exit *exitError
	if !errors.As(err, &exit) {
		exit = &exitError{code: exitUsage, err: a.withSuggestion(root, err)}
	}
	if msg := exit.Error(); msg != "" {
		_, _ = fmt.Fprintf(stderr, "eventproof: %s\n", msg)
	}
	return exit.code
}

// interruptible returns a context that the first SIGINT or SIGTERM cancels with the signal as cause; what ran until
// then is still judged and written. A second signal ends the program at once.
func interruptible(stderr io.Writer) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		select {
		case s := <-signals:
			_, _ = fmt.Fprintf(stderr, "\neventproof: %s: stopping the load; what ran is judged and written (again: stop at once)\n", s)
			cancel(&runner.Interrupted{Signal: s.(syscall.Signal)})
		case <-done:
			return
		}
		select {
		case s := <-signals:
			// Children end with us (their socket closes); the next start sweeps what is left.
			signal.Reset()
			_ = syscall.Kill(os.Getpid(), s.(syscall.Signal))
		case <-done:
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(nil)
	}
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "eventproof",
		Short:         "Does this event store, with this code around it, keep its promises under contention and faults?",
		Long:          "eventproof drives concurrent withdrawals and auction bids at an event store through injected faults, records a\nhistory, reads the final log back independently, and judges the run with pure checkers.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = false
	root.AddCommand(a.run(), a.bench(), a.check(), a.prove(), a.report(), a.doctor(), a.targets(), a.scenarios(),
		a.invariants(), a.faults(), a.schema(), a.version(), a.role())
	root.AddCommand(&cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: exitCodes})
	return root
}

// withSuggestion adds what was probably meant to an error about a flag or a command.
func (a *app) withSuggestion(root *cobra.Command, err error) error {
	msg := err.Error()
	if name, ok := strings.CutPrefix(msg, "unknown flag: --"); ok {
		var known []string
		cmd, _, findErr := root.Find(a.args)
		if findErr != nil {
			cmd = root
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
		if best, ok := scenarios.Closest(name, known); ok {
			return fmt.Errorf("unknown flag --%s; did you mean --%s?", name, best)
		}
		return fmt.Errorf("unknown flag --%s; see eventproof %s --help", name, cmd.Name())
	}
	return err
}

func (a *app) printf(format string, args ...any) { _, _ = fmt.Fprintf(a.out, format, args...) }
func (a *app) logf(format string, args ...any)   { _, _ = fmt.Fprintf(a.err, format+"\n", args...) }
