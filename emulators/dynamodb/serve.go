package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// grace is how long Serve waits for requests in flight when it is told to end.
const grace = 2 * time.Second

// Serve opens a server and answers HTTP on addr until ctx ends. ready is called once it can be reached, with the
// address it really has. Serve returns nil when ctx ended it.
func Serve(ctx context.Context, addr string, opt Options, ready func(address string)) (err error) {
	s, err := Open(opt)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("dynamodb: %w", err)
	}
	h := &http.Server{Handler: s, ReadHeaderTimeout: 30 * time.Second, ConnState: s.count}
	done := make(chan error, 1)
	go func() { done <- h.Serve(l) }()
	if ready != nil {
		ready(l.Addr().String())
	}
	select {
	case err := <-done:
		return fmt.Errorf("dynamodb: %w", err)
	case <-ctx.Done():
	}
	// The context is over: what ends the server needs another one.
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err := h.Shutdown(end); err != nil {
		err = errors.Join(err, h.Close())
		if !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// count keeps the number of open connections.
func (s *Server) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.requests.connections.Add(1)
	case http.StateClosed, http.StateHijacked:
		s.requests.connections.Add(-1)
	case http.StateActive, http.StateIdle:
	}
}
