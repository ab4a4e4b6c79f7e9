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
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := dynamodb.Serve(ctx, "0.0.0.0:8000", dynamodb.Options{Dir: "/data", Shards: 2, Window: time.Millisecond}, nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
