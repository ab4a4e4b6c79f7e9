// Package dynamodb is an emulator of Amazon DynamoDB and DynamoDB Streams for one process: their JSON 1.0 protocol over
// HTTP, as AWS documents it, with faults that can be switched on inside. It is a stand-in: what runs against it proves
// code paths, never the product, and its speed says nothing about DynamoDB's.
//
// # What there is
//
// CreateTable (with global secondary indexes and a stream; ACTIVE at once), DescribeTable, DeleteTable, ListTables;
// GetItem, PutItem, UpdateItem, DeleteItem; Query, Scan (also in segments); BatchGetItem, BatchWriteItem;
// TransactWriteItems, TransactGetItems; ListStreams, DescribeStream, GetShardIterator, GetRecords.
//
// Not there: UpdateTable, local secondary indexes, PartiQL, TTL, tags, backups, capacity accounting, the parameters of
// before expressions (Expected, AttributesToGet, …). They are refused with a clear error. Streams keep their records
// for ever, not for 24 hours. Numbers are exact, in plain form ("1E2" comes back as "100").
//
// # Transactions
//
// Everything is serializable. A transaction can hold its items for a while before it applies (Options.Window, or the
// fault transaction-window): only then do others meet it. A write then fails with TransactionConflictException, a
// transaction is cancelled with the reason TransactionConflict, an item of BatchWriteItem comes back as unprocessed;
// GetItem, Query and Scan never conflict. A transaction that comes with the client token of one in its window gets
// TransactionInProgressException; for ten minutes after one succeeded, the same request is answered with success and
// has no effect, and another one gets IdempotentParameterMismatchException. Tokens of cancelled transactions are
// forgotten.
//
// # Streams
//
// The records of an item are in one shard, in their order; the items of one partition key may be in several, so only
// the order of one item is promised. Sequence numbers are decimal, greater than 10^20, ascending in the whole table
// without being dense in a shard, and never used again. Shard ids end in their number, which is dense in the table. A
// write that changes nothing makes no record.
//
// # The log
//
// With Options.Dir, all that must survive is in one append-only file, dynamodb.log. Each line is
//
//	<length> <crc> <json>\n
//
// where length is the decimal number of bytes of json, crc is their CRC-32C (Castagnoli) in 8 hexadecimal digits, one
// space between. A line that is not whole, or whose length or checksum is wrong, is where the log ends if no whole line
// follows (a torn tail: it was never acknowledged, and is cut off when the log is opened again); if one follows, the
// log is damaged. json is an object:
//
//	n       number of the record: 1, 2, 3, … without gaps
//	at_ms   wall-clock time, milliseconds since 1970
//	kind    open | create-table | delete-table | split-shards | commit
//	format  in the first record, which is of kind open: eventproof-dynamodb-log/1
//	create  of create-table: {name, id, created_ms, key: {hash, range}, attributes: {name: S|N|B}, indexes,
//	        stream_view, stream_label, stream_shards, billing, read, write}. The stream begins with shards 0 to
//	        stream_shards-1
//	table   of delete-table and split-shards: the table's name. Deleting forgets its items and its stream
//	writes  of commit: what one atomic commit changed, in its order: [{table, key, item, seq, shard}]. key is the
//	        primary key, item the whole item afterwards, null if it was deleted, both in DynamoDB's JSON ({"S": "text"},
//	        numbers in plain decimal form, bytes in base64, sets sorted). seq is the sequence number of the stream
//	        record less 10^20, counted from 1 for each table; it is absent if the table has no stream. shard is the
//	        shard's number, absent for 0
//	token   of commit: {id, sha256}: the client token of the transaction, and a hash of its request. A transaction
//	        that changed nothing has a commit without writes if it has a token
//
// The state at any record is the fold of the writes before it: the last item of each key. A stream record's old image is
// the item of the fold before it, its new image the item of the write. A split-shards record takes one sequence
// number, closes all open shards at it, and opens one child for each in the order of the open ones: numbers go on
// from the highest so far.
//
// A record is written before anybody can see what it says. No answer leaves the server before the record of all that it
// tells is written, and with Options.Fsync flushed to the disk.
//
// # Faults
//
// Arm, Disarm and Faults switch them; on the same port, so does the admin endpoint:
//
//	POST   /_eventproof/faults         {"kind": "drop-answer", "ops": ["PutItem"], "skip": 9, "count": 1} → {"id": "fault-1"}
//	GET    /_eventproof/faults         {"faults": [{"id": …, "seen": 12, "hits": 1}]}
//	DELETE /_eventproof/faults?id=ID   takes one away, or all without id, and answers like GET
//	GET    /_eventproof/state          State: requests in flight, transactions in their window, open connections
//	POST   /_eventproof/streams/split?table=NAME
//
// The fields are those of Fault, durations are texts such as "50ms". GET / answers with the header Eventproof-Emulator,
// as does everything else: nothing but this emulator has it.
package dynamodb
