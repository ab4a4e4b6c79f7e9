// Command eventproof tests event stores: see `eventproof help`.
package main

import (
	"fmt"
	"os"

	"github.com/eventproof/eventproof/cli"
)

func main() {
	program, err := cli.Builtin()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "eventproof:", err)
		os.Exit(70)
	}
	os.Exit(cli.Main(program, os.Args[1:], os.Stdout, os.Stderr))
}
