package oracle

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"iter"
	"maps"
	"sort"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
)

const (
	auctionCreated = "AuctionCreated"
	bidAccepted    = "BidAccepted"
	auctionClosed  = "AuctionClosed"
)

// lot is the fold of an auction's stream.
type lot struct {
	status   Status
	version  uint64
	opening  int64
	high     int64
	bidder   string // of the high bid
	bid      string // id of the high bid
	accepted uint64
	bids     map[string]Bid
	// The sum mod 2^128 of one hash a bid of bids.
	sumHigh, sumLow uint64
	scratch         []byte
}

func (l *lot) Apply(ev history.LoggedEvent) error {
	f, err := parseEvent(&ev)
	if err != nil {
		return err
	}
	if err := l.fold(&ev, &f); err != nil {
		return fmt.Errorf("%w: %s at version %d: %w", ErrLog, ev.Type, ev.Version, err)
	}
	l.version = ev.Version
	return nil
}

func (l *lot) fold(ev *history.LoggedEvent, f *fields) error {
	if ev.Type == auctionCreated {
		if l.status != Missing {
			return errReopened
		}
		l.status = Open
		l.opening = f.number[numOpeningPrice]
		l.high = l.opening
		return nil
	}
	if l.status == Missing {
		return errUnopened
	}
	switch ev.Type {
	case bidAccepted:
		id, bidder, bid := string(f.text[textBidID]), string(f.text[textBidder]), f.number[numAmount]
		l.accepted++
		if _, seen := l.bids[id]; !seen {
			at := string(f.text[textAt])
			l.bids[id] = Bid{Bidder: bidder, Amount: bid, AcceptedAt: at, Millis: millis(at), Version: ev.Version}
			l.addToSum(f, ev.Version)
		}
		if l.high < bid {
			l.high, l.bidder, l.bid = bid, bidder, id
		}
	case auctionClosed:
		l.status = Closed
	default:
		return errForeign
	}
	return nil
}

func (l *lot) addToSum(f *fields, version uint64) {
	b := appendSized(l.scratch[:0], f.text[textBidID])
	b = appendSized(b, f.text[textBidder])
	b = appendSized(b, f.text[textAt])
	b = binary.BigEndian.AppendUint64(b, uint64(f.number[numAmount]))
	b = binary.BigEndian.AppendUint64(b, version)
	l.scratch = b
	h := sha256.Sum256(b)
	low := l.sumLow + binary.BigEndian.Uint64(h[8:])
	if low < l.sumLow {
		l.sumHigh++
	}
	l.sumLow = low
	l.sumHigh += binary.BigEndian.Uint64(h[:])
}

