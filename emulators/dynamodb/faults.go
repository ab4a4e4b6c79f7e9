package dynamodb

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// FaultKind is what a fault does.
type FaultKind string

// The kinds of faults. The last three are bugs on purpose: a store with one of them breaks its promises.
const (
	// DropAnswer executes the request, and closes the connection in place of the answer of a success.
	DropAnswer FaultKind = "drop-answer"
	// ServerError answers InternalServerError, or ServiceUnavailable by Code; before the request is executed, or after
	// it with Applied.
	ServerError FaultKind = "server-error"
	// Throttle refuses the request with ProvisionedThroughputExceededException, or the exception of Code. In a
	// transaction, Reason makes it a cancellation reason of the first operation.
	Throttle FaultKind = "throttle"
	// Conflict makes a write or transaction meet a transaction that is not there.
	Conflict FaultKind = "conflict"
	// Unprocessed makes a batch leave out a random part of its items, at least one.
	Unprocessed FaultKind = "unprocessed"
	// Slow waits for Delay before the request is executed, or after it with Applied.
	Slow FaultKind = "slow"
	// StaleRead makes reads that don't ask for consistency see the state of up to Lag ago.
	StaleRead FaultKind = "stale-read"
	// TransactionWindow makes transactions hold their items for up to Delay before they apply.
	TransactionWindow FaultKind = "transaction-window"
	// StreamDuplicate makes an answer of GetRecords begin with records that were there before.
	StreamDuplicate FaultKind = "stream-duplicate"
	// StreamReorder makes an answer of GetRecords mix the records of different items. Those of one item keep their
	// order.
	StreamReorder FaultKind = "stream-reorder"

	// BadSkipCondition takes every condition for true.
	BadSkipCondition FaultKind = "bad-skip-condition"
	// BadLoseWrite acknowledges a write that it does not make.
	BadLoseWrite FaultKind = "bad-lose-write"
	// BadForgetToken executes a transaction again, though its token was used.
	BadForgetToken FaultKind = "bad-forget-token"
)

// FaultKinds lists all kinds.
func FaultKinds() []FaultKind {
	return []FaultKind{DropAnswer, ServerError, Throttle, Conflict, Unprocessed, Slow, StaleRead, TransactionWindow,
		StreamDuplicate, StreamReorder, BadSkipCondition, BadLoseWrite, BadForgetToken}
}

// Duration is a time.Duration whose text is that of time.ParseDuration.
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// Fault is a switch. It hits the requests that match it, after the first Skip of them, Count times.
type Fault struct {
	// ID is given by Arm if it is empty.
	ID   string    `json:"id"`
	Kind FaultKind `json:"kind"`
	// Ops are the operations it is for, such as PutItem; all if empty.
	Ops []string `json:"ops,omitempty"`
	// Table is what the name of one of the request's tables begins with.
	Table string `json:"table,omitempty"`
	// Session is what the Eventproof-Session header begins with.
	Session string `json:"session,omitempty"`
	Skip    uint64 `json:"skip,omitempty"`
	// Count of hits, without bound if 0.
	Count uint64 `json:"count,omitempty"`
	// Probability of a hit, 1 if 0. It is drawn from the server's seed and the fault's ID.
	Probability float64  `json:"probability,omitempty"`
	Delay       Duration `json:"delay,omitempty"`
	Lag         Duration `json:"lag,omitempty"`
	Applied     bool     `json:"applied,omitempty"`
	Code        string   `json:"code,omitempty"`
	Reason      bool     `json:"reason,omitempty"`
}

// FaultStatus is a fault and what it did so far: how many requests it was looked up for and matched, and how many it
// hit.
type FaultStatus struct {
	Fault
	Seen uint64 `json:"seen"`
	Hits uint64 `json:"hits"`
}

// ErrFault is returned for a fault that can't be.
var ErrFault = errors.New("invalid fault")

func (f Fault) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s: %s", ErrFault, f.Kind, fmt.Sprintf(format, args...))
	}
	if !slices.Contains(FaultKinds(), f.Kind) {
		return bad("no such kind; there are %v", FaultKinds())
	}
	for _, op := range f.Ops {
		if _, ok := operations[op]; !ok {
			return bad("no operation %q", op)
		}
	}
	if f.Probability < 0 || f.Probability > 1 {
		return bad("probability %v is not between 0 and 1", f.Probability)
	}
	needsDelay := f.Kind == Slow || f.Kind == TransactionWindow
	if needsDelay != (f.Delay > 0) {
		return bad("delay %v", time.Duration(f.Delay))
	}
	if (f.Kind == StaleRead) != (f.Lag > 0) {
		return bad("lag %v", time.Duration(f.Lag))
	}
	if f.Applied && f.Kind != ServerError && f.Kind != Slow {
		return bad("applied is for %s and %s", ServerError, Slow)
	}
	if f.Reason && f.Kind != Throttle {
		return bad("reason is for %s", Throttle)
	}
	//nolint:exhaustive // only these fail a call with a code
	codes := map[FaultKind][]string{
		Throttle:    {excThroughput, excThrottling, excRequestLimit},
		ServerError: {excInternal, excUnavailable},
	}
	if f.Code != "" && !slices.Contains(codes[f.Kind], f.Code) {
		return bad("code %q is none of %v", f.Code, codes[f.Kind])
	}
	return nil
}

