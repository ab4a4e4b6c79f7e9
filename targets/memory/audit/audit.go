// Package audit reads what a memory target holds after a trial. It decodes the engine's write-ahead journal
// by code of its own and shares nothing with the adapter; the live tables are only compared with it.
package audit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/targets"
)

// Source is what the audit reads.
type Source interface {
	// Journal returns the raw commit records, in commit order.
	Journal() [][]byte
	// Stream returns what the live tables say of a stream; to 0 = open end.
	Stream(name string, from, to uint64) []eventstore.Event
	// Fence refuses every later commit and returns the number of transactions that were still open.
	Fence(ctx context.Context) (open int)
}

// ErrContradiction says that the journal and the live tables differ, so that the audit can't be trusted.
var ErrContradiction = errors.New("memory audit: the journal and the live tables differ")

// New returns an auditor over the source.
func New(s Source) targets.Auditor { return &auditor{source: s} }

type auditor struct {
	source Source

	mu   sync.Mutex // guards what Head has seen so far: it is polled during the drain
	read int
	head eventstore.Position
}

type commit struct {
	Transaction uint64 `json:"tx"`
	Events      []struct {
		Stream   string              `json:"stream"`
		Version  uint64              `json:"version"`
		Position uint64              `json:"position"`
		ID       eventstore.EventID  `json:"id"`
		Type     string              `json:"type"`
		Data     []byte              `json:"data"`
		Meta     eventstore.Metadata `json:"meta"`
	} `json:"events"`
	Projection string `json:"projection"`
	Generation uint64 `json:"generation"`
	Rows       []struct {
		Key     string `json:"key"`
		Version uint64 `json:"version"`
		State   []byte `json:"state"`
	} `json:"rows"`
	Effects []struct {
		Event      eventstore.EventID `json:"event"`
		Stream     string             `json:"stream"`
		Version    uint64             `json:"version"`
		Row        string             `json:"row"`
		Filtered   bool               `json:"filtered"`
		RowVersion uint64             `json:"rowVersion"`
		RowOrder   uint64             `json:"rowOrder"`
		Seq        uint64             `json:"seq"`
		Epoch      uint64             `json:"epoch"`
	} `json:"effects"`
	Checkpoint *struct {
		Seq    uint64 `json:"seq"`
		Epoch  uint64 `json:"epoch"`
		Cursor string `json:"cursor"`
	} `json:"checkpoint"`
}

// Fence implements targets.Auditor. The engine refuses commits from then on, also those of transactions that
// are open now, so that nothing of the run can take effect later.
func (a *auditor) Fence(ctx context.Context) (targets.Proof, error) {
	open := a.source.Fence(ctx)
	text := fmt.Sprintf("the engine refuses every commit since the fence; transactions with a drawn position still open then: %d, all rolled back", open)
	return targets.Proof{Fenced: true, Text: text}, nil
}

// commits decodes the journal.
func (a *auditor) commits(ctx context.Context, yield func(commit) error) error {
	for i, raw := range a.source.Journal() {
		if err := ctx.Err(); err != nil {
			return err
		}
		c, err := decode(i, raw)
		if err != nil {
			return err
		}
		if err := yield(c); err != nil {
			return err
		}
	}
	return nil
}

