package workload_test

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/eventproof/eventproof/domain/account"
	"github.com/eventproof/eventproof/domain/auction"
	"github.com/eventproof/eventproof/loadgen"
	"github.com/eventproof/eventproof/loadgen/workload"
)

func zipf(t testing.TB, n int, s float64) loadgen.Keys {
	t.Helper()
	keys, err := loadgen.Zipf(n, s)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func bank(t testing.TB, change func(*workload.BankConfig)) (workload.Workload, error) {
	t.Helper()
	c := workload.BankConfig{Seeds: loadgen.Seeds{Root: 9}, Keys: zipf(t, 20, 1), InitialBalance: 1000, MaxAmount: 100, Withdraw: 3, Deposit: 1, BlindDeposit: 1}
	if change != nil {
		change(&c)
	}
	return workload.Bank(c)
}

func lots(t testing.TB, change func(*workload.AuctionConfig)) (workload.Workload, error) {
	t.Helper()
	c := workload.AuctionConfig{
		Seeds: loadgen.Seeds{Root: 9}, Keys: zipf(t, 5, 1), OpeningPrice: 100, Bid: 0.7, Replay: 0.1, AlterBid: 0.1, EqualBid: 0.1,
		CloseAfter: 10 * time.Second,
	}
	if change != nil {
		change(&c)
	}
	return workload.Auction(c)
}

func must(t testing.TB, w workload.Workload, err error) workload.Workload {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func equal(a, b workload.Command) bool {
	body := bytes.Equal(a.Body, b.Body)
	a.Body, b.Body = nil, nil
	type plain struct {
		id, stream, name, of string
		blind                bool
		form                 workload.Form
	}
	p := func(c workload.Command) plain { return plain{c.ID, c.Stream, c.Name, c.Of, c.Blind, c.Form} }
	return body && p(a) == p(b)
}

func TestACommandDependsOnSeedAndNumberAlone(t *testing.T) {
	for name, make := range map[string]func(seed uint64) workload.Workload{
		"bank": func(seed uint64) workload.Workload {
			w, err := bank(t, func(c *workload.BankConfig) { c.Seeds.Root = seed })
			return must(t, w, err)
		},
		"auction": func(seed uint64) workload.Workload {
			w, err := lots(t, func(c *workload.AuctionConfig) { c.Seeds.Root = seed })
			return must(t, w, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			forth, back, other := make(1), make(1), make(2)
			const n = 500
			var commands [n]workload.Command
			for i := range n {
				commands[i] = forth.Command(uint64(i))
			}
			same := 0
			for i := n - 1; i >= 0; i-- {
				if c := back.Command(uint64(i)); !equal(c, commands[i]) {
					t.Fatalf("command %d is %+v, then %+v", i, commands[i], c)
				}
				if bytes.Equal(other.Command(uint64(i)).Body, commands[i].Body) {
					same++
				}
			}
			if same > n/4 {
				t.Errorf("%d of %d commands are the same with another seed", same, n)
			}
		})
	}
}

func TestTheBankKeepsItsMixAmountsAndKeys(t *testing.T) {
	w, err := bank(t, nil)
	must(t, w, err)
	const n = 10000
	names, accounts, amounts := map[string]float64{}, map[string]float64{}, map[int64]bool{}
	ids := map[string]bool{}
	for i := range uint64(n) {
		c := w.Command(i)
		parsed, err := account.ParseCommand(c.Name, c.Body)
		if err != nil || account.Stream(parsed.Account) != c.Stream || c.Blind != (c.Name == "blind-deposit") || c.Form != workload.Plain {
			t.Fatalf("%+v: %v", c, err)
		}
		if ids[c.ID] {
			t.Fatalf("%s was made twice", c.ID)
		}
		ids[c.ID] = true
		names[c.Name]++
		accounts[c.Stream]++
		amounts[parsed.Amount] = true
	}
	for name, share := range map[string]float64{"withdraw": 0.6, "deposit": 0.2, "blind-deposit": 0.2} {
		if got := names[name] / n; math.Abs(got-share) > 0.02 {
			t.Errorf("share of %s is %.3f, want %.1f", name, got, share)
		}
	}
	if got, want := accounts["account-1"]/n, zipf(t, 20, 1).Share(0); math.Abs(got-want) > 0.02 {
		t.Errorf("share of the hottest account is %.3f, want %.3f", got, want)
	}
	if len(accounts) != 20 || len(amounts) != 100 || amounts[0] || amounts[101] {
		t.Errorf("%d accounts, %d amounts", len(accounts), len(amounts))
	}
	if w.Timed() != nil {
		t.Error("the bank has timed arrivals")
	}
}

func TestSetupOpensEveryStreamOnce(t *testing.T) {
	b, err := bank(t, nil)
	must(t, b, err)
	for i, c := range b.Setup() {
		parsed, err := account.ParseCommand(c.Name, c.Body)
		if err != nil || c.Name != "open" || c.Stream != "account-"+strconv.Itoa(i+1) || parsed.Amount != 1000 || c.ID != "c-9-setup-"+strconv.Itoa(i+1) {
			t.Errorf("%+v %+v: %v", c, parsed, err)
		}
	}
	a, err := lots(t, nil)
	must(t, a, err)
	for i, c := range a.Setup() {
		parsed, err := auction.ParseCommand(c.Name, c.Body)
		if err != nil || c.Name != "create" || c.Stream != "auction-"+strconv.Itoa(i+1) || parsed.Amount != 100 {
			t.Errorf("%+v %+v: %v", c, parsed, err)
		}
	}
	if len(b.Setup()) != 20 || len(a.Setup()) != 5 {
		t.Errorf("%d and %d set-up commands", len(b.Setup()), len(a.Setup()))
	}
}

// tally runs commands one after the other against the auctions of the domain and counts the answers by form.
func tally(t *testing.T, w workload.Workload, commands []workload.Command) map[workload.Form]map[string]int {
	t.Helper()
	states := map[string]auction.State{}
	answers := map[workload.Form]map[string]int{}
	for _, c := range append(w.Setup(), commands...) {
		parsed, err := auction.ParseCommand(c.Name, c.Body)
		if err != nil || auction.Stream(parsed.Auction) != c.Stream {
			t.Fatalf("%+v: %v", c, err)
		}
		d, err := auction.Decide(states[c.Stream], parsed, time.UnixMilli(1))
		answer := "accepted"
		var refusal *auction.Refusal
		if errors.As(err, &refusal) {
			answer = refusal.Code
		} else if d.Replay != nil {
			answer = "replay"
		}
		if states[c.Stream], err = auction.Rehydrate(states[c.Stream], d.Events); err != nil {
			t.Fatal(err)
		}
		if c.Name == "create" {
			continue
		}
		if answers[c.Form] == nil {
			answers[c.Form] = map[string]int{}
		}
		answers[c.Form][answer]++
	}
	return answers
}

func TestBidsCompeteWithoutKnowingTheHighBid(t *testing.T) {
	for _, exponent := range []float64{0, 1, 2} {
		w, err := lots(t, func(c *workload.AuctionConfig) { c.Keys = zipf(t, 5, exponent) })
		must(t, w, err)
		var commands []workload.Command
		for i := range uint64(4000) {
			commands = append(commands, w.Command(i))
		}
		got := tally(t, w, commands)
		plain := float64(got[workload.Plain]["accepted"]) / float64(got[workload.Plain]["accepted"]+got[workload.Plain]["STALE_BID"])
		if plain < 0.35 || plain > 0.65 {
			t.Errorf("exponent %v: %.2f of the bids are accepted: %v", exponent, plain, got)
		}
		for form, answers := range map[workload.Form][]string{
			workload.Plain: {"accepted", "STALE_BID"}, workload.Replay: {"replay", "STALE_BID"}, workload.Altered: {"INVALID_PAYLOAD", "accepted", "STALE_BID"}, workload.Equal: {"STALE_BID"},
		} {
			total := 0
			for _, n := range got[form] {
				total += n
			}
			if form != workload.Plain && (total < 320 || total > 480) {
				t.Errorf("exponent %v: %d %s bids of 4000", exponent, total, form)
			}
			for _, answer := range answers {
				if got[form][answer] < 10 {
					t.Errorf("exponent %v: too few %s answers to %s bids: %v", exponent, answer, form, got[form])
				}
			}
		}
	}
}

func TestBidsCompeteAgainAfterArrivalsWereLost(t *testing.T) {
	w, err := lots(t, nil)
	must(t, w, err)
	var commands []workload.Command
	for i := range uint64(3000) {
		if i < 1000 || i >= 2000 {
			commands = append(commands, w.Command(i))
		}
	}
	got := tally(t, w, commands)[workload.Plain]
	if share := float64(got["accepted"]) / float64(got["accepted"]+got["STALE_BID"]); share < 0.35 || share > 0.65 {
		t.Errorf("%.2f of the bids are accepted", share)
	}
}

func TestReplaysAlteredAndEqualBidsReferToAnEarlierBid(t *testing.T) {
	w, err := lots(t, nil)
	must(t, w, err)
	plain := map[string]workload.Command{}
	ids := map[string]bool{}
	for i := range uint64(2000) {
		c := w.Command(i)
		bid, err := auction.ParseCommand(c.Name, c.Body)
		if err != nil {
			t.Fatal(err)
		}
		if c.Form == workload.Plain {
			plain[c.ID] = c
		}
		if c.Form != workload.Replay {
			if ids[c.ID] {
				t.Fatalf("command %s was made twice", c.ID)
			}
			ids[c.ID] = true
		}
		if c.Form == workload.Plain {
			continue
		}
		origin, known := plain[c.Of]
		if !known || origin.Stream != c.Stream {
			t.Fatalf("%+v refers to %+v", c, origin)
		}
		first, err := auction.ParseCommand(origin.Name, origin.Body)
		if err != nil {
			t.Fatal(err)
		}
		switch c.Form {
		case workload.Plain:
		case workload.Replay:
			if c.ID != origin.ID || !bytes.Equal(c.Body, origin.Body) {
				t.Fatalf("%+v is no replay of %+v", c, origin)
			}
		case workload.Altered:
			if bid.BidID != first.BidID || bid.Bidder == first.Bidder && bid.Amount == first.Amount {
				t.Fatalf("%+v is no altered %+v", bid, first)
			}
		case workload.Equal:
			if bid.BidID == first.BidID || bid.Bidder == first.Bidder || bid.Amount != first.Amount {
				t.Fatalf("%+v does not equal %+v by another bidder", bid, first)
			}
		}
	}
}

func TestEveryAuctionIsClosedOnceAroundTheGivenTime(t *testing.T) {
	w, err := lots(t, nil)
	must(t, w, err)
	closed := map[string]bool{}
	for i, at := range w.Timed() {
		if at < 9*time.Second || at > 11*time.Second {
			t.Errorf("close at %v", at)
		}
		c := w.Command(loadgen.TimedBase + uint64(i))
		if _, err := auction.ParseCommand(c.Name, c.Body); err != nil || c.Name != "close" || closed[c.Stream] || c.ID != "c-9-timed-"+strconv.Itoa(i) {
			t.Errorf("%+v: %v", c, err)
		}
		closed[c.Stream] = true
	}
	if len(closed) != 5 {
		t.Errorf("%d closings", len(closed))
	}
	w, err = lots(t, func(c *workload.AuctionConfig) { c.CloseAfter = 0 })
	if must(t, w, err).Timed() != nil {
		t.Error("auctions are closed that should not be")
	}
}

func TestAnyMixMakesCommandsThatCanBeRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		share := func(name string) float64 {
			return rapid.SampledFrom([]float64{0, 0.1, 1, 50}).Draw(t, name)
		}
		keys, err := loadgen.Zipf(rapid.IntRange(1, 50).Draw(t, "streams"), rapid.Float64Range(0, 3).Draw(t, "exponent"))
		if err != nil {
			t.Fatal(err)
		}
		w, err := workload.Auction(workload.AuctionConfig{
			Seeds: loadgen.Seeds{Root: rapid.Uint64().Draw(t, "seed")}, Keys: keys, OpeningPrice: rapid.Int64Range(0, 1<<60).Draw(t, "opening"),
			Bid: 0.01 + share("bid"), Replay: share("replay"), AlterBid: share("alter"), EqualBid: share("equal"),
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			seq := rapid.Uint64Range(0, loadgen.TimedBase-1).Draw(t, "seq")
			c := w.Command(seq)
			bid, err := auction.ParseCommand(c.Name, c.Body)
			if err != nil || bid.Amount <= 0 {
				t.Fatalf("command %d is %+v: %v", seq, c, err)
			}
		}
	})
}

