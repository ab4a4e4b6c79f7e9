package dynamodb

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
	"github.com/eventproof/eventproof/targets"
)

// reply is what the scripted server does when it has read a request; false closes the connection.
type reply func(w io.Writer) bool

// answer is a whole HTTP answer.
func answer(status int, body string) reply {
	return func(w io.Writer) bool {
		_, err := fmt.Fprintf(w, "HTTP/1.1 %d X\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
		return err == nil
	}
}

func exception(status int, code string) reply {
	return answer(status, fmt.Sprintf(`{"__type":"com.amazonaws.dynamodb.v20120810#%s","message":"scripted"}`, code))
}

// canceled is a cancelled transaction with the reasons' JSON texts.
func canceled(reasons ...string) reply {
	return answer(400, `{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","message":"scripted","CancellationReasons":[`+
		strings.Join(reasons, ",")+`]}`)
}

const none = `{"Code":"None"}`

func because(code string) string { return fmt.Sprintf(`{"Code":%q,"Message":"scripted"}`, code) }

func hangUp(io.Writer) bool { return false }

func half(w io.Writer) bool {
	_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
	return false
}

// script is a server that answers writes by script and reads with nothing.
type script struct {
	mu       sync.Mutex
	writes   []reply
	requests []string            // operations in the order of their arrival
	sessions map[string]struct{} // names of connections
}

func (s *script) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	in := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		_, op, _ := strings.Cut(req.Header.Get("X-Amz-Target"), ".")
		s.mu.Lock()
		s.requests = append(s.requests, op)
		s.sessions[req.Header.Get(sessionHeader)] = struct{}{}
		do := answer(200, "{}")
		if (op == "PutItem" || op == "UpdateItem" || op == "TransactWriteItems") && len(s.writes) > 0 {
			do, s.writes = s.writes[0], s.writes[1:]
		}
		s.mu.Unlock()
		if !do(c) {
			return
		}
	}
}

// silent never answers.
func silentReply(io.Writer) bool {
	time.Sleep(200 * time.Millisecond)
	return false
}

func scripted(t *testing.T, parts Parts, writes ...reply) (*session, *script) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &script{writes: writes, sessions: map[string]struct{}{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { s.serve(c) })
		}
	})
	var d net.Dialer
	env := targets.Env{Gate: points.Open{}, Dial: d.DialContext, Name: "writer"}
	cfg := config{URL: "http://" + l.Addr().String(), Table: "x-log", MaxConns: 1}
	ses, err := attach(t.Context(), cfg, parts, env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = ses.Close()
		_ = l.Close()
		all.Wait()
	})
	return ses, s
}

func write(id byte, n int, want eventstore.Expected) eventstore.Append {
	a := eventstore.Append{Stream: "s", Expected: want, Request: "r"}
	for i := range n {
		a.Events = append(a.Events, eventstore.NewEvent{ID: eventstore.EventID{id, byte(i + 1)}, Type: "T", Data: []byte("{}")})
	}
	return a
}

// heldBy is the image of an event in the slot, as a failed condition shows it.
func heldBy(t *testing.T, a eventstore.Append, version uint64) string {
	t.Helper()
	it, err := encodeEvent(a, 0, version)
	if err != nil {
		t.Fatal(err)
	}
	return image(t, it)
}

func image(t *testing.T, it item) string {
	t.Helper()
	out := map[string]map[string]any{}
	f := fields{it: it}
	for name := range it {
		switch name {
		case "version", "last", "first":
			out[name] = map[string]any{"N": fmt.Sprint(f.number(name))}
		case "data":
			out[name] = map[string]any{"B": f.binary(name)}
		default:
			out[name] = map[string]any{"S": f.text(name)}
		}
	}
	text, err := json.Marshal(out)
	if err != nil || f.err != nil {
		t.Fatal(err, f.err)
	}
	return string(text)
}

func failedWith(item string) string {
	return fmt.Sprintf(`{"Code":"ConditionalCheckFailed","Message":"scripted","Item":%s}`, item)
}

