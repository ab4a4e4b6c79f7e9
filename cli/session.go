package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/provision"
	"github.com/eventproof/eventproof/provision/all"
	"github.com/eventproof/eventproof/reports"
	"github.com/eventproof/eventproof/runner"
	"github.com/eventproof/eventproof/targets"
)

// common are the flags that run, bench and prove share.
type common struct {
	sources
	seed     uint64
	length   time.Duration
	out      string
	output   string
	strict   bool
	progress string
	noColor  bool
	keep     bool
}

func (c *common) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.Uint64Var(&c.seed, "seed", 1, "root seed `N` of load, faults and ids")
	f.DurationVar(&c.length, "for", 0, "stretch or shrink the load to this `LENGTH`, such as 10s")
	f.StringVar(&c.out, "out", "results", "`FOLDER` under which the run's own folder is made")
	f.StringVarP(&c.output, "output", "o", "text", "`FORMAT` of what is printed on stdout: text or json")
	f.BoolVar(&c.strict, "strict", inCI(), "an inconclusive verdict fails (exit 2) also where it is not required; default with CI")
	c.sources.register(cmd)
	f.StringVar(&c.progress, "progress", "auto", "`HOW` progress is told on stderr: auto, tty, plain or none")
	f.BoolVar(&c.noColor, "no-color", os.Getenv("NO_COLOR") != "", "no colours; default with NO_COLOR")
	f.BoolVar(&c.keep, "keep", false, "keep segments, role logs and what was created in the store")
	completeWords(cmd, "output", "text", "json")
	completeWords(cmd, "progress", "auto", "tty", "plain", "none")
	_ = cmd.MarkFlagDirname("out") // the flag exists
}

// inCI reports whether a CI runs us, in the way of the CIs.
func inCI() bool {
	v := os.Getenv("CI")
	return v != "" && v != "false" && v != "0"
}

// validate finds every mistake in the flags that can be found before anything is touched.
func (c *common) validate() error {
	if err := choose("output", c.output, "text", "json"); err != nil {
		return err
	}
	if err := choose("progress", c.progress, "auto", "tty", "plain", "none"); err != nil {
		return err
	}
	if c.length < 0 {
		return usage("--for %s: a length of time can't be negative", c.length)
	}
	if c.length > 0 && c.length < minLength {
		return usage("--for %s is too short to load anything: at least %s", c.length, minLength)
	}
	if c.out == "" {
		return usage("--out is empty: name a folder")
	}
	return c.sources.validate()
}

const minLength = 100 * time.Millisecond

// session is one run of trials with one results folder.
type session struct {
	a       *app
	common  *common
	dir     string
	result  reports.Result
	started time.Time
	servers map[string]started
	quiet   bool
}

// started is a server, or why there is none: it is tried once.
type started struct {
	server *provision.Server
	err    error
}

// open makes the results folder; it is the last moment at which a mistake is a usage error.
func (a *app) open(c *common, name string) (*session, error) {
	a.sweep()
	now := clock.System{}.Wall()
	id := now.UTC().Format("20060102T150405Z") + "-" + name
	dir, err := makeFolder(c.out, id)
	if err != nil {
		return nil, environment(fmt.Errorf("results folder: %w; choose another with --out", err))
	}
	return &session{
		a: a, common: c, dir: dir, started: now, servers: map[string]started{},
		result: reports.Result{
			Schema:      reports.Schema,
			Run:         reports.Run{ID: filepath.Base(dir), Name: name, Started: now.UTC().Format(time.RFC3339), Seed: c.seed, ToolVersion: a.program.Version, Args: maskArgs(a.args)},
			Environment: runner.Environment(),
		},
	}, nil
}

// makeFolder makes a folder of its own for the run, also when several runs begin in the same second.
func makeFolder(parent, id string) (string, error) {
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", err
	}
	dir := filepath.Join(parent, id)
	for n := 2; ; n++ {
		err := os.Mkdir(dir, 0o755)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", err
		}
		dir = filepath.Join(parent, fmt.Sprintf("%s-%d", id, n))
	}
	if err := os.Mkdir(filepath.Join(dir, "history"), 0o755); err != nil {
		return "", errors.Join(err, os.Remove(dir))
	}
	return dir, nil
}

// sweep removes what runs that were killed have left behind.
func (a *app) sweep() {
	cache, err := provision.DefaultCache()
	if err != nil {
		return // no cache, no records
	}
	removed, err := provision.Sweep(cache)
	for _, what := range removed {
		a.logf("removed what a killed run had left: %s", what)
	}
	if err != nil {
		a.logf("note: %v", err)
	}
}

