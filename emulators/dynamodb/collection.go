package dynamodb

import (
	"cmp"
	"hash/fnv"
	"math"
	"slices"
	"strings"
)

// newest is the time to read at for the present.
const newest = math.MaxInt64

// collection holds items by hash key, and in a partition by sort key: a table, or one of its indexes.
type collection struct {
	parts map[string]*partition
	// sorted and fresh hold the partitions in the order of a scan, and those made since the last scan.
	sorted, fresh []*partition
}

type partition struct {
	hash string
	// place is where a scan meets the partition.
	place uint64
	rows  []*row
}

// rowKey orders the rows of a partition. In an index, tie is the key in the table: index keys need not be unique.
type rowKey struct{ sort, tie string }

func (k rowKey) compare(o rowKey) int {
	if c := strings.Compare(k.sort, o.sort); c != 0 {
		return c
	}
	return strings.Compare(k.tie, o.tie)
}

// row is what one key held over time, as far back as somebody wants to know.
type row struct {
	key      rowKey
	versions []version // the newest is the last
}

// version is what a key holds since at; a nil item is a deleted one.
type version struct {
	at int64
	it item
}

// at returns the item at the time, nil if there was none.
func (r *row) at(t int64) item {
	for i := len(r.versions) - 1; i >= 0; i-- {
		if r.versions[i].at <= t {
			return r.versions[i].it
		}
	}
	return nil
}

func newCollection() *collection { return &collection{parts: map[string]*partition{}} }

// get returns an item, nil if there is none.
func (c *collection) get(hash string, k rowKey, at int64) item {
	p := c.parts[hash]
	if p == nil {
		return nil
	}
	i, ok := p.find(k)
	if !ok {
		return nil
	}
	return p.rows[i].at(at)
}

func (p *partition) find(k rowKey) (int, bool) {
	// Events come in the order of their keys: look at the end first.
	if n := len(p.rows); n > 0 && p.rows[n-1].key.compare(k) < 0 {
		return n, false
	}
	return slices.BinarySearchFunc(p.rows, k, func(r *row, k rowKey) int { return r.key.compare(k) })
}

// put makes it what the key holds from now on, nil for nothing. Versions that ended before keep are forgotten.
func (c *collection) put(hash string, k rowKey, it item, now, keep int64) {
	p := c.parts[hash]
	if p == nil {
		if it == nil {
			return
		}
		p = &partition{hash: hash, place: place(hash)}
		c.parts[hash] = p
		c.fresh = append(c.fresh, p)
	}
	i, found := p.find(k)
	if !found {
		if it == nil {
			return
		}
		p.rows = slices.Insert(p.rows, i, &row{key: k})
	}
	r := p.rows[i]
	r.versions = append(r.versions, version{now, it})
	c.forget(p, i, keep)
}

// forget drops the versions of a row that nobody can ask for any more, and the row when nothing is left of it.
func (c *collection) forget(p *partition, i int, keep int64) {
	r := p.rows[i]
	first := 0
	for first < len(r.versions)-1 && r.versions[first+1].at <= keep {
		first++
	}
	r.versions = slices.Delete(r.versions, 0, first)
	if len(r.versions) > 1 || r.versions[0].it != nil {
		return
	}
	p.rows = slices.Delete(p.rows, i, i+1)
	if len(p.rows) == 0 {
		delete(c.parts, p.hash)
	}
}

// forgetAll drops all history.
func (c *collection) forgetAll() {
	for _, p := range c.parts {
		for i := len(p.rows) - 1; i >= 0; i-- {
			c.forget(p, i, newest)
		}
	}
}

// partitions returns all partitions in the order of a scan, which is that of a hash.
func (c *collection) partitions() []*partition {
	if len(c.fresh) == 0 {
		return c.sorted
	}
	slices.SortFunc(c.fresh, comparePartitions)
	merged := make([]*partition, 0, len(c.parts))
	a, b := c.sorted, c.fresh
	for len(a) > 0 || len(b) > 0 {
		from := &a
		if len(a) == 0 || len(b) > 0 && comparePartitions(b[0], a[0]) < 0 {
			from = &b
		}
		// A partition that ran empty has left the map, and may be in it again as another.
		if p := (*from)[0]; c.parts[p.hash] == p {
			merged = append(merged, p)
		}
		*from = (*from)[1:]
	}
	c.sorted, c.fresh = merged, nil
	return merged
}

func comparePartitions(a, b *partition) int {
	if o := cmp.Compare(a.place, b.place); o != 0 {
		return o
	}
	return strings.Compare(a.hash, b.hash)
}

func place(hash string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(hash))
	// The low bits of FNV are good, its high bits are not for short keys.
	x := h.Sum64()
	x ^= x >> 32
	x *= 0x9e3779b97f4a7c15
	return x ^ x>>29
}
