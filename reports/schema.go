package reports

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// ResultSchema returns a JSON Schema of result.json, derived from the model.
func ResultSchema() ([]byte, error) {
	s := map[string]any{"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": Schema, "title": "eventproof result, version 1"}
	for k, v := range schemaOf(reflect.TypeFor[Result]()) {
		s[k] = v
	}
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("reports: result schema: %w", err)
	}
	return b, nil
}

func schemaOf(t reflect.Type) map[string]any {
	if t.Implements(reflect.TypeFor[json.Marshaler]()) {
		return map[string]any{"type": "string"}
	}
	is := func(kinds ...reflect.Kind) bool { return slices.Contains(kinds, t.Kind()) }
	switch {
	case is(reflect.Pointer):
		s := schemaOf(t.Elem())
		return map[string]any{"anyOf": []any{s, map[string]any{"type": "null"}}}
	case is(reflect.Struct):
		props, required := map[string]any{}, []string{}
		for i := range t.NumField() {
			f := t.Field(i)
			name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" || name == "-" {
				continue
			}
			props[name] = schemaOf(f.Type)
			if !strings.Contains(opts, "omit") {
				required = append(required, name)
			}
		}
		// Additive within v1: readers ignore fields that they do not know.
		return map[string]any{"type": "object", "properties": props, "required": required}
	case is(reflect.Slice, reflect.Array):
		return map[string]any{"type": []string{"array", "null"}, "items": schemaOf(t.Elem())}
	case is(reflect.Map):
		return map[string]any{"type": []string{"object", "null"}, "additionalProperties": schemaOf(t.Elem())}
	case is(reflect.String):
		return map[string]any{"type": "string"}
	case is(reflect.Bool):
		return map[string]any{"type": "boolean"}
	case is(reflect.Float64, reflect.Float32):
		return map[string]any{"type": "number"}
	default:
		return map[string]any{"type": "integer"}
	}
}
