package history

import "github.com/eventproof/eventproof/eventstore"

// The walks are the wire format: order and types of the fields may change only with the format version.

func (r *Trial) walk(v visitor) { v.info("info", &r.Info) }

func (r *Process) walk(v visitor) {
	v.u32("id", &r.ID)
	v.str("role", &r.Role)
	v.str("name", &r.Name)
	v.u32("incarnation", &r.Incarnation)
	v.u32("pid", &r.PID)
	v.boolean("child", &r.Child)
	v.i64("t", &r.T)
}

func (r *ProcessEnd) walk(v visitor) {
	v.u32("id", &r.ID)
	v.i64("t", &r.T)
	v.enum("how", (*uint8)(&r.How), processExits)
	v.u64("calls", &r.Calls)
	v.u64("writes", &r.Writes)
	v.u64("attempts", &r.Attempts)
	v.u64("reads", &r.Reads)
}

func (r *CallStart) walk(v visitor) {
	v.u64("call", &r.Call)
	v.u32("process", &r.Process)
	v.u32("session", &r.Session)
	v.str("commandId", &r.CommandID)
	v.str("stream", &r.Stream)
	v.str("name", &r.Name)
	v.bytes("body", &r.Body)
	v.boolean("continued", &r.Continued)
	v.i64("intended", &r.Intended)
	v.i64("started", &r.Started)
}

func (r *CallEnd) walk(v visitor) {
	v.u64("call", &r.Call)
	v.i64("t", &r.T)
	v.enum("result", (*uint8)(&r.Result), results)
	v.str("code", &r.Code)
	v.boolean("retriable", &r.Retriable)
	v.str("text", &r.Text)
	v.u64("version", &r.Version)
	v.hash("stateHash", &r.StateHash)
	v.ids("events", &r.Events)
	v.boolean("replayed", &r.Replayed)
	walkDecision(v, &r.Decision)
	v.i64("have", &r.Have)
	v.i64("want", &r.Want)
	v.i64("at", &r.At)
	v.u32("conflicts", &r.Conflicts)
}

func walkDecision(v visitor, d *eventstore.Decision) {
	v.begin("decision")
	v.u64("basis", &d.Basis)
	v.hash("hash", &d.Hash)
	v.u64("read", &d.Read)
	v.u64("snapshot", &d.Snapshot)
	v.i64("now", &d.Now)
	v.end()
}

func (r *Write) walk(v visitor) {
	v.u64("write", &r.Write)
	v.u64("call", &r.Call)
	v.str("stream", &r.Stream)
	v.boolean("any", &r.Any)
	v.u64("expected", &r.Expected)
	v.str("request", &r.Request)
	v.writeEvents("events", &r.Events)
	walkDecision(v, &r.Decision)
}

func (e *WriteEvent) walk(v visitor) {
	v.id("id", &e.ID)
	v.str("type", &e.Type)
	v.hash("payload", &e.Payload)
}

func (r *Invoke) walk(v visitor) {
	v.u64("attempt", &r.Attempt)
	v.u64("write", &r.Write)
	v.i64("t", &r.T)
}

func (r *Return) walk(v visitor) {
	v.u64("attempt", &r.Attempt)
	v.i64("t", &r.T)
	v.enum("outcome", (*uint8)(&r.Outcome), outcomes)
	v.enum("reason", (*uint8)(&r.Reason), reasons)
	v.str("session", &r.Session)
	v.u64("first", &r.First)
	v.u64("last", &r.Last)
	v.ids("events", &r.Events)
	v.positions("positions", &r.Positions)
	v.boolean("replayed", &r.Replayed)
	v.u64("head", &r.Head)
	v.boolean("headKnown", &r.HeadKnown)
	v.u32("driverRetries", &r.DriverRetries)
	v.u32("roundTrips", &r.RoundTrips)
	v.str("text", &r.Text)
}

func (r *Evidence) walk(v visitor) {
	v.u64("write", &r.Write)
	v.u64("call", &r.Call)
	v.u64("read", &r.Read)
	v.i64("t", &r.T)
	v.enum("form", (*uint8)(&r.Form), evidenceForms)
	v.enum("outcome", (*uint8)(&r.Outcome), outcomes)
}

func (r *Read) walk(v visitor) {
	v.u64("read", &r.Read)
	v.u64("call", &r.Call)
	v.u32("process", &r.Process)
	v.u32("session", &r.Session)
	v.str("stream", &r.Stream)
	v.u64("from", &r.From)
	v.u64("to", &r.To)
	v.i64("invoke", &r.Invoke)
	v.i64("t", &r.T)
	v.enum("outcome", (*uint8)(&r.Outcome), outcomes)
	v.enum("reason", (*uint8)(&r.Reason), reasons)
	v.boolean("strong", &r.Strong)
	v.u64("first", &r.First)
	v.u64("last", &r.Last)
	v.u64("count", &r.Count)
	v.rangeHash("range", &r.Range)
	v.u64("snapshot", &r.Snapshot)
	v.u32("pages", &r.Pages)
	v.str("flaw", &r.Flaw)
}

func (r *SnapshotWrite) walk(v visitor) {
	v.u32("process", &r.Process)
	v.i64("t", &r.T)
	v.str("stream", &r.Stream)
	v.u64("version", &r.Version)
	v.bytes("state", &r.State)
}

func (r *SnapshotResult) walk(v visitor) {
	v.u32("process", &r.Process)
	v.i64("t", &r.T)
	v.str("stream", &r.Stream)
	v.u64("version", &r.Version)
	v.enum("outcome", (*uint8)(&r.Outcome), outcomes)
}

