package history

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"
)

func create(t testing.TB, path string, recs ...Record) {
	t.Helper()
	w, err := Create(path, recs...)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func drain(t testing.TB, r *Reader) ([]Record, error) {
	t.Helper()
	var out []Record
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, rec)
	}
}

func readAll(t testing.TB, path string) ([]Record, []string) {
	t.Helper()
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	recs, err := drain(t, r)
	if err != nil {
		t.Fatal(err)
	}
	return recs, r.Warnings()
}

func same(t testing.TB, got, want []Record) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i := range want {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Fatalf("record %d:\n got %s\nwant %s", i, JSON(got[i]), JSON(want[i]))
		}
	}
}

func TestEveryFieldOfEveryKindSurvivesASegmentAndAMerge(t *testing.T) {
	dir := t.TempDir()
	want := append(filled(t, 1), filled(t, 2)[1:]...)
	seg := filepath.Join(dir, "runner"+SegmentExt)
	create(t, seg, want...)
	got, warnings := readAll(t, seg)
	same(t, got, want)
	if len(warnings) != 0 {
		t.Errorf("warnings %q", warnings)
	}

	dst := filepath.Join(dir, "t"+Ext)
	m, err := Merge(dst, []string{seg})
	if err != nil {
		t.Fatal(err)
	}
	got, _ = readAll(t, dst)
	if int(m.Records) != len(got) || len(got) != len(want)-1 { // one End record is left of two
		t.Errorf("merged %d records and read %d of %d", m.Records, len(got), len(want))
	}
}

func TestZeroRecordsOfKindsWithoutMandatoryEnumsSurvive(t *testing.T) {
	var want []Record
	for k := KindTrial; k <= lastKind; k++ {
		if k != KindEvidence && k != KindBite && k != KindLedgerRow {
			want = append(want, kindTable[k].make())
		}
	}
	seg := filepath.Join(t.TempDir(), "a.seg")
	create(t, seg, want...)
	got, _ := readAll(t, seg)
	same(t, got, want)
}

func TestWalkVisitsEveryField(t *testing.T) {
	for _, rec := range filled(t, 3) {
		var enc encoder
		whole, err := enc.appendFrame(nil, rec)
		if err != nil {
			t.Fatal(err)
		}
		v := reflect.ValueOf(rec).Elem()
		for i := range v.NumField() {
			old := reflect.ValueOf(v.Field(i).Interface())
			v.Field(i).SetZero()
			without, err := enc.appendFrame(nil, rec)
			if err == nil && bytes.Equal(whole, without) {
				t.Errorf("%s.%s is not part of the wire form", rec.Kind(), v.Type().Field(i).Name)
			}
			v.Field(i).Set(old)
		}
	}
}

func TestReusedRecordsKeepTheirSlicesAndStrings(t *testing.T) {
	want := []Record{filled(t, 1)[KindWrite-1], filled(t, 2)[KindWrite-1]}
	seg := filepath.Join(t.TempDir(), "a.seg")
	create(t, seg, want...)
	r, err := Open(seg)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.ReuseRecords()
	var kept []Record
	var first Record
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = rec
		} else if rec != first {
			t.Error("the record was not reused")
		}
		c := *rec.(*Write)
		kept = append(kept, &c)
	}
	same(t, kept, want)
}

func TestEnumerationsNameEveryMember(t *testing.T) {
	for _, e := range newest() {
		if !strings.HasSuffix(e.next, ")") {
			t.Errorf("%s: %q is not listed", e.of.name, e.next)
		}
		for i, name := range e.of.names {
			if strings.HasSuffix(name, ")") || e.of.meaning[i] == "" {
				t.Errorf("%s: member %d is %q, %q", e.of.name, i, name, e.of.meaning[i])
			}
		}
	}
}

func TestAValueOutsideItsSetIsNeitherWrittenNorRead(t *testing.T) {
	seg := filepath.Join(t.TempDir(), "a.seg")
	w, err := Create(seg)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Write(&Drop{T: 1}, &Evidence{Form: 9}); err == nil {
		t.Error("written")
	}
	if got, _ := readAll(t, seg); len(got) != 0 {
		t.Errorf("half of a refused write is in the segment: %d records", len(got))
	}
	var enc encoder
	raw, err := enc.appendFrame(nil, &SnapshotResult{Outcome: 2})
	if err != nil {
		t.Fatal(err)
	}
	payload := raw[2 : len(raw)-crcSize]
	payload[len(payload)-1] = 77
	d := decoder{intern: newInterner()}
	if err := d.decode(&SnapshotResult{}, payload); !errors.Is(err, errRange) {
		t.Errorf("decoded: %v", err)
	}
}