func TestEveryAnswerToAPut(t *testing.T) {
	const ok, fail, unknown = eventstore.OK, eventstore.Fail, eventstore.Unknown
	own, other := write(1, 1, eventstore.NoStream()), write(2, 1, eventstore.NoStream())
	other.Request = "another"
	condition := func(item string) reply {
		return answer(400, `{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","message":"scripted","Item":`+item+`}`)
	}
	for _, c := range []struct {
		name    string
		reply   reply
		outcome eventstore.Outcome
		reason  eventstore.Reason
	}{
		{"done", answer(200, "{}"), ok, eventstore.ReasonNone},
		{"another event holds the slot", condition(heldBy(t, other, 1)), fail, eventstore.VersionConflict},
		{"the own event holds the slot", condition(heldBy(t, own, 1)), ok, eventstore.ReasonNone},
		{"something holds the slot that is not shown", exception(400, "ConditionalCheckFailedException"), fail, eventstore.TransactionConflict},
		{"a transaction is in the way", exception(400, "TransactionConflictException"), fail, eventstore.TransactionConflict},
		{"a replica is in the way", exception(400, "ReplicatedWriteConflictException"), fail, eventstore.TransactionConflict},
		{"throughput exceeded", exception(400, "ProvisionedThroughputExceededException"), fail, eventstore.Throttled},
		{"throttled", exception(400, "ThrottlingException"), fail, eventstore.Throttled},
		{"request limit", exception(400, "RequestLimitExceeded"), fail, eventstore.Throttled},
		{"collection too large", exception(400, "ItemCollectionSizeLimitExceededException"), fail, eventstore.TooLarge},
		{"validation", exception(400, "ValidationException"), fail, eventstore.Invalid},
		{"serialization", exception(400, "SerializationException"), fail, eventstore.Invalid},
		{"no such table", exception(400, "ResourceNotFoundException"), fail, eventstore.Rejected},
		{"no right", exception(400, "AccessDeniedException"), fail, eventstore.Rejected},
		{"unknown operation", exception(400, "UnknownOperationException"), fail, eventstore.Rejected},
		{"internal error", exception(500, "InternalServerError"), unknown, eventstore.ServerUncertain},
		{"unavailable", exception(503, "ServiceUnavailable"), unknown, eventstore.ServerUncertain},
		{"throttling with a 503", exception(503, "ThrottlingException"), unknown, eventstore.ServerUncertain},
		{"condition failed with a 500", exception(500, "ConditionalCheckFailedException"), unknown, eventstore.ServerUncertain},
		{"a gateway's page", answer(502, "<html>"), unknown, eventstore.ServerUncertain},
		{"a code nobody knows", exception(400, "SomethingNewException"), unknown, eventstore.ServerUncertain},
		{"no JSON", answer(200, "<html>"), unknown, eventstore.ServerUncertain},
		{"hung up", hangUp, unknown, eventstore.LostReply},
		{"half an answer", half, unknown, eventstore.LostReply},
		{"no answer", silentReply, unknown, eventstore.TimedOut},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, server := scripted(t, Parts{Append: ConditionalPut{}, Reader: AllPages{}}, c.reply)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			got, err := s.Append(ctx, own)
			check(t, err, c.outcome, c.reason)
			if err == nil && (got.First != 1 || got.Events[0] != own.Events[0].ID) {
				t.Errorf("answered %+v", got)
			}
			once(t, server, "PutItem")
		})
	}
}

func check(t *testing.T, err error, outcome eventstore.Outcome, reason eventstore.Reason) {
	t.Helper()
	if o, r := eventstore.Classify(err); o != outcome || r != reason {
		t.Errorf("got %s (%s): %v, want %s (%s)", o, r, err, outcome, reason)
	}
}

