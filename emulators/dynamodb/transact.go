package dynamodb

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"
)

// maxTransact is how many operations a transaction takes.
const maxTransact = 100

type transactItem struct {
	Put *struct {
		expressions
		TableName string
		Item      item
	} `json:",omitempty"`
	Update *struct {
		expressions
		TableName        string
		Key              item
		UpdateExpression *string
	} `json:",omitempty"`
	Delete *struct {
		expressions
		TableName string
		Key       item
	} `json:",omitempty"`
	ConditionCheck *struct {
		expressions
		TableName string
		Key       item
	} `json:",omitempty"`
}

type transactWriteInput struct {
	accounting
	TransactItems      []transactItem
	ClientRequestToken string
}

func (in *transactWriteInput) tableNames() []string {
	var names []string
	for _, it := range in.TransactItems {
		switch {
		case it.Put != nil:
			names = append(names, it.Put.TableName)
		case it.Update != nil:
			names = append(names, it.Update.TableName)
		case it.Delete != nil:
			names = append(names, it.Delete.TableName)
		case it.ConditionCheck != nil:
			names = append(names, it.ConditionCheck.TableName)
		}
	}
	return names
}

func (it transactItem) intent() (intent, *apiError) {
	members := 0
	for _, is := range []bool{it.Put != nil, it.Update != nil, it.Delete != nil, it.ConditionCheck != nil} {
		if is {
			members++
		}
	}
	if members != 1 {
		return intent{}, invalid("TransactItems can only contain one of Check, Put, Update or Delete")
	}
	switch {
	case it.Put != nil:
		return parseIntent(intent{table: it.Put.TableName, put: nonNil(it.Put.Item)}, it.Put.expressions, nil)
	case it.Delete != nil:
		return parseIntent(intent{table: it.Delete.TableName, key: it.Delete.Key, delete: true}, it.Delete.expressions, nil)
	case it.Update != nil:
		if it.Update.UpdateExpression == nil {
			return intent{}, invalid("The UpdateExpression of an Update in TransactItems must be given")
		}
		return parseIntent(intent{table: it.Update.TableName, key: it.Update.Key}, it.Update.expressions, it.Update.UpdateExpression)
	}
	if it.ConditionCheck.ConditionExpression == nil {
		return intent{}, invalid("The ConditionExpression of a ConditionCheck in TransactItems must be given")
	}
	return parseIntent(intent{table: it.ConditionCheck.TableName, key: it.ConditionCheck.Key}, it.ConditionCheck.expressions, nil)
}

// operation is an intent of a transaction, and where its item is.
type operation struct {
	intent
	t  *table
	k  key
	id itemID
}

func (s *Server) transactWrite(ctx context.Context, r *request, in *transactWriteInput) (any, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	if n := len(in.TransactItems); n < 1 || n > maxTransact {
		return nil, invalid("1 validation error detected: Value at 'transactItems' failed to satisfy constraint: Member must have length less than or equal to 100 and greater than or equal to 1: there are %d", n)
	}
	if len(in.ClientRequestToken) > 36 {
		return nil, invalid("Value at 'clientRequestToken' failed to satisfy constraint: Member must have length less than or equal to 36")
	}
	ops := make([]operation, len(in.TransactItems))
	for i, it := range in.TransactItems {
		parsed, err := it.intent()
		if err != nil {
			return nil, err
		}
		ops[i].intent = parsed
	}
	var tok *logToken
	if in.ClientRequestToken != "" {
		hash, err := in.fingerprint()
		if err != nil {
			return nil, err
		}
		tok = &logToken{ID: in.ClientRequestToken, Hash: hash}
	}
	return s.transact(ctx, r, ops, tok)
}

