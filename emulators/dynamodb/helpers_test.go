package dynamodb_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/smithy-go"

	"github.com/eventproof/eventproof/emulators/dynamodb"
)

type (
	attrs = map[string]types.AttributeValue
	str   = types.AttributeValueMemberS
	num   = types.AttributeValueMemberN
)

func s(v string) types.AttributeValue { return &str{Value: v} }
func n(v any) types.AttributeValue    { return &num{Value: fmt.Sprint(v)} }

// fakeClock stands still until it is moved.
type fakeClock struct {
	mu  sync.Mutex
	now time.Time
}

func newFakeClock() *fakeClock { return &fakeClock{now: time.Unix(1_800_000_000, 0)} }

func (c *fakeClock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) Now() int64 { return c.Wall().UnixNano() }

func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// bench is a server and a client of it.
type bench struct {
	*dynamodb.Server
	db      *sdk.Client
	streams *dynamodbstreams.Client
	url     string
	stop    func()
}

func start(t testing.TB, opt dynamodb.Options) *bench {
	t.Helper()
	srv, err := dynamodb.Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(srv)
	b := &bench{Server: srv, url: h.URL}
	var once sync.Once
	b.stop = func() {
		once.Do(func() {
			h.Close()
			if err := srv.Close(); err != nil && !errors.Is(err, os.ErrClosed) { // a test may have closed it
				t.Error(err)
			}
		})
	}
	t.Cleanup(b.stop)
	b.db, b.streams = clients(t, h.URL)
	return b
}

func clients(t testing.TB, url string) (*sdk.Client, *dynamodbstreams.Client) {
	tr := &http.Transport{MaxIdleConnsPerHost: 256}
	t.Cleanup(tr.CloseIdleConnections)
	cfg := aws.Config{
		Region: "local", BaseEndpoint: aws.String(url), RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider("dummy", "dummy", ""),
		HTTPClient:  &http.Client{Transport: tr},
	}
	return sdk.NewFromConfig(cfg), dynamodbstreams.NewFromConfig(cfg)
}

// table makes a table with a string hash key pk and a string sort key sk, and a stream.
func (b *bench) table(t testing.TB, name string) {
	t.Helper()
	_, err := b.db.CreateTable(context.Background(), &sdk.CreateTableInput{
		TableName: &name, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String("pk"), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String("sk"), AttributeType: types.ScalarAttributeTypeS},
		},
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String("pk"), KeyType: types.KeyTypeHash},
			{AttributeName: aws.String("sk"), KeyType: types.KeyTypeRange},
		},
		StreamSpecification: &types.StreamSpecification{StreamEnabled: aws.Bool(true), StreamViewType: types.StreamViewTypeNewAndOldImages},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func key(pk, sk string) attrs { return attrs{"pk": s(pk), "sk": s(sk)} }

// with returns an item of a key and more.
func with(k attrs, more ...any) attrs {
	out := attrs{}
	for name, v := range k {
		out[name] = v
	}
	for i := 0; i < len(more); i += 2 {
		out[more[i].(string)] = more[i+1].(types.AttributeValue)
	}
	return out
}

func (b *bench) put(t testing.TB, table string, it attrs) {
	t.Helper()
	if _, err := b.db.PutItem(context.Background(), &sdk.PutItemInput{TableName: &table, Item: it}); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) get(t testing.TB, table string, k attrs) attrs {
	t.Helper()
	out, err := b.db.GetItem(context.Background(), &sdk.GetItemInput{TableName: &table, Key: k, ConsistentRead: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	return out.Item
}

// text is an item in a form that can be compared.
func text(it attrs) string {
	if it == nil {
		return "none"
	}
	var parts []string
	for _, name := range sorted(it) {
		parts = append(parts, name+"="+valueText(it[name]))
	}
	return strings.Join(parts, " ")
}

func valueText(v types.AttributeValue) string {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return fmt.Sprintf("%q", v.Value)
	case *types.AttributeValueMemberN:
		return v.Value
	case *types.AttributeValueMemberB:
		return fmt.Sprintf("b%q", v.Value)
	case *types.AttributeValueMemberBOOL:
		return fmt.Sprint(v.Value)
	case *types.AttributeValueMemberNULL:
		return "null"
	case *types.AttributeValueMemberSS:
		return fmt.Sprintf("ss%q", v.Value)
	case *types.AttributeValueMemberNS:
		return fmt.Sprintf("ns%v", v.Value)
	case *types.AttributeValueMemberBS:
		return fmt.Sprintf("bs%q", v.Value)
	case *types.AttributeValueMemberL:
		var parts []string
		for _, e := range v.Value {
			parts = append(parts, valueText(e))
		}
		return "[" + strings.Join(parts, " ") + "]"
	case *types.AttributeValueMemberM:
		return "{" + text(v.Value) + "}"
	}
	return fmt.Sprintf("%T", v)
}

// code is the exception of an error, "" for none.
func code(err error) string {
	if err == nil {
		return ""
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return "not an answer: " + err.Error()
}

func wantCode(t testing.TB, err error, want string) {
	t.Helper()
	if got := code(err); got != want {
		t.Errorf("got %q (%v), want %q", got, err, want)
	}
}

// reasons are the codes of a cancelled transaction, "+item" where the item is told.
func reasons(err error) string {
	var c *types.TransactionCanceledException
	if !errors.As(err, &c) {
		return code(err)
	}
	var out []string
	for _, r := range c.CancellationReasons {
		text := *r.Code
		if r.Item != nil {
			text += "+item"
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func hits(b *bench, id string) uint64 {
	for _, f := range b.Faults() {
		if f.ID == id {
			return f.Hits
		}
	}
	return 0
}
