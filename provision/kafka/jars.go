package kafka

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/eventproof/eventproof/provision"
)

const (
	envHome = "KAFKA_HOME"
	// pinned is the version of the jars that are fetched.
	pinned       = "4.4.0"
	fetchTimeout = 5 * time.Minute
	fetchers     = 4
)

// pinnedJars lists the jars of org.apache.kafka:kafka_2.13 with all they need, and log4j's binding, which Kafka leaves
// to the distribution: checksum and path in the repository.
//
//go:embed jars.txt
var pinnedJars string

//go:embed pom.xml
var pom []byte

// files parses pinnedJars.
func files() ([]provision.File, error) {
	var out []provision.File
	for line := range strings.Lines(pinnedJars) {
		sum, path, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok {
			return nil, fmt.Errorf("provision: list of jars: %q", line)
		}
		out = append(out, provision.File{Path: path, SHA256: sum})
	}
	return out, nil
}

// distribution is a set of jars that make a broker.
type distribution struct {
	version string
	jars    []string // paths, sorted by name
	why     string
}

// classPath names every jar, so that the order, and with it the archive, does not depend on the file system.
func (d distribution) classPath() string { return strings.Join(d.jars, string(os.PathListSeparator)) }

// key identifies the jars as files on this disk together with the Java that runs them.
func (d distribution) key(j *java) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n", j.path, j.version)
	for _, jar := range d.jars {
		st, err := os.Stat(jar)
		if err != nil {
			return "", fmt.Errorf("provision: %w", err)
		}
		fmt.Fprintf(h, "%s %d %d\n", jar, st.Size(), st.ModTime().UnixNano())
	}
	const enough = 16
	return hex.EncodeToString(h.Sum(nil))[:enough], nil
}

var coreJar = regexp.MustCompile(`^kafka_2\.\d+-(\d+)\.(\d+\.\d+)\.jar$`)

const minKafka = "4"

// installed returns the distribution that KAFKA_HOME names.
func installed() (distribution, error) {
	home, err := filepath.Abs(os.Getenv(envHome))
	if err != nil {
		return distribution{}, err
	}
	entries, err := os.ReadDir(filepath.Join(home, "libs"))
	if err != nil {
		return distribution{}, fmt.Errorf("%s: %w", envHome, err)
	}
	d := distribution{why: "of " + envHome + " " + home}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".jar" {
			continue
		}
		d.jars = append(d.jars, filepath.Join(home, "libs", e.Name()))
		if m := coreJar.FindStringSubmatch(e.Name()); m != nil {
			if len(m[1]) == 1 && m[1] < minKafka {
				return distribution{}, fmt.Errorf("%s %s has Kafka %s.%s; at least %s.0 is needed", envHome, home, m[1], m[2], minKafka)
			}
			d.version = m[1] + "." + m[2]
		}
	}
	if d.version == "" {
		return distribution{}, fmt.Errorf("%s: %s holds no jar kafka_2.13-VERSION.jar", envHome, filepath.Join(home, "libs"))
	}
	return d, nil
}

func jarFolder(cache string) string { return filepath.Join(cache, "kafka-"+pinned+"-jars") }

// cached returns the distribution in the cache, whether its files are there or not.
func cached(cache string) (distribution, []provision.File, error) {
	fs, err := files()
	if err != nil {
		return distribution{}, nil, err
	}
	d := distribution{version: pinned, why: "fetched, in " + jarFolder(cache)}
	for _, f := range fs {
		d.jars = append(d.jars, filepath.Join(jarFolder(cache), f.Name()))
	}
	return d, fs, nil
}

// check returns the files that are not in dir as they should be, and why.
func check(dir string, fs []provision.File) (wrong []provision.File, err error) {
	var errs []error
	for _, f := range fs {
		if err := f.Check(filepath.Join(dir, f.Name())); err != nil {
			wrong = append(wrong, f)
			errs = append(errs, err)
		}
	}
	return wrong, errors.Join(errs...)
}

// fetched makes sure that every jar is in the cache with its checksum.
func fetched(ctx context.Context, o provision.Options) (distribution, error) {
	d, fs, err := cached(o.Cache)
	if err != nil {
		return distribution{}, err
	}
	dir := jarFolder(o.Cache)
	wrong, why := check(dir, fs)
	switch {
	case len(wrong) == 0:
		return d, nil
	case !o.Fetch && !errors.Is(why, provision.ErrChecksum) && len(wrong) == len(fs):
		return distribution{}, provision.ErrNotFetched
	case !o.Fetch:
		return distribution{}, fmt.Errorf("%d of %d jars in the cache are damaged or half downloaded (fetch again): %w", len(wrong), len(fs), firstOf(why))
	}
	if errors.Is(why, provision.ErrChecksum) {
		o.Logf("kafka: fetching again: %v", firstOf(why))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return distribution{}, fmt.Errorf("provision: cache folder: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	o.Logf("kafka: fetching Apache Kafka %s (%d jars of 44 MB, download)", pinned, len(wrong))
	derr := download(ctx, dir, wrong)
	if derr == nil {
		return d, nil
	}
	if ctx.Err() != nil {
		return distribution{}, derr
	}
	o.Logf("kafka: fetching Apache Kafka %s (mvn), since downloading failed: %v", pinned, derr)
	if err := byMaven(ctx, dir, wrong); err != nil {
		return distribution{}, fmt.Errorf("download: %w; mvn: %w", derr, err)
	}
	return d, nil
}

// firstOf returns one of joined errors: for people, 45 that say the same are none the better.
func firstOf(err error) error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		for _, e := range joined.Unwrap() {
			if errors.Is(e, provision.ErrChecksum) {
				return e
			}
		}
		return joined.Unwrap()[0]
	}
	return err
}

func download(ctx context.Context, dir string, fs []provision.File) error {
	client := &http.Client{}
	defer client.CloseIdleConnections()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(fetchers)
	for _, f := range fs {
		g.Go(func() error {
			if err := f.Download(ctx, client, filepath.Join(dir, f.Name())); err != nil {
				return fmt.Errorf("%s: %w", f.Name(), err)
			}
			return nil
		})
	}
	return g.Wait()
}

func byMaven(ctx context.Context, dir string, fs []provision.File) error {
	tmp, err := os.MkdirTemp(dir, "fetch-")
	if err != nil {
		return fmt.Errorf("provision: cache folder: %w", err)
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // a leftover in the cache does no harm
	if err := os.WriteFile(filepath.Join(tmp, "pom.xml"), pom, 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "mvn", "-q", "-B", "dependency:copy-dependencies")
	cmd.Dir = tmp
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, provision.LastLines(strings.NewReader(string(out))))
	}
	for _, f := range fs {
		if err := f.Import(filepath.Join(tmp, "lib", f.Name()), filepath.Join(dir, f.Name())); err != nil {
			return err
		}
	}
	return nil
}
