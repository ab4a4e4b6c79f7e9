package dynamodb

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/eventproof/eventproof/clock"
)

// Headers that are not DynamoDB's.
const (
	// ProbeHeader is in every answer; its value is Version. No other product has it.
	ProbeHeader = "Eventproof-Emulator"
	// SessionHeader of a request names the connection-unique session that sends it.
	SessionHeader = "Eventproof-Session"
	// Version of the emulator.
	Version = "dynamodb/1"
)

const (
	contentType    = "application/x-amz-json-1.0"
	maxRequestSize = 32 << 20
)

// request is one call in flight.
type request struct {
	op      string
	session string
	tables  []string
	id      uint64
	since   int64
}

// handler executes one operation: the answer is marshalled to JSON.
type handler func(ctx context.Context, s *Server, r *request, body []byte) (any, error)

// operations are what the emulator can do, by the last part of the X-Amz-Target header.
var operations map[string]handler

func init() {
	operations = map[string]handler{
		"CreateTable":        call((*Server).createTable),
		"DescribeTable":      call((*Server).describeTable),
		"DeleteTable":        call((*Server).deleteTable),
		"ListTables":         call((*Server).listTables),
		"GetItem":            call((*Server).getItem),
		"PutItem":            call((*Server).putItem),
		"UpdateItem":         call((*Server).updateItem),
		"DeleteItem":         call((*Server).deleteItem),
		"Query":              call((*Server).query),
		"Scan":               call((*Server).scan),
		"BatchGetItem":       call((*Server).batchGet),
		"BatchWriteItem":     call((*Server).batchWrite),
		"TransactWriteItems": call((*Server).transactWrite),
		"TransactGetItems":   call((*Server).transactGet),
		"ListStreams":        call((*Server).listStreams),
		"DescribeStream":     call((*Server).describeStream),
		"GetShardIterator":   call((*Server).getShardIterator),
		"GetRecords":         call((*Server).getRecords),
	}
}

// input is what all decoded requests can tell.
type input interface{ tableNames() []string }

func call[In any, P interface {
	*In
	input
}](do func(*Server, context.Context, *request, P) (any, error)) handler {
	return func(ctx context.Context, s *Server, r *request, body []byte) (any, error) {
		in := P(new(In))
		if err := decode(body, in); err != nil {
			return nil, err
		}
		r.tables = in.tableNames()
		if err := s.before(ctx, r); err != nil {
			return nil, err
		}
		return do(s, ctx, r, in)
	}
}

// decode reads a request. A parameter that the emulator doesn't know is refused: ignoring it could give a wrong result.
func decode(body []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	var (
		refused *apiError
		syntax  *json.SyntaxError
		kind    *json.UnmarshalTypeError
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &syntax), errors.As(err, &kind), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fault(excSerialization, "%v", err)
	}
	return invalid("The emulator does not support this parameter: %v", err)
}

// before does what faults do to a request that is not executed yet.
func (s *Server) before(ctx context.Context, r *request) error {
	if f, ok := s.switches.hitIf(Slow, r, func(f Fault) bool { return !f.Applied }); ok {
		s.wait(ctx, f.Delay)
	}
	if f, ok := s.switches.hitIf(ServerError, r, func(f Fault) bool { return !f.Applied }); ok {
		return f.serverError()
	}
	if f, ok := s.switches.hitIf(Throttle, r, func(f Fault) bool { return !f.Reason || r.op != opTransactWrite }); ok {
		code := f.Code
		if code == "" {
			code = excThroughput
		}
		return fault(code, "The level of configured provisioned throughput for the table was exceeded")
	}
	return nil
}

// after does what faults do to an answer. drop is true when the answer must not be sent.
func (s *Server) after(ctx context.Context, r *request) (drop bool, err error) {
	if f, ok := s.switches.hitIf(Slow, r, func(f Fault) bool { return f.Applied }); ok {
		s.wait(ctx, f.Delay)
	}
	if f, ok := s.switches.hitIf(ServerError, r, func(f Fault) bool { return f.Applied }); ok {
		return false, f.serverError()
	}
	_, drop = s.switches.hit(DropAnswer, r)
	return drop, nil
}

