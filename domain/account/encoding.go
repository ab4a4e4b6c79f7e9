package account

import (
	"encoding/binary"
	"errors"
	"unicode/utf8"
)

// The canonical encoding of a state, hashed into decision records and kept in snapshots. It is the only thing
// that the application's fold and the checkers' fold share.
//
//	offset  bytes  content
//	0       1      'A'
//	1       1      format, 1
//	2       1      Status
//	3       8      Version, big endian
//	11      8      Balance, big endian, two's complement
//	19      …      Owner, UTF-8, to the end
const (
	encodingTag    = 'A'
	encodingFormat = 1
	encodingHead   = 19
)

// Encode returns the canonical encoding.
func (s State) Encode() []byte {
	b := make([]byte, 0, encodingHead+len(s.Owner))
	b = append(b, encodingTag, encodingFormat, byte(s.Status))
	b = binary.BigEndian.AppendUint64(b, s.Version)
	b = binary.BigEndian.AppendUint64(b, uint64(s.Balance))
	return append(b, s.Owner...)
}

var errEncoding = errors.New("account: not the encoding of a state")

// DecodeState reads what Encode wrote.
func DecodeState(b []byte) (State, error) {
	if len(b) < encodingHead || b[0] != encodingTag || b[1] != encodingFormat || b[2] > byte(Closed) || !utf8.Valid(b[encodingHead:]) {
		return State{}, errEncoding
	}
	return State{
		Status:  Status(b[2]),
		Version: binary.BigEndian.Uint64(b[3:]),
		Balance: int64(binary.BigEndian.Uint64(b[11:])),
		Owner:   string(b[encodingHead:]),
	}, nil
}
