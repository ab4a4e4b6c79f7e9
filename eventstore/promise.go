package eventstore

// Promise is a guarantee that a target declares. Rules are enabled by promises; a rule whose promise is not
// declared is shown as not-promised, never skipped in silence.
type Promise string

// The promises.
const (
	// OptimisticConcurrency: an exact expected version is compare-and-swap at the stream.
	OptimisticConcurrency Promise = "optimistic-concurrency"
	// AtomicBatch: an append of several events is all or nothing.
	AtomicBatch Promise = "atomic-batch"
	// IdempotentAppend: a repeated request is answered with the first result.
	IdempotentAppend Promise = "idempotent-append"
	// StrongRead: a strong read shows every append acknowledged before it began.
	StrongRead Promise = "strong-read"
	// GlobalOrder: positions are one order over all streams in which version order is kept.
	GlobalOrder Promise = "global-order"
	// StreamOrder: positions keep the version order inside every stream, and nothing is promised across streams.
	// GlobalOrder includes it.
	StreamOrder Promise = "stream-order"
	// PartitionedLog: an acknowledged event stays at the partition and offset that its answer named, is there once,
	// and the offsets of a stream follow its versions.
	PartitionedLog Promise = "partitioned-log"
	// RealTimeOrder: positions also follow real time.
	RealTimeOrder Promise = "real-time-order"
	// CompleteFeed: the feed never passes an event that appears later.
	CompleteFeed Promise = "complete-feed"
	// FencedOwnership: after a take-over the former owner's writes are refused.
	FencedOwnership Promise = "fenced-ownership"
	// FreshRefusals: a business refusal is decided on a state that was current.
	FreshRefusals Promise = "fresh-refusals"
	// AtomicProjection: view, ledger and checkpoint move in one atomic unit.
	AtomicProjection Promise = "atomic-projection"
	// Durable: what was acknowledged survives kill -9 of the server.
	Durable Promise = "durable"
)
