package reports

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/eventproof/eventproof/verdict"
)

// How many records of a witness are drawn, as text and in the page.
const (
	textRecords = 24
	pageRecords = 200
)

// window of a violation, widened to hold every record that ended.
func window(v *verdict.Violation, records []verdict.Evidence) (from, to int64) {
	from, to = v.WindowNS[0], v.WindowNS[1]
	if from >= to {
		from, to = math.MaxInt64, math.MinInt64
		for _, r := range records {
			from, to = min(from, r.StartNS), max(to, r.StartNS, r.EndNS)
		}
	}
	if len(records) == 0 && from > to {
		return 0, 1
	}
	for _, r := range records {
		if r.Lane != faultLane {
			from, to = min(from, r.StartNS), max(to, r.StartNS, r.EndNS)
		}
	}
	if to <= from {
		to = from + 1
	}
	return from, to
}

const faultLane = "fault"

// chosen returns at most n records, those that make it wrong preferred, in order of time with the faults at the
// end; dropped is how many were left out.
func chosen(records []verdict.Evidence, n int) (out []verdict.Evidence, dropped int) {
	out = slices.Clone(records)
	if len(out) > n {
		slices.SortStableFunc(out, func(a, b verdict.Evidence) int { return causeRank(a) - causeRank(b) })
		dropped = len(out) - n
		out = out[:n]
	}
	slices.SortStableFunc(out, func(a, b verdict.Evidence) int {
		return cmp.Or(laneRank(a)-laneRank(b), cmp.Compare(a.StartNS, b.StartNS))
	})
	return out, dropped
}

// laneRank puts the faults below everybody they act on.
func laneRank(e verdict.Evidence) int {
	if e.Lane == faultLane {
		return 1
	}
	return 0
}

func causeRank(e verdict.Evidence) int {
	if e.Cause {
		return 0
	}
	return 1
}

// timeline draws a witness as text, one record a line: who, when as a bar, what and how it ended. Bars of the
// records that make it wrong are drawn with # and marked with a star.
func timeline(v *verdict.Violation, width int) []string {
	records, dropped := chosen(v.Records, textRecords)
	if len(records) == 0 {
		return nil
	}
	from, to := window(v, records)
	lane := 4
	for _, r := range records {
		lane = max(lane, len([]rune(plain(r.Lane))))
	}
	lane = min(lane, 18)
	bar := min(max(width/3, 20), 40)
	at := func(ns int64) int {
		x := int(float64(ns-from) / float64(to-from) * float64(bar-1))
		return min(max(x, 0), bar-1)
	}
	var out []string
	out = append(out, fmt.Sprintf("window %s – %s after the start", instant(from, to), instant(to, to)))
	for _, r := range records {
		line := []rune(strings.Repeat(" ", bar))
		x0, x1 := at(r.StartNS), at(r.EndNS)
		open := r.EndNS < 0
		if open {
			x1 = bar - 1
		}
		fill := '='
		switch {
		case r.Lane == faultLane:
			fill = '░'
		case r.Cause:
			fill = '#'
		}
		for x := x0; x <= x1; x++ {
			line[x] = fill
		}
		if r.Lane != faultLane {
			line[x0] = '|'
			if open {
				line[x1] = '?'
			} else {
				line[x1] = '|'
			}
		}
		mark := " "
		if r.Cause {
			mark = "*"
		}
		what := plain(r.What)
		if r.Outcome != "" {
			what += " → " + plain(r.Outcome)
		} else if open {
			what += " → never returned"
		}
		room := max(width-lane-bar-4, 20)
		out = append(out, strings.TrimRight(fmt.Sprintf("%-*s %s %s %s", lane, clip(plain(r.Lane), lane), string(line), mark, clip(what, room)), " "))
	}
	if dropped > 0 {
		out = append(out, fmt.Sprintf("(%s not drawn; all are in result.json)", plural(dropped, "more record is", "more records are")))
	}
	return out
}

// instant writes a moment after the trial's start, as exact as the window needs.
func instant(ns, scale int64) string {
	if scale >= 1e9 {
		return fmt.Sprintf("%.3f s", seconds(ns))
	}
	return fmt.Sprintf("%.3f ms", seconds(ns)*1e3)
}
