package cli

import (
	"github.com/spf13/cobra"
)

const firstSteps = `eventproof drives concurrent withdrawals and auction bids at an event store through injected faults, records a
history, reads the final log back independently, and judges the run with pure checkers.

First steps
  eventproof doctor                                      what can run here, and why not
  eventproof bench                                       the standard suite; about two minutes
  eventproof run -s det-cv-pg-01 -t postgres/naive-poll  a reader with a bug: exits 1 and shows what it lost
  eventproof check results/latest                        judge what was recorded again
  eventproof invariants explain no-overdraft             what a verdict means`

const exitCodes = `Exit codes
  0    every required invariant holds
  1    an invariant is violated (also if the run was interrupted afterwards)
  2    a required invariant is inconclusive or was not exercised; with --strict (the default when CI is set) also
       one that is inconclusive without being required
  3    a gate of the scenario was missed
  4    environment: a store could not be had, started or reached; the results could not be written
  64   usage: wrong flags, scenario or file, found before anything was started
  70   internal error of eventproof, or a script that could not be played as written
  130  interrupted by SIGINT (143: by SIGTERM); what ran until then was judged and written

Of several reasons the first of 1, 143, 130, 70, 4, 2, 3 counts; result.json lists all of them (exit.reasons).
"run" and "check" judge whatever they are given: a control that is caught exits 1. Only "prove" turns that around:
it exits 1 when a control escapes or a correct assembly is flagged.

"check" of a run that was killed exits 2: without the audit of the final log, required invariants stay inconclusive.`

const environmentHelp = `Environment variables
  EVENTPROOF_POSTGRES_URL, EVENTPROOF_KAFKA_URL, EVENTPROOF_DYNAMODB_URL
                            a running server to use, as --endpoint STORE=URL
  EVENTPROOF_POSTGRES_BIN   the folder with the programs initdb and postgres to start servers with
  JAVA_HOME, KAFKA_HOME     the Java (17 or newer) and the Kafka (4.0 or newer) to start brokers with
  EVENTPROOF_CACHE          folder for fetched archives and for the records of running servers
  TMPDIR                    where data folders of servers are made
  CI                        set: --strict is the default (not for "false" and "0")
  GITHUB_ACTIONS            "true": annotations for the job page are written to stderr
  NO_COLOR, CLICOLOR_FORCE  never, always use colours
PG* variables of your shell have no influence on servers that eventproof starts.`

const filesHelp = `Files of a run, in results/<time>-<name>/ (results/latest points at the newest)
  result.json    everything below as data; the source of every other rendering (eventproof schema result)
  report.html    for people; one file, also readable without scripts
  history/       one recorded history a trial (*.hist.zst), what "eventproof check" judges (eventproof schema history)
                 a folder of *.seg files is the history of a trial that was killed; check judges it too
  violations/    one page for each violated invariant and target
  junit.xml, summary.md, metrics.prom, bench.txt, env.json
                 for CI, job pages, Prometheus, benchstat, and the machine
  logs/          log of the server that was started
Nothing else is written, except the data folder of a server in TMPDIR (removed) and the cache (EVENTPROOF_CACHE).`

// topics are the help pages that are no commands.
func topics() []*cobra.Command {
	return []*cobra.Command{
		{Use: "exit-codes", Short: "What the exit codes mean", Long: exitCodes},
		{Use: "environment", Short: "Environment variables that count", Long: environmentHelp},
		{Use: "files", Short: "What a run writes", Long: filesHelp},
	}
}

// helpCommand is `help`; unlike the library's it does not take a mistyped name for a success.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Help about a command or a topic",
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			cmd, _, err := root.Find(args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []string
			for _, c := range cmd.Commands() {
				if !c.Hidden {
					names = append(names, cobra.CompletionWithDesc(c.Name(), c.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return none(cmd, rest)
			}
			return cmd.Help()
		},
	}
}
