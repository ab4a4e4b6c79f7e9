package scenarios

import (
	"bytes"
	_ "embed" // the published schema
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/eventproof/eventproof/faults/plan"
	"github.com/eventproof/eventproof/points"
)

//go:embed schema/scenario.v1.json
var schemaJSON []byte

// Schema returns the JSON Schema of scenario files.
func Schema() []byte { return slices.Clone(schemaJSON) }

// Error is a mistake in a scenario file: where it is, what is wrong, and the lines around it.
type Error struct {
	File    string
	Line    int
	Column  int
	Path    string // "faults[0].at"
	Message string
	Excerpt string
}

// Error renders file:line:column: path: message and the excerpt.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d:%d: ", e.File, e.Line, e.Column)
	if e.Path != "" {
		b.WriteString(e.Path + ": ")
	}
	b.WriteString(e.Message)
	if e.Excerpt != "" {
		b.WriteString("\n" + e.Excerpt)
	}
	return b.String()
}

// ReadFile parses a scenario file.
func ReadFile(path string) (Scenario, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return Scenario{}, fmt.Errorf("scenario: %w", err)
	}
	return Parse(path, src)
}

// Parse parses one scenario. Mistakes are reported all at once, in the order of the file, as joined *Error.
func Parse(file string, src []byte) (Scenario, error) {
	p := &source{file: file, lines: strings.Split(string(src), "\n")}
	tree, err := parser.ParseBytes(src, 0)
	if err != nil {
		return Scenario{}, p.syntax(err)
	}
	if len(tree.Docs) == 0 || tree.Docs[0].Body == nil {
		return Scenario{}, &Error{File: file, Line: 1, Column: 1, Message: "the file is empty; a scenario begins with `version: 1`"}
	}
	if len(tree.Docs) > 1 {
		return Scenario{}, &Error{File: file, Line: 1, Column: 1, Message: "one scenario a file: there is a second document"}
	}
	p.body = tree.Docs[0].Body
	var any any
	if err := yaml.NodeToValue(p.body, &any); err != nil {
		return Scenario{}, p.syntax(err)
	}
	if err := p.checkSchema(any); err != nil {
		return Scenario{}, err
	}
	var raw rawScenario
	dec := yaml.NewDecoder(bytes.NewReader(src), yaml.Strict())
	if err := dec.Decode(&raw); err != nil {
		return Scenario{}, p.syntax(err)
	}
	s := raw.scenario(p)
	if err := p.errors(); err != nil {
		return Scenario{}, err
	}
	return s, nil
}

// source knows where things stand in the file and collects mistakes.
type source struct {
	file  string
	lines []string
	body  ast.Node
	found []*Error
}

func (p *source) syntax(err error) error {
	var y yaml.Error
	if errors.As(err, &y) {
		e := &Error{File: p.file, Message: y.GetMessage(), Line: 1, Column: 1}
		if t := y.GetToken(); t != nil && t.Position != nil {
			e.Line, e.Column = t.Position.Line, t.Position.Column
		}
		e.Excerpt = p.excerpt(e.Line, e.Column)
		return e
	}
	return fmt.Errorf("%s: %w", p.file, err)
}

// at records a mistake at a path such as "faults", 0, "at".
func (p *source) at(message string, path ...any) {
	line, col := p.position(path)
	p.found = append(p.found, &Error{File: p.file, Line: line, Column: col, Path: pathString(path), Message: message, Excerpt: p.excerpt(line, col)})
}

