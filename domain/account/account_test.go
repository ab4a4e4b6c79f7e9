package account_test

import (
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/eventproof/eventproof/domain/account"
)

var now = time.Date(2026, 3, 4, 5, 6, 7, 89_000_000, time.FixedZone("elsewhere", 3600))

const at = "2026-03-04T04:06:07.089Z"

func open(balance int64) account.State {
	return account.State{Status: account.Open, Owner: "ada", Balance: balance, Version: 5}
}

func TestDecideAnswersWithEventsAtTheNextVersions(t *testing.T) {
	for _, c := range []struct {
		name    string
		state   account.State
		command account.Command
		want    []account.Event
	}{
		{"open without money", account.State{}, account.Command{Name: "open", Account: "7", Owner: "ada"},
			[]account.Event{{Type: "AccountOpened", Account: "7", Version: 1, At: at, Owner: "ada"}}},
		{"open with money", account.State{}, account.Command{Name: "open", Account: "7", Owner: "ada", Amount: 10},
			[]account.Event{
				{Type: "AccountOpened", Account: "7", Version: 1, At: at, Owner: "ada"},
				{Type: "FundsDeposited", Account: "7", Version: 2, At: at, Amount: 10}}},
		{"deposit", open(0), account.Command{Name: "deposit", Account: "7", Amount: 10},
			[]account.Event{{Type: "FundsDeposited", Account: "7", Version: 6, At: at, Amount: 10}}},
		{"withdraw everything", open(100), account.Command{Name: "withdraw", Account: "7", Amount: 100},
			[]account.Event{{Type: "FundsWithdrawn", Account: "7", Version: 6, At: at, Amount: 100}}},
		{"close an empty account", open(0), account.Command{Name: "close", Account: "7"},
			[]account.Event{{Type: "AccountClosed", Account: "7", Version: 6, At: at}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := account.Decide(c.state, c.command, now)
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Fatalf("got %+v, %v, want %+v", got, err, c.want)
			}
		})
	}
}

func TestDecideRefusesWithCodeAmountsAndText(t *testing.T) {
	closed := account.State{Status: account.Closed, Owner: "ada", Version: 6}
	for _, c := range []struct {
		name    string
		state   account.State
		command account.Command
		want    account.Refusal
		wire    string
	}{
		{"withdraw a cent too much", open(4000), account.Command{Name: "withdraw", Account: "7", Amount: 4001},
			account.Refusal{Code: "INSUFFICIENT_FUNDS", Have: 4000, Want: 4001}, "INSUFFICIENT_FUNDS - balance is 4000, withdrawal of 4001 refused"},
		{"withdraw nothing", open(4000), account.Command{Name: "withdraw", Account: "7"},
			account.Refusal{Code: "INVALID_AMOUNT", Have: 4000}, "INVALID_AMOUNT - amount of 0 is not possible"},
		{"deposit a debt", open(4000), account.Command{Name: "deposit", Account: "7", Amount: -1},
			account.Refusal{Code: "INVALID_AMOUNT", Have: 4000, Want: -1}, "INVALID_AMOUNT - amount of -1 is not possible"},
		{"deposit beyond 64 bits", open(2), account.Command{Name: "deposit", Account: "7", Amount: math.MaxInt64 - 1},
			account.Refusal{Code: "INVALID_AMOUNT", Have: 2, Want: math.MaxInt64 - 1}, "INVALID_AMOUNT - amount of 9223372036854775806 is not possible"},
		{"withdraw from nowhere", account.State{}, account.Command{Name: "withdraw", Account: "7", Amount: 1},
			account.Refusal{Code: "NOT_OPEN", Want: 1}, "NOT_OPEN - account 7 is missing"},
		{"deposit on a closed account", closed, account.Command{Name: "deposit", Account: "7", Amount: 1},
			account.Refusal{Code: "NOT_OPEN", Want: 1}, "NOT_OPEN - account 7 is closed"},
		{"open twice", open(4000), account.Command{Name: "open", Account: "7", Owner: "bob", Amount: 1},
			account.Refusal{Code: "ALREADY_OPEN", Have: 4000, Want: 1}, "ALREADY_OPEN - account 7 exists and is open"},
		{"open again after closing", closed, account.Command{Name: "open", Account: "7", Owner: "bob"},
			account.Refusal{Code: "ALREADY_OPEN"}, "ALREADY_OPEN - account 7 exists and is closed"},
		{"open in debt", account.State{}, account.Command{Name: "open", Account: "7", Owner: "bob", Amount: -1},
			account.Refusal{Code: "INVALID_AMOUNT", Want: -1}, "INVALID_AMOUNT - amount of -1 is not possible"},
		{"close with money left", open(1), account.Command{Name: "close", Account: "7"},
			account.Refusal{Code: "BALANCE_NOT_ZERO", Have: 1}, "BALANCE_NOT_ZERO - balance is 1, only an empty account can be closed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			events, err := account.Decide(c.state, c.command, now)
			var got *account.Refusal
			if !errors.As(err, &got) || events != nil {
				t.Fatalf("got %+v, %v, want a refusal", events, err)
			}
			if err.Error() != c.wire || account.Wire(got.Code, got.Text) != c.wire {
				t.Errorf("wire form %q and %q, want %q", err, account.Wire(got.Code, got.Text), c.wire)
			}
			if got.Code != c.want.Code || got.Have != c.want.Have || got.Want != c.want.Want || got.Retriable {
				t.Errorf("got %+v, want %+v", *got, c.want)
			}
		})
	}
}