// segment returns the bytes of a segment and where each frame begins.
func segmentBytes(t testing.TB, recs ...Record) (data []byte, starts []int) {
	t.Helper()
	data = header()
	var enc encoder
	for _, rec := range recs {
		starts = append(starts, len(data))
		var err error
		if data, err = enc.appendFrame(data, rec); err != nil {
			t.Fatal(err)
		}
	}
	return data, starts
}

func TestACutTailIsAWarningAtEveryByte(t *testing.T) {
	recs := filled(t, 4)
	data, starts := segmentBytes(t, recs...)
	last := starts[len(starts)-1]
	for _, end := range []int{len(starts) - 1, len(starts) - 7} {
		from, to := starts[end-1], starts[end]
		for n := from; n < to; n++ {
			r, err := NewReader(bytes.NewReader(data[:n]))
			if err != nil {
				t.Fatal(err)
			}
			got, err := drain(t, r)
			if err != nil {
				t.Fatalf("cut at %d: %v", n, err)
			}
			same(t, got, recs[:end-1])
			if cut := len(r.Warnings()) == 1; cut != (n > from) {
				t.Fatalf("cut at %d of %d…%d: warnings %q", n, from, last, r.Warnings())
			}
		}
	}
}

func TestDamageInTheMiddleIsAnErrorWithItsOffset(t *testing.T) {
	recs := filled(t, 5)
	data, starts := segmentBytes(t, recs...)
	for i := range len(starts) - 2 {
		for n := starts[i]; n < starts[i+1]; n++ {
			bad := bytes.Clone(data)
			bad[n] ^= 0x40
			r, err := NewReader(bytes.NewReader(bad))
			if err != nil {
				t.Fatal(err)
			}
			got, err := drain(t, r)
			var c *CorruptError
			if !errors.As(err, &c) || !errors.Is(err, ErrCorrupt) {
				t.Fatalf("byte %d of the %s record flipped: %d records, error %v", n-starts[i], recs[i].Kind(), len(got), err)
			}
			if c.Offset != int64(starts[i]) {
				t.Errorf("byte %d: offset %d, want %d", n, c.Offset, starts[i])
			}
			same(t, got, recs[:i])
		}
	}
}

func TestAHostileLengthAllocatesNoMoreThanTheFileHolds(t *testing.T) {
	frame := func(payload ...byte) []byte {
		b := binary.AppendUvarint(header(), uint64(len(payload)))
		return append(b, payload...)
	}
	ids := append([]byte{byte(KindCallEnd)}, make([]byte, 7)...)
	for name, data := range map[string][]byte{
		"frame":  binary.AppendUvarint(header(), maxFrame),
		"beyond": binary.AppendUvarint(header(), 1<<40),
		"zero":   append(header(), 0, 0, 0, 0, 0, 0),
		"list":   frame(append(ids, 0xff, 0xff, 0xff, 0xff, 0x0f)...),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r, err := NewReader(bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			_, _ = drain(t, r)
			runtime.ReadMemStats(&after)
			allocated := after.TotalAlloc - before.TotalAlloc
			if allocated > 4<<20 {
				t.Errorf("%d bytes allocated for a file of %d", allocated, len(data))
			}
		})
	}
	d := decoder{intern: newInterner()}
	if err := d.decode(&Write{}, []byte{1, 1, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f}); !errors.Is(err, errShort) {
		t.Errorf("list of 2^32 events: %v", err)
	}
}

