// Package shelf is an event store written from outside, with the public extension points only: the worked example
// of docs/extending.md. It keeps everything on one tape in memory. A frame of the tape is one atomic unit: the events
// of one append with the note of its request, or the effects of one page with the checkpoint after it.
package shelf

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sort"
	"sync"

	"github.com/eventproof/eventproof/eventstore"
)

// Frame is one atomic unit. The tape holds its JSON.
type Frame struct {
	N     uint64 `json:"n"` // its number on the tape, from 1
	Cards []Card `json:"cards,omitempty"`
	Note  *Note  `json:"note,omitempty"`
	Page  *Page  `json:"page,omitempty"`
}

// Card is one event.
type Card struct {
	// Position is given by Write where it is not given by the caller.
	Position eventstore.Position `json:"position"`

	Stream  string              `json:"stream"`
	Version uint64              `json:"version"`
	ID      string              `json:"id"`
	Type    string              `json:"type"`
	Data    []byte              `json:"data"`
	Meta    eventstore.Metadata `json:"meta"`
}

// Note remembers what a request led to.
type Note struct {
	Request string              `json:"request"`
	Answer  eventstore.Appended `json:"answer"`
}

// Page is one move of a projection: effects, the rows after it, and the checkpoint.
type Page struct {
	Projection string         `json:"projection"`
	Generation uint64         `json:"generation"`
	Seq        uint64         `json:"seq"` // 0: the page leaves the checkpoint where it is
	Epoch      uint64         `json:"epoch"`
	Cursor     string         `json:"cursor"`
	Effects    []Effect       `json:"effects,omitempty"`
	Rows       map[string]Row `json:"rows,omitempty"`
}

// Effect is a ledger row: one event applied to one row, or passed over.
type Effect struct {
	Event   string `json:"event"`
	Stream  string `json:"stream"`
	Version uint64 `json:"version"`
	How     string `json:"how"` // "applied", "filtered"; see history.How
	Row     string `json:"row,omitempty"`
	Stands  uint64 `json:"stands,omitempty"` // the row's version after the effect
	Order   uint64 `json:"order,omitempty"`  // counts the effects on the row
}

// Row is one row of a view.
type Row struct {
	State   []byte `json:"state"`
	Version uint64 `json:"version"` // of the event applied last
	Order   uint64 `json:"order"`   // counts the effects on the row
}

// Turn is a lock that a context can give up waiting for.
type Turn chan struct{}

