package dynamodb

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
)

// LogName is the name of the log file in Options.Dir.
const LogName = "dynamodb.log"

// logFormat is what the first record of a log says.
const logFormat = "eventproof-dynamodb-log/1"

// ErrLocked is returned by Open for a folder that another server has open.
var ErrLocked = errors.New("the log is in use by another server")

// ErrCorrupt is returned by Open for a log that is damaged before its end: a crash can't have done that.
var ErrCorrupt = errors.New("the log is damaged before its end")

// logRecord is one line of the log; see the package comment.
type logRecord struct {
	N      uint64      `json:"n"`
	At     int64       `json:"at_ms"`
	Kind   string      `json:"kind"`
	Format string      `json:"format,omitempty"`
	Create *definition `json:"create,omitempty"`
	Table  string      `json:"table,omitempty"`
	Writes []logWrite  `json:"writes,omitempty"`
	Token  *logToken   `json:"token,omitempty"`
}

type logWrite struct {
	Table string `json:"table"`
	Key   item   `json:"key"`
	// Item is the whole item after the write, null when it was deleted.
	Item item `json:"item"`
	// Seq and Shard place the write in the table's stream. 0 means that it has no stream record.
	Seq   uint64 `json:"seq,omitempty"`
	Shard int    `json:"shard,omitempty"`
}

type logToken struct {
	ID   string `json:"id"`
	Hash string `json:"sha256"`
}

// The kinds of log records.
const (
	recordOpen   = "open"
	recordCreate = "create-table"
	recordDelete = "delete-table"
	recordSplit  = "split-shards"
	recordCommit = "commit"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// wal is the append-only log file. A nil wal keeps nothing.
type wal struct {
	file  *os.File
	fsync bool

	size    int64 // of whole records; under the server's mutex
	written atomic.Uint64

	syncing sync.Mutex
	synced  uint64
	// broken is the error after which the file's state is not known: nothing may be acknowledged any more.
	broken atomic.Pointer[error]
}

// openLog opens or makes the log in dir, and hands its whole records to replay. A torn tail is cut off: it was never
// acknowledged.
func openLog(dir string, fsync bool, replay func(logRecord) error) (_ *wal, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, LogName), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, fmt.Errorf("%w: %s", ErrLocked, f.Name())
	}
	w := &wal{file: f, fsync: fsync}
	if w.size, err = readLog(f, replay); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	if err := f.Truncate(w.size); err != nil {
		return nil, err
	}
	if _, err := f.Seek(w.size, io.SeekStart); err != nil {
		return nil, err
	}
	return w, nil
}

// readLog returns how many bytes of whole records the log begins with. It fails with ErrCorrupt if a whole record
// follows a damaged one.
func readLog(r io.Reader, replay func(logRecord) error) (int64, error) {
	in := bufio.NewReaderSize(r, 1<<16)
	var good int64
	for {
		line, err := in.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return good, err
		}
		body, ok := unframe(line)
		if !ok {
			rest, err := io.ReadAll(in)
			if err != nil {
				return good, err
			}
			for _, later := range bytes.SplitAfter(rest, []byte("\n")) {
				if _, ok := unframe(later); ok {
					return good, fmt.Errorf("%w: at byte %d", ErrCorrupt, good)
				}
			}
			return good, nil
		}
		var rec logRecord
		if err := json.Unmarshal(body, &rec); err != nil {
			return good, fmt.Errorf("%w: record at byte %d: %w", ErrCorrupt, good, err)
		}
		if err := replay(rec); err != nil {
			return good, fmt.Errorf("record %d at byte %d: %w", rec.N, good, err)
		}
		good += int64(len(line))
	}
}

// frame makes a line of the log of a record's JSON text.
func frame(body []byte) []byte {
	line := make([]byte, 0, len(body)+24)
	line = strconv.AppendInt(line, int64(len(body)), 10)
	line = fmt.Appendf(line, " %08x ", crc32.Checksum(body, castagnoli))
	line = append(line, body...)
	return append(line, '\n')
}

// unframe returns the JSON text of a whole line of the log.
func unframe(line []byte) ([]byte, bool) {
	length, rest, ok := bytes.Cut(line, []byte(" "))
	if !ok {
		return nil, false
	}
	sum, body, ok := bytes.Cut(rest, []byte(" "))
	if !ok || !bytes.HasSuffix(body, []byte("\n")) {
		return nil, false
	}
	body = body[:len(body)-1]
	n, err := strconv.Atoi(string(length))
	if err != nil || n != len(body) {
		return nil, false
	}
	want, err := strconv.ParseUint(string(sum), 16, 32)
	return body, err == nil && uint32(want) == crc32.Checksum(body, castagnoli)
}

// append writes a record. After it the record survives the death of the process; sync makes it survive that of the
// machine.
func (w *wal) append(rec logRecord) error {
	if w == nil {
		return nil
	}
	if err := w.err(); err != nil {
		return err
	}
	body, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	line := frame(body)
	if _, err := w.file.Write(line); err != nil {
		// Half a record in the middle would cut off all that follow.
		if _, seek := w.file.Seek(w.size, io.SeekStart); seek != nil {
			w.fail(seek)
		} else if cut := w.file.Truncate(w.size); cut != nil {
			w.fail(cut)
		}
		return err
	}
	w.size += int64(len(line))
	w.written.Store(rec.N)
	return nil
}

// sync returns when all records appended so far are on disk, if the server was opened with Fsync. Callers that wait at
// the same time share one flush.
func (w *wal) sync() error {
	if w == nil || !w.fsync {
		return nil
	}
	want := w.written.Load()
	w.syncing.Lock()
	defer w.syncing.Unlock()
	if err := w.err(); err != nil {
		return err
	}
	if w.synced >= want {
		return nil
	}
	n := w.written.Load()
	if err := w.file.Sync(); err != nil {
		// The kernel may have dropped the pages: a second flush that succeeds would prove nothing.
		w.fail(err)
		return err
	}
	w.synced = n
	return nil
}

func (w *wal) fail(err error) { w.broken.CompareAndSwap(nil, &err) }

func (w *wal) err() error {
	if err := w.broken.Load(); err != nil {
		return fmt.Errorf("the log can't be written any more: %w", *err)
	}
	return nil
}

func (w *wal) close() error {
	if w == nil {
		return nil
	}
	return w.file.Close()
}
