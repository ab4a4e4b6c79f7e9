package reports

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name string, render func(io.Writer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := render(&b); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b.Bytes(), want) {
		t.Errorf("%s differs from its golden file; look at the difference, then run go test ./reports -update", name)
	}
	return b.Bytes()
}

func TestEveryRenderingMatchesItsGoldenFile(t *testing.T) {
	r := sampleResult()
	for name, render := range map[string]func(io.Writer) error{
		"result.json":     func(w io.Writer) error { return JSON(w, r) },
		"env.json":        func(w io.Writer) error { return EnvJSON(w, r) },
		"report.html":     func(w io.Writer) error { return HTML(w, r) },
		"terminal.txt":    func(w io.Writer) error { return Text(w, r, Style{Width: 120, Folder: "results/latest"}) },
		"junit.xml":       func(w io.Writer) error { return JUnit(w, r, false) },
		"junit-ci.xml":    func(w io.Writer) error { return JUnit(w, r, true) },
		"summary.md":      func(w io.Writer) error { return Markdown(w, r) },
		"metrics.prom":    func(w io.Writer) error { return Prometheus(w, r) },
		"bench.txt":       func(w io.Writer) error { return Bench(w, r) },
		"annotations.txt": func(w io.Writer) error { return Annotations(w, r) },
	} {
		t.Run(name, func(t *testing.T) { golden(t, name, render) })
	}
}
