package dynamodb

import (
	"context"
	"maps"
	"slices"
)

const opTransactWrite = "TransactWriteItems"

// expressions are the parameters that all writes share.
type expressions struct {
	ConditionExpression                 *string
	ExpressionAttributeNames            map[string]string
	ExpressionAttributeValues           map[string]value
	ReturnValuesOnConditionCheckFailure string
}

// accounting are parameters of capacity accounting, which the emulator does not do.
type accounting struct {
	ReturnConsumedCapacity      string
	ReturnItemCollectionMetrics string
}

func (a accounting) check() *apiError {
	for _, v := range []string{a.ReturnConsumedCapacity, a.ReturnItemCollectionMetrics} {
		if v != "" && v != "NONE" {
			return invalid("The emulator does not account capacity: ReturnConsumedCapacity and ReturnItemCollectionMetrics must be NONE")
		}
	}
	return nil
}

type putInput struct {
	expressions
	accounting
	TableName    string
	Item         item
	ReturnValues string
}

type deleteInput struct {
	expressions
	accounting
	TableName    string
	Key          item
	ReturnValues string
}

type updateInput struct {
	expressions
	accounting
	TableName        string
	Key              item
	UpdateExpression *string
	ReturnValues     string
}

func (in *putInput) tableNames() []string    { return []string{in.TableName} }
func (in *deleteInput) tableNames() []string { return []string{in.TableName} }
func (in *updateInput) tableNames() []string { return []string{in.TableName} }

// intent is a write of one item, parsed but not yet put beside a table.
type intent struct {
	table string
	// Exactly one of these says what to do; none is a check of a condition only, or a delete.
	put    item
	key    item
	delete bool
	update *update

	condition condition // nil for none
	showOld   bool      // the item that a failed condition saw is returned
}

// parseIntent makes an intent of a write's parameters.
func parseIntent(in intent, e expressions, updateText *string) (intent, *apiError) {
	sc := newScope(e.ExpressionAttributeNames, e.ExpressionAttributeValues)
	if e.ConditionExpression == nil && updateText == nil && (e.ExpressionAttributeNames != nil || e.ExpressionAttributeValues != nil) {
		return in, invalid("ExpressionAttributeNames and ExpressionAttributeValues can only be specified when using expressions")
	}
	var err *apiError
	if updateText != nil {
		if in.update, err = parseUpdate(*updateText, sc); err != nil {
			return in, err
		}
	}
	if e.ConditionExpression != nil {
		if in.condition, _, err = parseCondition("ConditionExpression", *e.ConditionExpression, sc); err != nil {
			return in, err
		}
	}
	switch e.ReturnValuesOnConditionCheckFailure {
	case "", "NONE":
	case "ALL_OLD":
		in.showOld = true
	default:
		return in, invalid("Member must satisfy enum value set: [ALL_OLD, NONE]: returnValuesOnConditionCheckFailure %q", e.ReturnValuesOnConditionCheckFailure)
	}
	return in, sc.unused()
}

// locate finds the item's place, and checks what can be checked without knowing what is there.
func (in intent) locate(t *table) (key, *apiError) {
	if in.put != nil {
		k, err := t.keyOf(in.put)
		if err != nil {
			return k, err
		}
		return k, t.check(in.put)
	}
	if in.update != nil {
		for _, p := range in.update.paths() {
			if slices.Contains(t.def.Key.names(), p[0].name) {
				return key{}, invalidParam("Cannot update attribute %s. This attribute is part of the key", p[0].name)
			}
		}
	}
	return t.exactKey(in.key)
}

// evaluate returns the item after the write, nil for none; old is nil if there is none.
func (in intent) evaluate(t *table, old item, skipCondition bool) (item, *apiError) {
	if in.condition != nil && !skipCondition && !in.condition.holds(old) {
		e := fault(excConditionFailed, "The conditional request failed")
		if in.showOld {
			e.item = old
		}
		return nil, e
	}
	switch {
	case in.put != nil:
		return in.put, nil
	case in.delete:
		return nil, nil
	case in.update == nil:
		return old, nil
	}
	base := old
	if base == nil {
		base = maps.Clone(in.key)
	}
	next, err := in.update.apply(base)
	if err != nil {
		return nil, err
	}
	return next, t.check(next)
}

