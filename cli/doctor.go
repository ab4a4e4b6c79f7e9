package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/eventproof/eventproof/provision"
	"github.com/eventproof/eventproof/provision/all"
)

func (a *app) doctor() *cobra.Command {
	var c sources
	var fetch bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "What can run here, and why not",
		Long: `Lists, for each store, where it can be had from here, best first, and why it can't from elsewhere, and says what to
install. Nothing is started, except with --fetch. It also removes what a run that was killed has left behind. Exit 4 if
a store can't be had at all, or only as a stand-in though --require-real asks for more.`,
		Args: none,
		RunE: func(*cobra.Command, []string) error {
			if err := c.validate(); err != nil {
				return err
			}
			return a.interruptible(func(ctx context.Context) error { return a.examine(ctx, &c, fetch) })
		},
	}
	c.register(cmd)
	_ = cmd.Flags().MarkHidden("provider") // all of them are shown
	cmd.Flags().BoolVar(&fetch, "fetch", false, "fill the cache: Postgres, and Kafka's jars with what makes it start fast")
	return cmd
}

func (a *app) examine(ctx context.Context, c *sources, fetch bool) error {
	a.sweep()
	log := func(m string) { a.logf("%s", oneLine(m)) }
	var failed error
	if fetch {
		for _, store := range all.Stores() {
			if err := store.Fetch(ctx, provision.Options{Log: log}); err != nil {
				failed = errors.Join(failed, fmt.Errorf("%s: %w", store.Name, err))
			}
			if sig := interrupted(ctx); sig != 0 {
				return ended(128 + int(sig))
			}
		}
	}
	var remedies, missing []string
	err := a.table(func(w *tabwriter.Writer) {
		_, _ = fmt.Fprintln(w, "STORE\tPROVIDER\tHERE\tWHY")
		for _, store := range all.Stores() {
			real, standIn := a.ways(ctx, w, store, c)
			if !real {
				remedies = append(remedies, store.Title+": "+store.Remedy+".")
			}
			if !real && (!standIn || c.requireReal.of(store.Name)) {
				missing = append(missing, store.Title)
			}
		}
		_, _ = fmt.Fprintln(w, "memory\tembedded (emulated)\tyes\ta reference for the checkers; it says nothing about a product")
	})
	switch sig := interrupted(ctx); {
	case sig != 0:
		return ended(128 + int(sig))
	case err != nil:
		return internal(err)
	}
	if len(remedies) > 0 {
		a.printf("\nThe product itself can't be had here for every store:\n  %s\n", strings.Join(remedies, "\n  "))
	}
	if failed != nil {
		return environment(failed)
	}
	if len(missing) > 0 {
		return environment(fmt.Errorf("no %s to be had as it is asked for; see above", strings.Join(missing, ", no ")))
	}
	return nil
}

// ways prints the ways to a store, and returns whether it can be had for real and whether as a stand-in.
func (a *app) ways(ctx context.Context, w *tabwriter.Writer, store provision.Store, c *sources) (real, standIn bool) {
	for _, o := range store.Inspect(ctx, provision.Options{URL: c.endpoint(store.Name), AllowRemote: c.allowRemote, Exe: a.program.Exe}) {
		word, name := "no", o.Name
		if o.Emulated {
			name += " (emulated)"
		}
		if o.Available {
			word = "yes"
			real, standIn = real || !o.Emulated, standIn || o.Emulated
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", store.Name, name, word, printable(oneLine(o.Detail)))
	}
	return real, standIn
}
