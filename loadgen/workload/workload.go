// Package workload makes the commands of a load. What command arrival n makes depends on the seed and n alone,
// whoever makes it and whenever: every writer could make every command, and a run is repeated by its seed.
package workload

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/eventproof/eventproof/loadgen"
)

// Command is a caller's intent.
type Command struct {
	// ID is the command id. A replay has the id of the command that it repeats.
	ID     string
	Stream string
	Name   string // "withdraw", "bid", …
	Body   []byte // canonical JSON
	Blind  bool   // decided without a state and appended at any version
	Form   Form
	// Of is the id of the earlier bid command that this one repeats, alters or equals; else empty.
	Of string
}

// Form tells how a command came about.
type Form uint8

// The forms.
const (
	// Plain: a command of its own.
	Plain Form = iota
	// Replay: an earlier bid again, another call of the same command.
	Replay
	// Altered: the id of an earlier bid with another body, a command of its own.
	Altered
	// Equal: the amount of an earlier bid, by another bidder.
	Equal
)

// String returns the name used in reports.
func (f Form) String() string {
	switch f {
	case Plain:
		return "plain"
	case Replay:
		return "replay"
	case Altered:
		return "altered"
	case Equal:
		return "equal"
	}
	return fmt.Sprintf("form(%d)", uint8(f))
}

// Workload makes commands. It is immutable and safe for concurrent use.
type Workload interface {
	// Setup returns the commands that must have succeeded before the load begins, one a stream.
	Setup() []Command
	// Command returns the command of an arrival (loadgen.Arrival.Seq).
	Command(seq uint64) Command
	// Timed returns when arrivals besides the pattern are intended (loadgen.Config.Timed).
	Timed() []time.Duration
}

// setupID names the command that sets up stream i.
func setupID(seeds loadgen.Seeds, i int) string {
	return "c-" + strconv.FormatUint(seeds.Root, 10) + "-setup-" + strconv.Itoa(i+1)
}

// ids of commands and bids.
func commandID(seeds loadgen.Seeds, seq uint64) string { return id("c-", seeds, seq) }
func bidID(seeds loadgen.Seeds, seq uint64) string     { return id("b-", seeds, seq) }

func id(prefix string, seeds loadgen.Seeds, seq uint64) string {
	b := append(make([]byte, 0, 48), prefix...)
	b = strconv.AppendUint(b, seeds.Root, 10)
	if seq >= loadgen.TimedBase {
		b = append(b, "-timed"...)
		seq -= loadgen.TimedBase
	}
	b = append(b, '-')
	return string(strconv.AppendUint(b, seq, 10))
}

// pick draws an index in proportion to weights.
func pick(r *rand.Rand, weights ...float64) int {
	sum := 0.0
	for _, w := range weights {
		sum += w
	}
	u := r.Float64() * sum
	last := 0
	for i, w := range weights {
		if w <= 0 {
			continue
		}
		if last = i; u < w {
			return i
		}
		u -= w
	}
	return last // rounding
}

// validShares refuses shares that are no mix.
func validShares(shares ...float64) error {
	sum := 0.0
	for _, s := range shares {
		if !(s >= 0) || s > 1e9 {
			return fmt.Errorf("share of %v", s)
		}
		sum += s
	}
	if sum == 0 {
		return fmt.Errorf("all shares are 0")
	}
	return nil
}
