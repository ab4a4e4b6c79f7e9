package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"

	"github.com/eventproof/eventproof/roles"
)

// spawner starts every child from one OS thread that lives as long as the runner: the parent-death signal of
// Linux fires when the thread that started the child ends, not when the process does.
type spawner struct {
	jobs chan func()
	done chan struct{}
}

func newSpawner() *spawner {
	s := &spawner{jobs: make(chan func()), done: make(chan struct{})}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for job := range s.jobs {
			job()
		}
		close(s.done)
	}()
	return s
}

func (s *spawner) start(cmd *exec.Cmd) error {
	result := make(chan error)
	s.jobs <- func() { result <- cmd.Start() }
	return <-result
}

// close ends the thread; children that are still running get their death signal.
func (s *spawner) close() {
	close(s.jobs)
	<-s.done
}

// child is a role in a process of its own.
type child struct {
	name string
	cmd  *exec.Cmd
	conn *roles.Conn

	ready  chan struct{}
	exited chan struct{} // closed after Wait returned and the last message was read

	mu     sync.Mutex
	status roles.Status
	err    error // from the done message, or how the process ended
	clean  bool  // it said done by itself
}

// startChild starts `<exe> role <config>` with a socket on fd 3.
func (s *spawner) startChild(exe, dir string, cfg roles.Config) (*child, error) {
	path := filepath.Join(dir, fmt.Sprintf("%s-%d.json", cfg.Name, cfg.Incarnation))
	b, err := json.MarshalIndent(cfg, "", " ")
	if err != nil {
		return nil, fmt.Errorf("role %s: %w", cfg.Name, err)
	}
	// The file holds the role's credentials.
	if err := os.WriteFile(path, b, 0o600); err != nil {
		return nil, fmt.Errorf("role %s: %w", cfg.Name, err)
	}
	log, err := os.OpenFile(filepath.Join(dir, cfg.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("role %s: %w", cfg.Name, err)
	}
	defer func() { _ = log.Close() }() // the child has its own descriptor
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("role %s: socketpair: %w", cfg.Name, err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "role-control"), os.NewFile(uintptr(fds[1]), "role-control")
	defer func() { _ = theirs.Close() }()
	cmd := exec.CommandContext(context.Background(), exe, "role", path)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := s.start(cmd); err != nil {
		return nil, errors.Join(fmt.Errorf("role %s: %w", cfg.Name, err), ours.Close())
	}
	c := &child{name: cfg.Name, cmd: cmd, conn: roles.NewConn(ours), ready: make(chan struct{}), exited: make(chan struct{})}
	go c.listen()
	return c, nil
}

// listen owns the receiving side until the child is gone.
func (c *child) listen() {
	defer close(c.exited)
	isReady := false
	for {
		m, err := c.conn.Receive()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				c.fail(err)
			}
			break
		}
		switch m.Kind {
		case roles.MsgReady:
			if !isReady {
				isReady = true
				close(c.ready)
			}
		case roles.MsgStatus:
			c.mu.Lock()
			c.status = m.Status
			c.mu.Unlock()
		case roles.MsgDone:
			c.mu.Lock()
			c.status, c.clean = m.Status, true
			c.mu.Unlock()
			if err := m.Failure(); err != nil {
				c.fail(err)
			}
		case roles.MsgPoint:
			if err := c.conn.Send(roles.Message{Kind: roles.MsgPass, Seq: m.Seq, Action: roles.ActionGo}); err != nil {
				c.fail(err)
			}
		case roles.MsgStart, roles.MsgPass, roles.MsgStop:
			c.fail(fmt.Errorf("role %s sent %q, which only the runner may", c.name, m.Kind))
		}
	}
	if err := c.cmd.Wait(); err != nil {
		c.mu.Lock()
		if c.err == nil && !c.clean {
			c.err = fmt.Errorf("role %s: %w", c.name, err)
		}
		c.mu.Unlock()
	}
	if err := c.conn.Close(); err != nil {
		c.fail(err)
	}
}

func (c *child) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
}

// waitReady waits until the child stands by for its start.
func (c *child) waitReady(ctx context.Context) error {
	select {
	case <-c.ready:
		return nil
	case <-c.exited:
		return fmt.Errorf("role %s ended before it was ready: %w", c.name, c.result())
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errEndedQuietly = errors.New("it gave no reason; its log may")

func (c *child) result() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && !c.clean {
		return errEndedQuietly
	}
	return c.err
}

// kill is SIGKILL by handle; it returns when the process is gone.
func (c *child) kill() error {
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("role %s: kill: %w", c.name, err)
	}
	<-c.exited
	return nil
}

func (c *child) signal(sig syscall.Signal) error {
	if err := c.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("role %s: %s: %w", c.name, sig, err)
	}
	return nil
}
