package dynamodb

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
)

// maxData bounds the payload of one event: an item holds 400 KB, and the rest of it needs some room.
const maxData = 380 << 10

var (
	errEmptyAppend = errors.New("dynamodb: an append needs a stream and at least one event, each with an id and a type")
	errNoStreams   = errors.New("dynamodb: this variant keeps auctions as items, and no streams to append to")
	errOneEvent    = errors.New("dynamodb: conditional-put appends one event at a time")
	errData        = errors.New("dynamodb: an event holds more than an item can")
	errAhead       = errors.New("dynamodb: the expected version lies ahead of the head")
)

// Append implements eventstore.Store.
func (s *session) Append(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	if s.parts.Append == nil {
		return eventstore.Appended{}, fail("append", eventstore.Invalid, errNoStreams)
	}
	if err := valid(a); err != nil {
		return eventstore.Appended{}, err
	}
	var done eventstore.Appended
	err := s.with(ctx, "append", func(c *Conn) error {
		var err error
		done, err = s.parts.Append.Append(ctx, c, a)
		return err
	})
	if err != nil {
		return eventstore.Appended{}, err
	}
	s.seen.upTo(a.Stream, done.Last)
	if err := held("append", s.env.Gate.At(ctx, points.AppendAfterCommit, 0), true); err != nil {
		return eventstore.Appended{}, err
	}
	return done, nil
}

func valid(a eventstore.Append) error {
	invalid := a.Stream == "" || len(a.Events) == 0
	large := false
	for _, e := range a.Events {
		invalid = invalid || e.ID.IsZero() || e.Type == ""
		large = large || len(e.Data) > maxData
	}
	switch {
	case invalid:
		return fail("append", eventstore.Invalid, errEmptyAppend)
	case large:
		return fail("append", eventstore.TooLarge, errData)
	}
	return nil
}

// ConditionalPut makes the event's own key the lock.
type ConditionalPut struct{}

// Append implements Appender.
func (ConditionalPut) Append(ctx context.Context, c *Conn, a eventstore.Append) (eventstore.Appended, error) {
	version, own, err := c.Slot(ctx, a)
	if err != nil || own != nil {
		return deref(own), err
	}
	taken, err := c.Put(ctx, a, version, true)
	switch {
	case err != nil:
		return eventstore.Appended{}, err
	case taken == nil:
		return appended(a, version), nil
	}
	c.s.seen.upTo(a.Stream, version)
	switch {
	case first(a, *taken):
		// What holds the slot is this very append, executed by an earlier try.
		return result(*taken), nil
	case a.Expected.IsAny():
		return eventstore.Appended{}, fail("append", eventstore.LostRace, nil)
	}
	return eventstore.Appended{}, fail("append", eventstore.VersionConflict, nil)
}

// Slot returns the version that an append of one event wants, after making sure that the version before it exists. own
// is the result of the append if it was found to be executed already.
func (c *Conn) Slot(ctx context.Context, a eventstore.Append) (version uint64, own *eventstore.Appended, err error) {
	if len(a.Events) > 1 {
		return 0, nil, fail("append", eventstore.TooLarge, errOneEvent)
	}
	for _, p := range []points.Point{points.AppendBegin, points.AppendBeforeHead} {
		if err := c.At(ctx, p); err != nil {
			return 0, nil, err
		}
	}
	expected := a.Expected.Version()
	if a.Expected.IsAny() || !c.s.seen.has(a.Stream, expected) {
		last, err := c.last(ctx, a.Stream)
		if err != nil {
			return 0, nil, err
		}
		switch {
		case last != nil && first(a, *last):
			done := result(*last)
			return 0, &done, nil
		case a.Expected.IsAny():
			expected = versionOf(last)
		case versionOf(last) < expected:
			return 0, nil, failAt("append", eventstore.ExpectedAhead, versionOf(last), errAhead)
		}
		c.s.seen.upTo(a.Stream, versionOf(last))
	}
	return expected + 1, nil, c.At(ctx, points.AppendAfterHead)
}