// once checks that a call was sent one time.
func once(t *testing.T, s *script, op string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.requests {
		if r == op {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%s was sent %d times: %v", op, n, s.requests)
	}
}

func TestEveryAnswerToATransaction(t *testing.T) {
	const ok, fail, unknown = eventstore.OK, eventstore.Fail, eventstore.Unknown
	a := write(1, 2, eventstore.Exact(4)) // head, request, two events, two ids
	request := keyOf("REQUEST#r", "REQUEST")
	request["stream"], request["first"], request["last"] = text("s"), number(3), number(3)
	request["events"] = text(eventstore.EventID{9}.String())
	first := failedWith(image(t, request))
	head := func(version uint64) string { return failedWith(fmt.Sprintf(`{"version":{"N":"%d"}}`, version)) }
	failed := because("ConditionalCheckFailed")
	for _, c := range []struct {
		name    string
		reply   reply
		outcome eventstore.Outcome
		reason  eventstore.Reason
		head    uint64
	}{
		{"done", answer(200, "{}"), ok, eventstore.ReasonNone, 0},
		{"behind", canceled(head(6), none, none, none, none, none), fail, eventstore.VersionConflict, 6},
		{"ahead", canceled(head(3), none, none, none, none, none), fail, eventstore.ExpectedAhead, 3},
		{"no stream", canceled(failed, none, none, none, none, none), fail, eventstore.ExpectedAhead, 0},
		{"executed before", canceled(none, first, none, none, none, none), ok, eventstore.ReasonNone, 0},
		{"executed before, and the head has moved", canceled(head(6), first, failed, none, failed, none), ok, eventstore.ReasonNone, 0},
		{"executed before, but the record is not shown", canceled(head(6), failed, none, none, none, none), fail, eventstore.TransactionConflict, 0},
		{"the request is in the way, and the head has moved", canceled(head(6), because("TransactionConflict"), none, none, none, none), fail, eventstore.TransactionConflict, 0},
		{"an event id is taken", canceled(none, none, none, none, none, failed), fail, eventstore.Invalid, 0},
		{"a slot is taken", canceled(none, none, failed, none, none, none), fail, eventstore.Rejected, 0},
		{"a transaction is in the way", canceled(because("TransactionConflict"), none, none, none, none, none), fail, eventstore.TransactionConflict, 0},
		{"throttled", canceled(none, none, because("ThrottlingError"), none, none, none), fail, eventstore.Throttled, 0},
		{"throughput exceeded", canceled(none, none, because("ProvisionedThroughputExceeded"), none, none, none), fail, eventstore.Throttled, 0},
		{"validation", canceled(none, none, because("ValidationError"), none, none, none), fail, eventstore.Invalid, 0},
		{"collection too large", canceled(none, none, because("ItemCollectionSizeLimitExceeded"), none, none, none), fail, eventstore.TooLarge, 0},
		{"a reason nobody knows", canceled(none, none, because("SomethingNew"), none, none, none), fail, eventstore.Rejected, 0},
		{"throttled as a whole", exception(400, "ProvisionedThroughputExceededException"), fail, eventstore.Throttled, 0},
		{"in progress", exception(400, "TransactionInProgressException"), unknown, eventstore.ServerUncertain, 0},
		{"another content under the own token", exception(400, "IdempotentParameterMismatchException"), unknown, eventstore.ServerUncertain, 0},
		{"internal error", exception(500, "InternalServerError"), unknown, eventstore.ServerUncertain, 0},
		{"hung up", hangUp, unknown, eventstore.LostReply, 0},
		{"no answer", silentReply, unknown, eventstore.TimedOut, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, server := scripted(t, Parts{Append: TransactHead{}, Reader: AllPages{}}, c.reply)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			got, err := s.Append(ctx, a)
			check(t, err, c.outcome, c.reason)
			var e *eventstore.Error
			if errors.As(err, &e) && (e.Head != c.head || c.head != 0 && !e.HeadKnown) {
				t.Errorf("head %d, want %d", e.Head, c.head)
			}
			if err == nil && got.Replayed && (got.First != 3 || got.Events[0] != eventstore.EventID{9}) {
				t.Errorf("the first result is %+v", got)
			}
			once(t, server, "TransactWriteItems")
		})
	}
}

