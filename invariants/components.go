package invariants

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"slices"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
)

// components divides the streams of a history into groups that have nothing to do with each other: no command, event,
// call, write, attempt or read of one group is named by a record of another. What a rule asks of one stream, or of what
// shares an id, it may then ask of each group alone.
type components struct {
	seed    maphash.Seed
	streams map[string]int32
	parent  []int32 // union-find over streams
	weight  []int64 // records, by stream
	// ids holds the stream that a call, write, attempt or read was first seen with, plus one. A record that names one
	// joins its own stream to that, in whatever order both come. They share one count in a process; ids of a hostile file
	// that do not only join what could be apart.
	ids byID[int32]
	// named is the same for events and commands, by a hash: two of them with one hash only join what could be apart.
	named map[uint64]int32
	parts []int32 // by stream, once dealt out
}

func newComponents() *components {
	return &components{seed: maphash.MakeSeed(), streams: map[string]int32{}, named: map[uint64]int32{}}
}

func (c *components) stream(name string) int32 {
	s, ok := c.streams[name]
	if !ok {
		s = int32(len(c.parent))
		c.streams[name] = s
		c.parent, c.weight = append(c.parent, s), append(c.weight, 0)
	}
	return s
}

func (c *components) root(s int32) int32 {
	for c.parent[s] != s {
		c.parent[s] = c.parent[c.parent[s]]
		s = c.parent[s]
	}
	return s
}

func (c *components) join(a, b int32) {
	if a, b = c.root(a), c.root(b); a != b {
		c.parent[max(a, b)] = min(a, b)
	}
}

// meet notes that an id has to do with a stream.
func (c *components) meet(id uint64, s int32) {
	switch at := c.ids.get(id); {
	case id == 0:
	case at == 0:
		c.ids.set(id, s+1)
	default:
		c.join(at-1, s)
	}
}

// of returns the stream of what carries no stream's name but an id. One that nobody has recorded yet is kept with the
// stream without a name, until a record says more.
func (c *components) of(id uint64) int32 {
	if at := c.ids.get(id); at != 0 {
		return at - 1
	}
	s := c.stream("")
	c.meet(id, s)
	return s
}

func (c *components) event(id eventstore.EventID, s int32) {
	c.name(binary.LittleEndian.Uint64(id[:8])^maphash.Bytes(c.seed, id[8:]), s)
}

func (c *components) command(id string, s int32) {
	if id != "" {
		c.name(maphash.String(c.seed, id), s)
	}
}

func (c *components) name(hash uint64, s int32) {
	if at, ok := c.named[hash]; ok {
		c.join(at, s)
		return
	}
	c.named[hash] = s
}

// noStream is where a record belongs that is about the run, and not about any stream.
const noStream = int32(-1)

// place returns the stream that a record belongs to, or noStream.
func (c *components) place(rec history.Record) int32 {
	switch rec := rec.(type) {
	case *history.CallStart:
		return c.stream(rec.Stream)
	case *history.CallEnd:
		return c.of(rec.Call)
	case *history.Write:
		return c.stream(rec.Stream)
	case *history.Invoke:
		return c.of(rec.Write)
	case *history.Return:
		return c.of(rec.Attempt)
	case *history.Evidence:
		return c.of(rec.Write)
	case *history.Read:
		return c.stream(rec.Stream)
	case *history.SnapshotWrite:
		return c.stream(rec.Stream)
	case *history.LoggedEvent:
		return c.stream(rec.Stream)
	case *history.LedgerRow:
		return c.stream(rec.Stream)
	case *history.AuctionRow:
		return c.stream(rec.Stream)
	case *history.HeadRow:
		return c.stream(rec.Stream)
	}
	return noStream
}

// add joins what a record brings together.
func (c *components) add(rec history.Record) {
	s := c.place(rec)
	if s == noStream {
		return
	}
	c.weight[s]++
	switch rec := rec.(type) {
	case *history.CallStart:
		c.meet(rec.Call, s)
		c.command(rec.CommandID, s)
	case *history.CallEnd:
		c.meet(rec.Decision.Read, s)
		for _, id := range rec.Events {
			c.event(id, s)
		}
	case *history.Write:
		c.meet(rec.Write, s)
		c.meet(rec.Call, s)
		c.meet(rec.Decision.Read, s)
		for _, e := range rec.Events {
			c.event(e.ID, s)
		}
	case *history.Invoke:
		c.meet(rec.Attempt, s)
	case *history.Return:
		for _, id := range rec.Events {
			c.event(id, s)
		}
	case *history.Evidence:
		c.meet(rec.Call, s)
		c.meet(rec.Read, s)
	case *history.Read:
		c.meet(rec.Read, s)
		c.meet(rec.Call, s)
	case *history.LoggedEvent:
		c.event(rec.ID, s)
		c.command(rec.Meta.CommandID, s)
	case *history.LedgerRow:
		c.event(rec.Event, s)
	}
}

// deal divides the groups among parts of about the same number of records and returns how many parts there are: at
// most n, fewer if there are fewer groups. What was only needed to find the groups is given up.
func (c *components) deal(n int) int {
	c.named = nil
	weights := map[int32]int64{}
	for s := range c.parent {
		weights[c.root(int32(s))] += c.weight[s]
	}
	groups := make([]int32, 0, len(weights))
	for root := range weights {
		groups = append(groups, root)
	}
	slices.SortFunc(groups, func(a, b int32) int {
		return cmp.Or(cmp.Compare(weights[b], weights[a]), cmp.Compare(a, b))
	})
	load := make([]int64, max(1, min(n, len(groups))))
	part := map[int32]int32{}
	for _, g := range groups {
		least := 0
		for i := range load {
			if load[i] < load[least] {
				least = i
			}
		}
		load[least] += weights[g]
		part[g] = int32(least)
	}
	c.parts = make([]int32, len(c.parent))
	for s := range c.parent {
		c.parts[s] = part[c.root(int32(s))]
	}
	return len(load)
}

// part returns the part that a record belongs to; every is true for what belongs to each of them. The history must be
// the one that was added.
func (c *components) part(rec history.Record) (p int32, every bool) {
	s := c.place(rec)
	if s == noStream {
		return 0, true
	}
	return c.parts[s], false
}
