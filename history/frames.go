package history

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

var (
	errChecksum = errors.New("checksum does not match")
	errNoHeader = fmt.Errorf("%w: it ends inside the header", ErrNotHistory)
	errLength   = errors.New("no record is that long")
)

// frame is one whole, checked frame. Its bytes are valid until the next call of next.
type frame struct {
	kind    Kind
	payload []byte
	raw     []byte // with length and checksum
	offset  int64
}

func (f frame) clone() frame {
	raw := bytes.Clone(f.raw)
	tail := raw[len(raw)-len(f.payload)-crcSize:]
	return frame{kind: f.kind, payload: tail[:len(f.payload)], raw: raw, offset: f.offset}
}

// frames cuts a stream into frames.
type frames struct {
	src    io.Reader
	buf    []byte
	r, w   int   // unread bytes are buf[r:w]
	offset int64 // of buf[r] in the stream
	srcErr error // why src gave no more; io.EOF at its end
	cut    bool  // the stream ended inside a frame
}

// newFrames reads the header.
func newFrames(src io.Reader) (*frames, error) {
	f := &frames{src: src, buf: make([]byte, 64<<10)}
	if !f.need(headerSize) {
		if !errors.Is(f.srcErr, io.EOF) && !errors.Is(f.srcErr, io.ErrUnexpectedEOF) {
			return nil, f.srcErr
		}
		if bytes.HasPrefix(header(), f.buf[f.r:f.w]) {
			return nil, errNoHeader
		}
		return nil, ErrNotHistory
	}
	h := f.buf[f.r:f.w]
	if string(h[:len(magic)]) != magic {
		return nil, ErrNotHistory
	}
	if v := binary.LittleEndian.Uint32(h[len(magic):]); v != formatVersion {
		return nil, &VersionError{Found: v, Supported: formatVersion}
	}
	f.skip(headerSize)
	return f, nil
}

func (f *frames) skip(n int) {
	f.r += n
	f.offset += int64(n)
}

// need reads until n bytes are buffered. The buffer grows with what arrives, not with what a length claims.
func (f *frames) need(n int) bool {
	for f.w-f.r < n && f.srcErr == nil {
		if f.w == len(f.buf) {
			if f.r > len(f.buf)/2 {
				f.w = copy(f.buf, f.buf[f.r:f.w])
				f.r = 0
			} else {
				f.buf = append(f.buf, make([]byte, len(f.buf))...)
			}
		}
		var m int
		m, f.srcErr = f.src.Read(f.buf[f.w:])
		f.w += m
	}
	return f.w-f.r >= n
}

// next returns the next frame, io.EOF at the end (with cut set if the stream ends inside a frame), or a
// *CorruptError.
func (f *frames) next() (frame, error) {
	f.need(binary.MaxVarintLen32)
	rest := f.buf[f.r:f.w]
	if len(rest) == 0 {
		return frame{}, f.ended()
	}
	length, n := binary.Uvarint(rest[:min(len(rest), binary.MaxVarintLen32)])
	switch {
	case n == 0 && len(rest) < binary.MaxVarintLen32:
		return frame{}, f.ended()
	case n <= 0 || length == 0 || length > maxFrame:
		return frame{}, f.corrupt(errLength)
	}
	size := n + int(length) + crcSize
	if !f.need(size) {
		return frame{}, f.ended()
	}
	raw := f.buf[f.r : f.r+size]
	fr, err := parseFrame(raw, n)
	if err != nil {
		return frame{}, f.corrupt(err)
	}
	fr.offset = f.offset
	f.skip(size)
	return fr, nil
}

// parseFrame checks a whole frame whose length takes n bytes.
func parseFrame(raw []byte, n int) (frame, error) {
	body := len(raw) - crcSize
	if crc32.Checksum(raw[:body], castagnoli) != binary.LittleEndian.Uint32(raw[body:]) {
		return frame{}, errChecksum
	}
	kind := Kind(raw[n])
	if !kind.known() {
		return frame{}, fmt.Errorf("record of unknown kind %d", uint8(kind))
	}
	return frame{kind: kind, payload: raw[n+1 : body], raw: raw}, nil
}

// ended tells a stream that ends cleanly, or inside its last frame, from one whose middle is damaged so that a
// length points beyond the end: there, whole frames follow.
func (f *frames) ended() error {
	if !errors.Is(f.srcErr, io.EOF) && !errors.Is(f.srcErr, io.ErrUnexpectedEOF) {
		return f.corrupt(f.srcErr)
	}
	rest := f.buf[f.r:f.w]
	if at := findFrame(rest); at >= 0 {
		return f.corrupt(fmt.Errorf("%w: whole records follow at byte %d", errLength, f.offset+int64(at)))
	}
	f.cut = f.cut || len(rest) > 0 || !errors.Is(f.srcErr, io.EOF)
	f.skip(len(rest))
	return io.EOF
}

func (f *frames) corrupt(err error) error { return &CorruptError{Offset: f.offset, Err: err} }

// findFrame looks for a whole frame behind the start of b. It gives up after checking so many bytes, which only
// hostile input makes it do.
func findFrame(b []byte) int {
	budget := 16 << 20
	for i := 1; i < len(b) && budget > 0; i++ {
		length, n := binary.Uvarint(b[i:])
		if n <= 0 || length == 0 || length > uint64(len(b)) || i+n+int(length)+crcSize > len(b) || !Kind(b[i+n]).known() {
			continue
		}
		budget -= int(length)
		if _, err := parseFrame(b[i:i+n+int(length)+crcSize], n); err == nil {
			return i
		}
	}
	return -1
}
