package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Resolution is what a retry part makes of a write whose attempt ended unknown; exactly one field is set.
type Resolution struct {
	// Repeat: nothing is known; the same write is sent again.
	Repeat bool
	// Answer: the command has taken effect.
	Answer *Answer
	// Basis: the write is without effect; decide again on this state.
	Basis *Basis
}

// Retry says what the command loop does after an append ended unknown, or was refused while an earlier try of
// the same write was still open.
type Retry func(ctx context.Context, r *Run, w *Write) (Resolution, error)

// Continue says how a process takes up a command that another one had begun: it returns the answer if the
// command has taken effect, else the state to decide on.
type Continue func(ctx context.Context, r *Run) (*Answer, *Basis, error)

// The correct parts, by the names that assemblies use.
const (
	RepeatWrite = "repeat-write"
	WholeStream = "whole-stream"
)

// Parts is the registry of the command loop's replaceable parts. Parts from outside are added by name; a target
// names the ones it wants in its assembly.
type Parts struct {
	retry     map[string]Retry
	continues map[string]Continue
}

// DefaultParts returns a registry of the correct parts.
func DefaultParts() *Parts {
	return &Parts{
		retry:     map[string]Retry{RepeatWrite: repeatWrite},
		continues: map[string]Continue{WholeStream: wholeStream},
	}
}

// ErrUnknownPart says that an assembly names a part that is not registered.
var ErrUnknownPart = errors.New("app: unknown part")

// AddRetry registers a retry part.
func (p *Parts) AddRetry(name string, r Retry) { p.retry[name] = r }

// AddContinue registers a continue part.
func (p *Parts) AddContinue(name string, c Continue) { p.continues[name] = c }

// Policy is a choice of parts.
type Policy struct {
	Retry    Retry
	Continue Continue
}

// Resolve returns the parts of these names; an empty name is the correct part. The error wraps ErrUnknownPart
// and lists the known names.
func (p *Parts) Resolve(retry, continuation string) (Policy, error) {
	r, err := find(p.retry, "retry", retry, RepeatWrite)
	if err != nil {
		return Policy{}, err
	}
	c, err := find(p.continues, "continue", continuation, WholeStream)
	if err != nil {
		return Policy{}, err
	}
	return Policy{Retry: r, Continue: c}, nil
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