func TestABlindRetryRepeatsItsTokenAndADecisionAnewDoesNot(t *testing.T) {
	a, b := write(1, 1, eventstore.Exact(4)), write(2, 1, eventstore.Exact(4))
	token := clientToken("t", "writer-1", a, 4)
	if token != clientToken("t", "writer-1", write(1, 1, eventstore.Exact(4)), 4) || len(token) > 36 {
		t.Errorf("token %q is not repeated", token)
	}
	for name, other := range map[string]string{
		"other events": clientToken("t", "writer-1", b, 4), "another head": clientToken("t", "writer-1", a, 5),
		"another role": clientToken("t", "writer-2", a, 4), "another table": clientToken("u", "writer-1", a, 4),
	} {
		if other == token {
			t.Errorf("%s: the same token", name)
		}
	}
}

func TestNothingIsSentWhenTheDialFails(t *testing.T) {
	s, _ := scripted(t, Parts{Append: ConditionalPut{}, Reader: AllPages{}})
	s.pool.idle[0].drop()
	s.env.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }
	_, err := s.Append(t.Context(), write(1, 1, eventstore.NoStream()))
	check(t, err, eventstore.Fail, eventstore.NotSent)
	_, err = s.Read(t.Context(), eventstore.ReadRequest{Stream: "s", From: 1})
	check(t, err, eventstore.Fail, eventstore.NotSent)
}

func TestACutConnectionIsFollowedByOneWithAnotherName(t *testing.T) {
	s, server := scripted(t, Parts{Append: ConditionalPut{}, Reader: AllPages{}}, hangUp)
	var names []string
	ctx := eventstore.WithTrace(t.Context(), &eventstore.Trace{Session: func(n string) { names = append(names, n) }})
	_, err := s.Append(ctx, write(1, 1, eventstore.NoStream()))
	check(t, err, eventstore.Unknown, eventstore.LostReply)
	if _, err := s.Append(ctx, write(1, 1, eventstore.NoStream())); err != nil {
		t.Fatal(err)
	}
	if len(names) != 2 || names[0] != "writer/1" || names[1] != "writer/2" {
		t.Errorf("told %v", names)
	}
	for _, n := range names {
		if _, ok := server.sessions[n]; !ok {
			t.Errorf("%s was not on the wire: %v", n, server.sessions)
		}
	}
}

func TestABatchIsRefusedWhereOneEventIsTheLimit(t *testing.T) {
	s, server := scripted(t, Parts{Append: ConditionalPut{}, Reader: AllPages{}})
	_, err := s.Append(t.Context(), write(1, 2, eventstore.NoStream()))
	check(t, err, eventstore.Fail, eventstore.TooLarge)
	big, _ := scripted(t, Parts{Append: TransactHead{}, Reader: AllPages{}})
	_, err = big.Append(t.Context(), write(1, MaxBatch+1, eventstore.NoStream()))
	check(t, err, eventstore.Fail, eventstore.TooLarge)
	if len(server.requests) != 1 {
		t.Errorf("sent %v", server.requests)
	}
}

func TestTheNewVersionOfAStreamNobodyLookedAtIsLookedUp(t *testing.T) {
	s, server := scripted(t, Parts{Append: ConditionalPut{}, Reader: AllPages{}})
	_, err := s.Append(t.Context(), write(1, 1, eventstore.Exact(3)))
	check(t, err, eventstore.Fail, eventstore.ExpectedAhead)
	if got := strings.Join(server.requests, " "); got != "GetItem Query" {
		t.Errorf("sent %s", got)
	}
	s.seen.upTo("s", 3)
	if done, err := s.Append(t.Context(), write(1, 1, eventstore.Exact(3))); err != nil || done.First != 4 {
		t.Errorf("%+v, %v", done, err)
	}
	if got := strings.Join(server.requests, " "); got != "GetItem Query PutItem" {
		t.Errorf("sent %s", got)
	}
}
