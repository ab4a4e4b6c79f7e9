package dynamodb

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/eventstore"
)

const (
	attachPause = 20 * time.Millisecond
	// A pass that met a transaction half way is repeated after a pause that doubles. A hole that outlasts the repeats
	// is none of the read's making: it is returned, to be judged.
	maxPasses = 8
	tornPause = time.Millisecond
)

// Read implements eventstore.Store.
func (s *session) Read(ctx context.Context, r eventstore.ReadRequest) (eventstore.Slice, error) {
	r.From = max(r.From, 1)
	if r.To != 0 && r.To < r.From {
		return eventstore.Slice{}, nil
	}
	var slice eventstore.Slice
	var found []Stored
	err := s.with(ctx, "read", func(c *Conn) error {
		for pass, pause := 1, tornPause; ; pass, pause = pass+1, 2*pause {
			events, pages, err := s.parts.Reader.Read(ctx, c, r)
			slice.Pages += pages
			if err != nil {
				return err
			}
			found = events
			if pass == maxPasses || !torn(events, r) {
				return nil
			}
			if err := clock.Sleep(ctx, pause); err != nil {
				return classifyRead("read", true, err)
			}
		}
	})
	if err != nil {
		return eventstore.Slice{}, err
	}
	for _, e := range found {
		slice.Events = append(slice.Events, e.Event)
	}
	if n := len(found); n > 0 && !torn(found, r) {
		s.seen.upTo(r.Stream, found[n-1].Version)
	}
	return slice, nil
}

// torn reports whether a pass shows a transaction in part: a version is missing, or the range ends inside a batch.
func torn(events []Stored, r eventstore.ReadRequest) bool {
	next := r.From
	for _, e := range events {
		if e.Version != next {
			return true
		}
		next++
	}
	if len(events) == 0 {
		return false
	}
	last := events[len(events)-1]
	return last.Version < last.BatchLast && (r.To == 0 || last.Version < r.To)
}

// AllPages reads every page of a range.
type AllPages struct{}

// Read implements Reader.
func (AllPages) Read(ctx context.Context, c *Conn, r eventstore.ReadRequest) (events []Stored, pages int, err error) {
	var after Place
	for {
		page, next, err := c.Page(ctx, r, after)
		if err != nil {
			return nil, pages, err
		}
		pages++
		events = append(events, page...)
		if next == nil {
			return events, pages, nil
		}
		after = next
	}
}

// Place is where a page ended; nil is the beginning, or the end.
type Place item

// Page reads one page of a range: at most r.PageSize events (0 = no limit of ours), at most the 1 MB of the service.
func (c *Conn) Page(ctx context.Context, r eventstore.ReadRequest, after Place) ([]Stored, Place, error) {
	to := eventKeyEnd
	if r.To != 0 {
		to = eventKey(r.To)
	}
	in := &sdk.QueryInput{
		TableName:                aws.String(c.s.cfg.Table),
		ConsistentRead:           aws.Bool(r.Consistency == eventstore.Strong),
		KeyConditionExpression:   aws.String("#pk = :pk AND #sk BETWEEN :from AND :to"),
		ExpressionAttributeNames: map[string]string{"#pk": "pk", "#sk": "sk"},
		ExpressionAttributeValues: item{
			":pk": text(prefixStream + r.Stream), ":from": text(eventKey(r.From)), ":to": text(to),
		},
		ExclusiveStartKey: after,
	}
	if r.PageSize > 0 {
		in.Limit = aws.Int32(int32(min(r.PageSize, 1<<20)))
	}
	out, err := c.db.Query(ctx, in)
	if err != nil {
		return nil, nil, c.read("read", err)
	}
	events := make([]Stored, 0, len(out.Items))
	for _, it := range out.Items {
		e, err := decodeEvent(it)
		if err != nil {
			return nil, nil, fail("read", eventstore.Rejected, err)
		}
		events = append(events, e)
	}
	if len(out.LastEvaluatedKey) == 0 {
		return events, nil, nil
	}
	return events, out.LastEvaluatedKey, nil
}
