package provision

import (
	"bufio"
	"bytes"
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eventproof/eventproof/clock"
)

const (
	folderPrefix = "eventproof-pg-"
	// Below the range that the kernel hands out to clients.
	firstPort, lastPort = 20000, 29999
	readyTimeout        = 90 * time.Second
	endTimeout          = 20 * time.Second
)

// postgres is a server that runs as our child.
type postgres struct {
	bin, dir, log string
	cache         string
	port          int
	url           string
	cred          *syscall.Credential // nil: as ourselves
	record        *record

	mu     sync.Mutex // one operation at a time
	pm     process    // the postmaster
	done   chan struct{}
	waited error // valid after done
	paused []process
	closed bool
}

// StartNative creates a data folder and starts the server in it with the programs of bin, on loopback and a free port.
// The server survives neither Close nor the death of this process. logs is the folder for its log, "" = beside the
// data. Root starts it as user postgres or nobody.
func StartNative(ctx context.Context, bin, cache, logs string) (*Server, error) {
	p := &postgres{bin: bin, cache: cache}
	if err := p.create(ctx, logs); err != nil {
		return nil, errors.Join(err, p.close())
	}
	version, err := p.firstStart(ctx)
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port))
	return &Server{kind: Native, version: version, url: p.url, shown: p.url, addr: addr, proc: p}, nil
}

// create makes the folder and the data in it.
func (p *postgres) create(ctx context.Context, logs string) error {
	var err error
	if p.cred, err = unprivileged(); err != nil {
		return err
	}
	if err := p.enterable(p.bin); err != nil {
		return fmt.Errorf("%w; put the cache elsewhere with %s, or the binaries with %s", err, envCache, envBin)
	}
	if err := p.enterable(os.TempDir()); err != nil {
		return fmt.Errorf("%w; set TMPDIR to a folder that it can enter", err)
	}
	if p.dir, err = filepath.Abs(filepath.Join(os.TempDir(), folderPrefix+strings.ToLower(cryptorand.Text()))); err != nil {
		return fmt.Errorf("provision: %w", err)
	}
	if p.record, err = newRecord(p.cache, p.dir); err != nil {
		return err
	}
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		return fmt.Errorf("provision: %w", err)
	}
	if p.cred != nil {
		if err := os.Chown(p.dir, int(p.cred.Uid), int(p.cred.Gid)); err != nil {
			return fmt.Errorf("provision: %w", err)
		}
	}
	if logs == "" {
		logs = p.dir
	}
	p.log = filepath.Join(logs, strings.TrimPrefix(filepath.Base(p.dir), "eventproof-")+".log")
	return p.initdb(ctx)
}