// appendSized appends a text after its length.
func appendSized[T string | []byte](b []byte, s T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func (l *lot) appendEncoding(b []byte) []byte {
	b = append(b, 'B', 1, byte(l.status))
	b = binary.BigEndian.AppendUint64(b, l.version)
	b = binary.BigEndian.AppendUint64(b, uint64(l.opening))
	b = binary.BigEndian.AppendUint64(b, uint64(l.high))
	b = binary.BigEndian.AppendUint64(b, l.accepted)
	b = binary.BigEndian.AppendUint64(b, l.sumHigh)
	b = binary.BigEndian.AppendUint64(b, l.sumLow)
	return appendSized(appendSized(b, l.bidder), l.bid)
}

func (l *lot) Hash() eventstore.Hash {
	l.scratch = l.appendEncoding(l.scratch[:0])
	return eventstore.HashBytes(l.scratch)
}

func (l *lot) Encode() []byte { return l.appendEncoding(nil) }

func (l *lot) Snapshot() []byte {
	ids := make([]string, 0, len(l.bids))
	for id := range l.bids {
		ids = append(ids, id)
	}
	sort.Strings(ids)
	b := binary.AppendUvarint(l.appendEncoding(nil), uint64(len(ids)))
	for _, id := range ids {
		bid := l.bids[id]
		b = appendSized(appendSized(appendSized(b, id), bid.Bidder), bid.AcceptedAt)
		b = binary.BigEndian.AppendUint64(b, uint64(bid.Amount))
		b = binary.BigEndian.AppendUint64(b, bid.Version)
	}
	return b
}

func (l *lot) Clone() State {
	c := *l
	c.bids = maps.Clone(l.bids)
	c.scratch = nil
	return &c
}

func (l *lot) Version() uint64    { return l.version }
func (l *lot) Status() Status     { return l.status }
func (l *lot) Balance() int64     { return 0 }
func (l *lot) High() int64        { return l.high }
func (l *lot) HighBidder() string { return l.bidder }
func (l *lot) Accepted() uint64   { return l.accepted }
func (l *lot) Bid(id string) (Bid, bool) {
	b, ok := l.bids[id]
	return b, ok
}
func (l *lot) Bids() iter.Seq2[string, Bid] { return maps.All(l.bids) }

func (l *lot) Decide(name string, body []byte, nowMillis int64) (Verdict, error) {
	c, err := parse(body, true)
	if err == nil && (c.has&^auctionFields != 0 || !c.whole(0, someText(textAuction))) {
		err = errFields
	}
	if name == "bid" && err == nil && !c.whole(0, someText(textBidID)|someText(textBidder)) {
		err = errFields
	}
	if err != nil {
		return Verdict{}, fmt.Errorf("oracle: body of %s: %w", name, err)
	}
	want := c.number[numAmount]
	switch name {
	case "create":
		switch {
		case l.status != Missing:
			return refuse("ALREADY_EXISTS", l.high, want), nil
		case want < 0:
			return refuse("INVALID_AMOUNT", 0, want), nil
		}
		return accept(newEvent(auctionCreated, createdData(&c, nowMillis))), nil
	case "bid":
		earlier, seen := l.bids[string(c.text[textBidID])]
		switch {
		case seen && earlier.Amount == want && earlier.Bidder == string(c.text[textBidder]):
			return Verdict{Replay: &earlier}, nil
		case seen:
			return refuse("INVALID_PAYLOAD", l.high, want), nil
		case l.status != Open:
			return refuse("AUCTION_CLOSED", l.high, want), nil
		case want <= l.high:
			return refuse("STALE_BID", l.high, want), nil
		}
		return accept(newEvent(bidAccepted, bidData(&c, nowMillis))), nil
	case "close":
		if l.status != Open {
			return refuse("AUCTION_CLOSED", l.high, want), nil
		}
		return accept(newEvent(auctionClosed, l.closedData(&c, nowMillis))), nil
	}
	return Verdict{}, fmt.Errorf("oracle: %q is no command of an auction", name)
}

func createdData(c *fields, now int64) []byte {
	b := appendTime(append(make([]byte, 0, 96), `{"at":`...), now)
	b = appendText(append(b, `,"auction":`...), c.text[textAuction])
	b = appendNumber(append(b, `,"openingPrice":`...), c.number[numAmount])
	return append(b, '}')
}

func bidData(c *fields, now int64) []byte {
	b := appendNumber(append(make([]byte, 0, 128), `{"amount":`...), c.number[numAmount])
	b = appendTime(append(b, `,"at":`...), now)
	b = appendText(append(b, `,"auction":`...), c.text[textAuction])
	b = appendText(append(b, `,"bidId":`...), c.text[textBidID])
	b = appendText(append(b, `,"bidder":`...), c.text[textBidder])
	return append(b, '}')
}

func (l *lot) closedData(c *fields, now int64) []byte {
	b := appendTime(append(make([]byte, 0, 128), `{"at":`...), now)
	b = appendText(append(b, `,"auction":`...), c.text[textAuction])
	b = appendNumber(append(b, `,"highBid":`...), l.high)
	b = appendText(append(b, `,"highBidder":`...), []byte(l.bidder))
	return append(b, '}')
}
