// Package points names the places in role code where a scenario can hold, delay or crash a role.
package points

import (
	"context"
	"errors"
)

// Point is the name of a place in role code, "<role>.<place>". The built-in names are below; code from
// outside may name its own.
type Point string

// Points of the command loop (package app).
const (
	WriterBeforeLoad   Point = "writer.before-load"   // a command has begun, nothing read yet
	WriterAfterDecide  Point = "writer.after-decide"  // decision made, nothing sent
	WriterAfterUnknown Point = "writer.after-unknown" // an append ended unknown, before anything is looked up
	WriterBeforeAnswer Point = "writer.before-answer" // the result is known, not yet returned
	SnapshotBeforePut  Point = "snapshot.before-put"  // the event is durable, the snapshot not yet written
)

// Points inside an append, in the adapters.
const (
	AppendBegin       Point = "append.begin"        // the store's transaction is open, nothing was done in it
	AppendBeforeHead  Point = "append.before-head"  // before the stream's head is read
	AppendAfterHead   Point = "append.after-head"   // head read and compared, nothing inserted
	AppendAfterInsert Point = "append.after-insert" // position drawn, not committed
	AppendAfterCommit Point = "append.after-commit" // commit acknowledged, answer not yet given
)

// Points of the projector (package app and the projection parts of the adapters).
const (
	ProjectorBeforePoll      Point = "projector.before-poll"      // between two rounds
	ProjectorAfterPoll       Point = "projector.after-poll"       // page in hand, nothing applied
	ProjectorAfterEffect     Point = "projector.after-effect"     // view rows written, checkpoint not
	ProjectorAfterCheckpoint Point = "projector.after-checkpoint" // checkpoint written, view rows not (only where that order exists)
	ProjectorBeforeCommit    Point = "projector.before-commit"    // everything done in the transaction, commit not sent
	ProjectorAfterCommit     Point = "projector.after-commit"     // commit acknowledged
)

// All lists the built-in points, for validation of scenarios and for help texts.
func All() []Point {
	return []Point{
		WriterBeforeLoad, WriterAfterDecide, WriterAfterUnknown, WriterBeforeAnswer, SnapshotBeforePut,
		AppendBegin, AppendBeforeHead, AppendAfterHead, AppendAfterInsert, AppendAfterCommit,
		ProjectorBeforePoll, ProjectorAfterPoll, ProjectorAfterEffect, ProjectorAfterCheckpoint,
		ProjectorBeforeCommit, ProjectorAfterCommit,
	}
}

// ErrCrashed is returned by a gate when the role is to die here. The role's sockets were reset before, so
// whatever the unwinding code still sends reaches nobody. Role code returns it at once.
var ErrCrashed = errors.New("points: the role was crashed here")

// Gate is asked at every point. nil = go on; it blocks while the point is held; an error ends the role.
// n counts the visits of this point by this role, from 1; a caller that does not count passes 0.
type Gate interface {
	At(ctx context.Context, p Point, n uint64) error
}

// Open is a gate that never holds.
type Open struct{}

// At implements Gate.
func (Open) At(context.Context, Point, uint64) error { return nil }