func (p *postgres) initdb(ctx context.Context) error {
	// Data survives kill -9 of the server without fsync of what initdb has written; the server itself syncs.
	cmd := p.command(ctx, "initdb", "-D", p.data(), "-U", "postgres", "-A", "trust", "--no-sync", "--no-instructions", "--locale=C", "-E", "UTF8")
	out, err := onOwnThread(cmd.CombinedOutput)
	if ctx.Err() != nil {
		return fmt.Errorf("provision: initdb: %w", ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("provision: initdb failed: %w: %s", err, lastLines(bytes.NewReader(out)))
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

func (p *postgres) data() string { return filepath.Join(p.dir, "data") }

// command prepares a program of the server, with an environment of its own: PG* and locale of the caller are not the
// server's business.
func (p *postgres) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(p.bin, name), args...)
	cmd.Dir = p.dir
	cmd.Env = []string{"LC_ALL=C", "PATH=" + p.bin + ":/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.cred, Setpgid: true, Pdeathsig: syscall.SIGKILL}
	// A cancelled program takes the helpers that it has started along.
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = endTimeout
	return cmd
}

// firstStart finds a port and starts the server on it.
func (p *postgres) firstStart(ctx context.Context) (version string, err error) {
	rnd := rand.New(rand.NewPCG(uint64(os.Getpid()), uint64(clock.Monotonic())))
	const tries = 5
	for range tries {
		if p.port, err = freePort(ctx, rnd); err != nil {
			return "", err
		}
		p.url = fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable&target_session_attrs=any", p.port)
		version, err = p.start(ctx)
		if err == nil || !taken(ctx, p.port) {
			return version, err
		}
		// Somebody else took the port after we had looked.
	}
	return "", err
}

func freePort(ctx context.Context, rnd *rand.Rand) (int, error) {
	const tries = 100
	for range tries {
		if port := firstPort + rnd.IntN(lastPort-firstPort+1); !taken(ctx, port) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("provision: no free port between %d and %d", firstPort, lastPort)
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
func (p *postgres) start(ctx context.Context) (version string, err error) {
	if err = p.spawn(); err == nil {
		version, err = p.ready(ctx)
	}
	if err != nil {
		kctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		return "", errors.Join(err, p.end(kctx))
	}
	return version, nil
}

func (p *postgres) spawn() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("provision: the server's log: %w", err)
	}
	defer log.Close() //nolint:errcheck // the child has its own descriptor
	// The server outlives every context; it ends by Close or with this process. Durability settings stay at their
	// defaults, since durability is judged.
	cmd := p.command(context.Background(), "postgres", "-D", p.data(),
		"-c", "listen_addresses=127.0.0.1", "-c", "port="+strconv.Itoa(p.port),
		"-c", "unix_socket_directories=", // loopback only; a deep TMPDIR would exceed the limit of socket paths
		"-c", "max_connections=200", "-c", "logging_collector=off", "-c", "log_line_prefix=%m [%p] %q%a ")
	cmd.Stdout, cmd.Stderr = log, log
	// An immediate shutdown takes the server's children along, which a SIGKILL of the postmaster does not.
	cmd.SysProcAttr.Pdeathsig = syscall.SIGQUIT

	p.done = make(chan struct{})
	started := make(chan error)
	go func() {
		// The thread that started the server must live as long as it, see onOwnThread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.waited = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		p.pm = process{}
		return fmt.Errorf("provision: start of the server: %w", err)
	}
	pm, ok := statOf(cmd.Process.Pid)
	if !ok {
		<-p.done
		return fmt.Errorf("provision: the server ended at once: %s", p.tail())
	}
	p.pm = pm
	return p.record.started(pm)
}

// ready waits until the server answers a query.
func (p *postgres) ready(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	const pause = 20 * time.Millisecond
	for {
		version, perr := probe(ctx, p.url, 2*time.Second)
		if perr == nil {
			return version, nil
		}
		select {
		case <-p.done:
			return "", fmt.Errorf("provision: the server ended while starting (%s): %s", p.ending(), p.tail())
		case <-ctx.Done():
			return "", fmt.Errorf("provision: the server does not answer: %w (%w): %s", ctx.Err(), perr, p.tail())
		case <-time.After(pause):
		}
	}
}

// ending says how the server ended; valid after done.
func (p *postgres) ending() string {
	if p.waited != nil {
		return p.waited.Error()
	}
	return "exit status 0"
}

// alive reports whether the postmaster has not been waited for yet.
func (p *postgres) alive() bool {
	if p.done == nil || p.pm.PID == 0 {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

var errClosed = errors.New("provision: the server was closed")

func (p *postgres) kill(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errClosed
	}
	return p.end(ctx)
}

// end kills postmaster and children. Every child has a session and process group of its own, and once the postmaster
// is dead nobody knows whose they were; a busy one would live on and hold the shared memory, so that no new server could
// start on the data. So: stop the postmaster that it forks no more, list its children, kill all, wait for all.
func (p *postgres) end(ctx context.Context) error {
	p.paused = nil
	var errs []error
	if p.alive() {
		if err := p.freeze(ctx); err != nil {
			return err
		}
		errs = append(errs, killAll(ctx, append(childrenOf(p.pm.PID), p.pm)))
		select {
		case <-p.done:
		case <-ctx.Done():
			errs = append(errs, fmt.Errorf("provision: waiting for the killed server: %w", ctx.Err()))
		}
	}
	if p.dir != "" {
		// What has outlived a postmaster that died on its own.
		errs = append(errs, killAll(ctx, workingIn(p.dir)))
	}
	return errors.Join(errs...)
}

// freeze stops the postmaster.
func (p *postgres) freeze(ctx context.Context) error {
	if err := p.pm.signal(unix.SIGSTOP); err != nil {
		return err
	}
	return await(ctx, "the server has stopped", func() bool {
		now, ok := statOf(p.pm.PID)
		return !ok || now.Start != p.pm.Start || now.state == 'T' || now.state == 'Z' || now.state == 'X'
	})
}

var errDead = errors.New("provision: the server does not run")

func (p *postgres) pause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.alive() {
		return errDead
	}
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if err := p.freeze(ctx); err != nil {
		return err
	}
	p.paused = append(childrenOf(p.pm.PID), p.pm)
	var errs []error
	for _, c := range p.paused {
		errs = append(errs, c.signal(unix.SIGSTOP))
	}
	return errors.Join(errs...)
}

func (p *postgres) resume() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.alive() {
		return errDead
	}
	var errs []error
	for _, c := range p.paused {
		errs = append(errs, c.signal(unix.SIGCONT))
	}
	p.paused = nil
	return errors.Join(errs...)
}

func (p *postgres) restart(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errClosed
	}
	if err := p.end(ctx); err != nil {
		return err
	}
	_, err := p.start(ctx)
	return err
}

func (p *postgres) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	// The data goes too, so there is nothing that a gentle stop would save.
	if err := p.end(ctx); err != nil {
		return err // the record stays, for Sweep
	}
	if p.dir == "" {
		return nil
	}
	if err := os.RemoveAll(p.dir); err != nil {
		return fmt.Errorf("provision: %w", err)
	}
	return p.record.remove()
}

// tail returns the end of the server's log.
func (p *postgres) tail() string {
	f, err := os.Open(p.log)
	if err != nil {
		return err.Error()
	}
	defer f.Close() //nolint:errcheck // it was only read
	return lastLines(f)
}

func lastLines(r io.Reader) string {
	const keep = 5
	var lines []string
	for s := bufio.NewScanner(r); s.Scan(); {
		if lines = append(lines, s.Text()); len(lines) > keep {
			lines = lines[1:]
		}
	}
	return strings.Join(lines, " | ")
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
func (p *postgres) enterable(dir string) error {
	if p.cred == nil {
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
			enters = enters || owner.Uid == p.cred.Uid && mode&0o100 != 0 || owner.Gid == p.cred.Gid && mode&0o010 != 0
		}
		if !enters {
			return fmt.Errorf("provision: the server runs as user %d, since it refuses to run as root, and that user can't enter %s", p.cred.Uid, d)
		}
		if d == filepath.Dir(d) {
			return nil
		}
	}
}