// fingerprint is equal for requests that ask for the same.
func (in *transactWriteInput) fingerprint() (string, error) {
	text, err := json.Marshal(in.TransactItems)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

func (s *Server) transact(ctx context.Context, r *request, ops []operation, tok *logToken) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if tok != nil {
		if done, err := s.known(r, tok); done || err != nil {
			return struct{}{}, err
		}
	}
	if err := s.locate(ops); err != nil {
		return nil, err
	}
	if err := s.obstructed(r, ops); err != nil {
		return nil, err
	}
	if f, hit := s.switches.hit(TransactionWindow, r); hit {
		if err := s.window(ctx, time.Duration(f.rand.Int64N(int64(f.Delay))+1), ops, tok); err != nil {
			return nil, err
		}
	}
	changes, err := s.outcome(r, ops)
	if err != nil {
		return nil, err
	}
	if _, hit := s.switches.hit(BadLoseWrite, r); hit {
		return struct{}{}, nil
	}
	if err := s.write(changes, tok); err != nil {
		return nil, err
	}
	return struct{}{}, nil
}

// known reports whether the transaction of the token was done before.
func (s *Server) known(r *request, tok *logToken) (bool, error) {
	hash, running := s.running[tok.ID]
	used, done := s.tokens[tok.ID]
	if done && s.clock.Wall().UnixMilli()-used.at >= tokenLife.Milliseconds() {
		delete(s.tokens, tok.ID)
		done = false
	}
	if done {
		hash = used.hash
	}
	switch {
	case !running && !done:
		return false, nil
	case hash != tok.Hash:
		return false, fault(excTokenMismatch, "Request parameters do not match the previous request with the same client token")
	case running:
		return false, fault(excInProgress, "The transaction with the given request token is already in progress")
	}
	if _, hit := s.switches.hit(BadForgetToken, r); hit {
		return false, nil
	}
	return true, nil
}

// locate finds the items of the operations. Not two may be of one item.
func (s *Server) locate(ops []operation) *apiError {
	seen := map[itemID]bool{}
	size := 0
	reasons, failed := make([]reason, len(ops)), false
	for i := range ops {
		o := &ops[i]
		t, err := s.table(o.table)
		if err != nil {
			return err
		}
		k, err := o.locate(t)
		if err != nil {
			reasons[i], failed = reason{Code: codeValidation, Message: err.message}, true
			continue
		}
		reasons[i] = reason{Code: codeNone}
		o.t, o.k, o.id = t, k, itemID{o.table, k}
		if seen[o.id] {
			return invalid("Transaction request cannot include multiple operations on one item")
		}
		seen[o.id] = true
		size += o.put.size()
	}
	if failed {
		return canceled(reasons)
	}
	if size > maxTransactSize {
		return invalid("Collection size exceeded: the aggregate size of the items in the transaction can not exceed 4MB")
	}
	return nil
}

// obstructed cancels a transaction that meets another one.
func (s *Server) obstructed(r *request, ops []operation) *apiError {
	reasons, failed := make([]reason, len(ops)), false
	for i, o := range ops {
		reasons[i] = reason{Code: codeNone}
		if s.held[o.id] {
			reasons[i], failed = reason{Code: codeConflict, Message: "Transaction is ongoing for the item"}, true
		}
	}
	if f, hit := s.switches.hit(Conflict, r); hit {
		reasons[f.rand.IntN(len(ops))], failed = reason{Code: codeConflict, Message: "Transaction is ongoing for the item"}, true
	}
	if _, hit := s.switches.hitIf(Throttle, r, func(f Fault) bool { return f.Reason }); hit {
		reasons[0], failed = reason{Code: codeThroughputExceeded, Message: "The level of configured provisioned throughput for the table was exceeded"}, true
	}
	if failed {
		return canceled(reasons)
	}
	return nil
}

// window holds the items of a transaction for a time in which others may come and meet it. The mutex is free
// meanwhile, so tables may go.
func (s *Server) window(ctx context.Context, d time.Duration, ops []operation, tok *logToken) *apiError {
	for _, o := range ops {
		s.held[o.id] = true
	}
	if tok != nil {
		s.running[tok.ID] = tok.Hash
	}
	s.open++
	s.mu.Unlock()
	s.wait(ctx, Duration(d))
	s.mu.Lock()
	s.open--
	if tok != nil {
		delete(s.running, tok.ID)
	}
	for _, o := range ops {
		delete(s.held, o.id)
	}
	return s.locate(ops)
}

