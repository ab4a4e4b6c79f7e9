package workload

import (
	"fmt"
	"strconv"
	"time"

	"github.com/eventproof/eventproof/domain/auction"
	"github.com/eventproof/eventproof/loadgen"
)

// AuctionConfig describes bids on auctions.
type AuctionConfig struct {
	Seeds        loadgen.Seeds
	Keys         loadgen.Keys // chooses the auction; its length is the number of auctions
	OpeningPrice int64        // minor units
	// Shares of the mix, normalised: new bids, the same bid again, the same bid id with another body, a bid equal
	// to an earlier one of another bidder.
	Bid, Replay, AlterBid, EqualBid float64
	// CloseAfter the beginning of the load each auction is closed, up to a tenth earlier or later, so that not all
	// end at once; 0 = never.
	CloseAfter time.Duration
}

// Bids must compete for a high bid that nobody tells the generator. So they climb with the arrivals: of an
// auction's n-th bid, n estimated from its share of the arrivals, the amount is the opening price + n·step + a
// random part below spread. In balance about √(2·step/spread), half of the bids, are above all earlier ones;
// the others arrive stale, and bids that overtake each other conflict. Where arrivals were lost the next bids
// simply lie higher.
const (
	step   = 10
	spread = 80
)

// Replays, altered and equal bids are of one of the last recent arrivals: near enough to meet the original in
// flight now and then, far enough to come mostly after its answer.
const recent = 200

const bidders = 32

// maxPrice leaves room to climb.
const maxPrice = int64(1) << 60

// lots makes commands on the auctions "1", "2", …
type lots struct {
	AuctionConfig
	timed []time.Duration
}

// Auction returns the workload.
func Auction(c AuctionConfig) (Workload, error) {
	err := validShares(c.Bid, c.Replay, c.AlterBid, c.EqualBid)
	switch {
	case err != nil:
	case c.Bid == 0:
		err = fmt.Errorf("no bids: there is nothing to replay, alter or equal")
	case c.Keys.Len() == 0:
		err = fmt.Errorf("no auctions")
	case c.OpeningPrice < 0 || c.OpeningPrice > maxPrice:
		err = fmt.Errorf("opening price of %d", c.OpeningPrice)
	case c.CloseAfter < 0:
		err = fmt.Errorf("close after %v", c.CloseAfter)
	}
	if err != nil {
		return nil, fmt.Errorf("workload: auction: %w", err)
	}
	l := &lots{AuctionConfig: c}
	if c.CloseAfter > 0 {
		r := c.Seeds.Stream("closings")
		l.timed = make([]time.Duration, c.Keys.Len())
		for i := range l.timed {
			l.timed[i] = time.Duration(float64(c.CloseAfter) * (0.9 + 0.2*r.Float64()))
		}
	}
	return l, nil
}

func (l *lots) Setup() []Command {
	out := make([]Command, l.Keys.Len())
	for i := range out {
		out[i] = command(setupID(l.Seeds, i), auction.Command{Name: auction.CommandCreate, Auction: auctionID(i), Amount: l.OpeningPrice})
	}
	return out
}

func (l *lots) Timed() []time.Duration { return l.timed }

func (l *lots) Command(seq uint64) Command {
	if seq >= loadgen.TimedBase {
		return command(commandID(l.Seeds, seq), auction.Command{Name: auction.CommandClose, Auction: auctionID(int(seq - loadgen.TimedBase))})
	}
	d := l.draw(seq)
	if d.form != Plain {
		if of, ok := l.earlier(seq, d); ok {
			return l.derived(seq, d, of)
		}
	}
	return command(commandID(l.Seeds, seq), d.bid)
}

// drawn is what arrival seq makes by itself; where form is not Plain it looks for an earlier bid to refer to.
type drawn struct {
	form        Form
	key, bidder int
	random      int64 // part of the amount
	bid         auction.Command
	ago         [8]uint64 // earlier arrivals to look at, as distances
}

func (l *lots) draw(seq uint64) drawn {
	r := l.Seeds.At("auction", seq)
	d := drawn{
		form: Form(pick(r, l.Bid, l.Replay, l.AlterBid, l.EqualBid)),
		key:  l.Keys.Pick(r), bidder: r.IntN(bidders), random: r.Int64N(spread),
	}
	d.bid = auction.Command{
		Name: auction.CommandBid, Auction: auctionID(d.key), BidID: bidID(l.Seeds, seq), Bidder: bidderName(d.bidder),
		Amount: l.amount(d.key, seq, d.random),
	}
	if d.form != Plain {
		for i := range d.ago {
			d.ago[i] = 1 + r.Uint64N(recent)
		}
	}
	return d
}

// amount of a bid on an auction at arrival seq.
func (l *lots) amount(key int, seq uint64, random int64) int64 {
	nth := int64(float64(seq) * l.Keys.Share(key))
	return l.OpeningPrice + 1 + nth*step + random
}

// earlier finds a plain bid shortly before seq; ok is false when there is none where it looks.
func (l *lots) earlier(seq uint64, d drawn) (of uint64, ok bool) {
	for _, ago := range d.ago {
		if ago <= seq && l.draw(seq-ago).form == Plain {
			return seq - ago, true
		}
	}
	return 0, false
}

func (l *lots) derived(seq uint64, d drawn, of uint64) Command {
	origin := l.draw(of)
	bid, id := origin.bid, commandID(l.Seeds, seq)
	switch d.form {
	case Plain:
	case Replay:
		id = commandID(l.Seeds, of)
	case Altered:
		// As high as a bid of now, so that it would win if the id were not looked at.
		if bid.Amount = l.amount(origin.key, seq, d.random); bid.Amount == origin.bid.Amount {
			bid.Amount++
		}
		// Named by what it says: two arrivals may alter a bid to the same body, and the second is then a replay of
		// the first, another call of the same command.
		id = commandID(l.Seeds, of) + "-as-" + strconv.FormatInt(bid.Amount, 10)
	case Equal:
		bid.BidID, bid.Bidder = d.bid.BidID, bidderName((origin.bidder+1+d.bidder%(bidders-1))%bidders)
	}
	c := command(id, bid)
	c.Form, c.Of = d.form, commandID(l.Seeds, of)
	return c
}

func command(id string, c auction.Command) Command {
	return Command{ID: id, Stream: auction.Stream(c.Auction), Name: c.Name, Body: c.Body()}
}

func bidderName(i int) string { return "bidder-" + strconv.Itoa(i+1) }

// auctionID names auction i. Numbers are valid ids.
func auctionID(i int) auction.ID {
	id, err := auction.NewID(strconv.Itoa(i + 1))
	if err != nil {
		panic(err)
	}
	return id
}
