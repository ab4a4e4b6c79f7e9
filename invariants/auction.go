package invariants

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/invariants/oracle"
	"github.com/eventproof/eventproof/verdict"
)

func auctionRules() []Rule {
	return []Rule{
		{
			ID: "INV-BIDMONO", Slug: "monotonic-bids", NeedsLog: true, Native: true, Workload: oracle.Auction,
			Title:         "Accepted bids only rise, and every high bid that was shown had been accepted and not yet beaten",
			Opportunities: []Opportunity{oppOverlappingBids, oppEqualBids, oppHighBidsShown},
			Check:         checkMonotonicBids,
		},
		{
			ID: "INV-BIDIDEM", Slug: "idempotent-bids", NeedsLog: true, Native: true, Workload: oracle.Auction,
			Title:         "A bid id is accepted at most once and its replays are answered with the first acceptance",
			Opportunities: []Opportunity{oppReplays, oppAlteredBids},
			Check:         checkIdempotentBids,
		},
		{
			ID: "INV-CLOSEFINAL", Slug: "close-is-final", NeedsLog: true, Native: true, Workload: oracle.Auction,
			Title:         "A close shows the highest bid, and nothing is accepted after it",
			Opportunities: []Opportunity{oppClosesWithBids, oppBidsAfterClose},
			Check:         checkCloseFinal,
		},
	}
}

// auctionIndex is what L holds of one auction (A, its ledger of accepted bids, is the set of its bid events) and
// what was asked of it.
type auctionIndex struct {
	created *Logged
	opening int64
	bids    []*acceptedBid // A, by version
	byID    map[string]*acceptedBid
	amounts []*acceptedBid // by amount
	returns []bidReturn    // by time, each with the highest bid returned by then
	closes  []closing
	calls   []bidCall // by start
}

type acceptedBid struct {
	l      *Logged
	id     string
	bidder string
	amount int64
}

type bidReturn struct {
	t    int64
	best *acceptedBid
}

type closing struct {
	l      *Logged
	high   int64
	bidder string
}

type bidCall struct {
	*Call
	id     string
	bidder string
	amount int64
}

// auction indexes the stream as an auction; events that can't be read are left to the fold.
func (x *streamIndex) auction() *auctionIndex {
	if x.bidding != nil {
		return x.bidding
	}
	a := &auctionIndex{byID: map[string]*acceptedBid{}}
	x.bidding = a
	for _, l := range x.s.Log {
		if x.run.native() && l.Type == "AuctionClosed" {
			a.closes = append(a.closes, x.closeOf(l))
			continue
		}
		f, err := oracle.ParseEvent(l.LoggedEvent)
		if err != nil {
			continue
		}
		switch l.Type {
		case "AuctionCreated":
			if a.created == nil {
				a.created, a.opening = l, f.OpeningPrice
			}
		case "BidAccepted":
			b := &acceptedBid{l: l, id: string(f.BidID), bidder: string(f.Bidder), amount: f.Amount}
			a.bids = append(a.bids, b)
			if a.byID[b.id] == nil {
				a.byID[b.id] = b
			}
			if l.Write != nil && l.Write.Return != Infinity {
				a.returns = append(a.returns, bidReturn{l.Write.Return, b})
			}
		case "AuctionClosed":
			a.closes = append(a.closes, closing{l, f.HighBid, string(f.HighBidder)})
		}
	}
	a.amounts = slices.Clone(a.bids)
	slices.SortStableFunc(a.amounts, func(p, q *acceptedBid) int { return cmp.Compare(p.amount, q.amount) })
	slices.SortStableFunc(a.returns, func(p, q bidReturn) int { return cmp.Compare(p.t, q.t) })
	for i := 1; i < len(a.returns); i++ {
		if a.returns[i-1].best.amount > a.returns[i].best.amount {
			a.returns[i].best = a.returns[i-1].best
		}
	}
	for _, c := range x.s.Calls {
		if c.Name != "bid" {
			continue
		}
		if f, err := oracle.ParseCommand(c.Body); err == nil {
			a.calls = append(a.calls, bidCall{c, string(f.BidID), string(f.Bidder), f.Amount})
		}
	}
	return a
}

