package reports

import (
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/eventproof/eventproof/verdict"
)

const (
	witnessWidth = 960.0
	witnessLeft  = 132.0
	witnessRight = 10.0
	witnessRow   = 22.0
	witnessBar   = 12.0
	drawnRecords = 60
)

// outcomeInk is the colour of a bar; the outcome's word stands beside it.
func outcomeInk(outcome string) ink {
	switch {
	case strings.HasPrefix(outcome, "ok"):
		return inkOK
	case strings.HasPrefix(outcome, "fail"), strings.HasPrefix(outcome, "violat"):
		return inkBad
	case strings.HasPrefix(outcome, "unknown"):
		return inkUnsure
	}
	return inkPlain
}

// drawWitness draws a violation as a timeline: a row a participant, bars from begin to return, the records
// that make it wrong outlined. Bars carry the number of their line in the table below the picture.
func drawWitness(id string, v *verdict.Violation) template.HTML {
	records, dropped := chosen(v.Records, drawnRecords)
	if len(records) == 0 {
		return ""
	}
	from, to := window(v, records)
	left, right := witnessLeft, witnessWidth-witnessRight
	x := func(ns int64) float64 {
		f := float64(ns-from) / float64(to-from)
		return left + 4 + min(max(f, 0), 1)*(right-left-8)
	}
	numbers := map[int]int{} // index in records → number in the table
	table, _ := chosen(v.Records, pageRecords)
	used := make([]bool, len(table))
	for i, r := range records {
		for k, o := range table {
			if !used[k] && o == r {
				used[k], numbers[i] = true, k+1
				break
			}
		}
	}

	var order []string
	for _, r := range records {
		if r.Lane != faultLane && !slices.Contains(order, r.Lane) {
			order = append(order, r.Lane)
		}
	}
	if slices.ContainsFunc(records, func(r verdict.Evidence) bool { return r.Lane == faultLane }) {
		order = append(order, faultLane)
	}
	type bar struct {
		verdict.Evidence
		row            int
		x0, x1, labelX float64
		anchor, label  string
	}
	var bars []bar
	offset := map[string]int{}
	rows := 0
	for _, lane := range order {
		offset[lane] = rows
		var pack lanes
		for i, r := range records {
			if r.Lane != lane {
				continue
			}
			b := bar{Evidence: r, x0: x(r.StartNS), x1: x(r.EndNS), anchor: "start"}
			if r.EndNS < 0 {
				b.x1 = right - 4
			}
			b.x1 = max(b.x1, b.x0+3)
			b.label = fmt.Sprintf("%d  %s", numbers[i], plain(r.What))
			if r.Outcome != "" {
				b.label += " → " + plain(r.Outcome)
			} else if r.EndNS < 0 {
				b.label += " → never returned"
			}
			w := textWidth(b.label, smallFont)
			begin, end := b.x0, b.x1
			inside, after, before := b.x1-b.x0-8, right-b.x1-6, b.x0-6-left
			switch {
			case w <= after:
				b.labelX, end = b.x1+5, b.x1+5+w
			case w <= before:
				b.labelX, b.anchor, begin = b.x0-5, "end", b.x0-5-w
			case w <= inside:
				b.labelX = b.x0 + 5
			case after >= before && after > inside:
				b.label = fit(b.label, after, smallFont)
				b.labelX, end = b.x1+5, right
			case before > inside:
				b.label = fit(b.label, before, smallFont)
				b.labelX, b.anchor, begin = b.x0-5, "end", left
			default:
				b.label = fit(b.label, inside, smallFont)
				b.labelX = b.x0 + 5
			}
			b.row = rows + pack.place(begin, end+6)
			bars = append(bars, b)
		}
		rows += len(pack.rows)
	}

	const head = 22.0
	height := head + float64(rows)*witnessRow + 8
	s := newSVG(witnessWidth, height, id, "Timeline of a violation: "+clip(plain(v.Summary), 160), describeWitness(records))
	// Four moments on the axis at the top.
	for i := range 5 {
		ns := from + (to-from)*int64(i)/4
		px := x(ns)
		anchor := [5]string{"start", "middle", "middle", "middle", "end"}[i]
		s.line(px, head-4, px, height-4, inkGrid, `stroke-width="1"`)
		s.text(px, 12, anchor, instant(ns, to), inkMuted, `font-size="11"`)
	}
	for i, lane := range order {
		y := head + float64(offset[lane])*witnessRow
		if i > 0 {
			s.line(0, y, witnessWidth, y, inkGrid, `stroke-width="1"`)
		}
		s.text(2, y+15, "start", fit(plain(lane), witnessLeft-8, fontSize), inkText, `font-weight="600"`)
	}
	for _, b := range bars {
		y := head + float64(b.row)*witnessRow + (witnessRow-witnessBar)/2
		fill, opacity := outcomeInk(b.Outcome), `fill-opacity="0.35"`
		if b.Lane == faultLane {
			fill, opacity = inkFault, `fill-opacity="0.25"`
		}
		s.rect(b.x0, y, b.x1-b.x0, witnessBar, fill, opacity+` rx="2"`)
		edge, weight := fill, `stroke-width="1"`
		if b.Cause {
			edge, weight = inkText, `stroke-width="2"`
		}
		if b.EndNS < 0 {
			weight += ` stroke-dasharray="4 2"`
		}
		s.path([]point{{b.x0, y}, {b.x1, y}, {b.x1, y + witnessBar}, {b.x0, y + witnessBar}, {b.x0, y}}, edge, weight)
		bold := `font-size="11"`
		if b.Cause {
			bold += ` font-weight="700"`
		}
		s.text(b.labelX, y+witnessBar-2, b.anchor, b.label, inkText, bold)
	}
	out := s.html()
	if dropped > 0 {
		out += template.HTML(fmt.Sprintf("<p>%s not drawn.</p>\n", plural(dropped, "record is", "records are")))
	}
	return out
}

func describeWitness(records []verdict.Evidence) string {
	var parts []string
	for _, r := range records {
		if r.Cause {
			parts = append(parts, plain(r.Lane)+": "+plain(r.What))
		}
	}
	return "What makes it wrong: " + strings.Join(parts, "; ")
}
