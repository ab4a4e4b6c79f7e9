package invariants

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/invariants/oracle"
	"github.com/eventproof/eventproof/verdict"
)

// Auctions in their native form have no stream: what the audit found in their rows stands in L as the events that the
// operations carried, and the row of the auction itself beside them. The rules about bids judge both forms by the same
// index; what differs is here.
//
// The order of acceptance is the version that the audit could prove: the count of changes of the auction's row, copied
// into the bid's row in the same transaction, or seen in the change stream of the row. Version 0 says that no order is
// known; then only amounts, intervals and the row are judged.

// answering returns the attempt that the answer to a call rests on: the last one that had returned by then.
func (c *Call) answering() *Attempt {
	var last *Attempt
	for _, w := range c.Writes {
		for i := range w.Attempts {
			if a := &w.Attempts[i]; !a.Open && a.T <= c.End.T && (last == nil || a.T > last.T) {
				last = a
			}
		}
	}
	return last
}

// existed reports whether the auction certainly existed at t: its creation had been acknowledged before.
func (a *auctionIndex) existed(t int64) bool {
	return a.created != nil && (a.created.Write == nil || a.created.Write.Return < t)
}

// toldClosed reports whether an answer showed the auction as closed, and not as missing.
func (r *Run) toldClosed(a *auctionIndex, c *Call) bool {
	switch {
	case c.Name == "close" && c.End.Result == history.ResultOK:
		return true
	case !r.decided(c) || c.End.Code != codeClosed:
		return false
	case r.native():
		from, _, _ := r.observed(c)
		return a.existed(from)
	}
	return c.End.basis().Version > 0
}

// decided: the call ended with a refusal that is final, led to by a decision on a state, or by the store's own condition.
func (r *Run) decided(c *Call) bool {
	if r.native() {
		return c.End != nil && c.End.Result == history.ResultRefused && !retriableCode(c.End.Code)
	}
	return c.refusedByDecision()
}

// closeOf reads a native closing, which names no high bid: the row shows it.
func (x *streamIndex) closeOf(l *Logged) closing {
	k := closing{l: l}
	if row := x.s.Auction; row != nil {
		k.high, k.bidder = row.High, row.Bidder
	}
	return k
}

// acceptedMillis is the acceptedAt of a bid in the log, in unix milliseconds; 0 where it is none.
func acceptedMillis(l *Logged) int64 {
	var data struct {
		At string `json:"at"`
	}
	if err := json.Unmarshal(l.Data, &data); err != nil {
		return 0
	}
	t, err := time.Parse(time.RFC3339Nano, data.At)
	if err != nil {
		return 0
	}
	return t.UnixMilli()
}

// stored is what the ledger holds of an accepted bid.
func (x *streamIndex) stored(b *acceptedBid) (amount, millis int64, ok bool) {
	if x.run.native() {
		return b.amount, acceptedMillis(b.l), true
	}
	f := x.fold()
	if f.final == nil {
		return 0, 0, false
	}
	bid, ok := f.final.Bid(b.id)
	return bid.Amount, bid.Millis, ok
}

// unread marks a result for an auction whose row the audit did not read although the auction is there.
func unread(res *verdict.Result, s *Stream) {
	if res.Reason == "" {
		res.Verdict, res.Reason = verdict.Inconclusive, "the audit read no row of "+s.Name
	}
}

// checkRow judges (b) of monotonic-bids in the native form, against the row that the conditional statement keeps.
func checkRow(run *Run, res *verdict.Result, x *streamIndex, a *auctionIndex) {
	if a.created == nil && len(a.bids) == 0 {
		return
	}
	if a.created == nil {
		first := a.bids[0]
		violate(res, func() *witness {
			return withWrites(newWitness(run, x.s.Name, "A bid of %d was accepted in an auction that does not exist.", first.amount).
				logged(first.l).cause(), first.l)
		})
		return
	}
	row := x.s.Auction
	if row == nil {
		unread(res, x.s)
		return
	}
	high, bidder, best := a.opening, "", a.created
	if n := len(a.amounts); n > 0 && a.amounts[n-1].amount > high {
		high, bidder, best = a.amounts[n-1].amount, a.amounts[n-1].bidder, a.amounts[n-1].l
	}
	if row.High == high && row.Bidder == bidder && row.Accepted == uint64(len(a.bids)) && row.Opening == a.opening {
		return
	}
	violate(res, func() *witness {
		return withWrites(newWitness(run, x.s.Name, "The auction's row shows %d by %q with %d bids; it opened at %d, and the highest of its %d accepted bids is %d by %q.",
			row.High, row.Bidder, row.Accepted, a.opening, len(a.bids), high, bidder).logged(best).cause(), best)
	})
}