// observe judges a high bid h that was shown in the interval: it is the opening price or an accepted bid whose
// write was invoked by the interval's end, and no higher bid had returned before its begin.
func (a *auctionIndex) observe(h int64, from, to int64) (wrong string, cause *Logged) {
	if i := sort.Search(len(a.returns), func(i int) bool { return a.returns[i].t >= from }); i > 0 {
		if best := a.returns[i-1].best; best.amount > h {
			return fmt.Sprintf("it shows a high bid of %d, while a bid of %d had been accepted before", h, best.amount), best.l
		}
	}
	known := a.created != nil && h == a.opening && invokedBy(a.created, to)
	var late *Logged
	for i := sort.Search(len(a.amounts), func(i int) bool { return a.amounts[i].amount >= h }); i < len(a.amounts) && a.amounts[i].amount == h; i++ {
		if invokedBy(a.amounts[i].l, to) {
			known = true
		} else {
			late = a.amounts[i].l
		}
	}
	switch {
	case known:
		return "", nil
	case late != nil:
		return fmt.Sprintf("it shows a high bid of %d, which was sent only later", h), late
	}
	return fmt.Sprintf("it shows a high bid of %d, which was never accepted", h), nil
}

// invokedBy: the write of an event was sent by t; of an event nobody wrote, nothing is known.
func invokedBy(l *Logged, t int64) bool { return l.Write == nil || l.Write.Invoke <= t }

// closedWrongly judges an answer CLOSED given in the interval.
func (a *auctionIndex) closedWrongly(from, to int64) (wrong string, cause *Logged) {
	if a.created == nil || a.created.Write != nil && a.created.Write.Return >= from {
		return "", nil // missing: nobody had been told of it yet
	}
	for _, c := range a.closes {
		if invokedBy(c.l, to) {
			return "", nil
		}
		cause = c.l
	}
	if cause != nil {
		return "the auction's closing was sent only later", cause
	}
	return "the auction was never closed", a.created
}

// monotonic-bids (INV-BIDMONO). Let A be the accepted bids in the log, o the opening price:
//
//	(a) amounts in A are distinct and > o;
//	(b) final high bid = max(A), bidder = its bidder, accepted count = |A|;
//	(c) a before b ⇒ amount(a) < amount(b);
//	(d) every strong observation h of the high bid (STALE answer, with the read that it was decided on; close
//	    answer): h ∈ A ∪ {o}; its write was invoked ≤ the observation's return; no bid of A above h had
//	    returned before its invoke; observations in real-time order never decrease;
//	(e) amounts increase in the order of the stream's versions; in the native form in that of the auction's count of
//	    changes, where the audit could prove it, and no count is given to two bids.
//
// In the native form A is the ledger of bids, (b) is judged on the auction's row, and an observation has the interval of
// the attempt that was answered.
//
// Distinct amounts make (a)–(d) equal to linearizability in one sweep by amount.
//
//	bidder 1   read high 100   …                    write 500 (ok)
//	bidder 2   read high 100       write 700 (ok)                     → the high bid falls from 700 to 500
func checkMonotonicBids(run *Run, res *verdict.Result) {
	run.each(func(s *Stream, x *streamIndex) {
		a := x.auction()
		countBids(res, x, a)
		for i, b := range a.bids {
			if a.created != nil && b.amount <= a.opening {
				violate(res, func() *witness {
					return withWrites(newWitness(run, s.Name, "The bid of %d was accepted, the opening price is %d.", b.amount, a.opening).
						logged(a.created).logged(b.l).cause(), b.l)
				})
			}
			if i > 0 {
				checkOrdered(run, res, s, a.bids[i-1], b)
			}
		}
		var latest *acceptedBid // of a lower amount, the one invoked last
		for i, b := range a.amounts {
			if i > 0 && a.amounts[i-1].amount == b.amount {
				twin := a.amounts[i-1]
				violate(res, func() *witness {
					return withWrites(newWitness(run, s.Name, "Two bids of %d were accepted.", b.amount).
						logged(twin.l).cause().logged(b.l).cause(), twin.l, b.l)
				})
			}
			if b.l.Write == nil {
				continue
			}
			if latest != nil && b.l.Write != latest.l.Write && b.l.Write.Return < latest.l.Write.Invoke {
				lower := latest
				violate(res, func() *witness {
					return newWitness(run, s.Name, "The bid of %d was accepted although a bid of %d had been acknowledged before it was sent.",
						lower.amount, b.amount).write(b.l.Write).cause().write(lower.l.Write).cause().logged(b.l).logged(lower.l)
				})
			}
			if b.l.Write.Invoke != Infinity && (latest == nil || b.l.Write.Invoke > latest.l.Write.Invoke) {
				latest = b
			}
		}
		if run.native() {
			checkRow(run, res, x, a)
		} else {
			checkFinalHigh(run, res, x, a)
		}
		checkShown(run, res, x, a)
	})
}