func TestWhatIsNoDecisionOnAStateIsAPlainError(t *testing.T) {
	for _, name := range []string{"blind-deposit", "transfer", ""} {
		var refusal *account.Refusal
		if _, err := account.Decide(open(1), account.Command{Name: name, Account: "7", Amount: 1}, now); err == nil || errors.As(err, &refusal) {
			t.Errorf("Decide(%q) gives %v", name, err)
		}
	}
	if _, err := account.DecideBlind(account.Command{Name: "withdraw", Account: "7", Amount: 1}, now); err == nil {
		t.Error("a withdrawal was decided blindly")
	}
}

func TestABlindDepositNeedsOnlyAnAmount(t *testing.T) {
	e, err := account.DecideBlind(account.Command{Name: "blind-deposit", Account: "7", Amount: 3}, now)
	if want := (account.Event{Type: "FundsDeposited", Account: "7", At: at, Amount: 3}); err != nil || e != want {
		t.Errorf("got %+v, %v, want %+v", e, err, want)
	}
	var refusal *account.Refusal
	if _, err := account.DecideBlind(account.Command{Name: "blind-deposit", Account: "7"}, now); !errors.As(err, &refusal) || refusal.Code != account.InvalidAmount {
		t.Errorf("a blind deposit of nothing gives %v", err)
	}
}

func TestTheLoserOfARaceIsRefusedOnceItSeesTheWinner(t *testing.T) {
	withdraw := account.Command{Name: "withdraw", Account: "7", Amount: 6000}
	state := open(10000)
	winner, err := account.Decide(state, withdraw, now)
	if err != nil {
		t.Fatal(err)
	}
	loser, err := account.Decide(state, withdraw, now)
	if err != nil || loser[0].Version != winner[0].Version {
		t.Fatalf("both decided on one version, but got %v and %v (%v)", winner, loser, err)
	}
	if state, err = account.Rehydrate(state, winner); err != nil {
		t.Fatal(err)
	}
	if _, err = account.Decide(state, withdraw, now); err == nil || err.Error() != "INSUFFICIENT_FUNDS - balance is 4000, withdrawal of 6000 refused" {
		t.Errorf("the loser got %v", err)
	}
}

