package faults_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// server is a Postgres of the tests' own, or the one that EVENTPROOF_POSTGRES_URL names.
type server struct {
	bin, dir string
	external string // its URL; can't be killed
	host     string
	port     string
	cred     *syscall.Credential

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{}
}

func (s *server) addr() string { return net.JoinHostPort(s.host, s.port) }

func (s *server) url() string {
	if s.external != "" {
		return s.external
	}
	return "postgres://app@" + s.addr() + "/postgres?sslmode=disable"
}

// theServer is started by the first test that needs it and stopped by TestMain.
var theServer struct {
	once sync.Once
	s    *server
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if s := theServer.s; s != nil {
		if err := s.stop(); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// postgres returns the server, or skips the test where no Postgres is installed.
func postgres(t *testing.T) *server {
	t.Helper()
	theServer.once.Do(func() { theServer.s, theServer.err = startServer() })
	switch {
	case errors.Is(theServer.err, errors.ErrUnsupported):
		t.Skip("NOT TESTED AGAINST POSTGRES:", theServer.err)
	case theServer.err != nil:
		t.Fatal(theServer.err)
	}
	return theServer.s
}

func startServer() (*server, error) {
	if url := os.Getenv("EVENTPROOF_POSTGRES_URL"); url != "" {
		cfg, err := pgx.ParseConfig(url)
		if err != nil {
			return nil, err
		}
		return &server{external: url, host: cfg.Host, port: strconv.Itoa(int(cfg.Port))}, nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if p, err := exec.LookPath("postgres"); err == nil {
		found = append(found, p)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no postgres binary: %w", errors.ErrUnsupported)
	}
	s := &server{bin: filepath.Dir(found[len(found)-1]), host: "127.0.0.1"}
	if os.Geteuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			return nil, fmt.Errorf("root may not run Postgres, and there is no user for it: %w: %w", err, errors.ErrUnsupported)
		}
		uid, _ := strconv.ParseUint(u.Uid, 10, 32)
		gid, _ := strconv.ParseUint(u.Gid, 10, 32)
		s.cred = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	top, err := os.MkdirTemp("", "eventproof-faults-")
	if err != nil {
		return nil, err
	}
	s.dir = filepath.Join(top, "data")
	if err := errors.Join(os.Chmod(top, 0o755), os.Mkdir(s.dir, 0o700)); err != nil {
		return nil, err
	}
	if s.cred != nil {
		if err := os.Chown(s.dir, int(s.cred.Uid), int(s.cred.Gid)); err != nil {
			return nil, err
		}
	}
	if out, err := s.command("initdb", "-D", s.dir, "-U", "app", "-A", "trust", "--no-sync", "--locale=C", "-E", "UTF8").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	_, s.port, _ = net.SplitHostPort(ln.Addr().String())
	if err := ln.Close(); err != nil {
		return nil, err
	}
	return s, s.start(context.Background())
}

func (s *server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred, Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

func (s *server) start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	cmd := s.command("postgres", "-D", s.dir, "-p", s.port, "-h", "127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd, s.done = cmd, make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(s.done)
	}()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.url())
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-s.done:
			return fmt.Errorf("postgres ended: %s", out.String())
		case <-ctx.Done():
			return fmt.Errorf("postgres does not come up: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// process skips tests that kill or stop the server where it is not the tests' own.
func (s *server) process(t *testing.T) {
	t.Helper()
	if s.external != "" {
		t.Skip("NOT TESTED: the server of EVENTPROOF_POSTGRES_URL can't be killed")
	}
}

// children lists the server's processes.
func (s *server) children() []int {
	pids := []int{s.cmd.Process.Pid}
	found, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range found {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		_, after, _ := strings.Cut(string(b), ") ")
		if f := strings.Fields(after); len(f) > 1 && f[1] == strconv.Itoa(s.cmd.Process.Pid) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			pids = append(pids, pid)
		}
	}
	return pids
}

func (s *server) signal(sig syscall.Signal, pids []int) error {
	var errs []error
	for _, pid := range pids {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Kill, Pause, Resume and Restart make it a faults.Process.

func (s *server) Kill(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = syscall.Kill(s.cmd.Process.Pid, syscall.SIGSTOP) // no new children while they are listed
	err := s.signal(syscall.SIGKILL, s.children())
	<-s.done
	return err
}

func (s *server) Pause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.signal(syscall.SIGSTOP, s.children())
}

func (s *server) Resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.signal(syscall.SIGCONT, s.children())
}

func (s *server) Restart(ctx context.Context) error {
	var err error
	for range 20 { // the shared memory of killed children may live on for a moment
		if err = s.start(ctx); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

func (s *server) stop() error {
	if s.external != "" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	if s.cmd != nil {
		errs = append(errs, s.signal(syscall.SIGQUIT, []int{s.cmd.Process.Pid}))
		<-s.done
	}
	return errors.Join(append(errs, os.RemoveAll(filepath.Dir(s.dir)))...)
}
