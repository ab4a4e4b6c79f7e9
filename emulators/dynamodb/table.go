package dynamodb

import "slices"

// Sizes of DynamoDB, in bytes.
const (
	maxItemSize     = 400 << 10
	maxPageSize     = 1 << 20
	maxTransactSize = 4 << 20
	maxBatchSize    = 16 << 20
	maxHashKeySize  = 2048
	maxRangeKeySize = 1024
)

// keySchema names the key attributes of a table or an index. An empty rng means that there is no sort key.
type keySchema struct {
	Hash  string `json:"hash"`
	Range string `json:"range,omitempty"`
}

func (k keySchema) names() []string {
	if k.Range == "" {
		return []string{k.Hash}
	}
	return []string{k.Hash, k.Range}
}

// definition is what CreateTable fixes. It is written to the log as it is.
type definition struct {
	Name       string            `json:"name"`
	ID         string            `json:"id"`
	Created    int64             `json:"created_ms"`
	Key        keySchema         `json:"key"`
	Attributes map[string]string `json:"attributes"`
	Indexes    []indexDefinition `json:"indexes,omitempty"`
	// View is the StreamViewType, empty for a table without stream.
	View   string `json:"stream_view,omitempty"`
	Label  string `json:"stream_label,omitempty"`
	Shards int    `json:"stream_shards,omitempty"`
	Billed string `json:"billing"`
	// Read and Write are the provisioned throughput. It is told, never enforced.
	Read  int64 `json:"read,omitempty"`
	Write int64 `json:"write,omitempty"`
}

type indexDefinition struct {
	Name       string    `json:"name"`
	Key        keySchema `json:"key"`
	Projection string    `json:"projection"`
	Include    []string  `json:"include,omitempty"`
}

// key is the place of an item in its table, in the ordered form of its key attributes.
type key struct{ hash, rng string }

func (k key) row() rowKey { return rowKey{sort: k.rng} }

// tie makes one string of a key, for the order of index rows. The length keeps apart what zero bytes inside the parts
// would mix up.
func (k key) tie() string { return k.hash + "\x00" + k.rng + "\x00" + itoa(len(k.hash)) }

type table struct {
	def     definition
	items   *collection
	indexes []*index
	stream  *stream // nil without one
	count   int
	bytes   int
}

type index struct {
	def  indexDefinition
	rows *collection
}

func newTable(def definition) *table {
	t := &table{def: def, items: newCollection()}
	for _, d := range def.Indexes {
		t.indexes = append(t.indexes, &index{d, newCollection()})
	}
	if def.View != "" {
		t.stream = newStream(def.Shards)
	}
	return t
}

func (t *table) get(k key, at int64) item { return t.items.get(k.hash, k.row(), at) }

// put makes it what the table and its indexes hold for the key, nil for nothing.
func (t *table) put(k key, it item, now, keep int64) {
	old := t.get(k, newest)
	if old != nil {
		t.count--
		t.bytes -= old.size()
	}
	if it != nil {
		t.count++
		t.bytes += it.size()
	}
	t.items.put(k.hash, k.row(), it, now, keep)
	for _, x := range t.indexes {
		oldHash, oldRow, was := x.place(k, old)
		newHash, newRow, is := x.place(k, it)
		if was && (!is || oldHash != newHash || oldRow != newRow) {
			x.rows.put(oldHash, oldRow, nil, now, keep)
		}
		if is {
			x.rows.put(newHash, newRow, x.projected(t.def.Key, it), now, keep)
		}
	}
}

// place returns where the index has an item of the table. An item without the attributes of the index is not in it.
func (x *index) place(k key, it item) (hash string, at rowKey, ok bool) {
	h, ok := it[x.def.Key.Hash]
	if !ok {
		return "", rowKey{}, false
	}
	at.tie = k.tie()
	if x.def.Key.Range != "" {
		r, ok := it[x.def.Key.Range]
		if !ok {
			return "", rowKey{}, false
		}
		at.sort = r.ordered()
	}
	return h.ordered(), at, true
}

func (x *index) projected(base keySchema, it item) item {
	if x.def.Projection == "ALL" {
		return it
	}
	out := item{}
	for _, name := range slices.Concat(base.names(), x.def.Key.names(), x.def.Include) {
		if v, ok := it[name]; ok {
			out[name] = v
		}
	}
	return out
}

func (t *table) index(name string) *index {
	for _, x := range t.indexes {
		if x.def.Name == name {
			return x
		}
	}
	return nil
}

// forgetAll drops the history of all rows.
func (t *table) forgetAll() {
	t.items.forgetAll()
	for _, x := range t.indexes {
		x.rows.forgetAll()
	}
}

// keyOf takes the key out of a whole item.
func (t *table) keyOf(it item) (key, *apiError) {
	for _, name := range t.def.Key.names() {
		if _, ok := it[name]; !ok {
			return key{}, invalidParam("Missing the key %s in the item", name)
		}
	}
	return t.encode(it)
}

// exactKey reads a Key parameter: the key attributes and nothing else.
func (t *table) exactKey(it item) (key, *apiError) {
	names := t.def.Key.names()
	if len(it) != len(names) {
		return key{}, invalid("The provided key element does not match the schema")
	}
	for _, name := range names {
		v, ok := it[name]
		if !ok || v.kind.String() != t.def.Attributes[name] {
			return key{}, invalid("The provided key element does not match the schema")
		}
	}
	return t.encode(it)
}

func (t *table) encode(it item) (key, *apiError) {
	var parts [2]string
	for i, name := range t.def.Key.names() {
		v := it[name]
		if want := t.def.Attributes[name]; v.kind.String() != want {
			return key{}, invalidParam("Type mismatch for key %s expected: %s actual: %s", name, want, v.kind)
		}
		if v.str == "" {
			return key{}, invalidParam("One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an empty %s value. Key: %s",
				map[kind]string{ //nolint:exhaustive // no other kind can be a key or empty
					kindS: "string", kindB: "binary"}[v.kind], name)
		}
		limit, what := maxHashKeySize, "hashkey"
		if i == 1 {
			limit, what = maxRangeKeySize, "rangekey"
		}
		if len(v.str) > limit {
			return key{}, invalidParam("Size of %s has exceeded the maximum size limit of%d bytes", what, limit)
		}
		parts[i] = v.ordered()
	}
	return key{parts[0], parts[1]}, nil
}

// check refuses an item that can't be stored: its size, its depth, or attributes that an index needs otherwise.
func (t *table) check(it item) *apiError {
	for _, v := range it {
		if v.depth() > maxDepth {
			return invalid("Nesting Levels have exceeded supported limits: Attributes in the item have nested levels beyond supported limit")
		}
	}
	if it.size() > maxItemSize {
		return invalid("Item size has exceeded the maximum allowed size")
	}
	for _, x := range t.indexes {
		for _, name := range x.def.Key.names() {
			v, ok := it[name]
			if !ok {
				continue
			}
			if want := t.def.Attributes[name]; v.kind.String() != want {
				return invalidParam("Type mismatch for Index Key %s Expected: %s Actual: %s IndexName: %s", name, want, v.kind, x.def.Name)
			}
			if v.str == "" {
				return invalidParam("One or more parameter values are not valid. A value specified for a secondary index key is not supported. The AttributeValue for a key attribute cannot contain an empty string value. IndexName: %s, IndexKey: %s", x.def.Name, name)
			}
		}
	}
	return nil
}

// keyAttributes are those of the table's key in an item.
func (t *table) keyAttributes(it item) item {
	out := item{}
	for _, name := range t.def.Key.names() {
		out[name] = it[name]
	}
	return out
}
