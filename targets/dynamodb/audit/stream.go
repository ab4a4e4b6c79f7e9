package audit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
)

const (
	// recordsAtOnce is the most the service gives in one answer.
	recordsAtOnce = 1000
	// streamLag is how long a record of the streams is waited for: they follow the table.
	streamLag   = 3 * time.Second
	streamPause = 100 * time.Millisecond
)

// stream is where every event lies in the change stream of the table, as far as it was read: from the oldest record on.
type stream struct {
	shards    []*shard // by number: the place of its id among all
	positions map[eventstore.EventID]eventstore.Position
	heads     map[uint32]eventstore.Position
	// changes is which change of its auction's item each operation was, in the native form: the item's images come in
	// the order of its changes, and each names the operation that made it.
	changes map[eventstore.EventID]uint64
}

type shard struct {
	id, parent, iterator string
	after                string // highest sequence number read; an answer may repeat records and mix them
	last                 eventstore.Position
	ended                bool
}

// read goes on reading all shards until there is nothing more for now. Positions are first sights: a record that comes
// twice changes nothing.
func (a *Auditor) read(ctx context.Context) error {
	for again := true; again; {
		again = false
		if err := a.listShards(ctx); err != nil {
			return err
		}
		for number, sh := range a.stream.shards {
			for more := !sh.ended; more && !sh.ended; {
				var err error
				if more, err = a.readShard(ctx, uint32(number), sh); err != nil {
					return err
				}
				// A shard that ends has children, which may be new.
				again = again || sh.ended
			}
		}
	}
	return nil
}

var errList = errors.New("audit: a shard is listed that should have been before the ones read, or one has vanished")

func (a *Auditor) listShards(ctx context.Context) error {
	type listed struct{ ShardID, ParentShardID string }
	var all []listed
	in := map[string]any{"StreamArn": a.place.Stream}
	for {
		var out struct {
			StreamDescription struct {
				Shards []struct {
					ShardID       string `json:"ShardId"`
					ParentShardID string `json:"ParentShardId"`
				}
				LastEvaluatedShardID *string `json:"LastEvaluatedShardId"`
			}
		}
		if err := a.client.call(ctx, opDescribe, in, &out); err != nil {
			return err
		}
		for _, x := range out.StreamDescription.Shards {
			all = append(all, listed(x))
		}
		if out.StreamDescription.LastEvaluatedShardID == nil {
			break
		}
		in["ExclusiveStartShardId"] = *out.StreamDescription.LastEvaluatedShardID
	}
	slices.SortFunc(all, func(x, y listed) int { return strings.Compare(x.ShardID, y.ShardID) })
	for i, x := range all {
		switch {
		case i >= len(a.stream.shards):
			a.stream.shards = append(a.stream.shards, &shard{id: x.ShardID, parent: x.ParentShardID})
		case a.stream.shards[i].id != x.ShardID:
			return fmt.Errorf("%w: %s", errList, x.ShardID)
		}
	}
	if len(all) < len(a.stream.shards) {
		return fmt.Errorf("%w: %s", errList, a.stream.shards[len(all)].id)
	}
	return nil
}

// readShard reads one answer. more is whether it held something new, or the shard's end.
func (a *Auditor) readShard(ctx context.Context, number uint32, sh *shard) (more bool, err error) {
	if sh.iterator == "" {
		in := map[string]any{"StreamArn": a.place.Stream, "ShardId": sh.id, "ShardIteratorType": "TRIM_HORIZON"}
		if sh.after != "" {
			in["ShardIteratorType"], in["SequenceNumber"] = "AFTER_SEQUENCE_NUMBER", sh.after
		}
		var out struct {
			ShardIterator string `json:"ShardIterator"`
		}
		if err := a.client.call(ctx, opGetIterator, in, &out); err != nil {
			return false, err
		}
		sh.iterator = out.ShardIterator
	}
	var out struct {
		Records []struct {
			Dynamodb struct {
				Keys, NewImage row
				SequenceNumber string
			} `json:"dynamodb"`
		}
		NextShardIterator string
	}
	in := map[string]any{"ShardIterator": sh.iterator, "Limit": recordsAtOnce}
	if err := a.client.call(ctx, opGetRecords, in, &out); err != nil {
		sh.iterator = "" // it may have expired; the next reading takes another
		return false, err
	}
	for _, r := range out.Records {
		p, err := place(number, r.Dynamodb.SequenceNumber)
		if err != nil {
			return false, err
		}
		if sh.after == "" || p.Compare(sh.last) > 0 {
			sh.last, sh.after, more = p, r.Dynamodb.SequenceNumber, true
		}
		if err := a.sight(p, r.Dynamodb.Keys, r.Dynamodb.NewImage); err != nil {
			return false, err
		}
	}
	sh.iterator, sh.ended = out.NextShardIterator, out.NextShardIterator == ""
	return more || sh.ended, nil
}

