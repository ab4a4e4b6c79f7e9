package scenarios

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/eventproof/eventproof/faults/plan"
	"github.com/eventproof/eventproof/points"
)

// Defaults of a scenario; what a file leaves out is filled in here and shows in `scenarios show`.
const (
	defaultDeadline = 5 * time.Second
	defaultTry      = time.Second
	defaultPoll     = 20 * time.Millisecond
	defaultBatch    = 200
	defaultQueue    = 1000

	defaultScriptTry = 4 * time.Second
)

// commandNames lists the commands of each workload, which are also the keys of a mix.
var commandNames = map[string][]string{
	"bank":    {"withdraw", "deposit", "blind-deposit"},
	"auction": {"bid", "replay", "alter-bid", "equal-bid"},
}

// views names the view of each workload.
var views = map[string]string{"bank": "balances", "auction": "high-bids"}

func (r *rawScenario) scenario(p *source) Scenario {
	s := Scenario{Name: r.Name, Description: strings.TrimSpace(r.Description), File: p.file, Targets: r.Targets}
	s.Workload = r.workload(p)
	for i, f := range r.Faults {
		fault := f.fault()
		if err := fault.Validate(); err != nil {
			p.at(err.Error(), "faults", i)
		}
		if slices.ContainsFunc(r.Faults[:i], func(o rawFault) bool { return o.ID == f.ID }) {
			p.at(fmt.Sprintf("the id %q is used twice", f.ID), "faults", i, "id")
		}
		s.Faults = append(s.Faults, fault)
	}
	for i, e := range r.Expect {
		line, _ := p.position([]any{"expect", i})
		s.Expect = append(s.Expect, Expect{Invariant: e.Invariant, Min: e.Min, IfPromised: e.IfPromised, Line: line})
	}
	for i, g := range r.Gates {
		line, _ := p.position([]any{"gates", i})
		s.Gates = append(s.Gates, Gate{Metric: g.Metric, Op: g.Op, Limit: g.Limit, Line: line})
	}
	switch {
	case r.Script != nil && r.Load != nil:
		p.at("a scenario has a script or a load, not both", "script")
	case r.Script != nil && len(r.Faults) > 0:
		p.at("a script switches its faults itself (step `fault`)", "faults")
	case r.Script != nil:
		s.Script = r.Script.script(p, s.Workload.Kind)
	case r.Load != nil:
		s.Load = r.Load.load(p)
		s.Roles = r.roles()
		s.checkRoles(p)
		for i, f := range s.Faults {
			if f.At+f.For > s.Load.Duration() {
				p.at(fmt.Sprintf("the fault ends at %s, after the load (%s)", f.At+f.For, s.Load.Duration()), "faults", i)
			}
		}
	default:
		p.at("a scenario needs a load (random mode) or a script (scripted mode)", "name")
	}
	return s
}

// Names lists the roles of a random scenario, as faults name them.
func (s *Scenario) Names() []string {
	var out []string
	for i := range s.Roles.Writers {
		out = append(out, fmt.Sprintf("writer-%d", i+1))
	}
	for i := range s.Roles.Projectors {
		out = append(out, fmt.Sprintf("projector-%s-%d", views[s.Workload.Kind], i+1))
	}
	return out
}

// ownerRole is the name of an owner. How many there are is the target's affair; a fault on one that a target does not have
// does not bite there.
var ownerRole = regexp.MustCompile(`^owner-[1-9]$`)

// checkRoles finds faults on roles that the scenario does not have, or that can't be had alone.
func (s *Scenario) checkRoles(p *source) {
	names := s.Names()
	for i, f := range s.Faults {
		if f.On == "store" {
			continue
		}
		hit := ownerRole.MatchString(f.On)
		if hit && f.Kind == plan.PauseRole && !s.Roles.WriterProcess {
			p.at(f.On+" is a process where the writers are, and can't be paused alone else: write roles: {writerProcess: true}", "faults", i, "on")
		}
		for _, name := range names {
			if !plan.Matches(f.On, name) {
				continue
			}
			hit = true
			process, field := s.Roles.WriterProcess, "writerProcess"
			if strings.HasPrefix(name, "projector-") {
				process, field = s.Roles.ProjectorProcess, "projectorProcess"
			}
			if f.Kind == plan.PauseRole && !process {
				p.at(fmt.Sprintf("%s is no process of its own and can't be paused alone: write roles: {%s: true}", name, field), "faults", i, "on")
				break
			}
		}
		if !hit {
			p.at(fmt.Sprintf("there is no role %q; this scenario has %s", f.On, strings.Join(names, ", ")), "faults", i, "on")
		}
	}
}

