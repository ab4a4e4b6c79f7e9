package faults_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eventproof/eventproof/faults"
	"github.com/eventproof/eventproof/faults/plan"
	"github.com/eventproof/eventproof/faults/wire"
	"github.com/eventproof/eventproof/history"
)

// owner is a server that appends come to.
type owner struct {
	*httptest.Server
	mu       sync.Mutex
	appended []string
}

func newOwner(t *testing.T) *owner {
	t.Helper()
	o := &owner{}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/append" {
			http.NotFound(w, r)
			return
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.appended = append(o.appended, string(body))
	}))
	t.Cleanup(o.Close)
	return o
}

func (o *owner) addr() string { return o.Listener.Addr().String() }

func (o *owner) has(body string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, b := range o.appended {
		if b == body {
			return true
		}
	}
	return false
}

// appendTo sends an append by a connection of its own.
func appendTo(t *testing.T, e *faults.Engine, role string, o *owner, body string) error {
	t.Helper()
	tr := &http.Transport{DialContext: e.Dialer(role)}
	defer tr.CloseIdleConnections()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, o.URL+"/append", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set(wire.SessionHeader, role+"/1")
	a, err := (&http.Client{Transport: tr, Timeout: 5 * time.Second}).Do(q)
	if err != nil {
		return err
	}
	return a.Body.Close()
}

// twoServers is an engine whose writer has ways to a store that is only bytes and to an owner.
func twoServers(t *testing.T, heal time.Duration) (*faults.Engine, *notes, *owner) {
	t.Helper()
	e, n, store := plainEngine(t, faults.Options{Heal: heal})
	o := newOwner(t)
	speaks, probe := wire.For("owner")
	if _, err := e.ProxyFor("writer-1", o.addr(), speaks, probe); err != nil {
		t.Fatal(err)
	}
	if m := e.Map("writer-1"); len(m) != 2 || m[store] == "" || m[o.addr()] == "" {
		t.Fatalf("ways %v", m)
	}
	return e, n, o
}

func TestEveryServerOfARoleIsFollowedInItsOwnProtocol(t *testing.T) {
	e, n, o := twoServers(t, 5*time.Second)
	if err := e.Start(t.Context(), plan.Fault{ID: "drop", Kind: plan.DropReply, On: "writer", Max: 1}); err != nil {
		t.Fatal(err)
	}
	if err := appendTo(t, e, "writer-1", o, "a"); err == nil {
		t.Error("the append was answered")
	}
	if !o.has("a") {
		t.Error("the append did not arrive")
	}
	if err := appendTo(t, e, "writer-1", o, "b"); err != nil {
		t.Error("after the last one allowed:", err)
	}
	if err := e.Lift(t.Context(), "drop"); err != nil {
		t.Fatal(err)
	}
	if end := n.ended(t, "drop"); !end.Bit || end.Count != 1 {
		t.Errorf("end %+v", end)
	}
	bites := n.bites("drop")
	if len(bites) != 1 || bites[0].Form != history.BiteReplyDropped || bites[0].Landed != history.LandedYes || bites[0].Session != "writer-1/1" {
		t.Errorf("bites %+v", bites)
	}
}

func TestAParkedAppendLandsAfterItsClientHasLeft(t *testing.T) {
	e, n, o := twoServers(t, 5*time.Second)
	if err := e.Start(t.Context(), plan.Fault{ID: "park", Kind: plan.ParkRequest, On: "writer", Max: 1}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c, err := e.Dialer("writer-1")(ctx, "tcp", o.addr())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "POST /append HTTP/1.1\r\nHost: o\r\nEventproof-Session: writer-1/7\r\nContent-Length: 4\r\n\r\nlate"); err != nil {
		t.Fatal(err)
	}
	if err := e.Await(t.Context(), "park", 1); err != nil {
		t.Fatal(err)
	}
	cancel()
	_ = c.Close()
	if err := appendTo(t, e, "writer-1", o, "retry"); err != nil {
		t.Fatal(err)
	}
	if o.has("late") {
		t.Error("sent on before the fault was lifted")
	}
	if err := e.Lift(t.Context(), "park"); err != nil {
		t.Fatal(err)
	}
	if !o.has("late") {
		t.Error("not sent on")
	}
	if end := n.ended(t, "park"); !end.Bit {
		t.Errorf("end %+v", end)
	}
	bites := n.bites("park")
	if len(bites) != 2 || bites[1].Form != history.BiteRequestReleased || bites[1].Landed != history.LandedYes || bites[1].Session != "writer-1/7" {
		t.Errorf("bites %+v", bites)
	}
}

