// Package eventproof_test asserts the shape of the repository: which package may import which.
package eventproof_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/eventproof/eventproof/"

// imports is the import table of docs/architecture.md: package (and everything below it, unless it has a line of
// its own) → what it may import of this module, by prefix. "lib:" entries name libraries outside the standard
// library; a package that lists none may use none.
var imports = map[string][]string{
	"domain":           {},
	"eventstore":       {},
	"clock":            {"lib:golang.org/x/sys"},
	"points":           {},
	"verdict":          {},
	"history":          {"eventstore", "lib:github.com/klauspost/compress"},
	"record":           {"eventstore", "history", "clock"},
	"faults/plan":      {},
	"faults/inprocess": {"faults/plan", "eventstore", "history", "clock"},
	"faults":           {"faults", "points", "history", "clock", "lib:github.com/Shopify/toxiproxy", "lib:github.com/rs/zerolog", "lib:github.com/prometheus/client_golang"},

	"eventstore/storetest": {"eventstore"},
	"targets":              {"eventstore", "history", "points"},
	"targets/memory":       {"targets", "eventstore", "domain", "points", "history"},
	"targets/memory/audit": {"eventstore", "history", "targets"},
	"targets/postgres":     {"targets", "eventstore", "domain", "points", "history", "clock", "lib:github.com/jackc/pgx"},
	// A helper of tests only.
	"targets/postgres/internal/pgtest": {"*"},
	"targets/postgres/audit":           {"eventstore", "history", "targets", "lib:github.com/jackc/pgx"},
	"targets/dynamodb":                 {"targets", "eventstore", "domain", "points", "history", "clock", "lib:github.com/aws/aws-sdk-go-v2", "lib:github.com/aws/smithy-go"},
	// A helper of tests only.
	"targets/dynamodb/internal/dytest": {"*"},
	"targets/dynamodb/audit":           {"eventstore", "history", "targets", "clock", "lib:github.com/aws/aws-sdk-go-v2", "lib:github.com/aws/smithy-go"},
	"targets/kafka":                    {"targets", "eventstore", "points", "history", "clock", "lib:github.com/twmb/franz-go"},
	// A helper of tests only.
	"targets/kafka/internal/kafkatest": {"*"},
	"targets/kafka/audit":              {"eventstore", "history", "targets", "clock", "lib:github.com/twmb/franz-go"},
	"targets/all":                      {"targets", "eventstore"},

	"emulators/dynamodb": {"clock"},

	"provision":             {"clock", "emulators", "lib:github.com/jackc/pgx", "lib:github.com/fergusstrange/embedded-postgres", "lib:github.com/ulikunitz/xz", "lib:golang.org/x/sys"},
	"provision/docker":      {"provision", "clock", "lib:github.com/testcontainers/testcontainers-go", "lib:github.com/moby/moby", "lib:github.com/containerd/errdefs"},
	"provision/kafka":       {"provision", "clock", "lib:github.com/twmb/franz-go", "lib:golang.org/x/sync", "lib:golang.org/x/sys"},
	"app":                   {"app", "domain", "eventstore", "record", "points", "history", "clock"},
	"loadgen":               {"loadgen", "history", "clock", "lib:github.com/HdrHistogram"},
	"loadgen/workload":      {"loadgen", "domain", "eventstore"},
	"scenarios":             {"faults/plan", "points", "lib:github.com/goccy/go-yaml", "lib:github.com/santhosh-tekuri/jsonschema", "lib:golang.org/x/text"},
	"invariants":            {"invariants", "domain", "history", "eventstore", "verdict"},
	"invariants/oracle":     {"domain", "history", "eventstore"},
	"roles":                 {"app", "targets", "record", "points", "history", "clock", "loadgen", "eventstore", "domain", "faults", "lib:golang.org/x/sys"},
	"reports":               {"history", "verdict", "eventstore", "lib:github.com/HdrHistogram", "lib:github.com/prometheus/client_golang", "lib:github.com/prometheus/common"},
	"runner":                {"*"},
	"cli":                   {"*"},
	"extending/shelf":       {"targets", "eventstore", "points"},
	"extending/shelf/audit": {"targets", "eventstore", "history"},
	"extending/example":     {"cli", "extending/shelf"},
	"cmd":                   {"cli", "targets/all"},
	"deploy":                {"emulators"},
}

func TestDependenciesPointOneWay(t *testing.T) {
	seen := 0
	for _, file := range goFiles(t) {
		pkg := filepath.ToSlash(filepath.Dir(file))
		rule, allowed := "", []string(nil)
		for p, a := range imports {
			if (pkg == p || strings.HasPrefix(pkg, p+"/")) && len(p) > len(rule) {
				rule, allowed = p, a
			}
		}
		if rule == "" {
			t.Errorf("%s: package %s is not in the import table", file, pkg)
			continue
		}
		if slices.Contains(allowed, "*") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range f.Imports {
			seen++
			path, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			first, _, _ := strings.Cut(path, "/")
			switch {
			case strings.HasPrefix(path, module):
				own := strings.TrimPrefix(path, module)
				ok := strings.HasPrefix(own, rule) // a package may use what lies below it
				for _, a := range allowed {
					ok = ok || own == a || strings.HasPrefix(own, a+"/")
				}
				if !ok {
					t.Errorf("%s imports %s, which package %s may not", file, own, rule)
				}
			case strings.Contains(first, "."):
				if !slices.ContainsFunc(allowed, func(a string) bool {
					lib, is := strings.CutPrefix(a, "lib:")
					return is && (path == lib || strings.HasPrefix(path, lib+"/") || strings.HasPrefix(path, lib))
				}) {
					t.Errorf("%s imports the library %s, which package %s may not", file, path, rule)
				}
			}
		}
	}
	if seen < 50 {
		t.Fatalf("only %d imports were looked at: the test looks in the wrong place", seen)
	}
}

func TestAuditReadersShareNoCodeWithTheirAdapter(t *testing.T) {
	for _, file := range goFiles(t) {
		dir := filepath.ToSlash(filepath.Dir(file))
		if filepath.Base(dir) != "audit" {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range f.Imports {
			if strings.Contains(imp.Path.Value, filepath.ToSlash(filepath.Dir(dir))+`"`) {
				t.Errorf("%s imports its parent", file)
			}
		}
	}
}

func TestTheTopLevelIsTheOnePeopleKnow(t *testing.T) {
	for _, name := range []string{"go.mod", "scenarios", "targets", "invariants", "loadgen", "reports", "docker-compose.yml", "Makefile", "README.md", "LICENSE"} {
		if _, err := os.Stat(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// goFiles lists the Go files of the module that are not tests.
func goFiles(t *testing.T) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || (strings.HasPrefix(d.Name(), ".") && path != ".")) {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			out = append(out, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
