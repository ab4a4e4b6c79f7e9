package history

import "fmt"

// Kind numbers the record types; numbers are part of the format and never reused.
type Kind uint8

// The record kinds.
const (
	KindTrial Kind = iota + 1
	KindProcess
	KindProcessEnd
	KindCallStart
	KindCallEnd
	KindWrite
	KindInvoke
	KindReturn
	KindEvidence
	KindRead
	KindSnapshotWrite
	KindSnapshotResult
	KindPoll
	KindApply
	KindFault
	KindFaultEnd
	KindBite
	KindDrop
	KindPhase
	KindFence
	KindLoggedEvent
	KindLedgerRow
	KindCheckpointRow
	KindViewRow
	KindObservation
	KindAudit
	KindEnd
	KindAuctionRow
	KindHeadRow

	lastKind = KindHeadRow
)

// Result is how a call ended for its caller.
type Result uint8

// The results.
const (
	ResultUnknown Result = iota
	ResultOK
	ResultRefused   // a business refusal, with a code
	ResultExhausted // the decision budget was used up by version conflicts
	ResultFailed    // every write of the call is definitely without effect
)

// String returns the name used in reports.
func (r Result) String() string {
	switch r {
	case ResultUnknown:
		return "unknown"
	case ResultOK:
		return "ok"
	case ResultRefused:
		return "refused"
	case ResultExhausted:
		return "exhausted"
	case ResultFailed:
		return "failed"
	}
	return fmt.Sprintf("result(%d)", uint8(r))
}

// ProcessExit is how a role process ended.
type ProcessExit uint8

// The ways a process ends.
const (
	Exited  ProcessExit = iota // by itself, records complete
	Killed                     // SIGKILL
	Crashed                    // crashed at a point: sockets reset, then unwound
)

// String returns the name used in reports.
func (e ProcessExit) String() string {
	switch e {
	case Exited:
		return "exited"
	case Killed:
		return "killed"
	case Crashed:
		return "crashed"
	}
	return fmt.Sprintf("exit(%d)", uint8(e))
}

// EvidenceForm names the five kinds of evidence of INVARIANTS 2.3.
type EvidenceForm uint8

// The forms of evidence.
const (
	E1OwnEvent     EvidenceForm = iota + 1 // own event id read strongly
	E2SlotHeld                             // the slot v+1 of an exact append is held
	E3Refenced                             // read-committed read after a successful re-fence
	E4StoreStatus                          // the store's own final status of the transaction
	E5FinalRefusal                         // a refusal that can't become false again
)

// String returns e1…e5.
func (e EvidenceForm) String() string { return fmt.Sprintf("e%d", uint8(e)) }

// BiteForm is how a fault bit one request.
type BiteForm uint8

// The forms of bites.
const (
	BiteReplyDropped    BiteForm = iota + 1 // request forwarded whole, the reply cut
	BiteReplyHeld                           // reply held back for a while
	BiteRequestParked                       // request kept in the proxy
	BiteRequestReleased                     // a parked request sent on
	BiteRequestCut                          // request never forwarded
	BiteConnectionCut                       // connection closed or reset
	BiteDelayed                             // bytes delayed
	BiteRefused                             // a new connection refused
	BiteKilled                              // process killed
	BitePaused                              // process paused
	BiteRestarted                           // process back
)

// String returns the name used in reports.
func (b BiteForm) String() string {
	names := [...]string{"", "reply-dropped", "reply-held", "request-parked", "request-released", "request-cut",
		"connection-cut", "delayed", "refused", "killed", "paused", "restarted"}
	if int(b) < len(names) {
		return names[b]
	}
	return fmt.Sprintf("bite(%d)", uint8(b))
}

// Landed says whether a request that a fault touched is known to have taken effect.
type Landed uint8

// The three answers.
const (
	LandedUnknown Landed = iota
	LandedYes
	LandedNo
)

// String returns the name used in reports.
func (l Landed) String() string {
	switch l {
	case LandedUnknown:
		return "unknown"
	case LandedYes:
		return "yes"
	case LandedNo:
		return "no"
	}
	return fmt.Sprintf("landed(%d)", uint8(l))
}

// How an event was handled for one view row.
type How uint8

// The ways an event is handled.
const (
	Applied How = iota + 1
	Superseded
	Filtered
	Parked
)

// String returns the name used in ledgers.
func (h How) String() string {
	switch h {
	case Applied:
		return "applied"
	case Superseded:
		return "superseded"
	case Filtered:
		return "filtered"
	case Parked:
		return "parked"
	}
	return fmt.Sprintf("how(%d)", uint8(h))
}
