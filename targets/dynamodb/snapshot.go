package dynamodb

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/eventproof/eventproof/eventstore"
)

// LoadSnapshot implements eventstore.Snapshots.
func (s *session) LoadSnapshot(ctx context.Context, stream string) (eventstore.Snapshot, bool, error) {
	snap := eventstore.Snapshot{Stream: stream}
	found := false
	err := s.with(ctx, "load snapshot", func(c *Conn) error {
		out, err := c.db.GetItem(ctx, &sdk.GetItemInput{
			TableName: aws.String(s.cfg.Table), Key: keyOf(prefixStream+stream, sortSnapshot), ConsistentRead: aws.Bool(true),
		})
		if err != nil || len(out.Item) == 0 {
			return c.read("load snapshot", err)
		}
		f := fields{it: out.Item}
		snap.Version, snap.State, found = f.number("version"), f.binary("state"), true
		if f.err != nil {
			return fail("load snapshot", eventstore.Rejected, f.err)
		}
		return nil
	})
	if err != nil || !found {
		return eventstore.Snapshot{}, false, err
	}
	return snap, true, nil
}

// SaveSnapshot implements eventstore.Snapshots. A late writer may not put an older state over a newer one: it would be
// right, and useless.
func (s *session) SaveSnapshot(ctx context.Context, snap eventstore.Snapshot) error {
	it := keyOf(prefixStream+snap.Stream, sortSnapshot)
	it["version"], it["state"] = number(snap.Version), bytesOf(snap.State)
	return s.with(ctx, "save snapshot", func(c *Conn) error {
		_, err := c.db.PutItem(ctx, &sdk.PutItemInput{
			TableName: aws.String(s.cfg.Table), Item: it,
			ConditionExpression:       aws.String("attribute_not_exists(#pk) OR #version < :version"),
			ExpressionAttributeNames:  map[string]string{"#pk": "pk", "#version": "version"},
			ExpressionAttributeValues: item{":version": number(snap.Version)},
		})
		if _, newer := said[*types.ConditionalCheckFailedException](err); newer {
			return nil
		}
		return c.write("save snapshot", err)
	})
}
