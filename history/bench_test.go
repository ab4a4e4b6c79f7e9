package history

import (
	"errors"
	"io"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/eventproof/eventproof/eventstore"
)

// attempts returns what n commands on hot streams record: call, read, write, invoke, return, end.
func attempts(tb testing.TB, path string, n int) {
	tb.Helper()
	w, err := Create(path, &Trial{Info: TrialInfo{Trial: "bench"}}, &Process{ID: 1, Name: "writer-1"})
	if err != nil {
		tb.Fatal(err)
	}
	const batch = 64
	recs := make([]Record, 0, 6*batch)
	for i := range n {
		id := MakeID(1, uint64(i+1))
		ev := eventstore.EventID(eventstore.HashBytes([]byte(strconv.Itoa(i))))
		h := eventstore.HashBytes(ev[:])
		command, stream := "c-42-"+strconv.Itoa(i), "account-"+strconv.Itoa(i%8)
		t := 1_000_000_000_000 + int64(i)*100_000
		d := eventstore.Decision{Basis: uint64(i), Hash: h, Read: id, Now: t / 1e6}
		recs = append(recs,
			&CallStart{Call: id, Process: 1, CommandID: command, Stream: stream, Name: "withdraw", Body: []byte(`{"amount":6000}`), Intended: t, Started: t},
			&Read{Read: id, Call: id, Process: 1, Stream: stream, From: 1, Invoke: t, T: t + 400_000, Outcome: eventstore.OK, Strong: true, First: 1, Last: uint64(i), Count: uint64(i), Range: RangeHash{uint64(i), t1(h)}, Pages: 1},
			&Write{Write: id, Call: id, Stream: stream, Expected: uint64(i), Request: command, Decision: d,
				Events: []WriteEvent{{ID: ev, Type: "Withdrawn", Payload: h}}},
			&Invoke{Attempt: id, Write: id, T: t + 500_000},
			&Return{Attempt: id, T: t + 900_000, Outcome: eventstore.OK, Session: "writer-1/3", First: uint64(i + 1), Last: uint64(i + 1),
				Events: []eventstore.EventID{ev}, Positions: []eventstore.Position{{Minor: uint64(i)}}, RoundTrips: 4},
			&CallEnd{Call: id, T: t + 950_000, Result: ResultOK, Version: uint64(i + 1), StateHash: h, Events: []eventstore.EventID{ev}},
		)
		if len(recs) == cap(recs) || i == n-1 {
			if err := w.Write(recs...); err != nil {
				tb.Fatal(err)
			}
			recs = recs[:0]
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
}

func t1(h eventstore.Hash) uint64 { return uint64(h[0])<<56 | uint64(h[7]) }

// BenchmarkReadCompressed reads the records of 100,000 commands from a merged file; target: 400,000 records a
// second on one core.
func BenchmarkReadCompressed(b *testing.B) {
	const commands = 100_000
	dir := b.TempDir()
	seg, dst := filepath.Join(dir, "a.seg"), filepath.Join(dir, "a"+Ext)
	attempts(b, seg, commands)
	m, err := Merge(dst, []string{seg})
	if err != nil {
		b.Fatal(err)
	}
	for _, reuse := range []bool{false, true} {
		b.Run("reuse="+strconv.FormatBool(reuse), func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				r, err := Open(dst)
				if err != nil {
					b.Fatal(err)
				}
				if reuse {
					r.ReuseRecords()
				}
				n := uint64(0)
				for {
					if _, err := r.Next(); errors.Is(err, io.EOF) {
						break
					} else if err != nil {
						b.Fatal(err)
					}
					n++
				}
				if n != m.Records {
					b.Fatalf("%d records, want %d", n, m.Records)
				}
				if err := r.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(m.Records)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
			b.ReportMetric(float64(m.Bytes)/commands, "file-B/command")
		})
	}
}

func BenchmarkMerge(b *testing.B) {
	dir := b.TempDir()
	seg := filepath.Join(dir, "a.seg")
	attempts(b, seg, 50_000)
	b.ResetTimer()
	for range b.N {
		m, err := Merge(filepath.Join(dir, "a"+Ext), []string{seg})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(m.Records)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
	}
}

func BenchmarkWrite(b *testing.B) {
	w, err := Create(filepath.Join(b.TempDir(), "a.seg"))
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		if err := w.Write(&Invoke{Attempt: uint64(i), Write: uint64(i), T: 1 << 50}); err != nil {
			b.Fatal(err)
		}
	}
}