func TestImpossibleWorkloadsAreErrors(t *testing.T) {
	for name, change := range map[string]func(*workload.BankConfig){
		"no accounts":      func(c *workload.BankConfig) { c.Keys = loadgen.Keys{} },
		"debt":             func(c *workload.BankConfig) { c.InitialBalance = -1 },
		"no amounts":       func(c *workload.BankConfig) { c.MaxAmount = 0 },
		"amounts too high": func(c *workload.BankConfig) { c.MaxAmount = math.MaxInt64 },
		"no mix":           func(c *workload.BankConfig) { c.Withdraw, c.Deposit, c.BlindDeposit = 0, 0, 0 },
		"negative share":   func(c *workload.BankConfig) { c.Deposit = -1 },
		"share of nothing": func(c *workload.BankConfig) { c.Deposit = math.NaN() },
	} {
		if _, err := bank(t, change); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for name, change := range map[string]func(*workload.AuctionConfig){
		"no auctions":       func(c *workload.AuctionConfig) { c.Keys = loadgen.Keys{} },
		"negative price":    func(c *workload.AuctionConfig) { c.OpeningPrice = -1 },
		"no room to climb":  func(c *workload.AuctionConfig) { c.OpeningPrice = math.MaxInt64 },
		"replays only":      func(c *workload.AuctionConfig) { c.Bid = 0 },
		"endless share":     func(c *workload.AuctionConfig) { c.Bid = math.Inf(1) },
		"closed in advance": func(c *workload.AuctionConfig) { c.CloseAfter = -1 },
	} {
		if _, err := lots(t, change); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestFormsHaveNames(t *testing.T) {
	for form, want := range map[workload.Form]string{workload.Plain: "plain", workload.Replay: "replay", workload.Altered: "altered", workload.Equal: "equal", 9: "form(9)"} {
		if form.String() != want {
			t.Errorf("%d is %q", form, form)
		}
	}
}

func BenchmarkCommand(b *testing.B) {
	accounts, err := bank(b, nil)
	must(b, accounts, err)
	auctions, err := lots(b, nil)
	must(b, auctions, err)
	for name, w := range map[string]workload.Workload{"bank": accounts, "auction": auctions} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := uint64(0); b.Loop(); i++ {
				w.Command(i)
			}
		})
	}
}

func TestOneCommandIdNeverStandsForTwoBodiesNorOneBidForTwoCommands(t *testing.T) {
	w, err := workload.Auction(workload.AuctionConfig{
		Seeds: loadgen.Seeds{Root: 30061}, Keys: hotKeys(t), OpeningPrice: 100, Bid: 0.65, Replay: 0.15, AlterBid: 0.10, EqualBid: 0.10,
	})
	if err != nil {
		t.Fatal(err)
	}
	bodies, commands := map[string]string{}, map[string]string{}
	for seq := range uint64(20_000) {
		c := w.Command(seq)
		if was, ok := bodies[c.ID]; ok && was != string(c.Body) {
			t.Fatalf("command %s says %s and %s", c.ID, was, c.Body)
		}
		if was, ok := commands[string(c.Body)]; ok && was != c.ID {
			t.Fatalf("%s is command %s and %s", c.Body, was, c.ID)
		}
		bodies[c.ID], commands[string(c.Body)] = string(c.Body), c.ID
	}
}

func hotKeys(t *testing.T) loadgen.Keys {
	t.Helper()
	k, err := loadgen.Hot(5, 1, 0.5)
	if err != nil {
		t.Fatal(err)
	}
	return k
}
