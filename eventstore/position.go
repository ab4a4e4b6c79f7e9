package eventstore

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Position is a place in a store's order. Positions compare within one Shard only; a store with one order
// uses shard 0. Major orders before Minor: a plain sequence leaves Major 0, a (transaction id, sequence)
// order uses both. The zero Position means "the store gives none".
type Position struct {
	Shard uint32
	Major uint64
	Minor uint64
}

// IsZero reports whether no position was given.
func (p Position) IsZero() bool { return p == Position{} }

// Compare orders positions by shard, then major, then minor.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Shard, q.Shard), cmp.Compare(p.Major, q.Major), cmp.Compare(p.Minor, q.Minor))
}

// String renders the position as shard:major:minor.
func (p Position) String() string {
	return strconv.FormatUint(uint64(p.Shard), 10) + ":" + strconv.FormatUint(p.Major, 10) + ":" + strconv.FormatUint(p.Minor, 10)
}

// Cursor is what a checkpoint stores: for each shard the last position that is claimed, and the positions
// at or below it that are explicitly not claimed (gaps that a gap-aware reader still waits for).
// The zero Cursor claims nothing. Readers with another idea of a checkpoint translate it into this form,
// so that one rule judges all of them.
type Cursor struct {
	At   []Position // at most one a shard, ascending by shard
	Open []Position // ascending
}

// Covers reports whether the cursor claims the event at p.
func (c Cursor) Covers(p Position) bool {
	for _, at := range c.At {
		if at.Shard != p.Shard {
			continue
		}
		if p.Compare(at) > 0 {
			return false
		}
		_, open := slices.BinarySearchFunc(c.Open, p, Position.Compare)
		return !open
	}
	return false
}

// Through returns a cursor of one shard that claims everything up to and including p.
func Through(p Position) Cursor { return Cursor{At: []Position{p}} }

// IsZero reports whether the cursor claims nothing.
func (c Cursor) IsZero() bool { return len(c.At) == 0 }

// String renders the cursor in the form that ParseCursor reads; the zero Cursor is the empty string.
func (c Cursor) String() string {
	var b strings.Builder
	for i, p := range c.At {
		if i > 0 {
			b.WriteByte(';')
		}
		b.WriteString(p.String())
	}
	for i, p := range c.Open {
		if i == 0 {
			b.WriteByte('|')
		} else {
			b.WriteByte(';')
		}
		b.WriteString(p.String())
	}
	return b.String()
}

var errCursor = errors.New("eventstore: malformed cursor")

// ParseCursor reads the form that Cursor.String writes.
func ParseCursor(s string) (Cursor, error) {
	var c Cursor
	if s == "" {
		return c, nil
	}
	at, open, hasOpen := strings.Cut(s, "|")
	var err error
	if c.At, err = parsePositions(at); err != nil {
		return Cursor{}, fmt.Errorf("%w %q: %w", errCursor, s, err)
	}
	if hasOpen {
		if c.Open, err = parsePositions(open); err != nil {
			return Cursor{}, fmt.Errorf("%w %q: %w", errCursor, s, err)
		}
	}
	return c, nil
}

func parsePositions(s string) ([]Position, error) {
	var out []Position
	for part := range strings.SplitSeq(s, ";") {
		f := strings.Split(part, ":")
		if len(f) != 3 {
			return nil, fmt.Errorf("%q is not shard:major:minor", part)
		}
		shard, err := strconv.ParseUint(f[0], 10, 32)
		if err != nil {
			return nil, err
		}
		major, err := strconv.ParseUint(f[1], 10, 64)
		if err != nil {
			return nil, err
		}
		minor, err := strconv.ParseUint(f[2], 10, 64)
		if err != nil {
			return nil, err
		}
		out = append(out, Position{Shard: uint32(shard), Major: major, Minor: minor})
	}
	return out, nil
}
