// Package cli is the command line: flags, help, exit codes. It prints; everything below it returns values. A program
// with targets of its own calls Main with a registry that also holds them.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/eventproof/eventproof/reports"
	"github.com/eventproof/eventproof/runner"
)

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
	return &exitError{code: reports.ExitUsage, err: fmt.Errorf(format, args...)}
}

func environment(err error) error { return &exitError{code: reports.ExitEnvironment, err: err} }

func internal(err error) error { return &exitError{code: reports.ExitInternal, err: err} }

// ended is the end of a command whose result has been printed: nil, or only the code.
func ended(code int) error {
	if code == reports.ExitOK {
		return nil
	}
	return &exitError{code: code}
}

// app is one invocation.
type app struct {
	program runner.Program
	args    []string
	out     io.Writer // results
	console *console  // progress, logs, mistakes
}

// Main runs the command line and returns the exit code.
//
// PG* variables are removed from the process's environment: what the shell says about Postgres is not about the
// servers under test, and a service or option named there would decide how they are reached.
func Main(p runner.Program, args []string, stdout, stderr io.Writer) int {
	forgetShell()
	a := &app{program: p, args: args, out: stdout, console: &console{w: stderr}}
	root := a.root()
	root.SetArgs(joinRealStores(args))
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(context.Background())
	if err == nil {
		return reports.ExitOK
	}
	var exit *exitError
	if !errors.As(err, &exit) {
		exit = &exitError{code: reports.ExitUsage, err: err}
	}
	if msg := exit.Error(); msg != "" {
		a.logf("eventproof: %s", msg)
	}
	return exit.code
}

func forgetShell() {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "PG") {
			_ = os.Unsetenv(name) // it has just been listed
		}
	}
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "eventproof",
		Short:         "Does this event store, with this code around it, keep its promises under contention and faults?",
		Long:          firstSteps,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          none,
		Version:       a.program.Version,
		RunE:          help,
	}
	root.SetVersionTemplate("eventproof {{.Version}}\n")
	root.SetFlagErrorFunc(flagMistake)
	const judge, look = "judge", "look"
	root.AddGroup(&cobra.Group{ID: judge, Title: "Run and judge:"}, &cobra.Group{ID: look, Title: "Look things up:"})
	add := func(group string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(judge, a.bench(), a.run(), a.check(), a.prove(), a.report())
	add(look, a.doctor(), a.targets(), a.scenarios(), a.invariants(), a.faults(), a.schema())
	root.AddCommand(a.version(), a.role(), a.emulator())
	root.AddCommand(topics()...)
	root.SetHelpCommand(helpCommand(root))
	root.InitDefaultCompletionCmd()
	if c, _, err := root.Find([]string{"completion"}); err == nil {
		c.Args, c.RunE = none, help
	}
	return root
}

func help(cmd *cobra.Command, _ []string) error { return cmd.Help() }

func (a *app) printf(format string, args ...any) { _, _ = fmt.Fprintf(a.out, format, args...) }

// logf prints one message on stderr. Parts of it may come from files and servers of others.
func (a *app) logf(format string, args ...any) { a.console.message(fmt.Sprintf(format, args...)) }
