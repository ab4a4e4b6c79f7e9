package history

import (
	"bytes"
	"errors"
	"testing"
)

// FuzzReader: whatever the bytes are, the reader never panics, ends with EOF or a typed error, and what it has read
// reads the same again after being written.
func FuzzReader(f *testing.F) {
	whole, starts := segmentBytes(f, filled(f, 1)...)
	f.Add(whole)
	f.Add(whole[:starts[9]+3])
	f.Add(header())
	f.Add([]byte("not a history"))
	for i := 20; i < len(whole); i += 61 {
		bad := bytes.Clone(whole)
		bad[i] ^= 0x81
		f.Add(bad)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := NewReader(bytes.NewReader(data))
		if err != nil {
			if !errors.Is(err, ErrNotHistory) && !errors.Is(err, ErrVersion) {
				t.Fatal(err)
			}
			return
		}
		recs, err := drain(t, r)
		if err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
		again, _ := segmentBytes(t, recs...)
		r, err = NewReader(bytes.NewReader(again))
		if err != nil {
			t.Fatal(err)
		}
		got, err := drain(t, r)
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, recs)
	})
}

// FuzzDecode feeds payloads past the checksum.
func FuzzDecode(f *testing.F) {
	var enc encoder
	for _, rec := range filled(f, 2) {
		if _, err := enc.appendFrame(nil, rec); err != nil {
			f.Fatal(err)
		}
		f.Add(bytes.Clone(enc.b))
		f.Add(bytes.Clone(enc.b[:len(enc.b)/2]))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 || !Kind(b[0]).known() {
			return
		}
		d := decoder{intern: newInterner()}
		rec, again := kindTable[b[0]].make(), kindTable[b[0]].make()
		if d.decode(rec, b[1:]) != nil {
			return
		}
		var enc encoder
		if _, err := enc.appendFrame(nil, rec); err != nil {
			t.Fatal(err)
		}
		if err := d.decode(again, enc.b[1:]); err != nil {
			t.Fatal(err)
		}
		same(t, []Record{again}, []Record{rec})
	})
}
