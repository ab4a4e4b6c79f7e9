package invariants

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/eventproof/eventproof/domain/auction"
	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/invariants/oracle"
	"github.com/eventproof/eventproof/verdict"
)

// native builds histories of one auction in its native form. The row follows what is accepted, as the statement of a
// correct store would make it; a test spoils what it is about.
type native struct {
	*hist
	row   *history.AuctionRow
	order bool // the audit can prove the order of acceptance
}

func newNative(t testing.TB) *native {
	n := &native{hist: newHist(t, oracle.Auction), row: &history.AuctionRow{Stream: auc}, order: true}
	n.info.Auction = history.NativeAuction
	n.info.Promises = []eventstore.Promise{eventstore.IdempotentAppend, eventstore.FreshRefusals, eventstore.Durable}
	n.edit = append(n.edit, func(rs []history.Record) []history.Record {
		if n.row == nil || n.row.Changes == 0 {
			return rs
		}
		for _, r := range rs {
			if a, ok := r.(*history.Audit); ok {
				a.Views = 1
			}
		}
		return append(rs, n.row)
	})
	return n
}

// ask makes the one write of a call; its event is stamped ms milliseconds after the epoch.
func (n *native) ask(c *callOf, ms int64) *writeOf {
	n.t.Helper()
	command, err := auction.ParseCommand(c.start.Name, c.start.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	typ, data, err := auction.Claim(command, time.UnixMilli(ms))
	if err != nil {
		n.t.Fatal(err)
	}
	l := &history.LoggedEvent{Stream: auc, ID: n.eventID(), Type: typ, Data: data}
	w := &writeOf{c: c, events: []*history.LoggedEvent{l}, rec: &history.Write{
		Write: history.MakeID(c.start.Process, n.next()), Call: c.start.Call, Stream: auc, Any: true, Request: c.start.CommandID,
		Events: []history.WriteEvent{{ID: l.ID, Type: typ, Payload: eventstore.PayloadHash(typ, data)}},
	}}
	n.add(w.rec)
	return w
}

// take lets an operation have its effect, after everything that had one.
func (n *native) take(w *writeOf) *writeOf {
	n.row.Changes++
	v := n.row.Changes
	if !n.order {
		v = 0
	}
	w.landAt(v)
	f, err := oracle.ParseCommand(w.c.start.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	switch w.c.start.Name {
	case auction.CommandCreate:
		n.row.Opening, n.row.High = f.Amount, f.Amount
	case auction.CommandBid:
		n.row.High, n.row.Bidder = f.Amount, string(f.Bidder)
		n.row.Accepted++
	case auction.CommandClose:
		n.row.Closed = true
	}
	return w
}

// say ends a call with the answer that first, the write which did it, leads to.
func (n *native) say(c *callOf, t int64, first *writeOf) *history.CallEnd {
	e := c.finish(t, history.ResultOK)
	l := first.events[0]
	e.Version, e.Events = l.Version, []eventstore.EventID{l.ID}
	switch c.start.Name {
	case auction.CommandBid:
		f, _ := oracle.ParseCommand(c.start.Body)
		e.Want, e.At = f.Amount, acceptedMillis(&Logged{LoggedEvent: *l})
	case auction.CommandClose:
		e.Have = n.row.High
	}
	return e
}

// done is a call that is accepted.
func (n *native) done(c *callOf, t int64) *writeOf {
	w := n.take(n.ask(c, 1000+t)).ok(t, t+3)
	n.say(c, t+4, w)
	return w
}

// replayed is a call that is answered with what first did.
func (n *native) replayed(c *callOf, t int64, first *writeOf) *history.CallEnd {
	r := n.ask(c, 1000+t).try(t, t+3, eventstore.OK, eventstore.ReasonNone)
	l := first.events[0]
	r.First, r.Last, r.Events, r.Replayed = l.Version, l.Version, []eventstore.EventID{l.ID}, true
	e := n.say(c, t+4, first)
	e.Replayed = true
	return e
}

// no ends a call with a refusal.
func (n *native) no(c *callOf, t int64, code string, have int64) *history.CallEnd {
	f, _ := oracle.ParseCommand(c.start.Body)
	e := c.finish(t, history.ResultRefused)
	e.Code, e.Have, e.Want, e.Retriable = code, have, f.Amount, auction.Retriable(code)
	return e
}

// refused is a call that the store's condition refused at once.
func (n *native) refused(c *callOf, t int64, code string, have int64) *history.CallEnd {
	n.ask(c, 1000+t).fail(t, t+3, eventstore.Refused)
	return n.no(c, t+4, code, have)
}

func (n *native) final(w *writeOf, t int64) {
	n.add(&history.Evidence{Write: w.rec.Write, Call: w.c.start.Call, T: us(t), Form: history.E5FinalRefusal, Outcome: eventstore.Fail})
}

func (n *native) create(session uint32, t int64, opening int64) *callOf {
	return n.call(session, t, auction.CommandCreate, auc, bidBody(auc, "", "", opening))
}

func (n *native) open() { n.done(n.create(99, 1, 100), 2) }

func (n *native) b(session uint32, t int64, id, bidder string, amount int64) *callOf {
	return n.bid(session, t, auc, id, bidder, amount)
}

// nativeTwin is one hand-made history of an auction in its native form.
type nativeTwin struct {
	name      string
	build     func(n *native)
	must, may []string
}

func runNative(t *testing.T, twins []nativeTwin) {
	for _, tw := range twins {
		t.Run(tw.name, func(t *testing.T) {
			n := newNative(t)
			tw.build(n)
			got := expect(t, n.run(), tw.must, tw.may)
			for slug, r := range got {
				if r.Verdict == verdict.Inconclusive {
					t.Errorf("%s is inconclusive: %s", slug, r.Reason)
				}
			}
		})
	}
}

func TestCorrectNativeAuctionsStayGreen(t *testing.T) {
	whole := func(n *native) {
		n.open()
		first := n.done(n.b(1, 20, "b1", "ann", 500), 20)
		n.refused(n.b(2, 30, "b2", "bob", 500), 30, codeStale, 500)
		n.replayed(n.b(1, 40, "b1", "ann", 500), 40, first)
		n.refused(n.b(2, 50, "b1", "ann", 700), 50, codeInvalidPayload, 500)
		n.done(n.b(2, 60, "b3", "bob", 900), 60)
		n.done(n.closing(1, 70, auc), 70)
		n.replayed(n.b(1, 80, "b1", "ann", 500), 80, first)
		n.refused(n.b(1, 90, "b4", "ann", 950), 90, codeClosed, 900)
		n.refused(n.closing(2, 100, auc), 100, codeClosed, 900)
		n.refused(n.create(2, 110, 5), 110, codeAlreadyExists, 900)
	}
	runNative(t, []nativeTwin{
		{name: "bids, replays, losers, another body and a close", build: whole},
		{name: "the same where no order of acceptance is known", build: func(n *native) { n.order = false; whole(n) }},
		{name: "an unknown try that landed is answered as a replay of itself", build: func(n *native) {
			n.open()
			c := n.b(1, 20, "b1", "ann", 500)
			w := n.take(n.ask(c, 1020)).lost(20, 30).ok(31, 35)
			w.tries[1].Replayed = true
			n.say(c, 36, w).Replayed = true
		}},
		{name: "an unknown try that did not land is excluded by a final refusal", build: func(n *native) {
			n.open()
			c := n.b(1, 20, "b1", "ann", 500)
			w := n.ask(c, 1020).lost(20, 30)
			n.done(n.b(2, 22, "b2", "bob", 600), 22)
			w.fail(31, 35, eventstore.Refused)
			n.final(w, 36)
			n.no(c, 37, codeStale, 600)
		}},
		{name: "an unknown bid lands after its caller has given up", build: func(n *native) {
			n.open()
			c := n.b(1, 20, "b1", "ann", 500)
			w := n.ask(c, 1020).lost(20, 30)
			c.finish(31, history.ResultUnknown)
			n.take(w)
			n.refused(n.b(2, 40, "b2", "bob", 400), 40, codeStale, 500)
		}},
		{name: "another process continues the bid of one that was killed", build: func(n *native) {
			n.open()
			n.process(2)
			k := n.callAs("b1-ann-500", 2, 1, 20, "bid", auc, bidBody(auc, "b1", "ann", 500))
			w := n.take(n.ask(k, 1020))
			w.try(20, 0, eventstore.Unknown, eventstore.ReasonNone)
			n.kill(2, 25)
			c := n.b(1, 30, "b1", "ann", 500)
			c.start.Continued = true
			n.replayed(c, 30, w)
		}},
		{name: "the store was too busy, and then accepted", build: func(n *native) {
			n.open()
			c := n.b(1, 20, "b1", "ann", 500)
			w := n.ask(c, 1020).fail(20, 22, eventstore.TransactionConflict).fail(23, 24, eventstore.Throttled)
			n.take(w).ok(25, 28)
			n.say(c, 29, w)
		}},
		{name: "the store was too busy until the deadline", build: func(n *native) {
			n.open()
			c := n.b(1, 20, "b1", "ann", 500)
			n.ask(c, 1020).fail(20, 22, eventstore.Throttled)
			n.no(c, 23, auction.Throttled, 0)
		}},
		{name: "a bid on an auction that nobody has been told of, accepted later", build: func(n *native) {
			n.refused(n.b(1, 1, "b1", "ann", 500), 1, codeClosed, 0)
			n.done(n.create(9, 10, 100), 10)
			n.done(n.b(1, 20, "b1", "ann", 500), 20)
		}},
		{name: "another body overlapping the acceptance loses as a bid of its own", build: func(n *native) {
			n.open()
			c := n.b(2, 20, "b1", "ann", 90)
			w := n.ask(c, 1020)
			n.done(n.b(1, 21, "b1", "ann", 500), 21)
			w.fail(20, 40, eventstore.Refused)
			n.no(c, 41, codeStale, 500)
		}},
		{name: "a repeat under a command of its own", build: func(n *native) {
			n.open()
			first := n.done(n.b(1, 20, "b1", "ann", 500), 20)
			n.replayed(n.callAs("again", 1, 2, 30, "bid", auc, bidBody(auc, "b1", "ann", 500)), 30, first)
		}},
		{name: "a bid lands while the auction is being closed", build: func(n *native) {
			n.open()
			c, k := n.b(1, 20, "b1", "ann", 500), n.closing(2, 20, auc)
			w := n.take(n.ask(c, 1020))
			shut := n.take(n.ask(k, 1021)).ok(21, 30)
			n.say(k, 31, shut)
			w.ok(20, 40)
			n.say(c, 41, w)
		}},
		{name: "an opening and a closing whose replies were lost", build: func(n *native) {
			c := n.create(9, 1, 100)
			w := n.take(n.ask(c, 1001)).lost(1, 3).ok(4, 6)
			w.tries[1].Replayed = true
			n.say(c, 7, w)
			k := n.closing(1, 20, auc)
			shut := n.take(n.ask(k, 1020)).lost(20, 22).ok(23, 25)
			shut.tries[1].Replayed = true
			n.say(k, 26, shut)
		}},
		{name: "a closing whose try was lost, and which another one has overtaken", build: func(n *native) {
			n.open()
			k := n.closing(1, 20, auc)
			w := n.ask(k, 1020).lost(20, 22)
			n.done(n.closing(2, 21, auc), 21)
			w.fail(30, 32, eventstore.Refused)
			n.final(w, 33)
			n.no(k, 34, codeClosed, 100)
		}},
	})
}

func TestWrongNativeAuctionsAreCaughtByTheRightRules(t *testing.T) {
	mono, idem, final, reject := "monotonic-bids", "idempotent-bids", "close-is-final", "truthful-rejections"
	runNative(t, []nativeTwin{
		{name: "(a) two bids of one amount", must: []string{mono}, build: func(n *native) {
			n.open()
			n.done(n.b(1, 20, "b1", "ann", 500), 20)
			n.done(n.b(2, 30, "b2", "bob", 500), 30)
		}},
		{name: "(a) a bid below the opening price", must: []string{mono}, build: func(n *native) {
			n.open()
			n.done(n.b(1, 20, "b1", "ann", 50), 20)
		}},
		{name: "(b) the row lost the count of a bid", must: []string{mono}, build: func(n *native) {
			n.open()
			n.done(n.b(1, 20, "b1", "ann", 500), 20)
			n.row.Accepted--
		}},
		{name: "(b) the row names another bidder", must: []string{mono}, build: func(n *native) {
			n.open()
			n.done(n.b(1, 20, "b1", "ann", 500), 20)
			n.row.Bidder = "bob"
		}},
		{name: "(b) a bid in an auction that was never opened", must: []string{mono}, build: func(n *native) {
			n.done(n.b(1, 20, "b1", "ann", 500), 20)
		}},
		{name: "(c) a lower bid after a higher one, without any order", must: []string{mono}, build: func(n *native) { // CV-DY-09
			n.order = false
			n.open()
			n.done(n.b(1, 20, "b1", "ann", 700), 20)
			n.done(n.b(2, 30, "b2", "bob", 500), 30)
		}},
		{name: "(e) overlapping bids accepted in falling order", must: []string{mono}, build: func(n *native) {
			n.open()
			a, b := n.b(1, 20, "b1", "ann", 700), n.b(2, 20, "b2", "bob", 500)
			v := n.take(n.ask(a, 1020))
			w := n.take(n.ask(b, 1020)).ok(20, 30)
			v.ok(20, 31)
			n.say(a, 32, v)
			n.say(b, 32, w)
			n.row.High, n.row.Bidder = 700, "ann"
		}},
		{name: "(e) two bids counted as one change", must: []string{mono}, build: func(n *native) {
			n.open()
			n.done(n.b(1, 20, "b1", "ann", 500), 20)
			n.row.Changes--
			n.done(n.b(2, 30, "b2", "bob", 700), 30)
		}},
		{name: "(d) a high bid that was never accepted", must: []string{mono, reject}, build: func(n *native) {
			n.open()
			n.refused(n.b(1, 20, "b1", "ann", 200), 20, codeStale, 300)
		}},
		{name: "(d) a high bid that had been beaten", must: []string{mono, reject}, build: func(n *native) {
			n.open()
			n.done(n.b(1, 20, "b1", "ann", 300), 20)
			n.done(n.b(1, 30, "b2", "ann", 400), 30)
			n.refused(n.b(2, 40, "b3", "bob", 200), 40, codeStale, 300)
		}},
		{name: "(d) the high bid falls", must: []string{mono}, build: func(n *native) {
			n.open()
			c := n.b(1, 20, "b1", "ann", 300)
			w := n.take(n.ask(c, 1020))
			n.refused(n.b(2, 25, "b2", "bob", 200), 25, codeStale, 300)
			n.refused(n.b(2, 35, "b3", "bob", 50), 35, codeStale, 100)
			w.ok(20, 50)
			n.say(c, 51, w)
		}},
		{name: "(d) a closing shows a high bid that had been beaten", must: []string{mono}, build: func(n *native) {
			n.open()
			n.done(n.b(1, 20, "b1", "ann", 300), 20)
			k := n.closing(1, 30, auc)
			w := n.take(n.ask(k, 1030)).ok(30, 33)
			n.say(k, 34, w).Have = 100
		}},

		{name: "the repeat of the high bid is answered stale", must: []string{idem}, build: func(n *native) { // CV-PG-33, CV-DY-07
			n.open()
			again := n.b(2, 20, "b1", "ann", 500)
			w := n.ask(again, 1020)
			n.done(n.b(1, 21, "b1", "ann", 500), 21)
			w.fail(20, 40, eventstore.Refused)
			n.no(again, 41, codeStale, 500)
		}},
		{name: "the repeat of the high bid is answered closed", must: []string{idem}, build: func(n *native) {
			n.open()
			n.done(n.b(1, 20, "b1", "ann", 500), 20)
			n.done(n.closing(1, 30, auc), 30)
			n.refused(n.b(2, 40, "b1", "ann", 500), 40, codeClosed, 500)
		}},
		{name: "a bid is stale for its own first try, which was unknown", must: []string{idem, "failed-means-absent", "honest-outcomes"}, build: func(n *native) {
			n.open()
			c := n.b(1, 20, "b1", "ann", 500)
			w := n.take(n.ask(c, 1020)).lost(20, 30).fail(31, 33, eventstore.Refused)
			n.final(w, 34)
			n.no(c, 35, codeStale, 500)
		}},
		{name: "a bid id is accepted twice", must: []string{idem, "command-once"}, may: []string{mono}, build: func(n *native) {
			n.open()
			n.done(n.b(1, 20, "b1", "ann", 500), 20)
			n.done(n.b(1, 30, "b1", "ann", 500), 30)
		}},
		{name: "a bid id is accepted again with another body", must: []string{idem}, build: func(n *native) {
			n.open()
			n.done(n.b(1, 20, "b1", "ann", 500), 20)
			n.done(n.b(1, 30, "b1", "ann", 700), 30)
		}},
		{name: "a replay is answered with another time", must: []string{idem}, build: func(n *native) {
			n.open()
			first := n.done(n.b(1, 20, "b1", "ann", 500), 20)
			n.replayed(n.b(1, 30, "b1", "ann", 500), 30, first).At++
		}},
		{name: "another body is not told", must: []string{idem}, build: func(n *native) {
			n.open()
			n.done(n.b(1, 20, "b1", "ann", 500), 20)
			n.refused(n.b(1, 30, "b1", "ann", 400), 30, codeStale, 500)
		}},
		{name: "another body where there is none", must: []string{idem}, build: func(n *native) {
			n.open()
			n.refused(n.b(1, 20, "b1", "ann", 400), 20, codeInvalidPayload, 100)
		}},

		{name: "a bid is accepted after the close", must: []string{final}, build: func(n *native) {
			n.open()
			n.done(n.b(1, 20, "b1", "ann", 500), 20)
			n.done(n.closing(1, 30, auc), 30)
			n.done(n.b(1, 40, "b2", "ann", 700), 40)
		}},
		{name: "a bid is accepted after an answer closed, without any order", must: []string{final}, build: func(n *native) {
			n.order = false
			n.open()
			n.done(n.closing(1, 30, auc), 30)
			n.refused(n.b(1, 40, "b2", "ann", 700), 40, codeClosed, 100)
			n.done(n.b(1, 50, "b3", "ann", 700), 50)
		}},
		{name: "the row is open again", must: []string{final}, build: func(n *native) {
			n.open()
			n.done(n.closing(1, 30, auc), 30)
			n.row.Closed = false
		}},
		{name: "the row is closed by nobody", must: []string{final}, build: func(n *native) {
			n.open()
			n.row.Closed = true
		}},
		{name: "the row changes after the close", must: []string{final, mono}, build: func(n *native) {
			n.open()
			n.done(n.b(1, 20, "b1", "ann", 500), 20)
			n.done(n.closing(1, 30, auc), 30)
			n.row.High = 600
		}},

		{name: "an acknowledged bid is not in the ledger", must: []string{"no-lost-ack"}, build: func(n *native) {
			n.open()
			c := n.b(1, 20, "b1", "ann", 500)
			w := n.ask(c, 1020).ok(20, 30)
			n.say(c, 31, w)
		}},
		{name: "an acknowledged bid stands as another change", must: []string{"no-lost-ack"}, build: func(n *native) {
			n.open()
			w := n.done(n.b(1, 20, "b1", "ann", 500), 20)
			w.tries[0].First++
			w.tries[0].Last++
		}},
		{name: "a bid that nobody made", must: []string{"no-phantom-event"}, may: []string{"command-once"}, build: func(n *native) {
			n.open()
			w := n.done(n.b(1, 20, "b1", "ann", 500), 20)
			ghost := *w.events[0]
			ghost.ID, ghost.Version = n.eventID(), ghost.Version+1
			ghost.Data = auction.Event{Type: auction.BidAccepted, Auction: auctionID(n.t), At: "1970-01-01T00:00:01.000Z", BidID: "b9", Bidder: "eve", Amount: 900}.Data()
			n.logs[auc] = append(n.logs[auc], &ghost)
			n.row.High, n.row.Bidder, n.row.Accepted = 900, "eve", 2
		}},
		{name: "the ledger holds another amount than was bid", must: []string{"no-phantom-event", "no-lost-ack"}, may: []string{mono, idem}, build: func(n *native) {
			n.open()
			w := n.done(n.b(1, 20, "b1", "ann", 500), 20)
			w.events[0].Data = auction.Event{Type: auction.BidAccepted, Auction: auctionID(n.t), At: "1970-01-01T00:00:01.020Z", BidID: "b1", Bidder: "ann", Amount: 501}.Data()
			n.row.High = 501
		}},
		{name: "a bid that the store called throttled is in the ledger", must: []string{"failed-means-absent", "honest-outcomes"}, build: func(n *native) {
			n.open()
			c := n.b(1, 20, "b1", "ann", 500)
			n.take(n.ask(c, 1020)).fail(20, 30, eventstore.Throttled)
			n.no(c, 31, auction.Throttled, 0)
		}},
		{name: "an unknown bid is given up by a refusal that nobody gave", must: []string{"honest-outcomes", reject}, build: func(n *native) {
			n.open()
			n.done(n.b(2, 12, "b2", "bob", 500), 12)
			c := n.b(1, 20, "b1", "ann", 200)
			n.final(n.ask(c, 1020).lost(20, 22), 23)
			n.no(c, 24, codeStale, 500)
		}},
		{name: "a failed try is answered as executed before", must: []string{"honest-outcomes"}, build: func(n *native) {
			n.open()
			c := n.b(1, 20, "b1", "ann", 500)
			w := n.take(n.ask(c, 1020)).fail(20, 22, eventstore.Throttled).ok(23, 25)
			w.tries[1].Replayed = true
			n.say(c, 26, w)
		}},
		{name: "the bid of a killed call is in the ledger, and the command is refused", must: []string{"failed-means-absent", idem}, build: func(n *native) {
			n.open()
			n.process(2)
			k := n.callAs("b1-ann-500", 2, 1, 20, "bid", auc, bidBody(auc, "b1", "ann", 500))
			n.take(n.ask(k, 1020)).try(20, 0, eventstore.Unknown, eventstore.ReasonNone)
			n.kill(2, 25)
			n.done(n.b(3, 26, "b2", "bob", 600), 26)
			c := n.b(1, 40, "b1", "ann", 500)
			c.start.Continued = true
			n.refused(c, 40, codeStale, 600)
		}},

		{name: "a bid that beats the high bid is answered stale", must: []string{reject}, build: func(n *native) {
			n.open()
			n.refused(n.b(1, 20, "b1", "ann", 200), 20, codeStale, 100)
		}},
		{name: "a conflict is answered stale", must: []string{reject}, build: func(n *native) { // CV-DY-08
			n.open()
			n.done(n.b(2, 12, "b2", "bob", 500), 12)
			c := n.b(1, 20, "b1", "ann", 200)
			n.ask(c, 1020).fail(20, 22, eventstore.TransactionConflict)
			n.no(c, 23, codeStale, 500)
		}},
		{name: "an open auction is answered closed", must: []string{reject}, build: func(n *native) {
			n.open()
			n.refused(n.b(1, 20, "b1", "ann", 200), 20, codeClosed, 100)
		}},
		{name: "an unknown try is answered throttled", must: []string{reject}, build: func(n *native) {
			n.open()
			c := n.b(1, 20, "b1", "ann", 200)
			n.ask(c, 1020).lost(20, 22)
			n.no(c, 23, auction.Throttled, 0)
		}},
		{name: "a stale bid is told to try again", must: []string{reject}, build: func(n *native) {
			n.open()
			n.refused(n.b(1, 20, "b1", "ann", 50), 20, codeStale, 100).Retriable = true
		}},
		{name: "an auction that nobody created exists", must: []string{reject}, build: func(n *native) {
			n.refused(n.create(1, 20, 50), 20, codeAlreadyExists, 0)
		}},
		{name: "a refusal without asking the store", must: []string{reject}, build: func(n *native) {
			n.open()
			n.no(n.b(1, 20, "b1", "ann", 50), 20, codeStale, 100)
		}},
	})
}

func auctionID(t testing.TB) auction.ID {
	t.Helper()
	id, ok := auction.FromStream(auc)
	if !ok {
		t.Fatal("no auction")
	}
	return id
}

func TestRulesAboutStreamsAreNotPromisedByNativeAuctions(t *testing.T) {
	n := newNative(t)
	n.open()
	n.done(n.b(1, 20, "b1", "ann", 500), 20)
	speak := []string{
		"no-lost-ack", "no-phantom-event", "honest-outcomes", "failed-means-absent", "command-once", "truthful-rejections",
		"monotonic-bids", "idempotent-bids", "close-is-final", "progress", "complete-history", "exercised",
	}
	for slug, r := range verdicts(n.run()) {
		if native := slices.Contains(speak, slug); native == (r.Verdict == verdict.NotPromised) || r.Verdict == verdict.NotPromised && r.Reason == "" {
			t.Errorf("%s is %s (%s)", slug, r.Verdict, r.Reason)
		}
	}
}

func TestAnAuctionWhoseRowWasNotReadIsNotCalledGood(t *testing.T) {
	n := newNative(t)
	n.open()
	n.done(n.b(1, 20, "b1", "ann", 500), 20)
	n.done(n.closing(1, 30, auc), 30)
	n.row = nil
	got := expect(t, n.run(), nil, nil)
	for _, slug := range []string{"monotonic-bids", "close-is-final"} {
		if r := got[slug]; r.Verdict != verdict.Inconclusive || !strings.Contains(r.Reason, "no row") {
			t.Errorf("%s is %s (%s)", slug, r.Verdict, r.Reason)
		}
	}
}

func TestAStoreThatAppendsHasNoConditionOfItsOwn(t *testing.T) {
	h := newHist(t, oracle.Bank)
	bank(h)
	c := h.withdraw(1, 20, acc, 60).load(21, 22)
	c.write().fail(23, 30, eventstore.Refused)
	c.finish(31, history.ResultUnknown)
	expect(t, h.run(), []string{"truthful-rejections"}, nil)
}