func (p *source) errors() error {
	slices.SortStableFunc(p.found, func(a, b *Error) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	errs := make([]error, len(p.found))
	for i, e := range p.found {
		errs[i] = e
	}
	return errors.Join(errs...)
}

// position walks the tree along the path and returns the place of the deepest node that exists.
func (p *source) position(path []any) (line, col int) {
	line, col = 1, 1
	node := p.body
	for _, step := range path {
		next := ast.Node(nil)
		switch step := step.(type) {
		case string:
			for _, mv := range mappings(node) {
				if mv.Key.String() == step || strings.Trim(mv.Key.String(), `"'`) == step {
					next = mv.Value
					pos := mv.Key.GetToken().Position
					line, col = pos.Line, pos.Column
				}
			}
		case int:
			if seq, ok := node.(*ast.SequenceNode); ok && step < len(seq.Values) {
				next = seq.Values[step]
				pos := next.GetToken().Position
				if ms := mappings(next); len(ms) > 0 {
					pos = ms[0].Key.GetToken().Position
				}
				line, col = pos.Line, pos.Column
			}
		}
		if next == nil {
			return line, col
		}
		node = next
	}
	return line, col
}

func mappings(n ast.Node) []*ast.MappingValueNode {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}
	}
	return nil
}

func pathString(path []any) string {
	var b strings.Builder
	for _, s := range path {
		switch s := s.(type) {
		case string:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(s)
		case int:
			b.WriteString("[" + strconv.Itoa(s) + "]")
		}
	}
	return b.String()
}

func (p *source) excerpt(line, col int) string {
	var b strings.Builder
	for n := max(1, line-2); n <= min(len(p.lines), line+1); n++ {
		mark := "  "
		if n == line {
			mark = "> "
		}
		fmt.Fprintf(&b, "%s%3d | %s\n", mark, n, p.lines[n-1])
		if n == line {
			fmt.Fprintf(&b, "      | %s^\n", strings.Repeat(" ", max(0, col-1)))
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

// compiled is the schema, ready to validate; many files are checked against it.
var compiled = sync.OnceValues(func() (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schemaJSON))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("scenario.v1.json", doc); err != nil {
		return nil, err
	}
	return c.Compile("scenario.v1.json")
})

func (p *source) checkSchema(v any) error {
	schema, err := compiled()
	if err != nil {
		return fmt.Errorf("scenario schema: %w", err)
	}
	// The validator wants the value in JSON's types.
	j, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("%s: %w", p.file, err)
	}
	inst, err := jsonschema.UnmarshalJSON(bytes.NewReader(j))
	if err != nil {
		return fmt.Errorf("%s: %w", p.file, err)
	}
	err = schema.Validate(inst)
	var ve *jsonschema.ValidationError
	if !errors.As(err, &ve) {
		return err
	}
	p.schemaErrors(ve)
	return p.errors()
}

func (p *source) schemaErrors(ve *jsonschema.ValidationError) {
	if len(ve.Causes) > 0 {
		for _, c := range ve.Causes {
			p.schemaErrors(c)
		}
		return
	}
	path := make([]any, 0, len(ve.InstanceLocation))
	for _, s := range ve.InstanceLocation {
		if n, err := strconv.Atoi(s); err == nil {
			path = append(path, n)
		} else {
			path = append(path, s)
		}
	}
	if extra, ok := ve.ErrorKind.(*kind.AdditionalProperties); ok {
		for _, name := range extra.Properties {
			p.at("there is no such field"+suggestion(name, p.known(ve.SchemaURL)), append(slices.Clone(path), name)...)
		}
		return
	}
	p.at(p.schemaMistake(ve, len(path) == 0), path...)
}

// schemaMistake says what would be right, in the words of the schema where it has some.
func (p *source) schemaMistake(ve *jsonschema.ValidationError, whole bool) string {
	switch k := ve.ErrorKind.(type) {
	case *kind.Enum:
		got, isText := k.Got.(string)
		var words []string
		for _, w := range k.Want {
			words = append(words, fmt.Sprint(w))
		}
		if best, ok := Closest(got, words); ok && isText {
			return fmt.Sprintf("%q is none of %s; did you mean %q?", got, strings.Join(words, ", "), best)
		}
		return fmt.Sprintf("%v is none of %s", k.Got, strings.Join(words, ", "))
	case *kind.Pattern:
		if d, ok := schemaNode(ve.SchemaURL)["description"].(string); ok {
			return fmt.Sprintf("%q is not right; write %s", k.Got, d)
		}
	case *kind.Type:
		if whole {
			return "this is no scenario; one is a mapping that begins with `version: 1` (eventproof scenarios show hot-account)"
		}
	}
	return ve.ErrorKind.LocalizedString(message.NewPrinter(language.English))
}

