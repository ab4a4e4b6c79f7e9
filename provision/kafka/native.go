package kafka

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/eventproof/eventproof/provision"
)

// settings are those of every broker of ours. What is flushed to disk is at Kafka's defaults, since durability is
// judged.
//
//go:embed server.properties
var settings []byte

//go:embed log4j2.properties
var logSettings []byte

const (
	readyTimeout    = 60 * time.Second
	trainingTimeout = 90 * time.Second
	cluster         = "nx3wxNXoSI2nZkRU5K7lHw" // of every broker of ours; they never meet
)

// broker is what a broker is started from.
type broker struct {
	java *java
	dist distribution
	// prepared holds the formatted data folder that every broker begins with, and the archive of classes.
	prepared string
}

func (b *broker) template() string { return filepath.Join(b.prepared, "template") }

// archive returns the file with the classes of an earlier run, "" if there is none.
func (b *broker) archive() string {
	path := filepath.Join(b.prepared, "classes")
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// find gets Java and Kafka, fetching and preparing what is missing. It reports what was tried in a NoServerError.
func find(ctx context.Context, o provision.Options) (*broker, error) {
	fail := func(tried ...provision.Try) error {
		return &provision.NoServerError{Title: title, Tried: tried, Remedy: Store().Remedy}
	}
	j, tried := findJava(ctx)
	if j == nil {
		return nil, fail(tried...)
	}
	b := &broker{java: j}
	named := os.Getenv(envHome) != ""
	var err error
	if named {
		if b.dist, err = installed(); err != nil {
			return nil, fail(provision.Try{What: "Kafka of " + envHome, Result: err.Error()})
		}
	} else if b.dist, _, err = cached(o.Cache); err != nil {
		return nil, err
	}
	if b.use(o.Cache) == nil {
		return b, nil // what was prepared was checked before, and is the same by size and time
	}
	unlock, err := provision.Lock(ctx, o.Cache, "kafka")
	if err != nil {
		return nil, err
	}
	defer unlock()
	if !named {
		if b.dist, err = fetched(ctx, o); err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			return nil, fail(provision.Try{What: "fetched jars", Result: err.Error()})
		}
	}
	if b.use(o.Cache) == nil {
		return b, nil // another run was faster
	}
	if err := b.prepare(ctx, o); err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		return nil, fail(provision.Try{What: "Kafka " + b.dist.version + " on Java " + j.version, Result: err.Error()})
	}
	return b, nil
}

// use makes b use what was prepared for it before.
func (b *broker) use(cache string) error {
	key, err := b.dist.key(b.java)
	if err != nil {
		return err
	}
	b.prepared = filepath.Join(cache, "kafka-"+b.dist.version+"-"+key)
	_, err = os.Stat(b.template())
	return err
}

// prepare formats a data folder and records which classes a broker loads. Both are put in place together.
func (b *broker) prepare(ctx context.Context, o provision.Options) error {
	final := b.prepared
	tmp, err := os.MkdirTemp(o.Cache, "prepare-")
	if err != nil {
		return fmt.Errorf("provision: cache folder: %w", err)
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // a leftover in the cache does no harm
	b.prepared = tmp
	defer func() { b.prepared = final }()
	o.Logf("kafka: preparing Kafka %s on Java %s, once (about 15 s)", b.dist.version, b.java.version)
	ctx, cancel := context.WithTimeout(ctx, trainingTimeout)
	defer cancel()
	if err := b.train(ctx, o); err != nil {
		return err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return fmt.Errorf("provision: %w", err)
	}
	if err := os.Rename(tmp, final); err != nil {
		return fmt.Errorf("provision: %w", err)
	}
	return nil
}

// train runs a broker once: from an empty folder, which is kept formatted, and through what a trial does, so that the
// archive of classes holds what later ones need. A broker without an archive is only slower to start.
func (b *broker) train(ctx context.Context, o provision.Options) error {
	p := b.program()
	p.Prepare = func(ctx context.Context, c *provision.Child) error {
		if err := b.configure(c, filepath.Join(c.Dir(), "format.properties"), 1, 2); err != nil {
			return err
		}
		args := b.args("", "kafka.tools.StorageTool", "format", "-t", cluster, "-c", filepath.Join(c.Dir(), "format.properties"))
		if err := c.Run(ctx, args, nil); err != nil {
			return err
		}
		return os.CopyFS(b.template(), os.DirFS(c.Data()))
	}
	archive := filepath.Join(b.prepared, "classes")
	p.Command = func(c *provision.Child) (args, env []string, err error) {
		return b.command(c, b.java.dump(archive))
	}
	c, err := provision.StartChild(ctx, p, o.Cache, "")
	if err != nil {
		return err
	}
	err = exercise(ctx, c.Addr())
	if err == nil {
		err = c.Terminate(ctx)
	}
	if err != nil && ctx.Err() == nil {
		o.Logf("kafka: brokers will start more slowly, since their classes could not be recorded: %v", err)
		err = os.RemoveAll(archive)
	}
	return errors.Join(err, c.Close())
}

// exercise makes a broker load what a trial needs: topics, a transaction, a committed read.
func exercise(ctx context.Context, addr string) (err error) {
	const topic = "exercise"
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DisableClientMetrics(), kgo.TransactionalID(topic),
		kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		return err
	}
	defer client.Close()
	created, err := kadm.NewClient(client).CreateTopic(ctx, 1, 1, map[string]*string{"cleanup.policy": new("compact")}, topic)
	if err = errors.Join(err, created.Err); err != nil {
		return err
	}
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	record := &kgo.Record{Topic: topic, Key: []byte(topic), Value: []byte(topic)}
	if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
		return err
	}
	if err := client.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return err
	}
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		if fetches.NumRecords() > 0 {
			return nil
		}
	}
}

