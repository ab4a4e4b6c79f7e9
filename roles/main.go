package roles

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/eventproof/eventproof/app"
	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/faults"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets"
)

// controlFD is the descriptor of the socket to the runner.
const controlFD = 3

// Main is a role process: it reads its configuration, attaches to the store, talks to the runner over descriptor 3,
// and ends when its work is done, when it is told to, or when the socket closes because the runner is gone.
func Main(ctx context.Context, path string, registry *targets.Registry, parts *app.Parts) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("role: %w", err)
	}
	var cfg Config
	if err := json.Unmarshal(b, &cfg); err != nil {
		return fmt.Errorf("role: %s: %w", path, err)
	}
	socket := os.NewFile(controlFD, "role-control")
	if st, err := socket.Stat(); err != nil || st.Mode()&os.ModeSocket == 0 {
		return errors.New("role: descriptor 3 is not a socket: role processes are started by `eventproof run`")
	}
	conn := NewConn(socket)
	defer func() { _ = conn.Close() }() // the process ends
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	gate := newRemoteGate(conn, cfg.Points)
	begin, stop := make(chan int64, 1), make(chan struct{})
	go listen(conn, gate, begin, stop, cancel)

	status := Status{}
	ready := false
	report := func(s Status) {
		status = s
		if !ready {
			ready = true
			if err := conn.Send(Message{Kind: MsgReady}); err != nil {
				cancel(errRunnerGone)
			}
			return
		}
		if err := conn.Send(Message{Kind: MsgStatus, Status: s}); err != nil {
			cancel(errRunnerGone)
		}
	}
	runErr := runAttached(ctx, cfg, registry, parts, gate, begin, stop, report)
	if errors.Is(context.Cause(ctx), errRunnerGone) {
		return errRunnerGone
	}
	done := Message{Kind: MsgDone, Status: status}
	if runErr != nil {
		done.Error = runErr.Error()
		_ = errors.As(runErr, &done.Errno) // else it stays 0
	}
	return errors.Join(runErr, conn.Send(done))
}

// listen takes the runner's messages; the end of the socket ends the role.
func listen(conn *Conn, gate *remoteGate, begin chan<- int64, stop chan struct{}, cancel context.CancelCauseFunc) {
	stopped := false
	for {
		m, err := conn.Receive()
		if err != nil {
			close(gate.gone)
			cancel(errRunnerGone)
			return
		}
		switch m.Kind {
		case MsgStart:
			begin <- m.T0
		case MsgPass:
			gate.passed(m)
		case MsgStop:
			if !stopped {
				stopped = true
				close(stop)
			}
		case MsgReady, MsgPoint, MsgStatus, MsgDone:
		}
	}
}

func runAttached(ctx context.Context, cfg Config, registry *targets.Registry, parts *app.Parts, gate points.Gate, begin <-chan int64, stop <-chan struct{}, report func(Status)) (err error) {
	target, ok := registry.Find(cfg.Target)
	if !ok || target.Attach == nil {
		return fmt.Errorf("role: target %q can't be reached from a process of its own", cfg.Target)
	}
	dialer := faults.MapDialer(cfg.Dial)
	site := targets.Env{Gate: gate, Dial: dialer.Dial, Name: SessionName(cfg), Views: views(cfg)}
	rec, err := history.Create(cfg.Segment)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rec.Close()) }()
	env := Env{Gate: gate, Dial: dialer.Dial, Clock: clock.System{}, Rand: Seeded(cfg), Rec: rec}
	if cfg.Kind == Owner {
		serve, err := ServeOf(target, cfg, site)
		if err != nil {
			return err
		}
		return RunOwner(ctx, cfg, env, serve, stop, report)
	}
	session, err := target.Attach(ctx, cfg.Attach, site)
	if err != nil {
		return fmt.Errorf("role %s: attach: %w", cfg.Name, err)
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	return Run(ctx, cfg, parts, env, session, begin, stop, report)
}

func views(cfg Config) []eventstore.View { return app.Views(cfg.Workload) }
