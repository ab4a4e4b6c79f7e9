package history

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// Merged says what Merge has put together.
type Merged struct {
	Records  uint64
	Bytes    int64    // size of the compressed file
	Warnings []string // segments that a kill had cut
}

// Merge writes one compressed history from the segments of a trial and, after them, extra records. The Trial
// record comes first and End last, whatever brought them; the rest follows segment by segment, in each the Process
// records before the others. dst appears whole or not at all. Errors match ErrNotHistory, ErrVersion,
// ErrCorrupt, ErrNoTrial or those of package os.
func Merge(dst string, segments []string, extra ...Record) (m Merged, err error) {
	src, err := newMerging(segments, extra)
	if err != nil {
		return Merged{}, fmt.Errorf("history: merge: %w", err)
	}
	defer func() { err = errors.Join(err, src.close()) }()
	tmp, err := os.CreateTemp(filepath.Dir(dst), filepath.Base(dst)+".tmp-*")
	if err != nil {
		return Merged{}, fmt.Errorf("history: merge: %w", err)
	}
	if m, err = src.compress(tmp); err != nil {
		return Merged{}, fmt.Errorf("history: merge: %w", errors.Join(err, tmp.Close(), os.Remove(tmp.Name())))
	}
	if err = errors.Join(tmp.Chmod(0o644), tmp.Sync(), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), dst)
	}
	if err != nil {
		return Merged{}, fmt.Errorf("history: merge: %w", errors.Join(err, os.Remove(tmp.Name())))
	}
	return m, nil
}

// merging is the source that Merge and Open of a folder read: the segments as one history.
type merging struct {
	segments []*segment
	queue    []frame // to be delivered before anything else is read
	extra    []frame
	end      []frame // the End record, if there is one
	trial    []frame
	current  *stream // of segments[0]
	finished bool
	warnings []string
}

// segment is what the first reading of a segment has found.
type segment struct {
	path      string
	processes []frame
	size      int64 // bytes that hold whole records
}

// newMerging reads every segment once, for what has to come first or last.
func newMerging(paths []string, extra []Record) (*merging, error) {
	m := &merging{}
	for _, path := range paths {
		if err := m.index(path); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	var enc encoder
	for _, rec := range extra {
		raw, err := enc.appendFrame(nil, rec)
		if err != nil {
			return nil, err
		}
		_, n := binary.Uvarint(raw)
		fr, err := parseFrame(raw, n)
		if err != nil {
			return nil, err
		}
		switch {
		case rec.Kind() == KindTrial && m.trial != nil:
			return nil, errTwoTrials
		case rec.Kind() == KindTrial:
			m.trial = []frame{fr}
		case rec.Kind() == KindEnd:
			m.end = []frame{fr}
		default:
			m.extra = append(m.extra, fr)
		}
	}
	if m.trial == nil {
		return nil, ErrNoTrial
	}
	m.queue = m.trial
	return m, nil
}

var errTwoTrials = errors.New("a second Trial record: the segments are of different trials")

func (m *merging) index(path string) error {
	s, err := openFile(path)
	if errors.Is(err, errNoHeader) {
		m.warnings = append(m.warnings, filepath.Base(path)+" is cut off inside its header: nothing was recorded")
		return nil
	}
	if err != nil {
		return err
	}
	defer s.close() //nolint:errcheck // it was only read
	seg := &segment{path: path, size: s.offset}
	for {
		fr, err := s.next()
		if errors.Is(err, io.EOF) {
			m.warnings = append(m.warnings, s.warn()...)
			m.segments = append(m.segments, seg)
			return nil
		}
		if err != nil {
			return err
		}
		seg.size = s.offset
		switch {
		case fr.kind == KindTrial && m.trial != nil:
			return errTwoTrials
		case fr.kind == KindTrial:
			m.trial = []frame{fr.clone()}
		case fr.kind == KindProcess:
			seg.processes = append(seg.processes, fr.clone())
		case fr.kind == KindEnd:
			m.end = []frame{fr.clone()}
		}
	}
}

func (m *merging) next() (frame, error) {
	for {
		switch {
		case len(m.queue) > 0:
			fr := m.queue[0]
			m.queue = m.queue[1:]
			return fr, nil
		case m.finished:
			return frame{}, io.EOF
		case len(m.segments) == 0:
			m.queue, m.finished = slices.Concat(m.extra, m.end), true
		case m.current == nil:
			s, err := openFile(m.segments[0].path)
			if err != nil {
				return frame{}, err
			}
			m.current, m.queue = s, m.segments[0].processes
		case m.current.offset >= m.segments[0].size:
			// A segment that is still being written has more by now; its records belong to the next reading.
			if err := m.current.close(); err != nil {
				return frame{}, err
			}
			m.current, m.segments = nil, m.segments[1:]
		default:
			fr, err := m.current.next()
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			if err != nil {
				return frame{}, fmt.Errorf("%s: %w", m.segments[0].path, err)
			}
			if fr.kind != KindTrial && fr.kind != KindProcess && fr.kind != KindEnd {
				return fr, nil
			}
		}
	}
}

func (m *merging) warn() []string { return m.warnings }

func (m *merging) close() error {
	if m.current == nil {
		return nil
	}
	s := m.current
	m.current, m.finished, m.segments = nil, true, nil
	return s.close()
}

// compress writes the whole history to f.
func (m *merging) compress(f *os.File) (Merged, error) {
	z, err := zstd.NewWriter(f, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderConcurrency(2))
	if err != nil {
		return Merged{}, err
	}
	records, err := m.copyTo(z)
	if err := errors.Join(err, z.Close()); err != nil {
		return Merged{}, err
	}
	st, err := f.Stat()
	if err != nil {
		return Merged{}, err
	}
	return Merged{Records: records, Bytes: st.Size(), Warnings: m.warnings}, nil
}

func (m *merging) copyTo(w io.Writer) (records uint64, err error) {
	if _, err := w.Write(header()); err != nil {
		return 0, err
	}
	for {
		fr, err := m.next()
		if errors.Is(err, io.EOF) {
			return records, nil
		}
		if err != nil {
			return records, err
		}
		if _, err := w.Write(fr.raw); err != nil {
			return records, err
		}
		records++
	}
}

// openFolder reads the segments of a folder as one history.
func openFolder(path string) (source, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var segments []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), SegmentExt) {
			segments = append(segments, filepath.Join(path, e.Name()))
		}
	}
	if len(segments) == 0 {
		return nil, fmt.Errorf("%w: the folder holds no %s file", ErrNotHistory, SegmentExt)
	}
	return newMerging(segments, nil)
}
