package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/points"
)

// ConditionalUpdate accepts a bid by one statement, which raises the high bid if it may and writes the bid's row. Only
// when that changed no row is the ledger looked up: a look before could miss the first try of the same bid, which the
// update then waits for.
type ConditionalUpdate struct{}

const (
	acceptBid = `with won as (
			update auctions set high = $4, bidder = $3, accepted = accepted + 1, changes = changes + 1
			where auction = $1 and status = 'open' and high < $4 returning changes)
		insert into bids (auction, id, bidder, amount, accepted_at, event, changes)
		select $1, $2, $3, $4, $5, $6, won.changes from won returning changes`
	// One snapshot of ledger and auction: what it does not find in the one was never accepted, if the other excludes it.
	lookUpBid = `select b.event, b.bidder, b.amount, b.accepted_at, b.changes, a.status, a.high
		from (select) as one left join bids as b on b.auction = $1 and b.id = $2 left join auctions as a on a.auction = $1`
)

// Place implements Bidder.
func (ConditionalUpdate) Place(ctx context.Context, tx *Tx, b eventstore.Bid) (eventstore.Taken, error) {
	// Nothing is read before the condition; the points are asked like those of an append, so that one script holds every form.
	for _, p := range []points.Point{points.AppendBegin, points.AppendBeforeHead, points.AppendAfterHead} {
		if err := tx.At(ctx, p); err != nil {
			return eventstore.Taken{}, err
		}
	}
	taken, accepted, err := tx.AcceptBid(ctx, b)
	switch {
	case err != nil:
		return eventstore.Taken{}, err
	case accepted:
		return taken, tx.At(ctx, points.AppendAfterInsert)
	}
	found, err := tx.LookUpBid(ctx, b)
	if err != nil {
		return eventstore.Taken{}, err
	}
	return found.Answer(b)
}

// AcceptBid runs the conditional statement; accepted is false if it changed no row.
func (t *Tx) AcceptBid(ctx context.Context, b eventstore.Bid) (taken eventstore.Taken, accepted bool, err error) {
	taken = eventstore.Taken{Event: b.Event.ID, Amount: b.Amount, At: b.At}
	err = t.QueryRow(ctx, acceptBid, b.Auction, b.ID, b.Bidder, b.Amount, b.At, [16]byte(b.Event.ID)).Scan(&taken.Version)
	if errors.Is(err, pgx.ErrNoRows) {
		return eventstore.Taken{}, false, nil
	}
	return taken, err == nil, err
}

// BidRow is what one look finds of a bid and of its auction.
type BidRow struct {
	First   *eventstore.Taken // nil: the bid id is not in the ledger
	Bidder  string
	Missing bool // no such auction
	Closed  bool
	High    int64
}

// LookUpBid reads ledger and auction in one statement.
func (t *Tx) LookUpBid(ctx context.Context, b eventstore.Bid) (BidRow, error) {
	var event *[16]byte
	var bidder, status *string
	var amount, at, changes, high *int64
	err := t.QueryRow(ctx, lookUpBid, b.Auction, b.ID).Scan(&event, &bidder, &amount, &at, &changes, &status, &high)
	if err != nil {
		return BidRow{}, err
	}
	var row BidRow
	if event != nil {
		row.First = &eventstore.Taken{
			Event: eventstore.EventID(*event), Version: uint64(*changes), Amount: *amount, At: *at, Replayed: true,
		}
		row.Bidder = *bidder
	}
	if row.Missing = status == nil; !row.Missing {
		row.Closed, row.High = *status == statusClosed, *high
	}
	return row, nil
}

const statusClosed = "closed"

// Answer is what a bid that changed no row is answered: the ledger first, since the repeated bid of the winner also
// looks stale.
func (r BidRow) Answer(b eventstore.Bid) (eventstore.Taken, error) {
	no := eventstore.BidRefusal{High: r.High, HighKnown: !r.Missing}
	switch {
	case r.First != nil && r.Bidder == b.Bidder && r.First.Amount == b.Amount:
		return *r.First, nil
	case r.First != nil:
		no.Code = eventstore.BidAltered
	case r.Missing || r.Closed:
		no.Code, no.Missing = eventstore.BidClosed, r.Missing
	case r.High >= b.Amount:
		no.Code = eventstore.BidStale
	default:
		return eventstore.Taken{}, raced("bid")
	}
	return eventstore.Taken{}, eventstore.RefuseBid("bid", no)
}

// held answers a bid whose row broke the uniqueness of the ledger: its id is taken, with another body, or its amount
// would not have passed the condition. The transaction has no effect.
func (t *Tx) held(ctx context.Context, b eventstore.Bid, cause error) (eventstore.Taken, error) {
	conflict := func(err error) (eventstore.Taken, error) {
		t.Abandon()
		return eventstore.Taken{}, &eventstore.Error{Op: t.op, Outcome: eventstore.Fail, Reason: eventstore.TransactionConflict, Err: err}
	}
	if _, err := t.conn.PgConn().Exec(ctx, "rollback").ReadAll(); err != nil {
		return conflict(cause)
	}
	found, err := t.LookUpBid(ctx, b)
	if err != nil {
		// Nothing happened, but whose the id is was not told: this may be the repeat of what is accepted.
		return conflict(errors.Join(cause, err))
	}
	t.leave()
	return found.Answer(b)
}

// PlaceBid implements eventstore.Bidding.
func (s *session) PlaceBid(ctx context.Context, b eventstore.Bid) (eventstore.Taken, error) {
	return s.operate(ctx, "bid", b.Auction != "" && b.ID != "", b.Event, func(tx *Tx) (eventstore.Taken, error) {
		taken, err := s.parts.Bidding.Place(ctx, tx, b)
		if violated(err) == uniqueBid {
			return tx.held(ctx, b, err)
		}
		return taken, err
	})
}

