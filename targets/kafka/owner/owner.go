// Package owner is the process that owns partitions of the topic of events: all appends to a partition, and all strong
// reads of it, go through its owner, which is the only one that can write to it.
//
// Plain Kafka has no conditional append. The promise comes from the pattern: one writer, fenced by the broker; expected
// versions are checked in the owner, against a state that is read from the log after the fence. An owner answers a group
// of requests together, when their transaction has ended.
package owner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/kafka/internal/broker"
	"github.com/eventproof/eventproof/targets/kafka/internal/form"
)

// Config is what an owner needs, in any process.
type Config struct {
	Addr         string  `json:"addr"` // of a broker
	Transactions int16   `json:"transactions"`
	Trial        string  `json:"trial"`
	Owner        string  `json:"owner"`     // its name
	Listen       string  `json:"listen"`    // its own address
	Preferred    []int32 `json:"preferred"` // partitions that it takes if they are nobody's
	Partitions   int32   `json:"partitions"`
}

// Parts fill the places of the assembly that are in the owner.
type Parts struct{ Append Appender }

// server is a running owner.
type server struct {
	cfg    Config
	parts  Parts
	env    targets.Env
	client *broker.Client
	parted []*Partition
	over   chan struct{} // closed when nobody is to be answered any more
}

const (
	// maxBody bounds a request; no append may be nearly as large.
	maxBody = 4 << 20
	// startBound is how long an owner tries to take its partitions before it says that it is ready. What it could not
	// take it takes when it is asked for.
	startBound = 5 * time.Second
)

// Serve runs an owner until ctx ends, which is no error, or until its gate ends it.
func Serve(ctx context.Context, cfg Config, parts Parts, env targets.Env, ready func()) error {
	client, err := broker.Open(broker.Options{Addr: cfg.Addr, Name: env.Name, Dial: env.Dial, Transactions: cfg.Transactions})
	if err != nil {
		return err
	}
	defer client.Close()
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return fmt.Errorf("kafka: owner %s: %w", cfg.Owner, err)
	}
	o := &server{cfg: cfg, parts: parts, env: env, client: client, over: make(chan struct{})}
	for n := range cfg.Partitions {
		o.parted = append(o.parted, newPartition(o, n))
	}
	o.start(ctx)

	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var serving sync.WaitGroup
	for _, p := range o.parted {
		serving.Go(func() {
			if err := p.run(ctx); err != nil {
				end(err)
			}
		})
	}
	web := &http.Server{Handler: o.handler(), ReadHeaderTimeout: 10 * time.Second}
	serving.Go(func() {
		if err := web.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			end(fmt.Errorf("kafka: owner %s: %w", cfg.Owner, err))
		}
	})
	ready()
	<-ctx.Done()
	// Whoever still waits sees the connection break: an owner that ends says nothing about what it has begun.
	close(o.over)
	_ = web.Close()
	serving.Wait()
	var crash *crashed
	switch err := context.Cause(ctx); {
	case errors.As(err, &crash):
		return crash.err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return nil
	default:
		return err
	}
}

// start takes the partitions that are this owner's, side by side.
func (o *server) start(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, startBound)
	defer cancel()
	var all sync.WaitGroup
	for _, n := range o.cfg.Preferred {
		p := o.parted[n]
		all.Go(func() { _ = p.own(ctx, false) })
	}
	all.Wait()
}

func (o *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+form.PathAppend, o.append)
	mux.HandleFunc("POST "+form.PathRead, o.read)
	mux.HandleFunc("GET "+form.PathState, o.state)
	return mux
}

var errPartition = errors.New("kafka: no such partition")

func (o *server) partition(n int32) (*Partition, error) {
	if n < 0 || int(n) >= len(o.parted) {
		return nil, fmt.Errorf("%w: %d", errPartition, n)
	}
	return o.parted[n], nil
}

func (o *server) state(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(r.URL.Query().Get("partition"), 10, 32)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p, err := o.partition(int32(n))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	write(w, http.StatusOK, form.State{Owns: p.owns()})
}