// armed is a fault in place.
type armed struct {
	FaultStatus
	rand *rand.Rand
}

// switches are the armed faults.
type switches struct {
	seed uint64
	// any spares the lock as long as nothing is armed.
	any atomic.Bool
	mu  sync.Mutex
	ids uint64
	all []*armed
}

func newSwitches(seed uint64) *switches { return &switches{seed: seed} }

func (s *switches) arm(f Fault) (string, error) {
	if err := f.check(); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.ID == "" {
		s.ids++
		f.ID = "fault-" + strconv.FormatUint(s.ids, 10)
	}
	if slices.ContainsFunc(s.all, func(a *armed) bool { return a.ID == f.ID }) {
		return "", fmt.Errorf("%w: there is one with id %q", ErrFault, f.ID)
	}
	h := fnv.New64a()
	h.Write([]byte(f.ID))
	s.all = append(s.all, &armed{FaultStatus{Fault: f}, rand.New(rand.NewPCG(s.seed, h.Sum64()))})
	s.any.Store(true)
	return f.ID, nil
}

// disarm takes a fault away, or all if id is empty, and tells what they did.
func (s *switches) disarm(id string) []FaultStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	var gone []FaultStatus
	s.all = slices.DeleteFunc(s.all, func(a *armed) bool {
		if id != "" && a.ID != id {
			return false
		}
		gone = append(gone, a.FaultStatus)
		return true
	})
	s.any.Store(len(s.all) > 0)
	return gone
}

func (s *switches) status() []FaultStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]FaultStatus, len(s.all))
	for i, a := range s.all {
		out[i] = a.FaultStatus
	}
	return out
}

// struck is a hit of a fault, with the randomness that belongs to it.
type struck struct {
	Fault
	rand *rand.Rand
}

// hit returns the first fault of the kind that hits the request, and counts it.
func (s *switches) hit(k FaultKind, r *request) (struck, bool) {
	return s.hitIf(k, r, func(Fault) bool { return true })
}

func (s *switches) hitIf(k FaultKind, r *request, also func(Fault) bool) (struck, bool) {
	if !s.any.Load() {
		return struck{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.all {
		if a.Kind != k || !a.matches(r) || !also(a.Fault) {
			continue
		}
		a.Seen++
		if a.Seen <= a.Skip || a.Count > 0 && a.Hits >= a.Count {
			continue
		}
		if a.Probability > 0 && a.rand.Float64() >= a.Probability {
			continue
		}
		a.Hits++
		return struck{a.Fault, rand.New(rand.NewPCG(a.rand.Uint64(), a.Hits))}, true
	}
	return struck{}, false
}

func (f Fault) matches(r *request) bool {
	return (len(f.Ops) == 0 || slices.Contains(f.Ops, r.op)) && strings.HasPrefix(r.session, f.Session) &&
		(f.Table == "" || slices.ContainsFunc(r.tables, func(t string) bool { return strings.HasPrefix(t, f.Table) }))
}

// longestLag of the stale reads that are armed.
func (s *switches) longestLag() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lag time.Duration
	for _, a := range s.all {
		lag = max(lag, time.Duration(a.Lag))
	}
	return lag
}

// Arm puts a fault in place and returns its ID. It fails with ErrFault.
func (s *Server) Arm(f Fault) (string, error) {
	id, err := s.switches.arm(f)
	if err == nil && f.Kind == StaleRead {
		s.mu.Lock()
		s.keep = min(s.keep, s.clock.Now())
		s.mu.Unlock()
	}
	return id, err
}

// Disarm takes a fault away, or all of them if id is empty, and returns what they did.
func (s *Server) Disarm(id string) []FaultStatus {
	gone := s.switches.disarm(id)
	if s.switches.longestLag() == 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.keep != newest {
			s.keep = newest
			for _, t := range s.tables {
				t.forgetAll()
			}
		}
	}
	return gone
}

// Faults returns the armed faults and what they did so far.
func (s *Server) Faults() []FaultStatus { return s.switches.status() }