// writeOne executes a write that stands alone, and returns the item before and after it.
func (s *Server) writeOne(r *request, in intent) (before, after item, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, bad := s.table(in.table)
	if bad != nil {
		return nil, nil, bad
	}
	k, bad := in.locate(t)
	if bad != nil {
		return nil, nil, bad
	}
	if s.held[itemID{in.table, k}] {
		return nil, nil, conflict()
	}
	if _, hit := s.switches.hit(Conflict, r); hit {
		return nil, nil, conflict()
	}
	old := t.get(k, newest)
	next, bad := in.evaluate(t, old, s.skipsCondition(r, in))
	if bad != nil {
		return nil, nil, bad
	}
	if _, hit := s.switches.hit(BadLoseWrite, r); hit {
		return old, next, nil
	}
	return old, next, s.write([]change{{t, k, old, next}}, nil)
}

func (s *Server) skipsCondition(r *request, in intent) bool {
	if in.condition == nil {
		return false
	}
	_, hit := s.switches.hit(BadSkipCondition, r)
	return hit
}

type attributesOutput struct {
	Attributes item `json:"Attributes,omitempty"`
}

func (s *Server) putItem(_ context.Context, r *request, in *putInput) (any, error) {
	return s.putOrDelete(r, intent{table: in.TableName, put: nonNil(in.Item)}, in.expressions, in.accounting, in.ReturnValues)
}

func (s *Server) deleteItem(_ context.Context, r *request, in *deleteInput) (any, error) {
	return s.putOrDelete(r, intent{table: in.TableName, key: in.Key, delete: true}, in.expressions, in.accounting, in.ReturnValues)
}

// nonNil makes a missing item an empty one, which lacks its keys.
func nonNil(it item) item {
	if it == nil {
		return item{}
	}
	return it
}

func (s *Server) putOrDelete(r *request, in intent, e expressions, a accounting, returns string) (any, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	if returns != "" && returns != "NONE" && returns != "ALL_OLD" {
		return nil, invalid("Return values set to invalid value: %q", returns)
	}
	in, bad := parseIntent(in, e, nil)
	if bad != nil {
		return nil, bad
	}
	old, _, err := s.writeOne(r, in)
	if err != nil {
		return nil, err
	}
	if returns == "ALL_OLD" {
		return attributesOutput{old}, nil
	}
	return attributesOutput{}, nil
}

func (s *Server) updateItem(_ context.Context, r *request, in *updateInput) (any, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	if !slices.Contains([]string{"", "NONE", "ALL_OLD", "UPDATED_OLD", "ALL_NEW", "UPDATED_NEW"}, in.ReturnValues) {
		return nil, invalid("Return values set to invalid value: %q", in.ReturnValues)
	}
	it, bad := parseIntent(intent{table: in.TableName, key: in.Key}, in.expressions, in.UpdateExpression)
	if bad != nil {
		return nil, bad
	}
	if it.update == nil {
		it.update = &update{} // makes sure that the item is there
	}
	old, next, err := s.writeOne(r, it)
	if err != nil {
		return nil, err
	}
	switch in.ReturnValues {
	case "ALL_OLD":
		return attributesOutput{old}, nil
	case "ALL_NEW":
		return attributesOutput{next}, nil
	case "UPDATED_OLD":
		return attributesOutput{updated(old, it.update)}, nil
	case "UPDATED_NEW":
		return attributesOutput{updated(next, it.update)}, nil
	}
	return attributesOutput{}, nil
}

// updated is the part of an item that an update names.
func updated(it item, u *update) item {
	paths := u.paths()
	if len(paths) == 0 {
		return nil
	}
	return project(it, paths)
}