// countBids counts overlapping bids and bids of equal amounts.
func countBids(res *verdict.Result, x *streamIndex, a *auctionIndex) {
	res.Evidence[oppOverlappingBids.Name] += x.contention().bids
	byAmount := map[int64]string{}
	for _, c := range a.calls {
		if id, ok := byAmount[c.amount]; !ok {
			byAmount[c.amount] = c.id
		} else if id != c.id {
			res.Evidence[oppEqualBids.Name]++
		}
	}
}

// checkFinalHigh judges (b) by the fold, which keeps high bid, bidder and count as the application does.
func checkFinalHigh(run *Run, res *verdict.Result, x *streamIndex, a *auctionIndex) {
	f := x.fold()
	if f.stopped != nil {
		stopped(res, f)
		return
	}
	if len(a.bids) == 0 {
		return
	}
	best := a.amounts[len(a.amounts)-1]
	if f.final.High() == best.amount && f.final.HighBidder() == best.bidder && f.final.Accepted() == uint64(len(a.bids)) {
		return
	}
	violate(res, func() *witness {
		return withWrites(newWitness(run, x.s.Name, "The auction ends at %d by %s with %d bids, the highest of its %d accepted bids is %d by %s.",
			f.final.High(), f.final.HighBidder(), f.final.Accepted(), len(a.bids), best.amount, best.bidder).logged(best.l).cause(), best.l)
	})
}

// shown is one strong observation of the high bid.
type shown struct {
	h        int64
	from, to int64
	call     *Call
}

// checkShown judges (d).
func checkShown(run *Run, res *verdict.Result, x *streamIndex, a *auctionIndex) {
	var all []shown
	for _, c := range x.s.Calls {
		if c.End == nil {
			continue
		}
		switch {
		case run.decided(c) && c.End.Code == codeStale:
			if from, to, strong := run.observed(c); strong {
				all = append(all, shown{c.End.Have, from, to, c})
			}
		case run.native() && c.Name == "close" && c.End.Result == history.ResultOK:
			from, to, _ := run.observed(c)
			all = append(all, shown{c.End.Have, from, to, c})
		case c.Name == "close" && c.End.Result == history.ResultOK && !c.End.Replayed:
			for _, k := range a.closes {
				if w := k.l.Write; w != nil && w.Owner == c {
					all = append(all, shown{k.high, w.Invoke, w.Return, c})
				}
			}
		}
	}
	res.Evidence[oppHighBidsShown.Name] += int64(len(all))
	for _, o := range all {
		if wrong, l := a.observe(o.h, o.from, o.to); wrong != "" {
			violate(res, func() *witness {
				v := newWitness(run, x.s.Name, "%s %s was answered untruthfully: %s.", o.call.Name, o.call.Command.ID, wrong).
					read(o.call.End.basis().Read).answer(o.call).cause()
				if l != nil {
					v = withWrites(v.logged(l).cause(), l)
				}
				return v
			})
		}
	}
	slices.SortStableFunc(all, func(p, q shown) int { return cmp.Compare(p.from, q.from) })
	ended := slices.Clone(all)
	slices.SortStableFunc(ended, func(p, q shown) int { return cmp.Compare(p.to, q.to) })
	next := 0
	var best *shown
	for _, o := range all {
		for next < len(ended) && ended[next].to < o.from {
			if best == nil || ended[next].h > best.h {
				best = &ended[next]
			}
			next++
		}
		if best == nil || best.h <= o.h {
			continue
		}
		earlier := *best
		violate(res, func() *witness {
			return newWitness(run, x.s.Name, "The high bid was shown as %d, and later as %d.", earlier.h, o.h).
				read(earlier.call.End.basis().Read).answer(earlier.call).cause().read(o.call.End.basis().Read).answer(o.call).cause()
		})
	}
}

