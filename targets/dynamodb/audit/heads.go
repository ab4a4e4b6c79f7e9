package audit

import (
	"context"
	"fmt"
	"strings"

	"github.com/eventproof/eventproof/history"
)

// StreamHeads yields the head records of the streams; a variant without them has none.
func (a *Auditor) StreamHeads(ctx context.Context, yield func(history.HeadRow) error) error {
	return a.scan(ctx, "HEAD", func(r row) error {
		get := reader{row: r}
		pk, sk, version := get.text("pk"), get.text("sk"), get.count("version")
		if get.err != nil {
			return get.err
		}
		stream, ok := strings.CutPrefix(pk, "STREAM#")
		if !ok || sk != "HEAD" {
			return fmt.Errorf("audit: the item at %s, %s is no head of a stream", pk, sk)
		}
		return yield(history.HeadRow{Stream: stream, Version: version})
	})
}