// last reads the last event of a stream strongly; nil if there is none. Its failure leaves the append unsent.
func (c *Conn) last(ctx context.Context, stream string) (*Stored, error) {
	out, err := c.db.Query(ctx, &sdk.QueryInput{
		TableName: aws.String(c.s.cfg.Table), ConsistentRead: aws.Bool(true),
		KeyConditionExpression:   aws.String("#pk = :pk AND begins_with(#sk, :event)"),
		ExpressionAttributeNames: map[string]string{"#pk": "pk", "#sk": "sk"},
		ExpressionAttributeValues: item{
			":pk": text(prefixStream + stream), ":event": text(prefixEvent),
		},
		ScanIndexForward: aws.Bool(false), Limit: aws.Int32(1),
	})
	if err != nil {
		return nil, unsent(c.read("append", err))
	}
	if len(out.Items) == 0 {
		return nil, nil
	}
	e, err := decodeEvent(out.Items[0])
	if err != nil {
		return nil, fail("append", eventstore.Rejected, err)
	}
	return &e, nil
}

// unsent is what the failed read before a write means for the write: nothing of it has left.
func unsent(err error) error {
	var e *eventstore.Error
	if !errors.As(err, &e) || e.Outcome != eventstore.Fail {
		return err
	}
	switch e.Reason {
	case eventstore.LostReply, eventstore.TimedOut, eventstore.Cancelled, eventstore.ServerUncertain:
		return fail(e.Op, eventstore.NotSent, err)
	case eventstore.Killed:
		return &eventstore.Error{Op: e.Op, Outcome: eventstore.Unknown, Reason: eventstore.Killed, Err: err}
	case eventstore.ReasonNone, eventstore.VersionConflict, eventstore.ExpectedAhead, eventstore.LostRace,
		eventstore.TransactionConflict, eventstore.Throttled, eventstore.GroupAborted, eventstore.NotSent,
		eventstore.TooLarge, eventstore.Invalid, eventstore.Rejected, eventstore.Fenced, eventstore.Superseded, eventstore.Refused:
	}
	return err
}

// Put puts an append's only event at a version. With conditional it does so only if the key is free; taken is then the
// event that holds it.
func (c *Conn) Put(ctx context.Context, a eventstore.Append, version uint64, conditional bool) (taken *Stored, err error) {
	it, err := encodeEvent(a, 0, version)
	if err != nil {
		return nil, fail("append", eventstore.Invalid, err)
	}
	in := &sdk.PutItemInput{TableName: aws.String(c.s.cfg.Table), Item: it}
	if conditional {
		in.ConditionExpression = aws.String("attribute_not_exists(#pk)")
		in.ExpressionAttributeNames = map[string]string{"#pk": "pk"}
		in.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
	}
	_, err = c.db.PutItem(ctx, in)
	failed, ok := said[*types.ConditionalCheckFailedException](err)
	if !ok {
		return nil, c.write("append", err)
	}
	held, err := decodeEvent(failed.Item)
	if err != nil {
		// Refused, but by whom is not known: it may be this append itself, which a version conflict would deny.
		return nil, fail("append", eventstore.TransactionConflict, err)
	}
	return &held, nil
}

// first reports whether a stored event was put by this append: by an earlier try of it, or by another write of the same
// request.
func first(a eventstore.Append, s Stored) bool {
	return s.Stream == a.Stream && (s.ID == a.Events[0].ID || s.Request == token(a))
}

// result is the answer of the append that stored an event alone.
func result(s Stored) eventstore.Appended {
	return eventstore.Appended{First: s.Version, Last: s.Version, Events: []eventstore.EventID{s.ID}, Replayed: true}
}

// appended is the answer of an append that was carried out now.
func appended(a eventstore.Append, first uint64) eventstore.Appended {
	done := eventstore.Appended{First: first, Last: first + uint64(len(a.Events)) - 1}
	for _, e := range a.Events {
		done.Events = append(done.Events, e.ID)
	}
	return done
}

func deref(a *eventstore.Appended) eventstore.Appended {
	if a == nil {
		return eventstore.Appended{}
	}
	return *a
}

func versionOf(s *Stored) uint64 {
	if s == nil {
		return 0
	}
	return s.Version
}
