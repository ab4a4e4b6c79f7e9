package runner_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/reports"
	"github.com/eventproof/eventproof/runner"
	"github.com/eventproof/eventproof/verdict"
)

// meddler does to the snapshots of a running trial what must not matter: it deletes them, puts old ones back, and
// refuses new ones for a while.
type meddler struct {
	c             *pgx.Conn
	deleted, aged int64
}

// meddle goes on until ctx ends.
func (m *meddler) meddle(ctx context.Context) error {
	schema := ""
	for schema == "" {
		err := m.c.QueryRow(ctx, `select coalesce(max(nspname), '') from pg_namespace where nspname like 'ep\_%'`).Scan(&schema)
		if err != nil {
			return err
		}
	}
	names := strings.NewReplacer("TRIAL", schema)
	exec := func(sql string) (int64, error) {
		tag, err := m.c.Exec(ctx, names.Replace(sql))
		return tag.RowsAffected(), err
	}
	if _, err := exec(`create table TRIAL.older as select * from TRIAL.snapshots`); err != nil {
		return err
	}
	for {
		// Those that are there now come back when they are old.
		for _, step := range []struct {
			count *int64
			sql   string
		}{
			{nil, `insert into TRIAL.older select * from TRIAL.snapshots as s where not exists (select from TRIAL.older as o where o.stream = s.stream)`},
			{&m.deleted, `delete from TRIAL.snapshots`},
			{nil, `revoke insert, update on TRIAL.snapshots from TRIAL_writer`},
			{nil, `select pg_sleep(0.2)`},
			{nil, `grant insert, update on TRIAL.snapshots to TRIAL_writer`},
			{nil, `select pg_sleep(0.2)`},
			{&m.aged, `update TRIAL.snapshots as s set version = o.version, state = o.state from TRIAL.older as o where o.stream = s.stream and o.version < s.version`},
			{nil, `select pg_sleep(0.2)`},
		} {
			n, err := exec(step.sql)
			if ctx.Err() != nil || gone(err) {
				return nil //nolint:nilerr // the trial is over
			}
			if err != nil {
				return fmt.Errorf("%s: %w", step.sql, err)
			}
			if step.count != nil {
				*step.count += n
			}
		}
	}
}

// gone: the trial has dropped its schema.
func gone(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && (e.Code == "42P01" || e.Code == "3F000" || e.Code == "42704")
}

func TestSnapshotsThatAreDeletedAgedAndRefusedChangeNoAnswer(t *testing.T) {
	server := postgres(t)
	c, err := pgx.Connect(t.Context(), server.AdminURL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(context.Background()) }()
	ctx, stop := context.WithCancel(t.Context())
	m, ended := &meddler{c: c}, make(chan error, 1)
	go func() { ended <- m.meddle(ctx) }()
	p := program(t)
	if p.Exe, err = os.Executable(); err != nil {
		t.Fatal(err)
	}
	target, _ := p.Targets.Find("postgres/advisory-lock")
	dir := t.TempDir()
	r := runner.New(p, runner.Options{Dir: dir, For: 6 * time.Second})
	defer r.Close()
	trial := r.Run(t.Context(), runner.Spec{Scenario: scenario(t, "hot-account"), Target: target, Seed: 11}, server)
	stop()
	if trial.Problem != "" {
		t.Fatal(trial.Problem)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	nothingViolated(t, trial)
	if refused := refusedSnapshots(t, filepath.Join(dir, trial.History.File)); m.deleted == 0 || m.aged == 0 || refused == 0 {
		t.Errorf("%d snapshots were deleted, %d made old, %d refused", m.deleted, m.aged, refused)
	}
	e := evidence(t, trial, "snapshot-equals-fold")
	if e["snapshots"] == 0 || e["loads_from_snapshots"] == 0 {
		t.Errorf("snapshots did not matter: %v", e)
	}
}

func evidence(t *testing.T, trial reports.Trial, slug string) map[string]int64 {
	t.Helper()
	for _, v := range trial.Verdicts {
		if v.Invariant == slug && v.Verdict == verdict.Holds {
			return v.Evidence
		}
	}
	t.Fatalf("%s does not hold", slug)
	return nil
}

// refusedSnapshots counts the puts that the store refused.
func refusedSnapshots(t *testing.T, file string) (n int) {
	t.Helper()
	h, err := history.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = h.Close() }()
	for {
		rec, err := h.Next()
		if errors.Is(err, io.EOF) {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		if put, ok := rec.(*history.SnapshotResult); ok && put.Outcome == eventstore.Fail {
			n++
		}
	}
}
