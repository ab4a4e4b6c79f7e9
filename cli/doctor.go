package cli

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/eventproof/eventproof/provision"
)

func (a *app) doctor() *cobra.Command {
	var c common
	var fetch bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "What can run here, and why not",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			endpoint, err := c.endpoint("postgres")
			if err != nil {
				return err
			}
			opts := provision.Options{URL: endpoint, AllowRemote: c.allowRemote, Fetch: true, Log: func(m string) { a.logf("%s", m) }}
			if fetch {
				if _, err := provision.Fetch(cmd.Context(), opts); err != nil {
					return &exitError{code: exitEnvironment, err: err}
				}
			}
			available := false
			err = a.table(func(w *tabwriter.Writer) {
				_, _ = fmt.Fprintln(w, "STORE\tPROVIDER\tHERE\tWHY")
				for _, o := range provision.Inspect(cmd.Context(), opts) {
					word := "no"
					if o.Available {
						word, available = "yes", true
					}
					_, _ = fmt.Fprintf(w, "postgres\t%s\t%s\t%s\n", o.Name, word, o.Detail)
				}
				_, _ = fmt.Fprintln(w, "memory\tembedded (emulated)\tyes\ta reference for the checkers; it says nothing about a product")
			})
			if err != nil {
				return &exitError{code: exitInternal, err: err}
			}
			if !available {
				return &exitError{code: exitEnvironment, err: fmt.Errorf("no Postgres to be had: install one (Debian: apt-get install postgresql), run `eventproof doctor --fetch`, or give --endpoint postgres=URL")}
			}
			return nil
		},
	}
	cmd.Flags().StringArrayVar(&c.endpoints, "endpoint", nil, "a running store: `store=URL`")
	cmd.Flags().BoolVar(&c.allowRemote, "allow-remote", false, "accept an endpoint that is not on this machine")
	cmd.Flags().BoolVar(&fetch, "fetch", false, "download the Postgres archive into the cache")
	return cmd
}