func TestADeadStoreFailsTheHealWhereADeadOwnerDoesNot(t *testing.T) {
	for name, dead := range map[string]string{"owner": "", "store": "store"} {
		t.Run(name, func(t *testing.T) {
			o, n := newOwner(t), &notes{}
			store := plainServer(t)
			if dead == "store" {
				store = o.addr()
			}
			e := faults.New(faults.Options{Log: n.log, StoreAddr: store, Heal: 300 * time.Millisecond})
			t.Cleanup(func() { _ = e.Close() })
			if _, err := e.ProxyFor("writer-1", o.addr(), wire.HTTP(), wire.ProbeHTTP); err != nil {
				t.Fatal(err)
			}
			if err := e.Start(t.Context(), plan.Fault{ID: "reset", Kind: plan.Reset, On: "writer"}); err != nil {
				t.Fatal(err)
			}
			o.Close()
			err := e.Lift(t.Context(), "reset")
			var sick *faults.HealError
			if (dead == "store") != errors.As(err, &sick) || dead == "" && err != nil {
				t.Error("got", err)
			}
			if err := e.LiftAll(t.Context()); (err == nil) != (dead == "") {
				t.Error("lift all:", err)
			}
		})
	}
}

func TestAWayToALivingOwnerHasToWorkAgain(t *testing.T) {
	o, n := newOwner(t), &notes{}
	refuses := func(ctx context.Context, c net.Conn) error {
		if c.RemoteAddr().String() != o.addr() { // through the proxy
			return &wire.NotReadyError{Answer: "none"}
		}
		return wire.ProbeHTTP(ctx, c)
	}
	e := faults.New(faults.Options{Log: n.log, StoreAddr: plainServer(t), Heal: 100 * time.Millisecond})
	t.Cleanup(func() { _ = e.Close() })
	if _, err := e.ProxyFor("writer-1", o.addr(), wire.HTTP(), refuses); err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context(), plan.Fault{ID: "reset", Kind: plan.Reset, On: "writer"}); err != nil {
		t.Fatal(err)
	}
	var sick *faults.HealError
	if err := e.Lift(t.Context(), "reset"); !errors.As(err, &sick) || sick.Way != "writer-1" {
		t.Error("got", err)
	}
}

// refuser is a server that can refuse by itself.
type refuser struct {
	asked   []string
	every   int
	max     int
	hits    uint64
	refuses error
	forgets error
}

func (r *refuser) Inject(_ context.Context, kind string, every, most int) (func(context.Context) (uint64, error), error) {
	r.asked, r.every, r.max = append(r.asked, kind), every, most
	if r.refuses != nil {
		return nil, r.refuses
	}
	return func(context.Context) (uint64, error) {
		r.asked = append(r.asked, "stop")
		return r.hits, r.forgets
	}, nil
}

func TestWhatTheServerRefusesByItselfIsCounted(t *testing.T) {
	for _, c := range []struct {
		kind plan.Kind
		hits uint64
	}{{plan.Throttle, 7}, {plan.Conflict, 0}} {
		kind, hits := c.kind, c.hits
		t.Run(string(kind), func(t *testing.T) {
			r := &refuser{hits: hits}
			e, n, _ := plainEngine(t, faults.Options{Injector: r})
			if err := e.Start(t.Context(), plan.Fault{ID: "f", Kind: kind, On: "store", Every: 3, Max: 9}); err != nil {
				t.Fatal(err)
			}
			if err := e.Lift(t.Context(), "f"); err != nil {
				t.Fatal(err)
			}
			if end := n.ended(t, "f"); end.Bit != (hits > 0) || end.Count != hits {
				t.Errorf("end %+v", end)
			}
			if strings.Join(r.asked, " ") != string(kind)+" stop" || r.every != 3 || r.max != 9 {
				t.Errorf("asked %+v", r)
			}
		})
	}
}

func TestAServerThatCannotBeToldIsAnError(t *testing.T) {
	no := errors.New("no")
	e, n, _ := plainEngine(t, faults.Options{Injector: &refuser{refuses: no}})
	if err := e.Start(t.Context(), plan.Fault{ID: "f", Kind: plan.Throttle, On: "store"}); !errors.Is(err, no) {
		t.Error("start:", err)
	}
	if end := n.ended(t, "f"); end.Bit {
		t.Errorf("end %+v", end)
	}
	e, n, _ = plainEngine(t, faults.Options{Injector: &refuser{forgets: no, hits: 3}})
	if err := e.Start(t.Context(), plan.Fault{ID: "f", Kind: plan.Throttle, On: "store"}); err != nil {
		t.Fatal(err)
	}
	if err := e.Lift(t.Context(), "f"); !errors.Is(err, no) {
		t.Error("lift:", err)
	}
	if end := n.ended(t, "f"); end.Bit {
		t.Errorf("an unknown count was taken for an effect: %+v", end)
	}
	e, _, _ = plainEngine(t, faults.Options{})
	var none *faults.NoTargetError
	if err := e.Start(t.Context(), plan.Fault{ID: "f", Kind: plan.Conflict, On: "store"}); !errors.As(err, &none) {
		t.Error("without an injector:", err)
	}
}
