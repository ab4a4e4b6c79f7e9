// Package all lists the targets that are built in.
package all

import (
	"slices"

	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/dynamodb"
	dynamodbcontrols "github.com/eventproof/eventproof/targets/dynamodb/controls"
	"github.com/eventproof/eventproof/targets/kafka"
	kafkacontrols "github.com/eventproof/eventproof/targets/kafka/controls"
	"github.com/eventproof/eventproof/targets/memory"
	memorycontrols "github.com/eventproof/eventproof/targets/memory/controls"
	"github.com/eventproof/eventproof/targets/postgres"
	postgrescontrols "github.com/eventproof/eventproof/targets/postgres/controls"
)

// Targets returns every built-in target: correct variants and controls.
func Targets() []targets.Target {
	return slices.Concat(
		memory.Targets(),
		memorycontrols.Targets(),
		postgres.Targets(),
		postgrescontrols.Targets(),
		dynamodb.Targets(),
		dynamodbcontrols.Targets(),
		kafka.Targets(),
		kafkacontrols.Targets(),
	)
}

// Registry returns a registry of every built-in target, to which a program may add its own.
func Registry() (*targets.Registry, error) {
	var r targets.Registry
	if err := r.Add(Targets()...); err != nil {
		return nil, err
	}
	return &r, nil
}