// outcome evaluates all operations, each on its own item, and returns what they change, or why the transaction is
// cancelled.
func (s *Server) outcome(r *request, ops []operation) ([]change, *apiError) {
	changes := make([]change, 0, len(ops))
	reasons, failed := make([]reason, len(ops)), false
	size := 0
	for i, o := range ops {
		old := o.t.get(o.k, newest)
		next, err := o.evaluate(o.t, old, s.skipsCondition(r, o.intent))
		reasons[i] = reason{Code: codeNone}
		if err != nil {
			failed = true
			reasons[i] = reason{Code: codeValidation, Message: err.message}
			if err.kind == excConditionFailed {
				reasons[i] = reason{Code: codeConditionFailed, Message: err.message, Item: err.item}
			}
			continue
		}
		size += next.size()
		changes = append(changes, change{o.t, o.k, old, next})
	}
	if failed {
		return nil, canceled(reasons)
	}
	if size > maxTransactSize {
		return nil, invalid("Collection size exceeded: the aggregate size of the items in the transaction can not exceed 4MB")
	}
	return changes, nil
}

type transactGetInput struct {
	accounting
	TransactItems []struct {
		Get *getSpec
	}
}

type getSpec struct {
	TableName                string
	Key                      item
	ProjectionExpression     *string
	ExpressionAttributeNames map[string]string
}

func (in *transactGetInput) tableNames() []string {
	var names []string
	for _, it := range in.TransactItems {
		if it.Get != nil {
			names = append(names, it.Get.TableName)
		}
	}
	return names
}

type itemOutput struct {
	Item item `json:"Item,omitempty"`
}

func (s *Server) transactGet(_ context.Context, r *request, in *transactGetInput) (any, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	if n := len(in.TransactItems); n < 1 || n > maxTransact {
		return nil, invalid("1 validation error detected: Value at 'transactItems' failed to satisfy constraint: Member must have length less than or equal to 100 and greater than or equal to 1: there are %d", n)
	}
	ops := make([]operation, len(in.TransactItems))
	shown := make([][]path, len(in.TransactItems))
	for i, it := range in.TransactItems {
		if it.Get == nil {
			return nil, invalid("TransactItems of TransactGetItems must contain a Get")
		}
		var err *apiError
		if shown[i], err = it.Get.projection(); err != nil {
			return nil, err
		}
		ops[i].intent = intent{table: it.Get.TableName, key: it.Get.Key}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.locate(ops); err != nil {
		return nil, err
	}
	if err := s.obstructed(r, ops); err != nil {
		return nil, err
	}
	out := make([]itemOutput, len(ops))
	size := 0
	for i, o := range ops {
		it := o.t.get(o.k, newest)
		size += it.size()
		out[i].Item = shownPart(it, shown[i])
	}
	if size > maxTransactSize {
		return nil, invalid("Collection size exceeded: the aggregate size of the items in the transaction can not exceed 4MB")
	}
	return map[string]any{"Responses": out}, nil
}

func (g getSpec) projection() ([]path, *apiError) {
	sc := newScope(g.ExpressionAttributeNames, nil)
	if g.ProjectionExpression == nil {
		return nil, sc.unusedWithout()
	}
	paths, err := parseProjection(*g.ProjectionExpression, sc)
	if err != nil {
		return nil, err
	}
	return paths, sc.unused()
}

// unusedWithout refuses names that came without any expression.
func (s *scope) unusedWithout() *apiError {
	if s.names != nil {
		return invalid("ExpressionAttributeNames can only be specified when using expressions")
	}
	return nil
}

// shownPart is the part of an item that a projection keeps; without one, all of it.
func shownPart(it item, paths []path) item {
	if it == nil || paths == nil {
		return it
	}
	return project(it, paths)
}