func TestForeignFilesAreRefusedByName(t *testing.T) {
	compress := func(b []byte) []byte {
		z, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer z.Close()
		return z.EncodeAll(b, nil)
	}
	future := binary.LittleEndian.AppendUint32([]byte(magic), 7)
	for _, c := range []struct {
		name string
		data []byte
		want error
	}{
		{"empty", nil, ErrNotHistory},
		{"text", []byte("hello, I am a text of some length"), ErrNotHistory},
		{"cut header", header()[:5], ErrNotHistory},
		{"future", future, ErrVersion},
		{"compressed text", compress([]byte("hello, I am a text of some length")), ErrNotHistory},
		{"compressed future", compress(future), ErrVersion},
		{"zstd magic only", []byte(zstdMagic), ErrNotHistory},
		{"zstd garbage", []byte(zstdMagic + "garbage garbage garbage"), ErrNotHistory},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := filepath.Join(t.TempDir(), "f")
			if err := os.WriteFile(p, c.data, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Open(p)
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			var v *VersionError
			if errors.As(err, &v) && (v.Found != 7 || v.Supported != formatVersion) {
				t.Errorf("versions %+v", v)
			}
		})
	}
	if _, err := Open(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if _, err := Open(t.TempDir()); !errors.Is(err, ErrNotHistory) {
		t.Errorf("empty folder: %v", err)
	}
}

