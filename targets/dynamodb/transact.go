package dynamodb

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
)

// Limits of one transaction of the service.
const (
	maxItems = 100
	// MaxBatch is the largest append of transact-head: beside the events stand the head and the request record.
	MaxBatch = maxItems - 2
	// maxBytes leaves some of the 4 MB for keys and the other items.
	maxBytes = 3800 << 10
)

var (
	errBatch      = fmt.Errorf("dynamodb: a transaction holds at most %d events", MaxBatch)
	errBytes      = errors.New("dynamodb: a transaction holds at most 4 MB")
	errEventTaken = errors.New("dynamodb: an event id is in the log already, under another request")
	errSlotTaken  = errors.New("dynamodb: the head record is behind the events: a version after it is taken")
)

// TransactHead appends in one transaction, which moves the stream's head record from the expected version and puts the
// events and what the request has done. As long as there is room, each event id is put under a key of its own as well,
// so that an id can't come again under another request.
type TransactHead struct{}

// Places of the operations in the transaction; the events follow, then the ids.
const (
	placeHead = iota
	placeRequest
	placeEvents
)

// Append implements Appender.
func (TransactHead) Append(ctx context.Context, c *Conn, a eventstore.Append) (eventstore.Appended, error) {
	if err := fits(a); err != nil {
		return eventstore.Appended{}, err
	}
	for _, p := range []points.Point{points.AppendBegin, points.AppendBeforeHead} {
		if err := c.At(ctx, p); err != nil {
			return eventstore.Appended{}, err
		}
	}
	head := a.Expected.Version()
	if a.Expected.IsAny() {
		var err error
		if head, err = c.head(ctx, a.Stream); err != nil {
			return eventstore.Appended{}, err
		}
	}
	if err := c.At(ctx, points.AppendAfterHead); err != nil {
		return eventstore.Appended{}, err
	}
	ops, err := c.operations(a, head)
	if err != nil {
		return eventstore.Appended{}, fail("append", eventstore.Invalid, err)
	}
	token := clientToken(c.s.cfg.Table, c.s.env.Name, a, head)
	_, err = c.db.TransactWriteItems(ctx, &sdk.TransactWriteItemsInput{TransactItems: ops, ClientRequestToken: aws.String(token)})
	if cancel, ok := said[*types.TransactionCanceledException](err); ok && len(cancel.CancellationReasons) == len(ops) {
		return refused(a, cancel.CancellationReasons, err)
	}
	if err != nil {
		return eventstore.Appended{}, c.write("append", err)
	}
	done := appended(a, head+1)
	done.Replayed = c.s.acked.add(token)
	return done, nil
}

func fits(a eventstore.Append) error {
	if len(a.Events) > MaxBatch {
		return fail("append", eventstore.TooLarge, errBatch)
	}
	bytes := 0
	for _, e := range a.Events {
		bytes += len(e.Data)
	}
	if bytes > maxBytes {
		return fail("append", eventstore.TooLarge, errBytes)
	}
	return nil
}

