package record_test

import (
	"context"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/record"
)

// noop answers at once.
type noop struct {
	slice eventstore.Slice
	ok    eventstore.Appended
}

func (n *noop) Append(ctx context.Context, _ eventstore.Append) (eventstore.Appended, error) {
	tr := eventstore.TraceFrom(ctx)
	tr.Session("writer-1/1")
	tr.RoundTrips(4)
	return n.ok, nil
}

func (n *noop) Read(context.Context, eventstore.ReadRequest) (eventstore.Slice, error) {
	return n.slice, nil
}

// cpu returns the user and system time that this process has used.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRecordingACommand is what recording one command costs: begin, a read of one event, write and invoke,
// return, end. Target: at most 15 µs of CPU.
func BenchmarkRecordingACommand(b *testing.B) {
	w, err := history.Create(filepath.Join(b.TempDir(), "a"+history.SegmentExt))
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	rec := record.New(w, clock.System{}, 1)
	ev := eventstore.NewEvent{Type: "FundsWithdrawn", Data: []byte(`{"account":"account-1","amount":6000}`)}
	st := record.Store(&noop{
		slice: eventstore.Slice{Events: []eventstore.Event{{NewEvent: ev, Stream: "account-1", Version: 10}}, Pages: 1},
		ok:    eventstore.Appended{First: 11, Last: 11, Events: make([]eventstore.EventID, 1), Positions: make([]eventstore.Position, 1)},
	}, rec)
	body := []byte(`{"amount":6000}`)
	b.ReportAllocs()
	b.ResetTimer()
	before := cpu(b)
	for i := range b.N {
		ctx, call, err := rec.Begin(context.Background(), record.CallInfo{CommandID: "c-42-1000", Stream: "account-1", Name: "withdraw", Body: body, Intended: 1, Started: 1})
		if err != nil {
			b.Fatal(err)
		}
		s, err := st.Read(ctx, eventstore.ReadRequest{Stream: "account-1", From: 10})
		if err != nil {
			b.Fatal(err)
		}
		e := ev
		e.ID[0], e.ID[1] = byte(i), byte(i>>8)
		a := eventstore.Append{Stream: "account-1", Expected: eventstore.Exact(10), Events: []eventstore.NewEvent{e}, Request: "c-42-1000", Decision: eventstore.Decision{Basis: 10, Read: s.ID}}
		if _, err := st.Append(ctx, a); err != nil {
			b.Fatal(err)
		}
		if err := call.End(history.CallEnd{Result: history.ResultOK, Version: 11, Events: []eventstore.EventID{e.ID}}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "cpu-µs/command")
}
