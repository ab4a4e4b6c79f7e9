package reports

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// ErrSchema is matched by the error of a result that this program can't read.
var ErrSchema = errors.New("not a result of this schema")

// JSON writes result.json. Equal results give equal bytes.
func JSON(w io.Writer, r *Result) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

// Read reads result.json from a file. Unknown fields are ignored; another schema matches ErrSchema.
func Read(path string) (*Result, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reports: %w", err)
	}
	var r Result
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("reports: %s: %w: %w", path, ErrSchema, err)
	}
	if name, _, _ := strings.Cut(r.Schema, "/"); r.Schema != Schema {
		if name == "eventproof.result" {
			return nil, fmt.Errorf("reports: %s: %w: it is %q, this program reads %q", path, ErrSchema, r.Schema, Schema)
		}
		return nil, fmt.Errorf("reports: %s: %w: no result of eventproof", path, ErrSchema)
	}
	return &r, nil
}

// EnvJSON writes env.json: the run and the machine without the trials.
func EnvJSON(w io.Writer, r *Result) error {
	type entry struct {
		Target       string            `json:"target"`
		Provider     string            `json:"provider"`
		Fidelity     string            `json:"fidelity"`
		StoreVersion string            `json:"store_version"`
		Path         string            `json:"path"`
		Durability   map[string]string `json:"durability,omitempty"`
	}
	var stores []entry
	seen := map[string]bool{}
	for i := range r.Trials {
		t := &r.Trials[i]
		key := strings.Join([]string{t.Target, t.Provider, t.StoreVersion, t.Path}, "\x00")
		if !seen[key] {
			seen[key] = true
			stores = append(stores, entry{t.Target, t.Provider, t.Fidelity, t.StoreVersion, t.Path, t.Durability})
		}
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(struct {
		Run         Run         `json:"run"`
		Environment Environment `json:"environment"`
		Stores      []entry     `json:"stores"`
	}{r.Run, r.Environment, stores})
}
