// Package dynamodb gets an endpoint that speaks the protocol of DynamoDB: one that the user names, or the emulator
// built into this program.
package dynamodb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/eventproof/eventproof/provision"
)

// Name of the store, as in a target's Needs.
const Name = "dynamodb"

const title = "DynamoDB"

// Store returns the ways to a DynamoDB endpoint.
func Store() provision.Store {
	return provision.Store{
		Name: Name, Title: title, CheckURL: CheckURL,
		Ways: []provision.Way{
			{Kind: provision.External, Start: external, Inspect: inspectExternal},
			image().Way(),
			{Kind: provision.Embedded, Emulated: true, Start: embedded, Inspect: inspectEmbedded},
		},
		Remedy: "Name an endpoint in " + provision.EnvURL(Name) + "; the product itself runs only at its vendor",
	}
}

// CheckURL says what is wrong with the URL of an external endpoint as far as that can be told without connecting.
func CheckURL(rawURL string, allowRemote bool) error {
	_, err := parse(rawURL, allowRemote)
	return err
}

func parse(rawURL string, allowRemote bool) (*url.URL, error) {
	u, err := url.Parse(rawURL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || (u.Path != "" && u.Path != "/") {
		return nil, errors.New("provision: the external endpoint's URL must have the form http://host:port, without user, path or parameters")
	}
	if !provision.Loopback(u.Hostname()) && !allowRemote {
		return nil, fmt.Errorf("provision: external endpoint %s: %s is not a loopback address; "+
			"eventproof puts load on it, so allow that with --allow-remote", provision.Masked(u), u.Hostname())
	}
	u.Path = ""
	return u, nil
}

const externalTimeout = 10 * time.Second

// OpenExternal checks that an endpoint which somebody else runs can be reached and speaks the protocol. An address
// that is not loopback needs allowRemote. What does not run at the vendor's is a stand-in.
func OpenExternal(ctx context.Context, rawURL string, allowRemote bool) (*provision.Server, error) {
	u, err := parse(rawURL, allowRemote)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, externalTimeout)
	defer cancel()
	version, err := probe(ctx, u.String())
	if err != nil {
		return nil, fmt.Errorf("provision: external endpoint %s can't be used: %w", provision.Masked(u), err)
	}
	fidelity := provision.Emulated
	if strings.HasSuffix(u.Hostname(), ".amazonaws.com") {
		fidelity = provision.Real
	}
	addr := u.Host
	if u.Port() == "" {
		addr = net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
	return provision.NewServer(provision.Info{
		Store: Name, Title: title, Kind: provision.External, Fidelity: fidelity, Version: version, URL: u.String(), Addr: addr,
	}, nil), nil
}

func external(ctx context.Context, o provision.Options) (*provision.Server, error) {
	s, err := OpenExternal(ctx, o.URL, o.AllowRemote)
	if err == nil {
		o.Logf("dynamodb: %s: external, because its URL was given", s)
	}
	return s, err
}

func inspectExternal(ctx context.Context, o provision.Options) []provision.Option {
	return provision.InspectExternal(ctx, o, OpenExternal)
}

// embedded starts the emulator with streams of several shards, as the product has them, and with transactions that
// take a moment, so that they meet each other.
func embedded(ctx context.Context, o provision.Options) (*provision.Server, error) {
	return provision.StandIn{
		Store: Name, Title: "DynamoDB emulator", Scheme: "http://", Args: []string{"--shards", "2", "--window", "1ms"},
		Probe: func(ctx context.Context, addr string) (string, error) {
			_, err := probe(ctx, "http://"+addr)
			return "of eventproof", err
		},
	}.Start(ctx, o)
}

func inspectEmbedded(context.Context, provision.Options) []provision.Option {
	return []provision.Option{{Name: provision.Embedded, Available: true, Detail: "the emulator of this program: it proves code paths, not the product"}}
}

// NotDynamoDBError says that something else answers at an endpoint.
type NotDynamoDBError struct {
	Status string // of the answer: "404 Not Found"
	Type   string // its content type
}

// Error implements error.
func (e *NotDynamoDBError) Error() string {
	return fmt.Sprintf("what answers there is not DynamoDB (HTTP status %s, content type %q): is it the right port?", e.Status, e.Type)
}

const answerLimit = 1 << 20

// probe lists the tables, with credentials that are no secret, and returns what the endpoint calls itself.
func probe(ctx context.Context, endpoint string) (version string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint+"/", strings.NewReader(`{"Limit":1}`))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/x-amz-json-1.0")
	req.Header.Set("X-Amz-Target", "DynamoDB_20120810.ListTables")
	req.Header.Set("X-Amz-Date", "20260101T000000Z")
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=eventproof/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host;x-amz-date;x-amz-target, Signature="+strings.Repeat("0", 64))
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true}, // and no proxy of the environment
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	other := &NotDynamoDBError{Status: resp.Status, Type: resp.Header.Get("Content-Type")}
	body, err := io.ReadAll(io.LimitReader(resp.Body, answerLimit))
	if err != nil {
		return "", err
	}
	var got struct {
		TableNames *[]string
		Type       string `json:"__type"`
		Message    string `json:"message"`
	}
	kind, _, err := mime.ParseMediaType(other.Type)
	if err != nil || !strings.HasPrefix(kind, "application/") || !strings.HasSuffix(kind, "json") && !strings.HasPrefix(kind, "application/x-amz-json") || json.Unmarshal(body, &got) != nil {
		return "", other
	}
	switch {
	case resp.StatusCode == http.StatusOK && got.TableNames != nil:
		if server := resp.Header.Get("Server"); server != "" {
			return server, nil
		}
		return "(version unknown)", nil
	case strings.Contains(got.Type, "#"):
		return "", fmt.Errorf("it refuses: %s %s; eventproof uses dummy credentials, never yours", got.Type, got.Message)
	}
	return "", other
}
