package reports

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Options of WriteAll.
type Options struct {
	// Strict decides how JUnit shows what was not decided.
	Strict bool
}

// WriteAll writes every rendering of r into dir, which is created if it is missing. Each file is written
// beside its place and renamed, so that a reader never meets half a file; on an error (disk full, folder
// read-only) the files written before stand, the one that failed is as it was, and no temporary one is left.
func WriteAll(dir string, r *Result, o Options) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("reports: results folder: %w", err)
	}
	files := []struct {
		name   string
		render func(io.Writer) error
	}{
		{"result.json", func(w io.Writer) error { return JSON(w, r) }},
		{"env.json", func(w io.Writer) error { return EnvJSON(w, r) }},
		{"report.html", func(w io.Writer) error { return HTML(w, r) }},
		{"junit.xml", func(w io.Writer) error { return JUnit(w, r, o.Strict) }},
		{"summary.md", func(w io.Writer) error { return Markdown(w, r) }},
		{"metrics.prom", func(w io.Writer) error { return Prometheus(w, r) }},
		{"bench.txt", func(w io.Writer) error { return Bench(w, r) }},
	}
	for _, f := range files {
		if err := WriteFile(filepath.Join(dir, f.name), f.render); err != nil {
			return err
		}
	}
	return writeViolations(filepath.Join(dir, "violations"), r)
}

// writeViolations writes one page a violated invariant and target; pages of an earlier rendering whose
// violation is gone are removed.
func writeViolations(dir string, r *Result) error {
	v := newView(r)
	keep := map[string]bool{}
	for _, s := range v.stories {
		keep[s.Anchor+".md"] = true
	}
	old, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reports: %w", err)
	}
	for _, e := range old {
		if n := e.Name(); strings.Contains(n, "--") && strings.HasSuffix(n, ".md") && !keep[n] {
			if err := os.Remove(filepath.Join(dir, n)); err != nil {
				return fmt.Errorf("reports: %w", err)
			}
		}
	}
	if len(v.stories) == 0 {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("reports: %w", err)
	}
	for _, s := range v.stories {
		err := WriteFile(filepath.Join(dir, s.Anchor+".md"), func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "# %s violated by %s\n\n%s · run %s\n\n%s", md(s.Invariant), md(s.Target), md(s.ID), md(r.Run.ID), storyMarkdown(s, 1<<30))
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// WriteFile writes one file atomically: beside its place, synced, then renamed. After an error nothing of it
// is left and an earlier version still stands.
func WriteFile(path string, render func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("reports: write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = f.Close() // closed already on the later paths; the first error is the one that counts
			_ = os.Remove(f.Name())
			err = fmt.Errorf("reports: write %s: %w", path, err)
		}
	}()
	b := bufio.NewWriter(f)
	if err := render(b); err != nil {
		return err
	}
	if err := b.Flush(); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// Latest points dir/latest of the run's parent folder at the run's folder, replacing an earlier link at
// once. It refuses to replace anything that is not a link.
func Latest(runDir string) error {
	parent, name := filepath.Split(filepath.Clean(runDir))
	link := filepath.Join(parent, "latest")
	if st, err := os.Lstat(link); err == nil && st.Mode()&fs.ModeSymlink == 0 {
		return fmt.Errorf("reports: %s is not a link; left as it is", link)
	}
	tmp := filepath.Join(parent, ".latest-"+name)
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reports: latest: %w", err)
	}
	if err := os.Symlink(name, tmp); err != nil {
		return fmt.Errorf("reports: latest: %w", err)
	}
	if err := os.Rename(tmp, link); err != nil {
		_ = os.Remove(tmp)
		return fmt.Errorf("reports: latest: %w", err)
	}
	return nil
}
