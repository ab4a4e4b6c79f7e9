package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Resolution is what a part makes of a write that did not get through; one field is set, or Basis besides Answer.
type Resolution struct {
	// Repeat: nothing is known; the same write is sent again.
	Repeat bool
	// Answer: the command has taken effect.
	Answer *Answer
	// Basis: the write is without effect; decide again on this state.
	Basis *Basis
	// Write: the write is without effect; this one is sent in its place.
	Write *Write
}

// Retry says what the command loop does after an append ended unknown, or was refused while an earlier try of
// the same write was still open.
type Retry func(ctx context.Context, r *Run, w *Write) (Resolution, error)

// Conflict says what the command loop does after a version conflict of a write none of whose tries is open.
type Conflict func(ctx context.Context, r *Run, w *Write) (Resolution, error)

// Continue says how a process takes up a command that another one had begun: it returns the answer if the
// command has taken effect, else the state to decide on.
type Continue func(ctx context.Context, r *Run) (*Answer, *Basis, error)

// The correct parts, by the names that assemblies use.
const (
	RepeatWrite     = "repeat-write"
	WholeStream     = "whole-stream"
	ReloadAndDecide = "reload-and-decide"
	BestEffort      = "best-effort"
)

// Parts is the registry of the command loop's replaceable parts. Parts from outside are added by name; a target
// names the ones it wants in its assembly.
type Parts struct {
	retry     map[string]Retry
	continues map[string]Continue
	conflict  map[string]Conflict
	snapshots map[string]SnapshotPolicy
}

// DefaultParts returns a registry of the correct parts.
func DefaultParts() *Parts {
	return &Parts{
		retry:     map[string]Retry{RepeatWrite: repeatWrite},
		continues: map[string]Continue{WholeStream: wholeStream},
		conflict:  map[string]Conflict{ReloadAndDecide: reloadAndDecide},
		snapshots: map[string]SnapshotPolicy{BestEffort: Snapshotter{}},
	}
}

// ErrUnknownPart says that an assembly names a part that is not registered.
var ErrUnknownPart = errors.New("app: unknown part")

// AddRetry registers a retry part.
func (p *Parts) AddRetry(name string, r Retry) { p.retry[name] = r }

// AddContinue registers a continue part.
func (p *Parts) AddContinue(name string, c Continue) { p.continues[name] = c }

// AddConflict registers a conflict part.
func (p *Parts) AddConflict(name string, c Conflict) { p.conflict[name] = c }

// AddSnapshots registers a snapshot part.
func (p *Parts) AddSnapshots(name string, s SnapshotPolicy) { p.snapshots[name] = s }

// Choice names a part for each place of the command loop; an empty name is the correct part. It travels as JSON.
type Choice struct {
	Retry    string `json:"retry,omitempty"`
	Continue string `json:"continue,omitempty"`
	Conflict string `json:"conflict,omitempty"`
	Snapshot string `json:"snapshot,omitempty"`
}

// Policy is a choice of parts.
type Policy struct {
	Retry     Retry
	Continue  Continue
	Conflict  Conflict
	Snapshots SnapshotPolicy
}

// Resolve returns the parts of a choice. The error wraps ErrUnknownPart and lists the known names.
func (p *Parts) Resolve(c Choice) (out Policy, err error) {
	var errs [4]error
	out.Retry, errs[0] = find(p.retry, "retry", c.Retry, RepeatWrite)
	out.Continue, errs[1] = find(p.continues, "continue", c.Continue, WholeStream)
	out.Conflict, errs[2] = find(p.conflict, "conflict", c.Conflict, ReloadAndDecide)
	out.Snapshots, errs[3] = find(p.snapshots, "snapshot", c.Snapshot, BestEffort)
	if err = errors.Join(errs[:]...); err != nil {
		return Policy{}, err
	}
	return out, nil
}

func find[T any](m map[string]T, place, name, otherwise string) (T, error) {
	if name == "" {
		name = otherwise
	}
	part, ok := m[name]
	if !ok {
		known := strings.Join(slices.Sorted(maps.Keys(m)), ", ")
		return part, fmt.Errorf("%w: %s %q; known: %s", ErrUnknownPart, place, name, known)
	}
	return part, nil
}
