package wire

import "slices"

// splitter is the part that the framers of every protocol share: bytes kept back, bytes of a long message still to
// pass.
type splitter struct {
	buf    []byte
	skip   int  // bytes to pass on unread
	ends   int  // turns that end with the last of them
	opaque bool // passed on unread from here on
	lost   bool // opaque because the bytes made no sense or are encrypted
}

func (s *splitter) rest() []byte {
	b := s.buf
	s.buf = nil
	return b
}

func (s *splitter) unreadable() bool { return s.lost }

func (s *splitter) giveUp() { s.opaque, s.lost = true, true }

// scan walks through p. next handles what begins at r.data[at:] and returns the bytes it used; 0 means that more
// are needed, or that it has set skip or opaque.
func (s *splitter) scan(p []byte, emit func(frame), next func(r *run, at int) int) {
	if len(s.buf) > 0 {
		p = append(s.buf, p...)
		s.buf = nil
	}
	r := &run{data: p, emit: emit}
	i := 0
	for i < len(p) {
		switch {
		case s.opaque:
			i = len(p)
			continue
		case s.skip > 0:
			n := min(s.skip, len(p)-i)
			i, s.skip = i+n, s.skip-n
			if s.skip == 0 {
				r.turns += s.ends
				s.ends = 0
			}
			continue
		}
		n := next(r, i)
		if n == 0 && !s.opaque && s.skip == 0 {
			break // the rest of this message is still to come
		}
		i += n
	}
	r.flush(i)
	s.buf = slices.Clone(p[i:])
}

// run collects neighbouring messages without meaning into one frame.
type run struct {
	data  []byte
	from  int
	turns int
	emit  func(frame)
}

// flush emits what lies before to.
func (r *run) flush(to int) {
	if to > r.from {
		r.emit(frame{data: r.data[r.from:to:to], turns: r.turns})
	}
	r.from, r.turns = to, 0
}

// special emits data[at:to] as a frame of its own.
func (r *run) special(at, to int, f frame) {
	r.flush(at)
	f.data = r.data[at:to:to]
	r.emit(f)
	r.from = to
}
