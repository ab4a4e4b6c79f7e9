package dynamodb

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"
)

// The admin endpoints; see the package comment.
const (
	adminPrefix = "/_eventproof/"
	// FaultsPath takes, lists and removes faults.
	FaultsPath = adminPrefix + "faults"
	// StatePath tells what is in flight.
	StatePath = adminPrefix + "state"
	// SplitPath splits the shards of a table's stream.
	SplitPath = adminPrefix + "streams/split"
)

// State is what is in flight and open. When nothing is in flight, no open connection exists and no client is left that
// could open one, nothing more can take effect.
type State struct {
	InFlight []InFlight `json:"in_flight"`
	// Transactions are those that hold their items now.
	Transactions int `json:"transactions"`
	// Connections are those open to Serve, the one that asks included; 0 for a server that is only an http.Handler.
	Connections int64 `json:"connections"`
	// Record is the number of the last record of the log.
	Record uint64 `json:"record"`
	// Broken says why the log can't be written any more; empty if it can.
	Broken string `json:"broken,omitempty"`
}

// InFlight is a request that has been read and is not answered.
type InFlight struct {
	ID      uint64   `json:"id"`
	Op      string   `json:"op"`
	Session string   `json:"session,omitempty"`
	Age     Duration `json:"age"`
}

// State returns what is in flight now.
func (s *Server) State() State {
	st := State{InFlight: []InFlight{}, Connections: s.requests.connections.Load()}
	now := s.clock.Now()
	s.requests.mu.Lock()
	for r := range s.requests.all {
		st.InFlight = append(st.InFlight, InFlight{r.id, r.op, r.session, Duration(time.Duration(now - r.since))})
	}
	s.requests.mu.Unlock()
	slices.SortFunc(st.InFlight, func(a, b InFlight) int { return cmp.Compare(a.ID, b.ID) })
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Transactions, st.Record = s.open, s.last
	if s.wal != nil {
		if err := s.wal.err(); err != nil {
			st.Broken = err.Error()
		}
	}
	return st
}

func (s *Server) serveAdmin(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequestSize))
	if err != nil {
		adminError(w, http.StatusBadRequest, err)
		return
	}
	switch r.Method + " " + r.URL.Path {
	case "GET " + StatePath:
		adminAnswer(w, s.State())
	case "GET " + FaultsPath:
		adminAnswer(w, map[string]any{"faults": s.Faults()})
	case "POST " + FaultsPath:
		var f Fault
		if err := decode(body, &f); err != nil {
			adminError(w, http.StatusBadRequest, err)
			return
		}
		id, err := s.Arm(f)
		if err != nil {
			adminError(w, http.StatusBadRequest, err)
			return
		}
		adminAnswer(w, map[string]any{"id": id})
	case "DELETE " + FaultsPath:
		gone := s.Disarm(r.URL.Query().Get("id"))
		if gone == nil {
			gone = []FaultStatus{}
		}
		adminAnswer(w, map[string]any{"faults": gone})
	case "POST " + SplitPath:
		if err := s.SplitShards(r.URL.Query().Get("table")); err != nil {
			adminError(w, http.StatusBadRequest, err)
			return
		}
		adminAnswer(w, struct{}{})
	default:
		adminError(w, http.StatusNotFound, errors.New("the emulator has no "+r.Method+" "+r.URL.Path))
	}
}

func adminAnswer(w http.ResponseWriter, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		adminError(w, http.StatusInternalServerError, err)
		return
	}
	reply(w, http.StatusOK, "application/json", append(text, '\n'))
}

func adminError(w http.ResponseWriter, status int, err error) {
	text, _ := json.Marshal(map[string]string{"error": err.Error()}) // a map of strings always has a JSON form
	reply(w, status, "application/json", append(text, '\n'))
}
