// Package audit reads the final state of a trial on Kafka. It shares no code with the adapter: its reading and its
// decoding are its own, so that a mistake in one shows against the other. It connects directly, never through a proxy.
package audit

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
)

// Place names what is to be audited.
type Place struct {
	Addr        string // of a broker
	Trial       string
	Partitions  int32    // of the topic of events
	Projections []string // by name
	// Unfenced: the events were written without transactions.
	Unfenced bool
}

// Auditor implements targets.Auditor and targets.Sharded.
type Auditor struct {
	place Place

	mu     sync.Mutex // guards what is below
	client *kgo.Client
	leads  map[string]map[int32]int32
	heads  map[int32]*head      // what is known of the end of the log
	views  map[string]*observed // what is known of projections
}

// New returns an auditor. It connects when it is first asked.
func New(p Place) *Auditor {
	return &Auditor{place: p, leads: map[string]map[int32]int32{}, heads: map[int32]*head{}, views: map[string]*observed{}}
}

// Close closes the auditor's connections.
func (a *Auditor) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.client != nil {
		a.client.Close()
		a.client = nil
	}
}

func (a *Auditor) events() string                 { return a.place.Trial + "-events" }
func (a *Auditor) topic(projection string) string { return a.place.Trial + "-view-" + projection }

// fields reads the headers of a record. The first that can't be read is kept.
type fields struct {
	record *kgo.Record
	err    error
}

var errForm = errors.New("audit: malformed record")

func (f *fields) fail(name string, err error) {
	if f.err == nil {
		f.err = fmt.Errorf("%w: %s/%d at offset %d: header %s: %w", errForm, f.record.Topic, f.record.Partition, f.record.Offset, name, err)
	}
}

var errMissing = errors.New("missing")

func (f *fields) text(name string) string {
	for _, h := range f.record.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	f.fail(name, errMissing)
	return ""
}

func (f *fields) count(name string) uint64 {
	n, err := strconv.ParseUint(f.text(name), 10, 64)
	if err != nil {
		f.fail(name, err)
	}
	return n
}

// place is where a record is. Positions count from 1; offsets from 0.
func (f *fields) place() eventstore.Position {
	return eventstore.Position{Shard: uint32(f.record.Partition), Minor: uint64(f.record.Offset) + 1}
}

// Log yields every committed event, partition by partition in the order of offsets.
func (a *Auditor) Log(ctx context.Context, yield func(history.LoggedEvent) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for p := range a.place.Partitions {
		_, err := a.scan(ctx, a.events(), p, 0, func(r *kgo.Record) error {
			e, is, err := logged(r)
			if err != nil || !is {
				return err
			}
			return yield(e)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// logged decodes a record of the topic of events; is is false for a lease.
func logged(r *kgo.Record) (e history.LoggedEvent, is bool, err error) {
	f := fields{record: r}
	switch kind := f.text("kind"); {
	case f.err != nil:
		return e, false, f.err
	case kind == "lease":
		return e, false, nil
	case kind != "event":
		return e, false, fmt.Errorf("%w: kind %q at %s/%d offset %d", errForm, kind, r.Topic, r.Partition, r.Offset)
	}
	e = history.LoggedEvent{
		Stream: string(r.Key), Version: f.count("version"), Type: f.text("type"), Data: r.Value, Position: f.place(),
		Transaction: f.count("tx"),
	}
	if e.ID, err = eventstore.ParseEventID(f.text("id")); err != nil {
		f.fail("id", err)
	}
	if e.Meta, err = meta(f.text("metadata")); err != nil {
		f.fail("metadata", err)
	}
	return e, true, f.err
}

// meta decodes an event's metadata.
func meta(text string) (eventstore.Metadata, error) {
	var m struct {
		Command, Correlation, Causation, BasisHash string
		Basis, Epoch                               uint64
		Schema                                     uint32
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return eventstore.Metadata{}, err
	}
	out := eventstore.Metadata{
		CommandID: m.Command, CorrelationID: m.Correlation, CausationID: m.Causation, BasisVersion: m.Basis, Epoch: m.Epoch,
		SchemaVersion: m.Schema,
	}
	if m.BasisHash != "" {
		if n, err := hex.Decode(out.BasisHash[:], []byte(m.BasisHash)); err != nil || n != len(out.BasisHash) {
			return eventstore.Metadata{}, fmt.Errorf("%w: basis hash %q", errForm, m.BasisHash)
		}
	}
	return out, nil
}
