package kafka_test

import (
	"encoding/json"

	"github.com/eventproof/eventproof/targets/kafka/internal/broker"
)

func errDataLoss() error { return broker.ErrDataLoss }

// setting reads a field of a role's configuration.
func (s *stage) setting(name string) string {
	s.t.Helper()
	raw, err := s.inst.Config("writer")
	if err != nil {
		s.t.Fatal(err)
	}
	var c map[string]any
	if err := json.Unmarshal(raw, &c); err != nil {
		s.t.Fatal(err)
	}
	text, ok := c[name].(string)
	if !ok {
		s.t.Fatalf("the configuration has no %s: %s", name, raw)
	}
	return text
}

func (s *stage) addr() string  { return s.setting("addr") }
func (s *stage) trial() string { return s.setting("trial") }
