package form

import (
	"fmt"

	"github.com/eventproof/eventproof/eventstore"
)

// Paths and headers of the messages between writers and owners, JSON over HTTP/1.1.
const (
	PathAppend = "/append" // POST Append → Answer; what faults count as a commit
	PathRead   = "/read"   // POST Read → Answer
	PathState  = "/state"  // GET ?partition=n → State

	SessionHeader = "Eventproof-Session" // names the connection, on every request
	OutcomeHeader = "Eventproof-Outcome" // of an append, for faults that read the wire
)

// Event is an event on its way.
type Event struct {
	ID       string              `json:"id"`
	Type     string              `json:"type"`
	Data     []byte              `json:"data"`
	Metadata string              `json:"metadata"`
	Version  uint64              `json:"version,omitempty"`
	Position eventstore.Position `json:"position"`
}

// Append asks an owner to append.
type Append struct {
	Partition int32   `json:"partition"`
	TakeOver  bool    `json:"takeOver,omitempty"` // the other owner can't be reached, or says that it is none
	Stream    string  `json:"stream"`
	Expected  *uint64 `json:"expected"` // null: any
	Request   string  `json:"request"`
	Events    []Event `json:"events"`
}

// Read asks an owner for the events of a stream, at most Limit of them.
type Read struct {
	Partition int32  `json:"partition"`
	TakeOver  bool   `json:"takeOver,omitempty"`
	Stream    string `json:"stream"`
	From      uint64 `json:"from"`
	To        uint64 `json:"to,omitempty"` // 0: open end
	Limit     int    `json:"limit"`
}

// Answer is what an owner says. Moved answers have no effect, and say to ask the other owner.
type Answer struct {
	Outcome   string                `json:"outcome"`
	Reason    string                `json:"reason,omitempty"`
	Moved     bool                  `json:"moved,omitempty"`
	Text      string                `json:"text,omitempty"`
	Head      *uint64               `json:"head,omitempty"`
	First     uint64                `json:"first,omitempty"`
	Last      uint64                `json:"last,omitempty"`
	IDs       []string              `json:"ids,omitempty"`
	Positions []eventstore.Position `json:"positions,omitempty"`
	Replayed  bool                  `json:"replayed,omitempty"`
	Events    []Event               `json:"events,omitempty"`
}

// State is what an owner says of a partition: whether it owns it, or is about to, and gets on with it.
type State struct {
	Owns bool `json:"owns"`
}

// ToEvents puts new events into the form of a message.
func ToEvents(events []eventstore.NewEvent) ([]Event, error) {
	out := make([]Event, 0, len(events))
	for _, e := range events {
		meta, err := EncodeMetadata(e.Meta)
		if err != nil {
			return nil, err
		}
		out = append(out, Event{ID: e.ID.String(), Type: e.Type, Data: e.Data, Metadata: meta})
	}
	return out, nil
}

// ToStored puts stored events into the form of a message.
func ToStored(events []eventstore.Event) ([]Event, error) {
	out := make([]Event, 0, len(events))
	for _, e := range events {
		meta, err := EncodeMetadata(e.Meta)
		if err != nil {
			return nil, err
		}
		out = append(out, Event{
			ID: e.ID.String(), Type: e.Type, Data: e.Data, Metadata: meta, Version: e.Version, Position: e.Position,
		})
	}
	return out, nil
}

// New reads an event out of a message.
func (e Event) New() (eventstore.NewEvent, error) {
	id, err := eventstore.ParseEventID(e.ID)
	if err != nil {
		return eventstore.NewEvent{}, err
	}
	meta, err := DecodeMetadata(e.Metadata)
	if err != nil {
		return eventstore.NewEvent{}, err
	}
	data := e.Data
	if data == nil {
		data = []byte{}
	}
	return eventstore.NewEvent{ID: id, Type: e.Type, Data: data, Meta: meta}, nil
}

// Stored reads a stored event of a stream out of a message.
func (e Event) Stored(stream string) (eventstore.Event, error) {
	n, err := e.New()
	return eventstore.Event{NewEvent: n, Stream: stream, Version: e.Version, Position: e.Position}, err
}

// ParseOutcome reads the name of an outcome.
func ParseOutcome(s string) (eventstore.Outcome, error) {
	for _, o := range []eventstore.Outcome{eventstore.Unknown, eventstore.OK, eventstore.Fail} {
		if o.String() == s {
			return o, nil
		}
	}
	return eventstore.Unknown, fmt.Errorf("kafka: no outcome %q", s)
}

// reasons is more than there are.
const reasons = 64

// ParseReason reads the name of a reason.
func ParseReason(s string) (eventstore.Reason, error) {
	for r := range eventstore.Reason(reasons) {
		if r.String() == s {
			return r, nil
		}
	}
	return eventstore.ReasonNone, fmt.Errorf("kafka: no reason %q", s)
}
