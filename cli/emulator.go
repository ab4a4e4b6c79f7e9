package cli

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/eventproof/eventproof/emulators/dynamodb"
	"github.com/eventproof/eventproof/provision"
	"github.com/eventproof/eventproof/provision/kafka"
)

// serve runs a stand-in at a loopback address until ctx ends and calls ready with the address once it answers.
type serve func(ctx context.Context, addr, dir string, ready func(addr string)) error

// emulator serves the stand-ins, for runs of ours and, where that is useful by itself, for people.
func (a *app) emulator() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "emulator",
		Short: "Serve a stand-in for a store",
		Long: `Serves a stand-in for a store on loopback, until it is interrupted. Runs start and end their own; this is for trying
one out, or for the tests of another program. A stand-in proves code paths, never the product.`,
		Args: none,
		RunE: help,
	}
	cmd.AddCommand(a.emulatorDynamoDB(), a.emulatorKafka())
	return cmd
}

func (a *app) emulatorDynamoDB() *cobra.Command {
	var opt dynamodb.Options
	cmd := a.standIn("dynamodb", "http://", "127.0.0.1:8000", func(ctx context.Context, addr, dir string, ready func(addr string)) error {
		opt.Dir = dir
		return dynamodb.Serve(ctx, addr, opt, ready)
	})
	cmd.Short = "Serve an emulator of DynamoDB"
	cmd.Long = `Serves an emulator of DynamoDB on loopback until it is interrupted, and prints its endpoint. Any client will do that lets
its endpoint be chosen; credentials may be anything and are not checked. What was acknowledged survives a kill -9; give
--data to keep it over an end, and --fsync where it must survive the death of the machine. What the emulator does not
know it refuses; it never answers wrongly in silence.`
	cmd.Example = `  eventproof emulator dynamodb
  aws dynamodb list-tables --endpoint-url http://127.0.0.1:8000 --region us-east-1
  eventproof emulator dynamodb --listen 127.0.0.1:8001 --data ./tables --window 2ms --seed 7`
	f := cmd.Flags()
	f.BoolVar(&opt.Fsync, "fsync", false, "answer a write only when it is on disk")
	f.IntVar(&opt.Shards, "shards", 1, "`NUMBER` of shards of each new stream")
	f.DurationVar(&opt.Window, "window", 0, "the longest `TIME` that a transaction holds its items before it applies; whoever meets\nit gets a TransactionConflict")
	f.Uint64Var(&opt.Seed, "seed", 1, "`N` that everything random follows from")
	return cmd
}

// emulatorKafka is the child of the embedded provider.
func (a *app) emulatorKafka() *cobra.Command {
	cmd := a.standIn("kafka", "kafka://", "127.0.0.1:29092", kafka.Serve)
	cmd.Short, cmd.Hidden = "Serve kfake, a stand-in for a Kafka broker", true
	return cmd
}

func (a *app) standIn(store, scheme, listen string, run serve) *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use: store, Args: none,
		RunE: func(*cobra.Command, []string) error {
			host, _, err := net.SplitHostPort(listen)
			if err != nil {
				return usage("--listen %q: write an address such as 127.0.0.1:8000", listen)
			}
			if !provision.Loopback(host) {
				return usage("--listen %s: only loopback, such as 127.0.0.1: a stand-in lets everybody in", listen)
			}
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return a.standBy(ctx, scheme, listen, data, run)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", listen, "loopback `ADDRESS`, host:port")
	cmd.Flags().StringVar(&data, "data", "", "`FOLDER` for the data, kept and read again at the next start; default: a folder that is removed at the end")
	_ = cmd.MarkFlagDirname("data") // the flag exists
	return cmd
}

func (a *app) standBy(ctx context.Context, scheme, listen, data string, run serve) error {
	if data == "" {
		dir, err := os.MkdirTemp("", "eventproof-data-")
		if err != nil {
			return environment(err)
		}
		defer os.RemoveAll(dir) //nolint:errcheck // a leftover in the folder for such things does no harm
		data = dir
	}
	if err := run(ctx, listen, data, func(addr string) { a.printf("%s%s\n", scheme, addr) }); err != nil {
		return environment(fmt.Errorf("%s: %w", listen, err))
	}
	return nil
}
