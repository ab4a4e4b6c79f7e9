package history

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// SegmentExt is the extension of live segments, Ext that of merged histories.
const (
	SegmentExt = ".seg"
	Ext        = ".hist.zst"
)

var (
	// ErrKilled is returned by every Write after Kill.
	ErrKilled = errors.New("history: the process of this segment was killed")
	// ErrClosed is returned by every Write after Close.
	ErrClosed = errors.New("history: segment is closed")
)

// file is what a Writer needs of its segment.
type file interface {
	io.Writer
	io.Closer
	Truncate(size int64) error
}

// Counts says what a Writer has written.
type Counts struct {
	Records uint64
	Bytes   uint64 // with the header
	Kinds   [lastKind + 1]uint64
}

// Writer appends records to one live segment. It is safe for concurrent use.
type Writer struct {
	mu     sync.Mutex
	f      file
	enc    encoder
	buf    []byte
	counts Counts
	lost   error // of the first Write after which the segment goes on without its records
	failed error // every further Write returns it
}

// Create starts a segment, which must not exist yet, and writes its header with the given records.
func Create(path string, first ...Record) (*Writer, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	w := &Writer{f: f, buf: header()}
	if err := w.Write(first...); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(path))
	}
	return w, nil
}

// Write appends the records in one write(2): after a nil return they survive the death of this process, and no
// other record stands between them. After an error none of them is in the segment, which stays readable; a full
// disk may be tried again. Without records it tells whether the segment still takes any.
func (w *Writer) Write(recs ...Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed != nil {
		return w.failed
	}
	// buf holds the header before the first write and is empty otherwise.
	buf := w.buf
	for _, rec := range recs {
		var err error
		if buf, err = w.enc.appendFrame(buf, rec); err != nil {
			return err
		}
	}
	if len(buf) == 0 {
		return nil
	}
	if _, err := w.f.Write(buf); err != nil {
		err = fmt.Errorf("history: segment: %w", err)
		if terr := w.f.Truncate(int64(w.counts.Bytes)); terr != nil {
			// What follows would stand behind half a record, where no reader finds it.
			w.failed = errors.Join(err, fmt.Errorf("history: segment can't be cut back to its last whole record: %w", terr))
			return w.failed
		}
		if w.lost == nil {
			w.lost = err
		}
		return err
	}
	w.counts.Bytes += uint64(len(buf))
	w.counts.Records += uint64(len(recs))
	for _, rec := range recs {
		w.counts.Kinds[rec.Kind()]++
	}
	w.buf = buf[:0]
	return nil
}

// Kill makes every further Write return ErrKilled: code that unwinds after a crash in the process must not
// record what a dead process could not have said.
func (w *Writer) Kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !errors.Is(w.failed, ErrClosed) {
		w.failed = ErrKilled
	}
}

// Lost returns the error of the first Write that failed although others may have followed (a disk that was full for
// a while); nil if there is none. A process that has lost a record can't say that its record is whole.
func (w *Writer) Lost() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

// Counts returns what was written so far.
func (w *Writer) Counts() Counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts
}

// Close closes the segment. It may be called again.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.f == nil {
		return nil
	}
	err := w.f.Close()
	w.f = nil
	if w.failed == nil {
		w.failed = ErrClosed
	}
	if err != nil {
		return fmt.Errorf("history: segment: %w", err)
	}
	return nil
}
