package dynamodb

import (
	"context"
	"slices"
)

// Limits of batches.
const (
	maxBatchGet   = 100
	maxBatchWrite = 25
)

type batchWriteRequest struct {
	PutRequest *struct {
		Item item
	} `json:",omitempty"`
	DeleteRequest *struct {
		Key item
	} `json:",omitempty"`
}

type batchWriteInput struct {
	accounting
	RequestItems map[string][]batchWriteRequest
}

func (in *batchWriteInput) tableNames() []string { return sortedKeys(in.RequestItems) }

func (s *Server) batchWrite(_ context.Context, r *request, in *batchWriteInput) (any, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	type entry struct {
		operation
		req batchWriteRequest
	}
	var all []entry
	for _, name := range sortedKeys(in.RequestItems) {
		if len(in.RequestItems[name]) == 0 {
			return nil, invalid("1 validation error detected: Value at 'requestItems' failed to satisfy constraint: Map value must satisfy constraint: [Member must have length greater than or equal to 1]: %s", name)
		}
		for _, q := range in.RequestItems[name] {
			e := entry{req: q}
			switch {
			case (q.PutRequest == nil) == (q.DeleteRequest == nil):
				return nil, invalid("Supplied AttributeValue has more than one datatypes set, must contain exactly one of the supported datatypes: a write request is either a put or a delete")
			case q.PutRequest != nil:
				e.intent = intent{table: name, put: nonNil(q.PutRequest.Item)}
			default:
				e.intent = intent{table: name, key: q.DeleteRequest.Key, delete: true}
			}
			all = append(all, e)
		}
	}
	if len(all) == 0 {
		return nil, invalid("1 validation error detected: Value '{}' at 'requestItems' failed to satisfy constraint: Member must have length greater than or equal to 1")
	}
	if len(all) > maxBatchWrite {
		return nil, invalid("Too many items requested for the BatchWriteItem call")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[itemID]bool{}
	size := 0
	for i := range all {
		e := &all[i]
		var err *apiError
		if e.t, err = s.table(e.table); err != nil {
			return nil, err
		}
		if e.k, err = e.locate(e.t); err != nil {
			return nil, err
		}
		e.id = itemID{e.table, e.k}
		if seen[e.id] {
			return nil, invalid("Provided list of item keys contains duplicates")
		}
		seen[e.id] = true
		size += e.put.size()
	}
	if size > maxBatchSize {
		return nil, invalid("Item size to update has exceeded the maximum allowed size: the items of the batch have %d bytes", size)
	}
	left := s.leaveOut(r, len(all))
	unprocessed := map[string][]batchWriteRequest{}
	for i, e := range all {
		if _, hit := s.switches.hit(Conflict, r); hit || left[i] || s.held[e.id] {
			unprocessed[e.table] = append(unprocessed[e.table], e.req)
			continue
		}
		if _, hit := s.switches.hit(BadLoseWrite, r); hit {
			continue
		}
		// Each item is a write of its own: a batch is not atomic.
		if err := s.write([]change{{e.t, e.k, e.t.get(e.k, newest), e.put}}, nil); err != nil {
			return nil, err
		}
	}
	return map[string]any{"UnprocessedItems": unprocessed}, nil
}

// leaveOut picks the requests of a batch that are not processed: none without a fault, else at least one.
func (s *Server) leaveOut(r *request, n int) []bool {
	out := make([]bool, n)
	f, hit := s.switches.hit(Unprocessed, r)
	if !hit {
		return out
	}
	for _, i := range f.rand.Perm(n)[:1+f.rand.IntN(n)] {
		out[i] = true
	}
	return out
}

type keysAndAttributes struct {
	Keys                     []item            `json:"Keys"`
	ConsistentRead           bool              `json:"ConsistentRead,omitempty"`
	ProjectionExpression     *string           `json:"ProjectionExpression,omitempty"`
	ExpressionAttributeNames map[string]string `json:"ExpressionAttributeNames,omitempty"`
}

type batchGetInput struct {
	accounting
	RequestItems map[string]keysAndAttributes
}

func (in *batchGetInput) tableNames() []string { return sortedKeys(in.RequestItems) }

func (s *Server) batchGet(_ context.Context, r *request, in *batchGetInput) (any, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	type entry struct {
		operation
		shown []path
	}
	var all []entry
	for _, name := range sortedKeys(in.RequestItems) {
		q := in.RequestItems[name]
		if len(q.Keys) == 0 {
			return nil, invalid("1 validation error detected: Value at 'requestItems.%s.member.keys' failed to satisfy constraint: Member must have length greater than or equal to 1", name)
		}
		shown, err := getSpec{ProjectionExpression: q.ProjectionExpression, ExpressionAttributeNames: q.ExpressionAttributeNames}.projection()
		if err != nil {
			return nil, err
		}
		for _, k := range q.Keys {
			all = append(all, entry{operation{intent: intent{table: name, key: k}}, shown})
		}
	}
	if len(all) == 0 {
		return nil, invalid("1 validation error detected: Value '{}' at 'requestItems' failed to satisfy constraint: Member must have length greater than or equal to 1")
	}
	if len(all) > maxBatchGet {
		return nil, invalid("Too many items requested for the BatchGetItem call")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[itemID]bool{}
	for i := range all {
		e := &all[i]
		var err *apiError
		if e.t, err = s.table(e.table); err != nil {
			return nil, err
		}
		if e.k, err = e.t.exactKey(e.key); err != nil {
			return nil, err
		}
		e.id = itemID{e.table, e.k}
		if seen[e.id] {
			return nil, invalid("Provided list of item keys contains duplicates")
		}
		seen[e.id] = true
	}
	left := s.leaveOut(r, len(all))
	responses := map[string][]item{}
	unprocessed := map[string]keysAndAttributes{}
	size := 0
	for i, e := range all {
		var it item
		if !left[i] {
			it = e.t.get(e.k, s.readTime(r, in.RequestItems[e.table].ConsistentRead))
			size += it.size()
		}
		if left[i] || size > maxBatchSize {
			u := in.RequestItems[e.table]
			u.Keys = append(slices.Clip(unprocessed[e.table].Keys), e.key)
			unprocessed[e.table] = u
			continue
		}
		if responses[e.table] == nil {
			responses[e.table] = []item{}
		}
		if it != nil {
			responses[e.table] = append(responses[e.table], shownPart(it, e.shown))
		}
	}
	return map[string]any{"Responses": responses, "UnprocessedKeys": unprocessed}, nil
}
