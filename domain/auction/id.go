package auction

import (
	"fmt"
	"strings"
)

// ID names an auction. It is always a valid channel segment: 1 to 50 letters, digits and inner dashes (ASCII).
// Only NewID and decoding, which validate, build one; the zero ID is no auction.
type ID struct{ s string }

// NewID validates s.
func NewID(s string) (ID, error) {
	valid := len(s) >= 1 && len(s) <= 50 && s[0] != '-' && s[len(s)-1] != '-'
	for i := 0; valid && i < len(s); i++ {
		c := s[i]
		valid = c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
	}
	if !valid {
		return ID{}, fmt.Errorf("auction: %q is no auction id: want 1 to 50 letters, digits and inner dashes", s)
	}
	return ID{s}, nil
}

// String returns the id's text.
func (id ID) String() string { return id.s }

// IsZero reports whether the id is unset.
func (id ID) IsZero() bool { return id.s == "" }

// MarshalText implements encoding.TextMarshaler.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.s), nil }

// UnmarshalText implements encoding.TextUnmarshaler; it validates.
func (id *ID) UnmarshalText(b []byte) error {
	parsed, err := NewID(string(b))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}

const streamPrefix = "auction-"

// Stream returns the name of an auction's stream.
func Stream(id ID) string { return streamPrefix + id.s }

// FromStream returns the auction whose stream has this name; ok is false for another kind of stream.
func FromStream(stream string) (id ID, ok bool) {
	s, ok := strings.CutPrefix(stream, streamPrefix)
	if !ok {
		return ID{}, false
	}
	id, err := NewID(s)
	return id, err == nil
}
