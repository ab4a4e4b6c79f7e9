package script

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/faults/plan"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/scenarios"
)

// Stage is what a script plays on; the runner provides it.
type Stage interface {
	// Writer and Projector start a session's role. The context ends the role.
	Writer(ctx context.Context, name string, gate points.Gate) (Writer, error)
	Projector(ctx context.Context, name, view string, gate points.Gate) (Projector, error)
	// Owner hands one of the target's owners to the script; one that was crashed before is started again.
	Owner(ctx context.Context, name string, gate points.Gate) (Owner, error)
	// Crash resets the sockets of a session and closes its record: nothing it still says counts.
	Crash(name string) error
	Fault(ctx context.Context, f plan.Fault) error
	Lift(ctx context.Context, id string) error
	// Bitten waits until the fault has bitten.
	Bitten(ctx context.Context, id string) error
	Observe(ctx context.Context, projection, why string) error
	// Drained reports whether a view's projection has come to the end of the log.
	Drained(ctx context.Context, view string) (bool, error)
}

// Writer runs commands, one at a time.
type Writer interface {
	// Do runs a command to its end and returns how it ended: "ok", "refused CODE", "unknown", …
	Do(ctx context.Context, c scenarios.Command, continued bool) (answer string)
	// Read reads a stream strongly, outside any command.
	Read(ctx context.Context, stream string) error
	// Close ends the role in good order.
	Close() error
}

// Projector runs until its context ends or it crashes.
type Projector interface {
	// Done is closed when the projector has ended; Close ends it in good order.
	Done() <-chan struct{}
	Close() error
}

// Owner runs from the beginning of the trial to its end, or until it crashes.
type Owner interface {
	// Done is closed when the owner has ended; Close gives it back to the trial.
	Done() <-chan struct{}
	Close() error
}

// StepTimeout bounds the wait of every step: a session that does not come where the script expects it is a
// script that proves nothing.
const StepTimeout = 20 * time.Second

