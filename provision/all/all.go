// Package all lists the stores that servers can be got for. A store of its own adds one line here.
package all

import (
	"context"
	"fmt"
	"strings"

	"github.com/eventproof/eventproof/provision"
	"github.com/eventproof/eventproof/provision/dynamodb"
	"github.com/eventproof/eventproof/provision/kafka"
	"github.com/eventproof/eventproof/provision/postgres"
)

// Stores lists what is known.
func Stores() []provision.Store {
	return []provision.Store{postgres.Store(), kafka.Store(), dynamodb.Store()}
}

// Names lists the stores' names.
func Names() []string {
	var out []string
	for _, s := range Stores() {
		out = append(out, s.Name)
	}
	return out
}

// Find returns the store with a name.
func Find(name string) (provision.Store, bool) {
	for _, s := range Stores() {
		if s.Name == name {
			return s, true
		}
	}
	return provision.Store{}, false
}

// Select gets a server of a store; see provision.Store.Select.
func Select(ctx context.Context, store string, o provision.Options) (*provision.Server, error) {
	s, ok := Find(store)
	if !ok {
		return nil, fmt.Errorf("provision: there is no store %q (known: %s)", store, strings.Join(Names(), ", "))
	}
	return s.Select(ctx, o)
}
