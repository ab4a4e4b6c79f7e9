package dynamodb

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/eventproof/eventproof/clock"
)

// tokenLife is how long the client token of a transaction is remembered.
const tokenLife = 10 * time.Minute

// Options of a server. The zero value is a server in memory that has no conflicts but real ones, and no faults.
type Options struct {
	// Dir is where the log is kept; it is made if it isn't there. Empty keeps everything in memory.
	Dir string
	// Fsync holds every answer back until what it tells is on disk. Without it, acknowledged writes survive the death
	// of the process, not that of the machine.
	Fsync bool
	// Clock is the host's if nil. Its Wall is what tokens and iterators expire by.
	Clock clock.Clock
	// Seed of everything random: conflict windows, probabilities of faults, orders.
	Seed uint64
	// Window is the longest time for which a transaction holds its items before it applies; the actual time of each is
	// drawn from the seed. Whoever meets a held item gets a TransactionConflict. 0 never holds.
	Window time.Duration
	// Shards of each new stream, 1 if 0.
	Shards int
	// Faults that are armed from the start.
	Faults []Fault
}

// Server is an emulator of DynamoDB: an http.Handler that speaks its JSON protocol. Its methods may be called
// concurrently.
type Server struct {
	opt      Options
	clock    clock.Clock
	switches *switches
	requests requests

	mu     sync.Mutex // holds all below
	wal    *wal
	last   uint64 // number of the last log record
	tables map[string]*table
	tokens map[string]remembered
	// running holds the tokens of transactions that are in their window.
	running map[string]string
	// held holds the items of transactions that are in their window.
	held  map[itemID]bool
	draws *rand.Rand
	// keep is from when on old versions are kept for stale reads.
	keep int64
	// open counts transactions in their window.
	open int
}

// remembered is what is remembered of a client token.
type remembered struct {
	hash string
	at   int64 // ms of wall-clock time
}

type itemID struct {
	table string
	key   key
}

// Open starts a server on the log of opt.Dir. It fails with ErrLocked if another server has it open, and with
// ErrCorrupt if it is damaged anywhere but at its end.
func Open(opt Options) (*Server, error) {
	if opt.Clock == nil {
		opt.Clock = clock.System{}
	}
	if opt.Shards == 0 {
		opt.Shards = 1
	}
	if opt.Shards < 0 || opt.Window < 0 {
		return nil, fmt.Errorf("dynamodb: shards %d and window %v must not be negative", opt.Shards, opt.Window)
	}
	s := &Server{
		opt: opt, clock: opt.Clock,
		switches: newSwitches(opt.Seed),
		tables:   map[string]*table{},
		tokens:   map[string]remembered{},
		running:  map[string]string{},
		held:     map[itemID]bool{},
		draws:    rand.New(rand.NewPCG(opt.Seed, 1)),
		keep:     math.MaxInt64,
	}
	if opt.Window > 0 {
		opt.Faults = append([]Fault{{Kind: TransactionWindow, Delay: Duration(opt.Window)}}, opt.Faults...)
	}
	for _, f := range opt.Faults {
		if _, err := s.Arm(f); err != nil {
			return nil, err
		}
	}
	if opt.Dir == "" {
		return s, nil
	}
	w, err := openLog(opt.Dir, opt.Fsync, s.replay)
	if err != nil {
		return nil, fmt.Errorf("dynamodb: %w", err)
	}
	s.wal = w
	if s.last == 0 {
		err = s.commit(logRecord{Kind: recordOpen, Format: logFormat})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("dynamodb: %w", err), w.close())
	}
	return s, nil
}

// Close closes the log. Requests that are still running fail.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wal != nil {
		s.wal.fail(errors.New("the server is closed"))
	}
	return s.wal.close()
}

