package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/eventproof/eventproof/provision/internal/proc"
)

// record is the file by which a later run knows a server whose runner was killed. It is written before the server
// is started and removed when it is gone.
type record struct {
	path string

	Boot   string       `json:"boot"` // start times are comparable within one
	Owner  proc.Process `json:"owner"`
	Server proc.Process `json:"server"` // zero: not started yet
	Dir    string       `json:"dir"`
}

const recordFolder, recordExt = "servers", ".json"

func newRecord(cache, dir string) (*record, error) {
	owner, ok := proc.Of(os.Getpid())
	if !ok {
		return nil, errors.New("provision: this process is not in /proc")
	}
	folder := filepath.Join(cache, recordFolder)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, fmt.Errorf("provision: cache folder: %w", err)
	}
	r := &record{path: filepath.Join(folder, filepath.Base(dir)+recordExt), Boot: proc.BootID(), Owner: owner, Dir: dir}
	return r, r.write()
}

func (r *record) started(pm proc.Process) error {
	r.Server = pm
	return r.write()
}

func (r *record) write() error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("provision: %w", err)
	}
	tmp := r.path + ".tmp"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return fmt.Errorf("provision: record of the server: %w", err)
	}
	if err := os.Rename(tmp, r.path); err != nil {
		return fmt.Errorf("provision: record of the server: %w", err)
	}
	return nil
}

func (r *record) remove() error {
	if r == nil {
		return nil
	}
	if err := os.Remove(r.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("provision: record of the server: %w", err)
	}
	return nil
}

// Sweep ends the servers and removes the folders that runs which are gone have left, by the records in the cache
// folder. It touches nothing of a run that is still there. It returns what it removed, and an error for what it could
// not.
func Sweep(cache string) (removed []string, err error) {
	folder := filepath.Join(cache, recordFolder)
	entries, err := os.ReadDir(folder)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("provision: records of servers: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if filepath.Ext(e.Name()) != recordExt {
			continue
		}
		r := &record{path: filepath.Join(folder, e.Name())}
		switch swept, err := r.sweep(); {
		case err != nil:
			errs = append(errs, err)
		case swept:
			removed = append(removed, r.Dir)
		}
	}
	return removed, errors.Join(errs...)
}

func (r *record) sweep() (swept bool, err error) {
	b, err := os.ReadFile(r.path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil // another run was faster
	}
	if err != nil {
		return false, fmt.Errorf("provision: record of a server: %w", err)
	}
	if err := json.Unmarshal(b, r); err != nil {
		return false, fmt.Errorf("provision: record %s of a server can't be read: %w", r.path, err)
	}
	// The folder is removed with all that is in it: it must be one that we make.
	if !filepath.IsAbs(r.Dir) || !strings.HasPrefix(filepath.Base(r.Dir), folderPrefix) || filepath.Clean(r.Dir) != r.Dir ||
		filepath.Base(r.Dir)+recordExt != filepath.Base(r.path) {
		return false, fmt.Errorf("provision: record %s of a server names the folder %q, which is not ours", r.path, r.Dir)
	}
	sameBoot := r.Boot == proc.BootID()
	if sameBoot && r.Owner.Runs() {
		return false, nil
	}
	if sameBoot {
		ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
		defer cancel()
		if err := r.endServer(ctx); err != nil {
			return false, err
		}
	}
	if err := os.RemoveAll(r.Dir); err != nil {
		return false, fmt.Errorf("provision: %w", err)
	}
	return true, r.remove()
}

// endServer kills the recorded process with its children, and what is left of a family whose head is gone: the
// processes that work in the recorded folder.
func (r *record) endServer(ctx context.Context) error {
	if r.Server.PID != 0 && r.Server.Runs() {
		if err := r.Server.Freeze(ctx); err != nil {
			return err
		}
		if err := proc.KillAll(ctx, append(proc.Children(r.Server.PID), r.Server)); err != nil {
			return err
		}
	}
	return proc.KillAll(ctx, proc.WorkingIn(r.Dir))
}
