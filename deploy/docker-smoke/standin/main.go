// Command standin serves the DynamoDB emulator inside a container, at every address of it: the engine forwards one port
// of loopback to it, and nothing else reaches the container.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/eventproof/eventproof/emulators/dynamodb"
)

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return dynamodb.Serve(ctx, "0.0.0.0:8000", dynamodb.Options{Dir: "/data", Shards: 2, Window: time.Millisecond}, nil)
}
