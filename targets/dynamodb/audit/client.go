package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// client speaks the JSON protocol of the service by itself: no SDK, no retries, no proxy.
type client struct {
	url  string
	http *http.Client
}

const callTimeout = 30 * time.Second

func newClient(url string) *client {
	// One connection, so that the emulator can be asked whether there is any other.
	return &client{url: strings.TrimSuffix(url, "/"), http: &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}, Timeout: callTimeout}}
}

// Error is an answer other than success.
type Error struct {
	Status int
	Code   string // "ResourceNotFoundException", …
	Text   string
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("status %d, %s: %s", e.Status, e.Code, e.Text) }

// authorization names a key for stand-ins that want one; nobody checks the signature.
const authorization = "AWS4-HMAC-SHA256 Credential=eventproof/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=00"

// call sends one request: target is "<service>.<operation>".
func (c *client) call(ctx context.Context, target string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-amz-json-1.0")
	req.Header.Set("X-Amz-Target", target)
	req.Header.Set("Authorization", authorization)
	answer, _, status, err := c.do(req)
	if err != nil {
		return fmt.Errorf("audit: %s: %w", target, err)
	}
	if status != http.StatusOK {
		return fmt.Errorf("audit: %s: %w", target, readError(status, answer))
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("audit: %s: %w", target, err)
	}
	return nil
}

func (c *client) do(req *http.Request) (body []byte, header http.Header, status int, err error) {
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, nil, 0, err
	}
	body, err = io.ReadAll(resp.Body)
	return body, resp.Header, resp.StatusCode, errors.Join(err, resp.Body.Close())
}

func readError(status int, body []byte) error {
	var raw struct {
		Type    string `json:"__type"`
		Message string `json:"message"`
	}
	if err := json.Unmarshal(body, &raw); err != nil {
		return &Error{Status: status, Text: string(body[:min(len(body), 200)])}
	}
	code := raw.Type
	if i := bytes.LastIndexByte([]byte(code), '#'); i >= 0 {
		code = code[i+1:]
	}
	return &Error{Status: status, Code: code, Text: raw.Message}
}

// The operations that the audit uses.
const (
	opScan        = "DynamoDB_20120810.Scan"
	opQuery       = "DynamoDB_20120810.Query"
	opTransactGet = "DynamoDB_20120810.TransactGetItems"
	opBatchGet    = "DynamoDB_20120810.BatchGetItem"
	opDescribe    = "DynamoDBStreams_20120810.DescribeStream"
	opGetIterator = "DynamoDBStreams_20120810.GetShardIterator"
	opGetRecords  = "DynamoDBStreams_20120810.GetRecords"
	codeTrans     = "TransactionCanceledException"
)

// value is an attribute value of a type that the adapter writes.
type value struct {
	S *string `json:"S,omitempty"`
	N *string `json:"N,omitempty"`
	B *[]byte `json:"B,omitempty"`
}

func s(text string) value { return value{S: &text} }

// row is an item as it was read.
type row map[string]value

var errAttribute = errors.New("audit: an attribute is missing or of another type")

// reader takes attributes out of a row and keeps the first error.
type reader struct {
	row row
	err error
}

func (r *reader) miss(name string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %q", errAttribute, name)
	}
}

func (r *reader) text(name string) string {
	v := r.row[name]
	if v.S == nil {
		r.miss(name)
		return ""
	}
	return *v.S
}

func (r *reader) count(name string) uint64 {
	v := r.row[name]
	if v.N == nil {
		r.miss(name)
		return 0
	}
	n, err := strconv.ParseUint(*v.N, 10, 64)
	if err != nil {
		r.miss(name)
	}
	return n
}

func (r *reader) amount(name string) int64 {
	v := r.row[name]
	if v.N == nil {
		r.miss(name)
		return 0
	}
	n, err := strconv.ParseInt(*v.N, 10, 64)
	if err != nil {
		r.miss(name)
	}
	return n
}

func (r *reader) bytes(name string) []byte {
	v := r.row[name]
	if v.B == nil {
		r.miss(name)
		return nil
	}
	return *v.B
}

// pages follows an operation from page to page until the last one.
func (c *client) pages(ctx context.Context, op string, in map[string]any, each func(row) error) error {
	return c.pagesRaw(ctx, op, in, func(text json.RawMessage) error {
		var r row
		if err := json.Unmarshal(text, &r); err != nil {
			return fmt.Errorf("audit: reading an item: %w", err)
		}
		return each(r)
	})
}

// pagesRaw is pages with the items as they came.
func (c *client) pagesRaw(ctx context.Context, op string, in map[string]any, each func(json.RawMessage) error) error {
	for {
		var out struct{ Items, LastEvaluatedKey json.RawMessage }
		if err := c.call(ctx, op, in, &out); err != nil {
			return err
		}
		var items []json.RawMessage
		if len(out.Items) > 0 {
			if err := json.Unmarshal(out.Items, &items); err != nil {
				return fmt.Errorf("audit: reading a page: %w", err)
			}
		}
		for _, text := range items {
			if err := each(text); err != nil {
				return err
			}
		}
		if len(out.LastEvaluatedKey) == 0 || string(out.LastEvaluatedKey) == "null" {
			return nil
		}
		in["ExclusiveStartKey"] = out.LastEvaluatedKey
	}
}
