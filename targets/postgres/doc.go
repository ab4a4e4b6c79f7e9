// Package postgres puts an event table in PostgreSQL under test: appends with optimistic concurrency and request
// dedupe, two readers that are allowed to order by position, same-transaction projections, snapshots.
//
// A target is an assembly of parts. The parts of the correct variants are here; broken ones live in package
// controls and are built from the same exported pieces (Tx, Progress). Nothing here asks which bug is
// switched on: a control hands in another part.
//
//   - advisory-lock: every appender takes one lock before it draws a position, so that positions become visible
//     in their own order and a reader may poll "position > last".
//   - xid-horizon: appenders don't wait for each other; the reader orders by (transaction id, position) and
//     stops below the oldest transaction that still runs.
package postgres