func (r *rawScenario) workload(p *source) Workload {
	w := r.Workload
	out := Workload{
		Kind: w.Kind, Streams: max(1, w.Streams), InitialBalance: w.InitialBalance, MaxAmount: max(1, w.MaxAmount),
		OpeningPrice: w.OpeningPrice, CloseAfter: time.Duration(w.CloseAfter), SnapshotEvery: w.SnapshotEvery,
		Keys: Keys{Dist: w.Keys.Dist, Exponent: w.Keys.Exponent, HotShare: w.Keys.Share, HotCount: w.Keys.Count},
	}
	if out.Keys.Dist == "" {
		out.Keys.Dist = "uniform"
	}
	if out.Keys.Dist == "hot" && (out.Keys.HotCount < 1 || out.Keys.HotCount > out.Streams) {
		p.at(fmt.Sprintf("the hot set has %d of %d streams; count must lie between 1 and streams", out.Keys.HotCount, out.Streams), "workload", "keys", "count")
	}
	if w.Kind == "auction" && out.OpeningPrice == 0 {
		out.OpeningPrice = 100
	}
	known := commandNames[w.Kind]
	sum := 0.0
	for _, name := range slices.Sorted(maps.Keys(w.Mix)) {
		if !slices.Contains(known, name) {
			p.at(fmt.Sprintf("the workload %s has no command %q%s", w.Kind, name, suggestion(name, known)), "workload", "mix", name)
		}
		if w.Mix[name] < 0 {
			p.at("a share may not be negative", "workload", "mix", name)
		}
		sum += w.Mix[name]
	}
	mix := w.Mix
	if len(mix) == 0 {
		mix = map[string]float64{known[0]: 1}
		sum = 1
	}
	if sum <= 0 {
		p.at("the shares add up to nothing", "workload", "mix")
		sum = 1
	}
	out.Withdraw, out.Deposit, out.BlindDeposit = mix["withdraw"]/sum, mix["deposit"]/sum, mix["blind-deposit"]/sum
	out.Bid, out.Replay, out.AlterBid, out.EqualBid = mix["bid"]/sum, mix["replay"]/sum, mix["alter-bid"]/sum, mix["equal-bid"]/sum
	return out
}

func (r *rawScenario) roles() Roles {
	out := Roles{
		Writers: max(1, r.Roles.Writers), WriterProcess: r.Roles.WriterProcess,
		Projectors: r.Roles.Projectors, ProjectorProcess: r.Roles.ProjectorProcess,
		Poll: time.Duration(r.Roles.Poll), Batch: r.Roles.Batch,
	}
	if out.Poll == 0 {
		out.Poll = defaultPoll
	}
	if out.Batch == 0 {
		out.Batch = defaultBatch
	}
	return out
}

func (l *rawLoad) load(p *source) Load {
	out := Load{
		Model: l.Model, Arrival: l.Arrival, Rate: l.Rate, Workers: max(1, l.Workers), Queue: l.Queue,
		Deadline: time.Duration(l.Deadline), Try: time.Duration(l.Try),
	}
	if out.Arrival == "" {
		out.Arrival = "poisson"
	}
	if out.Queue == 0 {
		out.Queue = defaultQueue
	}
	if out.Deadline == 0 {
		out.Deadline = defaultDeadline
	}
	if out.Try == 0 {
		out.Try = min(defaultTry, out.Deadline/2)
	}
	if out.Try >= out.Deadline {
		p.at(fmt.Sprintf("one try (%s) must be shorter than the command's deadline (%s)", out.Try, out.Deadline), "load", "try")
	}
	if out.Model == "open" && out.Rate <= 0 {
		p.at("an open load needs a rate above 0 (commands per second)", "load", "rate")
	}
	if out.Model == "closed" && out.Rate != 0 {
		p.at("a closed load has no rate: its workers set the pace", "load", "rate")
	}
	for _, ph := range l.Phases {
		out.Phases = append(out.Phases, Phase{Name: ph.Name, For: time.Duration(ph.For), Warmup: ph.Warmup})
	}
	if out.Duration() <= 0 {
		p.at("the phases add up to no time", "load", "phases")
	}
	return out
}

func (r *rawScript) script(p *source, workload string) *Script {
	out := &Script{Streams: r.Streams, Try: time.Duration(r.Try)}
	if out.Try == 0 {
		out.Try = defaultScriptTry
	}
	names := map[string]string{}
	for i, s := range r.Sessions {
		if names[s.Name] != "" {
			p.at(fmt.Sprintf("the session %q is named twice", s.Name), "script", "sessions", i, "name")
		}
		names[s.Name] = s.Role
		if (s.Role == "projector") != (s.View != "") {
			p.at("a projector names its view, a writer or an owner has none", "script", "sessions", i)
		}
		if s.View != "" && s.View != views[workload] {
			p.at(fmt.Sprintf("the workload %s has no view %q, its view is %q", workload, s.View, views[workload]), "script", "sessions", i, "view")
		}
		out.Sessions = append(out.Sessions, Session(s))
	}
	faults := map[string]bool{}
	for i := range r.Steps {
		out.Steps = append(out.Steps, r.Steps[i].step(p, i, names, faults, workload))
	}
	return out
}

