package dynamodb_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/eventproof/eventproof/emulators/dynamodb"
)

// childEnv makes the test binary a server on the folder that it names, until it is killed or its input ends.
const childEnv = "EVENTPROOF_TEST_DYNAMODB_DIR"

func TestMain(m *testing.M) {
	dir := os.Getenv(childEnv)
	if dir == "" {
		os.Exit(m.Run())
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		cancel()
	}()
	err := dynamodb.Serve(ctx, "127.0.0.1:0", dynamodb.Options{Dir: dir, Fsync: os.Getenv(childEnv+"_FSYNC") != "", Window: 50 * time.Microsecond},
		func(address string) { fmt.Println(address) })
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// child starts a server process on dir.
func child(t testing.TB, dir string, fsync bool) (*bench, *exec.Cmd) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	if fsync {
		cmd.Env = append(cmd.Env, childEnv+"_FSYNC=1")
	}
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	address, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{url: "http://" + strings.TrimSpace(address)}
	b.db, b.streams = clients(t, b.url)
	return b, cmd
}

func TestNothingAcknowledgedIsLostByKill9(t *testing.T) {
	for name, fsync := range map[string]bool{"written": false, "flushed": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			b, cmd := child(t, dir, fsync)
			b.table(t, "tab")
			once := txAdd(key("token", "1"), 1)
			wantCode(t, b.transact("before-the-kill", once), "")
			var mu sync.Mutex
			acked := map[string]bool{}
			unknown := map[string]bool{}
			pairs := map[string]bool{}
			var writes atomic.Int64
			var wg sync.WaitGroup
			for w := range 12 {
				wg.Go(func() {
					for i := 0; ; i++ {
						id := fmt.Sprintf("%02d-%06d", w, i)
						var err error
						if w%3 == 0 {
							err = b.transact("", txPut(key("left", id), ""), txPut(key("right", id), ""), txAdd(key("count", fmt.Sprint(w)), 1))
						} else {
							err = b.tryPut(key("left", id))
						}
						mu.Lock()
						pairs[id] = w%3 == 0
						acked[id] = err == nil
						unknown[id] = strings.HasPrefix(code(err), "not an answer")
						ended := err != nil && unknown[id]
						mu.Unlock()
						if ended {
							return
						}
						if err == nil {
							writes.Add(1)
						}
					}
				})
			}
			for writes.Load() < 400 {
				time.Sleep(time.Millisecond)
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			wg.Wait()

			began := time.Now()
			again, _ := child(t, dir, fsync)
			t.Logf("%d acknowledged; usable again after %v", writes.Load(), time.Since(began))
			lost, half, applied := 0, 0, 0
			for id := range acked {
				left, right := again.get(t, "tab", key("left", id)) != nil, again.get(t, "tab", key("right", id)) != nil
				if acked[id] && !left {
					lost++
				}
				if pairs[id] && left != right {
					half++
				}
				if unknown[id] && left {
					applied++
				}
			}
			if lost > 0 || half > 0 {
				t.Errorf("%d lost, %d half", lost, half)
			}
			t.Logf("of %d unanswered, %d were applied", 12, applied)
			wantCode(t, again.transact("before-the-kill", once), "")
			wantCode(t, again.transact("before-the-kill", txAdd(key("token", "1"), 2)), "IdempotentParameterMismatchException")
			if got := text(again.get(t, "tab", key("token", "1"))); got != `pk="token" sk="1" v=1` {
				t.Errorf("the token was forgotten: %s", got)
			}
			all := again.everything(t, "tab")
			last := ""
			for _, r := range all {
				if *r.Dynamodb.SequenceNumber <= last {
					t.Fatalf("sequence number %s after %s", *r.Dynamodb.SequenceNumber, last)
				}
				last = *r.Dynamodb.SequenceNumber
			}
			again.put(t, "tab", key("after", "1"))
			if more := again.everything(t, "tab"); len(more) != len(all)+1 || *more[len(all)].Dynamodb.SequenceNumber <= last {
				t.Errorf("%d records, then %d", len(all), len(more))
			}
		})
	}
}

