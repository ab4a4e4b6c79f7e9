package provision

import (
	"bufio"
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/provision/internal/proc"
)

const (
	folderPrefix = "eventproof-"
	// Below the range that the kernel hands out to clients.
	firstPort, lastPort = 20000, 29999
	readyTimeout        = 90 * time.Second
	endTimeout          = 20 * time.Second
)

// Program is a server program that runs as our child.
type Program struct {
	// Store names the folder and the log.
	Store string
	// Ports is how many the server needs; the first one is its address.
	Ports int
	// User is whom to run it as; nil = as ourselves.
	User *syscall.Credential
	// DeathSignal is sent to the server when this process dies; 0 = SIGKILL.
	DeathSignal syscall.Signal
	// Prepare makes the data, once, before the first start; nil = the server does it.
	Prepare func(ctx context.Context, c *Child) error
	// Command returns the program, its arguments and its environment; it is asked before every start.
	Command func(c *Child) (args, env []string, err error)
	// Probe asks the server by its protocol for its version. It succeeds when the server is usable.
	Probe func(ctx context.Context, addr string) (version string, err error)
	// Ready bounds the time from start to a successful probe; 0 = 90 seconds.
	Ready time.Duration
}

// Child is a server that runs as our child, with a folder of its own that is removed with it. It survives neither Close
// nor the death of this process. Its methods are safe for concurrent use.
type Child struct {
	program Program
	dir     string
	log     string
	cache   string
	ports   []int
	record  *record
	version string

	mu     sync.Mutex   // one operation at a time
	head   proc.Process // the process that we have started
	done   chan struct{}
	waited error // valid after done
	paused []proc.Process
	closed bool
}

// StartChild prepares a folder and starts the program in it, on loopback and free ports, and returns when it can be
// used. logs is the folder for its log, "" = beside the data. Where it can't be started nothing is left.
func StartChild(ctx context.Context, p Program, cache, logs string) (*Child, error) {
	c := &Child{program: p, cache: cache}
	err := c.create(ctx, logs)
	if err == nil {
		err = c.firstStart(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Dir is the child's own folder; it works there.
func (c *Child) Dir() string { return c.dir }

// Data is the folder for the server's data, within Dir.
func (c *Child) Data() string { return filepath.Join(c.dir, "data") }

// Log is the path of what the server prints.
func (c *Child) Log() string { return c.log }

// Port returns the i-th port.
func (c *Child) Port(i int) int { return c.ports[i] }

// Addr returns host:port of the first port.
func (c *Child) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(c.ports[0])) }

// Version is what the probe after the last start said.
func (c *Child) Version() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.version
}

// PID returns the process that was started last.
func (c *Child) PID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.head.PID
}

// create makes the folder and the data in it.
func (c *Child) create(ctx context.Context, logs string) error {
	dir, err := filepath.Abs(filepath.Join(os.TempDir(), folderPrefix+c.program.Store+"-"+strings.ToLower(cryptorand.Text())))
	if err != nil {
		return fmt.Errorf("provision: %w", err)
	}
	c.dir = dir
	if c.record, err = newRecord(c.cache, c.dir); err != nil {
		return err
	}
	if err := os.Mkdir(c.dir, 0o700); err != nil {
		return fmt.Errorf("provision: %w", err)
	}
	if u := c.program.User; u != nil {
		if err := os.Chown(c.dir, int(u.Uid), int(u.Gid)); err != nil {
			return fmt.Errorf("provision: %w", err)
		}
	}
	if logs == "" {
		logs = c.dir
	}
	c.log = filepath.Join(logs, strings.TrimPrefix(filepath.Base(c.dir), folderPrefix)+".log")
	if c.program.Prepare == nil {
		return nil
	}
	return c.program.Prepare(ctx, c)
}

// Run runs a helper program to its end, such as one that makes the data, as the server's user and in its folder; it
// ends with this process. The error holds the end of what it has printed.
func (c *Child) Run(ctx context.Context, args, env []string) error {
	cmd := c.command(ctx, args, env)
	out, err := onOwnThread(cmd.CombinedOutput)
	name := filepath.Base(args[0])
	if ctx.Err() != nil {
		return fmt.Errorf("provision: %s: %w", name, ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("provision: %s failed: %w: %s", name, err, LastLines(strings.NewReader(string(out))))
	}
	return nil
}

// onOwnThread runs f on a thread that lives as long as f: a parent-death signal is sent when the thread that started
// the child ends, not the process.
func onOwnThread(f func() ([]byte, error)) (out []byte, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		out, err = f()
	}()
	<-done
	return out, err
}

