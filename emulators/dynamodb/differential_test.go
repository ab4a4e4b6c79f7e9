package dynamodb_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/eventproof/eventproof/emulators/dynamodb"
)

// ministackEnv names the executable of ministack, another emulator: pip install ministack.
const (
	ministackEnv  = "EVENTPROOF_MINISTACK"
	operationsEnv = "EVENTPROOF_MINISTACK_OPERATIONS"
	seedEnv       = "EVENTPROOF_MINISTACK_SEED"
)

// document is a JSON object.
type document = map[string]any

// answer is what a server said, in a form that can be compared.
type answer struct {
	code string // exception, "" for success
	body document
	// message of an exception; the texts differ, so it is shown and not compared.
	message string
}

func (a answer) String() string {
	text, err := json.Marshal(a.body)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("%s %s (%s)", a.code, text, a.message)
}

func (a answer) same(b answer) bool {
	x, _ := json.Marshal(a.body)
	y, _ := json.Marshal(b.body)
	return a.code == b.code && bytes.Equal(x, y)
}

// raw calls a server by its protocol, with no client in between.
func raw(t testing.TB, url, op string, in document) answer {
	t.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest("POST", url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	service := "DynamoDB_20120810."
	if slices.Contains([]string{"ListStreams", "DescribeStream", "GetShardIterator", "GetRecords"}, op) {
		service = "DynamoDBStreams_20120810."
	}
	req.Header.Set("X-Amz-Target", service+op)
	req.Header.Set("Content-Type", "application/x-amz-json-1.0")
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=dummy/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var out document
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatalf("%s: %v in %s", op, err, text)
	}
	if resp.StatusCode == http.StatusOK {
		return answer{body: plain(out).(document)}
	}
	kind, _ := out["__type"].(string)
	a := answer{code: kind[strings.LastIndex(kind, "#")+1:], body: document{}}
	for _, name := range []string{"message", "Message"} {
		if m, ok := out[name].(string); ok {
			a.message = m
		}
	}
	if it, ok := out["Item"]; ok {
		a.body["Item"] = plain(it)
	}
	if list, ok := out["CancellationReasons"].([]any); ok {
		var reasons []any
		for _, r := range list {
			r := r.(document)
			if m, ok := r["Message"].(string); ok {
				a.message += "; " + m
			}
			delete(r, "Message")
			reasons = append(reasons, plain(r))
		}
		a.body["CancellationReasons"] = reasons
	}
	return a
}

// plain sorts sets, whose order means nothing.
func plain(v any) any {
	switch v := v.(type) {
	case document:
		out := document{}
		for name, inner := range v {
			if set, ok := inner.([]any); ok && (name == "SS" || name == "NS" || name == "BS") {
				slices.SortFunc(set, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
			}
			out[name] = plain(inner)
		}
		return out
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	}
	return v
}

// startMinistack runs ministack on a free port until the test ends.
func startMinistack(t *testing.T, executable string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(executable)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "BIND_HOST=127.0.0.1", "GATEWAY_PORT="+strconv.Itoa(port))
	log, err := os.Create(filepath.Join(cmd.Dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
	})
	url := fmt.Sprintf("http://127.0.0.1:%d/", port)
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = conn.Close()
			return url
		}
	}
	t.Fatal("ministack did not start")
	return ""
}

