package kafka

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/kafka/internal/broker"
)

// answering dials an owner that answers every request with the given bytes; with less than a whole answer it hangs up.
func answering(answer string) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		mine, theirs := net.Pipe()
		go func() {
			defer func() { _ = theirs.Close() }()
			for in := bufio.NewReader(theirs); ; {
				req, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, req.Body)
				if _, err := io.WriteString(theirs, answer); err != nil || !strings.HasSuffix(answer, "}") {
					return
				}
			}
		}()
		return mine, nil
	}
}

func says(status int, body string) string {
	return fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
}

func TestWhatAnOwnerAnswersOrNot(t *testing.T) {
	refused := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("refused") }
	silent := func(context.Context, string, string) (net.Conn, error) {
		mine, theirs := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		return mine, nil
	}
	for _, c := range []struct {
		name    string
		dial    func(context.Context, string, string) (net.Conn, error)
		outcome eventstore.Outcome
		reason  eventstore.Reason
		read    eventstore.Reason // of a read, whose outcome is fail whatever the reason
	}{
		{"refused", refused, eventstore.Fail, eventstore.NotSent, eventstore.NotSent},
		{"no answer in time", silent, eventstore.Unknown, eventstore.TimedOut, eventstore.TimedOut},
		{"hung up", answering(""), eventstore.Unknown, eventstore.LostReply, eventstore.LostReply},
		{"cut in the answer", answering(says(200, `{"outcome":"ok"}`)[:50]), eventstore.Unknown, eventstore.LostReply, eventstore.LostReply},
		{"no HTTP", answering("SSH-2.0\r\n"), eventstore.Unknown, eventstore.LostReply, eventstore.LostReply},
		{"no JSON", answering(says(502, "Bad Gateway")), eventstore.Unknown, eventstore.LostReply, eventstore.LostReply},
		{"no outcome", answering(says(200, `{}`)), eventstore.Unknown, eventstore.LostReply, eventstore.LostReply},
		{"an outcome that is none", answering(says(200, `{"outcome":"maybe"}`)), eventstore.Unknown, eventstore.LostReply, eventstore.LostReply},
		{"a reason that is none", answering(says(409, `{"outcome":"fail","reason":"mood"}`)), eventstore.Unknown, eventstore.LostReply, eventstore.LostReply},
		{"a malformed id", answering(says(200, `{"outcome":"ok","first":1,"last":1,"ids":["x"]}`)), eventstore.Unknown, eventstore.LostReply, eventstore.ReasonNone},
		{"conflict", answering(says(409, `{"outcome":"fail","reason":"version-conflict","head":7}`)), eventstore.Fail, eventstore.VersionConflict, eventstore.VersionConflict},
		{"aborted", answering(says(409, `{"outcome":"fail","reason":"group-aborted"}`)), eventstore.Fail, eventstore.GroupAborted, eventstore.GroupAborted},
		{"unsettled", answering(says(500, `{"outcome":"unknown","reason":"server-uncertain"}`)), eventstore.Unknown, eventstore.ServerUncertain, eventstore.ServerUncertain},
		{"moved, and moved again", answering(says(421, `{"outcome":"fail","reason":"fenced","moved":true}`)), eventstore.Fail, eventstore.GroupAborted, eventstore.GroupAborted},
		{"ok", answering(says(200, `{"outcome":"ok","first":1,"last":1}`)), eventstore.OK, eventstore.ReasonNone, eventstore.ReasonNone},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config{Trial: "t", Partitions: 4, Owners: []string{"127.0.0.1:1", "127.0.0.1:2"}}
			s := attach(cfg, Parts{Route: Preferred}, targets.Env{Name: "writer", Dial: c.dial, Gate: points.Open{}})
			defer func() { _ = s.Close() }()
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			a := eventstore.Append{Stream: "s", Expected: eventstore.Exact(1), Request: "r", Events: []eventstore.NewEvent{{ID: eventstore.EventID{1}, Type: "T"}}}
			_, err := s.Store().Append(ctx, a)
			if o, r := eventstore.Classify(err); o != c.outcome || r != c.reason {
				t.Errorf("append: %v, want %s (%s)", err, c.outcome, c.reason)
			}
			var e *eventstore.Error
			if errors.As(err, &e) && e.Reason == eventstore.VersionConflict && (!e.HeadKnown || e.Head != 7) {
				t.Errorf("the conflict shows %+v", e)
			}
			// By another session: this one would ask first whether the owner is still there.
			s = attach(cfg, Parts{Route: Preferred}, targets.Env{Name: "writer", Dial: c.dial, Gate: points.Open{}})
			defer func() { _ = s.Close() }()
			ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, err = s.Store().Read(ctx, eventstore.ReadRequest{Stream: "s", From: 1})
			o, r := eventstore.Classify(err)
			if r != c.read || c.read != eventstore.ReasonNone && o != eventstore.Fail {
				t.Errorf("read: %v, want fail (%s)", err, c.read)
			}
		})
	}
}

