package wire

import (
	"context"
	"net"
)

// Probe tells over an open connection whether the server behind it serves clients. The deadline of ctx bounds it.
type Probe func(ctx context.Context, conn net.Conn) error

// For returns what is known of a server: "postgres", "dynamodb", "kafka", or "owner" for the owners of a store. Of
// every other, both are nil: it is treated as bytes, and an open connection counts as an answer.
func For(store string) (Protocol, Probe) {
	switch store {
	case "postgres":
		return Postgres(), ProbePostgres
	case "dynamodb", "owner":
		return HTTP(), ProbeHTTP
	case "kafka":
		return Kafka(), ProbeKafka
	}
	return nil, nil
}
