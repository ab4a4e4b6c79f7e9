// Package kafka puts an event log in Apache Kafka under test. Kafka has no conditional append and no query by stream, so
// what an event store needs comes from a pattern, and the variant is named after it:
//
//   - fenced-writer: the topic of events has four partitions, a stream lies in one of them. Each partition has one owner at
//     a time, a role of its own (package owner), with the partition's transactional id. Whoever takes a partition
//     initialises the id, which fences the former owner; reads what is committed up to the high watermark taken after
//     that; writes a lease; and only then serves. Expected versions are checked in the owner. Requests are answered in
//     groups, when the transaction of the group has ended.
//
// Writers reach owners by HTTP on loopback, for appends and for strong reads. Feeds read committed records of every
// partition up to the last stable offset. A projection writes the rows of its view, its ledger and its checkpoint in one
// transaction with the offsets of its consumer group.
//
// Event ids and request tokens are known to the owner of one partition: a token that is used again on a stream of another
// partition is not recognised. The application's tokens belong to one stream.
//
// A target is an assembly of parts. Broken parts live in package controls.
package kafka
