// Package reports renders the result of a run: the JSON model, and from it terminal, HTML, JUnit, Markdown,
// Prometheus and Go benchmark text. Every rendering is a pure function of the model.
package reports

import "github.com/eventproof/eventproof/verdict"

// Schema is the version of the result format; additive within v1.
const Schema = "eventproof.result/v1"

// Result is result.json: the source of every rendering.
type Result struct {
	Schema      string      `json:"schema"`
	Run         Run         `json:"run"`
	Environment Environment `json:"environment"`
	Trials      []Trial     `json:"trials"`
	Gates       []Gate      `json:"gates,omitempty"`
	Exit        Exit        `json:"exit"`
}

// Run says what was run.
type Run struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Started     string   `json:"started"` // RFC 3339
	DurationS   float64  `json:"duration_s"`
	Seed        uint64   `json:"seed"`
	ToolVersion string   `json:"tool_version"`
	Args        []string `json:"args"` // credentials masked
	Interrupted string   `json:"interrupted,omitempty"`
}

// Environment is the machine.
type Environment struct {
	OS           string   `json:"os"`
	Kernel       string   `json:"kernel"`
	CPU          string   `json:"cpu"`
	Cores        int      `json:"cores"`
	MemoryBytes  uint64   `json:"memory_bytes"`
	CalibrationS float64  `json:"calibration_s"` // time of a fixed loop on this machine, beside absolute figures
	LoadBefore   float64  `json:"load_before"`
	LoadAfter    float64  `json:"load_after"`
	GoVersion    string   `json:"go_version"`
	Notes        []string `json:"notes,omitempty"`
}

// Trial is one scenario × target × seed.
type Trial struct {
	ID           string            `json:"id"`
	Scenario     string            `json:"scenario"`
	Description  string            `json:"description,omitempty"`
	ScenarioFile string            `json:"scenario_file,omitempty"` // where the scenario was read from
	ExpectLines  map[string]int    `json:"expect_lines,omitempty"`  // invariant → line in ScenarioFile, for annotations
	Store        string            `json:"store"`
	Target       string            `json:"target"`
	Variant      string            `json:"variant"`
	Assembly     map[string]string `json:"assembly"`
	Promises     []string          `json:"promises"`
	Kind         string            `json:"kind"` // "correct" or "control"
	Control      string            `json:"control,omitempty"`
	Mode         string            `json:"mode"` // "scripted" or "random"
	Provider     string            `json:"provider"`
	Fidelity     string            `json:"fidelity"` // "real" or "emulated"
	StoreVersion string            `json:"store_version"`
	Durability   map[string]string `json:"durability,omitempty"`
	Path         string            `json:"path"`
	Fence        string            `json:"fence"`
	Seed         uint64            `json:"seed"`
	StartNS      int64             `json:"start_ns"`
	DurationS    float64           `json:"duration_s"`
	Phases       []Phase           `json:"phases,omitempty"`
	Verdicts     []verdict.Result  `json:"verdicts"`
	Faults       []Fault           `json:"faults"`
	Metrics      Metrics           `json:"metrics"`
	Series       *Series           `json:"series,omitempty"`
	History      HistoryFile       `json:"history"`
	Problem      string            `json:"problem,omitempty"`      // why the trial could not be run or judged
	ProblemKind  ProblemKind       `json:"problem_kind,omitempty"` // whose problem it is; decides the exit code
	Warnings     []string          `json:"warnings,omitempty"`
}

// ProblemKind says whose problem stopped a trial.
type ProblemKind string

// The kinds of problem. A problem without a kind counts as internal: what nobody classified may be ours.
const (
	ProblemEnvironment ProblemKind = "environment" // a store could not start or be reached: exit 4
	ProblemInternal    ProblemKind = "internal"    // the harness failed: exit 70
)

// Phase of the load, relative to the trial's start.
type Phase struct {
	Name    string  `json:"name"`
	AtS     float64 `json:"at_s"`
	LengthS float64 `json:"length_s"`
}

// Fault planned and observed.
type Fault struct {
	ID       string  `json:"id"`
	Kind     string  `json:"kind"`
	On       string  `json:"on"`
	AtS      float64 `json:"at_s"`
	LengthS  float64 `json:"length_s"`
	Planned  string  `json:"planned"`
	Observed bool    `json:"observed"`
	Effect   string  `json:"effect"`
}

// HistoryFile names the recorded history, relative to the run's folder.
type HistoryFile struct {
	File    string `json:"file"`
	Records uint64 `json:"records"`
	Bytes   int64  `json:"bytes"`
}

// Exit is the run's exit code with the reasons.
type Exit struct {
	Code    int      `json:"code"`
	Reasons []string `json:"reasons"`
}

// Gate is an absolute limit and what was measured.
type Gate struct {
	Scenario string   `json:"scenario"`
	Target   string   `json:"target"`
	Metric   string   `json:"metric"`
	Op       string   `json:"op"`
	Limit    float64  `json:"limit"`
	Value    *float64 `json:"value"` // nil: not measured, which misses the gate
	OK       bool     `json:"ok"`
	File     string   `json:"file,omitempty"` // scenario file and line, for annotations
	Line     int      `json:"line,omitempty"`
}

