package dynamodb

import (
	"hash/fnv"
	"math/big"
)

// stream is the change log of one table: shards with records in the order of their sequence numbers. An item always
// goes to the same shard, until its shard is split; items of one partition need not share one.
type stream struct {
	shards []*shard // by number
	open   []int    // the numbers of the shards that take records now
	last   uint64   // the last sequence number of the table
}

// shard is closed when last is not 0. Sequence numbers here are without their base, from 1 in each table.
type shard struct {
	number  int
	parent  int // -1 for none
	first   uint64
	last    uint64
	records []streamRecord
}

type streamRecord struct {
	seq      uint64
	at       int64 // ms of wall-clock time
	keys     item
	old, new item
}

func newStream(shards int) *stream {
	s := &stream{}
	for i := range shards {
		s.shards = append(s.shards, &shard{number: i, parent: -1, first: 1})
		s.open = append(s.open, i)
	}
	return s
}

// shardOf returns the number of the shard that takes a record of the item.
func (s *stream) shardOf(k key) int {
	h := fnv.New32a()
	h.Write([]byte(k.tie()))
	x := h.Sum32()
	return s.open[(x^x>>15)%uint32(len(s.open))]
}

// add appends a record to a shard.
func (s *stream) add(shard int, r streamRecord) {
	s.last = r.seq
	s.shards[shard].records = append(s.shards[shard].records, r)
}

// split closes every open shard and opens a child for each.
func (s *stream) split() {
	// The split takes a number of its own, so that an empty shard too ends after it began.
	s.last++
	for i, n := range s.open {
		parent := s.shards[n]
		parent.last = s.last
		child := &shard{number: len(s.shards), parent: n, first: s.last + 1}
		s.shards = append(s.shards, child)
		s.open[i] = child.number
	}
}

// sequenceBase makes sequence numbers as long as the real ones, and longer than 64 bits, so that nobody gets away with
// an int64: 10 × 10^19.
var sequenceBase, _ = new(big.Int).SetString("100000000000000000000", 10)

// sequenceText is the sequence number that the outside sees.
func sequenceText(seq uint64) string {
	n := new(big.Int).SetUint64(seq)
	return n.Add(n, sequenceBase).String()
}

func parseSequence(text string) (uint64, bool) {
	n, ok := new(big.Int).SetString(text, 10)
	if !ok {
		return 0, false
	}
	n.Sub(n, sequenceBase)
	return n.Uint64(), n.IsUint64()
}