const (
	openAuction = `insert into auctions (auction, opening, high, opened_event, opened_request, opened_at)
		values ($1, $2, $2, $3, $4, $5) on conflict (auction) do nothing returning changes`
	closeAuction = `update auctions set status = 'closed', changes = changes + 1, closed_changes = changes + 1,
			closed_event = $2, closed_request = $3, closed_at = $4
		where auction = $1 and status = 'open' returning changes, high, bidder`
	selectAuction = `select status, high, bidder, opened_event, opened_request, closed_event, coalesce(closed_request, ''),
		coalesce(closed_changes, 0) from auctions where auction = $1`
)

// auctionRow is the row of an auction as far as opening and closing look at it.
type auctionRow struct {
	closed                       bool
	high                         int64
	bidder                       string
	openedEvent, closedEvent     eventstore.EventID
	openedRequest, closedRequest string
	closedChanges                uint64
}

func (t *Tx) auction(ctx context.Context, name string) (row auctionRow, found bool, err error) {
	var status string
	var closedEvent *[16]byte
	err = t.QueryRow(ctx, selectAuction, name).Scan(&status, &row.high, &row.bidder, (*[16]byte)(&row.openedEvent), &row.openedRequest,
		&closedEvent, &row.closedRequest, &row.closedChanges)
	if errors.Is(err, pgx.ErrNoRows) {
		return auctionRow{}, false, nil
	}
	if closedEvent != nil {
		row.closedEvent = eventstore.EventID(*closedEvent)
	}
	row.closed = status == statusClosed
	return row, true, err
}

// OpenAuction implements eventstore.Bidding.
func (s *session) OpenAuction(ctx context.Context, o eventstore.Opening) (eventstore.Taken, error) {
	return s.operate(ctx, "open", o.Auction != "" && o.Request != "", o.Event, func(tx *Tx) (eventstore.Taken, error) {
		taken := eventstore.Taken{Event: o.Event.ID}
		err := tx.QueryRow(ctx, openAuction, o.Auction, o.Price, [16]byte(o.Event.ID), o.Request, o.At).Scan(&taken.Version)
		if !errors.Is(err, pgx.ErrNoRows) {
			return taken, err
		}
		row, found, err := tx.auction(ctx, o.Auction)
		switch {
		case err != nil:
			return eventstore.Taken{}, err
		case !found:
			return eventstore.Taken{}, raced("open")
		case row.openedRequest == o.Request:
			return eventstore.Taken{Event: row.openedEvent, Version: 1, Replayed: true}, nil
		}
		return eventstore.Taken{}, eventstore.RefuseBid("open", eventstore.BidRefusal{Code: eventstore.AuctionExists, High: row.high, HighKnown: true})
	})
}

// CloseAuction implements eventstore.Bidding.
func (s *session) CloseAuction(ctx context.Context, c eventstore.Closing) (eventstore.Taken, error) {
	return s.operate(ctx, "close", c.Auction != "" && c.Request != "", c.Event, func(tx *Tx) (eventstore.Taken, error) {
		taken := eventstore.Taken{Event: c.Event.ID}
		err := tx.QueryRow(ctx, closeAuction, c.Auction, [16]byte(c.Event.ID), c.Request, c.At).Scan(&taken.Version, &taken.High, &taken.Bidder)
		if !errors.Is(err, pgx.ErrNoRows) {
			return taken, err
		}
		row, found, err := tx.auction(ctx, c.Auction)
		switch {
		case err != nil:
			return eventstore.Taken{}, err
		case found && !row.closed:
			return eventstore.Taken{}, raced("close")
		case found && row.closedRequest == c.Request:
			return eventstore.Taken{
				Event: row.closedEvent, Version: row.closedChanges, Replayed: true, High: row.high, Bidder: row.bidder,
			}, nil
		}
		return eventstore.Taken{}, eventstore.RefuseBid("close", eventstore.BidRefusal{
			Code: eventstore.BidClosed, Missing: !found, High: row.high, HighKnown: found,
		})
	})
}

var (
	errBid    = errors.New("postgres: an operation on an auction needs the auction's name, a bid id or a request, and an event with an id")
	errRaised = errors.New("postgres: the auction changed between the statement and the look at it")
)

// raced is the answer where what the condition found was gone when the reason was looked for.
func raced(op string) error {
	return &eventstore.Error{Op: op, Outcome: eventstore.Fail, Reason: eventstore.LostRace, Err: errRaised}
}

// operate runs one operation on an auction in a transaction of its own. The commit travels alone, like that of an
// append, so that a fault can be aimed at it.
func (s *session) operate(ctx context.Context, op string, valid bool, e eventstore.NewEvent, do func(*Tx) (eventstore.Taken, error)) (eventstore.Taken, error) {
	if !valid || e.ID.IsZero() {
		return eventstore.Taken{}, &eventstore.Error{Op: op, Outcome: eventstore.Fail, Reason: eventstore.Invalid, Err: errBid}
	}
	tx, err := s.begin(ctx, op)
	if err != nil {
		return eventstore.Taken{}, err
	}
	taken, err := do(tx)
	switch {
	case err != nil:
		return eventstore.Taken{}, tx.Fail(ctx, err)
	case taken.Replayed:
		tx.Rollback(ctx)
		return taken, nil
	}
	if err := s.parts.Commit.Commit(ctx, tx); err != nil {
		return eventstore.Taken{}, err
	}
	if err := s.env.Gate.At(ctx, points.AppendAfterCommit, 0); err != nil {
		return eventstore.Taken{}, classify(op, phaseCommit, err)
	}
	return taken, nil
}
