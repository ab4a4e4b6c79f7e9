package extending_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheCodeOfThePageIsCodeThatCompiles(t *testing.T) {
	page, err := os.ReadFile("../docs/extending.md")
	if err != nil {
		t.Fatal(err)
	}
	var sources []string
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		sources = append(sources, string(b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for i, part := range strings.Split(string(page), "\n```") {
		lang, block, _ := strings.Cut(part, "\n")
		if i%2 == 0 || lang != "go" && lang != "yaml" {
			continue
		}
		seen++
		found := false
		for _, s := range sources {
			found = found || strings.Contains(s, block)
		}
		if !found {
			t.Errorf("no file of this folder has this block:\n%s", block)
		}
	}
	if seen < 10 {
		t.Errorf("only %d blocks were looked at", seen)
	}
}
