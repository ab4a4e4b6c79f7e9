package eventstore

import "context"

// Trace carries hooks into an adapter for one attempt, in the manner of net/http/httptrace: adapters report
// what happens inside an attempt without knowing who listens. Every field may be nil.
type Trace struct {
	// Session is told the name of the connection that carries the attempt. Faults record the same name,
	// so that a cut reply can be matched with the attempt that lost it. Names are unique in a trial.
	Session func(name string)
	// DriverRetry is told of each retry that a driver makes inside the attempt.
	DriverRetry func()
	// RoundTrips is told how many round trips the attempt took.
	RoundTrips func(n int)
	// Transaction is told the store's own transaction id, learned before the commit was sent.
	Transaction func(id uint64)
}

type traceKey struct{}

// WithTrace returns a context that carries t to the adapter.
func WithTrace(ctx context.Context, t *Trace) context.Context {
	return context.WithValue(ctx, traceKey{}, t)
}

var noTrace = &Trace{
	Session: func(string) {}, DriverRetry: func() {}, RoundTrips: func(int) {}, Transaction: func(uint64) {},
}

// TraceFrom returns the trace of ctx with every nil hook replaced by one that does nothing; never nil.
func TraceFrom(ctx context.Context) *Trace {
	t, _ := ctx.Value(traceKey{}).(*Trace)
	if t == nil {
		return noTrace
	}
	full := *t
	if full.Session == nil {
		full.Session = noTrace.Session
	}
	if full.DriverRetry == nil {
		full.DriverRetry = noTrace.DriverRetry
	}
	if full.RoundTrips == nil {
		full.RoundTrips = noTrace.RoundTrips
	}
	if full.Transaction == nil {
		full.Transaction = noTrace.Transaction
	}
	return &full
}
