package audit_test

import (
	"context"
	"testing"
	"time"
)

// timeout bounds a wait that is meant to be in vain.
func timeout(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(t.Context(), 500*time.Millisecond)
}