// Error is a step that could not be carried out as written.
type Error struct {
	Line int
	Step string
	Err  error
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("step at line %d (%s): %v", e.Line, e.Step, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Play walks the steps. checkAnswers is set for correct assemblies: a control may answer wrongly, and that is for
// the checkers to find. Sessions that are still running at the end are released and closed.
func Play(ctx context.Context, s *scenarios.Script, stage Stage, checkAnswers bool) error {
	p := &player{stage: stage, sessions: map[string]*session{}, checkAnswers: checkAnswers}
	err := p.play(ctx, s)
	return errors.Join(err, p.close())
}

type player struct {
	stage        Stage
	sessions     map[string]*session
	checkAnswers bool
}

// session is one role of the script, owned by the goroutine that plays.
type session struct {
	scenarios.Session
	gate      *Gate
	writer    Writer
	projector Projector
	owner     Owner
	end       context.CancelFunc
	command   scenarios.Command // the last one begun
	running   chan string       // receives the answer of the running command; nil = none was begun
	answer    string
	answered  bool
	crashed   bool
}

func (p *player) play(ctx context.Context, s *scenarios.Script) error {
	for _, def := range s.Sessions {
		sess := &session{Session: def}
		p.sessions[def.Name] = sess
		if err := p.open(ctx, sess); err != nil {
			return err
		}
	}
	for i := range s.Steps {
		step := &s.Steps[i]
		stepCtx, cancel := context.WithTimeout(ctx, StepTimeout)
		err := p.step(ctx, stepCtx, step, i)
		cancel()
		if err != nil {
			return &Error{Line: step.Line, Step: describe(step), Err: err}
		}
	}
	return nil
}

func (p *player) open(ctx context.Context, s *session) error {
	s.gate = NewGate()
	s.crashed = false
	roleCtx, end := context.WithCancel(ctx)
	s.end = end
	var err error
	switch s.Role {
	case "writer":
		s.writer, err = p.stage.Writer(roleCtx, s.Name, s.gate)
	case "projector":
		// A projector begins held between two rounds, so that nothing happens before the script says so.
		s.gate.Hold([]points.Point{points.ProjectorBeforePoll})
		s.projector, err = p.stage.Projector(roleCtx, s.Name, s.View, s.gate)
	case "owner":
		s.owner, err = p.stage.Owner(roleCtx, s.Name, s.gate)
	default:
		err = fmt.Errorf("no role %q", s.Role)
	}
	if err != nil {
		end()
		s.writer, s.projector, s.owner = nil, nil, nil
		return fmt.Errorf("session %s: %w", s.Name, err)
	}
	return nil
}

var (
	errNeverCame   = errors.New("the session did not come to a held point")
	errNoCommand   = errors.New("the session has begun no command")
	errStillBusy   = errors.New("the session's last command has not ended")
	errNotStanding = errors.New("the session stands at no point")
)

func (p *player) step(ctx, stepCtx context.Context, st *scenarios.Step, index int) error {
	s := p.sessions[st.Session]
	if st.SetHold {
		s.gate.Hold(st.Hold)
	}
	var err error
	switch {
	case st.Do != nil:
		if err = p.begin(ctx, s, *st.Do, false, index); err == nil {
			err = s.wait(stepCtx)
		}
	case st.Start != nil:
		err = p.begin(ctx, s, *st.Start, false, index)
	case st.Continue != "":
		err = p.begin(ctx, s, p.sessions[st.Continue].command, true, index)
	case st.Wait:
		err = s.wait(stepCtx)
	case st.Settle != 0:
		settleCtx, cancel := context.WithTimeout(stepCtx, st.Settle)
		if err = s.wait(settleCtx); errors.Is(err, context.DeadlineExceeded) {
			err = nil
		}
		cancel()
	case st.Release:
		if !s.gate.Release() {
			err = errNotStanding
		}
	case st.Crash:
		err = p.crash(stepCtx, s)
	case st.Restart:
		err = p.open(ctx, s)
	case st.Pause != 0:
		err = clock.Sleep(stepCtx, st.Pause)
	case st.Fault != nil:
		err = p.stage.Fault(stepCtx, *st.Fault)
	case st.Bitten != "":
		err = p.stage.Bitten(stepCtx, st.Bitten)
	case st.Lift != "":
		err = p.stage.Lift(stepCtx, st.Lift)
	case st.Observe != "":
		err = p.stage.Observe(stepCtx, st.Observe, fmt.Sprintf("script line %d", st.Line))
	case st.Drain:
		err = p.drain(stepCtx, s)
	case st.Read != "":
		err = s.writer.Read(stepCtx, st.Read)
	case st.Answer != "":
		if p.checkAnswers && s.answer != st.Answer {
			err = fmt.Errorf("the command ended %q, expected %q", s.answer, st.Answer)
		}
	}
	if err != nil || !st.Await {
		return err
	}
	return s.await(stepCtx)
}

func (p *player) begin(ctx context.Context, s *session, c scenarios.Command, continued bool, index int) error {
	if s.running != nil && !s.answered {
		return errStillBusy
	}
	if c.ID == "" {
		c.ID = fmt.Sprintf("%s-%d", s.Name, index)
	}
	s.command, s.running, s.answered, s.answer = c, make(chan string, 1), false, ""
	w, running := s.writer, s.running
	go func() { running <- w.Do(ctx, c, continued) }()
	return nil
}

func (s *session) wait(ctx context.Context) error {
	if s.running == nil {
		return errNoCommand
	}
	if s.answered {
		return nil
	}
	select {
	case s.answer = <-s.running:
		s.answered = true
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the command %s of %s did not end: %w", s.command.Name, s.Name, ctx.Err())
	}
}

func (s *session) await(ctx context.Context) error {
	var ended chan string
	if s.running != nil && !s.answered {
		ended = s.running
	}
	select {
	case <-s.gate.Arrived():
		return nil
	case s.answer = <-ended:
		s.answered = true
		return fmt.Errorf("%w: its command ended %q before", errNeverCame, s.answer)
	case <-s.done():
		return fmt.Errorf("%w: it ended before", errNeverCame)
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errNeverCame, ctx.Err())
	}
}

// done is closed when the session's role has ended; nil for a writer, which only ends with the script.
func (s *session) done() <-chan struct{} {
	switch {
	case s.projector != nil:
		return s.projector.Done()
	case s.owner != nil:
		return s.owner.Done()
	}
	return nil
}

func (p *player) crash(ctx context.Context, s *session) error {
	// Sockets first, then the unwinding: a rollback or a goodbye of the dying code must reach nobody.
	if err := p.stage.Crash(s.Name); err != nil {
		return err
	}
	s.gate.Crash()
	s.end()
	s.crashed = true
	if done := s.done(); done != nil {
		select {
		case <-done:
		case <-ctx.Done():
			return fmt.Errorf("the crashed session does not end: %w", ctx.Err())
		}
		return nil
	}
	if s.running != nil && !s.answered {
		return s.wait(ctx)
	}
	return nil
}

func (p *player) drain(ctx context.Context, s *session) error {
	s.gate.Hold(nil)
	s.gate.Release()
	for {
		ok, err := p.stage.Drained(ctx, s.View)
		if err != nil {
			return err
		}
		if ok {
			return nil
		}
		select {
		case <-s.projector.Done():
			return errors.New("the projector ended before it had caught up")
		default:
		}
		if err := clock.Sleep(ctx, 5*time.Millisecond); err != nil {
			// Not catching up is a finding for the checkers (progress, fold), not a broken script.
			return nil //nolint:nilerr // see above
		}
	}
}

// close lets every session end in good order.
func (p *player) close() error {
	var errs []error
	for _, s := range p.sessions {
		if s.gate == nil || s.crashed {
			continue
		}
		s.gate.Hold(nil)
		s.gate.Release()
		if s.running != nil && !s.answered {
			ctx, cancel := context.WithTimeout(context.Background(), StepTimeout)
			errs = append(errs, s.wait(ctx))
			cancel()
		}
		switch {
		case s.writer != nil:
			errs = append(errs, s.writer.Close())
		case s.projector != nil:
			errs = append(errs, s.projector.Close())
		case s.owner != nil:
			errs = append(errs, s.owner.Close())
		}
		s.end()
	}
	return errors.Join(errs...)
}

// describe renders a step for messages.
func describe(st *scenarios.Step) string {
	var b strings.Builder
	if st.Session != "" {
		b.WriteString(st.Session + ": ")
	}
	switch {
	case st.Do != nil:
		b.WriteString("do " + st.Do.Name)
	case st.Start != nil:
		b.WriteString("start " + st.Start.Name)
	case st.Continue != "":
		b.WriteString("continue " + st.Continue)
	case st.Wait:
		b.WriteString("wait")
	case st.Settle != 0:
		b.WriteString("settle " + st.Settle.String())
	case st.Release:
		b.WriteString("release")
	case st.Crash:
		b.WriteString("crash")
	case st.Restart:
		b.WriteString("restart")
	case st.Pause != 0:
		b.WriteString("pause " + st.Pause.String())
	case st.Fault != nil:
		b.WriteString("fault " + st.Fault.ID)
	case st.Bitten != "":
		b.WriteString("bitten " + st.Bitten)
	case st.Lift != "":
		b.WriteString("lift " + st.Lift)
	case st.Observe != "":
		b.WriteString("observe " + st.Observe)
	case st.Drain:
		b.WriteString("drain")
	case st.Read != "":
		b.WriteString("read " + st.Read)
	case st.Answer != "":
		b.WriteString("answer " + st.Answer)
	}
	if st.Await {
		b.WriteString(", await")
	}
	return strings.TrimSuffix(b.String(), ": ")
}
