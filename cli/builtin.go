package cli

import (
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	appcontrols "github.com/eventproof/eventproof/app/controls"
	"github.com/eventproof/eventproof/roles"
	"github.com/eventproof/eventproof/runner"
	"github.com/eventproof/eventproof/targets/all"
)

// Builtin returns the program with the built-in targets and parts. Add your own to Targets and Parts before calling
// Main; child roles run the same binary and so know them too.
func Builtin() (runner.Program, error) {
	registry, err := all.Registry()
	if err != nil {
		return runner.Program{}, err
	}
	exe, err := os.Executable()
	if err != nil {
		return runner.Program{}, err
	}
	return runner.Program{Version: buildVersion(), Targets: registry, Parts: appcontrols.Parts(), Exe: exe}, nil
}

// buildVersion is the module's version, or the commit that the binary was built from.
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return "devel " + s.Value[:min(12, len(s.Value))]
		}
	}
	return "devel"
}

// role is the main of a child process; it is not for people.
func (a *app) role() *cobra.Command {
	return &cobra.Command{Use: "role CONFIG", Hidden: true, Args: one, RunE: func(cmd *cobra.Command, args []string) error {
		if err := roles.Main(cmd.Context(), args[0], a.program.Targets, a.program.Parts); err != nil {
			return internal(err)
		}
		return nil
	}}
}
