package provision

import (
	"context"
	"fmt"
	"slices"
)

// Process is what stands behind the handle of a server that is ours. The methods are those of Server.
type Process interface {
	Kill(ctx context.Context) error
	Pause() error
	Resume() error
	Restart(ctx context.Context) error
	Close() error
}

// Info describes a running server.
type Info struct {
	Store    string // "postgres"
	Title    string // "Postgres": for people
	Kind     string // External, Native, …
	Fidelity string // Real or Emulated
	Version  string // the server's own text
	URL      string // the administrator's; may hold a password
	Shown    string // URL without secrets
	Addr     string // host:port
	DataDir  string // "" = not known
	Logs     string // path of the log, "" = not known
}

// Fidelities.
const (
	Real     = "real"     // the product itself
	Emulated = "emulated" // a stand-in
)

// Server is the handle of a running server. Its methods are safe for concurrent use.
type Server struct {
	info Info
	proc Process // nil: not ours
}

// NewServer returns the handle of a running server; p is nil for one that somebody else runs.
func NewServer(info Info, p Process) *Server {
	if info.Shown == "" {
		info.Shown = info.URL
	}
	return &Server{info: info, proc: p}
}

// Store names the store, as in a target's Needs.
func (s *Server) Store() string { return s.info.Store }

// AdminURL reaches the server with the right to create and drop. It may hold a password; never print it.
func (s *Server) AdminURL() string { return s.info.URL }

// Addr returns host:port.
func (s *Server) Addr() string { return s.info.Addr }

// DataDir returns the server's data folder; empty where it is not known.
func (s *Server) DataDir() string { return s.info.DataDir }

// Kind returns where the server comes from: External, Native, …
func (s *Server) Kind() string { return s.info.Kind }

// Fidelity returns Real for the product itself and Emulated for a stand-in.
func (s *Server) Fidelity() string { return s.info.Fidelity }

// Version returns the server's own version text.
func (s *Server) Version() string { return s.info.Version }

// Logs returns the path of the server's log, "" where it is not ours.
func (s *Server) Logs() string { return s.info.Logs }

// String names the server without secrets.
func (s *Server) String() string {
	return fmt.Sprintf("%s %s at %s", s.info.Title, s.info.Version, s.info.Shown)
}

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
	return fmt.Errorf("%w: %s of a server that is not ours (%s)", ErrUnsupported, a, s.info.Kind)
}

// Kill ends the server with all its processes by SIGKILL and returns when every one of them is gone, so that Restart
// finds nothing in its way. Killing a dead server does nothing.
func (s *Server) Kill(ctx context.Context) error {
	if s.proc == nil {
		return s.unsupported(CanKill)
	}
	return s.proc.Kill(ctx)
}

// Pause stops all processes of the server. Connections stay open and get no answer.
func (s *Server) Pause() error {
	if s.proc == nil {
		return s.unsupported(CanPause)
	}
	return s.proc.Pause()
}

// Resume continues what Pause has stopped.
func (s *Server) Resume() error {
	if s.proc == nil {
		return s.unsupported(CanPause)
	}
	return s.proc.Resume()
}

// Restart starts the server on the same data, port and address and returns when it answers. One that still runs is
// killed first.
func (s *Server) Restart(ctx context.Context) error {
	if s.proc == nil {
		return s.unsupported(CanRestart)
	}
	return s.proc.Restart(ctx)
}

// Close ends a server of ours and removes its data; another one is left alone. It may be called again.
func (s *Server) Close() error {
	if s.proc == nil {
		return nil
	}
	return s.proc.Close()
}