// server returns the server that a target needs, started once a session; nil for a target that needs none.
func (s *session) server(ctx context.Context, t targets.Target) (runner.Server, error) {
	if t.Needs == "" {
		return nil, nil //nolint:nilnil // "needs none" is an answer
	}
	got, ok := s.servers[t.Needs]
	if !ok {
		got.server, got.err = s.start(ctx, t.Needs)
		s.servers[t.Needs] = got
	}
	if got.err != nil {
		return nil, &runner.EnvironmentError{Err: got.err}
	}
	return got.server, nil
}

func (s *session) start(ctx context.Context, name string) (*provision.Server, error) {
	store, ok := all.Find(name)
	if !ok {
		return nil, fmt.Errorf("there is no way to a store %q", name)
	}
	c := &s.common.sources
	external := c.external(store)
	logs := ""
	if !external {
		var err error
		if logs, err = filepath.Abs(filepath.Join(s.dir, "logs")); err != nil {
			return nil, err
		}
		if err := os.Mkdir(logs, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	srv, err := store.Select(ctx, provision.Options{
		Kind: c.kind(store), URL: c.endpoint(name), AllowRemote: c.allowRemote, RequireReal: c.requireReal.of(name),
		Fetch: true, Exe: s.a.program.Exe, Logs: logs,
		Log: func(msg string) { s.a.logf("%s", oneLine(msg)) },
	})
	if err != nil && external {
		return nil, fmt.Errorf("%w; is it running, and does it let this user in? Without --endpoint and %s eventproof starts a server of its own",
			err, provision.EnvURL(name))
	}
	return srv, err
}

// close ends the servers.
func (s *session) close() {
	for _, got := range s.servers {
		if got.server == nil {
			continue
		}
		if err := got.server.Close(); err != nil {
			s.a.logf("note: stopping the store: %v", err)
		}
	}
	s.servers = map[string]started{}
	_ = os.Remove(filepath.Join(s.dir, "logs")) // fails unless it is empty
}

// finish computes the exit code, writes the reports and prints the result. It is done in full whatever goes wrong on
// the way: a verdict that can't be written is still printed, and one that can't be printed is still written.
func (s *session) finish(ctx context.Context) error {
	s.close()
	if sig := interrupted(ctx); sig != 0 {
		s.result.Run.Interrupted = signalName(sig)
	}
	s.result.Run.DurationS = clock.System{}.Wall().Sub(s.started).Seconds()
	s.result.Environment.LoadAfter = runner.LoadAverage()
	s.result.Exit = reports.ExitCode(&s.result, s.common.strict)
	code := s.result.Exit.Code
	var failed error
	if err := reports.WriteAll(s.dir, &s.result, reports.Options{Strict: s.common.strict}); err != nil {
		code = worse(code, reports.ExitEnvironment)
		failed = fmt.Errorf("the reports in %s are not complete: %w; make room and run: eventproof check %s", s.dir, err, s.dir)
	} else if err := reports.Latest(s.dir); err != nil {
		s.a.logf("note: %v", err)
	}
	if os.Getenv("GITHUB_ACTIONS") == "true" {
		// On stderr: stdout is for the result, and the job page reads both.
		_ = reports.Annotations(s.a.console.w, &s.result)
	}
	// A reader that has gone away has seen what it wanted; the result is in the files.
	if err := s.print(); err != nil && !errors.Is(err, syscall.EPIPE) {
		code = worse(code, reports.ExitInternal)
		failed = errors.Join(failed, fmt.Errorf("printing the result: %w", err))
	}
	if failed != nil {
		return &exitError{code: code, err: failed}
	}
	return ended(code)
}

func signalName(s syscall.Signal) string {
	if s == syscall.SIGTERM {
		return "SIGTERM"
	}
	return "SIGINT"
}

// worse returns the code that counts of two.
func worse(a, b int) int {
	for _, code := range []int{
		reports.ExitViolated, reports.ExitTerminated, reports.ExitInterrupted, reports.ExitInternal,
		reports.ExitEnvironment, reports.ExitUndecided, reports.ExitGate,
	} {
		if a == code || b == code {
			return code
		}
	}
	return reports.ExitOK
}

func (s *session) print() error {
	if s.common.output == "json" {
		return reports.JSON(s.a.out, &s.result)
	}
	if s.quiet {
		return nil
	}
	return reports.Text(s.a.out, &s.result, s.a.style(s.common.noColor, s.dir))
}
