package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/eventproof/eventproof/emulators/dynamodb"
	"github.com/eventproof/eventproof/faults"
	"github.com/eventproof/eventproof/targets"
)

// injector returns the server's own switches for faults, nil where it has none: only the emulator has.
func injector(target targets.Target, server Server) faults.Injector {
	if target.Needs != "dynamodb" || server.Kind() != "embedded" {
		return nil
	}
	return emulator{server.AdminURL()}
}

// emulator arms faults in the DynamoDB emulator by its admin endpoint.
type emulator struct{ endpoint string }

// Inject implements faults.Injector. Every n-th request is one with the probability 1/n: the emulator draws from its
// seed.
func (e emulator) Inject(ctx context.Context, kind string, every, limit int) (func(context.Context) (uint64, error), error) {
	fault := dynamodb.Fault{Kind: dynamodb.FaultKind(kind), Count: uint64(limit), Probability: 1 / float64(max(every, 1))}
	body, err := json.Marshal(fault)
	if err != nil {
		return nil, err
	}
	var armed struct {
		ID string `json:"id"`
	}
	if err := e.call(ctx, http.MethodPost, dynamodb.FaultsPath, body, &armed); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (uint64, error) {
		var gone struct {
			Faults []dynamodb.FaultStatus `json:"faults"`
		}
		err := e.call(ctx, http.MethodDelete, dynamodb.FaultsPath+"?id="+url.QueryEscape(armed.ID), nil, &gone)
		var hits uint64
		for _, f := range gone.Faults {
			hits += f.Hits
		}
		return hits, err
	}, nil
}

func (e emulator) call(ctx context.Context, method, path string, body []byte, into any) error {
	request, err := http.NewRequestWithContext(ctx, method, e.endpoint+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("emulator: %w", err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("emulator: %w", err)
	}
	defer func() { _ = answer.Body.Close() }() // it was read
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return fmt.Errorf("emulator: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("emulator: %s %s: %s: %s", method, path, answer.Status, bytes.TrimSpace(text))
	}
	return json.Unmarshal(text, into)
}
