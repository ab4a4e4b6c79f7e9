// Package provision gets servers for a run: one that the user names, one that runs as our child, or a stand-in built
// into this program. What is known of one store lies in a folder of its own; package all lists them. Every server has
// the same handle; what it can't do it says.
package provision

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Kinds of providers.
const (
	Auto     = "auto"     // external if a URL is given, else the first of the others that can be had, in their order
	External = "external" // a server that somebody else runs
	Docker   = "docker"   // a container
	Native   = "native"   // the product as a child process of ours
	Embedded = "embedded" // a stand-in of this program, as a child process of ours
)

// Kinds lists the providers, Auto first.
func Kinds() []string { return []string{Auto, External, Docker, Native, Embedded} }

var (
	// ErrUnsupported is returned for what a server can't do, such as killing one that is not ours.
	ErrUnsupported = errors.New("provision: the provider can't do this")
	// ErrNoServer says that no server can be had; see NoServerError.
	ErrNoServer = errors.New("provision: no server to be had")
	// ErrUnknownKind says that a store has no provider of the kind that was asked for.
	ErrUnknownKind = errors.New("provision: unknown provider")
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
	// Kind is one of Kinds; "" = Auto.
	Kind string
	// URL of an external server. External is never picked without one.
	URL string
	// AllowRemote permits an external server whose address is not loopback.
	AllowRemote bool
	// RequireReal refuses stand-ins.
	RequireReal bool
	// Cache is the folder for what was fetched and for the records of running servers; "" = DefaultCache.
	Cache string
	// Fetch permits downloading the product when it is neither installed nor cached.
	Fetch bool
	// Exe is the program whose command `emulator STORE --listen ADDR --data DIR` serves a stand-in; "" = none, and so
	// no embedded server.
	Exe string
	// Logs is the folder where a log of a server of ours is kept; "" = beside its data, gone after Close.
	Logs string
	// Log is told, line by line, what was picked and why; nil = nobody.
	Log func(string)
}

// Logf tells Log.
func (o Options) Logf(format string, args ...any) {
	if o.Log != nil {
		o.Log(fmt.Sprintf(format, args...))
	}
}

// CacheDir returns the absolute path of Cache or of DefaultCache.
func (o Options) CacheDir() (string, error) {
	if o.Cache != "" {
		return filepath.Abs(o.Cache)
	}
	return DefaultCache()
}

// Try is a way to a server that was tried, and what came of it.
type Try struct{ What, Result string }

// NoServerError lists what was tried and what helps. It matches ErrNoServer.
type NoServerError struct {
	Title  string // of the store: "Postgres"
	Tried  []Try
	Remedy string
}

// Error implements error.
func (e *NoServerError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "provision: no %s server to be had", e.Title)
	for _, t := range e.Tried {
		fmt.Fprintf(&b, "; %s: %s", t.What, t.Result)
	}
	return b.String() + ". " + e.Remedy
}

// Is reports whether target is ErrNoServer.
func (*NoServerError) Is(target error) bool { return target == ErrNoServer }

// EnvCache names the environment variable for the cache folder.
const EnvCache = "EVENTPROOF_CACHE"

// EnvURL names the environment variable for a store's external server.
func EnvURL(store string) string { return "EVENTPROOF_" + strings.ToUpper(store) + "_URL" }

// DefaultCache returns EVENTPROOF_CACHE or, if unset, the user's cache folder. Root, whose own folder the
// server's user can't enter, uses /var/cache.
func DefaultCache() (string, error) {
	if dir := os.Getenv(EnvCache); dir != "" {
		return filepath.Abs(dir)
	}
	if os.Geteuid() == 0 {
		return "/var/cache/eventproof", nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("provision: no cache folder (set %s): %w", EnvCache, err)
	}
	return filepath.Join(dir, "eventproof"), nil
}

// Option is a way to a server, for people: whether it can be had here, and why or why not.
type Option struct {
	Name      string // "external", "native (installed)", "native (fetched)", "embedded"
	Emulated  bool
	Available bool
	Detail    string
}
