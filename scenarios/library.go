package scenarios

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

//go:embed library/*.yaml
var libraryFiles embed.FS

// Library returns the scenarios that come with the program, by name.
func Library() ([]Scenario, error) {
	var out []Scenario
	entries, err := fs.ReadDir(libraryFiles, "library")
	if err != nil {
		return nil, fmt.Errorf("scenario library: %w", err)
	}
	for _, e := range entries {
		file := path.Join("library", e.Name())
		src, err := libraryFiles.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("scenario library: %w", err)
		}
		s, err := Parse("scenarios/"+file, src)
		if err != nil {
			return nil, err
		}
		if want := strings.TrimSuffix(e.Name(), ".yaml"); s.Name != want {
			return nil, fmt.Errorf("scenarios/%s: the scenario is named %q, the file %q", file, s.Name, want)
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b Scenario) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Source returns the text of a scenario of the library.
func Source(name string) ([]byte, error) {
	b, err := libraryFiles.ReadFile(path.Join("library", name+".yaml"))
	if err != nil {
		return nil, fmt.Errorf("scenario library: %w", err)
	}
	return b, nil
}
