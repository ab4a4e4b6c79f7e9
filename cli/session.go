package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/provision"
	"github.com/eventproof/eventproof/reports"
	"github.com/eventproof/eventproof/runner"
	"github.com/eventproof/eventproof/scenarios"
	"github.com/eventproof/eventproof/targets"
)

// common are the flags that run, bench and prove share.
type common struct {
	endpoints   []string
	allowRemote bool
	provider    string
	requireReal bool
	seed        uint64
	length      time.Duration
	out         string
	output      string
	strict      bool
	progress    string
	noColor     bool
	keep        bool
}

func (c *common) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&c.endpoints, "endpoint", nil, "use a running store: `store=URL` (also EVENTPROOF_POSTGRES_URL)")
	f.BoolVar(&c.allowRemote, "allow-remote", false, "accept an endpoint that is not on this machine")
	f.StringVar(&c.provider, "provider", "auto", "where stores come from: auto, native, external")
	f.BoolVar(&c.requireReal, "require-real", false, "fail (exit 4) rather than fall back to a stand-in")
	f.Uint64Var(&c.seed, "seed", 1, "root seed of load, faults and ids")
	f.DurationVar(&c.length, "for", 0, "stretch or shrink the load to this length")
	f.StringVar(&c.out, "out", "results", "`folder` under which the run's folder is made")
	f.StringVarP(&c.output, "output", "o", "text", "what is printed on stdout: text, json")
	f.BoolVar(&c.strict, "strict", os.Getenv("CI") != "", "inconclusive and not exercised fail the run (exit 2)")
	f.StringVar(&c.progress, "progress", "auto", "auto, plain, none")
	f.BoolVar(&c.noColor, "no-color", os.Getenv("NO_COLOR") != "", "no colours")
	f.BoolVar(&c.keep, "keep", false, "keep segments, role logs and what was created in the store")
}

func (c *common) validate() error {
	if c.output != "text" && c.output != "json" {
		return usage("--output %q: choose text or json", c.output)
	}
	if !slices.Contains([]string{"auto", "native", "external"}, c.provider) {
		return usage("--provider %q: choose auto, native or external", c.provider)
	}
	if !slices.Contains([]string{"auto", "plain", "none"}, c.progress) {
		return usage("--progress %q: choose auto, plain or none", c.progress)
	}
	if c.length < 0 {
		return usage("--for %s: a length of time can't be negative", c.length)
	}
	return nil
}

// endpoint returns the URL given for a store by flag or environment.
func (c *common) endpoint(store string) (string, error) {
	found := os.Getenv("EVENTPROOF_" + strings.ToUpper(store) + "_URL")
	for _, e := range c.endpoints {
		name, u, ok := strings.Cut(e, "=")
		if !ok || u == "" {
			return "", usage("--endpoint %q: write store=URL", maskURL(e))
		}
		if name == store {
			found = u
		}
	}
	return found, nil
}

func maskURL(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.User == nil {
		return s
	}
	return u.Redacted()
}

// maskArgs hides credentials in what is written down of the command line.
func maskArgs(args []string) []string {
	out := slices.Clone(args)
	for i, a := range out {
		if name, u, ok := strings.Cut(a, "="); ok && strings.Contains(u, "://") {
			out[i] = name + "=" + maskURL(u)
		} else if strings.Contains(a, "://") {
			out[i] = maskURL(a)
		}
	}
	return out
}

// session is one run of trials with one results folder.
type session struct {
	a       *app
	common  *common
	dir     string
	result  reports.Result
	started time.Time
	servers map[string]*provision.Server
	gates   []reports.GateSpec
	quiet   bool
}

// open makes the results folder; it is the last moment at which a mistake is a usage error.
func (a *app) open(c *common, name string, args []string) (*session, error) {
	now := clock.System{}.Wall()
	id := now.UTC().Format("20060102T150405Z") + "-" + name
	dir := filepath.Join(c.out, id)
	for n := 2; ; n++ {
		if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
			break
		}
		dir = filepath.Join(c.out, fmt.Sprintf("%s-%d", id, n))
	}
	if err := os.MkdirAll(filepath.Join(dir, "history"), 0o755); err != nil {
		return nil, &exitError{code: exitEnvironment, err: fmt.Errorf("results folder: %w; choose another with --out", err)}
	}
	return &session{
		a: a, common: c, dir: dir, started: now, servers: map[string]*provision.Server{},
		result: reports.Result{
			Schema:      reports.Schema,
			Run:         reports.Run{ID: filepath.Base(dir), Name: name, Started: now.UTC().Format(time.RFC3339), Seed: c.seed, ToolVersion: a.program.Version, Args: maskArgs(args)},
			Environment: runner.Environment(),
		},
	}, nil
}