// schemaNode returns the part of the schema that an error is about.
func schemaNode(schemaURL string) map[string]any {
	_, pointer, _ := strings.Cut(schemaURL, "#")
	var node any
	if err := json.Unmarshal(schemaJSON, &node); err != nil {
		return nil
	}
	for part := range strings.SplitSeq(strings.Trim(pointer, "/"), "/") {
		if m, ok := node.(map[string]any); ok && part != "" {
			node = m[part]
		}
	}
	m, _ := node.(map[string]any)
	return m
}

// known lists the properties that the schema allows at the place of an error.
func (p *source) known(schemaURL string) []string {
	props, _ := schemaNode(schemaURL)["properties"].(map[string]any)
	var names []string
	for n := range props {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// suggestion returns "; did you mean …?" for the closest name, or the names to choose from when there are few.
func suggestion(name string, known []string) string {
	if best, ok := Closest(name, known); ok {
		return fmt.Sprintf("; did you mean %q?", best)
	}
	if len(known) > 0 {
		return "; known here: " + strings.Join(known, ", ")
	}
	return ""
}

// Closest returns the known name nearest to what was written, if it is near enough to be meant.
func Closest(name string, known []string) (string, bool) {
	best, at := "", 1+max(2, len(name)/3)
	for _, k := range known {
		if d := distance(strings.ToLower(name), strings.ToLower(k)); d < at {
			best, at = k, d
		}
	}
	return best, best != ""
}

// distance is the Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			diagonal, row[j] = row[j], min(row[j]+1, row[j-1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

// duration is a length of time as it stands in a file ("1.5s"); the schema has checked its form.
type duration time.Duration

// UnmarshalYAML implements goccy's byte unmarshaller.
func (d *duration) UnmarshalYAML(b []byte) error {
	v, err := time.ParseDuration(strings.Trim(strings.TrimSpace(string(b)), `"'`))
	if err != nil {
		return err
	}
	*d = duration(v)
	return nil
}

type rawScenario struct {
	Version     int         `yaml:"version"`
	Name        string      `yaml:"name"`
	Description string      `yaml:"description"`
	Targets     []string    `yaml:"targets"`
	Workload    rawWorkload `yaml:"workload"`
	Load        *rawLoad    `yaml:"load"`
	Roles       rawRoles    `yaml:"roles"`
	Faults      []rawFault  `yaml:"faults"`
	Script      *rawScript  `yaml:"script"`
	Expect      []rawExpect `yaml:"expect"`
	Gates       []rawGate   `yaml:"gates"`
}

type rawWorkload struct {
	Kind           string             `yaml:"kind"`
	Streams        int                `yaml:"streams"`
	Keys           rawKeys            `yaml:"keys"`
	InitialBalance int64              `yaml:"initialBalance"`
	MaxAmount      int64              `yaml:"maxAmount"`
	OpeningPrice   int64              `yaml:"openingPrice"`
	Mix            map[string]float64 `yaml:"mix"`
	CloseAfter     duration           `yaml:"closeAfter"`
	SnapshotEvery  int                `yaml:"snapshotEvery"`
}

type rawKeys struct {
	Dist     string  `yaml:"dist"`
	Exponent float64 `yaml:"exponent"`
	Share    float64 `yaml:"share"`
	Count    int     `yaml:"count"`
}

type rawLoad struct {
	Model    string     `yaml:"model"`
	Arrival  string     `yaml:"arrival"`
	Rate     float64    `yaml:"rate"`
	Workers  int        `yaml:"workers"`
	Queue    int        `yaml:"queue"`
	Deadline duration   `yaml:"deadline"`
	Try      duration   `yaml:"try"`
	Phases   []rawPhase `yaml:"phases"`
}

type rawPhase struct {
	Name   string   `yaml:"name"`
	For    duration `yaml:"for"`
	Warmup bool     `yaml:"warmup"`
}

type rawRoles struct {
	Writers          int      `yaml:"writers"`
	WriterProcess    bool     `yaml:"writerProcess"`
	Projectors       int      `yaml:"projectors"`
	ProjectorProcess bool     `yaml:"projectorProcess"`
	Poll             duration `yaml:"poll"`
	Batch            int      `yaml:"batch"`
}

type rawFault struct {
	ID        string   `yaml:"id"`
	Kind      string   `yaml:"kind"`
	On        string   `yaml:"on"`
	At        duration `yaml:"at"`
	For       duration `yaml:"for"`
	Delay     duration `yaml:"delay"`
	Jitter    duration `yaml:"jitter"`
	Direction string   `yaml:"direction"`
	Every     int      `yaml:"every"`
	Max       int      `yaml:"max"`
}

func (f rawFault) fault() plan.Fault {
	return plan.Fault{
		ID: f.ID, Kind: plan.Kind(f.Kind), On: f.On, At: time.Duration(f.At), For: time.Duration(f.For),
		Delay: time.Duration(f.Delay), Jitter: time.Duration(f.Jitter), Direction: f.Direction, Every: f.Every, Max: f.Max,
	}
}

type rawExpect struct {
	Invariant string           `yaml:"invariant"`
	Min       map[string]int64 `yaml:"min"`
	// IfPromised is the field of Expect.
	IfPromised bool `yaml:"ifPromised"`
}

// UnmarshalYAML also takes the bare slug.
func (e *rawExpect) UnmarshalYAML(b []byte) error {
	var slug string
	if err := yaml.Unmarshal(b, &slug); err == nil {
		e.Invariant = slug
		return nil
	}
	type plain rawExpect
	return yaml.UnmarshalWithOptions(b, (*plain)(e), yaml.Strict())
}

type rawGate struct {
	Metric string  `yaml:"metric"`
	Op     string  `yaml:"op"`
	Limit  float64 `yaml:"limit"`
}

type rawScript struct {
	Streams  map[string]int64 `yaml:"streams"`
	Try      duration         `yaml:"try"`
	Sessions []rawSession     `yaml:"sessions"`
	Steps    []rawStep        `yaml:"steps"`
}

type rawSession struct {
	Name string `yaml:"name"`
	Role string `yaml:"role"`
	View string `yaml:"view"`
}

type rawStep struct {
	Session  string          `yaml:"session"`
	Hold     *[]points.Point `yaml:"hold"`
	Await    bool            `yaml:"await"`
	Do       *rawCommand     `yaml:"do"`
	Start    *rawCommand     `yaml:"start"`
	Continue string          `yaml:"continue"`
	Wait     bool            `yaml:"wait"`
	Settle   duration        `yaml:"settle"`
	Release  bool            `yaml:"release"`
	Crash    bool            `yaml:"crash"`
	Restart  bool            `yaml:"restart"`
	Pause    duration        `yaml:"pause"`
	Fault    *rawFault       `yaml:"fault"`
	Bitten   string          `yaml:"bitten"`
	Lift     string          `yaml:"lift"`
	Observe  string          `yaml:"observe"`
	Drain    bool            `yaml:"drain"`
	Read     string          `yaml:"read"`
	Answer   string          `yaml:"answer"`
}

type rawCommand struct {
	Name   string `yaml:"name"`
	Stream string `yaml:"stream"`
	ID     string `yaml:"id"`
	Amount int64  `yaml:"amount"`
	Bid    string `yaml:"bid"`
	Bidder string `yaml:"bidder"`

	Expected *uint64 `yaml:"expected"`
}

func (c *rawCommand) command() *Command {
	if c == nil {
		return nil
	}
	return &Command{Name: c.Name, Stream: c.Stream, ID: c.ID, Amount: c.Amount, Bid: c.Bid, Bidder: c.Bidder, Expected: c.Expected}
}