// TestTwoEmulatorsAgree asks this emulator and ministack the same random questions. Where they differ, the difference
// must be one of knownDifferences: each was looked up in AWS's documentation.
func TestTwoEmulatorsAgree(t *testing.T) {
	executable := os.Getenv(ministackEnv)
	if executable == "" {
		t.Skipf("SKIPPED: THE COMPARISON WITH MINISTACK DID NOT RUN. pip install ministack, and set %s to its executable", ministackEnv)
	}
	operations, seed := 20_000, uint64(1)
	if v := os.Getenv(operationsEnv); v != "" {
		var err error
		if operations, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	}
	if v := os.Getenv(seedEnv); v != "" {
		var err error
		if seed, err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	srv, err := dynamodb.Open(dynamodb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(srv)
	defer h.Close()
	d := &differential{T: t, ours: h.URL, theirs: startMinistack(t, executable), g: &generator{rand: rand.New(rand.NewPCG(seed, 0))},
		explained: map[string]int{}, outcomes: map[string]int{}, succeeded: map[string]bool{}}
	d.newTable()
	d.avoided()
	d.newTable()
	for i := range operations {
		if d.unexplained >= 20 {
			t.Fatal("too many differences")
		}
		if i%40 == 39 {
			d.compareStreams()
		}
		if i%400 == 399 {
			d.newTable()
		}
		d.one()
	}
	d.compareStreams()
	t.Logf("%d operations, %d streams compared (%d records)", operations, d.streams, d.records)
	for _, k := range sorted(d.outcomes) {
		t.Logf("  %6d %s", d.outcomes[k], k)
	}
	t.Logf("  %6d explained: %s", d.explained[numbersAsGiven], numbersAsGiven)
	for _, k := range knownDifferences {
		t.Logf("  %6d explained: %s", d.explained[k.what], k.what)
	}
	if d.streams == 0 || d.records == 0 {
		t.Error("no stream was compared")
	}
}

type differential struct {
	*testing.T
	ours, theirs string
	g            *generator
	table        string
	tables       int
	// diverged since the table was made: its stream can't be compared.
	diverged    bool
	unexplained int
	streams     int
	records     int
	explained   map[string]int
	outcomes    map[string]int
	succeeded   map[string]bool // by token
}

func (d *differential) both(op string, in document) (ours, theirs answer) {
	return raw(d.T, d.ours, op, in), raw(d.T, d.theirs, op, in)
}

func (d *differential) newTable() {
	if d.table != "" {
		d.both("DeleteTable", document{"TableName": d.table})
	}
	d.tables++
	d.table = fmt.Sprintf("table-%d", d.tables)
	d.g.table, d.g.last, d.diverged = d.table, nil, false
	attribute := func(name, kind string) document {
		return document{"AttributeName": name, "AttributeType": kind}
	}
	schema := func(hash, rng string) []any {
		return []any{document{"AttributeName": hash, "KeyType": "HASH"}, document{"AttributeName": rng, "KeyType": "RANGE"}}
	}
	d.g.sortKind = []string{"S", "N"}[d.tables%2]
	ours, theirs := d.both("CreateTable", document{
		"TableName": d.table, "BillingMode": "PAY_PER_REQUEST",
		"AttributeDefinitions": []any{attribute("pk", "S"), attribute("sk", d.g.sortKind), attribute("g", "S"), attribute("o", "N")},
		"KeySchema":            schema("pk", "sk"),
		"GlobalSecondaryIndexes": []any{
			document{"IndexName": "full", "KeySchema": schema("g", "o"), "Projection": document{"ProjectionType": "ALL"}},
			document{"IndexName": "keys", "KeySchema": schema("g", "o"), "Projection": document{"ProjectionType": "KEYS_ONLY"}},
		},
		"StreamSpecification": document{"StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES"},
	})
	if ours.code != "" || theirs.code != "" {
		d.Fatalf("ours %v\ntheirs %v", ours, theirs)
	}
	if ours, theirs := d.both("BatchWriteItem", d.g.fill()); ours.code != "" || theirs.code != "" {
		d.Fatalf("ours %v\ntheirs %v", ours, theirs)
	}
}

// one asks one question.
func (d *differential) one() {
	op, in := d.g.operation()
	ours, theirs := d.both(op, in)
	outcome := ours.code
	if outcome == "" {
		outcome = "ok"
	}
	d.outcomes[op+" "+outcome]++
	if token, ok := in["ClientRequestToken"].(string); ok && ours.code == "" {
		// After the comparison: the question is whether one succeeded before.
		defer func() { d.succeeded[token] = true }()
	}
	ours = comparable(op, in, ours)
	if comparable(op, in, answer{theirs.code, decimal(theirs.body).(document), ""}).same(ours) && !comparable(op, in, theirs).same(ours) {
		d.explained[numbersAsGiven]++
		return
	}
	theirs = comparable(op, in, theirs)
	if ours.same(theirs) {
		return
	}
	d.explain(op, in, ours, theirs)
	d.g.last = nil // what the two remember of its token may differ
	if !d.sameState() {
		d.diverged = true
		d.newTable()
	}
}

func (d *differential) explain(op string, in document, ours, theirs answer) {
	d.Helper()
	token, _ := in["ClientRequestToken"].(string)
	q := question{op, in, ours, theirs, d.g.damaged, d.succeeded[token]}
	for _, k := range knownDifferences {
		if k.is(q) {
			d.explained[k.what]++
			return
		}
	}
	d.unexplained++
	text, err := json.Marshal(in)
	if err != nil {
		d.Fatal(err)
	}
	d.Errorf("%s %s\n  ours   %s\n  theirs %s", op, text, ours, theirs)
}

// comparable takes away what may differ, such as the order of a scan and of items in a batch's answer.
func comparable(op string, in document, a answer) answer {
	if a.code != "" {
		return a
	}
	switch op {
	case "UpdateItem":
		// No attributes are as good as an empty map of them.
		if it, ok := a.body["Attributes"].(document); ok && len(it) == 0 {
			delete(a.body, "Attributes")
		}
	case "Scan":
		// Which items a limited page has depends on the order.
		if in["Limit"] != nil || in["ExclusiveStartKey"] != nil {
			return answer{body: document{}}
		}
		sortItems(a.body["Items"])
	case "BatchGetItem":
		if responses, ok := a.body["Responses"].(document); ok {
			for _, items := range responses {
				sortItems(items)
			}
		}
	}
	return a
}

func sortItems(items any) {
	list, _ := items.([]any)
	slices.SortFunc(list, func(a, b any) int {
		x, _ := json.Marshal(a)
		y, _ := json.Marshal(b)
		return bytes.Compare(x, y)
	})
}

func (d *differential) sameState() bool {
	in := document{"TableName": d.table, "ConsistentRead": true}
	ours, theirs := d.both("Scan", in)
	// Their numbers are given the one form before items are put in order, which is by text.
	theirs.body = decimal(theirs.body).(document)
	return comparable("Scan", in, ours).same(comparable("Scan", in, theirs))
}

func (d *differential) compareStreams() {
	if d.diverged {
		return
	}
	if !d.sameState() {
		d.Errorf("%s: the same answers, and yet other items", d.table)
	}
	ours, theirs := d.changes(d.ours), d.changes(d.theirs)
	d.streams++
	d.records += len(ours)
	if !slices.Equal(ours, theirs) {
		for i := range min(len(ours), len(theirs)) {
			if ours[i] != theirs[i] {
				d.Errorf("%s: stream record %d\n  ours   %s\n  theirs %s", d.table, i, ours[i], theirs[i])
				return
			}
		}
		d.Errorf("%s: %d stream records, theirs are %d", d.table, len(ours), len(theirs))
	}
}

// changes are the records of the table's stream, as text.
func (d *differential) changes(url string) []string {
	arn := raw(d.T, url, "DescribeTable", document{"TableName": d.table}).body["Table"].(document)["LatestStreamArn"]
	description := raw(d.T, url, "DescribeStream", document{"StreamArn": arn}).body["StreamDescription"].(document)
	var out []string
	for _, sh := range description["Shards"].([]any) {
		it := raw(d.T, url, "GetShardIterator", document{"StreamArn": arn, "ShardId": sh.(document)["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}).body["ShardIterator"]
		for it != nil {
			page := raw(d.T, url, "GetRecords", document{"ShardIterator": it})
			records, _ := page.body["Records"].([]any)
			if len(records) == 0 {
				break
			}
			for _, r := range records {
				r := r.(document)
				change := decimal(r["dynamodb"]).(document)
				if was, is := change["OldImage"], change["NewImage"]; reflect.DeepEqual(was, is) {
					// Theirs has records of numbers that only changed their text.
					if url == d.ours {
						d.Errorf("a record of no change: %v", r)
					}
					continue
				}
				text, err := json.Marshal([]any{r["eventName"], change["Keys"], change["OldImage"], change["NewImage"]})
				if err != nil {
					d.Fatal(err)
				}
				out = append(out, string(text))
			}
			it = page.body["NextShardIterator"]
		}
	}
	return out
}