// Take waits for the turn.
func (t Turn) Take(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Leave gives the turn to the next.
func (t Turn) Leave() { <-t }

// Shelf is the store. Its methods are atomic each by itself; whoever needs more than one of them holds a turn.
type Shelf struct {
	Writing Turn // of appends

	mu        sync.RWMutex // guards what follows
	tape      [][]byte
	stopped   bool
	order     []eventstore.Event            // by position
	streams   map[string][]eventstore.Event // by version
	ids       map[eventstore.EventID]bool
	notes     map[string]eventstore.Appended
	snapshots map[string]eventstore.Snapshot
	books     map[string]*Book
}

// Book is a projection: its turn, its checkpoint and its rows.
type Book struct {
	Turn       Turn
	checkpoint eventstore.Checkpoint
	rows       map[string]Row
}

// New returns an empty shelf with a book for each projection.
func New(projections ...string) *Shelf {
	s := &Shelf{
		Writing: make(Turn, 1), streams: map[string][]eventstore.Event{}, ids: map[eventstore.EventID]bool{},
		notes: map[string]eventstore.Appended{}, snapshots: map[string]eventstore.Snapshot{}, books: map[string]*Book{},
	}
	for _, name := range projections {
		s.books[name] = &Book{Turn: make(Turn, 1), checkpoint: eventstore.Checkpoint{Generation: 1}, rows: map[string]Row{}}
	}
	return s
}

// ErrStopped says that the shelf takes no more frames: the run is over.
var ErrStopped = errors.New("shelf: stopped")

// Write puts a frame on the tape and into the index. It takes whatever it is given: what may be written is for those
// to decide who hold the turn. A card's position is (frame, index in the frame) unless it has one.
func (s *Shelf) Write(f Frame) ([]eventstore.Position, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, ErrStopped
	}
	f.N = uint64(len(s.tape)) + 1
	positions := make([]eventstore.Position, len(f.Cards))
	for i := range f.Cards {
		if f.Cards[i].Position.IsZero() {
			f.Cards[i].Position = eventstore.Position{Major: f.N, Minor: uint64(i) + 1}
		}
		positions[i] = f.Cards[i].Position
	}
	if f.Note != nil {
		f.Note.Answer.Positions = positions
	}
	raw, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	s.tape = append(s.tape, raw)
	for _, c := range f.Cards {
		id, err := eventstore.ParseEventID(c.ID)
		if err != nil {
			return nil, err
		}
		e := eventstore.Event{
			NewEvent: eventstore.NewEvent{ID: id, Type: c.Type, Data: c.Data, Meta: c.Meta},
			Stream:   c.Stream, Version: c.Version, Position: c.Position,
		}
		at := sort.Search(len(s.order), func(i int) bool { return s.order[i].Position.Compare(e.Position) > 0 })
		s.order = slices.Insert(s.order, at, e)
		s.streams[c.Stream], s.ids[id] = append(s.streams[c.Stream], e), true
	}
	if f.Note != nil {
		s.notes[f.Note.Request] = f.Note.Answer
	}
	if p := f.Page; p != nil {
		cursor, err := eventstore.ParseCursor(p.Cursor)
		if err != nil {
			return nil, err
		}
		book := s.books[p.Projection]
		if p.Seq > 0 {
			book.checkpoint = eventstore.Checkpoint{Cursor: cursor, Seq: p.Seq, Epoch: p.Epoch, Generation: p.Generation}
		}
		for key, row := range p.Rows {
			book.rows[key] = row
		}
	}
	return positions, nil
}

// Head returns the last version of a stream, 0 for none.
func (s *Shelf) Head(stream string) uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if events := s.streams[stream]; len(events) > 0 {
		return events[len(events)-1].Version
	}
	return 0
}

// Stream returns the events of a stream with from ≤ version ≤ to; to 0 = open end.
func (s *Shelf) Stream(stream string, from, to uint64) []eventstore.Event {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []eventstore.Event
	for _, e := range s.streams[stream] {
		if e.Version >= from && (to == 0 || e.Version <= to) {
			out = append(out, e)
		}
	}
	return out
}

// After returns at most limit events that a cursor does not claim, by position.
func (s *Shelf) After(c eventstore.Cursor, limit int) []eventstore.Event {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []eventstore.Event
	for _, e := range s.order {
		if len(out) == limit {
			break
		}
		if !c.Covers(e.Position) {
			out = append(out, e)
		}
	}
	return out
}

// Noted returns what a request led to when it was executed; ok is false if it was not.
func (s *Shelf) Noted(request string) (a eventstore.Appended, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	a, ok = s.notes[request]
	return a, ok && request != ""
}

// Has reports whether an event id is taken.
func (s *Shelf) Has(id eventstore.EventID) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.ids[id]
}

// Book returns a projection's book, nil where there is none.
func (s *Shelf) Book(projection string) *Book { return s.books[projection] }

// Checkpoint returns the progress of a projection that the shelf has a book for.
func (s *Shelf) Checkpoint(projection string) eventstore.Checkpoint {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.books[projection].checkpoint
}

// Row returns a row of a view that the shelf has a book for.
func (s *Shelf) Row(projection, key string) (r Row, found bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r, found = s.books[projection].rows[key]
	return r, found
}

// Snapshot returns the snapshot of a stream.
func (s *Shelf) Snapshot(stream string) (snap eventstore.Snapshot, found bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	snap, found = s.snapshots[stream]
	return snap, found
}

// Keep replaces the snapshot of a stream.
func (s *Shelf) Keep(snap eventstore.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snapshots[snap.Stream] = snap
}

// Tape returns the frames so far, for the audit.
func (s *Shelf) Tape() [][]byte {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.tape[:len(s.tape):len(s.tape)]
}

// Stop refuses every later frame.
func (s *Shelf) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
}