func (o *server) append(w http.ResponseWriter, r *http.Request) {
	var m form.Append
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&m); err != nil {
		o.invalid(w, err)
		return
	}
	a := eventstore.Append{Stream: m.Stream, Expected: eventstore.Any(), Request: m.Request}
	if m.Expected != nil {
		a.Expected = eventstore.Exact(*m.Expected)
	}
	size := 0
	for _, e := range m.Events {
		n, err := e.New()
		if err != nil {
			o.invalid(w, err)
			return
		}
		a.Events = append(a.Events, n)
		size += len(e.Data) + len(e.Metadata) + len(e.Type) + len(m.Stream) + len(m.Request) + overhead
	}
	p, err := o.partition(m.Partition)
	switch {
	case err == nil && (m.Stream == "" || len(m.Events) == 0):
		err = errEmpty
	case err == nil && size > broker.MaxBatch:
		o.tell(w, refuse(eventstore.TooLarge, fmt.Errorf("kafka: %d bytes of records, at most %d fit into one transaction", size, broker.MaxBatch)))
		return
	}
	if err != nil {
		o.invalid(w, err)
		return
	}
	o.ask(w, p, &Request{TakeOver: m.TakeOver, Append: &a, ctx: r.Context(), done: make(chan Answer, 1), size: size})
}

// overhead is about what an event takes in the log beside its texts.
const overhead = 200

var errEmpty = errors.New("kafka: an append needs a stream and at least one event")

func (o *server) read(w http.ResponseWriter, r *http.Request) {
	var m form.Read
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&m); err != nil {
		o.invalid(w, err)
		return
	}
	p, err := o.partition(m.Partition)
	if err != nil {
		o.invalid(w, err)
		return
	}
	o.ask(w, p, &Request{TakeOver: m.TakeOver, Read: &m, ctx: r.Context(), done: make(chan Answer, 1)})
}

// ask has a request answered, and cuts the connection if the owner ends before.
func (o *server) ask(w http.ResponseWriter, p *Partition, r *Request) {
	if answer, ok := o.parts.Append.Early(p, r); ok {
		o.tell(w, answer)
		return
	}
	select {
	case p.queue <- r:
	case <-r.ctx.Done():
		panic(http.ErrAbortHandler)
	case <-o.over:
		panic(http.ErrAbortHandler)
	}
	select {
	case answer := <-r.done:
		select {
		case <-o.over:
			panic(http.ErrAbortHandler)
		default:
			o.tell(w, answer)
		}
	case <-r.ctx.Done():
		panic(http.ErrAbortHandler)
	case <-o.over:
		panic(http.ErrAbortHandler)
	}
}

func (o *server) invalid(w http.ResponseWriter, err error) {
	o.tell(w, refuse(eventstore.Invalid, err))
}

// tell sends an answer.
func (o *server) tell(w http.ResponseWriter, answer Answer) {
	outcome, reason := eventstore.Classify(answer.Err)
	m := form.Answer{Outcome: outcome.String(), Moved: answer.Moved}
	if answer.Err != nil {
		m.Reason, m.Text = reason.String(), answer.Err.Error()
		var e *eventstore.Error
		if errors.As(answer.Err, &e) && e.HeadKnown {
			m.Head = &e.Head
		}
	}
	done := answer.Appended
	m.First, m.Last, m.Positions, m.Replayed = done.First, done.Last, done.Positions, done.Replayed
	for _, id := range done.Events {
		m.IDs = append(m.IDs, id.String())
	}
	var err error
	if m.Events, err = form.ToStored(answer.Events); err != nil {
		panic(http.ErrAbortHandler) // no answer is the only one that claims nothing
	}
	w.Header().Set(form.OutcomeHeader, outcome.String())
	write(w, status(outcome, answer.Moved), m)
}

func status(outcome eventstore.Outcome, moved bool) int {
	switch {
	case moved:
		return http.StatusMisdirectedRequest
	case outcome == eventstore.OK:
		return http.StatusOK
	case outcome == eventstore.Fail:
		return http.StatusConflict
	}
	return http.StatusInternalServerError
}

func write(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b) // nobody is left to tell
}
