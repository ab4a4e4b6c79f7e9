// Package roles builds the roles of the application under test — writers and projectors — from a configuration that is
// plain data, so that a role can run in the runner's process or in one of its own. Role code does not know which.
package roles

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/eventproof/eventproof/app"
	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/loadgen"
	"github.com/eventproof/eventproof/points"
)

// Config is everything a role needs to know; it travels as JSON to a child process.
type Config struct {
	Kind        string `json:"kind"` // "writer", "projector" or "owner"
	Name        string `json:"name"`
	Process     uint32 `json:"process"`
	Incarnation uint32 `json:"incarnation"`
	Child       bool   `json:"child,omitempty"`
	Target      string `json:"target"`
	// Attach is what Instance.Config returned; only for a child.
	Attach json.RawMessage `json:"attach,omitempty"`
	// Dial maps addresses to the role's proxies; only for a child.
	Dial map[string]string `json:"dial,omitempty"`
	// NativeAuction: the target has auctions in their native form; a writer then sends operations instead of deciding.
	NativeAuction bool `json:"nativeAuction,omitempty"`
	// Loop names the parts of the command loop.
	Loop          app.Choice           `json:"loop"`
	Promises      []eventstore.Promise `json:"promises"`
	Workload      string               `json:"workload"`
	Segment       string               `json:"segment"` // path of the history segment
	Seed          uint64               `json:"seed"`
	MaxDecisions  int                  `json:"maxDecisions"`
	SnapshotEvery int                  `json:"snapshotEvery"`
	Deadline      time.Duration        `json:"deadline"`
	Try           time.Duration        `json:"try"`
	// Load is a writer's share of the load; nil for a writer that is told each command.
	Load      *LoadConfig      `json:"load,omitempty"`
	Projector *ProjectorConfig `json:"projector,omitempty"`
	// Open are commands that a killed incarnation had begun; they are continued first.
	Open []OpenCommand `json:"open,omitempty"`
	// Points at which a child asks the runner.
	Points []points.Point `json:"points,omitempty"`
}

// LoadConfig is a writer's share of a load.
type LoadConfig struct {
	Shard        int           `json:"shard"`
	Shards       int           `json:"shards"`
	Length       time.Duration `json:"length"`
	Model        string        `json:"model"`
	Arrival      string        `json:"arrival"`
	Rate         float64       `json:"rate"`
	Workers      int           `json:"workers"`
	Queue        int           `json:"queue"`
	Streams      int           `json:"streams"`
	KeyDist      string        `json:"keyDist"`
	Exponent     float64       `json:"exponent"`
	HotShare     float64       `json:"hotShare"`
	HotCount     int           `json:"hotCount"`
	MaxAmount    int64         `json:"maxAmount"`
	Withdraw     float64       `json:"withdraw"`
	Deposit      float64       `json:"deposit"`
	BlindDeposit float64       `json:"blindDeposit"`
	OpeningPrice int64         `json:"openingPrice"`
	Bid          float64       `json:"bid"`
	Replay       float64       `json:"replay"`
	AlterBid     float64       `json:"alterBid"`
	EqualBid     float64       `json:"equalBid"`
	CloseAfter   time.Duration `json:"closeAfter"`
}

// ProjectorConfig describes a projector.
type ProjectorConfig struct {
	View  string        `json:"view"`
	Poll  time.Duration `json:"poll"` // pause after an empty poll
	Batch int           `json:"batch"`
}

// OpenCommand is a command that was begun and never answered.
type OpenCommand struct {
	ID       string `json:"id"`
	Stream   string `json:"stream"`
	Name     string `json:"name"`
	Body     []byte `json:"body"`
	Intended int64  `json:"intended"`
}

// DialFunc opens a connection.
type DialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// Direct opens a connection without a proxy.
func Direct(ctx context.Context, network, addr string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, addr)
}

// Env is what a role gets from its surroundings.
type Env struct {
	Gate  points.Gate
	Dial  DialFunc
	Clock clock.Clock
	Rand  *rand.Rand
	Rec   *history.Writer
}

// Seeded returns the role's own source: every incarnation draws other event ids.
func Seeded(c Config) *rand.Rand {
	return loadgen.Seeds{Root: c.Seed}.At("role "+c.Name, uint64(c.Incarnation))
}

// SessionName is the prefix of a role's session names, unique in a trial over restarts.
func SessionName(c Config) string {
	if c.Incarnation <= 1 {
		return c.Name
	}
	return fmt.Sprintf("%s.%d", c.Name, c.Incarnation)
}

// OpenCommands reads from a dead role's segment which commands it had begun and not answered.
func OpenCommands(segment string) (out []OpenCommand, err error) {
	r, err := history.Open(segment)
	if err != nil {
		return nil, err
	}
	defer func() {
		if cerr := r.Close(); err == nil {
			err = cerr
		}
	}()
	var order []uint64
	open := map[uint64]OpenCommand{}
	for {
		rec, err := r.Next()
		if err != nil {
			if isEOF(err) {
				break
			}
			return nil, err
		}
		switch rec := rec.(type) {
		case *history.CallStart:
			order = append(order, rec.Call)
			open[rec.Call] = OpenCommand{ID: rec.CommandID, Stream: rec.Stream, Name: rec.Name, Body: rec.Body, Intended: rec.Intended}
		case *history.CallEnd:
			delete(open, rec.Call)
		}
	}
	for _, call := range order {
		if c, ok := open[call]; ok {
			out = append(out, c)
		}
	}
	return out, nil
}