// clientToken names a write to the server, which carries it out once within its window however often it is sent. Blind
// retries of a write repeat its content and therefore the token. The role is part of it: what another role has sent is
// found in the request record, where it can be told from the own. So is the table: tokens are the account's.
func clientToken(table, role string, a eventstore.Append, head uint64) string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %q %q %d %s", table, role, a.Stream, token(a), head, joinIDs(a.Events))
	for _, e := range a.Events {
		payload := eventstore.PayloadHash(e.Type, e.Data)
		h.Write(payload[:])
		fmt.Fprintf(h, "%q", fmt.Sprint(e.Meta))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// head reads the head record strongly.
func (c *Conn) head(ctx context.Context, stream string) (uint64, error) {
	out, err := c.db.GetItem(ctx, &sdk.GetItemInput{
		TableName: aws.String(c.s.cfg.Table), Key: keyOf(prefixStream+stream, sortHead), ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return 0, unsent(c.read("append", err))
	}
	return headOf(out.Item)
}

func headOf(it item) (uint64, error) {
	if len(it) == 0 {
		return 0, nil
	}
	f := fields{it: it}
	head := f.number("version")
	if f.err != nil {
		return 0, fail("append", eventstore.Rejected, f.err)
	}
	return head, nil
}

const absent = "attribute_not_exists(#pk)"

// operations makes the transaction of an append behind a head.
func (c *Conn) operations(a eventstore.Append, head uint64) ([]types.TransactWriteItem, error) {
	table := aws.String(c.s.cfg.Table)
	first, last := head+1, head+uint64(len(a.Events))
	put := func(it item) types.TransactWriteItem {
		return types.TransactWriteItem{Put: &types.Put{
			TableName: table, Item: it, ConditionExpression: aws.String(absent),
			ExpressionAttributeNames:            map[string]string{"#pk": "pk"},
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		}}
	}
	move := &types.Update{
		TableName: table, Key: keyOf(prefixStream+a.Stream, sortHead),
		UpdateExpression:                    aws.String("SET #version = :last"),
		ConditionExpression:                 aws.String("#version = :head"),
		ExpressionAttributeNames:            map[string]string{"#version": "version"},
		ExpressionAttributeValues:           item{":last": number(last), ":head": number(head)},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	if head == 0 {
		move.ConditionExpression = aws.String(absent)
		move.ExpressionAttributeNames["#pk"] = "pk"
		delete(move.ExpressionAttributeValues, ":head")
	}
	request := keyOf(prefixRequest+token(a), sortRequest)
	request["stream"], request["first"], request["last"] = text(a.Stream), number(first), number(last)
	request["events"] = text(joinIDs(a.Events))

	ops := []types.TransactWriteItem{placeHead: {Update: move}, placeRequest: put(request)}
	for i := range a.Events {
		it, err := encodeEvent(a, i, first)
		if err != nil {
			return nil, err
		}
		ops = append(ops, put(it))
	}
	for _, e := range a.Events {
		if len(ops) == maxItems {
			break
		}
		ops = append(ops, put(keyOf(prefixID+e.ID.String(), sortID)))
	}
	return ops, nil
}

// refused answers an append whose transaction was cancelled, and so has no effect. What the request record says comes
// first: after its own success a repeated append fails at the head as well.
func refused(a eventstore.Append, reasons []types.CancellationReason, cause error) (eventstore.Appended, error) {
	request, head := reasons[placeRequest], reasons[placeHead]
	switch {
	case codeOf(request) == reasonCondition:
		done, err := decodeRequest(request.Item)
		if err != nil {
			return eventstore.Appended{}, fail("append", eventstore.TransactionConflict, errors.Join(err, cause))
		}
		return done, nil
	case codeOf(request) != reasonNone:
		// Whether the request was executed is not known, so nothing is said about the head.
		return eventstore.Appended{}, byReasons("append", reasons[placeRequest:placeEvents], cause)
	case codeOf(head) == reasonCondition:
		return eventstore.Appended{}, behindOrAhead(a, head.Item, cause)
	}
	for i, r := range reasons[placeEvents:] {
		if codeOf(r) != reasonCondition {
			continue
		}
		if i < len(a.Events) {
			return eventstore.Appended{}, fail("append", eventstore.Rejected, errors.Join(errSlotTaken, cause))
		}
		return eventstore.Appended{}, fail("append", eventstore.Invalid, errors.Join(errEventTaken, cause))
	}
	return eventstore.Appended{}, byReasons("append", reasons, cause)
}

func byReasons(op string, reasons []types.CancellationReason, cause error) error {
	r := cancelled(reasons)
	return &eventstore.Error{Op: op, Outcome: r.outcome, Reason: r.reason, Err: cause}
}

// behindOrAhead answers an append whose head was another one; old is the head record, empty if there is none.
func behindOrAhead(a eventstore.Append, old item, cause error) error {
	head, err := headOf(old)
	switch {
	case err != nil:
		return err
	case a.Expected.IsAny():
		return fail("append", eventstore.LostRace, cause)
	case head < a.Expected.Version():
		return failAt("append", eventstore.ExpectedAhead, head, errors.Join(errAhead, cause))
	}
	return failAt("append", eventstore.VersionConflict, head, cause)
}

func decodeRequest(it item) (eventstore.Appended, error) {
	f := fields{it: it}
	done := eventstore.Appended{First: f.number("first"), Last: f.number("last"), Replayed: true}
	ids := f.text("events")
	if f.err != nil {
		return eventstore.Appended{}, f.err
	}
	var err error
	done.Events, err = splitIDs(ids)
	return done, err
}