func TestFoldErrorsAreErrorsOfTheLogAndLeaveTheState(t *testing.T) {
	for _, c := range []struct {
		name  string
		state account.State
		event account.Event
	}{
		{"money on a missing account", account.State{}, account.Event{Type: "FundsDeposited", Account: "7", Version: 1, Amount: 1}},
		{"opened twice", open(1), account.Event{Type: "AccountOpened", Account: "7", Version: 6}},
		{"unknown type", open(1), account.Event{Type: "AccountFrozen", Account: "7", Version: 6}},
		{"balance above 64 bits", open(1), account.Event{Type: "FundsDeposited", Account: "7", Version: 6, Amount: math.MaxInt64}},
		{"balance below 64 bits", open(-2), account.Event{Type: "FundsWithdrawn", Account: "7", Version: 6, Amount: math.MaxInt64}},
		{"balance above 64 bits by a negative withdrawal", open(1), account.Event{Type: "FundsWithdrawn", Account: "7", Version: 6, Amount: math.MinInt64}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := account.Apply(c.state, c.event)
			if !errors.Is(err, account.ErrLog) || got != c.state {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestApplyFoldsWrongDecisionsAndVersionGaps(t *testing.T) {
	got, err := account.Apply(open(10), account.Event{Type: "FundsWithdrawn", Account: "7", Version: 9, Amount: 25})
	if err != nil || got.Balance != -15 || got.Version != 9 {
		t.Errorf("an overdraft at a later version gives %+v, %v", got, err)
	}
	got, err = account.Apply(account.State{Status: account.Closed, Version: 3}, account.Event{Type: "FundsDeposited", Account: "7", Version: 4, Amount: 5})
	if err != nil || got.Balance != 5 || got.Status != account.Closed {
		t.Errorf("a blind deposit on a closed account gives %+v, %v", got, err)
	}
}

func TestCanonicalFormsArePinned(t *testing.T) {
	for _, c := range []struct {
		what string
		got  []byte
		want string
	}{
		{"opened", account.Event{Type: "AccountOpened", Account: "7", Version: 1, At: at, Owner: "ada"}.Data(), `{"account":"7","at":"2026-03-04T04:06:07.089Z","owner":"ada"}`},
		{"deposited", account.Event{Type: "FundsDeposited", Account: "7", Version: 2, At: at, Amount: 5}.Data(), `{"account":"7","amount":5,"at":"2026-03-04T04:06:07.089Z"}`},
		{"withdrawn", account.Event{Type: "FundsWithdrawn", Account: "7", Version: 3, At: at, Amount: 5}.Data(), `{"account":"7","amount":5,"at":"2026-03-04T04:06:07.089Z"}`},
		{"closed", account.Event{Type: "AccountClosed", Account: "7", Version: 4, At: at}.Data(), `{"account":"7","at":"2026-03-04T04:06:07.089Z"}`},
		{"open command", account.Command{Name: "open", Account: "7", Owner: "ada", Amount: 100}.Body(), `{"account":"7","amount":100,"owner":"ada"}`},
		{"close command", account.Command{Name: "close", Account: "7"}.Body(), `{"account":"7"}`},
		{"row", open(4000).Row().Encode(), `{"balance":4000,"owner":"ada","status":"open"}`},
		{"state", open(-2).Encode(), "A\x01\x01\x00\x00\x00\x00\x00\x00\x00\x05\xff\xff\xff\xff\xff\xff\xff\xfeada"},
	} {
		if string(c.got) != c.want {
			t.Errorf("%s is %q, want %q", c.what, c.got, c.want)
		}
	}
}

func TestMalformedBytesAreErrors(t *testing.T) {
	for _, body := range []string{``, `{}`, `[]`, `{"account":""}`, `{"account":"7","note":"x"}`, `{"account":"7"} {}`, `{"account":"7","amount":1.5}`, `{"account":7}`} {
		if c, err := account.ParseCommand("withdraw", []byte(body)); err == nil {
			t.Errorf("command %q was read as %+v", body, c)
		}
	}
	if _, err := account.ParseCommand("transfer", []byte(`{"account":"7"}`)); err == nil {
		t.Error("an unknown command was read")
	}
	for _, e := range []struct{ typ, data string }{
		{"FundsDeposited", ``}, {"FundsDeposited", `{"account":"7","at":"x"}`}, {"FundsDeposited", `{"amount":1,"at":"x"}`},
		{"AccountOpened", `{"account":"7","at":"x"}`}, {"AccountClosed", `{"account":"7"}`}, {"AccountFrozen", `{"account":"7","at":"x"}`},
	} {
		if got, err := account.ParseEvent(e.typ, 1, []byte(e.data)); !errors.Is(err, account.ErrLog) {
			t.Errorf("%s %q was read as %+v, %v", e.typ, e.data, got, err)
		}
	}
	good := open(3).Encode()
	for _, b := range [][]byte{nil, good[:18], append([]byte{'B'}, good[1:]...), {'A', 2}, append(append([]byte{}, good...), 0xff)} {
		if got, err := account.DecodeState(b); err == nil {
			t.Errorf("state %q was read as %+v", b, got)
		}
	}
	if _, err := account.DecodeRow([]byte("{")); err == nil {
		t.Error("half a row was read")
	}
}

func TestStreamNamesCarryTheAccount(t *testing.T) {
	if id, ok := account.FromStream(account.Stream("7")); !ok || id != "7" {
		t.Errorf("got %q, %v", id, ok)
	}
	for _, s := range []string{"auction-7", "account-", "7"} {
		if id, ok := account.FromStream(s); ok {
			t.Errorf("%q names account %q", s, id)
		}
	}
}

func drawCommand(t *rapid.T) account.Command {
	return account.Command{
		Name:    rapid.SampledFrom([]string{"open", "deposit", "deposit", "blind-deposit", "withdraw", "withdraw", "withdraw", "close"}).Draw(t, "name"),
		Account: "7",
		Owner:   rapid.String().Draw(t, "owner"),
		Amount:  rapid.OneOf(rapid.Int64Range(-2, 100), rapid.Int64()).Draw(t, "amount"),
	}
}

func TestAnyRunOfCommandsConservesMoneyAndNeverOverdraws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var (
			s     account.State
			log   []account.Event
			moved int64
		)
		for range rapid.IntRange(1, 40).Draw(t, "commands") {
			c := drawCommand(t)
			var events []account.Event
			var err error
			if c.Name == account.CommandBlindDeposit {
				if s.Status == account.Missing || s.Balance > math.MaxInt64-max(c.Amount, 0) {
					continue
				}
				var e account.Event
				e, err = account.DecideBlind(c, now)
				e.Version = s.Version + 1
				events = []account.Event{e}
			} else {
				events, err = account.Decide(s, c, now)
			}
			if err != nil {
				var refusal *account.Refusal
				if !errors.As(err, &refusal) {
					t.Fatalf("%+v on %+v: %v", c, s, err)
				}
				continue
			}
			for i, e := range events {
				if e.Version != s.Version+uint64(i)+1 {
					t.Fatalf("event %d claims version %d on %+v", i, e.Version, s)
				}
				if back, err := account.ParseEvent(e.Type, e.Version, e.Data()); err != nil || back != e {
					t.Fatalf("%+v came back as %+v, %v", e, back, err)
				}
				switch e.Type {
				case account.Deposited:
					moved += e.Amount
				case account.Withdrawn:
					moved -= e.Amount
				}
			}
			if s, err = account.Rehydrate(s, events); err != nil {
				t.Fatalf("what was decided can't be folded: %v", err)
			}
			log = append(log, events...)
			if s.Balance < 0 || s.Balance != moved {
				t.Fatalf("balance %d, moved %d", s.Balance, moved)
			}
		}
		again, err := account.Rehydrate(account.State{}, log)
		if err != nil || again != s {
			t.Fatalf("folding the log again gives %+v, %v, want %+v", again, err, s)
		}
		cut := rapid.IntRange(0, len(log)).Draw(t, "snapshot after")
		snapshot, _ := account.Rehydrate(account.State{}, log[:cut])
		restored, err := account.DecodeState(snapshot.Encode())
		if err != nil || restored != snapshot {
			t.Fatalf("snapshot came back as %+v, %v, want %+v", restored, err, snapshot)
		}
		if fromSnapshot, err := account.Rehydrate(restored, log[cut:]); err != nil || fromSnapshot != s {
			t.Fatalf("from a snapshot: %+v, %v, want %+v", fromSnapshot, err, s)
		}
	})
}

func TestEveryCommandAndRowComesBackFromItsBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCommand(t)
		if back, err := account.ParseCommand(c.Name, c.Body()); err != nil || back != c {
			t.Fatalf("%+v came back as %+v, %v", c, back, err)
		}
		row := account.Row{Balance: c.Amount, Owner: c.Owner, Status: "open"}
		if back, err := account.DecodeRow(row.Encode()); err != nil || back != row {
			t.Fatalf("%+v came back as %+v, %v", row, back, err)
		}
	})
}
