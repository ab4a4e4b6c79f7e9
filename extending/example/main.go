// Command example is eventproof with one more target: `go run ./extending/example run -s hot-account -t shelf/tape`.
package main

import (
	"fmt"
	"os"

	"github.com/eventproof/eventproof/cli"
	"github.com/eventproof/eventproof/extending/shelf"
)

func main() {
	program, err := cli.Builtin()
	if err == nil {
		err = program.Targets.Add(shelf.Target())
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "example:", err)
		os.Exit(70) //nolint:forbidigo // a program ends with an exit code
	}
	os.Exit(cli.Main(program, os.Args[1:], os.Stdout, os.Stderr)) //nolint:forbidigo // the same
}
