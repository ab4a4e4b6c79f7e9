// Package postgres gets a real Postgres server: one that the user names, one started from installed binaries, or one
// started from a fetched archive.
package postgres

import (
	"context"
	"os"
	"strings"

	"github.com/eventproof/eventproof/provision"
)

// Name of the store, as in a target's Needs.
const Name = "postgres"

const title = "Postgres"

// envBin names the environment variable for a folder with the server's programs.
const envBin = "EVENTPROOF_POSTGRES_BIN"

// Store returns the ways to a Postgres server.
func Store() provision.Store {
	return provision.Store{
		Name: Name, Title: title, CheckURL: CheckURL,
		Ways: []provision.Way{
			{Kind: provision.External, Start: external, Inspect: inspectExternal},
			image().Way(),
			{Kind: provision.Native, Start: native, Inspect: inspectNative, Fetch: fetchNative},
		},
		Remedy: "Install Postgres 14 or newer (on Debian and Ubuntu the package postgresql), name its binaries in " + envBin +
			", allow fetching (eventproof doctor --fetch), or name a running server in " + provision.EnvURL(Name),
	}
}

func external(ctx context.Context, o provision.Options) (*provision.Server, error) {
	s, err := OpenExternal(ctx, o.URL, o.AllowRemote)
	if err == nil {
		o.Logf("postgres: %s: external, because its URL was given", s)
	}
	return s, err
}

func native(ctx context.Context, o provision.Options) (*provision.Server, error) {
	fail := &provision.NoServerError{Title: title, Remedy: Store().Remedy}
	try := func(what, bin string) (*provision.Server, error) {
		s, err := StartNative(ctx, bin, o.Cache, o.Logs)
		if err == nil {
			o.Logf("postgres: %s: native, %s", s, what)
			return s, nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
		fail.Tried = append(fail.Tried, provision.Try{What: what, Result: err.Error()})
		o.Logf("postgres: %s does not start, going on without it: %v", what, err)
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
	bin, err := fetched(ctx, o.Cache, o)
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		fail.Tried = append(fail.Tried, provision.Try{What: "fetched archive", Result: err.Error()})
		return nil, fail
	}
	if s, err := try("from the archive of Postgres "+archiveVersion+", since no installed one could be used", bin); s != nil || err != nil {
		return s, err
	}
	return nil, fail
}

func inspectExternal(ctx context.Context, o provision.Options) []provision.Option {
	return provision.InspectExternal(ctx, o, OpenExternal)
}

func inspectNative(ctx context.Context, o provision.Options) []provision.Option {
	inst := provision.Option{Name: provision.Native + " (installed)"}
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
	return []provision.Option{inst, inspectFetched(o)}
}

func fetchNative(ctx context.Context, o provision.Options) error {
	_, err := Fetch(ctx, o)
	return err
}
