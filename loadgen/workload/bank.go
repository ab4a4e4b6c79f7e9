package workload

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/eventproof/eventproof/domain/account"
	"github.com/eventproof/eventproof/loadgen"
)

// BankConfig describes withdrawals and deposits on accounts.
type BankConfig struct {
	Seeds          loadgen.Seeds
	Keys           loadgen.Keys // chooses the account; its length is the number of accounts
	InitialBalance int64        // minor units
	MaxAmount      int64        // amounts are uniform in 1…MaxAmount
	// Shares of the mix, normalised.
	Withdraw, Deposit, BlindDeposit float64
}

// bank makes commands on the accounts "1", "2", …
type bank struct{ BankConfig }

// Bank returns the workload.
func Bank(c BankConfig) (Workload, error) {
	err := validShares(c.Withdraw, c.Deposit, c.BlindDeposit)
	switch {
	case err != nil:
	case c.Keys.Len() == 0:
		err = fmt.Errorf("no accounts")
	case c.InitialBalance < 0:
		err = fmt.Errorf("initial balance of %d", c.InitialBalance)
	case c.MaxAmount < 1 || c.MaxAmount == math.MaxInt64:
		err = fmt.Errorf("amounts up to %d", c.MaxAmount)
	}
	if err != nil {
		return nil, fmt.Errorf("workload: bank: %w", err)
	}
	return &bank{c}, nil
}

func (b *bank) Setup() []Command {
	out := make([]Command, b.Keys.Len())
	for i := range out {
		name := strconv.Itoa(i + 1)
		c := account.Command{Name: account.CommandOpen, Account: name, Owner: "owner-" + name, Amount: b.InitialBalance}
		out[i] = Command{ID: setupID(b.Seeds, i), Stream: account.Stream(name), Name: c.Name, Body: c.Body()}
	}
	return out
}

func (b *bank) Command(seq uint64) Command {
	r := b.Seeds.At("bank", seq)
	name := strconv.Itoa(b.Keys.Pick(r) + 1)
	c := account.Command{Account: name, Amount: 1 + r.Int64N(b.MaxAmount)}
	c.Name = [...]string{account.CommandWithdraw, account.CommandDeposit, account.CommandBlindDeposit}[pick(r, b.Withdraw, b.Deposit, b.BlindDeposit)]
	return Command{
		ID: commandID(b.Seeds, seq), Stream: account.Stream(name), Name: c.Name, Body: c.Body(),
		Blind: c.Name == account.CommandBlindDeposit,
	}
}

func (b *bank) Timed() []time.Duration { return nil }
