package provision

import (
	"context"
	"fmt"
	"path/filepath"
	"time"
)

// StandIn is a stand-in for a store that this program serves.
type StandIn struct {
	Store  string
	Title  string // "DynamoDB emulator"
	Scheme string // of its URL: "http://"
	Args   []string
	Probe  func(ctx context.Context, addr string) (version string, err error)
}

// standInReady is generous: a stand-in is up in milliseconds.
const standInReady = 30 * time.Second

// Start runs the stand-in as a child process: o.Exe with the command `emulator STORE --listen ADDR --data DIR ARGS…`,
// so that it can be killed and paused like the product. Where there is no such program the error matches ErrNoServer.
func (s StandIn) Start(ctx context.Context, o Options) (*Server, error) {
	if o.Exe == "" {
		return nil, &NoServerError{Title: s.Title, Tried: []Try{{Embedded, "there is no program that serves it"}}}
	}
	exe, err := filepath.Abs(o.Exe)
	if err != nil {
		return nil, fmt.Errorf("provision: %w", err)
	}
	cache, err := o.CacheDir()
	if err != nil {
		return nil, err
	}
	c, err := StartChild(ctx, Program{
		Store: s.Store, Ports: 1, Probe: s.Probe, Ready: standInReady,
		Command: func(c *Child) (args, env []string, err error) {
			return append([]string{exe, "emulator", s.Store, "--listen", c.Addr(), "--data", c.Data()}, s.Args...), nil, nil
		},
	}, cache, o.Logs)
	if err != nil {
		return nil, err
	}
	o.Logf("%s: %s %s at %s: embedded, a stand-in", s.Store, s.Title, c.Version(), c.Addr())
	return NewServer(Info{
		Store: s.Store, Title: s.Title, Kind: Embedded, Fidelity: Emulated, Version: c.Version(),
		URL: s.Scheme + c.Addr(), Addr: c.Addr(), DataDir: c.Data(), Logs: c.Log(),
	}, c), nil
}
