package pgtest

import (
	"strconv"

	"github.com/eventproof/eventproof/eventstore"
)

// Sum is a view with one row a stream: the data of its events, one after the other, so that order and repeats
// show. It filters events of type "Ignored".
type Sum struct{}

// Name implements eventstore.View.
func (Sum) Name() string { return "sum" }

// Key implements eventstore.View.
func (Sum) Key(e eventstore.Event) (string, bool) { return e.Stream, e.Type != "Ignored" }

// Apply implements eventstore.View.
func (Sum) Apply(row []byte, e eventstore.Event) ([]byte, error) {
	return append(append([]byte{}, row...), e.Data...), nil
}

// Count is a view with one small row a stream: how many events it has.
type Count struct{}

// Name implements eventstore.View.
func (Count) Name() string { return "count" }

// Key implements eventstore.View.
func (Count) Key(e eventstore.Event) (string, bool) { return e.Stream, true }

// Apply implements eventstore.View.
func (Count) Apply(row []byte, _ eventstore.Event) ([]byte, error) {
	n, _ := strconv.Atoi(string(row))
	return []byte(strconv.Itoa(n + 1)), nil
}