// sight notes the place of an event, or which change of its auction an operation was.
func (a *Auditor) sight(p eventstore.Position, keys, image row) error {
	if sk := keys["sk"].S; sk != nil && *sk == "META" && image != nil {
		return a.change(image)
	}
	if sk := keys["sk"].S; sk == nil || !strings.HasPrefix(*sk, "EVENT#") || image == nil {
		return nil
	}
	get := reader{row: image}
	text := get.text("id")
	if get.err != nil {
		return get.err
	}
	id, err := eventstore.ParseEventID(text)
	if err != nil {
		return err
	}
	if _, seen := a.stream.positions[id]; seen {
		return nil
	}
	a.stream.positions[id] = p
	if head, ok := a.stream.heads[p.Shard]; !ok || p.Compare(head) > 0 {
		a.stream.heads[p.Shard] = p
	}
	return nil
}

var errSequence = errors.New("audit: malformed sequence number")

// place splits a sequence number of up to 38 digits into its part above and below 10^19.
func place(number uint32, sequence string) (eventstore.Position, error) {
	p := eventstore.Position{Shard: number}
	digits := strings.TrimLeft(sequence, "0")
	high, low := "", digits
	if n := len(digits) - 19; n > 0 {
		high, low = digits[:n], digits[n:]
	}
	var ok1, ok2 bool
	p.Major, ok1 = decimal(high)
	p.Minor, ok2 = decimal(low)
	if digits == "" || !ok1 || !ok2 {
		return p, fmt.Errorf("%w: %q", errSequence, sequence)
	}
	return p, nil
}

// decimal reads digits, the empty text as 0.
func decimal(text string) (n uint64, ok bool) {
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return 0, false
		}
		carry, product := bits.Mul64(n, 10)
		if carry != 0 || product > math.MaxUint64-uint64(c-'0') {
			return 0, false
		}
		n = product + uint64(c-'0')
	}
	return n, true
}

// Heads implements targets.Sharded: the last event of every shard that has one.
func (a *Auditor) Heads(ctx context.Context) ([]eventstore.Position, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.read(ctx); err != nil {
		return nil, err
	}
	return slices.SortedFunc(maps.Values(a.stream.heads), eventstore.Position.Compare), nil
}

// Head implements targets.Auditor: the last event of the last shard that has one.
func (a *Auditor) Head(ctx context.Context) (eventstore.Position, error) {
	heads, err := a.Heads(ctx)
	if err != nil || len(heads) == 0 {
		return eventstore.Position{}, err
	}
	return heads[len(heads)-1], nil
}

// locate gives the events their positions. The streams follow the table: what is missing is waited for, within a bound.
// What is missing then stays without a position, for the rules to judge.
func (a *Auditor) locate(ctx context.Context, events []history.LoggedEvent) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for waited := time.Duration(0); ; waited += streamPause {
		if err := a.read(ctx); err != nil {
			return err
		}
		missing := false
		for i := range events {
			p, ok := a.stream.positions[events[i].ID]
			events[i].Position, missing = p, missing || !ok
		}
		if !missing || waited >= streamLag {
			return nil
		}
		if err := clock.Sleep(ctx, streamPause); err != nil {
			return fmt.Errorf("audit: waiting for the streams: %w", err)
		}
	}
}