// idempotent-bids (INV-BIDIDEM): at most one ledger item a bid id; all accepted answers agree in amount and
// acceptedAt; if an id is in the ledger with body X, no attempt with body X was ever answered STALE, CLOSED or
// INVALID_PAYLOAD, before or after, except CLOSED answers for which no create of that auction had returned
// before the attempt's invoke; an attempt with another body invoked after the acceptance of X returned gets
// INVALID_PAYLOAD (or a retriable code) and is never accepted; earlier or overlapping it is a bid of its own;
// INVALID_PAYLOAD needs an X of that id in the ledger invoked ≤ the answer's return.
func checkIdempotentBids(run *Run, res *verdict.Result) {
	run.each(func(s *Stream, x *streamIndex) {
		a := x.auction()
		if !run.native() {
			stopped(res, x.fold())
		}
		for _, b := range a.bids {
			if first := a.byID[b.id]; first != b {
				violate(res, func() *witness {
					return withWrites(newWitness(run, s.Name, "Bid %s was accepted twice, at v%d and v%d.", b.id, first.l.Version, b.l.Version).
						logged(first.l).cause().logged(b.l).cause(), first.l, b.l)
				})
			}
		}
		first := map[string]bidCall{}
		for _, c := range a.calls {
			if earlier, ok := first[c.id]; !ok {
				first[c.id] = c
			} else if earlier.bidder == c.bidder && earlier.amount == c.amount {
				res.Evidence[oppReplays.Name]++
			} else {
				res.Evidence[oppAlteredBids.Name]++
			}
			if c.End != nil {
				checkBidAnswer(run, res, x, c)
			}
		}
		checkAcceptances(run, res, s, a)
	})
}

// checkBidAnswer compares the answer to one call of a bid with the ledger.
func checkBidAnswer(run *Run, res *verdict.Result, x *streamIndex, c bidCall) {
	a := x.auction()
	wrong := func(b *acceptedBid, format string, args ...any) {
		violate(res, func() *witness {
			v := newWitness(run, c.Stream, "Bid %s of %d by %s was answered %s, but %s.", c.id, c.amount, c.bidder, answerText(c.End),
				fmt.Sprintf(format, args...)).read(c.End.basis().Read).answer(c.Call).cause()
			if b != nil {
				v = withWrites(v.logged(b.l).cause(), b.l)
			}
			return v
		})
	}
	b := a.byID[c.id]
	same := b != nil && b.bidder == c.bidder && b.amount == c.amount
	from, to, _ := run.observed(c.Call)
	switch c.End.Result {
	case history.ResultRefused:
		switch c.End.Code {
		case codeStale, codeClosed:
			missing := c.End.Code == codeClosed && a.created != nil && a.created.Write != nil && a.created.Write.Return >= from
			switch {
			case same && !missing:
				wrong(b, "this very bid is accepted at v%d", b.l.Version)
			case b != nil && !same && b.l.Write != nil && b.l.Write.Return < from:
				wrong(b, "this bid id had been accepted with another body, which has to be told")
			}
		case codeInvalidPayload:
			switch {
			case same:
				wrong(b, "this very bid is accepted at v%d", b.l.Version)
			case b == nil:
				wrong(nil, "this bid id was never accepted with another body")
			case !invokedBy(b.l, to):
				wrong(b, "the bid of that id was sent only later")
			}
		}
	case history.ResultOK:
		if b != nil && !same && b.l.Write != nil && b.l.Write.Return < c.Started {
			wrong(b, "this bid id had been accepted before with another body")
			return
		}
		if b == nil || !same {
			return
		}
		if amount, millis, ok := x.stored(b); ok && (amount != c.End.Want || millis != c.End.At) {
			wrong(b, "the ledger has amount %d accepted at %d, the answer said %d at %d", amount, millis, c.End.Want, c.End.At)
		}
	case history.ResultExhausted, history.ResultFailed, history.ResultUnknown:
	}
}

