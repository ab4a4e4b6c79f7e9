package history

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/klauspost/compress/zstd"
)

// Reader streams the records of a history.
type Reader struct {
	src      source
	dec      decoder
	reuse    *[lastKind + 1]Record
	warnings []string
	err      error // sticky, io.EOF at the end
	name     string
}

// source delivers frames and closes what it reads from.
type source interface {
	next() (frame, error)
	warn() []string
	close() error
}

// Open opens a merged history, a single segment, or a folder with the segments of a trial that was not finished,
// which are then read as Merge would have put them together.
// Errors match ErrNotHistory, ErrVersion, ErrCorrupt, ErrNoTrial or those of package os.
func Open(path string) (*Reader, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	var src source
	if st.IsDir() {
		src, err = openFolder(path)
	} else {
		src, err = openFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("history: %s: %w", path, err)
	}
	return newReader(src, path), nil
}

// NewReader reads an uncompressed history or segment from r. Errors are those of Open.
func NewReader(r io.Reader) (*Reader, error) {
	f, err := newFrames(r)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	return newReader(&stream{frames: f}, ""), nil
}

func newReader(src source, name string) *Reader {
	return &Reader{src: src, dec: decoder{intern: newInterner()}, name: name}
}

// ReuseRecords makes Next return the same record again for every record of a kind: the record is valid until
// the next call, its strings and slices stay valid. It saves most of the garbage for callers that copy what
// they keep.
func (r *Reader) ReuseRecords() { r.reuse = new([lastKind + 1]Record) }

// Next returns the next record: a pointer to one of this package's record types. It returns io.EOF at the end, also
// where a kill cut the file inside its last record, which Warnings then tells; other errors match ErrCorrupt.
func (r *Reader) Next() (Record, error) {
	if r.err != nil {
		return nil, r.err
	}
	fr, err := r.src.next()
	if err != nil {
		return nil, r.stop(err)
	}
	rec := r.record(fr.kind)
	if err := r.dec.decode(rec, fr.payload); err != nil {
		return nil, r.stop(&CorruptError{Offset: fr.offset, Err: err})
	}
	return rec, nil
}

func (r *Reader) record(k Kind) Record {
	if r.reuse == nil {
		return kindTable[k].make()
	}
	if r.reuse[k] == nil {
		r.reuse[k] = kindTable[k].make()
	}
	return r.reuse[k]
}

func (r *Reader) stop(err error) error {
	r.warnings = append(r.warnings, r.src.warn()...)
	if !errors.Is(err, io.EOF) {
		if r.name != "" {
			err = fmt.Errorf("%s: %w", r.name, err)
		}
		err = fmt.Errorf("history: %w", err)
	}
	r.err = err
	return err
}

// Warnings says what does not spoil the records that were read, such as a tail cut off by a kill. It is complete
// once Next has returned an error.
func (r *Reader) Warnings() []string { return slices.Clone(r.warnings) }

// Close releases the file. Next returns ErrClosed afterwards.
func (r *Reader) Close() error {
	if errors.Is(r.err, ErrClosed) {
		return nil
	}
	r.err = ErrClosed
	return r.src.close()
}

// stream is the source of one file.
type stream struct {
	*frames
	closers []func() error
	name    string
}

func (s *stream) warn() []string {
	if !s.cut {
		return nil
	}
	where := "the file"
	if s.name != "" {
		where = s.name
	}
	return []string{fmt.Sprintf("%s is cut off inside a record at byte %d; everything before it was read", where, s.offset)}
}

func (s *stream) close() error {
	var errs []error
	for _, c := range s.closers {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

const zstdMagic = "\x28\xb5\x2f\xfd"

// openFile opens a segment or a compressed history.
func openFile(path string) (*stream, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	s := &stream{name: filepath.Base(path), closers: []func() error{f.Close}}
	br := bufio.NewReaderSize(f, 64<<10)
	src := io.Reader(br)
	head, _ := br.Peek(len(zstdMagic)) // a failing read fails again below
	compressed := string(head) == zstdMagic
	if compressed {
		z, err := zstd.NewReader(br, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxWindow(64<<20))
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		s.closers = []func() error{func() error { z.Close(); return nil }, f.Close}
		src = z
	}
	if s.frames, err = newFrames(src); err != nil {
		var disk *fs.PathError
		if compressed && !errors.As(err, &disk) && !errors.Is(err, ErrVersion) && !errors.Is(err, ErrNotHistory) {
			err = fmt.Errorf("%w: %w", ErrNotHistory, err) // it can't be decompressed
		}
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}
