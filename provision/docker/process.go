package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/provision"
)

// process is the container behind a server's handle.
type process struct {
	engine *testcontainers.DockerClient
	id     string // "" until it was created
	addr   string
	logs   string // file that the log is kept in, "" = nowhere
	ready  func(ctx context.Context) error

	mu     sync.Mutex // one operation at a time
	closed bool
}

var _ provision.Process = (*process)(nil)

func logFile(o provision.Options, store string) string {
	if o.Logs == "" {
		return ""
	}
	return filepath.Join(o.Logs, store+"-docker.log")
}

// running reports whether the container runs, and else how it ended.
func (p *process) running(ctx context.Context) (bool, string) {
	is, err := p.engine.ContainerInspect(ctx, p.id, client.ContainerInspectOptions{})
	switch {
	case err != nil:
		return false, firstLine(err)
	case is.Container.State == nil:
		return false, "no state"
	}
	return is.Container.State.Running, fmt.Sprintf("%s, exit %d", is.Container.State.Status, is.Container.State.ExitCode)
}

// Kill implements provision.Process.
func (p *process) Kill(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kill(ctx)
}

func (p *process) kill(ctx context.Context) error {
	if running, _ := p.running(ctx); !running {
		return nil
	}
	// What is frozen can't die; an error says that it was not.
	_, _ = p.engine.ContainerUnpause(ctx, p.id, client.ContainerUnpauseOptions{})
	if _, err := p.engine.ContainerKill(ctx, p.id, client.ContainerKillOptions{Signal: "KILL"}); err != nil {
		if running, _ := p.running(ctx); running {
			return fmt.Errorf("provision: killing the container: %w", err)
		}
	}
	for {
		if running, _ := p.running(ctx); !running {
			return nil
		}
		if err := clock.Sleep(ctx, probePause); err != nil {
			return fmt.Errorf("provision: waiting for the end of the container: %w", err)
		}
	}
}

// Pause implements provision.Process.
func (p *process) Pause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if _, err := p.engine.ContainerPause(ctx, p.id, client.ContainerPauseOptions{}); err != nil {
		return fmt.Errorf("provision: pausing the container: %w", err)
	}
	return nil
}

// Resume implements provision.Process.
func (p *process) Resume() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if _, err := p.engine.ContainerUnpause(ctx, p.id, client.ContainerUnpauseOptions{}); err != nil {
		return fmt.Errorf("provision: resuming the container: %w", err)
	}
	return nil
}

// Restart implements provision.Process.
func (p *process) Restart(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.kill(ctx); err != nil {
		return err
	}
	if _, err := p.engine.ContainerStart(ctx, p.id, client.ContainerStartOptions{}); err != nil {
		return fmt.Errorf("provision: starting the container again: %w", err)
	}
	if err := p.ready(ctx); err != nil {
		return fmt.Errorf("provision: %w", err)
	}
	return nil
}

// Close implements provision.Process.
func (p *process) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	var kept error
	if p.logs != "" {
		kept = os.WriteFile(p.logs, []byte(p.log("all")), 0o600)
	}
	return errors.Join(kept, p.remove(), p.engine.Close())
}

// remove takes the container away with its volumes.
func (p *process) remove() error {
	if p.id == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	return remove(ctx, p.engine, p.id)
}

func remove(ctx context.Context, engine *testcontainers.DockerClient, id string) error {
	_, err := engine.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("provision: removing the container %.12s: %w", id, err)
	}
	return nil
}

// tail is the end of the log on one line.
func (p *process) tail() string {
	lines := strings.Split(strings.TrimSpace(p.log("5")), "\n")
	return strings.Join(lines, " | ")
}

// log reads the last lines of the container's log; what can't be read is said in it.
func (p *process) log(lines string) string {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	in, err := p.engine.ContainerLogs(ctx, p.id, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: lines})
	if err != nil {
		return "(no log: " + firstLine(err) + ")"
	}
	defer in.Close() //nolint:errcheck // it was only read
	var out strings.Builder
	if _, err := stdcopy.StdCopy(&out, &out, in); err != nil && !errors.Is(err, io.EOF) {
		return out.String() + "(cut off: " + firstLine(err) + ")"
	}
	return out.String()
}
