package history

import (
	"encoding/json"
	"strconv"

	"github.com/eventproof/eventproof/eventstore"
)

// JSON returns a record for people and other programs: one object with the record's kind and every field by its
// name in the schema. Bytes that are JSON stand as such, others as {"base64": "…"}.
func JSON(rec Record) []byte {
	w := &jsonWriter{b: append([]byte(`{"kind":`), strconv.Quote(rec.Kind().String())...)}
	rec.walk(w)
	return append(w.b, '}')
}

// jsonWriter appends the fields of a record as members of an object that is open.
type jsonWriter struct{ b []byte }

func (w *jsonWriter) key(name string) {
	if last := w.b[len(w.b)-1]; last != '{' && last != '[' {
		w.b = append(w.b, ',')
	}
	if name != "" {
		w.b = append(strconv.AppendQuote(w.b, name), ':')
	}
}

func (w *jsonWriter) value(name string, v any) {
	w.key(name)
	b, err := json.Marshal(v)
	if err != nil {
		b = []byte("null") // strings, numbers and TrialInfo always have a JSON form
	}
	w.b = append(w.b, b...)
}

func (w *jsonWriter) u64(name string, v *uint64) {
	w.key(name)
	w.b = strconv.AppendUint(w.b, *v, 10)
}

func (w *jsonWriter) u32(name string, v *uint32) {
	w.key(name)
	w.b = strconv.AppendUint(w.b, uint64(*v), 10)
}

func (w *jsonWriter) i64(name string, v *int64) {
	w.key(name)
	w.b = strconv.AppendInt(w.b, *v, 10)
}

func (w *jsonWriter) boolean(name string, v *bool) {
	w.key(name)
	w.b = strconv.AppendBool(w.b, *v)
}

func (w *jsonWriter) str(name string, v *string) { w.value(name, *v) }

func (w *jsonWriter) bytes(name string, v *[]byte) {
	switch {
	case len(*v) == 0:
		w.value(name, nil)
	case json.Valid(*v):
		w.key(name)
		w.b = append(w.b, *v...)
	default:
		w.value(name, map[string][]byte{"base64": *v})
	}
}

func (w *jsonWriter) id(name string, v *eventstore.EventID) { w.value(name, v.String()) }

func (w *jsonWriter) ids(name string, v *[]eventstore.EventID) {
	w.key(name)
	w.b = append(w.b, '[')
	for i := range *v {
		w.id("", &(*v)[i])
	}
	w.b = append(w.b, ']')
}

func (w *jsonWriter) hash(name string, v *eventstore.Hash) { w.value(name, v.String()) }

func (w *jsonWriter) rangeHash(name string, v *RangeHash) { w.value(name, v.String()) }

func (w *jsonWriter) position(name string, v *eventstore.Position) { w.value(name, v.String()) }

func (w *jsonWriter) positions(name string, v *[]eventstore.Position) {
	w.key(name)
	w.b = append(w.b, '[')
	for i := range *v {
		w.position("", &(*v)[i])
	}
	w.b = append(w.b, ']')
}

func (w *jsonWriter) cursor(name string, v *eventstore.Cursor) { w.value(name, v.String()) }

func (w *jsonWriter) info(name string, v *TrialInfo) { w.value(name, v) }

func (w *jsonWriter) enum(name string, v *uint8, of *enumeration) { w.value(name, of.nameOf(*v)) }

func (w *jsonWriter) writeEvents(name string, v *[]WriteEvent) {
	w.key(name)
	w.b = append(w.b, '[')
	for i := range *v {
		w.begin("")
		(*v)[i].walk(w)
		w.end()
	}
	w.b = append(w.b, ']')
}

func (w *jsonWriter) begin(name string) {
	w.key(name)
	w.b = append(w.b, '{')
}

func (w *jsonWriter) end() { w.b = append(w.b, '}') }
