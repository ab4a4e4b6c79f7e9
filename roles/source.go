package roles

import (
	"fmt"

	"github.com/eventproof/eventproof/loadgen"
	"github.com/eventproof/eventproof/loadgen/workload"
)

// Workload returns the commands of a load; every writer and the set-up derive the same ones from the seed.
func Workload(kind string, seed uint64, initialBalance int64, l LoadConfig) (workload.Workload, error) {
	keys, err := l.keys()
	if err != nil {
		return nil, err
	}
	seeds := loadgen.Seeds{Root: seed}
	switch kind {
	case "bank":
		return workload.Bank(workload.BankConfig{
			Seeds: seeds, Keys: keys, InitialBalance: initialBalance, MaxAmount: l.MaxAmount,
			Withdraw: l.Withdraw, Deposit: l.Deposit, BlindDeposit: l.BlindDeposit,
		})
	case "auction":
		return workload.Auction(workload.AuctionConfig{
			Seeds: seeds, Keys: keys, OpeningPrice: l.OpeningPrice,
			Bid: l.Bid, Replay: l.Replay, AlterBid: l.AlterBid, EqualBid: l.EqualBid, CloseAfter: l.CloseAfter,
		})
	}
	return nil, fmt.Errorf("roles: unknown workload %q", kind)
}

func (l LoadConfig) keys() (loadgen.Keys, error) {
	switch l.KeyDist {
	case "uniform":
		return loadgen.Uniform(l.Streams)
	case "zipf":
		return loadgen.Zipf(l.Streams, l.Exponent)
	case "hot":
		return loadgen.Hot(l.Streams, l.HotCount, l.HotShare)
	}
	return loadgen.Keys{}, fmt.Errorf("roles: unknown key distribution %q", l.KeyDist)
}