// server returns the server that a target needs, started once a session; nil for a target that needs none.
func (s *session) server(ctx context.Context, t targets.Target) (runner.Server, error) {
	if t.Needs == "" {
		return nil, nil //nolint:nilnil // "needs none" is an answer
	}
	if srv, ok := s.servers[t.Needs]; ok {
		return srv, nil
	}
	endpoint, err := s.common.endpoint(t.Needs)
	if err != nil {
		return nil, err
	}
	srv, err := provision.Select(ctx, provision.Options{
		Kind: s.common.provider, URL: endpoint, AllowRemote: s.common.allowRemote, Fetch: true,
		Log: func(msg string) { s.a.logf("%s", msg) },
	})
	if err != nil {
		return nil, &runner.EnvironmentError{Err: err}
	}
	s.servers[t.Needs] = srv
	return srv, nil
}

// close ends the servers and writes every report.
func (s *session) close() error {
	var errs []error
	for _, srv := range s.servers {
		errs = append(errs, srv.Close())
	}
	return errors.Join(errs...)
}

// finish computes gates and exit code, writes the reports and prints the result.
func (s *session) finish(ctx context.Context) error {
	closed := s.close()
	var stopped *runner.Interrupted
	if errors.As(context.Cause(ctx), &stopped) {
		s.result.Run.Interrupted = "SIGINT"
		if stopped.Signal.String() == "terminated" {
			s.result.Run.Interrupted = "SIGTERM"
		}
	}
	s.result.Run.DurationS = clock.System{}.Wall().Sub(s.started).Seconds()
	s.result.Environment.LoadAfter = runner.LoadAverage()
	s.result.Exit = reports.ExitCode(&s.result, s.common.strict)
	if err := reports.WriteAll(s.dir, &s.result, reports.Options{Strict: s.common.strict}); err != nil {
		return &exitError{code: exitEnvironment, err: errors.Join(fmt.Errorf("writing the reports to %s: %w", s.dir, err), closed)}
	}
	if err := reports.Latest(s.dir); err != nil {
		s.a.logf("note: %v", err)
	}
	if os.Getenv("GITHUB_ACTIONS") == "true" {
		if err := reports.Annotations(s.a.out, &s.result); err != nil {
			return &exitError{code: exitInternal, err: err}
		}
	}
	if err := s.print(); err != nil {
		return &exitError{code: exitInternal, err: err}
	}
	if closed != nil {
		s.a.logf("note: stopping the stores: %v", closed)
	}
	if s.result.Exit.Code != exitOK {
		return &exitError{code: s.result.Exit.Code}
	}
	return nil
}

func (s *session) print() error {
	if s.common.output == "json" {
		return reports.JSON(s.a.out, &s.result)
	}
	if s.quiet {
		return nil
	}
	return reports.Text(s.a.out, &s.result, reports.Style{Color: s.a.colour(s.common.noColor), Width: width(), Folder: s.dir})
}

// pickTargets resolves patterns; a pattern that matches nothing is a usage error with a suggestion.
func (a *app) pickTargets(patterns []string, store string, correctOnly bool) ([]targets.Target, error) {
	var out []targets.Target
	for _, p := range patterns {
		hit := false
		for _, t := range a.program.Targets.All() {
			ok, err := path.Match(p, t.Name())
			if err != nil {
				return nil, usage("--target %q is not a pattern: %v", p, err)
			}
			if !ok || (store != "" && t.Store != store) {
				continue
			}
			hit = true
			if correctOnly && !t.Correct() || slices.ContainsFunc(out, func(o targets.Target) bool { return o.Name() == t.Name() }) {
				continue
			}
			out = append(out, t)
		}
		if !hit {
			var names []string
			for _, t := range a.program.Targets.All() {
				names = append(names, t.Name())
			}
			if best, ok := scenarios.Closest(p, names); ok {
				return nil, usage("there is no target %q; did you mean %q? (eventproof targets ls)", p, best)
			}
			return nil, usage("there is no target %q; see eventproof targets ls", p)
		}
	}
	return out, nil
}

// pickScenarios resolves names of the library and paths of files.
func (a *app) pickScenarios(names []string) ([]scenarios.Scenario, error) {
	library, err := scenarios.Library()
	if err != nil {
		return nil, &exitError{code: exitInternal, err: err}
	}
	var out []scenarios.Scenario
	for _, n := range names {
		if strings.HasSuffix(n, ".yaml") || strings.HasSuffix(n, ".yml") || strings.ContainsRune(n, os.PathSeparator) {
			s, err := scenarios.ReadFile(n)
			if err != nil {
				return nil, usage("%w", err)
			}
			out = append(out, s)
			continue
		}
		i := slices.IndexFunc(library, func(s scenarios.Scenario) bool { return s.Name == n })
		if i < 0 {
			known := make([]string, len(library))
			for j, s := range library {
				known[j] = s.Name
			}
			if best, ok := scenarios.Closest(n, known); ok {
				return nil, usage("there is no scenario %q; did you mean %q? (eventproof scenarios ls)", n, best)
			}
			return nil, usage("there is no scenario %q; see eventproof scenarios ls, or give a file (name.yaml)", n)
		}
		out = append(out, library[i])
	}
	return out, nil
}
