package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
)

const (
	// atOnce is how many items one transaction reads.
	atOnce = 100
	// rereadPause is waited before a read that was not one instant is repeated.
	rereadPause = 5 * time.Millisecond
)

// known is which rows a projection is known to have, from its ledger up to a count.
type known struct {
	seq  uint64
	rows map[string]struct{} // generation and row, as in the key
	keys []row
}

// Observe reads checkpoint and rows of one projection as of one instant: in one transaction if they fit, else until two
// reads in a row agree (counters only grow, so nothing moved between the two). Which rows there are is taken from the
// ledger.
func (a *Auditor) Observe(ctx context.Context, projection string) (history.Observation, []history.ViewRow, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Contains(a.place.Projections, projection) {
		return history.Observation{}, nil, fmt.Errorf("audit: observing %s: %w", projection, errUnknown)
	}
	var last []row
	for {
		keys, err := a.keysOf(ctx, projection)
		if err != nil {
			return history.Observation{}, nil, err
		}
		var items []row
		var whole bool
		if len(keys) <= atOnce {
			items, whole, err = a.transactGet(ctx, keys)
		} else {
			items, err = a.batchGet(ctx, keys)
			whole = err == nil && last != nil && reflect.DeepEqual(items, last)
			last = items
		}
		if err != nil {
			return history.Observation{}, nil, err
		}
		if whole {
			seen, rows, complete, err := a.observed(projection, items)
			if err != nil || complete {
				return seen, rows, err
			}
		}
		if err := clock.Sleep(ctx, rereadPause); err != nil {
			return history.Observation{}, nil, fmt.Errorf("audit: observing %s: %w", projection, err)
		}
	}
}

var errUnknown = errors.New("audit: the trial has no such projection")

// observed reads the items of one instant. It is complete unless the checkpoint has passed what is known of the ledger:
// then there may be rows that were not asked for.
func (a *Auditor) observed(projection string, items []row) (seen history.Observation, rows []history.ViewRow, complete bool, err error) {
	seen.Projection = projection
	if len(items) == 0 || items[0] == nil {
		return seen, nil, false, fmt.Errorf("audit: observing %s: %w", projection, errUnknown)
	}
	get := reader{row: items[0]}
	seen.Generation, seen.Seq = get.count("generation"), get.count("seq")
	cursor := get.text("cursor")
	if get.err != nil {
		return seen, nil, false, get.err
	}
	if seen.Cursor, err = eventstore.ParseCursor(cursor); err != nil {
		return seen, nil, false, err
	}
	if seen.Seq > a.rows[projection].seq {
		return seen, nil, false, nil
	}
	for _, it := range items[1:] {
		if it == nil {
			continue
		}
		v, err := readViewRow(it)
		if err != nil {
			return seen, nil, false, err
		}
		if v.Generation == seen.Generation {
			rows = append(rows, v)
		}
	}
	slices.SortFunc(rows, compareRows)
	seen.Rows = uint32(len(rows))
	return seen, rows, true, nil
}

// keysOf returns the keys of the checkpoint and of the rows.
func (a *Auditor) keysOf(ctx context.Context, projection string) ([]row, error) {
	k := a.rows[projection]
	if k == nil {
		k = &known{rows: map[string]struct{}{}, keys: []row{{"pk": s("PROJECTION#" + projection), "sk": s("CHECKPOINT")}}}
		a.rows[projection] = k
	}
	err := a.batches(ctx, projection, k.seq, func(b batch) error {
		lines, err := b.lines()
		if err != nil {
			return err
		}
		for _, l := range lines {
			sk := fmt.Sprintf("VIEW#%s#%012d", projection, b.generation)
			if _, ok := k.rows[sk+l.Row]; ok || l.How != history.Applied.String() {
				continue
			}
			k.rows[sk+l.Row] = struct{}{}
			k.keys = append(k.keys, row{"pk": s("STREAM#" + l.Row), "sk": s(sk)})
		}
		k.seq = max(k.seq, b.seq)
		return nil
	})
	return k.keys, err
}

// transactGet reads items in one transaction, in the order of their keys, nil for those that are not there. whole is
// false if a transaction on one of them was in the way.
func (a *Auditor) transactGet(ctx context.Context, keys []row) (items []row, whole bool, err error) {
	var gets []map[string]any
	for _, k := range keys {
		gets = append(gets, map[string]any{"Get": map[string]any{"TableName": a.place.Table, "Key": k}})
	}
	var out struct{ Responses []struct{ Item row } }
	err = a.client.call(ctx, opTransactGet, map[string]any{"TransactItems": gets}, &out)
	var answer *Error
	if errors.As(err, &answer) && answer.Code == codeTrans {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	for _, r := range out.Responses {
		items = append(items, r.Item)
	}
	return items, len(items) == len(keys), nil
}

// batchGet reads items one by one in the order of their keys, nil for those that are not there.
func (a *Auditor) batchGet(ctx context.Context, keys []row) ([]row, error) {
	found := map[string]row{}
	ask := slices.Clone(keys)
	for len(ask) > 0 {
		n := min(len(ask), atOnce)
		var out struct {
			Responses       map[string][]row
			UnprocessedKeys map[string]struct{ Keys []row }
		}
		err := a.client.call(ctx, opBatchGet, map[string]any{"RequestItems": map[string]any{
			a.place.Table: map[string]any{"Keys": ask[:n], "ConsistentRead": true},
		}}, &out)
		if err != nil {
			return nil, err
		}
		for _, r := range out.Responses[a.place.Table] {
			name, err := keyName(r)
			if err != nil {
				return nil, err
			}
			found[name] = r
		}
		ask = append(ask[n:], out.UnprocessedKeys[a.place.Table].Keys...)
	}
	items := make([]row, len(keys))
	for i, k := range keys {
		name, err := keyName(k)
		if err != nil {
			return nil, err
		}
		items[i] = found[name]
	}
	return items, nil
}

// keyName makes one string of an item's key.
func keyName(r row) (string, error) {
	get := reader{row: r}
	name, err := json.Marshal([2]string{get.text("pk"), get.text("sk")})
	return string(name), errors.Join(get.err, err)
}