// program runs one node on a copy of the formatted folder.
func (b *broker) program() provision.Program {
	return provision.Program{
		Store: Name, Ports: 2, Ready: readyTimeout,
		Prepare: func(_ context.Context, c *provision.Child) error {
			if err := os.CopyFS(c.Data(), os.DirFS(b.template())); err != nil {
				return fmt.Errorf("provision: %w", err)
			}
			return nil
		},
		Command: func(c *provision.Child) (args, env []string, err error) { return b.command(c) },
		Probe: func(ctx context.Context, addr string) (string, error) {
			_, err := probe(ctx, addr)
			return b.dist.version, err
		},
	}
}

// command writes the broker's settings and returns how to start it.
func (b *broker) command(c *provision.Child, flags ...string) (args, env []string, err error) {
	file := filepath.Join(c.Dir(), "server.properties")
	if err := b.configure(c, file, c.Port(0), c.Port(1)); err != nil {
		return nil, nil, err
	}
	logs := filepath.Join(c.Dir(), "log4j2.properties")
	if err := os.WriteFile(logs, logSettings, 0o600); err != nil {
		return nil, nil, fmt.Errorf("provision: %w", err)
	}
	args = b.args(b.archive(), "kafka.Kafka", file)
	return append([]string{args[0], "-Dlog4j2.configurationFile=" + logs, "-Djava.io.tmpdir=" + c.Dir()}, append(flags, args[1:]...)...), nil, nil
}

func (b *broker) args(archive string, main ...string) []string {
	args := append([]string{b.java.path}, b.java.flags(archive)...)
	return append(append(args, "-cp", b.dist.classPath()), main...)
}

// configure writes the settings with the folder and the ports.
func (b *broker) configure(c *provision.Child, file string, client, controller int) error {
	var out bytes.Buffer
	out.Write(settings)
	fmt.Fprintf(&out, "log.dirs=%s\ncontroller.quorum.voters=1@127.0.0.1:%d\nlisteners=CLIENT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d\nadvertised.listeners=CLIENT://127.0.0.1:%d\n",
		c.Data(), controller, client, controller, client)
	if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
		return fmt.Errorf("provision: %w", err)
	}
	return nil
}

func native(ctx context.Context, o provision.Options) (*provision.Server, error) {
	b, err := find(ctx, o)
	if err != nil {
		return nil, err
	}
	c, err := provision.StartChild(ctx, b.program(), o.Cache, o.Logs)
	if err != nil {
		return nil, err
	}
	s := provision.NewServer(provision.Info{
		Store: Name, Title: title, Kind: provision.Native, Fidelity: provision.Real, Version: c.Version(),
		URL: scheme + c.Addr(), Addr: c.Addr(), DataDir: c.Data(), Logs: c.Log(),
	}, c)
	o.Logf("kafka: %s: native, %s, on Java %s", s, b.dist.why, b.java.version)
	return s, nil
}

// fetchNative gets the jars also where there is no Java yet, and prepares them where there is.
func fetchNative(ctx context.Context, o provision.Options) error {
	if j, _ := findJava(ctx); j != nil {
		_, err := find(ctx, o)
		return err
	}
	if os.Getenv(envHome) != "" {
		return nil
	}
	unlock, err := provision.Lock(ctx, o.Cache, "kafka")
	if err != nil {
		return err
	}
	defer unlock()
	_, err = fetched(ctx, o)
	return err
}

func inspectNative(ctx context.Context, o provision.Options) []provision.Option {
	opt := provision.Option{Name: provision.Native}
	j, tried := findJava(ctx)
	if j == nil {
		no := provision.NoServerError{Title: title, Tried: tried, Remedy: "Install Java 17 or newer (Debian: apt-get install openjdk-17-jre-headless)"}
		opt.Detail = no.Error()
		return []provision.Option{opt}
	}
	on := " on Java " + j.version + " (" + j.path + ")"
	if os.Getenv(envHome) != "" {
		d, err := installed()
		if err != nil {
			opt.Detail = err.Error()
		} else {
			opt.Available, opt.Detail = true, "Kafka "+d.version+on+", "+d.why
		}
		return []provision.Option{opt}
	}
	cache, err := o.CacheDir()
	if err != nil {
		opt.Detail = err.Error()
		return []provision.Option{opt}
	}
	_, fs, err := cached(cache)
	if err != nil {
		opt.Detail = err.Error()
		return []provision.Option{opt}
	}
	switch wrong, why := check(jarFolder(cache), fs); {
	case len(wrong) == 0:
		opt.Available, opt.Detail = true, "Kafka "+pinned+on+", jars in the cache"
	case len(wrong) == len(fs) && !errors.Is(why, provision.ErrChecksum):
		opt.Detail = "Java " + j.version + " is here; the jars of Kafka " + pinned + " are not in the cache; eventproof doctor --fetch gets them (44 MB)"
	default:
		opt.Detail = fmt.Sprintf("%d of %d jars in the cache are damaged or missing (%v); eventproof doctor --fetch gets them again", len(wrong), len(fs), firstOf(why))
	}
	return []provision.Option{opt}
}
