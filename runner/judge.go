package runner

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/eventproof/eventproof/eventstore"
	"github.com/eventproof/eventproof/history"
	"github.com/eventproof/eventproof/invariants"
	"github.com/eventproof/eventproof/reports"
)

// Judge reads one recorded history (a merged file, a segment, or the folder of a trial that was not finished) and
// says everything that follows from it. The live run calls it too: `run` and `check` can't differ.
// only limits the rules; empty = all. memory, in bytes, bounds what is held at once: a history that needs more is judged
// in parts (see invariants.CheckInParts) and its numbers are left out, which a warning says; 0 means that memory is no
// concern. Errors are those of package history.
func Judge(path string, only []string, memory uint64) (reports.Trial, error) {
	parts, err := partsOf(path, memory)
	if err != nil {
		return reports.Trial{}, err
	}
	var measured reports.Measured
	if parts == 1 {
		// Measured first: what it needs on the way is free again before the rules need theirs.
		if measured, err = measure(path); err != nil {
			return reports.Trial{}, err
		}
	}
	opts := invariants.Options{Only: only}
	j, err := invariants.CheckInParts(func() (invariants.ClosingSource, error) { return history.Open(path) }, parts, opts)
	if err != nil {
		return reports.Trial{}, err
	}
	info := j.Info
	t := reports.Trial{
		ID: info.Trial, Scenario: info.Scenario, Store: info.Store, Target: info.Target, Variant: info.Variant,
		Assembly: info.Assembly, Promises: promiseNames(info.Promises), Kind: "correct", Control: info.Control, Mode: info.Mode,
		Provider: info.Provider, Fidelity: info.Fidelity, StoreVersion: info.StoreVersion, Durability: info.Durability,
		Path: info.Path, Seed: info.Seed, Warnings: j.Warnings,
	}
	if info.Control != "" {
		t.Kind = "control"
	}
	t.Verdicts = j.Results
	measured.Fill(&t)
	if parts > 1 {
		t.StartNS = info.Start
		t.Warnings = append(t.Warnings, fmt.Sprintf("judged in %d parts, to be held in %s of memory: what compares streams with each other was not judged, and nothing was measured; more is given by --memory",
			j.Parts, humanize.IBytes(memory)))
	}
	t.History.File = filepath.Base(path)
	if size, err := sizeOf(path); err == nil {
		t.History.Bytes = size
	}
	for i := range t.Verdicts {
		v := &t.Verdicts[i]
		for j := range v.Violations {
			v.Violations[j].Recheck = fmt.Sprintf("eventproof check %s --invariant %s", path, v.Invariant)
			v.Violations[j].Repeat = fmt.Sprintf("eventproof run --scenario %s --target %s --seed %d", info.Scenario, info.Target, info.Seed)
		}
	}
	return t, nil
}

// leastRecord is less than what a record takes in a compressed file.
const leastRecord = 8

// partsOf says into how many parts a history has to be divided. Its records are counted only where its size leaves a doubt.
func partsOf(path string, memory uint64) (int, error) {
	size, err := sizeOf(path)
	if err != nil {
		return 0, err
	}
	if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && invariants.Parts(uint64(size)/leastRecord, memory) == 1 {
		return 1, nil
	}
	records, err := countRecords(path)
	if err != nil {
		return 0, err
	}
	return invariants.Parts(records, memory), nil
}

func countRecords(path string) (n uint64, err error) {
	r, err := history.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	r.ReuseRecords()
	for {
		if _, err := r.Next(); errors.Is(err, io.EOF) {
			return n, nil
		} else if err != nil {
			return 0, err
		}
		n++
	}
}

func measure(path string) (m reports.Measured, err error) {
	r, err := history.Open(path)
	if err != nil {
		return reports.Measured{}, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	r.ReuseRecords()
	return reports.Measure(r)
}

func sizeOf(path string) (int64, error) {
	st, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

func promiseNames(ps []eventstore.Promise) []string {
	out := make([]string, len(ps))
	for i, p := range ps {
		out[i] = string(p)
	}
	return out
}

// Histories finds what there is to judge below a path: a run's folder, its history folder, a trial's folder of
// segments, or a single file.
func Histories(path string) ([]string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st.Mode().IsRegular() {
		return []string{path}, nil
	}
	if !st.IsDir() {
		return nil, fmt.Errorf("%s is neither a file nor a folder", path)
	}
	dir := path
	if sub := filepath.Join(path, "history"); isDir(sub) {
		dir = sub
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	segments, merged := false, map[string]bool{}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), history.Ext); ok && !e.IsDir() {
			out = append(out, filepath.Join(dir, e.Name()))
			merged[name] = true
		}
		segments = segments || strings.HasSuffix(e.Name(), history.SegmentExt)
	}
	if segments {
		return []string{dir}, nil
	}
	for _, e := range entries {
		if e.IsDir() && !merged[e.Name()] {
			if inner, err := filepath.Glob(filepath.Join(dir, e.Name(), "*"+history.SegmentExt)); err == nil && len(inner) > 0 {
				out = append(out, filepath.Join(dir, e.Name()))
			}
		}
	}
	return out, nil
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}
