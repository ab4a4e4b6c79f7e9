package audit_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	emulator "github.com/eventproof/eventproof/emulators/dynamodb"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/dynamodb"
	"github.com/eventproof/eventproof/targets/dynamodb/internal/dytest"
)

// trial is a store with one event, whose roles have left.
func trial(t *testing.T, s *dytest.Server) (targets.Instance, eventstore.Append) {
	t.Helper()
	i := dytest.Open(t, s, dynamodb.Targets()[1])
	a := dytest.Write("s", eventstore.NoStream(), dytest.NewEvent(1), dytest.NewEvent(2))
	a.Events[0].Meta.BasisHash = eventstore.HashBytes([]byte("x"))
	writer := dytest.Connect(t, i, "writer", dytest.Env("writer"))
	dytest.MustAppend(t, writer.Store(), a)
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return i, a
}

func log(t *testing.T, i targets.Instance) (events []history.LoggedEvent, err error) {
	t.Helper()
	err = i.Auditor().Log(t.Context(), func(e history.LoggedEvent) error { events = append(events, e); return nil })
	return events, err
}

func TestTheAuditReadsWhatTheAdapterWrote(t *testing.T) {
	i, a := trial(t, dytest.Serve(t, emulator.Options{Dir: t.TempDir(), Shards: 2}))
	proof, err := i.Auditor().Fence(t.Context())
	if err != nil || !proof.Fenced {
		t.Errorf("%+v, %v", proof, err)
	}
	events, err := log(t, i)
	if err != nil || len(events) != 2 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	for n, e := range events {
		want := a.Events[n]
		if e.ID != want.ID || e.Meta != want.Meta || e.Version != uint64(n+1) || string(e.Data) != string(want.Data) || e.Position.IsZero() {
			t.Errorf("the log says %+v", e)
		}
	}
}

func TestTheAuditReadsTheHeadRecords(t *testing.T) {
	i, _ := trial(t, dytest.Serve(t, emulator.Options{Dir: t.TempDir()}))
	var heads []history.HeadRow
	err := i.Auditor().(targets.HeadAuditor).StreamHeads(t.Context(), func(r history.HeadRow) error { heads = append(heads, r); return nil })
	if want := (history.HeadRow{Stream: "s", Version: 2}); err != nil || len(heads) != 1 || heads[0] != want {
		t.Errorf("got %v, %v", heads, err)
	}
}

func TestALogThatSaysSomethingElseThanTheAPIIsAnError(t *testing.T) {
	dir := t.TempDir()
	s := dytest.Serve(t, emulator.Options{Dir: dir})
	i, _ := trial(t, s)
	path := filepath.Join(dir, emulator.LogName)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	cut := len(whole) - 1
	for whole[cut-1] != '\n' {
		cut--
	}
	if err := os.Truncate(path, int64(cut)); err != nil {
		t.Fatal(err)
	}
	if _, err := log(t, i); err == nil {
		t.Error("a log without the last transaction was taken for equal")
	}
	if err := os.WriteFile(path, append([]byte("x"), whole...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := log(t, i); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("a damaged log gave %v", err)
	}
}

func TestWithoutProofThatNobodyIsConnectedTheRunIsUnfenced(t *testing.T) {
	s, _ := dytest.Handler(t, emulator.Options{})
	i, _ := trial(t, s)
	proof, err := i.Auditor().Fence(t.Context())
	if err != nil || proof.Fenced || proof.Text == "" {
		t.Errorf("%+v, %v", proof, err)
	}
}