// checkOrdered judges (e) of monotonic-bids between two bids that follow each other in the order of acceptance.
func checkOrdered(run *Run, res *verdict.Result, s *Stream, before, b *acceptedBid) {
	source := "stream version"
	if run.native() {
		source = "the auction's count of changes"
		if before.l.Version == 0 {
			return // no order is known
		}
		if before.l.Version == b.l.Version {
			violate(res, func() *witness {
				return withWrites(newWitness(run, s.Name, "The bids of %d and %d were both accepted as change %d of the auction.",
					before.amount, b.amount, b.l.Version).logged(before.l).cause().logged(b.l).cause(), before.l, b.l)
			})
			return
		}
	}
	if before.amount <= b.amount {
		return
	}
	violate(res, func() *witness {
		return withWrites(newWitness(run, s.Name, "By %s, the bid of %d (v%d) was accepted after the bid of %d (v%d).",
			source, b.amount, b.l.Version, before.amount, before.l.Version).logged(before.l).cause().logged(b.l).cause(), before.l, b.l)
	})
}

// checkClosedRow: the row of an auction is closed if, and only if, an operation closed it.
func checkClosedRow(run *Run, res *verdict.Result, x *streamIndex, a *auctionIndex) {
	row := x.s.Auction
	switch {
	case a.created == nil:
	case row == nil:
		unread(res, x.s)
	case row.Closed && len(a.closes) == 0:
		violate(res, func() *witness {
			return withWrites(newWitness(run, x.s.Name, "The auction's row is closed, though no operation closed it.").logged(a.created).cause(), a.created)
		})
	case !row.Closed && len(a.closes) > 0:
		violate(res, func() *witness {
			return withWrites(newWitness(run, x.s.Name, "The auction was closed, and its row is open again.").
				logged(a.closes[0].l).cause(), a.closes[0].l)
		})
	}
}

// checkNativeRefusals is truthful-rejections for auctions in their native form. A final refusal rests on an attempt that
// the store's condition refused, and an observation has the interval of that attempt:
//
//	STALE(h) to bid x: x ≤ h, and h satisfies monotonic-bids (d);
//	CLOSED: as for the other form;
//	ALREADY_EXISTS: another command's creation was invoked ≤ the answer's return;
//	INVALID_PAYLOAD: idempotent-bids says whether it is right.
//
// A retriable refusal says that no try of the call had an effect, so none of them may be unknown.
func checkNativeRefusals(run *Run, res *verdict.Result) {
	run.each(func(s *Stream, x *streamIndex) {
		for _, c := range s.Calls {
			if c.End == nil || c.End.Result != history.ResultRefused {
				continue
			}
			res.Evidence[oppRefusals.Name]++
			checkNativeRefusal(run, res, x, c)
		}
	})
	checkStoreRefusals(run, res)
}

func checkNativeRefusal(run *Run, res *verdict.Result, x *streamIndex, c *Call) {
	e, a := c.End, x.auction()
	wrong := func(cause *Logged, format string, args ...any) {
		violate(res, func() *witness {
			v := newWitness(run, c.Stream, "%s %s was refused with %s, but %s.", c.Name, c.Command.ID, e.Code, fmt.Sprintf(format, args...))
			for _, w := range c.Writes {
				v.write(w)
			}
			v.answer(c).cause()
			if cause != nil {
				v = withWrites(v.logged(cause).cause(), cause)
			}
			return v
		})
	}
	checkFlag(c, wrong)
	if retriableCode(e.Code) {
		for _, w := range c.Writes {
			if !w.Failed {
				wrong(nil, "a try of it may have taken effect")
			}
		}
		return
	}
	if e.Code == codeInvalidAmount {
		f, err := oracle.ParseCommand(c.Body)
		if err == nil && (c.Name != "create" || f.Amount >= 0) {
			wrong(nil, "its amount is possible")
		}
		return
	}
	answer := c.answering()
	switch {
	case answer == nil:
		wrong(nil, "the store was never asked")
		return
	case answer.Outcome != eventstore.Fail || answer.Reason != eventstore.Refused:
		wrong(nil, "the store's condition had not refused it (%s, %s)", answer.Outcome, answer.Reason)
		return
	}
	from, to, _ := run.observed(c)
	switch e.Code {
	case codeStale:
		if e.Want > e.Have {
			wrong(nil, "the bid of %d beats the high bid of %d", e.Want, e.Have)
		}
		if text, l := a.observe(e.Have, from, to); text != "" {
			wrong(l, "%s", text)
		}
	case codeClosed:
		if text, l := a.closedWrongly(from, to); text != "" {
			wrong(l, "%s", text)
		}
	case codeAlreadyExists:
		switch {
		case a.created == nil:
			wrong(nil, "the auction was never created")
		case !invokedBy(a.created, to):
			wrong(a.created, "the auction's creation was sent only later")
		}
	}
}

// checkFlag compares the flag of a refusal with its code.
func checkFlag(c *Call, wrong func(cause *Logged, format string, args ...any)) {
	switch e := c.End; {
	case e.Retriable && finalCode(e.Code):
		wrong(nil, "the answer invites a retry, which can't help")
	case !e.Retriable && retriableCode(e.Code):
		wrong(nil, "the answer is marked as final, though a retry may succeed")
	}
}
