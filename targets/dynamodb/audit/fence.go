package audit

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/targets"
)

const (
	// quietFor is how long the emulator is given until nothing is in flight and nobody but the audit is connected.
	quietFor   = 5 * time.Second
	quietPause = 25 * time.Millisecond
	// quietLooks is how many looks in a row must find it so: a connection may have been accepted and not be counted yet.
	quietLooks = 4
	// readsApart is the least time between the two reads that stand in for a fence.
	readsApart = 2 * time.Second
)

// Where the emulator tells about itself.
const (
	probeHeader = "Eventproof-Emulator"
	statePath   = "/_eventproof/state"
)

// state is what the emulator says of what is in flight.
type state struct {
	InFlight     []json.RawMessage `json:"in_flight"`
	Transactions int               `json:"transactions"`
	Connections  int               `json:"connections"`
	Record       uint64            `json:"record"`
}

// quiet: nothing is being carried out, and the only connection is the one that asks.
func (s state) quiet() bool { return len(s.InFlight) == 0 && s.Transactions == 0 && s.Connections == 1 }

// Fence waits until nothing of the run can take effect any more. The emulator tells what is in flight and who is
// connected: with the roles and proxies gone, no request is left that could. Any other server gives no such proof; then
// the table is read twice, and the run is unfenced whatever the reads say.
func (a *Auditor) Fence(ctx context.Context) (targets.Proof, error) {
	now, emulator, err := a.state(ctx)
	if err != nil {
		return targets.Proof{}, err
	}
	if !emulator || now.Connections == 0 {
		return a.twoReads(ctx)
	}
	looks := 0
	for spent := time.Duration(0); looks < quietLooks && spent < quietFor; spent += quietPause {
		if err := clock.Sleep(ctx, quietPause); err != nil {
			return targets.Proof{}, fmt.Errorf("audit: waiting for the emulator to be quiet: %w", err)
		}
		if now, _, err = a.state(ctx); err != nil {
			return targets.Proof{}, err
		}
		if now.quiet() {
			looks++
		} else {
			looks = 0
		}
	}
	text := fmt.Sprintf("the emulator has %d requests and %d transactions in flight and %d connections, the audit's included, at record %d of its log",
		len(now.InFlight), now.Transactions, now.Connections, now.Record)
	if looks == quietLooks {
		return targets.Proof{Fenced: true, Text: fmt.Sprintf("%s, in %d looks", text, looks)}, nil
	}
	return targets.Proof{Text: fmt.Sprintf("%s, still after %s", text, quietFor)}, nil
}

// state asks the emulator; emulator is false if the server is another product.
func (a *Auditor) state(ctx context.Context) (s state, emulator bool, err error) {
	body, header, status, err := a.client.get(ctx, statePath)
	if err != nil {
		return state{}, false, fmt.Errorf("audit: asking for the state: %w", err)
	}
	if header.Get(probeHeader) == "" || status != http.StatusOK {
		return state{}, false, nil
	}
	if err := json.Unmarshal(body, &s); err != nil {
		return state{}, false, fmt.Errorf("audit: asking for the state: %w", err)
	}
	return s, true, nil
}

func (c *client) get(ctx context.Context, path string) (body []byte, header http.Header, status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+path, nil)
	if err != nil {
		return nil, nil, 0, err
	}
	return c.do(req)
}

// twoReads compares two reads of the whole table.
func (a *Auditor) twoReads(ctx context.Context) (targets.Proof, error) {
	first, n, err := a.digest(ctx)
	if err != nil {
		return targets.Proof{}, err
	}
	if err := clock.Sleep(ctx, readsApart); err != nil {
		return targets.Proof{}, fmt.Errorf("audit: waiting for a second read: %w", err)
	}
	second, _, err := a.digest(ctx)
	if err != nil {
		return targets.Proof{}, err
	}
	const why = "the store does not tell what is in flight"
	if first != second {
		return targets.Proof{Text: fmt.Sprintf("%s; two reads of the table, %s apart, differ", why, readsApart)}, nil
	}
	return targets.Proof{Text: fmt.Sprintf("%s; two reads of the table, %s apart, are equal (%d items)", why, readsApart, n)}, nil
}

// digest is a hash of all items of the table, whatever their order.
func (a *Auditor) digest(ctx context.Context) (sum [sha256.Size]byte, n int, err error) {
	var texts []string
	err = a.client.pagesRaw(ctx, opScan, map[string]any{"TableName": a.place.Table, "ConsistentRead": true}, func(text json.RawMessage) error {
		var it any
		if err := json.Unmarshal(text, &it); err != nil {
			return err
		}
		sorted, err := json.Marshal(it)
		texts = append(texts, string(sorted))
		return err
	})
	if err != nil {
		return sum, 0, err
	}
	slices.Sort(texts)
	h := sha256.New()
	for _, t := range texts {
		fmt.Fprintf(h, "%d %s", len(t), t)
	}
	return [sha256.Size]byte(h.Sum(nil)), len(texts), nil
}

// About returns the emulator's version and how it stores, as far as the server tells; "unknown" for any other product.
func (a *Auditor) About(ctx context.Context) (version string, durability map[string]string, err error) {
	_, header, _, err := a.client.get(ctx, "/")
	if err != nil {
		return "", nil, fmt.Errorf("audit: asking what the server is: %w", err)
	}
	if version = header.Get(probeHeader); version == "" {
		return "unknown", map[string]string{}, nil
	}
	durability = map[string]string{"log": "unknown"}
	if a.place.DataDir != "" {
		durability["log"] = "a file, written before the answer"
	}
	return version, durability, nil
}
