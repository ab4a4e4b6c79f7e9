package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/eventproof/eventproof/provision"
	"github.com/eventproof/eventproof/provision/internal/proc"
)

// TestMain lets the test binary be the program that serves the stand-in.
func TestMain(m *testing.M) {
	if a := os.Args; len(a) == 7 && a[1] == "emulator" && a[2] == Name {
		if err := Serve(context.Background(), a[4], a[6], func(addr string) { fmt.Println(addr) }); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if cache := os.Getenv("PROVISION_TEST_RUNNER"); cache != "" {
		victim(cache)
	}
	os.Exit(m.Run())
}

func TestARealBrokerIsKilledPausedAndRestartedOnItsData(t *testing.T) {
	o := provision.Options{Kind: provision.Native, Fetch: true, Log: func(m string) { t.Log(m) }}
	cache, err := o.CacheDir() // fetching and preparing take long, so what is there is used
	if err != nil {
		t.Fatal(err)
	}
	o.Cache = cache
	b, err := find(t.Context(), o)
	if errors.Is(err, provision.ErrNoServer) {
		t.Skipf("NO KAFKA CAN BE STARTED HERE, so starting, killing and pausing one is not tested: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if b.archive() == "" {
		t.Error("the classes were not recorded")
	}
	begun := time.Now()
	s, err := Store().Select(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("usable %v after the call", time.Since(begun))
	if s.Kind() != provision.Native || s.Fidelity() != provision.Real || s.Version() != b.dist.version || s.Store() != Name {
		t.Errorf("%s %s %s %s", s, s.Kind(), s.Version(), s.Addr())
	}
	live(t, s)
}

func TestTheStandInIsKilledPausedAndRestartedOnItsData(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s, err := Store().Select(t.Context(), provision.Options{Kind: provision.Embedded, Cache: t.TempDir(), Exe: exe})
	if err != nil {
		t.Fatal(err)
	}
	if s.Kind() != provision.Embedded || s.Fidelity() != provision.Emulated {
		t.Errorf("%s %s %s", s, s.Kind(), s.Fidelity())
	}
	live(t, s)
}

// live takes a broker through what a run does to it and closes it.
func live(t *testing.T, s *provision.Server) {
	t.Helper()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if s.AdminURL() != "kafka://"+s.Addr() || !strings.HasPrefix(s.Addr(), "127.0.0.1:2") || !s.Can(provision.CanKill) {
		t.Errorf("%s %s %v", s.AdminURL(), s.Addr(), s.Abilities())
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(s.Addr()), kgo.DisableClientMetrics(), kgo.DefaultProduceTopic("kept"),
		kgo.DialTimeout(time.Second), kgo.RetryBackoffFn(func(int) time.Duration { return 5 * time.Millisecond }), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	begun := time.Now()
	created, err := kadm.NewClient(c).CreateTopic(ctx, 3, 1, nil, "kept")
	if err = errors.Join(err, created.Err); err != nil {
		t.Fatal(err)
	}
	stored := 0
	put := func(what string) {
		t.Helper()
		begun := time.Now()
		if err := c.ProduceSync(ctx, kgo.KeySliceRecord([]byte(strconv.Itoa(stored)), []byte("v"))).FirstErr(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		stored++
		t.Logf("%s: acknowledged after %v", what, time.Since(begun))
	}
	put("first record")
	t.Logf("topic and record %v, RSS %d MB", time.Since(begun), rss(t, s))
	for range 20 {
		put("more")
	}

	if err := s.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := probe(ctx, s.Addr()); err == nil {
		t.Error("a killed broker answers")
	}
	if err := s.Kill(ctx); err != nil {
		t.Errorf("second kill: %v", err)
	}
	if err := s.Pause(); !errors.Is(err, provision.ErrDead) {
		t.Errorf("pause of a dead broker: %v", err)
	}
	begun = time.Now()
	if err := s.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("usable %v after kill -9", time.Since(begun))
	put("after kill -9")
	t.Logf("acknowledged %v after kill -9", time.Since(begun))

	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() { answered <- c.ProduceSync(ctx, kgo.KeySliceRecord([]byte("paused"), nil)).FirstErr() }()
	select {
	case err := <-answered:
		t.Errorf("a paused broker answers: %v", err)
	case <-time.After(1500 * time.Millisecond): // longer than the broker's session
	}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Errorf("the record did not outlive the pause: %v", err)
	}
	stored++
	offsets, err := kadm.NewClient(c).ListEndOffsets(ctx, "kept")
	if err != nil || offsets.Error() != nil {
		t.Fatal(err, offsets.Error())
	}
	total := int64(0)
	offsets.Each(func(o kadm.ListedOffset) { total += o.Offset })
	if total != int64(stored) {
		t.Errorf("%d records of %d are there", total, stored)
	}
	dir := filepath.Dir(s.DataDir())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the data is still there: %v", err)
	}
	if err := s.Restart(ctx); !errors.Is(err, provision.ErrClosed) {
		t.Errorf("restart after close: %v", err)
	}
}

// rss is the broker's resident memory in MB, found by its working folder.
func rss(t *testing.T, s *provision.Server) int {
	t.Helper()
	pids, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, p := range pids {
		if cwd, err := os.Readlink(p); err != nil || cwd != filepath.Dir(s.DataDir()) {
			continue
		}
		b, err := os.ReadFile(filepath.Join(filepath.Dir(p), "statm"))
		if err != nil {
			t.Fatal(err)
		}
		pages, err := strconv.Atoi(strings.Fields(string(b))[1])
		if err != nil {
			t.Fatal(err)
		}
		return pages * os.Getpagesize() >> 20
	}
	t.Error("the broker does not work in its folder")
	return 0
}

// fakeJava makes a JAVA_HOME whose java is a script.
func fakeJava(t *testing.T, version, run string) (home string) {
	t.Helper()
	home = t.TempDir()
	if err := os.Mkdir(filepath.Join(home, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	text := "#!/bin/sh\nif [ \"$1\" = -version ]; then echo '" + version + "' >&2; exit; fi\n" + run + "\n"
	if err := os.WriteFile(filepath.Join(home, "bin", "java"), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return home
}

func TestOnlyAJavaThatCanRunKafkaIsUsed(t *testing.T) {
	for _, c := range []struct {
		name, home string
		major      int
		want       string // of what was tried
	}{
		{"new enough", fakeJava(t, `openjdk version "17.0.15" 2025-04-15`, ""), 17, ""},
		{"newer", fakeJava(t, `openjdk version "25" 2025-09-16`, ""), 25, ""},
		{"too old", fakeJava(t, `openjdk version "11.0.2" 2019-01-15`, ""), 0, "is Java 11.0.2; Kafka needs Java 17 or newer"},
		{"very old", fakeJava(t, `java version "1.8.0_402"`, ""), 0, "is Java 1.8.0_402; Kafka needs Java 17 or newer"},
		{"no Java", fakeJava(t, `hello`, ""), 0, "does not tell a version"},
		{"none", t.TempDir(), 0, "there is no program"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(envJava, c.home)
			j, tried := findJava(t.Context())
			switch {
			case c.major > 0 && (j == nil || j.major != c.major):
				t.Errorf("%+v, %v", j, tried)
			case c.major == 0 && (j != nil || len(tried) != 1 || !strings.Contains(tried[0].Result, c.want)):
				t.Errorf("%+v, %v", j, tried)
			}
		})
	}
}

func TestWithoutJavaAutoFallsBackWithOneWarningAndRequireRealDoesNot(t *testing.T) {
	t.Setenv(envJava, t.TempDir())
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var warnings []string
	o := provision.Options{Cache: t.TempDir(), Exe: exe, Fetch: true, Log: func(line string) {
		if strings.HasPrefix(line, "warning: ") {
			warnings = append(warnings, line)
		}
	}}
	s, err := Store().Select(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if s.Kind() != provision.Embedded || len(warnings) != 1 || !strings.Contains(warnings[0], "there is no program") {
		t.Errorf("%s, %q", s, warnings)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	o.RequireReal = true
	if _, err := Store().Select(t.Context(), o); !errors.Is(err, provision.ErrNoServer) || !strings.Contains(err.Error(), "Install Java 17") {
		t.Errorf("%v", err)
	}
	for _, opt := range Store().Inspect(t.Context(), o) {
		if opt.Name == provision.Native && (opt.Available || !strings.Contains(opt.Detail, "Install Java 17")) {
			t.Errorf("%+v", opt)
		}
	}
}

func TestAHalfDownloadedCacheIsNeverUsed(t *testing.T) {
	t.Setenv(envJava, fakeJava(t, `openjdk version "17.0.15" 2025-04-15`, "exit 1"))
	t.Setenv(envHome, "")
	for _, c := range []struct {
		name string
		jars map[int]string // content of the n-th jar
		want error
		say  string
	}{
		{"empty", nil, provision.ErrNotFetched, "are not in the cache"},
		{"half a jar", map[int]string{0: "half"}, provision.ErrChecksum, "damaged or missing"},
		{"an empty jar", map[int]string{7: ""}, provision.ErrChecksum, "damaged or missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := provision.Options{Kind: provision.Native, Cache: t.TempDir()}
			_, fs, err := cached(o.Cache)
			if err != nil || len(fs) != 45 {
				t.Fatal(len(fs), err)
			}
			if err := os.MkdirAll(jarFolder(o.Cache), 0o755); err != nil {
				t.Fatal(err)
			}
			for i, text := range c.jars {
				if err := os.WriteFile(filepath.Join(jarFolder(o.Cache), fs[i].Name()), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := fetched(t.Context(), o); !errors.Is(err, c.want) {
				t.Errorf("%v", err)
			}
			if _, err := Store().Select(t.Context(), o); !errors.Is(err, provision.ErrNoServer) {
				t.Errorf("%v", err)
			}
			if opt := inspectNative(t.Context(), o)[0]; opt.Available || !strings.Contains(opt.Detail, c.say) {
				t.Errorf("%+v", opt)
			}
		})
	}
}

func TestADamagedJarOfAWholeCacheIsFound(t *testing.T) {
	cache, err := provision.DefaultCache()
	if err != nil {
		t.Fatal(err)
	}
	_, fs, err := cached(cache)
	if err != nil {
		t.Fatal(err)
	}
	if wrong, err := check(jarFolder(cache), fs); len(wrong) > 0 {
		t.Skipf("THE JARS ARE NOT IN THE CACHE, so a damaged one among them is not tested: %v", firstOf(err))
	}
	own := provision.Options{Cache: t.TempDir()}
	if err := os.CopyFS(jarFolder(own.Cache), os.DirFS(jarFolder(cache))); err != nil {
		t.Fatal(err)
	}
	if _, err := fetched(t.Context(), own); err != nil {
		t.Errorf("a whole copy: %v", err)
	}
	path := filepath.Join(jarFolder(own.Cache), fs[3].Name())
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := fetched(t.Context(), own); !errors.Is(err, provision.ErrChecksum) || !strings.Contains(err.Error(), "1 of 45") || !strings.Contains(err.Error(), fs[3].Name()) {
		t.Errorf("one bit: %v", err)
	}
}

func TestKafkaHomeIsMeantWhereItIsSet(t *testing.T) {
	for _, c := range []struct{ name, jar, version, want string }{
		{"a distribution", "kafka_2.13-4.1.2.jar", "4.1.2", ""},
		{"an old one", "kafka_2.13-3.9.1.jar", "", "has Kafka 3.9.1; at least 4.0 is needed"},
		{"something else", "zookeeper.jar", "", "holds no jar kafka_2.13"},
		{"no folder libs", "", "", "no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			home := t.TempDir()
			if c.jar != "" {
				if err := os.Mkdir(filepath.Join(home, "libs"), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(home, "libs", c.jar), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv(envHome, home)
			t.Setenv(envJava, fakeJava(t, `openjdk version "17.0.15" 2025-04-15`, "exit 1"))
			d, err := installed()
			if d.version != c.version || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v, %v", d, err)
			}
			if c.want != "" {
				_, err := Store().Select(t.Context(), provision.Options{Kind: provision.Native, Cache: t.TempDir(), Fetch: true})
				if !errors.Is(err, provision.ErrNoServer) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v", err)
				}
			}
		})
	}
}

func TestABrokerThatNeverBecomesReadyIsEndedAndSaysWhy(t *testing.T) {
	for _, c := range []struct{ name, run, want string }{
		{"hangs", "echo '[2026] ERROR no quorum'; exec sleep 60", "does not answer"},
		{"ends", "echo '[2026] ERROR No readable meta.properties files found'; exit 1", "ended while starting (exit status 1): [2026] ERROR No readable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(envJava, fakeJava(t, `openjdk version "17.0.15" 2025-04-15`, c.run))
			j, tried := findJava(t.Context())
			if j == nil {
				t.Fatal(tried)
			}
			b := &broker{java: j, dist: distribution{version: "4.4.0", jars: []string{"a.jar"}}, prepared: t.TempDir()}
			if err := os.Mkdir(b.template(), 0o755); err != nil {
				t.Fatal(err)
			}
			p := b.program()
			p.Ready = 500 * time.Millisecond
			cache := t.TempDir()
			_, err := provision.StartChild(t.Context(), p, cache, "")
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
			if left, _ := filepath.Glob(filepath.Join(cache, "servers", "*")); len(left) != 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

func TestABrokerIsUsableWhenItIsAMemberAndEveryPartitionHasALeader(t *testing.T) {
	broker := func(host string, port int32) kmsg.MetadataResponseBroker {
		return kmsg.MetadataResponseBroker{Host: host, Port: port}
	}
	topic := func(leader int32) []kmsg.MetadataResponseTopic {
		return []kmsg.MetadataResponseTopic{{Topic: kmsg.StringPtr("t"), Partitions: []kmsg.MetadataResponseTopicPartition{{Leader: 1}, {Partition: 1, Leader: leader}}}}
	}
	for _, c := range []struct {
		name string
		meta kmsg.MetadataResponse
		want string
	}{
		{"usable", kmsg.MetadataResponse{Brokers: []kmsg.MetadataResponseBroker{broker("127.0.0.1", 20001)}, Topics: topic(1)}, ""},
		{"by name", kmsg.MetadataResponse{Brokers: []kmsg.MetadataResponseBroker{broker("localhost", 20001)}}, ""},
		{"no member", kmsg.MetadataResponse{}, "no member"},
		{"another address", kmsg.MetadataResponse{Brokers: []kmsg.MetadataResponseBroker{broker("broker.example", 9092)}}, "go to broker.example:9092 instead of 127.0.0.1:20001"},
		{"without a leader", kmsg.MetadataResponse{Brokers: []kmsg.MetadataResponseBroker{broker("127.0.0.1", 20001)}, Topics: topic(-1)}, "partition 1 of topic t has no leader"},
	} {
		err := usable(&c.meta, "127.0.0.1:20001")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestExternalBrokersAreChecked(t *testing.T) {
	for _, c := range []struct {
		url    string
		remote bool
		want   string
	}{
		{"kafka://127.0.0.1:9092", false, ""},
		{"kafka://localhost:9092/", false, ""},
		{"kafka://broker.example:9092", true, ""},
		{"kafka://broker.example:9092", false, "--allow-remote"},
		{"kafka://127.0.0.1", false, "the form kafka://host:port"},
		{"127.0.0.1:9092", false, "the form"},
		{"http://127.0.0.1:9092", false, "the form"},
		{"kafka://u:geheim@127.0.0.1:9092", false, "not supported"},
		{"kafka://127.0.0.1:9092?password=geheim", false, "not supported"},
	} {
		err := CheckURL(c.url, c.remote)
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "geheim")) {
			t.Errorf("%s: %v", c.url, err)
		}
	}
}

func TestWhatIsNoBrokerIsToldApart(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			_ = c.Close()
		}
	}()
	if _, err := OpenExternal(t.Context(), "kafka://"+l.Addr().String(), false); err == nil || !strings.Contains(err.Error(), "does not answer as a Kafka broker does") {
		t.Errorf("an HTTP server: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	<-done
}

func TestTheStandInTakesNoAddressThatOthersReachOrThatChanges(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:29092", "127.0.0.1:0", "10.1.2.3:29092", "29092"} {
		if err := Serve(t.Context(), addr, t.TempDir(), func(string) { t.Errorf("%s is served", addr) }); err == nil {
			t.Errorf("%s: no error", addr)
		}
	}
}

func TestAKilledRunnerLeavesNoBroker(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	cmd := exec.Command(exe, "-test.run=^$")
	cmd.Env = append(os.Environ(), "PROVISION_TEST_RUNNER="+cache)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 500)
	n, err := out.Read(line)
	addr, ok := strings.CutPrefix(strings.TrimSpace(string(line[:n])), "ready ")
	if !ok {
		t.Fatalf("%q, %v", line[:n], err)
	}
	if _, err := probe(t.Context(), addr); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	removed, err := provision.Sweep(cache)
	if err != nil || len(removed) != 1 {
		t.Fatalf("removed %q, %v", removed, err)
	}
	if _, err := os.Stat(removed[0]); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", removed[0], err)
	}
	if left := proc.WorkingIn(removed[0]); len(left) != 0 {
		t.Errorf("left: %+v", left)
	}
	if _, err := probe(t.Context(), addr); err == nil {
		t.Error("the broker still answers")
	}
}

// victim starts a stand-in and waits to be killed.
func victim(cache string) {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	s, err := Store().Select(context.Background(), provision.Options{Kind: provision.Embedded, Cache: cache, Exe: exe})
	if err != nil {
		panic(err)
	}
	fmt.Println("ready", s.Addr())
	select {}
}
