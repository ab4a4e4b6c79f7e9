package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Store is what is known of getting one store.
type Store struct {
	Name  string // as in a target's Needs: "postgres"
	Title string // for people: "Postgres"
	// CheckURL says what is wrong with the URL of an external server as far as that can be told without connecting:
	// its form, and an address that is not loopback and needs allowRemote. Passwords appear in no error.
	CheckURL func(rawURL string, allowRemote bool) error
	// Ways are in the order in which Auto tries them. External is tried only where a URL is given.
	Ways []Way
	// Remedy is a sentence that says what to do where no server can be had.
	Remedy string
}

// Way is one way to a server.
type Way struct {
	Kind     string
	Emulated bool // by its nature; an external server may be a stand-in too
	// Start gets a server. An error that matches ErrNoServer says that this way leads to none here.
	Start func(ctx context.Context, o Options) (*Server, error)
	// Inspect says what could be had, without starting or fetching anything.
	Inspect func(ctx context.Context, o Options) []Option
	// Fetch fills the cache with what Start would download or prepare; nil = nothing.
	Fetch func(ctx context.Context, o Options) error
}

// Kinds lists the providers of the store, Auto first.
func (s Store) Kinds() []string {
	kinds := []string{Auto}
	for _, w := range s.Ways {
		kinds = append(kinds, w.Kind)
	}
	return kinds
}

// Select gets a server. It removes first what a killed run of before has left. Errors match ErrNoServer or
// ErrUnknownKind, or tell what is wrong with the external server that was asked for, or are those of ctx.
func (s Store) Select(ctx context.Context, o Options) (*Server, error) {
	if o.Kind == "" {
		o.Kind = Auto
	}
	if !slices.Contains(s.Kinds(), o.Kind) {
		return nil, fmt.Errorf("%w %q for %s (known: %s)", ErrUnknownKind, o.Kind, s.Name, strings.Join(s.Kinds(), ", "))
	}
	if o.Kind == External && o.URL == "" {
		return nil, fmt.Errorf("provision: an external server needs a URL (--endpoint %s=URL or %s)", s.Name, EnvURL(s.Name))
	}
	if o.Kind == Auto && o.URL != "" {
		o.Kind = External // what was named is meant
	}
	cache, err := o.CacheDir()
	if err != nil {
		return nil, err
	}
	o.Cache = cache
	if o.Kind != External {
		s.sweep(o)
	}

	fail := &NoServerError{Title: s.Title, Remedy: s.Remedy}
	fallen := false // a way to the product itself was tried in vain
	for _, w := range s.Ways {
		switch {
		case o.Kind == Auto && w.Kind == External:
			continue
		case o.Kind != Auto && o.Kind != w.Kind:
			continue
		case w.Emulated && o.RequireReal:
			fail.Tried = append(fail.Tried, Try{w.Kind, "a stand-in, and the product itself is required"})
			continue
		}
		if w.Emulated && fallen {
			o.Logf("warning: %s: falling back to a stand-in (%s), which says nothing about the product: %s", s.Name, w.Kind, reasons(fail.Tried))
		}
		server, err := w.Start(ctx, o)
		if err == nil {
			return s.accept(server, o)
		}
		fallen = fallen || !w.Emulated
		var no *NoServerError
		switch {
		case ctx.Err() != nil || w.Kind == External:
			return nil, err
		case errors.As(err, &no):
			fail.Tried = append(fail.Tried, no.Tried...)
		default:
			fail.Tried = append(fail.Tried, Try{w.Kind, err.Error()})
		}
	}
	return nil, fail
}

func (s Store) accept(server *Server, o Options) (*Server, error) {
	if o.RequireReal && server.Fidelity() != Real {
		fail := &NoServerError{Title: s.Title, Remedy: s.Remedy, Tried: []Try{{server.String(), "a stand-in, and the product itself is required"}}}
		return nil, errors.Join(fail, server.Close())
	}
	return server, nil
}

func (s Store) sweep(o Options) {
	removed, err := Sweep(o.Cache)
	for _, what := range removed {
		o.Logf("%s: removed what a killed run has left: %s", s.Name, what)
	}
	if err != nil {
		o.Logf("%s: %v", s.Name, err)
	}
}

func reasons(tried []Try) string {
	all := make([]string, len(tried))
	for i, t := range tried {
		all[i] = t.What + ": " + t.Result
	}
	return strings.Join(all, "; ")
}

// Inspect says what could be had here, without starting or fetching anything.
func (s Store) Inspect(ctx context.Context, o Options) []Option {
	var out []Option
	for _, w := range s.Ways {
		if w.Kind == External && o.URL == "" {
			out = append(out, Option{Name: External, Detail: "not named: it needs --endpoint " + s.Name + "=URL or " + EnvURL(s.Name)})
			continue
		}
		for _, opt := range w.Inspect(ctx, o) {
			opt.Emulated = opt.Emulated || w.Emulated
			out = append(out, opt)
		}
	}
	return out
}

// InspectExternal tries the server that open opens, for Way.Inspect.
func InspectExternal(ctx context.Context, o Options, open func(ctx context.Context, rawURL string, allowRemote bool) (*Server, error)) []Option {
	server, err := open(ctx, o.URL, o.AllowRemote)
	if err != nil {
		return []Option{{Name: External, Detail: err.Error()}}
	}
	return []Option{{Name: External, Available: true, Emulated: server.Fidelity() == Emulated, Detail: server.String()}}
}

// Fetch fills the cache with what the ways to the store would download or prepare.
func (s Store) Fetch(ctx context.Context, o Options) error {
	cache, err := o.CacheDir()
	if err != nil {
		return err
	}
	o.Cache, o.Fetch = cache, true
	var errs []error
	for _, w := range s.Ways {
		if w.Fetch != nil {
			errs = append(errs, w.Fetch(ctx, o))
		}
	}
	return errors.Join(errs...)
}
