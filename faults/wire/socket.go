package wire

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"syscall"
)

// reservation keeps a port of 127.0.0.1 without listening: connections are refused, and nobody else, not even
// a client of ours that dials it again and again, is given the port meanwhile.
type reservation struct{ fd int }

func reserve(addr string) (*reservation, error) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return nil, err
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve %s: %w", addr, err)
	}
	syscall.CloseOnExec(fd)
	err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Port: n, Addr: [4]byte{127, 0, 0, 1}})
	}
	if err != nil {
		_ = syscall.Close(fd)
		return nil, fmt.Errorf("reserve %s: %w", addr, err)
	}
	return &reservation{fd}, nil
}

func (r *reservation) release() {
	if r != nil {
		_ = syscall.Close(r.fd) // a socket without connections closes without fail
	}
}

// bindLocal binds a socket to a free port of 127.0.0.1 before it connects, and tells which.
func bindLocal(tell func(addr string)) func(context.Context, string, string, syscall.RawConn) error {
	return func(_ context.Context, _, _ string, raw syscall.RawConn) error {
		var err error
		controlErr := raw.Control(func(fd uintptr) {
			if err = syscall.Bind(int(fd), &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
				return
			}
			var name syscall.Sockaddr
			if name, err = syscall.Getsockname(int(fd)); err != nil {
				return
			}
			if in, ok := name.(*syscall.SockaddrInet4); ok {
				tell(net.JoinHostPort("127.0.0.1", strconv.Itoa(in.Port)))
			}
		})
		if controlErr != nil {
			return controlErr
		}
		return err
	}
}
