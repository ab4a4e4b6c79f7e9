// Package plan holds fault plans as data: what to break, when, for how long. It imports the standard library
// only; package faults carries plans out.
package plan

import (
	"fmt"
	"path"
	"strings"
	"time"
)

// Kind of a fault. The set is closed.
type Kind string

// The kinds.
const (
	Latency     Kind = "latency"      // delay bytes: Delay, Jitter
	Reset       Kind = "reset"        // reset the role's connections, and new ones while it lasts
	BlackHole   Kind = "black-hole"   // swallow bytes one or both ways: Direction
	Down        Kind = "down"         // close connections and refuse new ones
	DropReply   Kind = "drop-reply"   // forward the n-th commit whole, cut its reply: Every, Max
	CutRequest  Kind = "cut-request"  // never forward the n-th commit, cut the connection: Every, Max
	HoldReply   Kind = "hold-reply"   // hold every reply, or that of the n-th commit, until lifted
	ParkRequest Kind = "park-request" // keep the n-th commit in the proxy, send it on when lifted
	KillStore   Kind = "kill-store"   // kill -9 of the server; restarted after For
	PauseStore  Kind = "pause-store"  // stop the server's processes; continued after For
	KillRole    Kind = "kill-role"    // kill -9 of a role process (or in-process crash); restarted after For
	PauseRole   Kind = "pause-role"   // stop a role process; continued after For
	Throttle    Kind = "throttle"     // the server refuses the n-th request as too many: Every, Max
	Conflict    Kind = "conflict"     // the server lets the n-th write meet a transaction that is not there: Every, Max
)

// Kinds lists them with what they do, for help texts and validation.
func Kinds() []Doc {
	return []Doc{
		{Latency, "delays every byte between a role and the store", "delay, jitter, direction: up|down|both (default both)"},
		{Reset, "resets the role's connections, and new ones while it lasts", ""},
		{BlackHole, "swallows requests, replies or both without closing the connection", "direction: up|down|both"},
		{Down, "closes the role's connections and refuses new ones", ""},
		{DropReply, "forwards a commit whole and cuts its reply: the write landed, the writer can't know", "every, max"},
		{CutRequest, "cuts the connection before a commit is forwarded: the write did not land, the writer can't know", "every, max"},
		{HoldReply, "holds replies back until it is lifted", "every, max (0 = all replies)"},
		{ParkRequest, "keeps a commit in the proxy and sends it on when lifted, after the writer has retried", "every, max"},
		{KillStore, "kill -9 of the server, restart on the same data after `for`", ""},
		{PauseStore, "stops the server's processes, continues them after `for`", ""},
		{KillRole, "kill -9 of a role process, restart after `for`; its open commands are continued by another process", ""},
		{PauseRole, "stops a role process, continues it after `for`", ""},
		{Throttle, "makes the server refuse requests as too many; only where the server can be told to", "every, max"},
		{Conflict, "makes the server refuse writes as if another transaction held their items; only where the server can be told to", "every, max"},
	}
}

// OnStore reports whether faults of the kind work on the server itself and not on roles or their connections.
func (k Kind) OnStore() bool {
	switch k {
	case KillStore, PauseStore, Throttle, Conflict:
		return true
	case Latency, Reset, BlackHole, Down, DropReply, CutRequest, HoldReply, ParkRequest, KillRole, PauseRole:
	}
	return false
}

// Doc describes a kind of fault.
type Doc struct {
	Kind   Kind
	Does   string
	Params string
}

// Fault is one planned fault.
type Fault struct {
	ID   string
	Kind Kind
	// On is a role name or pattern ("writer", "writer-1", "projector") or "store".
	On  string
	At  time.Duration // from the start of the load
	For time.Duration
	// Parameters; which of them count depends on the kind.
	Delay     time.Duration
	Jitter    time.Duration
	Direction string // "up", "down", "both"
	Every     int    // act on every n-th commit, counted over all connections of On; 0 and 1 = each
	Max       int    // act at most so often; 0 = no limit
}

// Matches reports whether a fault on `on` concerns the role: the role's name, the part before its number
// ("writer" for "writer-1"), or a pattern of package path ("writer-*").
func Matches(on, role string) bool {
	if on == role || strings.HasPrefix(role, on+"-") {
		return true
	}
	ok, err := path.Match(on, role)
	return ok && err == nil
}

// Validate returns an error naming the field that is wrong.
func (f Fault) Validate() error {
	known := false
	for _, d := range Kinds() {
		known = known || d.Kind == f.Kind
	}
	switch {
	case f.ID == "":
		return fmt.Errorf("fault without id")
	case !known:
		return fmt.Errorf("fault %s: kind %q is not known", f.ID, f.Kind)
	case f.On == "":
		return fmt.Errorf("fault %s: on: missing (a role or \"store\")", f.ID)
	case f.At < 0 || f.For < 0:
		return fmt.Errorf("fault %s: at and for may not be negative", f.ID)
	case f.Kind == Latency && f.Delay <= 0:
		return fmt.Errorf("fault %s: delay: must be above 0", f.ID)
	case f.Kind == Latency && (f.Jitter < 0 || f.Jitter > f.Delay):
		return fmt.Errorf("fault %s: jitter: must lie between 0 and the delay", f.ID)
	case f.Kind == Latency && f.Direction != "" && f.Direction != "up" && f.Direction != "down" && f.Direction != "both":
		return fmt.Errorf("fault %s: direction: %q is not up, down or both", f.ID, f.Direction)
	case f.Every < 0 || f.Max < 0:
		return fmt.Errorf("fault %s: every and max may not be negative", f.ID)
	case f.Kind == BlackHole && f.Direction != "up" && f.Direction != "down" && f.Direction != "both":
		return fmt.Errorf("fault %s: direction: %q is not up, down or both", f.ID, f.Direction)
	case f.Kind.OnStore() != (f.On == "store"):
		if f.On == "store" {
			return fmt.Errorf("fault %s: %s works on a role's connections or process; name a role", f.ID, f.Kind)
		}
		return fmt.Errorf("fault %s: %s works on the store: write `on: store`", f.ID, f.Kind)
	}
	return nil
}
