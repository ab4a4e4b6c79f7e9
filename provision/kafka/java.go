package kafka

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/eventproof/eventproof/provision"
)

const (
	envJava = "JAVA_HOME"
	// minJava is what the classes of Kafka 4 are compiled for.
	minJava = 17
	// aotJava is the first one that stores classes linked and profiled.
	aotJava = 25
)

// java is a Java virtual machine.
type java struct {
	path    string // of the program java
	version string // "17.0.15"
	major   int
	why     string
}

// findJava returns the best Java here, and says where it found none that will do. One that the user has named is the
// only one looked at.
func findJava(ctx context.Context) (best *java, tried []provision.Try) {
	var found []java
	add := func(path, why string) {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		if slices.ContainsFunc(found, func(j java) bool { return j.path == path }) {
			return
		}
		j, err := askJava(ctx, path)
		if err != nil {
			tried = append(tried, provision.Try{What: why, Result: err.Error()})
			return
		}
		j.why = why
		found = append(found, j)
	}
	if home := os.Getenv(envJava); home != "" {
		add(filepath.Join(home, "bin", "java"), "Java of "+envJava)
	} else {
		if path, err := exec.LookPath("java"); err == nil {
			add(path, "Java in PATH")
		} else {
			tried = append(tried, provision.Try{What: "Java in PATH", Result: "not found"})
		}
		dirs, _ := filepath.Glob("/usr/lib/jvm/*/bin/java") // the pattern is well formed
		for _, path := range dirs {
			add(path, "Java in "+filepath.Dir(filepath.Dir(path)))
		}
	}
	if len(found) == 0 {
		return nil, tried
	}
	newest := slices.MaxFunc(found, func(a, b java) int { return cmp.Compare(a.major, b.major) })
	return &newest, nil
}

var javaVersion = regexp.MustCompile(`version "((?:1\.)?(\d+)[^"]*)"`)

// askJava asks a program for its version; one that is too old is an error.
func askJava(ctx context.Context, path string) (java, error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, path, "-version")
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Env = []string{"LC_ALL=C", "PATH=/usr/bin:/bin"}
	if err := cmd.Run(); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return java{}, fmt.Errorf("there is no program %s", path)
		}
		return java{}, fmt.Errorf("%s -version: %w", path, err)
	}
	m := javaVersion.FindStringSubmatch(out.String())
	if m == nil {
		return java{}, fmt.Errorf("%s -version does not tell a version", path)
	}
	n, err := strconv.Atoi(m[2])
	if err != nil {
		return java{}, fmt.Errorf("%s -version: %w", path, err)
	}
	if n < minJava {
		return java{}, fmt.Errorf("%s is Java %s; Kafka needs Java %d or newer", path, m[1], minJava)
	}
	return java{path: path, version: m[1], major: n}, nil
}

// flags make a broker that starts fast and stays small: one collector thread, no second compiler. archive is the file
// with the classes of an earlier run; "" = none.
func (j *java) flags(archive string) []string {
	flags := []string{"-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Djava.net.preferIPv4Stack=true"}
	switch {
	case archive == "":
	case j.major >= aotJava:
		flags = append(flags, "-XX:AOTCache="+archive)
	default:
		flags = append(flags, "-XX:SharedArchiveFile="+archive)
	}
	return flags
}

// dump is the flag that writes the archive when the machine ends.
func (j *java) dump(archive string) string {
	if j.major >= aotJava {
		return "-XX:AOTCacheOutput=" + archive
	}
	return "-XX:ArchiveClassesAtExit=" + archive
}
