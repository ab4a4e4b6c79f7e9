package cli

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/eventproof/eventproof/provision"
)

func (a *app) doctor() *cobra.Command {
	c := common{provider: provision.Auto}
	var fetch bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "What can run here, and why not",
		Long: `Lists the stores that can be had here and why others can't. Nothing is started. It also removes what a run that was
killed has left behind. Exit 4 if no real store can be had.`,
		Args: none,
		RunE: func(*cobra.Command, []string) error {
			if err := c.validateEndpoints(); err != nil {
				return err
			}
			return a.interruptible(func(ctx context.Context) error { return a.examine(ctx, &c, fetch) })
		},
	}
	cmd.Flags().StringArrayVar(&c.endpoints, "endpoint", nil, "a running store: `STORE=URL`")
	cmd.Flags().BoolVar(&c.allowRemote, "allow-remote", false, "accept an endpoint that is not on this machine")
	cmd.Flags().BoolVar(&fetch, "fetch", false, "download the Postgres archive into the cache")
	return cmd
}

func (a *app) examine(ctx context.Context, c *common, fetch bool) error {
	a.sweep()
	opts := provision.Options{URL: c.endpoint("postgres"), AllowRemote: c.allowRemote, Fetch: true, Log: func(m string) { a.logf("%s", oneLine(m)) }}
	if fetch {
		if _, err := provision.Fetch(ctx, opts); err != nil {
			if sig := interrupted(ctx); sig != 0 {
				return ended(128 + int(sig))
			}
			return environment(err)
		}
	}
	available := false
	err := a.table(func(w *tabwriter.Writer) {
		_, _ = fmt.Fprintln(w, "STORE\tPROVIDER\tHERE\tWHY")
		for _, o := range provision.Inspect(ctx, opts) {
			word := "no"
			if o.Available {
				word, available = "yes", true
			}
			_, _ = fmt.Fprintf(w, "postgres\t%s\t%s\t%s\n", o.Name, word, printable(oneLine(o.Detail)))
		}
		_, _ = fmt.Fprintln(w, "memory\tembedded (emulated)\tyes\ta reference for the checkers; it says nothing about a product")
	})
	switch sig := interrupted(ctx); {
	case sig != 0:
		return ended(128 + int(sig))
	case err != nil:
		return internal(err)
	case !available:
		return environment(errors.New("no Postgres to be had: install one (Debian: apt-get install postgresql), run `eventproof doctor --fetch`, or give --endpoint postgres=URL"))
	}
	return nil
}
