package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/eventproof/eventproof/provision"
)

// StartNative creates a data folder and starts the server in it with the programs of bin, on loopback and a free port.
// The server survives neither Close nor the death of this process. logs is the folder for its log, "" = beside the
// data. Root starts it as user postgres or nobody.
func StartNative(ctx context.Context, bin, cache, logs string) (*provision.Server, error) {
	c, err := startChild(ctx, bin, cache, logs)
	if err != nil {
		return nil, err
	}
	return server(c), nil
}

func server(c *provision.Child) *provision.Server {
	return provision.NewServer(provision.Info{
		Store: Name, Title: title, Kind: provision.Native, Fidelity: provision.Real, Version: c.Version(),
		URL: adminURL(c.Addr()), Addr: c.Addr(), DataDir: c.Data(), Logs: c.Log(),
	}, c)
}

func adminURL(addr string) string {
	return "postgres://postgres@" + addr + "/postgres?sslmode=disable&target_session_attrs=any"
}

func startChild(ctx context.Context, bin, cache, logs string) (*provision.Child, error) {
	cred, err := unprivileged()
	if err != nil {
		return nil, err
	}
	if err := enterable(cred, bin); err != nil {
		return nil, fmt.Errorf("%w; put the cache elsewhere with %s, or the binaries with %s", err, provision.EnvCache, envBin)
	}
	if err := enterable(cred, os.TempDir()); err != nil {
		return nil, fmt.Errorf("%w; set TMPDIR to a folder that it can enter", err)
	}
	program := func(name string) string { return filepath.Join(bin, name) }
	return provision.StartChild(ctx, provision.Program{
		Store: Name, Ports: 1, User: cred,
		// An immediate shutdown takes the server's children along, which a SIGKILL of the postmaster does not.
		DeathSignal: syscall.SIGQUIT,
		Prepare: func(ctx context.Context, c *provision.Child) error {
			// Data survives kill -9 of the server without fsync of what initdb has written; the server itself syncs.
			return c.Run(ctx, []string{program("initdb"), "-D", c.Data(), "-U", "postgres", "-A", "trust", "--no-sync", "--no-instructions", "--locale=C", "-E", "UTF8"}, nil)
		},
		// Durability settings stay at their defaults, since durability is judged.
		Command: func(c *provision.Child) (args, env []string, err error) {
			return []string{
				program("postgres"), "-D", c.Data(),
				"-c", "listen_addresses=127.0.0.1", "-c", "port=" + strconv.Itoa(c.Port(0)),
				"-c", "unix_socket_directories=", // loopback only; a deep TMPDIR would exceed the limit of socket paths
				"-c", "max_connections=200", "-c", "logging_collector=off", "-c", "log_line_prefix=%m [%p] %q%a ",
			}, nil, nil
		},
		Probe: func(ctx context.Context, addr string) (string, error) {
			return probe(ctx, adminURL(addr), probeTimeout)
		},
	}, cache, logs)
}

// unprivileged returns whom to run the server as; nil = as ourselves. Postgres refuses to run as root.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			continue
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			continue
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("provision: Postgres does not run as root, and there is neither a user postgres nor nobody")
}

// enterable checks that the server's user can reach a folder.
func enterable(cred *syscall.Credential, dir string) error {
	if cred == nil {
		return nil
	}
	for d := filepath.Clean(dir); ; d = filepath.Dir(d) {
		st, err := os.Stat(d)
		if err != nil {
			return fmt.Errorf("provision: %w", err)
		}
		mode := st.Mode().Perm()
		enters := mode&0o001 != 0
		if owner, ok := st.Sys().(*syscall.Stat_t); ok {
			enters = enters || owner.Uid == cred.Uid && mode&0o100 != 0 || owner.Gid == cred.Gid && mode&0o010 != 0
		}
		if !enters {
			return fmt.Errorf("provision: the server runs as user %d, since it refuses to run as root, and that user can't enter %s", cred.Uid, d)
		}
		if d == filepath.Dir(d) {
			return nil
		}
	}
}