// command prepares a program with an environment of its own: variables of the caller are not the server's business.
func (c *Child) command(ctx context.Context, args, env []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = c.dir
	cmd.Env = append([]string{"LC_ALL=C", "PATH=" + filepath.Dir(args[0]) + ":/usr/bin:/bin"}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.program.User, Setpgid: true, Pdeathsig: syscall.SIGKILL}
	// A cancelled program takes the helpers that it has started along.
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = endTimeout
	return cmd
}

// firstStart finds ports and starts the server on them.
func (c *Child) firstStart(ctx context.Context) (err error) {
	rnd := rand.New(rand.NewPCG(uint64(os.Getpid()), uint64(clock.Monotonic())))
	const tries = 5
	for range tries {
		if c.ports, err = freePorts(ctx, rnd, c.program.Ports); err != nil {
			return err
		}
		err = c.start(ctx)
		if err == nil || ctx.Err() != nil || !c.portLost(ctx) {
			return err
		}
		// Somebody else took a port after we had looked.
	}
	return err
}

func (c *Child) portLost(ctx context.Context) bool {
	for _, p := range c.ports {
		if taken(ctx, p) {
			return true
		}
	}
	return false
}

// FreePort returns a port of loopback that is free, below those that outgoing connections are given.
func FreePort(ctx context.Context) (int, error) {
	ports, err := freePorts(ctx, rand.New(rand.NewPCG(uint64(os.Getpid()), uint64(clock.Monotonic()))), 1)
	if err != nil {
		return 0, err
	}
	return ports[0], nil
}

func freePorts(ctx context.Context, rnd *rand.Rand, n int) ([]int, error) {
	const tries = 100
	var ports []int
	seen := map[int]bool{}
	for range tries {
		if len(ports) == n {
			break
		}
		port := firstPort + rnd.IntN(lastPort-firstPort+1)
		if !seen[port] && !taken(ctx, port) {
			ports = append(ports, port)
		}
		seen[port] = true
	}
	if len(ports) < n {
		return nil, fmt.Errorf("provision: no %d free ports between %d and %d", n, firstPort, lastPort)
	}
	return ports, nil
}

func taken(ctx context.Context, port int) bool {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return true
	}
	_ = l.Close() // it was only asked for
	return false
}

// start runs the server and returns when it answers; on error nothing runs.
func (c *Child) start(ctx context.Context) error {
	err := c.spawn()
	if err == nil {
		c.version, err = c.ready(ctx)
	}
	if err != nil {
		kctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		return errors.Join(err, c.end(kctx))
	}
	return nil
}

func (c *Child) spawn() error {
	args, env, err := c.program.Command(c)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("provision: the server's log: %w", err)
	}
	defer log.Close() //nolint:errcheck // the child has its own descriptor
	// The server outlives every context; it ends by Close or with this process.
	cmd := c.command(context.Background(), args, env)
	cmd.Stdout, cmd.Stderr = log, log
	if c.program.DeathSignal != 0 {
		cmd.SysProcAttr.Pdeathsig = c.program.DeathSignal
	}

	c.done = make(chan struct{})
	started := make(chan error)
	go func() {
		// The thread that started the server must live as long as it, see onOwnThread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			c.waited = cmd.Wait()
			close(c.done)
		}
	}()
	if err := <-started; err != nil {
		c.head = proc.Process{}
		return fmt.Errorf("provision: start of the server: %w", err)
	}
	head, ok := proc.Of(cmd.Process.Pid)
	if !ok {
		<-c.done
		return c.ended()
	}
	c.head = head
	return c.record.started(head)
}