func (r *rawStep) step(p *source, i int, sessions map[string]string, faults map[string]bool, workload string) Step {
	line, _ := p.position([]any{"script", "steps", i})
	at := func(msg string, path ...any) { p.at(msg, append([]any{"script", "steps", i}, path...)...) }
	s := Step{
		Line: line, Session: r.Session, Await: r.Await, Do: r.Do.command(), Start: r.Start.command(),
		Continue: r.Continue, Wait: r.Wait, Settle: time.Duration(r.Settle), Release: r.Release, Crash: r.Crash,
		Restart: r.Restart, Pause: time.Duration(r.Pause), Bitten: r.Bitten, Lift: r.Lift, Observe: r.Observe,
		Drain: r.Drain, Read: r.Read, Answer: r.Answer,
	}
	if r.Hold != nil {
		s.Hold, s.SetHold = *r.Hold, true
		for j, pt := range s.Hold {
			if !strings.Contains(string(pt), ".") {
				known := make([]string, 0, len(points.All()))
				for _, k := range points.All() {
					known = append(known, string(k))
				}
				at(fmt.Sprintf("%q is not a point%s", pt, suggestion(string(pt), known)), "hold", j)
			}
		}
	}
	if r.Fault != nil {
		f := r.Fault.fault()
		if err := f.Validate(); err != nil {
			at(err.Error(), "fault")
		}
		faults[f.ID] = true
		s.Fault = &f
	}
	actions := []struct {
		name string
		set  bool
		role string // the session's role it needs; "" = any session, "-" = no session
	}{
		{"do", s.Do != nil, "writer"}, {"start", s.Start != nil, "writer"}, {"continue", s.Continue != "", "writer"},
		{"wait", s.Wait, "writer"}, {"settle", s.Settle != 0, "writer"}, {"release", s.Release, ""}, {"crash", s.Crash, ""},
		{"restart", s.Restart, ""}, {"pause", s.Pause != 0, "-"}, {"fault", s.Fault != nil, "-"}, {"bitten", s.Bitten != "", "-"},
		{"lift", s.Lift != "", "-"}, {"observe", s.Observe != "", "-"}, {"drain", s.Drain, "projector"},
		{"read", s.Read != "", "writer"}, {"answer", s.Answer != "", "writer"},
	}
	var set []string
	for _, a := range actions {
		if !a.set {
			continue
		}
		set = append(set, a.name)
		switch {
		case a.role == "-" && s.Session != "":
			at(fmt.Sprintf("`%s` belongs to no session", a.name), "session")
		case a.role == "writer" || a.role == "projector":
			if got := sessions[s.Session]; got != "" && got != a.role {
				at(fmt.Sprintf("`%s` needs a %s; %s is a %s", a.name, a.role, s.Session, got), "session")
			}
		}
		if a.role != "-" && sessions[s.Session] == "" {
			at(fmt.Sprintf("`%s` needs one of the script's sessions; there is no %q", a.name, s.Session), "session")
		}
	}
	if len(set) > 1 {
		at("a step has one action; here are "+strings.Join(set, " and "), set[1])
	}
	if len(set) == 0 && !s.SetHold && !s.Await {
		at("a step without an action")
	}
	if (s.SetHold || s.Await) && sessions[s.Session] == "" {
		at(fmt.Sprintf("hold and await need one of the script's sessions; there is no %q", s.Session), "session")
	}
	if s.Continue != "" && sessions[s.Continue] != "writer" {
		at(fmt.Sprintf("continue names a writer session; there is no writer %q", s.Continue), "continue")
	}
	if s.Observe != "" && s.Observe != views[workload] {
		at(fmt.Sprintf("the workload %s has no view %q, its view is %q", workload, s.Observe, views[workload]), "observe")
	}
	for _, id := range []string{s.Bitten, s.Lift} {
		if id != "" && !faults[id] {
			at(fmt.Sprintf("no earlier step switched on a fault %q", id))
		}
	}
	for _, c := range []*Command{s.Do, s.Start} {
		if c != nil && !slices.Contains(scriptCommands[workload], c.Name) {
			at(fmt.Sprintf("the workload %s has no command %q%s", workload, c.Name, suggestion(c.Name, scriptCommands[workload])))
		}
		if c != nil && c.Expected != nil && c.Name != "blind-deposit" {
			at(c.Name + " expects the version that it was decided on; `expected` goes with blind-deposit")
		}
	}
	return s
}

var scriptCommands = map[string][]string{
	"bank":    {"open", "withdraw", "deposit", "blind-deposit", "close"},
	"auction": {"create", "bid", "close"},
}