func TestAnAppendWhoseCallerHasGoneBeforeIsNotSent(t *testing.T) {
	dialled := false
	s := attach(config{Trial: "t", Partitions: 4, Owners: []string{"127.0.0.1:1", "127.0.0.1:2"}}, Parts{Route: Preferred}, targets.Env{
		Name: "writer", Gate: points.Open{}, Dial: func(context.Context, string, string) (net.Conn, error) {
			dialled = true
			return nil, errors.New("refused")
		},
	})
	defer func() { _ = s.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Store().Append(ctx, eventstore.Append{Stream: "s", Expected: eventstore.Any(), Events: []eventstore.NewEvent{{ID: eventstore.EventID{1}, Type: "T"}}})
	if o, r := eventstore.Classify(err); o != eventstore.Fail || r != eventstore.NotSent || dialled {
		t.Errorf("%v, dialled %v", err, dialled)
	}
}

func TestACrashIsNoAnswer(t *testing.T) {
	for _, sent := range []bool{false, true} {
		err := classifyWrite("append", sent, fmt.Errorf("dialling: %w", points.ErrCrashed))
		if o, r := eventstore.Classify(err); o != eventstore.Unknown || r != eventstore.Killed {
			t.Errorf("sent %v: %v", sent, err)
		}
	}
}

func TestWhatABrokerAnswersToARead(t *testing.T) {
	for _, c := range []struct {
		err    error
		reason eventstore.Reason
	}{
		{fmt.Errorf("reading: %w", broker.ErrDataLoss), eventstore.Rejected},
		{fmt.Errorf("reading: %w", kerr.TopicAuthorizationFailed), eventstore.Rejected},
		{fmt.Errorf("reading: %w", kerr.NotLeaderForPartition), eventstore.Throttled},
		{io.EOF, eventstore.LostReply},
		{context.DeadlineExceeded, eventstore.TimedOut},
	} {
		if o, r := eventstore.Classify(readFrom("poll", c.err)); o != eventstore.Fail || r != c.reason {
			t.Errorf("%v: %s (%s), want %s", c.err, o, r, c.reason)
		}
	}
	if err := readFrom("poll", nil); err != nil {
		t.Error(err)
	}
}

func TestAddressesAndTrialsAreChecked(t *testing.T) {
	for raw, want := range map[string]string{
		"kafka://127.0.0.1:9092": "127.0.0.1:9092", "kafka://127.0.0.1:9092/": "127.0.0.1:9092", "kafka://127.0.0.1": "", "http://127.0.0.1:1": "",
		"kafka://u@127.0.0.1:1": "", "kafka://127.0.0.1:1/x": "", "": "",
	} {
		got, err := parseURL(raw)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", raw, got, err)
		}
	}
	for _, trial := range []string{"", "A", "a-b", "a.b"} {
		if _, err := Targets()[0].Open(t.Context(), targets.Site{AdminURL: "kafka://127.0.0.1:1", Trial: trial}); err == nil {
			t.Errorf("trial %q was accepted", trial)
		}
	}
}
