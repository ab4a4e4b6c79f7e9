package audit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/eventproof/eventproof/eventstore"
)

// logName is the emulator's log in its folder.
const logName = "dynamodb.log"

// entry is a line of the emulator's log, as far as the audit reads it.
type entry struct {
	N      uint64 `json:"n"`
	Kind   string `json:"kind"`
	Format string `json:"format"`
	Create *struct {
		Name string `json:"name"`
	} `json:"create"`
	Table  string `json:"table"`
	Writes []struct {
		Table string          `json:"table"`
		Key   row             `json:"key"`
		Item  json.RawMessage `json:"item"`
		Seq   uint64          `json:"seq"`
		Shard uint32          `json:"shard"`
	} `json:"writes"`
}

// logged is what the log says of one table.
type logged struct {
	items  map[string]json.RawMessage // by keyName
	places map[eventstore.EventID]eventstore.Position
}

var (
	errLog       = errors.New("audit: the emulator's log is damaged")
	errFormat    = errors.New("audit: the emulator's log has a format that the audit does not know")
	errDifferent = errors.New("audit: what the emulator answers is not what its log says")
)

// readLog decodes the emulator's log up to the last whole line. The emulator appends lines only, so a line that is torn
// can be the last one only.
func readLog(path, table string) (l logged, err error) {
	f, err := os.Open(path)
	if err != nil {
		return logged{}, fmt.Errorf("audit: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	l = logged{items: map[string]json.RawMessage{}, places: map[eventstore.EventID]eventstore.Position{}}
	in := bufio.NewReaderSize(f, 1<<20)
	for n := uint64(1); ; n++ {
		text, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return l, nil
		}
		if err != nil {
			return logged{}, fmt.Errorf("audit: %w", err)
		}
		e, err := readEntry(text)
		if err != nil {
			return logged{}, err
		}
		if e.N != n {
			return logged{}, fmt.Errorf("%w: line %d is numbered %d", errLog, n, e.N)
		}
		if err := l.take(e, table); err != nil {
			return logged{}, err
		}
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// readEntry reads "<length> <crc32c in hex> <json>\n".
func readEntry(text []byte) (entry, error) {
	var e entry
	parts := bytes.SplitN(bytes.TrimSuffix(text, []byte("\n")), []byte(" "), 3)
	if len(parts) != 3 {
		return e, fmt.Errorf("%w: %.40q", errLog, text)
	}
	length, err1 := strconv.Atoi(string(parts[0]))
	sum, err2 := strconv.ParseUint(string(parts[1]), 16, 32)
	if err1 != nil || err2 != nil || length != len(parts[2]) || uint32(sum) != crc32.Checksum(parts[2], castagnoli) {
		return e, fmt.Errorf("%w: %.40q", errLog, text)
	}
	if err := json.Unmarshal(parts[2], &e); err != nil {
		return e, fmt.Errorf("%w: %w", errLog, err)
	}
	return e, nil
}

// take applies a line to the table.
func (l logged) take(e entry, table string) error {
	switch e.Kind {
	case "open":
		if e.Format != "eventproof-dynamodb-log/1" {
			return fmt.Errorf("%w: %q", errFormat, e.Format)
		}
	case "create-table", "delete-table":
		if e.Table == table || e.Create != nil && e.Create.Name == table {
			clear(l.items)
			clear(l.places)
		}
	case "split-shards":
	case "commit":
		for _, w := range e.Writes {
			if w.Table != table {
				continue
			}
			name, err := keyName(w.Key)
			if err != nil {
				return err
			}
			if len(w.Item) == 0 || string(w.Item) == "null" {
				delete(l.items, name)
				continue
			}
			l.items[name] = w.Item
			if w.Seq > 0 {
				if err := l.place(w.Item, w.Shard, w.Seq); err != nil {
					return err
				}
			}
		}
	default:
		return fmt.Errorf("%w: kind %q", errFormat, e.Kind)
	}
	return nil
}

// shownBase is what the emulator adds to its sequence numbers before it shows them: 10 × 10^19.
const shownBase = 10

func (l logged) place(text json.RawMessage, number uint32, seq uint64) error {
	var r row
	if err := json.Unmarshal(text, &r); err != nil {
		return fmt.Errorf("%w: %w", errLog, err)
	}
	if r["type"].S == nil || r["id"].S == nil {
		return nil
	}
	id, err := eventstore.ParseEventID(*r["id"].S)
	if err != nil {
		return nil //nolint:nilerr // another kind of item
	}
	if _, seen := l.places[id]; !seen {
		l.places[id] = eventstore.Position{Shard: number, Major: shownBase, Minor: seq}
	}
	return nil
}

// compare reads the whole table by the API and holds it against the emulator's log: the items, and the places of the
// events in the stream. Any difference is an error: one of the two says what is not.
func (a *Auditor) compare(ctx context.Context) error {
	l, err := readLog(filepath.Join(a.place.DataDir, logName), a.place.Table)
	if err != nil {
		return err
	}
	seen := 0
	err = a.client.pagesRaw(ctx, opScan, map[string]any{"TableName": a.place.Table, "ConsistentRead": true}, func(text json.RawMessage) error {
		var r row
		if err := json.Unmarshal(text, &r); err != nil {
			return err
		}
		name, err := keyName(r)
		if err != nil {
			return err
		}
		seen++
		return sameItem(name, text, l.items[name])
	})
	if err != nil {
		return err
	}
	if seen != len(l.items) {
		return fmt.Errorf("%w: it shows %d items, the log holds %d", errDifferent, seen, len(l.items))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, p := range a.stream.positions {
		if want, ok := l.places[id]; !ok || want != p {
			return fmt.Errorf("%w: event %s lies at %s of the stream, by the log at %s", errDifferent, id, p, want)
		}
	}
	if len(a.stream.positions) != len(l.places) {
		return fmt.Errorf("%w: the stream shows %d events, the log %d", errDifferent, len(a.stream.positions), len(l.places))
	}
	return nil
}

// sameItem compares two texts of an item whatever the order of their attributes.
func sameItem(name string, shown, logged json.RawMessage) error {
	if logged == nil {
		return fmt.Errorf("%w: %s is not in the log", errDifferent, name)
	}
	var x, y any
	if err := errors.Join(json.Unmarshal(shown, &x), json.Unmarshal(logged, &y)); err != nil {
		return err
	}
	a, err1 := json.Marshal(x)
	b, err2 := json.Marshal(y)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if !bytes.Equal(a, b) {
		return fmt.Errorf("%w: %s is %.200s, by the log %.200s", errDifferent, name, a, b)
	}
	return nil
}
