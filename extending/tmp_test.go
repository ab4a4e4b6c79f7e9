package extending_test

import (
	"github.com/eventproof/eventproof/verdict"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

type tv struct {
	name string
	f    func() parts
	sc   string
}

func TestTmp(t *testing.T) {
	n := 1
	if s := os.Getenv("N"); s != "" {
		n, _ = strconv.Atoi(s)
	}
	only := os.Getenv("ONLY")
	for _, v := range []tv{
		{"check-then-act", checkThenAct, "b"}, {"no-version-check", noVersionCheck, "b"}, {"only-ahead", onlyAheadIsRefused, "b"}, {"ack-before", ackBeforeWrite, "b"},
		{"lost-buffer", lostBuffer, "b"}, {"forgets", forgetsRequests, "b"}, {"short-memory", shortMemory, "b"}, {"replay-head", replayTellsTheHead, "b"}, {"note-before", noteBeforeAppend, "b"},
		{"dedupe-content", dedupeByContent, "b"}, {"cancelled-failed", cancelledMeansFailed, "b"}, {"throttled-after", throttledAfterCommit, "b"}, {"late", lateAfterNotSent, "b"}, {"false-conflicts", falseConflicts, "b"},
		{"cached-heads", cachedHeads, "b"}, {"wrong-head", conflictNamesWrongHead, "b"}, {"copy", readsFromCopy, "b"}, {"copy-a", readsFromCopy, "a"}, {"one-page", onePageOnly, "b"}, {"prefix", prefixRead, "b"}, {"torn", tornBatch, "b"},
		{"own-ids", ownIDs, "b"}, {"burns", burnsVersions, "b"}, {"json", reordersJSON, "b"}, {"meta", dropsMetadata, "b"}, {"positions", wrongPositions, "b"}, {"snap", collidingSnapshots, "b"}, {"lww", lastWriterWins, "b"}, {"silent-replay", silentReplay, "b"}, {"silent-replay-a", silentReplay, "a"}, {"wrong-stream", wrongStream, "b"},
		{"f-late", cursorReadLate, "b"}, {"f-cut", pageCutByOne, "b"}, {"f-incl", inclusive, "b"}, {"f-newest", newestFirst, "b"}, {"f-sorted", sortedByStream, "b"}, {"f-buffer", reusedBuffer, "b"}, {"f-type", unknownType, "b"}, {"f-rewinds", rewinds, "b"}, {"f-versions", ownVersions, "b"}, {"f-stuck", stuck, "b"},
		{"p-nocas", noCompareAndSet, "b"}, {"p-lost", lostUpdate, "b"}, {"p-behind", checkpointBehind, "b"}, {"p-ahead", checkpointAhead, "b"}, {"p-cache", staleRowCache, "b"}, {"p-filter", filtersTooMuch, "b"}, {"p-upd", updateWithoutInsert, "b"}, {"p-rowv", rowVersionBehind, "b"}, {"p-keys", cutKeys, "b"}, {"p-old", storesOldCursor, "b"}, {"p-claim", claimStartsOver, "b"}, {"p-poison", skipsPoison, "b"}, {"p-ledger", forgetsLedger, "b"}, {"p-drops", dropsClosed, "a"},
	} {
		if only != "" && !strings.Contains(","+only+",", ","+v.name+",") {
			continue
		}
		for i := range n {
			t.Run(v.name, func(t *testing.T) {
				t.Parallel()
				sc := "crowd-bank.yaml"
				if v.sc == "a" {
					sc = "crowd-auction.yaml"
				}
				tr := run(t, variant(v.name, v.f), sc, uint64(i), time.Second)
				if tr.Problem != "" {
					t.Log("PROBLEM", tr.Problem)
				}
				t.Log("VIOLATED", v.name, with(tr, verdict.Violated), "ERR", with(tr, verdict.Error), "INC", with(tr, verdict.Inconclusive))
				if only != "" {
					for _, s := range with(tr, verdict.Violated, verdict.Error, verdict.Inconclusive) {
						t.Log(tell(tr, s))
					}
				}
			})
		}
	}
}