// replay brings back what a record of the log says.
func (s *Server) replay(rec logRecord) error {
	if rec.N != s.last+1 {
		return fmt.Errorf("%w: record %d follows %d", ErrCorrupt, rec.N, s.last)
	}
	if rec.N == 1 && rec.Format != logFormat {
		return fmt.Errorf("%w: the format is %q, this server reads %q", ErrCorrupt, rec.Format, logFormat)
	}
	if err := s.apply(rec); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	s.last = rec.N
	return nil
}

// commit writes a record to the log and applies it: what is in memory is always what a replay of the log gives.
// The caller holds the mutex.
func (s *Server) commit(rec logRecord) error {
	rec.N, rec.At = s.last+1, s.clock.Wall().UnixMilli()
	if err := s.wal.append(rec); err != nil {
		return fault(excInternal, "%v", err)
	}
	s.last = rec.N
	return s.apply(rec)
}

func (s *Server) apply(rec logRecord) error {
	switch rec.Kind {
	case recordOpen:
	case recordCreate:
		s.tables[rec.Create.Name] = newTable(*rec.Create)
	case recordDelete:
		delete(s.tables, rec.Table)
	case recordSplit:
		t := s.tables[rec.Table]
		if t == nil || t.stream == nil {
			return fmt.Errorf("no stream of table %q", rec.Table)
		}
		t.stream.split()
	case recordCommit:
		now := s.clock.Now()
		for _, w := range rec.Writes {
			if err := s.applyWrite(w, rec.At, now); err != nil {
				return err
			}
		}
		if rec.Token != nil {
			s.tokens[rec.Token.ID] = remembered{rec.Token.Hash, rec.At}
		}
	default:
		return fmt.Errorf("unknown kind of record %q", rec.Kind)
	}
	return nil
}

func (s *Server) applyWrite(w logWrite, at, now int64) error {
	t := s.tables[w.Table]
	if t == nil {
		return fmt.Errorf("no table %q", w.Table)
	}
	k, err := t.encode(w.Key)
	if err != nil {
		return err
	}
	if w.Seq > 0 {
		if t.stream == nil || w.Shard >= len(t.stream.shards) {
			return fmt.Errorf("no shard %d of table %q", w.Shard, w.Table)
		}
		t.stream.add(w.Shard, streamRecord{seq: w.Seq, at: at, keys: w.Key, old: t.get(k, newest), new: w.Item})
	}
	t.put(k, w.Item, now, s.horizon(now))
	return nil
}

// horizon is the time before which no stale read looks.
func (s *Server) horizon(now int64) int64 {
	if s.keep == math.MaxInt64 {
		return math.MaxInt64
	}
	return max(s.keep, now-int64(s.switches.longestLag()))
}

// change is what a request does to one item; nil is no item.
type change struct {
	t        *table
	k        key
	old, new item
}

// write commits changes as one, with the token of their transaction if it has one. The caller holds the mutex.
func (s *Server) write(changes []change, tok *logToken) error {
	rec := logRecord{Kind: recordCommit, Token: tok}
	drawn := map[*stream]uint64{}
	for _, c := range changes {
		if (c.old == nil) == (c.new == nil) && c.old.equal(c.new) {
			continue // nothing changes: no write, and no stream record
		}
		w := logWrite{Table: c.t.def.Name, Item: c.new}
		if c.new != nil {
			w.Key = c.t.keyAttributes(c.new)
		} else {
			w.Key = c.t.keyAttributes(c.old)
		}
		if st := c.t.stream; st != nil {
			drawn[st]++
			w.Seq, w.Shard = st.last+drawn[st], st.shardOf(c.k)
		}
		rec.Writes = append(rec.Writes, w)
	}
	if len(rec.Writes) == 0 && tok == nil {
		return nil
	}
	return s.commit(rec)
}

func (s *Server) table(name string) (*table, *apiError) {
	if t := s.tables[name]; t != nil {
		return t, nil
	}
	return nil, fault(excNotFound, "Requested resource not found: Table: %s not found", name)
}
