package oracle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/eventproof/eventproof/history"
)

// Fact is what an event of either workload says; fields that its type does not have are zero.
type Fact struct {
	Account, Owner                string
	Auction, BidID, Bidder        string
	HighBidder                    string
	At                            string // ISO 8601
	Millis                        int64  // At in unix milliseconds; 0 if it is not a time
	Amount, OpeningPrice, HighBid int64
}

// ParseEvent reads the data of an event. Unreadable data, a missing field and an unknown type are errors that
// wrap ErrLog.
func ParseEvent(ev history.LoggedEvent) (Fact, error) {
	f, err := parseEvent(&ev)
	if err != nil {
		return Fact{}, err
	}
	at := string(f.text[textAt])
	return Fact{
		Account: string(f.text[textAccount]), Owner: string(f.text[textOwner]),
		Auction: string(f.text[textAuction]), BidID: string(f.text[textBidID]), Bidder: string(f.text[textBidder]),
		HighBidder: string(f.text[textHighBidder]), At: at, Millis: millis(at),
		Amount: f.number[numAmount], OpeningPrice: f.number[numOpeningPrice], HighBid: f.number[numHighBid],
	}, nil
}

// Command is what the body of a command of either workload says; fields that it does not have are zero.
type Command struct {
	Account, Owner         string
	Auction, BidID, Bidder string
	Amount                 int64
}

// ParseCommand reads the body of a command. A field that no command has is an error.
func ParseCommand(body []byte) (Command, error) {
	f, err := parse(body, true)
	if err != nil {
		return Command{}, fmt.Errorf("oracle: body of a command: %w", err)
	}
	return Command{
		Account: string(f.text[textAccount]), Owner: string(f.text[textOwner]),
		Auction: string(f.text[textAuction]), BidID: string(f.text[textBidID]), Bidder: string(f.text[textBidder]),
		Amount: f.number[numAmount],
	}, nil
}

// The fields, texts and numbers apart.
const (
	textAccount = iota
	textAt
	textAuction
	textBidID
	textBidder
	textHighBidder
	textOwner
	texts
)

const (
	numAmount = iota
	numHighBid
	numOpeningPrice
	numbers
)

// fields is a flat object of the known fields. Texts may alias the bytes that were read.
type fields struct {
	text   [texts][]byte
	number [numbers]int64
	has    set
}

// set of fields.
type set uint16

func someText(i int) set   { return 1 << i }
func someNumber(i int) set { return 1 << (texts + i) }

const (
	bankFields    = set(1<<textAccount | 1<<textOwner | 1<<(texts+numAmount))
	auctionFields = set(1<<textAuction | 1<<textBidID | 1<<textBidder | 1<<(texts+numAmount))
)

// required lists what the data of an event must have. Texts in filled must not be empty.
var required = map[string]struct{ has, filled set }{
	accountOpened:  {someText(textOwner), someText(textAccount)},
	fundsDeposited: {someNumber(numAmount), someText(textAccount)},
	fundsWithdrawn: {someNumber(numAmount), someText(textAccount)},
	accountClosed:  {0, someText(textAccount)},
	auctionCreated: {someNumber(numOpeningPrice), someText(textAuction)},
	bidAccepted:    {someText(textBidder) | someNumber(numAmount), someText(textAuction) | someText(textBidID)},
	auctionClosed:  {someNumber(numHighBid) | someText(textHighBidder), someText(textAuction)},
}

func parseEvent(ev *history.LoggedEvent) (fields, error) {
	need, known := required[ev.Type]
	if !known {
		return fields{}, fmt.Errorf("%w: unknown event type %q at version %d", ErrLog, ev.Type, ev.Version)
	}
	f, err := parse(ev.Data, false)
	if err != nil {
		return fields{}, fmt.Errorf("%w: data of %s at version %d: %w", ErrLog, ev.Type, ev.Version, err)
	}
	if !f.whole(need.has, need.filled|someText(textAt)) {
		return fields{}, fmt.Errorf("%w: data of %s at version %d lacks a field", ErrLog, ev.Type, ev.Version)
	}
	return f, nil
}

// whole reports whether all fields are there, and those of filled not empty.
func (f *fields) whole(has, filled set) bool {
	if f.has&(has|filled) != has|filled {
		return false
	}
	for i := range f.text {
		if filled&someText(i) != 0 && len(f.text[i]) == 0 {
			return false
		}
	}
	return true
}

// parse reads a flat JSON object. A strict parse refuses unknown fields, the other passes over them. Canonical
// data, which is all there is in a healthy run, goes the quick way; everything else goes to encoding/json.
func parse(data []byte, strict bool) (fields, error) {
	var f fields
	if f.quick(data) {
		return f, nil
	}
	return slow(data, strict)
}

