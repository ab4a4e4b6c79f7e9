// Package dynamodb puts an event table in DynamoDB under test: one table, partition key pk, sort key sk.
//
//	pk                     sk                        what
//	STREAM#<stream>        EVENT#<version, 12 digits> one event
//	STREAM#<stream>        HEAD                      version of the last event (transact-head)
//	STREAM#<stream>        SNAPSHOT                  the stream's one snapshot
//	STREAM#<row>           VIEW#<view>#<generation>  one row of a view
//	REQUEST#<token>        REQUEST                   what a request has done (transact-head)
//	ID#<event id>          ID                        the event id is taken (transact-head)
//	PROJECTION#<view>      CHECKPOINT                where a projection stands
//	PROJECTION#<view>      BATCH#<seq>#<unit>        ledger of one batch: the value the checkpoint moved to, the effects
//
// Variants:
//
//   - conditional-put: the event's own key is the lock. One event an append, no request dedupe. The put does not look at
//     a head, so the adapter puts version v+1 only when version v was seen: in a read or an append of this session, or in
//     a strong read made for it. Events are never deleted, so what was seen stays true, and an expected version ahead of
//     the head is refused like any other wrong one.
//   - transact-head: one transaction moves a head record under a condition and puts the events, a request record and a
//     record for each event id. A repeated request is answered from the request record.
//
// Every call is one attempt on the wire: the SDK's retries are off, and so are those of net/http, because the package
// writes its requests itself (Conn). What an answer, or its absence, proves is in outcomes.go.
//
// The feed reads DynamoDB Streams. They keep the order of one item's changes only, so it holds an event back until all
// lower versions of its stream were given out.
package dynamodb
