package audit

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/eventproof/eventproof/history"
)

// StreamHeads yields the rows of heads, where an assembly keeps them: no correct one does.
func (a *Auditor) StreamHeads(ctx context.Context, yield func(history.HeadRow) error) error {
	return a.snapshot(ctx, func(tx pgx.Tx) error {
		var kept bool
		if err := tx.QueryRow(ctx, `select to_regclass('heads') is not null`).Scan(&kept); err != nil {
			return fmt.Errorf("audit: looking for heads: %w", err)
		}
		if !kept {
			return nil
		}
		const sql = `select h.stream, h.version from heads as h order by h.stream`
		return each(ctx, tx, "the heads", sql, func(r pgx.Rows) error {
			var stream string
			var version int64
			if err := r.Scan(&stream, &version); err != nil {
				return err
			}
			return yield(history.HeadRow{Stream: stream, Version: uint64(version)})
		})
	})
}