// quick reads an object without blanks, escapes, unknown fields and anything beyond ASCII. It gives up on
// everything else, errors included.
func (f *fields) quick(data []byte) bool {
	if len(data) < 2 || data[0] != '{' {
		return false
	}
	if data[1] == '}' {
		return len(data) == 2
	}
	rest := data[1:]
	for {
		key, after, ok := plainText(rest)
		if !ok || len(after) < 2 || after[0] != ':' {
			return false
		}
		rest = after[1:]
		if rest[0] == '"' {
			var i int
			switch string(key) {
			case "account":
				i = textAccount
			case "at":
				i = textAt
			case "auction":
				i = textAuction
			case "bidId":
				i = textBidID
			case "bidder":
				i = textBidder
			case "highBidder":
				i = textHighBidder
			case "owner":
				i = textOwner
			default:
				return false
			}
			if f.text[i], rest, ok = plainText(rest); !ok {
				return false
			}
			f.has |= someText(i)
		} else {
			var i int
			switch string(key) {
			case "amount":
				i = numAmount
			case "highBid":
				i = numHighBid
			case "openingPrice":
				i = numOpeningPrice
			default:
				return false
			}
			if f.number[i], rest, ok = plainNumber(rest); !ok {
				return false
			}
			f.has |= someNumber(i)
		}
		if len(rest) == 0 {
			return false
		}
		if rest[0] == '}' {
			return len(rest) == 1
		}
		if rest[0] != ',' {
			return false
		}
		rest = rest[1:]
	}
}

// plainText reads a quoted text that stands for itself.
func plainText(b []byte) (text, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != '"' {
		return nil, nil, false
	}
	for i := 1; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return b[1:i], b[i+1:], true
		case c == '\\' || c < ' ' || c > '~':
			return nil, nil, false
		}
	}
	return nil, nil, false
}

// plainNumber reads an integer.
func plainNumber(b []byte) (n int64, rest []byte, ok bool) {
	negative := len(b) > 0 && b[0] == '-'
	i := 0
	if negative {
		i = 1
	}
	first := i
	for ; i < len(b) && '0' <= b[i] && b[i] <= '9'; i++ {
		if n > (math.MaxInt64-9)/10 {
			return 0, nil, false
		}
		n = n*10 + int64(b[i]-'0')
	}
	if i == first || b[first] == '0' && i > first+1 {
		return 0, nil, false
	}
	if negative {
		n = -n
	}
	return n, b[i:], true
}

var errFields = errors.New("a field is missing or does not belong there")

func slow(data []byte, strict bool) (fields, error) {
	var d struct {
		Account      *string `json:"account"`
		At           *string `json:"at"`
		Auction      *string `json:"auction"`
		BidID        *string `json:"bidId"`
		Bidder       *string `json:"bidder"`
		HighBidder   *string `json:"highBidder"`
		Owner        *string `json:"owner"`
		Amount       *int64  `json:"amount"`
		HighBid      *int64  `json:"highBid"`
		OpeningPrice *int64  `json:"openingPrice"`
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if strict {
		dec.DisallowUnknownFields()
	}
	if err := dec.Decode(&d); err != nil {
		return fields{}, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fields{}, errors.New("something follows the object")
	}
	var f fields
	for i, s := range [texts]*string{textAccount: d.Account, textAt: d.At, textAuction: d.Auction, textBidID: d.BidID, textBidder: d.Bidder,
		textHighBidder: d.HighBidder, textOwner: d.Owner} {
		if s != nil {
			f.text[i] = []byte(*s)
			f.has |= someText(i)
		}
	}
	for i, n := range [numbers]*int64{numAmount: d.Amount, numHighBid: d.HighBid, numOpeningPrice: d.OpeningPrice} {
		if n != nil {
			f.number[i] = *n
			f.has |= someNumber(i)
		}
	}
	return f, nil
}

// appendText appends a JSON text as encoding/json writes it.
func appendText(b, s []byte) []byte {
	for _, c := range s {
		if c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			quoted, err := json.Marshal(string(s))
			if err != nil {
				panic(err) // a string can always be written
			}
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

func appendNumber(b []byte, n int64) []byte { return strconv.AppendInt(b, n, 10) }

// appendTime appends unix milliseconds as a JSON text in ISO 8601, UTC.
func appendTime(b []byte, unixMillis int64) []byte {
	b = append(b, '"')
	b = time.UnixMilli(unixMillis).UTC().AppendFormat(b, "2006-01-02T15:04:05.000Z07:00")
	return append(b, '"')
}

// millis reads what appendTime wrote, without the quotes.
func millis(at string) int64 {
	t, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return 0
	}
	return t.UnixMilli()
}
