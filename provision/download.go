package provision

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
	"golang.org/x/sys/unix"
)

var (
	// ErrChecksum says that a file is not the one that was pinned.
	ErrChecksum = errors.New("provision: checksum does not match")
	// ErrNotFetched says that fetching was needed and not allowed.
	ErrNotFetched = errors.New("provision: not fetched yet and fetching was not allowed")
)

// fileLimit is more than any of the published files has.
const fileLimit = 64 << 20

// File is a published file that is pinned by its checksum.
type File struct {
	Path   string // in the repository: group/artifact/version/name
	SHA256 string
}

// Name returns the file's own name.
func (f File) Name() string { return path.Base(f.Path) }

// Check reads a file and reports ErrChecksum if it is not this one.
func (f File) Check(name string) error {
	in, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("provision: %w", err)
	}
	defer in.Close() //nolint:errcheck // it was only read
	h := sha256.New()
	if _, err := io.Copy(h, in); err != nil {
		return fmt.Errorf("provision: %w", err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != f.SHA256 {
		return fmt.Errorf("%w: %s has SHA-256 %s, expected %s", ErrChecksum, name, got, f.SHA256)
	}
	return nil
}

// Download gets the file from the public repository by plain HTTP; it has the name dst only if the checksum is right.
func (f File) Download(ctx context.Context, client *http.Client, dst string) error {
	base, err := repository()
	if err != nil {
		return err
	}
	return f.downloadFrom(ctx, client, base, dst)
}

func (f File) downloadFrom(ctx context.Context, client *http.Client, base, dst string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/"+f.Path, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the repository answers %s", resp.Status)
	}
	return f.put(io.LimitReader(resp.Body, fileLimit), dst)
}

// Import copies a file that something else has got, by the same rule as Download.
func (f File) Import(from, dst string) error {
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("provision: %w", err)
	}
	defer in.Close() //nolint:errcheck // it was only read
	return f.put(in, dst)
}

func (f File) put(r io.Reader, dst string) error {
	tmp, err := os.CreateTemp(filepath.Dir(dst), "fetch-")
	if err != nil {
		return fmt.Errorf("provision: cache folder: %w", err)
	}
	defer os.Remove(tmp.Name()) //nolint:errcheck // it has another name by then, or is of no use
	_, err = io.Copy(tmp, r)
	if err = errors.Join(err, tmp.Chmod(0o644), tmp.Close()); err != nil {
		return err
	}
	if err := f.Check(tmp.Name()); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), dst); err != nil {
		return fmt.Errorf("provision: %w", err)
	}
	return nil
}

// repository returns where the files are published. The library knows it, but can use it only on the way to starting
// a server as the calling user.
func repository() (string, error) {
	f := reflect.ValueOf(embeddedpostgres.DefaultConfig()).FieldByName("binaryRepositoryURL")
	if !f.IsValid() || f.Kind() != reflect.String || f.String() == "" {
		return "", errors.New("the library does not tell its repository")
	}
	return f.String(), nil
}

// Lock waits until no other process of this machine fills the same part of the cache. The caller ends it with unlock.
func Lock(ctx context.Context, cache, part string) (unlock func(), err error) {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, fmt.Errorf("provision: cache folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(cache, part+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("provision: cache folder: %w", err)
	}
	const pause = 50 * time.Millisecond
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil // the lock goes with the descriptor
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("provision: lock of the cache: %w", err), f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("provision: waiting for another run that fills the cache: %w", ctx.Err()), f.Close())
		case <-time.After(pause):
		}
	}
}