// checkAcceptances: all accepted answers to one bid id say the same.
func checkAcceptances(run *Run, res *verdict.Result, s *Stream, a *auctionIndex) {
	accepted := map[string]bidCall{}
	for _, c := range a.calls {
		if c.End == nil || c.End.Result != history.ResultOK {
			continue
		}
		first, ok := accepted[c.id]
		if !ok {
			accepted[c.id] = c
			continue
		}
		if first.End.Want == c.End.Want && first.End.At == c.End.At {
			continue
		}
		violate(res, func() *witness {
			return newWitness(run, s.Name, "Bid %s was accepted as %d at %d, and also as %d at %d.", c.id, first.End.Want, first.End.At, c.End.Want, c.End.At).
				answer(first.Call).cause().answer(c.Call).cause()
		})
	}
}

// close-is-final (INV-CLOSEFINAL): a close in L (also if its call ended unknown) shows max(A); no bid event and no
// other close after its version; no accepted bid whose write was invoked after any answer that showed CLOSED returned
// (close answer, CLOSED to a bid; missing auctions excepted).
func checkCloseFinal(run *Run, res *verdict.Result) {
	run.each(func(s *Stream, x *streamIndex) {
		a := x.auction()
		toldAt, told := a.closedTold(run, s)
		res.Evidence[oppClosesWithBids.Name] += x.contention().closes
		for _, c := range a.calls {
			if told != nil && c.Started > toldAt {
				res.Evidence[oppBidsAfterClose.Name]++
			}
		}
		for _, k := range a.closes {
			checkClosing(run, res, x, a, k)
		}
		if run.native() {
			checkClosedRow(run, res, x, a)
		}
		if told == nil {
			return
		}
		for _, b := range a.bids {
			if b.l.Write == nil || b.l.Write.Invoke == Infinity || b.l.Write.Invoke <= toldAt {
				continue
			}
			violate(res, func() *witness {
				return newWitness(run, s.Name, "The bid of %d was accepted although it was sent after the auction had been answered as closed.", b.amount).
					answer(told).cause().write(b.l.Write).cause().logged(b.l)
			})
		}
	})
}

// closedTold returns the first answer that showed the auction as closed.
func (a *auctionIndex) closedTold(run *Run, s *Stream) (at int64, told *Call) {
	for _, c := range s.Calls {
		if c.End == nil {
			continue
		}
		if run.toldClosed(a, c) && (told == nil || c.End.T < at) {
			at, told = c.End.T, c
		}
	}
	return at, told
}

func checkClosing(run *Run, res *verdict.Result, x *streamIndex, a *auctionIndex, k closing) {
	if first := a.closes[0]; first.l.Version < k.l.Version {
		violate(res, func() *witness {
			return withWrites(newWitness(run, x.s.Name, "The auction was closed at v%d, and again at v%d.", first.l.Version, k.l.Version).
				logged(first.l).cause().logged(k.l).cause(), first.l, k.l)
		})
	}
	high, bidder := a.opening, ""
	for _, b := range a.bids {
		if b.l.Version > k.l.Version {
			violate(res, func() *witness {
				return withWrites(newWitness(run, x.s.Name, "A bid was accepted at v%d, after the auction had been closed at v%d.", b.l.Version, k.l.Version).
					logged(k.l).cause().logged(b.l).cause(), k.l, b.l)
			})
			continue
		}
		if b.amount > high {
			high, bidder = b.amount, b.bidder
		}
	}
	if k.high == high && k.bidder == bidder || run.native() && x.s.Auction == nil {
		return
	}
	violate(res, func() *witness {
		return withWrites(newWitness(run, x.s.Name, "The auction closed showing %d by %q, its highest bid was %d by %q.", k.high, k.bidder, high, bidder).
			logged(k.l).cause(), k.l)
	})
}
