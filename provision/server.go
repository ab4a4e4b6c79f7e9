package provision

import (
	"context"
	"fmt"
	"slices"
)

// Server is the handle of a running server. Its methods are safe for concurrent use.
type Server struct {
	kind    string
	version string
	url     string
	shown   string // url without secrets
	addr    string
	proc    *postgres // nil: not ours
}

// AdminURL reaches the server with the right to create and drop. It may hold a password; never print it.
func (s *Server) AdminURL() string { return s.url }

// Addr returns host:port.
func (s *Server) Addr() string { return s.addr }

// DataDir returns the server's data folder; empty for one that is not ours.
func (s *Server) DataDir() string {
	if s.proc == nil {
		return ""
	}
	return s.proc.data()
}

// Kind returns Native or External.
func (s *Server) Kind() string { return s.kind }

// Fidelity returns "real": every server of this package is Postgres itself.
func (*Server) Fidelity() string { return "real" }

// Version returns the server's own version text.
func (s *Server) Version() string { return s.version }

// Logs returns the path of the server's log, "" where it is not ours.
func (s *Server) Logs() string {
	if s.proc == nil {
		return ""
	}
	return s.proc.log
}

// String names the server without secrets.
func (s *Server) String() string { return fmt.Sprintf("Postgres %s at %s", s.version, s.shown) }

// Abilities lists what the server can do.
func (s *Server) Abilities() []Ability {
	if s.proc == nil {
		return nil
	}
	return []Ability{CanKill, CanPause, CanRestart}
}

// Can reports whether the server has an ability.
func (s *Server) Can(a Ability) bool { return slices.Contains(s.Abilities(), a) }

func (s *Server) unsupported(a Ability) error {
	return fmt.Errorf("%w: %s of a server that is not ours (%s)", ErrUnsupported, a, s.kind)
}

// Kill ends the server with all its processes by SIGKILL and returns when every one of them is gone, so that Restart
// finds nothing in its way. Killing a dead server does nothing.
func (s *Server) Kill(ctx context.Context) error {
	if s.proc == nil {
		return s.unsupported(CanKill)
	}
	return s.proc.kill(ctx)
}

// Pause stops all processes of the server. Connections stay open and get no answer.
func (s *Server) Pause() error {
	if s.proc == nil {
		return s.unsupported(CanPause)
	}
	return s.proc.pause()
}

// Resume continues what Pause has stopped.
func (s *Server) Resume() error {
	if s.proc == nil {
		return s.unsupported(CanPause)
	}
	return s.proc.resume()
}

// Restart starts the server on the same data, port and address and returns when it answers. One that still runs is
// killed first.
func (s *Server) Restart(ctx context.Context) error {
	if s.proc == nil {
		return s.unsupported(CanRestart)
	}
	return s.proc.restart(ctx)
}

// Close ends a server of ours and removes its data; another one is left alone. It may be called again.
func (s *Server) Close() error {
	if s.proc == nil {
		return nil
	}
	return s.proc.close()
}
