package extending_test

import (
	"context"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/extending/shelf"
	"github.com/eventproof/eventproof/targets"
)

// parts are what a variant does its own way, on a connection to a shelf; nil = as the shelf does it.
type parts struct {
	append func(ctx context.Context, c *shelf.Conn, a eventstore.Append) (eventstore.Appended, error)
	read   func(ctx context.Context, c *shelf.Conn, r eventstore.ReadRequest) (eventstore.Slice, error)
	save   func(ctx context.Context, c *shelf.Conn, s eventstore.Snapshot) error
	find   func(ctx context.Context, c *shelf.Conn, stream string) (eventstore.Snapshot, bool, error)
	poll   func(ctx context.Context, c *shelf.Conn, after eventstore.Cursor, limit int) (eventstore.Page, error)
	claim  func(ctx context.Context, c *shelf.Conn, v eventstore.View) (eventstore.Checkpoint, error)
	apply  func(ctx context.Context, c *shelf.Conn, v eventstore.View, b eventstore.Batch) (eventstore.Checkpoint, error)
	// audit wraps the auditor: for what a variant stores elsewhere than on the tape.
	audit func(targets.Auditor) targets.Auditor
}

// variant is the shelf with parts of its own. build is called once a trial, so that parts may share state.
func variant(name string, build func() parts) targets.Target {
	t := shelf.Target()
	t.Variant = name
	t.Open = func(ctx context.Context, site targets.Site) (targets.Instance, error) {
		inner, err := shelf.Open(ctx, site)
		return &instance{inner, build()}, err
	}
	return t
}

type instance struct {
	targets.Instance
	parts parts
}

func (i *instance) Connect(ctx context.Context, role string, env targets.Env) (targets.Session, error) {
	inner, err := i.Instance.Connect(ctx, role, env)
	if err != nil {
		return nil, err
	}
	return &session{inner.(*shelf.Conn), i.parts}, nil
}

func (i *instance) Auditor() targets.Auditor {
	if i.parts.audit == nil {
		return i.Instance.Auditor()
	}
	return i.parts.audit(i.Instance.Auditor())
}

type session struct {
	*shelf.Conn
	parts parts
}

func (s *session) Store() eventstore.Store         { return s }
func (s *session) Snapshots() eventstore.Snapshots { return s }
func (s *session) Feed() eventstore.Feed           { return s }

func (s *session) Append(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	if s.parts.append == nil {
		return s.Conn.Append(ctx, a)
	}
	if err := s.Begin(ctx, "append"); err != nil {
		return eventstore.Appended{}, err
	}
	return s.parts.append(ctx, s.Conn, a)
}

func (s *session) Read(ctx context.Context, r eventstore.ReadRequest) (eventstore.Slice, error) {
	if s.parts.read == nil {
		return s.Conn.Read(ctx, r)
	}
	return s.parts.read(ctx, s.Conn, r)
}

func (s *session) SaveSnapshot(ctx context.Context, snap eventstore.Snapshot) error {
	if s.parts.save == nil {
		return s.Conn.SaveSnapshot(ctx, snap)
	}
	return s.parts.save(ctx, s.Conn, snap)
}

func (s *session) LoadSnapshot(ctx context.Context, stream string) (eventstore.Snapshot, bool, error) {
	if s.parts.find == nil {
		return s.Conn.LoadSnapshot(ctx, stream)
	}
	return s.parts.find(ctx, s.Conn, stream)
}

func (s *session) Poll(ctx context.Context, after eventstore.Cursor, limit int) (eventstore.Page, error) {
	if s.parts.poll == nil {
		return s.Conn.Poll(ctx, after, limit)
	}
	return s.parts.poll(ctx, s.Conn, after, limit)
}

func (s *session) Projection(v eventstore.View) (eventstore.Projection, error) {
	inner, err := s.Conn.Projection(v)
	return &projected{inner, s, v}, err
}

type projected struct {
	eventstore.Projection
	session *session
	view    eventstore.View
}

func (p *projected) Claim(ctx context.Context) (eventstore.Checkpoint, error) {
	if p.session.parts.claim == nil {
		return p.Projection.Claim(ctx)
	}
	return p.session.parts.claim(ctx, p.session.Conn, p.view)
}

func (p *projected) Apply(ctx context.Context, b eventstore.Batch) (eventstore.Checkpoint, error) {
	if p.session.parts.apply == nil {
		return p.Projection.Apply(ctx, b)
	}
	if err := p.session.Begin(ctx, "apply"); err != nil {
		return eventstore.Checkpoint{}, err
	}
	return p.session.parts.apply(ctx, p.session.Conn, p.view, b)
}