func TestADamagedCompressedHistoryIsNeverReadAsComplete(t *testing.T) {
	dir := t.TempDir()
	seg, dst := filepath.Join(dir, "a.seg"), filepath.Join(dir, "a"+Ext)
	want := []Record{&Trial{}}
	for i := range 2000 {
		want = append(want, &Invoke{Attempt: uint64(i), T: int64(i) * 7919})
	}
	want = append(want, &End{T: 1})
	create(t, seg, want...)
	if _, err := Merge(dst, []string{seg}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(dst)
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < len(data); n += 97 {
		flipped := bytes.Clone(data)
		flipped[n] ^= 1
		for _, bad := range [][]byte{data[:n], flipped} {
			if err := os.WriteFile(dst, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := Open(dst)
			if err != nil {
				continue
			}
			got, err := drain(t, r)
			if err == nil && len(r.Warnings()) == 0 {
				if len(got) != len(want) {
					t.Errorf("byte %d of %d: %d records read in silence", n, len(data), len(got))
				}
				same(t, got, want[:len(got)])
			}
			r.Close()
		}
	}
}

func TestMergeOrdersTrialProcessesAndEnd(t *testing.T) {
	dir := t.TempDir()
	runner, writer := filepath.Join(dir, "runner.seg"), filepath.Join(dir, "writer-1.seg")
	create(t, writer, &Drop{T: 3}, &Process{ID: 2, Name: "writer-1"}, &Drop{T: 4})
	create(t, runner, &Process{ID: 1, Name: "runner"}, &Trial{Info: TrialInfo{Trial: "t"}}, &Phase{Name: "calm"}, &End{T: 9}, &Fence{T: 8})
	dst := filepath.Join(dir, "t"+Ext)
	m, err := Merge(dst, []string{writer, runner}, &ProcessEnd{ID: 2, How: Killed})
	if err != nil {
		t.Fatal(err)
	}
	want := []Record{&Trial{Info: TrialInfo{Trial: "t"}}, &Process{ID: 2, Name: "writer-1"}, &Drop{T: 3}, &Drop{T: 4},
		&Process{ID: 1, Name: "runner"}, &Phase{Name: "calm"}, &Fence{T: 8}, &ProcessEnd{ID: 2, How: Killed}, &End{T: 9}}
	got, _ := readAll(t, dst)
	same(t, got, want)
	if st, err := os.Stat(dst); err != nil || st.Size() != m.Bytes || int(m.Records) != len(want) {
		t.Errorf("merged %+v, file %v, %v", m, st.Size(), err)
	}
	if left, _ := filepath.Glob(dst + ".tmp*"); len(left) != 0 {
		t.Errorf("left over: %q", left)
	}

	// The folder of an unfinished trial reads the same, in the order of file names.
	if err := os.Remove(dst); err != nil {
		t.Fatal(err)
	}
	got, _ = readAll(t, dir)
	same(t, got, []Record{want[0], want[4], want[5], want[6], want[1], want[2], want[3], want[8]})
}

func TestMergeKeepsWhatAKilledProcessHadWritten(t *testing.T) {
	dir := t.TempDir()
	whole, _ := segmentBytes(t, &Trial{}, &Drop{T: 1}, &Drop{T: 2})
	for name, data := range map[string][]byte{"a.seg": whole[:len(whole)-3], "b.seg": nil, "c.seg": header()[:3]} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, warnings := readAll(t, dir)
	same(t, got, []Record{&Trial{}, &Drop{T: 1}})
	if len(warnings) != 3 {
		t.Errorf("warnings %q", warnings)
	}
	m, err := Merge(filepath.Join(dir, "x"+Ext), []string{filepath.Join(dir, "a.seg")})
	if err != nil || len(m.Warnings) != 1 {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestMergeLeavesNothingBehindWhenItFails(t *testing.T) {
	dir := t.TempDir()
	good, starts := segmentBytes(t, &Trial{}, &Drop{T: 1}, &Drop{T: 2})
	bad := bytes.Clone(good)
	bad[starts[1]+2] ^= 1
	foreign := []byte("a text that is longer than a header")
	for _, c := range []struct {
		name     string
		segments [][]byte
		want     error
	}{
		{"damaged", [][]byte{bad}, ErrCorrupt},
		{"foreign", [][]byte{good, foreign}, ErrNotHistory},
		{"two trials", [][]byte{good, good}, errTwoTrials},
		{"no trial", [][]byte{header()}, ErrNoTrial},
	} {
		var paths []string
		sub := filepath.Join(dir, c.name)
		if err := os.Mkdir(sub, 0o700); err != nil {
			t.Fatal(err)
		}
		for i, data := range c.segments {
			p := filepath.Join(sub, string(rune('a'+i))+SegmentExt)
			if err := os.WriteFile(p, data, 0o600); err != nil {
				t.Fatal(err)
			}
			paths = append(paths, p)
		}
		if _, err := Merge(filepath.Join(sub, "t"+Ext), paths); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if entries, _ := os.ReadDir(sub); len(entries) != len(paths) {
			t.Errorf("%s: %v", c.name, entries)
		}
	}
}

func TestAKilledWriterRecordsNothingMore(t *testing.T) {
	seg := filepath.Join(t.TempDir(), "a.seg")
	w, err := Create(seg, &Drop{T: 1})
	if err != nil {
		t.Fatal(err)
	}
	w.Kill()
	if err := w.Write(&Drop{T: 2}); !errors.Is(err, ErrKilled) {
		t.Errorf("got %v", err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if err := w.Write(&Drop{T: 2}); !errors.Is(err, ErrKilled) {
		t.Errorf("after close: %v", err)
	}
	got, _ := readAll(t, seg)
	same(t, got, []Record{&Drop{T: 1}})
}

func TestASegmentIsNeverOverwritten(t *testing.T) {
	seg := filepath.Join(t.TempDir(), "a.seg")
	create(t, seg, &Drop{T: 1})
	if _, err := Create(seg); !errors.Is(err, os.ErrExist) {
		t.Errorf("got %v", err)
	}
}

// fullDisk takes so many bytes and then the rest no more.
type fullDisk struct {
	bytes.Buffer
	room    int
	stuck   bool
	refused int
}

var errFull = errors.New("no space left")

func (d *fullDisk) Write(b []byte) (int, error) {
	if n := d.room - d.Len(); len(b) > n {
		d.refused++
		d.Buffer.Write(b[:n])
		return n, errFull
	}
	return d.Buffer.Write(b)
}

func (d *fullDisk) Truncate(size int64) error {
	if d.stuck {
		return errFull
	}
	d.Buffer.Truncate(int(size))
	return nil
}

func (*fullDisk) Close() error { return nil }

func TestAFullDiskLeavesTheSegmentReadableAndMayRecover(t *testing.T) {
	d := &fullDisk{room: 60}
	w := &Writer{f: d, buf: header()}
	var err error
	n := 0
	for ; err == nil; n++ {
		err = w.Write(&Drop{Process: 1, T: int64(n)})
	}
	if !errors.Is(err, errFull) {
		t.Fatal(err)
	}
	check := func(want int) {
		t.Helper()
		r, err := NewReader(bytes.NewReader(d.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		got, err := drain(t, r)
		if err != nil || len(got) != want || len(r.Warnings()) != 0 {
			t.Fatalf("%d records, want %d; %v, %q", len(got), want, err, r.Warnings())
		}
	}
	check(n - 1)
	if !errors.Is(w.Lost(), errFull) {
		t.Errorf("lost: %v", w.Lost())
	}
	d.room = 1000
	if err := w.Write(&Drop{T: 99}); err != nil {
		t.Fatal(err)
	}
	check(n)
	if !errors.Is(w.Lost(), errFull) {
		t.Errorf("the record that was lost is forgotten: %v", w.Lost())
	}
	if c := w.Counts(); c.Records != uint64(n) || c.Kinds[KindDrop] != uint64(n) || c.Bytes != uint64(d.Len()) {
		t.Errorf("counts %+v with %d bytes", c, d.Len())
	}
}

func TestASegmentThatCannotBeCutBackTakesNoMore(t *testing.T) {
	d := &fullDisk{room: 20, stuck: true}
	w := &Writer{f: d, buf: header()}
	first := w.Write(&Drop{T: 1 << 60}, &Drop{T: 1 << 60})
	d.room = 1000
	if err := w.Write(&Drop{}); first == nil || !errors.Is(err, errFull) || d.refused != 1 {
		t.Errorf("%v, then %v", first, err)
	}
}

func TestConcurrentWritesStayWholeAndAdjacent(t *testing.T) {
	seg := filepath.Join(t.TempDir(), "a.seg")
	w, err := Create(seg)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range uint32(8) {
		wg.Go(func() {
			for i := range int64(200) {
				if err := w.Write(&Drop{Process: g, Intended: 1, T: i}, &Drop{Process: g, Intended: 2, T: i}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, _ := readAll(t, seg)
	if len(got) != 8*200*2 {
		t.Fatalf("%d records", len(got))
	}
	for i := 0; i < len(got); i += 2 {
		a, b := got[i].(*Drop), got[i+1].(*Drop)
		if a.Process != b.Process || a.T != b.T || a.Intended != 1 || b.Intended != 2 {
			t.Fatalf("records %d: %+v, %+v", i, a, b)
		}
	}
}

func TestJSONAndSchemaNameTheSameFields(t *testing.T) {
	var doc schemaDoc
	if err := json.Unmarshal(Schema(), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Records) != int(lastKind) || len(doc.Enums) != 8 {
		t.Fatalf("%d kinds, %d enums", len(doc.Records), len(doc.Enums))
	}
	var check func(where string, fields []schemaField, got map[string]any)
	check = func(where string, fields []schemaField, got map[string]any) {
		if len(fields) != len(got) {
			t.Errorf("%s: %d fields in the schema, %d in JSON", where, len(fields), len(got))
		}
		for _, f := range fields {
			v, ok := got[f.Name]
			if _, known := doc.Types[f.Type]; !known && !strings.HasPrefix(f.Type, "[]") {
				t.Errorf("%s.%s: type %q is not explained", where, f.Name, f.Type)
			}
			if !ok {
				t.Errorf("%s.%s is not in JSON", where, f.Name)
			}
			if l, ok := v.([]any); ok && f.Fields != nil {
				v = l[0]
			}
			if m, ok := v.(map[string]any); ok && f.Fields != nil {
				check(where+"."+f.Name, f.Fields, m)
			}
			if f.Type == "enum" {
				ok := false
				for _, e := range doc.Enums[f.Enum] {
					ok = ok || e.Name == v
				}
				if !ok {
					t.Errorf("%s.%s: %v is not in enum %s", where, f.Name, v, f.Enum)
				}
			}
		}
	}
	for i, rec := range filled(t, 6) {
		var got map[string]any
		b := JSON(rec)
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if got["kind"] != doc.Records[i].Name {
			t.Errorf("kind %v, want %s", got["kind"], doc.Records[i].Name)
		}
		delete(got, "kind")
		check(doc.Records[i].Name, doc.Records[i].Fields, got)
	}
}

func TestJSONShowsBodiesAsTheyAre(t *testing.T) {
	for body, want := range map[string]string{`{"amount":6000}`: `"body":{"amount":6000}`, "": `"body":null`, "\xff": `"body":{"base64":"/w=="}`} {
		if got := string(JSON(&CallStart{Body: []byte(body)})); !strings.Contains(got, want) {
			t.Errorf("%q: %s", body, got)
		}
	}
}