// contents is all that can be seen of a server from outside, as text.
func (b *bench) contents(t testing.TB) string {
	t.Helper()
	var out strings.Builder
	names, err := b.db.ListTables(context.Background(), &sdk.ListTablesInput{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names.TableNames {
		d, err := b.db.DescribeTable(context.Background(), &sdk.DescribeTableInput{TableName: &name})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&out, name, *d.Table.ItemCount, *d.Table.TableSizeBytes, *d.Table.TableId, d.Table.CreationDateTime.UnixMilli())
		scan, err := b.db.Scan(context.Background(), &sdk.ScanInput{TableName: &name})
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range scan.Items {
			fmt.Fprintln(&out, text(it))
		}
		if d.Table.StreamSpecification != nil {
			for _, r := range b.everything(t, name) {
				fmt.Fprintln(&out, *r.Dynamodb.SequenceNumber, line(r), r.Dynamodb.ApproximateCreationDateTime.UnixMilli())
			}
		}
	}
	return out.String()
}

// history writes something of every kind.
func history(t *testing.T, b *bench) {
	b.table(t, "tab")
	b.table(t, "gone")
	b.put(t, "gone", key("a", "1"))
	if _, err := b.db.DeleteTable(context.Background(), &sdk.DeleteTableInput{TableName: aws.String("gone")}); err != nil {
		t.Fatal(err)
	}
	b.fill(t, "a", 5, "bin", &types.AttributeValueMemberB{Value: []byte{0, 255, 10}}, "txt", s("a\n\"ü\u2028"), "l", &types.AttributeValueMemberL{Value: []types.AttributeValue{}},
		"m", &types.AttributeValueMemberM{Value: attrs{}}, "null", &types.AttributeValueMemberNULL{Value: true}, "num", n("1.50"), "e", s(""))
	if err := b.SplitShards("tab"); err != nil {
		t.Fatal(err)
	}
	b.put(t, "tab", with(key("a", "001"), "v", n(1)))
	if _, err := b.db.DeleteItem(context.Background(), &sdk.DeleteItemInput{TableName: aws.String("tab"), Key: key("a", "002")}); err != nil {
		t.Fatal(err)
	}
	wantCode(t, b.transact("token", txAdd(key("a", "head"), 1), txPut(key("b", "1"), "")), "")
}

func TestAReplayGivesWhatWasThere(t *testing.T) {
	dir := t.TempDir()
	b := start(t, dynamodb.Options{Dir: dir, Shards: 2})
	history(t, b)
	want := b.contents(t)
	b.stop()
	for range 2 {
		began := time.Now()
		again := start(t, dynamodb.Options{Dir: dir, Shards: 7, Fsync: true})
		t.Logf("opened in %v", time.Since(began))
		if got := again.contents(t); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		again.stop()
	}
}

func TestATornTailIsCutAndADamagedMiddleRefused(t *testing.T) {
	dir := t.TempDir()
	b := start(t, dynamodb.Options{Dir: dir})
	b.table(t, "tab")
	b.fill(t, "a", 3)
	b.stop()
	path := filepath.Join(dir, dynamodb.LogName)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(whole, []byte("\n"))
	tail := lines[len(lines)-2]
	for cut := 1; cut <= len(tail); cut += 7 {
		if err := os.WriteFile(path, whole[:len(whole)-cut], 0o600); err != nil {
			t.Fatal(err)
		}
		again := start(t, dynamodb.Options{Dir: dir})
		if again.get(t, "tab", key("a", "002")) != nil || again.get(t, "tab", key("a", "001")) == nil {
			t.Errorf("cut by %d: the wrong records are there", cut)
		}
		again.put(t, "tab", key("a", "new"))
		again.stop()
		third := start(t, dynamodb.Options{Dir: dir})
		if third.get(t, "tab", key("a", "new")) == nil {
			t.Errorf("cut by %d: what was written after the cut is lost", cut)
		}
		third.stop()
	}
	for name, damaged := range map[string][]byte{
		"a bit":        bytes.Replace(whole, []byte(`"001"`), []byte(`"0O1"`), 1),
		"a line":       bytes.Join(append(append([][]byte{}, lines[:3]...), lines[4:]...), nil),
		"another file": []byte("11 00000000 hello world\n" + string(tail)),
	} {
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := dynamodb.Open(dynamodb.Options{Dir: dir}); !errors.Is(err, dynamodb.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestALogHasOneServer(t *testing.T) {
	dir := t.TempDir()
	b := start(t, dynamodb.Options{Dir: dir})
	if _, err := dynamodb.Open(dynamodb.Options{Dir: dir}); !errors.Is(err, dynamodb.ErrLocked) {
		t.Error(err)
	}
	b.stop()
	start(t, dynamodb.Options{Dir: dir})
}

func TestAClosedServerAcknowledgesNothing(t *testing.T) {
	b := start(t, dynamodb.Options{Dir: t.TempDir()})
	b.table(t, "tab")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	wantCode(t, b.tryPut(key("a", "1")), "InternalServerError")
	if b.State().Broken == "" {
		t.Error("the state does not tell")
	}
}

// TestTheLogCanBeReadByItsDescription decodes a log by what the package comment says, with no code of the package.
func TestTheLogCanBeReadByItsDescription(t *testing.T) {
	dir := t.TempDir()
	b := start(t, dynamodb.Options{Dir: dir, Shards: 2})
	history(t, b)
	items := map[string]string{}
	shards := map[uint64]int{}
	var tokens []string
	raw, err := os.ReadFile(filepath.Join(dir, dynamodb.LogName))
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n") {
		var length int
		var sum uint32
		if _, err := fmt.Sscanf(line, "%d %x ", &length, &sum); err != nil {
			t.Fatal(err)
		}
		body := strings.SplitN(line, " ", 3)[2]
		if len(body) != length || crc32.Checksum([]byte(body), crc32.MakeTable(crc32.Castagnoli)) != sum {
			t.Fatalf("line %d: length or checksum", i)
		}
		var rec struct {
			N      int
			Kind   string
			Table  string
			Format string
			Writes []struct {
				Table string
				Key   json.RawMessage
				Item  *json.RawMessage
				Seq   uint64
				Shard int
			}
			Token struct{ ID string }
		}
		if err := json.Unmarshal([]byte(body), &rec); err != nil {
			t.Fatal(err)
		}
		if rec.N != i+1 || (i == 0) != (rec.Format == "eventproof-dynamodb-log/1") {
			t.Fatalf("line %d: %s", i, body)
		}
		if rec.Kind == "delete-table" {
			for k := range items {
				if strings.HasPrefix(k, rec.Table+" ") {
					delete(items, k)
				}
			}
		}
		for _, w := range rec.Writes {
			if w.Item == nil {
				delete(items, w.Table+" "+string(w.Key))
			} else {
				items[w.Table+" "+string(w.Key)] = string(*w.Item)
			}
			if w.Table == "tab" {
				shards[w.Seq] = w.Shard
			}
		}
		if rec.Token.ID != "" {
			tokens = append(tokens, rec.Token.ID)
		}
	}
	if len(items) != 6 || items[`tab {"pk":{"S":"a"},"sk":{"S":"001"}}`] != `{"pk":{"S":"a"},"sk":{"S":"001"},"v":{"N":"1"}}` || strings.Join(tokens, " ") != "token" {
		t.Errorf("%v %v", items, tokens)
	}
	for _, r := range b.everything(t, "tab") {
		var base, seq uint64
		if _, err := fmt.Sscanf(*r.Dynamodb.SequenceNumber, "%2d%d", &base, &seq); err != nil || base != 10 {
			t.Fatal(*r.Dynamodb.SequenceNumber)
		}
		if _, ok := shards[seq]; !ok {
			t.Errorf("record %s is not in the log", *r.Dynamodb.SequenceNumber)
		}
		delete(shards, seq)
	}
	if len(shards) != 0 {
		t.Errorf("%v are not in the stream", shards)
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	ready := make(chan string, 1)
	done := make(chan error, 1)
	began := time.Now()
	go func() {
		done <- dynamodb.Serve(ctx, "127.0.0.1:0", dynamodb.Options{Dir: t.TempDir()}, func(address string) { ready <- address })
	}()
	address := <-ready
	t.Logf("ready after %v", time.Since(began))
	b := &bench{url: "http://" + address}
	b.db, b.streams = clients(t, b.url)
	b.table(t, "tab")
	var st dynamodb.State
	if _, got := b.admin(t, "GET", dynamodb.StatePath, ""); json.Unmarshal([]byte(got), &st) != nil || st.Connections < 1 || st.Record != 2 {
		t.Errorf("%+v", st)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := dynamodb.Serve(context.Background(), "127.0.0.1:notaport", dynamodb.Options{}, nil); err == nil {
		t.Error("served on no address")
	}
}
