package faults

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"
)

// heal: sick … sick, then a dialer whose timer strikes a moment before the context's
func TestWhatWentWrongIsKeptWhenTimeRunsOut(t *testing.T) {
	sick := errors.New("sick")
	e := New(Options{Heal: 50 * time.Millisecond})
	first := true
	err := e.retry(t.Context(), func(context.Context) error {
		if first {
			first = false
			return sick
		}
		return os.ErrDeadlineExceeded // the context has not ended
	})
	if !errors.Is(err, sick) {
		t.Error("got", err)
	}
}

func TestAWayThatOnlyHangsIsReportedAsTimedOut(t *testing.T) {
	e := New(Options{Heal: 50 * time.Millisecond})
	if err := e.retry(t.Context(), func(context.Context) error { return os.ErrDeadlineExceeded }); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("got", err)
	}
}
