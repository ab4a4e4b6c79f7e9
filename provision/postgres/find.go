package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/eventproof/eventproof/provision"
)

// binaries is a folder with a server's programs.
type binaries struct{ dir, version, why string }

// findInstalled looks for installed servers, best first, and says where it found none. A folder that the user has
// named is the only one looked at.
func findInstalled(ctx context.Context) (found []binaries, tried []provision.Try) {
	add := func(dir, why string) {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			dir = real
		}
		if slices.ContainsFunc(found, func(b binaries) bool { return b.dir == dir }) {
			return
		}
		version, err := serverVersion(ctx, dir)
		if err != nil {
			tried = append(tried, provision.Try{What: why, Result: err.Error()})
			return
		}
		found = append(found, binaries{dir, version, why})
	}
	if dir := os.Getenv(envBin); dir != "" {
		add(dir, "named in "+envBin)
		return found, tried
	}
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		add(strings.TrimSpace(string(out)), "installed, found by pg_config")
	} else {
		tried = append(tried, provision.Try{What: "pg_config", Result: short(err)})
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		add(filepath.Dir(path), "installed, found in PATH")
	} else {
		tried = append(tried, provision.Try{What: "postgres in PATH", Result: short(err)})
	}
	const pattern = "/usr/lib/postgresql/*/bin"
	dirs, _ := filepath.Glob(pattern) // the pattern is well formed
	slices.SortFunc(dirs, func(a, b string) int { return cmp.Compare(major(b), major(a)) })
	for _, dir := range dirs {
		add(dir, "installed, found in "+dir)
	}
	if len(dirs) == 0 {
		tried = append(tried, provision.Try{What: pattern, Result: "no such folder"})
	}
	return found, tried
}

func short(err error) string {
	if errors.Is(err, exec.ErrNotFound) {
		return "not found"
	}
	return err.Error()
}

func major(bindir string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(bindir))) // 0 for a name that is no number: last
	return n
}

// serverVersion asks the server program for its version; initdb must be there too.
func serverVersion(ctx context.Context, dir string) (string, error) {
	for _, name := range []string{"initdb", "postgres"} {
		if _, err := exec.LookPath(filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("%s has no program %s", dir, name)
		}
	}
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s/postgres --version: %w", dir, err)
	}
	return strings.TrimSpace(string(out)), nil
}
