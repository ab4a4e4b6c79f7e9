package history

import (
	"fmt"

	"github.com/eventproof/eventproof/eventstore"
)

// enumeration is a closed set of values of one field; a value outside it makes a record unreadable, because no
// checker could say what it means.
type enumeration struct {
	name    string
	first   uint8
	names   []string
	meaning []string
}

// member is a value of an enumeration with what it means.
type member struct {
	value fmt.Stringer
	means string
}

func enumerate(name string, first uint8, members ...member) *enumeration {
	e := &enumeration{name: name, first: first}
	for _, m := range members {
		e.names = append(e.names, m.value.String())
		e.meaning = append(e.meaning, m.means)
	}
	return e
}

func (e *enumeration) has(v uint8) bool { return v >= e.first && int(v-e.first) < len(e.names) }

func (e *enumeration) nameOf(v uint8) string {
	if e.has(v) {
		return e.names[v-e.first]
	}
	return fmt.Sprintf("%s(%d)", e.name, v)
}

var (
	outcomes = enumerate("outcome", 0,
		member{eventstore.Unknown, "may take effect zero or one times, up to the fence"},
		member{eventstore.OK, "acknowledged"},
		member{eventstore.Fail, "definitely no effect, now or later"})
	reasons = enumerate("reason", 0,
		member{eventstore.ReasonNone, "none given"},
		member{eventstore.VersionConflict, "the exact expected version did not match"},
		member{eventstore.ExpectedAhead, "the expected version lies beyond the head"},
		member{eventstore.LostRace, "an append without an expected version lost a race"},
		member{eventstore.TransactionConflict, "serialization failure, deadlock or a transaction conflict"},
		member{eventstore.Throttled, "refused for load"},
		member{eventstore.GroupAborted, "the group commit that held the write was aborted"},
		member{eventstore.NotSent, "no byte of the request left the process"},
		member{eventstore.TooLarge, "exceeds what the store accepts; refused before sending"},
		member{eventstore.Invalid, "malformed request; refused"},
		member{eventstore.Rejected, "a definite error of another kind before any effect"},
		member{eventstore.LostReply, "the connection failed after bytes may have left"},
		member{eventstore.TimedOut, "no reply within the attempt's own time-out"},
		member{eventstore.Cancelled, "the caller gave up after bytes may have left"},
		member{eventstore.ServerUncertain, "the server's error does not tell whether it took effect"},
		member{eventstore.Killed, "the process died with the attempt open"},
		member{eventstore.Fenced, "a newer owner has taken over"},
		member{eventstore.Superseded, "the conditional move of a checkpoint found another value"},
		member{eventstore.Refused, "the condition of a native operation said no"})
	results = enumerate("result", 0,
		member{ResultUnknown, "the caller can't tell"},
		member{ResultOK, "done"},
		member{ResultRefused, "a business refusal, with a code"},
		member{ResultExhausted, "version conflicts used up the decision budget"},
		member{ResultFailed, "every write of the call is definitely without effect"})
	processExits = enumerate("processExit", 0,
		member{Exited, "by itself, records complete"},
		member{Killed, "SIGKILL"},
		member{Crashed, "crashed at a point: sockets reset, then unwound"})
	evidenceForms = enumerate("evidenceForm", 1,
		member{E1OwnEvent, "own event id read strongly"},
		member{E2SlotHeld, "the slot after the expected version is held"},
		member{E3Refenced, "read-committed read after a successful re-fence"},
		member{E4StoreStatus, "the store's own final status of the transaction"},
		member{E5FinalRefusal, "a refusal that can't become false again"})
	biteForms = enumerate("biteForm", 1,
		member{BiteReplyDropped, "request forwarded whole, the reply cut"},
		member{BiteReplyHeld, "reply held back for a while"},
		member{BiteRequestParked, "request kept in the proxy"},
		member{BiteRequestReleased, "a parked request sent on"},
		member{BiteRequestCut, "request never forwarded"},
		member{BiteConnectionCut, "connection closed or reset"},
		member{BiteDelayed, "bytes delayed"},
		member{BiteRefused, "a new connection refused"},
		member{BiteKilled, "process killed"},
		member{BitePaused, "process paused"},
		member{BiteRestarted, "process back"})
	landings = enumerate("landed", 0,
		member{LandedUnknown, "not known"},
		member{LandedYes, "the request took effect"},
		member{LandedNo, "the request had no effect"})
	hows = enumerate("how", 1,
		member{Applied, "applied to the row"},
		member{Superseded, "passed over: the row was at this version or beyond"},
		member{Filtered, "not for this view"},
		member{Parked, "set aside, to be handled by a person"})
)
