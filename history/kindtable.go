package history

import "fmt"

// kindTable has one line for every kind: its name in the JSON form, what it says, and how to make an empty one.
var kindTable = [...]struct {
	name string
	says string
	make func() Record
}{
	KindTrial:          {"trial", "opens every history: what was run, and everything a checker must know of it", func() Record { return new(Trial) }},
	KindProcess:        {"process", "start of a role process, or of a role inside the runner's process", func() Record { return new(Process) }},
	KindProcessEnd:     {"process-end", "end of a role; a killed one turns its open attempts into unknown at t", func() Record { return new(ProcessEnd) }},
	KindCallStart:      {"call-start", "one run of the command loop for one command begins", func() Record { return new(CallStart) }},
	KindCallEnd:        {"call-end", "the answer that the caller got", func() Record { return new(CallEnd) }},
	KindWrite:          {"write", "one decision under a command: the same events over all blind retries", func() Record { return new(Write) }},
	KindInvoke:         {"invoke", "an attempt of a write, recorded before its first byte leaves", func() Record { return new(Invoke) }},
	KindReturn:         {"return", "the answer to an attempt, stamped after it was read", func() Record { return new(Return) }},
	KindEvidence:       {"evidence", "a stable fact that upgrades the unknown attempts of a write", func() Record { return new(Evidence) }},
	KindRead:           {"read", "one read of a stream, recorded whole when it returns", func() Record { return new(Read) }},
	KindSnapshotWrite:  {"snapshot-write", "journal of a snapshot, recorded before the put", func() Record { return new(SnapshotWrite) }},
	KindSnapshotResult: {"snapshot-result", "how the put of a snapshot ended", func() Record { return new(SnapshotResult) }},
	KindPoll:           {"poll", "one answer of a feed to a projector", func() Record { return new(Poll) }},
	KindApply:          {"apply", "one application of a page to a projection, recorded when it ended", func() Record { return new(Apply) }},
	KindFault:          {"fault", "a planned fault begins", func() Record { return new(Fault) }},
	KindFaultEnd:       {"fault-end", "a fault is lifted, and whether it was observed to bite", func() Record { return new(FaultEnd) }},
	KindBite:           {"bite", "one observed effect of a fault on one request", func() Record { return new(Bite) }},
	KindDrop:           {"drop", "an arrival that the generator could not start: its queue was full", func() Record { return new(Drop) }},
	KindPhase:          {"phase", "a phase of the load begins", func() Record { return new(Phase) }},
	KindFence:          {"fence", "the proof that nothing of the run can take effect any more", func() Record { return new(Fence) }},
	KindLoggedEvent:    {"logged-event", "one event of the final log, read by the audit", func() Record { return new(LoggedEvent) }},
	KindLedgerRow:      {"ledger-row", "one effect: one event applied to, or passed over for, one view row", func() Record { return new(LedgerRow) }},
	KindCheckpointRow:  {"checkpoint-row", "one durable value of a checkpoint, read from its history by the audit", func() Record { return new(CheckpointRow) }},
	KindViewRow:        {"view-row", "one row of a view, in the final state or in an observation", func() Record { return new(ViewRow) }},
	KindObservation:    {"observation", "an atomic read of a projection during the run", func() Record { return new(Observation) }},
	KindAudit:          {"audit", "closes the audit: everything was read", func() Record { return new(Audit) }},
	KindEnd:            {"end", "closes a merged history", func() Record { return new(End) }},
	KindAuctionRow:     {"auction-row", "the row of an auction in its native form, read by the audit", func() Record { return new(AuctionRow) }},
	KindHeadRow:        {"head-row", "what a store keeps of where a stream ends, read by the audit", func() Record { return new(HeadRow) }},
}

// String returns the name used in the JSON form.
func (k Kind) String() string {
	if k.known() {
		return kindTable[k].name
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

func (k Kind) known() bool { return int(k) < len(kindTable) && kindTable[k].make != nil }

// Kind implements Record.
func (*Trial) Kind() Kind { return KindTrial }

// Kind implements Record.
func (*Process) Kind() Kind { return KindProcess }

// Kind implements Record.
func (*ProcessEnd) Kind() Kind { return KindProcessEnd }

// Kind implements Record.
func (*CallStart) Kind() Kind { return KindCallStart }

// Kind implements Record.
func (*CallEnd) Kind() Kind { return KindCallEnd }

// Kind implements Record.
func (*Write) Kind() Kind { return KindWrite }

// Kind implements Record.
func (*Invoke) Kind() Kind { return KindInvoke }

// Kind implements Record.
func (*Return) Kind() Kind { return KindReturn }

// Kind implements Record.
func (*Evidence) Kind() Kind { return KindEvidence }

// Kind implements Record.
func (*Read) Kind() Kind { return KindRead }

// Kind implements Record.
func (*SnapshotWrite) Kind() Kind { return KindSnapshotWrite }

// Kind implements Record.
func (*SnapshotResult) Kind() Kind { return KindSnapshotResult }

// Kind implements Record.
func (*Poll) Kind() Kind { return KindPoll }

// Kind implements Record.
func (*Apply) Kind() Kind { return KindApply }

// Kind implements Record.
func (*Fault) Kind() Kind { return KindFault }

// Kind implements Record.
func (*FaultEnd) Kind() Kind { return KindFaultEnd }

// Kind implements Record.
func (*Bite) Kind() Kind { return KindBite }

// Kind implements Record.
func (*Drop) Kind() Kind { return KindDrop }

// Kind implements Record.
func (*Phase) Kind() Kind { return KindPhase }

// Kind implements Record.
func (*Fence) Kind() Kind { return KindFence }

// Kind implements Record.
func (*LoggedEvent) Kind() Kind { return KindLoggedEvent }

// Kind implements Record.
func (*LedgerRow) Kind() Kind { return KindLedgerRow }

// Kind implements Record.
func (*CheckpointRow) Kind() Kind { return KindCheckpointRow }

// Kind implements Record.
func (*ViewRow) Kind() Kind { return KindViewRow }

// Kind implements Record.
func (*Observation) Kind() Kind { return KindObservation }

// Kind implements Record.
func (*Audit) Kind() Kind { return KindAudit }

// Kind implements Record.
func (*End) Kind() Kind { return KindEnd }

// Kind implements Record.
func (*AuctionRow) Kind() Kind { return KindAuctionRow }

// Kind implements Record.
func (*HeadRow) Kind() Kind { return KindHeadRow }
