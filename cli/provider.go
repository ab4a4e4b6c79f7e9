package cli

import (
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/eventproof/eventproof/provision"
	"github.com/eventproof/eventproof/provision/all"
)

// sources are the flags that say where stores come from.
type sources struct {
	endpoints   []string
	providers   []string
	allowRemote bool
	requireReal realStores
}

func (s *sources) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&s.providers, "provider", nil, "where stores come from: `KIND` or STORE=KIND (repeatable); "+strings.Join(provision.Kinds(), ", "))
	f.StringArrayVar(&s.endpoints, "endpoint", nil, "use a running store: `STORE=URL`, for example\npostgres=postgres://user:password@127.0.0.1/db, kafka=kafka://127.0.0.1:9092\nor dynamodb=http://127.0.0.1:8000 (also EVENTPROOF_<STORE>_URL)")
	f.BoolVar(&s.allowRemote, "allow-remote", false, "accept an endpoint that is not on this machine")
	f.Var(&s.requireReal, realFlag, "refuse stand-ins for a product: of every store, or of these `STORE,…` only")
	f.Lookup(realFlag).NoOptDefVal = everyStore
	completeWords(cmd, "provider", provision.Kinds()...)
	completeWords(cmd, realFlag, all.Names()...)
}

const (
	realFlag   = "require-real"
	everyStore = "all"
)

// realStores is the value of --require-real.
type realStores struct {
	every bool
	named []string
}

var _ pflag.Value = (*realStores)(nil)

// String implements pflag.Value.
func (r *realStores) String() string {
	if r.every {
		return everyStore
	}
	return strings.Join(r.named, ",")
}

// Type implements pflag.Value.
func (*realStores) Type() string { return "list of stores (" + strings.Join(all.Names(), ", ") + ")" }

// Set implements pflag.Value.
func (r *realStores) Set(value string) error {
	switch value {
	case everyStore, "true":
		r.every = true
		return nil
	case "false":
		*r = realStores{}
		return nil
	}
	for name := range strings.SplitSeq(value, ",") {
		if !slices.Contains(all.Names(), name) {
			return usage("%w", unknownName("store", name, all.Names(), "stores: "+strings.Join(all.Names(), ", ")))
		}
		r.named = append(r.named, name)
	}
	return nil
}

// of reports whether a stand-in for the store is refused.
func (r *realStores) of(store string) bool { return r.every || slices.Contains(r.named, store) }

// joinRealStores lets the stores of --require-real follow it as an argument of its own, which a flag that may stand
// alone otherwise does not take.
func joinRealStores(args []string) []string {
	var out []string
	for i, a := range args {
		if i > 0 && args[i-1] == "--"+realFlag && new(realStores).Set(a) == nil {
			out[len(out)-1] += "=" + a
			continue
		}
		out = append(out, a)
	}
	return out
}

// kind returns the provider that was asked for a store. One that was asked for all stores counts where the store has
// it.
func (s *sources) kind(store provision.Store) string {
	kind := provision.Auto
	for _, p := range s.providers {
		name, k, named := strings.Cut(p, "=")
		switch {
		case named && name == store.Name:
			return k
		case !named && slices.Contains(store.Kinds(), p):
			kind = p
		}
	}
	return kind
}

// endpoint returns the URL given for a store by flag or environment, "" if there is none.
func (s *sources) endpoint(store string) string {
	found := os.Getenv(provision.EnvURL(store))
	for _, e := range s.endpoints {
		if name, u, _ := strings.Cut(e, "="); name == store {
			found = u
		}
	}
	return found
}

// external reports whether the store is one that somebody else runs.
func (s *sources) external(store provision.Store) bool {
	kind := s.kind(store)
	return kind == provision.External || kind == provision.Auto && s.endpoint(store.Name) != ""
}

func (s *sources) validate() error {
	if err := s.validateProviders(); err != nil {
		return err
	}
	return s.validateEndpoints()
}

func (s *sources) validateProviders() error {
	for _, p := range s.providers {
		name, kind, named := strings.Cut(p, "=")
		if !named {
			if err := choose("provider", p, provision.Kinds()...); err != nil {
				return err
			}
			continue
		}
		store, ok := all.Find(name)
		if !ok {
			return usage("--provider %s=…: %w", maskArg(name), unknownName("store", maskArg(name), all.Names(), "stores: "+strings.Join(all.Names(), ", ")))
		}
		if err := choose("provider "+name+"=", kind, store.Kinds()...); err != nil {
			return err
		}
	}
	for _, store := range all.Stores() {
		if s.kind(store) == provision.Embedded && s.requireReal.of(store.Name) {
			return usage("--provider %s contradicts --require-real: the embedded %s is a stand-in", provision.Embedded, store.Name)
		}
	}
	return nil
}

func (s *sources) validateEndpoints() error {
	for _, e := range s.endpoints {
		name, u, ok := strings.Cut(e, "=")
		if !ok || u == "" || strings.Contains(name, ":") {
			return usage("--endpoint: write STORE=URL, for example postgres=postgres://user:password@127.0.0.1:5432/db")
		}
		store, ok := all.Find(name)
		if !ok {
			return usage("--endpoint %s=…: %w", maskArg(name), unknownName("store", maskArg(name), all.Names(), "stores: "+strings.Join(all.Names(), ", ")))
		}
		if kind := s.kind(store); kind != provision.Auto && kind != provision.External {
			return usage("--endpoint %s=… contradicts --provider %s: leave one of them out", name, kind)
		}
	}
	var missing []provision.Store
	given := false
	for _, store := range all.Stores() {
		u, kind := s.endpoint(store.Name), s.kind(store)
		switch {
		case u == "" && kind == provision.External:
			missing = append(missing, store)
			continue
		case u == "" || kind != provision.Auto && kind != provision.External:
			continue
		}
		given = true
		if err := store.CheckURL(u, s.allowRemote); err != nil {
			return usage("%w", err)
		}
	}
	for _, store := range missing {
		// "external" for all stores is enough where one endpoint is given; the others may not be needed.
		if !given || slices.Contains(s.providers, store.Name+"="+provision.External) {
			return usage("--provider external needs a server: --endpoint %s=URL or %s", store.Name, provision.EnvURL(store.Name))
		}
	}
	return nil
}