// Log implements targets.Auditor: events by position. It fails with ErrContradiction where the live tables
// differ from the journal.
func (a *auditor) Log(ctx context.Context, yield func(history.LoggedEvent) error) error {
	var log []history.LoggedEvent
	err := a.commits(ctx, func(c commit) error {
		for _, e := range c.Events {
			log = append(log, history.LoggedEvent{
				Stream: e.Stream, Version: e.Version, ID: e.ID, Type: e.Type, Data: e.Data, Meta: e.Meta,
				Position: eventstore.Position{Minor: e.Position}, Transaction: c.Transaction,
			})
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(log, func(x, y history.LoggedEvent) int { return x.Position.Compare(y.Position) })
	if err := a.compare(log); err != nil {
		return err
	}
	for _, e := range log {
		if err := yield(e); err != nil {
			return err
		}
	}
	return nil
}

// compare holds the journal's events against the live tables, stream by stream.
func (a *auditor) compare(log []history.LoggedEvent) error {
	byStream := map[string][]history.LoggedEvent{}
	for _, e := range log {
		byStream[e.Stream] = append(byStream[e.Stream], e)
	}
	for _, stream := range sortedKeys(byStream) {
		want := byStream[stream]
		slices.SortStableFunc(want, func(x, y history.LoggedEvent) int { return cmp.Compare(x.Version, y.Version) })
		got := a.source.Stream(stream, 0, 0)
		if len(got) != len(want) {
			return fmt.Errorf("%w: %s has %d events in the tables and %d in the journal", ErrContradiction, stream, len(got), len(want))
		}
		for i, w := range want {
			g := got[i]
			if g.ID != w.ID || g.Version != w.Version || g.Type != w.Type || !bytes.Equal(g.Data, w.Data) || g.Position != w.Position {
				return fmt.Errorf("%w: %s version %d", ErrContradiction, stream, w.Version)
			}
		}
	}
	return nil
}

// Ledgers implements targets.Auditor: ledger rows in commit order.
func (a *auditor) Ledgers(ctx context.Context, yield func(history.LedgerRow) error) error {
	return a.commits(ctx, func(c commit) error {
		for _, e := range c.Effects {
			how := history.Applied
			if e.Filtered {
				how = history.Filtered
			}
			err := yield(history.LedgerRow{
				Projection: c.Projection, Generation: c.Generation, Event: e.Event, Stream: e.Stream,
				Version: e.Version, Row: e.Row, How: how, RowVersion: e.RowVersion, RowOrder: e.RowOrder,
				Seq: e.Seq, Transaction: c.Transaction, Epoch: e.Epoch,
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Checkpoints implements targets.Auditor: every durable value of every checkpoint, in commit order.
func (a *auditor) Checkpoints(ctx context.Context, yield func(history.CheckpointRow) error) error {
	return a.commits(ctx, func(c commit) error {
		row, err := checkpointRow(c)
		if err != nil || row == nil {
			return err
		}
		return yield(*row)
	})
}

func checkpointRow(c commit) (*history.CheckpointRow, error) {
	if c.Checkpoint == nil {
		return nil, nil
	}
	cursor, err := eventstore.ParseCursor(c.Checkpoint.Cursor)
	if err != nil {
		return nil, fmt.Errorf("memory audit: transaction %d: %w", c.Transaction, err)
	}
	return &history.CheckpointRow{
		Projection: c.Projection, Generation: c.Generation, Seq: c.Checkpoint.Seq, Epoch: c.Checkpoint.Epoch,
		Cursor: cursor, Transaction: c.Transaction,
	}, nil
}

// state is a projection as the journal leaves it.
type state struct {
	generation uint64
	checkpoint history.CheckpointRow
	rows       map[string]history.ViewRow
}

func (a *auditor) projections(ctx context.Context) (map[string]*state, error) {
	all := map[string]*state{}
	err := a.commits(ctx, func(c commit) error {
		if c.Projection == "" {
			return nil
		}
		s := all[c.Projection]
		if s == nil || s.generation != c.Generation {
			s = &state{generation: c.Generation, rows: map[string]history.ViewRow{}}
			all[c.Projection] = s
		}
		row, err := checkpointRow(c)
		if err != nil {
			return err
		}
		if row != nil {
			s.checkpoint = *row
		}
		for _, r := range c.Rows {
			s.rows[r.Key] = history.ViewRow{
				Projection: c.Projection, Generation: c.Generation, Row: r.Key, Version: r.Version, State: r.State,
			}
		}
		return nil
	})
	return all, err
}

// Views implements targets.Auditor: the final rows, by projection and key.
func (a *auditor) Views(ctx context.Context, yield func(history.ViewRow) error) error {
	all, err := a.projections(ctx)
	if err != nil {
		return err
	}
	for _, name := range sortedKeys(all) {
		for _, key := range sortedKeys(all[name].rows) {
			if err := yield(all[name].rows[key]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Observe implements targets.Auditor: a prefix of the journal is one atomic state.
func (a *auditor) Observe(ctx context.Context, projection string) (history.Observation, []history.ViewRow, error) {
	all, err := a.projections(ctx)
	if err != nil {
		return history.Observation{}, nil, err
	}
	s := all[projection]
	if s == nil {
		return history.Observation{Projection: projection, Generation: 1}, nil, nil
	}
	var rows []history.ViewRow
	for _, key := range sortedKeys(s.rows) {
		rows = append(rows, s.rows[key])
	}
	return history.Observation{
		Projection: projection, Generation: s.generation, Seq: s.checkpoint.Seq, Cursor: s.checkpoint.Cursor,
		Rows: uint32(len(rows)),
	}, rows, nil
}

// Head implements targets.Auditor. It decodes only what was written since it was last asked.
func (a *auditor) Head(ctx context.Context) (eventstore.Position, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	records := a.source.Journal()
	for ; a.read < len(records); a.read++ {
		if err := ctx.Err(); err != nil {
			return eventstore.Position{}, err
		}
		c, err := decode(a.read, records[a.read])
		if err != nil {
			return eventstore.Position{}, err
		}
		for _, e := range c.Events {
			if p := (eventstore.Position{Minor: e.Position}); p.Compare(a.head) > 0 {
				a.head = p
			}
		}
	}
	return a.head, nil
}

func decode(i int, raw []byte) (commit, error) {
	var c commit
	if err := json.Unmarshal(raw, &c); err != nil {
		return commit{}, fmt.Errorf("memory audit: journal record %d: %w", i, err)
	}
	return c, nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