// ready waits until the server answers.
func (c *Child) ready(ctx context.Context) (version string, err error) {
	bound := c.program.Ready
	if bound == 0 {
		bound = readyTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	const pause, one = 20 * time.Millisecond, 2 * time.Second
	for {
		pctx, pcancel := context.WithTimeout(ctx, one)
		version, perr := c.program.Probe(pctx, c.Addr())
		pcancel()
		if perr == nil {
			return version, nil
		}
		select {
		case <-c.done:
			return "", c.ended()
		case <-ctx.Done():
			return "", fmt.Errorf("provision: the server does not answer: %w (%w): %s", ctx.Err(), perr, c.tail())
		case <-time.After(pause):
		}
	}
}

// ended says how the server has ended instead of starting; valid after done.
func (c *Child) ended() error {
	how := "exit status 0"
	if c.waited != nil {
		how = c.waited.Error()
	}
	return fmt.Errorf("provision: the server ended while starting (%s): %s", how, c.tail())
}

// alive reports whether the server has not been waited for yet.
func (c *Child) alive() bool {
	if c.done == nil || c.head.PID == 0 {
		return false
	}
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

var (
	// ErrClosed says that the server was closed.
	ErrClosed = errors.New("provision: the server was closed")
	// ErrDead says that the server does not run.
	ErrDead = errors.New("provision: the server does not run")
)

// Kill implements Process.
func (c *Child) Kill(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	return c.end(ctx)
}

// Terminate asks the server to end by SIGTERM and waits until it has.
func (c *Child) Terminate(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.alive() {
		return ErrDead
	}
	if err := c.head.Signal(unix.SIGTERM); err != nil {
		return err
	}
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("provision: the server does not end: %w: %s", ctx.Err(), c.tail())
	}
}

// end kills the server and its children. Those of Postgres have a session and process group of their own, and once
// their parent is dead nobody knows whose they were; a busy one would live on and hold the shared memory, so that no new
// server could start on the data. So: stop the parent that it forks no more, list its children, kill all, wait for all.
func (c *Child) end(ctx context.Context) error {
	c.paused = nil
	var errs []error
	if c.alive() {
		if err := c.head.Freeze(ctx); err != nil {
			return err
		}
		errs = append(errs, proc.KillAll(ctx, append(proc.Children(c.head.PID), c.head)))
		select {
		case <-c.done:
		case <-ctx.Done():
			errs = append(errs, fmt.Errorf("provision: waiting for the killed server: %w", ctx.Err()))
		}
	}
	if c.dir != "" {
		// What has outlived a parent that died on its own.
		errs = append(errs, proc.KillAll(ctx, proc.WorkingIn(c.dir)))
	}
	return errors.Join(errs...)
}

// Pause implements Process.
func (c *Child) Pause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.alive() {
		return ErrDead
	}
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if err := c.head.Freeze(ctx); err != nil {
		return err
	}
	c.paused = append(proc.Children(c.head.PID), c.head)
	var errs []error
	for _, p := range c.paused {
		errs = append(errs, p.Signal(unix.SIGSTOP))
	}
	return errors.Join(errs...)
}

// Resume implements Process.
func (c *Child) Resume() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.alive() {
		return ErrDead
	}
	var errs []error
	for _, p := range c.paused {
		errs = append(errs, p.Signal(unix.SIGCONT))
	}
	c.paused = nil
	return errors.Join(errs...)
}

// Restart implements Process.
func (c *Child) Restart(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	if err := c.end(ctx); err != nil {
		return err
	}
	return c.start(ctx)
}

// Close implements Process.
func (c *Child) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	// The data goes too, so there is nothing that a gentle stop would save.
	if err := c.end(ctx); err != nil {
		return err // the record stays, for Sweep
	}
	if c.dir == "" {
		return nil
	}
	if err := os.RemoveAll(c.dir); err != nil {
		return fmt.Errorf("provision: %w", err)
	}
	return c.record.remove()
}

// tail returns the end of the server's log.
func (c *Child) tail() string {
	f, err := os.Open(c.log)
	if err != nil {
		return err.Error()
	}
	defer f.Close() //nolint:errcheck // it was only read
	return LastLines(f)
}

// LastLines returns the last few lines of a text, as one.
func LastLines(r io.Reader) string {
	const keep = 5
	var lines []string
	for s := bufio.NewScanner(r); s.Scan(); {
		if lines = append(lines, s.Text()); len(lines) > keep {
			lines = lines[1:]
		}
	}
	return strings.Join(lines, " | ")
}