func (f struck) serverError() *apiError {
	if f.Code == excUnavailable {
		return fault(excUnavailable, "Service is unavailable, please try again")
	}
	return fault(excInternal, "Internal server error")
}

// wait ignores that the client has gone: a server does not notice.
func (s *Server) wait(ctx context.Context, d Duration) {
	// The context here never ends, so there is no error.
	_ = clock.Sleep(context.WithoutCancel(ctx), time.Duration(d))
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	w.Header().Set(ProbeHeader, Version)
	switch {
	case strings.HasPrefix(hr.URL.Path, adminPrefix):
		s.serveAdmin(w, hr)
	case hr.Method == http.MethodGet && hr.URL.Path == "/":
		reply(w, http.StatusOK, "application/json", []byte(`{"emulator":"eventproof","version":"`+Version+`"}`+"\n"))
	case hr.Method == http.MethodPost && hr.URL.Path == "/":
		s.serveCall(w, hr)
	default:
		refuse(w, fault(excUnknownOperation, "The emulator has no %s %s", hr.Method, hr.URL.Path))
	}
}

func (s *Server) serveCall(w http.ResponseWriter, hr *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, hr.Body, maxRequestSize))
	if err != nil {
		// Half a request is none.
		refuse(w, fault(excSerialization, "%v", err))
		return
	}
	service, op, _ := strings.Cut(hr.Header.Get("X-Amz-Target"), ".")
	do := operations[op]
	if do == nil || service != serviceOf(op) {
		refuse(w, fault(excUnknownOperation, "The emulator does not support %q", hr.Header.Get("X-Amz-Target")))
		return
	}
	r := &request{op: op, session: hr.Header.Get(SessionHeader), since: s.clock.Now()}
	s.requests.begin(r)
	defer s.requests.end(r)
	w.Header().Set("X-Amzn-Requestid", strconv.FormatUint(r.id, 10))

	answer, err := do(hr.Context(), s, r, body)
	// Nothing is told, not even what a read has seen, before it is as durable as promised.
	if broken := s.wal.sync(); broken != nil {
		err = fault(excInternal, "%v", broken)
	}
	var text []byte
	if err == nil {
		text, err = json.Marshal(answer)
	}
	if err == nil {
		var drop bool
		if drop, err = s.after(hr.Context(), r); drop {
			panic(http.ErrAbortHandler)
		}
	}
	if err != nil {
		refuse(w, err)
		return
	}
	reply(w, http.StatusOK, contentType, text)
}

func serviceOf(op string) string {
	switch op {
	case "ListStreams", "DescribeStream", "GetShardIterator", "GetRecords":
		return "DynamoDBStreams_20120810"
	}
	return "DynamoDB_20120810"
}

func reply(w http.ResponseWriter, status int, kind string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Amz-Crc32", strconv.FormatUint(uint64(crc32.ChecksumIEEE(body)), 10))
	w.WriteHeader(status)
	// A client that has gone needs no answer.
	_, _ = w.Write(body)
}

// refuse answers with an exception.
func refuse(w http.ResponseWriter, err error) {
	var e *apiError
	if !errors.As(err, &e) {
		e = fault(excInternal, "%v", err)
	}
	body := struct {
		Type    string   `json:"__type"`
		Message string   `json:"message"`
		Item    item     `json:"Item,omitempty"`
		Reasons []reason `json:"CancellationReasons,omitempty"`
	}{e.space() + e.kind, e.message, e.item, e.reasons}
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // it holds only strings and values
	}
	reply(w, e.status, contentType, text)
}

// space is the name space that the real one puts before the name of an exception.
func (e *apiError) space() string {
	switch e.kind {
	case excValidation, excSerialization, excUnknownOperation, excThrottling, excUnavailable:
		return "com.amazon.coral.service#"
	}
	return "com.amazonaws.dynamodb.v20120810#"
}

// requests are those in flight.
type requests struct {
	ids         atomic.Uint64
	connections atomic.Int64
	mu          sync.Mutex
	all         map[*request]bool
}

func (q *requests) begin(r *request) {
	r.id = q.ids.Add(1)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.all == nil {
		q.all = map[*request]bool{}
	}
	q.all[r] = true
}

func (q *requests) end(r *request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.all, r)
}