func (r *Poll) walk(v visitor) {
	v.u32("process", &r.Process)
	v.str("projection", &r.Projection)
	v.u64("generation", &r.Generation)
	v.i64("invoke", &r.Invoke)
	v.i64("t", &r.T)
	v.cursor("after", &r.After)
	v.cursor("next", &r.Next)
	v.u32("events", &r.Events)
	v.str("held", &r.Held)
	v.enum("outcome", (*uint8)(&r.Outcome), outcomes)
}

func (r *Apply) walk(v visitor) {
	v.u32("process", &r.Process)
	v.str("projection", &r.Projection)
	v.u64("generation", &r.Generation)
	v.i64("invoke", &r.Invoke)
	v.i64("t", &r.T)
	v.cursor("prev", &r.Prev)
	v.cursor("next", &r.Next)
	v.u32("events", &r.Events)
	v.u64("seq", &r.Seq)
	v.enum("outcome", (*uint8)(&r.Outcome), outcomes)
	v.enum("reason", (*uint8)(&r.Reason), reasons)
	v.str("session", &r.Session)
}

func (r *Fault) walk(v visitor) {
	v.str("id", &r.ID)
	v.str("faultKind", &r.FaultKind)
	v.str("on", &r.On)
	v.i64("t", &r.T)
	v.i64("until", &r.Until)
	v.str("text", &r.Text)
}

func (r *FaultEnd) walk(v visitor) {
	v.str("id", &r.ID)
	v.i64("t", &r.T)
	v.boolean("bit", &r.Bit)
	v.str("effect", &r.Effect)
	v.u64("count", &r.Count)
}

func (r *Bite) walk(v visitor) {
	v.str("fault", &r.Fault)
	v.i64("t", &r.T)
	v.str("session", &r.Session)
	v.enum("form", (*uint8)(&r.Form), biteForms)
	v.enum("landed", (*uint8)(&r.Landed), landings)
	v.i64("since", &r.Since)
	v.str("text", &r.Text)
}

func (r *Drop) walk(v visitor) {
	v.u32("process", &r.Process)
	v.i64("intended", &r.Intended)
	v.i64("t", &r.T)
}

func (r *Phase) walk(v visitor) {
	v.str("name", &r.Name)
	v.i64("t", &r.T)
}

func (r *Fence) walk(v visitor) {
	v.i64("t", &r.T)
	v.boolean("fenced", &r.Fenced)
	v.str("proof", &r.Proof)
	v.boolean("drained", &r.Drained)
}

func (r *LoggedEvent) walk(v visitor) {
	v.str("stream", &r.Stream)
	v.u64("version", &r.Version)
	v.id("id", &r.ID)
	v.str("type", &r.Type)
	v.bytes("data", &r.Data)
	v.begin("meta")
	v.str("command", &r.Meta.CommandID)
	v.str("correlation", &r.Meta.CorrelationID)
	v.str("causation", &r.Meta.CausationID)
	v.u64("basis", &r.Meta.BasisVersion)
	v.hash("basisHash", &r.Meta.BasisHash)
	v.u64("epoch", &r.Meta.Epoch)
	v.u32("schema", &r.Meta.SchemaVersion)
	v.end()
	v.position("position", &r.Position)
	v.u64("transaction", &r.Transaction)
}

func (r *LedgerRow) walk(v visitor) {
	v.str("projection", &r.Projection)
	v.u64("generation", &r.Generation)
	v.id("event", &r.Event)
	v.str("stream", &r.Stream)
	v.u64("version", &r.Version)
	v.str("row", &r.Row)
	v.enum("how", (*uint8)(&r.How), hows)
	v.u64("rowVersion", &r.RowVersion)
	v.u64("rowOrder", &r.RowOrder)
	v.u64("seq", &r.Seq)
	v.u64("transaction", &r.Transaction)
	v.u64("epoch", &r.Epoch)
}

func (r *CheckpointRow) walk(v visitor) {
	v.str("projection", &r.Projection)
	v.u64("generation", &r.Generation)
	v.u64("seq", &r.Seq)
	v.u64("epoch", &r.Epoch)
	v.cursor("cursor", &r.Cursor)
	v.u64("transaction", &r.Transaction)
}

func (r *ViewRow) walk(v visitor) {
	v.u32("observation", &r.Observation)
	v.str("projection", &r.Projection)
	v.u64("generation", &r.Generation)
	v.str("row", &r.Row)
	v.u64("version", &r.Version)
	v.bytes("state", &r.State)
}

func (r *Observation) walk(v visitor) {
	v.u32("id", &r.ID)
	v.i64("t", &r.T)
	v.str("projection", &r.Projection)
	v.u64("generation", &r.Generation)
	v.u64("seq", &r.Seq)
	v.cursor("cursor", &r.Cursor)
	v.u32("rows", &r.Rows)
	v.str("why", &r.Why)
}

func (r *Audit) walk(v visitor) {
	v.i64("t", &r.T)
	v.u64("events", &r.Events)
	v.u64("ledger", &r.Ledger)
	v.u64("checkpoints", &r.Checkpoints)
	v.u64("views", &r.Views)
	v.str("problem", &r.Problem)
}

func (r *End) walk(v visitor) {
	v.i64("t", &r.T)
	v.str("interrupt", &r.Interrupt)
}

func (r *AuctionRow) walk(v visitor) {
	v.str("stream", &r.Stream)
	v.boolean("closed", &r.Closed)
	v.i64("opening", &r.Opening)
	v.i64("high", &r.High)
	v.str("bidder", &r.Bidder)
	v.u64("accepted", &r.Accepted)
	v.u64("changes", &r.Changes)
}

func (r *HeadRow) walk(v visitor) {
	v.str("stream", &r.Stream)
	v.u64("version", &r.Version)
}
