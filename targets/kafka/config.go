package kafka

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/url"
	"strconv"

	"github.com/eventproof/eventproof/targets/kafka/internal/form"
	"github.com/eventproof/eventproof/targets/kafka/owner"
)

// config is what a writer or a projector in any process needs to connect.
type config struct {
	Addr         string   `json:"addr"` // of a broker
	Transactions int16    `json:"transactions"`
	Trial        string   `json:"trial"`
	Partitions   int32    `json:"partitions"`
	Owners       []string `json:"owners"` // addresses, in the order of their names
}

const owners = 2

func ownerName(i int) string { return "owner-" + strconv.Itoa(i+1) }

// ownerConfig is what one of the owners needs.
func (c config) ownerConfig(i int) owner.Config {
	o := owner.Config{
		Addr: c.Addr, Transactions: c.Transactions, Trial: c.Trial, Owner: ownerName(i), Listen: c.Owners[i], Partitions: c.Partitions,
	}
	for p := range c.Partitions {
		if c.preferred(p) == i {
			o.Preferred = append(o.Preferred, p)
		}
	}
	return o
}

// preferred returns the owner that takes a partition while it is nobody's.
func (c config) preferred(partition int32) int { return int(partition) % len(c.Owners) }

func (c config) partitionOf(stream string) int32 { return form.PartitionOf(stream, c.Partitions) }

var errURL = errors.New("kafka: need a URL of the form kafka://host:port")

// parseURL returns the address behind a URL.
func parseURL(raw string) (addr string, err error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "kafka" || u.Hostname() == "" || u.Port() == "" || u.User != nil || u.Path != "" && u.Path != "/" {
		return "", fmt.Errorf("%w, not %q", errURL, raw)
	}
	return u.Host, nil
}

func parseConfig[C any](raw json.RawMessage) (C, error) {
	var c C
	if err := json.Unmarshal(raw, &c); err != nil {
		return c, fmt.Errorf("kafka: reading the role's configuration: %w", err)
	}
	return c, nil
}

const (
	// Ports of owners lie below the range from which systems draw ports for outgoing connections, so that nobody takes one
	// while its owner is down.
	firstPort, lastPort = 20000, 29999
)

var errPorts = errors.New("kafka: no free port for an owner")

// freePorts finds n loopback ports that nobody listens at. Where the search begins depends on the trial.
func freePorts(trial string, n int) ([]string, error) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(trial))
	const ports = lastPort - firstPort + 1
	begin := int(h.Sum32() % ports)
	var found []string
	for i := 0; i < ports && len(found) < n; i++ {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+(begin+i)%ports))
		l, err := net.Listen("tcp", addr) //nolint:noctx // binding a loopback port does not wait
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			return nil, fmt.Errorf("kafka: %w", err)
		}
		found = append(found, addr)
	}
	if len(found) < n {
		return nil, errPorts
	}
	return found, nil
}