// Metrics of one trial, over the phases that are not warm-up.
type Metrics struct {
	Valid        bool           `json:"valid"`             // usable as performance evidence
	Invalid      []string       `json:"invalid,omitempty"` // why not: drops, generator lag, emulated
	Commands     Commands       `json:"commands"`
	Attempts     Attempts       `json:"attempts"`
	Contention   Contention     `json:"contention"`
	LatencyS     Latency        `json:"latency_s"`
	Throughput   Throughput     `json:"throughput"`
	Generator    Generator      `json:"generator"`
	LagS         *Quantiles     `json:"projection_lag_s,omitempty"`
	NeverVisible int64          `json:"never_visible"`
	RecoveryS    *float64       `json:"recovery_s,omitempty"` // after the last fault was lifted, to the first ok
	Phases       []PhaseMetrics `json:"phases,omitempty"`
}

// PhaseMetrics are the main numbers of one phase.
type PhaseMetrics struct {
	Name          string     `json:"name"`
	CommandsPerS  float64    `json:"commands_per_s"`
	ConflictRatio float64    `json:"conflict_ratio"`
	Response      Quantiles  `json:"response_s"`
	Service       Quantiles  `json:"service_s"`
	LagS          *Quantiles `json:"projection_lag_s,omitempty"`
	Unknown       int64      `json:"unknown"`
}

// Commands counted by how their last call ended. Offered is every command begun plus every arrival dropped.
type Commands struct {
	Offered       int64            `json:"offered"`
	Calls         int64            `json:"calls"` // runs of the command loop: replays and continuations too
	Dropped       int64            `json:"dropped"`
	OK            int64            `json:"ok"`
	Refused       int64            `json:"refused"`
	ByCode        map[string]int64 `json:"refused_by_code,omitempty"`
	Exhausted     int64            `json:"conflict_exhausted"`
	Failed        int64            `json:"failed"`
	Unknown       int64            `json:"unknown"`
	UnknownLanded int64            `json:"unknown_landed"` // ended unknown and found in the log
	Continued     int64            `json:"continued"`
}

// Attempts counted by outcome.
type Attempts struct {
	OK            int64 `json:"ok"`
	Fail          int64 `json:"fail"`
	Unknown       int64 `json:"unknown"`
	UnknownLanded int64 `json:"unknown_landed"`
}

// Contention keeps three different things apart: losing a race, losing to one's own lost acknowledgement,
// and a business refusal (counted under Commands).
type Contention struct {
	AttemptsPerCommand float64 `json:"attempts_per_command"` // over commands that made an attempt
	ConflictRatio      float64 `json:"conflict_ratio"`       // version conflicts / attempts
	Conflicts          int64   `json:"conflicts"`
	SelfConflicts      int64   `json:"self_conflicts"`
	ModelRatio         float64 `json:"conflict_ratio_model"` // 1 − exp(−r·w), METHOD
	// WindowS is the mean time from the middle of the read that a decision rests on to the middle of the
	// first attempt to append it: the time in which another writer can win.
	WindowS float64 `json:"decision_window_s"`
	// ByTries counts commands by the number of decisions they took: index 0 is one decision; the last of
	// at most MaxTries entries counts that many and more.
	ByTries []int64 `json:"by_tries"`
	// Hot lists the streams with the most conflicts.
	Hot []HotStream `json:"hot,omitempty"`
}

// HotStream is one contended stream.
type HotStream struct {
	Stream    string `json:"stream"`
	Attempts  int64  `json:"attempts"`
	Conflicts int64  `json:"conflicts"`
}

// Latency has two clocks: response is timed from the intended start, service from the actual one. A command that another
// process continued counts once, to the end of the last call that answered.
type Latency struct {
	Response   Quantiles `json:"response"`
	Service    Quantiles `json:"service"`
	Unanswered int64     `json:"unanswered"` // begun and never answered: in no quantile
}

// Quantiles in seconds, of a histogram with three significant digits; Min and Max are exact.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
	Min float64 `json:"min"`
	N   int64   `json:"n"`
	// Clamped counts samples outside the histogram's range of one hour either way.
	Clamped int64 `json:"clamped,omitempty"`
}

// Throughput is per second of the measured phases.
type Throughput struct {
	CommandsPerS float64 `json:"commands_per_s"` // calls answered ok or with a business refusal
	EventsPerS   float64 `json:"events_per_s"`   // events acknowledged for the first time
	OfferedPerS  float64 `json:"offered_per_s"`  // calls and dropped arrivals, without continuations
	MeasuredS    float64 `json:"measured_s"`     // length of the measured phases
}

// Generator says whether the load was what it was meant to be.
type Generator struct {
	LagS Quantiles `json:"lag_s"` // actual start − intended start, while a worker was free
}

// NoSample marks a step of a latency series, NoLag one of a lag series, in which nothing was measured.
const (
	NoSample = -1.0
	NoLag    = -1e9
)

// MaxTries is the longest ladder of Contention.ByTries.
const MaxTries = 20

// Series are values per step from the trial's start, for the charts.
//
// Counts belong to the step in which they happened, latencies to the step of the intended start, lag to the
// step of the acknowledgement. −1 = no sample (lag: see LagP50).
type Series struct {
	StepS       float64   `json:"step_s"`
	OK          []float64 `json:"ok_per_s"`
	Refused     []float64 `json:"refused_per_s"`
	Conflicts   []float64 `json:"conflicts_per_s"`
	Unknown     []float64 `json:"unknown_per_s"`
	ResponseP50 []float64 `json:"response_p50_s"`
	ResponseP99 []float64 `json:"response_p99_s"`
	ServiceP99  []float64 `json:"service_p99_s"`
	// Lag may be negative: NoLag marks a step without a sample.
	LagP50 []float64 `json:"lag_p50_s"`
	LagP99 []float64 `json:"lag_p99_s"`
}
