// Package provision gets a real Postgres server for a run: one that the user names, one started from installed
// binaries, or one started from a fetched archive. Every server has the same handle; what it can't do it says.
package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Kinds of providers.
const (
	Auto     = "auto"     // external if a URL is given, else native
	Native   = "native"   // a child process of ours: installed binaries, else a fetched archive
	External = "external" // a server that somebody else runs
)

var (
	// ErrUnsupported is returned for what a server can't do, such as killing one that is not ours.
	ErrUnsupported = errors.New("provision: the provider can't do this")
	// ErrNoServer says that no server can be had; see NoServerError.
	ErrNoServer = errors.New("provision: no Postgres server to be had")
)

// Ability is something that a server may be able to do.
type Ability string

// The abilities.
const (
	CanKill    Ability = "kill"    // Kill and Restart
	CanPause   Ability = "pause"   // Pause and Resume
	CanRestart Ability = "restart" // on the same data, port and address
)

// Options choose a server.
type Options struct {
	// Kind is Auto (also ""), Native or External.
	Kind string
	// URL of an external server. External is never picked without one.
	URL string
	// AllowRemote permits an external server whose address is not loopback.
	AllowRemote bool
	// Cache is the folder for fetched archives and the records of running servers; "" = DefaultCache.
	Cache string
	// Fetch permits downloading an archive when nothing is installed or cached.
	Fetch bool
	// Logs is the folder where a native server's log is kept; "" = beside its data, gone after Close.
	Logs string
	// Log is told, line by line, what was picked and why; nil = nobody.
	Log func(string)
}

func (o Options) log(format string, args ...any) {
	if o.Log != nil {
		o.Log(fmt.Sprintf(format, args...))
	}
}

// Try is a way to a server that was tried, and what came of it.
type Try struct{ What, Result string }

// NoServerError lists what was tried and what helps. It matches ErrNoServer.
type NoServerError struct {
	Tried  []Try
	Remedy string
}

// Error implements error.
func (e *NoServerError) Error() string {
	var b strings.Builder
	b.WriteString(ErrNoServer.Error())
	for _, t := range e.Tried {
		fmt.Fprintf(&b, "; %s: %s", t.What, t.Result)
	}
	return b.String() + ". " + e.Remedy
}

// Is reports whether target is ErrNoServer.
func (*NoServerError) Is(target error) bool { return target == ErrNoServer }

const remedy = "Install Postgres 14 or newer (on Debian and Ubuntu the package postgresql), name its binaries in " +
	envBin + ", allow fetching (eventproof doctor --fetch), or name a running server in " + envURL

// Environment variables.
const (
	envBin   = "EVENTPROOF_POSTGRES_BIN"
	envURL   = "EVENTPROOF_POSTGRES_URL"
	envCache = "EVENTPROOF_CACHE"
)

// DefaultCache returns EVENTPROOF_CACHE or, if unset, the user's cache folder. Root, whose own folder the
// server's user can't enter, uses /var/cache.
func DefaultCache() (string, error) {
	if dir := os.Getenv(envCache); dir != "" {
		return filepath.Abs(dir)
	}
	if os.Geteuid() == 0 {
		return "/var/cache/eventproof", nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("provision: no cache folder (set %s): %w", envCache, err)
	}
	return filepath.Join(dir, "eventproof"), nil
}

func (o Options) cache() (string, error) {
	if o.Cache != "" {
		return filepath.Abs(o.Cache)
	}
	return DefaultCache()
}

// Select gets a server. It removes first what a killed run of before has left. Errors match ErrNoServer, or tell what
// is wrong with the external server that was asked for, or are those of ctx.
func Select(ctx context.Context, o Options) (*Server, error) {
	switch o.Kind {
	case External:
		if o.URL == "" {
			return nil, fmt.Errorf("provision: an external server needs a URL (--endpoint postgres=URL or %s)", envURL)
		}
		return o.external(ctx)
	case Auto, "":
		if o.URL != "" {
			return o.external(ctx)
		}
	case Native:
	default:
		return nil, fmt.Errorf("provision: unknown provider %q (known: %s, %s, %s)", o.Kind, Auto, Native, External)
	}
	return o.native(ctx)
}

func (o Options) external(ctx context.Context) (*Server, error) {
	s, err := OpenExternal(ctx, o.URL, o.AllowRemote)
	if err == nil {
		o.log("postgres: %s: external, because its URL was given", s)
	}
	return s, err
}

func (o Options) native(ctx context.Context) (*Server, error) {
	cache, err := o.cache()
	if err != nil {
		return nil, err
	}
	removed, err := Sweep(cache)
	for _, what := range removed {
		o.log("postgres: removed what a killed run has left: %s", what)
	}
	if err != nil {
		o.log("postgres: %v", err)
	}

	fail := &NoServerError{Remedy: remedy}
	try := func(what, bin string) (*Server, error) {
		s, err := StartNative(ctx, bin, cache, o.Logs)
		if err == nil {
			o.log("postgres: %s: native, %s", s, what)
			return s, nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
		fail.Tried = append(fail.Tried, Try{what, err.Error()})
		o.log("postgres: %s does not start, going on without it: %v", what, err)
		return nil, nil
	}
	bins, tried := findInstalled(ctx)
	fail.Tried = tried
	for _, b := range bins {
		if s, err := try(b.why, b.dir); s != nil || err != nil {
			return s, err
		}
	}
	if os.Getenv(envBin) != "" {
		return nil, fail // what was named is meant
	}
	bin, err := fetched(ctx, cache, o)
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		fail.Tried = append(fail.Tried, Try{"fetched archive", err.Error()})
		return nil, fail
	}
	if s, err := try("from the archive of Postgres "+archiveVersion+", since no installed one could be used", bin); s != nil || err != nil {
		return s, err
	}
	return nil, fail
}

// Option is a way to a server, for people: whether it can be had here, and why or why not.
type Option struct {
	Name      string // "external", "native (installed)", "native (fetched)"
	Available bool
	Detail    string
}

// Inspect says what could be had here, without starting or fetching anything.
func Inspect(ctx context.Context, o Options) []Option {
	ext := Option{Name: External, Detail: "not named: it needs --endpoint postgres=URL or " + envURL}
	if o.URL != "" {
		s, err := OpenExternal(ctx, o.URL, o.AllowRemote)
		if err != nil {
			ext.Detail = err.Error()
		} else {
			ext.Available, ext.Detail = true, s.String()
		}
	}
	inst := Option{Name: Native + " (installed)"}
	bins, tried := findInstalled(ctx)
	if len(bins) > 0 {
		inst.Available, inst.Detail = true, bins[0].version+" in "+bins[0].dir+", "+bins[0].why
	} else {
		var all []string
		for _, t := range tried {
			all = append(all, t.What+": "+t.Result)
		}
		inst.Detail = strings.Join(all, "; ")
	}
	return []Option{ext, inst, inspectFetched(o)}
}
