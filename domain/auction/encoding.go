package auction

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"unicode/utf8"
)

// The canonical encoding of a state, hashed into decision records. It is the only thing, with the snapshot's
// form, that the application's fold and the checkers' fold share. Integers are big endian, two's complement;
// a text is its length as uvarint and its bytes.
//
//	offset  bytes  content
//	0       1      'B'
//	1       1      format, 1
//	2       1      Status
//	3       8      Version
//	11      8      OpeningPrice
//	19      8      High
//	27      8      Accepted
//	35      16     digest of the ledger
//	51      …      HighBidder, HighBidID: texts
//
// The digest is the sum mod 2^128, over the bids of the ledger, of the first 128 bits of the SHA-256 of:
// bid id, bidder, acceptedAt (texts), amount, version. An auction has thousands of bids and every append
// hashes the state: a sum is kept in O(1) a bid and does not depend on their order.
//
// A snapshot is this encoding followed by the number of bids (uvarint) and the bids by ascending id: bid id,
// bidder, acceptedAt (texts), amount, version.
const (
	encodingTag    = 'B'
	encodingFormat = 1
	encodingHead   = 51
)

// Encode returns the canonical encoding, in time and size independent of the number of bids.
func (s State) Encode() []byte {
	b := make([]byte, 0, encodingHead+2*binary.MaxVarintLen16+len(s.HighBidder)+len(s.HighBidID))
	b = append(b, encodingTag, encodingFormat, byte(s.Status))
	for _, n := range [...]uint64{s.Version, uint64(s.OpeningPrice), uint64(s.High), s.Accepted, s.ledger.hi, s.ledger.lo} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	b = appendText(b, s.HighBidder)
	return appendText(b, s.HighBidID)
}

// Snapshot returns the whole state, ledger included, in canonical form.
func (s State) Snapshot() []byte {
	b := s.Encode()
	b = binary.AppendUvarint(b, uint64(len(s.bids)))
	for _, id := range slices.Sorted(maps.Keys(s.bids)) {
		bid := s.bids[id]
		b = appendText(b, id)
		b = appendText(b, bid.Bidder)
		b = appendText(b, bid.AcceptedAt)
		b = binary.BigEndian.AppendUint64(b, uint64(bid.Amount))
		b = binary.BigEndian.AppendUint64(b, bid.Version)
	}
	return b
}

var errEncoding = errors.New("auction: not the snapshot of a state")

// DecodeSnapshot reads what Snapshot wrote and nothing else: the state it returns has b as its snapshot, so
// the digest belongs to the ledger.
func DecodeSnapshot(b []byte) (State, error) {
	d := decoder{rest: b}
	head := d.take(encodingHead)
	if d.bad || head[0] != encodingTag || head[1] != encodingFormat || head[2] > byte(Closed) {
		return State{}, errEncoding
	}
	s := State{
		Status:       Status(head[2]),
		Version:      binary.BigEndian.Uint64(head[3:]),
		OpeningPrice: int64(binary.BigEndian.Uint64(head[11:])),
		High:         int64(binary.BigEndian.Uint64(head[19:])),
		Accepted:     binary.BigEndian.Uint64(head[27:]),
		HighBidder:   d.text(),
		HighBidID:    d.text(),
	}
	n := d.uvarint()
	if n > uint64(len(d.rest)) { // a bid takes more than a byte
		return State{}, errEncoding
	}
	if n > 0 {
		s.bids = make(map[string]Bid, n)
	}
	for range n {
		id := d.text()
		bid := Bid{Bidder: d.text(), AcceptedAt: d.text(), Amount: int64(d.uint64()), Version: d.uint64()}
		if d.bad {
			return State{}, errEncoding
		}
		s.bids[id] = bid
		s.ledger = s.ledger.add(id, bid)
	}
	if d.bad || !bytes.Equal(s.Snapshot(), b) {
		return State{}, errEncoding
	}
	return s, nil
}

func appendText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// decoder reads from rest; bad is set by the first read that finds too little, and stays.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) take(n int) []byte {
	if d.bad || n < 0 || n > len(d.rest) {
		d.bad = true
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) uvarint() uint64 {
	n, size := binary.Uvarint(d.rest)
	if size <= 0 {
		d.bad = true
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

func (d *decoder) uint64() uint64 {
	b := d.take(8)
	if d.bad {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

func (d *decoder) text() string {
	n := d.uvarint()
	if n > uint64(len(d.rest)) {
		d.bad = true
		return ""
	}
	b := d.take(int(n))
	if !utf8.Valid(b) {
		d.bad = true
	}
	return string(b)
}
