package dynamodb

import (
	"context"
	"iter"
	"math/bits"
	"slices"
	"sort"
)

type getInput struct {
	accounting
	getSpec
	ConsistentRead bool
}

func (in *getInput) tableNames() []string { return []string{in.TableName} }

// readTime is the time whose state a read sees: the present, unless it may be stale and a fault makes it so.
func (s *Server) readTime(r *request, consistent bool) int64 {
	if consistent {
		return newest
	}
	f, hit := s.switches.hit(StaleRead, r)
	if !hit || s.keep == newest {
		return newest
	}
	lag := f.rand.Int64N(int64(f.Lag)) + 1
	return max(s.clock.Now()-lag, s.keep)
}

func (s *Server) getItem(_ context.Context, r *request, in *getInput) (any, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	shown, bad := in.projection()
	if bad != nil {
		return nil, bad
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, bad := s.table(in.TableName)
	if bad != nil {
		return nil, bad
	}
	k, bad := t.exactKey(in.Key)
	if bad != nil {
		return nil, bad
	}
	it := t.get(k, s.readTime(r, in.ConsistentRead))
	if it == nil {
		return struct{}{}, nil
	}
	return map[string]item{"Item": shownPart(it, shown)}, nil
}

// pageInput are the parameters that Query and Scan share.
type pageInput struct {
	accounting
	TableName                 string
	IndexName                 *string
	FilterExpression          *string
	ProjectionExpression      *string
	ExpressionAttributeNames  map[string]string
	ExpressionAttributeValues map[string]value
	Limit                     *int
	ExclusiveStartKey         item
	ConsistentRead            bool
	Select                    string
}

type queryInput struct {
	pageInput
	KeyConditionExpression *string
	ScanIndexForward       *bool
}

type scanInput struct {
	pageInput
	Segment       *int
	TotalSegments *int
}

func (in *queryInput) tableNames() []string { return []string{in.TableName} }
func (in *scanInput) tableNames() []string  { return []string{in.TableName} }

// page is a parsed Query or Scan, beside its table.
type page struct {
	in     pageInput
	filter condition
	// filtered are the paths in the filter.
	filtered []path
	shown    []path

	t    *table
	x    *index // nil for the table itself
	rows *collection
	key  keySchema // of what is read
	at   int64
}

// parse reads the expressions, after which the scope must have no unused placeholder.
func (in pageInput) parse(sc *scope) (*page, *apiError) {
	if err := in.check(); err != nil {
		return nil, err
	}
	if in.Limit != nil && *in.Limit < 1 {
		return nil, invalid("1 validation error detected: Value '%d' at 'limit' failed to satisfy constraint: Member must have value greater than or equal to 1", *in.Limit)
	}
	p := &page{in: in}
	var err *apiError
	if in.FilterExpression != nil {
		if p.filter, p.filtered, err = parseCondition("FilterExpression", *in.FilterExpression, sc); err != nil {
			return nil, err
		}
	}
	if in.ProjectionExpression != nil {
		if p.shown, err = parseProjection(*in.ProjectionExpression, sc); err != nil {
			return nil, err
		}
	}
	switch in.Select {
	case "":
	case "ALL_ATTRIBUTES", "ALL_PROJECTED_ATTRIBUTES", "COUNT":
		if p.shown != nil {
			return nil, invalid("Cannot specify the ProjectionExpression when choosing to get %s", in.Select)
		}
	case "SPECIFIC_ATTRIBUTES":
		if p.shown == nil {
			return nil, invalid("Must specify the ProjectionExpression when choosing to get SPECIFIC_ATTRIBUTES")
		}
	default:
		return nil, invalid("Member must satisfy enum value set: [SPECIFIC_ATTRIBUTES, COUNT, ALL_ATTRIBUTES, ALL_PROJECTED_ATTRIBUTES]: select %q", in.Select)
	}
	if in.Select == "ALL_PROJECTED_ATTRIBUTES" && in.IndexName == nil {
		return nil, invalidParam("ALL_PROJECTED_ATTRIBUTES can be used only when Querying using an IndexName")
	}
	return p, sc.unused()
}

// bind finds the table and index. The caller holds the mutex.
func (s *Server) bind(r *request, p *page) *apiError {
	t, err := s.table(p.in.TableName)
	if err != nil {
		return err
	}
	p.t, p.rows, p.key = t, t.items, t.def.Key
	if p.in.IndexName != nil {
		if p.x = t.index(*p.in.IndexName); p.x == nil {
			return invalid("The table does not have the specified index: %s", *p.in.IndexName)
		}
		if p.in.ConsistentRead {
			return invalid("Consistent reads are not supported on global secondary indexes")
		}
		p.rows, p.key = p.x.rows, p.x.def.Key
		if p.in.Select == "ALL_ATTRIBUTES" && p.x.def.Projection != "ALL" {
			return invalidParam("Select type ALL_ATTRIBUTES is not supported for global secondary index %s because its projection type is not ALL", p.x.def.Name)
		}
		for _, shown := range p.shown {
			if !p.x.holds(t.def.Key, shown[0].name) {
				return invalidParam("Global secondary index %s does not project [%s]", p.x.def.Name, shown[0].name)
			}
		}
	}
	p.at = s.readTime(r, p.in.ConsistentRead)
	return nil
}

// holds reports whether the index has the attribute.
func (x *index) holds(base keySchema, name string) bool {
	return x.def.Projection == "ALL" || slices.Contains(slices.Concat(base.names(), x.def.Key.names(), x.def.Include), name)
}

// keyNames are the attributes of a LastEvaluatedKey.
func (p *page) keyNames() []string {
	names := p.t.def.Key.names()
	if p.x != nil {
		for _, n := range p.x.def.Key.names() {
			if !slices.Contains(names, n) {
				names = append(names, n)
			}
		}
	}
	return names
}

// start reads the ExclusiveStartKey: the partition and row it stands for.
func (p *page) start() (hash string, at rowKey, err *apiError) {
	names := p.keyNames()
	it := p.in.ExclusiveStartKey
	for _, n := range names {
		if v, ok := it[n]; !ok || v.kind.String() != p.t.def.Attributes[n] {
			return "", rowKey{}, invalid("The provided starting key is invalid: The provided key element does not match the schema")
		}
	}
	if len(it) != len(names) {
		return "", rowKey{}, invalid("The provided starting key is invalid: The provided key element does not match the schema")
	}
	k, err := p.t.encode(it)
	if err != nil {
		return "", rowKey{}, err
	}
	if p.x == nil {
		return k.hash, k.row(), nil
	}
	hash, at, _ = p.x.place(k, it)
	return hash, at, nil
}

type pageOutput struct {
	Items            *[]item `json:"Items,omitempty"`
	Count            int
	ScannedCount     int
	LastEvaluatedKey item `json:"LastEvaluatedKey,omitempty"`
}

// read takes a page of the rows.
func (p *page) read(rows iter.Seq[*row]) pageOutput {
	items := []item{}
	var out pageOutput
	var last item
	size := 0
	for r := range rows {
		it := r.at(p.at)
		if it == nil {
			continue
		}
		if size += it.size(); size > maxPageSize && out.ScannedCount > 0 {
			out.LastEvaluatedKey = p.lastKey(last)
			break
		}
		out.ScannedCount++
		last = it
		if p.filter == nil || p.filter.holds(it) {
			out.Count++
			items = append(items, shownPart(it, p.shown))
		}
		if p.in.Limit != nil && out.ScannedCount == *p.in.Limit {
			// Whether more follows is not looked at: an exact multiple of the limit ends with an empty page.
			out.LastEvaluatedKey = p.lastKey(last)
			break
		}
	}
	if p.in.Select != "COUNT" {
		out.Items = &items
	}
	return out
}

func (p *page) lastKey(it item) item {
	out := item{}
	for _, n := range p.keyNames() {
		out[n] = it[n]
	}
	return out
}

func (s *Server) query(_ context.Context, r *request, in *queryInput) (any, error) {
	sc := newScope(in.ExpressionAttributeNames, in.ExpressionAttributeValues)
	if in.KeyConditionExpression == nil {
		return nil, invalid("Either the KeyConditions or KeyConditionExpression parameter must be specified in the request.")
	}
	where, _, bad := parseCondition("KeyConditionExpression", *in.KeyConditionExpression, sc)
	if bad != nil {
		return nil, bad
	}
	p, bad := in.parse(sc)
	if bad != nil {
		return nil, bad
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.bind(r, p); err != nil {
		return nil, err
	}
	for _, f := range p.filtered {
		if slices.Contains(p.key.names(), f[0].name) {
			return nil, invalid("Filter Expression can only contain non-primary key attributes: Primary key attribute: %s", f[0].name)
		}
	}
	rng, bad := p.keyRange(where)
	if bad != nil {
		return nil, bad
	}
	rows := p.rows.rowsOf(rng)
	backward := in.ScanIndexForward != nil && !*in.ScanIndexForward
	if in.ExclusiveStartKey != nil {
		hash, at, bad := p.start()
		if bad != nil {
			return nil, bad
		}
		if hash != rng.hash || !rng.holds(at.sort) {
			return nil, invalid("The provided starting key is outside query boundaries based on provided conditions")
		}
		if backward {
			rows = rows[:sort.Search(len(rows), func(i int) bool { return rows[i].key.compare(at) >= 0 })]
		} else {
			rows = rows[sort.Search(len(rows), func(i int) bool { return rows[i].key.compare(at) > 0 }):]
		}
	}
	if backward {
		return p.read(func(yield func(*row) bool) {
			for i := len(rows) - 1; i >= 0 && yield(rows[i]); i-- {
				continue
			}
		}), nil
	}
	return p.read(slices.Values(rows)), nil
}

func (s *Server) scan(_ context.Context, r *request, in *scanInput) (any, error) {
	segment, segments := 0, 1
	if (in.Segment == nil) != (in.TotalSegments == nil) {
		return nil, invalid("The TotalSegments parameter is required when Segment is present in the request, and the other way round")
	}
	if in.Segment != nil {
		segment, segments = *in.Segment, *in.TotalSegments
		if segments < 1 || segments > 1_000_000 || segment < 0 || segment >= segments {
			return nil, invalid("The Segment parameter is zero-based and must be less than parameter TotalSegments: Segment: %d is not less than TotalSegments: %d", segment, segments)
		}
	}
	if in.FilterExpression == nil && in.ExpressionAttributeValues != nil {
		return nil, invalid("ExpressionAttributeValues can only be specified when using expressions: FilterExpression is null")
	}
	p, bad := in.parse(newScope(in.ExpressionAttributeNames, in.ExpressionAttributeValues))
	if bad != nil {
		return nil, bad
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.bind(r, p); err != nil {
		return nil, err
	}
	parts := p.rows.partitions()
	var after rowKey
	var resumed string
	if in.ExclusiveStartKey != nil {
		hash, at, bad := p.start()
		if bad != nil {
			return nil, bad
		}
		if segmentOf(place(hash), segments) != segment {
			return nil, invalid("The provided starting key is invalid: it is not in the segment")
		}
		first := &partition{hash: hash, place: place(hash)}
		parts = parts[sort.Search(len(parts), func(i int) bool { return comparePartitions(parts[i], first) >= 0 }):]
		after, resumed = at, hash
	}
	return p.read(func(yield func(*row) bool) {
		for _, part := range parts {
			if segmentOf(part.place, segments) != segment {
				continue
			}
			rows := part.rows
			if in.ExclusiveStartKey != nil && part.hash == resumed {
				rows = rows[sort.Search(len(rows), func(i int) bool { return rows[i].key.compare(after) > 0 }):]
			}
			for _, r := range rows {
				if !yield(r) {
					return
				}
			}
		}
	}), nil
}

// segmentOf divides the places of partitions evenly.
func segmentOf(place uint64, segments int) int {
	hi, _ := bits.Mul64(place, uint64(segments))
	return int(hi)
}
